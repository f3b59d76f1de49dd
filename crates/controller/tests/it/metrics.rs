//! What the controller tells machines, from Jobs that run through a quota of one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gangway_api::config::Configuration;
use kube::api::DeleteParams;

use crate::connection::{Connection, Fault};
use crate::world::{World, condition, until, workload_of};

/// What is told of a metric now: the loop is asked for it.
async fn told(world: &World, name: &str) -> Vec<String> {
    assert!(world.requests().pulse().beats(Duration::from_secs(1)).await, "the loop turns");
    world.metric(name)
}

/// Waits until that is told: an answer may be on its way to the controller that others have seen.
pub(crate) async fn tells(world: &World, name: &str, expected: &[String]) {
    let story = async {
        while told(world, name).await != expected {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let in_time = tokio::time::timeout(Duration::from_secs(60), story).await.is_ok();
    assert!(in_time, "{expected:?} and not {:?}", told(world, name).await);
}

/// One Job runs, another waits.
const WHILE_ONE_WAITS: &[(&str, &[&str])] = &[
    (
        "kueue_pending_workloads",
        &["{cluster_queue=\"cq\",status=\"active\"} 0", "{cluster_queue=\"cq\",status=\"inadmissible\"} 1"],
    ),
    ("kueue_admitted_active_workloads", &["{cluster_queue=\"cq\"} 1"]),
    (
        "kueue_unadmitted_workloads",
        &["{cluster_queue=\"cq\",reason=\"WaitingForQuota\",underlying_cause=\"\"} 1"],
    ),
    (
        "kueue_local_queue_pending_workloads",
        &[
            "{name=\"lq\",namespace=\"default\",status=\"active\"} 0",
            "{name=\"lq\",namespace=\"default\",status=\"inadmissible\"} 1",
        ],
    ),
    (
        "kueue_cluster_queue_resource_usage",
        &["{cohort=\"\",cluster_queue=\"cq\",flavor=\"default\",resource=\"cpu\"} 1"],
    ),
    ("kueue_cluster_queue_resource_pending", &["{cluster_queue=\"cq\",resource=\"cpu\"} 1"]),
    (
        "kueue_cluster_queue_borrowing_limit",
        &["{cohort=\"\",cluster_queue=\"cq\",flavor=\"default\",resource=\"cpu\"} +Inf"],
    ),
    ("kueue_admitted_workloads_total", &["{cluster_queue=\"cq\",priority_class=\"\"} 1"]),
    ("kueue_cluster_queue_info", &["{cluster_queue=\"cq\",parent_cohort=\"\",root_cohort=\"\"} 1"]),
];

#[tokio::test(start_paused = true)]
async fn what_waits_runs_and_ended_is_told() {
    let mut world = World::new().await;
    world.config = Configuration { cluster_queue_metrics: true, ..Configuration::default() };
    let story = async {
        assert!(!world.requests().pulse().is_ready(), "the first lists are not in");
        for job in ["a", "b"] {
            world.submit(job).await;
        }
        world.a_pod_runs().await;
        until("one waits", world.workloads(), |workloads| {
            workload_of("b", workloads).is_some_and(|found| condition(found, "QuotaReserved").is_none())
        })
        .await;
        assert!(world.requests().pulse().is_ready());
        for (name, lines) in WHILE_ONE_WAITS {
            let expected: Vec<String> = lines.iter().map(|line| format!("{name}{line}")).collect();
            tells(&world, name, &expected).await;
        }
        world.let_pods_finish();
        world.complete(2).await;
        world.finished(2).await;
        for (name, labels) in [
            ("kueue_finished_workloads_total", "cluster_queue=\"cq\",priority_class=\"\""),
            ("kueue_execution_time_seconds_count", "cluster_queue=\"cq\",priority_class=\"\""),
            ("kueue_workload_creation_latency_seconds_count", "job_kind=\"batch/job\""),
        ] {
            tells(&world, name, &[format!("{name}{{{labels}}} 2")]).await;
        }
        assert_eq!(told(&world, "gangway_writes_total{fate=\"rejected\"}").await.len(), 0);

        world.cluster_queues().delete("cq", &DeleteParams::default()).await.expect("it may go");
        until("the queue is gone", world.cluster_queues(), |queues| queues.is_empty()).await;
        tells(&world, "kueue_admitted_workloads_total", &[]).await;
        assert!(told(&world, "kueue_cluster_queue_status").await.is_empty());
    };
    tokio::select! {
        biased;
        () = world.controller(world.server.client()) => {}
        () = story => {}
        () = world.cluster() => {}
    }
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_pages_and_watches_have_bookmarks() {
    let world = World::new().await;
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let connection = Connection::new(&world.server, |_| true, |_| Fault::None).noting(&asked);
    tokio::select! {
        () = async { world.submit("a").await; world.a_pod_runs().await; } => {}
        () = world.cluster() => {}
        () = world.controller(connection.client()) => {}
    }
    let asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
    let of_jobs: Vec<&String> =
        asked.iter().filter(|path| path.starts_with("/apis/batch/v1/jobs?")).collect();
    let [list, watch, ..] = of_jobs[..] else { panic!("{of_jobs:?}") };
    assert!(list.contains("limit=500"), "{list}");
    assert!(!list.contains("resourceVersion=0"), "a list as old as a cache may be: {list}");
    assert!(watch.contains("watch=true") && watch.contains("allowWatchBookmarks=true"), "{watch}");
}
