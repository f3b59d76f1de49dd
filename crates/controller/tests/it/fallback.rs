//! Falling back through the API: what it costs, and that nothing is forgotten or done twice wherever a controller dies.

use std::collections::BTreeMap;

use futures::FutureExt;
use gangway_api::kueue::{ResourceFlavor, Workload};
use http::{Method, Request};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::connection::{Connection, Fault};
use crate::world::{World, condition, create, until};

fn is_write(request: &Request<Body>) -> bool {
    *request.method() != Method::GET
}

/// A queue with so many CPUs of `default` and of `next`; the first may take half a minute, the other for ever.
async fn world_that_falls_back(cpus: usize) -> World {
    let world = World::new().await;
    let flavors: Api<ResourceFlavor> = Api::all(world.server.client());
    create(&flavors, json!({"metadata": {"name": "next"}, "spec": {"nodeLabels": {"pool": "next"}}})).await;
    let quota = |flavor: &str| json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpus.to_string()}]});
    let groups = json!([{"coveredResources": ["cpu"], "flavors": [quota("default"), quota("next")]}]);
    let strategy = json!({"rules": [{"name": "default", "timeout": "30s"}]});
    let fungibility = json!({"fallbackStrategy": strategy});
    world.change_queue(json!({"resourceGroups": groups, "flavorFungibility": fungibility})).await;
    world
}

fn flavor(workload: &Workload) -> Option<&str> {
    let admission = workload.status.as_ref()?.admission.as_ref()?;
    admission.pod_set_assignments.first()?.flavors.get("cpu").map(String::as_str)
}

fn fell_back(workload: &Workload) -> bool {
    flavor(workload) == Some("next") && condition(workload, "Admitted").is_some()
}

fn evictions(workload: &Workload) -> Value {
    let stats = workload.status.as_ref().and_then(|status| status.scheduling_stats.as_ref());
    json!(stats.map(|stats| &stats.evictions))
}

fn once() -> Value {
    json!([{"reason": "FlavorFallback", "underlyingCause": "TimeoutForPodsReadyExceeded", "count": 1}])
}

fn runs(job: &Job) -> bool {
    job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(false))
}

async fn pods_are_ready(world: &World) {
    for pod in world.pods().list(&ListParams::default()).await.expect("a list") {
        let ready = Patch::Merge(json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        world.pods().patch_status(&pod.name_any(), &PatchParams::default(), &ready).await.expect("ready");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_in_time_costs_one_decision_more() {
    let world = world_that_falls_back(1).await;
    let story = async {
        world.submit("a").await;
        world.a_pod_runs().await;
        pods_are_ready(&world).await;
        let is_ready = |w: &Workload| condition(w, "PodsReady") == Some("Started");
        until("it is ready", world.workloads(), |all| all.values().any(is_ready)).await;
        world.let_pods_finish();
        world.complete(1).await;
        world.finished(1).await;
    };
    tokio::select! {
        () = world.controller(world.server.client()).boxed_local() => {}
        () = world.cluster() => {}
        () = story => {}
    }
    assert_eq!(world.counts().decisions, 4 + 1, "{:?}", world.counts());
}

#[tokio::test(start_paused = true)]
async fn a_fallback_takes_four_decisions_and_is_counted_by_its_cause() {
    let world = world_that_falls_back(1).await;
    let story = async {
        world.submit("a").await;
        world.a_pod_runs().await;
        let before = world.counts().decisions;
        until("it has fallen back", world.workloads(), |all| all.values().any(fell_back)).await;
        until("it runs again", world.jobs(), |jobs| jobs.values().any(runs)).await;
        // Told, suspended, restored, released; then admitted and started as ever.
        assert_eq!(world.counts().decisions, before + 4 + 2, "{:?}", world.counts());
    };
    tokio::select! {
        () = world.controller(world.server.client()).boxed_local() => {}
        () = world.cluster() => {}
        () = story => {}
    }
    let counts = world.counts();
    assert_eq!((counts.conflicts, counts.rejected, counts.retried), (0, 0, 0), "{counts:?}");
    let labels = r#"cluster_queue="cq",reason="FlavorFallback",underlying_cause="TimeoutForPodsReadyExceeded",priority_class="""#;
    let counted = format!("kueue_evicted_workloads_total{{{labels}}} 1");
    assert_eq!(world.metric("kueue_evicted_workloads_total"), [counted]);
}

/// One Job falls back. Returns how many writes that took.
async fn falls_back(fault_of: impl Fn(usize) -> Fault + Send + Sync + 'static) -> usize {
    let world = world_that_falls_back(1).await;
    let first = Connection::new(&world.server, is_write, fault_of);
    let life = async {
        tokio::select! {
            () = world.controller(first.client()).boxed_local() => {}
            () = first.cut.notified() => {}
        }
        world.controller(world.server.client()).boxed_local().await;
    };
    let story = async {
        world.submit("a").await;
        until("it has fallen back", world.workloads(), |all| all.values().any(fell_back)).await;
        until("it runs again", world.jobs(), |jobs| jobs.values().any(runs)).await;
    };
    tokio::select! {
        () = life => {}
        () = world.cluster() => {}
        () = story => {}
    }
    let all = world.workloads().list(&ListParams::default()).await.expect("a list").items;
    let [workload] = all.as_slice() else { panic!("one Workload: {all:?}") };
    assert_eq!(evictions(workload), once(), "neither lost nor counted twice");
    let history = &workload.status.as_ref().expect("a status").flavor_assignment_history;
    let tried: Vec<_> =
        history.iter().map(|entry| (entry.resource_flavor.as_str(), entry.exhausted)).collect();
    assert_eq!(tried, [("default", Some(true)), ("next", Some(false))]);
    assert!((30..40).contains(&history[0].accumulated_seconds.unwrap_or(0)), "{history:?}");
    first.counted()
}

#[tokio::test(start_paused = true)]
async fn a_controller_killed_between_any_two_writes_forgets_nothing_and_counts_nothing_twice() {
    let writes = falls_back(|_| Fault::None).boxed_local().await;
    assert!(writes >= 9, "{writes} writes");
    for nth in 0..writes {
        for fault in [Fault::CutOff, Fault::CutOffAfter] {
            println!("write {nth}: {fault:?}"); // shown only if it fails
            falls_back(move |n| if n >= nth { fault } else { Fault::None }).boxed_local().await;
        }
    }
}

/// A thousand on a flavor that is out of stock, with writes that take their time: each falls back once.
#[tokio::test(start_paused = true)]
async fn a_thousand_on_a_flavor_out_of_stock_fall_back_once_each() {
    const MANY: usize = 1000;
    let world = world_that_falls_back(MANY).await;
    let connection = Connection::new(&world.server, is_write, |_| Fault::Slow);
    let story = async {
        for number in 0..MANY {
            world.submit(&format!("job-{number}")).await;
        }
        let all_fell_back =
            |all: &BTreeMap<String, Workload>| all.values().filter(|w| fell_back(w)).count() == MANY;
        until("all have fallen back", world.workloads(), all_fell_back).await;
    };
    tokio::select! {
        () = world.controller(connection.client()).boxed_local() => {}
        () = world.cluster() => {}
        () = story => {}
    }
    let all = world.workloads().list(&ListParams::default()).await.expect("a list");
    assert!(all.iter().all(|workload| evictions(workload) == once()), "one eviction each");
}
