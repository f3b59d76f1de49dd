//! Which pod, when, on which node: a pure engine.
//!
//! The contract is [`Scheduler`]: news goes in through [`Scheduler::apply`], decisions come out of
//! [`Scheduler::next`], and nothing here knows of time, threads or Kubernetes. A decision to bind is booked
//! at once (the pod is *assumed* on its node), so the next decision counts with it; the
//! [`Outcome`] of the write comes back as an event. Same events at the same times: same decisions.
//!
//! | question | file |
//! |---|---|
//! | who is next, who waits, and until when? | `queue/` |
//! | what is where, and what is free? | `cluster/` |
//! | which plugins are there, and what can they do? | `framework/`, `plugins/` |
//! | what happens when it is a pod's turn? | `attempt.rs`; which node is best: `cycle.rs`; who has to go: `preemption/` |
//! | which pods belong together, and are spread for that? | `families.rs` |
//! | what is the same for equal pods? | `shapes.rs`; what was said of nodes before: `judged.rs` |
//! | whom does something that happened help? | `wake.rs` |
//! | how does news change the state? | `events.rs` |
//! | why does a pod wait? | `explain.rs` |
//! | what is there, in numbers? | `census.rs`; how often were plugins asked? `evaluations.rs` |
//! | is the state sound? | `check.rs` |

#![warn(missing_docs)]

mod attempt;
mod census;
mod check;
mod cluster;
mod cycle;
mod evaluations;
mod events;
mod explain;
mod families;
pub mod framework;
pub mod ids;
mod judged;
mod plugins;
mod preemption;
pub mod queue;
mod records;
mod shapes;
mod wake;

use std::collections::{BTreeMap, BTreeSet};

use gangway_model::scheduling::SchedulerSettings;
use gangway_model::{NodeName, ObjectName, Timestamp, Uid};

pub use census::Census;
pub use check::Violation;
pub use cycle::Work;
pub use evaluations::{Evaluated, ExtensionPoint};
pub use explain::{Diagnosis, Explanation, Shortage, State, WaitReason};
pub use records::{Demands, DisruptionBudget, Family, FamilyKind, NodeRecord, Owner, PodLabels, PodRecord};

use cluster::Cluster;
use evaluations::Evaluations;
use families::Families;
use framework::{PluginSet, Profile};
use ids::PodId;
use judged::Tables;
use queue::{Attempt, Queue};
use wake::Judging;

/// What distinguishes one scheduler from another.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Profiles, backoff, and whether pods that back off are tried when there is nobody else.
    pub settings: SchedulerSettings,
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
    /// A disruption budget was created or changed.
    BudgetApplied(DisruptionBudget),
    /// A disruption budget is gone.
    BudgetDeleted(ObjectName),
    /// A Service or a set of replicas was created or changed.
    FamilyApplied(Family),
    /// A Service or a set of replicas is gone.
    FamilyDeleted(FamilyKind, ObjectName),
    /// How the write of a decision ended.
    Outcome(DecisionId, Outcome),
    /// Every node and pod has been told once. Nothing is decided before.
    Synced,
}

/// Names one decision that has an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(u64);

/// How the write of a decision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was written. A pod stays assumed until it is observed as bound.
    Landed,
    /// The pod is no longer what it was decided for; what it is now has been or will be observed.
    Conflict,
    /// It was refused.
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
    /// Remove these pods to make room, say so on the pod that gets it, and report the outcome under this id when all are on their way
    /// out, or one could not be removed.
    Preempt {
        /// The name under which the outcome comes back.
        id: DecisionId,
        /// For whom.
        preemptor: PodRef,
        /// Where.
        node: NodeName,
        /// Who has to go.
        victims: Vec<PodRef>,
        /// Why the preemptor waits until then.
        reason: WaitReason,
    },
    /// Tell the pod why it waits. A diagnosis: it may be dropped and has no outcome.
    Report {
        /// The pod.
        pod: PodRef,
        /// Why, with numbers.
        reason: WaitReason,
        /// The node on which room is made for it.
        nominated_node: Option<NodeName>,
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
    profiles: Vec<Profile>,
    seed: u64,
    synced: bool,
    cluster: Cluster,
    queue: Queue,
    tables: Tables,
    budgets: BTreeMap<ObjectName, DisruptionBudget>,
    families: Families,
    /// With which node the next pod begins.
    start: usize,
    /// Pods that were not told yet that they are refused.
    unreported: BTreeSet<PodId>,
    /// Writes whose outcome is not known for certain.
    in_flight: BTreeMap<DecisionId, Flight>,
    last_decision: u64,
    /// Of which profile the pod was that was tried last.
    last_tried: Option<usize>,
    work: Work,
    /// By profile.
    evaluations: Vec<Evaluations>,
}

