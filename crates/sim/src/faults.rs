//! What goes wrong between a client and the API: a tower service in front of it.
//!
//! Requests are late, refused before anything is done, or answered by nobody although they were carried out. Watches are
//! cut, expire, stutter and lag. Lists are old. Which of it happens to which request follows from the seed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use gangway_apiserver::{ApiServer, ResponseBody};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use kube::client::Body;
use serde_json::json;

use crate::witness::{Answered, Witness};

/// How often, of 1,000, something goes wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A request or its answer takes this long at most, in milliseconds.
    pub latency_millis: u64,
    /// A write is refused with 409 although nobody was faster.
    pub conflict: u32,
    /// A request is refused with 429.
    pub busy: u32,
    /// A request is refused with 500.
    pub broken: u32,
    /// A write lands and its answer is lost.
    pub answer_lost: u32,
    /// A watch ends after an event.
    pub cut: u32,
    /// A watch ends with 410.
    pub expired: u32,
    /// An event comes twice.
    pub twice: u32,
    /// An event comes this late at most, in milliseconds.
    pub lag_millis: u64,
    /// A list is as old as the last one that was asked for.
    pub old_list: u32,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One client's way to the API.
#[derive(Clone)]
pub struct Connection {
    api: ApiServer,
    who: &'static str,
    way: Way,
    witness: Arc<Witness>,
}

/// How much goes wrong for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// All of it.
    Rough,
    /// Requests and events are late, nothing else.
    Late,
    /// Nothing.
    Smooth,
}

impl Connection {
    /// A client on which things go wrong.
    pub fn client(api: &ApiServer, who: &'static str, witness: &Arc<Witness>) -> kube::Client {
        Self::client_by(api, who, witness, Way::Rough)
    }

    /// A client whose requests and events are late, but arrive.
    pub fn late_client(api: &ApiServer, who: &'static str, witness: &Arc<Witness>) -> kube::Client {
        Self::client_by(api, who, witness, Way::Late)
    }

    /// A client whose requests arrive at once and are answered.
    pub fn spared_client(api: &ApiServer, who: &'static str, witness: &Arc<Witness>) -> kube::Client {
        Self::client_by(api, who, witness, Way::Smooth)
    }

    fn client_by(api: &ApiServer, who: &'static str, witness: &Arc<Witness>, way: Way) -> kube::Client {
        let connection = Self { api: api.clone(), who, way, witness: witness.clone() };
        kube::Client::new(connection, "default")
    }

    async fn carry(mut self, request: Request<Body>) -> Result<Response<ResponseBody>, BoxError> {
        let asked = Asked::of(&request);
        let fate = match self.way {
            Way::Rough => self.witness.fate_of(&asked),
            Way::Late => self.witness.fate_of(&asked).only_late(),
            Way::Smooth => Fate::default(),
        };
        sleep(fate.late).await;
        if self.witness.is_cut_off(self.who) {
            return Err("nothing arrives".into());
        }
        if let Some(refusal) = fate.refused {
            self.witness.note(self.who, &asked, refusal.as_u16(), "refused");
            return Ok(refuse(refusal));
        }
        let old = if asked.is_list { self.witness.old_list(self.who, &asked) } else { None };
        if let Some(old) = old.filter(|_| fate.old_list) {
            self.witness.note(self.who, &asked, 200, "old");
            return Ok(json_response(StatusCode::OK, old));
        }
        let response = match tower::Service::call(&mut self.api, request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let code = response.status().as_u16();
        let told = if fate.answer_lost { "answer lost" } else { "" };
        match self.witness.answered(self.who, &asked, code, told) {
            // Whoever dies with its request under way never hears of it.
            Answered::ByNobody => return std::future::pending().await,
            Answered::ByTheServer => {}
        }
        if fate.answer_lost {
            return Err("the connection broke before the answer came".into());
        }
        sleep(fate.late_answer).await;
        if asked.is_watch && self.way != Way::Smooth && code == 200 {
            return Ok(self.disturb(response));
        }
        if asked.is_list && code == 200 {
            return self.remember(asked, response).await;
        }
        Ok(response)
    }

    /// A list is kept, so that it can be told once more when it is old.
    async fn remember(
        &self,
        asked: Asked,
        response: Response<ResponseBody>,
    ) -> Result<Response<ResponseBody>, BoxError> {
        let (parts, body) = response.into_parts();
        let body = match body.collect().await {
            Ok(body) => body.to_bytes(),
            Err(never) => match never {},
        };
        self.witness.keep_list(asked, body.clone());
        Ok(Response::from_parts(parts, whole(body)))
    }

    /// A watch on which things go wrong.
    fn disturb(&self, response: Response<ResponseBody>) -> Response<ResponseBody> {
        let (parts, body) = response.into_parts();
        let (witness, way) = (self.witness.clone(), self.way);
        let frames = stream::unfold(Some(BodyStream::new(body)), move |frames| {
            let witness = witness.clone();
            async move {
                let mut frames = frames?;
                let frame = frames.next().await?;
                let data = match frame.map(Frame::into_data) {
                    Ok(Ok(data)) => data,
                    Ok(Err(other)) => return Some((Ok(other), Some(frames))),
                    Err(never) => match never {},
                };
                let event = witness.fate_of_event();
                let event = if way == Way::Late { event.only_late() } else { event };
                sleep(event.late).await;
                if event.expired {
                    return Some((Ok(Frame::data(expired())), None));
                }
                let told = if event.twice { twice(&data) } else { data };
                Some((Ok::<_, Infallible>(Frame::data(told)), (!event.cut).then_some(frames)))
            }
        });
        Response::from_parts(parts, StreamBody::new(frames.boxed()).boxed_unsync())
    }
}

impl tower::Service<Request<Body>> for Connection {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().carry(request).boxed()
    }
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its method.
    pub method: Method,
    /// Path and query.
    pub path: String,
    /// It asks for changes as they happen.
    pub is_watch: bool,
    /// It asks for all objects of a kind.
    pub is_list: bool,
}

