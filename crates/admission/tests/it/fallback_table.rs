//! Falling back to another flavor when machines do not come, and admission checks that agree or do not.

mod corners;
mod starts;

use gangway_admission::Event;
use gangway_model::Timestamp;
use gangway_model::checks::{AdmissionCheck, RequiredCheck};
use gangway_model::fallback::{FailurePolicy, FallbackRule, FallbackStrategy};
use gangway_model::queues::{ClusterQueue, PreemptionPolicy, WithinClusterQueue};
use gangway_model::readiness::{RequeuingTimestamp, WaitForPodsReady};
use gangway_model::reasons::{
    CheckState, ClusterQueueReason, EvictionReason, FallbackTrigger, PendingReason, RequeueReason,
};
use gangway_model::workload::{State, Workload};

use crate::build::*;
use crate::play::{BEGIN, Play};

const TIMEOUT: FallbackTrigger = FallbackTrigger::TimeoutForPodsReadyExceeded;
const REJECTED: FallbackTrigger = FallbackTrigger::AdmissionCheckRejected;

fn rule(flavor: &str, timeout_seconds: impl Into<Option<i64>>) -> FallbackRule {
    let flavor = (flavor != "*").then(|| flavor.into());
    FallbackRule { flavor, trigger: TIMEOUT, timeout_seconds: timeout_seconds.into() }
}

fn rejection(flavor: &str) -> FallbackRule {
    FallbackRule { trigger: REJECTED, ..rule(flavor, None) }
}

/// A queue `q` with these flavors of one cpu each and these rules.
fn queue(flavors: &[&str], rules: Vec<FallbackRule>) -> ClusterQueue {
    let quotas: Vec<_> = flavors.iter().map(|flavor| (*flavor, quota(1))).collect();
    let fallback = Some(FallbackStrategy { rules, ..FallbackStrategy::default() });
    ClusterQueue { fallback, ..cluster_queue("q", cpu_group(&quotas)) }
}

fn with_checks(mut queue: ClusterQueue, checks: &[(&str, &[&str])]) -> ClusterQueue {
    let required = |(name, on_flavors): &(&str, &[&str])| RequiredCheck {
        name: (*name).into(),
        on_flavors: on_flavors.iter().map(|flavor| (*flavor).into()).collect(),
    };
    queue.admission_checks = checks.iter().map(required).collect();
    queue
}

fn policy(mut queue: ClusterQueue, failure_policy: FailurePolicy) -> ClusterQueue {
    queue.fallback.as_mut().expect("it has a strategy").failure_policy = failure_policy;
    queue
}

/// A play without readiness, once as it is and once with a restart before every step.
fn plays(queue: &ClusterQueue) -> [Play; 2] {
    plays_with(None, queue)
}

fn plays_with(settings: Option<WaitForPodsReady>, queue: &ClusterQueue) -> [Play; 2] {
    [false, true].map(|restarts| {
        let mut play = Play::new(settings.clone(), vec![queue.clone()]);
        play.restarts = restarts;
        for check in &queue.admission_checks {
            play.tell(Event::AdmissionCheck(AdmissionCheck { name: check.name.clone(), active: true }));
        }
        play
    })
}

/// The document's three flavors: the last has no time.
fn three() -> ClusterQueue {
    queue(
        &["reservation", "spot", "on-demand"],
        vec![rule("reservation", 600), rule("spot", 900), rule("on-demand", None)],
    )
}

fn requeued(play: &Play, uid: &str) -> Option<(bool, RequeueReason)> {
    match play.state(uid) {
        State::Pending(pending) => pending.requeued.as_ref(),
        State::Holding(held) | State::Evicting(held, _) => held.requeued.as_ref(),
        State::Finished(..) => None,
    }
    .map(|requeued| (requeued.eligible, requeued.reason))
}

