//! All-or-nothing start: pods that are ready in time or not, and what becomes of their Job.

use anyhow::{Result, ensure};
use gangway_api::time::from_rfc3339;
use gangway_model::Timestamp;
use serde_json::{Value, json};

use super::commands::answers;
use super::preemption::finishes;
use crate::e2e::kinds::{NODE, POD, WORKLOAD};
use crate::e2e::objects::{Job, condition, name};
use crate::e2e::scene::Scene;
use crate::e2e::steps::pods_of;

/// Queues have timeouts of their own; who was sent back twice is deactivated the third time.
pub const CONCURRENT: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
waitForPodsReady:
  enable: true
  timeout: 1h
  blockAdmission: false
  recoveryTimeout: 1h
  requeuingStrategy: {backoffLimitCount: 2, backoffBaseSeconds: 2, backoffMaxSeconds: 3}
";

/// One starts at a time.
pub const SEQUENTIAL: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
waitForPodsReady: {enable: true, timeout: 1h, requeuingStrategy: {backoffBaseSeconds: 1}}
";

/// A queue whose pods go to nodes with the label `SCENE`, of which there are none yet, with timeouts of its own.
async fn queue_without_nodes(scene: &Scene, cpu: &str, timeouts: &str) -> Result<()> {
    let label = scene.name();
    scene
        .create(&format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: SCENE-late}}\n\
             spec: {{nodeLabels: {{{label}: here}}}}\n"
        ))
        .await?;
    scene.cluster_queue(&[("SCENE-late", cpu)], &format!("waitForPodsReady: {timeouts}")).await?;
    scene.local_queue("main").await
}

/// The node `late-0` has the label of the scene from now on, or has it no more.
async fn node_comes(scene: &Scene, comes: bool) -> Result<()> {
    let value = if comes { json!("here") } else { Value::Null };
    let change = json!({ "metadata": { "labels": { scene.name(): value } } });
    scene.patch(NODE, "late-0", change).await.map(|_| ())
}

fn retries(workload: &Value) -> i64 {
    workload["status"]["requeueState"]["count"].as_i64().unwrap_or(0)
}

fn evictions(workload: &Value) -> &Value {
    &workload["status"]["schedulingStats"]["evictions"]
}

/// It is seen that pods are ready, and stays so when those that are needed have succeeded.
pub async fn ready_in_time(scene: &Scene) -> Result<()> {
    scene.queue("2").await?;
    scene.submit_and_start(Job::new("a").pods(2).completions(4)).await?;
    let ready = scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    let message = condition(&ready, "PodsReady").message;
    ensure!(message == "All pods are ready.", "{message}");
    for _ in 0..2 {
        for pod in scene.running_pods("a").await? {
            scene.patch_status(POD, &pod, json!({ "phase": "Succeeded" })).await?;
        }
    }
    let done = scene.workload_has("a", ("Finished", "True", "Succeeded")).await?;
    ensure!(condition(&done, "PodsReady").is("True", "Started"), "it does not flicker: {done}");
    ensure!(done["status"]["requeueState"].is_null(), "{done}");
    Ok(())
}

/// Quota is there, no node fits: it is sent back, others run, it is deactivated, and starts when a node has come and somebody
/// activates it.
pub async fn no_node_fits(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "1", "{timeout: 2s}").await?;
    scene.submit(Job::new("a")).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    ensure!(condition(&waits, "PodsReady").message.ends_with("They have 2 s."), "{waits}");

    let evicted = scene.workload_has("a", ("Evicted", "True", "PodsReadyTimeout")).await?;
    ensure!(retries(&evicted) == 1, "{evicted}");
    let once = json!([{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}]);
    ensure!(*evictions(&evicted) == once, "{evicted}");
    scene.workload_has("a", ("Requeued", "False", "PodsReadyTimeout")).await?;
    scene.event(WORKLOAD, name(&evicted), "EvictedDueToPodsReadyTimeout").await?;
    scene.stopped("a").await?;

    let reason = "DeactivatedDueToRequeuingLimitExceeded";
    let off = scene.workload_has("a", ("Requeued", "False", reason)).await?;
    ensure!(off["spec"]["active"] == false, "{off}");
    ensure!(retries(&off) == 2, "the count stays and is seen: {off}");
    ensure!(condition(&off, "QuotaReserved").is("False", "Deactivated"), "{off}");
    ensure!(off["status"]["admission"].is_null(), "{off}");
    scene.event(WORKLOAD, name(&off), &format!("EvictedDueTo{reason}")).await?;

    let told = answers(scene, "explain job/a").await?;
    ensure!(told["situation"] == "Deactivated" && told["retries"] == 2, "{told}");
    let message = told["message"].as_str().unwrap_or_default();
    ensure!(message.starts_with("Gangway deactivated the Workload: Not all pods were ready"), "{told}");
    let life = answers(scene, "trace job/a").await?;
    ensure!(life["retries"] == 2, "{life}");
    for event in ["EvictedDueToPodsReadyTimeout", reason, "Started"] {
        ensure!(life["timeline"].to_string().contains(event), "the trace tells of {event}: {life}");
    }

    node_comes(scene, true).await?;
    scene.patch(WORKLOAD, name(&off), json!({ "spec": { "active": true } })).await?;
    let back = scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    ensure!(condition(&back, "Requeued").is("True", "Reactivated"), "{back}");
    ensure!(back["status"]["requeueState"].is_null(), "it begins anew: {back}");
    finishes(scene, "a").await
}

