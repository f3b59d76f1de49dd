//! The status of a Workload: everything that is known about its way through the queue.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::schema;

/// A workload's way through the queue.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.conditions) || has(self.admission) || !self.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')")
    .message("admission must be set while QuotaReserved is True"))]
#[x_kube(validation = Rule::new("!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0")
    .message("clusterName and nominatedClusterNames exclude each other"))]
#[x_kube(validation = Rule::new("!has(oldSelf.clusterName) || !has(self.clusterName) || self.clusterName == oldSelf.clusterName")
    .message("clusterName is immutable once it is set"))]
#[x_kube(validation = Rule::new("has(oldSelf.clusterName) || !has(self.clusterName) || (has(oldSelf.nominatedClusterNames) && self.clusterName in oldSelf.nominatedClusterNames)")
    .message("clusterName must be one of the nominatedClusterNames"))]
#[x_kube(validation = Rule::new("!has(self.admission) || !has(oldSelf.admission) || (self.admission.clusterQueue == oldSelf.admission.clusterQueue && self.admission.podSetAssignments.all(a, oldSelf.admission.podSetAssignments.exists(o, o.name == a.name && has(a.flavors) == has(o.flavors) && (!has(a.flavors) || a.flavors == o.flavors))))")
    .message("admission is immutable once it is set; clear it first"))]
pub struct WorkloadStatus {
    /// See the documentation of the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The quota that the workload holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// How often the workload was tried again, and when the next time is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_state: Option<RequeueState>,
    /// Pods that will not be needed any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub reclaimable_pods: Vec<ReclaimablePod>,
    /// The answers of the admission checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub admission_checks: Vec<AdmissionCheckState>,
    /// What the workload asked for when it was last looked at and not admitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 18))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub resource_requests: Vec<PodSetRequests>,
    /// Seconds that the workload was admitted in earlier rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulated_past_execution_time_seconds: Option<i32>,
    /// The v1beta1 spelling of the same, with its typing error.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        rename = "accumulatedPastExexcutionTimeSeconds"
    )]
    pub accumulated_past_execution_time_seconds_v1beta1: Option<i32>,
    /// How often the workload was evicted, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_stats: Option<SchedulingStats>,
    /// Clusters that may take the workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cluster_names")]
    pub nominated_cluster_names: Vec<String>,
    /// The cluster that took the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "cluster_name")]
    pub cluster_name: Option<String>,
    /// Nodes that failed under the workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub unhealthy_nodes: Vec<UnhealthyNode>,
    /// Which preemption gates are open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub preemption_gates: Vec<GateState>,
    /// Which flavors were tried, for how long, and which are given up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["resourceFlavor".into()]))]
    pub flavor_assignment_history: Vec<FlavorAssignment>,
    /// The UID of the workload for which this one was last preempted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub preemptor: Option<String>,
}

fn cluster_name(_: &mut SchemaGenerator) -> Schema {
    schema::bounded_text(253)
}

/// The quota that a workload holds.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// Whose quota.
    #[schemars(schema_with = "schema::subdomain")]
    pub cluster_queue: String,
    /// One for each pod set.
    #[schemars(length(max = 18))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub pod_set_assignments: Vec<PodSetAssignment>,
}

/// What one pod set holds.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSetAssignment {
    /// The pod set.
    #[serde(default = "main_pod_set")]
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// The flavor of each resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::flavors_by_resource")]
    pub flavors: BTreeMap<String, String>,
    /// What all pods of the set together take.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resource_usage: BTreeMap<String, Quantity>,
    /// How many pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Where the pods go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub topology_assignment: Option<serde_json::Value>,
    /// `Pending` or `Ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "delayed_topology_request")]
    pub delayed_topology_request: Option<String>,
}

fn main_pod_set() -> String {
    "main".to_owned()
}

fn delayed_topology_request(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["Pending", "Ready"])
}

