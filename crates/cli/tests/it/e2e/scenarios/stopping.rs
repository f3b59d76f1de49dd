//! Stopping what runs or waits: queues on hold, queues drained, workloads switched off; and back.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::e2e::kinds::{CLUSTER_QUEUE, LOCAL_QUEUE, POD, WORKLOAD};
use crate::e2e::objects::{Job, condition, name};
use crate::e2e::scene::Scene;

/// A queue of one CPU on a flavor with a node label, and a Job that runs in it.
async fn running_job(scene: &Scene) -> Result<()> {
    let labelled = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: SCENE-standard}
spec: {nodeLabels: {kubernetes.io/os: linux}}
";
    scene.create(labelled).await?;
    scene.cluster_queue(&[("SCENE-standard", "1")], "").await?;
    scene.local_queue("main").await?;
    let started = scene.submit_and_start(Job::new("a")).await?;
    ensure!(selector(&started) == &json!({ "kubernetes.io/os": "linux" }), "the flavor's label is injected");
    scene.running_pods("a").await.map(|_| ())
}

fn selector(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]["nodeSelector"]
}

/// The Job was evicted for this reason: suspended, without pods, as its user wrote it, without quota.
async fn evicted(scene: &Scene, reason: &str) -> Result<()> {
    scene.workload_has("a", ("Evicted", "True", reason)).await?;
    scene.stopped("a").await?;
    let workload = scene.workload_has("a", ("Requeued", "False", reason)).await?;
    ensure!(condition(&workload, "QuotaReserved").status == "False", "{workload}");
    ensure!(condition(&workload, "Admitted").status == "False", "{workload}");
    ensure!(workload["status"]["admission"].is_null(), "the quota is free again: {workload}");
    let restored = |job: &Value| selector(job).as_object().is_none_or(|labels| labels.is_empty());
    scene.object(crate::e2e::kinds::JOB, "a", "has its own template again", restored).await?;
    scene.later().await?;
    scene.not_started("a").await
}

/// The Job was started again; the eviction is history, and the reason says why it was tried again.
async fn back(scene: &Scene, reason: &str) -> Result<()> {
    let started = scene.started("a").await?;
    ensure!(selector(&started) == &json!({ "kubernetes.io/os": "linux" }), "the flavor's label is back");
    let workload = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(condition(&workload, "Requeued").is("True", reason), "{workload}");
    ensure!(condition(&workload, "Evicted").is("False", "QuotaReserved"), "{workload}");
    scene.succeed("a").await?;
    scene.workload_has("a", ("Finished", "True", "Succeeded")).await.map(|_| ())
}

pub async fn hold_queue_and_resume(scene: &Scene) -> Result<()> {
    running_job(scene).await?;
    scene.stop_cluster_queue("Hold").await?;
    scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "False", "Stopped")).await?;
    scene.has_condition(LOCAL_QUEUE, "main", ("Active", "False", "ClusterQueueIsInactive")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "Suspended").await?;

    // What runs goes on to its end, and leaves its room to nobody.
    let running = scene.workload("a").await?;
    ensure!(condition(&running, "Admitted").status == "True", "{running}");
    scene.succeed("a").await?;
    scene.workload_has("a", ("Finished", "True", "Succeeded")).await?;
    scene.later().await?;
    scene.waits("b", "Suspended").await?;

    scene.stop_cluster_queue("None").await?;
    scene.started("b").await?;
    scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "True", "Ready")).await.map(|_| ())
}

pub async fn hold_and_drain_queue_and_resume(scene: &Scene) -> Result<()> {
    running_job(scene).await?;
    scene.stop_cluster_queue("HoldAndDrain").await?;
    evicted(scene, "ClusterQueueStopped").await?;
    scene.stop_cluster_queue("None").await?;
    back(scene, "ClusterQueueRestarted").await
}

pub async fn hold_local_queue_and_resume(scene: &Scene) -> Result<()> {
    running_job(scene).await?;
    scene.local_queue("other").await?;
    scene.stop_local_queue("main", "Hold").await?;
    scene.has_condition(LOCAL_QUEUE, "main", ("Active", "False", "Stopped")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "Suspended").await?;

    // The other queue of the same ClusterQueue takes the room that the first Job leaves.
    scene.submit(Job::new("c").queue("other")).await?;
    scene.waits("c", "WaitingForQuota").await?;
    scene.succeed("a").await?;
    scene.started("c").await?;
    scene.succeed("c").await?;
    scene.later().await?;
    scene.waits("b", "Suspended").await?;

    scene.stop_local_queue("main", "None").await?;
    scene.started("b").await?;
    scene.has_condition(LOCAL_QUEUE, "main", ("Active", "True", "Ready")).await.map(|_| ())
}

pub async fn drain_local_queue_and_resume(scene: &Scene) -> Result<()> {
    running_job(scene).await?;
    scene.stop_local_queue("main", "HoldAndDrain").await?;
    evicted(scene, "LocalQueueStopped").await?;
    scene.stop_local_queue("main", "None").await?;
    back(scene, "LocalQueueRestarted").await
}

pub async fn deactivate_and_reactivate(scene: &Scene) -> Result<()> {
    running_job(scene).await?;
    let workload = scene.workload("a").await?;
    scene.patch(WORKLOAD, name(&workload), json!({ "spec": { "active": false } })).await?;
    evicted(scene, "Deactivated").await?;

    // The room is there for others meanwhile.
    scene.submit_and_start(Job::new("b")).await?;
    scene.succeed("b").await?;
    scene.later().await?;
    scene.not_started("a").await?;
    ensure!(scene.list(POD).await?.iter().all(|pod| !name(pod).starts_with("a-")), "no pod of the first Job");

    scene.patch(WORKLOAD, name(&workload), json!({ "spec": { "active": true } })).await?;
    back(scene, "Reactivated").await
}
