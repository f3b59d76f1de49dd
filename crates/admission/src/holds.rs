//! Room that is kept: for a preemptor what it won, for a waiting Workload what is its queue's own.

use std::sync::Arc;

use gangway_model::planted::Bug;
use gangway_model::reasons::{EvictionReason, PendingReason, RequeueReason};
use gangway_model::workload::{Eviction, State, Workload};
use gangway_model::{Timestamp, Uid};

use crate::decision::{Action, Decision};
use crate::engine::Engine;
use crate::flavors::{self, Found};
use crate::ids::{CellAmounts, QueueId, WorkloadId, amount_of};
use crate::ledger::Kept;
use crate::lifecycle;
use crate::memory::Sentence;
use crate::preemption::Victim;
use crate::queues::{Head, Parked};

/// For how long room is kept for a preemptor after its last victim left.
pub(crate) const HOLD_SECONDS: i64 = 15 * 60;

impl Engine {
    /// Tells the victims of a preemptor to leave, and keeps their room for it.
    pub(crate) fn make_room(
        &mut self,
        (queue, id): (QueueId, WorkloadId),
        found: Found,
        victims: &[Victim],
        (now, budget): (Timestamp, usize),
        decisions: &mut Vec<Decision>,
    ) {
        self.memory.work.preemptions += 1;
        for victim in victims {
            self.condemn(id, victim);
        }
        if self.rules.hold {
            self.keep_room(queue, id, found);
        } else if let Some(last) = self.memory.queues[queue.index()].last_preemptor.replace(id)
            && last != id
            && let Some(track) = self.memory.tracks.get_mut(last.index())
        {
            // The reference remembers one preemptor per queue, the last.
            track.is_preemptor = false;
            self.reindex_aside(last);
        }
        let track = &mut self.memory.tracks[id.index()];
        (track.is_preemptor, track.rare.scan, track.rare.victims_left_at) = (true, None, None);
        self.reindex(id);
        self.park(id, Parked::new(PendingReason::WaitingForPreemptedWorkloads));
        for victim in victims {
            if decisions.len() >= budget {
                break;
            }
            decisions.extend(self.decide_due(victim.id, now));
        }
    }

    fn keep_room(&mut self, queue: QueueId, id: WorkloadId, found: Found) {
        if self.planted.is(Bug::HoldForgotten) {
            return;
        }
        let flavors = found.picks.iter().map(|pick| pick.flavor).collect();
        self.memory.ledger.set_hold(queue, id, found.usage, flavors);
    }

    /// Whether somebody has yet to leave for a preemptor.
    pub(crate) fn waits_for_victims(&self, id: WorkloadId) -> bool {
        let Some(workload) = self.durable.workloads.get(id) else { return false };
        let told = self.memory.victims.get(&workload.uid).into_iter().flatten();
        let mut told = told.filter_map(|victim| self.durable.workloads.get(*victim));
        told.any(|victim| matches!(victim.state, State::Evicting(..))) || self.chosen_for(id).next().is_some()
    }

    /// Those who were chosen to leave for a preemptor and have yet to be told.
    pub(crate) fn chosen_for(&self, preemptor: WorkloadId) -> impl Iterator<Item = WorkloadId> {
        self.memory.condemned.iter().copied().filter(move |victim| {
            let sentence = self.track(*victim).and_then(|track| track.rare.condemned.as_ref());
            sentence.is_some_and(|sentence| sentence.preemptor == preemptor)
        })
    }

    /// Notes that a Workload has to leave for another, unless it leaves already.
    fn condemn(&mut self, preemptor: WorkloadId, victim: &Victim) {
        let stays = self.is_to_stay(victim.id);
        let Some(track) = self.memory.tracks.get_mut(victim.id.index()) else { return };
        if stays && track.rare.condemned.is_none() {
            track.rare.condemned = Some(Box::new(Sentence { preemptor, reason: victim.reason }));
            self.memory.condemned.insert(victim.id);
            self.reindex(victim.id);
        }
    }

