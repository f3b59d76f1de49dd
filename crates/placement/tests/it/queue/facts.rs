//! What the reference's own tests say of its queue (P§7.1 and P§7.2), as situations and what follows.
//! Where a decision of ours changes what is expected, a comment says so.

use std::time::Duration;

use gangway_model::Timestamp;
use gangway_placement::framework::{Actions, PluginSet};
use gangway_placement::ids::{PodId, ShapeId};
use gangway_placement::queue::{Arrival, Place, Queue, QueueName, Settings};

use super::judge::{
    FIT, GATES, PREEMPTION, TAINTS, Table, anything, at, back_off, fail, fit, is_gated, is_parked,
    node_added, node_deleted, park, place, pod, pod_changed, pop_all, queue, set, try_new, uid,
};

const NONE: PluginSet = PluginSet::EMPTY;

#[test]
fn pods_that_back_off_are_popped_when_nothing_is_active_except_after_errors() {
    for (gate, expected) in [(true, vec![4, 1]), (false, vec![4])] {
        let (mut queue, judge) = (queue(gate), fit());
        back_off(&mut queue, pod(1, 100), at(0), &judge);
        fail(&mut queue, pod(2, 100), at(0), &judge);
        park(&mut queue, pod(3, 100), at(0), &judge);
        queue.add(pod(4, 50), at(0), &judge);
        assert_eq!(pop_all(&mut queue, at(0), &judge), expected, "gate {gate}");
        assert!(!queue.is_poppable());
        let early = queue.counts().incoming.get(&(QueueName::Active, "PopFromBackoffQ")).copied();
        assert_eq!(early, gate.then_some(1));
    }
}

#[test]
fn a_penalty_of_a_thousand_seconds_does_not_keep_an_idle_scheduler_from_a_matching_node() {
    for gate in [true, false] {
        let backoff = Duration::from_secs(1_000);
        let settings = Settings {
            pop_from_backoff: gate,
            initial_backoff: backoff,
            max_backoff: backoff,
            ..Settings::default()
        };
        let (mut queue, judge) = (Queue::new(settings), fit());
        park(&mut queue, pod(1, 0), at(0), &judge);
        assert_eq!(pop_all(&mut queue, at(1), &judge), []);
        queue.happened(&node_added(), at(2), &judge);
        assert_eq!(pop_all(&mut queue, at(3), &judge), if gate { vec![1] } else { vec![] });
        assert_eq!(pop_all(&mut queue, at(1_000_000), &judge), if gate { vec![] } else { vec![1] });
    }
}

/// The reference's table pops at a moment when some of these are released already, cut to the second. Ours releases at the
/// exact end of the penalty, into the order of the active ones (decision 27); windows are seen only by those popped early. So
/// here all six are popped early, in the reference's order of windows: p5, p4, p2, p3, then p1 and p0.
#[test]
fn among_penalties_that_end_in_the_same_second_priority_goes_first() {
    let backoff = Duration::from_secs(100);
    let cases = [(5, 0, 0), (3, 1, 1_000), (4, 2, 1_000), (2, 2, 1_001), (1, 0, 2_000), (0, 0, 3_000)];
    for gate in [true, false] {
        let settings = Settings {
            pop_from_backoff: gate,
            initial_backoff: backoff,
            max_backoff: backoff,
            ..Settings::default()
        };
        let (mut queue, judge) = (Queue::new(settings), fit());
        for (number, priority, millis) in cases {
            back_off(&mut queue, pod(number, priority), at(millis), &judge);
        }
        if gate {
            assert_eq!(pop_all(&mut queue, at(3_000), &judge), [5, 4, 2, 3, 1, 0]);
            continue;
        }
        assert_eq!(pop_all(&mut queue, at(3_000), &judge), []);
        let mut order = Vec::new();
        while let Some(deadline) = queue.next_deadline() {
            order.extend(pop_all(&mut queue, deadline, &judge));
        }
        // p3 and p4 are released at the same moment, and then priority counts.
        assert_eq!(order, [5, 4, 3, 2, 1, 0]);
    }
}

