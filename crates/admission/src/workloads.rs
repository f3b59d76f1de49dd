//! What happens to Workloads and their Jobs, and where each of them belongs then.

use std::cmp::Reverse;
use std::sync::Arc;

use gangway_model::planted::Bug;
use gangway_model::queues::{LocalQueue, StopPolicy};
use gangway_model::readiness::RequeuingTimestamp;
use gangway_model::reasons::EvictionReason;
use gangway_model::workload::{Reservation, State, Workload};
use gangway_model::{FlavorName, Timestamp, Uid};

use crate::chunks::Chunks;
use crate::durable::Durable;
use crate::engine::Engine;
use crate::event::JobFacts;
use crate::fallback;
use crate::ids::{CellId, LocalQueueId, WorkloadId};
use crate::ledger::{Holder, HolderKey};
use crate::lifecycle;
use crate::memory::{ChangedQueue, CountedAs, Grant, Holds, Memory, Place, Track};
use crate::queues::{LaneKey, Places, QueueKey};
use crate::records::Workloads;
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

    pub(crate) fn on_workload(&mut self, mut workload: Box<Workload>) {
        let number = self.durable.workloads.id(&workload.uid);
        if let Some(id) = number
            && let Some(known) = self.durable.workloads.get(id)
        {
            if workload.version < known.version || *known == *workload {
                return;
            }
            let asks_the_same = known.asks_the_same_as(&workload);
            let tried_for_this = known.queue == workload.queue && known.pod_sets == workload.pod_sets;
            if !tried_for_this && known.state.history().is_some() {
                self.memory.tracks[id.index()].rare.history_is_old = true;
            }
            self.forget_links(id);
            self.overtake(id, &workload);
            if !asks_the_same {
                self.forget_what_was_asked(id);
            }
        }
        if number.is_none() {
            self.take_back_quota(&workload);
        }
        let local = self.intern(&mut workload);
        let excluded = self.excluded(&workload);
        let (shape, pod_sets) = self.memory.shapes.acquire(workload.priority, &workload.pod_sets, &excluded);
        workload.pod_sets = pod_sets;
        let id = self.durable.workloads.insert(number, *workload);
        while id.index() >= self.memory.tracks.len() {
            self.memory.tracks.push(Track::default());
        }
        let track = &mut self.memory.tracks[id.index()];
        if number.is_some() {
            self.memory.shapes.release(track.shape);
        }
        (track.local, track.shape) = (local, shape);
        let members = &mut self.memory.locals[local.index()].members;
        self.memory.tracks[id.index()].member = members.len() as u32;
        members.push(id);
        self.note_links(id);
        self.end_staleness(id);
        self.reindex(id);
        self.share_message(id);
        self.watch_preemptor_of(id);
    }

    /// The flavors that a Workload does not try any more.
    #[inline]
    fn excluded(&self, workload: &Workload) -> Vec<FlavorName> {
        if self.planted.is(Bug::ExhaustedFlavorTried) {
            return Vec::new();
        }
        fallback::excluded(&self.durable, workload)
    }

    /// Gives a Workload the shape that it has now that other flavors are given up, or the rules for that have changed.
    pub(crate) fn reshape(&mut self, id: WorkloadId) {
        let Some(workload) = self.durable.workloads.get(id) else { return };
        let old = self.memory.tracks[id.index()].shape;
        if workload.state.history().is_none() && self.memory.shapes.excluded(old).is_empty() {
            return;
        }
        let excluded = self.excluded(workload);
        if *self.memory.shapes.excluded(old) == *excluded {
            return;
        }
        let (shape, _) = self.memory.shapes.acquire(workload.priority, &workload.pod_sets, &excluded);
        self.memory.shapes.release(old);
        let track = &mut self.memory.tracks[id.index()];
        track.shape = shape;
        track.rare.forget_scan();
    }

    /// A Workload asks for something else: refusals, searches and won room were for what it asked for before.
    fn forget_what_was_asked(&mut self, id: WorkloadId) {
        let rare = &mut self.memory.tracks[id.index()].rare;
        if rare.is_some() {
            (rare.refused, rare.report_refused, rare.scan) = (None, None, None);
        }
        self.give_up(id);
    }

    /// The LocalQueue that a Workload names. The names in its record become those that are stored once for all.
    fn intern(&mut self, workload: &mut Workload) -> LocalQueueId {
        let local = self.local_queue_id(&Durable::queue_name(workload));
        let name = self.memory.local_names.name(local.index());
        workload.name.namespace = name.namespace.clone();
        workload.queue = name.name.clone();
        local
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
        let Memory { tracks, locals, .. } = &mut self.memory;
        let Track { local, member, .. } = tracks[id.index()];
        let members = &mut locals[local.index()].members;
        members.swap_remove(member as usize);
        if let Some(moved) = members.get(member as usize) {
            tracks[moved.index()].member = member;
        }
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
        let left_for = self.durable.workloads.get(id).and_then(|workload| workload.state.preemptor());
        let left_for = left_for.and_then(|uid| self.durable.workloads.id(uid));
        self.leave_quota_behind(id);
        self.give_up(id);
        self.forget_links(id);
        self.leave_queue(id);
        self.durable.workloads.remove(id);
        self.reindex(id);
        // Whoever left for it is like any other now.
        let victims = self.memory.victims.get(uid).cloned().unwrap_or_default();
        victims.into_iter().for_each(|victim| self.reindex(victim));
        let track = std::mem::take(&mut self.memory.tracks[id.index()]);
        self.memory.shapes.release(track.shape);
        self.memory.condemned.remove(&id);
        for write in [&track.decision, &track.rare.report].into_iter().flatten() {
            self.memory.under_way.remove(write.id);
        }
        let chosen_for = track.rare.condemned.as_ref().map(|sentence| sentence.preemptor);
        for preemptor in left_for.into_iter().chain(chosen_for).filter(|preemptor| *preemptor != id) {
            self.watch_preemptor(preemptor);
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
            holds.key.leaves = true;
        }
        self.count(GONE, &behind, 1);
        self.memory.left_behind.entry(owner).or_default().push(behind);
    }

    /// A Workload that was taken for deleted is there again: what it left behind is its own.
    fn take_back_quota(&mut self, workload: &Workload) {
        let Some(owner) = &workload.owner else { return };
        let Some(behind) = self.memory.left_behind.get_mut(owner) else { return };
        let is_its_own =
            |counted: &CountedAs| counted.holds.as_ref().is_some_and(|holds| holds.key.uid.0 == workload.uid);
        let Some(index) = behind.iter().position(is_its_own) else { return };
        let counted = behind.swap_remove(index);
        if behind.is_empty() {
            self.memory.left_behind.remove(owner);
        }
        self.count(GONE, &counted, -1);
        self.wake_freed(&counted);
    }

    /// Puts a Workload where it belongs now, after anything about it may have changed.
    ///
    /// Who stays where it was is not tried again: what could help it wakes its queue.
    pub(crate) fn reindex(&mut self, id: WorkloadId) {
        if self.durable.workloads.get(id).is_some_and(|workload| workload.state.history().is_some()) {
            self.reshape(id);
        }
        self.recount(id);
        self.set_deadline(id, Timestamp::from_nanos(i64::MIN));
        self.forget_failed_start(id);
        let due = self.due_at_once(id);
        if due.is_some_and(|due| due.something) {
            self.touch(id);
        }
        self.note_unreported(id);
        let place = if due.is_some_and(|due| !due.by_lifecycle) { self.place_now(id) } else { None };
        let track = &mut self.memory.tracks[id.index()];
        let gives_up = place.is_none() && track.is_preemptor && track.may_decide();
        if track.place == place && !gives_up {
            return;
        }
        self.leave_queue(id);
        if gives_up {
            self.give_up(id);
            return;
        }
        let Some(place) = place else { return };
        let Some(key) = self.key(id, place) else { return };
        let queue = place.queue;
        self.memory.tracks[id.index()].place = Some(place);
        let Memory { queues, tracks, .. } = &mut self.memory;
        let known = Known { tracks, workloads: &self.durable.workloads };
        let lane = queues[queue.index()].insert(key, place.lane, &known);
        tracks[id.index()].lane = lane;
        self.list(queue);
        self.follow_claim(queue);
    }

    /// Quota was decided for a Workload that waited: it counts as a holder and leaves its queue. Nothing else about it
    /// changes until the write has ended.
    pub(crate) fn take_quota(&mut self, id: WorkloadId) {
        self.recount(id);
        self.leave_queue(id);
    }

    /// Whether something is due for a Workload, whatever the time; none if it is not known.
    fn due_at_once(&self, id: WorkloadId) -> Option<Due> {
        let workload = self.durable.workloads.get(id)?;
        let track = &self.memory.tracks[id.index()];
        let by_lifecycle = lifecycle::due(&self.durable, self.policy(), workload, Timestamp::EPOCH).is_some();
        let something = by_lifecycle
            || track.rare.condemned.is_some()
            || track.rare.unstartable.is_some()
            || track.rare.history_is_old
            || matches!(workload.state, State::Evicting(..));
        Some(Due { by_lifecycle, something })
    }

    /// That a Job cannot start was said of the quota that its Workload had: other quota is another try. And
    /// who holds no quota need not leave.
    fn forget_failed_start(&mut self, id: WorkloadId) {
        let may_run = self.durable.workloads.get(id).is_some_and(|workload| workload.state.may_run());
        let holds = self.is_to_stay(id);
        let rare = &mut self.memory.tracks[id.index()].rare;
        if !rare.is_some() {
            return;
        }
        if !may_run {
            rare.unstartable = None;
        }
        let sentence = if holds { None } else { rare.condemned.take() };
        rare.shrink();
        if let Some(sentence) = sentence {
            self.memory.condemned.remove(&id);
            // It may leave for another reason than its preemptor, who waits for nobody then.
            self.watch_preemptor(sentence.preemptor);
        }
    }

    /// Notes the first time after `passed` at which something becomes due by itself.
    pub(crate) fn set_deadline(&mut self, id: WorkloadId, passed: Timestamp) {
        let track = &mut self.memory.tracks[id.index()];
        if let Some(at) = track.rare.take_deadline() {
            self.memory.deadlines.remove(&(at, id));
        }
        let Some(workload) = self.durable.workloads.get(id) else { return };
        let track = &self.memory.tracks[id.index()];
        let refusals = [&track.rare.refused, &track.rare.report_refused].into_iter().flatten();
        let retry = refusals.filter_map(|refused| refused.retry_at).filter(|at| *at > passed).min();
        let stale = track.rare.stale.map(|stale| stale.until);
        let hold = if track.is_preemptor { self.hold_deadline(workload) } else { None };
        let own = lifecycle::deadline(&self.durable, self.readiness.as_ref(), workload);
        let report = self.eviction_report_seconds.and_then(|after| lifecycle::overdue_at(workload, after));
        let first = [retry, stale, hold, own, report].into_iter().flatten().filter(|at| *at > passed).min();
        if let Some(at) = first {
            self.memory.tracks[id.index()].rare.deadline = first;
            self.memory.deadlines.insert((at, id));
        }
    }

    /// The key of a Workload at a place.
    pub(crate) fn key(&self, id: WorkloadId, place: Place) -> Option<QueueKey> {
        let uid = self.durable.workloads.get(id)?.uid.clone();
        Some(QueueKey { rank: place.rank, at: place.at, uid, id })
    }

    /// Where everybody waits.
    pub(crate) fn places(&self) -> Known<'_> {
        Known { tracks: &self.memory.tracks, workloads: &self.durable.workloads }
    }

    /// Where a Workload for which nothing else is due has to wait now; none if it does not wait for quota.
    fn place_now(&mut self, id: WorkloadId) -> Option<Place> {
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
            && (lifecycle::may_queue(pending, self.memory.time)
                || self.planted.is(Bug::BackoffIgnored) && lifecycle::is_queued(pending));
        if !may_queue {
            return None;
        }
        let is_preemptor = track.is_preemptor;
        let rank = QueueKey::rank(workload.priority, is_preemptor && !is_strict, !self.rules.hold);
        let left_for = workload.state.preemptor().filter(|_| self.rules.hold);
        let lane = match left_for.and_then(|uid| self.durable.workloads.id(uid)) {
            _ if is_preemptor && self.rules.hold => LaneKey::Preemptor(id),
            Some(preemptor) => LaneKey::LeftFor(track.shape, preemptor),
            None => LaneKey::Shape(track.shape),
        };
        Some(Place { queue, lane, rank, at: self.queue_order_time(workload.created, &workload.state) })
    }

    /// The time by which a Workload is ordered: its creation, unless it was sent back and queues from then on.
    fn queue_order_time(&self, created: Timestamp, state: &State) -> Timestamp {
        let eviction = match state {
            State::Pending(pending) => pending.evicted.as_ref(),
            State::Evicting(_, eviction) => Some(eviction),
            _ => None,
        };
        let timestamp = self.readiness.as_ref().map(|settings| settings.timestamp).unwrap_or_default();
        let sent_back = |reason| match reason {
            EvictionReason::PodsReadyTimeout => timestamp == RequeuingTimestamp::Eviction,
            EvictionReason::FlavorFallback => {
                self.readiness.is_some() && timestamp == RequeuingTimestamp::Eviction
            }
            EvictionReason::AdmissionCheck => true,
            _ => false,
        };
        eviction.filter(|eviction| sent_back(eviction.reason)).map_or(created, |eviction| eviction.at)
    }

    pub(crate) fn leave_queue(&mut self, id: WorkloadId) {
        let Some(place) = self.memory.tracks[id.index()].place else { return };
        let queue = place.queue;
        let Memory { queues, tracks, .. } = &mut self.memory;
        let known = Known { tracks, workloads: &self.durable.workloads };
        queues[queue.index()].remove(id, known.tracks[id.index()].lane, &known);
        tracks[id.index()].place = None;
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
        let holding = |state: &'_ State| state.reservation().is_some();
        let state = Some(&workload.state).filter(|state| holding(state)).or(decided);
        if let Some((state, reservation)) = state.and_then(|state| Some((state, state.reservation()?))) {
            let is_admitted = reservation.admitted_at.is_some();
            let counted = if is_admitted { Counted::Admitted } else { Counted::Reserving };
            let leaves = matches!(workload.state, State::Evicting(..))
                || matches!(decided, Some(State::Evicting(..)))
                || track.rare.condemned.is_some();
            let key = HolderKey {
                leaves,
                priority: Reverse(workload.priority),
                reserved_at: reservation.reserved_at,
                sequence: track.sequence,
                uid: Reverse(workload.uid.clone()),
            };
            let admission = reservation.admission.clone();
            let known = track.counted.as_ref().and_then(|counted| counted.holds.as_ref());
            let known = known.filter(|known| known.admission == admission).map(|known| known.usage.clone());
            // While its quota is only decided on, that it was sent back before does not count any more either.
            let queued_at = self.queue_order_time(workload.created, state);
            let grant = track.decision.as_ref().and_then(|write| write.grant());
            let Grant { queue: cluster, usage } = match (grant, known) {
                (Some(grant), _) => grant,
                (None, known) => {
                    let usage = known.unwrap_or_else(|| Arc::new(self.memory.ledger.usage(&admission)));
                    Grant { queue: self.queue_id(&admission.cluster_queue), usage }
                }
            };
            let holds = Some(Box::new(Holds { admission, usage, key, queued_at }));
            return Some(CountedAs { local, cluster: Some(cluster), counted, holds });
        }
        let State::Pending(pending) = &workload.state else { return None };
        // Who waits out a backoff is not in its queue.
        let queued = workload.active && lifecycle::may_queue(pending, self.memory.time);
        if !queued {
            return None;
        }
        let outlook = self.outlook(local);
        let is_open = outlook.is_open?;
        let cluster = outlook.queue.filter(|_| is_open);
        Some(CountedAs { local, cluster, counted: Counted::Pending, holds: None })
    }

    /// Notes who starts and who waits to start, where one start keeps others from starting. When the last of those who
    /// start is done, everybody is tried again.
    fn follow_start(&mut self, id: WorkloadId) {
        if !self.readiness.as_ref().is_some_and(|settings| settings.block_admission) {
            return;
        }
        // Who is being deleted or was told to leave starts no more, and its pods may be stuck for ever.
        let live = self
            .durable
            .workloads
            .get(id)
            .filter(|workload| !workload.deleting && !matches!(workload.state, State::Evicting(..)));
        let known = live.and_then(|workload| workload.state.reservation());
        let decision = live.and_then(|_| self.track(id)?.decision.as_ref());
        let decided = decision.and_then(|write| write.state.reservation());
        // That it starts counts from the decision on, and that it has started when it is written down.
        let starts = [known, decided].into_iter().flatten().any(Reservation::is_starting);
        let reserves = known.or(decided).is_some_and(|held| held.admitted_at.is_none());
        let was_blocked = self.is_blocked();
        let Memory { starting, reserving, .. } = &mut self.memory;
        for (set, is_member) in [(starting, starts), (reserving, reserves)] {
            if is_member {
                set.insert(id);
            } else {
                set.remove(&id);
            }
        }
        if was_blocked && !self.is_blocked() {
            self.reconsider();
            let waiting: Vec<WorkloadId> = self.memory.reserving.iter().copied().collect();
            waiting.into_iter().for_each(|id| self.touch(id));
        }
    }

    fn recount(&mut self, id: WorkloadId) {
        self.follow_start(id);
        let mut new = self.counted_now(id);
        if !self.memory.synced && self.planted.is(Bug::DoubleAdmissionAfterRestart) {
            new.take_if(|counted| counted.holds.is_some());
        }
        let Some(track) = self.memory.tracks.get_mut(id.index()) else { return };
        if track.counted == new {
            return;
        }
        let old = track.counted.take();
        if let Some(old) = &old {
            self.count(id, old, -1);
        }
        if let Some(new) = &new {
            self.count(id, new, 1);
        }
        if let Some(old) = &old
            && (gives_back(old, new.as_ref()) || is_easier_to_preempt(old, new.as_ref()))
        {
            if !self.ends_unnoticed(id) {
                self.wake_freed(old);
            } else if let Some(queue) = old.cluster {
                // Nobody is tried again for it but its preemptor, and searches in its queue begin again.
                self.memory.ledger.account_mut(queue).generation += 1;
                self.wake_preemptor_of(id);
            }
        }
        self.memory.tracks[id.index()].counted = new;
    }

    /// Lets the Workload be tried again for which this one left.
    fn wake_preemptor_of(&mut self, id: WorkloadId) {
        let preemptor = self.durable.workloads.get(id).and_then(|workload| workload.state.preemptor());
        let preemptor = preemptor.and_then(|uid| self.durable.workloads.id(uid));
        if let Some(place) = preemptor.and_then(|preemptor| self.track(preemptor)?.place) {
            self.memory.queues[place.queue.index()].wake_lane(place.lane);
            self.list(place.queue);
        }
    }

    /// Whether nobody is woken by what this Workload gives back.
    fn ends_unnoticed(&self, id: WorkloadId) -> bool {
        let Some(workload) = self.durable.workloads.get(id).filter(|_| self.rules.defects) else {
            return false;
        };
        let is_stopped = |queue: &LocalQueue| queue.stop_policy != StopPolicy::None;
        let local = self.durable.local_queues.get(&Durable::queue_name(workload));
        local.is_some_and(is_stopped)
    }

    fn wake_freed(&mut self, counted: &CountedAs) {
        if let Some(queue) = counted.cluster.filter(|_| !self.planted.is(Bug::WakeUpLost)) {
            self.wake_tree(queue);
        }
    }

    fn count(&mut self, id: WorkloadId, counted: &CountedAs, sign: i32) {
        let holds = counted.holds.as_ref();
        let usage: &[(CellId, i64)] = holds.map_or(&[], |holds| holds.usage.as_slice());
        self.memory.locals[counted.local.index()].tally.count(counted.counted, usage, sign);
        self.note_changed(ChangedQueue::Local(counted.local));
        let Some(cluster) = counted.cluster else { return };
        self.memory.cluster_tallies[cluster.index()].count(counted.counted, usage, sign);
        self.note_changed(ChangedQueue::Cluster(cluster));
        let Some(holds) = holds else { return };
        if sign > 0 {
            let workload = self.durable.workloads.get(id);
            let is_fixed = workload.is_some_and(|workload| workload.foreign_owner().is_some());
            let (queued_at, usage) = (holds.queued_at, holds.usage.clone());
            let holder = Holder { id, queued_at, usage, is_fixed };
            self.memory.ledger.enter(cluster, holds.key.clone(), holder);
        } else {
            self.memory.ledger.leave(cluster, &holds.key);
        }
    }
}