    /// Whether a Workload has quota, or will have when the write under way has landed, and was not told to leave.
    pub(crate) fn is_to_stay(&self, id: WorkloadId) -> bool {
        let decided = self.track(id).and_then(|track| track.decision.as_ref()).map(|write| &write.state);
        let known = self.durable.workloads.get(id).map(|workload| &workload.state);
        [decided, known].into_iter().flatten().any(|state| matches!(state, State::Holding(_)))
    }

    /// Sets one Workload aside, wherever it stands in its queue.
    fn park(&mut self, id: WorkloadId, parked: Parked) {
        if let Some((queue, head)) = self.head_at_its_place(id) {
            self.set_aside(queue, &head, parked);
        }
    }

    /// Puts a Workload where it belongs. Another place in its queue is no reason to be tried again.
    fn reindex_aside(&mut self, id: WorkloadId) {
        let parked =
            |(queue, head): (QueueId, Head)| self.memory.queues[queue.index()].parked(&head).cloned();
        let parked = self.head_at_its_place(id).and_then(parked);
        self.reindex(id);
        if let Some(parked) = parked {
            self.park(id, parked);
        }
    }

    /// A Workload that waits as the head of its lane; none if it is not the first there.
    fn head_at_its_place(&self, id: WorkloadId) -> Option<(QueueId, Head)> {
        let place = self.track(id)?.place?;
        let head = self.memory.queues[place.queue.index()].head_of(place.lane, id)?;
        Some((place.queue, head))
    }

    /// What a preemptor gets of the room that is kept for it, if all of it is there. The holds of `lifted`, its own
    /// among them, are taken off.
    pub(crate) fn flavors_of_hold(
        &mut self,
        queue: QueueId,
        id: WorkloadId,
        lifted: &[WorkloadId],
    ) -> Option<Found> {
        let kept = self.memory.ledger.hold(queue, id)?;
        let (definition, flavors) = kept.flavors.clone()?;
        let need = kept.need.clone();
        let is_current = definition == self.memory.ledger.account(queue).definition;
        if !is_current || !self.has_won_room(queue, lifted, &need) {
            return None;
        }
        flavors::choose_again(&self.memory.ledger, queue, &flavors, &need)
    }

    /// Whether room that a preemptor has won is free by now. The holds of `lifted`, its own among them, are taken off.
    ///
    /// What the victims of others still use is booked twice, as used and as kept for those others. They won it on top
    /// of what was kept before, so it does not count against that; but what is used is not free.
    pub(crate) fn has_won_room(&mut self, queue: QueueId, lifted: &[WorkloadId], need: &CellAmounts) -> bool {
        if self.memory.ledger.has_room(queue, need) {
            return true;
        }
        let holds = self.memory.ledger.holds_of_others(queue, lifted);
        let victims: Vec<(QueueId, Arc<CellAmounts>)> =
            holds.iter().flat_map(|(_, preemptor, _)| self.still_used_by_victims_of(*preemptor)).collect();
        if victims.is_empty() {
            return false;
        }
        let ledger = &mut self.memory.ledger;
        victims.iter().for_each(|(queue, usage)| ledger.book_for_now(*queue, usage, -1));
        let is_its_own = ledger.has_room(queue, need);
        victims.iter().for_each(|(queue, usage)| ledger.book_for_now(*queue, usage, 1));
        holds.iter().for_each(|(queue, _, booked)| ledger.book_for_now(*queue, booked, -1));
        let is_free = ledger.has_room(queue, need);
        holds.iter().for_each(|(queue, _, booked)| ledger.book_for_now(*queue, booked, 1));
        is_its_own && is_free
    }

