//! How many requests per second a client sends.
//!
//! Events go by a pace of their own: what people are told holds up nothing that is decided.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;

/// So many requests at once, and so many per second in the long run; for events as many again.
#[derive(Debug)]
pub struct Pace {
    decisions: Lane,
    events: Lane,
    waited_nanos: AtomicU64,
}

impl Pace {
    /// At least one request is allowed at once.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let lane = || Lane::new(per_second, burst);
        Self { decisions: lane(), events: lane(), waited_nanos: AtomicU64::new(0) }
    }

    /// The same client, whose requests wait for their turn.
    pub fn client(self: &Arc<Self>, client: &Client) -> Client {
        let paced = Paced { client: client.clone(), pace: Arc::clone(self) };
        Client::new(paced, client.default_namespace())
    }

    /// How long requests have waited so far, all together.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited_nanos.load(Ordering::Relaxed))
    }

    /// How long a request has to wait, which takes its turn with this.
    fn take_turn(&self, path: &str) -> Duration {
        let is_event = path.rsplit('/').take(2).any(|part| part == "events");
        let wait = if is_event { &self.events } else { &self.decisions }.take_turn(Instant::now());
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.waited_nanos.fetch_add(nanos, Ordering::Relaxed);
        wait
    }
}

/// Requests that wait for each other.
#[derive(Debug)]
struct Lane {
    interval: Duration,
    /// How far ahead of an even pace requests may be.
    ahead: Duration,
    /// When the next request would be sent by an even pace.
    even: Mutex<Option<Instant>>,
}

impl Lane {
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

/// A client whose requests wait for their turn.
#[derive(Clone)]
struct Paced {
    client: Client,
    pace: Arc<Pace>,
}

impl tower::Service<Request<Body>> for Paced {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let wait = self.pace.take_turn(request.uri().path());
        let client = self.client.clone();
        async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            client.send(request).await
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
        (0..count).map(|_| pace.take_turn(path).as_millis()).collect()
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
    async fn events_hold_up_nothing_else() {
        let pace = Pace::new(10.0, 1);
        assert_eq!(waits(&pace, EVENTS, 3), [0, 100, 200]);
        assert_eq!(waits(&pace, BINDING, 2), [0, 100]);
        assert_eq!(waits(&pace, &format!("{EVENTS}/one"), 1), [300]);
    }

    #[tokio::test(start_paused = true)]
    async fn without_bounds_nothing_waits() {
        let pace = Pace::new(f64::MAX, u32::MAX);
        assert!(waits(&pace, BINDING, 1000).iter().all(|wait| *wait == 0));
    }
}
