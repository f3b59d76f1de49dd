//! What the admission checks of those with quota say, and what comes of it.

use gangway_model::checks::{CheckAnswer, CheckAnswers, RequiredCheck};
use gangway_model::queues::ClusterQueue;
use gangway_model::reasons::{CheckState, EvictionReason};
use gangway_model::workload::{Admission, Eviction, RequeueState, Reservation, State};
use gangway_model::{AdmissionCheckName, Timestamp};

use crate::decision::Action;
use crate::fallback;
use crate::lifecycle::{Held, leaving};

/// The checks that have to agree to an admission.
pub(crate) fn required<'q>(
    demanded: &'q [RequiredCheck],
    admission: &Admission,
) -> impl Iterator<Item = &'q RequiredCheck> {
    let flavors: Vec<_> =
        if demanded.is_empty() { Vec::new() } else { admission.flavors().into_iter().cloned().collect() };
    demanded.iter().filter(move |check| flavors.iter().any(|flavor| check.concerns(flavor)))
}

/// What is written down of the checks of somebody who gets quota: who agreed before still does, all others are asked.
pub(crate) fn at_reservation(
    demanded: &[RequiredCheck],
    admission: &Admission,
    known: Option<&CheckAnswers>,
    at: Timestamp,
) -> Option<Box<CheckAnswers>> {
    if demanded.is_empty() {
        return None;
    }
    let answer = |check: &RequiredCheck| match known.and_then(|known| known.find(&check.name)) {
        Some(answer) if answer.state == CheckState::Ready => answer.clone(),
        Some(answer) => answer.clone().asked_again(at),
        None => CheckAnswer::pending(check.name.clone(), at),
    };
    CheckAnswers(required(demanded, admission).map(answer).collect()).noted()
}

/// Whether every check that has to agree to a reservation does.
pub(crate) fn agree(queue: &ClusterQueue, reservation: &Reservation) -> bool {
    let says_ready = |name: &AdmissionCheckName| {
        let answer = reservation.checks.as_ref().and_then(|checks| checks.find(name));
        answer.is_some_and(|answer| answer.state == CheckState::Ready)
    };
    required(&queue.admission_checks, &reservation.admission).all(|check| says_ready(&check.name))
}

/// Its queue demands other checks of somebody who waits for them. Who runs already is not asked again.
pub(crate) fn follow_demand(held: Held<'_>) -> Option<(Action, State)> {
    let Held { durable, reservation, at, .. } = held;
    if reservation.admitted_at.is_some() {
        return None;
    }
    let queue = durable.cluster_queues.get(&reservation.admission.cluster_queue)?;
    let known = reservation.checks.as_deref();
    let names = |checks: Option<&CheckAnswers>| -> Vec<AdmissionCheckName> {
        checks.into_iter().flat_map(|checks| &checks.0).map(|answer| answer.name.clone()).collect()
    };
    let wanted = at_reservation(&queue.admission_checks, &reservation.admission, known, at);
    if names(wanted.as_deref()) == names(known) {
        return None;
    }
    let reservation = Reservation { checks: wanted, ..reservation.clone() };
    Some((Action::AskChecks, State::Holding(reservation)))
}

/// A check does not agree: whoever has quota leaves, and is tried again later, on another flavor, or not at all. A check that
/// the queue does not demand any more has no say.
pub(crate) fn refused(held: Held<'_>) -> Option<(Action, State)> {
    let Held { durable, reservation, .. } = held;
    let checks = reservation.checks.as_deref()?;
    let queue = durable.cluster_queues.get(&reservation.admission.cluster_queue);
    let counts = |answer: &&CheckAnswer| {
        queue.is_none_or(|queue| {
            let mut demanded = required(&queue.admission_checks, &reservation.admission);
            demanded.any(|check| check.name == answer.name)
        })
    };
    let rejected: Vec<&CheckAnswer> = checks.that_say(CheckState::Rejected).filter(counts).collect();
    if !rejected.is_empty() {
        return Some(
            fallback::after_rejection(held, &rejected).unwrap_or_else(|| deactivated(held, &rejected)),
        );
    }
    let retries: Vec<&CheckAnswer> = checks.that_say(CheckState::Retry).filter(counts).collect();
    (!retries.is_empty()).then(|| sent_back(held, &retries))
}

/// What checks say, for people.
pub(crate) fn told(answers: &[&CheckAnswer]) -> String {
    let one = |answer: &&CheckAnswer| match answer.message.as_str() {
        "" => answer.name.to_string(),
        message => format!("{}: {message}", answer.name),
    };
    answers.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn deactivated(held: Held<'_>, rejected: &[&CheckAnswer]) -> (Action, State) {
    let reason = EvictionReason::DeactivatedDueToAdmissionCheck;
    let message = format!("An admission check rejected the Workload: {}", told(rejected));
    evicted(held, reason, message, None)
}

/// The delays that checks ask for run from their answers, or from now where an answer has no time; none takes one away that
/// lasts longer.
fn sent_back(held: Held<'_>, retries: &[&CheckAnswer]) -> (Action, State) {
    let since = |answer: &CheckAnswer| if answer.at == Timestamp::EPOCH { held.at } else { answer.at };
    let until = |answer: &&CheckAnswer| Some(since(answer).plus_seconds(answer.requeue_after_seconds?));
    let asked = retries.iter().filter_map(until).filter(|until| *until > held.at).max();
    let message = format!("An admission check asks to try again later: {}", told(retries));
    evicted(held, EvictionReason::AdmissionCheck, message, asked)
}

fn evicted(
    held: Held<'_>,
    reason: EvictionReason,
    message: String,
    not_before: Option<Timestamp>,
) -> (Action, State) {
    let Held { durable, policy, reservation, at, .. } = held;
    let eviction = Eviction { reason, message, at, preemption: None, overdue: None };
    let left = leaving(durable, reservation, policy.readiness, at);
    let known = left.requeue_state.as_deref().copied().unwrap_or_default();
    let requeue_state = RequeueState { requeue_at: known.requeue_at.max(not_before), ..known }.noted();
    let reservation = Reservation { requeue_state, ..left };
    (Action::Evict(reason, None), State::Evicting(reservation, Box::new(eviction)))
}
