//! When and where a Job comes back whose pods were not ready in time.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::commands::answers;
use super::preemption::{finishes, has_left, is_back, two_teams};
use super::readiness::{evictions, flavor_with_nodes, node_comes, node_serves, queue_without_nodes, retries};
use crate::e2e::kinds::WORKLOAD;
use crate::e2e::objects::{Job, assigned_flavor, changed_at, condition, name, seconds};
use crate::e2e::scene::Scene;

/// Nodes that are not there for anybody else. Each has 1000 CPUs, of which small pods of others may use a few.
const FRAGMENTED: [&str; 2] = ["late-3", "late-4"];

/// Waits until a Job is sent back whose pods were waited for: not before its time is over, and once.
pub(super) async fn sent_back(scene: &Scene, job: &str, waits: &Value, allowed: i64) -> Result<Value> {
    let cause = condition(waits, "PodsReady").reason;
    let message = condition(waits, "PodsReady").message;
    ensure!(message.ends_with(&format!("They have {allowed} s.")), "{message}");
    let evicted = scene.workload_has(job, ("Evicted", "True", "PodsReadyTimeout")).await?;
    let once = json!([{"reason": "PodsReadyTimeout", "underlyingCause": cause, "count": 1}]);
    ensure!(*evictions(&evicted) == once && retries(&evicted) == 1, "{evicted}");
    let waited = changed_at(&evicted, "Evicted")? - changed_at(waits, "PodsReady")?;
    ensure!(waited >= allowed, "{job} had {allowed} s and was evicted after {waited} s");
    Ok(evicted)
}

/// Waits until a Job that was sent back once is ready; it was not admitted before its backoff was over.
pub(super) async fn comes_back(scene: &Scene, job: &str, evicted: &Value) -> Result<Value> {
    let requeue_at = seconds(&evicted["status"]["requeueState"]["requeueAt"])?;
    let is_back = |workload: &Value| condition(workload, "PodsReady").is("True", "Started");
    let back = scene.workload_that(job, "is back", is_back).await?;
    ensure!(condition(&back, "Requeued").is("True", "BackoffFinished"), "{back}");
    ensure!(back["status"]["requeueState"] == json!({"count": 1}), "{back}");
    let admitted_at = changed_at(&back, "QuotaReserved")?;
    ensure!(admitted_at >= requeue_at, "{job} was admitted {} s early", requeue_at - admitted_at);
    Ok(back)
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

/// Nodes have room enough together and none has enough alone: others take the place of who does not fit, and it starts when one
/// has.
pub async fn nodes_are_fragmented(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "1900", "{timeout: 3s}").await?;
    for node in FRAGMENTED {
        node_serves(scene, node, "late", true).await?;
    }
    for job in ["left", "right"] {
        scene.submit_and_start(Job::new(job).cpu("600")).await?;
        scene.workload_has(job, ("PodsReady", "True", "Started")).await?;
    }
    scene.submit(Job::new("big").cpu("700")).await?;
    let waits = scene.workload_has("big", ("PodsReady", "False", "WaitForStart")).await?;
    scene.submit(Job::new("small").pods(2).cpu("200")).await?;
    scene.waits("small", "WaitingForQuota").await?;

    let evicted = sent_back(scene, "big", &waits, 3).await?;
    scene.workload_has("small", ("PodsReady", "True", "Started")).await?;
    scene.waits("big", "WaitingForQuota").await?;
    finishes(scene, "left").await?;
    comes_back(scene, "big", &evicted).await?;
    for job in ["right", "small", "big"] {
        finishes(scene, job).await?;
    }
    Ok(())
}

/// `a` was sent back: it is suspended, holds nothing, and `b` behind it gets its place, in a strict queue too. It comes back when
/// its backoff is over and `b` has finished.
async fn makes_way(scene: &Scene, evicted: &Value) -> Result<()> {
    scene.stopped("a").await?;
    let left = scene.workload_has("a", ("Requeued", "False", "PodsReadyTimeout")).await?;
    ensure!(condition(&left, "QuotaReserved").status == "False", "{left}");
    ensure!(left["status"]["admission"].is_null(), "{left}");
    scene.workload_has("b", ("PodsReady", "True", "Started")).await?;
    scene.waits("a", "WaitingForQuota").await?;
    finishes(scene, "b").await?;
    comes_back(scene, "a", evicted).await?;
    finishes(scene, "a").await
}

