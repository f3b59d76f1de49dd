//! How victims leave: slowly, one after the other, by themselves, against somebody's will, and many at once; and what becomes of
//! their room if the preemptor goes away meanwhile.

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt};
use serde_json::{Value, json};

use super::preemption::{finishes, has_left, is_back, two_teams, uses};
use crate::e2e::kinds::{CLUSTER_QUEUE, JOB, WORKLOAD};
use crate::e2e::objects::{Job, condition, is_suspended, name, uid};
use crate::e2e::scene::{Objects, Scene};

/// Requests that a scenario with very many Jobs sends at once.
const SENT_AT_ONCE: usize = 16;

fn is_preempted(workload: &Value) -> bool {
    condition(workload, "Evicted").is("True", "Preempted")
}

/// A queue `main` of so many CPUs in which a higher priority preempts a lower one, and a queue `other` that can only borrow from it.
async fn queues(scene: &Scene, cpu: &str) -> Result<()> {
    scene.create(super::order::CLASSES).await?;
    scene.flavor("SCENE-standard").await?;
    let policy = "cohortName: SCENE\n  preemption: {withinClusterQueue: LowerPriority}";
    scene.cluster_queue(&[("SCENE-standard", cpu)], policy).await?;
    scene.local_queue("main").await?;
    let borrows = "namespaceSelector: {}\n  cohortName: SCENE";
    scene.cluster_queue_named("SCENE-other", &[("SCENE-standard", "0")], borrows).await?;
    scene.local_queue_of("other", "SCENE-other").await
}

async fn low(scene: &Scene, job: Job) -> Result<()> {
    let started = scene.submit_and_start(job.priority_class(&scene.own("low"))).await?;
    scene.running_pods(name(&started)).await.map(|_| ())
}

/// Two Jobs have to leave for `high`: `quick` has, and the pods of `slow` are still there.
pub(super) async fn one_of_two_has_left(scene: &Scene) -> Result<()> {
    queues(scene, "2").await?;
    low(scene, Job::new("quick")).await?;
    low(scene, Job::new("slow").stuck()).await?;
    scene.submit(Job::new("high").cpu("2").priority_class(&scene.own("high"))).await?;
    has_left(scene, "quick", "high").await?;
    still_leaves(scene, "slow").await?;
    scene.waits("high", "WaitingForPreemptedWorkloads").await.map(|_| ())
}

/// A stuck Job was told to leave, is suspended, and its quota still counts.
async fn still_leaves(scene: &Scene, job: &str) -> Result<()> {
    scene.workload_that(job, "is preempted", is_preempted).await?;
    let is_ending = |job: &Value| is_suspended(job) && job["status"]["terminating"].as_i64() >= Some(1);
    scene.object(JOB, job, "has pods on their way out", is_ending).await?;
    let workload = scene.workload(job).await?;
    ensure!(!workload["status"]["admission"].is_null(), "its pods use its quota: {workload}");
    ensure!(condition(&workload, "QuotaReserved").status == "True", "{workload}");
    Ok(())
}

/// Waits until the queue `main` has set aside so many CPUs.
async fn has_reserved(scene: &Scene, cpu: &str) -> Result<()> {
    let reserved = |queue: &Value| queue["status"]["flavorsReservation"][0]["resources"][0]["total"] == cpu;
    let what = format!("has {cpu} CPUs reserved");
    scene.object(CLUSTER_QUEUE, scene.name(), &what, reserved).await.map(|_| ())
}

pub async fn preemptor_waits_for_slow_victim(scene: &Scene) -> Result<()> {
    two_teams(scene, "").await?;
    scene.submit_and_start(Job::new("a").queue("vision").cpu("2").stuck()).await?;
    scene.running_pods("a").await?;
    scene.submit(Job::new("owner").queue("speech")).await?;
    still_leaves(scene, "a").await?;
    scene.waits("owner", "WaitingForPreemptedWorkloads").await?;
    scene.later().await?;
    scene.not_started("owner").await?;
    uses(scene, "vision", "2", "1").await?;
    uses(scene, "speech", "0", "0").await?;

    scene.end_stuck_pods("a").await?;
    has_left(scene, "a", "owner").await?;
    scene.started("owner").await?;
    uses(scene, "vision", "0", "0").await?;
    uses(scene, "speech", "1", "0").await?;
    finishes(scene, "owner").await?;
    is_back(scene, "a").await
}

/// What the first of two victims left is for the preemptor, not for a third Workload.
pub async fn room_of_first_victim_stays_held(scene: &Scene) -> Result<()> {
    one_of_two_has_left(scene).await?;
    has_reserved(scene, "1").await?;
    scene.submit(Job::new("same-queue")).await?;
    scene.submit(Job::new("borrower").queue("other")).await?;
    scene.waits("same-queue", "WaitingForQuota").await?;
    scene.waits("borrower", "WaitingForQuota").await?;
    scene.later().await?;
    for job in ["same-queue", "borrower", "high", "quick"] {
        scene.not_started(job).await?;
    }
    has_reserved(scene, "1").await?;

    scene.end_stuck_pods("slow").await?;
    scene.started("high").await?;
    has_reserved(scene, "2").await?;
    for job in ["same-queue", "borrower", "quick", "slow"] {
        scene.not_started(job).await?;
    }
    finishes(scene, "high").await?;
    scene.started("same-queue").await.map(|_| ())
}

