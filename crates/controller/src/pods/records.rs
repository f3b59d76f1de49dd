//! Pods, nodes, disruption budgets and families of pods of the API as the scheduler knows them.
//!
//! Reading is total. What cannot be understood becomes the safest record: a pod that is refused and says
//! why, a node that takes no new pod.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use gangway_api::pods;
use gangway_api::records::label_selector;
use gangway_api::time::from_api;
use gangway_model::selector::{LabelSelector, Requirement};
use gangway_model::{ObjectName, Quantity, Requests, ResourceName, Timestamp};
use gangway_placement::{
    Demands, DisruptionBudget, Family, FamilyKind, NodeRecord, Owner, PodLabels, PodRecord,
};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use k8s_openapi::api::core::v1::{ReplicationController, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta};
use kube::api::{ApiResource, NotUsed, Object};
use serde::Deserialize;

/// The scheduler that a pod asks for if it names none.
const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";
/// The condition of a pod that is removed by others.
pub(super) const DISRUPTION_TARGET: &str = "DisruptionTarget";
/// Its reason where a scheduler does so to make room.
pub(super) const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";

/// What the scheduler needs to know of a pod.
pub fn pod_record(pod: &Pod) -> PodRecord {
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let mut unsupported = unsupported_demands(spec);
    let demands = demands(spec, &mut unsupported);
    let meta = &pod.metadata;
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let nominated = status.and_then(|status| status.nominated_node_name.as_deref());
    let node = spec.node_name.as_deref().filter(|name| !name.is_empty());
    PodRecord {
        uid: meta.uid.clone().unwrap_or_default().into(),
        name: object_name(meta),
        labels: meta.labels.as_ref().map(PodLabels::from).unwrap_or_default(),
        scheduler_name: scheduler_name(spec).into(),
        priority: spec.priority.unwrap_or(0),
        never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
        created_at: meta.creation_timestamp.as_ref().map_or(Timestamp::EPOCH, from_api),
        started_at: status.and_then(|status| status.start_time.as_ref()).map(from_api),
        demands: Arc::new(demands),
        owner: owner(meta).filter(|_| node.is_none()),
        gates: spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect(),
        unsupported: unsupported.into(),
        node: node.map(Into::into),
        nominated_node: nominated.filter(|name| !name.is_empty()).map(Into::into),
        deleting: meta.deletion_timestamp.is_some(),
        preempted: meta.deletion_timestamp.is_some() && is_preempted(pod),
        finished: matches!(phase, Some("Succeeded" | "Failed")),
    }
}

pub(super) fn object_name(meta: &ObjectMeta) -> ObjectName {
    ObjectName::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// What the pod takes of its node and which nodes it accepts. What cannot be read is added to what is unsupported.
fn demands(spec: &PodSpec, unsupported: &mut Vec<String>) -> Demands {
    let (scored_cpu_millis, scored_memory_bytes) = pods::scored_requests(spec).unwrap_or_default();
    Demands {
        requests: read(pods::requests(spec), unsupported),
        scored_cpu_millis,
        scored_memory_bytes,
        constraints: read(pods::constraints(spec), unsupported),
        preferred: read(pods::preferred_node_affinity(spec), unsupported),
        ports: read(pods::host_ports(spec), unsupported),
        spread: read(pods::spread_constraints(spec), unsupported),
    }
}

fn read<T: Default>(result: Result<T, impl Display>, unsupported: &mut Vec<String>) -> T {
    result.unwrap_or_else(|error| {
        unsupported.push(error.to_string());
        T::default()
    })
}

/// Whether a scheduler removes the pod to make room.
fn is_preempted(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| {
        condition.type_ == DISRUPTION_TARGET
            && condition.status == "True"
            && condition.reason.as_deref() == Some(PREEMPTION_BY_SCHEDULER)
    })
}

/// The scheduler that is asked to place the pod.
pub(super) fn scheduler_name(spec: &PodSpec) -> &str {
    spec.scheduler_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(DEFAULT_SCHEDULER_NAME)
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
    let claims_volumes =
        spec.volumes.iter().flatten().any(|v| v.persistent_volume_claim.is_some() || v.ephemeral.is_some());
    let claims_devices = spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty());
    let table = [
        (attracts, "spec.affinity.podAffinity"),
        (repels, "spec.affinity.podAntiAffinity"),
        (claims_volumes, "a volume with a PersistentVolumeClaim"),
        (claims_devices, "spec.resourceClaims"),
    ];
    table.into_iter().filter(|(present, _)| *present).map(|(_, field)| field.to_owned()).collect()
}

