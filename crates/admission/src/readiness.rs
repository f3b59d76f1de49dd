//! Whether the pods of those who may run are ready, and for how long they may not be.

use gangway_model::planted::Bug;
use gangway_model::readiness::{EffectiveTimeouts, WaitForPodsReady};
use gangway_model::reasons::{EvictionReason, ReadinessReason};
use gangway_model::workload::{Eviction, PodsReady, RequeueState, Reservation, State, Workload};
use gangway_model::{ClusterQueueName, Timestamp};

use crate::decision::Action;
use crate::durable::Durable;
use crate::engine::Engine;
use crate::event::ReadyPods;
use crate::fallback;
use crate::lifecycle::{Held, leaving};

/// What is written down of the pods of somebody who is admitted now; none if nobody asks.
pub(crate) fn at_admission(
    durable: &Durable,
    settings: Option<&WaitForPodsReady>,
    workload: &Workload,
    reservation: &Reservation,
) -> Option<Box<PodsReady>> {
    let at = reservation.admitted_at?;
    if settings.is_none() && !is_asked_for_by_fallback(durable, reservation) {
        return None;
    }
    let general = settings.and_then(|settings| deadline(durable, settings, workload, reservation));
    let flavors = fallback::deadline(durable, reservation);
    let until = general.map(|(_, until)| until).into_iter().chain(flavors).min();
    let allowed_seconds = until.map(|until| (until.as_seconds() - at.as_seconds()).max(0));
    Some(Box::new(PodsReady { reason: ReadinessReason::WaitForStart, at, allowed_seconds }))
}

/// Whether it has to be known when the pods of somebody are ready, because its queue gives up flavors.
fn is_asked_for_by_fallback(durable: &Durable, reservation: &Reservation) -> bool {
    fallback::strategy(durable, &reservation.admission.cluster_queue).is_some()
}

/// How many pods of a Workload's Job are ready, and how many have to be; none if its Job does not run.
pub(crate) fn pods(durable: &Durable, workload: &Workload) -> Option<ReadyPods> {
    durable.jobs.get(workload.owner.as_ref()?)?.pods
}

fn are_ready(durable: &Durable, workload: &Workload) -> bool {
    pods(durable, workload).is_some_and(ReadyPods::are_enough)
}

/// Writes down that the pods of somebody who may run are ready now, or are not any more.
pub(crate) fn follow_pods(held: Held<'_>) -> Option<(Action, State)> {
    use ReadinessReason::{Recovered, Started, WaitForRecovery, WaitForStart};
    let Held { durable, policy, workload, reservation, at } = held;
    reservation.admitted_at?;
    let settings = policy.readiness;
    let known = reservation.pods_ready.as_ref().map(|ready| ready.reason);
    let for_fallback = is_asked_for_by_fallback(durable, reservation);
    let reason = match (settings, known) {
        (None, Some(_)) if policy.drops_readiness && !for_fallback => None,
        (None, _) if !for_fallback => return None,
        // Whoever runs its pods writes it down; what was tried before that is no use any more.
        _ if workload.owner.is_none() => match known {
            Some(reason) if reason.is_ready() && reservation.history.is_some() => Some(reason),
            _ => return None,
        },
        (_, known) => match (known.unwrap_or(WaitForStart), are_ready(durable, workload)) {
            (WaitForStart, true) => Some(Started),
            (WaitForRecovery, true) => Some(Recovered),
            // Who only had to start in time may lose pods.
            (Started | Recovered, false) if settings.is_some() => Some(WaitForRecovery),
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
    let at_since = |ready: Box<PodsReady>| match reservation.pods_ready.as_deref() {
        Some(known) if known.reason == ready.reason => Box::new(*known),
        _ => ready,
    };
    let pods_ready = pods_ready.map(at_since);
    // Machines came: what is known of those that did not is old.
    let is_ready = reason.is_some_and(ReadinessReason::is_ready);
    let history = reservation.history.clone().filter(|_| !is_ready);
    let reservation = Reservation { pods_ready, requeue_state, history, ..reservation.clone() };
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

/// A timeout that a Job asks for and that its queue does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// What it is for.
    pub reason: ReadinessReason,
    /// What the Job asks for.
    pub asked_seconds: i64,
    /// What holds instead.
    pub allowed_seconds: i64,
}

impl Engine {
    /// The timeouts that a Job asks for in vain, because its queue allows only shorter ones.
    pub fn timeouts_too_long(&self, workload: &Workload) -> Vec<TooLong> {
        let (Some(settings), Some(asked)) = (&self.readiness, workload.timeouts.as_deref()) else {
            return Vec::new();
        };
        let Some(queue) = self.durable.cluster_queue_of(workload) else { return Vec::new() };
        let allowed = timeouts(&self.durable, settings, workload, queue);
        let pairs = [
            (ReadinessReason::WaitForStart, asked.start_seconds, Some(allowed.start_seconds)),
            (ReadinessReason::WaitForRecovery, asked.recovery_seconds, allowed.recovery_seconds),
        ];
        let too_long = pairs.into_iter().filter_map(|(reason, asked, allowed)| {
            let (asked_seconds, allowed_seconds) = asked.zip(allowed)?;
            // 0 asks for any time.
            let is_too_long = asked_seconds == 0 || asked_seconds > allowed_seconds;
            is_too_long.then_some(TooLong { reason, asked_seconds, allowed_seconds })
        });
        too_long.collect()
    }
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
    let of_job = workload.timeouts.as_deref().copied().unwrap_or_default();
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
        ReadinessReason::WaitForStart if fallback::has_all_times(durable, &reservation.admission) => {
            return None;
        }
        ReadinessReason::WaitForStart => admitted_at.plus_seconds(timeouts.start_seconds),
        ReadinessReason::WaitForRecovery => known?.at.plus_seconds(timeouts.recovery_seconds?),
        ReadinessReason::Started | ReadinessReason::Recovered => return None,
    };
    Some((reason, at))
}

/// Whether the pods of somebody who may run had to be ready before a moment.
pub(crate) fn was_over_before(held: Held<'_>, moment: Timestamp) -> bool {
    let Held { durable, policy, workload, reservation, .. } = held;
    let deadline = policy.readiness.and_then(|settings| deadline(durable, settings, workload, reservation));
    deadline.is_some_and(|(_, until)| until < moment)
}

/// The pods of somebody who may run were not ready in time: it leaves, and is tried again later or not at all.
pub(crate) fn out_of_time(held: Held<'_>) -> Option<(Action, State)> {
    let Held { durable, policy, workload, reservation, at } = held;
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
    let reservation = Reservation { requeue_state, ..leaving(durable, reservation, Some(settings), at) };
    Some((Action::Evict(reason, None), State::Evicting(reservation, Box::new(eviction))))
}
