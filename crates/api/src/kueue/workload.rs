//! Workload: a job as the queue sees it.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::schema;
use super::workload_status::WorkloadStatus;

/// A job as the queue sees it: groups of equal pods that start together or not at all.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Workload",
    namespaced,
    status = "WorkloadStatus",
    shortname = "kwl",
    shortname = "kueueworkload",
    shortname = "kueueworkloads",
    category = "kueue",
    derive = "Default",
    derive = "PartialEq",
    selectable = ".status.admission.clusterQueue",
    printcolumn(name = "Queue", type_ = "string", json_path = ".spec.queueName"),
    printcolumn(name = "Reserved in", type_ = "string", json_path = ".status.admission.clusterQueue"),
    printcolumn(
        name = "Admitted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Admitted")].status"#
    ),
    printcolumn(
        name = "Finished",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Finished")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("!has(self.status) || !has(self.status.admission) || (size(self.status.admission.podSetAssignments) == size(self.spec.podSets) && self.status.admission.podSetAssignments.all(a, self.spec.podSets.exists(p, p.name == a.name)))")
        .message("status.admission must assign every pod set, and no other"),
    validation = Rule::new("!has(self.status) || !has(self.status.reclaimablePods) || self.status.reclaimablePods.all(r, self.spec.podSets.exists(p, p.name == r.name && r.count <= (has(p.count) ? p.count : 1)))")
        .message("status.reclaimablePods must name pod sets and be at most their count"),
    validation = Rule::new(format!("{RESERVED_BEFORE} ? size(self.spec.podSets) == size(oldSelf.spec.podSets) && self.spec.podSets.all(p, oldSelf.spec.podSets.exists(o, o.name == p.name && (has(p.count) ? p.count : 1) <= (has(o.count) ? o.count : 1))) : true"))
        .message("spec.podSets is immutable while quota is reserved"),
    validation = Rule::new(format!("{RESERVED_BEFORE} && {RESERVED_AFTER} ? has(self.spec.queueName) == has(oldSelf.spec.queueName) && (!has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName) : true"))
        .message("spec.queueName is immutable while quota is reserved"),
    validation = Rule::new(format!("{RESERVED_BEFORE} && {RESERVED_AFTER} ? has(self.spec.priorityClassRef) == has(oldSelf.spec.priorityClassRef) && (!has(self.spec.priorityClassRef) || (self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group && self.spec.priorityClassRef.kind == oldSelf.spec.priorityClassRef.kind && (self.spec.priorityClassRef.kind != 'PriorityClass' || self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name))) : true"))
        .message("while quota is reserved priorityClassRef may only change to another WorkloadPriorityClass"),
    validation = Rule::new(format!("{ADMITTED_BEFORE} && {ADMITTED_AFTER} ? has(self.spec.maximumExecutionTimeSeconds) == has(oldSelf.spec.maximumExecutionTimeSeconds) && (!has(self.spec.maximumExecutionTimeSeconds) || self.spec.maximumExecutionTimeSeconds == oldSelf.spec.maximumExecutionTimeSeconds) : true"))
        .message("spec.maximumExecutionTimeSeconds is immutable while the workload is admitted")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.priorityClassRef) || !has(self.priorityClassName) || self.priorityClassName == '' || (self.priorityClassRef.name == self.priorityClassName && (!has(self.priorityClassSource) || self.priorityClassSource == '' || (self.priorityClassSource == 'kueue.x-k8s.io/workloadpriorityclass') == (self.priorityClassRef.kind == 'WorkloadPriorityClass')))")
    .message("priorityClassRef and priorityClassName with priorityClassSource are two spellings of one thing and must not differ"))]