#[test]
fn when_machines_do_not_come_the_next_flavor_is_tried_at_once_and_that_is_remembered() {
    for mut play in plays(&three()) {
        play.submit("q", cpu_workload("w", 1));
        assert_eq!(play.at(0), ["w admit in q on reservation"]);
        assert_eq!(play.next(), 600);
        assert!(play.at(599).is_empty());
        assert_eq!(play.at(600), ["w evict: FlavorFallback", "w admit in q on spot"]);
        assert_eq!(requeued(&play, "w"), Some((true, RequeueReason::FlavorFallback)));
        assert_eq!(play.requeue_state("w").count, 0, "it is no fault of its own");
        assert_eq!(
            (play.given_up("w"), play.used("w", "reservation")),
            (vec!["reservation".to_owned()], 600)
        );
        assert_eq!(play.at(1500), ["w evict: FlavorFallback", "w admit in q on on-demand"]);
        assert_eq!(play.engine.next_deadline(), None, "the last may take for ever");
        play.pods("w", 2);
        assert_eq!(play.at(9000), ["w pods: Started"]);
        assert_eq!(play.state("w").history(), None, "what is known of stock-outs is old now");
    }
}

/// The document's first story and its first integration test.
#[test]
fn back_to_a_flavor_that_was_full_or_on_to_the_next_but_never_to_one_that_was_given_up() {
    for freed in [true, false] {
        for mut play in plays(&three()) {
            play.submit("q", cpu_workload("other", 1));
            play.pods("other", 2);
            assert_eq!(play.at(0), ["other admit in q on reservation", "other pods: Started"]);
            play.submit("q", ranked("w", 1, 0, 1));
            assert_eq!(play.at(1), ["w admit in q on spot"]);
            if freed {
                play.end_job("other");
                play.at(2);
            }
            let flavor = if freed { "reservation" } else { "on-demand" };
            let next = format!("w admit in q on {flavor}");
            assert_eq!(play.at(901), ["w evict: FlavorFallback", &next]);
            if freed {
                assert_eq!(play.at(1501), ["w evict: FlavorFallback", "w admit in q on on-demand"]);
            }
        }
    }
}

#[test]
fn who_gave_up_every_flavor_is_deactivated_and_begins_anew_when_it_is_activated() {
    let queue = policy(queue(&["a", "b"], vec![rule("*", 60)]), FailurePolicy::DeactivateWorkload);
    for mut play in plays(&queue) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        assert_eq!(play.at(60), ["w evict: FlavorFallback", "w admit in q on b"]);
        let told = play.at(120);
        let expected =
            ["w evict: FlavorFallback", "w evict: DeactivatedDueToFlavorFallbackExhausted", "w deactivate"];
        assert_eq!(told, expected);
        assert!(!play.store.workload("w").active);
        assert_eq!(play.given_up("w"), ["a", "b"], "to be seen");
        let reason = RequeueReason::DeactivatedDueToFlavorFallbackExhausted;
        assert_eq!(requeued(&play, "w"), Some((false, reason)));
        let message = "Gangway deactivated the Workload: Every flavor that it could have was given up: a, b; \
                       set spec.active to true to begin anew";
        assert_eq!(play.waiting("w"), message);
        assert_eq!(play.engine.next_deadline(), None);
        play.edit("w", |workload| workload.active = true);
        assert_eq!(play.at(500), ["w requeue: Reactivated", "w admit in q on a"]);
        assert_eq!((play.given_up("w"), play.used("w", "a")), (vec![], 0));
    }
}

#[test]
fn a_users_own_deactivation_keeps_what_was_tried() {
    for mut play in plays(&queue(&["a", "b"], vec![rule("*", 60)])) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.at(60);
        play.edit("w", |workload| workload.active = false);
        assert_eq!(play.at(70), ["w evict: Deactivated"]);
        assert_eq!(play.used("w", "b"), 10);
        play.edit("w", |workload| workload.active = true);
        assert_eq!(play.at(1000), ["w requeue: Reactivated", "w admit in q on b"]);
        assert_eq!(play.next(), 1050, "what is left of its time");
    }
}

