//! Fallback beside a general time for pods to be ready, and beside people who change queues meanwhile.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::commands::answers;
use super::super::readiness::retries;
use super::queue::Queue;
use super::stage::{Stage, evictions, timeouts};
use crate::e2e::kinds::{JOB, WORKLOAD};
use crate::e2e::objects::{Job, QUEUE_NAME, changed_at, condition, name};

const TWO: [&str; 2] = ["spot", "on-demand"];

/// The general time for pods to be ready rests while every flavor has a time of its own. Where one has none it counts, and sends
/// the Job back to the same flavor.
pub async fn its_own_time_goes_before_the_general_one(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&[], &TWO).await?;
    // The general time and the backoff are what machines have to come before it is sent back once more.
    let queue = Queue::of(&TWO).time("spot", "7s");
    stage.queue(&queue.with("waitForPodsReady", json!({ "timeout": "5s" }))).await?;
    stage.submit(Job::new("a")).await?;
    let waits = stage.has_flavor("a", "spot").await?;
    stage.interrupt()?;
    let evicted =
        stage.workload_that("a", "is evicted", |w| condition(w, "Evicted").status == "True").await?;
    ensure!(condition(&evicted, "Evicted").is("True", "FlavorFallback"), "{evicted}");
    ensure!(changed_at(&evicted, "Evicted")? - changed_at(&waits, "QuotaReserved")? >= 7, "{evicted}");
    ensure!(evicted["status"]["requeueState"].is_null(), "{evicted}");

    stage.has_flavor("a", "on-demand").await?;
    let sent_back = stage.workload_has("a", ("Evicted", "True", "PodsReadyTimeout")).await?;
    ensure!(retries(&sent_back) == 1 && stage.given_up(&sent_back) == ["spot"], "{sent_back}");
    stage.interrupt()?;
    let waited = json!({"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1});
    ensure!(*evictions(&sent_back) == json!([timeouts(1), waited]), "{sent_back}");
    stage.machines_come("on-demand", true).await?;
    let ready = stage.starts_on("a", "on-demand").await?;
    ensure!(retries(&ready) == 1, "{ready}");
    stage.finishes("a").await
}

/// Only one of two flavors has a time of its own, so the general one runs too: the first that is over counts, and of two in the same
/// second the fallback.
pub async fn of_both_times_the_first_counts(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&[], &TWO).await?;
    let rows = [("earlier", "2s", true), ("equal", "3s", true), ("later", "1h", false)];
    for (row, time, _) in rows {
        let queue = Queue::of(&TWO).time("spot", time).memory_time(None);
        let queue = queue.with("waitForPodsReady", json!({ "timeout": "3s" }));
        stage.queue_named(row, &queue).await?;
        stage.submit(Job::new(row).queue(row)).await?;
    }
    for (row, ..) in rows {
        stage.has_flavor(row, "spot").await?;
    }
    stage.interrupt()?;
    for (row, _, falls_back) in rows {
        let counted = |w: &Value| !evictions(w).is_null();
        let left = stage.workload_that(row, "has to leave", counted).await?;
        let reason = if falls_back { "FlavorFallback" } else { "PodsReadyTimeout" };
        ensure!(evictions(&left)[0]["reason"] == reason, "{row}: {left}");
        if falls_back {
            let second = stage.has_flavor(row, "on-demand").await?;
            ensure!(stage.given_up(&second) == ["spot"] && retries(&second) == 0, "{row}: {second}");
        } else {
            ensure!(stage.given_up(&left).is_empty() && retries(&left) == 1, "{row}: {left}");
        }
    }
    Ok(())
}

