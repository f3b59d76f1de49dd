//! How long a flavor may take until all pods are ready, and what happens when it took too long, or all did.

use gangway_model::checks::CheckAnswer;
use gangway_model::fallback::{FailurePolicy, FallbackStrategy, FlavorHistory};
use gangway_model::queues::ClusterQueue;
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::reasons::{EvictionReason, FallbackTrigger, RequeueReason};
use gangway_model::workload::{
    Admission, Eviction, Pending, RequeueState, Requeued, Reservation, State, Workload,
};
use gangway_model::{ClusterQueueName, FlavorName, PODS_RESOURCE, ResourceName, Timestamp};

use crate::checks;
use crate::decision::Action;
use crate::durable::Durable;
use crate::lifecycle::{Held, leaving};
use crate::readiness;

/// The strategy of a queue, if it has one.
pub(crate) fn strategy<'d>(durable: &'d Durable, queue: &ClusterQueueName) -> Option<&'d FallbackStrategy> {
    if durable.queues_that_fall_back == 0 {
        return None;
    }
    durable.cluster_queues.get(queue)?.fallback.as_ref()
}

/// The flavors that a Workload does not try any more, in order: those that it gave up, where its queue asks for that.
#[inline]
pub(crate) fn excluded(durable: &Durable, workload: &Workload) -> Vec<FlavorName> {
    let Some(history) = workload.state.history().filter(|_| durable.queues_that_fall_back > 0) else {
        return Vec::new();
    };
    let queue = durable.cluster_queue_of(workload);
    if queue.and_then(|queue| strategy(durable, queue)).is_none() {
        return Vec::new();
    }
    let mut flavors: Vec<FlavorName> = history.exhausted().cloned().collect();
    flavors.sort();
    flavors
}

/// What is written down of the flavors of somebody who gets quota. What a queue does not have any more is forgotten.
pub(crate) fn at_reservation(
    queue: &ClusterQueue,
    admission: &Admission,
    known: Option<Box<FlavorHistory>>,
    at: Timestamp,
) -> Option<Box<FlavorHistory>> {
    queue.fallback.as_ref()?;
    let mut history = known.map(|known| *known).unwrap_or_default();
    let has = |flavor: &FlavorName| {
        queue.resource_groups.iter().flat_map(|group| &group.flavors).any(|quotas| quotas.flavor == *flavor)
    };
    history.0.retain(|attempt| has(&attempt.flavor));
    admission.flavors().into_iter().for_each(|flavor| history.assign(flavor, at));
    history.noted()
}

/// What is written down of the flavors of somebody who is told to leave: their time stops. It ran from the reservation on,
/// even if the rules came later. Those without any time left are given up, whatever the reason to leave.
pub(crate) fn at_eviction(
    durable: &Durable,
    reservation: &Reservation,
    at: Timestamp,
) -> Option<Box<FlavorHistory>> {
    let strategy = strategy(durable, &reservation.admission.cluster_queue);
    let known = reservation.history.as_deref().cloned();
    let mut history = known.or_else(|| strategy.map(|_| FlavorHistory::default()))?;
    if reservation.waits_for_start() {
        for flavor in reservation.admission.flavors() {
            history.take_away(flavor, reservation.reserved_at, at);
            let timeout = strategy.and_then(|strategy| strategy.timeout_seconds(flavor));
            if timeout.is_some_and(|timeout| history.accumulated_seconds(flavor) >= timeout) {
                history.give_up(flavor, FallbackTrigger::TimeoutForPodsReadyExceeded);
            }
        }
    }
    history.noted()
}

/// Whether every flavor of an admission has a time of its own: then the general one rests.
pub(crate) fn has_all_times(durable: &Durable, admission: &Admission) -> bool {
    let Some(strategy) = strategy(durable, &admission.cluster_queue) else { return false };
    let flavors = admission.flavors();
    !flavors.is_empty() && flavors.iter().all(|flavor| strategy.timeout_seconds(flavor).is_some())
}

/// The flavors that somebody who has not started yet has only for a time, and until when.
fn deadlines<'r>(
    strategy: &'r FallbackStrategy,
    reservation: &'r Reservation,
) -> impl Iterator<Item = (&'r FlavorName, Timestamp)> {
    let flavors = if reservation.waits_for_start() { reservation.admission.flavors() } else { Vec::new() };
    flavors.into_iter().filter_map(|flavor| {
        let history = reservation.history.as_ref();
        let used = history.map_or(0, |history| history.accumulated_seconds(flavor));
        let left = (strategy.timeout_seconds(flavor)? - used).max(0);
        Some((flavor, reservation.reserved_at.plus_seconds(left)))
    })
}