/// With the gate the reference waits for the next whole second; ours does not (decision 27).
#[test]
fn penalties_of_a_pod_that_is_rejected_again_and_again() {
    for gate in [true, false] {
        let (mut queue, judge) = (queue(gate), fit());
        queue.add(pod(1, 0), at(500), &judge);
        let mut now = at(500);
        for seconds in [1, 2, 4, 8, 10, 10, 10] {
            let attempt = queue.pop(now, &judge).unwrap().attempt;
            queue.happened(&node_added(), now, &judge);
            queue.rejected(attempt, set(&[FIT]), NONE, now, &judge);
            let until = now.plus_seconds(seconds);
            assert_eq!(place(&queue, 1), Place::Backoff { until, error: false });
            assert_eq!(queue.next_deadline(), Some(until));
            queue.advance(Timestamp::from_nanos(until.as_nanos() - 1), &judge);
            assert_ne!(place(&queue, 1), Place::Active);
            queue.advance(until, &judge);
            assert_eq!(place(&queue, 1), Place::Active);
            now = until;
        }
    }
}

#[test]
fn preenqueue_is_asked_before_a_penalty_that_may_be_cut_short_and_not_again_after_it() {
    for gate in [true, false] {
        let (mut queue, mut judge) = (queue(gate), fit());
        back_off(&mut queue, pod(1, 0), at(0), &judge);
        back_off(&mut queue, pod(2, 0), at(0), &judge);
        judge.close(GATES, 1);
        judge.close(GATES, 2);
        queue.activate(&[PodId(1)], at(500), &judge);
        queue.advance(at(1_000), &judge);
        for number in [1, 2] {
            assert_eq!(place(&queue, number) == Place::Active, gate);
            assert_eq!(is_gated(&queue, number), !gate);
        }
    }
}

#[test]
fn a_pod_that_is_refused_does_not_begin_a_penalty_that_may_be_cut_short() {
    for gate in [true, false] {
        let (mut queue, mut judge) = (queue(gate), fit());
        park(&mut queue, pod(1, 0), at(0), &judge);
        judge.close(GATES, 1);
        queue.happened(&node_added(), at(10), &judge);
        assert_eq!(is_gated(&queue, 1), gate);
        queue.advance(at(1_000), &judge);
        assert!(is_gated(&queue, 1));
    }
}

#[test]
fn a_refused_pod_is_not_active_until_its_gate_is_open_and_its_plugin_is_told() {
    let judge = fit().wakes(GATES, &["TargetPodUpdatePodSchedulingGatesEliminated"]);
    let (mut queue, mut judge) = (queue(true), judge);
    judge.close(GATES, 1);
    judge.close(GATES, 2);
    queue.add(pod(1, 0), at(0), &judge);
    queue.add(pod(2, 0), at(0), &judge);
    queue.add(pod(3, 0), at(0), &judge);
    assert_eq!(pop_all(&mut queue, at(0), &judge), [3]);
    judge.open(GATES, 1);
    queue.happened(&node_added(), at(1), &judge);
    assert!(is_gated(&queue, 1));
    let opened = |number| [pod_changed(uid(number), Actions::UPDATE_POD_GATES_ELIMINATED)];
    queue.update(pod(2, 0), &opened(2), at(2), &judge);
    assert!(is_gated(&queue, 2));
    queue.update(pod(1, 0), &opened(1), at(2), &judge);
    assert_eq!(pop_all(&mut queue, at(2), &judge), [1]);
    let standing = queue.standing(PodId(1)).unwrap();
    assert_eq!((standing.queued_at, standing.first_active_at), (at(0), Some(at(2))));
}

