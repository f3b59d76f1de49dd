//! All-or-nothing start: whether all pods of a Job are ready.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::commands::answers;
use super::preemption::finishes;
use crate::e2e::kinds::{JOB, NODE, POD};
use crate::e2e::objects::{Job, condition};
use crate::e2e::scene::Scene;

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

/// Who was sent back queues where it was, and is tried again as soon as possible.
pub const AT_ONCE: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
waitForPodsReady:
  enable: true
  timeout: 1h
  blockAdmission: false
  requeuingStrategy: {timestamp: Creation, backoffBaseSeconds: 0}
";

/// One starts at a time.
pub const SEQUENTIAL: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
waitForPodsReady: {enable: true, timeout: 1h, requeuingStrategy: {backoffBaseSeconds: 1}}
";

/// A flavor `SCENE-NAME` whose pods go to the nodes that [`node_serves`] it.
pub(super) async fn flavor_with_nodes(scene: &Scene, flavor: &str) -> Result<()> {
    scene
        .create(&format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: SCENE-{flavor}}}\n\
             spec: {{nodeLabels: {{SCENE/{flavor}: here}}}}\n"
        ))
        .await
}

/// Pods of a flavor of the scene go to the node from now on, or do so no more.
pub(super) async fn node_serves(scene: &Scene, node: &str, flavor: &str, serves: bool) -> Result<()> {
    let value = if serves { json!("here") } else { Value::Null };
    let change = json!({ "metadata": { "labels": { format!("{}/{flavor}", scene.name()): value } } });
    scene.patch(NODE, node, change).await.map(|_| ())
}

/// A queue for whose pods there is no node yet, with timeouts of its own.
pub(super) async fn queue_without_nodes(scene: &Scene, cpu: &str, timeouts: &str) -> Result<()> {
    flavor_with_nodes(scene, "late").await?;
    scene.cluster_queue(&[("SCENE-late", cpu)], &format!("waitForPodsReady: {timeouts}")).await?;
    scene.local_queue("main").await
}

/// There is a node for that queue from now on, or there is none any more.
pub(super) async fn node_comes(scene: &Scene, comes: bool) -> Result<()> {
    node_serves(scene, "late-0", "late", comes).await
}

pub(super) fn retries(workload: &Value) -> i64 {
    workload["status"]["requeueState"]["count"].as_i64().unwrap_or(0)
}

pub(super) fn evictions(workload: &Value) -> &Value {
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

/// More pods could run than have to succeed: so many have to be ready.
pub async fn fewer_completions_than_pods(scene: &Scene) -> Result<()> {
    scene.queue("2").await?;
    scene.submit_and_start(Job::new("a").pods(4).completions(2)).await?;
    let ready = scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    ensure!(ready["status"]["admission"]["podSetAssignments"][0]["count"] == 2, "{ready}");
    let told = answers(scene, "explain job/a").await?;
    ensure!(told["start"]["readyPods"] == 2, "{told}");
    finishes(scene, "a").await
}

/// An index that failed for good is not waited for: nothing replaces its pod.
pub async fn failed_index_needs_no_pod(scene: &Scene) -> Result<()> {
    scene.queue("2").await?;
    scene.submit_and_start(Job::new("a").pods(2).retries_per_index(0)).await?;
    scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    let pods = scene.running_pods("a").await?;
    scene.fail_pod(&pods[0]).await?;
    let failed = |job: &Value| {
        let indexes = job["status"]["failedIndexes"].as_str();
        indexes.is_some_and(|indexes| !indexes.is_empty()) && job["status"]["ready"] == 1
    };
    scene.object(JOB, "a", "has a failed index", failed).await?;
    scene.patch_status(POD, &pods[1], json!({ "phase": "Succeeded" })).await?;
    let done = scene.workload_has("a", ("Finished", "True", "Failed")).await?;
    ensure!(condition(&done, "PodsReady").is("True", "Started"), "it never waited for a pod: {done}");
    ensure!(evictions(&done).is_null(), "{done}");
    Ok(())
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

/// A pod fails again and again, and each time another takes its place within the time: that goes on for longer than a lost pod
/// may take to come back, and the Job stays.
pub async fn fails_and_recovers_for_ever(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "3", "{recoveryTimeout: 6s}").await?;
    node_comes(scene, true).await?;
    scene.submit_and_start(Job::new("flaps").pods(2).retries(1000)).await?;
    scene.submit_and_start(Job::new("lost")).await?;
    for job in ["flaps", "lost"] {
        scene.workload_has(job, ("PodsReady", "True", "Started")).await?;
    }
    let mut losses = 0;
    loop {
        let pods = scene.running_pods("flaps").await?;
        node_comes(scene, false).await?;
        scene.fail_pod(&pods[0]).await?;
        scene.workload_has("flaps", ("PodsReady", "False", "WaitForRecovery")).await?;
        losses += 1;
        if losses == 1 {
            let pod = scene.running_pods("lost").await?.pop().context("a pod")?;
            scene.unready_pod(&pod).await?;
        }
        node_comes(scene, true).await?;
        scene.workload_has("flaps", ("PodsReady", "True", "Recovered")).await?;
        if retries(&scene.workload("lost").await?) > 0 {
            break;
        }
    }
    ensure!(losses > 1, "it flapped {losses} times");
    let stays = scene.workload("flaps").await?;
    ensure!(evictions(&stays).is_null() && stays["status"]["requeueState"].is_null(), "{stays}");
    for job in ["lost", "flaps"] {
        finishes(scene, job).await?;
    }
    Ok(())
}
