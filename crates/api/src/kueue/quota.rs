//! Quota tables, shared by ClusterQueue and Cohort, and their use in a status.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Resources that are governed together: each flavor has a quota for each of them.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.flavors.all(f, size(f.resources) == size(self.coveredResources))")
    .message("every flavor must have as many resources as coveredResources"))]
#[x_kube(validation = Rule::new("self.flavors.all(f, f.resources.map(r, r.name) == self.coveredResources)")
    .message("resources of every flavor must have the names of coveredResources, in the same order"))]
#[x_kube(validation = Rule::new("size(self.flavors) * size(self.coveredResources) <= 512")
    .message("flavors times coveredResources must be at most 512"))]
pub struct ResourceGroup {
    /// The resources that this group governs; `pods` counts pods.
    #[schemars(schema_with = "schema::covered_resources")]
    pub covered_resources: Vec<String>,
    /// The flavors in the order in which they are tried.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub flavors: Vec<FlavorQuotas>,
}

/// The quotas of one flavor.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// The name of a ResourceFlavor.
    #[schemars(schema_with = "schema::subdomain")]
    pub name: String,
    /// A quota for each covered resource, in the same order.
    #[schemars(length(min = 1, max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub resources: Vec<ResourceQuota>,
}

/// The quota of one flavor for one resource.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// The resource.
    #[schemars(schema_with = "schema::resource_name")]
    pub name: String,
    /// The amount that this queue or cohort owns.
    #[schemars(schema_with = "schema::quantity")]
    pub nominal_quota: Quantity,
    /// How much may be borrowed above the nominal quota; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub borrowing_limit: Option<Quantity>,
    /// How much of the unused nominal quota others may borrow; absent: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub lending_limit: Option<Quantity>,
}

/// The weight in fair sharing.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FairSharing {
    /// Default 1; 0 means the last in line when borrowing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::weight")]
    pub weight: Option<Quantity>,
}

/// What fair sharing last computed.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FairSharingStatus {
    /// The dominant resource share divided by the weight.
    #[serde(default)]
    pub weighted_share: i64,
    /// Consumption as admission fair sharing counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::opaque")]
    pub admission_fair_sharing_status: Option<serde_json::Value>,
}

/// What of one flavor is in use.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FlavorUsage {
    /// The flavor.
    #[schemars(schema_with = "schema::subdomain")]
    pub name: String,
    /// Sorted by name.
    #[serde(default)]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub resources: Vec<ResourceUsage>,
}

/// What of one resource is in use.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// The resource.
    #[schemars(schema_with = "schema::resource_name")]
    pub name: String,
    /// All of it, borrowed or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub total: Option<Quantity>,
    /// The part above the nominal quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::quantity")]
    pub borrowed: Option<Quantity>,
}