/// An administrator shortens the time of a flavor that is being tried, and later wants no fallback at all: both hold at once.
pub async fn rules_edited_meanwhile(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&[], &TWO).await?;
    stage.queue(&Queue::of(&TWO).time("spot", "1h")).await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "spot").await?;
    let told = answers(&stage, "explain job/a").await?;
    let rung = &told["ladder"][0][0];
    ensure!(rung["running"] == true && rung["timeoutSeconds"] == 3600, "{told}");
    stage.interrupt()?;
    stage.queue_becomes(&Queue::of(&TWO).time("spot", "1s")).await?;
    let second = stage.has_flavor("a", "on-demand").await?;
    ensure!(stage.given_up(&second) == ["spot"], "{second}");
    stage.queue_becomes(&Queue::of(&TWO)).await?;
    stage.interrupt()?;
    // Who has a flavor keeps it; who looks for one looks at all of them.
    stage.patch(WORKLOAD, name(&second), json!({ "spec": { "active": false } })).await?;
    stage.workload_has("a", ("QuotaReserved", "False", "Deactivated")).await?;
    stage.patch(WORKLOAD, name(&second), json!({ "spec": { "active": true } })).await?;
    let back = stage.has_flavor("a", "spot").await?;
    ensure!(stage.given_up(&back).is_empty(), "{back}");
    Ok(())
}

/// The only flavor that is left is full, and is waited for. Then there is another; and then none but what was given up.
pub async fn flavors_edited_meanwhile(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["reservation", "on-demand"], &["spot"]).await?;
    let queue = |flavors: &[&'static str]| Queue::of(flavors).time("spot", "2s");
    stage.queue(&queue(&["reservation", "spot"])).await?;
    stage.submit(Job::new("first")).await?;
    stage.starts_on("first", "reservation").await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "spot").await?;
    let waits = stage.waits("a", "WaitingForQuota").await?;
    ensure!(stage.given_up(&waits) == ["spot"], "{waits}");
    stage.interrupt()?;
    stage.queue_becomes(&queue(&["reservation", "spot", "on-demand"])).await?;
    stage.starts_on("a", "on-demand").await?;

    stage.submit(Job::new("b")).await?;
    stage.has_flavor("b", "spot").await?;
    let waits = stage.waits("b", "WaitingForQuota").await?;
    ensure!(stage.given_up(&waits) == ["spot"], "{waits}");
    stage.interrupt()?;
    stage.queue_becomes(&queue(&["spot"])).await?;
    let again = stage.workload_has("b", ("Requeued", "False", "FlavorFallback")).await?;
    ensure!(stage.tried(&again, "spot")["rounds"] == 1, "{again}");
    ensure!(stage.given_up(&again).is_empty(), "{again}");
    for job in ["first", "a"] {
        stage.finishes(job).await?;
    }
    Ok(())
}

/// A Job that has given up a flavor goes to another queue: what it tried says nothing about that one.
pub async fn another_queue_begins_anew(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["reservation"], &["spot"]).await?;
    let queue = Queue::of(&["reservation", "spot"]).time("spot", "2s");
    for name in ["here", "there"] {
        stage.queue_named(name, &queue).await?;
        stage.submit(Job::new(&format!("runs-{name}")).queue(name)).await?;
        stage.starts_on(&format!("runs-{name}"), "reservation").await?;
    }
    stage.submit(Job::new("a").queue("here")).await?;
    let waits = stage.waits("a", "WaitingForQuota").await?;
    ensure!(stage.given_up(&waits) == ["spot"], "{waits}");
    stage.interrupt()?;
    // It has to be seen in its old queue before it leaves that.
    stage.later().await?;
    stage.patch(JOB, "a", json!({ "metadata": { "labels": { QUEUE_NAME: "there" } } })).await?;
    let anew = stage.has_flavor("a", "spot").await?;
    ensure!(stage.given_up(&anew).is_empty() && stage.used(&anew, "spot") == 0, "{anew}");
    stage.interrupt()?;
    stage.finishes("runs-there").await?;
    stage.starts_on("a", "reservation").await?;
    for job in ["a", "runs-here"] {
        stage.finishes(job).await?;
    }
    Ok(())
}
