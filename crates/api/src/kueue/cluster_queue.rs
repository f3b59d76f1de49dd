//! ClusterQueue: a quota, and the rules by which workloads get it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::quota::{FairSharing, FairSharingStatus, FlavorUsage, ResourceGroup};
use super::schema;

/// A quota for the workloads of the namespaces that it selects.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ClusterQueue",
    status = "ClusterQueueStatus",
    shortname = "cq",
    category = "kueue",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Cohort", type_ = "string", json_path = ".spec.cohortName"),
    printcolumn(name = "Strategy", type_ = "string", json_path = ".spec.queueingStrategy", priority = 1),
    printcolumn(name = "Pending Workloads", type_ = "integer", json_path = ".status.pendingWorkloads"),
    printcolumn(
        name = "Admitted Workloads",
        type_ = "integer",
        json_path = ".status.admittedWorkloads",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.cohort) || !has(self.cohortName) || self.cohort == self.cohortName")
    .message("cohort and cohortName are two spellings of one field and must not differ"))]
#[x_kube(validation = Rule::new("!has(self.admissionChecks) || size(self.admissionChecks) == 0 || !has(self.admissionChecksStrategy)")
    .message("admissionChecks and admissionChecksStrategy are two spellings of one field: use one"))]
#[x_kube(validation = Rule::new("(has(self.cohortName) && self.cohortName != '') || (has(self.cohort) && self.cohort != '') || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit) && !has(r.lendingLimit))))")
    .message("borrowingLimit and lendingLimit need a cohortName"))]
#[x_kube(validation = Rule::new("!has(self.admissionChecksStrategy) || !has(self.admissionChecksStrategy.admissionChecks) || self.admissionChecksStrategy.admissionChecks.all(c, !has(c.onFlavors) || (has(self.resourceGroups) && sets.contains(self.resourceGroups.map(g, g.flavors.map(f, f.name)).flatten(), c.onFlavors)))")
    .message("onFlavors may only name flavors of this ClusterQueue"))]
#[x_kube(validation = Rule::new("!has(self.concurrentAdmissionPolicy) || (has(self.resourceGroups) && size(self.resourceGroups) == 1 && size(self.resourceGroups[0].flavors) >= 2 && size(self.resourceGroups[0].flavors) <= 16 && !(has(self.queueingStrategy) && self.queueingStrategy == 'StrictFIFO'))")
    .message("concurrentAdmissionPolicy needs exactly one resource group of 2 to 16 flavors and not StrictFIFO"))]
#[x_kube(validation = Rule::new("has(self.concurrentAdmissionPolicy) == has(oldSelf.concurrentAdmissionPolicy)")
    .message("concurrentAdmissionPolicy cannot be added or removed"))]
#[x_kube(validation = Rule::new("!has(self.concurrentAdmissionPolicy) || !has(self.flavorFungibility) || !(has(self.flavorFungibility.fallbackStrategy) || has(self.flavorFungibility.flavorFallbackStrategy))")
    .message("concurrentAdmissionPolicy and a fallback strategy exclude each other"))]
pub struct ClusterQueueSpec {
    /// The quota tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(g, self.exists_one(h, sets.intersects(g.coveredResources, h.coveredResources)))")
        .message("a resource may be covered by one resource group only"))]
    #[x_kube(validation = Rule::new("self.all(g, self.exists_one(h, sets.intersects(g.flavors.map(f, f.name), h.flavors.map(f, f.name))))")
        .message("a flavor may be in one resource group only"))]
    #[x_kube(validation = Rule::new("self.map(g, size(g.flavors)).sum() <= 256")
        .message("at most 256 flavors in all groups together"))]
    #[x_kube(validation = Rule::new("self.map(g, size(g.coveredResources)).sum() <= 256")
        .message("at most 256 covered resources in all groups together"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort whose members lend each other unused quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_subdomain")]
    pub cohort_name: Option<String>,
    /// The v1beta1 spelling of `cohortName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_subdomain")]
    pub cohort: Option<String>,
    /// `BestEffortFIFO` (default) or `StrictFIFO`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "queueing_strategy")]
    pub queueing_strategy: Option<String>,
    /// The namespaces whose workloads may use this queue: absent selects none, `{}` all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// When the search for a flavor goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor_fungibility: Option<FlavorFungibility>,
    /// Whom a workload of this queue may preempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemption: Option<Preemption>,
    /// The checks that a workload must pass after it has its quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_checks_strategy: Option<AdmissionChecksStrategy>,
    /// The v1beta1 list of checks, each for all flavors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::check_references")]
    pub admission_checks: Vec<String>,
    /// `None` (default), `Hold` or `HoldAndDrain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::stop_policy")]
    pub stop_policy: Option<String>,
    /// The weight in fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
    /// Whether past use counts in the order of admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_scope: Option<AdmissionScope>,
    /// How a workload tries several flavors at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub concurrent_admission_policy: Option<serde_json::Value>,
    /// Readiness timeouts of this queue's workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_for_pods_ready: Option<QueueReadiness>,
}

