//! The engine: events in, decisions out.

use std::cmp::Reverse;

use gangway_model::planted::Planted;
use gangway_model::queues::QueueCounts;
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::reasons::{ClusterQueueReason, LocalQueueReason};
use gangway_model::workload::{State, Workload};
use gangway_model::{ClusterQueueName, ObjectName, Timestamp, Uid};

use crate::cycle::Blocked;
use crate::decision::{Action, Decision};
use crate::durable::Durable;
use crate::event::Event;
use crate::fallback;
use crate::ids::{LocalQueueId, QueueId, WorkloadId};
use crate::lifecycle::{self, Policy};
use crate::memory::{ChangedQueue, Memory, QueueRef, Track, Work};
use crate::rules::Rules;

/// Decides which Workload is admitted when and on which flavor. See the crate's documentation.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) rules: Rules,
    /// After how many seconds an eviction that is not over is reported; none if never.
    pub(crate) eviction_report_seconds: Option<i64>,
    /// When pods have to be ready; none if nobody asks.
    pub(crate) readiness: Option<WaitForPodsReady>,
    /// Nobody asks any more: what is written down of readiness is to go.
    pub(crate) drops_readiness: bool,
    pub(crate) planted: Planted,
    pub(crate) durable: Durable,
    pub(crate) memory: Memory,
}

impl Engine {
    /// An engine that knows nothing yet. It decides nothing before [`Event::Synced`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with other rules than Gangway's own.
    pub fn with_rules(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// From now on, evictions that are not over after so many seconds are reported.
    pub fn report_evictions_after(&mut self, seconds: i64) {
        self.eviction_report_seconds = Some(seconds);
        self.reindex_all();
    }

    /// From now on pods have to be ready in time, or nobody asks any more. As long as nothing is said of it, what is
    /// written down stays.
    pub fn wait_for_pods_ready(&mut self, settings: Option<WaitForPodsReady>) {
        (self.drops_readiness, self.readiness) = (settings.is_none(), settings);
        (self.memory.starting, self.memory.reserving) = Default::default();
        self.reindex_all();
        self.reconsider();
    }

    fn reindex_all(&mut self) {
        let known: Vec<WorkloadId> = self.durable.workloads.iter().map(|(id, _)| id).collect();
        known.into_iter().for_each(|id| self.reindex(id));
    }

    pub(crate) fn policy(&self) -> Policy<'_> {
        Policy {
            rules: self.rules,
            readiness: self.readiness.as_ref(),
            drops_readiness: self.drops_readiness,
            is_blocked: self.is_blocked(),
            planted: self.planted,
            synced_at: self.memory.synced_at,
        }
    }

    /// Whether somebody starts and nobody else may.
    pub(crate) fn is_blocked(&self) -> bool {
        !self.memory.starting.is_empty()
    }

    /// Makes a mistake from now on, for those who look for mistakes.
    pub fn plant(&mut self, planted: Planted) {
        (self.planted, self.memory.ledger.planted) = (planted, planted);
    }

