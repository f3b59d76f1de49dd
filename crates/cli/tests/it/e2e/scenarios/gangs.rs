//! Several Jobs of which each needs all its pods at once, and one starts at a time or all do.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::commands::answers;
use super::preemption::finishes;
use super::readiness::{
    SEQUENTIAL, evictions, flavor_with_nodes, node_comes, node_serves, queue_without_nodes, retries,
};
use crate::e2e::kinds::POD;
use crate::e2e::objects::{Job, changed_at, condition, name};
use crate::e2e::scene::Scene;
use crate::e2e::steps::pods_of;

/// Machines that are not there for anybody else. Each has 1000 CPUs, of which small pods of others may use a few.
const MACHINES: [&str; 2] = ["late-1", "late-2"];
const FLAVORS: [&str; 2] = ["one", "two"];

/// Quota for two gangs, and machines for one. Each machine serves another flavor, as if one were made for each gang.
async fn machines_for_one_gang(scene: &Scene, timeout: &str) -> Result<()> {
    for (machine, flavor) in MACHINES.into_iter().zip(FLAVORS) {
        flavor_with_nodes(scene, flavor).await?;
        node_serves(scene, machine, flavor, true).await?;
    }
    let timeout = format!("waitForPodsReady: {{timeout: {timeout}}}");
    scene.cluster_queue(&[("SCENE-one", "1200"), ("SCENE-two", "1200")], &timeout).await?;
    scene.local_queue("main").await
}

/// Two pods, of which a machine holds one.
fn gang(name: &str) -> Job {
    Job::new(name).pods(2).cpu("600")
}

/// Waits until so many of the two pods of a gang run, and the others have been made.
async fn runs_with(scene: &Scene, gang: &str, running: usize) -> Result<()> {
    let what = format!("{running} of the two pods of {gang} run");
    scene
        .until(POD, &what, |pods| {
            let pods = pods_of(pods, gang);
            let run = pods.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
            (pods.len() == 2 && run == running).then_some(())
        })
        .await
}

/// Every machine serves every gang from now on, or none does.
async fn machines_serve_all(scene: &Scene, serve: bool) -> Result<()> {
    for machine in MACHINES {
        for flavor in FLAVORS {
            node_serves(scene, machine, flavor, serve).await?;
        }
    }
    Ok(())
}