/// How often a workload was tried again.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RequeueState {
    /// How often.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub count: Option<i32>,
    /// Not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub requeue_at: Option<Time>,
}

/// Pods of a set that will not be needed any more.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ReclaimablePod {
    /// The pod set.
    #[schemars(schema_with = "schema::pod_set_reference")]
    pub name: String,
    /// How many.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// The answer of one admission check.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckState {
    /// The check.
    #[schemars(schema_with = "schema::check_reference")]
    pub name: String,
    /// `Pending`, `Ready`, `Retry` or `Rejected`.
    #[schemars(schema_with = "check_state")]
    pub state: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,
    /// For people.
    #[serde(default)]
    #[schemars(schema_with = "check_message")]
    pub message: String,
    /// How long to wait after a Retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub requeue_after_seconds: Option<i32>,
    /// How often the check asked for a retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub retry_count: Option<i32>,
    /// What the check wants changed in the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaques")]
    pub pod_set_updates: Option<Vec<serde_json::Value>>,
}

fn check_state(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["Pending", "Ready", "Retry", "Rejected"])
}

fn check_message(_: &mut SchemaGenerator) -> Schema {
    schema::bounded_text(32768)
}

/// What the pods of a set together ask for.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PodSetRequests {
    /// The pod set.
    #[serde(default = "main_pod_set")]
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// The amounts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::quantities")]
    pub resources: BTreeMap<String, Quantity>,
}

/// How often a workload was evicted, and why.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SchedulingStats {
    /// One entry for each reason and cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["reason".into(), "underlyingCause".into()]))]
    pub evictions: Vec<EvictionCount>,
}

impl SchedulingStats {
    /// The most entries that there may be.
    const MOST: usize = 256;

    /// Counts one more eviction. Where there are too many reasons already it is not counted: a Workload that has to
    /// leave does so all the same.
    pub fn count(&mut self, reason: &str, underlying_cause: &str) {
        let is_same =
            |entry: &&mut EvictionCount| entry.reason == reason && entry.underlying_cause == underlying_cause;
        if let Some(entry) = self.evictions.iter_mut().find(is_same) {
            entry.count = entry.count.saturating_add(1);
        } else if self.evictions.len() < Self::MOST {
            let (reason, underlying_cause) = (reason.to_owned(), underlying_cause.to_owned());
            self.evictions.push(EvictionCount { reason, underlying_cause, count: 1 });
        }
    }

    /// How often it was evicted for this reason and cause.
    pub fn evictions(&self, reason: &str, underlying_cause: &str) -> i32 {
        let is_same =
            |entry: &&EvictionCount| entry.reason == reason && entry.underlying_cause == underlying_cause;
        self.evictions.iter().find(is_same).map_or(0, |entry| entry.count)
    }
}

/// How often a workload was evicted for one reason and cause.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EvictionCount {
    /// The reason.
    #[schemars(length(max = 316))]
    pub reason: String,
    /// What is behind the reason, or empty.
    #[schemars(length(max = 316))]
    pub underlying_cause: String,
    /// How often.
    #[schemars(range(min = 0))]
    pub count: i32,
}

/// A node that failed.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNode {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Whether a preemption gate is open.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GateState {
    /// The gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// `Closed` or `Open`.
    #[schemars(schema_with = "gate_position")]
    pub position: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub last_transition_time: Option<Time>,
}

fn gate_position(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["Closed", "Open"])
}

/// How one flavor was tried.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FlavorAssignment {
    /// The flavor.
    #[schemars(schema_with = "schema::subdomain")]
    pub resource_flavor: String,
    /// When it was last assigned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::time")]
    pub assignment_time: Option<Time>,
    /// Seconds of its budget that are used up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub accumulated_seconds: Option<i64>,
    /// Given up in this round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<bool>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "trigger")]
    pub trigger: Option<String>,
    /// How often all flavors were given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub rounds: Option<i32>,
}

fn trigger(_: &mut SchemaGenerator) -> Schema {
    schema::bounded_text(316)
}
