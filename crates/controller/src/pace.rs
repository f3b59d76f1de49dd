//! The manners of a client: how many requests per second it sends, and that it waits when the API server asks for it.
//!
//! Each lane has a pace of its own: what people are told holds up nothing that is decided, and neither holds up what is read.
//! A server that is too busy (429, or 503) may say in a header for how long it wants to be spared; until then nothing more is
//! sent in that lane. Whoever asked is refused all the same and tries again by rules of its own.
//!
//! Waiting comes before the fence of `election.rs`: what has waited is sent only if it still may be. Renewals of a Lease do not
//! pass here at all.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

use crate::metrics::{Metric, Registry};

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// It changes what runs. Never dropped.
    Decisions,
    /// It informs. Coalesced, and dropped when there is too much of it.
    Diagnostics,
    /// It lists, watches, or looks at an object. As many as it takes.
    Reads,
}

impl Lane {
    const ALL: [Self; 3] = [Self::Decisions, Self::Diagnostics, Self::Reads];

    /// As metrics call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decisions => "decisions",
            Self::Diagnostics => "diagnostics",
            Self::Reads => "reads",
        }
    }

    /// The lane of a request of somebody who does not say.
    fn of(request: &Request<Body>) -> Self {
        let mut parts = request.uri().path().rsplit('/').take(2);
        match *request.method() {
            Method::GET | Method::HEAD => Self::Reads,
            _ if parts.any(|part| part == "events") => Self::Diagnostics,
            _ => Self::Decisions,
        }
    }
}

/// A server is not believed that wants to be spared for longer.
const LONGEST_HOLD_OFF: Duration = Duration::from_secs(60);

/// The manners of a client. By default it sends as much as it is told to, and waits when it is asked to.
#[derive(Debug, Default)]
pub struct Pace {
    decisions: Traffic,
    diagnostics: Traffic,
    reads: Traffic,
}

/// What goes on in a lane.
#[derive(Debug, Default)]
struct Traffic {
    pace: Option<Even>,
    /// The server wants to be spared until then.
    held_off_until: Mutex<Option<Instant>>,
    /// Answers by their kind.
    answers: [AtomicU64; ANSWERS.len()],
    waited_nanos: AtomicU64,
    held_off_nanos: AtomicU64,
}

/// Kinds of answers.
const ANSWERS: [&str; 6] = ["2xx", "409", "429", "4xx", "5xx", "none"];

fn kind_of(answer: Option<StatusCode>) -> usize {
    match answer {
        None => 5,
        Some(StatusCode::CONFLICT) => 1,
        Some(StatusCode::TOO_MANY_REQUESTS) => 2,
        Some(code) if code.is_client_error() => 3,
        Some(code) if code.is_server_error() => 4,
        Some(_) => 0,
    }
}

impl Pace {
    /// So many writes at once, and so many per second in the long run; of those that inform as many again. At least one is
    /// allowed at once.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let lane = || Traffic { pace: Some(Even::new(per_second, burst)), ..Traffic::default() };
        Self { decisions: lane(), diagnostics: lane(), reads: Traffic::default() }
    }

    fn lane(&self, lane: Lane) -> &Traffic {
        match lane {
            Lane::Decisions => &self.decisions,
            Lane::Diagnostics => &self.diagnostics,
            Lane::Reads => &self.reads,
        }
    }

    /// The same client, all of whose requests go in one lane.
    pub fn client(self: &Arc<Self>, client: &Client, lane: Lane) -> Client {
        self.mannered(client, Some(lane))
    }

    /// The same client, each of whose requests goes in the lane that it looks like.
    pub fn sorting_client(self: &Arc<Self>, client: &Client) -> Client {
        self.mannered(client, None)
    }

    fn mannered(self: &Arc<Self>, client: &Client, lane: Option<Lane>) -> Client {
        let mannered = Mannered { client: client.clone(), pace: Arc::clone(self), lane };
        Client::new(mannered, client.default_namespace())
    }

    /// How long requests have waited for the request rate so far, all together.
    pub fn waited(&self) -> Duration {
        let nanos = |lane: Lane| self.lane(lane).waited_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(Lane::ALL.map(nanos).iter().sum())
    }

    /// Takes over into the metrics what is counted here.
    pub fn publish(&self, registry: &Registry) {
        for lane in Lane::ALL {
            let (traffic, name) = (self.lane(lane), lane.as_str());
            for (kind, count) in ANSWERS.iter().zip(&traffic.answers) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    registry.set(Metric::Requests, &[name, kind], count as f64);
                }
            }
            let seconds = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) as f64 / 1e9;
            registry.set(Metric::HeldOff, &[name], seconds(&traffic.held_off_nanos));
            if traffic.pace.is_some() {
                registry.set(Metric::Throttled, &[name], seconds(&traffic.waited_nanos));
            }
        }
    }
}

