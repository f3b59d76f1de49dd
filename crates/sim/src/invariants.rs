//! Everything that must always hold, and everything that must hold in the end. One list.
//!
//! Each is a sentence and a check over objects and pods; the engine's own memory is not asked. The safety ones are checked
//! after every step, the others when the faults have stopped and nothing happens any more.

use std::collections::BTreeSet;

use gangway_model::conditions::conditions;
use gangway_model::queues::{QueueingStrategy, ReclaimWithinCohort, StopPolicy, WithinClusterQueue};
use gangway_model::reasons::{EvictionReason, PreemptionReason, ReadinessReason};
use gangway_model::workload::{State, Workload};
use gangway_model::{ClusterQueueName, Timestamp, Uid};

use crate::dues::Lately;
use crate::quota;
use crate::tried::{self, checks_agree, tried};
use crate::view::{SeenWorkload, Step, View, is_leaving};
use crate::witness::CONTROLLERS;

/// A sentence that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub id: &'static str,
    /// What was seen.
    pub what: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sentence = INVARIANTS.iter().find(|invariant| invariant.id == self.id);
        write!(f, "{}: {}\n    {}", self.id, sentence.map_or("", |i| i.sentence), self.what)
    }
}

/// When a sentence is checked.
enum When {
    /// After every step.
    Step(fn(&Context<'_>) -> Option<String>),
    /// When nothing happens any more.
    Rest(fn(&View, &Rest) -> Option<String>),
}

/// A sentence that must hold.
pub struct Invariant {
    /// Its name in the specification.
    pub id: &'static str,
    /// The sentence.
    pub sentence: &'static str,
    when: When,
}

/// A step that was just made.
pub(crate) struct Context<'a> {
    pub(crate) view: &'a View,
    pub(crate) step: &'a Step,
    pub(crate) now: Timestamp,
}

impl<'a> Context<'a> {
    /// The Workload that changed, as it is now.
    pub(crate) fn changed(&self) -> Option<&'a SeenWorkload> {
        self.view.workloads.get(self.step.workload.as_ref()?)
    }

    pub(crate) fn state_before(&self) -> Option<&'a State> {
        self.step.before.as_ref().map(|before| &before.record.state)
    }

    /// The Workload that got quota with this step.
    pub(crate) fn admitted(&self) -> Option<&'a SeenWorkload> {
        let had = self.state_before().is_some_and(|state| state.reservation().is_some());
        self.changed().filter(|seen| !had && seen.record.state.reservation().is_some())
    }

    /// The Workload that was told to leave with this step.
    fn evicted(&self) -> Option<&'a SeenWorkload> {
        let was_leaving = self.state_before().is_some_and(is_leaving);
        self.changed().filter(|seen| !was_leaving && is_leaving(&seen.record.state))
    }
}

/// What is known when nothing happens any more.
pub struct Rest {
    /// The time that it is.
    pub now: Timestamp,
    /// What still happened when the patience was over, if it never became quiet.
    pub restless: Option<String>,
    /// Who would be admitted by a controller that started now.
    pub forgotten: Vec<String>,
    /// What a controller that started now would know otherwise than the one that runs.
    pub misremembered: Option<String>,
    /// Every Job ends by itself, and nobody changed a queue while they did.
    pub all_end: bool,
    /// How many Workloads there were, and how many times somebody interfered.
    pub occasions: usize,
}

/// When all who had to leave have left, their preemptor gets quota within this many seconds: a controller may have to come
/// back first.
const START_SECONDS: i64 = 300;

/// How many of those that passed somebody by may end before it gets quota: what was decided together lands in any order.
const MOST_PASSED_BY: usize = 2;

macro_rules! invariants {
    ($($id:literal $when:ident $check:ident $sentence:literal)*) => {
        /// All of them.
        pub const INVARIANTS: &[Invariant] =
            &[$(Invariant { id: $id, sentence: $sentence, when: When::$when($check) },)*];
    };
}

