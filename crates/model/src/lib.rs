//! The vocabulary of Gangway: ids, quantities, requests, reasons, records, timestamps.
//!
//! No I/O, no clock, no Kubernetes crate: both pure cores and everything around them speak
//! in these types. `gangway-api` translates Kubernetes objects to the records here and back.

#![warn(missing_docs)]

pub mod checks;
pub mod conditions;
pub mod constraints;
pub mod fallback;
mod names;
pub mod planted;
pub mod quantity;
pub mod queues;
pub mod readiness;
pub mod reasons;
mod requests;
pub mod scheduling;
pub mod selector;
mod time;
mod uid;
pub mod workload;

pub use names::{
    AdmissionCheckName, ClusterQueueName, CohortName, FlavorName, NamespaceName, NodeName, ObjectName,
    PODS_RESOURCE, PodSetName, ResourceName,
};
pub use quantity::{Amount, Quantity};
pub use requests::Requests;
pub use time::{Clock, ManualClock, Timestamp};
pub use uid::Uid;
