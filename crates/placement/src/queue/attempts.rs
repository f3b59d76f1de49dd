//! How attempts begin and end.

use gangway_model::Timestamp;

use super::counts::QueueName;
use super::entry::{Entry, Spot};
use super::moves::{Cause, Strategy};
use super::news::concerns;
use super::{Attempt, Judge, Popped, Queue, labels};
use crate::framework::{Help, PluginSet, Resource};
use crate::ids::PodId;

impl Queue {
    /// The pod to be tried now: the first of those that are active; if there is none, the first of those that back off
    /// after a rejection. Priorities of the two are not compared.
    pub fn pop(&mut self, now: Timestamp, judge: &impl Judge) -> Option<Popped> {
        self.advance(now, judge);
        let (pod, from_backoff) = match self.active.first() {
            Some(position) => (position.pod, false),
            None => (self.backoffs.first_early()?, true),
        };
        self.detach(pod);
        if from_backoff {
            self.tally.incoming(QueueName::Active, labels::POPPED_EARLY);
        }
        let attempt = self.in_flight.begin(pod);
        let entry = self.entries.get_mut(pod)?;
        entry.spot = Spot::InFlight;
        entry.attempt = attempt.number;
        entry.attempts = entry.attempts.saturating_add(1);
        self.tally.blame(entry.blamed, PluginSet::EMPTY);
        entry.blamed = PluginSet::EMPTY;
        Some(Popped {
            attempt,
            pod,
            shape: entry.shape,
            attempts: entry.attempts,
            from_backoff,
            was_flushed: entry.was_flushed,
            first_active_at: *entry.first_active_at.get_or_insert(now),
            rejected_by: entry.rejectors(),
        })
    }

    /// The attempt found a node, or its pod is gone: what happens from now on is of no interest to it. If something fails
    /// later, [`Queue::failed`] brings the pod back. Harmless if it has ended.
    pub fn done(&mut self, attempt: Attempt) {
        self.in_flight.end(attempt);
        let Some(entry) = self.entries.tried_mut(attempt) else { return };
        if entry.spot == Spot::InFlight {
            entry.spot = Spot::Decided;
            entry.owes_turn = false;
            self.tally.rescued_by_flush += u64::from(entry.was_flushed);
        }
    }

    /// The attempt found no node: these plugins rejected the pod, and those keep it waiting. Without any
    /// plugin it counts as an error. If the pod was deleted meanwhile, only the attempt ends.
    pub fn rejected(
        &mut self,
        attempt: Attempt,
        unschedulable: PluginSet,
        pending: PluginSet,
        now: Timestamp,
        judge: &impl Judge,
    ) {
        if unschedulable.union(pending).is_empty() {
            return self.failed(attempt, now, judge);
        }
        // Whoever ended the attempt early does not know what happened since.
        let is_known = self.in_flight.is_under_way(attempt);
        let Some(entry) = self.entries.tried_mut(attempt) else { return self.in_flight.end(attempt) };
        entry.rejections = entry.rejections.saturating_add(1);
        entry.errors = 0;
        entry.unschedulable = unschedulable;
        entry.pending = pending;
        // Its shape has been judged; nobody else has to be.
        entry.owes_turn = false;
        entry.returns(now);
        entry.blamed = entry.rejectors();
        self.tally.blame(PluginSet::EMPTY, entry.blamed);
        let strategy = if is_known { self.strategy_after(attempt, judge) } else { Strategy::AfterBackoff };
        self.in_flight.end(attempt);
        let cause = Cause { label: labels::ATTEMPT_FAILED, now, judge };
        self.requeue(attempt.pod, strategy, cause);
    }

    /// The attempt, or what came after it, ended in an error that says nothing about the pod. It is tried again after a
    /// penalty, whatever happens meanwhile. If the pod was deleted, only the attempt ends.
    pub fn failed(&mut self, attempt: Attempt, now: Timestamp, judge: &impl Judge) {
        self.in_flight.end(attempt);
        let Some(entry) = self.entries.tried_mut(attempt) else { return };
        entry.errors = entry.errors.saturating_add(1);
        entry.unschedulable = PluginSet::EMPTY;
        entry.pending = PluginSet::EMPTY;
        entry.returns(now);
        let cause = Cause { label: labels::ATTEMPT_FAILED, now, judge };
        self.requeue(attempt.pod, Strategy::AfterBackoff, cause);
        self.give_turn_up(attempt.pod, now, judge);
    }

    /// What the events since the attempt began say about its pod.
    fn strategy_after(&mut self, attempt: Attempt, judge: &impl Judge) -> Strategy {
        let Some(entry) = self.entries.get(attempt.pod) else { return Strategy::Park };
        let mut strategy = Strategy::Park;
        for kept in self.in_flight.since(attempt) {
            if !concerns(&kept.event, &entry.uid, entry.priority) {
                continue;
            }
            let help = if kept.event.event.resource == Resource::Wildcard {
                Help::AfterBackoff { at_most: usize::MAX }
            } else if kept.told.intersection(entry.rejectors()).is_empty() {
                Help::No
            } else {
                self.tally.hints += 1;
                judge.helps(&kept.event, entry.shape, entry.unschedulable, entry.pending)
            };
            match help {
                Help::No | Help::AfterBackoff { at_most: 0 } => {}
                Help::Immediately => return Strategy::Immediately,
                Help::AfterBackoff { .. } => strategy = Strategy::AfterBackoff,
            }
            if strategy == Strategy::AfterBackoff && entry.pending.is_empty() {
                break;
            }
        }
        strategy
    }

    /// If the pod stood in for others, the next of them is tried in its place.
    pub(super) fn give_turn_up(&mut self, pod: PodId, now: Timestamp, judge: &impl Judge) {
        let Some(entry) = self.entries.get_mut(pod) else { return };
        if std::mem::take(&mut entry.owes_turn) {
            let shape = entry.shape;
            self.pass_turn_on(shape, now, judge);
        }
    }
}

impl Entry {
    /// What every end of an attempt without a node does.
    fn returns(&mut self, now: Timestamp) {
        self.queued_at = now;
        self.was_flushed = false;
        self.flushed_at = None;
    }
}
