//! What was seen to happen and has to turn out well: who was passed by, and for whom others had to leave.
//!
//! Decisions that were made together may land in any order, and news take time. So what looks wrong at first is noted here
//! and judged when there was time enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::queues::{QueueingStrategy, ReclaimWithinCohort};
use gangway_model::workload::{Admission, State, Workload};
use gangway_model::{ClusterQueueName, Timestamp, Uid};

use crate::quota::{self, Use};
use crate::view::{SeenWorkload, View, is_leaving};

/// Everything that has to turn out well yet.
#[derive(Debug, Default)]
pub struct Dues {
    /// Who was passed by, until it gets quota or waits in another way.
    pub passed_by: Vec<PassedBy>,
    /// For whom somebody had to leave, until it gets quota or gives up.
    pub preemptors: BTreeMap<Uid, Preemptor>,
    /// A victim that was not needed.
    pub needless: Option<String>,
    /// Somebody took room that others had left for another.
    pub taken: Option<String>,
    /// When a Workload last got quota or gave it back.
    quota_moved_at: Option<Timestamp>,
}

/// Somebody who waits was passed by.
#[derive(Debug)]
pub struct PassedBy {
    /// Who waits.
    pub waiting: Uid,
    /// Since when.
    since: Timestamp,
    /// What happened.
    pub what: String,
    /// When.
    pub at: Timestamp,
    /// How many of those that passed by have ended.
    pub ended: usize,
    by: Uid,
}

/// Somebody for whom others had to leave.
#[derive(Debug)]
pub struct Preemptor {
    /// Who has not left yet.
    leaving: BTreeSet<Uid>,
    /// When the last one left.
    pub last_left_at: Timestamp,
    /// When the first was told.
    pub since: Timestamp,
    /// Everybody who was told, and what it had.
    victims: Vec<(Uid, Arc<Admission>)>,
    /// What every queue used when the first was told, if nothing else was going on then.
    uses: Option<BTreeMap<ClusterQueueName, Use>>,
}

impl Preemptor {
    /// Whether all who had to leave have left.
    pub fn has_its_room(&self) -> bool {
        self.leaving.is_empty()
    }
}

/// Nobody else got quota or gave it back for so long: what was decided was decided on what is seen.
const CALM_SECONDS: i64 = 15;

/// What was decided before victims were chosen has landed after so long.
const HELD_SECONDS: i64 = 5;

/// Whether `one` goes before `other` in a queue.
fn goes_before(one: &Workload, other: &Workload) -> bool {
    one.priority > other.priority || one.priority == other.priority && one.created < other.created
}

/// Whether a Workload waits like any other: it was never told to leave, and nothing of itself keeps it.
fn waits(seen: &SeenWorkload) -> bool {
    let record = &seen.record;
    matches!(&record.state, State::Pending(pending) if pending.requeued.is_none() && pending.evicted.is_none())
        && record.active
        && !record.deleting
        && record.impediments.is_none()
}

impl View {
    /// A Workload changed.
    pub fn note_dues(&mut self, before: Option<&SeenWorkload>, uid: &Uid, now: Timestamp) {
        let had = before.and_then(|before| before.record.state.reservation());
        let has = self.workloads.get(uid).and_then(|seen| seen.record.state.reservation());
        let gets = had.is_none() && has.is_some();
        let gives_back = had.is_some() && has.is_none();
        if gets && let Some(before) = before {
            self.note_passed_by(before, uid, now);
            self.judge_victims(uid);
            self.judge_held_room(uid, now);
        }
        self.note_preemption(before, uid, now);
        if gets || gives_back {
            self.dues.quota_moved_at = Some(now);
        }
        self.note_end(uid);
        self.forget_what_turned_out_well(now);
    }