/// Without its preemptor a victim that has left is back at once, and one that still leaves is back afterwards.
async fn victims_come_back(scene: &Scene) -> Result<()> {
    is_back(scene, "quick").await?;
    still_leaves(scene, "slow").await?;
    scene.end_stuck_pods("slow").await?;
    is_back(scene, "slow").await?;
    has_reserved(scene, "2").await
}

pub async fn preemptor_deleted_meanwhile(scene: &Scene) -> Result<()> {
    one_of_two_has_left(scene).await?;
    scene.delete(JOB, "high").await?;
    victims_come_back(scene).await
}

pub async fn preemptor_deactivated_meanwhile(scene: &Scene) -> Result<()> {
    one_of_two_has_left(scene).await?;
    let high = scene.workload("high").await?;
    scene.patch(WORKLOAD, name(&high), json!({ "spec": { "active": false } })).await?;
    scene.waits("high", "Deactivated").await?;
    victims_come_back(scene).await?;

    finishes(scene, "quick").await?;
    finishes(scene, "slow").await?;
    scene.patch(WORKLOAD, name(&high), json!({ "spec": { "active": true } })).await?;
    scene.started("high").await.map(|_| ())
}

/// A user starts a Job by hand that has to leave or has left. It is suspended again, and takes nobody's room.
async fn unsuspended_in_vain(scene: &Scene, job: &str) -> Result<()> {
    let started = scene.patch(JOB, job, json!({ "spec": { "suspend": false } })).await?;
    let generation = started["metadata"]["generation"].as_i64();
    let again = |job: &Value| is_suspended(job) && job["metadata"]["generation"].as_i64() > generation;
    scene.object(JOB, job, "is suspended again", again).await.map(|_| ())
}

pub async fn user_unsuspends_a_victim(scene: &Scene) -> Result<()> {
    two_teams(scene, "").await?;
    scene.submit_and_start(Job::new("a").queue("vision").cpu("2").stuck()).await?;
    scene.running_pods("a").await?;
    scene.submit(Job::new("owner").queue("speech")).await?;
    still_leaves(scene, "a").await?;
    unsuspended_in_vain(scene, "a").await?;
    scene.later().await?;
    still_leaves(scene, "a").await?;
    scene.not_started("owner").await?;
    uses(scene, "vision", "2", "1").await?;

    scene.end_stuck_pods("a").await?;
    has_left(scene, "a", "owner").await?;
    scene.started("owner").await?;
    unsuspended_in_vain(scene, "a").await?;
    scene.later().await?;
    uses(scene, "vision", "0", "0").await?;
    uses(scene, "speech", "1", "0").await?;
    let workload = scene.waits("a", "WaitingForQuota").await?;
    ensure!(condition(&workload, "Admitted").status == "False", "{workload}");
    finishes(scene, "owner").await
}

/// Submits Jobs of one CPU and low priority, and waits until all of them run.
async fn low_jobs(scene: &Scene, jobs: impl Iterator<Item = Job>, count: usize) -> Result<()> {
    let class = scene.own("low");
    let submits = jobs.map(|job| scene.submit(job.priority_class(&class)));
    futures::stream::iter(submits).buffer_unordered(SENT_AT_ONCE).try_for_each(|_| async { Ok(()) }).await?;
    let is_running = |job: &&Value| job["status"]["ready"].as_i64() == Some(1);
    scene
        .until(JOB, &format!("{count} Jobs run"), |jobs| {
            (jobs.values().filter(is_running).count() == count).then_some(())
        })
        .await
}

/// Waits until so many Workloads were told to leave, or have left, for one of this uid.
async fn preempted_for(scene: &Scene, preemptor: &Value, count: usize) -> Result<Vec<String>> {
    let is_victim = |workload: &&Value| {
        is_preempted(workload) && workload["status"]["preemptor"].as_str() == Some(uid(preemptor))
    };
    scene
        .until(WORKLOAD, &format!("{count} Workloads are preempted"), |workloads: &Objects| {
            let victims: Vec<&Value> = workloads.values().filter(is_victim).collect();
            (victims.len() >= count).then(|| {
                let owner = |victim: &&Value| victim["metadata"]["ownerReferences"][0]["name"].clone();
                victims.iter().map(owner).filter_map(|name| name.as_str().map(str::to_owned)).collect()
            })
        })
        .await
}

