//! The loop: news in, turn, writes out.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use gangway_admission::{Action, Decision, DecisionId, Engine, Event, Outcome};
use gangway_api::kueue::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass,
};
use gangway_api::records::{self, ResourceRules};
use gangway_model::planted::{Bug, Planted};
use gangway_model::selector::LabelSelector;
use gangway_model::{Clock, ObjectName, Timestamp, Uid};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Client, Resource, ResourceExt};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use super::counts::RequestCounts;
use super::diagnostics::Diagnostics;
use super::doctor::Doctor;
use super::events::Note;
use super::finalizers::Going;
use super::gauges::Extent;
use super::jobs::Classes;
use super::landed::Unsettled;
use super::lanes::{Answer, Done, End, Lanes, Purpose, Refusal, Target};
use super::objects::{Objects, version_of};
use super::pods_left::PodsLeft;
use super::succession::{Role, Succession};
use super::watches::{self, News};
use super::{Error, Onlooker, Options, unsupported};
use crate::metrics::Metric;
use crate::pace::Lane;
use crate::trouble::wait_after;

/// The workload controller.
pub(super) struct Shell {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) engine: Engine,
    news: BoxStream<'static, Vec<News>>,
    unsupported: BoxStream<'static, Note>,
    pub(super) namespaces: Objects<Namespace>,
    pub(super) flavors: Objects<ResourceFlavor>,
    pub(super) cluster_queues: Objects<ClusterQueue>,
    pub(super) cohorts: Objects<Cohort>,
    pub(super) local_queues: Objects<LocalQueue>,
    pub(super) admission_checks: Objects<AdmissionCheck>,
    pub(super) workload_classes: Objects<WorkloadPriorityClass>,
    pub(super) pod_classes: Objects<PriorityClass>,
    pub(super) workloads: Objects<Workload>,
    pub(super) jobs: Objects<Job>,
    pub(super) pods_left: PodsLeft,
    pub(super) classes: Classes,
    /// The Workloads that a Job owns.
    pub(super) owned: FxHashMap<Uid, BTreeSet<Uid>>,
    pub(super) lanes: Lanes,
    pub(super) diagnostics: Diagnostics,
    /// Decisions that wait for their object or for room in their lane.
    decided: VecDeque<Decision>,
    /// Decisions under way or waiting, for what is said when they land.
    pub(super) under_way: FxHashMap<DecisionId, UnderWay>,
    /// Decisions whose end nobody knows yet, for the same.
    pub(super) unsettled: Unsettled,
    /// Objects that are being deleted and that a finalizer of the reference keeps.
    pub(super) going: BTreeSet<Going>,
    /// Jobs to look at.
    pub(super) dirty: BTreeSet<Uid>,
    /// Jobs whose last write did not land, with the number of attempts.
    pub(super) troubled: FxHashMap<Uid, u32>,
    /// When to try again what failed.
    pub(super) retries: BTreeSet<(Timestamp, Retry)>,
    /// What each Job was warned of, so that it is said once.
    pub(super) warned: FxHashMap<Uid, String>,
    pub(super) counts: Arc<RequestCounts>,
    pub(super) rules: ResourceRules,
    managed: LabelSelector,
    pub(super) manages_unnamed: bool,
    pub(super) planted: Planted,
    onlooker: Option<Onlooker>,
    /// What is told to whoever reads metrics.
    pub(super) extent: Extent,
    /// Nobody else may lead.
    pub(super) is_alone: bool,
    pub(super) doctor: Doctor,
    /// Whether it leads.
    pub(super) role: Role,
    pub(super) succession: Succession,
    synced: bool,
    pub(super) notes: u64,
}

/// A decision or report that has not landed.
pub(super) struct UnderWay {
    pub(super) decision: Decision,
    /// How often it was sent without anybody knowing how that ended.
    attempts: u32,
}

/// After a conflict with what may have been our own write, the watch has this long to show it.
const CONFLICT_RETRY_MILLIS: i64 = 5000;

/// Something to try again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Retry {
    Decision(DecisionId),
    Job(Uid),
    Finalizer(Going),
}

