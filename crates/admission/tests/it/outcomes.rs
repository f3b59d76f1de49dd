//! What becomes of a decision whose write meets a fault.

use gangway_admission::{Action, Event, Outcome};
use gangway_model::Timestamp;
use gangway_model::queues::{ClusterQueue, QueueingStrategy, StopPolicy};
use gangway_model::reasons::{PendingReason, RequeueReason};
use gangway_model::workload::{Pending, RequeueState, Requeued, State, Workload};

use crate::build::*;
use crate::flavor_table::{cpu_queue, run, state, submit, waits_for};
use crate::world::{Fate, World};

/// A world of one cpu in which the admission of `w` is decided and not sent, and `next` waits behind it.
fn decided() -> World {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    submit(&mut world, Workload { created: at(1), ..cpu_workload("next", 1) });
    assert_eq!(world.decide(1), 1);
    world
}

/// Decides and says who is admitted by it.
fn admits(world: &mut World) -> Vec<String> {
    let before = world.in_flight.len();
    world.decide(100);
    let new = world.in_flight.range(before..);
    let admits = new.filter(|decision| matches!(decision.action, Action::Admit(_)));
    admits.map(|decision| decision.name.to_string()).collect()
}

#[test]
fn nothing_is_decided_before_every_watch_has_delivered_its_list() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    let mut engine = gangway_admission::Engine::new();
    for event in world.store.list() {
        engine.apply(event, world.now);
    }
    assert_eq!(engine.decide(world.now, 100), []);
    engine.apply(Event::Synced, world.now);
    assert_eq!(engine.decide(world.now, 100).len(), 1);
}

#[test]
fn an_answer_that_comes_after_the_watch_changes_nothing() {
    let mut world = decided();
    world.execute(0, Fate::LandsWatchFirst);
    crate::invariants::check(&world);
    assert!(state(&world, "w").may_run());
    run(&mut world);
    assert_eq!(waits_for(&world, "next"), PendingReason::WaitingForQuota);
}

#[test]
fn what_landed_is_known_before_the_watch_tells() {
    let mut world = decided();
    world.execute(0, Fate::Lands);
    assert!(world.engine.durable() == world.store.rebuilt(world.now).durable());
    assert_eq!(admits(&mut world), [] as [&str; 0], "and its quota counts");
}

#[test]
fn after_a_conflict_nothing_is_decided_until_a_newer_version_is_seen() {
    let mut world = decided();
    world.execute(0, Fate::Overtaken);
    let stale: Vec<Workload> = world.seen.workloads.values().cloned().collect();
    for workload in stale {
        world.engine.apply(Event::Workload(Box::new(workload)), world.now);
    }
    assert!(!admits(&mut world).contains(&"ns/w".into()));
    run(&mut world);
    assert_eq!(world.store.usage().values().sum::<i128>(), 1);
}

/// An API server may say that an object has changed although it has not.
#[test]
fn a_conflict_without_a_newer_version_is_tried_again_after_a_while() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    assert_eq!(world.decide(1), 1);
    let decision = world.in_flight.pop_front().expect("its admission was decided");
    world.engine.pending_write(decision.id).expect("it is sent");
    world.engine.apply(Event::Outcome(decision.id, Outcome::Conflict), world.now);
    assert_eq!(admits(&mut world), [] as [&str; 0], "a newer version should be on its way");
    world.now = world.engine.next_deadline().expect("it is not waited for for ever");
    assert_eq!(admits(&mut world), ["ns/w"]);
}

#[test]
fn a_conflict_after_an_unknown_end_may_be_the_first_attempt_and_its_quota_counts() {
    let mut world = decided();
    world.execute(0, Fate::UnknownLanded);
    world.ask_again();
    assert_eq!(admits(&mut world), [] as [&str; 0], "nobody else gets the quota that it may have");
    world.deliver_all();
    assert!(state(&world, "w").may_run());
    run(&mut world);
    assert_eq!(waits_for(&world, "next"), PendingReason::WaitingForQuota);
}