#[test]
fn an_event_before_the_pop_is_nothing_to_the_attempt() {
    let (mut queue, judge) = (queue(true), fit());
    let other = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.happened(&node_added(), at(1), &judge);
    park(&mut queue, pod(2, 0), at(2), &judge);
    queue.done(other);
    assert!(is_parked(&queue, 2));
}

#[test]
fn an_event_that_nobody_wants_is_not_kept() {
    let (mut queue, judge) = (queue(true), fit());
    let attempt = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.happened(&node_deleted(), at(1), &judge);
    assert_eq!(queue.counts().in_flight_events.into_iter().collect::<Vec<_>>(), [("PodPopped", 1)]);
    queue.rejected(attempt, set(&[FIT]), NONE, at(2), &judge);
    assert!(is_parked(&queue, 1));
}

#[test]
fn a_return_leaves_what_earlier_and_later_attempts_need() {
    let (mut queue, judge) = (queue(true), fit());
    let kept = |queue: &Queue| queue.counts().in_flight_events.get("NodeAdd").copied().unwrap_or_default();
    let first = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.happened(&node_added(), at(1), &judge);
    let second = try_new(&mut queue, pod(2, 0), at(2), &judge);
    queue.happened(&node_added(), at(3), &judge);
    let third = try_new(&mut queue, pod(3, 0), at(4), &judge);
    queue.rejected(second, set(&[TAINTS]), NONE, at(5), &judge);
    assert!(is_parked(&queue, 2), "whoever did not reject it has no say");
    assert_eq!(kept(&queue), 2);
    queue.rejected(third, set(&[FIT]), NONE, at(6), &judge);
    assert!(is_parked(&queue, 3), "nothing happened since");
    assert_eq!(kept(&queue), 2);
    queue.rejected(first, set(&[FIT]), NONE, at(7), &judge);
    assert_eq!(place(&queue, 1), Place::Backoff { until: at(1_007), error: false });
    assert_eq!(kept(&queue), 0);
}

#[test]
fn one_hint_is_asked_for_one_event_in_flight() {
    let (mut queue, judge) = (queue(true), fit());
    let attempt = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.happened(&node_added(), at(1), &judge);
    queue.happened(&node_added(), at(2), &judge);
    queue.rejected(attempt, set(&[FIT]), NONE, at(3), &judge);
    assert_eq!(queue.counts().hints, 1);
}

#[test]
fn whoever_waited_only_for_this_is_tried_at_once() {
    let (mut queue, judge) = (queue(true), fit());
    let attempt = try_new(&mut queue, pod(1, 0), at(0), &judge);
    queue.rejected(attempt, set(&[TAINTS]), set(&[FIT]), at(0), &judge);
    queue.happened(&node_added(), at(1), &judge);
    assert_eq!(place(&queue, 1), Place::Active);
    let attempt = queue.pop(at(1), &judge).unwrap().attempt;
    queue.happened(&node_added(), at(2), &judge);
    queue.rejected(attempt, set(&[TAINTS]), set(&[FIT]), at(2), &judge);
    assert_eq!(place(&queue, 1), Place::Active);
}

#[test]
fn a_popped_pod_keeps_who_rejected_it_until_it_returns() {
    let (mut queue, judge) = (queue(true), fit());
    park(&mut queue, pod(1, 0), at(0), &judge);
    queue.happened(&node_added(), at(1), &judge);
    let popped = queue.pop(at(2), &judge).unwrap();
    assert_eq!((popped.rejected_by, popped.attempts, popped.from_backoff), (set(&[FIT]), 2, true));
    queue.failed(popped.attempt, at(3), &judge);
    assert_eq!(queue.pop(at(2_000), &judge).unwrap().rejected_by, NONE);
}

