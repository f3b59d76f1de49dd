//! Cohort: queues that lend each other unused quota, and cohorts of cohorts.

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::quota::{FairSharing, FairSharingStatus, ResourceGroup};
use super::schema;

/// A node of the tree in which quota is lent.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "Cohort",
    status = "CohortStatus",
    shortname = "co",
    category = "kueue",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Parent", type_ = "string", json_path = ".spec.parentName")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.parentName) && self.parentName != '') || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit) && !has(r.lendingLimit))))")
    .message("borrowingLimit and lendingLimit need a parentName"))]
pub struct CohortSpec {
    /// The cohort above; absent: this is a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_subdomain")]
    pub parent_name: Option<String>,
    /// Quota in addition to that of the members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    #[x_kube(validation = Rule::new("self.all(g, self.exists_one(h, sets.intersects(g.coveredResources, h.coveredResources)))")
        .message("a resource may be covered by one resource group only"))]
    #[x_kube(validation = Rule::new("self.all(g, self.exists_one(h, sets.intersects(g.flavors.map(f, f.name), h.flavors.map(f, f.name))))")
        .message("a flavor may be in one resource group only"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// The weight in fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What a Cohort shares at the moment.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// What fair sharing last computed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
