//! Why a Workload waits, and what its object is made to say about it.

use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Pending, State, Waiting};

use crate::decision::{Action, Decision};
use crate::durable::Standing;
use crate::engine::Engine;
use crate::ids::WorkloadId;
use crate::lifecycle;
use crate::memory::{Place, Refused};
use crate::queues::{Parked, QueueKey, WaitingFor};
use crate::trace::told;

/// Why a Workload waits. The message for people is worked out when it is needed.
enum Why<'e> {
    /// Its queue or itself keeps it out.
    Standing(Standing),
    /// The API server refuses what was decided.
    Refused(&'e Refused),
    /// It was evaluated and does not fit.
    Parked(Place, &'e Parked),
    /// This one goes first, strictly.
    First(Place, &'e QueueKey),
}

impl Why<'_> {
    fn reason(&self) -> PendingReason {
        match self {
            Self::Standing(standing) => standing.reason,
            Self::Refused(_) => PendingReason::Misconfigured,
            Self::Parked(_, parked) => parked.reason,
            Self::First(..) => PendingReason::WaitingForQuota,
        }
    }
}

impl Engine {
    /// Why a Workload waits, as far as it is known.
    pub(crate) fn waiting_now(&self, id: WorkloadId) -> Option<Standing> {
        let why = self.why_waiting(id)?;
        let (reason, message) = (why.reason(), self.message(id, why).to_string());
        Some(Standing { reason, message })
    }

    /// The same without the words for people.
    pub(crate) fn waiting_reason(&self, id: WorkloadId) -> Option<PendingReason> {
        Some(self.why_waiting(id)?.reason())
    }

    fn why_waiting(&self, id: WorkloadId) -> Option<Why<'_>> {
        let workload = self.durable.workloads.get(id)?;
        let track = self.track(id)?;
        if !matches!(workload.state, State::Pending(_)) || track.decision.is_some() {
            return None;
        }
        let Some(place) = track.place else {
            let refused = || track.waits_after_refusal().map(Why::Refused);
            return self.durable.standing(workload).map(Why::Standing).or_else(refused);
        };
        let key = self.key(id, place)?;
        Some(match self.memory.queues[place.queue.index()].waiting_for(&key, place.lane)? {
            WaitingFor::Fit(parked) => Why::Parked(place, parked),
            WaitingFor::First(first) => Why::First(place, first),
        })
    }

    fn message(&self, id: WorkloadId, why: Why<'_>) -> Arc<str> {
        match why {
            Why::Standing(standing) => standing.message.into(),
            Why::Refused(refused) => format!("The API server refuses the write: {}", refused.message).into(),
            Why::Parked(place, parked) => self.told_of_parked(id, &place, parked.reason).into(),
            Why::First(place, first) => {
                let name = self.durable.workloads.get(first.id).map(|first| first.name.to_string());
                let name = name.as_deref().unwrap_or("another Workload");
                let queue = self.memory.ledger.queue_names.name(place.queue.index());
                format!("ClusterQueue {queue} is StrictFIFO and {name} goes first").into()
            }
        }
    }

    fn told_of_parked(&self, id: WorkloadId, place: &Place, reason: PendingReason) -> String {
        match reason {
            PendingReason::PendingEvaluation => "The Workload has just changed".to_owned(),
            PendingReason::WaitingForPreemptedWorkloads => self.told_of_victims(id),
            PendingReason::WaitingForPodsReady => self.told_of_starting(),
            reason => self.numbers(id, place, reason),
        }
    }

    fn told_of_starting(&self) -> String {
        let names = self.memory.starting.iter().filter_map(|id| self.durable.workloads.get(*id));
        match names.map(|workload| &workload.name).min() {
            Some(name) => format!("Workload {name} starts, and one starts at a time"),
            None => "The Workload that was starting has started".to_owned(),
        }
    }

    fn told_of_victims(&self, id: WorkloadId) -> String {
        match self.victims_to_leave(id).len() {
            0 => "Those who had to leave have left".to_owned(),
            1 => "Waiting for 1 Workload to leave".to_owned(),
            count => format!("Waiting for {count} Workloads to leave"),
        }
    }

    /// The numbers behind a reason.
    fn numbers(&self, id: WorkloadId, place: &Place, reason: PendingReason) -> String {
        let Some(workload) = self.durable.workloads.get(id) else { return String::new() };
        told(&self.trace(&self.memory.ledger.tree, place.queue, workload), reason)
    }

    /// Has the waiting reason of Workloads written where it changed.
    pub(crate) fn report_waiting(&mut self, now: Timestamp, budget: usize, decisions: &mut Vec<Decision>) {
        while decisions.len() < budget {
            let Some(id) = self.memory.unreported.pop_front() else { break };
            let Some(track) = self.memory.tracks.get_mut(id.index()) else { continue };
            // Most of those that have just come were admitted since, and have nothing to report.
            if !std::mem::take(&mut track.is_unreported) || track.decision.is_some() || !track.may_report() {
                continue;
            }
            let Some((reason, state)) = self.report(id, now) else { continue };
            decisions.push(self.book(id, Action::ReportWaiting(reason), state));
        }
    }

    /// The state in which a Workload says why it waits now; none if it says so already.
    fn report(&mut self, id: WorkloadId, now: Timestamp) -> Option<(PendingReason, State)> {
        let State::Pending(pending) = &self.durable.workloads.get(id)?.state else { return None };
        let why = self.why_waiting(id)?;
        let reason = why.reason();
        if pending.waiting.as_ref().is_some_and(|waiting| waiting.reason == reason) {
            return None;
        }
        let message = match why {
            // Everybody waits for victims of its own.
            Why::Parked(place, _) if reason != PendingReason::WaitingForPreemptedWorkloads => {
                self.message_of_lane(id, place, reason)
            }
            why => self.message(id, why),
        };
        let State::Pending(pending) = &self.durable.workloads.get(id)?.state else { return None };
        let since = pending.waiting.as_ref().map_or(now.whole_second(), |waiting| waiting.since);
        let waiting = Waiting { reason, message, since };
        let pending = lifecycle::after_backoff(pending.clone(), self.memory.time);
        Some((reason, State::Pending(Pending { waiting: Some(waiting), ..pending })))
    }

    /// The message for everybody in a lane, worked out once as long as nothing is booked.
    fn message_of_lane(&mut self, id: WorkloadId, place: Place, reason: PendingReason) -> Arc<str> {
        let bookings = self.memory.ledger.tree.bookings();
        let queue = place.queue.index();
        if let Some(message) = self.memory.queues[queue].told(place.lane, reason, bookings) {
            return message;
        }
        let message: Arc<str> = self.told_of_parked(id, &place, reason).into();
        self.memory.queues[queue].share_told(place.lane, reason, message, Some(bookings))
    }

    /// Has a Workload that says the same as others in its lane share their text.
    pub(crate) fn share_message(&mut self, id: WorkloadId) {
        let Some(place) = self.track(id).and_then(|track| track.place) else { return };
        let state = self.durable.workloads.get_mut(id).map(|workload| &mut workload.state);
        if let Some(State::Pending(Pending { waiting: Some(waiting), .. })) = state {
            let queue = &mut self.memory.queues[place.queue.index()];
            waiting.message = queue.share_told(place.lane, waiting.reason, waiting.message.clone(), None);
        }
    }

    /// The same for a report that was decided before, with the time of that decision.
    pub(crate) fn report_now(&mut self, id: WorkloadId) -> Option<State> {
        let decided = match &self.track(id)?.rare.report.as_ref()?.state {
            State::Pending(pending) => pending.waiting.as_ref()?.since,
            _ => return None,
        };
        self.report(id, decided).map(|(_, state)| state)
    }
}