/// Until when all pods have to be ready so that no flavor is given up.
pub(crate) fn deadline(durable: &Durable, reservation: &Reservation) -> Option<Timestamp> {
    if !reservation.waits_for_start() {
        return None;
    }
    let strategy = strategy(durable, &reservation.admission.cluster_queue)?;
    deadlines(strategy, reservation).map(|(_, at)| at).min()
}

/// The machines of a flavor did not come in time: whoever has it leaves, and another one is tried at once. Where the time
/// that all flavors have was over before, that is what counts.
pub(crate) fn out_of_time(held: Held<'_>) -> Option<(Action, State)> {
    let Held { durable, reservation, at, .. } = held;
    let strategy = strategy(durable, &reservation.admission.cluster_queue)?;
    let first = deadlines(strategy, reservation).map(|(_, until)| until).min()?;
    if first > at || readiness::was_over_before(held, first) {
        return None;
    }
    let over: Vec<&FlavorName> = deadlines(strategy, reservation)
        .filter(|(_, until)| *until <= at)
        .map(|(flavor, _)| flavor)
        .collect();
    let times: Vec<String> = over
        .iter()
        .filter_map(|flavor| Some(format!("{flavor} had {} s", strategy.timeout_seconds(flavor)?)))
        .collect();
    let message = format!("Not all pods were ready in time: {}; another flavor is tried", times.join(", "));
    Some(gives_up(held, &over, FallbackTrigger::TimeoutForPodsReadyExceeded, message))
}

/// Checks rejected a Workload: it falls back if every flavor that they speak of has a rule for that.
pub(crate) fn after_rejection(held: Held<'_>, rejected: &[&CheckAnswer]) -> Option<(Action, State)> {
    let queue = held.durable.cluster_queues.get(&held.reservation.admission.cluster_queue)?;
    let strategy = queue.fallback.as_ref()?;
    let speaks_of = |flavor: &&FlavorName| {
        let demanded = queue.admission_checks.iter();
        let mut theirs = demanded.filter(|check| rejected.iter().any(|answer| answer.name == check.name));
        theirs.any(|check| check.concerns(flavor))
    };
    let flavors: Vec<&FlavorName> =
        held.reservation.admission.flavors().into_iter().filter(speaks_of).collect();
    if flavors.is_empty() || !flavors.iter().all(|flavor| strategy.falls_back_when_rejected(flavor)) {
        return None;
    }
    let message = format!(
        "An admission check rejected the flavor: {}; another flavor is tried",
        checks::told(rejected)
    );
    Some(gives_up(held, &flavors, FallbackTrigger::AdmissionCheckRejected, message))
}

fn gives_up(
    held: Held<'_>,
    flavors: &[&FlavorName],
    trigger: FallbackTrigger,
    message: String,
) -> (Action, State) {
    let Held { durable, policy, reservation, at, .. } = held;
    let reason = EvictionReason::FlavorFallback;
    let mut left = leaving(durable, reservation, policy.readiness, at);
    let mut history = left.history.take().unwrap_or_default();
    flavors.iter().for_each(|flavor| history.give_up(flavor, trigger));
    left.history = Some(history);
    let eviction = Eviction { reason, message, at, preemption: None, overdue: None };
    (Action::Evict(reason, None), State::Evicting(left, Box::new(eviction)))
}

/// Somebody who waits has given up every flavor that it could have: it tries all of them again after a while, or not at all.
pub(crate) fn all_given_up(
    pending: &Pending,
    workload: &Workload,
    strategy: &FallbackStrategy,
    readiness: Option<&WaitForPodsReady>,
    at: Timestamp,
) -> (Action, State) {
    match strategy.failure_policy {
        FailurePolicy::RetryAllFlavors => {
            let mut history = pending.history.clone().unwrap_or_default();
            history.begin_again();
            let settings = readiness.cloned().unwrap_or_default();
            let until = at.plus_seconds(settings.backoff_seconds(&workload.uid, history.rounds()));
            let known = pending.requeue_state.as_deref().copied().unwrap_or_default();
            let requeue_state =
                RequeueState { requeue_at: known.requeue_at.max(Some(until)), ..known }.noted();
            let requeued = Some(Requeued { eligible: false, reason: RequeueReason::FlavorFallback, at });
            let pending = Pending { history: Some(history), requeue_state, requeued, ..pending.clone() };
            (Action::RetryAllFlavors, State::Pending(pending))
        }
        FailurePolicy::DeactivateWorkload => {
            let reason = EvictionReason::DeactivatedDueToFlavorFallbackExhausted;
            let flavors: Vec<&str> =
                pending.history.iter().flat_map(|history| history.exhausted()).map(|f| f.as_str()).collect();
            let message = format!("Every flavor that it could have was given up: {}", flavors.join(", "));
            let eviction = Eviction { reason, message, at, preemption: None, overdue: None };
            // What is written down of an earlier deactivation says nothing about this one.
            let requeued = pending.requeued.clone().filter(|out| !tells_of_deactivation(out));
            let pending = Pending { evicted: Some(Box::new(eviction)), requeued, ..pending.clone() };
            (Action::Evict(reason, None), State::Pending(pending))
        }
    }
}