    /// What those still use who have to leave for a preemptor.
    fn still_used_by_victims_of(&self, preemptor: WorkloadId) -> Vec<(QueueId, Arc<CellAmounts>)> {
        let uid = self.durable.workloads.get(preemptor).map(|workload| &workload.uid);
        let told = uid.and_then(|uid| self.memory.victims.get(uid)).into_iter().flatten().copied();
        let leaves = |id: &WorkloadId| {
            let state = self.durable.workloads.get(*id).map(|workload| &workload.state);
            state.is_some_and(|state| matches!(state, State::Evicting(..)))
        };
        let victims = told.filter(leaves).chain(self.chosen_for(preemptor).filter(|id| !leaves(id)));
        let usage = |id: WorkloadId| {
            let counted = self.track(id)?.counted.as_ref()?;
            Some((counted.cluster?, counted.holds.as_ref()?.usage.clone()))
        };
        victims.filter_map(usage).collect()
    }

    /// The admission of a preemptor was decided, and nobody knows that it landed: what it had won is kept for it again,
    /// unless what is `known` of it says that it has quota.
    pub(crate) fn win_again(&mut self, id: WorkloadId, decided: &State, known: &State) {
        let State::Holding(reservation) = decided else { return };
        let track = &mut self.memory.tracks[id.index()];
        let won = track.rare.get_mut().and_then(|rare| rare.won.take());
        if matches!(known, State::Holding(_)) {
            track.is_preemptor = false;
        } else if let Some(won) = won.filter(|_| track.is_preemptor) {
            let queue = self.queue_id(&reservation.admission.cluster_queue);
            self.memory.ledger.hold_again(queue, *won);
        }
    }

    /// A preemptor gives up what it won: it is an ordinary Workload again, and who was to leave for it and was
    /// not told yet may stay.
    pub(crate) fn give_up(&mut self, id: WorkloadId) {
        let Some(track) = self.memory.tracks.get_mut(id.index()) else { return };
        if !std::mem::take(&mut track.is_preemptor) {
            return;
        }
        if let Some(rare) = track.rare.get_mut() {
            rare.victims_left_at = None;
        }
        let queue = track.place.as_ref().map(|place| place.queue);
        let queue = queue.or_else(|| self.memory.ledger.holder_of_hold(id));
        if let Some(queue) = queue
            && self.memory.ledger.end_hold(queue, id).is_some()
        {
            self.memory.freed.insert(queue);
        }
        self.pardon_victims_of(id);
        self.reindex(id);
    }

    fn pardon_victims_of(&mut self, preemptor: WorkloadId) {
        let chosen: Vec<WorkloadId> = self.chosen_for(preemptor).collect();
        for id in chosen {
            self.memory.tracks[id.index()].rare.condemned = None;
            self.memory.condemned.remove(&id);
            self.reindex(id);
        }
    }

    /// A Workload that was chosen to leave for another is told so.
    pub(crate) fn preempted(
        &self,
        workload: &Workload,
        sentence: &Sentence,
        now: Timestamp,
    ) -> Option<(Action, State)> {
        let preemptor = self.durable.workloads.get(sentence.preemptor)?;
        let readiness = self.readiness.as_ref();
        lifecycle::preempted(&self.durable, workload, preemptor, sentence.reason, readiness, now)
    }

    /// Something about a victim has changed: perhaps when the room of its preemptor is no longer kept.
    pub(crate) fn watch_preemptor_of(&mut self, victim: WorkloadId) {
        let Some(workload) = self.durable.workloads.get(victim) else { return };
        let Some(uid) = workload.state.preemptor() else { return };
        let is_victim = is_victim(&workload.state);
        match self.durable.workloads.id(uid) {
            Some(preemptor) if is_victim => self.watch_preemptor(preemptor),
            // Who has quota again frees nothing for anybody.
            Some(preemptor) => self.follow_hold(preemptor),
            None => {}
        }
    }

    /// Works out again until when the room of a preemptor is kept.
    fn follow_hold(&mut self, preemptor: WorkloadId) {
        if self.memory.tracks[preemptor.index()].is_preemptor {
            self.note_victims_left(preemptor);
            self.set_deadline(preemptor, Timestamp::from_nanos(i64::MIN));
        }
    }