/// KEP-349: a workload which exceeds the `waitForPodsReady.timeout` timeout is suspended and put into the
/// `inadmissibleWorkloads` list.
pub async fn start_timeout_suspends_and_requeues(scene: &Scene) -> Result<()> {
    flavor_with_nodes(scene, "late").await?;
    scene.cluster_queue(&[("SCENE-late", "1")], "queueingStrategy: StrictFIFO").await?;
    scene.local_queue("main").await?;
    scene.submit(Job::new("a").annotation("gangway.dev/pods-ready-timeout", "4s")).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    let evicted = sent_back(scene, "a", &waits, 4).await?;
    node_comes(scene, true).await?;
    makes_way(scene, &evicted).await
}

/// KEP-349: a workload which exceeds the `waitForPodsReady.recoveryTimeout` timeout is suspended and put into the
/// `inadmissibleWorkloads` list.
pub async fn recovery_timeout_suspends_and_requeues(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    let strict = "queueingStrategy: StrictFIFO\n  waitForPodsReady: {recoveryTimeout: 2s}";
    scene.cluster_queue(&[("SCENE-standard", "1")], strict).await?;
    scene.local_queue("main").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    for pod in scene.running_pods("a").await? {
        scene.unready_pod(&pod).await?;
    }
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForRecovery")).await?;
    let evicted = sent_back(scene, "a", &waits, 2).await?;
    makes_way(scene, &evicted).await
}

/// KEP-1282, story 1: a Job is admitted on a flavor without nodes while another flavor is full. That has room when the time is
/// over: there it starts, as soon as possible.
pub async fn back_at_once_where_room_is(scene: &Scene) -> Result<()> {
    for flavor in ["full", "sold-out"] {
        flavor_with_nodes(scene, flavor).await?;
    }
    node_serves(scene, "late-0", "full", true).await?;
    let flavors = [("SCENE-full", "1"), ("SCENE-sold-out", "1")];
    scene.cluster_queue(&flavors, "waitForPodsReady: {timeout: 4s}").await?;
    scene.local_queue("main").await?;
    scene.submit_and_start(Job::new("first")).await?;
    let first = scene.workload_has("first", ("PodsReady", "True", "Started")).await?;
    ensure!(assigned_flavor(&first, "cpu") == scene.own("full"), "{first}");
    scene.submit(Job::new("a")).await?;
    let waits = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    ensure!(assigned_flavor(&waits, "cpu") == scene.own("sold-out"), "{waits}");
    finishes(scene, "first").await?;

    let evicted = sent_back(scene, "a", &waits, 4).await?;
    let requeue_at = seconds(&evicted["status"]["requeueState"]["requeueAt"])?;
    ensure!(requeue_at == changed_at(&evicted, "Evicted")?, "it is tried again at once: {evicted}");
    let back = comes_back(scene, "a", &evicted).await?;
    ensure!(assigned_flavor(&back, "cpu") == scene.own("full"), "{back}");
    finishes(scene, "a").await
}

/// KEP-1282: who was preempted is older than its preemptor and queues where it was; it does not come back before that one has
/// had its turn.
pub async fn preempted_comes_back_after_its_preemptor(scene: &Scene) -> Result<()> {
    two_teams(scene, "").await?;
    scene.submit_and_start(Job::new("borrower").queue("vision").cpu("2").lingering()).await?;
    scene.workload_has("borrower", ("PodsReady", "True", "Started")).await?;
    scene.submit(Job::new("owner").queue("speech")).await?;
    has_left(scene, "borrower", "owner").await?;
    scene.workload_has("owner", ("PodsReady", "True", "Started")).await?;
    scene.waits("borrower", "WaitingForQuota").await?;
    scene.later().await?;
    scene.not_started("borrower").await?;
    let owner = scene.workload("owner").await?;
    ensure!(evictions(&owner).is_null(), "the preemptor stays: {owner}");
    finishes(scene, "owner").await?;
    is_back(scene, "borrower").await?;
    finishes(scene, "borrower").await
}