#[test]
fn all_flavors_are_tried_again_round_by_round_after_a_growing_wait() {
    for mut play in plays(&queue(&["a", "b"], vec![rule("a", 60), rule("b", 30)])) {
        play.submit("q", cpu_workload("w", 1));
        let mut second = 0;
        assert_eq!(play.at(0), ["w admit in q on a"]);
        for round in 1..=3 {
            assert_eq!(play.at(second + 60), ["w evict: FlavorFallback", "w admit in q on b"]);
            assert_eq!(play.at(second + 90), ["w evict: FlavorFallback", "w retry all flavors"]);
            let wait = WaitForPodsReady::default().backoff_seconds(&"w".into(), round);
            assert!((60 << (round - 1)..=63 << (round - 1)).contains(&wait), "{wait}");
            assert_eq!(play.next(), second + 90 + wait);
            assert_eq!(play.state("w").history().map(|history| history.rounds()), Some(round));
            assert_eq!((play.given_up("w"), play.requeue_state("w").count), (vec![], 0));
            assert!(play.at(second + 90 + wait - 1).is_empty(), "not before its time");
            second += 90 + wait;
            assert_eq!(play.at(second), ["w admit in q on a"]);
            assert_eq!(requeued(&play, "w"), Some((true, RequeueReason::BackoffFinished)));
        }
    }
}

#[test]
fn a_flavor_that_was_never_tried_is_waited_for_and_one_that_never_fits_is_not() {
    // The other holds b for ever.
    for mut play in plays(&queue(&["b", "a"], vec![rule("a", 60)])) {
        play.submit("q", cpu_workload("other", 1));
        play.at(0);
        play.submit("q", ranked("w", 1, 0, 1));
        assert_eq!(play.at(1), ["w admit in q on a"]);
        assert_eq!(play.at(61), ["w evict: FlavorFallback"]);
        let seen = play.engine.explain(&"w".into()).expect("it is known").flavors;
        let told: Vec<String> = seen.iter().map(ToString::to_string).collect();
        let given_up = "flavor a was given up: its machines did not come in time";
        assert_eq!(told, ["cpu in flavor b: 1m needed, 0 free of 1m", given_up]);
        play.end_job("other");
        assert_eq!(play.at(100), ["other finish: Succeeded", "w admit in q on b"]);
    }
    let mut small = queue(&["a", "b"], vec![rule("a", 60)]);
    small.resource_groups = cpu_group(&[("a", quota(2)), ("b", quota(1))]);
    for mut play in plays(&small) {
        play.submit("q", cpu_workload("w", 2));
        assert_eq!(play.at(0), ["w admit in q on a"]);
        assert_eq!(play.at(60), ["w evict: FlavorFallback", "w retry all flavors"]);
    }
}

#[test]
fn time_adds_up_over_assignments_and_stands_still_in_the_queue() {
    let mut preempting = queue(&["a", "b"], vec![rule("a", 60)]);
    preempting.resource_groups = cpu_group(&[("a", quota(1))]);
    preempting.preemption = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        ..PreemptionPolicy::default()
    };
    for mut play in plays(&preempting) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.submit("q", ranked("high", 1, 9, 1));
        let told = play.at(59);
        assert!(told.contains(&"high admit in q on a".to_owned()), "{told:?}");
        assert_eq!(play.used("w", "a"), 59);
        play.pods("high", 2);
        play.at(100);
        play.end_job("high");
        assert_eq!(play.at(5000), ["high finish: Succeeded", "w admit in q on a"]);
        assert_eq!(play.next(), 5001, "given even when little is left");
        let told = play.at(5001);
        assert_eq!(told, ["w evict: FlavorFallback", "w retry all flavors"]);
    }
}

