//! One controller after the other: what the first wrote last, the second knows before it decides.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gangway_api::config::LeaderElection;
use gangway_controller::election::Candidate;
use gangway_controller::workloads::{Error, Options, run};
use gangway_model::planted::Planted;
use http::Request;
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

use crate::connection::{Connection, Fault};
use crate::world::{Seen, World, condition, until, workload_of};

/// A controller that stands for election.
fn candidate(
    world: &World,
    name: &str,
    client: Client,
    stop: impl Future<Output = ()>,
) -> impl Future<Output = Option<Result<(), Error>>> {
    let clock = Arc::clone(&world.clock);
    let (planted, terms) = (Planted::default(), LeaderElection::in_namespace("default"));
    let candidate = Candidate::new(client, Arc::clone(&clock), name.to_owned(), terms, planted);
    let config = world.config.clone();
    let work = move |client, term| {
        run(client, Arc::clone(&clock), Options { config: config.clone(), term, ..Options::default() })
    };
    Box::pin(candidate.lead(work, stop))
}

fn watches_workloads(request: &Request<Body>) -> bool {
    let uri = request.uri();
    uri.path().ends_with("/workloads") && uri.query().is_some_and(|query| query.contains("watch=true"))
}

fn is_list_of_jobs(request: &Request<Body>) -> bool {
    let uri = request.uri();
    uri.path().ends_with("/jobs") && uri.query().is_some_and(|query| query.contains("limit="))
}

async fn admitted(world: &World, job: &str) {
    until("it is admitted", world.workloads(), |workloads| {
        workload_of(job, workloads).is_some_and(|found| condition(found, "Admitted").is_some())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_successor_whose_watch_is_late_gives_no_quota_twice() {
    let world = World::new().await;
    // No news of Workloads ever reaches the second: it has only what it listed when there were none.
    let late = Connection::new(&world.server, watches_workloads, |_| Fault::CutOff);
    let mut seen = Seen::default();
    let story = async {
        let stop = async {
            // The second has its first lists by now.
            late.cut.notified().await;
            for job in ["a", "b"] {
                world.submit(job).await;
            }
            admitted(&world, "a").await;
            world.a_pod_runs().await;
        };
        let first = candidate(&world, "one", world.server.client(), stop);
        let second = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            candidate(&world, "two", late.client(), std::future::pending()).await
        };
        let rest = async {
            first.await;
            let stopped = Instant::now();
            world.let_pods_finish();
            admitted(&world, "b").await;
            let took = stopped.elapsed();
            assert!(took <= Duration::from_secs(2), "{took:?}");
            world.complete(2).await;
        };
        tokio::select! {
            ended = second => panic!("it ended: {ended:?}"),
            () = rest => {}
        }
    };
    tokio::select! {
        () = story => {}
        () = world.cluster() => {}
        () = seen.watch(world.server.client()) => {}
    }
    assert_eq!((seen.most_holding, seen.most_running, seen.pods.len()), (1, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn who_takes_over_lists_no_jobs_again() {
    let world = World::new().await;
    let waiting = Connection::new(&world.server, is_list_of_jobs, |_| Fault::None);
    let first = candidate(&world, "one", world.server.client(), tokio::time::sleep(Duration::from_secs(30)));
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        candidate(&world, "two", waiting.client(), std::future::pending()).await
    };
    let story = async {
        world.submit("a").await;
        admitted(&world, "a").await;
        first.await;
        let lists = waiting.counted();
        world.let_pods_finish();
        world.complete(1).await;
        world.submit("b").await;
        world.complete(2).await;
        (lists, waiting.counted())
    };
    let (before, after) = tokio::select! {
        ended = second => panic!("it ended: {ended:?}"),
        counts = story => counts,
        () = world.cluster().map(|_| ()) => unreachable!("it never ends"),
    };
    assert_eq!((before, after), (1, 1));
}