pub async fn two_hundred_victims_at_once(scene: &Scene) -> Result<()> {
    const VICTIMS: usize = 200;
    queues(scene, "200").await?;
    low_jobs(scene, (0..VICTIMS).map(|number| Job::new(&format!("low-{number}"))), VICTIMS).await?;
    scene.submit(Job::new("high").pods(10).cpu("20").priority_class(&scene.own("high"))).await?;
    let high = scene.workload("high").await?;
    let victims = preempted_for(scene, &high, VICTIMS).await?;
    ensure!(victims.len() == VICTIMS, "each has to leave, once: {}", victims.len());
    scene.started("high").await?;
    scene.running_pods("high").await?;
    has_reserved(scene, "200").await?;
    let jobs = scene.list(JOB).await?;
    let running = jobs.iter().filter(|job| !is_suspended(job)).count();
    ensure!(running == 1, "only the preemptor runs, not {running}");
    Ok(())
}

/// Six have to leave for `high`. The controller dies when two of them were told, and again when one of them has left.
pub async fn controller_killed_between_evictions(scene: &Scene) -> Result<()> {
    const JOBS: usize = 8;
    queues(scene, "8").await?;
    low_jobs(scene, (0..JOBS).map(|number| Job::new(&format!("low-{number}")).stuck()), JOBS).await?;
    scene.stop_cluster_queue("Hold").await?;
    scene.submit(Job::new("high").cpu("6").priority_class(&scene.own("high"))).await?;
    scene.waits("high", "Suspended").await?;
    let high = scene.workload("high").await?;
    let first = [scene.workload("low-0").await?, scene.workload("low-1").await?];
    scene.controller().kill()?;
    for victim in &first {
        tell_to_leave(scene, victim, &high, "InClusterQueue").await?;
    }
    scene.stop_cluster_queue("None").await?;
    scene.controller().start()?;
    let victims = preempted_for(scene, &high, 6).await?;
    scene.waits("high", "WaitingForPreemptedWorkloads").await?;

    scene.end_stuck_pods(&victims[0]).await?;
    scene.controller().kill()?;
    scene.controller().start()?;
    scene.submit(Job::new("third").priority_class(&scene.own("low"))).await?;
    scene.waits("third", "WaitingForQuota").await?;
    scene.later().await?;
    for job in ["third", "high", &victims[0]] {
        scene.not_started(job).await?;
    }
    for victim in &victims[1..] {
        still_leaves(scene, victim).await?;
        scene.end_stuck_pods(victim).await?;
    }
    scene.started("high").await?;
    let jobs = scene.list(JOB).await?;
    let untouched = jobs.iter().filter(|job| name(job).starts_with("low-") && !is_suspended(job));
    ensure!(untouched.count() == JOBS - 6, "the others go on: {victims:?} left");
    ensure!(preempted_for(scene, &high, 6).await?.len() == 6, "no more than needed leave");
    scene.not_started("third").await
}

/// A victim ends by itself when it was told to leave and nobody has stopped it yet: the controller died after its first
/// write, and the Job is complete when the next one comes.
pub async fn victim_finishes_by_itself(scene: &Scene) -> Result<()> {
    two_teams(scene, "").await?;
    scene.stop_cluster_queue_named(&scene.own("speech"), "Hold").await?;
    scene.submit_and_start(Job::new("a").queue("vision").cpu("2")).await?;
    scene.running_pods("a").await?;
    scene.submit(Job::new("owner").queue("speech")).await?;
    scene.waits("owner", "Suspended").await?;
    let owner = scene.workload("owner").await?;
    let victim = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;

    scene.controller().kill()?;
    scene.succeed("a").await?;
    tell_to_leave(scene, &victim, &owner, "InCohortReclamation").await?;
    scene.stop_cluster_queue_named(&scene.own("speech"), "None").await?;
    scene.controller().start()?;
    let victim = scene.workload_has("a", ("Finished", "True", "Succeeded")).await?;
    ensure!(condition(&victim, "Requeued").status.is_empty(), "it is not queued again: {victim}");
    scene.started("owner").await?;
    uses(scene, "vision", "0", "0").await?;
    uses(scene, "speech", "1", "0").await?;
    finishes(scene, "owner").await
}

/// The first write of an eviction, as the controller makes it.
async fn tell_to_leave(scene: &Scene, victim: &Value, preemptor: &Value, right: &str) -> Result<()> {
    let admitted = victim["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let at = &victim["status"]["conditions"][0]["lastTransitionTime"];
    let told = [("Evicted", "Preempted"), ("Preempted", right)].map(|(kind, reason)| {
        json!({ "type": kind, "status": "True", "reason": reason, "message": "as before", "lastTransitionTime": at })
    });
    let conditions: Vec<Value> = admitted.into_iter().chain(told).collect();
    let change = json!({ "conditions": conditions, "preemptor": uid(preemptor) });
    scene.patch_status(WORKLOAD, name(victim), change).await
}