invariants! {
    "S1" Step no_oversubscription "No queue uses more than its own and what it may borrow, no tree more than it has; pods that outlive their quota count."
    "S2" Step no_double_admission "A Workload has quota once, in one set of flavors; none that has ended gets some, and no Job through two Workloads."
    "S3" Step one_state "Every Workload is in exactly one state."
    "S5" Step legal_preemption "A victim is one that its preemptor's queue may preempt: by priority in its own, or of a queue of its tree that borrows; and none could have been spared."
    "S6" Step no_idle_preemption "Nobody has to leave for a Workload that does not wait; nobody else takes the room, and when all have left, it gets quota."
    "S7" Step one_eviction "An eviction is counted once on its Workload."
    "S8" Step conditions_follow_state "Conditions are a function of the state."
    "S9" Step order "In one queue and shape, and in a strict queue whatever the shape, nobody is admitted before somebody who waits longer and has at least its priority."
    "S10" Step backoff "Nobody gets quota before the time until which it is not tried, and nobody who may run waits for such a time."
    "S11" Step count "How often a Workload was sent back grows by one with every eviction for not being ready, and falls only when it was ready for long or is activated after Gangway had deactivated it; who may not be sent back any more is deactivated."
    "S12" Step tried "What a Workload has used of a flavor's time only grows, and what it gave up stays given up and is not assigned, until its pods are ready or it begins anew; that is when every flavor was given up, and after a backoff; a flavor is given up only when its time is over or a check rejects it, and nobody is deactivated who could still have another."
    "S13" Step no_negative_number "No count and no sum is negative."
    "S14" Step fenced "Whoever does not lead, or does not lead any more, changes nothing."
    "G3" Step checks_agree "Nobody may run before every check that its queue demands for its flavors has agreed."
    "L6" Step bounded_starvation "Whoever was passed by gets quota before more than two of those that passed it have ended."
    "L1" Rest at_rest "With fixed inputs everything comes to rest and nothing is written any more."
    "L2" Rest all_admitted "Whoever could be admitted alone is admitted in the end."
    "L3" Rest bounded_evictions "A victim never preempts its preemptor, and evictions are bounded."
    "L4" Rest no_lost_wake_up "At rest, trying everybody again admits nobody."
    "L5" Rest every_wait_has_a_reason "Whoever waits says why, nobody waits for pods that are gone, nobody has pods that should have been ready or a flavor that should have been given up long ago, and nobody keeps quota that a check refused."
    "R1" Rest memory_is_true "What a controller that ran through all of it knows is what one knows that starts now."
    "S4" Rest told_is_true "What a queue says it has set aside is what its Workloads have."
    "G1" Rest nobody_holds_for_nothing "Quota is held only by Workloads whose Job is there and has not ended."
    "G2" Rest jobs_follow "A Job runs if and only if its Workload has quota and may run, and without it its template is its user's."
}

/// The first safety sentence that a step breaks.
pub fn check_step(view: &View, step: &Step, now: Timestamp) -> Option<Violation> {
    let context = Context { view, step, now };
    INVARIANTS.iter().find_map(|invariant| match invariant.when {
        When::Step(check) => check(&context).map(|what| Violation { id: invariant.id, what }),
        When::Rest(_) => None,
    })
}

/// The first sentence about the end that does not hold.
pub fn check_rest(view: &View, rest: &Rest) -> Option<Violation> {
    INVARIANTS.iter().find_map(|invariant| match invariant.when {
        When::Rest(check) => check(view, rest).map(|what| Violation { id: invariant.id, what }),
        When::Step(_) => None,
    })
}

fn no_oversubscription(context: &Context<'_>) -> Option<String> {
    let admission = &context.admitted()?.record.state.reservation()?.admission;
    let mut gets = quota::Use::new();
    quota::add_admission(&mut gets, admission);
    let asked = gets.iter().filter(|(_, amount)| **amount > 0);
    let problem = |(cell, _): (&quota::Cell, &i128)| {
        let problem = quota::exceeded(context.view, &admission.cluster_queue, cell)?;
        Some(format!("{problem} {} of flavor {} after {}", cell.1, cell.0, context.step.summary))
    };
    // A quota that was lowered a moment ago may not have been known.
    let is_new = context.view.was_redefined_lately(context.now);
    asked.filter(|_| !is_new).find_map(problem)
}