    /// A victim of this Workload has left, or something else about one has changed.
    pub(crate) fn watch_preemptor(&mut self, preemptor: WorkloadId) {
        if !self.memory.tracks[preemptor.index()].is_preemptor {
            return;
        }
        self.follow_hold(preemptor);
        // Its queue may have moved to another tree since, in which nobody has left.
        let queue = self.memory.tracks[preemptor.index()].place.map(|place| place.queue);
        if let Some(queue) = queue.filter(|_| self.rules.hold && !self.waits_for_victims(preemptor)) {
            self.wake_queue(queue);
        }
    }

    /// Notes when the last of those left who had to leave for a preemptor, while they still say so.
    fn note_victims_left(&mut self, preemptor: WorkloadId) {
        let Some(workload) = self.durable.workloads.get(preemptor) else { return };
        if self.waits_for_victims(preemptor) {
            return;
        }
        let victims = self.memory.victims.get(&workload.uid).into_iter().flatten();
        let left = victims.filter_map(|victim| left_at(self.durable.workloads.get(*victim)?)).max();
        let known = self.memory.tracks[preemptor.index()].rare.victims_left_at;
        let left = left.max(known).unwrap_or(self.memory.time.whole_second());
        self.memory.tracks[preemptor.index()].rare.victims_left_at = Some(left);
    }

    pub(crate) fn end_hold_that_is_over(&mut self, id: WorkloadId, now: Timestamp) {
        let is_over = |workload| self.hold_deadline(workload).is_some_and(|deadline| deadline <= now);
        if self.rules.hold && self.durable.workloads.get(id).is_some_and(is_over) {
            self.give_up(id);
        }
    }

    /// Has a queue's reserve follow the first of its Workloads that keeps others from borrowing.
    pub(crate) fn follow_claim(&mut self, queue: QueueId) {
        let claim = self.memory.queues[queue.index()].claim();
        let reserve = self.memory.ledger.account(queue).reserve.as_deref();
        match (claim, reserve) {
            (None, None) => {}
            (Some((id, need)), Some(kept)) if kept.id == id && kept.need == *need => {}
            (Some((id, need)), kept) => {
                let need = need.clone();
                let shrinks =
                    |kept: &Kept| kept.need.iter().any(|(cell, amount)| amount_of(&need, *cell) < *amount);
                if kept.is_some_and(shrinks) {
                    self.memory.unclaimed.insert(queue);
                }
                self.memory.ledger.set_reserve(queue, id, need);
            }
            (None, Some(_)) => {
                self.memory.ledger.end_reserve(queue);
                self.memory.unclaimed.insert(queue);
            }
        }
    }

    /// When the room of a preemptor is no longer kept, whatever it waits for: some time after its last victim
    /// left. None as long as one is there, or there never was one.
    pub(crate) fn hold_deadline(&self, preemptor: &Workload) -> Option<Timestamp> {
        let id = self.durable.workloads.id(&preemptor.uid);
        let mut last = id.and_then(|id| self.track(id)?.rare.victims_left_at);
        for victim in self.memory.victims.get(&preemptor.uid).into_iter().flatten() {
            let left = left_at(self.durable.workloads.get(*victim)?)?;
            last = last.max(Some(left));
        }
        last.map(|left| left.plus_seconds(HOLD_SECONDS))
    }

    /// After a start: who chose victims and has not got their room yet is a preemptor, as before.
    pub(crate) fn find_preemptors(&mut self, now: Timestamp) {
        if !self.rules.hold {
            return;
        }
        let mut preemptors: Vec<(Timestamp, Uid, WorkloadId)> = Vec::new();
        let victims: Vec<Uid> = {
            let mut uids: Vec<Uid> = self.memory.victims.keys().cloned().collect();
            uids.sort();
            uids
        };
        for uid in victims {
            let Some(id) = self.durable.workloads.id(&uid) else { continue };
            let Some(since) = self.waits_for_victims_since(id, now) else { continue };
            preemptors.push((since, uid, id));
        }
        preemptors.sort();
        self.follow_definitions();
        for (_, _, id) in preemptors {
            self.memory.tracks[id.index()].is_preemptor = true;
            self.reindex(id);
            self.hold_again(id);
        }
    }