/// Two resource groups: `c1` then `c2` for cpu, `g1` then `g2` for gpu.
fn two_groups(rules: Vec<FallbackRule>) -> (ClusterQueue, Workload) {
    let groups =
        vec![group(&["cpu"], &[("c1", &[1]), ("c2", &[1])]), group(&["gpu"], &[("g1", &[1]), ("g2", &[1])])];
    let queue = ClusterQueue { resource_groups: groups, ..queue(&[], rules) };
    (queue, workload("w", vec![pod_set("main", 1, &[("cpu", 1), ("gpu", 1)])]))
}

#[test]
fn of_several_flavors_those_are_given_up_whose_own_time_is_over() {
    let (queue, w) = two_groups(vec![rule("c1", 100), rule("g1", 150), rule("g2", 150)]);
    for mut play in plays(&queue) {
        play.submit("q", w.clone());
        assert_eq!(play.at(0), ["w admit in q on c1, g1"]);
        assert_eq!(play.at(100), ["w evict: FlavorFallback", "w admit in q on c2, g1"]);
        assert_eq!(play.next(), 150, "the other's time went on");
        assert_eq!(play.at(150), ["w evict: FlavorFallback", "w admit in q on c2, g2"]);
        assert_eq!(play.given_up("w"), ["c1", "g1"]);
        assert_eq!(play.at(300), ["w evict: FlavorFallback", "w retry all flavors"], "one group is enough");
    }
    let (queue, w) = two_groups(vec![rule("*", 100)]);
    for mut play in plays(&queue) {
        play.submit("q", w.clone());
        play.at(0);
        assert_eq!(play.at(100), ["w evict: FlavorFallback", "w admit in q on c2, g2"], "both in one second");
        assert_eq!(play.given_up("w"), ["c1", "g1"]);
    }
}

fn readiness() -> WaitForPodsReady {
    WaitForPodsReady { timeout_seconds: 300, block_admission: false, ..WaitForPodsReady::default() }
}

#[test]
fn the_general_timeout_rests_while_every_flavor_has_one_of_its_own() {
    for mut play in plays_with(Some(readiness()), &queue(&["a", "b"], vec![rule("a", 900)])) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        assert_eq!(play.at(900), ["w evict: FlavorFallback", "w admit in q on b"]);
        assert_eq!(play.next(), 1200, "the other flavor has none");
        assert_eq!(play.at(1200), ["w evict: PodsReadyTimeout"]);
        assert_eq!(play.requeue_state("w").count, 1);
        assert_eq!(play.given_up("w"), ["a"], "still");
        let back = play.next();
        assert_eq!(play.at(back), ["w admit in q on b"]);
    }
}

#[test]
fn of_both_timeouts_the_first_counts_and_of_two_at_once_the_fallback() {
    for (timeout, expected) in [
        (200, vec!["w evict: FlavorFallback", "w admit in q on c2, g1"]),
        (300, vec!["w evict: FlavorFallback", "w admit in q on c2, g1"]),
        (301, vec!["w evict: PodsReadyTimeout"]),
    ] {
        let (queue, w) = two_groups(vec![rule("c1", timeout)]);
        for mut play in plays_with(Some(readiness()), &queue) {
            play.submit("q", w.clone());
            play.at(0);
            assert_eq!(play.at(timeout.min(300)), expected);
            let count = u32::from(timeout > 300);
            assert_eq!(play.requeue_state("w").count, count);
        }
    }
}

#[test]
fn recovery_is_not_the_business_of_fallback() {
    let settings = WaitForPodsReady { recovery_timeout_seconds: Some(50), ..readiness() };
    for mut play in plays_with(Some(settings), &queue(&["a", "b"], vec![rule("a", 100)])) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.pods("w", 2);
        play.at(10);
        play.pods("w", 1);
        play.at(20);
        assert_eq!(play.at(70), ["w evict: PodsReadyTimeout"]);
        assert_eq!(play.state("w").history(), None);
        let back = play.next();
        assert_eq!(play.at(back), ["w admit in q on a"]);
    }
    // Where only fallback asks, who has started may lose pods.
    for mut play in plays(&queue(&["a"], vec![rule("a", 100)])) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.pods("w", 2);
        assert_eq!(play.at(10), ["w pods: Started"]);
        play.pods("w", 1);
        assert!(play.at(1000).is_empty());
        assert_eq!(play.engine.next_deadline(), None);
    }
}

