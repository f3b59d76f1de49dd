//! The kinds that a manifest may have, and how each is checked.

use gangway_model::Quantity;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod,
    PodTemplateSpec, ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::kueue;
use crate::pods;
use crate::records::{self, Invalid, Read, ResourceRules};
use crate::strict::{Finding, deserialize_at, field_path, item_path};

/// A kind and how it is checked.
pub struct Kind {
    api_versions: &'static [&'static str],
    name: &'static str,
    check: fn(&Value) -> Vec<Finding>,
}

impl Kind {
    /// Everything that is wrong with an object of this kind.
    pub fn check(&self, object: &Value) -> Vec<Finding> {
        let findings = (self.check)(object);
        if findings.is_empty() { bad_quantities(object) } else { findings }
    }
}

const OURS: &[&str] = &["kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1"];

const KINDS: &[Kind] = &[
    Kind { api_versions: &["v1"], name: "Namespace", check: typed::<Namespace> },
    Kind { api_versions: &["v1"], name: "Pod", check: pod },
    Kind { api_versions: &["v1"], name: "Node", check: typed::<Node> },
    Kind { api_versions: &["v1"], name: "ConfigMap", check: typed::<ConfigMap> },
    Kind { api_versions: &["v1"], name: "Secret", check: typed::<Secret> },
    Kind { api_versions: &["v1"], name: "ServiceAccount", check: typed::<ServiceAccount> },
    Kind { api_versions: &["v1"], name: "Service", check: typed::<Service> },
    Kind { api_versions: &["v1"], name: "LimitRange", check: typed::<LimitRange> },
    Kind { api_versions: &["v1"], name: "ResourceQuota", check: typed::<ResourceQuota> },
    Kind { api_versions: &["v1"], name: "PersistentVolumeClaim", check: typed::<PersistentVolumeClaim> },
    Kind { api_versions: &["v1"], name: "PersistentVolume", check: typed::<PersistentVolume> },
    Kind { api_versions: &["v1"], name: "Event", check: typed::<Event> },
    Kind { api_versions: &["apps/v1"], name: "Deployment", check: typed::<Deployment> },
    Kind { api_versions: &["apps/v1"], name: "StatefulSet", check: typed::<StatefulSet> },
    Kind { api_versions: &["apps/v1"], name: "DaemonSet", check: typed::<DaemonSet> },
    Kind { api_versions: &["apps/v1"], name: "ReplicaSet", check: typed::<ReplicaSet> },
    Kind { api_versions: &["networking.k8s.io/v1"], name: "Ingress", check: typed::<Ingress> },
    Kind { api_versions: &["networking.k8s.io/v1"], name: "NetworkPolicy", check: typed::<NetworkPolicy> },
    Kind { api_versions: &["storage.k8s.io/v1"], name: "StorageClass", check: typed::<StorageClass> },
    Kind { api_versions: &["batch/v1"], name: "Job", check: job },
    Kind { api_versions: &["batch/v1"], name: "CronJob", check: typed::<CronJob> },
    Kind { api_versions: &["coordination.k8s.io/v1"], name: "Lease", check: typed::<Lease> },
    Kind { api_versions: &["scheduling.k8s.io/v1"], name: "PriorityClass", check: typed::<PriorityClass> },
    Kind { api_versions: &["rbac.authorization.k8s.io/v1"], name: "Role", check: typed::<Role> },
    Kind {
        api_versions: &["rbac.authorization.k8s.io/v1"],
        name: "RoleBinding",
        check: typed::<RoleBinding>,
    },
    Kind {
        api_versions: &["rbac.authorization.k8s.io/v1"],
        name: "ClusterRole",
        check: typed::<ClusterRole>,
    },
    Kind {
        api_versions: &["rbac.authorization.k8s.io/v1"],
        name: "ClusterRoleBinding",
        check: typed::<ClusterRoleBinding>,
    },
    Kind {
        api_versions: &["apiextensions.k8s.io/v1"],
        name: "CustomResourceDefinition",
        check: typed::<CustomResourceDefinition>,
    },
    Kind { api_versions: OURS, name: "ClusterQueue", check: cluster_queue },
    Kind { api_versions: OURS, name: "LocalQueue", check: local_queue },
    Kind { api_versions: OURS, name: "ResourceFlavor", check: flavor },
    Kind { api_versions: OURS, name: "Workload", check: workload },
    Kind { api_versions: OURS, name: "WorkloadPriorityClass", check: typed::<kueue::WorkloadPriorityClass> },
    Kind { api_versions: OURS, name: "Cohort", check: cohort },
    Kind { api_versions: OURS, name: "AdmissionCheck", check: typed::<kueue::AdmissionCheck> },
    Kind { api_versions: OURS, name: "Topology", check: kept },
    Kind { api_versions: OURS, name: "ProvisioningRequestConfig", check: kept },
    Kind { api_versions: OURS, name: "MultiKueueConfig", check: kept },
    Kind { api_versions: OURS, name: "MultiKueueCluster", check: kept },
];

/// The kind of this name under this API version.
pub fn find(api_version: &str, name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name && kind.api_versions.contains(&api_version))
}

/// The API versions under which a kind is known.
pub fn api_versions(name: &str) -> &'static [&'static str] {
    KINDS.iter().find(|kind| kind.name == name).map_or(&[], |kind| kind.api_versions)
}

/// Every kind.
pub fn names() -> Vec<&'static str> {
    KINDS.iter().map(|kind| kind.name).collect()
}

