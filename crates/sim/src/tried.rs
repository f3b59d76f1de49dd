//! What Workloads have tried and which checks have agreed, read from the objects.

use gangway_model::checks::{CheckAnswer, CheckAnswers, RequiredCheck};
use gangway_model::fallback::{FailurePolicy, FallbackStrategy, FlavorAttempt, FlavorHistory};
use gangway_model::queues::ClusterQueue;
use gangway_model::reasons::{CheckState, EvictionReason, FallbackTrigger};
use gangway_model::workload::{Pending, Reservation, State};
use gangway_model::{ClusterQueueName, FlavorName, Timestamp};

use crate::invariants::Context;
use crate::quota;
use crate::view::{SeenWorkload, View, flavors_of};

/// A Workload that changed, with what it had tried before and what it has tried now.
struct Change<'c> {
    context: &'c Context<'c>,
    before: &'c State,
    seen: &'c SeenWorkload,
    /// Its queue as it is now, unless that was told so lately that nobody may know.
    queue: Option<&'c ClusterQueue>,
}

impl<'c> Change<'c> {
    fn of(context: &'c Context<'c>) -> Option<Self> {
        let (before, seen) = (context.state_before()?, context.changed()?);
        let name = context.view.queue_of(&seen.record);
        let known = name.filter(|name| !context.view.has_new_rules(name, context.now));
        let queue = known.and_then(|name| context.view.queues.get(name));
        Some(Self { context, before, seen, queue })
    }

    fn state(&self) -> &'c State {
        &self.seen.record.state
    }

    fn strategy(&self) -> Option<&'c FallbackStrategy> {
        self.queue?.fallback.as_ref()
    }

    /// Whether everybody knows by now that a flavor is one of the queue's, and that it may be given up.
    fn keeps_what_was_tried(&self, flavor: &FlavorName) -> bool {
        self.strategy().is_some() && self.queue.is_some_and(|queue| flavors_of(queue).any(|f| f == flavor))
    }
}

/// S12.
pub(crate) fn tried(context: &Context<'_>) -> Option<String> {
    let change = Change::of(context)?;
    if change.state().is_finished() {
        return None;
    }
    let problem = forgets(&change)
        .or_else(|| begins_again_wrongly(&change))
        .or_else(|| gets_what_it_gave_up(&change))
        .or_else(|| gives_up_too_soon(&change))
        .or_else(|| is_deactivated_too_soon(&change))?;
    Some(format!("{} {problem}, after {}", change.seen.record.name, context.step.summary))
}

fn rounds(state: &State) -> u32 {
    state.history().map_or(0, FlavorHistory::rounds)
}

/// Whether a Workload may forget all that it has tried: its pods are ready, it is in another queue, or somebody activates it
/// whom Gangway had deactivated.
fn may_forget(change: &Change<'_>) -> bool {
    match (change.before, change.state()) {
        (State::Holding(_), State::Holding(now)) => {
            now.pods_ready.as_ref().is_some_and(|ready| ready.reason.is_ready())
        }
        (State::Pending(_), State::Pending(_)) if change.seen.has_moved => true,
        (State::Pending(before), State::Pending(_)) => {
            before.requeued.as_ref().is_some_and(|out| out.reason.is_deactivation_by_gangway())
                && change.seen.was_inactive
        }
        _ => false,
    }
}

/// Something that was tried is not known any more, or used less time than before.
fn forgets(change: &Change<'_>) -> Option<String> {
    let (before, state) = (change.before.history()?, change.state());
    let gets_quota = change.context.admitted().is_some();
    if may_forget(change) || rounds(change.before) < rounds(state) {
        return None;
    }
    before.0.iter().find_map(|was| {
        let flavor = &was.flavor;
        let Some(is) = state.history().and_then(|history| history.find(flavor)) else {
            // Who gets quota leaves out what its queue does not have, or does not give up any more.
            let may_leave_out = gets_quota && !change.keeps_what_was_tried(flavor);
            return (!may_leave_out).then(|| format!("has forgotten that it tried {flavor}"));
        };
        let used = was.accumulated_seconds.saturating_add(used_with(change, flavor));
        if is.accumulated_seconds != used {
            let is = is.accumulated_seconds;
            return Some(format!("has used {used} s of {flavor} and says {is} s"));
        }
        let is_taken_back = was.exhausted.is_some() && is.exhausted.is_none();
        is_taken_back.then(|| format!("had given up {flavor} and does not say so any more"))
    })
}

