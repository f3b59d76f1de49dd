//! Pod request arithmetic: what a node has to have for a pod to run.

use std::collections::BTreeMap;

use gangway_model::quantity::QuantityError;
use gangway_model::{PODS_RESOURCE, Quantity, Requests, ResourceName};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// Why a pod's requests cannot be counted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RequestsError {
    /// A quantity is not one, or is negative.
    #[error("{path}: {source}")]
    Quantity {
        /// Where in the pod spec.
        path: String,
        /// What is wrong with it.
        source: QuantityError,
    },
    /// `pods` is implied and cannot be requested.
    #[error("{path}: the resource pods is counted by itself and cannot be requested")]
    Pods {
        /// Where in the pod spec.
        path: String,
    },
    /// A request above its own limit.
    #[error("{path}: the request is above the limit of {limit}")]
    AboveLimit {
        /// Where in the pod spec.
        path: String,
        /// The limit as it was written.
        limit: String,
    },
}

/// What one pod asks for, in the units in which resources are counted.
///
/// Containers run together, so they add up. Init containers run one after the other before them; those that
/// restart stay and count from their start on. Pod-level resources replace the sum for the resources
/// that they name. Overhead comes on top. Where a request is missing, the limit stands for it.
pub fn requests(pod: &PodSpec) -> Result<Requests, RequestsError> {
    let mut running = Requests::new();
    for (index, container) in pod.containers.iter().enumerate() {
        running.add_all(&container_requests(container, &format!("containers[{index}]"))?);
    }
    let mut sidecars = Requests::new();
    let mut starting = Requests::new();
    for (index, container) in pod.init_containers.iter().flatten().enumerate() {
        let mut needed = container_requests(container, &format!("initContainers[{index}]"))?;
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars.add_all(&needed);
            starting.raise_to(&sidecars);
        } else {
            needed.add_all(&sidecars);
            starting.raise_to(&needed);
        }
    }
    running.add_all(&sidecars);
    running.raise_to(&starting);
    if let Some(resources) = &pod.resources {
        let whole_pod = effective_requests(resources, "resources")?;
        for (resource, value) in whole_pod.iter() {
            running.set(resource.clone(), value);
        }
    }
    if let Some(overhead) = &pod.overhead {
        running.add_all(&counted(overhead, "overhead")?);
    }
    Ok(running)
}

fn container_requests(container: &Container, path: &str) -> Result<Requests, RequestsError> {
    match &container.resources {
        Some(resources) => effective_requests(resources, &format!("{path}.resources")),
        None => Ok(Requests::new()),
    }
}

/// The requests, with limits in place of those that are missing.
fn effective_requests(resources: &ResourceRequirements, path: &str) -> Result<Requests, RequestsError> {
    let none = BTreeMap::new();
    let written_limits = resources.limits.as_ref().unwrap_or(&none);
    let limits = counted(written_limits, &format!("{path}.limits"))?;
    let mut requests = counted(resources.requests.as_ref().unwrap_or(&none), &format!("{path}.requests"))?;
    for (resource, limit) in limits.iter() {
        if !requests.contains(resource.as_str()) {
            requests.set(resource.clone(), limit);
        } else if requests.get(resource.as_str()) > limit {
            return Err(RequestsError::AboveLimit {
                path: format!("{path}.requests.{resource}"),
                limit: written_limits.get(resource.as_str()).map(|q| q.0.clone()).unwrap_or_default(),
            });
        }
    }
    Ok(requests)
}

fn counted(amounts: &BTreeMap<String, ApiQuantity>, path: &str) -> Result<Requests, RequestsError> {
    let mut counted = Requests::new();
    for (resource, amount) in amounts {
        let path = || format!("{path}.{resource}");
        if resource == PODS_RESOURCE {
            return Err(RequestsError::Pods { path: path() });
        }
        let quantity = Quantity::parse_non_negative(&amount.0)
            .map_err(|source| RequestsError::Quantity { path: path(), source })?;
        counted.set(ResourceName::from(resource.as_str()), quantity.counted_as(resource));
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(pod: Value) -> Result<Requests, RequestsError> {
        requests(&serde_json::from_value(pod).unwrap())
    }

    fn container(requests: Value) -> Value {
        json!({"name": "c", "resources": {"requests": requests}})
    }

    #[test]
    fn arithmetic() {
        let table = [
            ("nothing", json!({"containers": [{"name": "c"}]}), json!({})),
            (
                "containers add up",
                json!({"containers": [container(json!({"cpu": "500m"})), container(json!({"cpu": 1, "memory": "1Ki"}))]}),
                json!({"cpu": 1500, "memory": 1024}),
            ),
            (
                "the largest init container counts",
                json!({"initContainers": [container(json!({"cpu": 3})), container(json!({"cpu": 2, "x": 1}))],
                       "containers": [container(json!({"cpu": 1}))]}),
                json!({"cpu": 3000, "x": 1}),
            ),
            (
                "sidecars stay and add to later init containers",
                json!({"initContainers": [
                        container(json!({"cpu": 4})),
                        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}},
                        container(json!({"cpu": 4}))],
                       "containers": [container(json!({"cpu": 2}))]}),
                json!({"cpu": 5000}),
            ),
            (
                "sidecars add to the containers",
                json!({"initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": 1}}}],
                       "containers": [container(json!({"cpu": 2}))]}),
                json!({"cpu": 3000}),
            ),
            (
                "overhead comes on top",
                json!({"containers": [container(json!({"cpu": 1}))], "overhead": {"cpu": "100m", "memory": "1.5"}}),
                json!({"cpu": 1100, "memory": 2}),
            ),
            (
                "pod-level resources replace the sum, overhead still added",
                json!({"containers": [container(json!({"cpu": 1, "memory": 7}))],
                       "resources": {"requests": {"cpu": 4}}, "overhead": {"cpu": 1}}),
                json!({"cpu": 5000, "memory": 7}),
            ),
            (
                "limits stand for missing requests",
                json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": 2, "memory": 5}, "requests": {"cpu": 1}}}]}),
                json!({"cpu": 1000, "memory": 5}),
            ),
            (
                "too much saturates",
                json!({"containers": [container(json!({"memory": "9E"})), container(json!({"memory": "9E"}))]}),
                json!({"memory": i64::MAX}),
            ),
        ];
        for (name, pod, expected) in table {
            let expected: Requests = expected
                .as_object()
                .unwrap()
                .iter()
                .map(|(resource, value)| (resource.as_str().into(), value.as_i64().unwrap()))
                .collect();
            assert_eq!(of(pod), Ok(expected), "{name}");
        }
    }

    #[test]
    fn bad_amounts_are_named() {
        let table = [
            (json!({"cpu": "-1"}), "containers[0].resources.requests.cpu: \"-1\" is negative"),
            (json!({"cpu": "many"}), "containers[0].resources.requests.cpu: \"many\" is not a quantity"),
            (json!({"pods": 1}), "containers[0].resources.requests.pods: the resource pods"),
        ];
        for (amounts, expected) in table {
            let error = of(json!({"containers": [container(amounts)]})).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
        let above = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}]});
        assert_eq!(
            of(above).unwrap_err().to_string(),
            "containers[0].resources.requests.cpu: the request is above the limit of 1500m"
        );
    }
}
