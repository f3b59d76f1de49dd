//! The diagnostics lane: why pods wait, written on the pods.
//!
//! Only the newest reason of a pod is kept, nothing is written about a pod that waits but for a moment, and
//! what cannot be written soon is dropped: the scheduler's own explanation is always there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gangway_model::{Clock, NodeName, Uid};
use gangway_placement::PodRef;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::time::Instant;

use super::counts::BindCounts;
use super::metrics::Call;
use crate::trouble::Trouble;

/// A pod that waits less than this is not told why.
const QUIET_TIME: Duration = Duration::from_secs(1);
/// Diagnostics leave the API server to others.
const MOST_IN_FLIGHT: usize = 8;
/// The same while bindings wait for an answer: they come first.
const MOST_BESIDE_BINDINGS: usize = 2;
/// Beyond this many waiting pods the rest are not told.
const MOST_QUEUED: usize = 10_000;
/// How often a condition is sent for one reason before it is given up.
const MOST_ATTEMPTS: u32 = 3;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// What is known of a pending pod's status; conditions that others wrote are kept.
struct Seen {
    version: String,
    generation: Option<i64>,
    conditions: Vec<PodCondition>,
    nominated_node: Option<String>,
}

/// What a pod is told of why it has no node.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) cause: Cause,
    pub(super) message: String,
    /// The node on which room is made for it.
    pub(super) nominated_node: Option<NodeName>,
}

/// Why a pod has no node, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// It fits nowhere.
    Unschedulable,
    /// Something went wrong.
    Error,
}

impl Cause {
    fn as_str(self) -> &'static str {
        match self {
            Self::Unschedulable => "Unschedulable",
            Self::Error => "SchedulerError",
        }
    }
}

/// A pod and what it was told.
pub(super) struct Told {
    pub(super) pod: PodRef,
    pub(super) message: String,
}

#[derive(Clone)]
struct Note {
    pod: PodRef,
    said: Said,
    attempts: u32,
}

struct Answer {
    note: Note,
    sent_at: Instant,
    result: Result<(), kube::Error>,
}

/// Reasons on their way to their pods. Dropping it drops them.
pub(super) struct Diagnostics {
    client: Client,
    clock: Arc<dyn Clock>,
    counts: Arc<BindCounts>,
    seen: BTreeMap<Uid, Seen>,
    notes: BTreeMap<Uid, Note>,
    /// When to look at whose note, in order. Notes that were superseded are skipped.
    due: VecDeque<(Instant, Uid)>,
    /// Whose note does not wait: a node is kept for the pod, and whoever starts after us has to know.
    urgent: VecDeque<Uid>,
    requests: FuturesUnordered<BoxFuture<'static, Answer>>,
    trouble: Trouble,
}