fn no_double_admission(context: &Context<'_>) -> Option<String> {
    let seen = context.changed()?;
    let name = &seen.record.name;
    if let (Some(before), Some(now)) =
        (context.state_before().and_then(State::reservation), seen.record.state.reservation())
        && before.admission != now.admission
    {
        return Some(format!("{name} has other quota than before without having left"));
    }
    let admitted = context.admitted()?;
    if context.state_before().is_some_and(State::is_finished) {
        return Some(format!("{name} had ended"));
    }
    let owner = admitted.record.owner.as_ref()?;
    let others = context.view.workloads.values().filter(|other| other.record.uid != admitted.record.uid);
    let other = others
        .filter(|other| other.record.owner.as_ref() == Some(owner))
        .find(|other| other.record.state.reservation().is_some())?;
    Some(format!("{name} and {} have quota for one Job", other.record.name))
}

fn one_state(context: &Context<'_>) -> Option<String> {
    let seen = context.changed().filter(|seen| seen.repaired)?;
    Some(format!("{} has conditions that contradict each other: {:?}", seen.record.name, seen.conditions))
}

fn conditions_follow_state(context: &Context<'_>) -> Option<String> {
    let seen = context.changed()?;
    let mut expected: Vec<(String, bool, String)> = conditions(&seen.record.state)
        .into_iter()
        .map(|condition| (condition.kind.as_str().to_owned(), condition.status, condition.reason))
        .collect();
    expected.sort();
    (expected != seen.conditions)
        .then(|| format!("{} says {:?}; its state would say {expected:?}", seen.record.name, seen.conditions))
}

fn legal_preemption(context: &Context<'_>) -> Option<String> {
    context.view.dues.needless.clone().or_else(|| illegal_preemption(context))
}

fn illegal_preemption(context: &Context<'_>) -> Option<String> {
    let view = context.view;
    let victim = context.evicted()?;
    let State::Evicting(reservation, eviction) = &victim.record.state else { return None };
    let preemption = eviction.preemption.as_ref()?;
    let preemptor = view.workloads.get(preemption.preemptor.as_ref()?)?;
    if view.was_redefined_lately(context.now) {
        return None;
    }
    let ours = view.queue_of(&preemptor.record)?;
    let theirs = &reservation.admission.cluster_queue;
    let policy = view.queues.get(ours)?.preemption;
    let (victim, preemptor) = (&victim.record, &preemptor.record);
    let problem = match preemption.reason {
        PreemptionReason::InClusterQueue => (ours != theirs)
            .then_some("they are of different queues")
            .or_else(|| within_queue_problem(policy.within_cluster_queue, victim, preemptor)),
        _ if ours == theirs => Some("they are of one queue"),
        _ if quota::root_of(view, ours) != quota::root_of(view, theirs) => {
            Some("they are of different trees")
        }
        _ if policy.reclaim_within_cohort == ReclaimWithinCohort::Never => Some("its queue never reclaims"),
        _ if !borrows(context, victim, theirs) => Some("its queue does not borrow"),
        _ if policy.reclaim_within_cohort == ReclaimWithinCohort::LowerPriority
            && victim.priority >= preemptor.priority =>
        {
            Some("its priority is not lower")
        }
        _ => None,
    };
    problem.map(|problem| format!("{} has to leave for {}: {problem}", victim.name, preemptor.name))
}

/// Whether a queue uses more than its own of something that one of its Workloads has, or did a moment ago.
fn borrows(context: &Context<'_>, workload: &Workload, queue: &ClusterQueueName) -> bool {
    let view = context.view;
    if view.freed_at.get(queue).is_some_and(|at| at.is_recent(context.now)) {
        return true;
    }
    let Some(reservation) = workload.state.reservation() else { return false };
    let mut has = quota::Use::new();
    quota::add_admission(&mut has, &reservation.admission);
    let used = quota::use_of(view, queue);
    let is_over =
        |cell: &quota::Cell| used.get(cell).copied().unwrap_or(0) > quota::nominal(view, queue, cell);
    has.iter().any(|(cell, amount)| *amount > 0 && is_over(cell))
}

fn within_queue_problem(
    policy: WithinClusterQueue,
    victim: &Workload,
    preemptor: &Workload,
) -> Option<&'static str> {
    let lower = victim.priority < preemptor.priority;
    let newer_equal = victim.priority == preemptor.priority && victim.created >= preemptor.created;
    match policy {
        WithinClusterQueue::Never => Some("its queue never preempts its own"),
        WithinClusterQueue::LowerPriority if !lower => Some("its priority is not lower"),
        WithinClusterQueue::LowerOrNewerEqualPriority if !lower && !newer_equal => {
            Some("it is neither of lower priority nor a newer equal")
        }
        _ => None,
    }
}

