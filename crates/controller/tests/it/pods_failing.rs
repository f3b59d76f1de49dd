//! What goes wrong with a scheduler harms no pod.

use std::sync::Arc;
use std::time::Duration;

use gangway_api::config::LeaderElection;
use gangway_controller::election::{Candidate, Term};
use gangway_controller::pods::{BindCounts, Options, run};
use gangway_model::planted::Planted;
use http::Request;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::client::Body;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use crate::connection::{Connection, Fault, TokioClock};
use crate::pods::{World, is_binding, names, node_of};

fn failed(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| {
        condition.type_ == "PodScheduled" && condition.reason.as_deref() == Some("SchedulerError")
    })
}

#[tokio::test(start_paused = true)]
async fn a_server_in_trouble_is_asked_again_before_the_pod_waits() {
    for code in [429, 500, 503, 504] {
        let world = World::new();
        world.create_node("a", "1").await;
        world.create_pod("p", "1", json!({})).await;
        let connection = Connection::new(&world.server, is_binding, move |n| match n {
            0..=2 => Fault::Refused(code),
            _ => Fault::None,
        });
        let start = Instant::now();
        tokio::select! {
            () = world.scheduler(connection.client()) => {}
            _ = world.bound(["p".to_owned()]) => {}
        }
        assert!(start.elapsed() < Duration::from_secs(1), "no penalty: {:?}", start.elapsed());
        let counts = world.counts();
        assert_eq!((counts.bindings_sent, counts.bindings_retried), (4, 3), "{code}");
        assert_eq!((counts.bindings_rejected, counts.pods_read), (0, 0), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_binding_failed_waits_though_nobody_else_does() {
    let world = World::new();
    world.create_node("a", "1").await;
    world.create_pod("p", "1", json!({})).await;
    let connection = Connection::new(&world.server, is_binding, |n| match n {
        0..=2 => Fault::Refused(403),
        _ => Fault::None,
    });
    let start = Instant::now();
    let story = async {
        world.wait_for("p", failed).await;
        world.bound(["p".to_owned()]).await;
    };
    tokio::select! {
        () = world.scheduler(connection.client()) => {}
        () = story => {}
    }
    // One second after the first time, two after the second, four after the third.
    let waited = start.elapsed().as_secs_f64();
    assert!((7.0..9.0).contains(&waited), "{waited}");
    assert_eq!(world.counts().bindings_rejected, 3);
}

/// A list of what tells which pods belong together; the embedded API has none of these kinds.
fn is_family(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    ["services", "replicationcontrollers", "replicasets", "statefulsets"]
        .iter()
        .any(|kind| path.ends_with(kind))
}

#[tokio::test(start_paused = true)]
async fn whoever_may_not_list_services_places_pods_all_the_same() {
    let refused = |n: usize| if n < 4 { Fault::Refused(403) } else { Fault::None };
    // Refused once and unknown then, or unknown at once.
    for (fault, asked) in [(refused as fn(usize) -> Fault, 8), (|_| Fault::None, 4)] {
        let world = World::new();
        world.create_node("a", "2").await;
        world.create_pod("p", "1", json!({})).await;
        let connection = Connection::new(&world.server, is_family, fault);
        let story = async {
            world.bound(["p".to_owned()]).await;
            tokio::time::sleep(Duration::from_secs(60)).await;
            world.create_pod("q", "1", json!({})).await;
            world.bound(["q".to_owned()]).await;
        };
        tokio::select! {
            () = world.scheduler(connection.client()) => {}
            () = story => {}
        }
        assert_eq!(connection.counted(), asked, "a kind that is not known is not asked for again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_while_a_pod_is_bound_to_it_harms_nobody_else() {
    let world = World::new();
    world.create_node("a", "1").await;
    world.create_pod("p", "1", json!({})).await;
    let connection = Connection::new(&world.server, is_binding, |n| match n {
        0 => Fault::Slow,
        _ => Fault::None,
    });
    let story = async {
        while connection.counted() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let nodes: Api<Node> = Api::all(world.server.client());
        nodes.delete("a", &DeleteParams::default()).await.expect("the node goes");
        world.wait_for("p", |pod| node_of(pod).is_some()).await;
        world.create_pod("q", "1", json!({})).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        world.create_node("b", "1").await;
        world.bound(["q".to_owned()]).await
    };
    tokio::select! {
        () = world.scheduler(connection.client()) => {}
        nodes = story => assert_eq!(nodes.keys().collect::<Vec<_>>(), ["b"]),
    }
}

/// A scheduler that stands for election.
fn candidate(world: &World, name: &str, counts: &Arc<BindCounts>) -> impl Future<Output = ()> + use<> {
    let clock = Arc::new(TokioClock::new());
    let terms =
        LeaderElection { name: "gangway-scheduler".to_owned(), ..LeaderElection::in_namespace("default") };
    let client = world.server.client();
    let candidate = Candidate::new(client, clock.clone(), name.to_owned(), terms, Planted::default());
    let counts = Arc::clone(counts);
    async move {
        let work = |client: Client, mut term: Term| {
            let options = Options { counts: Arc::clone(&counts), ..Options::default() };
            let placing = run(client, clock.clone(), options);
            async move {
                term.begins().await;
                placing.await
            }
        };
        let ended = Box::pin(candidate.lead(work, std::future::pending())).await;
        panic!("the scheduler ended: {ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_schedulers_one_binds_even_if_the_other_stood_still() {
    const PODS: usize = 6;
    let world = World::new();
    world.create_node("a", "100").await;
    let counts: [Arc<BindCounts>; 2] = Default::default();
    let mut one = std::pin::pin!(candidate(&world, "one", &counts[0]));
    let two = candidate(&world, "two", &counts[1]);
    let story = async {
        for (number, name) in names(PODS).enumerate() {
            world.create_pod(&name, "1", json!({})).await;
            if number % 2 == 1 {
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        }
        world.bound(names(PODS)).await;
    };
    // The first one leads, and stops in the midst of it.
    tokio::select! {
        () = &mut one => {}
        () = tokio::time::sleep(Duration::from_secs(5)) => {}
    }
    world.create_pod("first", "1", json!({})).await;
    tokio::select! {
        () = &mut one => {}
        () = async {
            world.bound(["first".to_owned()]).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        } => {}
    }
    world.create_pod("between", "1", json!({})).await;
    tokio::select! {
        () = two => {}
        () = async {
            // Nothing of the first one moves until the second one leads; then both do.
            tokio::time::sleep(Duration::from_secs(30)).await;
            tokio::select! {
                () = &mut one => {}
                () = story => {}
            }
        } => {}
    }
    let [first, second] = counts.map(|counts| counts.snapshot());
    assert_eq!((first.bindings_landed, second.bindings_landed), (1, PODS as u64 + 1), "{first:?} {second:?}");
    assert_eq!((first.bindings_conflicted, second.bindings_conflicted), (0, 0));
}
