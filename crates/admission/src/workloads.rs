//! What happens to Workloads and their Jobs, and where each of them belongs then.

use std::cmp::Reverse;
use std::sync::Arc;

use gangway_model::queues::StopPolicy;
use gangway_model::reasons::EvictionReason;
use gangway_model::workload::{State, Workload};
use gangway_model::{Timestamp, Uid};

use crate::durable::Durable;
use crate::engine::Engine;
use crate::event::JobFacts;
use crate::ids::{CellId, WorkloadId};
use crate::ledger::{Holder, HolderKey};
use crate::lifecycle;
use crate::memory::{ChangedQueue, CountedAs, Holds, Place, Track};
use crate::queues::{LaneKey, QueueKey};
use crate::tally::Counted;

/// The number of no Workload: of one that is gone while its pods still use its quota.
const GONE: WorkloadId = WorkloadId(u32::MAX);

impl Engine {
    pub(crate) fn on_job(&mut self, uid: Uid, facts: Option<JobFacts>) {
        if self.durable.jobs.get(&uid) == facts.as_ref() {
            return;
        }
        match facts {
            Some(facts) => self.durable.jobs.insert(uid.clone(), facts),
            None => self.durable.jobs.remove(&uid),
        };
        self.reindex_owned(&uid);
    }

    pub(crate) fn on_pods(&mut self, owner: &Uid, exist: bool) {
        let pods = &mut self.durable.owners_with_pods;
        if pods.contains(owner) == exist {
            return;
        }
        if exist {
            pods.insert(owner.clone());
        } else {
            pods.remove(owner);
        }
        self.reindex_owned(owner);
        if !exist {
            for counted in self.memory.left_behind.remove(owner).unwrap_or_default() {
                self.count(GONE, &counted, -1);
                self.wake_freed(&counted);
            }
        }
    }

    fn reindex_owned(&mut self, owner: &Uid) {
        let owned = self.memory.by_owner.get(owner).cloned().unwrap_or_default();
        for id in owned {
            self.reindex(id);
        }
    }

    pub(crate) fn on_workload(&mut self, workload: Workload) {
        if let Some(id) = self.durable.workloads.id(&workload.uid)
            && let Some(known) = self.durable.workloads.get(id)
        {
            if workload.version < known.version || *known == workload {
                return;
            }
            let asks_the_same = known.asks_the_same_as(&workload);
            self.forget_links(id);
            self.overtake(id, &workload);
            if !asks_the_same {
                let track = &mut self.memory.tracks[id.index()];
                (track.refused, track.report_refused, track.scan) = (None, None, None);
            }
        }
        let local = self.local_queue_id(&Durable::queue_name(&workload));
        let id = self.durable.workloads.insert(workload);
        if id.index() >= self.memory.tracks.len() {
            self.memory.tracks.resize_with(id.index() + 1, Track::default);
        }
        self.memory.tracks[id.index()].local = local;
        self.memory.locals[local.index()].members.insert(id);
        self.note_links(id);
        self.end_staleness(id);
        self.reindex(id);
        self.watch_preemptor_of(id);
    }

    /// Remembers whose Workload this is, and for whom it left.
    fn note_links(&mut self, id: WorkloadId) {
        let Some(workload) = self.durable.workloads.get(id) else { return };
        if let Some(owner) = &workload.owner {
            self.memory.by_owner.entry(owner.clone()).or_default().push(id);
        }
        self.note_preemptor(id);
    }

    pub(crate) fn note_preemptor(&mut self, id: WorkloadId) {
        let Some(workload) = self.durable.workloads.get(id) else { return };
        if let Some(preemptor) =
            workload.state.preemptor().filter(|_| crate::holds::is_victim(&workload.state))
        {
            self.memory.victims.entry(preemptor.clone()).or_default().insert(id);
        }
    }

