//! What is due for a Workload whatever the quota: finish, evict, release, requeue.

use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_model::checks::CheckAnswers;
use gangway_model::planted::{Bug, Planted};
use gangway_model::queues::{ClusterQueue, StopPolicy};
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::reasons::{EvictionReason, FinishReason, PendingReason, PreemptionReason, RequeueReason};
use gangway_model::workload::{
    Admission, Eviction, Finish, Overdue, PastEviction, Pending, Preemption, RequeueState, Requeued,
    Reservation, State, Waiting, Workload,
};

use crate::checks;
use crate::decision::Action;
use crate::durable::Durable;
use crate::event::JobFacts;
use crate::fallback;
use crate::readiness;
use crate::rules::Rules;

/// The choices by which lives go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy<'p> {
    pub(crate) rules: Rules,
    /// When pods have to be ready; none if nobody asks.
    pub(crate) readiness: Option<&'p WaitForPodsReady>,
    /// What is written down of readiness is to go.
    pub(crate) drops_readiness: bool,
    /// Somebody starts, and nobody else may until its pods are ready.
    pub(crate) is_blocked: bool,
    pub(crate) planted: Planted,
    /// When every watch had delivered its first list.
    pub(crate) synced_at: Option<Timestamp>,
}

/// Somebody with quota who was not told to leave, at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'h> {
    pub(crate) durable: &'h Durable,
    pub(crate) policy: Policy<'h>,
    pub(crate) workload: &'h Workload,
    pub(crate) reservation: &'h Reservation,
    pub(crate) at: Timestamp,
}

/// What is due, and the state that it leads to.
pub(crate) fn due(
    durable: &Durable,
    policy: Policy<'_>,
    workload: &Workload,
    now: Timestamp,
) -> Option<(Action, State)> {
    // Who belongs to others goes on as they left it: nobody here could stop it, and how it fares is not known.
    if workload.deleting || workload.state.is_finished() || workload.foreign_owner().is_some() {
        return None;
    }
    let at = now.whole_second();
    if let Some((reason, message)) = end(durable, workload) {
        let finish = Finish { reason, message, at };
        return Some((
            Action::Finish(reason),
            State::Finished(Box::new(finish), Box::new(workload.state.clone().having_left())),
        ));
    }
    match &workload.state {
        State::Finished(..) => None,
        State::Holding(reservation) => {
            let held = Held { durable, policy, workload, reservation, at };
            told_to_leave(held)
                .or_else(|| checks::refused(held))
                .or_else(|| readiness::follow_pods(held))
                .or_else(|| fallback::out_of_time(held))
                .or_else(|| checks::follow_demand(held))
                .or_else(|| flip_to_admitted(held))
                .or_else(|| readiness::out_of_time(held).filter(|_| !is_forgotten(held)))
        }
        State::Evicting(_, eviction)
            if eviction.reason.deactivates()
                && workload.active
                && !policy.planted.is(Bug::DeactivationForgotten) =>
        {
            Some((Action::Deactivate, workload.state.clone()))
        }
        State::Evicting(reservation, eviction) => {
            let gone = has_left(durable, workload, reservation, eviction, now);
            gone.then(|| {
                let mut pending = released(durable, workload, reservation, eviction, at);
                pending.history = pending.history.filter(|_| !policy.planted.is(Bug::HistoryLost));
                (Action::Release(eviction.reason), State::Pending(pending))
            })
        }
        State::Pending(pending) if fallback::is_being_deactivated(pending) => {
            Some(deactivated(durable, workload, pending, at))
        }
        State::Pending(pending) => {
            let reason = requeue(durable, workload, pending)?;
            let requeued = Some(Requeued { eligible: true, reason, at });
            Some((Action::Requeue(reason), State::Pending(Pending { requeued, ..kept_after(pending) })))
        }
    }
}

/// A planted mistake: what was over before the start counts as never.
fn is_forgotten(held: Held<'_>) -> bool {
    let Policy { planted, synced_at, .. } = held.policy;
    let start = synced_at.filter(|_| planted.is(Bug::DeadlineLost));
    start.is_some_and(|start| readiness::was_over_before(held, start))
}