impl Diagnostics {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, counts: Arc<BindCounts>) -> Self {
        Self {
            client,
            clock,
            counts,
            seen: BTreeMap::new(),
            notes: BTreeMap::new(),
            due: VecDeque::new(),
            urgent: VecDeque::new(),
            requests: FuturesUnordered::new(),
            trouble: Trouble::with("writing conditions of pods"),
        }
    }

    /// Remembers the conditions of a pod without a node.
    pub(super) fn observe(&mut self, pod: &Pod) {
        let Some(uid) = pod.metadata.uid.as_deref() else { return };
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        if bound || pod.metadata.deletion_timestamp.is_some() {
            self.forget(&uid.into());
            return;
        }
        let status = pod.status.as_ref();
        let seen = Seen {
            version: pod.metadata.resource_version.clone().unwrap_or_default(),
            generation: pod.metadata.generation,
            conditions: status.and_then(|status| status.conditions.clone()).unwrap_or_default(),
            nominated_node: status.and_then(|status| status.nominated_node_name.clone()),
        };
        self.seen.insert(uid.into(), seen);
    }

    /// The pod is bound or gone.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.seen.remove(uid);
        self.supersede(uid);
    }

    /// A decision about the pod makes its reason for waiting old.
    pub(super) fn supersede(&mut self, uid: &Uid) {
        if self.notes.remove(uid).is_some() {
            self.counts.conditions_superseded();
        }
    }

    /// A pod is to be told why it waits.
    pub(super) fn tell(&mut self, pod: PodRef, said: Said) {
        let uid = pod.uid.clone();
        let is_urgent = said.nominated_node.is_some();
        if !is_urgent && self.notes.len() >= MOST_QUEUED && !self.notes.contains_key(&uid) {
            self.counts.conditions_dropped();
            return;
        }
        let before = self.notes.insert(uid.clone(), Note { pod, said, attempts: 0 });
        if before.is_some() {
            // It is due already, with what it says now.
            self.counts.conditions_superseded();
        }
        if is_urgent {
            self.urgent.push_back(uid);
        } else if before.is_none() {
            self.due.push_back((Instant::now() + QUIET_TIME, uid));
        }
    }

    /// How many are not answered, or not sent yet.
    pub(super) fn len(&self) -> usize {
        self.notes.len() + self.requests.len()
    }

    /// Carries the lane on by one step, and says who was told what; pending for ever while there is nothing to do.
    pub(super) async fn step(&mut self, are_bindings_under_way: bool) -> Option<Told> {
        let most = if are_bindings_under_way { MOST_BESIDE_BINDINGS } else { MOST_IN_FLIGHT };
        let may_send = self.requests.len() < most;
        let next_due = self.due.front().map(|(when, _)| *when);
        let next_due = if self.urgent.is_empty() { next_due } else { Some(Instant::now()) };
        tokio::select! {
            biased;
            Some(answer) = self.requests.next(), if !self.requests.is_empty() => {
                self.ended(answer);
                None
            }
            () = wait_until(next_due.filter(|_| may_send)) => self.send_due(),
        }
    }

    fn send_due(&mut self) -> Option<Told> {
        let uid = self.urgent.pop_front().or_else(|| self.due.pop_front().map(|(_, uid)| uid))?;
        let note = self.notes.remove(&uid)?;
        let Some(seen) = self.seen.get(&uid) else {
            self.counts.conditions_dropped();
            return None;
        };
        let patch = render(&note, seen, gangway_api::time::to_api(self.clock.now()))?;
        self.counts.conditions_sent();
        let is_first = note.attempts == 0;
        let told = Told { pod: note.pod.clone(), message: note.said.message.clone() };
        self.requests.push(send(self.client.clone(), note, patch).boxed());
        is_first.then_some(told)
    }

    fn ended(&mut self, Answer { note, sent_at, result }: Answer) {
        let seconds = sent_at.elapsed().as_secs_f64();
        self.counts.metrics().called(Call::Condition, result.is_ok(), seconds);
        let uid = note.pod.uid.clone();
        match result {
            Ok(()) => {
                self.trouble.worked();
                self.counts.conditions_applied();
            }
            Err(kube::Error::Api(status)) if status.code == 404 => self.counts.conditions_dropped(),
            Err(error) => {
                let conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
                if !conflict {
                    self.trouble.failed(&error);
                }
                let given_up = note.attempts + 1 >= MOST_ATTEMPTS || self.notes.contains_key(&uid);
                if given_up || !self.seen.contains_key(&uid) {
                    self.counts.conditions_dropped();
                    return;
                }
                self.counts.conditions_retried();
                self.notes.insert(uid.clone(), Note { attempts: note.attempts + 1, ..note });
                self.due.push_back((Instant::now() + QUIET_TIME, uid));
            }
        }
    }
}

async fn wait_until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}