    pub(crate) fn forget_preemptor(&mut self, id: WorkloadId) {
        let Some(workload) = self.durable.workloads.get(id) else { return };
        if let Some(preemptor) = workload.state.preemptor()
            && let Some(victims) = self.memory.victims.get_mut(preemptor)
        {
            victims.remove(&id);
            if victims.is_empty() {
                self.memory.victims.remove(preemptor);
            }
        }
    }

    fn forget_links(&mut self, id: WorkloadId) {
        let local = self.memory.tracks[id.index()].local;
        self.memory.locals[local.index()].members.remove(&id);
        self.forget_preemptor(id);
        let owner = self.durable.workloads.get(id).and_then(|workload| workload.owner.as_ref());
        if let Some(owner) = owner
            && let Some(owned) = self.memory.by_owner.get_mut(owner)
        {
            owned.retain(|owned| *owned != id);
            if owned.is_empty() {
                self.memory.by_owner.remove(owner);
            }
        }
    }

    pub(crate) fn on_workload_gone(&mut self, uid: &Uid) {
        let Some(id) = self.durable.workloads.id(uid) else { return };
        self.leave_quota_behind(id);
        self.give_up(id);
        self.forget_links(id);
        self.durable.workloads.remove(id);
        self.reindex(id);
        let track = std::mem::take(&mut self.memory.tracks[id.index()]);
        self.memory.condemned.remove(&id);
        for write in [track.decision, track.report].into_iter().flatten() {
            self.memory.under_way.remove(&write.id);
        }
    }

    /// A Workload that is deleted while its pods run takes its quota along only when they are gone.
    fn leave_quota_behind(&mut self, id: WorkloadId) {
        let owner = self.durable.workloads.get(id).and_then(|workload| workload.owner.clone());
        let Some(owner) = owner.filter(|owner| self.durable.owners_with_pods.contains(owner)) else { return };
        let track = &mut self.memory.tracks[id.index()];
        let Some(counted) = track.counted.take_if(|counted| counted.holds.is_some()) else { return };
        self.count(id, &counted, -1);
        let mut behind = counted;
        if let Some(holds) = &mut behind.holds {
            holds.key.stays = false;
        }
        self.count(GONE, &behind, 1);
        self.memory.left_behind.entry(owner).or_default().push(behind);
    }

    /// Puts a Workload where it belongs now, after anything about it may have changed.
    ///
    /// Who stays where it was is not tried again: what could help it wakes its queue.
    pub(crate) fn reindex(&mut self, id: WorkloadId) {
        self.recount(id);
        self.set_deadline(id, Timestamp::from_nanos(i64::MIN));
        self.forget_failed_start(id);
        if self.is_something_due(id) {
            self.touch(id);
        }
        self.note_unreported(id);
        let place = self.take_place(id);
        let track = &mut self.memory.tracks[id.index()];
        if track.place == place {
            if let Some(place) = place {
                self.memory.shapes.release(place.shape);
            }
            return;
        }
        let gives_up = place.is_none() && track.is_preemptor && track.decision.is_none();
        self.leave_queue(id);
        if gives_up {
            self.give_up(id);
            return;
        }
        let Some(place) = place else { return };
        let queue = place.queue;
        self.memory.queues[queue.index()].insert(place.key.clone(), place.lane);
        self.memory.tracks[id.index()].place = Some(place);
        self.list(queue);
        self.follow_claim(queue);
    }

    fn is_something_due(&self, id: WorkloadId) -> bool {
        let Some(workload) = self.durable.workloads.get(id) else { return false };
        let track = &self.memory.tracks[id.index()];
        track.condemned.is_some()
            || track.unstartable.is_some()
            || lifecycle::due(&self.durable, workload, Timestamp::EPOCH).is_some()
            || matches!(workload.state, State::Evicting(..))
    }

