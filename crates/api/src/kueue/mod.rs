//! The objects of group `kueue.x-k8s.io`, one file per kind.
//!
//! The types are v1beta2 and know the v1beta1 spellings as further optional fields; `records` resolves them.
//! Enumerations are plain strings here: the schema restricts what the API takes, and an object that
//! holds something else (written under another schema) must still be readable, so that it can be reported.

// Two printer columns of one type are two attributes that look alike.
#![allow(clippy::duplicated_attributes)]

mod admission_check;
mod cluster_queue;
mod cohort;
mod local_queue;
mod quota;
mod resource_flavor;
pub mod schema;
mod workload;
mod workload_priority_class;
mod workload_status;

pub use admission_check::{
    AdmissionCheck, AdmissionCheckParameters, AdmissionCheckSpec, AdmissionCheckStatus,
};
pub use cluster_queue::{
    AdmissionChecksStrategy, AdmissionScope, BorrowWithinCohort, CheckOnFlavors, ClusterQueue,
    ClusterQueueSpec, ClusterQueueStatus, FallbackRule, FallbackStrategy, FlavorFungibility, Preemption,
    QueueReadiness,
};
pub use cohort::{Cohort, CohortSpec, CohortStatus};
pub use local_queue::{LocalQueue, LocalQueueSpec, LocalQueueStatus};
pub use quota::{
    FairSharing, FairSharingStatus, FlavorQuotas, FlavorUsage, ResourceGroup, ResourceQuota, ResourceUsage,
};
pub use resource_flavor::{ResourceFlavor, ResourceFlavorSpec};
pub use workload::{
    PodSet, PodTemplate, PreemptionGate, PriorityClassRef, TemplateError, Workload, WorkloadSpec,
};
pub use workload_priority_class::WorkloadPriorityClass;
pub use workload_status::{
    Admission, AdmissionCheckState, EvictionCount, FlavorAssignment, GateState, PodSetAssignment,
    PodSetRequests, ReclaimablePod, RequeueState, SchedulingStats, UnhealthyNode, WorkloadStatus,
};

/// The API group of every kind here.
pub const GROUP: &str = "kueue.x-k8s.io";
/// The version that is stored and that we write.
pub const VERSION: &str = "v1beta2";
/// The older version that is served too, with the same schema.
pub const OLDER_VERSION: &str = "v1beta1";
