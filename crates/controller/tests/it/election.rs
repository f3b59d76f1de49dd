//! Who leads, and who does not write any more.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use gangway_api::config::LeaderElection;
use gangway_apiserver::ApiServer;
use gangway_controller::election::{Candidate, Term};
use gangway_model::planted::Planted;
use gangway_model::{Clock, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::connection::TokioClock;

const LEASE: &str = "gangway-controller";

fn terms() -> LeaderElection {
    LeaderElection::in_namespace("default")
}

/// A clock that is wrong by some seconds.
struct WrongClock(TokioClock, i64);

impl Clock for WrongClock {
    fn now(&self) -> Timestamp {
        self.0.now().plus_seconds(self.1)
    }
}

/// A candidate whose clock is wrong by some seconds.
fn candidate(api: &ApiServer, name: &str, seconds: i64) -> Candidate {
    let clock = Arc::new(WrongClock(TokioClock::new(), seconds));
    Candidate::new(api.client(), clock, name.to_owned(), terms(), Planted::default())
}

async fn holder(api: &ApiServer) -> Option<String> {
    let leases: Api<Lease> = Api::namespaced(api.client(), "default");
    leases.get(LEASE).await.expect("the Lease").spec.and_then(|spec| spec.holder_identity)
}

async fn write(client: &Client, name: &str) -> Result<ConfigMap, kube::Error> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &map).await
}

/// When work began, if it did.
type Began = Cell<Option<Instant>>;

/// Work that only notes when its term began.
fn noting(began: &Rc<Began>) -> impl FnMut(Client, Term) -> LocalBoxFuture<'static, ()> {
    let began = Rc::clone(began);
    move |_, mut term| {
        let began = Rc::clone(&began);
        async move {
            term.begins().await;
            began.set(Some(Instant::now()));
            std::future::pending().await
        }
        .boxed_local()
    }
}

/// Begins when somebody else had the time to become the leader.
async fn later<W: Future>(work: W) -> W::Output {
    tokio::time::sleep(Duration::from_secs(1)).await;
    work.await
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_dies_is_followed_when_its_lease_is_over_whatever_the_clocks_say() {
    let api = ApiServer::builder().build();
    let (first, second): (Rc<Began>, Rc<Began>) = Default::default();
    let one = candidate(&api, "one", 0);
    // Its clock is two hours ahead: by that clock the Lease is over all the time.
    let two = candidate(&api, "two", 7_200).lead(noting(&second), std::future::pending());
    let (kill, killed) = oneshot::channel::<()>();
    let start = Instant::now();
    let die = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(first.get().is_some() && second.get().is_none(), "two led beside one");
        kill.send(()).expect("one is there");
    };
    let one = async {
        tokio::select! {
            biased;
            _ = killed => {}
            _ = one.lead(noting(&first), std::future::pending()) => {}
        }
    };
    let all = Box::pin(async { tokio::join!(one, die, later(two)) });
    assert!(tokio::time::timeout(Duration::from_secs(120), all).await.is_err(), "two leads for ever");
    let after = second.get().expect("two leads") - start - Duration::from_secs(60);
    // It renewed at most two seconds before it died, and is looked at every two seconds.
    assert!((11..=19).contains(&after.as_secs()), "{after:?}");
    assert_eq!(holder(&api).await.as_deref(), Some("two"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stops_hands_over_at_once() {
    let api = ApiServer::builder().build();
    let (first, second): (Rc<Began>, Rc<Began>) = Default::default();
    let stop = tokio::time::sleep(Duration::from_secs(30));
    let one = candidate(&api, "one", 0).lead(noting(&first), stop);
    let two = candidate(&api, "two", 0).lead(noting(&second), std::future::pending());
    let start = Instant::now();
    let all = Box::pin(async { tokio::join!(one, later(two)) });
    assert!(tokio::time::timeout(Duration::from_secs(60), all).await.is_err());
    let after = second.get().expect("two leads") - start - Duration::from_secs(30);
    assert!(after <= Duration::from_secs(1), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn who_waits_reads_and_does_not_write() {
    let api = ApiServer::builder().build();
    let first: Rc<Began> = Rc::default();
    let mut one = std::pin::pin!(candidate(&api, "one", 0).lead(noting(&first), std::future::pending()));
    assert!(tokio::time::timeout(Duration::from_secs(3), &mut one).await.is_err());
    let work = |client: Client, term: Term| async move {
        assert!(!term.has_begun());
        let refused = write(&client, "too-early").await.expect_err("it does not lead yet");
        assert!(format!("{refused:?}").contains("Deposed"), "{refused:?}");
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        maps.get_opt("too-early").await.expect("reading is allowed").is_none()
    };
    let two = candidate(&api, "two", 0).lead(work, std::future::pending());
    assert_eq!(two.await, Some(true), "work that ends before its turn ends the candidate");
    assert_eq!(holder(&api).await.as_deref(), Some("one"));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_stood_still_writes_nothing_when_it_goes_on() {
    let api = ApiServer::builder().build();
    let given = Rc::new(RefCell::new(Vec::new()));
    let keep = Rc::clone(&given);
    let work = move |client: Client, mut term: Term| {
        let keep = Rc::clone(&keep);
        async move {
            term.begins().await;
            keep.borrow_mut().push(client);
            std::future::pending::<()>().await
        }
    };
    let mut one = std::pin::pin!(candidate(&api, "one", 0).lead(work, std::future::pending()));
    assert!(tokio::time::timeout(Duration::from_secs(5), &mut one).await.is_err());
    let client = given.borrow()[0].clone();
    write(&client, "while-it-leads").await.expect("it leads");

    // Nothing of it moves from here on.
    let second: Rc<Began> = Rc::default();
    let two = candidate(&api, "two", 0).lead(noting(&second), std::future::pending());
    assert!(tokio::time::timeout(Duration::from_secs(30), two).await.is_err());
    assert!(second.get().is_some());
    let refused = write(&client, "afterwards").await.expect_err("it does not lead any more");
    assert!(format!("{refused:?}").contains("Deposed"), "{refused:?}");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    assert!(maps.get_opt("afterwards").await.expect("reading is allowed").is_none());

    // When it goes on it stands again, and leads when the other's Lease is over.
    assert!(tokio::time::timeout(Duration::from_secs(1), &mut one).await.is_err());
    assert_eq!((holder(&api).await.as_deref(), given.borrow().len()), (Some("two"), 1));
    assert!(tokio::time::timeout(Duration::from_secs(20), &mut one).await.is_err());
    assert_eq!((holder(&api).await.as_deref(), given.borrow().len()), (Some("one"), 2));
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_gives_the_lease_back() {
    let api = ApiServer::builder().build();
    let ended = candidate(&api, "one", 0).lead(|_, _| std::future::ready(7), std::future::pending()).await;
    assert_eq!((ended, holder(&api).await), (Some(7), None));
}