    /// That a Job cannot start was said of the quota that its Workload had: other quota is another try. And
    /// who holds no quota need not leave.
    fn forget_failed_start(&mut self, id: WorkloadId) {
        let may_run = self.durable.workloads.get(id).is_some_and(|workload| workload.state.may_run());
        let holds = self.is_to_stay(id);
        let track = &mut self.memory.tracks[id.index()];
        if !may_run {
            track.unstartable = None;
        }
        if !holds && track.condemned.take().is_some() {
            self.memory.condemned.remove(&id);
        }
    }

    /// Notes the first time after `passed` at which something becomes due by itself.
    pub(crate) fn set_deadline(&mut self, id: WorkloadId, passed: Timestamp) {
        let track = &mut self.memory.tracks[id.index()];
        if let Some(at) = track.deadline.take() {
            self.memory.deadlines.remove(&(at, id));
        }
        let Some(workload) = self.durable.workloads.get(id) else { return };
        let track = &self.memory.tracks[id.index()];
        let refusals = [&track.refused, &track.report_refused].into_iter().flatten();
        let retry = refusals.filter_map(|refused| refused.retry_at).filter(|at| *at > passed).min();
        let hold = if track.is_preemptor { self.hold_deadline(workload) } else { None };
        let own = lifecycle::deadline(&self.durable, workload);
        let first = retry.into_iter().chain(hold).chain(own).filter(|at| *at > passed).min();
        self.memory.tracks[id.index()].deadline = first;
        if let Some(at) = first {
            self.memory.deadlines.insert((at, id));
        }
    }

    /// Where a Workload has to wait now, with its shape acquired; none if it does not wait for quota.
    fn take_place(&mut self, id: WorkloadId) -> Option<Place> {
        let State::Pending(_) = &self.durable.workloads.get(id)?.state else { return None };
        let track = &self.memory.tracks[id.index()];
        if track.decision.is_some() {
            return None;
        }
        let outlook = self.outlook(track.local);
        let queue = outlook.queue?;
        let workload = self.durable.workloads.get(id)?;
        let State::Pending(pending) = &workload.state else { return None };
        let track = &self.memory.tracks[id.index()];
        // A strict queue waits for its first even while nobody knows what the first asks for.
        let is_strict = self.memory.queues[queue.index()].is_strict();
        let may_queue = (track.may_decide() || is_strict && track.is_only_stale())
            && outlook.standing.is_none()
            && Durable::own_standing(workload).is_none()
            && !workload.deleting
            && pending.requeued.as_ref().is_none_or(|requeued| requeued.eligible)
            && lifecycle::due(&self.durable, workload, Timestamp::EPOCH).is_none();
        if !may_queue {
            return None;
        }
        let is_preemptor = track.is_preemptor;
        let rank = QueueKey::rank(workload.priority, is_preemptor && !is_strict, !self.rules.hold);
        let key = QueueKey { rank, at: queue_order_time(workload), uid: workload.uid.clone(), id };
        let shape = self.memory.shapes.acquire(workload);
        let lane = if is_preemptor { LaneKey::Preemptor(id) } else { LaneKey::Shape(shape) };
        Some(Place { queue, lane, key, shape })
    }

    pub(crate) fn leave_queue(&mut self, id: WorkloadId) {
        let Some(place) = self.memory.tracks[id.index()].place.take() else { return };
        self.memory.shapes.release(place.shape);
        let queue = place.queue;
        self.memory.queues[queue.index()].remove(&place.key, place.lane);
        self.list(queue);
        self.follow_claim(queue);
    }

