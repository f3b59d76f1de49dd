//! The objects as the API has them, read on their own: nothing here asks the engine.

use std::collections::BTreeMap;

use gangway_api::kueue;
use gangway_api::names;
use gangway_api::pods;
use gangway_api::records::{self, ResourceRules};
use gangway_apiserver::{ChangeKind, Committed};
use gangway_model::queues::{ClusterQueue, Cohort, LocalQueue};
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::reasons::{CheckState, EvictionReason};
use gangway_model::workload::{Admission, State, Workload};
use gangway_model::{
    ClusterQueueName, CohortName, FlavorName, ObjectName, Quantity, Requests, ResourceName, Timestamp, Uid,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::checker::Question;
use crate::dues::{Dues, Lately};
use crate::witness::LEASE;

/// Everything that matters, as it is stored now.
#[derive(Debug, Default)]
pub struct View {
    /// When pods have to be ready; none if nobody asks.
    pub readiness: Option<WaitForPodsReady>,
    /// By how many seconds the clock of a controller may be wrong.
    pub clock_error_seconds: i64,
    /// Workloads by uid.
    pub workloads: BTreeMap<Uid, SeenWorkload>,
    /// Jobs by uid.
    pub jobs: BTreeMap<Uid, SeenJob>,
    /// Pods by uid.
    pub pods: BTreeMap<Uid, SeenPod>,
    /// ClusterQueues by name.
    pub queues: BTreeMap<ClusterQueueName, ClusterQueue>,
    /// Cohorts by name.
    pub cohorts: BTreeMap<CohortName, Cohort>,
    /// LocalQueues by name.
    pub local_queues: BTreeMap<ObjectName, LocalQueue>,
    /// What each Job was last given.
    pub given: BTreeMap<Uid, Admission>,
    /// When a queue, cohort or flavor last changed.
    pub redefined_at: Option<Timestamp>,
    /// When it last changed which flavors a queue has and gives up, and which checks it demands.
    pub rules_changed_at: BTreeMap<ClusterQueueName, Timestamp>,
    /// Checks that were asked, until whoever answers takes them.
    pub questions: Vec<Question>,
    /// Who left for whom, in order.
    pub preemptions: Vec<Preempted>,
    /// When a Workload last gave quota of a queue back.
    pub freed_at: BTreeMap<ClusterQueueName, Timestamp>,
    /// What each ClusterQueue says of itself.
    pub told: BTreeMap<ClusterQueueName, QueueTold>,
    /// Who leads; empty if nobody does, none if nobody was ever elected.
    pub leader: Option<String>,
    /// What has to turn out well yet.
    pub dues: Dues,
    /// How many Workloads ended.
    pub finished: usize,
    /// How many were told to leave.
    pub evictions: usize,
    /// How many of them because a flavor was given up.
    pub given_up: usize,
    /// How many because a check refused.
    pub refusals: usize,
    /// How often a check said something.
    pub answers: usize,
}

/// What a ClusterQueue's status says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueTold {
    /// How many have quota set aside, admitted or not.
    pub reserving: i64,
    /// What is set aside, by flavor and resource.
    pub reserved: BTreeMap<(FlavorName, ResourceName), i128>,
}

/// A Workload was told to leave for another.
#[derive(Clone, Debug)]
pub struct Preempted {
    /// Who.
    pub victim: Uid,
    /// For whom.
    pub preemptor: Uid,
}

/// A Workload, and what its object says that the record does not.
#[derive(Clone, Debug)]
pub struct SeenWorkload {
    /// Its record.
    pub record: Workload,
    /// Its conditions contradict each other.
    pub repaired: bool,
    /// Type, status and reason of its conditions, in the order of their types.
    pub conditions: Vec<(String, bool, String)>,
    /// Since when it waits in the same way.
    pub waits_since: Timestamp,
    /// Since when it has had quota, by the right clock.
    pub holds_since: Option<Timestamp>,
    /// It was not active at some time since it last got quota.
    pub was_inactive: bool,
    /// It was moved to another queue since it last got quota.
    pub has_moved: bool,
    /// How often it was told to leave, as its object counts.
    pub counted_evictions: i64,
}

