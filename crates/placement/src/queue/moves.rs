//! How a pod gets from one place to another.

use gangway_model::Timestamp;

use super::backoff::later;
use super::counts::QueueName;
use super::entry::{Entry, Spot};
use super::{Judge, Queue, labels};
use crate::framework::PluginId;
use crate::ids::{PodId, ShapeId};

/// What is to become of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// It waits for an event.
    Park,
    /// It is tried once its penalty is over.
    AfterBackoff,
    /// It is tried, penalty or not.
    Immediately,
}

/// What happens, and when: the company that every move needs.
pub(super) struct Cause<'a, J> {
    pub(super) label: &'static str,
    pub(super) now: Timestamp,
    pub(super) judge: &'a J,
}

impl<J> Clone for Cause<'_, J> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<J> Copy for Cause<'_, J> {}

impl Queue {
    /// Sends a pod where the strategy and its penalty say, unless a PreEnqueue plugin refuses it.
    pub(super) fn requeue(&mut self, pod: PodId, strategy: Strategy, cause: Cause<'_, impl Judge>) {
        let Some(entry) = self.entries.get(pod) else { return };
        let until = self.settings.backoff_until(entry).filter(|until| cause.now < *until);
        match (strategy, until) {
            (Strategy::Park, _) => self.park(pod, cause),
            (Strategy::AfterBackoff, Some(until)) => self.back_off(pod, until, cause),
            (Strategy::AfterBackoff, None) | (Strategy::Immediately, _) => self.activate_asking(pod, cause),
        }
    }

    /// Makes the pod active if no PreEnqueue plugin refuses it.
    pub(super) fn activate_asking(&mut self, pod: PodId, cause: Cause<'_, impl Judge>) {
        match self.refusal(pod, cause.judge) {
            Some(plugin) => self.gate(pod, plugin, cause),
            None => self.activate_unasked(pod, cause),
        }
    }

    /// Makes the pod active. For those that were asked about when their penalty began.
    pub(super) fn activate_unasked<J>(&mut self, pod: PodId, cause: Cause<'_, J>) {
        let from = self.detach(pod);
        let Some(entry) = self.entries.get_mut(pod) else { return };
        entry.first_active_at.get_or_insert(cause.now);
        entry.spot = Spot::Active;
        self.active.insert(entry.position(pod));
        self.tally.incoming(QueueName::Active, cause.label);
        let was_poppable =
            matches!(from, Spot::Backoff { error: false, .. }) && self.settings.pop_from_backoff;
        self.appeared |= !was_poppable;
    }

    /// Lets the pod serve its penalty. Where that may be cut short, the PreEnqueue plugins are asked now.
    fn back_off(&mut self, pod: PodId, until: Timestamp, cause: Cause<'_, impl Judge>) {
        if self.settings.pop_from_backoff
            && let Some(plugin) = self.refusal(pod, cause.judge)
        {
            return self.gate(pod, plugin, cause);
        }
        self.detach(pod);
        let Some(entry) = self.entries.get_mut(pod) else { return };
        let error = entry.errors > 0;
        entry.spot = Spot::Backoff { until, error };
        self.backoffs.insert(until, error, entry.position(pod));
        self.tally.incoming(QueueName::Backoff, cause.label);
        self.appeared |= self.settings.pop_from_backoff && !error;
    }

    /// Lets the pod wait for an event.
    fn park<J>(&mut self, pod: PodId, cause: Cause<'_, J>) {
        let from = self.detach(pod);
        let Some(entry) = self.entries.get_mut(pod) else { return };
        let flush_at = flush_at(entry, &self.settings);
        entry.spot = Spot::Parked { flush_at };
        self.parked.park(entry.group(), entry.position(pod), flush_at);
        self.count_unschedulable(from, cause.label);
    }