impl Traffic {
    /// How long a request has to wait, which takes its turn with this.
    fn take_turn(&self, now: Instant) -> Duration {
        let held_off = *self.held_off_until.lock().unwrap_or_else(PoisonError::into_inner);
        let held_off = held_off.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        let paced = self.pace.as_ref().map_or(Duration::ZERO, |pace| pace.take_turn(now));
        let add = |sum: &AtomicU64, wait: Duration| {
            sum.fetch_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        };
        add(&self.waited_nanos, paced);
        add(&self.held_off_nanos, held_off.saturating_sub(paced));
        held_off.max(paced)
    }

    /// Takes in an answer, and for how long the server wants to be spared.
    fn answered<T>(&self, answer: Option<&Response<T>>, now: Instant) {
        let code = answer.map(Response::status);
        self.answers[kind_of(code)].fetch_add(1, Ordering::Relaxed);
        let is_busy = matches!(code, Some(StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE));
        let Some(wait) = answer.filter(|_| is_busy).and_then(retry_after) else { return };
        let until = now + wait.min(LONGEST_HOLD_OFF);
        let mut held_off = self.held_off_until.lock().unwrap_or_else(PoisonError::into_inner);
        *held_off = Some(held_off.map_or(until, |before| before.max(until)));
    }
}

/// For how long a server wants to be spared; only seconds are understood, as API servers say it.
fn retry_after<T>(answer: &Response<T>) -> Option<Duration> {
    let seconds = answer.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// Requests that wait for each other.
#[derive(Debug)]
struct Even {
    interval: Duration,
    /// How far ahead of an even pace requests may be.
    ahead: Duration,
    /// When the next request would be sent by an even pace.
    even: Mutex<Option<Instant>>,
}

impl Even {
    fn new(per_second: f64, burst: u32) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / per_second).unwrap_or_default();
        Self { interval, ahead: interval.saturating_mul(burst.max(1) - 1), even: Mutex::new(None) }
    }

    fn take_turn(&self, now: Instant) -> Duration {
        let mut even = self.even.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = even.unwrap_or(now).max(now);
        *even = Some(turn + self.interval);
        turn.duration_since(now).saturating_sub(self.ahead)
    }
}

/// A client with manners.
#[derive(Clone)]
struct Mannered {
    client: Client,
    pace: Arc<Pace>,
    lane: Option<Lane>,
}

impl tower::Service<Request<Body>> for Mannered {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { client, pace, lane } = self.clone();
        let lane = lane.unwrap_or_else(|| Lane::of(&request));
        let wait = pace.lane(lane).take_turn(Instant::now());
        async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let answer = client.send(request).await;
            pace.lane(lane).answered(answer.as_ref().ok(), Instant::now());
            answer
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/default/events";
    const BINDING: &str = "/api/v1/namespaces/default/pods/events-of-mine/binding";