fn queueing_strategy(_: &mut SchemaGenerator) -> Schema {
    schema::one_of_or_first(&["BestEffortFIFO", "StrictFIFO"])
}

/// When the search for a flavor goes on to the next one.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.preference) || (has(self.whenCanBorrow) && self.whenCanBorrow == 'TryNextFlavor' && (!has(self.whenCanPreempt) || self.whenCanPreempt == 'TryNextFlavor'))")
    .message("preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor"))]
#[x_kube(validation = Rule::new("!has(self.fallbackStrategy) || !has(self.flavorFallbackStrategy)")
    .message("fallbackStrategy and flavorFallbackStrategy are two spellings of one field: use one"))]
pub struct FlavorFungibility {
    /// `MayStopSearch` (default, in v1beta1 `Borrow`) or `TryNextFlavor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "when_can_borrow")]
    pub when_can_borrow: Option<String>,
    /// `TryNextFlavor` (default) or `MayStopSearch` (in v1beta1 `Preempt`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "when_can_preempt")]
    pub when_can_preempt: Option<String>,
    /// `BorrowingOverPreemption` (default) or `PreemptionOverBorrowing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "preference")]
    pub preference: Option<String>,
    /// When a workload gives up a flavor whose machines do not come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_strategy: Option<FallbackStrategy>,
    /// Another spelling of `fallbackStrategy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavor_fallback_strategy: Option<FallbackStrategy>,
}

fn when_can_borrow(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["MayStopSearch", "TryNextFlavor", "Borrow"])
}

fn when_can_preempt(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["TryNextFlavor", "MayStopSearch", "Preempt"])
}

fn preference(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["BorrowingOverPreemption", "PreemptionOverBorrowing"])
}

/// When a workload gives up a flavor, and what happens when it has given up all.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.rules) || self.rules.all(a, self.rules.exists_one(b, b.name == a.name && (has(a.trigger) ? a.trigger : 'TimeoutForPodsReadyExceeded') == (has(b.trigger) ? b.trigger : 'TimeoutForPodsReadyExceeded')))")
    .message("rules must be unique by name and trigger"))]
pub struct FallbackStrategy {
    /// `RetryAllFlavors` (default) or `DeactivateWorkload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "failure_policy")]
    pub failure_policy: Option<String>,
    /// `TimeoutBased`: the default trigger, spelt out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fallback_kind")]
    pub strategy: Option<String>,
    /// One rule per flavor and trigger.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub rules: Vec<FallbackRule>,
}

fn failure_policy(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["RetryAllFlavors", "DeactivateWorkload"])
}

fn fallback_kind(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["TimeoutBased"])
}

/// When one flavor, or `*` for every other one, is given up.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.timeout) || !has(self.timeoutMinutes)")
    .message("timeout and timeoutMinutes are two spellings of one field: use one"))]
#[x_kube(validation = Rule::new("!has(self.trigger) || self.trigger != 'AdmissionCheckRejected' || (!has(self.timeout) && !has(self.timeoutMinutes))")
    .message("a rule for AdmissionCheckRejected has no timeout"))]
pub struct FallbackRule {
    /// A flavor of the queue, or `*`; the exact name wins.
    #[schemars(schema_with = "schema::flavor_or_any")]
    pub name: String,
    /// `TimeoutForPodsReadyExceeded` (default) or `AdmissionCheckRejected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "fallback_trigger")]
    pub trigger: Option<String>,
    /// How long the flavor may take; absent: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub timeout: Option<String>,
    /// `timeout` in whole minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_minutes: Option<i32>,
}

