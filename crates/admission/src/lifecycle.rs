//! What is due for a Workload whatever the quota: finish, evict, release, requeue.

use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_model::queues::StopPolicy;
use gangway_model::reasons::{EvictionReason, FinishReason, PendingReason, PreemptionReason, RequeueReason};
use gangway_model::workload::{
    Admission, Eviction, Finish, Overdue, PastEviction, Pending, Preemption, Requeued, Reservation, State,
    Waiting, Workload,
};

use crate::decision::Action;
use crate::durable::Durable;
use crate::event::JobFacts;
use crate::rules::Rules;

/// What is due, and the state that it leads to.
pub(crate) fn due(
    durable: &Durable,
    rules: Rules,
    workload: &Workload,
    now: Timestamp,
) -> Option<(Action, State)> {
    if workload.deleting || workload.state.is_finished() {
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
            let Some((reason, message)) = eviction(durable, rules, workload, reservation) else {
                return flip_to_admitted(durable, reservation, at);
            };
            let eviction = Eviction { reason, message, at, preemption: None, overdue: None };
            // One condition tells of evictions: the new one takes the place of the past one.
            let reservation = Reservation { past_eviction: None, ..reservation.clone() };
            Some((Action::Evict(reason, None), State::Evicting(reservation, Box::new(eviction))))
        }
        State::Evicting(reservation, eviction) => {
            let gone = has_left(durable, workload, reservation, eviction, now);
            gone.then(|| (Action::Release(eviction.reason), released(durable, workload, eviction, at)))
        }
        State::Pending(pending) => {
            let reason = requeue(durable, workload, pending, now)?;
            let requeued = Some(Requeued { eligible: true, reason, at });
            Some((Action::Requeue(reason), State::Pending(Pending { requeued, ..pending.clone() })))
        }
    }
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
fn flip_to_admitted(durable: &Durable, reservation: &Reservation, at: Timestamp) -> Option<(Action, State)> {
    let queue = durable.cluster_queues.get(&reservation.admission.cluster_queue)?;
    if reservation.admitted_at.is_some() || !queue.admission_checks.is_empty() {
        return None;
    }
    let reservation = Reservation { admitted_at: Some(at), ..reservation.clone() };
    Some((Action::Admit(reservation.admission.clone()), State::Holding(reservation)))
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
    if cluster_queue.is_some_and(|queue| drains(queue.stop_policy)) {
        let message = format!("ClusterQueue {} is drained", reservation.admission.cluster_queue);
        return Some((EvictionReason::ClusterQueueStopped, message));
    }
    None
}

/// A holder of quota has to leave for another.
pub(crate) fn preempted(
    workload: &Workload,
    preemptor: &Workload,
    reason: PreemptionReason,
    now: Timestamp,
) -> Option<(Action, State)> {
    let State::Holding(reservation) = &workload.state else { return None };
    if workload.deleting {
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
    let reservation = Reservation { past_eviction: None, ..reservation.clone() };
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
fn released(durable: &Durable, workload: &Workload, eviction: &Eviction, at: Timestamp) -> State {
    let (reason, message) = match durable.standing(workload) {
        Some(standing) => (standing.reason, standing.message),
        None => {
            let at_once = eviction.reason.requeues_at_once();
            let when = if at_once { "is queued again" } else { "is queued again after its backoff" };
            (PendingReason::PendingEvaluation, format!("The Workload has left and {when}"))
        }
    };
    State::Pending(Pending {
        waiting: Some(Waiting { reason, message: message.into(), since: at }),
        evicted: Some(Box::new(Eviction { overdue: None, ..eviction.clone() })),
        requeued: Some(Requeued {
            eligible: eviction.reason.requeues_at_once(),
            reason: eviction.reason.requeue_reason(),
            at,
        }),
    })
}

/// Why a Workload that was kept out of the queue may enter it again, if it may.
fn requeue(
    durable: &Durable,
    workload: &Workload,
    pending: &Pending,
    now: Timestamp,
) -> Option<RequeueReason> {
    let out = pending.requeued.as_ref().filter(|requeued| !requeued.eligible)?;
    if ends_with_time(out.reason) {
        let is_over = workload.requeue_at.is_none_or(|at| now >= at);
        return is_over.then_some(RequeueReason::BackoffFinished);
    }
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
pub(crate) fn deadline(durable: &Durable, workload: &Workload) -> Option<Timestamp> {
    match &workload.state {
        State::Evicting(reservation, eviction) => {
            let job = durable.jobs.get(workload.owner.as_ref()?).filter(|job| job.stopped)?;
            is_stale(job, reservation).then(|| eviction.at.plus_seconds(STALE_REPORT_SECONDS))
        }
        State::Pending(pending) => backoff(workload, pending),
        _ => None,
    }
}

/// Until when a Workload that was sent back is not queued; none if it does not wait for a time.
pub(crate) fn backoff(workload: &Workload, pending: &Pending) -> Option<Timestamp> {
    let out = pending.requeued.as_ref().filter(|requeued| !requeued.eligible)?;
    workload.requeue_at.filter(|_| ends_with_time(out.reason))
}

/// The state of a Workload that is admitted now.
pub(crate) fn admitted(workload: &Workload, admission: Arc<Admission>, now: Timestamp) -> State {
    let at = now.whole_second();
    let (evicted, requeued) = match &workload.state {
        State::Pending(pending) => (pending.evicted.clone(), pending.requeued.clone()),
        _ => (None, None),
    };
    State::Holding(Reservation {
        admission,
        reserved_at: at,
        admitted_at: Some(at),
        past_eviction: evicted.map(|eviction| {
            let preemptor = eviction.preemption.and_then(|preemption| preemption.preemptor);
            Box::new(PastEviction { message: eviction.message, over_at: at, preemptor })
        }),
        requeued,
    })
}
