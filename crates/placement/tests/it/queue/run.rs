//! Random histories: steps, and what they come to in a queue.

use std::collections::BTreeMap;
use std::time::Duration;

use gangway_model::{Timestamp, Uid};
use gangway_placement::framework::{Actions, Happening, Help, PluginId, PluginSet};
use gangway_placement::ids::{PodId, ShapeId};
use gangway_placement::queue::{Arrival, Attempt, Popped, Queue, Settings, Standing};
use proptest::prelude::*;

use super::judge::{
    ALL, FIT, GATES, PREEMPTION, TAINTS, Table, anything, at, node_added, node_deleted, nomination_lost,
    pod_changed, pod_deleted,
};

pub(super) const PODS: u32 = 8;
pub(super) const SHAPES: u32 = 3;

/// Something that may happen; pods, attempts and so on are picked from what there is.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Add {
        pod: u32,
        shape: u32,
        priority: i32,
        created: i64,
    },
    Update {
        pod: u32,
        shape: u32,
        priority: i32,
        labels: bool,
        tolerations: bool,
    },
    Delete(u32),
    Pop,
    /// Of the attempts, the how-manieth from the end.
    Done(usize),
    Reject {
        attempt: usize,
        fit: bool,
        taints: bool,
        pending: bool,
    },
    Fail(usize),
    NodeAdded,
    NodeDeleted,
    PodDeleted(u32),
    NominationLost(u32, i32),
    Anything(Option<u32>),
    Activate(u32, u32),
    Close(PluginId, u32),
    Open(PluginId, u32),
    Pass(i64),
    Advance,
}

/// What a step came to.
#[derive(Clone, Debug)]
pub(super) enum Played {
    Added(Arrival),
    Updated(Arrival, Vec<Happening>),
    Deleted(PodId),
    Popped(Option<Popped>),
    Done(usize),
    Rejected(usize, PluginSet, PluginSet),
    Failed(usize),
    Happened(Happening),
    Activated(Vec<PodId>),
    Advanced,
    /// A gate opened or closed, or time passed.
    Else,
}

/// A queue with its surroundings.
pub(super) struct Run {
    pub(super) queue: Queue,
    pub(super) settings: Settings,
    pub(super) table: Table,
    pub(super) now: Timestamp,
    /// Every attempt that ever began.
    pub(super) attempts: Vec<Attempt>,
    /// The pods that there are, as they were told last.
    pub(super) known: Vec<Option<Arrival>>,
    generation: u32,
}

impl Run {
    pub(super) fn new(settings: Settings, table: Table) -> Self {
        Self {
            queue: Queue::new(settings),
            settings,
            table,
            now: at(0),
            attempts: Vec::new(),
            known: vec![None; PODS as usize],
            generation: 0,
        }
    }

    pub(super) fn alive(&self) -> impl Iterator<Item = PodId> {
        (0..).map(PodId).zip(&self.known).filter(|(_, known)| known.is_some()).map(|(pod, _)| pod)
    }

    /// Where every pod is.
    pub(super) fn standings(&self) -> BTreeMap<PodId, Standing> {
        self.alive().filter_map(|pod| Some((pod, self.queue.standing(pod)?))).collect()
    }

    pub(super) fn play(&mut self, step: &Step) -> Played {
        let played = self.resolve(step);
        let (queue, table, now) = (&mut self.queue, &self.table, self.now);
        match &played {
            Played::Added(arrival) => queue.add(arrival.clone(), now, table),
            Played::Updated(arrival, events) => queue.update(arrival.clone(), events, now, table),
            Played::Deleted(pod) => queue.delete(*pod, now, table),
            Played::Done(attempt) => queue.done(self.attempts[*attempt]),
            Played::Rejected(attempt, unschedulable, pending) => {
                queue.rejected(self.attempts[*attempt], *unschedulable, *pending, now, table);
            }
            Played::Failed(attempt) => queue.failed(self.attempts[*attempt], now, table),
            Played::Happened(event) => queue.happened(event, now, table),
            Played::Activated(pods) => queue.activate(pods, now, table),
            Played::Advanced => queue.advance(now, table),
            Played::Popped(_) => {
                let popped = queue.pop(now, table);
                self.attempts.extend(popped.as_ref().map(|popped| popped.attempt));
                return Played::Popped(popped);
            }
            Played::Else => {}
        }
        played
    }

