//! In which order everything happens: news in, decisions out, answers in.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use gangway_model::{Clock, NodeName, ObjectName, Timestamp, Uid};
use gangway_placement::{Decision, DecisionId, Event, FamilyKind, Outcome, PodRef, Scheduler};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::runtime::watcher;
use tokio::time::Instant;

use super::bindings::{Bindings, Flight, Report};
use super::counts::BindCounts;
use super::diagnostics::{Cause, Diagnostics, Said, Told};
use super::events::{Events, News, What};
use super::metrics::{AttemptEnd, Call, Effort};
use super::preemptions::{Plan, Preemptions};
use super::records::{self, pod_record};
use super::watches::{self, FamilyWatch, Item};
use super::{Error, Options, preemptions};
use crate::index::Index;
use crate::metrics::Metric;

/// So many pods are tried before news is looked at again.
const MOST_ATTEMPTS_AT_ONCE: usize = 256;
pub(super) struct Shell {
    clock: Arc<dyn Clock>,
    counts: Arc<BindCounts>,
    scheduler: Scheduler,
    watches: BoxStream<'static, Vec<Item>>,
    pods: Index<Uid>,
    nodes: Index<NodeName>,
    budgets: Index<ObjectName>,
    /// Budgets may not be listed, or there is no such kind: then they do not protect.
    without_budgets: bool,
    families: Vec<FamilyWatch>,
    synced: bool,
    scheduler_names: Vec<String>,
    bindings: Bindings,
    preemptions: Preemptions,
    diagnostics: Diagnostics,
    events: Events,
}

