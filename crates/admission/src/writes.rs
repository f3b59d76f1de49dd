//! Decisions on their way to the API, and what comes back.

use gangway_model::Timestamp;
use gangway_model::workload::{State, Workload};

use crate::decision::{Action, Decision, DecisionId, PendingWrite};
use crate::engine::Engine;
use crate::event::Outcome;
use crate::ids::WorkloadId;
use crate::memory::{Grant, Refused, SentOn, Stale, UnderWay};

/// For how long a conflict is taken to mean that a newer version is on its way.
const STALE_SECONDS: i64 = 5;

impl Engine {
    /// Makes a decision and books its effect.
    pub(crate) fn book(&mut self, id: WorkloadId, action: Action, state: State) -> Decision {
        self.book_grant(id, action, state, None)
    }

    /// Makes a decision and books its effect; if it admits, with the quota that it gives.
    pub(crate) fn book_grant(
        &mut self,
        id: WorkloadId,
        action: Action,
        state: State,
        grant: Option<Grant>,
    ) -> Decision {
        let decision = DecisionId(self.memory.next_decision);
        self.memory.next_decision += 1;
        let (uid, name) = match self.durable.workloads.get(id) {
            Some(workload) => (workload.uid.clone(), workload.name.clone()),
            None => unreachable!("decisions are made of known Workloads"),
        };
        let admits = grant.is_some();
        let deactivates = action == Action::Deactivate;
        let write = Box::new(UnderWay::new(decision, state, deactivates, grant));
        self.memory.under_way.insert(decision, id);
        let track = &mut self.memory.tracks[id.index()];
        let slot = if action.is_diagnostic() { &mut track.rare.report } else { &mut track.decision };
        *slot = Some(write);
        match action {
            Action::ReportWaiting(_) => {}
            Action::Admit(_) | Action::Reserve(_) if admits => self.take_quota(id),
            _ => {
                self.reindex(id);
                self.memory.tracks[id.index()].is_touched = false;
            }
        }
        Decision { id: decision, uid, name, action }
    }

    /// What a decision comes to now, at the moment at which it is sent. None if it is void: superseded,
    /// overtaken, or a report of what the object says already. Then nothing is to be sent or reported.
    pub fn pending_write(&mut self, decision: DecisionId) -> Option<PendingWrite> {
        let id = self.memory.under_way.get(decision)?;
        let track = self.track(id)?;
        let is_report = track.rare.report.as_ref().is_some_and(|report| report.id == decision);
        let report = if is_report { self.report_now(id) } else { None };
        let workload = self.durable.workloads.get(id)?;
        let track = self.memory.tracks.get_mut(id.index())?;
        if is_report && (report.is_none() || track.decision.is_some()) {
            track.rare.report = None;
            self.memory.under_way.remove(decision);
            self.note_unreported(id);
            return None;
        }
        let slot = if is_report { &mut track.rare.report } else { &mut track.decision };
        let write = slot.as_mut().filter(|write| write.id == decision)?;
        if let Some(state) = report {
            write.state = state;
        }
        write.sent_on = SentOn::version(workload.version);
        Some(PendingWrite {
            version: workload.version,
            generation: workload.generation,
            state: write.state.clone(),
            deactivates: write.deactivates,
        })
    }

    /// Whether the end of a decision is still open: it was not sent, or nobody knows how that ended.
    pub fn is_under_way(&self, decision: DecisionId) -> bool {
        self.memory.under_way.get(decision).is_some()
    }

    pub(crate) fn on_outcome(&mut self, decision: DecisionId, outcome: Outcome, now: Timestamp) {
        let Some(id) = self.memory.under_way.get(decision) else { return };
        self.forget_preemptor(id);
        self.settle(id, decision, outcome, now);
        self.reshape(id);
        self.note_preemptor(id);
        self.end_staleness(id);
        self.reindex(id);
        self.watch_preemptor_of(id);
    }