/// A Job.
#[derive(Clone, Debug)]
pub struct SeenJob {
    /// Namespace and name.
    pub name: ObjectName,
    /// It may have pods.
    pub runs: bool,
    /// Its pod template says that it was started on some quota.
    pub is_marked: bool,
    /// It has ended.
    pub has_ended: bool,
}

/// A pod.
#[derive(Clone, Debug)]
pub struct SeenPod {
    /// The Job that owns it.
    pub owner: Uid,
    /// What it asks for.
    pub requests: Requests,
    /// It was made from a template that was started on some quota.
    pub is_marked: bool,
    /// It has neither ended nor gone.
    pub is_alive: bool,
}

/// What a change did.
#[derive(Debug, Default)]
pub struct Step {
    /// The change in a few words.
    pub summary: String,
    /// Who made it.
    pub by: String,
    /// The Workload that changed.
    pub workload: Option<Uid>,
    /// That Workload as it was before.
    pub before: Option<SeenWorkload>,
    /// A status of a queue that was written, with the numbers in it.
    pub queue_numbers: Vec<i64>,
}

impl View {
    /// Takes a change in.
    pub fn take(&mut self, change: &Committed, now: Timestamp) -> Step {
        let is_gone = change.kind == ChangeKind::Deleted;
        let kind = (change.group.as_str(), change.plural.as_str());
        let verb = match change.kind {
            ChangeKind::Added => "+",
            ChangeKind::Modified => "~",
            ChangeKind::Deleted => "-",
        };
        let mut step = Step {
            summary: format!("{verb}{}/{}", change.plural, change.name),
            by: String::new(),
            workload: None,
            before: None,
            queue_numbers: Vec::new(),
        };
        match kind {
            (kueue::GROUP, "workloads") => self.take_workload(change, is_gone, now, &mut step),
            ("batch", "jobs") => self.take_job(change, is_gone, &mut step),
            ("", "pods") => self.take_pod(change, is_gone, &mut step),
            (kueue::GROUP, "clusterqueues" | "cohorts" | "localqueues" | "resourceflavors") => {
                self.take_definition(change, is_gone, now, &mut step);
            }
            ("", "events") => step.summary += &event_summary(change),
            _ => {}
        }
        step
    }

    fn take_workload(&mut self, change: &Committed, is_gone: bool, now: Timestamp, step: &mut Step) {
        let Some(object) = parse::<kueue::Workload>(change) else { return };
        let read = records::workload(&object, &ResourceRules::default());
        let uid = read.record.uid.clone();
        let before = self.workloads.remove(&uid);
        if !is_gone {
            step.summary += &format!(" {}", said_of(&read.record.state));
            let is_same_wait =
                before.as_ref().is_some_and(|before| waits_alike(&before.record, &read.record));
            let waits_since = match &before {
                Some(before) if is_same_wait => before.waits_since,
                _ => now,
            };
            let held_since = before.as_ref().and_then(|before| before.holds_since);
            let holds_since = read.record.state.reservation().map(|_| held_since.unwrap_or(now));
            let gets_quota = held_since.is_none() && holds_since.is_some();
            let was_inactive = before.as_ref().is_some_and(|before| before.was_inactive) && !gets_quota;
            let moves = before.as_ref().is_some_and(|before| before.record.queue != read.record.queue);
            let has_moved = before.as_ref().is_some_and(|before| before.has_moved) && !gets_quota;
            let seen = SeenWorkload {
                has_moved: moves || has_moved,
                holds_since,
                was_inactive: was_inactive || !read.record.active,
                repaired: read.repaired,
                conditions: conditions_of(&object),
                waits_since,
                counted_evictions: counted_evictions(&object),
                record: read.record,
            };
            self.note_life(before.as_ref(), &seen, now);
            self.note_checks(before.as_ref(), &seen);
            self.workloads.insert(uid.clone(), seen);
        }
        self.note_dues(before.as_ref(), &uid, now);
        (step.workload, step.before) = (Some(uid), before);
    }