/// How many of which pods may be removed. A selector that cannot be read, which no API server accepts, is for none.
pub fn budget_record(budget: &PodDisruptionBudget) -> DisruptionBudget {
    let name = object_name(&budget.metadata);
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()).map(label_selector);
    let selector = selector.transpose().unwrap_or_else(|error| {
        tracing::warn!(budget = %name, error, "disruption budget protects nothing");
        None
    });
    let status = budget.status.as_ref();
    let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
    DisruptionBudget {
        name,
        selector: selector.unwrap_or_default(),
        allowed: status.and_then(|status| status.disruptions_allowed).unwrap_or(0),
        disrupted: disrupted.iter().flat_map(|pods| pods.keys().cloned()).collect(),
    }
}

/// What is read of an object that selects pods: there are many of them, and their templates are long.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Selecting {
    #[serde(default)]
    selector: Option<serde_json::Value>,
}

/// An object that tells which pods belong together.
pub type FamilyObject = Object<Selecting, NotUsed>;

/// Where objects of that kind are found.
pub(super) fn family_resource(kind: FamilyKind) -> ApiResource {
    match kind {
        FamilyKind::Service => ApiResource::erase::<Service>(&()),
        FamilyKind::ReplicationController => ApiResource::erase::<ReplicationController>(&()),
        FamilyKind::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        FamilyKind::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
    }
}

/// Who made a pod, if that tells which other pods belong together with it.
fn owner(meta: &ObjectMeta) -> Option<Owner> {
    let owner = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("v1", "ReplicationController") => FamilyKind::ReplicationController,
        ("apps/v1", "ReplicaSet") => FamilyKind::ReplicaSet,
        ("apps/v1", "StatefulSet") => FamilyKind::StatefulSet,
        _ => return None,
    };
    Some(Owner { kind, name: owner.name.as_str().into() })
}

/// Which pods belong together. A selector that cannot be read, which no API server accepts, is for nobody.
pub fn family_record(kind: FamilyKind, object: &FamilyObject) -> Family {
    let name = object_name(&object.metadata);
    let written = object.spec.selector.clone().unwrap_or_default();
    let selector = family_selector(kind, written).unwrap_or_else(|error| {
        tracing::warn!(%name, error, "selector is not understood: its pods are not spread by it");
        LabelSelector::default()
    });
    Family { kind, name, selector }
}