    fn waits(pace: &Pace, path: &str, count: usize) -> Vec<u128> {
        let request = Request::post(path).body(Body::empty()).unwrap();
        let lane = pace.lane(Lane::of(&request));
        (0..count).map(|_| lane.take_turn(Instant::now()).as_millis()).collect()
    }

    fn answer(code: u16, after: &str) -> Response<()> {
        Response::builder().status(code).header(header::RETRY_AFTER, after).body(()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_one_by_one() {
        let pace = Pace::new(10.0, 3);
        assert_eq!(waits(&pace, BINDING, 5), [0, 0, 0, 100, 200]);
        assert_eq!(pace.waited(), Duration::from_millis(300));
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(waits(&pace, BINDING, 2), [0, 100], "one turn came back");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(waits(&pace, BINDING, 4), [0, 0, 0, 100], "no more than the burst is saved up");
    }

    #[tokio::test(start_paused = true)]
    async fn events_and_reads_hold_up_nothing_else() {
        let pace = Pace::new(10.0, 1);
        assert_eq!(waits(&pace, EVENTS, 3), [0, 100, 200]);
        assert_eq!(waits(&pace, BINDING, 2), [0, 100]);
        assert_eq!(waits(&pace, &format!("{EVENTS}/one"), 1), [300]);
        let list = Request::get(EVENTS).body(Body::empty()).unwrap();
        assert_eq!(Lane::of(&list), Lane::Reads);
        assert_eq!(pace.lane(Lane::Reads).take_turn(Instant::now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn without_bounds_nothing_waits() {
        for pace in [Pace::new(f64::MAX, u32::MAX), Pace::default()] {
            assert!(waits(&pace, BINDING, 1000).iter().all(|wait| *wait == 0));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_busy_is_spared_in_every_lane_for_itself() {
        let pace = Pace::default();
        let (decisions, reads) = (pace.lane(Lane::Decisions), pace.lane(Lane::Reads));
        let now = Instant::now();
        decisions.answered(Some(&answer(429, "3")), now);
        decisions.answered(Some(&answer(503, "2")), now);
        assert_eq!(decisions.take_turn(now), Duration::from_secs(3));
        assert_eq!(reads.take_turn(now), Duration::ZERO);
        assert_eq!(decisions.take_turn(now + Duration::from_secs(4)), Duration::ZERO);
        reads.answered(Some(&answer(429, "100000")), now);
        assert_eq!(reads.take_turn(now), LONGEST_HOLD_OFF);
        for (code, after) in [(500, "3"), (429, "soon")] {
            decisions.answered(Some(&answer(code, after)), now);
        }
        assert_eq!(decisions.take_turn(now + Duration::from_secs(4)), Duration::ZERO);
        decisions.answered(None::<&Response<()>>, now);
        let registry = Registry::default();
        pace.publish(&registry);
        let text = registry.text();
        for line in [
            "gangway_client_requests_total{lane=\"decisions\",answer=\"429\"} 2",
            "gangway_client_requests_total{lane=\"decisions\",answer=\"5xx\"} 2",
            "gangway_client_requests_total{lane=\"decisions\",answer=\"none\"} 1",
            "gangway_client_held_off_seconds_total{lane=\"decisions\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_request_waits_whatever_it_is() {
        for lane in Lane::ALL {
            let busy = |_: Request<Body>| {
                let answer = Response::builder().status(429).header(header::RETRY_AFTER, "7");
                futures::future::ready(Ok::<_, kube::Error>(answer.body(Body::empty()).unwrap()))
            };
            let client =
                Arc::new(Pace::default()).client(&Client::new(tower::service_fn(busy), "default"), lane);
            let began = Instant::now();
            for waited in [0, 7, 14] {
                let request = Request::get("/api/v1/pods?watch=true").body(Body::empty()).unwrap();
                assert_eq!(client.send(request).await.unwrap().status(), 429);
                assert_eq!(began.elapsed().as_secs(), waited, "{lane:?}");
            }
        }
    }
}
