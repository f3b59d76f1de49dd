//! A judge that answers from tables, and words for tests.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::{NodeName, Requests, Timestamp, Uid};
use gangway_placement::framework::{
    Actions, Change, ClusterEvent, Happening, Help, PluginId, PluginSet, Resource,
};
use gangway_placement::ids::{NodeIndex, PodId, ShapeId};
use gangway_placement::queue::{Arrival, Attempt, Judge, Place, Queue, Settings};
use gangway_placement::{NodeRecord, PodRecord};

pub(super) const GATES: PluginId = PluginId::SchedulingGates;
pub(super) const PREEMPTION: PluginId = PluginId::DefaultPreemption;
pub(super) const FIT: PluginId = PluginId::NodeResourcesFit;
pub(super) const TAINTS: PluginId = PluginId::TaintToleration;
pub(super) const ALL: Help = Help::AfterBackoff { at_most: usize::MAX };

/// Answers from tables: which plugin is closed for whom, who is told of what, and what helps whom.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) closed: BTreeSet<(PluginId, PodId)>,
    pub(super) told: BTreeMap<&'static str, PluginSet>,
    pub(super) helps: BTreeMap<(&'static str, ShapeId, PluginId), Help>,
    /// Who was not refused, for tests to see.
    pub(super) let_in: RefCell<BTreeSet<PodId>>,
}

impl Table {
    /// A plugin that is told of these events, each of which helps every shape without limit.
    pub(super) fn wakes(mut self, plugin: PluginId, labels: &[&'static str]) -> Self {
        for label in labels {
            let told = self.told.entry(label).or_default();
            *told = told.with(plugin);
            for shape in 0..8 {
                self.helps.insert((label, ShapeId(shape), plugin), ALL);
            }
        }
        self
    }

    /// The event helps the shape just so.
    pub(super) fn help(mut self, label: &'static str, shape: u32, plugin: PluginId, help: Help) -> Self {
        self.helps.insert((label, ShapeId(shape), plugin), help);
        self
    }

    pub(super) fn close(&mut self, plugin: PluginId, pod: u32) {
        self.closed.insert((plugin, PodId(pod)));
    }

    pub(super) fn open(&mut self, plugin: PluginId, pod: u32) {
        self.closed.remove(&(plugin, PodId(pod)));
    }
}

impl Judge for Table {
    fn refuses(&self, pod: PodId, gated_by: Option<PluginId>) -> Option<PluginId> {
        let first = gated_by.filter(|plugin| self.closed.contains(&(*plugin, pod)));
        let refuses = first
            .or_else(|| self.closed.iter().find(|(_, closed)| *closed == pod).map(|(plugin, _)| *plugin));
        if refuses.is_none() {
            self.let_in.borrow_mut().insert(pod);
        }
        refuses
    }

    fn told(&self, event: &Happening) -> PluginSet {
        self.told.get(event.label).copied().unwrap_or_default()
    }

