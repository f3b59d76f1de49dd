//! The fields of the configuration file, all of them, so that a setting is either known or a mistake.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::Value;

/// The version in which a file is written; it decides about defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The older one.
    V1Beta1,
    /// The newer one.
    V1Beta2,
}

/// A configuration file. Parts that are not supported are plain values: only their presence matters.
#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct File {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    pub namespace: Option<String>,
    pub manage_jobs_without_queue_name: Option<bool>,
    pub managed_jobs_namespace_selector: Option<LabelSelector>,
    pub client_connection: Option<ClientConnection>,
    pub integrations: Option<Integrations>,
    pub resources: Option<Resources>,
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    pub leader_election: Option<LeaderElection>,
    pub metrics: Option<Metrics>,
    pub health: Option<Health>,
    pub pprof_bind_address: Option<String>,
    pub internal_cert_management: Option<InternalCertManagement>,
    pub fair_sharing: Option<FairSharing>,
    pub feature_gates: Option<BTreeMap<String, bool>>,
    pub webhook: Option<Value>,
    pub controller: Option<Value>,
    pub tls: Option<Value>,
    pub admission_fair_sharing: Option<Value>,
    pub object_retention_policies: Option<Value>,
    pub multi_kueue: Option<Value>,
    pub visibility_server: Option<Value>,
    /// Gangway's own.
    pub eviction_report_seconds: Option<i64>,
    /// v1beta1 only.
    pub queue_visibility: Option<Value>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    pub qps: Option<f64>,
    pub burst: Option<i32>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Integrations {
    pub frameworks: Option<Vec<String>>,
    pub external_frameworks: Option<Vec<String>>,
    pub label_keys_to_copy: Option<Vec<String>>,
    /// v1beta1 only.
    pub pod_options: Option<Value>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    pub quota_check_strategy: Option<String>,
    pub exclude_resource_prefixes: Option<Vec<String>>,
    pub transformations: Option<Vec<Value>>,
    pub device_class_mappings: Option<Vec<Value>>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct WaitForPodsReady {
    pub enable: Option<bool>,
    pub timeout: Option<String>,
    pub block_admission: Option<bool>,
    pub recovery_timeout: Option<String>,
    pub requeuing_strategy: Option<RequeuingStrategy>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct RequeuingStrategy {
    pub timestamp: Option<String>,
    pub backoff_limit_count: Option<i64>,
    pub backoff_base_seconds: Option<i64>,
    pub backoff_max_seconds: Option<i64>,
    /// Gangway's own.
    pub reset_after_ready_seconds: Option<i64>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElection {
    pub leader_elect: Option<bool>,
    pub lease_duration: Option<String>,
    pub renew_deadline: Option<String>,
    pub retry_period: Option<String>,
    pub resource_lock: Option<String>,
    pub resource_name: Option<String>,
    pub resource_namespace: Option<String>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Metrics {
    pub bind_address: Option<String>,
    pub enable_cluster_queue_resources: Option<bool>,
    pub local_queue_metrics: Option<LocalQueueMetrics>,
    pub custom_labels: Option<Vec<Value>>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct LocalQueueMetrics {
    pub enable: Option<bool>,
    pub local_queue_selector: Option<LabelSelector>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    pub health_probe_bind_address: Option<String>,
    pub readiness_endpoint_name: Option<String>,
    pub liveness_endpoint_name: Option<String>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct InternalCertManagement {
    pub enable: Option<bool>,
    pub webhook_service_name: Option<String>,
    pub webhook_secret_name: Option<String>,
}

#[derive(Deserialize, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct FairSharing {
    /// v1beta1 only; in v1beta2 the object's presence means true.
    pub enable: Option<bool>,
    pub preemption_strategies: Option<Vec<String>>,
}
