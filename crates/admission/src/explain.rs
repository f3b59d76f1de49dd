//! Why is my Job pending?

use gangway_model::checks::CheckAnswer;
use gangway_model::reasons::{PendingReason, PreemptionReason, ReadinessReason};
use gangway_model::workload::{Eviction, Pending, State, Workload};
use gangway_model::{ClusterQueueName, ObjectName, Timestamp, Uid};

use crate::durable::Standing;
use crate::engine::Engine;
use crate::event::ReadyPods;
use crate::fallback::{Rung, ladder};
use crate::ids::WorkloadId;
use crate::lifecycle;
use crate::readiness;
use crate::trace::{FlavorTrace, Verdict};

/// Where a Workload is and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The Workload.
    pub name: ObjectName,
    /// The ClusterQueue that it waits in or has quota of.
    pub cluster_queue: Option<ClusterQueueName>,
    /// What it is doing.
    pub situation: Situation,
    /// The dominant reason with its numbers.
    pub message: String,
    /// How many go before it in its ClusterQueue.
    pub ahead: usize,
    /// The first few of them, in order.
    pub first_ahead: Vec<ObjectName>,
    /// Every flavor that was considered.
    pub flavors: Vec<FlavorTrace>,
    /// What would help.
    pub advice: Vec<String>,
    /// Those who have to leave before it can start, and have not left yet.
    pub victims: Vec<LeavingVictim>,
    /// For whom it has to leave, or has left and waits since.
    pub preempted_for: Option<PreemptedFor>,
    /// How far its start has come; none if it does not start, or nobody asks.
    pub start: Option<Start>,
    /// How often it was sent back for not being ready.
    pub retries: u32,
    /// What its admission checks say.
    pub checks: Vec<CheckAnswer>,
    /// The flavors that it falls back to, by resource group; empty where its queue gives up none.
    pub ladder: Vec<Vec<Rung>>,
    /// How often it gave up all of them.
    pub rounds: u32,
}

/// How far the start of a Workload has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Whether its pods are ready, and what they wait for.
    pub reason: ReadinessReason,
    /// Since when that is so.
    pub since: Timestamp,
    /// Until when they have to be ready; none if they are, or may take for ever.
    pub until: Option<Timestamp>,
    /// How many are ready, of how many; none if its Job is not known.
    pub pods: Option<ReadyPods>,
}

/// A Workload that has to leave for another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingVictim {
    /// Its uid.
    pub uid: Uid,
    /// Its name.
    pub name: ObjectName,
    /// Whose quota it holds.
    pub cluster_queue: Option<ClusterQueueName>,
    /// By which right it is preempted.
    pub reason: PreemptionReason,
    /// When it was told; none if that is not written yet.
    pub told_at: Option<Timestamp>,
}

/// The other side: for whom a Workload has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreemptedFor {
    /// The uid of the preemptor; none if it was not written down.
    pub uid: Option<Uid>,
    /// By which right.
    pub reason: PreemptionReason,
    /// When it was told.
    pub told_at: Timestamp,
    /// Whether its pods are gone.
    pub has_left: bool,
}

/// How many of those who go before a Workload are named.
const SHOWN_AHEAD: usize = 10;

/// What a Workload is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Situation {
    /// It waits.
    Waiting(PendingReason),
    /// It was sent back and is queued again at this time, not before.
    Backoff(Timestamp),
    /// It may run.
    Admitted,
    /// It has quota and may not run yet.
    Reserved,
    /// It was told to leave and its pods are still there.
    Evicting,
    /// It has ended.
    Finished,
}

