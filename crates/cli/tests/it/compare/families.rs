//! Services and sets of replicas: what tells which pods belong together.

use anyhow::{Context, Result, bail};
use gangway_controller::pods::FamilyObject;
use gangway_placement::FamilyKind;
use kube::api::{DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::dice::Dice;
use super::generate::{Cluster, HOSTNAME, SERVED, ZONE};
use super::reference::{Reference, Verdict};

/// How often is asked whether the scheduler knows a family by now.
const MOST_QUESTIONS: usize = 200;

/// The kind, its API version and its name, and what it selects.
type Written = (FamilyKind, &'static str, &'static str, &'static str, Value);

/// There for all clusters: each pod has the labels `app` and `tier`, or one of them, or none.
fn written() -> [Written; 6] {
    let exists = json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]});
    [
        (FamilyKind::Service, "v1", "Service", "of-a", json!({"app": "a"})),
        (FamilyKind::Service, "v1", "Service", "of-nobody", Value::Null),
        (FamilyKind::ReplicaSet, "apps/v1", "ReplicaSet", "of-x", json!({"matchLabels": {"tier": "x"}})),
        (FamilyKind::ReplicaSet, "apps/v1", "ReplicaSet", "of-any", exists),
        (FamilyKind::StatefulSet, "apps/v1", "StatefulSet", "of-b", json!({"matchLabels": {"app": "b"}})),
        (FamilyKind::ReplicationController, "v1", "ReplicationController", "of-y", json!({"tier": "y"})),
    ]
}

fn reference_to((_, api_version, kind, name, _): &Written) -> Value {
    json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": "none", "controller": true}])
}

/// Lets a set of replicas own the pod, or nobody, or one that is not there.
pub fn add_owner(dice: &mut Dice, pod: &mut Value) {
    let owners = &written()[2..];
    if dice.percent(60) {
        pod["metadata"]["ownerReferences"] = reference_to(&owners[dice.below(owners.len())]);
    } else if dice.percent(20) {
        let lost = (FamilyKind::ReplicaSet, "apps/v1", "ReplicaSet", "gone", Value::Null);
        pod["metadata"]["ownerReferences"] = reference_to(&lost);
    }
}

/// Writes them; no controller runs that would make pods of them.
pub async fn create(client: &Client) -> Result<Vec<(FamilyKind, FamilyObject)>> {
    let mut made = Vec::new();
    for (family, api_version, kind, name, selector) in written() {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = kube::api::ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let mut spec = json!({"selector": selector});
        if family == FamilyKind::Service {
            spec["ports"] = json!([{"port": 80}]);
        } else {
            let template =
                json!({"app": "b", "tier": if kind == "ReplicationController" { "y" } else { "x" }});
            spec["template"] = json!({
                "metadata": {"labels": template},
                "spec": {"containers": [{"name": "c", "image": "none"}]},
            });
        }
        let object = json!({
            "apiVersion": api_version, "kind": kind,
            "metadata": {"name": name, "namespace": SERVED}, "spec": spec,
        });
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), SERVED, &resource);
        let object: DynamicObject = serde_json::from_value(object)?;
        let created = api.create(&PostParams::default(), &object).await;
        let created = created.with_context(|| format!("create the {kind} {name}"))?;
        made.push((family, serde_json::from_value(serde_json::to_value(created)?)?));
    }
    Ok(made)
}

/// Waits until the scheduler knows all of them: one that it knows makes it rank nodes by spreading.
pub async fn wait(reference: &mut Reference) -> Result<()> {
    let node = |name: &str| {
        let offered = json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: name}},
            "status": {"allocatable": offered, "capacity": offered},
        })
    };
    let nodes = vec![node("first"), node("second")];
    let state = reference.build(&Cluster { nodes, bound: Vec::new(), asking: Vec::new() }).await?;
    for family in written().iter().filter(|(.., selector)| !selector.is_null()) {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks", "namespace": SERVED},
            "spec": {"containers": [{"name": "c", "image": "none"}], "schedulerName": "default-scheduler"},
        });
        match family {
            (FamilyKind::Service, .., selector) => pod["metadata"]["labels"] = selector.clone(),
            _ => pod["metadata"]["ownerReferences"] = reference_to(family),
        }
        let mut questions = 0;
        while !is_spread(reference, &pod).await? {
            questions += 1;
            if questions == MOST_QUESTIONS {
                bail!("kube-scheduler does not spread the pods of {family:?}");
            }
        }
    }
    reference.clear(&state).await
}

async fn is_spread(reference: &mut Reference, pod: &Value) -> Result<bool> {
    let (pod, verdict) = reference.ask(pod).await?;
    reference.withdraw(&pod).await?;
    let Verdict::Bound { scores, .. } = verdict else { return Ok(false) };
    Ok(scores.values().any(|of_node| of_node.contains_key("PodTopologySpread")))
}