/// Somebody without quota is deactivated: first that is done, then it is written down that it is.
fn deactivated(durable: &Durable, workload: &Workload, pending: &Pending, at: Timestamp) -> (Action, State) {
    let reason = pending.evicted.as_ref().map_or(EvictionReason::Deactivated, |eviction| eviction.reason);
    if workload.active {
        return (Action::Deactivate, workload.state.clone());
    }
    let requeued = Some(Requeued { eligible: false, reason: reason.requeue_reason(), at });
    let since = pending.waiting.as_ref().map_or(at, |waiting| waiting.since);
    let waiting = durable.standing(workload).map(|standing| Waiting {
        reason: standing.reason,
        message: standing.message.into(),
        since,
    });
    (Action::Release(reason), State::Pending(Pending { requeued, waiting, ..pending.clone() }))
}

/// What is kept of the past of a Workload that is activated again: whom Gangway itself had deactivated begins anew.
fn kept_after(pending: &Pending) -> Pending {
    let by_gangway = pending.requeued.as_ref().is_some_and(|out| out.reason.is_deactivation_by_gangway());
    if by_gangway {
        Pending { requeue_state: None, history: None, ..pending.clone() }
    } else {
        pending.clone()
    }
}

/// A holder of quota has to leave, if it has to, for a reason that is none of its pods' doing.
fn told_to_leave(held: Held<'_>) -> Option<(Action, State)> {
    let Held { durable, policy, workload, reservation, at } = held;
    let (reason, message) = eviction(durable, policy.rules, workload, reservation)?;
    let eviction = Eviction { reason, message, at, preemption: None, overdue: None };
    let reservation = leaving(durable, reservation, policy.readiness, at);
    Some((Action::Evict(reason, None), State::Evicting(reservation, Box::new(eviction))))
}

/// The reservation of somebody who is told to leave: the time of its flavors stops, and its checks are asked anew. One
/// condition tells of evictions: the new one takes the place of the past one.
pub(crate) fn leaving(
    durable: &Durable,
    reservation: &Reservation,
    readiness: Option<&WaitForPodsReady>,
    at: Timestamp,
) -> Reservation {
    let requeue_state = readiness::kept_count(reservation, readiness, at);
    let history = fallback::at_eviction(durable, reservation, at);
    let asked_again = |checks: &CheckAnswers| {
        CheckAnswers(checks.0.iter().cloned().map(|answer| answer.asked_again(at)).collect())
    };
    let checks = reservation.checks.as_deref().and_then(|checks| asked_again(checks).noted());
    Reservation { past_eviction: None, requeue_state, history, checks, ..reservation.clone() }
}

/// After this long a report of suspension that is older than the start is believed all the same: then the
/// Job controller never saw the start, and there never were pods.
const STALE_REPORT_SECONDS: i64 = 5;

/// Whether the pods of a Workload that was told to leave are gone.
fn has_left(
    durable: &Durable,
    workload: &Workload,
    reservation: &Reservation,
    eviction: &Eviction,
    now: Timestamp,
) -> bool {
    let Some(owner) = &workload.owner else { return true };
    let Some(job) = durable.jobs.get(owner).filter(|job| job.stopped) else { return false };
    !is_stale(job, reservation) || now >= eviction.at.plus_seconds(STALE_REPORT_SECONDS)
}

/// Whether the Job controller's last word on suspension may be from before the Job was started: then it
/// says nothing about the pods of that start.
fn is_stale(job: &JobFacts, reservation: &Reservation) -> bool {
    matches!((job.suspended_at, reservation.admitted_at), (Some(reported), Some(admitted)) if reported <= admitted)
}

/// An admitted Workload whose Job cannot start on what it was given ends, so that it holds no quota.
pub(crate) fn unstartable(workload: &Workload, why: &str, now: Timestamp) -> Option<(Action, State)> {
    if workload.deleting || !workload.state.may_run() {
        return None;
    }
    let finish =
        Finish { reason: FinishReason::FailedToStart, message: why.to_owned(), at: now.whole_second() };
    Some((Action::Finish(finish.reason), State::Finished(Box::new(finish), Box::new(workload.state.clone()))))
}

