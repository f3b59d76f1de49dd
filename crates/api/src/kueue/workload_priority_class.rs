//! WorkloadPriorityClass: a priority by name, for queueing only.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};

use super::{GROUP, VERSION};

/// A priority by name. Its fields are at the top level: the kind has no spec.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPriorityClass {
    /// Always `kueue.x-k8s.io/v1beta2`.
    #[serde(default = "WorkloadPriorityClass::own_api_version")]
    pub api_version: String,
    /// Always `WorkloadPriorityClass`.
    #[serde(default = "WorkloadPriorityClass::own_kind")]
    pub kind: String,
    /// Name, labels and the like.
    pub metadata: ObjectMeta,
    /// Higher goes first.
    pub value: i32,
    /// When to use this class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl WorkloadPriorityClass {
    /// A class of this name and value.
    pub fn new(name: &str, value: i32) -> Self {
        Self {
            api_version: Self::own_api_version(),
            kind: Self::own_kind(),
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            value,
            description: None,
        }
    }

    fn own_api_version() -> String {
        format!("{GROUP}/{VERSION}")
    }

    fn own_kind() -> String {
        "WorkloadPriorityClass".to_owned()
    }
}

impl Resource for WorkloadPriorityClass {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "WorkloadPriorityClass".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "workloadpriorityclasses".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
