//! Whether the pods of those who may run are ready, and for how long they may not be.

use gangway_model::planted::Bug;
use gangway_model::readiness::{EffectiveTimeouts, Timeouts, WaitForPodsReady};
use gangway_model::reasons::{EvictionReason, ReadinessReason};
use gangway_model::workload::{Eviction, PodsReady, RequeueState, Reservation, State, Workload};
use gangway_model::{ClusterQueueName, Timestamp};

use crate::decision::Action;
use crate::durable::Durable;
use crate::event::ReadyPods;
use crate::lifecycle::{Policy, leaving};

/// What is written down of the pods of somebody who is admitted now.
pub(crate) fn at_admission(
    durable: &Durable,
    settings: Option<&WaitForPodsReady>,
    workload: &Workload,
    queue: &ClusterQueueName,
    at: Timestamp,
) -> Option<Box<PodsReady>> {
    let allowed_seconds = Some(timeouts(durable, settings?, workload, queue).start_seconds);
    Some(Box::new(PodsReady { reason: ReadinessReason::WaitForStart, at, allowed_seconds }))
}

/// How many pods of a Workload's Job are ready, and how many have to be; none if its Job does not run.
pub(crate) fn pods(durable: &Durable, workload: &Workload) -> Option<ReadyPods> {
    durable.jobs.get(workload.owner.as_ref()?)?.pods
}

fn are_ready(durable: &Durable, workload: &Workload) -> bool {
    pods(durable, workload).is_some_and(ReadyPods::are_enough)
}

/// Writes down that the pods of somebody who may run are ready now, or are not any more.
pub(crate) fn follow_pods(
    durable: &Durable,
    policy: Policy<'_>,
    workload: &Workload,
    reservation: &Reservation,
    at: Timestamp,
) -> Option<(Action, State)> {
    use ReadinessReason::{Recovered, Started, WaitForRecovery, WaitForStart};
    reservation.admitted_at?;
    let settings = policy.readiness;
    let known = reservation.pods_ready.as_ref().map(|ready| ready.reason);
    let reason = match (settings, known) {
        (None, Some(_)) if policy.drops_readiness => None,
        (None, _) => return None,
        // Whoever runs its pods writes it down.
        (Some(_), _) if workload.owner.is_none() => return None,
        (Some(_), known) => match (known.unwrap_or(WaitForStart), are_ready(durable, workload)) {
            (WaitForStart, true) => Some(Started),
            (WaitForRecovery, true) => Some(Recovered),
            (Started | Recovered, false) => Some(WaitForRecovery),
            _ => return None,
        },
    };
    let allowed_seconds = settings.filter(|_| reason == Some(WaitForRecovery)).and_then(|settings| {
        timeouts(durable, settings, workload, &reservation.admission.cluster_queue).recovery_seconds
    });
    let pods_ready = reason.map(|reason| Box::new(PodsReady { reason, at, allowed_seconds }));
    let requeue_state = match reason {
        Some(WaitForRecovery) => kept_count(reservation, settings, at),
        _ => reservation.requeue_state.clone(),
    };
    let reservation = Reservation { pods_ready, requeue_state, ..reservation.clone() };
    Some((Action::PodsReady(reason), State::Holding(reservation)))
}

/// What is kept of how often somebody was sent back when its readiness ends: nothing if it was ready for long.
pub(crate) fn kept_count(
    reservation: &Reservation,
    settings: Option<&WaitForPodsReady>,
    at: Timestamp,
) -> Option<Box<RequeueState>> {
    let was_ready_for_long = reservation.pods_ready.as_ref().is_some_and(|ready| {
        ready.reason.is_ready() && settings.is_some_and(|settings| settings.is_reset(ready.at, at))
    });
    reservation.requeue_state.clone().filter(|_| !was_ready_for_long)
}

/// The timeouts that hold for somebody with quota of a queue.
fn timeouts(
    durable: &Durable,
    settings: &WaitForPodsReady,
    workload: &Workload,
    queue: &ClusterQueueName,
) -> EffectiveTimeouts {
    let queue = durable.cluster_queues.get(queue);
    let of_queue = queue.map(|queue| queue.timeouts).unwrap_or_default();
    let of_job = workload.timeouts.as_deref().copied().unwrap_or(Timeouts::default());
    settings.timeouts(of_queue, of_job)
}

/// What the pods of somebody who may run wait for, and until when they may; none if they may wait for ever or do not wait.
pub(crate) fn deadline(
    durable: &Durable,
    settings: &WaitForPodsReady,
    workload: &Workload,
    reservation: &Reservation,
) -> Option<(ReadinessReason, Timestamp)> {
    let admitted_at = reservation.admitted_at?;
    let timeouts = timeouts(durable, settings, workload, &reservation.admission.cluster_queue);
    let known = reservation.pods_ready.as_deref();
    let reason = known.map_or(ReadinessReason::WaitForStart, |ready| ready.reason);
    let at = match reason {
        ReadinessReason::WaitForStart => admitted_at.plus_seconds(timeouts.start_seconds),
        ReadinessReason::WaitForRecovery => known?.at.plus_seconds(timeouts.recovery_seconds?),
        ReadinessReason::Started | ReadinessReason::Recovered => return None,
    };
    Some((reason, at))
}

/// The pods of somebody who may run were not ready in time: it leaves, and is tried again later or not at all.
pub(crate) fn out_of_time(
    durable: &Durable,
    policy: Policy<'_>,
    workload: &Workload,
    reservation: &Reservation,
    at: Timestamp,
) -> Option<(Action, State)> {
    let settings = policy.readiness?;
    let (waits_for, deadline) = deadline(durable, settings, workload, reservation)?;
    if at < deadline {
        return None;
    }
    let known = reservation.requeue_state.as_deref().copied().unwrap_or_default();
    let timeouts = timeouts(durable, settings, workload, &reservation.admission.cluster_queue);
    let what = match waits_for {
        ReadinessReason::WaitForRecovery => {
            let seconds = timeouts.recovery_seconds.unwrap_or(0);
            format!("A pod was lost and not all were ready again within {seconds} s")
        }
        _ => format!("Not all pods were ready within {} s of the admission", timeouts.start_seconds),
    };
    let (reason, message, requeue_state) = if settings.may_retry(known.count) {
        let is_counted = !policy.planted.is(Bug::CountLost);
        let count = known.count.saturating_add(u32::from(is_counted));
        let requeue_at = at.plus_seconds(settings.backoff_seconds(&workload.uid, count));
        let state = RequeueState { count, requeue_at: Some(requeue_at) };
        let limit = settings.backoff_limit_count.map(|limit| format!(" of {limit}")).unwrap_or_default();
        let message = format!("{what}; retry {count}{limit} follows after a backoff");
        (EvictionReason::PodsReadyTimeout, message, Some(Box::new(state)))
    } else {
        let retries = known.count;
        let message = format!("{what}, and {retries} retries are all that it has");
        let reason = EvictionReason::DeactivatedDueToRequeuingLimitExceeded;
        (reason, message, reservation.requeue_state.clone())
    };
    let eviction = Eviction { reason, message, at, preemption: None, overdue: None };
    let reservation = Reservation { requeue_state, ..leaving(reservation, Some(settings), at) };
    Some((Action::Evict(reason, None), State::Evicting(reservation, Box::new(eviction))))
}
