//! The answer of a replay, in the form that the replay protocol gives it.

use std::collections::BTreeMap;

use gangway_model::workload::Admission;
use serde::Serialize;

/// The whole answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// The name of the scenario.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scenario: String,
    /// Who answers.
    pub engine: String,
    /// Whether the replay came to rest.
    pub outcome: Outcome,
    /// How many cycles were run.
    pub cycles_run: u32,
    /// The root of each ClusterQueue's tree.
    pub roots: BTreeMap<String, String>,
    /// The cycles in which something was decided.
    pub cycles: Vec<Cycle>,
    /// How it ended.
    #[serde(rename = "final")]
    pub end: End,
}

/// Whether a replay came to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Nothing more would be decided until something happens.
    Quiescent,
    /// It was given up before.
    CycleLimit,
}

/// What was decided in a cycle, or at the start of a round.
#[derive(Debug, Default, Serialize)]
pub struct Cycle {
    /// The number of the cycle; of the last one for what happens at the start of a round.
    pub cycle: u32,
    /// The round.
    pub round: u32,
    /// Who was admitted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admitted: Vec<Admitted>,
    /// Who was preempted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preempted: Vec<Preempted>,
    /// Who had to leave for another reason.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub evicted: Vec<Evicted>,
    /// Who ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<String>,
}

impl Cycle {
    /// Adds what happened later in the same cycle.
    pub fn add(&mut self, later: Self) {
        self.admitted.extend(later.admitted);
        self.preempted.extend(later.preempted);
        self.evicted.extend(later.evicted);
        self.finished.extend(later.finished);
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.admitted.is_empty()
            && self.preempted.is_empty()
            && self.evicted.is_empty()
            && self.finished.is_empty()
    }
}

/// A Workload that was admitted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Admitted {
    /// The Workload.
    pub workload: String,
    /// The ClusterQueue.
    pub cluster_queue: String,
    /// Where its pods go.
    pub pod_sets: Vec<PodSet>,
    /// Whether the queue is now above its own quota in something that the Workload uses.
    pub borrowing: bool,
    /// The number of the decision in its tree.
    pub order: usize,
    /// The number of the decision in its cycle.
    #[serde(skip)]
    pub sequence: usize,
}

/// A Workload that was preempted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preempted {
    /// The Workload.
    pub workload: String,
    /// The ClusterQueue whose quota it had.
    pub cluster_queue: String,
    /// For whom.
    pub preemptor: String,
    /// By which right.
    pub reason: &'static str,
    /// The number of the decision in its tree; the victims of one preemptor are one decision.
    pub order: usize,
    /// The number of the decision in its cycle.
    #[serde(skip)]
    pub sequence: usize,
}

/// A Workload that had to leave, not for another.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Evicted {
    /// The Workload.
    pub workload: String,
    /// The ClusterQueue whose quota it had.
    pub cluster_queue: String,
    /// Why.
    pub reason: &'static str,
}

/// Where the pods of a podSet go.
#[derive(Debug, Serialize)]
pub struct PodSet {
    /// Its name.
    pub name: String,
    /// How many pods.
    pub count: i32,
    /// The flavor of each resource.
    pub flavors: BTreeMap<String, String>,
}

/// The podSets of an admission.
pub fn pod_sets(admission: &Admission) -> Vec<PodSet> {
    let pod_set = |assignment: &gangway_model::workload::Assignment| PodSet {
        name: assignment.name.to_string(),
        count: assignment.count,
        flavors: assignment.flavors.iter().map(|(r, f)| (r.to_string(), f.to_string())).collect(),
    };
    admission.pod_sets.iter().map(pod_set).collect()
}

/// How a replay ended.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct End {
    /// Every Workload that arrived.
    pub workloads: BTreeMap<String, WorkloadEnd>,
    /// What is in use, by ClusterQueue, flavor and resource.
    pub cluster_queues: BTreeMap<String, BTreeMap<String, BTreeMap<String, i64>>>,
}

/// How a Workload ended up.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadEnd {
    /// The state that it is in.
    pub state: WorkloadState,
    /// The ClusterQueue whose quota it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    /// Where its pods go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pod_sets: Vec<PodSet>,
    /// Why it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The reason with its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The state of a Workload at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkloadState {
    /// It may run.
    Admitted,
    /// It has quota and may not run yet.
    Reserved,
    /// It waits.
    Pending,
    /// It is not active.
    Inactive,
    /// It has ended.
    Finished,
}

impl WorkloadState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admitted => "admitted",
            Self::Reserved => "reserved",
            Self::Pending => "pending",
            Self::Inactive => "inactive",
            Self::Finished => "finished",
        }
    }
}