#[test]
fn our_own_later_write_ends_a_conflict_too() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("runs", 1));
    run(&mut world);
    submit(&mut world, cpu_workload("w", 1));
    assert_eq!(world.decide(1), 1, "it says why it waits");
    let report = world.in_flight.pop_front().expect("decided").id;
    world.engine.pending_write(report).expect("it stands");
    world.delete(&"runs".into());
    world.deliver_all();
    assert_eq!(admits(&mut world), ["ns/w"]);
    let admit = world.in_flight.pop_front().expect("decided").id;
    let write = world.engine.pending_write(admit).expect("it stands");
    let version = world.put(Workload { state: write.state, ..world.store.workload("w").clone() });
    world.engine.apply(Event::Outcome(report, Outcome::Conflict), world.now);
    world.engine.apply(Event::Outcome(admit, Outcome::Landed(version)), world.now);
    world.deliver_all();
    let drained =
        ClusterQueue { stop_policy: StopPolicy::HoldAndDrain, ..world.store.cluster_queues["cq"].clone() };
    world.administer(Event::ClusterQueue(Box::new(drained)));
    run(&mut world);
    assert_eq!(waits_for(&world, "w"), PendingReason::Suspended, "it could be evicted");
}

#[test]
fn a_time_that_has_passed_does_not_hide_a_later_one() {
    let mut world = cpu_queue(1);
    let requeued = Requeued { eligible: false, reason: RequeueReason::PodsReadyTimeout, at: world.now };
    let requeue_state = Some(Box::new(RequeueState { count: 1, requeue_at: Some(world.now) }));
    let pending = Pending { requeued: Some(requeued), requeue_state, ..Pending::default() };
    submit(&mut world, Workload { state: State::Pending(pending), ..cpu_workload("w", 1) });
    assert_eq!(world.decide(100), 1, "it is admitted");
    world.execute(0, Fate::Refused);
    run(&mut world);
    assert!(state(&world, "w").may_run(), "the refused write was tried again");
}

#[test]
fn a_strict_queue_waits_for_its_first_through_a_conflict() {
    for (strategy, passes) in
        [(QueueingStrategy::StrictFifo, false), (QueueingStrategy::BestEffortFifo, true)]
    {
        let mut world = cpu_queue(1);
        let queue = ClusterQueue { strategy, ..world.store.cluster_queues["cq"].clone() };
        world.administer(Event::ClusterQueue(Box::new(queue)));
        submit(&mut world, cpu_workload("w", 1));
        submit(&mut world, Workload { created: at(1), ..cpu_workload("next", 1) });
        world.decide(1);
        world.execute(0, Fate::Overtaken);
        assert_eq!(admits(&mut world), if passes { vec!["ns/next"] } else { vec![] });
        run(&mut world);
        assert_eq!(state(&world, "next").may_run(), passes);
        assert_eq!(state(&world, "w").may_run(), !passes);
    }
}

#[test]
fn a_conflict_whose_cause_is_known_already_is_tried_again_at_once() {
    let mut world = decided();
    let id = world.in_flight[0].id;
    world.engine.pending_write(id).expect("it stands");
    let changed = Workload { generation: 2, ..world.store.workload("w").clone() };
    submit(&mut world, changed);
    world.engine.apply(Event::Outcome(id, Outcome::Conflict), world.now);
    world.in_flight.clear();
    assert_eq!(admits(&mut world), ["ns/w"]);
}

#[test]
fn what_nobody_knows_the_end_of_stays_assumed_until_the_watch_speaks() {
    for (fate, holder) in [(Fate::UnknownLanded, "w"), (Fate::UnknownLost, "w")] {
        let mut world = decided();
        world.execute(0, fate);
        assert_eq!(admits(&mut world), [] as [&str; 0], "{fate:?}: its quota counts");
        world.in_flight.clear();
        world.crash();
        run(&mut world);
        assert!(state(&world, holder).may_run(), "{fate:?}");
        assert_eq!(world.store.usage().values().sum::<i128>(), 1, "{fate:?}");
    }
    let mut world = decided();
    world.execute(0, Fate::UnknownLost);
    let changed = Workload { priority: -1, ..world.store.workload("w").clone() };
    submit(&mut world, changed);
    assert_eq!(admits(&mut world), ["ns/next"], "the watch shows that it was lost");
}

#[test]
fn a_write_that_nobody_answered_can_be_sent_again() {
    for fate in [Fate::UnknownLanded, Fate::UnknownLost] {
        let mut world = decided();
        world.execute(0, fate);
        world.ask_again();
        run(&mut world);
        assert!(state(&world, "w").may_run(), "{fate:?}");
        assert_eq!(waits_for(&world, "next"), PendingReason::WaitingForQuota, "{fate:?}");
    }
}