/// What is due for a Workload.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// By its own life and that of its Job.
    by_lifecycle: bool,
    /// By anything.
    something: bool,
}

/// Whether a holder of quota holds it no more, or holds other quota.
fn gives_back(old: &CountedAs, new: Option<&CountedAs>) -> bool {
    let held = |counted: &CountedAs| Some((counted.cluster?, counted.holds.as_ref()?.usage.clone()));
    held(old).is_some_and(|held_before| new.and_then(held) != Some(held_before))
}

/// Whether a holder of quota may be preempted now by somebody who could not before.
fn is_easier_to_preempt(old: &CountedAs, new: Option<&CountedAs>) -> bool {
    let new = new.and_then(|new| new.holds.as_ref());
    let (Some(old), Some(new)) = (&old.holds, new) else { return false };
    new.key.priority.0 < old.key.priority.0 || new.queued_at > old.queued_at
}

/// Where those who wait stand.
pub(crate) struct Known<'e> {
    tracks: &'e Chunks<Track>,
    workloads: &'e Workloads,
}

impl Places for Known<'_> {
    fn place(&self, id: WorkloadId) -> (u64, Timestamp, &Uid) {
        let place = self.tracks.get(id.index()).and_then(|track| track.place);
        let workload = self.workloads.get(id);
        match (place, workload) {
            (Some(place), Some(workload)) => (place.rank, place.at, &workload.uid),
            _ => unreachable!("only who has a place stands in a queue"),
        }
    }
}
