//! What rarely comes together: rules that change while somebody is away, times of which nobody took notice, answers that
//! nobody asked for.

use super::*;

/// What is due is done by the queue's rules of that moment, whoever deactivated the Workload before.
#[test]
fn who_was_activated_by_its_user_is_deactivated_when_nothing_is_left() {
    let both = policy(queue(&["a", "b"], vec![rule("*", 60)]), FailurePolicy::DeactivateWorkload);
    for mut play in plays(&both) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        assert_eq!(play.at(60), ["w evict: FlavorFallback", "w admit in q on b"]);
        play.edit("w", |workload| workload.active = false);
        assert_eq!(play.at(70), ["w evict: Deactivated"]);
        play.change("q", |queue| queue.resource_groups = cpu_group(&[("a", quota(1))]));
        play.edit("w", |workload| workload.active = true);
        let told = play.at(80);
        let expected =
            ["w requeue: Reactivated", "w evict: DeactivatedDueToFlavorFallbackExhausted", "w deactivate"];
        assert_eq!(told, expected);
        let reason = RequeueReason::DeactivatedDueToFlavorFallbackExhausted;
        assert_eq!(requeued(&play, "w"), Some((false, reason)));
        play.edit("w", |workload| workload.active = true);
        assert_eq!(play.at(90), ["w requeue: Reactivated", "w admit in q on a"]);
    }
}

#[test]
fn a_check_that_its_queue_does_not_demand_any_more_has_no_say() {
    let checked =
        with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("old", &[]), ("stays", &[])]);
    for word in [CheckState::Rejected, CheckState::Retry] {
        for mut play in plays(&checked) {
            play.submit("q", cpu_workload("w", 1));
            play.at(0);
            play.change("q", |queue| queue.admission_checks.retain(|check| check.name.as_str() == "stays"));
            play.answer("w", "old", word, Some(100));
            assert_eq!(play.at(1), ["w ask other checks"], "{word}");
            play.answer("w", "stays", CheckState::Ready, None);
            assert_eq!(play.at(2), ["w let start in q on a"]);
            // Nor when it runs.
            play.answer("w", "old", word, Some(100));
            assert!(play.at(3).is_empty(), "{word}");
        }
    }
}

/// Nobody looked for a while, and both times are over: the one that was over first counts.
#[test]
fn of_two_times_that_are_over_the_earlier_one_counts() {
    for (seconds, expected) in [(299, "w evict: FlavorFallback"), (301, "w evict: PodsReadyTimeout")] {
        let (queue, w) = two_groups(vec![rule("c1", seconds)]);
        for mut play in plays_with(Some(readiness()), &queue) {
            play.submit("q", w.clone());
            play.at(0);
            assert_eq!(play.at(400)[0], expected, "{seconds}");
        }
    }
}

/// Each podSet alone could have what is left of the flavor, but not both.
#[test]
fn what_can_never_hold_all_pod_sets_is_no_flavor_to_wait_for() {
    let mut both = queue(&["a", "b"], vec![rule("a", 60)]);
    both.resource_groups = cpu_group(&[("a", quota(4)), ("b", quota(3))]);
    let sets = vec![pod_set("one", 1, &[("cpu", 2)]), pod_set("two", 1, &[("cpu", 2)])];
    for mut play in plays(&both) {
        play.submit("q", workload("w", sets.clone()));
        assert_eq!(play.at(0), ["w admit in q on a"]);
        assert_eq!(play.at(60), ["w evict: FlavorFallback", "w retry all flavors"]);
    }
}

#[test]
fn elsewhere_nobody_waits_for_the_next_round() {
    let one = queue(&["a"], vec![rule("a", 60)]);
    let mut play = Play::new(None, vec![one.clone(), ClusterQueue { name: "p".into(), ..one }]);
    play.submit("q", cpu_workload("w", 1));
    play.at(0);
    assert_eq!(play.at(60), ["w evict: FlavorFallback", "w retry all flavors"]);
    play.edit("w", |workload| workload.queue = "p".into());
    assert_eq!(play.at(61), ["w forget what was tried", "w admit in p on a"]);
    assert_eq!(play.state("w").history().map(|history| history.rounds()), Some(0));
}

/// An answer that does not say since when it is given is given now.
#[test]
fn a_delay_is_kept_even_if_the_answer_has_no_time() {
    let checked = with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("one", &[])]);
    for mut play in plays(&checked) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        let now = play.now;
        play.now = Timestamp::EPOCH;
        play.answer("w", "one", CheckState::Retry, Some(100));
        play.now = now;
        assert_eq!(play.at(10), ["w evict: AdmissionCheck"]);
        assert_eq!(play.next(), 110);
    }
}

/// It was to leave anyway when its time was over: what is used up is not given again.
#[test]
fn a_flavor_without_time_left_is_given_up_whatever_the_reason_to_leave() {
    for mut play in plays(&queue(&["a", "b"], vec![rule("a", 60)])) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.edit("w", |workload| workload.active = false);
        assert_eq!(play.at(60), ["w evict: Deactivated"]);
        play.edit("w", |workload| workload.active = true);
        assert_eq!(play.at(70), ["w requeue: Reactivated", "w admit in q on b"]);
    }
}