    fn note_life(&mut self, before: Option<&SeenWorkload>, seen: &SeenWorkload, now: Timestamp) {
        let state_before = before.map(|before| &before.record.state);
        let state = &seen.record.state;
        if let (Some(owner), Some(reservation)) = (&seen.record.owner, state.reservation()) {
            self.given.insert(owner.clone(), (*reservation.admission).clone());
        }
        if state.is_finished() && !state_before.is_some_and(State::is_finished) {
            self.finished += 1;
        }
        if let Some(given) =
            state_before.and_then(State::reservation).filter(|_| state.reservation().is_none())
        {
            self.freed_at.insert(given.admission.cluster_queue.clone(), now);
        }
        if let State::Evicting(_, eviction) = state
            && !state_before.is_some_and(is_leaving)
        {
            self.evictions += 1;
            self.given_up += usize::from(eviction.reason == EvictionReason::FlavorFallback);
            self.refusals += usize::from(eviction.reason == EvictionReason::AdmissionCheck);
            if let Some(preemptor) = state.preemptor() {
                let (victim, preemptor) = (seen.record.uid.clone(), preemptor.clone());
                self.preemptions.push(Preempted { victim, preemptor });
            }
        }
    }

    /// Checks that are asked, and what they say.
    fn note_checks(&mut self, before: Option<&SeenWorkload>, seen: &SeenWorkload) {
        let State::Holding(held) = &seen.record.state else { return };
        let known = before.and_then(|before| before.record.state.checks());
        for answer in held.checks.iter().flat_map(|checks| &checks.0) {
            let state_before = known.and_then(|known| known.find(&answer.name)).map(|known| known.state);
            if answer.state == CheckState::Pending {
                self.questions.push(Question {
                    workload: seen.record.name.name.to_string(),
                    uid: seen.record.uid.to_string(),
                    check: answer.name.to_string(),
                    since: answer.at,
                    reserved_at: held.reserved_at,
                });
            } else if state_before.is_some_and(|before| before != answer.state) {
                self.answers += 1;
            }
        }
    }

    fn take_job(&mut self, change: &Committed, is_gone: bool, step: &mut Step) {
        let Some(JobParts { metadata, spec, status }) = parse(change) else { return };
        let uid = Uid::from(metadata.uid);
        if is_gone {
            self.jobs.remove(&uid);
            return;
        }
        let has_ended = status.conditions.iter().any(|condition| {
            matches!(condition.kind.as_str(), "Complete" | "Failed") && condition.status == "True"
        });
        let seen = SeenJob {
            name: ObjectName::new(metadata.namespace, &metadata.name),
            runs: !spec.suspend,
            is_marked: spec.template.metadata.labels.contains_key(names::POD_SET_LABEL),
            has_ended,
        };
        let JobStatusParts { active, terminating, .. } = status;
        let runs = if seen.runs { "runs" } else { "suspended" };
        let end = if has_ended { ", ended" } else { "" };
        step.summary += &format!(" {runs}, {active} active, {terminating} terminating{end}");
        self.jobs.insert(uid, seen);
    }

    fn take_pod(&mut self, change: &Committed, is_gone: bool, step: &mut Step) {
        let Some(PodParts { metadata, status: PodStatusParts { phase } }) = parse(change) else { return };
        let leaves = if metadata.deletion_timestamp.is_some() { ", leaves" } else { "" };
        step.summary += &format!(" {phase}{leaves}");
        let uid = Uid::from(metadata.uid);
        let before = self.pods.remove(&uid);
        let owner = metadata.owner_references.into_iter().find(|owner| owner.controller);
        let Some(owner) = owner.filter(|_| !is_gone).map(|owner| Uid::from(owner.uid)) else { return };
        // What a pod asks for does not change, and is most of it.
        let requests = before.map_or_else(|| requests_of(change), |before| before.requests);
        let is_marked = metadata.labels.contains_key(names::POD_SET_LABEL);
        let is_alive = !matches!(phase.as_str(), "Succeeded" | "Failed");
        self.pods.insert(uid, SeenPod { owner, requests, is_marked, is_alive });
    }

    fn take_definition(&mut self, change: &Committed, is_gone: bool, now: Timestamp, step: &mut Step) {
        let changed = match change.plural.as_str() {
            "clusterqueues" => {
                let Some(object) = parse::<kueue::ClusterQueue>(change) else { return };
                step.queue_numbers = queue_numbers(change);
                let record = records::cluster_queue(&object).record;
                self.told.insert(record.name.clone(), told_by(&object));
                if self.queues.get(&record.name).is_none_or(|known| gives_up_otherwise(known, &record)) {
                    self.rules_changed_at.insert(record.name.clone(), now);
                }
                replace(&mut self.queues, record.name.clone(), record, is_gone)
            }
            "cohorts" => {
                let Some(object) = parse::<kueue::Cohort>(change) else { return };
                let record = records::cohort(&object).record;
                replace(&mut self.cohorts, record.name.clone(), record, is_gone)
            }
            "localqueues" => {
                let Some(object) = parse::<kueue::LocalQueue>(change) else { return };
                step.queue_numbers = queue_numbers(change);
                let record = records::local_queue(&object).record;
                replace(&mut self.local_queues, record.name.clone(), record, is_gone)
            }
            _ => true,
        };
        if changed {
            self.redefined_at = Some(now);
        }
    }

