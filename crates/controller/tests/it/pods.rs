//! Pods are bound through the API, once, whatever happens on the way.
//!
//! Time is paused: waits cost nothing, and what never happens is noticed after a minute of virtual time.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gangway_apiserver::ApiServer;
use gangway_controller::pods::{BindCounts, BindCountsSnapshot, Options, run};
use gangway_model::{Clock, ManualClock, Timestamp};
use http::Request;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::connection::{Connection, Fault, TokioClock};

/// Longer than any wait of the scheduler.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An API that may be cut off, and a scheduler on it.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    counts: Arc<BindCounts>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { server: ApiServer::builder().seed(1).build(), counts: Arc::default() }
    }

    pub(crate) fn scheduler(&self, client: Client) -> impl Future<Output = ()> + use<> {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let counts = Arc::clone(&self.counts);
        let options = Options { counts, ..Options::default() };
        run(client, clock, options).map(|ended| panic!("the scheduler ended: {ended:?}"))
    }

    pub(crate) fn counts(&self) -> BindCountsSnapshot {
        self.counts.snapshot()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.server.client())
    }

    pub(crate) async fn create_node(&self, name: &str, cpu: &str) {
        let nodes: Api<Node> = Api::all(self.server.client());
        let node = json!({"metadata": {"name": name}, "spec": {}});
        let node = serde_json::from_value(node).expect("a node");
        nodes.create(&PostParams::default(), &node).await.expect("the node is created");
        let amounts = json!({"cpu": cpu, "memory": "1Gi", "pods": "110"});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .expect("the node has a status");
    }

    pub(crate) async fn label_node(&self, name: &str, key: &str, value: &str) {
        let nodes: Api<Node> = Api::all(self.server.client());
        let labels = Patch::Merge(json!({"metadata": {"labels": {key: value}}}));
        nodes.patch(name, &PatchParams::default(), &labels).await.expect("the node has a label");
    }

    pub(crate) async fn create_pod(&self, name: &str, cpu: &str, extra: Value) {
        self.create_labelled_pod(name, cpu, json!({}), extra).await;
    }

    pub(crate) async fn create_labelled_pod(&self, name: &str, cpu: &str, labels: Value, extra: Value) {
        let mut pod = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "schedulerName": "gangway",
                "containers": [{"name": "main", "image": "host", "resources": {"requests": {"cpu": cpu}}}],
            },
        });
        for (field, value) in extra.as_object().into_iter().flatten() {
            pod["spec"][field] = value.clone();
        }
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("the pod is created");
    }

    pub(crate) async fn wait_for(&self, name: &str, condition: fn(&Pod) -> bool) -> Pod {
        let reached = await_condition(self.pods(), name, move |pod: Option<&Pod>| pod.is_some_and(condition));
        let reached = tokio::time::timeout(PATIENCE, reached).await;
        reached.unwrap_or_else(|_| panic!("pod {name} does not get there")).expect("a watch").expect("a pod")
    }

    /// How many pods each node has, after all of `names` are bound.
    pub(crate) async fn bound(&self, names: impl IntoIterator<Item = String>) -> BTreeMap<String, usize> {
        let mut nodes = BTreeMap::new();
        for name in names {
            let pod = self.wait_for(&name, |pod| node_of(pod).is_some()).await;
            *nodes.entry(node_of(&pod).expect("a node").to_owned()).or_default() += 1;
        }
        nodes
    }
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

pub(crate) fn waits(pod: &Pod) -> bool {
    waiting_message(pod).is_some()
}

pub(crate) fn waiting_message(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    (condition.reason.as_deref() == Some("Unschedulable")).then_some(condition.message.as_deref())?
}

pub(crate) fn is_binding(request: &Request<Body>) -> bool {
    request.uri().path().ends_with("/binding")
}