    /// After a start: who waited for its queue's own quota keeps others from borrowing it, as before. Whoever has
    /// said why it waits has been tried before; nobody is admitted here.
    pub(crate) fn find_claims(&mut self) {
        if !self.rules.standing_reserve {
            return;
        }
        self.follow_definitions();
        for queue in (0..self.memory.queues.len()).map(QueueId::from) {
            if !self.may_claim(queue) {
                continue;
            }
            while let Some(head) = self.memory.queues[queue.index()].head() {
                self.claim_again(queue, &head);
            }
            self.wake_queue(queue);
        }
    }

    fn claim_again(&mut self, queue: QueueId, head: &Head) {
        let waited = self.durable.workloads.get(head.id).is_some_and(
            |workload| matches!(&workload.state, State::Pending(pending) if pending.waiting.is_some()),
        );
        let need = if waited { self.need(queue, head) } else { None };
        let claim = need.and_then(|need| self.claim_of(queue, &need));
        self.set_aside(
            queue,
            head,
            Parked { claim: claim.map(Box::new), ..Parked::new(PendingReason::PendingEvaluation) },
        );
    }

    /// Keeps the room of a preemptor, worked out again. If not all of its victims were told before the last end, the others
    /// are chosen now: they do not have to wait until the first have left.
    fn hold_again(&mut self, id: WorkloadId) {
        let Some((queue, head)) = self.head_at_its_place(id) else { return };
        let Some((found, victims)) = self.room_for(queue, &head) else { return };
        self.keep_room(queue, id, found);
        if self.waits_for_victims(id) {
            victims.iter().for_each(|victim| self.condemn(id, victim));
        }
    }

    /// Since when a Workload waits for the room of its victims, if it does: it had no quota since they were
    /// told to leave, its time is not over, and it has not given up. Who has says that it waits for something else when
    /// they have left.
    fn waits_for_victims_since(&self, id: WorkloadId, now: Timestamp) -> Option<Timestamp> {
        let workload = self.durable.workloads.get(id)?;
        let State::Pending(pending) = &workload.state else { return None };
        let says = pending.waiting.as_ref().map(|waiting| waiting.reason);
        let gave_up = says.is_some_and(|reason| reason != PendingReason::WaitingForPreemptedWorkloads);
        if gave_up && !self.waits_for_victims(id) {
            return None;
        }
        if self.hold_deadline(workload).is_some_and(|deadline| deadline <= now) {
            return None;
        }
        let victims = self.memory.victims.get(&workload.uid)?;
        let told = victims.iter().filter_map(|victim| {
            eviction_of(&self.durable.workloads.get(*victim)?.state).map(|eviction| eviction.at)
        });
        let told = told.min()?;
        let lost_its_own = pending.evicted.as_ref().map(|eviction| eviction.at);
        lost_its_own.is_none_or(|lost| lost < told).then_some(told)
    }
}

fn eviction_of(state: &State) -> Option<&Eviction> {
    match state {
        State::Pending(pending) => pending.evicted.as_deref(),
        State::Evicting(_, eviction) => Some(eviction),
        _ => None,
    }
}

/// When a victim left; none if it has not yet.
fn left_at(victim: &Workload) -> Option<Timestamp> {
    match &victim.state {
        State::Pending(pending) => match &pending.requeued {
            Some(requeued) if requeued.reason == RequeueReason::Preempted => Some(requeued.at),
            _ => pending.evicted.as_ref().map(|eviction| eviction.at),
        },
        _ => None,
    }
}

/// Whether a Workload has to leave, or has left, for another.
pub(crate) fn is_victim(state: &State) -> bool {
    eviction_of(state).is_some_and(|eviction| eviction.reason == EvictionReason::Preempted)
}