/// The patch, from what the pod's status is now; `None` if it says so already.
fn render(
    note: &Note,
    seen: &Seen,
    now: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time,
) -> Option<serde_json::Value> {
    const TYPE: &str = "PodScheduled";
    let present = seen.conditions.iter().find(|condition| condition.type_ == TYPE);
    let waits_already = present.filter(|condition| condition.status == "False");
    let mut condition = PodCondition {
        type_: TYPE.to_owned(),
        status: "False".to_owned(),
        reason: Some(note.said.cause.as_str().to_owned()),
        message: Some(note.said.message.clone()),
        last_transition_time: Some(now),
        observed_generation: seen.generation,
        ..PodCondition::default()
    };
    let nominated = note.said.nominated_node.as_ref().map(NodeName::as_str);
    let is_nominated_already = seen.nominated_node.as_deref().filter(|name| !name.is_empty()) == nominated;
    if let Some(present) = waits_already {
        let says_so = present.reason == condition.reason && present.message == condition.message;
        if says_so && is_nominated_already {
            return None;
        }
        condition.last_transition_time.clone_from(&present.last_transition_time);
    }
    let mut conditions: Vec<_> = seen.conditions.iter().filter(|c| c.type_ != TYPE).collect();
    conditions.push(&condition);
    let mut patch = json!({
        "metadata": {"uid": note.pod.uid.to_string(), "resourceVersion": seen.version},
        "status": {"conditions": conditions},
    });
    if !is_nominated_already {
        patch["status"]["nominatedNodeName"] = json!(nominated);
    }
    Some(patch)
}

async fn send(client: Client, note: Note, patch: serde_json::Value) -> Answer {
    let pods: Api<Pod> = Api::namespaced(client, note.pod.name.namespace.as_str());
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let sent_at = Instant::now();
    let request = pods.patch_status(&note.pod.name.name, &parameters, &patch);
    let result = match tokio::time::timeout(REQUEST_TIMEOUT, request).await {
        Ok(result) => result.map(drop),
        // Whether it landed will show in the pod; another attempt does no harm.
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    };
    Answer { note, sent_at, result }
}

#[cfg(test)]
mod tests {
    use gangway_model::{ObjectName, Timestamp};

    use super::*;

    fn condition(type_: &str, status: &str, message: &str) -> PodCondition {
        PodCondition {
            type_: type_.into(),
            status: status.into(),
            reason: Some("Unschedulable".into()),
            message: Some(message.into()),
            last_transition_time: Some(at(1)),
            ..PodCondition::default()
        }
    }

    fn at(seconds: i64) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
        gangway_api::time::to_api(Timestamp::from_seconds(seconds))
    }

    fn rendered(conditions: Vec<PodCondition>) -> Option<serde_json::Value> {
        rendered_with(conditions, None, None)
    }

    fn rendered_with(
        conditions: Vec<PodCondition>,
        before: Option<&str>,
        nominated: Option<&str>,
    ) -> Option<serde_json::Value> {
        let pod = PodRef { name: ObjectName::new("ns", "p"), uid: "u".into() };
        let nominated_node = nominated.map(NodeName::from);
        let said = Said { cause: Cause::Unschedulable, message: "0/1 nodes".into(), nominated_node };
        let nominated_node = before.map(str::to_owned);
        let seen = Seen { version: "7".into(), generation: None, conditions, nominated_node };
        render(&Note { pod, said, attempts: 0 }, &seen, at(9))
    }

    #[test]
    fn conditions_of_others_are_kept_and_nothing_is_written_twice() {
        assert_eq!(rendered(vec![condition("PodScheduled", "False", "0/1 nodes")]), None);
        let patch = rendered(vec![condition("Other", "True", "x")]).unwrap();
        let conditions = patch["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 2);
        assert_eq!(conditions[0]["type"], "Other");
        assert_eq!(conditions[1]["lastTransitionTime"], "1970-01-01T00:00:09Z");
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert!(patch["status"].get("nominatedNodeName").is_none(), "it had none");
    }

    #[test]
    fn a_nomination_is_written_and_taken_back() {
        let said = || vec![condition("PodScheduled", "False", "0/1 nodes")];
        let patch = rendered_with(said(), None, Some("n")).unwrap();
        assert_eq!(patch["status"]["nominatedNodeName"], "n");
        assert_eq!(rendered_with(said(), Some("n"), Some("n")), None);
        let patch = rendered_with(said(), Some("n"), None).unwrap();
        assert!(patch["status"]["nominatedNodeName"].is_null());
    }

    #[test]
    fn a_new_message_is_no_transition() {
        let patch = rendered(vec![condition("PodScheduled", "False", "0/0 nodes")]).unwrap();
        let written = &patch["status"]["conditions"][0];
        assert_eq!(written["message"], "0/1 nodes");
        assert_eq!(written["lastTransitionTime"], "1970-01-01T00:00:01Z");
    }
}