impl Shell {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, options: Options) -> Self {
        let Options { config, counts, planted, onlooker, term, pace } = options;
        let rules = config.resource_rules();
        let reads = pace.client(&client, Lane::Reads);
        counts.pulse().set_ready(!term.has_begun());
        let mut engine = Engine::new();
        engine.report_evictions_after(i64::from(config.eviction_report_seconds));
        engine.wait_for_pods_ready(config.wait_for_pods_ready.clone());
        engine.plant(planted);
        Self {
            clock,
            engine,
            news: watches::watch(&reads),
            unsupported: unsupported::watch(&reads),
            namespaces: Objects::new("watching namespaces"),
            flavors: Objects::new("watching ResourceFlavors"),
            cluster_queues: Objects::new("watching ClusterQueues"),
            cohorts: Objects::new("watching Cohorts"),
            local_queues: Objects::new("watching LocalQueues"),
            admission_checks: Objects::new("watching AdmissionChecks"),
            workload_classes: Objects::new("watching WorkloadPriorityClasses"),
            pod_classes: Objects::new("watching PriorityClasses"),
            workloads: Objects::new("watching Workloads"),
            jobs: Objects::new("watching Jobs"),
            pods_left: PodsLeft::new(),
            classes: Classes::default(),
            owned: FxHashMap::default(),
            lanes: Lanes::new(
                &client,
                &pace,
                Arc::clone(&counts),
                config.requests_per_second,
                config.request_burst,
            ),
            diagnostics: Diagnostics::default(),
            decided: VecDeque::new(),
            under_way: FxHashMap::default(),
            unsettled: Unsettled::default(),
            going: BTreeSet::new(),
            dirty: BTreeSet::new(),
            troubled: FxHashMap::default(),
            retries: BTreeSet::new(),
            warned: FxHashMap::default(),
            counts,
            rules,
            managed: config.managed_jobs_namespace_selector,
            manages_unnamed: config.manage_jobs_without_queue_name,
            planted,
            onlooker,
            extent: Extent {
                resources: config.cluster_queue_metrics,
                local_queues: config.local_queue_metrics,
            },
            is_alone: term.is_alone(),
            doctor: Doctor::default(),
            role: if term.has_begun() { Role::Leads } else { Role::Listens },
            succession: Succession::new(term, reads),
            synced: false,
            notes: 0,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Error> {
        let counts = Arc::clone(&self.counts);
        self.tell_role();
        loop {
            self.turn();
            let is_quiet = self.synced && self.lanes.is_empty();
            if let Some(Onlooker(show)) = self.onlooker.as_ref().filter(|_| is_quiet) {
                show(&self.engine);
            }
            let wait = self.time_to_next_deadline();
            tokio::select! {
                biased;
                () = counts.pulse().asked() => {
                    self.publish();
                    counts.pulse().answer();
                }
                Some(done) = self.lanes.next(), if !self.lanes.is_empty() => self.written(done),
                news = self.news.next() => {
                    for item in news.ok_or(Error::WatchEnded)? {
                        self.observe(item)?;
                    }
                }
                Some(note) = self.unsupported.next() => self.note(note),
                step = self.succession.next(), if self.may_succeed() => self.succeed(step),
                () = self.doctor.is_due(), if is_quiet => self.examine(),
                () = sleep(wait) => {}
            }
        }
    }

    /// Whether Jobs of a namespace are ours.
    pub(super) fn manages(&self, namespace: &str) -> bool {
        let found = self.namespaces.named("", namespace);
        found.is_some_and(|object| self.managed.matches(&records::namespace(object).labels))
    }

    /// Whether every kind was listed once.
    pub(super) fn has_first_lists(&self) -> bool {
        self.namespaces.is_complete()
            && self.flavors.is_complete()
            && self.cluster_queues.is_complete()
            && self.cohorts.is_complete()
            && self.local_queues.is_complete()
            && self.admission_checks.is_complete()
            && self.workload_classes.is_complete()
            && self.pod_classes.is_complete()
            && self.workloads.is_complete()
            && self.jobs.is_complete()
            && self.pods_left.is_complete()
    }

    /// Decides and sends, until there is nothing more to do before something happens.
    fn turn(&mut self) {
        if !self.synced {
            self.synced = self.role == Role::Leads && self.has_first_lists();
            if !self.synced {
                return;
            }
            self.apply(Event::Synced);
            self.counts.pulse().set_ready(true);
        }
        let now = self.clock.now();
        self.lanes.tick(now);
        self.pass_retries(now);
        loop {
            let budget = self.lanes.free_slots(Lane::Decisions).saturating_sub(self.decided.len());
            let decisions = self.decide(now, budget);
            let is_quiet = decisions.is_empty() || budget == 0;
            for decision in decisions {
                self.take_decision(decision, now);
            }
            self.look_at_jobs();
            self.send_decisions();
            self.let_go();
            if is_quiet {
                break;
            }
        }
        for queue in self.engine.take_changed_queues() {
            self.diagnostics.queue_changed(queue, now);
        }
        self.send_diagnostics(now);
    }

    /// Asks the engine, and measures how long it took if it had somebody to try.
    fn decide(&mut self, now: Timestamp, budget: usize) -> Vec<Decision> {
        let (began, before) = (Instant::now(), self.engine.work().evaluations);
        let decisions = self.engine.decide(now, budget);
        self.doctor.is_stale |= !decisions.is_empty();
        if self.engine.work().evaluations > before {
            let gives =
                |decision: &Decision| matches!(decision.action, Action::Admit(_) | Action::Reserve(_));
            let result = if decisions.iter().any(gives) { "success" } else { "inadmissible" };
            let registry = self.counts.metrics();
            registry.count(Metric::AdmissionAttempts, &[result]);
            registry.observe(Metric::AdmissionAttemptDuration, &[result], began.elapsed().as_secs_f64());
        }
        decisions
    }

    fn take_decision(&mut self, decision: Decision, now: Timestamp) {
        tracing::debug!(%decision, "decided");
        if decision.action.is_diagnostic() {
            self.diagnostics.report(decision.id, now);
        } else {
            self.decided.push_back(decision.clone());
        }
        self.under_way.insert(decision.id, UnderWay { decision, attempts: 0 });
    }

    /// Sends the decisions whose object is free.
    fn send_decisions(&mut self) {
        let mut held_up = FxHashSet::default();
        for _ in 0..self.decided.len() {
            let Some(decision) = self.decided.pop_front() else { break };
            let target = Target::Workload(decision.uid.clone());
            if self.lanes.is_busy(&target)
                || self.lanes.free_slots(Lane::Decisions) == 0
                || !held_up.insert(target.clone())
            {
                self.decided.push_back(decision);
                continue;
            }
            self.send_workload_write(decision.id, Lane::Decisions);
        }
    }

    fn pass_retries(&mut self, now: Timestamp) {
        while self.retries.first().is_some_and(|(due, _)| *due <= now) {
            match self.retries.pop_first() {
                Some((_, Retry::Job(uid))) => {
                    self.dirty.insert(uid);
                }
                Some((_, Retry::Finalizer(going))) => {
                    self.going.insert(going);
                }
                Some((_, Retry::Decision(id))) => {
                    let Some(sent) = self.under_way.get(&id) else { continue };
                    if sent.decision.action.is_diagnostic() {
                        self.diagnostics.report(id, now);
                    } else {
                        self.decided.push_back(sent.decision.clone());
                    }
                }
                None => break,
            }
        }
    }

    /// Takes in how a write ended.
    fn written(&mut self, done: Done) {
        let Done { purpose, end } = done;
        match purpose {
            Purpose::Decision(id) => self.decision_written(id, end),
            Purpose::JobStep(job) => self.job_step_written(job, end),
            Purpose::QueueStatus(queue) => match end {
                End::Landed(answer) => self.take_answer(answer),
                // Due again like after any other change.
                End::Conflict | End::Unknown => self.diagnostics.queue_changed(queue, self.clock.now()),
                End::Refused(Refusal { message, .. }) => {
                    tracing::warn!(message, "the API refuses a queue's status");
                }
            },
            Purpose::Finalizer(going) => self.finalizer_written(going, end),
            Purpose::Note => {}
        }
    }

    fn decision_written(&mut self, id: DecisionId, end: End) {
        let now = self.clock.now();
        let outcome = match end {
            End::Conflict if self.planted.is(Bug::QuotaLeakedOnConflict) => {
                self.under_way.remove(&id);
                return;
            }
            End::Landed(Answer::Job(job)) => {
                // Its Workload was to end because it was not there. It was asked for before each attempt.
                self.take_answer(Answer::Job(job));
                Outcome::Void
            }
            End::Landed(answer) => {
                let Answer::Workload(object) = answer else { return };
                let outcome = Outcome::Landed(version_of(object.as_ref()));
                self.engine.apply(Event::Outcome(id, outcome), now);
                // After an attempt whose end nobody knew, the watch may have shown this one before its answer came.
                if let Some(UnderWay { decision, attempts }) = self.under_way.remove(&id)
                    && (self.unsettled.remove(&decision.uid).is_some() || attempts == 0)
                {
                    self.say_landed(&decision, &object);
                }
                self.take_answer(Answer::Workload(object));
                return;
            }
            End::Conflict => Outcome::Conflict,
            End::Refused(refusal) => Outcome::Rejected(refusal.message),
            End::Unknown => {
                if let Some(sent) = self.under_way.get_mut(&id) {
                    let due = now.plus_millis(millis(wait_after(sent.attempts)));
                    sent.attempts = sent.attempts.saturating_add(1);
                    let decision = sent.decision.clone();
                    self.retries.insert((due, Retry::Decision(id)));
                    self.await_sight_of(decision);
                }
                self.engine.apply(Event::Outcome(id, Outcome::Unknown), now);
                return;
            }
        };
        self.engine.apply(Event::Outcome(id, outcome), now);
        if self.engine.is_under_way(id) {
            // An earlier attempt may be what is in the way. If no watch shows it, it is not.
            self.retries.insert((now.plus_millis(CONFLICT_RETRY_MILLIS), Retry::Decision(id)));
        } else {
            self.under_way.remove(&id);
        }
    }

    /// An object as a write left it is news like any other.
    pub(super) fn take_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Workload(object) | Answer::Created(object) => {
                if let Some(change) = self.workloads.take_answer(*object) {
                    self.workload_changed(change);
                }
            }
            Answer::Job(object) => {
                if let Some(change) = self.jobs.take_answer(*object) {
                    self.job_changed(change);
                }
            }
            Answer::ClusterQueue(object) => {
                if let Some(change) = self.cluster_queues.take_answer(*object) {
                    self.cluster_queue_changed(change);
                }
            }
            Answer::LocalQueue(object) => {
                if let Some(change) = self.local_queues.take_answer(*object) {
                    self.local_queue_changed(change);
                }
            }
            Answer::Nothing => {}
        }
    }

    /// What there was before it led, somebody else has said.
    pub(super) fn note(&mut self, note: Note) {
        if self.role != Role::Leads {
            return;
        }
        if self.diagnostics.note(note, self.clock.now()) {
            self.counts.dropped();
        }
    }

    fn time_to_next_deadline(&self) -> Option<Duration> {
        /// What is due but has to wait for room is looked at again when a write ends, or after this.
        const LOOK_AGAIN: i64 = 20_000_000;
        // Nothing is decided before everything is known, whatever is due.
        if !self.synced {
            return None;
        }
        let now = self.clock.now();
        let until = |at: Timestamp, least: i64| at.nanos_since(now).max(least);
        let engine = self.engine.next_deadline().map(|at| until(at, 0));
        let retry = self.retries.first().map(|(at, _)| until(*at, 0));
        let diagnostics = self.diagnostics.next_deadline().map(|at| until(at, LOOK_AGAIN));
        let nanos = engine.into_iter().chain(retry).chain(diagnostics).min();
        let wait = nanos.map(|nanos| Duration::from_nanos(nanos.unsigned_abs()));
        self.lanes.rate_wait().into_iter().chain(wait).min()
    }
}

/// Namespace and name of an object.
pub(super) fn object_name<K: Resource>(object: &K) -> ObjectName {
    ObjectName::new(object.namespace().unwrap_or_default(), &object.name_any())
}

pub(super) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

async fn sleep(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}
