//! The decision lane: bindings on their way, and how they end.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gangway_model::NodeName;
use gangway_placement::{DecisionId, Outcome, PodRef};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::Instant;

use super::counts::BindCounts;
use super::metrics::Effort;
use crate::trouble::{Trouble, wait_after};

/// Bindings that are sent but not answered, so that what is assumed never runs far ahead of the API.
const MOST_IN_FLIGHT: usize = 256;
/// After this long nobody knows how a request ended.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A server in trouble is asked again after so long, before the binding counts as failed.
const RETRY_WAITS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];
/// No longer than this is waited because the server asks for it: the room on the node is kept meanwhile.
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// One binding on its way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) id: DecisionId,
    pub(super) pod: PodRef,
    pub(super) node: NodeName,
    /// What it took to come so far, to be counted when it has landed.
    pub(super) effort: Effort,
}

/// How a request about a binding ended.
struct Answer {
    flight: Flight,
    attempts: u32,
    /// What went wrong when it was sent.
    error: Option<String>,
    result: Result<Known, Failure>,
}

/// What is certain.
enum Known {
    Landed,
    /// The pod as it was read afterwards; `None` if it is gone.
    Read(Option<Box<Pod>>),
}

/// The request did not say what we wanted to know.
struct Failure {
    /// Whether the server is known to have refused, rather than silent or in trouble.
    refusal: Option<Refusal>,
    /// How long to wait at least before asking again, where that may help.
    passes_after: Option<Duration>,
    error: String,
}

enum Refusal {
    /// The pod changed, is bound or is gone.
    Conflict,
    Other,
}

/// What the scheduler is told about one binding.
pub(super) struct Report {
    pub(super) flight: Flight,
    pub(super) outcome: Outcome,
    /// What went wrong, where something did.
    pub(super) error: Option<String>,
    /// The pod as it is now, to be taken in before the outcome.
    pub(super) observed: Option<Box<Pod>>,
}

/// Every binding in flight. Dropping it drops them.
pub(super) struct Bindings {
    client: Client,
    counts: Arc<BindCounts>,
    requests: FuturesUnordered<BoxFuture<'static, Answer>>,
    trouble: Trouble,
}

impl Bindings {
    pub(super) fn new(client: Client, counts: Arc<BindCounts>) -> Self {
        Self { client, counts, requests: FuturesUnordered::new(), trouble: Trouble::with("binding pods") }
    }

