//! The invariants, checked over objects.

use std::collections::BTreeMap;

use gangway_admission::{Action, Decision, Situation};
use gangway_model::conditions::{Notes, Reading, conditions, read};
use gangway_model::queues::QueueingStrategy;
use gangway_model::reasons::{EvictionReason, RequeueReason};
use gangway_model::workload::{Admission, State, Workload};

use crate::slow_model;
use crate::store::{Cell, cells, nominal, stored_admission};
use crate::world::World;

/// After every step.
pub fn check(world: &World) {
    if let Err(violation) = world.engine.check() {
        panic!("check: {violation}");
    }
    let rebuilt = world.seen.rebuilt(world.now);
    assert!(rebuilt.durable() == world.engine.durable(), "R1: a rebuilt engine knows something else");
    if world.is_caught_up() {
        assert!(world.seen == world.store, "the world lost track of what the engine was told");
    }
    if let Err(violation) = rebuilt.check() {
        panic!("check after a restart: {violation}");
    }
    for workload in world.store.workloads.values() {
        check_conditions(workload);
    }
}

/// S8: what stands in the object means the state that was written, and nothing had to be repaired.
fn check_conditions(workload: &Workload) {
    let notes = Notes {
        admission: stored_admission(&workload.state),
        preemptor: workload.state.preemptor().cloned(),
        requeue_state: workload.state.requeue_state().copied(),
        checks: workload.state.checks().cloned().unwrap_or_default(),
        history: workload.state.history().cloned().unwrap_or_default(),
    };
    let reading = read(&conditions(&workload.state), notes);
    let expected = Reading { state: workload.state.clone(), repaired: false };
    assert_eq!(reading, expected, "S8: {} reads back differently", workload.name);
}

/// When decisions are made.
pub fn check_decisions(world: &World, decisions: &[Decision]) {
    for (index, decision) in decisions.iter().enumerate() {
        let workload = &world.seen.workloads[&decision.uid];
        check_exhaustion(world, decision, workload);
        let Some(admission) = given(&decision.action) else { continue };
        if !matches!(workload.state, State::Pending(_)) {
            continue;
        }
        assert!(workload.active && !workload.deleting, "S2: {} may not be admitted", workload.name);
        let twice = decisions[..index].iter().any(|d| d.uid == decision.uid && !d.action.is_diagnostic());
        assert!(!twice, "S2: {} is decided on twice", workload.name);
        let queue = slow_model::waits_in(&world.seen, workload, world.now);
        let queue = queue.unwrap_or_else(|| panic!("{} is admitted and not queued", workload.name));
        assert_eq!(queue.name, admission.cluster_queue);
        check_order(world, &decisions[..index], workload, queue.strategy, admission);
        if matches!(decision.action, Action::Admit(_)) {
            check_sequence(world, &decisions[..index], workload);
        }
        let given_up = slow_model::given_up(queue, workload);
        let again = admission.flavors().into_iter().find(|flavor| given_up.contains(flavor));
        assert!(again.is_none(), "S12: {} gets {again:?}, which it gave up", workload.name);
        let nothing_under_way = world.in_flight.is_empty() && world.unanswered.is_empty();
        let admits_here = |d: &Decision| given(&d.action).is_some_and(|a| a.cluster_queue == queue.name);
        if nothing_under_way && !decisions[..index].iter().any(admits_here) {
            let given: Vec<BTreeMap<_, _>> =
                admission.pod_sets.iter().map(|pod_set| pod_set.flavors.iter().cloned().collect()).collect();
            // Where the first choice of one podSet leaves nothing for the next, the search goes on behind it.
            if let Some(expected) = slow_model::fit(&world.seen, queue, workload) {
                assert_eq!(given, expected, "{} gets other flavors", workload.name);
            }
        }
    }
}

/// The quota that an action sets aside.
fn given(action: &Action) -> Option<&Admission> {
    match action {
        Action::Admit(admission) | Action::Reserve(admission) => Some(admission),
        _ => None,
    }
}

/// S12: who could still run somewhere is not deactivated for having given up every flavor, nor begins again.
fn check_exhaustion(world: &World, decision: &Decision, workload: &Workload) {
    let gives_up = match &decision.action {
        Action::Evict(reason, _) => *reason == EvictionReason::DeactivatedDueToFlavorFallbackExhausted,
        action => *action == Action::RetryAllFlavors,
    };
    let queue = slow_model::waits_in(&world.seen, workload, world.now).filter(|_| gives_up);
    if let Some(queue) = queue {
        let could_run = slow_model::could_ever_run(&world.seen, queue, workload);
        assert!(!could_run, "S12: {} has flavors left: {decision}", workload.name);
    }
}

