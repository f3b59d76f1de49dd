//! What the engine is told.

use gangway_model::checks::AdmissionCheck;
use gangway_model::queues::{ClusterQueue, Cohort, Flavor, LocalQueue, Namespace};
use gangway_model::workload::Workload;
use gangway_model::{
    AdmissionCheckName, ClusterQueueName, CohortName, FlavorName, NamespaceName, ObjectName, Timestamp, Uid,
};

use crate::decision::DecisionId;

/// Something was observed, or a write ended.
#[derive(Clone, Debug)]
pub enum Event {
    /// A flavor as it is now.
    Flavor(Flavor),
    /// A flavor was deleted.
    FlavorGone(FlavorName),
    /// A ClusterQueue as it is now.
    ClusterQueue(Box<ClusterQueue>),
    /// A ClusterQueue was deleted.
    ClusterQueueGone(ClusterQueueName),
    /// A Cohort as it is now.
    Cohort(Cohort),
    /// A Cohort was deleted.
    CohortGone(CohortName),
    /// A LocalQueue as it is now.
    LocalQueue(LocalQueue),
    /// A LocalQueue was deleted.
    LocalQueueGone(ObjectName),
    /// An AdmissionCheck as it is now.
    AdmissionCheck(AdmissionCheck),
    /// An AdmissionCheck was deleted.
    AdmissionCheckGone(AdmissionCheckName),
    /// A namespace as it is now.
    Namespace(Namespace),
    /// A namespace was deleted.
    NamespaceGone(NamespaceName),
    /// A Job as it is now.
    Job(Uid, JobFacts),
    /// A Job was deleted.
    JobGone(Uid),
    /// Whether there are pods of a Job. They may outlive it, and its Workload, by their grace period.
    Pods(Uid, bool),
    /// A Workload as it is now.
    Workload(Box<Workload>),
    /// A Workload was deleted.
    WorkloadGone(Uid),
    /// The Job of an admitted Workload can never start on what it was given, for the reason told.
    Unstartable(Uid, String),
    /// A write that a decision asked for has ended.
    Outcome(DecisionId, Outcome),
    /// Every watch has delivered its first list: from now on the engine decides.
    Synced,
}

/// What the engine needs to know of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFacts {
    /// It is suspended and has neither active nor terminating pods.
    pub stopped: bool,
    /// Since when the Job controller has reported it as suspended.
    pub suspended_at: Option<Timestamp>,
    /// It has ended.
    pub end: Option<JobEnd>,
    /// How many of its pods are ready; none while it is suspended.
    pub pods: Option<ReadyPods>,
}

/// How many pods of a Job are ready, and how many have to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadyPods {
    /// Those that are ready, or have succeeded.
    pub ready: i32,
    /// As many have to be.
    pub wanted: i32,
}

impl ReadyPods {
    /// Whether as many are ready as have to be.
    pub fn are_enough(self) -> bool {
        self.ready >= self.wanted
    }
}

/// How a Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// Whether it completed.
    pub succeeded: bool,
    /// What its last condition says.
    pub message: String,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It turned out to be wrong before it was sent, and so did every attempt before: nothing was written.
    Void,
    /// It is stored, as this version of the object.
    Landed(u64),
    /// The object had changed in between; nothing was written.
    Conflict,
    /// The API refuses it, for the reason given.
    Rejected(String),
    /// Nobody knows. What was decided stays assumed until the watch speaks.
    Unknown,
}