#[test]
fn an_updated_pod_in_flight_is_not_queued_and_the_change_is_kept() {
    for (is_told, is_woken) in [(true, true), (false, false)] {
        let judge = if is_told { fit().wakes(FIT, &["TargetPodUpdatePodScaleDown"]) } else { fit() };
        let mut queue = queue(true);
        let attempt = try_new(&mut queue, pod(1, 0), at(0), &judge);
        let smaller = Arrival { shape: ShapeId(1), ..pod(1, 0) };
        let change = pod_changed(uid(1), Actions::UPDATE_POD_SCALE_DOWN);
        queue.update(smaller, &[change], at(1), &judge);
        assert_eq!((place(&queue, 1), queue.is_poppable()), (Place::InFlight, false));
        queue.rejected(attempt, set(&[FIT]), NONE, at(2), &judge);
        assert_eq!(is_parked(&queue, 1), !is_woken);
    }
}

#[test]
fn an_updated_pod_in_backoff_stays_there_at_its_new_place() {
    let (mut queue, judge) = (queue(true), fit().wakes(FIT, &["TargetPodUpdatePodLabel"]));
    back_off(&mut queue, pod(1, 0), at(0), &judge);
    back_off(&mut queue, pod(2, 0), at(10), &judge);
    let change = pod_changed(uid(2), Actions::UPDATE_POD_LABEL);
    queue.update(pod(2, 5), &[change], at(20), &judge);
    assert_eq!(place(&queue, 2), Place::Backoff { until: at(1_010), error: false });
    assert_eq!(queue.counts().hints, 2, "only the two in flight were judged");
    assert_eq!(pop_all(&mut queue, at(30), &judge), [2, 1]);
}

#[test]
fn an_updated_pod_that_waits_goes_where_hint_and_penalty_say() {
    let judge = fit().wakes(FIT, &["TargetPodUpdatePodLabel"]);
    for (millis, action, expected) in [
        (500, Actions::UPDATE_POD_LABEL, Some(Place::Backoff { until: at(1_000), error: false })),
        (1_000, Actions::UPDATE_POD_LABEL, Some(Place::Active)),
        (1_000, Actions::UPDATE_POD_TOLERATION, None),
    ] {
        let mut queue = queue(true);
        park(&mut queue, pod(1, 0), at(0), &judge);
        park(&mut queue, pod(2, 0), at(0), &judge);
        queue.update(pod(1, 7), &[pod_changed(uid(1), action)], at(millis), &judge);
        assert_eq!(Some(place(&queue, 1)).filter(|_| !is_parked(&queue, 1)), expected);
        assert!(is_parked(&queue, 2), "it was not its change");
    }
}

#[test]
fn an_update_of_an_unknown_pod_adds_it() {
    let (mut queue, judge) = (queue(true), fit());
    queue.update(pod(1, 0), &[], at(0), &judge);
    assert_eq!(pop_all(&mut queue, at(0), &judge), [1]);
}

#[test]
fn a_pod_that_fails_again_and_again_does_not_block_a_newer_one() {
    let (mut queue, judge) = (queue(true), fit());
    queue.add(pod(1, 0), at(0), &judge);
    queue.add(pod(2, 0), at(1), &judge);
    let popped = queue.pop(at(2), &judge).unwrap();
    assert_eq!(popped.pod, PodId(1));
    queue.rejected(popped.attempt, set(&[FIT]), NONE, at(2), &judge);
    queue.activate(&[PodId(1)], at(2), &judge);
    assert_eq!(pop_all(&mut queue, at(2), &judge), [2, 1]);
}

#[test]
fn a_pod_with_priority_that_backs_off_lets_others_pass() {
    let (mut queue, judge) = (queue(true), fit());
    back_off(&mut queue, pod(1, 100), at(0), &judge);
    queue.add(pod(2, 50), at(1), &judge);
    assert_eq!(pop_all(&mut queue, at(1), &judge), [2, 1]);
}