#[x_kube(validation = Rule::new("!has(self.priorityClassRef) || has(self.priority)").message("priorityClassRef needs a priority"))]
pub struct WorkloadSpec {
    /// The groups of equal pods.
    #[schemars(length(min = 1, max = 18))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[x_kube(validation = Rule::new("self.filter(p, has(p.minCount)).size() <= 1").message("at most one pod set may have a minCount"))]
    pub pod_sets: Vec<PodSet>,
    /// The LocalQueue, of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_subdomain")]
    pub queue_name: Option<String>,
    /// Where the priority comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_ref: Option<PriorityClassRef>,
    /// The v1beta1 spelling: a name here and a kind in `priorityClassSource`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_subdomain")]
    pub priority_class_name: Option<String>,
    /// See `priorityClassName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "priority_class_source")]
    pub priority_class_source: Option<String>,
    /// Higher goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// False: the workload gives up its quota and does not queue. Default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::true_by_default")]
    pub active: Option<bool>,
    /// After so long in Admitted, over all its admissions, the workload is deactivated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub maximum_execution_time_seconds: Option<i32>,
    /// Gates that must be open before the workload may preempt others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub preemption_gates: Vec<PreemptionGate>,
}

const RESERVED_BEFORE: &str = "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))";
const RESERVED_AFTER: &str = "(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))";
const ADMITTED_BEFORE: &str = "(has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True'))";
const ADMITTED_AFTER: &str = "(has(self.status) && has(self.status.conditions) && self.status.conditions.exists(c, c.type == 'Admitted' && c.status == 'True'))";

fn priority_class_source(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["", "kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass"])
}

/// A group of equal pods.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.minCount) || self.minCount <= (has(self.count) ? self.count : 1)").message("minCount must be at most count"))]
pub struct PodSet {
    /// Unique in the workload.
    #[serde(default = "main_pod_set")]
    #[schemars(schema_with = "schema::pod_set_name")]
    pub name: String,
    /// What each pod looks like.
    #[schemars(schema_with = "schema::opaque")]
    pub template: PodTemplate,
    /// How many pods. Default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::pod_count")]
    pub count: Option<i32>,
    /// How many are enough to start, where the job can run with fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub min_count: Option<i32>,
    /// Where the pods should be relative to each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub topology_request: Option<serde_json::Value>,
}

fn main_pod_set() -> String {
    "main".to_owned()
}

/// A pod template as it was written.
///
/// It is kept as JSON, since the API server does not look inside: a template that is not one must not
/// keep the other workloads from being read.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(transparent)]
pub struct PodTemplate(pub serde_json::Value);

/// A workload's template is not a pod template.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("not a pod template: {0}")]
pub struct TemplateError(String);

impl PodTemplate {
    /// The template with its types.
    pub fn typed(&self) -> Result<PodTemplateSpec, TemplateError> {
        PodTemplateSpec::deserialize(&self.0).map_err(|error| TemplateError(error.to_string()))
    }
}

impl From<&PodTemplateSpec> for PodTemplate {
    fn from(template: &PodTemplateSpec) -> Self {
        // Templates have string keys only and no custom serializers, so this cannot fail.
        Self(serde_json::to_value(template).unwrap_or_default())
    }
}

/// Where a workload's priority comes from.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.group == 'scheduling.k8s.io' && self.kind == 'PriorityClass') || (self.group == 'kueue.x-k8s.io' && self.kind == 'WorkloadPriorityClass')")
    .message("must be a PriorityClass of scheduling.k8s.io or a WorkloadPriorityClass of kueue.x-k8s.io"))]
pub struct PriorityClassRef {
    /// `scheduling.k8s.io` or `kueue.x-k8s.io`.
    #[schemars(schema_with = "schema::subdomain")]
    pub group: String,
    /// `PriorityClass` or `WorkloadPriorityClass`.
    #[schemars(schema_with = "priority_class_kind")]
    pub kind: String,
    /// The name of the class.
    #[schemars(schema_with = "schema::subdomain")]
    pub name: String,
}

fn priority_class_kind(_: &mut SchemaGenerator) -> Schema {
    schema::kind_name()
}

/// A gate that must be open before the workload may preempt others.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PreemptionGate {
    /// The name of the gate.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
}