fn no_idle_preemption(context: &Context<'_>) -> Option<String> {
    let left_out = context.view.dues.preemptors.iter().find(|(_, preemptor)| {
        // Where one starts at a time, it may have to wait for others to start.
        let is_sequential = context.view.readiness.as_ref().is_some_and(|settings| settings.block_admission);
        !is_sequential
            && preemptor.has_its_room()
            && context.now >= preemptor.last_left_at.plus_seconds(START_SECONDS)
    });
    if context.view.dues.taken.is_some() {
        return context.view.dues.taken.clone();
    }
    if let Some((uid, _)) = left_out {
        let name = context.view.workloads.get(uid).map(|seen| seen.record.name.to_string());
        return Some(format!("{} waits although all have left for it", name.unwrap_or_default()));
    }
    let victim = context.evicted()?;
    let uid = victim.record.state.preemptor()?;
    let name = &victim.record.name;
    // Who has just gone, ended or got what it wanted may not have been known to have.
    let preemptor = context.view.workloads.get(uid)?;
    let has_had_quota = preemptor.holds_since.is_some_and(|since| !since.is_recent(context.now));
    has_had_quota.then(|| format!("{name} has to leave for {}, which has quota", preemptor.record.name))
}

fn one_eviction(context: &Context<'_>) -> Option<String> {
    let seen = context.changed()?;
    let before = context.step.before.as_ref()?;
    let grew = seen.counted_evictions - before.counted_evictions;
    let expected = i64::from(context.evicted().is_some() || tried::is_deactivated_in_queue(context));
    // Until the counts are written there is nothing to compare.
    let counts = seen.counted_evictions > 0 || before.counted_evictions > 0;
    (counts && grew != expected)
        .then(|| format!("{} counts {grew} evictions more, it was told {expected} times", seen.record.name))
}

fn order(context: &Context<'_>) -> Option<String> {
    let passed = context.view.dues.passed_by.iter().find(|passed| !passed.at.is_recent(context.now))?;
    Some(format!("{}, which still waits", passed.what))
}

fn bounded_starvation(context: &Context<'_>) -> Option<String> {
    let passed_by = &context.view.dues.passed_by;
    let ended = |uid: &Uid| passed_by.iter().filter(|p| p.waiting == *uid).map(|p| p.ended).sum::<usize>();
    let starved = passed_by.iter().find(|passed| ended(&passed.waiting) > MOST_PASSED_BY)?;
    Some(format!("{}, and {} that passed it have ended", starved.what, ended(&starved.waiting)))
}

/// Until when a Workload is not tried.
fn not_before(state: &State) -> Option<Timestamp> {
    state.requeue_state()?.requeue_at
}

fn backoff(context: &Context<'_>) -> Option<String> {
    let may_be_wrong = context.view.clock_error_seconds;
    if let Some(admitted) = context.admitted()
        && let Some(until) = context.state_before().and_then(not_before)
        && context.now.plus_seconds(may_be_wrong) < until
    {
        return Some(format!("{} gets quota before {until:?}", admitted.record.name));
    }
    let changed = context.changed()?;
    let waits =
        matches!(changed.record.state, State::Holding(_)) && not_before(&changed.record.state).is_some();
    waits.then(|| format!("{} may run and is not to be tried", changed.record.name))
}

fn count(context: &Context<'_>) -> Option<String> {
    let changed = context.changed()?;
    if let Some(State::Evicting(_, eviction)) = context.state_before()
        && eviction.reason.deactivates()
        && matches!(changed.record.state, State::Pending(_))
        && !changed.was_inactive
    {
        return Some(format!("{} left for good and was never deactivated", changed.record.name));
    }
    let count = |state: &State| state.requeue_state().map_or(0, |state| state.count);
    let (was, is) = (count(context.state_before()?), count(&changed.record.state));
    let evicted = context.evicted().and_then(|seen| match &seen.record.state {
        State::Evicting(_, eviction) => Some(eviction.reason),
        _ => None,
    });
    let not_in_time = evicted == Some(EvictionReason::PodsReadyTimeout);
    let is_right = match (not_in_time, is == 0 && was > 0) {
        (true, _) => is == was + 1,
        (false, true) => may_count_anew(context),
        (false, false) => is == was,
    };
    (!is_right)
        .then(|| format!("{} counts {was}, then {is}, after {}", changed.record.name, context.step.summary))
}

