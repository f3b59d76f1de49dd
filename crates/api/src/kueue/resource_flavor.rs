//! ResourceFlavor: a kind of machine.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::schema;

/// A kind of machine, told apart by the labels and taints of its nodes.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "ResourceFlavor",
    shortname = "flavor",
    shortname = "flavors",
    shortname = "rf",
    category = "kueue",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)")
    .message("topologyName needs at least one entry in nodeLabels"))]
#[x_kube(validation = Rule::new("!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)")
    .message("topologyName is immutable once it is set"))]
pub struct ResourceFlavorSpec {
    /// The labels of its nodes; they become the node selector of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::node_labels")]
    pub node_labels: BTreeMap<String, String>,
    /// The taints of its nodes, which a workload has to tolerate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::node_taints")]
    pub node_taints: Vec<Taint>,
    /// Tolerations that the pods get when they start on this flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// The topology of its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::subdomain")]
    pub topology_name: Option<String>,
}