#[test]
fn the_place_in_the_queue_follows_the_strategy() {
    for (settings, first) in [
        (None, "w"),
        (Some(readiness()), "late"),
        (Some(WaitForPodsReady { timestamp: RequeuingTimestamp::Creation, ..readiness() }), "w"),
    ] {
        for mut play in plays_with(settings.clone(), &queue(&["b", "a"], vec![rule("a", 100)])) {
            play.submit("q", cpu_workload("runs", 1));
            play.pods("runs", 2);
            play.at(0);
            for (second, name) in [(1, "w"), (2, "next"), (3, "late")] {
                play.submit("q", ranked(name, 1, 0, second));
                play.at(second);
            }
            play.pods("next", 2);
            assert_eq!(
                play.at(101),
                ["w evict: FlavorFallback", "next admit in q on a", "next pods: Started"]
            );
            play.end_job("runs");
            let expected = format!("{first} admit in q on b");
            assert_eq!(play.at(102), ["runs finish: Succeeded", &expected], "{settings:?}");
        }
    }
}

#[test]
fn rules_that_change_meanwhile_hold_at_once() {
    for mut play in plays(&queue(&["a", "b"], vec![rule("a", 100)])) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.change("q", |queue| queue.fallback.as_mut().expect("rules").rules = vec![rule("a", 20)]);
        assert_eq!(play.at(20), ["w evict: FlavorFallback", "w admit in q on b"]);
        // Without the strategy nothing that was given up counts.
        play.change("q", |queue| queue.fallback = None);
        play.edit("w", |workload| workload.active = false);
        play.at(30);
        play.edit("w", |workload| workload.active = true);
        assert_eq!(play.at(40), ["w requeue: Reactivated", "w admit in q on a"]);
    }
    // A flavor that goes away is forgotten, and with the others it may have been the last.
    for mut play in plays(&queue(&["a", "b"], vec![rule("a", 100)])) {
        play.submit("q", cpu_workload("other", 1));
        play.at(0);
        play.submit("q", ranked("w", 1, 0, 1));
        assert_eq!(play.at(1), ["w admit in q on b"]);
        play.change("q", |queue| {
            queue.fallback.as_mut().expect("rules").rules = vec![rule("b", 10)];
        });
        assert_eq!(play.at(11), ["w evict: FlavorFallback"]);
        play.change("q", |queue| queue.resource_groups = cpu_group(&[("b", quota(1))]));
        assert_eq!(play.at(12), ["w retry all flavors"]);
    }
}

#[test]
fn who_asks_for_something_else_or_elsewhere_begins_anew() {
    let mut larger = queue(&["a", "b"], vec![rule("a", 100)]);
    larger.resource_groups = cpu_group(&[("a", quota(2)), ("b", quota(1))]);
    for asks_for_more in [true, false] {
        let mut play =
            Play::new(None, vec![larger.clone(), ClusterQueue { name: "p".into(), ..larger.clone() }]);
        play.submit("q", cpu_workload("other", 1));
        play.pods("other", 2);
        play.submit("q", ranked("more", 1, 0, 1));
        play.pods("more", 2);
        play.submit("q", ranked("w", 1, 0, 2));
        play.at(0);
        assert_eq!(
            play.state("w").reservation().map(|held| held.admission.flavors()[0].to_string()).as_deref(),
            Some("b")
        );
        play.change("q", |queue| queue.fallback.as_mut().expect("rules").rules = vec![rule("b", 10)]);
        assert_eq!(play.at(10), ["w evict: FlavorFallback"]);
        play.edit("w", |workload| {
            if asks_for_more {
                workload.pod_sets = cpu_workload("w", 2).pod_sets;
            } else {
                workload.queue = "p".into();
            }
        });
        let told = play.at(11);
        assert_eq!(told[0], "w forget what was tried");
        assert_eq!(told.len(), if asks_for_more { 1 } else { 2 }, "{told:?}");
    }
}