/// S12: what was tried is forgotten by readiness and by the listed resets only.
fn check_history(world: &World, decision: &Decision, before: &Workload) {
    let after = &world.store.workloads[&decision.uid].state;
    let is_reset = match &decision.action {
        Action::PodsReady(Some(reason)) => reason.is_ready(),
        Action::RetryAllFlavors | Action::ForgetHistory | Action::Requeue(RequeueReason::Reactivated) => true,
        _ => false,
    };
    if is_reset {
        return;
    }
    // With a new assignment what the queue does not have any more is forgotten.
    let may_prune = given(&decision.action).is_some();
    for tried in before.state.history().into_iter().flat_map(|history| &history.0) {
        let now = after.history().and_then(|history| history.find(&tried.flavor));
        let Some(now) = now else {
            assert!(may_prune, "S12: {} forgot {}: {decision}", before.name, tried.flavor);
            continue;
        };
        let kept = now.accumulated_seconds >= tried.accumulated_seconds
            && (tried.exhausted.is_none() || now.exhausted == tried.exhausted)
            && now.rounds >= tried.rounds;
        assert!(kept, "S12: {} forgot a part of {}: {decision}", before.name, tried.flavor);
    }
}

/// S9: nothing is admitted before something earlier that is still queued: in a StrictFIFO queue at all,
/// in a BestEffortFIFO queue within its shape.
fn check_order(
    world: &World,
    before: &[Decision],
    admitted: &Workload,
    strategy: QueueingStrategy,
    admission: &Admission,
) {
    for earlier in slow_model::waiting(&world.seen, &admission.cluster_queue, world.now) {
        if slow_model::order(&world.seen, earlier) >= slow_model::order(&world.seen, admitted) {
            break;
        }
        let is_strict = strategy == QueueingStrategy::StrictFifo;
        let comparable = is_strict || slow_model::same_shape(earlier, admitted);
        let under_way = before
            .iter()
            .chain(&world.in_flight)
            .chain(&world.unanswered)
            .any(|d| d.uid == earlier.uid && !d.action.is_diagnostic());
        // Nobody knows what somebody asks for who has just changed: a strict queue waits to see.
        let unknown = !is_strict && world.stale.contains(&earlier.uid);
        let excused = under_way || unknown || world.refused.contains(&earlier.uid);
        assert!(!comparable || excused, "S9: {} is admitted before {}", admitted.name, earlier.name);
    }
}

/// Where one starts at a time: nobody is admitted while somebody else starts.
fn check_sequence(world: &World, before: &[Decision], admitted: &Workload) {
    let settings = world.seen.readiness.as_ref().and_then(Option::as_ref);
    if !settings.is_some_and(|settings| settings.block_admission) {
        return;
    }
    let admits = |d: &&Decision| matches!(d.action, Action::Admit(_));
    assert!(!before.iter().any(|d| admits(&d)), "{} is admitted with another", admitted.name);
    let starts = |w: &&Workload| {
        !w.deleting && matches!(&w.state, State::Holding(reservation) if reservation.is_starting())
    };
    let starting = world.seen.workloads.values().find(starts);
    assert!(starting.is_none(), "{} is admitted while {starting:?} starts", admitted.name);
}

/// S11: the count grows by one with every eviction for readiness, and falls only when it may. S10: who has quota does
/// not wait out a backoff.
fn check_count(world: &World, decision: &Decision, before: &Workload) {
    let after = &world.store.workloads[&decision.uid].state;
    let count = |state: &State| state.requeue_state().map_or(0, |state| state.count);
    let (was, is) = (count(&before.state), count(after));
    let settings = world.store.readiness.as_ref().and_then(Option::as_ref);
    let was_ready_since = match &before.state {
        State::Holding(reservation) => reservation.pods_ready.as_ref().filter(|r| r.reason.is_ready()),
        _ => None,
    };
    let may_reset = was_ready_since.is_some_and(|ready| {
        let ended = match after {
            State::Evicting(_, eviction) => eviction.at,
            State::Holding(now) => now.pods_ready.as_ref().map_or(ready.at, |now| now.at),
            _ => ready.at,
        };
        settings.is_some_and(|settings| settings.is_reset(ready.at, ended))
    });
    let allowed = match &decision.action {
        Action::Evict(EvictionReason::PodsReadyTimeout, _) => is == was + 1,
        Action::Evict(..) | Action::PodsReady(_) => is == was || may_reset && is == 0,
        Action::Requeue(RequeueReason::Reactivated) => is == was || is == 0,
        _ => is == was,
    };
    assert!(allowed, "S11: {} was sent back {was} times and then {is}: {decision}", before.name);
    if let State::Holding(reservation) = after {
        let backs_off = reservation.requeue_state.as_ref().and_then(|state| state.requeue_at);
        assert!(
            before.state.reservation().is_some() || backs_off.is_none(),
            "S10: {} waits and runs",
            before.name
        );
    }
}

