//! Which pod, when, on which node: a pure engine.
//!
//! The contract is [`Scheduler`]: news goes in through [`Scheduler::apply`], decisions come out of
//! [`Scheduler::next`], and nothing here knows of time, threads or Kubernetes. A decision to bind is booked
//! at once (the pod is *assumed* on its node), so the next decision counts with it; the
//! [`Outcome`] of the write comes back as an event. Same events at the same times: same decisions.
//!
//! | question | file |
//! |---|---|
//! | who is next, who waits? | `queue.rs` |
//! | what is free where? | `nodes.rs` |
//! | which nodes can take a pod? | `filters.rs` |
//! | which of them is best? | `scores.rs` |
//! | why does a pod wait? | `explain.rs` |
//! | how does news change the state? | `events.rs` |
//! | is the state sound? | `check.rs` |

#![warn(missing_docs)]

mod check;
mod events;
mod explain;
mod filters;
mod nodes;
mod queue;
mod records;
mod scores;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::{NodeName, ObjectName, Timestamp, Uid};

pub use check::Violation;
pub use explain::{Cause, Diagnosis, Explanation, Shortage, State, WaitReason};
pub use records::{NodeRecord, PodRecord};

use nodes::Nodes;
use queue::{Position, Queue, ShapeId};
use shapes::{Columns, Shape};

/// What distinguishes one scheduler from another.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `schedulerName`s of the pods that are ours to place.
    pub scheduler_names: Vec<String>,
    /// Varies how ties between equally good nodes are broken.
    pub seed: u64,
}

/// Something that was observed.
#[derive(Clone, Debug)]
pub enum Event {
    /// A node was created or changed.
    NodeApplied(NodeRecord),
    /// A node is gone.
    NodeDeleted(NodeName),
    /// A pod was created or changed, whoever places it: bound pods of others take room too.
    PodApplied(PodRecord),
    /// A pod is gone.
    PodDeleted(Uid),
    /// How the write of a decision ended.
    Outcome(DecisionId, Outcome),
    /// Every node and pod has been told once. Nothing is decided before.
    Synced,
}

/// Names one decision to bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(u64);

/// How the write of a decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The binding was written. The pod stays assumed until it is observed as bound.
    Landed,
    /// The pod is no longer what it was decided for; what it is now has been or will be observed.
    Conflict,
    /// The binding was refused.
    Rejected,
    /// Nobody knows. The pod stays assumed until it is observed as bound or gone, or until another
    /// outcome for the same decision arrives.
    Unknown,
}

/// What to do. Complete: whoever carries it out has nothing left to choose.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Bind the pod to the node and report the outcome under this id.
    Bind {
        /// The name under which the outcome comes back.
        id: DecisionId,
        /// The pod.
        pod: PodRef,
        /// The node.
        node: NodeName,
    },
    /// Tell the pod why it waits. A diagnosis: it may be dropped and has no outcome.
    Unschedulable {
        /// The pod.
        pod: PodRef,
        /// Why, with numbers.
        reason: WaitReason,
    },
}

/// Which pod, by name and by identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Where it is found.
    pub name: ObjectName,
    /// Which one of those that had this name.
    pub uid: Uid,
}

/// The whole state. Nothing in it outlives a restart: it is rebuilt from what is observed, and bindings
/// that were in flight are then observed as they ended.
#[derive(Debug)]
pub struct Scheduler {
    options: Options,
    synced: bool,
    columns: Columns,
    nodes: Nodes,
    pods: BTreeMap<Uid, PodEntry>,
    queue: Queue,
    /// Pods that were not told yet that they are refused.
    unreported_refusals: BTreeSet<Uid>,
    /// Bindings whose outcome is not known for certain.
    in_flight: BTreeMap<DecisionId, Uid>,
    last_decision: u64,
}

#[derive(Debug)]
struct PodEntry {
    record: PodRecord,
    shape: Arc<Shape>,
    place: Place,
    /// Bindings that failed in a row. Lost at a restart, which costs one early retry.
    failures: u32,
}

/// Where a pod is; exactly one of these.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Gated,
    Refused,
    Queued(ShapeId),
    BackingOff(Timestamp),
    Assumed { node: NodeName, decision: DecisionId },
    Bound(NodeName),
}

impl Place {
    fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Assumed { node, .. } | Self::Bound(node) => Some(node),
            _ => None,
        }
    }
}

impl PodEntry {
    fn position(&self) -> Position {
        Position::new(self.record.priority, self.record.created_at, self.record.uid.clone())
    }

    fn reference(&self) -> PodRef {
        PodRef { name: self.record.name.clone(), uid: self.record.uid.clone() }
    }
}

impl Scheduler {
    /// A scheduler that knows of no node and no pod.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            synced: false,
            columns: Columns::default(),
            nodes: Nodes::default(),
            pods: BTreeMap::new(),
            queue: Queue::default(),
            unreported_refusals: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            last_decision: 0,
        }
    }

    /// What to do now, at most `budget` decisions; call again while it gives any.
    ///
    /// Bindings come first, in the order of the queue; a pod that fits nowhere does not hold up those
    /// behind it. Reports come after them.
    #[must_use]
    pub fn next(&mut self, now: Timestamp, budget: usize) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.synced {
            return decisions;
        }
        self.end_expired_backoffs(now);
        while decisions.len() < budget {
            match self.place_first().or_else(|| self.report_next()) {
                Some(decision) => decisions.push(decision),
                None => break,
            }
        }
        decisions
    }

    /// When to call [`Scheduler::next`] again if nothing happens before.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.queue.next_expiry()
    }

    /// Places the first pod that fits somewhere, parking those before it that do not.
    fn place_first(&mut self) -> Option<Decision> {
        loop {
            let (line, position, shape) = self.queue.first_ready()?;
            let (position, shape) = (position.clone(), Arc::clone(shape));
            let nodes = self.nodes.all();
            let verdicts = filters::judge(&shape, &nodes);
            let fitting: Vec<_> = nodes
                .iter()
                .zip(verdicts)
                .filter_map(|(node, verdict)| verdict.is_none().then_some(*node))
                .collect();
            let best = scores::best(&shape, &fitting, position.uid(), self.options.seed);
            match best.map(|node| node.record.name.clone()) {
                Some(node) => {
                    self.queue.remove(line, &position);
                    return self.assume(position.uid(), node);
                }
                None => {
                    let diagnosis = Diagnosis::new(&self.columns, &shape, &nodes);
                    self.queue.park(line, diagnosis);
                }
            }
        }
    }

    /// Books the pod on the node before anybody has written it.
    fn assume(&mut self, uid: &Uid, node: NodeName) -> Option<Decision> {
        let entry = self.pods.get_mut(uid)?;
        self.last_decision += 1;
        let id = DecisionId(self.last_decision);
        self.nodes.occupy(&node, &entry.shape);
        self.in_flight.insert(id, uid.clone());
        entry.place = Place::Assumed { node: node.clone(), decision: id };
        Some(Decision::Bind { id, pod: entry.reference(), node })
    }

    fn report_next(&mut self) -> Option<Decision> {
        if let Some(uid) = self.unreported_refusals.pop_first() {
            let entry = self.pods.get(&uid)?;
            let reason = WaitReason::Unsupported(entry.record.unsupported.clone());
            return Some(Decision::Unschedulable { pod: entry.reference(), reason });
        }
        let (position, diagnosis) = self.queue.pop_unreported()?;
        let entry = self.pods.get(position.uid())?;
        let reason = WaitReason::NoNodeFits(Diagnosis::clone(&diagnosis));
        Some(Decision::Unschedulable { pod: entry.reference(), reason })
    }
}