/// Both start, and each has half of the machines: neither is ever ready, and both are sent back.
pub async fn two_gangs_at_once_stall(scene: &Scene) -> Result<()> {
    machines_for_one_gang(scene, "8s").await?;
    // Their pods stay when they are told to go, so that the first that leaves makes no room for the other.
    for name in ["a", "b"] {
        scene.submit(gang(name).stuck()).await?;
    }
    for name in ["a", "b"] {
        scene.workload_has(name, ("Admitted", "True", "Admitted")).await?;
        runs_with(scene, name, 1).await?;
    }
    machines_serve_all(scene, true).await?;
    for name in ["a", "b"] {
        let evicted = scene.workload_has(name, ("Evicted", "True", "PodsReadyTimeout")).await?;
        let once = json!([{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForStart", "count": 1}]);
        ensure!(*evictions(&evicted) == once && retries(&evicted) == 1, "it was never ready: {evicted}");
    }
    machines_serve_all(scene, false).await?;
    for name in ["a", "b"] {
        scene.end_stuck_pods(name).await?;
    }
    Ok(())
}

/// The same gangs and machines where one starts at a time: both finish, one after the other, and nobody is sent back.
pub async fn two_gangs_one_after_the_other(scene: &Scene) -> Result<()> {
    machines_for_one_gang(scene, "1h").await?;
    scene.submit(gang("a")).await?;
    runs_with(scene, "a", 1).await?;
    scene.submit(gang("b")).await?;
    scene.waits("b", "WaitingForPodsReady").await?;

    machines_serve_all(scene, true).await?;
    let first = scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    let second = scene.workload_has("b", ("PodsReady", "False", "WaitForStart")).await?;
    ensure!(changed_at(&first, "PodsReady")? <= changed_at(&second, "Admitted")?, "{first} {second}");
    runs_with(scene, "b", 0).await?;
    finishes(scene, "a").await?;
    scene.workload_has("b", ("PodsReady", "True", "Started")).await?;
    finishes(scene, "b").await?;
    for name in ["a", "b"] {
        let done = scene.workload(name).await?;
        ensure!(evictions(&done).is_null() && done["status"]["requeueState"].is_null(), "{done}");
    }
    Ok(())
}

/// What `explain` says of a Job when it knows how the controller is configured.
async fn explains_with_config(scene: &Scene, job: &str) -> Result<Value> {
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(&file, SEQUENTIAL)?;
    answers(scene, &format!("explain job/{job} --config {}", file.path().display())).await
}

/// KEP-349: no workloads are admitted if there is already an admitted workload which is not in the `PodsReady` condition. That
/// holds in all queues, and for a controller that has just begun.
pub async fn nobody_is_admitted_while_one_is_not_ready(scene: &Scene) -> Result<()> {
    queue_without_nodes(scene, "3", "{timeout: 1h}").await?;
    scene.flavor("SCENE-standard").await?;
    scene.cluster_queue_named("SCENE-other", &[("SCENE-standard", "3")], "namespaceSelector: {}").await?;
    scene.local_queue_of("other", "SCENE-other").await?;
    scene.submit(Job::new("a")).await?;
    let starts = scene.workload_has("a", ("PodsReady", "False", "WaitForStart")).await?;
    scene.submit(Job::new("b").queue("other")).await?;
    scene.submit(Job::new("c")).await?;
    for job in ["b", "c"] {
        let waits = scene.waits(job, "WaitingForPodsReady").await?;
        let message = condition(&waits, "QuotaReserved").message;
        ensure!(message.contains(name(&starts)), "it says who starts: {message}");
    }
    scene.controller().restart()?;
    scene.submit(Job::new("d").queue("other")).await?;
    scene.waits("d", "WaitingForPodsReady").await?;
    for job in ["b", "c"] {
        scene.not_started(job).await?;
    }
    let told = explains_with_config(scene, "d").await?;
    ensure!(told["situation"] == "WaitingForPodsReady", "{told}");
    ensure!(told["message"].as_str().is_some_and(|message| message.contains(name(&starts))), "{told}");

    node_comes(scene, true).await?;
    let started = scene.workload_has("a", ("PodsReady", "True", "Started")).await?;
    for job in ["b", "c", "d"] {
        let admitted = scene.workload_has(job, ("PodsReady", "True", "Started")).await?;
        ensure!(changed_at(&started, "PodsReady")? <= changed_at(&admitted, "Admitted")?, "{admitted}");
    }
    Ok(())
}

/// KEP-349: a workload gets admitted if all other admitted workloads are in the `PodsReady` condition. Who has been ready and
/// lost a pod does not hold up anybody.
pub async fn admitted_when_all_others_are_ready(scene: &Scene) -> Result<()> {
    scene.queue("3").await?;
    for job in ["a", "b"] {
        scene.submit_and_start(Job::new(job)).await?;
        scene.workload_has(job, ("PodsReady", "True", "Started")).await?;
    }
    for pod in scene.running_pods("a").await? {
        scene.unready_pod(&pod).await?;
    }
    scene.workload_has("a", ("PodsReady", "False", "WaitForRecovery")).await?;
    scene.submit_and_start(Job::new("c")).await?;
    let ready = |workload: &Value| condition(workload, "PodsReady").is("True", "Started");
    scene.workload_that("c", "is ready", ready).await?;
    for job in ["a", "b", "c"] {
        finishes(scene, job).await?;
    }
    Ok(())
}