/// Whether the Workload has ended: its Job has, or its Job is gone.
fn end(durable: &Durable, workload: &Workload) -> Option<(FinishReason, String)> {
    let owner = workload.owner.as_ref()?;
    let Some(job) = durable.jobs.get(owner) else {
        // Its pods outlive it for their grace period, and use what it was given.
        if workload.state.reservation().is_some() && durable.owners_with_pods.contains(owner) {
            return None;
        }
        return Some((FinishReason::OwnerNotFound, "The Job that owns the Workload does not exist".into()));
    };
    let end = job.end.as_ref()?;
    let reason = if end.succeeded { FinishReason::Succeeded } else { FinishReason::Failed };
    Some((reason, end.message.clone()))
}

/// Quota was set aside, and nothing else has to happen first any more.
fn flip_to_admitted(held: Held<'_>) -> Option<(Action, State)> {
    let Held { durable, policy, workload, reservation, at } = held;
    if reservation.admitted_at.is_some() || policy.is_blocked {
        return None;
    }
    let queue = durable.cluster_queues.get(&reservation.admission.cluster_queue)?;
    if !checks::agree(queue, reservation) && !policy.planted.is(Bug::CheckIgnored) {
        return None;
    }
    let mut reservation = Reservation { admitted_at: Some(at), ..reservation.clone() };
    reservation.pods_ready = readiness::at_admission(durable, policy.readiness, workload, &reservation);
    Some((Action::LetStart(reservation.admission.clone()), State::Holding(reservation)))
}

/// Why a holder of quota has to leave, if it has to.
fn eviction(
    durable: &Durable,
    rules: Rules,
    workload: &Workload,
    reservation: &Reservation,
) -> Option<(EvictionReason, String)> {
    if !workload.active {
        return Some((EvictionReason::Deactivated, "The Workload was deactivated".into()));
    }
    let drains = |policy| match policy {
        StopPolicy::None => false,
        // What runs goes on; what only has its quota set aside gives it back.
        StopPolicy::Hold => reservation.admitted_at.is_none(),
        StopPolicy::HoldAndDrain => true,
    };
    let name = Durable::queue_name(workload);
    let local = durable.local_queues.get(&name).map(|queue| queue.stop_policy);
    if local.is_some_and(drains) {
        return Some((EvictionReason::LocalQueueStopped, format!("LocalQueue {name} is drained")));
    }
    if rules.defects && local.is_some_and(|policy| policy != StopPolicy::None) {
        return None;
    }
    let cluster_queue = durable.cluster_queues.get(&reservation.admission.cluster_queue);
    // Nobody asks checks any more on behalf of a queue that is gone; what runs goes on.
    if reservation.admitted_at.is_none() && cluster_queue.is_none_or(|queue| queue.deleting) {
        let message = format!("ClusterQueue {} goes away", reservation.admission.cluster_queue);
        return Some((EvictionReason::ClusterQueueStopped, message));
    }
    if cluster_queue.is_some_and(|queue| drains(queue.stop_policy)) {
        let message = format!("ClusterQueue {} is drained", reservation.admission.cluster_queue);
        return Some((EvictionReason::ClusterQueueStopped, message));
    }
    None
}

/// A holder of quota has to leave for another.
pub(crate) fn preempted(
    durable: &Durable,
    workload: &Workload,
    preemptor: &Workload,
    reason: PreemptionReason,
    readiness: Option<&WaitForPodsReady>,
    now: Timestamp,
) -> Option<(Action, State)> {
    let State::Holding(reservation) = &workload.state else { return None };
    if workload.deleting || workload.foreign_owner().is_some() {
        return None;
    }
    let message = format!(
        "Preempted for Workload {} (uid {}): {}",
        preemptor.name,
        preemptor.uid,
        reason.doc().meaning
    );
    let preemption = Preemption { preemptor: Some(preemptor.uid.clone()), reason };
    let at = now.whole_second();
    let why = EvictionReason::Preempted;
    let eviction = Eviction { reason: why, message, at, preemption: Some(preemption.clone()), overdue: None };
    let reservation = leaving(durable, reservation, readiness, at);
    Some((Action::Evict(why, Some(preemption)), State::Evicting(reservation, Box::new(eviction))))
}

/// When it is to be said that a Workload which was told to leave has not left; none if it was said already.
pub(crate) fn overdue_at(workload: &Workload, after_seconds: i64) -> Option<Timestamp> {
    let State::Evicting(_, eviction) = &workload.state else { return None };
    eviction.overdue.is_none().then(|| eviction.at.plus_seconds(after_seconds))
}

