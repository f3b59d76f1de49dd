//! Pods and nodes of the API as the scheduler knows them.
//!
//! Reading is total. What cannot be understood becomes the safest record: a pod that is refused and says
//! why, a node that takes no new pod.

use std::collections::BTreeMap;

use gangway_api::pods;
use gangway_model::{ObjectName, Quantity, Requests, ResourceName, Timestamp};
use gangway_placement::{NodeRecord, PodRecord};
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

/// The scheduler that a pod asks for if it names none.
const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// What the scheduler needs to know of a pod.
pub fn pod_record(pod: &Pod) -> PodRecord {
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let mut unsupported = unsupported_demands(spec);
    let requests = pods::requests(spec).unwrap_or_else(|error| {
        unsupported.push(error.to_string());
        Requests::new()
    });
    let constraints = pods::constraints(spec).unwrap_or_else(|error| {
        unsupported.push(error.to_string());
        Default::default()
    });
    let meta = &pod.metadata;
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    PodRecord {
        uid: meta.uid.clone().unwrap_or_default().into(),
        name: ObjectName::new(
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        ),
        scheduler_name: scheduler_name(spec).to_owned(),
        priority: spec.priority.unwrap_or(0),
        created_at: meta.creation_timestamp.as_ref().map_or(Timestamp::EPOCH, gangway_api::time::from_api),
        requests,
        constraints,
        gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
        unsupported,
        node: spec.node_name.as_deref().filter(|name| !name.is_empty()).map(Into::into),
        deleting: meta.deletion_timestamp.is_some(),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
    }
}

/// The scheduler that is asked to place the pod.
pub(super) fn scheduler_name(spec: &PodSpec) -> &str {
    spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER_NAME)
}

/// Fields that bind the choice of a node in ways that the scheduler does not know yet.
fn unsupported_demands(spec: &PodSpec) -> Vec<String> {
    let affinity = spec.affinity.as_ref();
    let attracts = affinity.and_then(|a| a.pod_affinity.as_ref()).is_some_and(|a| {
        a.required_during_scheduling_ignored_during_execution.as_ref().is_some_and(|terms| !terms.is_empty())
    });
    let repels = affinity.and_then(|a| a.pod_anti_affinity.as_ref()).is_some_and(|a| {
        a.required_during_scheduling_ignored_during_execution.as_ref().is_some_and(|terms| !terms.is_empty())
    });
    let spreads =
        spec.topology_spread_constraints.iter().flatten().any(|c| c.when_unsatisfiable == "DoNotSchedule");
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let claims_volumes =
        spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    let claims_devices = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
    let table = [
        (attracts, "spec.affinity.podAffinity"),
        (repels, "spec.affinity.podAntiAffinity"),
        (spreads, "spec.topologySpreadConstraints with DoNotSchedule"),
        (containers.into_iter().any(has_host_port), "hostPort of a container"),
        (claims_volumes, "a volume with a PersistentVolumeClaim"),
        (claims_devices, "spec.resourceClaims"),
    ];
    table.into_iter().filter(|(present, _)| *present).map(|(_, field)| field.to_owned()).collect()
}

fn has_host_port(container: &Container) -> bool {
    container.ports.iter().flatten().any(|port| port.host_port.is_some_and(|port| port > 0))
}

/// What the scheduler needs to know of a node.
pub fn node_record(node: &Node) -> NodeRecord {
    let spec = node.spec.as_ref();
    let name = node.metadata.name.clone().unwrap_or_default();
    let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    let read: Result<Vec<_>, _> = taints.iter().map(|taint| pods::taint(taint, "spec.taints")).collect();
    let unreadable = read.is_err();
    if let Err(error) = &read {
        tracing::warn!(node = %name, %error, "node is treated as cordoned");
    }
    let status = node.status.as_ref();
    // A node that does not say what is allocatable offers all that it has.
    let offered = status.and_then(|status| status.allocatable.as_ref().or(status.capacity.as_ref()));
    NodeRecord {
        name: name.into(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints: read.unwrap_or_default(),
        unschedulable: unreadable || spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
        allocatable: offered.map(readable_amounts).unwrap_or_default(),
    }
}

/// An amount that is none is as good as absent: nothing is placed on it.
fn readable_amounts(amounts: &BTreeMap<String, ApiQuantity>) -> Requests {
    let readable = amounts.iter().filter_map(|(name, amount)| {
        let quantity = Quantity::parse_non_negative(&amount.0).ok()?;
        Some((ResourceName::from(name.as_str()), quantity.counted_as(name)))
    });
    readable.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: Value) -> PodRecord {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": spec,
        });
        pod_record(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_pod_is_read_whole() {
        let record = pod(json!({
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
            "priority": 7, "schedulerName": "gangway", "schedulingGates": [{"name": "g"}],
            "nodeSelector": {"zone": "a"}, "nodeName": "",
        }));
        assert_eq!(record.name.to_string(), "ns/p");
        assert_eq!((record.priority, record.scheduler_name.as_str()), (7, "gangway"));
        assert_eq!(record.requests.get("cpu"), 500);
        assert_eq!(record.gates, ["g"]);
        assert_eq!(record.node, None, "an empty name is no name");
        assert!(record.unsupported.is_empty() && !record.finished && !record.deleting);
    }

    #[test]
    fn demands_that_would_be_ignored_are_named() {
        let term = json!({"topologyKey": "zone"});
        let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
        let table = [
            (json!({"affinity": {"podAffinity": required}}), 1),
            (json!({"affinity": {"podAntiAffinity": required}}), 1),
            (json!({"affinity": {"podAntiAffinity": {}}}), 0),
            (spread("DoNotSchedule"), 1),
            (spread("ScheduleAnyway"), 0),
            (json!({"resourceClaims": [{"name": "gpu"}]}), 1),
            (json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}), 1),
            (json!({"volumes": [{"name": "v", "emptyDir": {}}]}), 0),
            (json!({"overhead": {"cpu": "much"}}), 1),
            (json!({"tolerations": [{"operator": "Sometimes"}]}), 1),
        ];
        for (mut spec, expected) in table {
            spec["containers"] = json!([{"name": "c", "ports": [{"containerPort": 80}]}]);
            assert_eq!(pod(spec.clone()).unsupported.len(), expected, "{spec}");
        }
        let host_port =
            json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
        assert_eq!(pod(host_port).unsupported, ["hostPort of a container"]);
    }

    fn spread(when: &str) -> Value {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when}]})
    }

    #[test]
    fn a_node_that_cannot_be_understood_takes_no_pod() {
        let node = json!({
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": "a", "effect": "Sometimes"}]},
            "status": {"capacity": {"cpu": "2", "memory": "lots", "pods": "10"}},
        });
        let record = node_record(&serde_json::from_value(node).unwrap());
        assert!(record.unschedulable);
        assert_eq!(record.allocatable.get("cpu"), 2000);
        assert!(!record.allocatable.contains("memory"));
    }
}