/// When a write has been stored.
pub fn check_landing(world: &World, decision: &Decision, before: &Workload) {
    check_conditions(&world.store.workloads[&decision.uid]);
    check_count(world, decision, before);
    check_history(world, decision, before);
    let Some(admission) = given(&decision.action) else { return };
    let live = before.active && !before.deleting && !before.state.is_finished();
    assert!(live, "S2: {} got quota although it may have none", before.name);
    if let Some(reservation) = before.state.reservation() {
        assert_eq!(*reservation.admission, *admission, "S2: {} has another reservation", before.name);
        return;
    }
    let usage = world.store.usage();
    for (cell, amount) in cells(admission) {
        let limit = highest_quota_since(world, decision, &cell);
        let used = usage.get(&cell).copied().unwrap_or(0);
        let unlimited = limit == i128::from(i64::MAX);
        assert!(
            amount == 0 || unlimited || used <= limit,
            "S1: {cell:?} is oversubscribed: {used} of {limit}"
        );
    }
}

/// The highest quota that the engine was told of from the decision until now.
fn highest_quota_since(world: &World, decision: &Decision, cell: &Cell) -> i128 {
    let since = world.decided_at[&decision.id];
    let definitions = || world.quota_history.iter().filter(|(_, name, _)| *name == cell.0);
    let at_decision = definitions().take_while(|(step, ..)| *step <= since).last();
    let later = definitions().filter(|(step, ..)| *step >= since);
    let quotas = at_decision.into_iter().chain(later).map(|(_, _, queue)| nominal(queue, &cell.1, &cell.2));
    quotas.max().map_or(0, i128::from)
}

/// After the faults have stopped and nothing happens any more.
pub fn check_fixed_point(world: &mut World) {
    let could_start = slow_model::could_start(&world.store, world.now);
    if let Some(workload) = world.store.workloads.values().find(|w| could_start.contains(&w.name)) {
        let explanation = world.engine.explain(&workload.uid);
        panic!("L4: it could start and nobody wakes it: {workload:?}, {explanation:?}");
    }
    for (cell, used) in world.store.usage() {
        let nominal = i128::from(world.store.nominal(&cell));
        if used > nominal {
            world.tally.count("over quota after it was lowered");
        }
    }
    for workload in world.store.workloads.values().filter(|w| !w.deleting) {
        match &workload.state {
            State::Pending(pending) => {
                let told = pending.waiting.as_ref().map(|waiting| Situation::Waiting(waiting.reason));
                let found = world.engine.explain(&workload.uid).map(|explanation| explanation.situation);
                assert_eq!(told, found, "L5: {} waits for something else", workload.name);
                world.tally.count("waiting at a fixed point");
            }
            State::Holding(reservation) => {
                assert!(workload.active, "{} is not active and holds quota", workload.name);
                assert!(reservation.admitted_at.is_some(), "{} waits for nobody", workload.name);
                world.tally.count("running at a fixed point");
            }
            State::Evicting(..) => panic!("{} was told to leave and never does", workload.name),
            State::Finished(..) => {}
        }
    }
    let work = world.engine.work();
    assert_eq!(
        world.engine.decide(world.now, usize::MAX),
        [],
        "L1: nothing happened and something is decided"
    );
    assert_eq!(world.engine.work(), work, "L1: nothing happened and something is evaluated");
    let mut restarted = world.store.rebuilt(world.now);
    let writes = restarted.decide(world.now, usize::MAX);
    let before = writes.first().map(|decision| world.engine.explain(&decision.uid));
    let after = writes.first().map(|decision| restarted.explain(&decision.uid));
    assert_eq!(writes, [], "L1: a restart alone is a reason to write: {before:?}, and now {after:?}");
}