/// A write that was decided and whose outcome is not known.
#[derive(Clone, Copy, Debug)]
struct Flight {
    attempt: Attempt,
    /// Who ruled nodes out, for a pod that waits for others to leave.
    rejectors: PluginSet,
}

impl Scheduler {
    /// A scheduler that knows of no node and no pod.
    pub fn new(options: Options) -> Self {
        let Options { settings, seed } = options;
        let mut cluster = Cluster::default();
        let queue = Queue::new(queue::Settings::from(&settings));
        let profile = |settings| Profile::new(settings, &mut cluster.columns);
        let profiles: Vec<Profile> = settings.profiles.into_iter().map(profile).collect();
        Self {
            evaluations: vec![Evaluations::default(); profiles.len()],
            profiles,
            seed,
            synced: false,
            cluster,
            queue,
            tables: Tables::default(),
            budgets: BTreeMap::new(),
            families: Families::default(),
            start: 0,
            unreported: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            last_decision: 0,
            last_tried: None,
            work: Work::default(),
        }
    }

    /// What to do now, at most `budget` decisions; call again while [`Scheduler::has_work`] says so.
    ///
    /// Pods are taken one by one in the order of the queue; one that fits nowhere does not hold up those behind it.
    #[must_use]
    pub fn next(&mut self, now: Timestamp, budget: usize) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.synced {
            return decisions;
        }
        self.queue.advance(now, &Judging { cluster: &self.cluster, profiles: &self.profiles });
        for _ in 0..budget {
            if let Some(refusal) = self.next_refusal() {
                decisions.push(refusal);
                continue;
            }
            let judge = Judging { cluster: &self.cluster, profiles: &self.profiles };
            let Some(popped) = self.queue.pop(now, &judge) else { break };
            self.attempt(&popped, now, &mut decisions);
        }
        // The caller has just asked; there is nothing to announce.
        self.queue.take_appeared();
        decisions
    }

    /// Whether there is something for [`Scheduler::next`] to take now.
    pub fn has_work(&self) -> bool {
        self.synced && (!self.unreported.is_empty() || self.queue.is_poppable())
    }

    /// When to call [`Scheduler::next`] again if nothing happens before.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.queue.next_deadline()
    }

    /// What was done so far, in numbers.
    pub fn work(&self) -> Work {
        self.work
    }

    /// The queue, to be looked at.
    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    fn new_decision(&mut self, flight: Flight) -> DecisionId {
        self.last_decision += 1;
        let id = DecisionId(self.last_decision);
        self.in_flight.insert(id, flight);
        id
    }

    fn reference(&self, id: PodId) -> Option<PodRef> {
        let record = &self.cluster.pods.get(id)?.record;
        Some(PodRef { name: record.name.clone(), uid: record.uid.clone() })
    }

    fn next_refusal(&mut self) -> Option<Decision> {
        loop {
            let id = self.unreported.pop_first()?;
            let Some(pod) = self.reference(id) else { continue };
            let fields = self.cluster.pods.get(id)?.record.unsupported.to_vec();
            let reason = WaitReason::Unsupported(fields);
            return Some(Decision::Report { pod, reason, nominated_node: None });
        }
    }
}