    /// Keeps the pod away until the plugin that refuses it has been told of something.
    pub(super) fn gate<J>(&mut self, pod: PodId, plugin: PluginId, cause: Cause<'_, J>) {
        let from = self.detach(pod);
        let Some(entry) = self.entries.get_mut(pod) else { return };
        entry.was_flushed = false;
        let flush_at = flush_at(entry, &self.settings);
        entry.spot = Spot::Gated { plugin, flush_at };
        self.parked.gate(plugin, pod, flush_at);
        let blamed = entry.blamed.with(plugin);
        self.tally.blame(entry.blamed, blamed);
        entry.blamed = blamed;
        self.count_unschedulable(from, cause.label);
    }

    fn count_unschedulable(&mut self, from: Spot, label: &'static str) {
        if !matches!(from, Spot::Parked { .. } | Spot::Gated { .. }) {
            self.tally.incoming(QueueName::Unschedulable, label);
        }
    }

    pub(super) fn refusal(&self, pod: PodId, judge: &impl Judge) -> Option<PluginId> {
        let gated_by = self.entries.get(pod).and_then(Entry::gated_by);
        judge.refuses(pod, gated_by)
    }

    /// Takes the pod out of every index.
    pub(super) fn detach(&mut self, pod: PodId) -> Spot {
        let Some(entry) = self.entries.get_mut(pod) else { return Spot::Nowhere };
        let from = std::mem::replace(&mut entry.spot, Spot::Nowhere);
        let is_found = match from {
            Spot::Active => self.active.remove(&entry.position(pod)),
            Spot::Backoff { until, error } => self.backoffs.remove(until, error, entry.position(pod)),
            Spot::Parked { flush_at } => self.parked.unpark(entry.group(), entry.position(pod), flush_at),
            Spot::Gated { plugin, flush_at } => self.parked.ungate(plugin, pod, flush_at),
            Spot::Nowhere | Spot::InFlight | Spot::Decided => true,
        };
        debug_assert!(is_found, "{pod:?} was not where it said: {from:?}");
        from
    }

    /// Puts the pod where it was, at the position that it has now.
    pub(super) fn reattach(&mut self, pod: PodId, spot: Spot) {
        let Some(entry) = self.entries.get_mut(pod) else { return };
        entry.spot = spot;
        match spot {
            Spot::Active => {
                self.active.insert(entry.position(pod));
            }
            Spot::Backoff { until, error } => self.backoffs.insert(until, error, entry.position(pod)),
            Spot::Parked { flush_at } => self.parked.park(entry.group(), entry.position(pod), flush_at),
            Spot::Gated { plugin, flush_at } => self.parked.gate(plugin, pod, flush_at),
            Spot::Nowhere | Spot::InFlight | Spot::Decided => {}
        }
    }

    /// Gives the turn of a pod that went without having been judged to the next one of its shape: until one can be tried
    /// at once.
    pub(super) fn pass_turn_on(&mut self, shape: ShapeId, now: Timestamp, judge: &impl Judge) {
        let cause = Cause { label: labels::TURN_PASSED_ON, now, judge };
        while let Some(pod) = self.parked.first_of_shape(shape).map(|position| position.pod) {
            self.tally.visits += 1;
            self.requeue(pod, Strategy::AfterBackoff, cause);
            if self.takes_turn(pod) {
                return;
            }
        }
    }

    /// Whether the pod has become active: then it stands in for the others of its shape.
    pub(super) fn takes_turn(&mut self, pod: PodId) -> bool {
        let Some(entry) = self.entries.get_mut(pod) else { return false };
        entry.owes_turn = entry.spot == Spot::Active;
        entry.owes_turn
    }
}

/// When a pod that waits is tried without any event: the flush does not come to the same pod twice in that time.
fn flush_at(entry: &Entry, settings: &super::Settings) -> Timestamp {
    let since = entry.flushed_at.map_or(entry.queued_at, |flushed_at| flushed_at.max(entry.queued_at));
    later(since, settings.max_in_unschedulable.max(std::time::Duration::from_secs(1)))
}