/// One pod of eight fails, and there is no node for its replacement.
pub async fn lost_pod_does_not_come_back(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "8", "{recoveryTimeout: 2s}").await?;
    node_comes(scene, true).await?;
    scene.submit_and_start(Job::new("a").pods(8).retries(5)).await?;
    scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    let pods = scene.running_pods("a").await?;
    let told = answers(scene, "explain job/a").await?;
    ensure!(told["start"]["reason"] == "Started" && told["start"]["readyPods"] == 8, "{told}");
    node_comes(scene, false).await?;
    scene.patch_status(POD, &pods[0], json!({ "phase": "Failed" })).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForRecovery")).await?;
    ensure!(condition(&waits, "PodsReady").message.ends_with("They have 2 s."), "{waits}");
    let evicted = scene.workload_has("a", ("Evicted", "True", "PodsReadyTimeout")).await?;
    let once = json!([{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1}]);
    ensure!(*evictions(&evicted) == once, "{evicted}");
    scene.workload_has("a", ("Requeued", "False", "PodsReadyTimeout")).await?;
    node_comes(scene, true).await?;
    scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    finishes(scene, "a").await
}

/// When a condition last changed.
fn changed_at(workload: &Value, kind: &str) -> Option<Timestamp> {
    let conditions = workload["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    from_rfc3339(found["lastTransitionTime"].as_str()?)
}

/// The controller dies before the deadline: the deadline is met all the same, not early, and counts once.
pub async fn restart_before_the_deadline(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "1", "{timeout: 1h}").await?;
    scene.submit(Job::new("a").annotation("gangway.dev/pods-ready-timeout", "3s")).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    ensure!(condition(&waits, "PodsReady").message.ends_with("They have 3 s."), "{waits}");
    let admitted_at = changed_at(&waits, "Admitted");
    scene.controller().restart()?;
    let evicted = scene.workload_has("a", ("Evicted", "True", "PodsReadyTimeout")).await?;
    ensure!(retries(&evicted) == 1, "{evicted}");
    let deadline = admitted_at.map(|at| at.plus_seconds(3));
    ensure!(changed_at(&evicted, "Evicted") >= deadline, "not before its time: {evicted}");
    node_comes(scene, true).await?;
    let back = scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    ensure!(condition(&back, "Requeued").is("True", "BackoffFinished"), "{back}");
    ensure!(back["status"]["requeueState"] == json!({"count": 1}), "{back}");
    finishes(scene, "a").await
}

/// Two gangs of which the machines hold one: started together both would wait for ever, one after the other both finish.
pub async fn two_gangs_one_after_the_other(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "2000", "{timeout: 3s}").await?;
    node_comes(scene, true).await?;
    // The node has 1000 CPUs, of which pods of other scenarios may use a few, and the quota is twice that.
    for job in ["a", "b"] {
        scene.submit(Job::new(job).pods(2).cpu("400")).await?;
    }
    let first = scene
        .until(WORKLOAD, "one of them is ready", |workloads| {
            let ready = workloads.values().find(|w| condition(w, "PodsReady").is("True", "Started"));
            ready.and_then(|w| w["metadata"]["ownerReferences"][0]["name"].as_str().map(str::to_owned))
        })
        .await?;
    let second = if first == "a" { "b" } else { "a" };
    scene.running_pods(&first).await?;
    let waits = scene.until(POD, "the pods of the other are made", |pods| {
        (pods_of(pods, second).len() == 2).then_some(())
    });
    waits.await?;
    finishes(scene, &first).await?;
    scene.workload_has(second, ("PodsReady", "True", "Started")).await?;
    finishes(scene, second).await
}
