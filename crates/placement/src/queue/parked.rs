//! Who waits for an event, and whom one can help.
//!
//! Pods that are equal to every plugin and were rejected by the same ones are helped by the same events: they
//! form a group, and an event is judged once for the group. Which plugins rejected a group says which events to judge at
//! all. Gated pods are apart, so that an event that is not for their plugin never meets them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use gangway_model::Timestamp;

use super::entry::Position;
use crate::framework::{PluginId, PluginSet};
use crate::ids::{PodId, ShapeId};

/// What the pods of a group have in common. Ordered by shape first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupKey {
    pub(super) shape: ShapeId,
    pub(super) unschedulable: PluginSet,
    pub(super) pending: PluginSet,
}

impl GroupKey {
    /// What is not after any group of that shape.
    fn first_of(shape: ShapeId) -> Self {
        Self { shape, unschedulable: PluginSet::EMPTY, pending: PluginSet::EMPTY }
    }

    pub(super) fn rejectors(self) -> PluginSet {
        self.unschedulable.union(self.pending)
    }
}

#[derive(Debug, Default)]
pub(super) struct Parked {
    /// By group, and in each in the order of the queue. One set for all, since many groups have a single pod. There is
    /// always a position; none at all is what a search begins before.
    pods: BTreeSet<(GroupKey, Option<Position>)>,
    /// How many pods each group has.
    groups: BTreeMap<GroupKey, u32>,
    by_plugin: BTreeSet<(PluginId, GroupKey)>,
    gated: BTreeSet<(PluginId, PodId)>,
    /// When each of them is tried without any event.
    flushes: BTreeSet<(Timestamp, PodId)>,
}

impl Parked {
    pub(super) fn park(&mut self, group: GroupKey, position: Position, flush_at: Timestamp) {
        self.flushes.insert((flush_at, position.pod));
        self.pods.insert((group, Some(position)));
        let count = self.groups.entry(group).or_default();
        *count += 1;
        if *count == 1 {
            self.by_plugin.extend(group.rejectors().iter().map(|plugin| (plugin, group)));
        }
    }

    pub(super) fn unpark(&mut self, group: GroupKey, position: Position, flush_at: Timestamp) -> bool {
        let is_flush_removed = self.flushes.remove(&(flush_at, position.pod));
        let is_removed = self.pods.remove(&(group, Some(position)));
        if let Some(count) = self.groups.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.groups.remove(&group);
                for plugin in group.rejectors().iter() {
                    self.by_plugin.remove(&(plugin, group));
                }
            }
        }
        is_removed && is_flush_removed
    }

    pub(super) fn gate(&mut self, plugin: PluginId, pod: PodId, flush_at: Timestamp) {
        self.flushes.insert((flush_at, pod));
        self.gated.insert((plugin, pod));
    }

    pub(super) fn ungate(&mut self, plugin: PluginId, pod: PodId, flush_at: Timestamp) -> bool {
        let is_flush_removed = self.flushes.remove(&(flush_at, pod));
        self.gated.remove(&(plugin, pod)) && is_flush_removed
    }

    /// The groups that one of these plugins rejected.
    pub(super) fn groups_of(&self, plugins: PluginSet) -> BTreeSet<GroupKey> {
        let of = |plugin| {
            let all = self.by_plugin.range((plugin, GroupKey::first_of(ShapeId(0)))..);
            all.take_while(move |(found, _)| *found == plugin).map(|(_, group)| *group)
        };
        plugins.iter().flat_map(of).collect()
    }

    /// The pod of the group that is first in order, or first after `last`.
    pub(super) fn next_in(&self, group: GroupKey, last: Option<Position>) -> Option<&Position> {
        let mut rest = self.pods.range((Bound::Excluded((group, last)), Bound::Unbounded));
        let (found, position) = rest.next()?;
        position.as_ref().filter(|_| *found == group)
    }

    /// The pod of that shape that is first in order, whoever rejected it.
    pub(super) fn first_of_shape(&self, shape: ShapeId) -> Option<&Position> {
        let groups = self.groups.range(GroupKey::first_of(shape)..).map(|(group, _)| *group);
        groups.take_while(|group| group.shape == shape).filter_map(|group| self.next_in(group, None)).min()
    }

    /// The pods that one of these plugins refuses.
    pub(super) fn gated_by(&self, plugins: PluginSet) -> Vec<PodId> {
        let of = |plugin| {
            let all = self.gated.range((plugin, PodId(0))..);
            all.take_while(move |(found, _)| *found == plugin).map(|(_, pod)| *pod)
        };
        plugins.iter().flat_map(of).collect()
    }

    /// The pods that have waited for an event too long.
    pub(super) fn overdue(&self, now: Timestamp) -> Vec<PodId> {
        self.flushes.iter().take_while(|(flush_at, _)| *flush_at <= now).map(|(_, pod)| *pod).collect()
    }

    pub(super) fn next_flush(&self) -> Option<Timestamp> {
        self.flushes.first().map(|(flush_at, _)| *flush_at)
    }

    pub(super) fn unschedulable_len(&self) -> usize {
        self.pods.len()
    }

    pub(super) fn gated_len(&self) -> usize {
        self.gated.len()
    }

    /// Whether the pod is filed under exactly this.
    pub(super) fn has_parked(&self, group: GroupKey, position: &Position, flush_at: Timestamp) -> bool {
        self.flushes.contains(&(flush_at, position.pod))
            && self.pods.contains(&(group, Some(position.clone())))
    }

    /// Whether the pod is filed under exactly this.
    pub(super) fn has_gated(&self, plugin: PluginId, pod: PodId, flush_at: Timestamp) -> bool {
        self.flushes.contains(&(flush_at, pod)) && self.gated.contains(&(plugin, pod))
    }

    /// Whether the indexes are those of the pods: every pod has one flush, every group its number of pods and its plugins.
    pub(super) fn is_even(&self) -> bool {
        let mut groups: BTreeMap<GroupKey, u32> = BTreeMap::new();
        for (group, _) in &self.pods {
            *groups.entry(*group).or_default() += 1;
        }
        let plugins = groups.keys().flat_map(|group| group.rejectors().iter().map(|plugin| (plugin, *group)));
        let by_plugin: BTreeSet<_> = plugins.collect();
        groups == self.groups
            && by_plugin == self.by_plugin
            && self.flushes.len() == self.pods.len() + self.gated.len()
            && groups.keys().all(|group| !group.rejectors().is_empty())
    }
}
