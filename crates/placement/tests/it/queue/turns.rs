//! An event that can help only some wakes only some, and nobody's turn is lost.

use gangway_placement::framework::{Help, PluginSet};
use gangway_placement::ids::{PodId, ShapeId};
use gangway_placement::queue::{Arrival, Queue};

use super::judge::{FIT, GATES, Table, at, fit, is_parked, node_added, park, pod, pop_all, queue, set};

/// An added node has room for one pod of shape 0.
fn room_for_one() -> Table {
    fit().help("NodeAdd", 0, FIT, Help::AfterBackoff { at_most: 1 })
}

/// Five pods wait, their penalties are over, and the first has been woken.
fn one_of_five_woken() -> (Queue, Table) {
    let (mut queue, judge) = (queue(true), room_for_one());
    for number in 1..=5 {
        park(&mut queue, pod(number, 0), at(0), &judge);
    }
    queue.happened(&node_added(), at(2_000), &judge);
    assert_eq!(queue.counts().active, 1);
    assert!(!is_parked(&queue, 1));
    (queue, judge)
}

#[test]
fn as_many_are_woken_as_the_event_can_help_in_order() {
    let (mut queue, judge) = one_of_five_woken();
    queue.happened(&node_added(), at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [1, 2]);
    assert_eq!((queue.counts().hints, queue.counts().visits), (2, 2));
}

#[test]
fn those_with_a_penalty_do_not_count() {
    let (mut queue, judge) = (queue(true), room_for_one());
    park(&mut queue, pod(1, 0), at(0), &judge);
    park(&mut queue, pod(2, 0), at(0), &judge);
    park(&mut queue, pod(3, 9), at(1_500), &judge);
    queue.happened(&node_added(), at(2_000), &judge);
    assert!(is_parked(&queue, 2));
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [1, 3]);
}

#[test]
fn the_turn_of_a_deleted_pod_goes_to_the_next() {
    let (mut queue, judge) = one_of_five_woken();
    queue.delete(PodId(1), at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [2]);
    queue.delete(PodId(2), at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [3], "in flight it had not been judged either");
}

#[test]
fn the_turn_of_a_pod_that_is_refused_now_goes_to_the_next() {
    let (mut queue, mut judge) = one_of_five_woken();
    judge.close(GATES, 1);
    judge.close(GATES, 2);
    queue.update(pod(1, 0), &[], at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [3]);
    assert_eq!(queue.counts().gated, 2);
}

#[test]
fn the_turn_of_a_pod_that_became_another_goes_to_the_next() {
    let (mut queue, judge) = one_of_five_woken();
    queue.update(Arrival { shape: ShapeId(1), ..pod(1, 0) }, &[], at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [1, 2]);
}

#[test]
fn the_turn_of_a_pod_that_became_another_in_flight_goes_to_the_next() {
    let (mut queue, judge) = one_of_five_woken();
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [1]);
    queue.update(Arrival { shape: ShapeId(1), ..pod(1, 0) }, &[], at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [2]);
}

#[test]
fn an_error_says_nothing_about_the_others() {
    let (mut queue, judge) = one_of_five_woken();
    let attempt = queue.pop(at(2_000), &judge).unwrap().attempt;
    queue.failed(attempt, at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [2]);
}

#[test]
fn whoever_was_judged_or_got_a_node_owes_nothing() {
    for is_rejected in [true, false] {
        let (mut queue, judge) = one_of_five_woken();
        let attempt = queue.pop(at(2_000), &judge).unwrap().attempt;
        if is_rejected {
            queue.rejected(attempt, set(&[FIT]), PluginSet::EMPTY, at(2_000), &judge);
        } else {
            queue.done(attempt);
        }
        queue.delete(PodId(1), at(2_000), &judge);
        assert_eq!(pop_all(&mut queue, at(2_000), &judge), []);
    }
}

#[test]
fn whoever_was_not_woken_in_place_of_others_owes_nothing() {
    let (mut queue, judge) = one_of_five_woken();
    queue.add(pod(6, 0), at(2_000), &judge);
    queue.delete(PodId(6), at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [1]);
}
