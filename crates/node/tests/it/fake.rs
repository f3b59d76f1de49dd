//! Fake nodes on the embedded API, in paused time.

use std::time::Duration;

use gangway_node::fake::{FakeNode, run_fake_nodes};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::DeleteParams;
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::Test;
use crate::support::{World, condition, sendable, terminated};

pub const TESTS: &[Test] = &[
    ("fake::pods_become_ready_run_and_end", || on_fake_nodes("2", lifecycle)),
    ("fake::pods_can_fail_or_never_be_ready", || on_fake_nodes("1", failures)),
    ("fake::a_bad_annotation_fails_the_pod", || on_fake_nodes("1", bad_annotation)),
    ("fake::deleted_pods_end_when_they_are_told_to", || on_fake_nodes("1", slow_termination)),
    ("fake::a_node_vanishes", || on_fake_nodes("2,vanish-after=30s", vanishing)),
    ("fake::a_thousand_pods", || on_fake_nodes("100", a_thousand_pods)),
];

fn on_fake_nodes<F: Future<Output = ()>>(nodes: &str, test: impl FnOnce(std::rc::Rc<World>) -> F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let world = std::rc::Rc::new(World::new());
        let nodes = FakeNode::parse(nodes).unwrap();
        let play = run_fake_nodes(world.client.clone(), world.clock.clone(), nodes, std::future::pending());
        tokio::select! {
            result = sendable(play) => panic!("{result:?}"),
            () = test(world.clone()) => {}
        }
    });
}

async fn create(world: &World, name: &str, annotations: Value) -> Pod {
    let container = json!({"name": "main", "image": "registry.example/any", "command": ["work"]});
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}});
    world.create(name, "fake-0", pod).await
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").as_deref() == Some("True")
}

/// Whether about this many seconds have passed since `begin`.
fn assert_after(begin: Instant, seconds: u64) {
    let elapsed = begin.elapsed();
    let expected = Duration::from_secs(seconds);
    assert!(
        elapsed >= expected && elapsed < expected + Duration::from_millis(500),
        "{elapsed:?} for {expected:?}"
    );
}

async fn lifecycle(world: std::rc::Rc<World>) {
    let begin = Instant::now();
    let annotations = json!({"fake.gangway.dev/ready-after": "2s", "fake.gangway.dev/run-for": "1h"});
    create(&world, "p", annotations).await;
    let pod = world.wait_for_phase("p", "Running").await;
    assert!(!is_ready(&pod));
    world.wait("p", "ready", is_ready).await;
    assert_after(begin, 2);
    let waited = await_condition(world.pods(), "p", |pod: Option<&Pod>| {
        pod.is_some_and(|pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Succeeded")))
    });
    let pod = waited.await.unwrap().unwrap();
    assert_after(begin, 3602);
    assert_eq!(terminated(&pod).exit_code, 0);
}

async fn failures(world: std::rc::Rc<World>) {
    let begin = Instant::now();
    create(&world, "fails", json!({"fake.gangway.dev/fail": "42", "fake.gangway.dev/run-for": "3s"})).await;
    create(&world, "unready", json!({"fake.gangway.dev/ready-after": "never"})).await;
    let pod = world.wait_for_phase("fails", "Failed").await;
    assert_after(begin, 3);
    assert_eq!(terminated(&pod).exit_code, 42);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let pod = world.pods().get("unready").await.unwrap();
    assert_eq!(pod.status.as_ref().unwrap().phase.as_deref(), Some("Running"));
    assert!(!is_ready(&pod));
}

async fn bad_annotation(world: std::rc::Rc<World>) {
    create(&world, "p", json!({"fake.gangway.dev/run-for": "a while"})).await;
    let status = world.wait_for_phase("p", "Failed").await.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("InvalidAnnotation"));
    assert!(status.message.unwrap().contains("a while"));
}

async fn slow_termination(world: std::rc::Rc<World>) {
    let slow = json!({"fake.gangway.dev/run-for": "forever", "fake.gangway.dev/terminate-after": "20s"});
    create(&world, "slow", slow).await;
    create(&world, "quick", json!({"fake.gangway.dev/run-for": "forever"})).await;
    for name in ["slow", "quick"] {
        world.wait(name, "ready", is_ready).await;
        world.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let begin = Instant::now();
    world.wait_until_gone("quick").await;
    assert_after(begin, 0);
    assert!(world.pods().get("slow").await.unwrap().metadata.deletion_timestamp.is_some());
    world.wait_until_gone("slow").await;
    assert_after(begin, 20);
}

async fn vanishing(world: std::rc::Rc<World>) {
    create(&world, "p", json!({"fake.gangway.dev/run-for": "1m"})).await;
    world.wait("p", "ready", is_ready).await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    await_condition(nodes, "fake-0", |node: Option<&Node>| node.is_none()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let pod = world.pods().get("p").await.unwrap();
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Running"), "nobody answers for the pod");
}

async fn a_thousand_pods(world: std::rc::Rc<World>) {
    for index in 0..1000 {
        create(&world, &format!("p{index}"), json!({"fake.gangway.dev/run-for": "10s"})).await;
    }
    for index in 0..1000 {
        world.wait_for_phase(&format!("p{index}"), "Succeeded").await;
    }
}
