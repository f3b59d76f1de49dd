//! Who starts first when checks agree, and what is counted when they end what ran.

use super::*;

#[test]
fn a_check_that_ends_a_long_readiness_lets_the_count_begin_anew() {
    let settings = WaitForPodsReady { reset_after_ready_seconds: 100, ..readiness() };
    let queue = with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("check", &[])]);
    for (state, ready_for, count) in [
        (CheckState::Retry, 99, 1),
        (CheckState::Retry, 100, 0),
        (CheckState::Rejected, 99, 1),
        (CheckState::Rejected, 100, 0),
    ] {
        for mut play in plays_with(Some(settings.clone()), &queue) {
            play.submit("q", cpu_workload("w", 1));
            play.at(0);
            play.answer("w", "check", CheckState::Ready, None);
            assert_eq!(play.at(0), ["w let start in q on a"]);
            assert_eq!(play.at(300), ["w evict: PodsReadyTimeout"]);
            let back = play.next();
            play.at(back);
            play.answer("w", "check", CheckState::Ready, None);
            play.pods("w", 2);
            assert_eq!(play.at(back), ["w let start in q on a", "w pods: Started"]);
            play.answer("w", "check", state, None);
            play.at(back + ready_for);
            assert_eq!(play.requeue_state("w").count, count, "{state} after {ready_for} s");
        }
    }
}

#[test]
fn time_counts_from_the_reservation_even_if_the_rules_came_later() {
    let preemption = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        ..PreemptionPolicy::default()
    };
    let without = ClusterQueue { fallback: None, preemption, ..queue(&["a"], vec![]) };
    for mut play in plays(&without) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        let strategy = FallbackStrategy { rules: vec![rule("a", 60)], ..FallbackStrategy::default() };
        play.change("q", |queue| queue.fallback = Some(strategy));
        play.at(10);
        assert_eq!(play.next(), 60);
        play.submit("q", ranked("high", 1, 9, 1));
        play.at(40);
        assert_eq!(play.used("w", "a"), 40);
        play.end_job("high");
        assert_eq!(play.at(50), ["high finish: Succeeded", "w admit in q on a"]);
        assert_eq!(play.next(), 70, "what is left");
    }
}

#[test]
fn of_those_whose_checks_agree_the_highest_priority_starts_first_then_who_waited_longest() {
    let settings = WaitForPodsReady { block_admission: true, ..readiness() };
    let mut queue = with_checks(cluster_queue("q", vec![]), &[("check", &["b"])]);
    queue.resource_groups = cpu_group(&[("a", quota(1)), ("b", quota(3))]);
    for is_blocked in [true, false] {
        for mut play in plays_with(Some(settings.clone()), &queue) {
            play.submit("q", cpu_workload("first", 1));
            play.pods("first", if is_blocked { 1 } else { 2 });
            play.at(0);
            for (second, name, priority) in [(1, "late", 0), (2, "early", 0), (3, "high", 5)] {
                // Who comes last in the alphabet came first.
                play.submit("q", ranked(name, 1, priority, second));
                play.at(second);
            }
            for name in ["early", "late", "high"] {
                play.answer(name, "check", CheckState::Ready, None);
            }
            play.pods("first", 2);
            let mut expected = vec!["first pods: Started"];
            expected.retain(|_| is_blocked);
            expected.push("high let start in q on b");
            assert_eq!(play.at(4), expected);
            play.pods("high", 2);
            assert_eq!(play.at(5), ["high pods: Started", "late let start in q on b"]);
            play.pods("late", 2);
            assert_eq!(play.at(6), ["late pods: Started", "early let start in q on b"]);
        }
    }
}
