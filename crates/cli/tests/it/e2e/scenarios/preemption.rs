//! Who has to leave for whom: quota that was lent and is taken back, and priority in a queue.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::e2e::kinds::{CLUSTER_QUEUE, JOB, WORKLOAD};
use crate::e2e::objects::{Job, condition, name};
use crate::e2e::scene::Scene;

/// A ClusterQueue of one CPU in the cohort `SCENE`, and a LocalQueue of the same team.
async fn team(scene: &Scene, team: &str, more: &str) -> Result<()> {
    let cluster_queue = format!("SCENE-{team}");
    let more = format!("namespaceSelector: {{}}\n  cohortName: SCENE\n  {more}");
    scene.cluster_queue_named(&cluster_queue, &[("SCENE-standard", "1")], &more).await?;
    scene.local_queue_of(team, &cluster_queue).await
}

/// Two teams with a CPU each. Vision lends and borrows; speech may take back what it has lent.
async fn two_teams(scene: &Scene, more: &str) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    team(scene, "vision", more).await?;
    team(scene, "speech", &format!("preemption: {{reclaimWithinCohort: Any}}\n  {more}")).await
}

/// Waits until the ClusterQueue of a team uses so many CPUs, some of them borrowed.
async fn uses(scene: &Scene, team: &str, total: &str, borrowed: &str) -> Result<()> {
    let is = |value: &Value, wanted: &str| *value == wanted || (value.is_null() && wanted == "0");
    let wanted = |queue: &Value| {
        let cpu = &queue["status"]["flavorsUsage"][0]["resources"][0];
        is(&cpu["total"], total) && is(&cpu["borrowed"], borrowed)
    };
    let what = format!("uses {total} CPUs, {borrowed} of them borrowed");
    scene.object(CLUSTER_QUEUE, &scene.own(team), &what, wanted).await.map(|_| ())
}

/// Waits until one of these Jobs is preempted for this reason, and gives its name.
async fn victim(scene: &Scene, jobs: [&str; 2], reason: &str) -> Result<String> {
    let preempted = |workload: &Value| {
        condition(workload, "Evicted").is("True", "Preempted")
            && condition(workload, "Preempted").is("True", reason)
    };
    let owner = |workload: &Value| {
        let owner = workload["metadata"]["ownerReferences"][0]["name"].as_str().unwrap_or_default();
        jobs.contains(&owner).then(|| owner.to_owned())
    };
    let what = format!("one of {jobs:?} is preempted for {reason}");
    scene
        .until(WORKLOAD, &what, |workloads| {
            workloads.values().filter(|workload| preempted(workload)).find_map(owner)
        })
        .await
}

/// The Job has left for another: its Workload and its events say for whom, and it holds nothing any more.
async fn has_left(scene: &Scene, victim: &str, preemptor: &str) -> Result<()> {
    let preemptor = scene.workload(preemptor).await?;
    scene.stopped(victim).await?;
    let workload = scene.workload_has(victim, ("Requeued", "True", "Preempted")).await?;
    let message = condition(&workload, "Preempted").message;
    ensure!(message.contains(name(&preemptor)), "the message names the preemptor: {message}");
    ensure!(condition(&workload, "QuotaReserved").status == "False", "{workload}");
    ensure!(condition(&workload, "Admitted").status == "False", "{workload}");
    ensure!(workload["status"]["admission"].is_null(), "the quota is free again: {workload}");
    let counted = json!([{"reason": "Preempted", "underlyingCause": "", "count": 1}]);
    ensure!(workload["status"]["schedulingStats"]["evictions"] == counted, "it is counted: {workload}");
    scene.event(WORKLOAD, name(&workload), "Preempted").await?;
    scene.event(WORKLOAD, name(&workload), "EvictedDueToPreempted").await?;
    scene.event(WORKLOAD, name(&preemptor), "PreemptedWorkload").await?;
    scene.event(JOB, victim, "Stopped").await
}

/// A Job that had to leave runs again, and the eviction is history.
async fn is_back(scene: &Scene, job: &str) -> Result<()> {
    scene.started(job).await?;
    let workload = scene.workload_has(job, ("Admitted", "True", "Admitted")).await?;
    ensure!(condition(&workload, "Evicted").is("False", "QuotaReserved"), "{workload}");
    ensure!(condition(&workload, "Preempted").is("False", "QuotaReserved"), "{workload}");
    ensure!(condition(&workload, "Requeued").is("True", "Preempted"), "{workload}");
    ensure!(workload["status"]["schedulingStats"]["evictions"][0]["count"] == 1, "{workload}");
    let job = scene.get(JOB, job).await?;
    let wrote_status = |entry: &&Value| entry["subresource"] == "status";
    let writers = job["metadata"]["managedFields"].as_array().into_iter().flatten().filter(wrote_status);
    let mut others = writers.map(|entry| &entry["manager"]).filter(|name| *name != "kube-controller-manager");
    ensure!(others.next().is_none(), "the Job controller forgets the start by itself: {job}");
    Ok(())
}

