//! What is counted.

use std::collections::BTreeMap;

use crate::framework::{PluginId, PluginSet};

/// A part of the queue, as metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueName {
    /// Pods to be tried now.
    Active,
    /// Pods that serve a penalty.
    Backoff,
    /// Pods that wait for an event, gated ones included.
    Unschedulable,
}

impl QueueName {
    /// The value of the label `queue`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Backoff => "backoff",
            Self::Unschedulable => "unschedulable",
        }
    }
}

/// What is where at this moment, and what was counted since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pods to be tried now.
    pub active: usize,
    /// Pods that serve a penalty.
    pub backoff: usize,
    /// Pods that wait for an event.
    pub unschedulable: usize,
    /// Pods that a PreEnqueue plugin refuses.
    pub gated: usize,
    /// Attempts under way, those of deleted pods included.
    pub in_flight: usize,
    /// What is kept for attempts that are under way, by the label of the event; the attempts themselves are `PodPopped`.
    pub in_flight_events: BTreeMap<&'static str, usize>,
    /// Waiting pods by the plugin that rejected or refuses them.
    pub unschedulable_by_plugin: BTreeMap<PluginId, usize>,
    /// How often a pod came into a part of the queue from another, by the label of what caused it.
    pub incoming: BTreeMap<(QueueName, &'static str), u64>,
    /// How often a plugin was asked whether an event may help.
    pub hints: u64,
    /// How often an event or the flush took a waiting pod in hand.
    pub visits: u64,
    /// How often an attempt ended well for a pod that only the flush had woken: more than none is the sign of a
    /// plugin that misses events.
    pub rescued_by_flush: u64,
}

/// Counts that cannot be read from the sizes of containers.
#[derive(Debug, Default)]
pub(super) struct Tally {
    blamed: BTreeMap<PluginId, usize>,
    incoming: BTreeMap<(QueueName, &'static str), u64>,
    pub(super) hints: u64,
    pub(super) visits: u64,
    pub(super) rescued_by_flush: u64,
}

impl Tally {
    pub(super) fn incoming(&mut self, queue: QueueName, label: &'static str) {
        *self.incoming.entry((queue, label)).or_default() += 1;
    }

    /// Counts a pod for the plugins in `new` and not any more for those in `old`.
    pub(super) fn blame(&mut self, old: PluginSet, new: PluginSet) {
        for plugin in new.iter().filter(|plugin| !old.contains(*plugin)) {
            *self.blamed.entry(plugin).or_default() += 1;
        }
        for plugin in old.iter().filter(|plugin| !new.contains(*plugin)) {
            if let Some(count) = self.blamed.get_mut(&plugin) {
                *count -= 1;
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        let blamed = self.blamed.iter().filter(|(_, count)| **count > 0);
        Counts {
            unschedulable_by_plugin: blamed.map(|(plugin, count)| (*plugin, *count)).collect(),
            incoming: self.incoming.clone(),
            hints: self.hints,
            visits: self.visits,
            rescued_by_flush: self.rescued_by_flush,
            ..Counts::default()
        }
    }
}
