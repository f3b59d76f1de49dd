//! Conditions are a function of the state, and the state can be read back from them.

use std::sync::Arc;

use crate::checks::CheckAnswers;
use crate::fallback::FlavorHistory;
use crate::reasons::{
    EvictionReason, FinishReason, PendingReason, PreemptionReason, ReadinessReason, RequeueReason,
};
use crate::time::Timestamp;
use crate::uid::Uid;
use crate::workload::{
    Admission, Eviction, Finish, Overdue, PastEviction, Pending, PodsReady, Preemption, RequeueState,
    Requeued, Reservation, State, Waiting,
};

/// The type of a condition that Gangway writes on a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionType {
    /// Quota is set aside.
    QuotaReserved,
    /// It may start.
    Admitted,
    /// Its pods are ready.
    PodsReady,
    /// It was told to leave.
    Evicted,
    /// It was told to leave so that another may have its quota.
    Preempted,
    /// It was told to leave long ago, and its pods are not known to be gone.
    EvictionOverdue,
    /// It may be queued again.
    Requeued,
    /// It has ended.
    Finished,
}

impl ConditionType {
    /// All of them, in the order in which they are written.
    pub const ALL: [Self; 8] = [
        Self::QuotaReserved,
        Self::Admitted,
        Self::PodsReady,
        Self::Evicted,
        Self::Preempted,
        Self::EvictionOverdue,
        Self::Requeued,
        Self::Finished,
    ];

    /// The name of the type.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QuotaReserved => "QuotaReserved",
            Self::Admitted => "Admitted",
            Self::PodsReady => "PodsReady",
            Self::Evicted => "Evicted",
            Self::Preempted => "Preempted",
            Self::EvictionOverdue => "EvictionOverdue",
            Self::Requeued => "Requeued",
            Self::Finished => "Finished",
        }
    }

    /// Reads a name; none if the condition is somebody else's.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.as_str() == name)
    }
}

/// A condition of a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What it speaks of.
    pub kind: ConditionType,
    /// Whether it holds.
    pub status: bool,
    /// Why, as a token.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// When `status` last changed.
    pub at: Timestamp,
}

/// Before the time that pods have to be ready.
const ALLOWED: &str = " They have ";
const PREVIOUSLY: &str = "Previously: ";
const NOT_STOPPED: &str = "NotStopped";

/// The conditions of a Workload in this state.
pub fn conditions(state: &State) -> Vec<Condition> {
    let mut list = Vec::with_capacity(5);
    write(state, &mut list);
    list
}

fn write(state: &State, list: &mut Vec<Condition>) {
    match state {
        State::Pending(pending) => {
            if let Some(waiting) = &pending.waiting {
                list.push(condition(
                    ConditionType::QuotaReserved,
                    false,
                    waiting.reason.as_str(),
                    &waiting.message,
                    waiting.since,
                ));
                list.push(condition(
                    ConditionType::Admitted,
                    false,
                    "NoReservation",
                    "No quota is reserved",
                    waiting.since,
                ));
            }
            pending.evicted.iter().for_each(|eviction| write_eviction(eviction, list));
            list.extend(pending.requeued.as_ref().map(requeued));
        }
        State::Holding(reservation) => {
            write_reservation(reservation, list);
            if let Some(past) = &reservation.past_eviction {
                let message = format!("{PREVIOUSLY}{}", past.message);
                let over = |kind| condition(kind, false, "QuotaReserved", &message, past.over_at);
                list.push(over(ConditionType::Evicted));
                list.extend(past.preemptor.is_some().then(|| over(ConditionType::Preempted)));
            }
            list.extend(reservation.requeued.as_ref().map(requeued));
        }
        State::Evicting(reservation, eviction) => {
            write_reservation(reservation, list);
            write_eviction(eviction, list);
            let kind = ConditionType::EvictionOverdue;
            let overdue = eviction.overdue.as_ref();
            list.extend(overdue.map(|said| condition(kind, true, NOT_STOPPED, &said.message, said.at)));
            list.extend(reservation.requeued.as_ref().map(requeued));
        }
        State::Finished(finish, before) => {
            write(before, list);
            list.push(condition(
                ConditionType::Finished,
                true,
                finish.reason.as_str(),
                &finish.message,
                finish.at,
            ));
        }
    }
}