    /// What a Workload counts as now. Quota counts from the decision to give it until the write that
    /// gives it back has landed.
    fn counted_now(&mut self, id: WorkloadId) -> Option<CountedAs> {
        let workload = self.durable.workloads.get(id)?;
        let track = self.memory.tracks.get(id.index())?;
        let local = track.local;
        let decided = track.decision.as_ref().map(|write| &write.state);
        let held = workload.state.reservation().or_else(|| decided.and_then(State::reservation));
        if let Some(reservation) = held {
            let is_admitted = reservation.admitted_at.is_some();
            let counted = if is_admitted { Counted::Admitted } else { Counted::Reserving };
            let leaves = matches!(workload.state, State::Evicting(..))
                || matches!(decided, Some(State::Evicting(..)))
                || track.condemned.is_some();
            let key = HolderKey {
                stays: !leaves,
                priority: workload.priority,
                reserved_at: Reverse(reservation.reserved_at),
                sequence: Reverse(track.sequence),
                uid: workload.uid.clone(),
            };
            let admission = reservation.admission.clone();
            let known = track.counted.as_ref().and_then(|counted| counted.holds.as_ref());
            let known = known.filter(|known| known.admission == admission).map(|known| known.usage.clone());
            let queued_at = queue_order_time(workload);
            let cluster = self.queue_id(&admission.cluster_queue);
            let usage = known.unwrap_or_else(|| Arc::new(self.memory.ledger.usage(&admission)));
            let holds = Some(Box::new(Holds { admission, usage, key, queued_at }));
            return Some(CountedAs { local, cluster: Some(cluster), counted, holds });
        }
        let State::Pending(pending) = &workload.state else { return None };
        let queued = workload.active && pending.requeued.as_ref().is_none_or(|requeued| requeued.eligible);
        if !queued {
            return None;
        }
        let name = self.memory.local_names.name(local.index());
        let is_open = self.durable.local_queues.get(name)?.stop_policy == StopPolicy::None;
        let cluster = self.outlook(local).queue.filter(|_| is_open);
        Some(CountedAs { local, cluster, counted: Counted::Pending, holds: None })
    }

    fn recount(&mut self, id: WorkloadId) {
        let new = self.counted_now(id);
        let Some(track) = self.memory.tracks.get_mut(id.index()) else { return };
        if track.counted == new {
            return;
        }
        let old = std::mem::replace(&mut track.counted, new.clone());
        if let Some(old) = &old {
            self.count(id, old, -1);
        }
        if let Some(new) = &new {
            self.count(id, new, 1);
        }
        let usage = |counted: &Option<CountedAs>| {
            let counted = counted.as_ref()?;
            Some((counted.cluster?, counted.holds.as_ref()?.usage.clone()))
        };
        if usage(&old).is_some()
            && usage(&old) != usage(&new)
            && let Some(old) = &old
        {
            self.wake_freed(old);
        }
    }

    fn wake_freed(&mut self, counted: &CountedAs) {
        if let Some(queue) = counted.cluster {
            self.wake_tree(queue);
        }
    }

    fn count(&mut self, id: WorkloadId, counted: &CountedAs, sign: i32) {
        let holds = counted.holds.as_ref();
        let usage: &[(CellId, i64)] = holds.map_or(&[], |holds| holds.usage.as_slice());
        self.memory.locals[counted.local.index()].tally.count(counted.counted, usage, sign);
        self.memory.changed_queues.insert(ChangedQueue::Local(counted.local));
        let Some(cluster) = counted.cluster else { return };
        self.memory.cluster_tallies[cluster.index()].count(counted.counted, usage, sign);
        self.memory.changed_queues.insert(ChangedQueue::Cluster(cluster));
        let Some(holds) = holds else { return };
        if sign > 0 {
            let holder = Holder { id, queued_at: holds.queued_at, usage: holds.usage.clone() };
            self.memory.ledger.enter(cluster, holds.key.clone(), holder);
        } else {
            self.memory.ledger.leave(cluster, &holds.key);
        }
    }
}

/// The time by which a Workload is ordered: its creation, unless it was sent back for not starting.
fn queue_order_time(workload: &Workload) -> Timestamp {
    let eviction = match &workload.state {
        State::Pending(pending) => pending.evicted.as_ref(),
        State::Evicting(_, eviction) => Some(eviction),
        _ => None,
    };
    let sent_back =
        |reason| matches!(reason, EvictionReason::PodsReadyTimeout | EvictionReason::AdmissionCheck);
    eviction.filter(|eviction| sent_back(eviction.reason)).map_or(workload.created, |eviction| eviction.at)
}
