//! Pods make room for pods that matter more, whatever happens on the way.

use std::time::Duration;

use futures::StreamExt;
use http::{Method, Request};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use crate::connection::{Connection, Fault};
use crate::pods::{PATIENCE, World, node_of, waiting_message};

/// Ends pods that were told to go, as a node does.
async fn finish_those_who_go(world: &World) {
    let pods = world.pods();
    let seen = watcher(pods.clone(), watcher::Config::default()).applied_objects();
    let mut seen = std::pin::pin!(seen);
    while let Some(pod) = seen.next().await {
        let pod = pod.expect("a watch");
        if pod.metadata.deletion_timestamp.is_some() {
            let name = pod.metadata.name.unwrap_or_default();
            // It may have been ended before, or have been deleted by itself.
            let _ = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
        }
    }
}

fn priority(priority: i32) -> Value {
    json!({"priority": priority})
}

fn is_marked(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| {
        condition.type_ == "DisruptionTarget" && condition.reason.as_deref() == Some("PreemptionByScheduler")
    })
}

fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref()
}

async fn event_notes(world: &World, reason: &str) -> Vec<String> {
    let events: Api<Event> = Api::default_namespaced(world.server.client());
    let events = events.list(&ListParams::default()).await.expect("a list");
    let of_reason = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
    of_reason.filter_map(|event| event.note).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_matters_more_gets_the_room_of_others() {
    let world = World::new();
    world.create_node("a", "2").await;
    for name in ["low-0", "low-1"] {
        world.create_pod(name, "1", priority(1)).await;
    }
    let story = async {
        world.bound(["low-0".to_owned(), "low-1".to_owned()]).await;
        world.create_pod("high", "2", priority(100)).await;
        let high = world.wait_for("high", |pod| nominated(pod) == Some("a")).await;
        let message = waiting_message(&high).unwrap_or_default();
        assert!(message.ends_with("preempting 2 victims"), "{message}");
        for name in ["low-0", "low-1"] {
            let victim = world.wait_for(name, |pod| pod.metadata.deletion_timestamp.is_some()).await;
            assert!(is_marked(&victim), "{victim:?}");
        }
        tokio::time::sleep(Duration::from_secs(20)).await;
        let high = world.pods().get("high").await.expect("a pod");
        assert_eq!(node_of(&high), None, "the victims have not left yet");
        tokio::select! {
            () = finish_those_who_go(&world) => {}
            _ = world.bound(["high".to_owned()]) => {}
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        () = story => {}
    }
    let uid = world.pods().get("high").await.expect("a pod").metadata.uid.unwrap_or_default();
    let preempted = event_notes(&world, "Preempted").await;
    assert_eq!(preempted, vec![format!("Preempted by pod {uid} on node a"); 2]);
    assert_eq!(event_notes(&world, "Scheduled").await.len(), 3);
    assert!(event_notes(&world, "FailedScheduling").await[0].starts_with("0/1 nodes are available"));
    let counts = world.counts();
    assert_eq!((counts.victims_marked, counts.victims_deleted, counts.victims_kept), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_budget_protects_pods_where_others_can_go() {
    let world = World::new();
    for node in ["a", "b"] {
        world.create_node(node, "1").await;
        let pinned = json!({"nodeSelector": {"kubernetes.io/hostname": node}, "priority": 1});
        world.label_node(node, "kubernetes.io/hostname", node).await;
        world.create_labelled_pod(&format!("low-{node}"), "1", json!({"on": node}), pinned).await;
    }
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(world.server.client());
    for node in ["a", "b"] {
        let selector = json!({"matchLabels": {"on": node}});
        let budget = json!({"metadata": {"name": node}, "spec": {"maxUnavailable": 1, "selector": selector}});
        let budget = serde_json::from_value(budget).expect("a budget");
        budgets.create(&PostParams::default(), &budget).await.expect("the budget is created");
        let allowed = if node == "a" { 0 } else { 1 };
        let status = json!({"status": {"disruptionsAllowed": allowed, "currentHealthy": 1,
                                       "desiredHealthy": 1, "expectedPods": 1}});
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(status));
        budgets.patch_status(node, &parameters, &patch).await.expect("the budget has a status");
    }
    let story = async {
        world.bound(["low-a".to_owned(), "low-b".to_owned()]).await;
        world.create_pod("high", "1", priority(100)).await;
        world.bound(["high".to_owned()]).await
    };
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        () = finish_those_who_go(&world) => {}
        nodes = story => assert_eq!(nodes.keys().collect::<Vec<_>>(), ["b"]),
    }
    assert!(world.pods().get_opt("low-a").await.expect("an answer").is_some(), "the budget protects it");
}

fn is_write(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    let is_pod = path.contains("/pods/") && !path.ends_with("/binding");
    is_pod && matches!(*request.method(), Method::PATCH | Method::DELETE)
}

#[tokio::test(start_paused = true)]
async fn a_restart_at_every_write_of_a_preemption_ends_well() {
    // Two writes for each of the two victims and one for the pod that gets their room, more or less.
    for (cut_at, fault) in (0..6).flat_map(|n| [(n, Fault::CutOff), (n, Fault::CutOffAfter)]) {
        let world = World::new();
        world.create_node("a", "3").await;
        for name in ["low-0", "low-1"] {
            world.create_pod(name, "1", priority(1)).await;
        }
        world.create_pod("same", "1", priority(100)).await;
        tokio::select! {
            () = world.scheduler(world.server.client()) => {}
            _ = world.bound(["low-0".to_owned(), "low-1".to_owned(), "same".to_owned()]) => {}
        }
        world.create_pod("high", "2", priority(100)).await;
        let first = Connection::new(&world.server, is_write, move |n| {
            if n == cut_at {
                fault
            } else if n > cut_at {
                Fault::CutOff
            } else {
                Fault::None
            }
        });
        tokio::select! {
            () = world.scheduler(first.client()) => {}
            () = first.cut.notified() => {}
            () = tokio::time::sleep(Duration::from_secs(20)) => {}
        }
        tokio::select! {
            () = world.scheduler(world.server.client()) => {}
            () = finish_those_who_go(&world) => {}
            _ = world.bound(["high".to_owned()]) => {}
            () = tokio::time::sleep(PATIENCE) => panic!("cut off at {cut_at} with {fault:?}"),
        }
        let left = world.pods().list(&ListParams::default()).await.expect("a list").items;
        let left: Vec<_> = left.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        assert!(left.contains(&"same"), "cut off at {cut_at} with {fault:?}: {left:?}");
        assert_eq!(world.counts().bindings_conflicted, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_victim_that_cannot_be_removed_saves_the_last() {
    let world = World::new();
    world.create_node("a", "2").await;
    for name in ["low-0", "low-1"] {
        world.create_pod(name, "1", priority(1)).await;
    }
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        _ = world.bound(["low-0".to_owned(), "low-1".to_owned()]) => {}
    }
    world.create_pod("high", "2", priority(100)).await;
    let is_delete = |request: &Request<Body>| *request.method() == Method::DELETE;
    let connection = Connection::new(&world.server, is_delete, |_| Fault::Refused(403));
    tokio::select! {
        () = world.scheduler(connection.client()) => {}
        () = tokio::time::sleep(Duration::from_secs(30)) => {}
    }
    let kept = world.counts().victims_kept;
    assert!(kept >= 2, "it is tried again, after a penalty");
    assert_eq!(world.counts().victims_deleted, kept, "the other victim is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_victim_whose_binding_is_under_way_is_removed_all_the_same() {
    let world = World::new();
    world.create_node("a", "1").await;
    world.create_pod("low", "1", priority(1)).await;
    // Its binding takes its time.
    let connection = Connection::new(&world.server, crate::pods::is_binding, |n| match n {
        0 => Fault::Slow,
        _ => Fault::None,
    });
    let story = async {
        while connection.counted() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        world.create_pod("high", "1", priority(100)).await;
        world.bound(["high".to_owned()]).await;
    };
    tokio::select! {
        () = world.scheduler(connection.client()) => {}
        () = finish_those_who_go(&world) => {}
        () = story => {}
    }
    assert!(world.pods().get_opt("low").await.expect("an answer").is_none());
}