fn write_reservation(reservation: &Reservation, list: &mut Vec<Condition>) {
    let queue = &reservation.admission.cluster_queue;
    let reserved = format!("Quota is reserved in ClusterQueue {queue}");
    list.push(condition(
        ConditionType::QuotaReserved,
        true,
        "QuotaReserved",
        &reserved,
        reservation.reserved_at,
    ));
    list.push(match reservation.admitted_at {
        Some(at) => condition(ConditionType::Admitted, true, "Admitted", "The Workload may start", at),
        None => condition(
            ConditionType::Admitted,
            false,
            "UnsatisfiedAdmissionChecks",
            "The Workload waits for its admission checks",
            reservation.reserved_at,
        ),
    });
    list.extend(reservation.pods_ready.as_deref().map(|ready| {
        let PodsReady { reason, at, allowed_seconds } = *ready;
        let meaning = reason.doc().meaning;
        let message = match allowed_seconds {
            Some(seconds) => format!("{meaning}{ALLOWED}{seconds} s."),
            None => meaning.to_owned(),
        };
        condition(ConditionType::PodsReady, reason.is_ready(), reason.as_str(), &message, at)
    }));
}

fn write_eviction(eviction: &Eviction, list: &mut Vec<Condition>) {
    let told = |kind, reason| condition(kind, true, reason, &eviction.message, eviction.at);
    list.push(told(ConditionType::Evicted, eviction.reason.as_str()));
    let preempted = |preemption: &Preemption| told(ConditionType::Preempted, preemption.reason.as_str());
    list.extend(eviction.preemption.as_ref().map(preempted));
}

fn requeued(requeued: &Requeued) -> Condition {
    let message = requeued.reason.doc().meaning;
    condition(ConditionType::Requeued, requeued.eligible, requeued.reason.as_str(), message, requeued.at)
}

fn condition(kind: ConditionType, status: bool, reason: &str, message: &str, at: Timestamp) -> Condition {
    Condition { kind, status, reason: reason.to_owned(), message: message.to_owned(), at: at.whole_second() }
}

/// A state read from conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The state.
    pub state: State,
    /// Whether the conditions were a set that Gangway never writes and the safest state was chosen.
    pub repaired: bool,
}

/// What else than conditions is written down of a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The quota that is set aside.
    pub admission: Option<Admission>,
    /// For whom it was preempted.
    pub preemptor: Option<Uid>,
    /// How often it was sent back, and until when it is not tried.
    pub requeue_state: Option<RequeueState>,
    /// What its admission checks say.
    pub checks: CheckAnswers,
    /// The flavors that it tried.
    pub history: FlavorHistory,
}

/// The state that these conditions mean, and what else is written down. Total: whatever stands there means
/// something.
///
/// Where the parts contradict each other, nobody gets to run on quota that is not accounted for:
/// quota counts only with both `QuotaReserved=True` and an admission that says how much.
pub fn read(conditions: &[Condition], notes: Notes) -> Reading {
    let find = |kind| conditions.iter().find(|c| c.kind == kind);
    let Notes { admission, preemptor, requeue_state, checks, history } = notes;
    let requeue_state = requeue_state.and_then(RequeueState::noted);
    let (checks, history) = (checks.noted(), history.noted());
    let mut reader = Reader { repaired: false, preemptor };
    let state = match reader.state_before_finish(&find, admission) {
        State::Pending(pending) => State::Pending(Pending { requeue_state, checks, history, ..pending }),
        State::Holding(held) => State::Holding(Reservation { requeue_state, checks, history, ..held }),
        State::Evicting(held, eviction) => {
            State::Evicting(Reservation { requeue_state, checks, history, ..held }, eviction)
        }
        ended @ State::Finished(..) => ended,
    };
    let state = match find(ConditionType::Finished).filter(|c| c.status) {
        Some(condition) => State::Finished(Box::new(reader.finish(condition)), Box::new(state)),
        None => state,
    };
    Reading { state, repaired: reader.repaired }
}

struct Reader {
    repaired: bool,
    preemptor: Option<Uid>,
}

