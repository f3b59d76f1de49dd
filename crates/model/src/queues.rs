//! Records of what an administrator sets up: flavors, queues, cohorts, namespaces.

use crate::checks::RequiredCheck;
use crate::constraints::{Taint, Toleration};
use crate::fallback::FallbackStrategy;
use crate::names::{ClusterQueueName, CohortName, FlavorName, NamespaceName, ObjectName, ResourceName};
use crate::quantity::Amount;
use crate::readiness::Timeouts;
use crate::selector::{LabelSelector, Labels};

/// A kind of machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flavor {
    /// Its name.
    pub name: FlavorName,
    /// Labels of its nodes; pods get them as node selector.
    pub node_labels: Labels,
    /// Taints of its nodes, which pods have to tolerate.
    pub node_taints: Vec<Taint>,
    /// Tolerations that pods get with it.
    pub tolerations: Vec<Toleration>,
    /// The topology of its nodes, by which nobody places pods yet.
    pub topology: Option<String>,
}

/// What is done with a queue that is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum StopPolicy {
    /// The queue works.
    #[default]
    None,
    /// Nothing is admitted; what runs goes on.
    Hold,
    /// Nothing is admitted; what runs is evicted.
    HoldAndDrain,
}

/// Whether a queue's first Workload holds up the ones behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueingStrategy {
    /// Strictly in order: if the first does not fit, none is admitted.
    StrictFifo,
    /// In order, but what fits may pass what does not.
    #[default]
    BestEffortFifo,
}

/// What the flavor search does when it could stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FungibilityPolicy {
    /// Stop at this flavor.
    MayStopSearch,
    /// Look whether the next flavor is better.
    TryNextFlavor,
}

/// What the flavor search prefers when no flavor fits without either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FungibilityPreference {
    /// Rather borrow than preempt.
    #[default]
    BorrowingOverPreemption,
    /// Rather preempt than borrow.
    PreemptionOverBorrowing,
}

/// How a queue chooses between flavors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fungibility {
    /// When the flavor at hand needs borrowing.
    pub when_can_borrow: FungibilityPolicy,
    /// When the flavor at hand needs preemption.
    pub when_can_preempt: FungibilityPolicy,
    /// When the list of flavors has ended.
    pub preference: FungibilityPreference,
}

impl Default for Fungibility {
    fn default() -> Self {
        Self {
            when_can_borrow: FungibilityPolicy::MayStopSearch,
            when_can_preempt: FungibilityPolicy::TryNextFlavor,
            preference: FungibilityPreference::default(),
        }
    }
}

/// Whom a queue may preempt among its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WithinClusterQueue {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Workloads of lower priority, or of equal priority and newer.
    LowerOrNewerEqualPriority,
}

/// From whom a queue may take its lent quota back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReclaimWithinCohort {
    /// Nobody.
    #[default]
    Never,
    /// Workloads of lower priority.
    LowerPriority,
    /// Anybody who borrows.
    Any,
}

/// Whether a queue may preempt in order to borrow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BorrowWithinCohort {
    /// No.
    #[default]
    Never,
    /// Workloads of lower priority, at most of the given one.
    LowerPriority {
        /// The highest priority that may be preempted; none is any lower one.
        max_priority: Option<i32>,
    },
}

/// A queue's preemption policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PreemptionPolicy {
    /// Among its own.
    pub within_cluster_queue: WithinClusterQueue,
    /// To take lent quota back.
    pub reclaim_within_cohort: ReclaimWithinCohort,
    /// To borrow.
    pub borrow_within_cohort: BorrowWithinCohort,
}

/// Quota of one flavor and resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// What the owner has of its own.
    pub nominal: Amount,
    /// How much above nominal it may use; none is no limit.
    pub borrowing_limit: Option<Amount>,
    /// How much of its own it lends; none is all.
    pub lending_limit: Option<Amount>,
}

/// Quotas of one flavor, in the order of the group's resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorQuotas {
    /// The flavor.
    pub flavor: FlavorName,
    /// One quota per covered resource.
    pub quotas: Vec<Quota>,
}

/// Resources that are taken from one flavor together, and the flavors in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceGroup {
    /// What the group covers.
    pub resources: Vec<ResourceName>,
    /// The flavors, most preferred first.
    pub flavors: Vec<FlavorQuotas>,
}

/// A ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterQueue {
    /// Its name.
    pub name: ClusterQueueName,
    /// Its parent in the quota tree.
    pub cohort: Option<CohortName>,
    /// Its quotas.
    pub resource_groups: Vec<ResourceGroup>,
    /// Whether its first Workload holds up the others.
    pub strategy: QueueingStrategy,
    /// The namespaces that may use it; none selects no namespace.
    pub namespace_selector: Option<LabelSelector>,
    /// How it chooses between flavors.
    pub fungibility: Fungibility,
    /// Whom it may preempt.
    pub preemption: PreemptionPolicy,
    /// The checks that it demands.
    pub admission_checks: Vec<RequiredCheck>,
    /// When its Workloads give up a flavor; none if they never do.
    pub fallback: Option<FallbackStrategy>,
    /// Timeouts for its Workloads, instead of those of the configuration.
    pub timeouts: Timeouts,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Why its definition cannot be used, if so: it is then not active and says this.
    pub invalid: Option<String>,
    /// Settings that it asks for and that nobody acts on; it says so.
    pub not_acted_on: Vec<String>,
    /// What it asks for that would change who is admitted, and that nobody does yet, in sentences; then it admits nobody.
    pub not_supported: Vec<String>,
}

/// A LocalQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalQueue {
    /// Namespace and name.
    pub name: ObjectName,
    /// The ClusterQueue behind it.
    pub cluster_queue: ClusterQueueName,
    /// Whether it is stopped.
    pub stop_policy: StopPolicy,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A Cohort object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// Its name.
    pub name: CohortName,
    /// Its parent in the quota tree.
    pub parent: Option<CohortName>,
    /// Quota of its own, in addition to that of its children.
    pub resource_groups: Vec<ResourceGroup>,
}

/// A namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: NamespaceName,
    /// Its labels.
    pub labels: Labels,
}

/// How much of a flavor's resource is taken, for a queue's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorUsage {
    /// The flavor.
    pub flavor: FlavorName,
    /// Resource, total, and how much of it is borrowed; by resource name.
    pub resources: Vec<(ResourceName, i64, i64)>,
}

/// What a queue's status says besides its `Active` condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Workloads that wait.
    pub pending: i32,
    /// Workloads that hold quota.
    pub reserving: i32,
    /// Workloads that may run.
    pub admitted: i32,
    /// What all quota-holding Workloads take, per flavor in the order of the spec.
    pub reservation: Vec<FlavorUsage>,
    /// What admitted Workloads take.
    pub usage: Vec<FlavorUsage>,
}
