//! Whether objects say only what Kueue knows, but for what is listed.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::load::{Dump, text};
use crate::e2e::kinds::WORKLOAD;
use crate::e2e::objects::{condition, name};
use crate::e2e::scene::Scene;

/// Fields and conditions that only Gangway knows, as `docs/from-kueue.md` lists them.
const OURS: &[&str] =
    &["status.flavorAssignmentHistory", "status.preemptor", "status.conditions[EvictionOverdue]"];

/// The status of a Workload in the schema of Kueue, with an example of each field.
fn status_of_reference() -> Value {
    let any = json!("any");
    json!({
        "conditions": any,
        "admission": {"clusterQueue": any, "podSetAssignments": [{
            "name": any, "flavors": any, "resourceUsage": any, "count": any, "topologyAssignment": any,
            "delayedTopologyRequest": any,
        }]},
        "requeueState": {"count": any, "requeueAt": any},
        "reclaimablePods": [{"name": any, "count": any}],
        "admissionChecks": [{
            "name": any, "state": any, "lastTransitionTime": any, "message": any,
            "requeueAfterSeconds": any, "retryCount": any, "podSetUpdates": any,
        }],
        "resourceRequests": [{"name": any, "resources": any}],
        "accumulatedPastExecutionTimeSeconds": any,
        "schedulingStats": {"evictions": [{"reason": any, "underlyingCause": any, "count": any}]},
        "nominatedClusterNames": any, "clusterName": any,
        "unhealthyNodes": [{"name": any}],
        "preemptionGates": any,
    })
}

/// Types of conditions and, for those that somebody acts on, their reasons.
const CONDITIONS: &[(&str, &[&str])] = &[
    (
        "QuotaReserved",
        &[
            "QuotaReserved",
            "NoMatchingFlavor",
            "ExceedsMaxQuota",
            "WaitingForQuota",
            "TopologyPlacementFailed",
            "WaitingForPreemptedWorkloads",
            "Misconfigured",
            "Suspended",
            "WaitingForPodsReady",
            "PendingEvaluation",
            "AdmissionGated",
            "OnHold",
            "Deactivated",
            "Pending",
            "Inadmissible",
            "Waiting",
        ],
    ),
    (
        "Admitted",
        &["Admitted", "NoReservation", "UnsatisfiedAdmissionChecks", "PendingDelayedTopologyRequests"],
    ),
    ("PodsReady", &["WaitForStart", "Started", "WaitForRecovery", "Recovered"]),
    ("Evicted", EVICTIONS),
    (
        "Preempted",
        &[
            "InClusterQueue",
            "InCohortReclamation",
            "InCohortFairSharing",
            "InCohortReclaimWhileBorrowing",
            "QuotaReserved",
        ],
    ),
    ("Requeued", REQUEUES),
    (
        "Finished",
        &["Succeeded", "Failed", "OutOfSync", "OwnerNotFound", "FailedToStart", "WorkloadSliceReplaced"],
    ),
];

const EVICTIONS: &[&str] = &[
    "Preempted",
    "NodeFailures",
    "PodsReadyTimeout",
    "AdmissionCheck",
    "ClusterQueueStopped",
    "LocalQueueStopped",
    "Deactivated",
    "DeactivatedDueToRequeuingLimitExceeded",
    "DeactivatedDueToMaximumExecutionTimeExceeded",
    "DeactivatedDueToAdmissionCheck",
    "QuotaReserved",
];

const REQUEUES: &[&str] = &[
    "Preempted",
    "NodeFailures",
    "PodsReadyTimeout",
    "AdmissionCheck",
    "ClusterQueueStopped",
    "LocalQueueStopped",
    "Deactivated",
    "DeactivatedDueToRequeuingLimitExceeded",
    "DeactivatedDueToMaximumExecutionTimeExceeded",
    "DeactivatedDueToAdmissionCheck",
    "BackoffFinished",
    "ClusterQueueRestarted",
    "LocalQueueRestarted",
    "Reactivated",
];

/// Every Workload says only what Kueue knows, and in combinations with which it goes on.
pub async fn could_be_given_back(scene: &Scene, dump: &Dump) -> Result<()> {
    let mut namespaces: Vec<&str> =
        dump.of("Workload").iter().map(|workload| text(&workload["metadata"]["namespace"])).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    for namespace in namespaces {
        for workload in scene.beside(namespace).list(WORKLOAD).await? {
            let unknown: Vec<String> = unknown_to_reference(&workload)
                .into_iter()
                .filter(|path| !OURS.contains(&path.as_str()))
                .collect();
            ensure!(unknown.is_empty(), "{} says {unknown:?}: {workload}", name(&workload));
            is_coherent(&workload)?;
        }
    }
    Ok(())
}

fn unknown_to_reference(workload: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    compare(&status_of_reference(), &workload["status"], "status", &mut unknown);
    let conditions = workload["status"]["conditions"].as_array().into_iter().flatten();
    for condition in conditions {
        let (kind, reason) = (text(&condition["type"]), text(&condition["reason"]));
        match CONDITIONS.iter().find(|(known, _)| *known == kind) {
            None => unknown.push(format!("status.conditions[{kind}]")),
            Some((_, reasons)) if !reasons.contains(&reason) => unknown.push(format!("{kind}/{reason}")),
            Some(_) => {}
        }
    }
    unknown
}

/// The paths of what stands in `value` and not in `known`.
fn compare(known: &Value, value: &Value, path: &str, unknown: &mut Vec<String>) {
    match (known, value) {
        (Value::Object(known), Value::Object(fields)) => {
            for (field, inner) in fields {
                let path = format!("{path}.{field}");
                match known.get(field) {
                    Some(known) => compare(known, inner, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        (Value::Array(known), Value::Array(items)) => {
            for item in items {
                compare(&known[0], item, path, unknown);
            }
        }
        _ => {}
    }
}

/// Conditions as Kueue combines them: quota and admission come and go together, and who waits after an eviction says whether it
/// is queued.
fn is_coherent(workload: &Value) -> Result<()> {
    let is = |kind: &str| condition(workload, kind).status;
    let has_admission = !workload["status"]["admission"].is_null();
    ensure!((is("QuotaReserved") == "True") == has_admission, "{workload}");
    ensure!(is("Admitted") != "True" || has_admission, "{workload}");
    let has_left = is("Evicted") == "True" && !has_admission;
    ensure!(!has_left || !is("Requeued").is_empty(), "nobody knows whether it is queued: {workload}");
    let is_off = workload["spec"]["active"] == false;
    ensure!(!(is_off && has_left) || is("Requeued") == "False", "{workload}");
    Ok(())
}
