//! Cohorts: quota that several queues share, mistakes in it, and quota that is lowered under use.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::e2e::kinds::{CLUSTER_QUEUE, COHORT, JOB};
use crate::e2e::objects::{Job, condition};
use crate::e2e::scene::Scene;

/// Two CPUs for everybody, and below them a cohort of its own for team a. What team b does not use stays its own.
const TREE: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: SCENE-root}
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: SCENE-standard, resources: [{name: cpu, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: SCENE-left}
spec: {parentName: SCENE-root}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: SCENE-b}
spec:
  namespaceSelector: {}
  cohortName: SCENE-root
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: SCENE-standard, resources: [{name: cpu, nominalQuota: 1, lendingLimit: 0}]}]
";

pub async fn cohort_with_quota_of_its_own(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    scene.create(TREE).await?;
    let more = "namespaceSelector: {}\n  cohortName: SCENE-left";
    scene.cluster_queue_named("SCENE-a", &[("SCENE-standard", "1")], more).await?;
    scene.local_queue_of("a", "SCENE-a").await?;
    scene.local_queue_of("b", "SCENE-b").await?;

    scene.submit_and_start(Job::new("own").queue("a")).await?;
    scene.submit_and_start(Job::new("shared").queue("a").cpu("2")).await?;
    scene.submit(Job::new("waiting").queue("a")).await?;
    scene.waits("waiting", "WaitingForQuota").await?;
    scene.submit(Job::new("too-large").queue("a").cpu("4")).await?;
    scene.waits("too-large", "ExceedsMaxQuota").await?;
    scene.submit_and_start(Job::new("kept").queue("b")).await?;

    scene.set_quota_of(COHORT, &scene.own("root"), "SCENE-standard", "3").await?;
    scene.started("waiting").await?;
    scene.waits("too-large", "WaitingForQuota").await?;
    for job in ["own", "shared", "waiting"] {
        scene.succeed(job).await?;
    }
    scene.started("too-large").await?;
    scene.succeed("too-large").await?;
    scene.succeed("kept").await
}

pub async fn cohort_cycle_and_its_end(scene: &Scene) -> Result<()> {
    scene.flavor("SCENE-standard").await?;
    scene
        .create(
            "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: SCENE-upper}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: SCENE-lower}
spec: {parentName: SCENE-upper}
",
        )
        .await?;
    scene.cluster_queue(&[("SCENE-standard", "2")], "cohortName: SCENE-lower").await?;
    scene.local_queue("main").await?;
    scene.submit_and_start(Job::new("a")).await?;

    let parent = |name: Option<String>| json!({ "spec": { "parentName": name } });
    scene.patch(COHORT, &scene.own("upper"), parent(Some(scene.own("lower")))).await?;
    let queue = scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "False", "CohortCycle")).await?;
    let message = condition(&queue, "Active").message;
    ensure!(message.contains(&scene.own("lower")), "the message names the cohort: {message}");
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "Suspended").await?;

    // Others go on meanwhile, and so does what runs.
    scene.later().await?;
    scene.waits("b", "Suspended").await?;
    scene.succeed("a").await?;
    scene.workload_has("a", ("Finished", "True", "Succeeded")).await?;

    scene.patch(COHORT, &scene.own("upper"), parent(None)).await?;
    scene.has_condition(CLUSTER_QUEUE, scene.name(), ("Active", "True", "Ready")).await?;
    scene.started("b").await?;
    scene.succeed("b").await
}

pub async fn quota_lowered_under_use(scene: &Scene) -> Result<()> {
    scene.queue("3").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.submit_and_start(Job::new("b")).await?;
    scene.set_quota("SCENE-standard", "1").await?;
    scene.submit(Job::new("c")).await?;
    let waiting = scene.waits("c", "WaitingForQuota").await?;
    let message = condition(&waiting, "QuotaReserved").message;
    ensure!(message.contains('1'), "the message says how much there is: {message}");

    // Nobody is thrown out, and others go on.
    scene.later().await?;
    for job in ["a", "b"] {
        ensure!(scene.get(JOB, job).await?["spec"]["suspend"] == false, "Job {job} goes on");
        ensure!(!scene.running_pods(job).await?.is_empty(), "Job {job} has pods");
    }
    // One CPU is in use, and that is all there is.
    scene.succeed("a").await?;
    scene.workload_has("a", ("Finished", "True", "Succeeded")).await?;
    scene.later().await?;
    scene.waits("c", "WaitingForQuota").await?;
    scene.succeed("b").await?;
    scene.started("c").await?;
    scene.succeed("c").await
}
