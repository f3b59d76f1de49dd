//! Mistakes that others made (P§8), as far as the queue can make them.

use std::time::Duration;

use gangway_model::Uid;
use gangway_placement::framework::PluginSet;
use gangway_placement::ids::PodId;
use gangway_placement::queue::{Arrival, Place, Queue, Settings};

use super::judge::{
    FIT, GATES, TAINTS, at, back_off, fail, fit, is_gated, is_parked, node_added, park, place, pod,
    pod_deleted, pop_all, queue, set, try_new, uid,
};

const NONE: PluginSet = PluginSet::EMPTY;

#[test]
fn trap_1_an_event_between_pop_and_return_is_not_lost() {
    let (mut queue, judge) = (queue(true), fit());
    let attempt = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.happened(&node_added(), at(1), &judge);
    queue.rejected(attempt, set(&[FIT]), NONE, at(2), &judge);
    assert_eq!(pop_all(&mut queue, at(3), &judge), [1]);
}

#[test]
fn trap_2_an_error_after_a_rejection_is_an_error() {
    let (mut queue, judge) = (queue(true), fit());
    back_off(&mut queue, pod(1, 0), at(0), &judge);
    let attempt = queue.pop(at(1), &judge).unwrap().attempt;
    queue.failed(attempt, at(1), &judge);
    assert_eq!(place(&queue, 1), Place::Backoff { until: at(1_001), error: true });
    assert!(queue.counts().unschedulable_by_plugin.is_empty());
}

#[test]
fn trap_3_an_attempt_is_not_taken_for_one_of_a_pod_that_was_created_again() {
    let (mut queue, judge) = (queue(true), fit());
    let old = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.delete(PodId(1), at(1), &judge);
    assert_eq!(queue.counts().in_flight, 1, "it still has to be ended");
    queue.add(Arrival { uid: Uid::from("another"), ..pod(1, 0) }, at(2), &judge);
    let new = queue.pop(at(2), &judge).unwrap();
    assert_eq!((new.pod, new.attempts), (PodId(1), 1));
    queue.happened(&node_added(), at(3), &judge);
    queue.failed(old, at(4), &judge);
    assert_eq!(place(&queue, 1), Place::InFlight);
    queue.done(new.attempt);
    queue.rejected(old, set(&[FIT]), NONE, at(5), &judge);
    assert_eq!(place(&queue, 1), Place::Decided);
    assert!(queue.counts().in_flight_events.is_empty());
    // The same without anybody having said that the first one was deleted.
    queue.update(pod(1, 0), &[], at(6), &judge);
    assert_eq!(queue.pop(at(6), &judge).unwrap().attempts, 1);
}

#[test]
fn trap_4_a_pod_in_flight_is_not_popped_again_and_old_events_are_forgotten() {
    let (mut queue, judge) = (queue(true), fit());
    let attempt = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.add(pod(1, 0), at(1), &judge);
    queue.update(pod(1, 3), &[], at(1), &judge);
    assert_eq!(pop_all(&mut queue, at(1), &judge), []);
    for _ in 0..100 {
        queue.happened(&node_added(), at(2), &judge);
    }
    assert_eq!(queue.counts().in_flight_events["NodeAdd"], 100);
    queue.done(attempt);
    queue.done(attempt);
    queue.happened(&node_added(), at(3), &judge);
    assert!(queue.counts().in_flight_events.is_empty());
}

#[test]
fn trap_6_a_failure_after_the_attempt_was_done_is_an_error_with_a_count_of_its_own() {
    let (mut queue, judge) = (queue(true), fit());
    queue.add(pod(1, 0), at(0), &judge);
    for _ in 0..5 {
        let attempt = queue.pop(at(0), &judge).unwrap().attempt;
        queue.happened(&node_added(), at(0), &judge);
        queue.rejected(attempt, set(&[FIT]), NONE, at(0), &judge);
    }
    for seconds in [1, 2] {
        queue.activate(&[PodId(1)], at(0), &judge);
        let attempt = queue.pop(at(0), &judge).unwrap().attempt;
        queue.done(attempt);
        assert_eq!(place(&queue, 1), Place::Decided);
        queue.failed(attempt, at(0), &judge);
        assert_eq!(place(&queue, 1), Place::Backoff { until: at(seconds * 1_000), error: true });
        queue.happened(&node_added(), at(1), &judge);
        assert_eq!(pop_all(&mut queue, at(1), &judge), []);
    }
    let attempt = queue.pop(at(2_000), &judge).unwrap().attempt;
    queue.happened(&node_added(), at(2_000), &judge);
    queue.rejected(attempt, set(&[FIT]), NONE, at(2_000), &judge);
    assert_eq!(place(&queue, 1), Place::Backoff { until: at(12_000), error: false }, "the sixth rejection");
}

#[test]
fn trap_6_a_rejection_without_a_plugin_is_an_error() {
    let (mut queue, judge) = (queue(true), fit());
    let attempt = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.rejected(attempt, NONE, NONE, at(0), &judge);
    assert_eq!(place(&queue, 1), Place::Backoff { until: at(1_000), error: true });
}

#[test]
fn trap_7_a_pod_that_lost_its_node_wakes_the_others_but_not_itself() {
    let (mut queue, judge) = (queue(true), fit());
    park(&mut queue, pod(1, 0), at(0), &judge);
    park(&mut queue, pod(2, 0), at(0), &judge);
    let third = try_new(&mut queue, pod(3, 0), at(0), &judge);
    queue.happened(&pod_deleted(uid(3)), at(2_000), &judge);
    queue.rejected(third, set(&[FIT]), NONE, at(2_000), &judge);
    assert!(is_parked(&queue, 3));
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [1, 2]);
    queue.happened(&pod_deleted(uid(3)), at(4_000), &judge);
    assert!(is_parked(&queue, 3));
    queue.happened(&pod_deleted(uid(1)), at(4_000), &judge);
    assert_eq!(place(&queue, 3), Place::Active);
}