#[test]
fn equal_workloads_fall_back_once_each_in_order() {
    let mut large = queue(&["a", "b"], vec![rule("a", 100)]);
    large.resource_groups = cpu_group(&[("a", quota(1000)), ("b", quota(1000))]);
    for mut play in plays(&large) {
        play.restarts = false;
        for number in 0..1000 {
            play.submit("q", ranked(&format!("w{number:03}"), 1, 0, number));
        }
        assert_eq!(play.at(0).len(), 1000);
        let told = play.at(100);
        let evictions: Vec<&String> = told.iter().filter(|text| text.contains("evict")).collect();
        assert_eq!(evictions.len(), 1000, "one eviction each");
        let admitted: Vec<&str> = told
            .iter()
            .filter(|text| text.ends_with("on b"))
            .filter_map(|text| text.split(' ').next())
            .collect();
        assert_eq!(admitted.len(), 1000);
        assert!(admitted.is_sorted(), "in order");
    }
}

#[test]
fn quota_is_reserved_until_every_check_agrees() {
    let queue = with_checks(
        cluster_queue("q", cpu_group(&[("a", quota(1)), ("b", quota(1))])),
        &[("all", &[]), ("only-a", &["a"]), ("only-b", &["b"])],
    );
    for mut play in plays(&queue) {
        play.submit("q", cpu_workload("w", 1));
        assert_eq!(play.at(0), ["w reserve in q on a"]);
        let asked: Vec<String> =
            play.state("w").checks().into_iter().flat_map(|c| &c.0).map(|c| c.name.to_string()).collect();
        assert_eq!(asked, ["all", "only-a"]);
        assert!(!play.state("w").may_run());
        play.answer("w", "all", CheckState::Ready, None);
        assert!(play.at(5).is_empty());
        play.answer("w", "only-a", CheckState::Ready, None);
        assert_eq!(play.at(7), ["w let start in q on a"]);
        let State::Holding(held) = play.state("w") else { panic!("{:?}", play.state("w")) };
        assert_eq!((held.reserved_at, held.admitted_at), (at(BEGIN), Some(at(BEGIN + 7))));
        // Who runs is not asked again, and not stopped by a check that forgets.
        play.change("q", |queue| queue.admission_checks[0].name = "new".into());
        play.tell(Event::AdmissionCheck(AdmissionCheck { name: "new".into(), active: true }));
        play.answer("w", "only-a", CheckState::Pending, None);
        assert!(play.at(8).is_empty());
        assert!(play.state("w").may_run());
    }
}

#[test]
fn who_waits_for_checks_of_a_queue_that_goes_away_gives_its_quota_back() {
    let queue = with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("one", &[])]);
    for mut play in plays(&queue) {
        play.submit("q", cpu_workload("w", 1));
        assert_eq!(play.at(0), ["w reserve in q on a"]);
        play.tell(Event::ClusterQueueGone("q".into()));
        assert_eq!(play.at(1), ["w evict: ClusterQueueStopped"]);
        play.tell(Event::ClusterQueue(Box::new(queue.clone())));
        assert_eq!(play.at(2), ["w requeue: ClusterQueueRestarted", "w reserve in q on a"]);
    }
}

#[test]
fn who_waits_for_checks_follows_what_its_queue_demands() {
    let queue = with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("one", &[])]);
    for mut play in plays(&queue) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.tell(Event::AdmissionCheck(AdmissionCheck { name: "two".into(), active: true }));
        play.change("q", |queue| queue.admission_checks[0].name = "two".into());
        assert_eq!(play.at(1), ["w ask other checks"]);
        play.answer("w", "two", CheckState::Ready, None);
        play.change("q", |queue| queue.admission_checks.clear());
        assert_eq!(play.at(2), ["w ask other checks", "w let start in q on a"]);
    }
}