    /// Takes a Lease in; says so if somebody else leads by it.
    pub fn take_lease(&mut self, change: &Committed) -> Option<String> {
        if change.name != LEASE {
            return None;
        }
        let lease: Lease = parse(change)?;
        let identity = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        let leader = identity.split('_').next().map(str::to_owned);
        if self.leader == leader {
            return None;
        }
        self.leader = leader;
        Some(format!("{identity} leads"))
    }

    /// Whether a queue, cohort or flavor changed so lately that nobody may know.
    pub fn was_redefined_lately(&self, now: Timestamp) -> bool {
        self.redefined_at.is_some_and(|at| at.is_recent(now))
    }

    /// Whether it changed so lately which flavors a queue has and gives up, and which checks it demands, that nobody may know.
    pub fn has_new_rules(&self, queue: &ClusterQueueName, now: Timestamp) -> bool {
        self.rules_changed_at.get(queue).is_none_or(|at| at.is_recent(now))
    }

    /// The ClusterQueue that a Workload waits in or uses.
    pub fn queue_of<'a>(&'a self, workload: &'a Workload) -> Option<&'a ClusterQueueName> {
        if let Some(reservation) = workload.state.reservation() {
            return Some(&reservation.admission.cluster_queue);
        }
        let name = ObjectName { namespace: workload.name.namespace.clone(), name: workload.queue.clone() };
        self.local_queues.get(&name).map(|local| &local.cluster_queue)
    }

    /// The Workload of a Job that has quota, if one has.
    pub fn holder_of(&self, job: &Uid) -> Option<&SeenWorkload> {
        let mut owned = self.workloads.values().filter(|seen| seen.record.owner.as_ref() == Some(job));
        owned.find(|seen| seen.record.state.reservation().is_some())
    }
}

/// What is looked at in the metadata of a Job or pod. Reading all of it takes a good part of a simulation.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct MetadataParts {
    uid: String,
    name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    deletion_timestamp: Option<IgnoredAny>,
    owner_references: Vec<OwnerParts>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct OwnerParts {
    uid: String,
    controller: bool,
}