impl Situation {
    /// The word for it: the reason where it waits for something else than time.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting(reason) => reason.as_str(),
            Self::Backoff(_) => "Backoff",
            Self::Admitted => "Admitted",
            Self::Reserved => "QuotaReserved",
            Self::Evicting => "Evicted",
            Self::Finished => "Finished",
        }
    }

    /// Whether nothing short of a change by somebody lets it start.
    pub fn never_starts(self) -> bool {
        use PendingReason::{ExceedsMaxQuota, Misconfigured, NoMatchingFlavor};
        matches!(self, Self::Waiting(NoMatchingFlavor | ExceedsMaxQuota | Misconfigured))
    }
}

impl Engine {
    /// Where a Workload is and why; none if it is not known.
    ///
    /// A Workload that was not evaluated since the last change is explained as it stood then, so
    /// decide first for an answer that is up to date.
    pub fn explain(&self, uid: &Uid) -> Option<Explanation> {
        let id = self.durable.workloads.id(uid)?;
        let workload = self.durable.workloads.get(id)?;
        let queue = self.durable.cluster_queue_of(workload).cloned();
        let mut explanation = Explanation {
            name: workload.name.clone(),
            cluster_queue: queue.clone(),
            situation: Situation::Finished,
            message: String::new(),
            ahead: 0,
            first_ahead: Vec::new(),
            flavors: Vec::new(),
            advice: Vec::new(),
            victims: Vec::new(),
            preempted_for: preempted_for(&workload.state),
            start: None,
            retries: workload.state.requeue_state().map_or(0, |state| state.count),
            checks: workload.state.checks().map(|checks| checks.0.clone()).unwrap_or_default(),
            ladder: self.ladder_of(workload),
            rounds: workload.state.history().map_or(0, |history| history.rounds()),
        };
        let decided = self.track(id).and_then(|track| track.decision.as_ref());
        match decided.map_or(&workload.state, |write| &write.state) {
            State::Finished(finish, _) => {
                explanation.message = format!("{}: {}", finish.reason, finish.message)
            }
            State::Evicting(_, eviction) => {
                explanation.situation = Situation::Evicting;
                explanation.message = format!("{}: {}", eviction.reason, eviction.message);
            }
            State::Holding(reservation) => {
                let admitted = reservation.admitted_at.is_some();
                explanation.situation = if admitted { Situation::Admitted } else { Situation::Reserved };
                let flavors: Vec<&str> = reservation.admission.flavors().iter().map(|f| f.as_str()).collect();
                explanation.message = format!(
                    "in ClusterQueue {} on {}",
                    reservation.admission.cluster_queue,
                    flavors.join(", ")
                );
                explanation.cluster_queue = Some(reservation.admission.cluster_queue.clone());
                explanation.start = reservation.pods_ready.as_deref().map(|ready| Start {
                    reason: ready.reason,
                    since: ready.at,
                    until: ready.until(),
                    pods: readiness::pods(&self.durable, workload),
                });
            }
            State::Pending(pending) => match lifecycle::backoff(pending) {
                Some(until) if until > self.memory.time && self.durable.standing(workload).is_none() => {
                    explain_backoff(until, pending, &mut explanation);
                }
                _ => self.explain_waiting(id, &mut explanation),
            },
        }
        Some(explanation)
    }

    /// Why a Workload has no quota, in short; none if it has some, is about to have some, or is not known.
    pub fn wait_of(&self, uid: &Uid) -> Option<Standing> {
        self.waiting_now(self.durable.workloads.id(uid)?)
    }

    fn ladder_of(&self, workload: &Workload) -> Vec<Vec<Rung>> {
        let reserved = workload.state.reservation().map(|held| &held.admission.cluster_queue);
        let queue = reserved.or_else(|| self.durable.cluster_queue_of(workload));
        let queue = queue.and_then(|name| self.durable.cluster_queues.get(name));
        queue.map(|queue| ladder(queue, workload, self.memory.time)).unwrap_or_default()
    }