    /// The part of the state that is a function of the objects.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// A Workload as it was last observed or written.
    pub fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.durable.workloads.find(uid)
    }

    /// How much work was done so far.
    pub fn work(&self) -> Work {
        self.memory.work
    }

    pub(crate) fn track(&self, id: WorkloadId) -> Option<&Track> {
        self.memory.tracks.get(id.index())
    }

    /// Takes notice of something that was observed, or of a write that ended.
    pub fn apply(&mut self, event: Event, now: Timestamp) {
        self.memory.time = now;
        match event {
            Event::Job(uid, facts) => self.on_job(uid, Some(facts)),
            Event::JobGone(uid) => self.on_job(uid, None),
            Event::Pods(owner, exist) => self.on_pods(&owner, exist),
            Event::Workload(workload) => self.on_workload(workload),
            Event::WorkloadGone(uid) => self.on_workload_gone(&uid),
            Event::Unstartable(uid, message) => {
                if let Some(id) = self.durable.workloads.id(&uid) {
                    self.memory.tracks[id.index()].rare.unstartable = Some(message.into());
                    self.touch(id);
                }
            }
            Event::Outcome(id, outcome) => self.on_outcome(id, outcome, now),
            Event::Synced => {
                self.memory.synced = true;
                self.memory.synced_at = Some(now);
                self.find_preemptors(now);
                self.find_claims();
            }
            definition => self.on_definition(definition),
        }
    }

    /// What is to be done now, at most `budget` things.
    pub fn decide(&mut self, now: Timestamp, budget: usize) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.memory.synced {
            return decisions;
        }
        self.prepare(now);
        self.decide_what_is_due(now, budget, &mut decisions);
        loop {
            while decisions.len() < budget && self.run_cycle(Blocked::WithOthers, now, budget, &mut decisions)
            {
            }
            if !self.wake_unclaimed() {
                break;
            }
        }
        self.report_waiting(now, budget, &mut decisions);
        decisions
    }

    /// Only what is due whatever the quota: finish, evict, release, requeue.
    pub fn decide_only_due(&mut self, now: Timestamp, budget: usize) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if self.memory.synced {
            self.prepare(now);
            self.decide_what_is_due(now, budget, &mut decisions);
        }
        decisions
    }

    /// A single cycle: at most one Workload of each queue. None if there was nobody to try.
    pub fn decide_one_cycle(&mut self, now: Timestamp) -> Option<Vec<Decision>> {
        let mut decisions = Vec::new();
        if !self.memory.synced {
            return None;
        }
        self.prepare(now);
        let ran = self.run_cycle(Blocked::Always, now, usize::MAX, &mut decisions)
            || (self.wake_unclaimed() && self.run_cycle(Blocked::Always, now, usize::MAX, &mut decisions));
        ran.then_some(decisions)
    }

    /// Lets every Workload that was set aside be tried again.
    pub fn reconsider(&mut self) {
        for index in 0..self.memory.queues.len() {
            self.wake_queue(QueueId::from(index));
        }
    }

    /// Lets those be tried again who were set aside in the tree of a queue.
    pub fn reconsider_tree(&mut self, queue: &ClusterQueueName) {
        if let Some(number) = self.memory.ledger.queue_names.find(queue) {
            self.wake_tree(QueueId::from(number));
        }
    }

    fn prepare(&mut self, now: Timestamp) {
        self.memory.time = now;
        self.follow_definitions();
        self.pass_deadlines(now);
        self.wake_freed_trees();
    }

    /// When to decide again if nothing happens before.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.memory.deadlines.first().map(|(at, _)| *at)
    }

    fn pass_deadlines(&mut self, now: Timestamp) {
        while let Some((at, id)) = self.memory.deadlines.first().copied() {
            if at > now {
                break;
            }
            self.memory.deadlines.pop_first();
            if let Some(track) = self.memory.tracks.get_mut(id.index()) {
                track.rare.take_deadline();
                track.rare.end_refusals(now);
            }
            self.end_hold_that_is_over(id, now);
            self.end_staleness_that_is_over(id, now);
            // Only who waits may wait elsewhere when a time has come.
            let waits = |workload: &Workload| matches!(workload.state, State::Pending(_));
            if self.durable.workloads.get(id).is_some_and(waits) {
                self.reindex(id);
            }
            self.touch(id);
            // A stored time that has passed stays stored; it fires once, and later ones remain.
            self.set_deadline(id, now);
        }
    }

    fn decide_what_is_due(&mut self, now: Timestamp, budget: usize, decisions: &mut Vec<Decision>) {
        while decisions.len() < budget {
            let Some(id) = self.memory.touched.pop_front() else { break };
            let Some(track) = self.memory.tracks.get_mut(id.index()) else { continue };
            if std::mem::take(&mut track.is_touched) {
                decisions.extend(self.decide_due(id, now));
            }
        }
    }

    /// What is due for one Workload whatever the quota, if anything is.
    pub(crate) fn decide_due(&mut self, id: WorkloadId, now: Timestamp) -> Option<Decision> {
        let (workload, track) = (self.durable.workloads.get(id)?, self.track(id)?);
        if !track.may_decide() {
            return None;
        }
        let unstartable =
            track.rare.unstartable.as_deref().and_then(|why| lifecycle::unstartable(workload, why, now));
        let due = unstartable
            .or_else(|| lifecycle::due(&self.durable, self.policy(), workload, now))
            .or_else(|| self.preempted(workload, track.rare.condemned.as_deref()?, now))
            .or_else(|| lifecycle::overdue(workload, self.eviction_report_seconds?, now))
            .or_else(|| fallback::forget_what_is_old(workload).filter(|_| track.rare.history_is_old));
        if due.as_ref().is_none_or(|(action, _)| *action == Action::ForgetHistory)
            && let Some(rare) = self.memory.tracks[id.index()].rare.get_mut()
            && workload.state.reservation().is_none()
        {
            rare.history_is_old = false;
        }
        let (action, state) = due?;
        if matches!(action, Action::LetStart(_))
            && let Some(first) = self.first_to_start(now).filter(|first| *first != id)
        {
            // It is its turn when the other has started.
            return self.decide_due(first, now);
        }
        Some(self.book(id, action, state))
    }

    /// Who of those who have quota and wait for nothing else starts first, where only one may at a time: the highest
    /// priority, then who has waited longest.
    fn first_to_start(&self, now: Timestamp) -> Option<WorkloadId> {
        let may_start = |id: &WorkloadId| {
            let workload = self.durable.workloads.get(*id)?;
            self.track(*id).filter(|track| track.may_decide())?;
            let (action, _) = lifecycle::due(&self.durable, self.policy(), workload, now)?;
            let reserved_at = workload.state.reservation()?.reserved_at;
            let order = (Reverse(workload.priority), reserved_at, workload.uid.clone());
            matches!(action, Action::LetStart(_)).then_some((order, *id))
        };
        self.memory.reserving.iter().filter_map(may_start).min().map(|(_, id)| id)
    }

    pub(crate) fn touch(&mut self, id: WorkloadId) {
        if let Some(track) = self.memory.tracks.get_mut(id.index())
            && !std::mem::replace(&mut track.is_touched, true)
        {
            self.memory.touched.push_back(id);
        }
    }

    pub(crate) fn note_unreported(&mut self, id: WorkloadId) {
        if let Some(track) = self.memory.tracks.get_mut(id.index())
            && !std::mem::replace(&mut track.is_unreported, true)
        {
            self.memory.unreported.push_back(id);
        }
    }

    /// Queues whose status may have changed since this was last asked.
    pub fn take_changed_queues(&mut self) -> Vec<QueueRef> {
        let changed = std::mem::take(&mut self.memory.changed_queues);
        for queue in &changed {
            match queue {
                ChangedQueue::Cluster(id) => self.memory.is_changed[id.index()] = false,
                ChangedQueue::Local(id) => self.memory.locals[id.index()].is_changed = false,
            }
        }
        let mut changed: Vec<QueueRef> = changed
            .into_iter()
            .map(|queue| match queue {
                ChangedQueue::Cluster(QueueId(number)) => {
                    QueueRef::Cluster(self.memory.ledger.queue_names.name(number as usize).clone())
                }
                ChangedQueue::Local(LocalQueueId(number)) => {
                    QueueRef::Local(self.memory.local_names.name(number as usize).clone())
                }
            })
            .collect();
        changed.sort();
        changed
    }

    /// Activity and counts of a ClusterQueue, for its status.
    pub fn cluster_queue_status(
        &self,
        name: &ClusterQueueName,
    ) -> Option<(ClusterQueueReason, String, QueueCounts)> {
        let queue = self.durable.cluster_queues.get(name)?;
        let (reason, message) = self.durable.cluster_queue_activity(queue);
        let ledger = &self.memory.ledger;
        let number = ledger.queue_names.find(name);
        let tally =
            number.and_then(|number| self.memory.cluster_tallies.get(number)).cloned().unwrap_or_default();
        let counts = tally.to_counts(&ledger.cells, Some(queue), queue.cohort.is_some());
        Some((reason, message, counts))
    }

    /// Activity and counts of a LocalQueue, for its status.
    pub fn local_queue_status(&self, name: &ObjectName) -> Option<(LocalQueueReason, String, QueueCounts)> {
        let queue = self.durable.local_queues.get(name)?;
        let (reason, message) = self.durable.local_queue_activity(queue);
        let definition = self.durable.cluster_queues.get(&queue.cluster_queue);
        let number = self.memory.local_names.find(name);
        let local = number.and_then(|number| self.memory.locals.get(number));
        let tally = local.map(|local| local.tally.clone()).unwrap_or_default();
        Some((reason, message, tally.to_counts(&self.memory.ledger.cells, definition, false)))
    }
}