#[test]
fn a_check_that_asks_to_retry_sends_the_workload_back_for_a_while() {
    let queue = with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("one", &[]), ("two", &[])]);
    for mut play in plays(&queue) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.now = at(BEGIN + 10);
        play.answer("w", "one", CheckState::Retry, Some(100));
        play.answer("w", "two", CheckState::Retry, Some(30));
        assert_eq!(play.at(11), ["w evict: AdmissionCheck"]);
        let retries: Vec<_> = play.state("w").checks().into_iter().flat_map(|c| &c.0).collect();
        assert!(
            retries.iter().all(|c| c.state == CheckState::Pending && c.retry_count == Some(1)),
            "{retries:?}"
        );
        assert_eq!(play.requeue_state("w").count, 0);
        assert_eq!(play.next(), 110, "the longest delay, from the answer");
        assert_eq!(play.at(110), ["w reserve in q on a"]);
        // Without a delay it is tried at once.
        play.answer("w", "one", CheckState::Retry, None);
        assert_eq!(play.at(120), ["w evict: AdmissionCheck", "w reserve in q on a"]);
        let asked = play.state("w").checks().and_then(|c| c.find(&"one".into())).and_then(|c| c.retry_count);
        assert_eq!(asked, Some(2));
    }
}

#[test]
fn a_check_that_rejects_deactivates_and_goes_before_one_that_retries() {
    let queue = with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("one", &[]), ("two", &[])]);
    for mut play in plays(&queue) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.answer("w", "one", CheckState::Retry, Some(100));
        play.answer("w", "two", CheckState::Rejected, None);
        assert_eq!(play.at(1), ["w evict: DeactivatedDueToAdmissionCheck", "w deactivate"]);
        play.edit("w", |workload| workload.active = true);
        assert_eq!(play.at(2), ["w requeue: Reactivated", "w reserve in q on a"]);
    }
}

#[test]
fn a_rejected_check_gives_up_its_flavors_if_all_of_them_have_a_rule() {
    let rules = vec![rejection("a"), rule("b", 60)];
    let checked = with_checks(queue(&["a", "b"], rules), &[("check", &[])]);
    for mut play in plays(&checked) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.answer("w", "check", CheckState::Rejected, None);
        assert_eq!(play.at(1), ["w evict: FlavorFallback", "w reserve in q on b"]);
        let asked = play.state("w").checks().and_then(|c| c.find(&"check".into()));
        assert_eq!(asked.map(|c| (c.state, c.retry_count)), Some((CheckState::Pending, None)));
        let tried = play.state("w").history().and_then(|history| history.find(&"a".into()));
        assert_eq!(tried.and_then(|tried| tried.exhausted), Some(REJECTED));
        // That it stays pending until the time is over is the timeout.
        assert_eq!(play.at(61), ["w evict: FlavorFallback", "w retry all flavors"]);
    }
    let checked = with_checks(queue(&["a", "b"], vec![rejection("a")]), &[("check", &[])]);
    for mut play in plays(&checked) {
        play.submit("q", cpu_workload("w", 1));
        play.at(0);
        play.answer("w", "check", CheckState::Rejected, None);
        play.at(1);
        play.answer("w", "check", CheckState::Rejected, None);
        assert_eq!(play.at(2), ["w evict: DeactivatedDueToAdmissionCheck", "w deactivate"], "b has no rule");
    }
    // A check concerns its own flavors only: those of the other group stay.
    let (groups, w) = two_groups(vec![rejection("g1")]);
    let checked = with_checks(groups, &[("check", &["g1"])]);
    for mut play in plays(&checked) {
        play.submit("q", w.clone());
        play.at(0);
        play.answer("w", "check", CheckState::Rejected, None);
        assert_eq!(play.at(1), ["w evict: FlavorFallback", "w admit in q on c1, g2"], "nobody checks g2");
        assert_eq!(play.given_up("w"), ["g1"]);
    }
}

