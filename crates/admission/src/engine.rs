//! The engine: events in, decisions out.

use std::cmp::Reverse;

use gangway_model::queues::{ClusterQueue, QueueCounts, QueueingStrategy, StopPolicy};
use gangway_model::reasons::{ClusterQueueReason, EvictionReason, LocalQueueReason, PendingReason};
use gangway_model::workload::{State, Workload};
use gangway_model::{ClusterQueueName, FlavorName, NamespaceName, ObjectName, Timestamp, Uid};

use crate::decision::{Action, Decision, DecisionId, PendingWrite};
use crate::durable::Durable;
use crate::event::{Event, JobFacts, Outcome};
use crate::lifecycle;
use crate::memory::{CountedAs, Memory, Place, QueueRef, Refused, UnderWay};
use crate::queues::QueueKey;
use crate::quota::Counted;

/// Decides which Workload is admitted when and on which flavor. See the crate's documentation.
#[derive(Debug, Default)]
pub struct Engine {
    pub(crate) durable: Durable,
    pub(crate) memory: Memory,
}

/// How much work the engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Cycles run.
    pub cycles: u64,
    /// Workloads evaluated against quota.
    pub evaluations: u64,
}

impl Engine {
    /// An engine that knows nothing yet. It decides nothing before [`Event::Synced`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The part of the state that is a function of the objects.
    pub fn durable(&self) -> &Durable {
        &self.durable
    }

