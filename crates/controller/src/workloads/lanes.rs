//! Two lanes of writes with separate budgets, and at most one write under way per object.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gangway_admission::{DecisionId, QueueRef};
use gangway_model::{Timestamp, Uid};
use kube::Client;
use rustc_hash::FxHashSet;

use super::counts::RequestCounts;
use super::finalizers::Going;
use crate::metrics::Metric;
use crate::pace::{Lane, Pace};
use crate::trouble::Trouble;

/// Decisions that are sent but not answered, so that what is assumed never runs far ahead of the API.
const MOST_DECISIONS: usize = 256;
/// Diagnostics that are sent but not answered.
const MOST_DIAGNOSTICS: usize = 16;
/// The same while decisions wait for an answer: they come first.
const MOST_DIAGNOSTICS_BESIDE_DECISIONS: usize = 2;
/// After this long nobody knows how a request ended.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What a write is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Workload(Uid),
    Job(Uid),
    ClusterQueue(Uid),
    LocalQueue(Uid),
    /// A ResourceFlavor or an AdmissionCheck.
    Definition(Uid),
}

/// Why a write is made, so that its end can be told to whoever waits for it.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// The engine decided it.
    Decision(DecisionId),
    /// A Job needs it.
    JobStep(Uid),
    /// A queue's status.
    QueueStatus(QueueRef),
    /// An object that is being deleted is kept by a finalizer.
    Finalizer(Going),
    /// An Event.
    Note,
}

/// What the API made of a write.
pub(super) enum Answer {
    Workload(Box<gangway_api::kueue::Workload>),
    /// The same, which was not there before.
    Created(Box<gangway_api::kueue::Workload>),
    Job(Box<k8s_openapi::api::batch::v1::Job>),
    ClusterQueue(Box<gangway_api::kueue::ClusterQueue>),
    LocalQueue(Box<gangway_api::kueue::LocalQueue>),
    /// Deleted, or nothing that is kept.
    Nothing,
}

/// How a write ended.
pub(super) enum End {
    Landed(Answer),
    /// The object changed or is gone; look again.
    Conflict,
    /// The API refuses it.
    Refused(Refusal),
    /// Nobody knows.
    Unknown,
}

/// Why the API refuses a write.
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) message: String,
}

/// A write that has ended.
pub(super) struct Done {
    pub(super) purpose: Purpose,
    pub(super) end: End,
}

/// A request that can be sent.
pub(super) type Request = BoxFuture<'static, Result<Answer, kube::Error>>;

/// A write and its answer; none if there was none in time.
type Answered = (Lane, Vec<Target>, Purpose, Option<Result<Answer, kube::Error>>);

/// How many requests may be sent: so many at once, and so many per second in the long run.
struct Rate {
    per_second: f64,
    burst: f64,
    tokens: f64,
    filled_at: Timestamp,
}

impl Rate {
    fn new(per_second: f64, burst: u32) -> Self {
        let burst = f64::from(burst);
        Self { per_second, burst, tokens: burst, filled_at: Timestamp::EPOCH }
    }

    /// Lets time pass. Says how many seconds of it nothing could be sent, if nothing could.
    fn refill(&mut self, now: Timestamp) -> Option<f64> {
        let seconds = now.nanos_since(self.filled_at).max(0) as f64 / 1e9;
        self.filled_at = now;
        let lacking = (1.0 - self.tokens).max(0.0) / self.per_second;
        self.tokens = (self.tokens + seconds * self.per_second).min(self.burst);
        (lacking > 0.0).then(|| lacking.min(seconds))
    }

    fn allowed(&self) -> usize {
        self.tokens as usize
    }

    /// How long until one more may be sent.
    fn wait(&self) -> Option<Duration> {
        (self.tokens < 1.0).then(|| Duration::from_secs_f64((1.0 - self.tokens) / self.per_second))
    }
}

/// The writes under way.
pub(super) struct Lanes {
    decision_client: Client,
    diagnostic_client: Client,
    counts: Arc<RequestCounts>,
    requests: FuturesUnordered<BoxFuture<'static, Answered>>,
    busy: FxHashSet<Target>,
    decisions: usize,
    diagnostics: usize,
    /// Each lane has a rate of its own, so that what informs holds up nothing that is decided.
    decision_rate: Rate,
    diagnostic_rate: Rate,
    trouble: Trouble,
}

impl Lanes {
    pub(super) fn new(
        client: &Client,
        pace: &Arc<Pace>,
        counts: Arc<RequestCounts>,
        per_second: f64,
        burst: u32,
    ) -> Self {
        Self {
            decision_client: pace.client(client, Lane::Decisions),
            diagnostic_client: pace.client(client, Lane::Diagnostics),
            counts,
            requests: FuturesUnordered::new(),
            busy: FxHashSet::default(),
            decisions: 0,
            diagnostics: 0,
            decision_rate: Rate::new(per_second, burst),
            diagnostic_rate: Rate::new(per_second, burst),
            trouble: Trouble::with("writing to the API"),
        }
    }

    /// The client for a lane.
    pub(super) fn client(&self, lane: Lane) -> &Client {
        if lane == Lane::Diagnostics { &self.diagnostic_client } else { &self.decision_client }
    }

    fn rate(&self, lane: Lane) -> &Rate {
        if lane == Lane::Diagnostics { &self.diagnostic_rate } else { &self.decision_rate }
    }

    /// Whether a write about this object is under way.
    pub(super) fn is_busy(&self, target: &Target) -> bool {
        self.busy.contains(target)
    }