fn fallback_trigger(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["TimeoutForPodsReadyExceeded", "AdmissionCheckRejected"])
}

/// Whom a workload of this queue may preempt.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.withinCohort) || !has(self.reclaimWithinCohort) || ((self.withinCohort in ['Any', 'ReclaimFromAny', 'ReclaimAny', 'Always']) == (self.reclaimWithinCohort in ['Any', 'ReclaimFromAny', 'ReclaimAny', 'Always']) && (self.withinCohort == 'Never') == (self.reclaimWithinCohort == 'Never'))")
    .message("withinCohort and reclaimWithinCohort are two spellings of one field and must not differ"))]
#[x_kube(validation = Rule::new("!has(self.borrowWithinCohort) || !has(self.borrowWithinCohort.policy) || self.borrowWithinCohort.policy == 'Never' || (has(self.reclaimWithinCohort) && self.reclaimWithinCohort != 'Never') || (has(self.withinCohort) && self.withinCohort != 'Never')")
    .message("borrowWithinCohort needs a reclaimWithinCohort other than Never"))]
pub struct Preemption {
    /// `Never` (default), `LowerPriority` or `Any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reclaim_within_cohort")]
    pub reclaim_within_cohort: Option<String>,
    /// Another spelling of `reclaimWithinCohort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "reclaim_within_cohort")]
    pub within_cohort: Option<String>,
    /// Whether a workload that borrows may preempt in the cohort.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrow_within_cohort: Option<BorrowWithinCohort>,
    /// `Never` (default), `LowerPriority` or `LowerOrNewerEqualPriority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "within_cluster_queue")]
    pub within_cluster_queue: Option<String>,
}

fn reclaim_within_cohort(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&[
        "Never",
        "LowerPriority",
        "Any",
        "ReclaimFromAny",
        "ReclaimAny",
        "Always",
        "ReclaimFromLowerPriority",
        "LowerPriorityOnly",
    ])
}

fn within_cluster_queue(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["Never", "LowerPriority", "LowerOrNewerEqualPriority", "LowerPriorityOnly"])
}

/// Whether a workload that borrows may preempt in the cohort.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BorrowWithinCohort {
    /// `Never` (default) or `LowerPriority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "borrow_policy")]
    pub policy: Option<String>,
    /// Victims have at most this priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority_threshold: Option<i32>,
}

fn borrow_policy(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["Never", "LowerPriority", "LowerPriorityOnly"])
}

/// The checks that a workload must pass after it has its quota.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionChecksStrategy {
    /// The checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub admission_checks: Vec<CheckOnFlavors>,
}

/// A check and the flavors that it is for.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CheckOnFlavors {
    /// The name of an AdmissionCheck.
    #[schemars(schema_with = "schema::check_reference")]
    pub name: String,
    /// Empty: every flavor of the queue.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::subdomains")]
    pub on_flavors: Vec<String>,
}

/// Whether past use counts in the order of admission.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionScope {
    /// `UsageBasedAdmissionFairSharing` or `NoAdmissionFairSharing`.
    #[schemars(schema_with = "admission_mode")]
    pub admission_mode: String,
}

fn admission_mode(_: &mut SchemaGenerator) -> Schema {
    schema::one_of(&["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"])
}

/// Readiness timeouts of a queue's workloads, instead of those in the configuration.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct QueueReadiness {
    /// From Admitted to the first time that all pods are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub timeout: Option<String>,
    /// From losing a pod to all being ready again; `0s`: for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::duration")]
    pub recovery_timeout: Option<String>,
}

/// What a ClusterQueue holds at the moment.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueueStatus {
    /// `Active`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
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
    /// Workloads that wait.
    #[serde(default)]
    pub pending_workloads: i32,
    /// Workloads that hold quota.
    #[serde(default)]
    pub reserving_workloads: i32,
    /// Workloads that are admitted.
    #[serde(default)]
    pub admitted_workloads: i32,
    /// What fair sharing last computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
    /// The v1beta1 snapshot of pending workloads, which nothing writes any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub pending_workloads_status: Option<serde_json::Value>,
}