/// A Workload that was told to leave should have left by now.
pub(crate) fn overdue(workload: &Workload, after_seconds: i64, now: Timestamp) -> Option<(Action, State)> {
    overdue_at(workload, after_seconds).filter(|at| *at <= now && !workload.deleting)?;
    let State::Evicting(reservation, eviction) = &workload.state else { return None };
    let message = format!(
        "The Job has not reported that its pods are gone {} s after the Workload was told to leave; its quota counts until they are",
        now.nanos_since(eviction.at) / 1_000_000_000
    );
    let overdue = Some(Box::new(Overdue { message, at: now.whole_second() }));
    let eviction = Eviction { overdue, ..(**eviction).clone() };
    Some((Action::ReportOverdue, State::Evicting(reservation.clone(), Box::new(eviction))))
}

/// The state after an eviction, when the pods are gone.
fn released(
    durable: &Durable,
    workload: &Workload,
    reservation: &Reservation,
    eviction: &Eviction,
    at: Timestamp,
) -> Pending {
    let (reason, message) = match durable.standing(workload) {
        Some(standing) => (standing.reason, standing.message),
        None => {
            let at_once = eviction.reason.requeues_at_once();
            let when = if at_once { "is queued again" } else { "is queued again after its backoff" };
            (PendingReason::PendingEvaluation, format!("The Workload has left and {when}"))
        }
    };
    Pending {
        waiting: Some(Waiting { reason, message: message.into(), since: at }),
        evicted: Some(Box::new(Eviction { overdue: None, ..eviction.clone() })),
        requeued: Some(Requeued {
            eligible: eviction.reason.requeues_at_once(),
            reason: eviction.reason.requeue_reason(),
            at,
        }),
        requeue_state: reservation.requeue_state.clone(),
        checks: reservation.checks.clone(),
        history: reservation.history.clone(),
    }
}

/// Why a Workload that was kept out of the queue may enter it again, if it may. That a time is over is not written down by
/// itself: it rides in the next write.
fn requeue(durable: &Durable, workload: &Workload, pending: &Pending) -> Option<RequeueReason> {
    let out = pending.requeued.as_ref().filter(|requeued| !requeued.eligible)?;
    if out.reason.is_deactivation() {
        return workload.active.then_some(RequeueReason::Reactivated);
    }
    match out.reason {
        RequeueReason::ClusterQueueStopped => {
            let queue =
                durable.cluster_queue_of(workload).and_then(|name| durable.cluster_queues.get(name))?;
            (queue.stop_policy == StopPolicy::None).then_some(RequeueReason::ClusterQueueRestarted)
        }
        RequeueReason::LocalQueueStopped => {
            let queue = durable.local_queues.get(&Durable::queue_name(workload))?;
            (queue.stop_policy == StopPolicy::None).then_some(RequeueReason::LocalQueueRestarted)
        }
        _ => None,
    }
}

/// Whether it is time, and neither a queue nor a user, that lets the Workload enter the queue again.
fn ends_with_time(reason: RequeueReason) -> bool {
    let by_queue = matches!(reason, RequeueReason::ClusterQueueStopped | RequeueReason::LocalQueueStopped);
    !by_queue && !reason.is_deactivation()
}

/// When something becomes due by itself, if nothing happens before.
pub(crate) fn deadline(
    durable: &Durable,
    readiness: Option<&WaitForPodsReady>,
    workload: &Workload,
) -> Option<Timestamp> {
    if workload.foreign_owner().is_some() {
        return None;
    }
    match &workload.state {
        State::Evicting(reservation, eviction) => {
            let job = durable.jobs.get(workload.owner.as_ref()?).filter(|job| job.stopped)?;
            is_stale(job, reservation).then(|| eviction.at.plus_seconds(STALE_REPORT_SECONDS))
        }
        State::Pending(pending) => backoff(pending),
        State::Holding(reservation) => {
            let ready =
                readiness.and_then(|settings| readiness::deadline(durable, settings, workload, reservation));
            let flavors = fallback::deadline(durable, reservation);
            ready.map(|(_, at)| at).into_iter().chain(flavors).min()
        }
        State::Finished(..) => None,
    }
}

