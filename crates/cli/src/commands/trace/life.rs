//! What is known of a Job's life: one entry for everything that has a time, and what nobody wrote down.

use gangway_admission::Rung;
use gangway_api::kueue::{EvictionCount, Workload, WorkloadStatus};
use gangway_api::time::from_api;
use gangway_model::Timestamp;
use gangway_model::conditions::ConditionType;
use gangway_model::reasons::EventReason;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};

/// How the reason of an Event begins that tells of an eviction.
const EVICTED_DUE_TO: &str = "EvictedDueTo";

/// A Job, its Workloads and what was said about them.
pub struct Life<'o> {
    pub job: &'o Job,
    /// Its Workloads, the oldest first: one at a time.
    pub own: Vec<&'o Workload>,
    /// Every Workload that there is.
    pub all: &'o [Workload],
    /// The Events of the Job and of its Workloads.
    pub events: &'o [Event],
    /// The flavors that it falls back to, by resource group.
    pub ladder: Vec<Vec<Rung>>,
}

/// Where an entry was found. Objects store whole seconds, so within a second the order is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Metadata,
    Condition,
    Field,
    Event,
}

impl Source {
    /// The word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Condition => "condition",
            Self::Field => "field",
            Self::Event => "event",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub at: Timestamp,
    pub source: Source,
    /// `Job`, or `Workload` with its name where there are several.
    pub object: String,
    pub what: String,
    /// The reason of a condition; empty otherwise.
    pub reason: String,
    pub message: String,
}

impl<'o> Life<'o> {
    /// When the Job was created: offsets count from there.
    pub fn created(&self) -> Option<Timestamp> {
        self.job.creation_timestamp().as_ref().map(from_api)
    }

    /// The Workload that stands for the Job now.
    pub fn current(&self) -> Option<&'o Workload> {
        self.own.last().copied()
    }

    /// Everything that has a time, in order.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = created("Job".to_owned(), self.job).into_iter().collect();
        for workload in &self.own {
            let object = self.object(workload);
            entries.extend(created(object.clone(), *workload));
            entries.extend(status(workload).into_iter().flat_map(|status| from_status(&object, status)));
        }
        entries.extend(self.events.iter().filter_map(|event| self.said(event)));
        entries.sort_by_key(|entry| (entry.at.whole_second(), entry.source, entry.at));
        entries
    }

    fn object(&self, workload: &Workload) -> String {
        if self.own.len() > 1 { format!("Workload {}", workload.name_any()) } else { "Workload".to_owned() }
    }

    fn said(&self, event: &Event) -> Option<Entry> {
        let uid = event.involved_object.uid.as_deref();
        let of_workload = self.own.iter().find(|workload| workload.uid().as_deref() == uid);
        let object = of_workload.map_or_else(|| "Job".to_owned(), |workload| self.object(workload));
        let count = event.count.filter(|count| *count > 1);
        let times = count.map(|count| format!(" ×{count}")).unwrap_or_default();
        Some(Entry {
            at: time_of(event)?,
            source: Source::Event,
            object,
            what: format!("{}{times}", event.reason.as_deref().unwrap_or_default()),
            reason: String::new(),
            message: event.message.clone().unwrap_or_default(),
        })
    }

    /// How often it had to leave and why; none if nobody counted.
    pub fn evictions(&self) -> Option<&'o [EvictionCount]> {
        let stats = status(self.current()?)?.scheduling_stats.as_ref()?;
        Some(&stats.evictions)
    }

    /// How often it was sent back because its pods were not ready in time.
    pub fn retries(&self) -> i32 {
        let state = self.current().and_then(|workload| status(workload)?.requeue_state.as_ref());
        state.and_then(|state| state.count).unwrap_or(0)
    }

    /// What must have happened and is not stored, in words.
    pub fn not_recorded(&self) -> Vec<String> {
        let Some(workload) = self.current() else {
            return vec!["when a Workload was made for it: there is none".to_owned()];
        };
        let find = |kind: ConditionType| condition(workload, kind);
        let is_true = |kind| find(kind).is_some_and(|found| found.status == "True");
        let evicted = find(ConditionType::Evicted);
        let is_over = evicted.is_some_and(|evicted| evicted.status != "True");
        let has_left = evicted.is_some() && !is_true(ConditionType::QuotaReserved) || is_over;
        let was_started = is_true(ConditionType::Admitted) || evicted.is_some();
        let table = [
            (was_started && !self.has_event(EventReason::Started.as_str()), "when its Job was started"),
            (is_over && !self.has_event(EVICTED_DUE_TO), "when it was told to leave"),
            (has_left && find(ConditionType::Requeued).is_none(), "when its last pod was gone"),
            (evicted.is_some() && self.evictions().is_none(), "how often it had to leave"),
        ];
        let missing = table.into_iter().filter(|(is_missing, _)| *is_missing);
        let mut missing: Vec<String> = missing.map(|(_, what)| what.to_owned()).collect();
        missing.extend(self.preemptor_not_recorded());
        missing
    }

    fn has_event(&self, reason: &str) -> bool {
        self.events.iter().any(|event| event.reason.as_deref().is_some_and(|found| found.starts_with(reason)))
    }
}

/// The status of a Workload, if it has one.
pub fn status(workload: &Workload) -> Option<&WorkloadStatus> {
    workload.status.as_ref()
}

/// One of our conditions of a Workload.
pub fn condition(workload: &Workload, kind: ConditionType) -> Option<&Condition> {
    status(workload)?.conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

fn created<K: Resource>(object: String, of: &K) -> Option<Entry> {
    let at = from_api(of.creation_timestamp().as_ref()?);
    let (reason, message) = (String::new(), of.name_any());
    Some(Entry { at, source: Source::Metadata, object, what: "created".to_owned(), reason, message })
}

fn from_status(object: &str, status: &WorkloadStatus) -> Vec<Entry> {
    let mut entries: Vec<Entry> = status.conditions.iter().map(|found| changed(object, found)).collect();
    let requeue = status.requeue_state.as_ref();
    if let Some((requeue, at)) = requeue.and_then(|state| Some((state, state.requeue_at.as_ref()?))) {
        entries.push(Entry {
            at: from_api(at),
            source: Source::Field,
            object: object.to_owned(),
            what: "requeueAt".to_owned(),
            reason: String::new(),
            message: format!("not queued again before; retries: {}", requeue.count.unwrap_or(0)),
        });
    }
    entries
}

fn changed(object: &str, condition: &Condition) -> Entry {
    Entry {
        at: from_api(&condition.last_transition_time),
        source: Source::Condition,
        object: object.to_owned(),
        what: format!("{}={}", condition.type_, condition.status),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    }
}

/// When an Event was said first, as exactly as it is stored.
fn time_of(event: &Event) -> Option<Timestamp> {
    let exact = event.event_time.as_ref().and_then(|time| i64::try_from(time.0.as_nanosecond()).ok());
    let stored = event.first_timestamp.as_ref().or(event.metadata.creation_timestamp.as_ref());
    exact.map(Timestamp::from_nanos).or_else(|| stored.map(from_api))
}
