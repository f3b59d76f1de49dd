//! Pods that have to be ready in time, through the API: what that costs, and that it is counted once each.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use gangway_api::config::Configuration;
use gangway_api::kueue::Workload;
use gangway_controller::workloads::{Explained, Snapshot};
use gangway_model::readiness::WaitForPodsReady;
use http::{Method, Request};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::connection::{Connection, Fault};
use crate::world::{World, condition, until};

async fn world_with(settings: WaitForPodsReady) -> World {
    let mut world = World::new().await;
    world.config = Configuration { wait_for_pods_ready: Some(settings), ..Configuration::default() };
    world
}

fn settings() -> WaitForPodsReady {
    WaitForPodsReady {
        timeout_seconds: 30,
        backoff_base_seconds: 20,
        block_admission: false,
        ..WaitForPodsReady::default()
    }
}

/// How often the only Workload was sent back.
fn retries(workload: &Workload) -> i32 {
    let state = workload.status.as_ref().and_then(|status| status.requeue_state.as_ref());
    state.and_then(|state| state.count).unwrap_or(0)
}

fn has_left(workload: &Workload) -> bool {
    retries(workload) == 1 && condition(workload, "QuotaReserved").is_none()
}

fn is_write(request: &Request<Body>) -> bool {
    *request.method() != Method::GET
}

#[tokio::test(start_paused = true)]
async fn a_timeout_and_the_return_to_the_queue_take_four_decisions() {
    let world = world_with(settings()).await;
    let connection = Connection::new(&world.server, is_write, |_| Fault::None);
    let story = async {
        world.submit("a").await;
        world.a_pod_runs().await;
        let before = world.counts().decisions;
        assert_eq!(before, 3, "its Workload, its admission, its start");
        until("it has left", world.workloads(), |all| all.values().any(has_left)).await;
        assert_eq!(world.counts().decisions, before + 4, "told, suspended, restored, released");
        let runs = |job: &Job| job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(false));
        until("it is back", world.jobs(), |jobs| jobs.values().any(runs)).await;
        assert_eq!(
            world.counts().decisions,
            before + 4 + 2,
            "that its backoff is over rides with its admission"
        );
    };
    tokio::select! {
        () = world.controller(connection.client()).boxed_local() => {}
        () = world.cluster() => {}
        () = story => {}
    }
    let counts = world.counts();
    assert_eq!((counts.conflicts, counts.rejected, counts.retried), (0, 0, 0), "{counts:?}");
    assert_eq!(world.metric("kueue_evicted_workloads_total"), [evicted("total", 1)]);
    assert_eq!(world.metric("kueue_evicted_workloads_once_total"), [evicted("once_total", 1)]);
    let requeued = r#"gangway_requeued_workloads_total{cluster_queue="cq",reason="BackoffFinished"} 1"#;
    assert_eq!(world.metric("gangway_requeued_workloads_total"), [requeued]);
}

fn evicted(which: &str, count: usize) -> String {
    let labels =
        r#"cluster_queue="cq",reason="PodsReadyTimeout",underlying_cause="WaitForStart",priority_class="""#;
    format!("kueue_evicted_workloads_{which}{{{labels}}} {count}")
}

#[tokio::test(start_paused = true)]
async fn readiness_adds_one_decision_to_a_life() {
    let world = world_with(settings()).await;
    let story = async {
        world.submit("a").await;
        world.a_pod_runs().await;
        for pod in world.pods().list(&Default::default()).await.expect("a list") {
            let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            let patch = Patch::Merge(ready);
            world.pods().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await.expect("ready");
        }
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
    for measured in ["ready_wait_time", "admitted_until_ready_wait_time"] {
        let once = format!(r#"kueue_{measured}_seconds_count{{cluster_queue="cq",priority_class=""}} 1"#);
        assert_eq!(world.metric(&format!("kueue_{measured}_seconds_count")), [once]);
    }
}

/// Five hundred whose time is over in the same second, with writes that take their time: each is told once.
#[tokio::test(start_paused = true)]
async fn many_timeouts_at_once_are_told_once_each_and_not_all_at_the_same_time() {
    const MANY: usize = 500;
    let world = world_with(WaitForPodsReady { backoff_base_seconds: 3600, ..settings() }).await;
    let quota = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": MANY.to_string()}]});
    world.change_queue(json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]})).await;
    let connection = Connection::new(&world.server, is_write, |_| Fault::Slow);
    let story = async {
        for number in 0..MANY {
            world.submit(&format!("job-{number}")).await;
        }
        let all_left =
            |all: &BTreeMap<String, Workload>| all.values().filter(|w| has_left(w)).count() == MANY;
        until("all have left", world.workloads(), all_left).await;
    };
    tokio::select! {
        () = world.controller(connection.client()).boxed_local() => {}
        () = world.cluster() => {}
        () = story => {}
    }
    assert_eq!(world.metric("kueue_evicted_workloads_total"), [evicted("total", MANY)]);
    let most = connection.most_on_the_way();
    assert!(most <= 256 + 16, "the lanes let at most so many go at a time, not {most}");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_that_is_longer_than_the_queue_allows_is_told_once() {
    let world = world_with(settings()).await;
    let story = async {
        let job = world.submit("a").await;
        let wish = json!({"metadata": {"annotations": {"gangway.dev/pods-ready-timeout": "1h"}}});
        world
            .jobs()
            .patch(&job.name_any(), &PatchParams::default(), &Patch::Merge(wish))
            .await
            .expect("a wish");
        until("it has left", world.workloads(), |all| all.values().any(has_left)).await;
    };
    tokio::select! {
        () = world.controller(world.server.client()).boxed_local() => {}
        () = world.cluster() => {}
        () = story => {}
    }
    let events: Api<Event> = Api::default_namespaced(world.server.client());
    let events = events.list(&Default::default()).await.expect("a list");
    let told: Vec<_> =
        events.iter().filter(|event| event.reason.as_deref() == Some("UnsupportedSetting")).collect();
    let message = "Cannot be used as it is: metadata.annotations[gangway.dev/pods-ready-timeout]: asks for 3600 s, and the \
                   queue allows 30 s, which hold";
    assert_eq!(told.iter().map(|event| event.message.as_deref()).collect::<Vec<_>>(), [Some(message)]);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_knows_that_one_starts_at_a_time() {
    let world = world_with(WaitForPodsReady { block_admission: true, ..settings() }).await;
    let quota = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": "2"}]});
    world.change_queue(json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]})).await;
    let starts = |w: &Workload| condition(w, "Admitted").is_some();
    let story = async {
        world.submit("first").await;
        until("it starts", world.workloads(), |all| all.values().any(starts)).await;
        world.submit("second").await;
        until("there are two", world.workloads(), |all| all.len() == 2).await;
    };
    tokio::select! {
        () = world.controller(world.server.client()).boxed_local() => {}
        () = story => {}
    }
    let client = world.server.client_named("snapshot");
    let snapshot = Snapshot::read(client, Arc::clone(&world.clock), &world.config).await.expect("a snapshot");
    let Explained::Workload(told) = snapshot.explain_job("default", "second") else { panic!("a Workload") };
    assert_eq!(told.situation.as_str(), "WaitingForPodsReady", "{told:?}");
}
