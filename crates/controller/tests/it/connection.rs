//! A connection to the embedded API on which things go wrong, and a clock for paused time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use gangway_apiserver::{ApiServer, ResponseBody};
use gangway_model::{Clock, Timestamp};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::Client;
use kube::client::Body;

/// A clock that moves with tokio's paused time.
pub(crate) struct TokioClock {
    start: tokio::time::Instant,
}

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self { start: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        let elapsed = self.start.elapsed().as_millis();
        Timestamp::from_seconds(1_700_000_000).plus_millis(i64::try_from(elapsed).expect("a short test"))
    }
}

/// How long a slow request takes.
const SLOW: std::time::Duration = std::time::Duration::from_millis(20);

/// What happens to one request on its way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    /// It takes 20 milliseconds.
    Slow,
    /// It never reaches the server.
    Lost,
    /// It lands, and the answer is lost.
    AnswerLost,
    /// Neither it nor anything after it arrives.
    CutOff,
    /// It lands, and nothing after it arrives.
    CutOffAfter,
    /// The server refuses it with this code, without doing anything.
    Refused(u16),
}

type FaultOf = Arc<dyn Fn(usize) -> Fault + Send + Sync>;

/// A connection whose nth request (from 0), of those that count, has the fault that `fault_of` says.
#[derive(Clone)]
pub(crate) struct Connection {
    server: ApiServer,
    counts: fn(&Request<Body>) -> bool,
    counted: Arc<AtomicUsize>,
    fault_of: FaultOf,
    /// How many of those that count are on their way, and how many were at most.
    on_the_way: Arc<[AtomicUsize; 2]>,
    /// Where paths and queries are noted, if they are.
    noted: Option<Arc<Mutex<Vec<String>>>>,
    /// Told when the connection is cut off.
    pub(crate) cut: Arc<tokio::sync::Notify>,
}

impl Connection {
    pub(crate) fn new(
        server: &ApiServer,
        counts: fn(&Request<Body>) -> bool,
        fault_of: impl Fn(usize) -> Fault + Send + Sync + 'static,
    ) -> Self {
        let (counted, cut, on_the_way) = (Arc::default(), Arc::default(), Arc::default());
        let (server, fault_of) = (server.clone(), Arc::new(fault_of));
        Self { server, counts, counted, fault_of, on_the_way, noted: None, cut }
    }

    /// The same, whose requests are noted with path and query.
    pub(crate) fn noting(self, paths: &Arc<Mutex<Vec<String>>>) -> Self {
        Self { noted: Some(Arc::clone(paths)), ..self }
    }

    /// How many requests counted so far.
    pub(crate) fn counted(&self) -> usize {
        self.counted.load(Ordering::SeqCst)
    }

    /// How many slow requests were on their way at most.
    pub(crate) fn most_on_the_way(&self) -> usize {
        self.on_the_way[1].load(Ordering::SeqCst)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }
}

impl tower::Service<Request<Body>> for Connection {
    type Response = Response<ResponseBody>;
    type Error = std::io::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if let Some(noted) = &self.noted {
            noted.lock().expect("nobody panics").push(request.uri().to_string());
        }
        let fault = if (self.counts)(&request) {
            (self.fault_of)(self.counted.fetch_add(1, Ordering::SeqCst))
        } else {
            Fault::None
        };
        if fault == Fault::CutOff {
            self.cut.notify_one();
            return futures::future::pending().boxed();
        }
        let is_sent = !matches!(fault, Fault::Lost | Fault::Refused(_));
        let answer = is_sent.then(|| self.server.call(request));
        let cut = Arc::clone(&self.cut);
        let on_the_way = Arc::clone(&self.on_the_way);
        async move {
            if fault == Fault::Slow {
                let others = on_the_way[0].fetch_add(1, Ordering::SeqCst);
                on_the_way[1].fetch_max(others + 1, Ordering::SeqCst);
                tokio::time::sleep(SLOW).await;
                on_the_way[0].fetch_sub(1, Ordering::SeqCst);
            }
            if let Fault::Refused(code) = fault {
                return Ok(refused(code));
            }
            let broken = || std::io::Error::other("the connection broke");
            let answer = answer.ok_or_else(broken)?.await.expect("the server cannot fail");
            match fault {
                Fault::AnswerLost => Err(broken()),
                Fault::CutOffAfter => {
                    cut.notify_one();
                    futures::future::pending().await
                }
                _ => Ok(answer),
            }
        }
        .boxed()
    }
}

fn refused(code: u16) -> Response<ResponseBody> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Test",
        "message": "the server is in trouble",
    });
    let body = Full::new(Bytes::from(status.to_string())).boxed_unsync();
    Response::builder().status(code).body(body).expect("an answer")
}
