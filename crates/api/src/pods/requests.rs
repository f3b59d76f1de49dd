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
    requests_with(pod, &[])
}

/// What a container is taken to use, for ranking nodes, if it does not say: a tenth of a core and 200 MiB.
const USUAL_REQUESTS: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 << 20)];

/// What one pod counts for when nodes are ranked: thousandths of a core, and bytes of memory.
///
/// As what it asks for, except that a container that asks for nothing counts as if it asked for a little. Else
/// such pods would weigh nothing and pile up on one node. A request of 0 is one, and pod-level resources
/// still replace the sum.
pub fn scored_requests(pod: &PodSpec) -> Result<(i64, i64), RequestsError> {
    let scored = requests_with(pod, &USUAL_REQUESTS)?;
    Ok((scored.get("cpu"), scored.get("memory")))
}

/// What one pod asks for if each container that does not mention one of these resources asks for so much of it.
fn requests_with(pod: &PodSpec, usual: &[(&str, i64)]) -> Result<Requests, RequestsError> {
    let container_requests = |container: &Container, path: &str| {
        let mut requests = container_requests(container, path)?;
        for (resource, amount) in usual {
            if !requests.contains(resource) {
                requests.set(ResourceName::from(*resource), *amount);
            }
        }
        Ok(requests)
    };
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
    fn containers_that_ask_for_nothing_count_a_little_when_nodes_are_ranked() {
        const MIB: i64 = 1 << 20;
        let nothing = || json!({"name": "c"});
        let sidecar = || json!({"name": "s", "restartPolicy": "Always"});
        let table = [
            ("nothing", json!({"containers": [nothing()]}), (100, 200 * MIB)),
            ("each container by itself", json!({"containers": [nothing(), nothing()]}), (200, 400 * MIB)),
            (
                "each resource by itself",
                json!({"containers": [container(json!({"cpu": 1})), container(json!({"memory": "1Gi"}))]}),
                (1100, 1224 * MIB),
            ),
            ("0 is a request", json!({"containers": [container(json!({"cpu": 0, "memory": 0}))]}), (0, 0)),
            (
                "limits stand for missing requests",
                json!({"containers": [{"name": "c", "resources": {"limits": {"cpu": 2}}}]}),
                (2000, 200 * MIB),
            ),
            (
                "init containers and sidecars",
                json!({"initContainers": [nothing(), sidecar(), container(json!({"cpu": "150m"}))],
                       "containers": [nothing()]}),
                (250, 400 * MIB),
            ),
            (
                "overhead comes on top",
                json!({"containers": [nothing()], "overhead": {"cpu": "50m", "memory": "1Mi"}}),
                (150, 201 * MIB),
            ),
            (
                "pod-level resources replace the sum of what they name",
                json!({"containers": [nothing(), nothing()], "resources": {"requests": {"cpu": 1}}}),
                (1000, 400 * MIB),
            ),
        ];
        for (name, pod, expected) in table {
            assert_eq!(scored_requests(&serde_json::from_value(pod).unwrap()), Ok(expected), "{name}");
        }
        let bad = json!({"containers": [container(json!({"cpu": "many"}))]});
        let error = scored_requests(&serde_json::from_value(bad).unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("containers[0].resources.requests.cpu: \"many\""), "{error}");
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