    /// Lets time pass for the request rate.
    pub(super) fn tick(&mut self, now: Timestamp) {
        for (rate, lane) in
            [(&mut self.decision_rate, Lane::Decisions), (&mut self.diagnostic_rate, Lane::Diagnostics)]
        {
            if let Some(lost) = rate.refill(now) {
                self.counts.metrics().add(Metric::Throttled, &[lane.as_str()], lost);
            }
        }
    }

    /// How long the request rate keeps a lane waiting, if it does.
    pub(super) fn rate_wait(&self) -> Option<Duration> {
        self.decision_rate.wait().into_iter().chain(self.diagnostic_rate.wait()).min()
    }

    /// How many more writes a lane takes.
    pub(super) fn free_slots(&self, lane: Lane) -> usize {
        let slots = match lane {
            Lane::Decisions | Lane::Reads => MOST_DECISIONS.saturating_sub(self.decisions),
            Lane::Diagnostics if self.decisions > 0 => {
                MOST_DIAGNOSTICS_BESIDE_DECISIONS.saturating_sub(self.diagnostics)
            }
            Lane::Diagnostics => MOST_DIAGNOSTICS.saturating_sub(self.diagnostics),
        };
        slots.min(self.rate(lane).allowed())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Sends a write about one object or several; each is busy until it ends.
    pub(super) fn send(&mut self, lane: Lane, targets: Vec<Target>, purpose: Purpose, request: Request) {
        self.counts.sent(lane);
        match lane {
            Lane::Decisions | Lane::Reads => {
                self.decisions += 1;
                self.decision_rate.tokens -= 1.0;
            }
            Lane::Diagnostics => {
                self.diagnostics += 1;
                self.diagnostic_rate.tokens -= 1.0;
            }
        }
        self.busy.extend(targets.iter().cloned());
        let answered = async move {
            let result = tokio::time::timeout(REQUEST_TIMEOUT, request).await.ok();
            (lane, targets, purpose, result)
        };
        self.requests.push(answered.boxed());
    }

    /// The next write that ended; none while there is none under way.
    pub(super) async fn next(&mut self) -> Option<Done> {
        let (lane, targets, purpose, result) = self.requests.next().await?;
        match lane {
            Lane::Decisions | Lane::Reads => self.decisions -= 1,
            Lane::Diagnostics => self.diagnostics -= 1,
        }
        for target in &targets {
            self.busy.remove(target);
        }
        let end = self.classify(result);
        Some(Done { purpose, end })
    }

    fn classify(&mut self, result: Option<Result<Answer, kube::Error>>) -> End {
        let error = match result {
            Some(Ok(answer)) => {
                self.trouble.worked();
                self.counts.applied();
                return End::Landed(answer);
            }
            Some(Err(kube::Error::Api(status))) => match status.code {
                404 | 409 => {
                    self.counts.conflicts();
                    return End::Conflict;
                }
                429 | 500.. => status.message.clone(),
                _ => {
                    self.counts.rejected();
                    return End::Refused(Refusal { code: status.code, message: status.message.clone() });
                }
            },
            Some(Err(error)) => error.to_string(),
            None => format!("no answer within {} s", REQUEST_TIMEOUT.as_secs()),
        };
        self.trouble.failed(&error);
        self.counts.retried();
        End::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_object_of_a_write_is_busy_until_it_ends() {
        let client = gangway_apiserver::ApiServer::builder().build().client();
        let mut lanes = Lanes::new(&client, &Arc::default(), Arc::default(), 10.0, 10);
        let targets = vec![Target::Job("j".into()), Target::Workload("w".into())];
        let request = futures::future::ready(Ok(Answer::Nothing)).boxed();
        lanes.send(Lane::Decisions, targets.clone(), Purpose::JobStep("j".into()), request);
        assert!(targets.iter().all(|target| lanes.is_busy(target)));
        let done = lanes.next().await;
        assert!(done.is_some_and(|done| matches!(done.end, End::Landed(Answer::Nothing))));
        assert!(!targets.iter().any(|target| lanes.is_busy(target)));
    }

    #[tokio::test]
    async fn what_informs_uses_up_nothing_that_decisions_need() {
        let client = gangway_apiserver::ApiServer::builder().build().client();
        let mut lanes = Lanes::new(&client, &Arc::default(), Arc::default(), 10.0, 2);
        lanes.tick(Timestamp::from_seconds(1));
        for _ in 0..2 {
            let request = futures::future::ready(Ok(Answer::Nothing)).boxed();
            lanes.send(Lane::Diagnostics, Vec::new(), Purpose::Note, request);
        }
        assert_eq!((lanes.free_slots(Lane::Diagnostics), lanes.free_slots(Lane::Decisions)), (0, 2));
        lanes.tick(Timestamp::from_seconds(2));
        let text = lanes.counts.metrics().text();
        assert!(text.contains("gangway_client_throttled_seconds_total{lane=\"diagnostics\"} 0.1"), "{text}");
    }

    #[test]
    fn the_rate_allows_a_burst_and_then_so_many_per_second() {
        let at = |millis: i64| Timestamp::from_seconds(1).plus_millis(millis);
        let mut rate = Rate::new(10.0, 3);
        rate.refill(at(0));
        assert_eq!(rate.allowed(), 3);
        rate.tokens -= 3.0;
        assert_eq!((rate.allowed(), rate.wait()), (0, Some(Duration::from_millis(100))));
        assert_eq!(rate.refill(at(250)), Some(0.1), "for so long nothing could be sent");
        assert_eq!((rate.allowed(), rate.wait()), (2, None));
        assert_eq!(rate.refill(at(9000)), None);
        assert_eq!(rate.allowed(), 3, "no more than the burst is saved up");
    }
}
