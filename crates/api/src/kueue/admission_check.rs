//! AdmissionCheck: something that has to agree before a workload with quota may start.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::schema;

/// A check and the controller that answers it.
#[derive(CustomResource, Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "kueue.x-k8s.io",
    version = "v1beta2",
    kind = "AdmissionCheck",
    status = "AdmissionCheckStatus",
    shortname = "ac",
    category = "kueue",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Controller", type_ = "string", json_path = ".spec.controllerName")
)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckSpec {
    /// Who answers it.
    #[schemars(length(min = 1, max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("controllerName is immutable"))]
    pub controller_name: String,
    /// What the controller needs to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<AdmissionCheckParameters>,
    /// A v1beta1 setting that nothing reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_delay_minutes: Option<i64>,
}

/// The object that holds a check's parameters.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckParameters {
    /// Its API group.
    #[schemars(schema_with = "schema::subdomain")]
    pub api_group: String,
    /// Its kind.
    #[schemars(schema_with = "kind")]
    pub kind: String,
    /// Its name.
    #[schemars(schema_with = "schema::pod_set_reference")]
    pub name: String,
}

fn kind(_: &mut SchemaGenerator) -> Schema {
    schema::kind_name()
}

/// Whether the check can be answered.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionCheckStatus {
    /// `Active`, set by the controller that answers the check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}