impl Shell {
    pub(super) fn new(client: Client, clock: Arc<dyn Clock>, options: Options) -> Self {
        let Options { settings, seed, counts } = options;
        let scheduler_names = settings.profiles.iter().map(|p| p.scheduler_name.clone()).collect();
        let with_families = settings.profiles.iter().any(|p| p.default_spread().next().is_some());
        let watched = FamilyKind::ALL.into_iter().filter(|_| with_families);
        counts.pulse().set_ready(false);
        counts.metrics().registry().set(Metric::Leads, &[], 1.0);
        let preemptions = Preemptions::new(client.clone(), Arc::clone(&clock), Arc::clone(&counts));
        let diagnostics = Diagnostics::new(client.clone(), Arc::clone(&clock), Arc::clone(&counts));
        let events = Events::new(client.clone(), Arc::clone(&clock), Arc::clone(&counts));
        Self {
            scheduler: Scheduler::new(gangway_placement::Options { settings, seed }),
            watches: watches::watch(&client, with_families),
            pods: Index::new("watching pods"),
            nodes: Index::new("watching nodes"),
            budgets: Index::new("watching disruption budgets"),
            without_budgets: false,
            families: watched.map(FamilyWatch::new).collect(),
            synced: false,
            scheduler_names,
            bindings: Bindings::new(client, Arc::clone(&counts)),
            preemptions,
            diagnostics,
            events,
            clock,
            counts,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Error> {
        let counts = Arc::clone(&self.counts);
        loop {
            let more = self.decide();
            self.preemptions.send(|id| self.scheduler.is_under_way(id));
            let is_binding = !self.bindings.is_empty();
            self.events.send(is_binding);
            let deadline = self.scheduler.next_deadline();
            tokio::select! {
                biased;
                () = counts.pulse().asked() => {
                    self.publish();
                    counts.pulse().answer();
                }
                Some(report) = self.bindings.next(), if is_binding => self.take_report(report),
                Some(report) = self.preemptions.next(), if !self.preemptions.is_empty() => {
                    self.take_preemption(report);
                }
                items = self.watches.next() => self.take_items(items.ok_or(Error::WatchEnded)?)?,
                () = tokio::task::yield_now(), if more => {}
                () = sleep_until(self.clock.as_ref(), deadline) => {}
                told = self.diagnostics.step(is_binding) => self.say_failed(told),
                () = self.events.step() => {}
            }
        }
    }

    /// Sends off what may be done now. Says whether there is more that could be.
    fn decide(&mut self) -> bool {
        for _ in 0..MOST_ATTEMPTS_AT_ONCE {
            if self.bindings.free_slots() == 0 {
                return false;
            }
            let (began, attempts) = (Instant::now(), self.scheduler.work().attempts);
            // Expired penalties are looked at even if there is nothing to take yet.
            let decisions = self.scheduler.next(self.clock.now(), 1);
            let was_tried = self.scheduler.work().attempts > attempts;
            if was_tried {
                self.count_attempt(&decisions, began);
            }
            for decision in decisions {
                self.carry_out(decision, began);
            }
            if !self.scheduler.has_work() {
                return false;
            }
        }
        true
    }

    fn count_attempt(&self, decisions: &[Decision], began: Instant) {
        let seconds = began.elapsed().as_secs_f64();
        let metrics = self.counts.metrics();
        metrics.looked(seconds);
        let is_bound = decisions.iter().any(|decision| matches!(decision, Decision::Bind { .. }));
        if let Some(profile) = self.scheduler.last_tried().filter(|_| !is_bound) {
            metrics.failed(AttemptEnd::Unschedulable, profile, seconds);
        }
    }

    fn carry_out(&mut self, decision: Decision, began: Instant) {
        match decision {
            Decision::Bind { id, pod, node } => self.bind(id, pod, node, began),
            Decision::Preempt { id, preemptor, node, victims, reason } => {
                self.counts.metrics().preempting(victims.len());
                let scheduler_name = self.scheduler_name(&preemptor.uid);
                let message = reason.to_string();
                let nominated_node = Some(node.clone());
                let said = Said { cause: Cause::Unschedulable, message, nominated_node };
                self.diagnostics.tell(preemptor.clone(), said);
                self.preemptions.add(Plan { id, preemptor, node, victims, scheduler_name });
            }
            Decision::Report { pod, reason, nominated_node } => {
                let message = reason.to_string();
                self.diagnostics.tell(pod, Said { cause: Cause::Unschedulable, message, nominated_node });
            }
        }
    }

    fn bind(&mut self, id: DecisionId, pod: PodRef, node: NodeName, began: Instant) {
        self.diagnostics.supersede(&pod.uid);
        let standing = self.scheduler.standing(&pod.uid);
        let effort = Effort {
            began,
            attempts: standing.map_or(1, |standing| standing.attempts),
            first_active_at: standing
                .and_then(|standing| standing.first_active_at)
                .unwrap_or_else(|| self.clock.now()),
            profile: self.scheduler_name(&pod.uid),
        };
        self.bindings.send(Flight { id, pod, node, effort });
    }

    fn scheduler_name(&self, uid: &Uid) -> Arc<str> {
        self.scheduler.scheduler_name(uid).unwrap_or_else(|| "".into())
    }

    fn take_items(&mut self, items: Vec<Item>) -> Result<(), Error> {
        for item in items {
            let events = match item {
                Item::Pod(item) => {
                    if let Ok(event) = item.as_ref() {
                        self.note_status(event);
                    }
                    watches::events(&mut self.pods, *item)?
                }
                Item::Node(item) => watches::events(&mut self.nodes, *item)?,
                Item::Budget(item) if !self.budgets.is_complete() && watches::is_refused(&item) => {
                    self.go_on_without_budgets();
                    Vec::new()
                }
                Item::Budget(item) => watches::events(&mut self.budgets, *item)?,
                Item::Family(kind, item) => {
                    match self.families.iter_mut().find(|family| family.kind == kind) {
                        Some(family) => family.take(*item)?,
                        None => Vec::new(),
                    }
                }
            };
            for event in events {
                self.apply(event);
            }
        }
        let has_budgets = self.without_budgets || self.budgets.is_complete();
        let has_families = self.families.iter().all(FamilyWatch::is_settled);
        let has_all = self.pods.is_complete() && self.nodes.is_complete() && has_budgets && has_families;
        if !self.synced && has_all {
            self.synced = true;
            self.counts.pulse().set_ready(true);
            self.apply(Event::Synced);
        }
        Ok(())
    }

    /// Said once; the watch is tried on, and what it brings counts from then on.
    fn go_on_without_budgets(&mut self) {
        if !self.without_budgets {
            tracing::warn!("disruption budgets cannot be listed: pods are preempted without regard to them");
            self.without_budgets = true;
        }
    }

    /// Conditions are no business of the scheduler, but whoever writes one must know the others.
    fn note_status(&mut self, event: &watcher::Event<Pod>) {
        match event {
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                let asked = pod.spec.as_ref().map(records::scheduler_name);
                if self.scheduler_names.iter().any(|ours| asked == Some(ours)) {
                    self.diagnostics.observe(pod);
                }
            }
            watcher::Event::Delete(pod) => {
                if let Some(uid) = pod.metadata.uid.as_deref() {
                    self.diagnostics.forget(&uid.into());
                }
            }
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
    }

    fn take_report(&mut self, report: Report) {
        let Report { flight, outcome, error, observed } = report;
        let Flight { id, pod, node, effort } = flight;
        if let Some(observed) = &observed {
            let record = pod_record(observed);
            if self.pods.answered(&record.uid) {
                self.apply(Event::PodApplied(record));
            }
        }
        let was_under_way = self.scheduler.is_under_way(id);
        self.apply(Event::Outcome(id, outcome));
        match outcome {
            Outcome::Landed => {
                self.counts.metrics().bound(&effort, self.clock.now());
                self.events.tell(News { pod, scheduler_name: effort.profile, what: What::Scheduled(node) });
            }
            Outcome::Rejected => {
                let seconds = effort.began.elapsed().as_secs_f64();
                self.counts.metrics().failed(AttemptEnd::Error, &effort.profile, seconds);
                if was_under_way {
                    let message = format!("binding rejected: {}", error.unwrap_or_default());
                    let said = Said { cause: Cause::Error, message, nominated_node: None };
                    self.diagnostics.tell(pod, said);
                }
            }
            Outcome::Conflict | Outcome::Unknown => {}
        }
    }

    fn take_preemption(&mut self, report: preemptions::Report) {
        let preemptions::Report { plan, outcome, removed } = report;
        let Plan { id, preemptor, node, scheduler_name, .. } = plan;
        for pod in removed {
            let what = What::Preempted { preemptor: preemptor.clone(), node: node.clone() };
            self.events.tell(News { pod, scheduler_name: Arc::clone(&scheduler_name), what });
        }
        self.apply(Event::Outcome(id, outcome));
    }

    /// Tells people too what a pod was told.
    fn say_failed(&mut self, told: Option<Told>) {
        let Some(Told { pod, message }) = told else { return };
        let scheduler_name = self.scheduler_name(&pod.uid);
        self.events.tell(News { pod, scheduler_name, what: What::Failed(message) });
    }

    /// Whether something appeared needs no answer here: the loop asks after every piece of news.
    fn apply(&mut self, event: Event) {
        if let Event::PodDeleted(uid) = &event {
            self.diagnostics.forget(uid);
        }
        let (began, label) = (Instant::now(), self.scheduler.label_of(&event));
        self.scheduler.apply(event, self.clock.now());
        if let Some(label) = label {
            self.counts.metrics().handled(label, began.elapsed().as_secs_f64());
        }
    }

    fn publish(&mut self) {
        let metrics = self.counts.metrics();
        metrics.observe(&self.scheduler);
        metrics.pending(Call::Binding, self.bindings.len());
        metrics.pending(Call::Condition, self.diagnostics.len());
    }
}

async fn sleep_until(clock: &dyn Clock, deadline: Option<Timestamp>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    let nanos = u64::try_from(deadline.nanos_since(clock.now())).unwrap_or(0);
    // At least a millisecond, the resolution of timers, so that a clock that lags behind cannot make us spin.
    tokio::time::sleep(Duration::from_nanos(nanos).max(Duration::from_millis(1))).await;
}
