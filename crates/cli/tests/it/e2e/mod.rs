//! The end-to-end suite: the same scenarios on the embedded API, with everything in this process, and
//! on a real API server, with everything in processes of its own.
//!
//! The real API server is used when `KUBEBUILDER_ASSETS` names its programs; `.ci/run` sets it.
//! `GANGWAY_SCENARIO=some_name` runs only the scenarios whose names contain that; several are separated by commas.

pub mod audit;
mod clock;
pub mod cluster;
mod doctor;
mod embedded;
mod kinds;
mod objects;
mod record;
mod report;
mod scenarios;
mod scene;
mod steps;
pub mod world;

use std::rc::Rc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;

use scenarios::{ALONE, CONFIGURED, Group, Lists, SCENARIOS, Scenario};
use scene::Scene;
use world::World;

/// Scenarios that run side by side: most of a scenario is waiting.
const AT_ONCE: usize = 4;

/// Scenarios end by their own patience; this ends a suite that hangs otherwise.
const SUITE_MAX: Duration = Duration::from_secs(12 * 60);

#[test]
fn embedded() {
    world::block_on(async {
        let (world, stack, serving) = embedded::start().await.expect("the embedded world starts");
        assert!(run_all(&world).await, "scenarios failed on {}", world.api);
        drop((world, serving));
        Rc::into_inner(stack).expect("no scenario is left").into_inner().stop().await;
    });
}

#[test]
fn cluster() {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        println!("end-to-end: skipped on a real API server: KUBEBUILDER_ASSETS is not set");
        return;
    }
    let cluster = cluster::Cluster::start().expect("the control plane starts");
    let passed = world::block_on(async {
        let world = cluster.open().await.expect("gangway's processes start on the control plane");
        run_all(&world).await
    });
    assert!(passed, "scenarios failed on a real API server\n{}", cluster.logs());
    let unused = audit::unused_rights(&cluster.directory().join("audit.log")).expect("the log of requests");
    println!("end-to-end: rights that no scenario has needed: {}", unused.join(", "));
    let missing = cluster.missing_rights();
    assert!(missing.is_empty(), "the installed rights are not enough:\n{}", missing.join("\n"));
}

/// Runs every scenario, says how each went, and whether all went well.
async fn run_all(world: &World) -> bool {
    let filter = std::env::var("GANGWAY_SCENARIO").unwrap_or_default();
    let is_chosen = |(name, _): &&Scenario| filter.split(',').any(|part| name.contains(part));
    let of = |lists: Lists| lists.iter().copied().flatten().filter(is_chosen);
    let configured = CONFIGURED.iter().flat_map(|group| of(group.scenarios));
    let chosen = of(SCENARIOS).chain(ALONE.iter().filter(is_chosen)).chain(configured).count();
    let together = |lists: Lists| {
        let chosen = of(lists).map(|scenario| run(world, scenario));
        futures::stream::iter(chosen).buffer_unordered(AT_ONCE).collect::<Vec<bool>>()
    };
    let outcomes = async {
        let mut outcomes = together(SCENARIOS).await;
        for scenario in ALONE.iter().filter(is_chosen) {
            outcomes.push(run(world, scenario).await);
        }
        for group in CONFIGURED.iter().filter(|group| of(group.scenarios).next().is_some()) {
            if !group.one_by_one {
                begin_anew(world, group).await;
                outcomes.extend(together(group.scenarios).await);
                continue;
            }
            for scenario in of(group.scenarios) {
                begin_anew(world, group).await;
                outcomes.push(run(world, scenario).await);
            }
        }
        outcomes
    };
    let outcomes = tokio::time::timeout(SUITE_MAX, outcomes).await;
    let outcomes = outcomes.unwrap_or_default();
    let failed = chosen - outcomes.iter().filter(|passed| **passed).count();
    if failed > 0 {
        println!("end-to-end: {failed} of {chosen} scenarios failed on {}", world.api);
    }
    println!("end-to-end: {} scenarios on {}", outcomes.len(), world.api);
    failed == 0
}

/// Starts the controller with the configuration of a group, and nothing for it to do.
async fn begin_anew(world: &World, group: &Group) {
    // What other scenarios left behind starts, or never will: where one starts at a time, that would be seen.
    remove_jobs(world).await;
    // A scenario that failed may have left no controller.
    let _ = world.controller.kill();
    let configured = world.controller.configure(group.config).and_then(|()| world.controller.start());
    if let Err(error) = configured {
        println!("FAIL  the controller cannot be started with a configuration: {error:#}");
    }
}

/// Deletes the Jobs of all scenarios so far.
async fn remove_jobs(world: &World) {
    let all: kube::Api<Job> = kube::Api::all(world.client.clone());
    for job in all.list(&Default::default()).await.into_iter().flatten() {
        let (Some(namespace), Some(name)) = (job.metadata.namespace, job.metadata.name) else { continue };
        let jobs: kube::Api<Job> = kube::Api::namespaced(world.client.clone(), &namespace);
        if let Err(error) = jobs.delete(&name, &kube::api::DeleteParams::background()).await {
            println!("Job {namespace}/{name} of an earlier scenario is left: {error}");
        }
    }
}

async fn run(world: &World, (name, play): &Scenario) -> bool {
    let began = Instant::now();
    let scene = match Scene::open(world, name).await {
        Ok(scene) => scene,
        Err(error) => {
            println!("FAIL  {name}: {}", report::explain(&error));
            return false;
        }
    };
    let result = play(&scene).await;
    let seconds = began.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("ok    {name:<48} {seconds:6.2} s"),
        Err(error) => {
            println!("FAIL  {name:<48} {seconds:6.2} s\n      {}", report::explain(error));
            println!("{}", report::describe(&scene).await);
        }
    }
    result.is_ok()
}
