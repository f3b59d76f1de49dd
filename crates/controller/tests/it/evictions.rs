//! Evictions through the API: what they cost, and that they are told and counted once each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use gangway_api::kueue::{Workload, WorkloadPriorityClass};
use gangway_controller::workloads::Counts;
use http::{Method, Request};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event;
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::connection::{Connection, Fault};
use crate::world::{World, condition, create, until, workload_of};

fn is_workload_status(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    *request.method() == Method::PATCH && path.contains("/workloads/") && path.ends_with("/status")
}

/// A queue in which a Job of a higher priority takes the place of one that runs.
async fn world_with_priorities() -> World {
    let world = World::new().await;
    world.change_queue(json!({"preemption": {"withinClusterQueue": "LowerPriority"}})).await;
    let classes: Api<WorkloadPriorityClass> = Api::all(world.server.client());
    create(&classes, json!({"metadata": {"name": "high"}, "value": 10})).await;
    world
}

fn is_admitted(job: &str, workloads: &BTreeMap<String, Workload>) -> bool {
    let holds = |w: &Workload| condition(w, "Admitted").is_some() && condition(w, "Evicted").is_none();
    workload_of(job, workloads).is_some_and(holds)
}

/// What became of a preemption.
struct Told {
    /// Decisions from the preemptor's creation to its start.
    decisions: u64,
    /// What was asked of the API in all.
    counts: Counts,
    /// What was counted of evictions, and of what came after them.
    evictions: Vec<String>,
    /// Reason, object and message of every Event about an eviction, in order of the reasons.
    events: Vec<(String, String, String)>,
    /// How many status writes there were.
    writes: usize,
}

/// One Job runs, another of a higher priority takes its place, and both complete.
fn preemption(fault_of: impl Fn(usize) -> Fault + Send + Sync + 'static) -> LocalBoxFuture<'static, Told> {
    async move {
        let world = world_with_priorities().await;
        let connection = Connection::new(&world.server, is_workload_status, fault_of);
        let mut decisions = 0;
        let story = async {
            world.submit("low").await;
            world.a_pod_runs().await;
            let before = world.counts().decisions;
            let labels = json!({"kueue.x-k8s.io/queue-name": "lq", "kueue.x-k8s.io/priority-class": "high"});
            world.submit_with("high", labels).await;
            until("the preemptor is admitted", world.workloads(), |all| is_admitted("high", all)).await;
            let runs = |job: &Job| job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(false));
            until("it starts", world.jobs(), |jobs| jobs.get("high").is_some_and(runs)).await;
            decisions = world.counts().decisions - before;
            world.let_pods_finish();
            world.complete(2).await;
            world.finished(2).await;
            until("all is told", events_of(&world), |all| about_evictions(all).len() >= 4).await;
        };
        tokio::select! {
            () = world.controller(connection.client()).boxed_local() => {}
            () = world.cluster() => {}
            () = story => {}
        }
        let events = events_of(&world).list(&ListParams::default()).await.expect("a list");
        let events = events.into_iter().map(|event| (event.name_any(), event)).collect();
        let (counts, writes) = (world.counts(), connection.counted());
        let metrics = [
            "kueue_evicted_workloads_total",
            "kueue_evicted_workloads_once_total",
            "kueue_preempted_workloads_total",
            "kueue_workload_eviction_latency_seconds_count",
            "gangway_requeued_workloads_total",
        ];
        let evictions = metrics.iter().flat_map(|name| world.metric(name)).collect();
        Told { decisions, counts, evictions, events: about_evictions(&events), writes }
    }
    .boxed_local()
}

fn events_of(world: &World) -> Api<Event> {
    Api::default_namespaced(world.server.client())
}