/// Services and controllers of the first hour select by labels alone.
fn family_selector(kind: FamilyKind, written: serde_json::Value) -> Result<LabelSelector, String> {
    match kind {
        FamilyKind::Service | FamilyKind::ReplicationController => {
            let labels: Option<BTreeMap<String, String>> =
                serde_json::from_value(written).map_err(|error| error.to_string())?;
            let labels = labels.unwrap_or_default();
            let requirements = labels.iter().map(|(key, value)| Requirement::equals(key, value)).collect();
            Ok(LabelSelector { requirements })
        }
        FamilyKind::ReplicaSet | FamilyKind::StatefulSet => {
            let selector: Option<meta::LabelSelector> =
                serde_json::from_value(written).map_err(|error| error.to_string())?;
            label_selector(&selector.unwrap_or_default())
        }
    }
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
        assert_eq!((record.priority, &*record.scheduler_name), (7, "gangway"));
        assert_eq!(record.demands.requests.get("cpu"), 500);
        assert_eq!(*record.gates, ["g"]);
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
            (spread("DoNotSchedule"), 0),
            (spread("Sometimes"), 1),
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
    }

    #[test]
    fn what_preemption_needs_is_read() {
        let condition =
            |reason: &str| json!([{"type": "DisruptionTarget", "status": "True", "reason": reason}]);
        let read = |deleted: Value, reason: &str| {
            let pod = json!({
                "metadata": {"name": "p", "labels": {"app": "a"}, "deletionTimestamp": deleted},
                "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}],
                         "preemptionPolicy": "Never"},
                "status": {"nominatedNodeName": "n", "startTime": "1970-01-01T00:00:05Z",
                           "conditions": condition(reason)},
            });
            pod_record(&serde_json::from_value(pod).unwrap())
        };
        let record = read(json!("2026-01-01T00:00:00Z"), PREEMPTION_BY_SCHEDULER);
        assert!(record.preempted && record.deleting && record.never_preempts);
        assert_eq!(record.nominated_node, Some("n".into()));
        assert_eq!(record.started_at, Some(Timestamp::from_seconds(5)));
        assert_eq!((record.labels.get("app"), record.demands.ports.len()), (Some("a"), 1));
        assert!(!read(json!(null), PREEMPTION_BY_SCHEDULER).preempted, "it may still be saved");
        assert!(!read(json!("2026-01-01T00:00:00Z"), "EvictionByEvictionAPI").preempted);
    }

    #[test]
    fn a_budget_is_read_whole() {
        let budget = |selector: Value| {
            let budget = json!({
                "metadata": {"name": "b", "namespace": "ns"}, "spec": {"selector": selector},
                "status": {"disruptionsAllowed": 2, "disruptedPods": {"p": "2026-01-01T00:00:00Z"},
                           "currentHealthy": 3, "desiredHealthy": 1, "expectedPods": 3},
            });
            budget_record(&serde_json::from_value(budget).unwrap())
        };
        let record = budget(json!({"matchLabels": {"app": "a"}}));
        assert_eq!((record.name.to_string().as_str(), record.allowed), ("ns/b", 2));
        assert_eq!((record.selector.requirements.len(), &*record.disrupted), (1, &["p".to_owned()][..]));
        let unreadable = json!({"matchExpressions": [{"key": "a", "operator": "Sometimes"}]});
        assert!(budget(unreadable).selector.requirements.is_empty());
    }

    #[test]
    fn families_are_read_by_their_selectors() {
        let family = |kind, selector: Value| {
            let object = json!({
                "apiVersion": "v1", "kind": "Any", "metadata": {"name": "f", "namespace": "ns"},
                "spec": {"selector": selector, "template": {"spec": {}}}, "status": {"replicas": 3},
            });
            family_record(kind, &serde_json::from_value(object).unwrap())
        };
        let labels = json!({"app": "a"});
        let full = json!({"matchLabels": labels, "matchExpressions": [{"key": "b", "operator": "Exists"}]});
        let table = [
            (FamilyKind::Service, labels.clone(), 1),
            (FamilyKind::Service, json!(null), 0),
            (FamilyKind::Service, json!({"app": 7}), 0),
            (FamilyKind::ReplicationController, labels, 1),
            (FamilyKind::ReplicaSet, full.clone(), 2),
            (FamilyKind::StatefulSet, full, 2),
            (FamilyKind::StatefulSet, json!({"matchExpressions": [{"key": "b", "operator": "Any"}]}), 0),
        ];
        for (kind, selector, expected) in table {
            let family = family(kind, selector.clone());
            assert_eq!(family.name.to_string(), "ns/f");
            assert_eq!(family.selector.requirements.len(), expected, "{kind:?} {selector}");
        }
    }

    #[test]
    fn only_an_owner_that_selects_pods_is_remembered_and_only_while_the_pod_waits() {
        let owned = |api_version: &str, kind: &str, controller: bool, node: Value| {
            let owner = json!({"apiVersion": api_version, "kind": kind, "name": "o", "uid": "u", "controller": controller});
            let pod = json!({
                "metadata": {"name": "p", "namespace": "ns", "ownerReferences": [owner]},
                "spec": {"containers": [{"name": "c"}], "nodeName": node},
            });
            pod_record(&serde_json::from_value(pod).unwrap()).owner.map(|owner| owner.kind)
        };
        let table = [
            (owned("apps/v1", "ReplicaSet", true, json!(null)), Some(FamilyKind::ReplicaSet)),
            (owned("apps/v1", "StatefulSet", true, json!("")), Some(FamilyKind::StatefulSet)),
            (
                owned("v1", "ReplicationController", true, json!(null)),
                Some(FamilyKind::ReplicationController),
            ),
            (owned("apps/v1", "ReplicaSet", true, json!("n")), None),
            (owned("apps/v1", "ReplicaSet", false, json!(null)), None),
            (owned("other/v1", "ReplicaSet", true, json!(null)), None),
            (owned("v1", "Service", true, json!(null)), None),
            (owned("batch/v1", "Job", true, json!(null)), None),
        ];
        for (index, (kind, expected)) in table.into_iter().enumerate() {
            assert_eq!(kind, expected, "case {index}");
        }
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