impl Reader {
    /// The state but for what stands in no condition.
    fn state_before_finish<'c>(
        &mut self,
        find: &impl Fn(ConditionType) -> Option<&'c Condition>,
        admission: Option<Admission>,
    ) -> State {
        let reserved = find(ConditionType::QuotaReserved);
        let admitted = find(ConditionType::Admitted).filter(|c| c.status);
        let evicted = find(ConditionType::Evicted);
        let preempted = find(ConditionType::Preempted);
        let overdue = find(ConditionType::EvictionOverdue).filter(|c| c.status);
        let requeued = find(ConditionType::Requeued).and_then(|c| self.requeued(c));
        let Some((reserved_at, admission)) =
            reserved.filter(|c| c.status).map(|c| c.at).zip(admission.clone())
        else {
            self.repaired |= admission.is_some()
                || admitted.is_some()
                || overdue.is_some()
                || reserved.is_some_and(|c| c.status);
            let waiting = reserved.and_then(|c| self.waiting(c));
            let evicted = evicted.filter(|c| c.status).map(|c| self.eviction(c, preempted));
            return State::Pending(Pending {
                waiting,
                evicted: evicted.map(Box::new),
                requeued,
                ..Pending::default()
            });
        };
        let past_eviction = evicted.filter(|c| !c.status).map(|c| PastEviction {
            message: c.message.strip_prefix(PREVIOUSLY).unwrap_or(&c.message).to_owned(),
            over_at: c.at,
            preemptor: self.preemptor.clone().filter(|_| preempted.is_some()),
        });
        let admitted_at = admitted.map(|c| c.at);
        let admission = Arc::new(admission);
        let reservation = Reservation {
            admission,
            reserved_at,
            admitted_at,
            past_eviction: past_eviction.map(Box::new),
            requeued,
            requeue_state: None,
            pods_ready: find(ConditionType::PodsReady).map(|c| Box::new(pods_ready(c))),
            checks: None,
            history: None,
        };
        match evicted.filter(|c| c.status).map(|c| self.eviction(c, preempted)) {
            Some(eviction) => {
                let said = |c: &Condition| Box::new(Overdue { message: c.message.clone(), at: c.at });
                let eviction = Eviction { overdue: overdue.map(said), ..eviction };
                State::Evicting(reservation, Box::new(eviction))
            }
            None => {
                self.repaired |= overdue.is_some();
                State::Holding(reservation)
            }
        }
    }

    fn waiting(&mut self, condition: &Condition) -> Option<Waiting> {
        if condition.status {
            return None;
        }
        let known = PendingReason::parse(&condition.reason);
        let reason = known.or_else(|| coarse_reason(&condition.reason)).unwrap_or_else(|| {
            self.repaired = true;
            PendingReason::PendingEvaluation
        });
        Some(Waiting { reason, message: condition.message.as_str().into(), since: condition.at })
    }

    /// An eviction for a reason that we do not know is still one: the Workload has to leave, and may
    /// then be queued again.
    fn eviction(&mut self, condition: &Condition, preempted: Option<&Condition>) -> Eviction {
        let reason = EvictionReason::parse(&condition.reason).unwrap_or_else(|| {
            self.repaired = true;
            EvictionReason::Preempted
        });
        let preempted = preempted.filter(|c| c.status && reason == EvictionReason::Preempted);
        let preemption = preempted.and_then(|c| PreemptionReason::parse(&c.reason));
        let preemption = preemption.map(|reason| Preemption { preemptor: self.preemptor.clone(), reason });
        Eviction { reason, message: condition.message.clone(), at: condition.at, preemption, overdue: None }
    }

    fn requeued(&mut self, condition: &Condition) -> Option<Requeued> {
        let Some(reason) = RequeueReason::parse(&condition.reason) else {
            self.repaired = true;
            return None;
        };
        Some(Requeued { eligible: condition.status, reason, at: condition.at })
    }

    fn finish(&mut self, condition: &Condition) -> Finish {
        let reason = FinishReason::parse(&condition.reason).unwrap_or_else(|| {
            self.repaired = true;
            FinishReason::Failed
        });
        Finish { reason, message: condition.message.clone(), at: condition.at }
    }
}

/// Why somebody waits in the coarser words that the reference uses where its granular reasons are switched off. It is
/// evaluated anew, and then said in ours.
fn coarse_reason(reason: &str) -> Option<PendingReason> {
    match reason {
        "Pending" => Some(PendingReason::PendingEvaluation),
        "Inadmissible" => Some(PendingReason::Misconfigured),
        "Waiting" => Some(PendingReason::WaitingForPodsReady),
        _ => None,
    }
}