impl Asked {
    fn of(request: &Request<Body>) -> Self {
        let uri = request.uri();
        let path = uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string);
        let is_watch = uri.query().is_some_and(|query| query.contains("watch=true"));
        let is_get = request.method() == Method::GET;
        let is_list = is_get && !is_watch && uri.query().is_some_and(|query| query.contains("limit="));
        Self { method: request.method().clone(), path, is_watch, is_list }
    }

    /// Whether it may change something.
    pub fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    /// Whether it is about who leads, or which node is alive.
    pub fn is_about_leases(&self) -> bool {
        self.path.contains("/leases")
    }

    /// The path without the query.
    pub fn place(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    late: Duration,
    refused: Option<StatusCode>,
    old_list: bool,
    answer_lost: bool,
    late_answer: Duration,
}

impl Fate {
    fn only_late(self) -> Self {
        Self { late: self.late, late_answer: self.late_answer, ..Self::default() }
    }
}

/// What becomes of an event of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventFate {
    late: Duration,
    twice: bool,
    cut: bool,
    expired: bool,
}

impl EventFate {
    fn only_late(self) -> Self {
        Self { late: self.late, ..Self::default() }
    }
}

/// Decides what goes wrong, and remembers what it takes to do so.
#[derive(Debug)]
pub struct Chance {
    random: fastrand::Rng,
    /// What goes wrong now.
    pub faults: Faults,
    lists: BTreeMap<String, Bytes>,
}

impl Chance {
    /// The same seed decides the same.
    pub fn seeded(seed: u64, faults: Faults) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), faults, lists: BTreeMap::new() }
    }

    fn happens(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.random.u32(0..1000) < per_mille
    }

    fn delay(&mut self, most_millis: u64) -> Duration {
        if most_millis == 0 {
            Duration::ZERO
        } else {
            Duration::from_millis(self.random.u64(0..=most_millis))
        }
    }

    /// What becomes of a request.
    pub fn of_request(&mut self, asked: &Asked) -> Fate {
        let faults = self.faults;
        let mut fate = Fate {
            late: self.delay(faults.latency_millis),
            late_answer: self.delay(faults.latency_millis),
            ..Fate::default()
        };
        if self.happens(faults.busy) {
            fate.refused = Some(StatusCode::TOO_MANY_REQUESTS);
        } else if self.happens(faults.broken) {
            fate.refused = Some(StatusCode::INTERNAL_SERVER_ERROR);
        } else if asked.is_write() {
            // An object cannot have been changed by somebody else before it is there.
            if asked.method != Method::POST && self.happens(faults.conflict) {
                fate.refused = Some(StatusCode::CONFLICT);
            }
            fate.answer_lost = self.happens(faults.answer_lost);
        } else if asked.is_list {
            fate.old_list = self.happens(faults.old_list);
        }
        fate
    }

    /// What becomes of an event.
    pub fn of_event(&mut self) -> EventFate {
        let faults = self.faults;
        EventFate {
            late: self.delay(faults.lag_millis),
            twice: self.happens(faults.twice),
            cut: self.happens(faults.cut),
            expired: self.happens(faults.expired),
        }
    }

    /// The list that was last told to somebody who asked the same.
    pub fn old_list(&self, asked: &Asked) -> Option<Bytes> {
        self.lists.get(&asked.path).cloned()
    }

    /// Keeps a list, now and then: what is kept should be old.
    pub fn keep_list(&mut self, asked: Asked, list: Bytes) {
        if !self.lists.contains_key(&asked.path) || self.happens(300) {
            self.lists.insert(asked.path, list);
        }
    }
}

async fn sleep(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}

fn whole(body: Bytes) -> ResponseBody {
    Full::new(body).boxed_unsync()
}

fn json_response(code: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(whole(body));
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}

fn status(code: StatusCode, reason: &str, message: &str) -> serde_json::Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16()})
}

fn refuse(code: StatusCode) -> Response<ResponseBody> {
    let reason = match code {
        StatusCode::CONFLICT => "Conflict",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        _ => "InternalError",
    };
    json_response(code, status(code, reason, "a fault that was ordered").to_string().into())
}

fn expired() -> Bytes {
    let status = status(StatusCode::GONE, "Expired", "too old resource version");
    format!("{}\n", json!({"type": "ERROR", "object": status})).into()
}

/// The last line of some lines of a watch once more.
fn twice(lines: &Bytes) -> Bytes {
    let text = &lines[..];
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let start = body.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    [text, &text[start..]].concat().into()
}