/// Somebody who waits asks for something else than before, or in another queue: what it tried says nothing about that.
pub(crate) fn forget_what_is_old(workload: &Workload) -> Option<(Action, State)> {
    let State::Pending(pending) = &workload.state else { return None };
    pending.history.as_ref()?;
    // Nor does the wait for the next round, which is the only one that is under this name.
    let waits_for_round = |out: &Requeued| !out.eligible && out.reason == RequeueReason::FlavorFallback;
    let requeue_state = match pending.requeue_state.as_deref() {
        Some(known) if pending.requeued.as_ref().is_some_and(waits_for_round) => {
            RequeueState { requeue_at: None, ..*known }.noted()
        }
        _ => pending.requeue_state.clone(),
    };
    let pending = Pending { history: None, requeue_state, ..pending.clone() };
    Some((Action::ForgetHistory, State::Pending(pending)))
}

/// Somebody without quota is to be deactivated, and that is not done yet: it is neither written down that it is, nor that
/// somebody activated it again.
pub(crate) fn is_being_deactivated(pending: &Pending) -> bool {
    pending.evicted.as_ref().is_some_and(|eviction| eviction.reason.deactivates())
        && !pending.requeued.as_ref().is_some_and(tells_of_deactivation)
}

/// Whether it is written down that a Workload was deactivated, or that it was activated after that.
fn tells_of_deactivation(out: &Requeued) -> bool {
    out.reason.is_deactivation() || out.reason == RequeueReason::Reactivated
}

/// A flavor on the way down that a Workload may have to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The flavor.
    pub flavor: FlavorName,
    /// Why it was given up, if it was.
    pub given_up: Option<FallbackTrigger>,
    /// Whether the Workload has it now and its time runs.
    pub is_running: bool,
    /// How much of its time is used up.
    pub used_seconds: i64,
    /// How much it has; none if it may take for ever.
    pub timeout_seconds: Option<i64>,
}

/// The flavors of a queue that gives them up, in the order in which they are tried, one list for each group that a Workload
/// needs something of; none if the queue gives up none.
pub fn ladder(queue: &ClusterQueue, workload: &Workload, now: Timestamp) -> Vec<Vec<Rung>> {
    let Some(strategy) = &queue.fallback else { return Vec::new() };
    let held = match &workload.state {
        State::Holding(held) if held.waits_for_start() && held.admission.cluster_queue == queue.name => {
            Some(held)
        }
        _ => None,
    };
    let history = workload.state.history();
    let rung = |flavor: &FlavorName| {
        let tried = history.and_then(|history| history.find(flavor));
        let runs_since =
            held.filter(|held| held.admission.flavors().contains(&flavor)).map(|held| held.reserved_at);
        let running = runs_since.map_or(0, |since| (now.as_seconds() - since.as_seconds()).max(0));
        Rung {
            flavor: flavor.clone(),
            given_up: tried.and_then(|tried| tried.exhausted),
            is_running: runs_since.is_some(),
            used_seconds: tried.map_or(0, |tried| tried.accumulated_seconds).saturating_add(running),
            timeout_seconds: strategy.timeout_seconds(flavor),
        }
    };
    let is_needed = |resource: &ResourceName| {
        let mut pods = workload.pod_sets.iter();
        resource.as_str() == PODS_RESOURCE || pods.any(|set| set.requests.contains(resource.as_str()))
    };
    let groups = queue.resource_groups.iter().filter(|group| group.resources.iter().any(is_needed));
    groups.map(|group| group.flavors.iter().map(|quotas| rung(&quotas.flavor)).collect()).collect()
}
