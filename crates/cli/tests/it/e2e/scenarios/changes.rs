//! What a user puts right while Jobs wait for it.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::e2e::kinds::{CLUSTER_QUEUE, JOB, LOCAL_QUEUE};
use crate::e2e::objects::{Job, QUEUE_NAME, condition, uid};
use crate::e2e::scene::Scene;

pub async fn job_changed_while_queued(scene: &Scene) -> Result<()> {
    scene.queue("2").await?;
    scene.submit(Job::new("a").pods(3)).await?;
    let before = scene.waits("a", "ExceedsMaxQuota").await?;
    ensure!(before["spec"]["podSets"][0]["count"] == 3, "{before}");
    scene.patch(JOB, "a", json!({ "spec": { "parallelism": 2 } })).await?;
    scene.started("a").await?;
    let after = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(uid(&before) == uid(&after), "the Workload was changed, not replaced");
    ensure!(after["spec"]["podSets"][0]["count"] == 2, "{after}");
    ensure!(after["status"]["admission"]["podSetAssignments"][0]["count"] == 2, "{after}");
    Ok(())
}

pub async fn queue_changed_while_queued(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.cluster_queue_named("SCENE-other", &[("SCENE-standard", "1")], "namespaceSelector: {}").await?;
    scene.local_queue_of("other", "SCENE-other").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.patch(JOB, "b", json!({ "metadata": { "labels": { QUEUE_NAME: "other" } } })).await?;
    scene.started("b").await?;
    let workload = scene.workload_has("b", ("Admitted", "True", "Admitted")).await?;
    ensure!(workload["spec"]["queueName"] == "other", "{workload}");
    ensure!(workload["status"]["admission"]["clusterQueue"] == scene.own("other"), "{workload}");
    Ok(())
}

pub async fn flavor_added(scene: &Scene) -> Result<()> {
    scene.cluster_queue(&[("SCENE-standard", "1")], "").await?;
    scene.local_queue("main").await?;
    let queue =
        scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "False", "FlavorNotFound")).await?;
    let message = condition(&queue, "Active").message;
    ensure!(message.contains(&scene.own("standard")), "the message says which: {message}");
    scene.submit(Job::new("a")).await?;
    scene.waits("a", "Suspended").await?;
    scene.flavor("SCENE-standard").await?;
    scene.started("a").await?;
    scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "True", "Ready")).await.map(|_| ())
}

pub async fn missing_queue_created_later(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    scene.cluster_queue(&[("SCENE-standard", "1")], "").await?;
    scene.submit(Job::new("a").queue("nowhere")).await?;
    let workload = scene.waits("a", "Misconfigured").await?;
    let message = condition(&workload, "QuotaReserved").message;
    ensure!(message.contains("nowhere"), "the message names the queue: {message}");
    scene.local_queue("nowhere").await?;
    scene.started("a").await.map(|_| ())
}

pub async fn missing_cluster_queue_created_later(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    scene.local_queue("main").await?;
    scene.has_condition(LOCAL_QUEUE, "main", ("Active", "False", "ClusterQueueDoesNotExist")).await?;
    scene.submit(Job::new("a")).await?;
    let workload = scene.waits("a", "Misconfigured").await?;
    let message = condition(&workload, "QuotaReserved").message;
    ensure!(message.contains(scene.name()), "the message names the ClusterQueue: {message}");
    scene.cluster_queue(&[("SCENE-standard", "1")], "").await?;
    scene.started("a").await?;
    scene.has_condition(LOCAL_QUEUE, "main", ("Active", "True", "Ready")).await.map(|_| ())
}

pub async fn namespace_not_selected_then_labelled(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    let selector = "namespaceSelector: {matchLabels: {team: SCENE}}";
    scene.cluster_queue_named("SCENE", &[("SCENE-standard", "1")], selector).await?;
    scene.local_queue("main").await?;
    scene.submit(Job::new("a")).await?;
    scene.waits("a", "Misconfigured").await?;
    scene.label_namespace("team", scene.name()).await?;
    scene.started("a").await.map(|_| ())
}

/// Jobs that name no queue are managed too.
pub const UNNAMED: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta1
kind: Configuration
manageJobsWithoutQueueName: true
";

pub async fn job_without_a_queue_waits_for_one(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit(Job::new("a").without_queue().unsuspended()).await?;
    scene.stopped("a").await?;
    let workload = scene.waits("a", "Misconfigured").await?;
    let message = condition(&workload, "QuotaReserved").message;
    ensure!(message.contains(QUEUE_NAME), "the message says what to do: {message}");
    ensure!(workload["spec"]["queueName"].is_null(), "{workload}");
    scene.patch(JOB, "a", json!({ "metadata": { "labels": { QUEUE_NAME: "main" } } })).await?;
    scene.started("a").await?;
    let after = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(uid(&workload) == uid(&after), "the Workload was changed, not replaced");
    scene.succeed("a").await
}