#[test]
fn a_refused_write_is_tried_again_later_and_later() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    let mut waits = Vec::new();
    for _ in 0..11 {
        assert_eq!(admits(&mut world), ["ns/w"]);
        world.execute(0, Fate::Refused);
        assert_eq!(admits(&mut world), [] as [&str; 0]);
        while !world.in_flight.is_empty() {
            world.execute(0, Fate::Lands);
        }
        world.deliver_all();
        assert_eq!(admits(&mut world), [] as [&str; 0], "what it says of the refusal is no reason to hurry");
        let retry_at = world.engine.next_deadline().expect("it is tried again");
        waits.push(retry_at.nanos_since(world.now) / Timestamp::from_seconds(1).as_nanos());
        world.now = retry_at;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    run(&mut world);
    assert!(state(&world, "w").may_run());
}

#[test]
fn a_refusal_is_said_and_lets_others_pass() {
    let mut world = decided();
    world.execute(0, Fate::Refused);
    assert_eq!(admits(&mut world), ["ns/next"]);
    let explanation = world.engine.explain(&"w".into()).expect("it is known");
    assert_eq!(explanation.message, "The API server refuses the write: no");
}

#[test]
fn a_refusal_is_forgotten_when_the_workload_asks_for_something_else() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    assert_eq!(admits(&mut world), ["ns/w"]);
    world.execute(0, Fate::Refused);
    let mended = Workload { priority: 3, ..world.store.workload("w").clone() };
    submit(&mut world, mended);
    assert_eq!(admits(&mut world), ["ns/w"]);
}

#[test]
fn a_refused_report_neither_keeps_from_quota_nor_is_repeated_at_once() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("runs", 1));
    run(&mut world);
    submit(&mut world, cpu_workload("w", 1));
    assert_eq!(world.decide(100), 1);
    world.execute(0, Fate::Refused);
    assert_eq!(world.decide(100), 0, "not at once");
    world.delete(&"runs".into());
    world.deliver_all();
    assert_eq!(admits(&mut world), ["ns/w"]);
    run(&mut world);
    assert!(state(&world, "w").may_run());
}

#[test]
fn a_report_is_void_once_something_was_decided() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("runs", 1));
    run(&mut world);
    submit(&mut world, cpu_workload("w", 1));
    assert_eq!(world.decide(100), 1);
    world.delete(&"runs".into());
    world.deliver_all();
    assert_eq!(world.decide(100), 1);
    let report = world.in_flight[0].id;
    assert!(world.engine.pending_write(report).is_none());
    run(&mut world);
    assert!(state(&world, "w").may_run());
}

#[test]
fn a_decision_that_was_overtaken_before_it_was_sent_is_void() {
    let mut world = decided();
    let inactive = Workload { active: false, ..world.store.workload("w").clone() };
    submit(&mut world, inactive);
    let decision = world.in_flight[0].id;
    assert!(world.engine.pending_write(decision).is_none());
    assert_eq!(admits(&mut world), ["ns/next"]);
}

#[test]
fn an_old_event_after_our_own_write_is_ignored() {
    let mut world = decided();
    let old = world.store.workload("w").clone();
    world.execute(0, Fate::Lands);
    world.engine.apply(Event::Workload(Box::new(old)), world.now);
    crate::invariants::check(&world);
    assert_eq!(admits(&mut world), [] as [&str; 0]);
}

/// Whoever was to write it found out in time that it should not be written.
#[test]
fn what_was_not_sent_after_all_is_void() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    assert_eq!(world.decide(1), 1);
    let decision = world.in_flight.pop_front().expect("its admission was decided");
    world.engine.pending_write(decision.id).expect("it is to be sent");
    for outcome in [Outcome::Unknown, Outcome::Void] {
        world.engine.apply(Event::Outcome(decision.id, outcome), world.now);
    }
    assert!(!world.engine.is_under_way(decision.id), "nobody waits for a watch to tell of it");
    world.now = world.engine.next_deadline().expect("it is looked at again");
    assert_eq!(admits(&mut world), ["ns/w"]);
}