/// Until when a Workload that was sent back is not tried; none if it does not wait for a time.
pub(crate) fn backoff(pending: &Pending) -> Option<Timestamp> {
    pending.requeue_state.as_ref()?.requeue_at
}

/// Whether nothing of its past keeps a Workload out of its queue.
pub(crate) fn may_queue(pending: &Pending, now: Timestamp) -> bool {
    let is_out = |out: &Requeued| !out.eligible && !ends_with_time(out.reason);
    !pending.requeued.as_ref().is_some_and(is_out)
        && backoff(pending).is_none_or(|at| at <= now)
        && !fallback::is_being_deactivated(pending)
}

/// Whether a Workload is queued or will be when a time has come.
pub(crate) fn is_queued(pending: &Pending) -> bool {
    may_queue(pending, Timestamp::from_nanos(i64::MAX))
}

/// The same with its backoff taken off if it is over.
pub(crate) fn after_backoff(pending: Pending, now: Timestamp) -> Pending {
    if may_queue(&pending, now) { without_backoff(pending, now) } else { pending }
}

/// The same with its backoff taken off. Who gets quota waits for no time any more, even if a clock that was set back says that
/// the time is yet to come.
fn without_backoff(pending: Pending, now: Timestamp) -> Pending {
    let until = backoff(&pending);
    let ended = |out: &Requeued| !out.eligible && ends_with_time(out.reason);
    if until.is_none() && !pending.requeued.as_ref().is_some_and(ended) {
        return pending;
    }
    let requeued = match &pending.requeued {
        Some(out) if ended(out) => {
            let at = until.filter(|at| *at <= now).unwrap_or(now.whole_second());
            Some(Requeued { eligible: true, reason: RequeueReason::BackoffFinished, at })
        }
        other => other.clone(),
    };
    let count = pending.requeue_state.as_ref().map_or(0, |state| state.count);
    let requeue_state = RequeueState { count, requeue_at: None }.noted();
    Pending { requeued, requeue_state, ..pending }
}

/// The state of a Workload that gets quota now, and may run if nothing else has to happen first.
pub(crate) fn reserved(
    durable: &Durable,
    policy: Policy<'_>,
    workload: &Workload,
    admission: Arc<Admission>,
    extras: Option<&ClusterQueue>,
    now: Timestamp,
) -> State {
    let at = now.whole_second();
    let Pending { evicted, requeued, requeue_state, checks, history, .. } = match &workload.state {
        // Why it waited is over, and not worth a copy.
        State::Pending(Pending { waiting: _, evicted, requeued, requeue_state, checks, history }) => {
            let (evicted, requeued) = (evicted.clone(), requeued.clone());
            let (requeue_state, checks) = (requeue_state.clone(), checks.clone());
            let history = history.clone();
            without_backoff(Pending { waiting: None, evicted, requeued, requeue_state, checks, history }, now)
        }
        _ => Pending::default(),
    };
    let mut reservation = Reservation {
        reserved_at: at,
        admitted_at: Some(at),
        past_eviction: evicted.map(|eviction| {
            let preemptor = eviction.preemption.and_then(|preemption| preemption.preemptor);
            Box::new(PastEviction { message: eviction.message, over_at: at, preemptor })
        }),
        requeued,
        requeue_state,
        pods_ready: None,
        checks: None,
        history: None,
        admission,
    };
    if let Some(queue) = extras {
        let admission = &reservation.admission;
        reservation.checks =
            checks::at_reservation(&queue.admission_checks, admission, checks.as_deref(), at);
        reservation.history = fallback::at_reservation(queue, admission, history, at);
        if policy.planted.is(Bug::FallbackTimeLost) {
            let tried = reservation.history.iter_mut().flat_map(|history| &mut history.0);
            tried.for_each(|attempt| attempt.accumulated_seconds = 0);
        }
        let may_run = checks::agree(queue, &reservation) && !policy.is_blocked;
        reservation.admitted_at = may_run.then_some(at);
    }
    if reservation.admitted_at.is_some() {
        reservation.pods_ready = readiness::at_admission(durable, policy.readiness, workload, &reservation);
    }
    State::Holding(reservation)
}