pub(crate) fn names(count: usize) -> impl Iterator<Item = String> + Clone {
    (0..count).map(|i| format!("p{i}"))
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_where_they_fit() {
    let world = World::new();
    world.create_node("a", "2").await;
    world.create_node("b", "2").await;
    for name in names(4) {
        world.create_pod(&name, "1", json!({})).await;
    }
    world.create_pod("foreign", "1", json!({"schedulerName": "other"})).await;
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        nodes = world.bound(names(4)) => {
            assert_eq!(nodes, BTreeMap::from([("a".to_owned(), 2), ("b".to_owned(), 2)]));
        }
    }
    assert_eq!(world.counts().decision_requests(), 4);
    assert_eq!(node_of(&world.pods().get("foreign").await.expect("a pod")), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_says_why_it_waits_and_is_bound_when_a_node_comes() {
    let world = World::new();
    world.create_node("small", "500m").await;
    world.create_pod("p", "1", json!({})).await;
    let story = async {
        let pod = world.wait_for("p", waits).await;
        let message = waiting_message(&pod).unwrap_or_default();
        assert!(
            message.starts_with("0/1 nodes are available: 1 Insufficient cpu. preemption: "),
            "{message}"
        );
        world.create_node("large", "1").await;
        world.bound(["p".to_owned()]).await
    };
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        nodes = story => assert_eq!(nodes, BTreeMap::from([("large".to_owned(), 1)])),
    }
    assert_eq!(world.counts().conditions_applied, 1);
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_makes_room() {
    let world = World::new();
    world.create_node("a", "1").await;
    world.create_pod("first", "1", json!({})).await;
    let story = async {
        world.bound(["first".to_owned()]).await;
        world.create_pod("second", "1", json!({})).await;
        world.wait_for("second", waits).await;
        let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
        world.pods().patch_status("first", &PatchParams::default(), &done).await.expect("it finishes");
        world.bound(["second".to_owned()]).await;
        world.create_pod("third", "1", json!({})).await;
        world.wait_for("third", waits).await;
        world.pods().delete("second", &DeleteParams::default().grace_period(0)).await.expect("it is deleted");
        world.bound(["third".to_owned()]).await;
    };
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        () = story => {}
    }
}

#[tokio::test(start_paused = true)]
async fn demands_that_cannot_be_judged_are_said_on_the_pod() {
    let world = World::new();
    world.create_node("a", "4").await;
    let term = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}});
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    world.create_pod("p", "1", json!({"affinity": affinity})).await;
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        pod = world.wait_for("p", waits) => {
            assert!(waiting_message(&pod).is_some_and(|m| m.contains("podAntiAffinity")), "{pod:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_after_every_nth_binding_binds_nothing_twice() {
    const PODS: usize = 4;
    for (cut_at, fault) in (0..=PODS).flat_map(|n| [(n, Fault::CutOff), (n, Fault::CutOffAfter)]) {
        let world = World::new();
        world.create_node("a", "2").await;
        world.create_node("b", "2").await;
        for name in names(PODS) {
            world.create_pod(&name, "1", json!({})).await;
        }
        let first = Connection::new(&world.server, is_binding, move |n| match n.cmp(&cut_at) {
            Ordering::Less => Fault::None,
            Ordering::Equal => fault,
            Ordering::Greater => Fault::CutOff,
        });
        if cut_at < PODS {
            tokio::select! {
                () = world.scheduler(first.client()) => {}
                () = first.cut.notified() => {}
            }
        } else {
            tokio::select! {
                () = world.scheduler(first.client()) => {}
                _ = world.bound(names(PODS)) => {}
            }
        }
        let before = all_nodes(&world).await;
        tokio::select! {
            () = world.scheduler(world.server.client()) => {}
            nodes = world.bound(names(PODS)) => assert!(nodes.values().all(|pods| *pods == 2), "{nodes:?}"),
        }
        let after = all_nodes(&world).await;
        assert!(before.iter().all(|(pod, node)| after.get(pod) == Some(node)), "a pod moved");
        assert_eq!(world.counts().bindings_conflicted, 0);
        assert_eq!(world.counts().bindings_rejected, 0);
    }
}

async fn all_nodes(world: &World) -> BTreeMap<String, String> {
    let pods = world.pods().list(&ListParams::default()).await.expect("a list");
    let placed =
        pods.items.iter().filter_map(|pod| Some((pod.metadata.name.clone()?, node_of(pod)?.to_owned())));
    placed.collect()
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_lost_answers_are_found_out() {
    const PODS: usize = 6;
    let world = World::new();
    world.create_node("a", "3").await;
    world.create_node("b", "3").await;
    for name in names(PODS) {
        world.create_pod(&name, "1", json!({})).await;
    }
    let connection = Connection::new(&world.server, is_binding, |n| match n {
        0 | 6 => Fault::Lost,
        2 | 4 => Fault::AnswerLost,
        _ => Fault::None,
    });
    tokio::select! {
        () = world.scheduler(connection.client()) => {}
        nodes = world.bound(names(PODS)) => assert!(nodes.values().all(|pods| *pods == 3), "{nodes:?}"),
    }
    let counts = world.counts();
    assert_eq!(counts.bindings_unknown, 4, "{counts:?}");
    assert_eq!(counts.bindings_sent, PODS as u64 + 2, "only what was lost is sent again: {counts:?}");
    assert_eq!(counts.bindings_conflicted, 0, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_scheduler_asks_for_nothing() {
    let world = World::new();
    world.create_node("a", "1").await;
    world.create_pod("p", "1", json!({})).await;
    world.create_pod("q", "1", json!({})).await;
    let client = world.server.client_named("scheduler");
    let story = async {
        let waiting = tokio::select! {
            pod = world.wait_for("p", waits) => pod,
            pod = world.wait_for("q", waits) => pod,
        };
        assert!(waits(&waiting));
        let requests = |server: &ApiServer| {
            let counts = server.request_counts();
            counts.iter().filter(|(key, _)| key.user_agent == "scheduler").map(|(_, n)| n).sum::<u64>()
        };
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = requests(&world.server);
        assert!(before > 0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(requests(&world.server), before);
    };
    tokio::select! {
        () = world.scheduler(client) => {}
        () = story => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_stands_still_stops_nothing() {
    let world = World::new();
    world.create_node("a", "1").await;
    world.create_pod("p", "1", json!({})).await;
    let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(1)));
    tokio::select! {
        ended = run(world.server.client(), clock, Options::default()) => panic!("the scheduler ended: {ended:?}"),
        _ = world.bound(["p".to_owned()]) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_done_is_told_in_numbers() {
    let world = World::new();
    world.create_node("a", "1").await;
    for name in names(2) {
        world.create_pod(&name, "1", json!({})).await;
    }
    let story = async {
        while world.counts().bindings_landed == 0 || world.counts().conditions_applied == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(world.counts.pulse().beats(PATIENCE).await, "the loop turns");
    };
    tokio::select! {
        () = world.scheduler(world.server.client()) => {}
        ended = tokio::time::timeout(PATIENCE, story) => ended.expect("one is bound, one is told why not"),
    }
    let text = world.counts.metrics().registry().text();
    for line in [
        "scheduler_event_handling_duration_seconds_count{event=\"NodeAdd\"} 1",
        "scheduler_event_handling_duration_seconds_count{event=\"UnscheduledPodAdd\"} 2",
        "scheduler_framework_extension_point_duration_seconds_count{extension_point=\"Bind\",status=\"Success\",profile=\"gangway\"} 1",
        "scheduler_plugin_evaluation_total{plugin=\"DefaultBinder\",extension_point=\"Bind\",profile=\"gangway\"} 1",
        "scheduler_plugin_evaluation_total{plugin=\"DefaultPreemption\",extension_point=\"PostFilter\",profile=\"gangway\"} 1",
        "scheduler_async_api_call_execution_total{call_type=\"pod_binding\",result=\"success\"} 1",
        "scheduler_async_api_call_execution_total{call_type=\"pod_status_patch\",result=\"success\"} 1",
        "scheduler_pending_async_api_calls{call_type=\"pod_status_patch\"} 0",
        "scheduler_queued_entities{queue=\"unschedulable\",type=\"pod\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