/// Whether a Workload that was sent back before may begin to count anew with this step.
fn may_count_anew(context: &Context<'_>) -> bool {
    match context.state_before() {
        Some(State::Holding(before)) => {
            let ready = before.pods_ready.as_ref().filter(|ready| ready.reason.is_ready());
            let settings =
                context.view.readiness.as_ref().filter(|settings| settings.reset_after_ready_seconds > 0);
            ready.zip(settings).is_some_and(|(ready, settings)| {
                let ended = context.now.plus_seconds(2 * context.view.clock_error_seconds);
                settings.is_reset(ready.at, ended)
            })
        }
        Some(State::Pending(before)) => {
            before.requeued.as_ref().is_some_and(|out| out.reason.is_deactivation_by_gangway())
                && context.changed().is_some_and(|seen| seen.was_inactive)
        }
        _ => false,
    }
}

fn no_negative_number(context: &Context<'_>) -> Option<String> {
    let is_negative = context.step.queue_numbers.iter().any(|number| *number < 0);
    is_negative.then(|| format!("a number is negative after {}", context.step.summary))
}

fn fenced(context: &Context<'_>) -> Option<String> {
    let Step { by, summary, .. } = context.step;
    let leader = context.view.leader.as_ref().filter(|leader| *leader != by)?;
    let is_a_controller = CONTROLLERS.contains(&by.as_str());
    is_a_controller.then(|| format!("{by} made {summary} while the Lease is held by {leader:?}"))
}

fn at_rest(_: &View, rest: &Rest) -> Option<String> {
    rest.restless.clone()
}

/// Whether a Workload may wait in a queue that admits.
fn may_wait(view: &View, workload: &Workload) -> bool {
    let State::Pending(pending) = &workload.state else { return false };
    let queue = view.queue_of(workload).and_then(|name| view.queues.get(name));
    workload.active
        && !workload.deleting
        && workload.impediments.is_none()
        && pending.requeued.as_ref().is_none_or(|requeued| requeued.eligible)
        && queue.is_some_and(|queue| queue.stop_policy == StopPolicy::None && queue.invalid.is_none())
}

fn all_admitted(view: &View, rest: &Rest) -> Option<String> {
    if !rest.all_end {
        return None;
    }
    let waits = view.workloads.values().filter(|seen| may_wait(view, &seen.record));
    let waiting: Vec<&SeenWorkload> = waits.collect();
    let first = waiting.iter().find(|seen| {
        let queue = view.queue_of(&seen.record).and_then(|name| view.queues.get(name));
        let is_alone = queue.is_some_and(|queue| queue.strategy == QueueingStrategy::BestEffortFifo);
        let reason = match &seen.record.state {
            State::Pending(pending) => pending.waiting.as_ref().map(|waiting| waiting.reason),
            _ => None,
        };
        is_alone && reason == Some(gangway_model::reasons::PendingReason::WaitingForQuota)
    })?;
    let holders = view.workloads.values().filter(|seen| seen.record.state.reservation().is_some()).count();
    (holders == 0).then(|| format!("{} waits for quota that nobody uses", first.record.name))
}

fn bounded_evictions(view: &View, rest: &Rest) -> Option<String> {
    let most = 8 * rest.occasions;
    // How often flavors are given up, and checks refuse, is up to machines and checks.
    let evictions = view.evictions - view.given_up - view.refusals;
    if evictions > most {
        return Some(format!("{evictions} evictions on {} occasions", rest.occasions));
    }
    let mut left_for: std::collections::BTreeMap<&Uid, &Uid> = std::collections::BTreeMap::new();
    for preemption in &view.preemptions {
        let mut next = left_for.get(&preemption.preemptor).copied();
        let mut seen = BTreeSet::new();
        while let Some(uid) = next.filter(|uid| seen.insert(*uid)) {
            let back = *uid == preemption.victim;
            // Once it has had quota again it owes nobody anything; that is seen in its object, not here.
            if back
                && view
                    .workloads
                    .get(&preemption.preemptor)
                    .is_some_and(|seen| is_leaving(&seen.record.state))
            {
                return Some(format!(
                    "{} left for {} and takes its room",
                    preemption.preemptor, preemption.victim
                ));
            }
            next = left_for.get(uid).copied();
        }
        left_for.insert(&preemption.victim, &preemption.preemptor);
    }
    None
}

