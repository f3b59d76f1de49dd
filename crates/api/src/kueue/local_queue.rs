//! LocalQueue: the door of a namespace to a ClusterQueue.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::quota::{FairSharing, FairSharingStatus, FlavorUsage};
use super::schema;

/// The queue that jobs of its namespace name.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "LocalQueue",
    namespaced,
    status = "LocalQueueStatus",
    shortname = "queue",
    shortname = "queues",
    shortname = "lq",
    category = "kueue",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "ClusterQueue", type_ = "string", json_path = ".spec.clusterQueue"),
    printcolumn(name = "Pending Workloads", type_ = "integer", json_path = ".status.pendingWorkloads"),
    printcolumn(name = "Admitted Workloads", type_ = "integer", json_path = ".status.admittedWorkloads")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.clusterQueue) || !has(oldSelf.clusterQueue)")
    .message("clusterQueue is immutable"))]
pub struct LocalQueueSpec {
    /// The ClusterQueue behind; it may be created later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::subdomain")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("clusterQueue is immutable"))]
    pub cluster_queue: Option<String>,
    /// `None` (default), `Hold` or `HoldAndDrain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::stop_policy")]
    pub stop_policy: Option<String>,
    /// The weight in admission fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What a LocalQueue holds at the moment.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueueStatus {
    /// `Active`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Workloads that wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Workloads that hold quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Workloads that are admitted.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// What workloads that hold quota take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub flavors_reservation: Vec<FlavorUsage>,
    /// What admitted workloads take.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub flavors_usage: Vec<FlavorUsage>,
    /// The v1beta1 spelling of `flavorsUsage`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub flavor_usage: Vec<FlavorUsage>,
    /// The v1beta1 list of flavors behind the queue, which nothing writes any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaques")]
    pub flavors: Option<Vec<serde_json::Value>>,
    /// What fair sharing last computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