/// Whether pods are ready. A reason that we do not know, such as that of older versions of the reference, means what the
/// status alone says.
fn pods_ready(condition: &Condition) -> PodsReady {
    let otherwise = if condition.status { ReadinessReason::Started } else { ReadinessReason::WaitForStart };
    let known = ReadinessReason::parse(&condition.reason);
    let reason = known.filter(|reason| reason.is_ready() == condition.status).unwrap_or(otherwise);
    let allowed = condition.message.split_once(ALLOWED).and_then(|(_, rest)| rest.strip_suffix(" s."));
    let allowed_seconds = allowed.and_then(|seconds| seconds.parse().ok());
    PodsReady { reason, at: condition.at, allowed_seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::CheckAnswer;
    use crate::names::ClusterQueueName;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_seconds(second)
    }

    fn reservation() -> Reservation {
        Reservation {
            admission: Arc::new(Admission {
                cluster_queue: ClusterQueueName::from("cq"),
                pod_sets: [].into(),
            }),
            reserved_at: at(1),
            admitted_at: Some(at(2)),
            past_eviction: Some(Box::new(PastEviction {
                message: "drained".into(),
                over_at: at(1),
                preemptor: None,
            })),
            requeued: Some(Requeued {
                eligible: true,
                reason: RequeueReason::ClusterQueueRestarted,
                at: at(0),
            }),
            requeue_state: Some(Box::new(RequeueState { count: 2, requeue_at: None })),
            pods_ready: None,
            checks: CheckAnswers(vec![CheckAnswer::pending("check".into(), at(1))]).noted(),
            history: {
                let mut history = FlavorHistory::default();
                history.take_away(&"f".into(), at(1), at(5));
                history.noted()
            },
        }
    }

    fn notes(state: &State) -> Notes {
        let admission = admission_of(state);
        Notes {
            admission,
            preemptor: state.preemptor().cloned(),
            requeue_state: state.requeue_state().copied(),
            checks: state.checks().cloned().unwrap_or_default(),
            history: state.history().cloned().unwrap_or_default(),
        }
    }

    fn eviction() -> Box<Eviction> {
        let reason = EvictionReason::ClusterQueueStopped;
        Box::new(Eviction { reason, message: "drained".into(), at: at(3), preemption: None, overdue: None })
    }

    fn preempted(preemptor: Option<&str>) -> Box<Eviction> {
        let preemption =
            Preemption { preemptor: preemptor.map(Uid::from), reason: PreemptionReason::InCohortReclamation };
        Box::new(Eviction { reason: EvictionReason::Preempted, preemption: Some(preemption), ..*eviction() })
    }

    fn overdue() -> Box<Eviction> {
        let overdue = Overdue { message: "still there".into(), at: at(603) };
        Box::new(Eviction { overdue: Some(Box::new(overdue)), ..*eviction() })
    }

    fn states() -> Vec<State> {
        let waiting =
            Waiting { reason: PendingReason::WaitingForQuota, message: "1 cpu".into(), since: at(4) };
        let evicted = Pending {
            waiting: Some(waiting.clone()),
            evicted: Some(eviction()),
            requeued: Some(Requeued {
                eligible: false,
                reason: RequeueReason::ClusterQueueStopped,
                at: at(4),
            }),
            requeue_state: Some(Box::new(RequeueState { count: 1, requeue_at: Some(at(60)) })),
            checks: reservation().checks,
            history: reservation().history,
        };
        let finish = Finish { reason: FinishReason::Succeeded, message: "done".into(), at: at(9) };
        let finish = Box::new(finish);
        let came_back = PastEviction { message: "moved".into(), over_at: at(5), preemptor: Some("w".into()) };
        let came_back = Box::new(came_back);
        let unchecked = Reservation { admitted_at: None, past_eviction: None, ..reservation() };
        let ready = |reason| {
            let pods_ready = Some(Box::new(PodsReady { reason, at: at(8), allowed_seconds: Some(9) }));
            State::Holding(Reservation { pods_ready, requeue_state: None, ..reservation() })
        };
        vec![
            State::new(),
            State::Pending(Pending { waiting: Some(waiting), ..Pending::default() }),
            State::Pending(evicted.clone()),
            State::Holding(reservation()),
            State::Holding(unchecked),
            ready(ReadinessReason::WaitForStart),
            ready(ReadinessReason::Started),
            ready(ReadinessReason::WaitForRecovery),
            ready(ReadinessReason::Recovered),
            State::Pending(Pending { evicted: Some(preempted(Some("w"))), ..evicted.clone() }),
            State::Pending(Pending { evicted: Some(preempted(None)), ..evicted.clone() }),
            State::Evicting(Reservation { past_eviction: None, ..reservation() }, preempted(Some("w"))),
            State::Evicting(Reservation { past_eviction: None, ..reservation() }, overdue()),
            State::Holding(Reservation { past_eviction: Some(came_back), ..reservation() }),
            State::Finished(finish.clone(), Box::new(State::Holding(reservation()))),
            State::Finished(finish, Box::new(State::Pending(evicted))),
        ]
    }

    fn admission_of(state: &State) -> Option<Admission> {
        match state {
            State::Finished(_, before) => admission_of(before),
            other => other.reservation().map(|r| (*r.admission).clone()),
        }
    }

    #[test]
    fn a_state_reads_back_from_its_conditions() {
        for state in states() {
            let reading = read(&conditions(&state), notes(&state));
            assert_eq!(reading, Reading { state, repaired: false });
        }
    }

    #[test]
    fn an_eviction_under_way_reads_back() {
        let state = State::Evicting(Reservation { past_eviction: None, ..reservation() }, eviction());
        let reading = read(&conditions(&state), notes(&state));
        assert_eq!(reading, Reading { state, repaired: false });
    }

    #[test]
    fn contradictions_mean_the_safest_state() {
        let admitted_without_quota = [condition(ConditionType::Admitted, true, "Admitted", "", at(1))];
        let reading = read(&admitted_without_quota, Notes::default());
        assert!(reading.repaired && !reading.state.may_run(), "{reading:?}");

        let reserved_without_admission =
            [condition(ConditionType::QuotaReserved, true, "QuotaReserved", "", at(1))];
        let reading = read(&reserved_without_admission, Notes::default());
        assert!(reading.repaired && reading.state.reservation().is_none(), "{reading:?}");

        let admission = Some((*reservation().admission).clone());
        let reading = read(&[], Notes { admission, ..Notes::default() });
        assert!(reading.repaired && reading.state.reservation().is_none(), "{reading:?}");
    }

    #[test]
    fn who_has_left_is_not_late() {
        let state = State::Evicting(Reservation { past_eviction: None, ..reservation() }, overdue());
        let late = conditions(&state).into_iter().find(|c| c.kind == ConditionType::EvictionOverdue);
        assert!(late.clone().is_some_and(|c| c.status && c.message == "still there"), "{late:?}");
        assert!(!conditions(&state.having_left()).iter().any(|c| Some(c) == late.as_ref()));
        for state in [State::new(), State::Holding(reservation())] {
            let list: Vec<_> = conditions(&state).into_iter().chain(late.clone()).collect();
            let reading = read(&list, notes(&state));
            assert_eq!(reading, Reading { state, repaired: true });
        }
    }

    #[test]
    fn coarse_reasons_are_no_contradiction() {
        let table = [
            ("Pending", PendingReason::PendingEvaluation, false),
            ("Inadmissible", PendingReason::Misconfigured, false),
            ("Waiting", PendingReason::WaitingForPodsReady, false),
            ("Nonsense", PendingReason::PendingEvaluation, true),
        ];
        for (word, meant, repaired) in table {
            let list = [condition(ConditionType::QuotaReserved, false, word, "why", at(4))];
            let waiting = Waiting { reason: meant, message: "why".into(), since: at(4) };
            let state = State::Pending(Pending { waiting: Some(waiting), ..Pending::default() });
            assert_eq!(read(&list, Notes::default()), Reading { state, repaired }, "{word}");
        }
    }

    #[test]
    fn the_reason_of_older_versions_means_what_its_status_says() {
        for (status, expected) in [(true, ReadinessReason::Started), (false, ReadinessReason::WaitForStart)] {
            let mut list = conditions(&State::Holding(reservation()));
            list.push(condition(ConditionType::PodsReady, status, "PodsReady", "", at(5)));
            let reading = read(&list, notes(&State::Holding(reservation())));
            let State::Holding(read) = reading.state else { panic!("{list:?}") };
            assert_eq!(read.pods_ready.map(|ready| (ready.reason, ready.at)), Some((expected, at(5))));
        }
    }

    #[test]
    fn an_unknown_eviction_reason_is_still_an_eviction() {
        let mut list = conditions(&State::Holding(reservation()));
        list.retain(|c| c.kind != ConditionType::Evicted);
        list.push(condition(ConditionType::Evicted, true, "Cosmic", "rays", at(5)));
        let reading = read(&list, notes(&State::Holding(reservation())));
        assert!(matches!(reading, Reading { state: State::Evicting(..), repaired: true }), "{reading:?}");
    }
}