fn memory_is_true(_: &View, rest: &Rest) -> Option<String> {
    rest.misremembered.clone()
}

fn no_lost_wake_up(_: &View, rest: &Rest) -> Option<String> {
    let forgotten = rest.forgotten.first()?;
    Some(format!("{forgotten} would be admitted if somebody looked"))
}

fn every_wait_has_a_reason(view: &View, rest: &Rest) -> Option<String> {
    let mute = view.workloads.values().find(|seen| {
        matches!(&seen.record.state, State::Pending(pending) if pending.waiting.is_none())
            && !seen.record.deleting
    });
    if let Some(seen) = mute {
        return Some(format!("{} waits and does not say why", seen.record.name));
    }
    if let Some(seen) = view.workloads.values().find(|seen| is_late(view, seen, rest.now)) {
        return Some(format!(
            "{} has pods that are not ready, and the time that they have is over",
            seen.record.name
        ));
    }
    if let Some(what) = view.workloads.values().find_map(|seen| tried::is_kept_too_long(view, seen, rest.now))
    {
        return Some(what);
    }
    let stuck =
        view.workloads.values().find(|seen| is_leaving(&seen.record.state) && has_no_pods(view, seen))?;
    Some(format!("{} has to leave, its pods are gone, and it holds its quota", stuck.record.name))
}

/// Whether the pods of a Workload that may run had to be ready before now and are not.
fn is_late(view: &View, seen: &SeenWorkload, now: Timestamp) -> bool {
    let (Some(settings), State::Holding(held)) = (&view.readiness, &seen.record.state) else { return false };
    let Some(admitted_at) = held.admitted_at.filter(|_| !seen.record.deleting) else { return false };
    let ready = held.pods_ready.as_deref().filter(|ready| ready.reason != ReadinessReason::WaitForStart);
    let until = match ready {
        // The time of the flavors goes before it.
        None if tried::has_all_times(view, held) => None,
        None => Some(admitted_at.plus_seconds(settings.timeout_seconds)),
        Some(ready) if ready.reason == ReadinessReason::WaitForRecovery => {
            settings.recovery_timeout_seconds.map(|seconds| ready.at.plus_seconds(seconds))
        }
        Some(_) => None,
    };
    until.is_some_and(|until| until <= now)
}

fn has_no_pods(view: &View, seen: &SeenWorkload) -> bool {
    let owner = seen.record.owner.as_ref();
    !view.pods.values().any(|pod| Some(&pod.owner) == owner && pod.is_alive)
}

fn told_is_true(view: &View, _: &Rest) -> Option<String> {
    view.queues.keys().find_map(|queue| {
        let told = view.told.get(queue)?;
        let holders = view.workloads.values().filter_map(|seen| seen.record.state.reservation());
        let holders = holders.filter(|reservation| reservation.admission.cluster_queue == *queue);
        let count = holders.count();
        let mut used = quota::use_of(view, queue);
        used.retain(|_, amount| *amount != 0);
        let is_true = told.reserved == used && told.reserving == count as i64;
        (!is_true).then(|| format!("{queue} says {told:?}; {count} Workloads have {used:?}"))
    })
}

fn jobs_follow(view: &View, _: &Rest) -> Option<String> {
    view.jobs.iter().filter(|(_, job)| !job.has_ended).find_map(|(uid, job)| {
        let holder = view.holder_of(uid).filter(|seen| !is_leaving(&seen.record.state));
        let may_run = holder.is_some_and(|seen| seen.record.state.may_run());
        let problem = match (holder.filter(|_| may_run), job.runs) {
            (Some(_), false) => "has quota and does not run",
            (None, true) => "runs without quota",
            (None, false) if job.is_marked => "has no quota, and its template is not its user's",
            _ => return None,
        };
        Some(format!("Job {} {problem}", job.name))
    })
}

fn nobody_holds_for_nothing(view: &View, _: &Rest) -> Option<String> {
    let holders = view.workloads.values().filter(|seen| seen.record.state.reservation().is_some());
    let idle = holders.filter(|seen| {
        let job = seen.record.owner.as_ref().and_then(|owner| view.jobs.get(owner));
        seen.record.owner.is_some() && job.is_none_or(|job| job.has_ended)
    });
    let seen = idle.into_iter().next()?;
    Some(format!("{} holds quota for a Job that is gone or has ended", seen.record.name))
}