/// How much of a flavor's time a step takes: who is told to leave before its pods were ready has had it since it got quota.
fn used_with(change: &Change<'_>, flavor: &FlavorName) -> i64 {
    let (State::Holding(held), State::Evicting(_, eviction)) = (change.before, change.state()) else {
        return 0;
    };
    if !held.waits_for_start() || !held.admission.flavors().contains(&flavor) {
        return 0;
    }
    (eviction.at.as_seconds() - held.reserved_at.as_seconds()).max(0)
}

/// All flavors are tried again although that is not what the queue says, some are left, or it is not waited for.
fn begins_again_wrongly(change: &Change<'_>) -> Option<String> {
    let (was, is) = (rounds(change.before), rounds(change.state()));
    if is <= was {
        return None;
    }
    let State::Pending(pending) = change.state() else {
        return Some("begins again while it has quota".to_owned());
    };
    if is != was + 1 {
        return Some(format!("began again {was} times, then {is}"));
    }
    let is_fresh = |attempt: &FlavorAttempt| attempt.accumulated_seconds == 0 && attempt.exhausted.is_none();
    if !pending.history.as_ref().is_some_and(|history| history.0.iter().all(is_fresh)) {
        return Some("begins again and keeps something of what it tried".to_owned());
    }
    if change.strategy().is_some_and(|strategy| strategy.failure_policy != FailurePolicy::RetryAllFlavors) {
        return Some("begins again although its queue deactivates".to_owned());
    }
    if !waits_for_next_round(change, pending, is) {
        return Some(format!("begins round {is} without the backoff"));
    }
    left_over(change).map(|flavor| format!("begins again although it could still have {flavor}"))
}

fn waits_for_next_round(change: &Change<'_>, pending: &Pending, rounds: u32) -> bool {
    let settings = change.context.view.readiness.clone().unwrap_or_default();
    let seconds = settings.backoff_seconds(&change.seen.record.uid, rounds);
    let since = pending.requeued.as_ref().map(|requeued| requeued.at);
    let until = pending.requeue_state.as_ref().and_then(|state| state.requeue_at);
    since.zip(until).is_some_and(|(since, until)| until >= since.plus_seconds(seconds))
}

/// A flavor of its queue that a Workload had not given up before this step, and that has room enough for it; none if there is a
/// group of which there is none.
fn left_over<'c>(change: &Change<'c>) -> Option<&'c FlavorName> {
    let Context { view, now, .. } = *change.context;
    if view.was_redefined_lately(now) {
        return None;
    }
    let (queue, workload) = (change.queue?, &change.seen.record);
    let has_given_up = |flavor: &FlavorName| {
        change.before.history().is_some_and(|history| history.exhausted().any(|other| other == flavor))
    };
    let mut left = quota::needed_groups(queue, workload).map(|group| {
        let mut flavors = group.flavors.iter().map(|quotas| &quotas.flavor);
        flavors.find(|flavor| !has_given_up(flavor) && quota::could_have(view, &queue.name, workload, flavor))
    });
    let first = left.next()??;
    left.all(|flavor| flavor.is_some()).then_some(first)
}

fn gets_what_it_gave_up(change: &Change<'_>) -> Option<String> {
    let admission = &change.context.admitted()?.record.state.reservation()?.admission;
    let history = change.state().history()?;
    let flavor = admission.flavors().into_iter().find(|flavor| history.exhausted().any(|f| f == *flavor))?;
    Some(format!("gets {flavor}, which it had given up"))
}

/// A flavor is given up although it has time left, and no check rejects it.
fn gives_up_too_soon(change: &Change<'_>) -> Option<String> {
    let (strategy, history) = (change.strategy()?, change.state().history()?);
    let is_new = |attempt: &&FlavorAttempt| {
        let before = change.before.history().and_then(|history| history.find(&attempt.flavor));
        attempt.exhausted.is_some() && before.is_some_and(|before| before.exhausted.is_none())
    };
    let is_rejected =
        change.before.checks().is_some_and(|checks| checks.that_say(CheckState::Rejected).next().is_some());
    let too_soon = history.0.iter().filter(is_new).find(|attempt| match attempt.exhausted {
        Some(FallbackTrigger::TimeoutForPodsReadyExceeded) => {
            strategy.timeout_seconds(&attempt.flavor).is_none_or(|most| attempt.accumulated_seconds < most)
        }
        _ => !is_rejected || !strategy.falls_back_when_rejected(&attempt.flavor),
    })?;
    let FlavorAttempt { flavor, accumulated_seconds, .. } = too_soon;
    Some(format!("gives up {flavor} after {accumulated_seconds} s, and nothing asks for that"))
}