    fn explain_waiting(&self, id: WorkloadId, explanation: &mut Explanation) {
        let waiting = self.waiting_now(id);
        let reason = waiting.as_ref().map_or(PendingReason::PendingEvaluation, |waiting| waiting.reason);
        explanation.situation = Situation::Waiting(reason);
        explanation.message = waiting.map_or_else(|| "not evaluated yet".into(), |waiting| waiting.message);
        if let Some(place) = self.track(id).and_then(|track| track.place)
            && let Some(key) = self.key(id, place)
        {
            let queue = &self.memory.queues[place.queue.index()];
            explanation.ahead = queue.ahead_of(&key, &self.places());
            let first = queue.first_ahead_of(&key, SHOWN_AHEAD, &self.places());
            let first = first.into_iter().filter_map(|id| self.durable.workloads.get(id));
            explanation.first_ahead = first.map(|workload| workload.name.clone()).collect();
            if let Some(workload) = self.durable.workloads.get(id) {
                let ledger = &self.memory.ledger;
                let seen = ledger.tree_seen_by(place.queue, id);
                let tree = seen.as_ref().unwrap_or(&ledger.tree);
                explanation.flavors = self.trace(tree, place.queue, workload).flavors;
            }
        }
        explanation.victims = self.victims_to_leave(id);
        explanation.advice.push(reason.doc().ends_when.to_owned());
        for trace in &explanation.flavors {
            if let Verdict::Exceeds(short) = &trace.verdict {
                explanation.advice.push(format!(
                    "Ask for less {}, or raise its quota in flavor {}.",
                    short.resource, trace.flavor
                ));
            }
        }
    }
}

impl Engine {
    /// Those who have to leave for a Workload and have not left yet, in the order of their names.
    pub(crate) fn victims_to_leave(&self, preemptor: WorkloadId) -> Vec<LeavingVictim> {
        let Some(workload) = self.durable.workloads.get(preemptor) else { return Vec::new() };
        let told = self.memory.victims.get(&workload.uid).into_iter().flatten();
        let told = told.filter_map(|id| match &self.durable.workloads.get(*id)?.state {
            State::Evicting(_, eviction) => {
                Some((*id, eviction.preemption.as_ref()?.reason, Some(eviction.at)))
            }
            _ => None,
        });
        let chosen = self.chosen_for(preemptor).filter_map(|id| {
            let is_told = matches!(self.durable.workloads.get(id)?.state, State::Evicting(..));
            let sentence = self.track(id)?.rare.condemned.as_ref()?;
            (!is_told).then_some((id, sentence.reason, None))
        });
        let victim = |(id, reason, told_at)| {
            let workload = self.durable.workloads.get(id)?;
            let holds = workload.state.reservation().map(|held| held.admission.cluster_queue.clone());
            let cluster_queue = holds.or_else(|| self.durable.cluster_queue_of(workload).cloned());
            let (uid, name) = (workload.uid.clone(), workload.name.clone());
            Some(LeavingVictim { uid, name, cluster_queue, reason, told_at })
        };
        let mut victims: Vec<LeavingVictim> = told.chain(chosen).filter_map(victim).collect();
        victims.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        victims
    }
}

fn preempted_for(state: &State) -> Option<PreemptedFor> {
    let (eviction, has_left): (&Eviction, bool) = match state {
        State::Evicting(_, eviction) => (eviction, false),
        State::Pending(pending) => (pending.evicted.as_deref()?, true),
        State::Holding(_) | State::Finished(..) => return None,
    };
    let preemption = eviction.preemption.as_ref()?;
    let (uid, reason) = (preemption.preemptor.clone(), preemption.reason);
    Some(PreemptedFor { uid, reason, told_at: eviction.at, has_left })
}

fn explain_backoff(until: Timestamp, pending: &Pending, explanation: &mut Explanation) {
    explanation.situation = Situation::Backoff(until);
    if let Some(eviction) = &pending.evicted {
        explanation.message = format!("{}: {}", eviction.reason, eviction.message);
    }
    explanation.advice.push("Its backoff is over; then it is queued again.".to_owned());
}