    /// How many more bindings may be sent.
    pub(super) fn free_slots(&self) -> usize {
        MOST_IN_FLIGHT.saturating_sub(self.requests.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many are not answered.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn send(&mut self, flight: Flight) {
        let (client, counts) = (self.client.clone(), Arc::clone(&self.counts));
        self.requests.push(persist(client, counts, flight).boxed());
    }

    /// The next thing that became known about a binding; pending for ever while there is none.
    pub(super) async fn next(&mut self) -> Option<Report> {
        let Answer { flight, attempts, error: earlier, result } = self.requests.next().await?;
        match result {
            Ok(Known::Landed) => {
                self.trouble.worked();
                self.counts.bindings_landed();
                Some(Report { flight, outcome: Outcome::Landed, error: None, observed: None })
            }
            Ok(Known::Read(observed)) => {
                self.trouble.worked();
                Some(self.after_reading(flight, observed, earlier))
            }
            Err(Failure { refusal: Some(Refusal::Other), error, .. }) => {
                self.trouble.failed(&error);
                self.counts.bindings_rejected();
                Some(Report { flight, outcome: Outcome::Rejected, error: Some(error), observed: None })
            }
            Err(Failure { refusal, error, .. }) => {
                // A conflict may be our own binding that landed unseen: only the pod itself knows.
                let wait = if refusal.is_some() { Duration::ZERO } else { wait_after(attempts) };
                if refusal.is_none() {
                    self.trouble.failed(&error);
                }
                if attempts == 0 && refusal.is_none() {
                    self.counts.bindings_unknown();
                }
                self.counts.pods_read();
                let error = earlier.or(Some(error));
                let again = read(self.client.clone(), flight.clone(), attempts + 1, error.clone(), wait);
                self.requests.push(again.boxed());
                Some(Report { flight, outcome: Outcome::Unknown, error, observed: None })
            }
        }
    }

    /// The pod was read after a binding whose end was not seen or that met a conflict.
    fn after_reading(&self, flight: Flight, observed: Option<Box<Pod>>, error: Option<String>) -> Report {
        let same =
            observed.filter(|pod| pod.metadata.uid.as_deref().is_some_and(|uid| flight.pod.uid == uid));
        let node = same.as_ref().and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
        let outcome = match node {
            Some(node) if node == flight.node.as_str() => {
                self.counts.bindings_landed();
                Outcome::Landed
            }
            None if same.is_some() => {
                self.counts.bindings_rejected();
                Outcome::Rejected
            }
            _ => {
                self.counts.bindings_conflicted();
                Outcome::Conflict
            }
        };
        Report { flight, outcome, error, observed: same }
    }
}

/// Sends a binding, and sends it again while the server is in trouble. One that had landed all the same is then met by a conflict,
/// and found out.
async fn persist(client: Client, counts: Arc<BindCounts>, flight: Flight) -> Answer {
    let (began, mut waits) = (Instant::now(), RETRY_WAITS.into_iter());
    loop {
        counts.bindings_sent();
        let result = post(client.clone(), &flight).await;
        match (&result, waits.next()) {
            (Err(Failure { passes_after: Some(least), .. }), Some(wait)) => {
                counts.bindings_retried();
                tokio::time::sleep(wait.max(*least)).await;
            }
            _ => {
                let seconds = began.elapsed().as_secs_f64();
                counts.metrics().bind_called(&flight.effort.profile, result.is_ok(), seconds);
                return Answer { flight, attempts: 0, error: None, result };
            }
        }
    }
}

async fn post(client: Client, flight: &Flight) -> Result<Known, Failure> {
    let namespace = flight.pod.name.namespace.as_str();
    let name = &*flight.pod.name.name;
    let binding = Binding {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            uid: Some(flight.pod.uid.to_string()),
            ..ObjectMeta::default()
        },
        target: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(flight.node.to_string()),
            ..ObjectReference::default()
        },
    };
    let pods: Api<Pod> = Api::namespaced(client, namespace);
    let parameters = PostParams::default();
    // Servers answer with a Status or with the Binding; neither says more than the status code.
    let request = pods.create_subresource::<_, serde_json::Value>("binding", name, &parameters, &binding);
    in_time(request).await.map(|_| Known::Landed)
}

async fn read(
    client: Client,
    flight: Flight,
    attempts: u32,
    error: Option<String>,
    wait: Duration,
) -> Answer {
    tokio::time::sleep(wait).await;
    let pods: Api<Pod> = Api::namespaced(client, flight.pod.name.namespace.as_str());
    let result = match in_time(pods.get_opt(&flight.pod.name.name)).await {
        Ok(pod) => Ok(Known::Read(pod.map(Box::new))),
        // Whatever stops us from reading, only reading will tell.
        Err(failure) => Err(Failure { refusal: None, ..failure }),
    };
    Answer { flight, attempts, error, result }
}

async fn in_time<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let (refusal, passes_after) = (refusal(&error), passes_after(&error));
            Err(Failure { refusal, passes_after, error: error.to_string() })
        }
        Err(_) => {
            let error = "the API server did not answer in time".to_owned();
            Err(Failure { refusal: None, passes_after: None, error })
        }
    }
}

/// What a refusal means; `None` if the request may have been carried out all the same.
fn refusal(error: &kube::Error) -> Option<Refusal> {
    let kube::Error::Api(status) = error else { return None };
    match status.code {
        404 | 409 => Some(Refusal::Conflict),
        // Too many requests is said before anything is done.
        429 => Some(Refusal::Other),
        408 => None,
        400..=499 => Some(Refusal::Other),
        _ => None,
    }
}

/// How long to wait at least where the server is in trouble that may be over soon: asking again is better than to start from the
/// beginning.
fn passes_after(error: &kube::Error) -> Option<Duration> {
    if let kube::Error::Api(status) = error {
        let asked = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        let asked = Duration::from_secs(u64::from(asked)).min(LONGEST_RETRY);
        return matches!(status.code, 429 | 500 | 503 | 504).then_some(asked);
    }
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return (io.kind() == std::io::ErrorKind::ConnectionRefused).then_some(Duration::ZERO);
        }
        source = cause.source();
    }
    None
}
