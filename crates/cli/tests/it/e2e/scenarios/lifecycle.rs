//! The life of a Job: admitted, started, ended, deleted, made again.

use anyhow::{Result, ensure};

use crate::e2e::kinds::{JOB, POD, WORKLOAD};
use crate::e2e::objects::{Job, assigned_flavor, condition, is_controlled_by, name, uid};
use crate::e2e::scene::{Objects, Scene};
use crate::e2e::steps::pods_of;

pub async fn admit_and_finish(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    let job = scene.submit_and_start(Job::new("a")).await?;
    let workload = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;

    ensure!(name(&workload).starts_with("job-a-"), "a Workload is called after its Job: {}", name(&workload));
    ensure!(workload["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == uid(&job), "it knows its Job's uid");
    ensure!(is_controlled_by(&workload, &job), "its controller is the Job");
    ensure!(workload["spec"]["queueName"] == "main", "it has the Job's queue");
    ensure!(workload["spec"]["podSets"][0]["name"] == "main" && workload["spec"]["podSets"][0]["count"] == 1);
    ensure!(condition(&workload, "QuotaReserved").is("True", "QuotaReserved"), "{workload}");
    ensure!(workload["status"]["admission"]["clusterQueue"] == scene.name(), "{workload}");
    ensure!(assigned_flavor(&workload, "cpu") == scene.own("standard"), "{workload}");

    scene.succeed("a").await?;
    scene.workload_has("a", ("Finished", "True", "Succeeded")).await.map(|_| ())
}

pub async fn finish_failed_job(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.fail("a").await?;
    scene.workload_has("a", ("Finished", "True", "Failed")).await?;
    scene.started("b").await.map(|_| ())
}

pub async fn delete_running_job_frees_quota(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a").lingering()).await?;
    let workload = scene.workload("a").await?;
    scene.running_pods("a").await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.delete(JOB, "a").await?;
    scene.started("b").await?;
    no_pod_left(scene, "a").await?;
    scene.gone(WORKLOAD, &workload).await
}

/// Deleting its Workload stops a Job, and the quota is free when its pods are gone. Then it queues again.
pub async fn delete_workload_of_running_job(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a").lingering()).await?;
    let workload = scene.workload("a").await?;
    scene.running_pods("a").await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.delete(WORKLOAD, name(&workload)).await?;
    scene.started("b").await?;
    no_pod_left(scene, "a").await?;
    scene.waits("a", "WaitingForQuota").await?;
    scene.succeed("b").await?;
    scene.started("a").await.map(|_| ())
}

/// Quota counts until the last pod that used it is gone, so nobody who starts on it meets one.
async fn no_pod_left(scene: &Scene, job: &str) -> Result<()> {
    let pods: Objects = scene.list(POD).await?.into_iter().map(|pod| (name(&pod).to_owned(), pod)).collect();
    let left: Vec<&str> = pods_of(&pods, job).into_iter().map(name).collect();
    ensure!(left.is_empty(), "pods of {job} are still there: {left:?}");
    Ok(())
}

pub async fn delete_waiting_job(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.submit(Job::new("b").cpu("1")).await?;
    let waiting = scene.waits("b", "WaitingForQuota").await?;
    scene.submit(Job::new("c").cpu("1")).await?;
    scene.waits("c", "WaitingForQuota").await?;
    scene.delete(JOB, "b").await?;
    scene.gone(WORKLOAD, &waiting).await?;
    scene.succeed("a").await?;
    scene.started("c").await.map(|_| ())
}

pub async fn recreate_under_same_name(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    let first = scene.submit_and_start(Job::new("a")).await?;
    let first_workload = scene.workload("a").await?;
    scene.running_pods("a").await?;
    scene.delete(JOB, "a").await?;
    scene.gone(JOB, &first).await?;

    let second = scene.submit_and_start(Job::new("a")).await?;
    ensure!(uid(&first) != uid(&second), "the second Job is another one");
    let second_workload = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(name(&first_workload) != name(&second_workload), "and so is its Workload");
    scene.gone(WORKLOAD, &first_workload).await?;
    scene.succeed("a").await?;
    scene.workload_has("a", ("Finished", "True", "Succeeded")).await.map(|_| ())
}

pub async fn queued_job_that_runs_without_admission_is_suspended(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.submit(Job::new("b").unsuspended()).await?;
    scene.stopped("b").await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.succeed("a").await?;
    scene.started("b").await?;
    scene.succeed("b").await?;
    scene.workload_has("b", ("Finished", "True", "Succeeded")).await.map(|_| ())
}
