//! How much of its time a flavor has left.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::order::CLASSES;
use super::queue::Queue;
use super::stage::{Stage, evictions, timeouts};
use crate::e2e::kinds::{CLUSTER_QUEUE, JOB};
use crate::e2e::objects::{Job, assigned_flavor, changed_at, condition};

const MINUTE: i64 = 60;

/// A Job had to leave a minute before its flavor would have been given up. However long it queues then, it gets the flavor again,
/// for that minute.
pub async fn one_minute_left(stage: Stage<'_>) -> Result<()> {
    let stage = stage.by_clock()?;
    stage.flavors(&["on-demand"], &["spot"]).await?;
    stage.queue(&Queue::of(&["spot", "on-demand"]).time("spot", "15m")).await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "spot").await?;
    stage.clock_steps(14 * MINUTE).await?;
    stage.stop_cluster_queue("HoldAndDrain").await?;
    let left = stage.workload_has("a", ("Requeued", "False", "ClusterQueueStopped")).await?;
    let used = stage.used(&left, "spot");
    ensure!((14 * MINUTE..15 * MINUTE).contains(&used) && stage.given_up(&left).is_empty(), "{left}");
    stage.interrupt()?;
    stage.clock_steps(60 * MINUTE).await?;
    stage.stop_cluster_queue("None").await?;

    let back = stage.has_flavor("a", "spot").await?;
    ensure!(stage.used(&back, "spot") == used, "nobody counts the time in the queue: {back}");
    stage.interrupt()?;
    let deadline = changed_at(&back, "QuotaReserved")? + 15 * MINUTE - used;
    stage.clock_steps_to(deadline - 30).await?;
    stage.later().await?;
    let still = stage.workload("a").await?;
    ensure!(assigned_flavor(&still, "cpu") == stage.own("spot"), "its time is not over: {still}");
    stage.clock_steps_to(deadline).await?;
    let second = stage.starts_on("a", "on-demand").await?;
    ensure!(changed_at(&second, "QuotaReserved")? >= deadline, "{second}");
    let stopped = json!({"reason": "ClusterQueueStopped", "underlyingCause": "", "count": 1});
    ensure!(*evictions(&second) == json!([stopped, timeouts(1)]), "{second}");
    stage.finishes("a").await
}

/// A Job is preempted while it waits for machines: it gets the flavor again for what is left of its time, and then the next.
pub async fn preempted_while_a_flavor_is_tried(stage: Stage<'_>) -> Result<()> {
    stage.create(CLASSES).await?;
    let high = stage.own("high");
    stage.flavors(&[], &["spot", "on-demand"]).await?;
    let preemption = json!({ "withinClusterQueue": "LowerPriority" });
    let queue = Queue::of(&["spot", "on-demand"]).cpus(2000).with("preemption", preemption);
    // Nobody has to come in time; when it is preempted, what is left is made short.
    stage.queue(&queue.clone().time("spot", "1h")).await?;
    // No node has so many CPUs.
    stage.submit(Job::new("a").cpu("2000")).await?;
    stage.has_flavor("a", "spot").await?;
    stage.submit(Job::new("other").cpu("2000").priority_class(&high)).await?;
    stage.has_flavor("other", "on-demand").await?;
    stage.time_passes(2).await?;
    stage.machines_come("spot", true).await?;
    stage.submit(Job::new("high").priority_class(&high)).await?;
    let left = stage.workload_has("a", ("Requeued", "True", "Preempted")).await?;
    let used = stage.used(&left, "spot");
    ensure!(used >= 2 && stage.given_up(&left).is_empty(), "{left}");
    stage.queue_becomes(&queue.time("spot", &format!("{}s", used + 5))).await?;
    stage.interrupt()?;
    stage.starts_on("high", "spot").await?;
    stage.finishes("high").await?;

    let back = stage.has_flavor("a", "spot").await?;
    ensure!(stage.used(&back, "spot") == used, "{back}");
    stage.interrupt()?;
    stage.delete(JOB, "other").await?;
    let second = stage.has_flavor("a", "on-demand").await?;
    ensure!(stage.given_up(&second) == ["spot"], "{second}");
    let preempted = json!({"reason": "Preempted", "underlyingCause": "", "count": 1});
    ensure!(*evictions(&second) == json!([preempted, timeouts(1)]), "{second}");
    let waited = changed_at(&second, "QuotaReserved")? - changed_at(&back, "QuotaReserved")?;
    ensure!(waited >= 5, "{waited} s, and {used} s before");
    Ok(())
}

/// Timers that are due in the same second: of two Jobs, and where there are two groups, of both flavors of each. Everybody falls
/// back once, with everything.
pub async fn two_timers_in_one_second(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["on-demand"], &["spot"]).await?;
    let queue = Queue::of(&["spot", "on-demand"]).cpus(2).time("spot", "3s").memory_time(Some("3s"));
    stage.queue(&queue.with("stopPolicy", json!("Hold"))).await?;
    for job in ["a", "b"] {
        stage.submit(Job::new(job)).await?;
        stage.waits(job, "Suspended").await?;
    }
    stage.patch(CLUSTER_QUEUE, stage.name(), json!({ "spec": { "stopPolicy": "None" } })).await?;
    let a = stage.has_flavor("a", "spot").await?;
    let b = stage.has_flavor("b", "spot").await?;
    // Whoever is killed between the two does the second a moment later.
    let is_equal = |first: i64, second: i64| first == second || stage.variant.restarted;
    ensure!(is_equal(changed_at(&a, "QuotaReserved")?, changed_at(&b, "QuotaReserved")?), "{a} {b}");
    stage.interrupt()?;
    let mut evicted_at = Vec::new();
    let has_left = |workload: &Value| condition(workload, "Evicted").status == "True";
    for job in ["a", "b"] {
        let evicted = stage.workload_that(job, "is evicted", has_left).await?;
        let mut expected = vec!["spot"];
        expected.extend(stage.variant.two_groups.then_some("memory"));
        let mut given_up = stage.given_up(&evicted);
        given_up.sort_by_key(|flavor| flavor != "spot");
        ensure!(given_up == expected, "{evicted}");
        evicted_at.push(changed_at(&evicted, "Evicted")?);
    }
    ensure!(is_equal(evicted_at[0], evicted_at[1]), "{evicted_at:?}");
    for job in ["a", "b"] {
        stage.has_flavors(job, "on-demand", "more-memory").await?;
        let ready = stage.workload_has(job, ("PodsReady", "True", "Started")).await?;
        ensure!(*evictions(&ready) == json!([timeouts(1)]), "{ready}");
        stage.finishes(job).await?;
    }
    Ok(())
}
