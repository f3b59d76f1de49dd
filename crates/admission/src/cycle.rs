//! A cycle: one head of each queue is evaluated, and admitted or set aside.

use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Pending, State, Waiting};
use gangway_model::{ClusterQueueName, Timestamp, Uid};

use crate::decision::{Action, Decision};
use crate::durable::Standing;
use crate::engine::Engine;
use crate::flavors::{NoFit, Search};
use crate::lifecycle;
use crate::queues::{QueueKey, WaitingFor};
use crate::quota::Usage;

impl Engine {
    /// Takes one head of each queue, in order, and admits it or sets it aside. Says whether there was any.
    ///
    /// Every head that is taken leaves its queue's front, so cycles come to an end.
    pub(crate) fn cycle(&mut self, now: Timestamp, budget: usize, decisions: &mut Vec<Decision>) -> bool {
        let mut heads: Vec<(QueueKey, ClusterQueueName)> = Vec::new();
        for name in std::mem::take(&mut self.memory.ready) {
            if let Some((key, _)) = self.memory.queues.get(&name).and_then(|queue| queue.head()) {
                heads.push((key.clone(), name));
            }
        }
        if heads.is_empty() {
            return false;
        }
        self.memory.cycles += 1;
        heads.sort();
        for (key, name) in heads {
            self.memory.ready.insert(name.clone());
            if decisions.len() < budget {
                self.evaluate(&key.uid, &name, now, decisions);
            }
        }
        true
    }

    fn evaluate(
        &mut self,
        uid: &Uid,
        name: &ClusterQueueName,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) {
        let admission = if self.memory.tracks.get(uid).is_some_and(|track| track.stale.is_some()) {
            Err(NoFit::changed())
        } else {
            self.memory.evaluations += 1;
            self.nominate(uid, name)
        };
        match admission {
            Ok(admission) => {
                let state = lifecycle::admitted(&self.durable.workloads[uid], admission.clone(), now);
                decisions.push(self.book(uid, Action::Admit(admission), state));
            }
            Err(no_fit) => {
                let Some(queue) = self.memory.queues.get_mut(name) else { return };
                let affected = queue.set_aside(no_fit);
                self.memory.unreported.extend(affected);
            }
        }
    }

    fn nominate(
        &self,
        uid: &Uid,
        name: &ClusterQueueName,
    ) -> Result<gangway_model::workload::Admission, NoFit> {
        let (Some(workload), Some(search)) = (self.durable.workloads.get(uid), self.search(name)) else {
            let message = format!("ClusterQueue {name} does not exist");
            return Err(NoFit { reason: PendingReason::Misconfigured, message, trace: Vec::new() });
        };
        search.assign(workload)
    }

    /// The flavor search in a ClusterQueue as it is now.
    pub(crate) fn search(&self, name: &ClusterQueueName) -> Option<Search<'_>> {
        static NOTHING: Usage = Usage::NOTHING;
        let queue = self.durable.cluster_queues.get(name)?;
        let usage = self.memory.cluster_tallies.get(name).map_or(&NOTHING, |tally| &tally.reservation);
        Some(Search { queue, flavors: &self.durable.flavors, usage })
    }

    /// Why a Workload waits, as far as it is known.
    pub(crate) fn waiting_now(&self, uid: &Uid) -> Option<Standing> {
        let workload = self.durable.workloads.get(uid)?;
        let track = self.memory.tracks.get(uid)?;
        if !matches!(workload.state, State::Pending(_)) || track.decision.is_some() {
            return None;
        }
        if let Some(standing) = self.durable.standing(workload) {
            return Some(standing);
        }
        if let Some(refused) = track.waits_after_refusal() {
            let message = format!("The API server refuses the write: {}", refused.message);
            return Some(Standing { reason: PendingReason::Misconfigured, message });
        }
        let place = track.place.as_ref()?;
        match self.memory.queues.get(&place.queue)?.waiting_for(&place.key, place.shape)? {
            WaitingFor::Fit(no_fit) => {
                Some(Standing { reason: no_fit.reason, message: no_fit.message.clone() })
            }
            WaitingFor::First(first) => {
                let name = &self.durable.workloads.get(&first.uid)?.name;
                let message = format!("ClusterQueue {} is StrictFIFO and {name} goes first", place.queue);
                Some(Standing { reason: PendingReason::WaitingForQuota, message })
            }
        }
    }

    /// Has the waiting reason of Workloads written where it changed.
    pub(crate) fn report_waiting(&mut self, now: Timestamp, budget: usize, decisions: &mut Vec<Decision>) {
        while decisions.len() < budget {
            let Some(uid) = self.memory.unreported.pop_first() else { break };
            if self.memory.tracks.get(&uid).is_none_or(|track| !track.may_report()) {
                continue;
            }
            let Some((reason, state)) = self.report(&uid, now) else { continue };
            decisions.push(self.book(&uid, Action::ReportWaiting(reason), state));
        }
    }

    /// The state in which a Workload says why it waits now; none if it says so already.
    fn report(&self, uid: &Uid, now: Timestamp) -> Option<(PendingReason, State)> {
        let standing = self.waiting_now(uid)?;
        let State::Pending(pending) = &self.durable.workloads.get(uid)?.state else { return None };
        if pending.waiting.as_ref().is_some_and(|waiting| waiting.reason == standing.reason) {
            return None;
        }
        let since = pending.waiting.as_ref().map_or(now.whole_second(), |waiting| waiting.since);
        let waiting = Waiting { reason: standing.reason, message: standing.message, since };
        Some((standing.reason, State::Pending(Pending { waiting: Some(waiting), ..pending.clone() })))
    }

    /// The same for a report that was decided before, with the time of that decision.
    pub(crate) fn report_now(&self, uid: &Uid) -> Option<State> {
        let decided = match &self.memory.tracks.get(uid)?.report.as_ref()?.state {
            State::Pending(pending) => pending.waiting.as_ref()?.since,
            _ => return None,
        };
        self.report(uid, decided).map(|(_, state)| state)
    }
}