fn about_evictions(events: &BTreeMap<String, Event>) -> Vec<(String, String, String)> {
    let told = events.values().filter_map(|event| {
        let reason = event.reason.clone()?;
        let is_told = reason.contains("Preempted") || reason == "Stopped";
        let about =
            format!("{} {}", event.involved_object.kind.as_ref()?, event.involved_object.name.as_ref()?);
        is_told.then(|| (reason, about, event.message.clone().unwrap_or_default()))
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

#[tokio::test(start_paused = true)]
async fn an_eviction_takes_four_decisions_none_of_them_refused() {
    let Told { decisions, counts, .. } = preemption(|_| Fault::None).await;
    // The preemptor: its Workload, its admission, its start. The victim: told, suspended, restored, released.
    assert_eq!(decisions, 3 + 4, "{counts:?}");
    assert_eq!((counts.conflicts, counts.rejected, counts.retried), (0, 0, 0), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_concerned_by_a_preemption_is_told_in_words() {
    let Told { events, .. } = preemption(|_| Fault::None).await;
    let reasons: Vec<&str> = events.iter().map(|(reason, ..)| reason.as_str()).collect();
    assert_eq!(reasons, ["EvictedDueToPreempted", "Preempted", "PreemptedWorkload", "Stopped"]);
    let right = "A Workload of the same ClusterQueue with a higher priority, or of the same and older, needs its quota.";
    for (reason, about, message) in &events {
        let (concerned, names) = match reason.as_str() {
            "PreemptedWorkload" => ("Workload job-high-", "Preempts Workload default/job-low-"),
            "Stopped" => ("Job low", "Preempted for Workload default/job-high-"),
            _ => ("Workload job-low-", "Preempted for Workload default/job-high-"),
        };
        assert!(about.starts_with(concerned), "{reason} is about {about}");
        assert!(message.starts_with(names) && message.ends_with(right), "{reason}: {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn evictions_are_counted_by_queue_and_reason() {
    let counted = preemption(|_| Fault::None).await.evictions;
    let preempted = r#"{cluster_queue="cq",reason="Preempted",underlying_cause="",priority_class=""} 1"#;
    let expected = [
        format!("kueue_evicted_workloads_total{preempted}"),
        format!("kueue_evicted_workloads_once_total{preempted}"),
        r#"kueue_preempted_workloads_total{preempting_cluster_queue="cq",reason="InClusterQueue"} 1"#
            .to_owned(),
        r#"kueue_workload_eviction_latency_seconds_count{cluster_queue="cq",reason="Preempted"} 1"#
            .to_owned(),
        r#"gangway_requeued_workloads_total{cluster_queue="cq",reason="Preempted"} 1"#.to_owned(),
    ];
    assert_eq!(counted, expected);
}

#[tokio::test(start_paused = true)]
async fn an_eviction_is_told_and_counted_once_whatever_answer_is_lost() {
    let plain = preemption(|_| Fault::None).await;
    for nth in 0..plain.writes {
        for fault in [Fault::Lost, Fault::AnswerLost] {
            println!("status write {nth}: {fault:?}"); // shown only if it fails
            let told = preemption(move |n| if n == nth { fault } else { Fault::None }).await;
            let reasons = |told: &Told| told.events.iter().map(|e| e.0.clone()).collect::<Vec<_>>();
            assert_eq!(reasons(&told), reasons(&plain));
            assert_eq!(told.evictions, plain.evictions);
        }
    }
}

/// Keeps the pods from going, or lets them go.
async fn hold_pods(world: &World, finalizers: Value) {
    for pod in world.pods().list(&ListParams::default()).await.expect("a list") {
        let held = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        world.pods().patch(&pod.name_any(), &PatchParams::default(), &held).await.expect("a changed pod");
    }
}

fn is_overdue(all: &BTreeMap<String, Workload>) -> bool {
    all.values().any(|workload| condition(workload, "EvictionOverdue").is_some())
}

/// A Job whose pod does not go is drained; the controller ends after so long, and another begins. Then the pod goes.
async fn stuck(first_life: Duration) -> World {
    let world = World::new().await;
    let held = Arc::new(Notify::new());
    let life = async {
        tokio::select! {
            () = world.controller(world.server.client()).boxed_local() => {}
            () = async { held.notified().await; tokio::time::sleep(first_life).await } => {}
        }
        world.controller(world.server.client()).boxed_local().await;
    };
    let story = async {
        world.submit("stuck").await;
        world.a_pod_runs().await;
        hold_pods(&world, json!(["example.com/stuck"])).await;
        world.set_stop_policy("HoldAndDrain").await;
        until("it has to leave", world.workloads(), |all| {
            all.values().any(|w| condition(w, "Evicted").is_some())
        })
        .await;
        held.notify_one();
        tokio::time::sleep(Duration::from_secs(590)).await;
        let all = world.workloads().list(&ListParams::default()).await.expect("a list").items;
        assert!(all.iter().all(|w| condition(w, "EvictionOverdue").is_none()), "it has ten minutes");
        until("it is late", world.workloads(), is_overdue).await;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let all = world.workloads().list(&ListParams::default()).await.expect("a list").items;
        assert!(all.iter().all(|w| condition(w, "QuotaReserved").is_some()), "its quota counts");
        hold_pods(&world, json!(null)).await;
        let left = |w: &Workload| condition(w, "QuotaReserved").is_none();
        until("it has left", world.workloads(), |all| all.values().all(left) && !is_overdue(all)).await;
    };
    tokio::select! {
        () = life => {}
        () = world.cluster() => {}
        () = story => {}
    }
    world
}

#[tokio::test(start_paused = true)]
async fn pods_that_do_not_go_are_reported_once_and_their_quota_counts_until_they_do() {
    // The other life of the controller begins before the report, or after it.
    for first_life in [100, 700].map(Duration::from_secs) {
        let world = stuck(first_life).boxed_local().await;
        assert_eq!(world.counts().overdue_evictions, 1);
        let events = events_of(&world).list(&ListParams::default()).await.expect("a list");
        let warnings = events.into_iter().filter(|event| event.reason.as_deref() == Some("EvictionOverdue"));
        let mut kinds = Vec::new();
        for event in warnings {
            let message = event.message.unwrap_or_default();
            assert!(message.starts_with("0 pods still run and 1 are terminating;"), "{message}");
            assert_eq!(event.type_.as_deref(), Some("Warning"));
            kinds.push(event.involved_object.kind.unwrap_or_default());
        }
        kinds.sort();
        assert_eq!(kinds, ["Job", "Workload"]);
    }
}