#[test]
fn a_pod_popped_early_that_fails_again_goes_behind_the_others() {
    let (mut queue, judge) = (queue(true), fit());
    back_off(&mut queue, pod(1, 100), at(0), &judge);
    back_off(&mut queue, pod(2, 0), at(1), &judge);
    let popped = queue.pop(at(2), &judge).unwrap();
    assert_eq!(popped.pod, PodId(1));
    queue.happened(&node_added(), at(2), &judge);
    queue.rejected(popped.attempt, set(&[FIT]), NONE, at(2), &judge);
    assert_eq!(place(&queue, 1), Place::Backoff { until: at(2_002), error: false });
    assert_eq!(pop_all(&mut queue, at(3), &judge), [2, 1]);
}

/// The reference looks every thirty seconds for those that wait longer than five minutes; ours has a deadline.
#[test]
fn whoever_waits_five_minutes_is_tried_without_an_event() {
    let (mut queue, judge) = (queue(true), fit());
    park(&mut queue, pod(1, 1), at(0), &judge);
    park(&mut queue, pod(2, 2), at(0), &judge);
    assert_eq!(queue.next_deadline(), Some(at(300_000)));
    assert_eq!(pop_all(&mut queue, at(299_999), &judge), []);
    let popped = queue.pop(at(300_000), &judge).unwrap();
    assert_eq!((popped.pod, popped.was_flushed), (PodId(2), true));
    queue.done(popped.attempt);
    assert_eq!(queue.counts().rescued_by_flush, 1);
    let popped = queue.pop(at(300_000), &judge).unwrap();
    queue.rejected(popped.attempt, set(&[FIT]), NONE, at(300_001), &judge);
    assert!(!queue.standing(PodId(1)).unwrap().was_flushed);
    assert_eq!(queue.next_deadline(), Some(at(600_001)));
}

#[test]
fn a_gated_pod_is_flushed_once_in_five_minutes() {
    let (mut queue, mut judge) = (queue(true), fit());
    judge.close(GATES, 1);
    queue.add(pod(1, 0), at(0), &judge);
    for (millis, visits) in [(299_999, 0), (301_000, 1), (541_000, 1), (600_999, 1), (602_000, 2)] {
        queue.advance(at(millis), &judge);
        assert_eq!(queue.counts().visits, visits, "{millis}");
        assert!(!queue.standing(PodId(1)).unwrap().was_flushed);
    }
    judge.open(GATES, 1);
    queue.advance(at(902_000), &judge);
    assert_eq!(place(&queue, 1), Place::Active);
}

#[test]
fn a_wildcard_wakes_everybody_or_the_one_it_names() {
    let (mut queue, mut judge) = (queue(true), Table::default());
    judge.close(PREEMPTION, 4);
    queue.add(pod(4, 0), at(0), &judge);
    let judge = Table::default();
    for number in [1, 2, 3] {
        park(&mut queue, pod(number, 0), at(0), &judge);
    }
    queue.happened(&anything(Some(uid(2))), at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [2]);
    queue.happened(&anything(None), at(2_000), &judge);
    assert_eq!(pop_all(&mut queue, at(2_000), &judge), [1, 3, 4]);
}

#[test]
fn activated_pods_skip_their_penalty_and_in_flight_it_is_remembered() {
    let (mut queue, judge) = (queue(true), fit());
    fail(&mut queue, pod(1, 0), at(0), &judge);
    park(&mut queue, pod(2, 0), at(0), &judge);
    let third = try_new(&mut queue, pod(3, 0), at(0), &judge);
    let fourth = try_new(&mut queue, pod(4, 0), at(0), &judge);
    queue.activate(&[1, 2, 3, 9].map(PodId), at(1), &judge);
    assert_eq!(pop_all(&mut queue, at(1), &judge), [1, 2]);
    queue.rejected(third, set(&[TAINTS]), NONE, at(2), &judge);
    queue.rejected(fourth, set(&[TAINTS]), NONE, at(2), &judge);
    assert_eq!(place(&queue, 3), Place::Backoff { until: at(1_002), error: false });
    assert!(is_parked(&queue, 4));
}