    fn helps(&self, event: &Happening, shape: ShapeId, unschedulable: PluginSet, pending: PluginSet) -> Help {
        let told = self.told(event);
        let helps = |plugins: PluginSet| {
            let plugins = plugins.intersection(told);
            plugins.iter().filter_map(|plugin| self.helps.get(&(event.label, shape, plugin)).copied()).max()
        };
        match helps(pending) {
            Some(Help::AfterBackoff { .. } | Help::Immediately) => Help::Immediately,
            _ => helps(unschedulable).unwrap_or(Help::No),
        }
    }
}

pub(super) fn uid(number: u32) -> Uid {
    Uid::from(format!("u{number:03}"))
}

/// A pod of shape 0 that was created in the beginning.
pub(super) fn pod(number: u32, priority: i32) -> Arrival {
    Arrival {
        pod: PodId(number),
        uid: uid(number),
        shape: ShapeId(0),
        priority,
        created_at: Timestamp::EPOCH,
    }
}

pub(super) fn set(plugins: &[PluginId]) -> PluginSet {
    plugins.iter().copied().collect()
}

/// Milliseconds after a second that begins at a round time.
pub(super) fn at(millis: i64) -> Timestamp {
    Timestamp::from_seconds(10_000).plus_millis(millis)
}

pub(super) fn node_added() -> Happening {
    let record = NodeRecord {
        name: NodeName::from("node"),
        labels: Default::default(),
        taints: Vec::new(),
        unschedulable: false,
        allocatable: Requests::default(),
    };
    let change = Change::Node { index: NodeIndex(0), old: None, new: Some(Arc::new(record)) };
    happening(Resource::Node, Actions::ADD, change)
}

pub(super) fn node_deleted() -> Happening {
    Happening { label: "NodeDelete", ..node_added() }
}

/// Another pod lost its node.
pub(super) fn pod_deleted(subject: Uid) -> Happening {
    let change = Change::pod(Some(NodeIndex(0)), Some(Arc::new(record(subject))), None);
    happening(Resource::AssignedPod, Actions::DELETE, change)
}

/// A node is not kept for another pod any more.
pub(super) fn nomination_lost(subject: Uid, priority: i32) -> Happening {
    let pod = PodRecord { priority, ..record(subject) };
    happening(
        Resource::AssignedPod,
        Actions::DELETE,
        Change::nomination(NodeIndex(0), Some(Arc::new(pod)), None),
    )
}

/// The pod itself changed.
pub(super) fn pod_changed(subject: Uid, action: Actions) -> Happening {
    let record = Arc::new(record(subject));
    let change = Change::pod(None, Some(Arc::clone(&record)), Some(record));
    happening(Resource::TargetPod, action, change)
}

/// Anything may have happened, to everybody or to one.
pub(super) fn anything(target: Option<Uid>) -> Happening {
    happening(Resource::Wildcard, Actions::ALL, Change::Anything(target))
}

fn happening(resource: Resource, action: Actions, change: Change) -> Happening {
    let event = ClusterEvent { resource, action };
    Happening { event, label: event.label(), change }
}

fn record(uid: Uid) -> PodRecord {
    PodRecord { uid, ..crate::world::pod("pod", 0) }
}

/// A queue with the usual penalties.
pub(super) fn queue(pop_from_backoff: bool) -> Queue {
    Queue::new(Settings { pop_from_backoff, ..Settings::default() })
}

/// A judge whose plugin `NodeResourcesFit` is woken by added nodes and deleted pods.
pub(super) fn fit() -> Table {
    Table::default().wakes(FIT, &["NodeAdd", "AssignedPodDelete"])
}

/// Adds the pod and begins its attempt.
pub(super) fn try_new(queue: &mut Queue, arrival: Arrival, now: Timestamp, judge: &Table) -> Attempt {
    let pod = arrival.pod;
    queue.add(arrival, now, judge);
    let popped = queue.pop(now, judge).expect("something was added");
    assert_eq!(popped.pod, pod, "somebody else was first");
    popped.attempt
}

/// The pod was tried and rejected, and waits for an event.
pub(super) fn park(queue: &mut Queue, arrival: Arrival, now: Timestamp, judge: &Table) {
    let attempt = try_new(queue, arrival, now, judge);
    queue.rejected(attempt, set(&[FIT]), PluginSet::EMPTY, now, judge);
    assert!(matches!(queue.place(attempt.pod()), Some(Place::Unschedulable { .. })));
}

/// The pod was tried and rejected while something happened, and serves its penalty.
pub(super) fn back_off(queue: &mut Queue, arrival: Arrival, now: Timestamp, judge: &Table) {
    let attempt = try_new(queue, arrival, now, judge);
    queue.happened(&node_added(), now, judge);
    queue.rejected(attempt, set(&[FIT]), PluginSet::EMPTY, now, judge);
    assert!(matches!(queue.place(attempt.pod()), Some(Place::Backoff { error: false, .. })));
}

/// The pod was tried, and something else went wrong.
pub(super) fn fail(queue: &mut Queue, arrival: Arrival, now: Timestamp, judge: &Table) {
    let attempt = try_new(queue, arrival, now, judge);
    queue.failed(attempt, now, judge);
    assert!(matches!(queue.place(attempt.pod()), Some(Place::Backoff { error: true, .. })));
}

/// Pops until there is nothing more, and leaves all of it in flight.
pub(super) fn pop_all(queue: &mut Queue, now: Timestamp, judge: &Table) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop(now, judge)).map(|popped| popped.pod.0).collect()
}

pub(super) fn place(queue: &Queue, pod: u32) -> Place {
    queue.place(PodId(pod)).expect("the pod is known")
}

pub(super) fn is_parked(queue: &Queue, pod: u32) -> bool {
    matches!(place(queue, pod), Place::Unschedulable { .. })
}

pub(super) fn is_gated(queue: &Queue, pod: u32) -> bool {
    matches!(place(queue, pod), Place::Gated { .. })
}