/// Whether somebody who waits was deactivated with this step because it has given up every flavor.
pub(crate) fn is_deactivated_in_queue(context: &Context<'_>) -> bool {
    let is_exhausted = |state: &State| {
        let State::Pending(Pending { evicted: Some(eviction), .. }) = state else { return false };
        eviction.reason == EvictionReason::DeactivatedDueToFlavorFallbackExhausted
    };
    context.changed().is_some_and(|seen| is_exhausted(&seen.record.state))
        && !context.state_before().is_some_and(is_exhausted)
}

fn is_deactivated_too_soon(change: &Change<'_>) -> Option<String> {
    if !is_deactivated_in_queue(change.context) {
        return None;
    }
    if change.strategy().is_some_and(|strategy| strategy.failure_policy == FailurePolicy::RetryAllFlavors) {
        return Some("is deactivated although its queue tries all flavors again".to_owned());
    }
    left_over(change).map(|flavor| format!("is deactivated although it could still have {flavor}"))
}

fn says(checks: Option<&CheckAnswers>, name: &gangway_model::AdmissionCheckName) -> Option<CheckState> {
    checks.and_then(|checks| checks.find(name)).map(|answer| answer.state)
}

/// G3.
pub(crate) fn checks_agree(context: &Context<'_>) -> Option<String> {
    let changed = context.changed()?;
    let State::Holding(held) = &changed.record.state else { return None };
    let may_run_since = |state: &State| state.reservation().and_then(|held| held.admitted_at);
    if held.admitted_at.is_none() || context.state_before().and_then(may_run_since).is_some() {
        return None;
    }
    let name = &changed.record.name;
    let checks = held.checks.as_deref();
    if let Some(answer) = checks.and_then(|c| c.0.iter().find(|answer| answer.state != CheckState::Ready)) {
        return Some(format!("{name} may run although check {} says {}", answer.name, answer.state));
    }
    let queue_name = &held.admission.cluster_queue;
    let queue =
        context.view.queues.get(queue_name).filter(|_| !context.view.has_new_rules(queue_name, context.now));
    let flavors = held.admission.flavors();
    let mut demanded = queue?.admission_checks.iter();
    let silent = demanded.find(|check| {
        flavors.iter().any(|flavor| check.concerns(flavor))
            && says(checks, &check.name) != Some(CheckState::Ready)
    })?;
    Some(format!("{name} may run although nobody asked check {}", silent.name))
}

fn strategy<'v>(view: &'v View, queue: &ClusterQueueName) -> Option<&'v FallbackStrategy> {
    view.queues.get(queue)?.fallback.as_ref()
}

/// Whether every flavor of a reservation has a time of its own.
pub(crate) fn has_all_times(view: &View, held: &Reservation) -> bool {
    let Some(strategy) = strategy(view, &held.admission.cluster_queue) else { return false };
    held.admission.flavors().iter().all(|flavor| strategy.timeout_seconds(flavor).is_some())
}

/// Why somebody should have left long ago: the time of its flavor is over, or a check refused it.
pub(crate) fn is_kept_too_long(view: &View, seen: &SeenWorkload, now: Timestamp) -> Option<String> {
    let State::Holding(held) = &seen.record.state else { return None };
    if seen.record.deleting {
        return None;
    }
    let name = &seen.record.name;
    let refuses = |state: CheckState| matches!(state, CheckState::Retry | CheckState::Rejected);
    let queue = view.queues.get(&held.admission.cluster_queue);
    let is_demanded = |answer: &&CheckAnswer| {
        let mut demanded = queue.into_iter().flat_map(|queue| &queue.admission_checks);
        let concerns = |check: &RequiredCheck| held.admission.flavors().iter().any(|f| check.concerns(f));
        demanded.any(|check| check.name == answer.name && concerns(check))
    };
    let mut answers = held.checks.iter().flat_map(|checks| &checks.0).filter(is_demanded);
    if let Some(answer) = answers.find(|answer| refuses(answer.state)) {
        return Some(format!("{name} has quota although check {} says {}", answer.name, answer.state));
    }
    let strategy = strategy(view, &held.admission.cluster_queue).filter(|_| held.waits_for_start())?;
    let late = held.admission.flavors().into_iter().find(|flavor| {
        let used = held.history.as_ref().map_or(0, |history| history.accumulated_seconds(flavor));
        let left = strategy.timeout_seconds(flavor).map(|most| (most - used).max(0));
        left.is_some_and(|left| held.reserved_at.plus_seconds(left) <= now)
    })?;
    Some(format!("{name} keeps {late}, whose time is over"))
}