    fn settle(&mut self, id: WorkloadId, decision: DecisionId, outcome: Outcome, now: Timestamp) {
        let Some(workload) = self.durable.workloads.get_mut(id) else { return };
        let track = &mut self.memory.tracks[id.index()];
        let is_decision = track.decision.as_ref().is_some_and(|write| write.id == decision);
        let slot = if is_decision { &mut track.decision } else { &mut track.rare.report };
        // A conflict after an attempt whose end nobody knows may be that attempt, landed: what was decided
        // stays booked until the watch shows what there is.
        let settled_by_watch =
            |write: &UnderWay| outcome == Outcome::Unknown || (outcome == Outcome::Conflict && write.unknown);
        if let Some(write) = slot.as_mut().filter(|write| settled_by_watch(write)) {
            write.unknown = true;
            if write.sent_on.get().is_none_or(|version| workload.version <= version) {
                return;
            }
        }
        let Some(write) = slot.take() else { return };
        self.memory.under_way.remove(decision);
        let landed = matches!(outcome, Outcome::Landed(_));
        let decided = write.state.clone();
        match outcome {
            Outcome::Landed(version) => {
                if let Some(rare) = track.rare.get_mut() {
                    *rare.refused_mut(is_decision) = None;
                }
                if version > workload.version {
                    workload.version = version;
                    workload.state = write.state;
                    workload.active &= !write.deactivates;
                }
            }
            Outcome::Unknown => {}
            Outcome::Conflict | Outcome::Void => {
                if write.sent_on.get().is_some_and(|version| version >= workload.version) {
                    let until = now.plus_seconds(STALE_SECONDS);
                    track.rare.stale = Some(Stale { version: workload.version, until });
                }
            }
            Outcome::Rejected(message) => {
                let refused = track.rare.refused_mut(is_decision);
                let before = refused.as_ref().map_or(0, |refused| refused.attempts);
                *refused = Some(Box::new(Refused::again(message, before, now)));
            }
        }
        if !is_decision {
            return;
        }
        if landed && matches!(decided, State::Holding(_)) {
            // It has what it had won.
            track.is_preemptor = false;
            if let Some(rare) = track.rare.get_mut() {
                (rare.won, rare.victims_left_at) = (None, None);
            }
        } else {
            let known = workload.state.clone();
            self.win_again(id, &decided, &known);
        }
    }

    /// Somebody else changed the Workload: what was decided on the old one and not sent yet is void, and
    /// what nobody knows the end of is settled by what is there now.
    pub(crate) fn overtake(&mut self, id: WorkloadId, newer: &Workload) {
        let Some(known) = self.durable.workloads.get(id) else { return };
        let differs =
            Workload { version: newer.version, generation: newer.generation, ..known.clone() } != *newer;
        let track = &mut self.memory.tracks[id.index()];
        let report = track.rare.get_mut().map(|rare| &mut rare.report);
        let mut voided = Vec::new();
        for under_way in report.into_iter().chain([&mut track.decision]) {
            let void = under_way.as_ref().is_some_and(|write| match write.sent_on.get() {
                None => differs,
                Some(version) => write.unknown && newer.version > version,
            });
            if void && let Some(write) = under_way.take() {
                self.memory.under_way.remove(write.id);
                voided.push(write.state);
            }
        }
        for state in voided {
            self.win_again(id, &state, &newer.state);
        }
    }

    /// A newer version than the one that met a conflict is known.
    pub(crate) fn end_staleness(&mut self, id: WorkloadId) {
        let Some(version) = self.durable.workloads.get(id).map(|workload| workload.version) else { return };
        let track = &mut self.memory.tracks[id.index()];
        if track.rare.stale.is_some_and(|stale| version > stale.version) {
            self.look_again(id);
        }
    }

    /// No newer version came than the one that met a conflict.
    pub(crate) fn end_staleness_that_is_over(&mut self, id: WorkloadId, now: Timestamp) {
        let stale = self.track(id).and_then(|track| track.rare.stale);
        if stale.is_some_and(|stale| stale.until <= now) {
            self.look_again(id);
        }
    }

    /// Lets a Workload come back as somebody who was not evaluated yet.
    fn look_again(&mut self, id: WorkloadId) {
        self.memory.tracks[id.index()].rare.stale = None;
        self.leave_queue(id);
    }
}