    fn resolve(&mut self, step: &Step) -> Played {
        match *step {
            Step::Add { pod, shape, priority, created } => {
                let uid = self.uid_for(pod);
                let created_at = Timestamp::from_seconds(created);
                let arrival = Arrival { pod: PodId(pod), uid, shape: ShapeId(shape), priority, created_at };
                self.known[pod as usize] = Some(arrival.clone());
                Played::Added(arrival)
            }
            Step::Update { pod, shape, priority, labels, tolerations } => {
                let uid = self.uid_for(pod);
                let changes =
                    [(labels, Actions::UPDATE_POD_LABEL), (tolerations, Actions::UPDATE_POD_TOLERATION)];
                let changed = changes.into_iter().filter(|(is_changed, _)| *is_changed);
                let events = changed.map(|(_, action)| pod_changed(uid.clone(), action)).collect();
                let created_at = Timestamp::EPOCH;
                let arrival = Arrival { pod: PodId(pod), uid, shape: ShapeId(shape), priority, created_at };
                self.known[pod as usize] = Some(arrival.clone());
                Played::Updated(arrival, events)
            }
            Step::Delete(pod) => {
                self.known[pod as usize] = None;
                Played::Deleted(PodId(pod))
            }
            Step::Pop => Played::Popped(None),
            Step::Done(attempt) => self.attempt(attempt).map_or(Played::Else, Played::Done),
            Step::Reject { attempt, fit, taints, pending } => {
                let unschedulable = [(fit, FIT), (taints, TAINTS)];
                let unschedulable =
                    unschedulable.into_iter().filter(|(is_in, _)| *is_in).map(|(_, p)| p).collect();
                let pending = pending.then_some(PREEMPTION).into_iter().collect();
                self.attempt(attempt).map_or(Played::Else, |a| Played::Rejected(a, unschedulable, pending))
            }
            Step::Fail(attempt) => self.attempt(attempt).map_or(Played::Else, Played::Failed),
            Step::NodeAdded => Played::Happened(node_added()),
            Step::NodeDeleted => Played::Happened(node_deleted()),
            Step::PodDeleted(pod) => Played::Happened(pod_deleted(self.uid_or_stranger(pod))),
            Step::NominationLost(pod, priority) => {
                Played::Happened(nomination_lost(self.uid_or_stranger(pod), priority))
            }
            Step::Anything(pod) => {
                let target = pod.map(|pod| self.uid_or_stranger(pod));
                Played::Happened(anything(target))
            }
            Step::Activate(one, other) => Played::Activated(vec![PodId(one), PodId(other)]),
            Step::Close(plugin, pod) => {
                self.table.close(plugin, pod);
                Played::Else
            }
            Step::Open(plugin, pod) => {
                self.table.open(plugin, pod);
                Played::Else
            }
            Step::Pass(millis) => {
                self.now = self.now.plus_millis(millis);
                Played::Else
            }
            Step::Advance => Played::Advanced,
        }
    }

    fn attempt(&self, from_end: usize) -> Option<usize> {
        self.attempts.len().checked_sub(from_end + 1)
    }

    fn uid_or_stranger(&self, pod: u32) -> Uid {
        self.known[pod as usize].as_ref().map_or_else(|| Uid::from("stranger"), |known| known.uid.clone())
    }

    /// The identity of the pod that has this number now; a new one if there is none.
    fn uid_for(&mut self, pod: u32) -> Uid {
        self.generation += 1;
        // Not in the order in which they come.
        let text = format!("{:02}-{}", (self.generation * 7) % 10, self.generation);
        self.known[pod as usize].as_ref().map_or_else(|| Uid::from(text), |known| known.uid.clone())
    }
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 20..80)
}