#[derive(Deserialize)]
struct PodParts {
    metadata: MetadataParts,
    #[serde(default)]
    status: PodStatusParts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct PodStatusParts {
    phase: String,
}

#[derive(Deserialize)]
struct JobParts {
    metadata: MetadataParts,
    #[serde(default)]
    spec: JobSpecParts,
    #[serde(default)]
    status: JobStatusParts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobSpecParts {
    suspend: bool,
    template: TemplateParts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TemplateParts {
    metadata: MetadataParts,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobStatusParts {
    active: i32,
    terminating: i32,
    conditions: Vec<ConditionParts>,
}

#[derive(Deserialize)]
struct ConditionParts {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

fn requests_of(change: &Committed) -> Requests {
    let spec = parse::<Pod>(change).and_then(|pod| pod.spec);
    spec.and_then(|spec| pods::requests(&spec).ok()).unwrap_or_default()
}

fn parse<K: DeserializeOwned>(change: &Committed) -> Option<K> {
    serde_json::from_slice(&change.object).ok()
}

/// Takes a definition in; says whether it is another than before.
fn replace<K: Ord, V: PartialEq>(all: &mut BTreeMap<K, V>, key: K, value: V, is_gone: bool) -> bool {
    if is_gone {
        return all.remove(&key).is_some();
    }
    let is_same = all.get(&key) == Some(&value);
    all.insert(key, value);
    !is_same
}

/// Whether two definitions of a queue differ in the flavors that it has and gives up, or the checks that it demands.
fn gives_up_otherwise(one: &ClusterQueue, other: &ClusterQueue) -> bool {
    let flavors = |queue: &ClusterQueue| -> Vec<FlavorName> { flavors_of(queue).cloned().collect() };
    one.fallback != other.fallback
        || one.admission_checks != other.admission_checks
        || flavors(one) != flavors(other)
}

/// The flavors of a queue.
pub fn flavors_of(queue: &ClusterQueue) -> impl Iterator<Item = &FlavorName> {
    queue.resource_groups.iter().flat_map(|group| &group.flavors).map(|quotas| &quotas.flavor)
}

/// Whether a Workload was told to leave and has not left yet.
pub fn is_leaving(state: &State) -> bool {
    matches!(state, State::Evicting(..))
}

fn waits_alike(before: &Workload, now: &Workload) -> bool {
    let (State::Pending(one), State::Pending(other)) = (&before.state, &now.state) else { return false };
    before.asks_the_same_as(now) && one.requeued == other.requeued && one.evicted == other.evicted
}

fn conditions_of(object: &kueue::Workload) -> Vec<(String, bool, String)> {
    let all = object.status.iter().flat_map(|status| &status.conditions);
    let mut list: Vec<_> = all
        .map(|condition| (condition.type_.clone(), condition.status == "True", condition.reason.clone()))
        .collect();
    list.sort();
    list
}

fn counted_evictions(object: &kueue::Workload) -> i64 {
    let stats = object.status.as_ref().and_then(|status| status.scheduling_stats.as_ref());
    stats.iter().flat_map(|stats| &stats.evictions).map(|entry| i64::from(entry.count)).sum()
}

fn told_by(object: &kueue::ClusterQueue) -> QueueTold {
    let Some(status) = &object.status else { return QueueTold::default() };
    let mut reserved = BTreeMap::new();
    for flavor in &status.flavors_reservation {
        for resource in &flavor.resources {
            let total = resource.total.as_ref().map_or("0", |total| total.0.as_str());
            let amount = Quantity::parse(total).map_or(0, |quantity| quantity.counted_as(&resource.name));
            let cell = (flavor.name.as_str().into(), resource.name.as_str().into());
            reserved.insert(cell, i128::from(amount));
        }
    }
    reserved.retain(|_, amount| *amount != 0);
    QueueTold { reserving: i64::from(status.reserving_workloads), reserved }
}

/// Every number in a queue's status.
fn queue_numbers(change: &Committed) -> Vec<i64> {
    let Some(object) = parse::<serde_json::Value>(change) else { return Vec::new() };
    let status = &object["status"];
    let counts = ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"];
    let mut numbers: Vec<i64> = counts.iter().filter_map(|count| status[count].as_i64()).collect();
    for list in ["flavorsUsage", "flavorsReservation"] {
        for flavor in status[list].as_array().into_iter().flatten() {
            for resource in flavor["resources"].as_array().into_iter().flatten() {
                let is_negative = ["total", "borrowed"]
                    .iter()
                    .any(|key| resource[key].as_str().is_some_and(|t| t.starts_with('-')));
                numbers.push(if is_negative { -1 } else { 0 });
            }
        }
    }
    numbers
}

fn said_of(state: &State) -> String {
    match state {
        State::Pending(pending) => match &pending.waiting {
            Some(waiting) => format!("waits: {}", waiting.reason),
            None => "is new".to_owned(),
        },
        State::Holding(reservation) => {
            let flavors: Vec<&str> =
                reservation.admission.flavors().iter().map(|flavor| flavor.as_str()).collect();
            let waits = if reservation.admitted_at.is_none() { ", may not run yet" } else { "" };
            format!("has quota of {} on {}{waits}", reservation.admission.cluster_queue, flavors.join(", "))
        }
        State::Evicting(_, eviction) => match eviction.preemption.as_ref().and_then(|p| p.preemptor.as_ref())
        {
            Some(preemptor) => format!("has to leave: {} for {preemptor}", eviction.reason),
            None => format!("has to leave: {}", eviction.reason),
        },
        State::Finished(finish, _) => format!("ended: {}", finish.reason),
    }
}

fn event_summary(change: &Committed) -> String {
    let Some(event) = parse::<serde_json::Value>(change) else { return String::new() };
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let about = &event["involvedObject"];
    format!(" {} about {} {}", text(&event["reason"]), text(&about["kind"]), text(&about["name"]))
}
