//! Who has to leave for whom: quota that was lent and is taken back, and priority in a queue.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::e2e::audit::Write;
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
pub(super) async fn two_teams(scene: &Scene, more: &str) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    team(scene, "vision", more).await?;
    team(scene, "speech", &format!("preemption: {{reclaimWithinCohort: Any}}\n  {more}")).await
}

/// Waits until the ClusterQueue of a team uses so many CPUs, some of them borrowed.
pub(super) async fn uses(scene: &Scene, team: &str, total: &str, borrowed: &str) -> Result<()> {
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
pub(super) async fn has_left(scene: &Scene, victim: &str, preemptor: &str) -> Result<()> {
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
pub(super) async fn is_back(scene: &Scene, job: &str) -> Result<()> {
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

pub(super) async fn finishes(scene: &Scene, job: &str) -> Result<()> {
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

/// The victim is told, suspended, given its template back and released: four requests, none of them refused. A fifth says
/// what it waits for now; nobody waits for that one.
pub async fn eviction_takes_four_requests(scene: &Scene) -> Result<()> {
    scene.create(super::order::CLASSES).await?;
    scene.flavor("SCENE-standard").await?;
    scene
        .cluster_queue(&[("SCENE-standard", "1")], "preemption: {withinClusterQueue: LowerPriority}")
        .await?;
    scene.local_queue("main").await?;
    scene.submit_and_start(Job::new("victim")).await?;
    scene.running_pods("victim").await?;
    let workload = scene.workload("victim").await?;
    let writes = || -> Result<Option<[Vec<Write>; 2]>> {
        let about_job = scene.writes_of_controller(JOB, "victim")?;
        let about_workload = scene.writes_of_controller(WORKLOAD, name(&workload))?;
        Ok(about_job.zip(about_workload).map(|(job, workload)| [job, workload]))
    };
    let before = writes()?;
    scene.submit(Job::new("high").priority_class(&scene.own("high"))).await?;
    has_left(scene, "victim", "high").await?;
    scene.started("high").await?;
    scene.waits("victim", "WaitingForQuota").await?;
    if let (Some(before), Some(after)) = (before, writes()?) {
        let [of_job, of_workload] = [0, 1].map(|object| &after[object][before[object].len()..]);
        let counts = (of_job.len(), of_workload.len());
        ensure!(counts == (2, 2 + 1), "{of_job:#?} {of_workload:#?}");
        let refused = after.iter().flatten().find(|write| write.code >= 300);
        ensure!(refused.is_none(), "{refused:?}");
    }
    finishes(scene, "high").await?;
    is_back(scene, "victim").await?;
    finishes(scene, "victim").await
}

/// A row of the table: how the owner of quota may take it back, how its queue is ordered, the class of the borrower,
/// and whether the borrower has to leave.
type Row = (&'static str, &'static str, Option<&'static str>, bool);

const RECLAIM: &[Row] = &[
    ("Never", "BestEffortFIFO", None, false),
    ("Never", "StrictFIFO", None, false),
    ("Never", "BestEffortFIFO", Some("low"), false),
    ("Never", "StrictFIFO", Some("low"), false),
    ("LowerPriority", "BestEffortFIFO", None, false),
    ("LowerPriority", "StrictFIFO", None, false),
    ("LowerPriority", "BestEffortFIFO", Some("low"), true),
    ("LowerPriority", "StrictFIFO", Some("low"), true),
    ("Any", "BestEffortFIFO", None, true),
    ("Any", "StrictFIFO", None, true),
    ("Any", "BestEffortFIFO", Some("high"), true),
    ("Any", "StrictFIFO", Some("high"), true),
];

/// Three teams with a cohort of their own for each row: the owner with two CPUs, the borrower with two, which runs on
/// three, and a third team with one, which runs on that. One lies idle.
async fn borrower_runs(scene: &Scene, row: usize) -> Result<()> {
    let (reclaim, strategy, class, _) = RECLAIM[row];
    let policy = format!("queueingStrategy: {strategy}\n  preemption: {{reclaimWithinCohort: {reclaim}}}");
    for (team, cpu, more) in [("owner", "2", policy.as_str()), ("borrower", "2", ""), ("third", "1", "")] {
        let (name, queue) = (format!("SCENE-{row}-{team}"), format!("{team}-{row}"));
        let more = format!("namespaceSelector: {{}}\n  cohortName: SCENE-{row}\n  {more}");
        scene.cluster_queue_named(&name, &[("SCENE-standard", cpu)], &more).await?;
        scene.local_queue_of(&queue, &name).await?;
    }
    let borrower = format!("borrower-{row}");
    let job = Job::new(&borrower).queue(&borrower).cpu("3");
    let job = class.map(|class| scene.own(class)).iter().fold(job, |job, class| job.priority_class(class));
    scene.submit_and_start(job).await?;
    let its_own = Job::new(&format!("its-own-{row}")).queue(&format!("third-{row}"));
    scene.submit_and_start(its_own).await.map(|_| ())
}

/// Nobody borrows what its owner waits for. Where the owner may take quota back it does not wait, and nothing is kept.
pub async fn nobody_borrows_what_its_owner_waits_for(scene: &Scene) -> Result<()> {
    scene.create(super::order::CLASSES).await?;
    scene.flavor("SCENE-standard").await?;
    for row in 0..RECLAIM.len() {
        borrower_runs(scene, row).await?;
        let owner = format!("owner-{row}");
        scene.submit(Job::new(&owner).queue(&owner).cpu("2")).await?;
    }
    for (row, (.., is_taken_back)) in RECLAIM.iter().enumerate() {
        let owner = format!("owner-{row}");
        if *is_taken_back {
            scene.started(&owner).await?;
        } else {
            scene.waits(&owner, "WaitingForQuota").await?;
        }
        let borrowed = Job::new(&format!("borrowed-{row}")).queue(&format!("third-{row}"));
        scene.submit(borrowed).await?;
    }
    for (row, (reclaim, strategy, class, is_taken_back)) in RECLAIM.iter().enumerate() {
        let [owner, borrower, borrowed] =
            ["owner", "borrower", "borrowed"].map(|name| format!("{name}-{row}"));
        let what = format!("{reclaim}, {strategy}, the borrower's class {class:?}");
        if *is_taken_back {
            scene.started(&borrowed).await.with_context(|| what.clone())?;
            has_left(scene, &borrower, &owner).await.with_context(|| what)?;
            continue;
        }
        scene.waits(&borrowed, "WaitingForQuota").await.with_context(|| what.clone())?;
        scene.later().await?;
        scene.not_started(&borrowed).await.with_context(|| what.clone())?;
        scene.not_started(&owner).await.with_context(|| what.clone())?;
        finishes(scene, &borrower).await?;
        scene.started(&owner).await.with_context(|| what.clone())?;
        scene.started(&borrowed).await.with_context(|| what)?;
    }
    Ok(())
}