    /// Somebody got quota. Whoever waits for the same and goes before it was passed by.
    fn note_passed_by(&mut self, before: &SeenWorkload, uid: &Uid, now: Timestamp) {
        // Who was told to leave keeps its place and may pass others. And so may a preemptor: those before it may have been
        // tried when its victims were not there yet, and nobody is tried again because somebody else was admitted.
        let preempts = self.preemptions.iter().any(|preemption| preemption.preemptor == *uid);
        if preempts || before.record.state.preemptor().is_some() || self.was_redefined_lately(now) {
            return;
        }
        let Some(admitted) = self.workloads.get(uid) else { return };
        let queue = self.queue_of(&admitted.record);
        let is_strict = queue
            .and_then(|queue| self.queues.get(queue))
            .is_some_and(|queue| queue.strategy == QueueingStrategy::StrictFifo);
        let is_ahead = |other: &&SeenWorkload| {
            let alike = other.record.queue == admitted.record.queue
                && other.record.pod_sets == admitted.record.pod_sets;
            (alike || is_strict && self.queue_of(&other.record) == queue)
                && goes_before(&other.record, &admitted.record)
                && waits(other)
                && !other.waits_since.is_recent(now)
        };
        let passed: Vec<PassedBy> = self
            .workloads
            .values()
            .filter(is_ahead)
            .map(|other| PassedBy {
                waiting: other.record.uid.clone(),
                since: other.waits_since,
                what: format!("{} is admitted before {}", admitted.record.name, other.record.name),
                at: now,
                ended: 0,
                by: uid.clone(),
            })
            .collect();
        self.dues.passed_by.extend(passed);
    }

    /// Somebody has to leave, has left, or is gone.
    fn note_preemption(&mut self, before: Option<&SeenWorkload>, uid: &Uid, now: Timestamp) {
        let victim = self.workloads.get(uid);
        let leaves = victim.filter(|seen| is_leaving(&seen.record.state));
        let Some(victim) = leaves else {
            for preemptor in self.dues.preemptors.values_mut() {
                if preemptor.leaving.remove(uid) {
                    preemptor.last_left_at = now;
                }
            }
            return;
        };
        if before.is_some_and(|before| is_leaving(&before.record.state)) {
            return;
        }
        let (Some(preemptor), Some(reservation)) =
            (victim.record.state.preemptor().cloned(), victim.record.state.reservation())
        else {
            return;
        };
        let admission = reservation.admission.clone();
        if !self.dues.preemptors.contains_key(&preemptor) {
            let uses = self.is_calm(&preemptor, now).then(|| quota::all_uses(self));
            let new = Preemptor {
                leaving: BTreeSet::new(),
                last_left_at: now,
                since: now,
                victims: Vec::new(),
                uses,
            };
            self.dues.preemptors.insert(preemptor.clone(), new);
        }
        if let Some(preemptor) = self.dues.preemptors.get_mut(&preemptor) {
            preemptor.leaving.insert(uid.clone());
            preemptor.victims.push((uid.clone(), admission));
            if !preemptor.since.is_recent(now) {
                // Chosen later than the others, on what was there then.
                preemptor.uses = None;
            }
        }
    }

    /// Whether all that bears on the choice of victims is seen in the objects: nothing was on its way, nobody else
    /// preempts, and nobody in another queue keeps room from being borrowed.
    fn is_calm(&self, preemptor: &Uid, now: Timestamp) -> bool {
        let moved = self.dues.quota_moved_at.is_some_and(|at| now < at.plus_seconds(CALM_SECONDS));
        let Some(asker) = self.workloads.get(preemptor) else { return false };
        let queue = self.queue_of(&asker.record);
        let keeps = |other: &SeenWorkload| {
            let theirs = self.queue_of(&other.record);
            let policy = theirs.and_then(|name| self.queues.get(name)).map(|queue| queue.preemption);
            matches!(other.record.state, State::Pending(_))
                && theirs != queue
                && policy.is_none_or(|policy| policy.reclaim_within_cohort != ReclaimWithinCohort::Any)
        };
        !moved
            && !self.was_redefined_lately(now)
            && self.dues.preemptors.is_empty()
            && !self.workloads.values().any(keeps)
    }

    /// A preemptor got quota: with any one of its victims still there, it would not have had room.
    fn judge_victims(&mut self, uid: &Uid) {
        let Some(Preemptor { victims, uses: Some(uses), .. }) = self.dues.preemptors.get(uid) else { return };
        let Some(asker) = self.workloads.get(uid) else { return };
        let Some(given) = asker.record.state.reservation().map(|reservation| &reservation.admission) else {
            return;
        };
        let spared = victims.iter().find(|(spared, _)| {
            let mut uses = uses.clone();
            for (_, admission) in victims.iter().filter(|(victim, _)| victim != spared) {
                quota::take_off(uses.entry(admission.cluster_queue.clone()).or_default(), admission);
            }
            quota::fits_without_borrowing(self, &uses, given)
        });
        let needless = spared.map(|(spared, _)| {
            let name = self.workloads.get(spared).map(|seen| seen.record.name.to_string());
            let name = name.unwrap_or_else(|| spared.to_string());
            format!("{name} had to leave for {}, which had room without", asker.record.name)
        });
        self.dues.needless = self.dues.needless.take().or(needless);
    }

