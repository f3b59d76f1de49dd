//! Events: what happened to pods, for people who ask. They leave the API server to others and are dropped where there are too many.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use gangway_api::time::to_api_micro;
use gangway_model::{Clock, NodeName, Timestamp};
use gangway_placement::PodRef;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};

use super::counts::BindCounts;
use crate::trouble::Trouble;

/// Events that are sent but not answered.
const MOST_IN_FLIGHT: usize = 8;
/// The same while bindings wait for an answer: they come first.
const MOST_BESIDE_BINDINGS: usize = 2;
/// Events that wait to be sent; the oldest is dropped for a new one beyond that.
const MOST_QUEUED: usize = 4096;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest note that an Event may have, in bytes, and how one ends that is cut.
const NOTE_LIMIT: usize = 1024;
const CUT_END: &str = " ...";
/// A name may have 253 characters, and the suffix of ours takes 17.
const NAME_LIMIT: usize = 236;

/// Something that happened to a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct News {
    pub(super) pod: PodRef,
    /// Who tells it: the scheduler that the pod asked for.
    pub(super) scheduler_name: Arc<str>,
    pub(super) what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// It has its node.
    Scheduled(NodeName),
    /// It fits nowhere, or something went wrong.
    Failed(String),
    /// It had to go for another.
    Preempted { preemptor: PodRef, node: NodeName },
}

impl News {
    /// The Event, named after the pod, the time and a number of its own.
    fn event(self, now: Timestamp, number: u64) -> Event {
        let Self { pod, scheduler_name, what } = self;
        let (kind, reason, action, note, related) = match what {
            What::Scheduled(node) => {
                let note = format!("Successfully assigned {} to {node}", pod.name);
                ("Normal", "Scheduled", "Binding", note, None)
            }
            What::Failed(message) => ("Warning", "FailedScheduling", "Scheduling", message, None),
            What::Preempted { preemptor, node } => {
                let note = format!("Preempted by pod {} on node {node}", preemptor.uid);
                ("Normal", "Preempted", "Preempting", note, Some(reference(&preemptor)))
            }
        };
        let stamp = now.as_nanos().wrapping_add_unsigned(number);
        let name: String = pod.name.name.chars().take(NAME_LIMIT).collect();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{stamp:016x}")),
                namespace: Some(pod.name.namespace.to_string()),
                ..ObjectMeta::default()
            },
            event_time: Some(to_api_micro(now)),
            regarding: Some(reference(&pod)),
            related,
            type_: Some(kind.to_owned()),
            reason: Some(reason.to_owned()),
            action: Some(action.to_owned()),
            note: Some(cut(note)),
            reporting_controller: Some(scheduler_name.to_string()),
            reporting_instance: Some(scheduler_name.to_string()),
            ..Event::default()
        }
    }
}

fn reference(pod: &PodRef) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod.name.namespace.to_string()),
        name: Some(pod.name.name.to_string()),
        uid: Some(pod.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// A note that an Event may have.
fn cut(mut note: String) -> String {
    if note.len() > NOTE_LIMIT {
        let most = NOTE_LIMIT - CUT_END.len();
        let end = (0..=most).rev().find(|end| note.is_char_boundary(*end)).unwrap_or(0);
        note.truncate(end);
        note.push_str(CUT_END);
    }
    note
}

/// Events on their way. Dropping it drops them.
pub(super) struct Events {
    client: Client,
    clock: Arc<dyn Clock>,
    counts: Arc<BindCounts>,
    queued: VecDeque<(Timestamp, News)>,
    requests: FuturesUnordered<BoxFuture<'static, Result<(), String>>>,
    number: u64,
    trouble: Trouble,
}

impl Events {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, counts: Arc<BindCounts>) -> Self {
        Self {
            client,
            clock,
            counts,
            queued: VecDeque::new(),
            requests: FuturesUnordered::new(),
            number: 0,
            trouble: Trouble::with("writing Events of pods"),
        }
    }

    pub(super) fn tell(&mut self, news: News) {
        if self.queued.len() >= MOST_QUEUED {
            self.queued.pop_front();
            self.counts.events_dropped();
        }
        self.queued.push_back((self.clock.now(), news));
    }

    /// Sends what there is room for.
    pub(super) fn send(&mut self, are_bindings_under_way: bool) {
        let most = if are_bindings_under_way { MOST_BESIDE_BINDINGS } else { MOST_IN_FLIGHT };
        while self.requests.len() < most {
            let Some((when, news)) = self.queued.pop_front() else { return };
            self.number += 1;
            self.counts.events_sent();
            self.requests.push(post(self.client.clone(), news.event(when, self.number)).boxed());
        }
    }

    /// Takes in how one ended; pending for ever while none is under way.
    pub(super) async fn step(&mut self) {
        let Some(result) = self.requests.next().await else { return std::future::pending().await };
        match result {
            Ok(()) => {
                self.trouble.worked();
                self.counts.events_applied();
            }
            Err(error) => {
                self.trouble.failed(&error);
                self.counts.events_dropped();
            }
        }
    }
}

async fn post(client: Client, event: Event) -> Result<(), String> {
    let namespace = event.metadata.namespace.clone().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client, &namespace);
    match tokio::time::timeout(REQUEST_TIMEOUT, events.create(&PostParams::default(), &event)).await {
        Ok(result) => result.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err("the API server did not answer in time".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use gangway_model::ObjectName;

    use super::*;

    fn pod(name: &str) -> PodRef {
        PodRef { name: ObjectName::new("ns", name), uid: format!("uid-{name}").as_str().into() }
    }

    fn event(what: What) -> Event {
        let news = News { pod: pod("p"), scheduler_name: "gangway".into(), what };
        news.event(Timestamp::from_seconds(1), 1)
    }

    #[test]
    fn words_are_those_of_the_reference() {
        let preempted = What::Preempted { preemptor: pod("q"), node: "n".into() };
        let table = [
            (What::Scheduled("n".into()), "Normal Scheduled Binding: Successfully assigned ns/p to n"),
            (What::Failed("0/1".into()), "Warning FailedScheduling Scheduling: 0/1"),
            (preempted.clone(), "Normal Preempted Preempting: Preempted by pod uid-q on node n"),
        ];
        for (what, expected) in table {
            let Event { type_, reason, action, note, .. } = event(what);
            let text = |field: Option<String>| field.unwrap_or_default();
            let shown = format!("{} {} {}: {}", text(type_), text(reason), text(action), text(note));
            assert_eq!(shown, expected);
        }
        assert_eq!(event(preempted).related.and_then(|pod| pod.name).as_deref(), Some("q"));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let note = event(What::Failed("ä".repeat(600))).note.unwrap_or_default();
        assert!(note.len() <= NOTE_LIMIT && note.ends_with("ä ..."), "{note}");
        assert_eq!(cut("x".repeat(NOTE_LIMIT)).len(), NOTE_LIMIT);
    }
}
