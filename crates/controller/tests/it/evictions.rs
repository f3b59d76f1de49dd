//! Evictions through the API: what they cost, and that they are told and counted once each.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use gangway_api::kueue::{Workload, WorkloadPriorityClass};
use gangway_controller::workloads::{Counts, EvictionCounts};
use gangway_model::reasons::{EvictionReason, PreemptionReason};
use http::{Method, Request};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use kube::client::Body;
use serde_json::json;

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
    /// Which evictions were counted.
    evictions: EvictionCounts,
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
            until("it runs", world.jobs(), |jobs| jobs["high"].spec.as_ref().unwrap().suspend == Some(false))
                .await;
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
        let events = events.into_iter().map(|event| (event.metadata.name.clone().unwrap(), event)).collect();
        let (counts, writes) = (world.counts(), connection.counted());
        let evictions = world.eviction_counts();
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
    let EvictionCounts { evicted, preempted } = preemption(|_| Fault::None).await.evictions;
    assert_eq!(evicted, BTreeMap::from([(("cq".into(), EvictionReason::Preempted, ""), 1)]));
    assert_eq!(preempted, BTreeMap::from([(("cq".into(), PreemptionReason::InClusterQueue), 1)]));
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