    /// Somebody got quota: whoever waits for the last of its victims still has room when they will have left.
    fn judge_held_room(&mut self, uid: &Uid, now: Timestamp) {
        // Preemptors among themselves: who won first starts first.
        if self.dues.preemptors.contains_key(uid) || self.dues.preemptors.is_empty() {
            return;
        }
        let Some(other) = self.workloads.get(uid) else { return };
        let Some(given) = other.record.state.reservation().map(|reservation| &reservation.admission) else {
            return;
        };
        let mut taken = None;
        for (waiting, preemptor) in &self.dues.preemptors {
            let some_have_left = preemptor.leaving.len() < preemptor.victims.len();
            let is_old = now >= preemptor.since.plus_seconds(HELD_SECONDS);
            let Some(asker) = self.workloads.get(waiting).filter(|_| some_have_left && is_old) else {
                continue;
            };
            let Some(queue) = self.queue_of(&asker.record) else { continue };
            let mut uses = quota::all_uses(self);
            let still_there =
                preemptor.victims.iter().filter(|(victim, _)| preemptor.leaving.contains(victim));
            for (_, admission) in still_there {
                quota::take_off(uses.entry(admission.cluster_queue.clone()).or_default(), admission);
            }
            let has_room = quota::has_room_somewhere(self, &uses, queue, &asker.record);
            quota::take_off(uses.entry(given.cluster_queue.clone()).or_default(), given);
            let had_room = quota::has_room_somewhere(self, &uses, queue, &asker.record);
            if had_room && !has_room {
                let (other, asker) = (&other.record.name, &asker.record.name);
                taken = Some(format!("{other} takes room that others left for {asker}"));
            }
        }
        self.dues.taken = self.dues.taken.take().or(taken);
    }

    fn note_end(&mut self, uid: &Uid) {
        let has_ended = self.workloads.get(uid).is_some_and(|seen| seen.record.state.is_finished());
        for passed in self.dues.passed_by.iter_mut().filter(|passed| has_ended && passed.by == *uid) {
            passed.ended += 1;
        }
    }

    fn forget_what_turned_out_well(&mut self, now: Timestamp) {
        let redefined = self.was_redefined_lately(now);
        let Self { dues, workloads, .. } = self;
        dues.passed_by.retain(|passed| {
            let waiting = workloads.get(&passed.waiting);
            !redefined && waiting.is_some_and(|seen| waits(seen) && seen.waits_since == passed.since)
        });
        let mut preemptors = std::mem::take(&mut self.dues.preemptors);
        preemptors.retain(|uid, _| !redefined && self.still_waits_for_its_room(uid));
        self.dues.preemptors = preemptors;
    }

    /// Whether a preemptor waits, and nobody of its own queue takes the room instead.
    fn still_waits_for_its_room(&self, uid: &Uid) -> bool {
        let Some(asker) = self.workloads.get(uid) else { return false };
        let State::Pending(pending) = &asker.record.state else { return false };
        let may_wait = asker.record.active
            && !asker.record.deleting
            && asker.record.impediments.is_none()
            && pending.requeued.as_ref().is_none_or(|requeued| requeued.eligible);
        let queue = self.queue_of(&asker.record);
        let is_preferred = |other: &SeenWorkload| {
            let has_it = matches!(other.record.state, State::Pending(_) | State::Holding(_));
            has_it
                && other.record.uid != *uid
                && self.queue_of(&other.record) == queue
                && goes_before(&other.record, &asker.record)
        };
        may_wait && !self.workloads.values().any(is_preferred)
    }
}

/// How long news may be on their way before somebody should have acted on them.
pub const LAG_SECONDS: i64 = 60;

/// Whether something happened so lately that nobody may know.
pub trait Lately {
    /// See above.
    fn is_recent(&self, now: Timestamp) -> bool;
}

impl Lately for Timestamp {
    fn is_recent(&self, now: Timestamp) -> bool {
        now < self.plus_seconds(LAG_SECONDS)
    }
}