async fn finishes(scene: &Scene, job: &str) -> Result<()> {
    scene.succeed(job).await?;
    scene.workload_has(job, ("Finished", "True", "Succeeded")).await.map(|_| ())
}

pub async fn lent_quota_is_taken_back(scene: &Scene) -> Result<()> {
    two_teams(scene, "").await?;
    scene.submit_and_start(Job::new("a").queue("vision")).await?;
    scene.submit_and_start(Job::new("b").queue("vision")).await?;
    uses(scene, "vision", "2", "1").await?;
    scene.running_pods("a").await?;
    scene.running_pods("b").await?;

    scene.submit(Job::new("owner").queue("speech")).await?;
    let victim = victim(scene, ["a", "b"], "InCohortReclamation").await?;
    let other = if victim == "a" { "b" } else { "a" };
    has_left(scene, &victim, "owner").await?;
    scene.started("owner").await?;
    scene.running_pods("owner").await?;
    scene.waits(&victim, "WaitingForQuota").await?;
    uses(scene, "vision", "1", "0").await?;
    uses(scene, "speech", "1", "0").await?;
    ensure!(scene.get(JOB, other).await?["spec"]["suspend"] == false, "the other one goes on");

    finishes(scene, "owner").await?;
    is_back(scene, &victim).await?;
    uses(scene, "vision", "2", "1").await?;
    finishes(scene, "a").await?;
    finishes(scene, "b").await?;
    uses(scene, "vision", "0", "0").await
}

/// The owner of the quota is there before the admission of the borrower is written.
pub async fn borrower_preempted_while_being_admitted(scene: &Scene) -> Result<()> {
    two_teams(scene, "stopPolicy: Hold").await?;
    scene.submit(Job::new("a").queue("vision").cpu("2")).await?;
    scene.submit(Job::new("owner").queue("speech")).await?;
    scene.waits("a", "Suspended").await?;
    scene.waits("owner", "Suspended").await?;

    scene.stop_cluster_queue_named(&scene.own("vision"), "None").await?;
    scene.stop_cluster_queue_named(&scene.own("speech"), "None").await?;
    scene.started("owner").await?;
    scene.stopped("a").await?;
    scene.waits("a", "WaitingForQuota").await?;
    uses(scene, "vision", "0", "0").await?;

    finishes(scene, "owner").await?;
    scene.started("a").await?;
    uses(scene, "vision", "2", "1").await?;
    finishes(scene, "a").await
}

pub async fn higher_priority_preempts_in_its_queue(scene: &Scene) -> Result<()> {
    scene.create(super::order::CLASSES).await?;
    scene.flavor("SCENE-standard").await?;
    let preemption = "preemption: {withinClusterQueue: LowerPriority}";
    scene.cluster_queue(&[("SCENE-standard", "2")], preemption).await?;
    scene.local_queue("main").await?;
    let (high, low) = (scene.own("high"), scene.own("low"));
    scene.submit_and_start(Job::new("low").priority_class(&low)).await?;
    scene.submit_and_start(Job::new("normal")).await?;
    scene.running_pods("low").await?;

    // An equal priority waits its turn; a higher one takes the place of the lowest.
    scene.submit(Job::new("equal").priority_class(&low)).await?;
    scene.waits("equal", "WaitingForQuota").await?;
    scene.submit(Job::new("high").priority_class(&high)).await?;
    let victim = victim(scene, ["low", "normal"], "InClusterQueue").await?;
    ensure!(victim == "low", "the lowest priority leaves, not {victim}");
    has_left(scene, "low", "high").await?;
    scene.started("high").await?;
    scene.waits("equal", "WaitingForQuota").await?;
    ensure!(scene.get(JOB, "normal").await?["spec"]["suspend"] == false, "the other one goes on");

    finishes(scene, "high").await?;
    finishes(scene, "normal").await?;
    is_back(scene, "low").await?;
    scene.started("equal").await?;
    finishes(scene, "low").await?;
    finishes(scene, "equal").await
}
