//! What queues and events say about the Jobs.

use anyhow::Result;
use serde_json::{Value, json};

use crate::e2e::kinds::{CLUSTER_QUEUE, JOB, LOCAL_QUEUE, WORKLOAD};
use crate::e2e::objects::{Job, name};
use crate::e2e::scene::Scene;

/// Waits until both queues count so many pending and admitted Workloads, with so many CPUs reserved.
async fn counts(scene: &Scene, pending: u32, admitted: u32, cpu: &str) -> Result<()> {
    let flavor = scene.own("standard");
    let wanted = |queue: &Value| {
        let status = &queue["status"];
        let reserved = json!([{ "name": "cpu", "total": cpu }]);
        count(status, "pendingWorkloads") == pending
            && count(status, "admittedWorkloads") == admitted
            && count(status, "reservingWorkloads") == admitted
            && usage(&status["flavorsReservation"], &flavor) == reserved
            && usage(&status["flavorsUsage"], &flavor) == reserved
    };
    let what = format!("counts {pending} pending, {admitted} admitted, {cpu} CPUs");
    scene.object(CLUSTER_QUEUE, scene.name(), &what, wanted).await?;
    scene.object(LOCAL_QUEUE, "main", &what, wanted).await.map(|_| ())
}

/// A count that is zero may be left out.
fn count(status: &Value, field: &str) -> u32 {
    status[field].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

/// Resources and totals of a flavor; what is borrowed is left out.
fn usage(flavors: &Value, flavor: &str) -> Value {
    let found = flavors.as_array().into_iter().flatten().find(|entry| entry["name"] == flavor);
    let resources = found.and_then(|entry| entry["resources"].as_array());
    let totals = resources.into_iter().flatten().map(|resource| {
        let total = resource["total"].as_str().map_or_else(|| resource["total"].to_string(), str::to_owned);
        json!({ "name": resource["name"], "total": total })
    });
    Value::Array(totals.collect())
}

pub async fn queue_status_counts(scene: &Scene) -> Result<()> {
    scene.queue("3").await?;
    counts(scene, 0, 0, "0").await?;
    scene.submit_and_start(Job::new("a").cpu("2")).await?;
    counts(scene, 0, 1, "2").await?;
    scene.submit(Job::new("b").cpu("3")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    counts(scene, 1, 1, "2").await?;
    scene.succeed("a").await?;
    counts(scene, 0, 1, "3").await?;
    scene.delete(JOB, "b").await?;
    counts(scene, 0, 0, "0").await
}

pub async fn events_tell_the_story(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a")).await?;
    let workload = scene.workload("a").await?;
    scene.event(JOB, "a", "Started").await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.stop_cluster_queue("HoldAndDrain").await?;
    scene.event(WORKLOAD, name(&workload), "EvictedDueToClusterQueueStopped").await?;
    scene.event(JOB, "a", "Stopped").await?;
    scene.delete(JOB, "b").await?;
    scene.stop_cluster_queue("None").await?;
    scene.started("a").await?;
    Ok(())
}