fn step() -> impl Strategy<Value = Step> {
    let pod = || 0..PODS;
    let attempt = || prop_oneof![4 => 0..2_usize, 1 => 0..6_usize];
    let gate = || prop_oneof![Just(GATES), Just(PREEMPTION)];
    prop_oneof![
        6 => (pod(), 0..SHAPES, 0..3_i32, 0..2_i64)
            .prop_map(|(pod, shape, priority, created)| Step::Add { pod, shape, priority, created }),
        3 => (pod(), 0..SHAPES, 0..3_i32, any::<bool>(), any::<bool>())
            .prop_map(|(pod, shape, priority, labels, tolerations)| {
                Step::Update { pod, shape, priority, labels, tolerations }
            }),
        2 => pod().prop_map(Step::Delete),
        10 => Just(Step::Pop),
        2 => attempt().prop_map(Step::Done),
        8 => (attempt(), prop::bool::weighted(0.7), prop::bool::weighted(0.3), prop::bool::weighted(0.1))
            .prop_map(|(attempt, fit, taints, pending)| Step::Reject { attempt, fit, taints, pending }),
        3 => attempt().prop_map(Step::Fail),
        4 => Just(Step::NodeAdded),
        1 => Just(Step::NodeDeleted),
        4 => pod().prop_map(Step::PodDeleted),
        2 => (pod(), 0..3_i32).prop_map(|(pod, priority)| Step::NominationLost(pod, priority)),
        1 => prop::option::weighted(0.6, pod()).prop_map(Step::Anything),
        1 => (pod(), pod()).prop_map(|(one, other)| Step::Activate(one, other)),
        2 => (gate(), pod()).prop_map(|(plugin, pod)| Step::Close(plugin, pod)),
        2 => (gate(), pod()).prop_map(|(plugin, pod)| Step::Open(plugin, pod)),
        6 => prop_oneof![
            Just(1_i64), Just(250), Just(500), Just(999), Just(1_000), Just(2_000), Just(9_000), Just(60_000),
            Just(300_000), Just(-700),
        ].prop_map(Step::Pass),
        2 => Just(Step::Advance),
    ]
}

pub(super) fn settings() -> impl Strategy<Value = Settings> {
    let max_backoff = prop_oneof![4 => Just(10), 1 => Just(0), 1 => Just(3)];
    (any::<bool>(), max_backoff, prop_oneof![3 => Just(300), 1 => Just(5)]).prop_map(|(early, max, flush)| {
        Settings {
            pop_from_backoff: early,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(max),
            max_in_unschedulable: Duration::from_secs(flush),
        }
    })
}

/// Who is told of what, and whom it helps how much.
pub(super) fn tables() -> impl Strategy<Value = Table> {
    let labels = [
        "NodeAdd",
        "NodeDelete",
        "AssignedPodDelete",
        "TargetPodUpdatePodLabel",
        "TargetPodUpdatePodToleration",
    ];
    let plugins = [GATES, PREEMPTION, FIT, TAINTS];
    let told = prop::collection::vec(prop::collection::vec(prop::bool::weighted(0.6), 4), labels.len());
    let help = prop_oneof![
        2 => Just(Help::No),
        2 => Just(ALL),
        1 => Just(Help::AfterBackoff { at_most: 0 }),
        3 => Just(Help::AfterBackoff { at_most: 1 }),
        1 => Just(Help::AfterBackoff { at_most: 2 }),
    ];
    let helps = prop::collection::vec(help, labels.len() * SHAPES as usize * plugins.len());
    (told, helps).prop_map(move |(told, helps)| {
        let mut table = Table::default();
        let mut helps = helps.into_iter();
        for (label, told) in labels.into_iter().zip(told) {
            let told =
                plugins.into_iter().zip(told).filter(|(_, is_told)| *is_told).map(|(plugin, _)| plugin);
            table.told.insert(label, told.collect());
            for shape in (0..SHAPES).map(ShapeId) {
                for plugin in plugins {
                    table.helps.insert((label, shape, plugin), helps.next().unwrap_or(Help::No));
                }
            }
        }
        table
    })
}
