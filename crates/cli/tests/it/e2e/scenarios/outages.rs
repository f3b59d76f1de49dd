//! Deadlines of a controller that ends and begins again, and of one whose clock is set.

use anyhow::{Result, ensure};
use gangway_cli::clock::SystemClock;
use gangway_model::Clock;
use serde_json::Value;

use super::preemption::finishes;
use super::readiness::{evictions, node_comes, queue_without_nodes, retries};
use super::requeueing::{comes_back, sent_back};
use crate::e2e::clock::SetClock;
use crate::e2e::kinds::JOB;
use crate::e2e::objects::{Job, changed_at, condition};
use crate::e2e::scene::Scene;

const START_TIMEOUT: &str = "gangway.dev/pods-ready-timeout";
const RECOVERY_TIMEOUT: &str = "gangway.dev/pods-ready-recovery-timeout";
const TEN_MINUTES: i64 = 600;

/// The controller dies just before the deadline: the deadline is met all the same, and counts once. Another Job, whose time is
/// shorter, tells when it is time to die.
pub async fn restart_before_the_start_deadline(scene: &Scene) -> Result<()> {
    scene.record_workloads().await?;
    queue_without_nodes(scene, "2", "{timeout: 1h}").await?;
    scene.submit(Job::new("a").annotation(START_TIMEOUT, "6s")).await?;
    scene.submit(Job::new("herald").annotation(START_TIMEOUT, "2s")).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    scene.workload_has("herald", ("Evicted", "True", "PodsReadyTimeout")).await?;
    scene.controller().restart()?;
    let evicted = sent_back(scene, "a", &waits, 6).await?;
    node_comes(scene, true).await?;
    comes_back(scene, "a", &evicted).await?;
    finishes(scene, "a").await
}

pub async fn restart_before_the_recovery_deadline(scene: &Scene) -> Result<()> {
    scene.record_workloads().await?;
    scene.queue("2").await?;
    for (job, timeout) in [("a", "5s"), ("herald", "2s")] {
        scene.submit_and_start(Job::new(job).annotation(RECOVERY_TIMEOUT, timeout)).await?;
        scene.workload_has(job, ("PodsReady", "True", "Started")).await?;
    }
    for job in ["a", "herald"] {
        for pod in scene.running_pods(job).await? {
            scene.unready_pod(&pod).await?;
        }
    }
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForRecovery")).await?;
    scene.workload_has("herald", ("Evicted", "True", "PodsReadyTimeout")).await?;
    scene.controller().restart()?;
    let evicted = sent_back(scene, "a", &waits, 5).await?;
    comes_back(scene, "a", &evicted).await?;
    finishes(scene, "a").await
}

/// A backoff does not end early because the controller begins again, and it ends.
pub async fn restart_before_the_backoff_ends(scene: &Scene) -> Result<()> {
    scene.record_workloads().await?;
    queue_without_nodes(scene, "1", "{timeout: 3s}").await?;
    scene.submit(Job::new("a")).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    let evicted = sent_back(scene, "a", &waits, 3).await?;
    scene.workload_has("a", ("Requeued", "False", "PodsReadyTimeout")).await?;
    scene.controller().restart()?;
    node_comes(scene, true).await?;
    comes_back(scene, "a", &evicted).await?;
    finishes(scene, "a").await
}

fn was_never_sent_back(workload: &Value) -> bool {
    condition(workload, "Evicted").status.is_empty()
        && evictions(workload).is_null()
        && workload["status"]["requeueState"].is_null()
}

/// One Job finishes and another is ready at the very second of the timeout: both count.
pub async fn ends_at_the_timeout(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "2", "{timeout: 1h}").await?;
    let mut deadline = i64::MAX;
    for job in ["ends", "ready"] {
        scene.submit_and_start(Job::new(job)).await?;
        let waits = scene.workload_has(job, ("PodsReady", "False", "WaitForStart")).await?;
        deadline = changed_at(&waits, "PodsReady")? + 3600;
    }
    // What happens while there is no controller has happened when the second comes at which there is one.
    scene.controller().kill()?;
    node_comes(scene, true).await?;
    scene.succeed("ends").await?;
    let is_ready = |job: &Value| job["status"]["ready"] == 1;
    scene.object(JOB, "ready", "is ready", is_ready).await?;
    scene.controller().start_by(SetClock::ahead(deadline - SystemClock.now().as_seconds()))?;
    let done = scene.workload_has("ends", ("Finished", "True", "Succeeded")).await?;
    ensure!(was_never_sent_back(&done), "{done}");
    let ready = scene.workload_has("ready", ("PodsReady", "True", "Started")).await?;
    ensure!(was_never_sent_back(&ready), "{ready}");
    ensure!(changed_at(&ready, "PodsReady")? >= deadline, "{ready}");
    finishes(scene, "ready").await
}

/// The controller is away for ten minutes from the admission on, and pods have five: that costs one retry at most.
pub async fn ten_minutes_without_controller(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "3001", "{timeout: 5m}").await?;
    node_comes(scene, true).await?;
    // No node has so many CPUs.
    scene.submit(Job::new("never").cpu("3000")).await?;
    scene.workload_has("never", ("PodsReady", "False", "WaitForStart")).await?;
    scene.submit(Job::new("a")).await?;
    scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    scene.controller().kill()?;
    scene.controller().start_by(SetClock::ahead(TEN_MINUTES))?;

    let started = scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    ensure!(retries(&started) <= 1, "{started}");
    let again = scene.workload_has("never", ("Requeued", "True", "BackoffFinished")).await?;
    ensure!(retries(&again) == 1 && evictions(&again)[0]["count"] == 1, "{again}");
    ensure!(condition(&again, "PodsReady").is("False", "WaitForStart"), "{again}");
    finishes(scene, "a").await
}

/// A clock that is set by ten minutes, forward and back: no deadline comes early by more than that, and none is lost.
pub async fn clock_set_forward_and_back(scene: &Scene) -> Result<()> {
    let clock = SetClock::ahead(0);
    scene.controller().restart_by(clock.clone())?;
    queue_without_nodes(scene, "2", "{timeout: 15m}").await?;
    scene.submit(Job::new("a")).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    // A suspension in the second of the start would be taken for the one before it, for a while.
    scene.submit(Job::new("second").annotation(START_TIMEOUT, "2s")).await?;
    scene.workload_has("second", ("Evicted", "True", "PodsReadyTimeout")).await?;
    for step in [TEN_MINUTES, -TEN_MINUTES, -TEN_MINUTES] {
        clock.step(step);
        scene.later().await?;
        let waiting = scene.workload("a").await?;
        ensure!(was_never_sent_back(&waiting), "its time is not over: {waiting}");
    }
    clock.step(3 * TEN_MINUTES);
    scene.later().await?;
    let evicted = sent_back(scene, "a", &waits, 15 * 60).await?;

    clock.step(-TEN_MINUTES);
    scene.workload_has("a", ("Requeued", "False", "PodsReadyTimeout")).await?;
    node_comes(scene, true).await?;
    scene.later().await?;
    scene.not_started("a").await?;
    clock.step(TEN_MINUTES);
    scene.later().await?;
    comes_back(scene, "a", &evicted).await?;
    finishes(scene, "a").await
}
