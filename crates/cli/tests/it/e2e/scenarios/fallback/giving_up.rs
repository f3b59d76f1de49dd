//! What happens when every flavor is given up, or somebody gives up the Workload.

use anyhow::{Result, ensure};
use gangway_model::Uid;
use gangway_model::readiness::WaitForPodsReady;
use serde_json::{Value, json};

use super::super::commands::answers;
use super::super::readiness::{CONCURRENT, retries};
use super::queue::Queue;
use super::stage::{Stage, evictions, timeouts};
use crate::e2e::kinds::WORKLOAD;
use crate::e2e::objects::{Job, changed_at, condition, name, seconds, uid};

const THREE: [&str; 3] = ["reservation", "spot", "on-demand"];

/// The document's second integration test: all three flavors fail, and the Workload is deactivated. It begins anew when somebody
/// activates it.
pub async fn deactivated_when_every_flavor_failed(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&[], &THREE).await?;
    stage.queue(&Queue::of(&THREE).time("*", "2s").deactivating()).await?;
    stage.submit(Job::new("a")).await?;
    for (tried, flavor) in THREE.into_iter().enumerate() {
        let has = stage.has_flavor("a", flavor).await?;
        ensure!(stage.given_up(&has) == THREE[..tried], "{has}");
        stage.interrupt()?;
    }
    let reason = "DeactivatedDueToFlavorFallbackExhausted";
    let off = stage.workload_has("a", ("Requeued", "False", reason)).await?;
    ensure!(off["spec"]["active"] == false, "{off}");
    ensure!(condition(&off, "Evicted").is("True", reason), "{off}");
    ensure!(stage.given_up(&off) == THREE, "{off}");
    let deactivated =
        json!({"reason": "Deactivated", "underlyingCause": "FlavorFallbackExhausted", "count": 1});
    ensure!(*evictions(&off) == json!([timeouts(3), deactivated]), "{off}");
    stage.is_told(&off, &format!("EvictedDueTo{reason}")).await?;
    let told = answers(&stage, "explain job/a").await?;
    ensure!(told["situation"] == "Deactivated", "{told}");

    stage.interrupt()?;
    stage.patch(WORKLOAD, name(&off), json!({ "spec": { "active": true } })).await?;
    let back = stage.has_flavor("a", "reservation").await?;
    ensure!(condition(&back, "Requeued").is("True", "Reactivated"), "{back}");
    ensure!(stage.given_up(&back).is_empty() && stage.used(&back, "reservation") == 0, "{back}");
    Ok(())
}

/// A user deactivates the Workload and activates it again: what was given up stays so.
pub async fn own_deactivation_keeps_what_was_tried(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&[], &THREE).await?;
    stage.queue(&Queue::of(&THREE).time("reservation", "2s").time("spot", "1h")).await?;
    stage.submit(Job::new("a")).await?;
    let tried = stage.has_flavor("a", "spot").await?;
    stage.patch(WORKLOAD, name(&tried), json!({ "spec": { "active": false } })).await?;
    let off = stage.workload_has("a", ("QuotaReserved", "False", "Deactivated")).await?;
    ensure!(stage.given_up(&off) == ["reservation"], "{off}");
    stage.interrupt()?;
    stage.patch(WORKLOAD, name(&off), json!({ "spec": { "active": true } })).await?;
    let back = stage.has_flavor("a", "spot").await?;
    ensure!(stage.given_up(&back) == ["reservation"], "{back}");
    ensure!(stage.used(&back, "spot") == stage.used(&off, "spot"), "{back}");
    Ok(())
}

/// Waits until the Job has given up all flavors so many times: all are as if never tried, and the next round begins after
/// exactly the backoff of that round.
async fn round_is_over(stage: &Stage<'_>, settings: &WaitForPodsReady, round: u32) -> Result<Value> {
    let is_over = |workload: &Value| {
        condition(workload, "Requeued").is("False", "FlavorFallback")
            && stage.tried(workload, "spot")["rounds"] == round
    };
    let waits = stage.workload_that("a", &format!("waits for round {}", round + 1), is_over).await?;
    ensure!(stage.given_up(&waits).is_empty() && retries(&waits) == 0, "{waits}");
    ensure!(stage.used(&waits, "spot") == 0, "{waits}");
    ensure!(stage.tried(&waits, "spot")["assignmentTime"].is_null(), "{waits}");
    let gave_up_at = changed_at(&waits, "Requeued")?;
    let waited = seconds(&waits["status"]["requeueState"]["requeueAt"])? - gave_up_at;
    let expected = settings.backoff_seconds(&Uid::from(uid(&waits)), round);
    ensure!(waited == expected, "{waited} s instead of {expected} s: {waits}");
    Ok(waits)
}

/// The document's third integration test: all three flavors fail, and all are tried again from the first on.
pub async fn all_flavors_again_and_again(stage: Stage<'_>) -> Result<()> {
    let config = gangway_api::config::load("configuration", CONCURRENT)?;
    let settings = config.wait_for_pods_ready.unwrap_or_default();
    stage.flavors(&[], &THREE).await?;
    stage.queue(&Queue::of(&THREE).time("*", "2s")).await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "reservation").await?;
    stage.has_flavor("a", "on-demand").await?;
    stage.interrupt()?;
    let waits = round_is_over(&stage, &settings, 1).await?;
    ensure!(*evictions(&waits) == json!([timeouts(3)]), "{waits}");
    stage.interrupt()?;
    let again = stage.has_flavor("a", "reservation").await?;
    let requeue_at = seconds(&waits["status"]["requeueState"]["requeueAt"])?;
    ensure!(changed_at(&again, "QuotaReserved")? >= requeue_at, "{again}");
    stage.machines_come("spot", true).await?;
    stage.starts_on("a", "spot").await?;
    stage.finishes("a").await
}

/// Three rounds by the clock: the waits between them double, to the second, and none is cut short. A check that says nothing holds
/// everybody up, so that no Job has to be stopped in the second in which it was started: that would not be seen at once.
pub async fn three_rounds_with_growing_waits(stage: Stage<'_>) -> Result<()> {
    let stage = stage.by_clock()?;
    let settings = WaitForPodsReady::default();
    stage.flavors(&["spot", "on-demand"], &[]).await?;
    stage.check().await?;
    stage.queue(&Queue::of(&["spot", "on-demand"]).time("*", "10m").checked()).await?;
    stage.submit(Job::new("a")).await?;
    for round in 1..=3 {
        stage.has_flavor("a", "spot").await?;
        stage.clock_steps(10 * 60).await?;
        stage.has_flavor("a", "on-demand").await?;
        stage.clock_steps(10 * 60).await?;
        let waits = round_is_over(&stage, &settings, round).await?;
        let requeue_at = seconds(&waits["status"]["requeueState"]["requeueAt"])?;
        stage.clock_steps_to(requeue_at - 30).await?;
        stage.interrupt()?;
        stage.later().await?;
        let still = stage.workload("a").await?;
        ensure!(still["status"]["admission"].is_null(), "its time has not come: {still}");
        stage.clock_steps_to(requeue_at).await?;
        let again = stage.has_flavor("a", "spot").await?;
        ensure!(changed_at(&again, "QuotaReserved")? >= requeue_at, "{again}");
        ensure!(condition(&again, "Requeued").is("True", "BackoffFinished"), "{again}");
        ensure!(*evictions(&again) == json!([timeouts(2 * round)]), "{again}");
    }
    Ok(())
}