fn read<T: DeserializeOwned>(object: &Value) -> Result<T, Vec<Finding>> {
    deserialize_at(object, "", &["apiVersion", "kind"])
}

fn typed<T: DeserializeOwned>(object: &Value) -> Vec<Finding> {
    read::<T>(object).err().unwrap_or_default()
}

/// What is wrong with an object whose record is `record`. The spec may be left out where the API server
/// puts an empty one in its place.
fn recorded<T: DeserializeOwned, R>(object: &Value, record: impl Fn(&T) -> Read<R>) -> Vec<Finding> {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.entry("spec").or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    match read::<T>(&object) {
        Ok(typed) => record(&typed).problems.into_iter().map(finding).collect(),
        Err(findings) => findings,
    }
}

fn finding(invalid: Invalid) -> Finding {
    Finding { path: invalid.path, message: invalid.message }
}

/// An object into which nobody looks.
fn kept(_: &Value) -> Vec<Finding> {
    Vec::new()
}

fn cluster_queue(object: &Value) -> Vec<Finding> {
    recorded(object, records::cluster_queue)
}

fn local_queue(object: &Value) -> Vec<Finding> {
    recorded(object, records::local_queue)
}

fn cohort(object: &Value) -> Vec<Finding> {
    recorded(object, records::cohort)
}

fn flavor(object: &Value) -> Vec<Finding> {
    recorded(object, records::flavor)
}

fn workload(object: &Value) -> Vec<Finding> {
    let sets = object.pointer("/spec/podSets").and_then(Value::as_array).into_iter().flatten();
    for (index, set) in sets.enumerate() {
        let path = format!("spec.podSets[{index}].template");
        let Some(template) = set.get("template") else { continue };
        if let Err(findings) = deserialize_at::<PodTemplateSpec>(template, &path, &[]) {
            return findings;
        }
    }
    recorded(object, |workload| records::workload(workload, &ResourceRules::default()))
}

fn job(object: &Value) -> Vec<Finding> {
    match read::<Job>(object) {
        Ok(job) => {
            let pod = job.spec.and_then(|spec| spec.template.spec);
            pod.map(|pod| pod_problems(&pod, "spec.template.spec")).unwrap_or_default()
        }
        Err(findings) => findings,
    }
}

fn pod(object: &Value) -> Vec<Finding> {
    match read::<Pod>(object) {
        Ok(pod) => pod.spec.map(|pod| pod_problems(&pod, "spec")).unwrap_or_default(),
        Err(findings) => findings,
    }
}

fn pod_problems(pod: &k8s_openapi::api::core::v1::PodSpec, path: &str) -> Vec<Finding> {
    let problem = |text: String| {
        let (inner, message) = text.split_once(": ").unwrap_or(("", text.as_str()));
        Finding { path: format!("{path}.{inner}"), message: message.to_owned() }
    };
    let requests = pods::requests(pod).err().map(|error| problem(error.to_string()));
    let constraints = pods::constraints(pod).err().map(|error| problem(error.to_string()));
    requests.into_iter().chain(constraints).collect()
}

/// Fields that hold quantities by resource name, wherever they stand.
const QUANTITY_MAPS: &[&str] = &["requests", "limits", "overhead", "capacity", "allocatable", "hard"];
/// Fields that are quantities of the resource that the field `name` beside them names.
const QUOTAS: &[&str] = &["nominalQuota", "borrowingLimit", "lendingLimit"];
/// A quantity that is of no resource.
const WEIGHT: &str = "weight";

fn bad_quantities(object: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Data is free text: a key there means what its owner wants.
    let data = ["ConfigMap", "Secret", "CustomResourceDefinition"];
    if !object.get("kind").and_then(Value::as_str).is_some_and(|kind| data.contains(&kind)) {
        walk(object, "", &mut findings);
    }
    findings
}

fn walk(value: &Value, path: &str, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(map) => {
            for (field, inner) in map {
                let path = field_path(path, field);
                match inner {
                    Value::Object(amounts) if QUANTITY_MAPS.contains(&field.as_str()) => {
                        for (resource, amount) in amounts {
                            check_quantity(amount, resource, field_path(&path, resource), findings);
                        }
                    }
                    Value::String(_) | Value::Number(_) if QUOTAS.contains(&field.as_str()) => {
                        let resource = map.get("name").and_then(Value::as_str).unwrap_or_default();
                        check_quantity(inner, resource, path, findings);
                    }
                    Value::String(_) | Value::Number(_) if field == WEIGHT => {
                        check_quantity(inner, WEIGHT, path, findings);
                    }
                    _ if matches!(field.as_str(), "labels" | "annotations" | "nodeLabels") => {}
                    _ => walk(inner, &path, findings),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                walk(item, &item_path(path, index), findings);
            }
        }
        _ => {}
    }
}

fn check_quantity(amount: &Value, resource: &str, path: String, findings: &mut Vec<Finding>) {
    let text = match amount {
        Value::String(text) => text.clone(),
        // As people write it: without the plus sign that large numbers are printed with.
        Value::Number(number) => number.to_string().replace("e+", "e"),
        _ => return,
    };
    let message = match Quantity::parse_non_negative(&text) {
        Err(error) => error.to_string(),
        // It would be counted as something else: an endless quota, or a request that fits nowhere.
        Ok(quantity) if quantity.overflows(resource) => {
            let unit = if resource == "cpu" { "thousandths of " } else { "" };
            format!("{text:?} is too large; at most {} {unit}{resource} can be counted", i64::MAX)
        }
        Ok(_) => return,
    };
    findings.push(Finding { path, message });
}