    /// A Workload as it was last observed or written.
    pub fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.durable.workloads.get(uid)
    }

    /// How much work was done so far.
    pub fn work(&self) -> Work {
        Work { cycles: self.memory.cycles, evaluations: self.memory.evaluations }
    }

    /// Takes notice of something that was observed, or of a write that ended.
    pub fn apply(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::Flavor(flavor) => {
                let name = flavor.name.clone();
                if self.durable.flavors.insert(name.clone(), flavor.clone()).as_ref() != Some(&flavor) {
                    self.on_flavor_change(&name);
                }
            }
            Event::FlavorGone(name) => {
                if self.durable.flavors.remove(&name).is_some() {
                    self.on_flavor_change(&name);
                }
            }
            Event::ClusterQueue(queue) => self.on_cluster_queue(*queue),
            Event::ClusterQueueGone(name) => {
                if self.durable.cluster_queues.remove(&name).is_some() {
                    self.on_cluster_queue_change(&name);
                }
            }
            Event::LocalQueue(queue) => {
                let name = queue.name.clone();
                if self.durable.local_queues.insert(name.clone(), queue.clone()).as_ref() != Some(&queue) {
                    self.on_local_queue_change(&name);
                }
            }
            Event::LocalQueueGone(name) => {
                if self.durable.local_queues.remove(&name).is_some() {
                    self.on_local_queue_change(&name);
                }
            }
            Event::Namespace(namespace) => {
                let name = namespace.name.clone();
                if self.durable.namespaces.insert(name.clone(), namespace.clone()).as_ref()
                    != Some(&namespace)
                {
                    self.on_namespace_change(&name);
                }
            }
            Event::NamespaceGone(name) => {
                if self.durable.namespaces.remove(&name).is_some() {
                    self.on_namespace_change(&name);
                }
            }
            Event::Job(uid, facts) => self.on_job(uid, Some(facts)),
            Event::JobGone(uid) => self.on_job(uid, None),
            Event::Pods(owner, exist) => self.on_pods(&owner, exist),
            Event::Workload(workload) => self.on_workload(*workload),
            Event::WorkloadGone(uid) => self.on_workload_gone(&uid),
            Event::Unstartable(uid, message) => {
                if let Some(track) = self.memory.tracks.get_mut(&uid) {
                    track.unstartable = Some(message);
                    self.memory.touched.insert(uid);
                }
            }
            Event::Outcome(id, outcome) => self.on_outcome(id, outcome, now),
            Event::Synced => self.memory.synced = true,
        }
    }

    fn on_cluster_queue(&mut self, queue: ClusterQueue) {
        let name = queue.name.clone();
        if self.durable.cluster_queues.insert(name.clone(), queue.clone()).as_ref() != Some(&queue) {
            self.on_cluster_queue_change(&name);
        }
    }

    fn on_flavor_change(&mut self, flavor: &FlavorName) {
        let users: Vec<ClusterQueueName> = self
            .durable
            .cluster_queues
            .values()
            .filter(|queue| {
                queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| f.flavor == *flavor)
            })
            .map(|queue| queue.name.clone())
            .collect();
        for name in users {
            self.on_cluster_queue_change(&name);
        }
    }

    fn on_cluster_queue_change(&mut self, name: &ClusterQueueName) {
        self.memory.changed_queues.insert(QueueRef::Cluster(name.clone()));
        if let Some(definition) = self.durable.cluster_queues.get(name) {
            let queue = self.memory.queues.entry(name.clone()).or_default();
            queue.set_strict(definition.strategy == QueueingStrategy::StrictFifo);
        }
        let locals: Vec<ObjectName> = self
            .durable
            .local_queues
            .values()
            .filter(|queue| queue.cluster_queue == *name)
            .map(|queue| queue.name.clone())
            .collect();
        for local in locals {
            self.on_local_queue_change(&local);
        }
        // Holders of its quota are told even if their LocalQueue is gone.
        let holders: Vec<Uid> = self
            .memory
            .tracks
            .iter()
            .filter(|(_, track)| track.counted.as_ref().is_some_and(|c| c.cluster.as_ref() == Some(name)))
            .map(|(uid, _)| uid.clone())
            .collect();
        self.memory.touched.extend(holders);
        self.wake(name, |_| true);
        let is_gone = !self.durable.cluster_queues.contains_key(name);
        if is_gone && self.memory.queues.get(name).is_some_and(|queue| queue.is_empty()) {
            self.memory.queues.remove(name);
        }
    }

    fn on_local_queue_change(&mut self, name: &ObjectName) {
        self.memory.changed_queues.insert(QueueRef::Local(name.clone()));
        let members: Vec<Uid> = self.memory.by_local_queue.get(name).into_iter().flatten().cloned().collect();
        for uid in members {
            self.reindex(&uid);
        }
    }

    fn on_namespace_change(&mut self, name: &NamespaceName) {
        let locals: Vec<ObjectName> =
            self.memory.by_local_queue.keys().filter(|queue| queue.namespace == *name).cloned().collect();
        for local in locals {
            self.on_local_queue_change(&local);
        }
    }

    fn on_job(&mut self, uid: Uid, facts: Option<JobFacts>) {
        let changed = match facts {
            Some(facts) => self.durable.jobs.insert(uid.clone(), facts.clone()).as_ref() != Some(&facts),
            None => self.durable.jobs.remove(&uid).is_some(),
        };
        if changed {
            self.reindex_owned(&uid);
        }
    }

    fn on_pods(&mut self, owner: &Uid, exist: bool) {
        let pods = &mut self.durable.owners_with_pods;
        let changed = if exist { pods.insert(owner.clone()) } else { pods.remove(owner) };
        if !changed {
            return;
        }
        self.reindex_owned(owner);
        if !exist {
            for counted in self.memory.left_behind.remove(owner).unwrap_or_default() {
                self.count(&counted, -1);
                self.wake_for_quota(counted.cluster.as_ref());
            }
        }
    }

    fn reindex_owned(&mut self, owner: &Uid) {
        let owned: Vec<Uid> = self.memory.by_owner.get(owner).into_iter().flatten().cloned().collect();
        for workload in owned {
            self.reindex(&workload);
        }
    }

    fn on_workload(&mut self, workload: Workload) {
        let uid = workload.uid.clone();
        if let Some(known) = self.durable.workloads.get(&uid) {
            if workload.version < known.version || *known == workload {
                return;
            }
            let asks_the_same = known.asks_the_same_as(&workload);
            self.forget_links(&uid);
            self.overtake(&uid, &workload);
            if !asks_the_same && let Some(track) = self.memory.tracks.get_mut(&uid) {
                (track.refused, track.report_refused) = (None, None);
            }
        }
        let local = Durable::queue_name(&workload);
        self.memory.by_local_queue.entry(local).or_default().insert(uid.clone());
        if let Some(owner) = &workload.owner {
            self.memory.by_owner.entry(owner.clone()).or_default().insert(uid.clone());
        }
        self.memory.tracks.entry(uid.clone()).or_default();
        self.durable.workloads.insert(uid.clone(), workload);
        self.end_staleness(&uid);
        self.reindex(&uid);
    }

    /// Somebody else changed the Workload: what was decided on the old one and not sent yet is void, and
    /// what nobody knows the end of is settled by what is there now.
    fn overtake(&mut self, uid: &Uid, newer: &Workload) {
        let Some(known) = self.durable.workloads.get(uid) else { return };
        let differs =
            Workload { version: newer.version, generation: newer.generation, ..known.clone() } != *newer;
        let Some(track) = self.memory.tracks.get_mut(uid) else { return };
        for under_way in [&mut track.decision, &mut track.report] {
            let void = under_way.as_ref().is_some_and(|write| match write.sent_on {
                None => differs,
                Some(version) => write.unknown && newer.version > version,
            });
            if void && let Some(write) = under_way.take() {
                self.memory.under_way.remove(&write.id);
            }
        }
    }

    /// A newer version than the one that met a conflict is known.
    fn end_staleness(&mut self, uid: &Uid) {
        let Some(version) = self.durable.workloads.get(uid).map(|workload| workload.version) else { return };
        let Some(track) = self.memory.tracks.get_mut(uid) else { return };
        if track.stale.take_if(|stale| version > *stale).is_some() {
            // So that it comes back as somebody who was not evaluated yet.
            self.leave_queue(uid);
        }
    }

    fn forget_links(&mut self, uid: &Uid) {
        let Some(workload) = self.durable.workloads.get(uid) else { return };
        let local = Durable::queue_name(workload);
        if let Some(members) = self.memory.by_local_queue.get_mut(&local) {
            members.remove(uid);
            if members.is_empty() {
                self.memory.by_local_queue.remove(&local);
            }
        }
        if let Some(owner) = &workload.owner
            && let Some(owned) = self.memory.by_owner.get_mut(owner)
        {
            owned.remove(uid);
            if owned.is_empty() {
                self.memory.by_owner.remove(owner);
            }
        }
    }

    fn on_workload_gone(&mut self, uid: &Uid) {
        self.leave_quota_behind(uid);
        self.forget_links(uid);
        self.durable.workloads.remove(uid);
        self.reindex(uid);
        if let Some(track) = self.memory.tracks.remove(uid) {
            for write in [track.decision, track.report].into_iter().flatten() {
                self.memory.under_way.remove(&write.id);
            }
        }
        self.memory.touched.remove(uid);
        self.memory.unreported.remove(uid);
    }

    /// A Workload that is deleted while its pods run takes its quota along only when they are gone.
    fn leave_quota_behind(&mut self, uid: &Uid) {
        let owner = self.durable.workloads.get(uid).and_then(|workload| workload.owner.clone());
        let Some(owner) = owner.filter(|owner| self.durable.owners_with_pods.contains(owner)) else { return };
        let Some(track) = self.memory.tracks.get_mut(uid) else { return };
        if let Some(counted) = track.counted.take_if(|counted| counted.admission.is_some()) {
            self.memory.left_behind.entry(owner).or_default().push(counted);
        }
    }

    fn on_outcome(&mut self, id: DecisionId, outcome: Outcome, now: Timestamp) {
        let Some(uid) = self.memory.under_way.get(&id).cloned() else { return };
        let (Some(track), Some(workload)) =
            (self.memory.tracks.get_mut(&uid), self.durable.workloads.get_mut(&uid))
        else {
            return;
        };
        let is_decision = track.decision.as_ref().is_some_and(|write| write.id == id);
        let (slot, refused) = if is_decision {
            (&mut track.decision, &mut track.refused)
        } else {
            (&mut track.report, &mut track.report_refused)
        };
        // A conflict after an attempt whose end nobody knows may be that attempt, landed: what was decided
        // stays booked until the watch shows what there is.
        let settled_by_watch =
            |write: &UnderWay| outcome == Outcome::Unknown || (outcome == Outcome::Conflict && write.unknown);
        if let Some(write) = slot.as_mut().filter(|write| settled_by_watch(write)) {
            write.unknown = true;
            if write.sent_on.is_none_or(|version| workload.version <= version) {
                return;
            }
        }
        let Some(write) = slot.take() else { return };
        self.memory.under_way.remove(&id);
        match outcome {
            Outcome::Landed(version) => {
                *refused = None;
                if version > workload.version {
                    workload.version = version;
                    workload.state = write.state;
                }
            }
            Outcome::Unknown => {}
            Outcome::Conflict => {
                if write.sent_on.is_some_and(|version| version >= workload.version) {
                    track.stale = Some(workload.version);
                }
            }
            Outcome::Rejected(message) => {
                let before = refused.as_ref().map_or(0, |refused| refused.attempts);
                *refused = Some(Refused::again(message, before, now));
            }
        }
        self.end_staleness(&uid);
        self.reindex(&uid);
    }

    /// Puts a Workload where it belongs now, after anything about it may have changed.
    ///
    /// Who stays where it was is not tried again: what could help it wakes its queue.
    pub(crate) fn reindex(&mut self, uid: &Uid) {
        self.recount(uid);
        self.memory.touched.insert(uid.clone());
        self.memory.unreported.insert(uid.clone());
        self.set_deadline(uid, Timestamp::from_nanos(i64::MIN));
        self.forget_failed_start(uid);
        let place = self.take_place(uid);
        let stays = self.memory.tracks.get(uid).is_some_and(|track| track.place == place);
        if stays {
            if let Some(place) = place {
                self.memory.shapes.release(place.shape);
            }
            return;
        }
        self.leave_queue(uid);
        let (Some(place), Some(track)) = (place, self.memory.tracks.get_mut(uid)) else { return };
        let queue = self.memory.queues.entry(place.queue.clone()).or_default();
        queue.insert(place.key.clone(), place.shape);
        self.memory.ready.insert(place.queue.clone());
        track.place = Some(place);
    }

    /// That a Job cannot start was said of the quota that its Workload had: other quota is another try.
    fn forget_failed_start(&mut self, uid: &Uid) {
        let may_run = self.durable.workloads.get(uid).is_some_and(|workload| workload.state.may_run());
        if let Some(track) = self.memory.tracks.get_mut(uid).filter(|_| !may_run) {
            track.unstartable = None;
        }
    }

    /// Notes the first time after `passed` at which something becomes due by itself.
    fn set_deadline(&mut self, uid: &Uid, passed: Timestamp) {
        let Some(track) = self.memory.tracks.get_mut(uid) else { return };
        if let Some(at) = track.deadline.take() {
            self.memory.deadlines.remove(&(at, uid.clone()));
        }
        let Some(workload) = self.durable.workloads.get(uid) else { return };
        let retries =
            [&track.refused, &track.report_refused].into_iter().flatten().filter_map(|r| r.retry_at);
        track.deadline =
            retries.chain(lifecycle::deadline(&self.durable, workload)).filter(|at| *at > passed).min();
        if let Some(at) = track.deadline {
            self.memory.deadlines.insert((at, uid.clone()));
        }
    }

    /// Where a Workload has to wait now, with its shape acquired; none if it does not wait for quota.
    fn take_place(&mut self, uid: &Uid) -> Option<Place> {
        let workload = self.durable.workloads.get(uid)?;
        let track = self.memory.tracks.get(uid)?;
        let State::Pending(pending) = &workload.state else { return None };
        let queue = self.durable.cluster_queue_of(workload)?;
        // A strict queue waits for its first even while nobody knows what the first asks for.
        let is_strict = self.memory.queues.get(queue).is_some_and(|queue| queue.is_strict());
        let may_queue = (track.may_decide() || is_strict && track.is_only_stale())
            && !workload.deleting
            && pending.requeued.as_ref().is_none_or(|requeued| requeued.eligible)
            && lifecycle::due(&self.durable, workload, Timestamp::EPOCH).is_none()
            && self.durable.standing(workload).is_none();
        if !may_queue {
            return None;
        }
        let queue = queue.clone();
        let key = QueueKey {
            priority: Reverse(workload.priority),
            at: queue_order_time(workload),
            uid: uid.clone(),
        };
        Some(Place { queue, key, shape: self.memory.shapes.acquire(workload) })
    }

    pub(crate) fn leave_queue(&mut self, uid: &Uid) {
        let Some(place) = self.memory.tracks.get_mut(uid).and_then(|track| track.place.take()) else {
            return;
        };
        self.memory.shapes.release(place.shape);
        if let Some(queue) = self.memory.queues.get_mut(&place.queue) {
            queue.remove(&place.key, place.shape);
            if queue.head().is_some() {
                self.memory.ready.insert(place.queue);
            }
        }
    }

    /// What a Workload counts as now. Quota counts from the decision to give it until the write that
    /// gives it back has landed.
    fn counted_now(&self, uid: &Uid) -> Option<CountedAs> {
        let workload = self.durable.workloads.get(uid)?;
        let local = Durable::queue_name(workload);
        let decided = self.memory.tracks.get(uid).and_then(|track| track.decision.as_ref()).map(|w| &w.state);
        let held = workload.state.reservation().or_else(|| decided.and_then(State::reservation));
        if let Some(reservation) = held {
            let counted =
                if reservation.admitted_at.is_some() { Counted::Admitted } else { Counted::Reserving };
            let cluster = Some(reservation.admission.cluster_queue.clone());
            return Some(CountedAs {
                local,
                cluster,
                counted,
                admission: Some(reservation.admission.clone()),
            });
        }
        let State::Pending(pending) = &workload.state else { return None };
        let queued = workload.active && pending.requeued.as_ref().is_none_or(|requeued| requeued.eligible);
        let queue = self.durable.local_queues.get(&local).filter(|_| queued)?;
        let cluster = (queue.stop_policy == StopPolicy::None).then(|| queue.cluster_queue.clone());
        Some(CountedAs { local, cluster, counted: Counted::Pending, admission: None })
    }

    fn recount(&mut self, uid: &Uid) {
        let new = self.counted_now(uid);
        let Some(track) = self.memory.tracks.get_mut(uid) else { return };
        if track.counted == new {
            return;
        }
        let old = std::mem::replace(&mut track.counted, new.clone());
        if let Some(old) = &old {
            self.count(old, -1);
        }
        if let Some(new) = &new {
            self.count(new, 1);
        }
        let admission = |counted: &Option<CountedAs>| counted.as_ref().and_then(|c| c.admission.clone());
        if admission(&old).is_some() && admission(&old) != admission(&new) {
            self.wake_for_quota(old.and_then(|counted| counted.cluster).as_ref());
        }
    }

    fn count(&mut self, counted: &CountedAs, sign: i32) {
        let local = self.memory.local_tallies.entry(counted.local.clone()).or_default();
        local.count(counted.counted, counted.admission.as_ref(), sign);
        self.memory.changed_queues.insert(QueueRef::Local(counted.local.clone()));
        if let Some(cluster) = &counted.cluster {
            let tally = self.memory.cluster_tallies.entry(cluster.clone()).or_default();
            tally.count(counted.counted, counted.admission.as_ref(), sign);
            self.memory.changed_queues.insert(QueueRef::Cluster(cluster.clone()));
        }
    }

    fn wake_for_quota(&mut self, name: Option<&ClusterQueueName>) {
        if let Some(name) = name {
            self.wake(name, |reason| reason == PendingReason::WaitingForQuota);
        }
    }

    fn wake(&mut self, name: &ClusterQueueName, helps: impl Fn(PendingReason) -> bool) {
        if let Some(queue) = self.memory.queues.get_mut(name) {
            queue.wake(helps);
            self.memory.ready.insert(name.clone());
        }
    }

    /// What is to be done now, at most `budget` things.
    pub fn decide(&mut self, now: Timestamp, budget: usize) -> Vec<Decision> {
        let mut decisions = Vec::new();
        if !self.memory.synced {
            return decisions;
        }
        self.pass_deadlines(now);
        self.decide_what_is_due(now, budget, &mut decisions);
        while decisions.len() < budget && self.cycle(now, budget, &mut decisions) {}
        self.report_waiting(now, budget, &mut decisions);
        decisions
    }

    /// When to decide again if nothing happens before.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.memory.deadlines.first().map(|(at, _)| *at)
    }

    fn pass_deadlines(&mut self, now: Timestamp) {
        while let Some((at, uid)) = self.memory.deadlines.first().cloned() {
            if at > now {
                break;
            }
            self.memory.deadlines.pop_first();
            if let Some(track) = self.memory.tracks.get_mut(&uid) {
                for refused in [&mut track.refused, &mut track.report_refused].into_iter().flatten() {
                    refused.retry_at = refused.retry_at.filter(|at| *at > now);
                }
            }
            self.reindex(&uid);
            // A stored time that has passed stays stored; it fires once, and later ones remain.
            self.set_deadline(&uid, now);
        }
    }

    fn decide_what_is_due(&mut self, now: Timestamp, budget: usize, decisions: &mut Vec<Decision>) {
        while decisions.len() < budget {
            let Some(uid) = self.memory.touched.pop_first() else { break };
            let (Some(workload), Some(track)) =
                (self.durable.workloads.get(&uid), self.memory.tracks.get(&uid))
            else {
                continue;
            };
            if !track.may_decide() {
                continue;
            }
            let unstartable =
                track.unstartable.as_deref().and_then(|why| lifecycle::unstartable(workload, why, now));
            if let Some((action, state)) =
                unstartable.or_else(|| lifecycle::due(&self.durable, workload, now))
            {
                decisions.push(self.book(&uid, action, state));
            }
        }
    }

    /// Makes a decision and books its effect.
    pub(crate) fn book(&mut self, uid: &Uid, action: Action, state: State) -> Decision {
        let id = DecisionId(self.memory.next_decision);
        self.memory.next_decision += 1;
        let name = self.durable.workloads[uid].name.clone();
        let write = UnderWay { id, state, sent_on: None, unknown: false };
        self.memory.under_way.insert(id, uid.clone());
        if let Some(track) = self.memory.tracks.get_mut(uid) {
            let slot = if action.is_diagnostic() { &mut track.report } else { &mut track.decision };
            *slot = Some(write);
        }
        if !action.is_diagnostic() {
            self.reindex(uid);
            self.memory.touched.remove(uid);
        }
        Decision { id, uid: uid.clone(), name, action }
    }

    /// What a decision comes to now, at the moment at which it is sent. None if it is void: superseded,
    /// overtaken, or a report of what the object says already. Then nothing is to be sent or reported.
    pub fn pending_write(&mut self, id: DecisionId) -> Option<PendingWrite> {
        let uid = self.memory.under_way.get(&id)?.clone();
        let is_report = self.memory.tracks.get(&uid)?.report.as_ref().is_some_and(|report| report.id == id);
        let report = if is_report { self.report_now(&uid) } else { None };
        let workload = self.durable.workloads.get(&uid)?;
        let track = self.memory.tracks.get_mut(&uid)?;
        if is_report && (report.is_none() || track.decision.is_some()) {
            track.report = None;
            self.memory.under_way.remove(&id);
            self.memory.unreported.insert(uid);
            return None;
        }
        let slot = if is_report { &mut track.report } else { &mut track.decision };
        let write = slot.as_mut().filter(|write| write.id == id)?;
        if let Some(state) = report {
            write.state = state;
        }
        write.sent_on = Some(workload.version);
        Some(PendingWrite {
            version: workload.version,
            generation: workload.generation,
            state: write.state.clone(),
        })
    }

    /// Queues whose status may have changed since this was last asked.
    pub fn take_changed_queues(&mut self) -> Vec<QueueRef> {
        std::mem::take(&mut self.memory.changed_queues).into_iter().collect()
    }

    /// Activity and counts of a ClusterQueue, for its status.
    pub fn cluster_queue_status(
        &self,
        name: &ClusterQueueName,
    ) -> Option<(ClusterQueueReason, String, QueueCounts)> {
        let queue = self.durable.cluster_queues.get(name)?;
        let (reason, message) = self.durable.cluster_queue_activity(queue);
        let counts =
            self.memory.cluster_tallies.get(name).cloned().unwrap_or_default().to_counts(Some(queue));
        Some((reason, message, counts))
    }

    /// Activity and counts of a LocalQueue, for its status.
    pub fn local_queue_status(&self, name: &ObjectName) -> Option<(LocalQueueReason, String, QueueCounts)> {
        let queue = self.durable.local_queues.get(name)?;
        let (reason, message) = self.durable.local_queue_activity(queue);
        let definition = self.durable.cluster_queues.get(&queue.cluster_queue);
        let counts = self.memory.local_tallies.get(name).cloned().unwrap_or_default().to_counts(definition);
        Some((reason, message, counts))
    }
}

/// The time by which a Workload is ordered: its creation, unless it was sent back for not starting.
fn queue_order_time(workload: &Workload) -> Timestamp {
    match &workload.state {
        State::Pending(pending) => match &pending.evicted {
            Some(eviction)
                if matches!(
                    eviction.reason,
                    EvictionReason::PodsReadyTimeout | EvictionReason::AdmissionCheck
                ) =>
            {
                eviction.at
            }
            _ => workload.created,
        },
        _ => workload.created,
    }
}