#[test]
fn time_runs_while_checks_are_asked_and_is_not_counted_twice() {
    let checked = with_checks(queue(&["a", "b"], vec![rule("a", 100)]), &[("check", &["a"])]);
    for mut play in plays(&checked) {
        play.submit("q", cpu_workload("w", 1));
        assert_eq!(play.at(0), ["w reserve in q on a"]);
        play.answer("w", "check", CheckState::Retry, Some(20));
        assert_eq!(play.at(40), ["w evict: AdmissionCheck", "w reserve in q on a"]);
        assert_eq!(play.used("w", "a"), 40);
        play.answer("w", "check", CheckState::Ready, None);
        assert_eq!(play.at(70), ["w let start in q on a"]);
        assert_eq!(play.next(), 100);
        assert_eq!(play.at(100), ["w evict: FlavorFallback", "w admit in q on b"]);
        assert_eq!(play.used("w", "a"), 100);
    }
}

#[test]
fn while_one_starts_others_get_quota_and_their_checks_are_asked() {
    let settings = WaitForPodsReady { block_admission: true, ..readiness() };
    let mut queue =
        with_checks(cluster_queue("q", cpu_group(&[("a", quota(2)), ("b", quota(2))])), &[("check", &["b"])]);
    queue.resource_groups = cpu_group(&[("a", quota(1)), ("b", quota(1))]);
    for mut play in plays_with(Some(settings), &queue) {
        play.submit("q", cpu_workload("first", 1));
        assert_eq!(play.at(0), ["first admit in q on a"]);
        play.submit("q", ranked("second", 1, 0, 1));
        assert_eq!(play.at(1), ["second reserve in q on b"]);
        play.answer("second", "check", CheckState::Ready, None);
        assert!(play.at(2).is_empty(), "one starts at a time");
        play.pods("first", 2);
        assert_eq!(play.at(3), ["first pods: Started", "second let start in q on b"]);
    }
}

#[test]
fn a_queue_whose_checks_nobody_answers_is_not_active() {
    let queue = with_checks(cluster_queue("q", cpu_group(&[("a", quota(1))])), &[("check", &[])]);
    let mut play = Play::new(None, vec![queue]);
    play.submit("q", cpu_workload("w", 1));
    let activity = |play: &Play| play.engine.cluster_queue_status(&"q".into()).expect("it exists").0;
    play.at(0);
    assert_eq!(activity(&play), ClusterQueueReason::AdmissionCheckNotFound);
    let State::Pending(pending) = play.state("w") else { panic!("{:?}", play.state("w")) };
    assert_eq!(pending.waiting.as_ref().map(|waiting| waiting.reason), Some(PendingReason::Suspended));
    play.tell(Event::AdmissionCheck(AdmissionCheck { name: "check".into(), active: false }));
    play.at(1);
    assert_eq!(activity(&play), ClusterQueueReason::AdmissionCheckInactive);
    play.tell(Event::AdmissionCheck(AdmissionCheck { name: "check".into(), active: true }));
    assert_eq!(play.at(2), ["w reserve in q on a"]);
    play.tell(Event::AdmissionCheckGone("check".into()));
    play.at(3);
    assert!(play.state("w").reservation().is_some(), "who has quota keeps it");
}

#[test]
fn what_is_written_of_a_fallback_names_flavors_and_times() {
    let mut play = Play::new(None, vec![three()]);
    play.submit("q", cpu_workload("w", 1));
    play.at(0);
    play.submit("q", ranked("spot", 1, 0, 1));
    play.at(1);
    play.submit("q", ranked("on-demand", 1, 0, 2));
    play.at(2);
    play.at(600);
    let State::Pending(pending) = play.state("w") else { panic!("{:?}", play.state("w")) };
    let eviction = pending.evicted.as_ref().expect("it was evicted");
    assert_eq!(eviction.reason, EvictionReason::FlavorFallback);
    assert_eq!(
        eviction.message,
        "Not all pods were ready in time: reservation had 600 s; another flavor is tried"
    );
}
