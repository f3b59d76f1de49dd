//! Why a Workload waits, and what its object is made to say about it.

use gangway_model::Timestamp;
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Pending, State, Waiting};

use crate::decision::{Action, Decision};
use crate::durable::Standing;
use crate::engine::Engine;
use crate::ids::WorkloadId;
use crate::memory::Place;
use crate::queues::{Parked, WaitingFor};
use crate::trace::told;

impl Engine {
    /// Why a Workload waits, as far as it is known.
    pub(crate) fn waiting_now(&self, id: WorkloadId) -> Option<Standing> {
        let workload = self.durable.workloads.get(id)?;
        let track = self.track(id)?;
        if !matches!(workload.state, State::Pending(_)) || track.rare.decision.is_some() {
            return None;
        }
        if let Some(standing) = self.durable.standing(workload) {
            return Some(standing);
        }
        if let Some(refused) = track.waits_after_refusal() {
            let message = format!("The API server refuses the write: {}", refused.message);
            return Some(Standing { reason: PendingReason::Misconfigured, message });
        }
        let place = track.place?;
        let key = self.key(id, place)?;
        match self.memory.queues[place.queue.index()].waiting_for(&key, place.lane)? {
            WaitingFor::Fit(parked) => Some(self.told_of_parked(id, &place, parked)),
            WaitingFor::First(first) => {
                let name = &self.durable.workloads.get(first.id)?.name;
                let queue = self.memory.ledger.queue_names.name(place.queue.index());
                let message = format!("ClusterQueue {queue} is StrictFIFO and {name} goes first");
                Some(Standing { reason: PendingReason::WaitingForQuota, message })
            }
        }
    }

    fn told_of_parked(&self, id: WorkloadId, place: &Place, parked: &Parked) -> Standing {
        let reason = parked.reason;
        let message = match reason {
            PendingReason::PendingEvaluation => "The Workload has just changed".to_owned(),
            PendingReason::WaitingForPreemptedWorkloads => self.told_of_victims(id),
            _ => self.numbers(id, place, reason),
        };
        Standing { reason, message }
    }

    fn told_of_victims(&self, id: WorkloadId) -> String {
        let Some(workload) = self.durable.workloads.get(id) else { return String::new() };
        let told = self.memory.victims.get(&workload.uid).map_or(0, |victims| victims.len());
        match told.max(self.chosen_for(id).count()) {
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
            if !std::mem::take(&mut track.is_unreported) || !track.may_report() {
                continue;
            }
            let Some((reason, state)) = self.report(id, now) else { continue };
            decisions.push(self.book(id, Action::ReportWaiting(reason), state));
        }
    }

    /// The state in which a Workload says why it waits now; none if it says so already.
    fn report(&self, id: WorkloadId, now: Timestamp) -> Option<(PendingReason, State)> {
        let State::Pending(pending) = &self.durable.workloads.get(id)?.state else { return None };
        let standing = self.waiting_now(id)?;
        if pending.waiting.as_ref().is_some_and(|waiting| waiting.reason == standing.reason) {
            return None;
        }
        let since = pending.waiting.as_ref().map_or(now.whole_second(), |waiting| waiting.since);
        let waiting = Waiting { reason: standing.reason, message: standing.message.into(), since };
        Some((standing.reason, State::Pending(Pending { waiting: Some(waiting), ..pending.clone() })))
    }

    /// The same for a report that was decided before, with the time of that decision.
    pub(crate) fn report_now(&self, id: WorkloadId) -> Option<State> {
        let decided = match &self.track(id)?.rare.report.as_ref()?.state {
            State::Pending(pending) => pending.waiting.as_ref()?.since,
            _ => return None,
        };
        self.report(id, decided).map(|(_, state)| state)
    }
}