#[test]
fn trap_8_without_a_longest_penalty_there_is_none() {
    for gate in [true, false] {
        let settings =
            Settings { pop_from_backoff: gate, max_backoff: Duration::ZERO, ..Settings::default() };
        let (mut queue, judge) = (Queue::new(settings), fit());
        let attempt = try_new(&mut queue, pod(1, 0), at(999), &judge);
        queue.failed(attempt, at(999), &judge);
        let popped = queue.pop(at(999), &judge).unwrap();
        assert!(!popped.from_backoff);
        queue.rejected(popped.attempt, set(&[FIT]), NONE, at(999), &judge);
        queue.happened(&node_added(), at(999), &judge);
        assert_eq!(pop_all(&mut queue, at(999), &judge), [1]);
    }
}

#[test]
fn trap_12_the_count_of_a_plugin_follows_the_pods() {
    let (mut queue, mut judge) = (queue(true), fit());
    let count =
        |queue: &Queue, plugin| queue.counts().unschedulable_by_plugin.get(&plugin).copied().unwrap_or(0);
    park(&mut queue, pod(1, 0), at(0), &judge);
    park(&mut queue, pod(2, 0), at(0), &judge);
    assert_eq!(count(&queue, FIT), 2);
    judge.close(FIT, 1);
    queue.happened(&node_added(), at(1), &judge);
    assert!(is_gated(&queue, 1));
    assert_eq!(count(&queue, FIT), 2, "refused by whoever had rejected it");
    queue.delete(PodId(2), at(2), &judge);
    assert_eq!(count(&queue, FIT), 1, "it was deleted while it backed off");
    judge.open(FIT, 1);
    queue.activate(&[PodId(1)], at(3), &judge);
    assert_eq!(count(&queue, FIT), 1);
    queue.pop(at(3), &judge).unwrap();
    assert_eq!(count(&queue, FIT), 0);
}

#[test]
fn trap_13_gated_pods_are_not_met_by_events_for_others() {
    let (mut queue, mut judge) = (queue(true), fit());
    for number in 0..1_000 {
        judge.close(GATES, number);
        queue.add(pod(number, 0), at(0), &judge);
    }
    for _ in 0..100 {
        queue.happened(&node_added(), at(1), &judge);
    }
    let counts = queue.counts();
    assert_eq!((counts.gated, counts.visits, counts.hints), (1_000, 0, 0));
}

#[test]
fn trap_13_an_event_meets_only_groups_that_it_could_help() {
    let (mut queue, judge) = (queue(true), fit().wakes(TAINTS, &["NodeUpdateNodeTaint"]));
    for number in 0..1_000 {
        let plugin = if number < 10 { FIT } else { TAINTS };
        let attempt = try_new(&mut queue, pod(number, 0), at(0), &judge);
        queue.rejected(attempt, set(&[plugin]), NONE, at(0), &judge);
    }
    queue.happened(&node_added(), at(2_000), &judge);
    let counts = queue.counts();
    assert_eq!((counts.active, counts.visits, counts.hints), (10, 10, 1));
}

#[test]
fn trap_16_whoever_waits_for_the_queue_is_woken_by_what_can_be_popped_and_by_nothing_else() {
    for gate in [true, false] {
        let (mut queue, judge) = (queue(gate), fit());
        queue.add(pod(1, 0), at(0), &judge);
        assert!(queue.take_appeared() && !queue.take_appeared());
        let attempt = queue.pop(at(0), &judge).unwrap().attempt;
        queue.failed(attempt, at(0), &judge);
        assert!(!queue.take_appeared(), "a penalty for an error wakes nobody");
        queue.advance(at(1_000), &judge);
        assert!(queue.take_appeared());
        let attempt = queue.pop(at(1_000), &judge).unwrap().attempt;
        queue.rejected(attempt, set(&[FIT]), NONE, at(1_000), &judge);
        assert!(!queue.take_appeared());
        queue.happened(&node_added(), at(1_500), &judge);
        assert_eq!((queue.take_appeared(), queue.is_poppable()), (gate, gate));
        queue.advance(at(2_000), &judge);
        assert_eq!((queue.take_appeared(), queue.is_poppable()), (!gate, true));
    }
}

/// The reference pops such a pod; ours asks the PreEnqueue plugins about every pod that changes where it could be popped.
#[test]
fn trap_17_a_pod_that_gains_a_reason_to_be_refused_is_not_popped() {
    let (mut queue, mut judge) = (queue(true), fit());
    back_off(&mut queue, pod(1, 0), at(0), &judge);
    queue.add(pod(2, 0), at(0), &judge);
    judge.close(GATES, 1);
    judge.close(GATES, 2);
    queue.update(pod(1, 0), &[], at(1), &judge);
    queue.update(pod(2, 0), &[], at(1), &judge);
    assert_eq!(pop_all(&mut queue, at(1), &judge), []);
    assert!(is_gated(&queue, 1) && is_gated(&queue, 2));
}

#[test]
fn trap_18_a_clock_that_goes_back_loses_nobody() {
    let (mut queue, judge) = (queue(true), fit());
    fail(&mut queue, pod(1, 0), at(5_000), &judge);
    park(&mut queue, pod(2, 0), at(5_000), &judge);
    queue.advance(at(0), &judge);
    queue.happened(&node_added(), at(0), &judge);
    assert_eq!(pop_all(&mut queue, at(0), &judge), [2]);
    assert_eq!(pop_all(&mut queue, at(6_000), &judge), [1]);
}
