//! All-or-nothing start: pods that are ready in time or not, who comes back when, and who may start meanwhile.

use gangway_admission::{Action, Event};
use gangway_model::conditions::{ConditionType, conditions};
use gangway_model::queues::{
    ClusterQueue, PreemptionPolicy, QueueingStrategy, ReclaimWithinCohort, StopPolicy, WithinClusterQueue,
};
use gangway_model::readiness::{RequeuingTimestamp, Timeouts, WaitForPodsReady};
use gangway_model::reasons::{EvictionReason, ReadinessReason, RequeueReason};
use gangway_model::workload::{Eviction, Pending, RequeueState, Requeued, State, Workload};

use crate::build::*;
use crate::play::{BEGIN, Play};

fn settings() -> WaitForPodsReady {
    WaitForPodsReady {
        timeout_seconds: 300,
        recovery_timeout_seconds: Some(60),
        block_admission: false,
        ..WaitForPodsReady::default()
    }
}

fn queue(name: &str, milli: i64) -> ClusterQueue {
    cluster_queue(name, cpu_group(&[("f", quota(milli))]))
}

/// A play with one Workload `w` that is admitted at second 0.
fn started(settings: WaitForPodsReady) -> Play {
    let mut play = Play::new(settings, vec![queue("q", 1)]);
    play.submit("q", cpu_workload("w", 1));
    assert_eq!(play.at(0), ["w admit in q on f"]);
    assert_eq!(play.readiness("w"), ReadinessReason::WaitForStart);
    play
}

#[test]
fn a_start_that_takes_too_long_ends_to_the_second_also_after_a_restart() {
    for restarts in [false, true] {
        let mut play = started(settings());
        play.restarts = restarts;
        play.pods("w", 1);
        assert_eq!(play.next(), 300);
        assert!(play.at(299).is_empty());
        assert_eq!(play.at(300), ["w evict: PodsReadyTimeout"]);
        let State::Pending(pending) = play.state("w") else { panic!("{:?}", play.state("w")) };
        let eviction = pending.evicted.as_ref().expect("it was evicted");
        assert_eq!(
            eviction.message,
            "Not all pods were ready within 300 s of the admission; retry 1 follows after a backoff"
        );
        let out = pending.requeued.as_ref().expect("it is out");
        assert_eq!((out.eligible, out.reason), (false, RequeueReason::PodsReadyTimeout));
        let backoff = settings().backoff_seconds(&"w".into(), 1);
        let expected = RequeueState { count: 1, requeue_at: Some(at(BEGIN + 300 + backoff)) };
        assert_eq!(play.requeue_state("w"), expected);
        assert_eq!(play.next(), 300 + backoff);
        assert!(play.at(300 + backoff - 1).is_empty(), "not before its time");
        assert_eq!(play.at(300 + backoff), ["w admit in q on f"]);
        assert_eq!(play.requeue_state("w"), RequeueState { count: 1, requeue_at: None });
        let State::Holding(reservation) = play.state("w") else { panic!("{:?}", play.state("w")) };
        let back = reservation.requeued.as_ref().expect("it is back");
        assert_eq!((back.eligible, back.reason), (true, RequeueReason::BackoffFinished));
    }
}

#[test]
fn the_time_that_pods_have_is_told() {
    let play = started(settings());
    let State::Holding(reservation) = play.state("w") else { panic!("{:?}", play.state("w")) };
    let ready = reservation.pods_ready.as_ref().expect("it is written down");
    assert_eq!(ready.until(), Some(at(BEGIN + 300)));
    let told = conditions(play.state("w")).into_iter().find(|c| c.kind == ConditionType::PodsReady);
    let message = told.map(|condition| condition.message).unwrap_or_default();
    assert!(message.ends_with(" They have 300 s."), "{message}");
}

#[test]
fn who_is_ready_or_ends_at_the_last_moment_stays() {
    let mut play = started(settings());
    play.pods("w", 2);
    assert_eq!(play.at(300), ["w pods: Started"]);
    assert_eq!(play.engine.next_deadline(), None, "nothing is due any more");

    let mut play = started(settings());
    play.end_job("w");
    assert_eq!(play.at(300), ["w finish: Succeeded"]);
}

#[test]
fn a_lost_pod_has_to_come_back_in_time() {
    let mut play = started(settings());
    play.pods("w", 2);
    assert_eq!(play.at(10), ["w pods: Started"]);
    play.pods("w", 1);
    assert_eq!(play.at(1000), ["w pods: WaitForRecovery"]);
    assert_eq!(play.next(), 1060);
    play.pods("w", 2);
    assert_eq!(play.at(1059), ["w pods: Recovered"]);
    for round in 0..50 {
        // For ever lost and back again in time: that is the Job's own affair.
        play.pods("w", 1);
        assert_eq!(play.at(2000 + 100 * round), ["w pods: WaitForRecovery"]);
        play.pods("w", 2);
        assert_eq!(play.at(2059 + 100 * round), ["w pods: Recovered"]);
    }
    play.pods("w", 0);
    play.at(10_000);
    assert_eq!(play.at(10_060), ["w evict: PodsReadyTimeout"]);
    let State::Pending(pending) = play.state("w") else { panic!("{:?}", play.state("w")) };
    let message = &pending.evicted.as_ref().expect("it was evicted").message;
    assert_eq!(
        message,
        "A pod was lost and not all were ready again within 60 s; retry 1 follows after a backoff"
    );

    let mut play = started(WaitForPodsReady { recovery_timeout_seconds: None, ..settings() });
    play.pods("w", 2);
    play.at(10);
    play.pods("w", 1);
    assert_eq!(play.at(20), ["w pods: WaitForRecovery"]);
    assert_eq!(play.engine.next_deadline(), None, "it may take for ever");
}

#[test]
fn so_many_retries_are_allowed() {
    for limit in 0..3 {
        let mut play = started(WaitForPodsReady { backoff_limit_count: Some(limit), ..settings() });
        let mut evictions = 0;
        let mut second = 0;
        loop {
            second = (second + 1).max(play.next());
            let told = play.at(second);
            if told.iter().any(|text| text.contains("PodsReadyTimeout")) {
                evictions += 1;
            } else if told.iter().any(|text| text.contains("deactivate")) {
                assert_eq!(told, ["w evict: DeactivatedDueToRequeuingLimitExceeded", "w deactivate"]);
                break;
            }
        }
        assert_eq!(evictions, limit);
        assert_eq!(play.requeue_state("w").count, limit, "the count stays and is seen");
        assert!(!play.store.workload("w").active);
        assert_eq!(play.engine.next_deadline(), None, "nobody tries it any more");
    }
}

#[test]
fn backoff_grows_as_it_is_written() {
    let settings = WaitForPodsReady { backoff_max_seconds: 400, ..settings() };
    let mut play = started(settings.clone());
    let mut second = 300;
    for count in 1..=6 {
        assert_eq!(play.at(second), ["w evict: PodsReadyTimeout"]);
        let wait = settings.backoff_seconds(&"w".into(), count);
        let most = (60 * (1 << (count - 1))).min(400);
        assert!((most..=most + most / 20).contains(&wait), "{wait} is not about {most}");
        assert_eq!(play.next(), second + wait);
        assert_eq!(play.at(second + wait), ["w admit in q on f"]);
        second += wait + 300;
    }
    let mut play = started(WaitForPodsReady { backoff_base_seconds: 0, ..settings });
    assert_eq!(play.at(300), ["w evict: PodsReadyTimeout", "w admit in q on f"], "as soon as possible");
}

#[test]
fn who_was_ready_for_long_begins_to_count_anew() {
    for (ready_for, count) in [(3599, 1), (3600, 0)] {
        let mut play = started(settings());
        play.at(300);
        let back = play.next();
        play.at(back);
        play.pods("w", 2);
        play.at(back + 1);
        assert_eq!(play.requeue_state("w").count, 1);
        play.pods("w", 1);
        assert_eq!(play.at(back + 1 + ready_for), ["w pods: WaitForRecovery"]);
        assert_eq!(play.requeue_state("w").count, count);
    }
    // Any end of readiness will do, and with 0 nothing is forgotten.
    for (reset, count) in [(3600, 0), (0, 1)] {
        let mut play = started(WaitForPodsReady { reset_after_ready_seconds: reset, ..settings() });
        play.at(300);
        let back = play.next();
        play.at(back);
        play.pods("w", 2);
        play.at(back + 1);
        let drained = ClusterQueue { stop_policy: StopPolicy::HoldAndDrain, ..queue("q", 1) };
        play.now = at(BEGIN + back + 5000);
        play.tell(Event::ClusterQueue(Box::new(drained)));
        assert_eq!(play.at(back + 5000), ["w evict: ClusterQueueStopped"]);
        assert_eq!(play.requeue_state("w").count, count);
    }
}

#[test]
fn whom_gangway_deactivated_begins_anew_when_it_is_activated() {
    for restarts in [false, true] {
        let mut play = started(WaitForPodsReady { backoff_limit_count: Some(0), ..settings() });
        play.restarts = restarts;
        assert_eq!(play.at(300), ["w evict: DeactivatedDueToRequeuingLimitExceeded", "w deactivate"]);
        play.edit("w", |w| w.active = true);
        assert_eq!(play.at(400), ["w requeue: Reactivated", "w admit in q on f"]);
        assert_eq!(play.requeue_state("w"), RequeueState::default());
        assert_eq!(play.next(), 700, "it has all the time again");
    }
    let mut play = started(WaitForPodsReady { backoff_limit_count: Some(1), ..settings() });
    play.at(300);
    let back = play.next();
    play.at(back);
    assert_eq!(play.at(back + 300), ["w evict: DeactivatedDueToRequeuingLimitExceeded", "w deactivate"]);
    play.edit("w", |w| w.active = true);
    play.at(back + 400);
    assert_eq!(play.at(back + 700), ["w evict: PodsReadyTimeout"], "it may be tried once more again");
    assert_eq!(play.requeue_state("w").count, 1);
}

#[test]
fn whom_a_user_deactivated_keeps_its_count_and_its_backoff() {
    let mut play = started(settings());
    play.at(300);
    let back = play.next();
    play.edit("w", |w| w.active = false);
    assert!(play.at(310).is_empty());
    play.edit("w", |w| w.active = true);
    assert!(play.at(320).is_empty(), "its backoff is not over");
    assert_eq!(play.requeue_state("w").count, 1);
    assert_eq!(play.at(back), ["w admit in q on f"]);
    play.edit("w", |w| w.active = false);
    assert_eq!(play.at(back + 10), ["w evict: Deactivated"]);
    play.edit("w", |w| w.active = true);
    assert_eq!(play.at(back + 20), ["w requeue: Reactivated", "w admit in q on f"]);
    assert_eq!(play.requeue_state("w").count, 1);
}

#[test]
fn who_waits_out_a_backoff_holds_up_nobody() {
    let strict = ClusterQueue { strategy: QueueingStrategy::StrictFifo, ..queue("q", 1) };
    let creation = WaitForPodsReady { timestamp: RequeuingTimestamp::Creation, ..settings() };
    let mut play = Play::new(creation, vec![strict]);
    play.submit("q", ranked("first", 1, 0, 0));
    play.submit("q", ranked("second", 1, 0, 1));
    assert_eq!(play.at(0), ["first admit in q on f"]);
    assert_eq!(play.at(300), ["first evict: PodsReadyTimeout", "second admit in q on f"]);
}

/// One of two runs at a time, and the first is not ready: who is next, in one queue and between two of a cohort?
#[test]
fn where_who_was_sent_back_queues_within_its_queue_and_between_queues() {
    for (timestamp, next) in
        [(RequeuingTimestamp::Eviction, "second"), (RequeuingTimestamp::Creation, "first")]
    {
        for other in ["one", "two"] {
            let settings = WaitForPodsReady { timestamp, backoff_base_seconds: 0, ..settings() };
            let member = |name: &str| ClusterQueue { cohort: Some("all".into()), ..queue(name, 0) };
            let mut play = Play::new(settings, vec![member("one"), member("two")]);
            play.tell(Event::Cohort(cohort("all", None, cpu_group(&[("f", quota(1))]))));
            play.submit("one", ranked("first", 1, 0, 0));
            play.submit(other, ranked("second", 1, 0, 1));
            assert_eq!(play.at(0), ["first admit in one on f"]);
            let told = play.at(300);
            assert_eq!(told[0], "first evict: PodsReadyTimeout");
            assert!(told[1].starts_with(&format!("{next} admit in ")), "{timestamp:?} {other}: {told:?}");
        }
    }
}

#[test]
fn a_preempted_workload_does_not_come_back_before_its_preemptor() {
    let creation = WaitForPodsReady { timestamp: RequeuingTimestamp::Creation, ..settings() };
    let within_cluster_queue = WithinClusterQueue::LowerPriority;
    let preemption = PreemptionPolicy { within_cluster_queue, ..PreemptionPolicy::default() };
    let mut play = Play::new(creation, vec![ClusterQueue { preemption, ..queue("q", 1) }]);
    play.submit("q", ranked("low", 1, 0, 0));
    play.at(0);
    play.submit("q", ranked("high", 1, 10, 1));
    assert_eq!(play.at(10), ["low evict: InClusterQueue for high", "high admit in q on f"]);
    assert!(play.at(100).is_empty());
    play.pods("high", 1);
    assert_eq!(play.at(310), ["high evict: PodsReadyTimeout", "low admit in q on f"]);
    let back = play.requeue_state("high").requeue_at.expect("it backs off").as_seconds() - BEGIN;
    assert_eq!(play.at(back), ["low evict: InClusterQueue for high", "high admit in q on f"]);
}

fn sequential() -> WaitForPodsReady {
    WaitForPodsReady { block_admission: true, ..settings() }
}

#[test]
fn one_starts_at_a_time() {
    for restarts in [false, true] {
        let mut play = Play::new(sequential(), vec![queue("q", 3), queue("r", 3)]);
        play.restarts = restarts;
        for (queue, name, created) in [("q", "a", 0), ("r", "b", 1), ("q", "c", 2)] {
            play.submit(queue, ranked(name, 1, 0, created));
        }
        assert_eq!(play.at(0), ["a admit in q on f"]);
        assert_eq!(play.waiting("b"), "Workload ns/a starts, and one starts at a time");
        assert!(play.at(100).is_empty());
        play.pods("a", 2);
        assert_eq!(play.at(101), ["a pods: Started", "b admit in r on f"]);
        // Who lost a pod does not hold up a cluster.
        play.pods("a", 1);
        assert_eq!(play.at(110), ["a pods: WaitForRecovery"]);
        play.pods("b", 2);
        assert_eq!(play.at(120), ["b pods: Started", "c admit in q on f"]);
    }
}

#[test]
fn who_cannot_start_lets_others_when_its_time_is_over() {
    let mut play = Play::new(sequential(), vec![queue("q", 3)]);
    play.submit("q", ranked("a", 1, 0, 0));
    play.submit("q", ranked("b", 1, 0, 1));
    play.at(0);
    assert_eq!(play.at(300), ["a evict: PodsReadyTimeout", "b admit in q on f"]);
}

#[test]
fn while_somebody_starts_preemption_goes_on_and_room_is_looked_at_afresh() {
    let within_cluster_queue = WithinClusterQueue::LowerPriority;
    let preemption = PreemptionPolicy { within_cluster_queue, ..PreemptionPolicy::default() };
    let mut play = Play::new(sequential(), vec![ClusterQueue { preemption, ..queue("q", 1) }, queue("r", 2)]);
    play.submit("q", ranked("low", 1, 0, 0));
    play.at(0);
    play.pods("low", 2);
    play.at(1);
    play.submit("r", ranked("starts", 1, 0, 2));
    assert_eq!(play.at(2), ["starts admit in r on f"]);
    play.submit("q", ranked("high", 1, 10, 3));
    play.submit("r", ranked("waits", 1, 0, 4));
    assert_eq!(play.at(5), ["low evict: InClusterQueue for high"]);
    // The room that `waits` would have had is gone when it could start.
    play.now = at(BEGIN + 6);
    play.tell(Event::ClusterQueue(Box::new(queue("r", 1))));
    play.pods("starts", 2);
    assert_eq!(play.at(6), ["starts pods: Started", "high admit in q on f"]);
    play.pods("high", 2);
    assert_eq!(play.at(7), ["high pods: Started"]);
}

#[test]
fn room_is_not_kept_for_ever_for_who_may_not_start_although_its_victims_are_gone() {
    let settings = WaitForPodsReady { timeout_seconds: 5000, ..sequential() };
    let member = |name: &str, milli| ClusterQueue { cohort: Some("all".into()), ..queue(name, milli) };
    let preemption =
        PreemptionPolicy { reclaim_within_cohort: ReclaimWithinCohort::Any, ..PreemptionPolicy::default() };
    let owner = ClusterQueue { preemption, ..member("owner", 2) };
    let mut play = Play::new(settings, vec![owner, member("borrower", 1), queue("other", 1)]);
    play.submit("borrower", ranked("victim", 2, 0, 0));
    play.at(0);
    play.pods("victim", 2);
    play.at(1);
    play.submit("other", ranked("starts", 1, 0, 1));
    assert_eq!(play.at(2), ["starts admit in other on f"]);
    play.submit("owner", ranked("preemptor", 2, 0, 2));
    assert_eq!(play.at(10), ["victim evict: InCohortReclamation for preemptor"]);
    assert_eq!(play.next(), 10 + 15 * 60);
    play.now = at(BEGIN + 20);
    play.tell(Event::WorkloadGone("victim".into()));
    assert!(play.at(20).is_empty(), "somebody starts");
    assert_eq!(play.next(), 10 + 15 * 60, "its victim is gone, and it may not start yet");
}

#[test]
fn queues_and_jobs_have_timeouts_of_their_own() {
    let of = |start, recovery| Timeouts { start_seconds: start, recovery_seconds: recovery };
    let table = [
        (Timeouts::default(), None, 300),
        (of(Some(600), None), None, 600),
        (of(Some(20), None), None, 20),
        (Timeouts::default(), Some(of(Some(30), None)), 30),
        (of(Some(600), None), Some(of(Some(400), None)), 400),
        (of(Some(20), None), Some(of(Some(400), None)), 20),
    ];
    for (of_queue, of_job, expected) in table {
        let mut play = Play::new(settings(), vec![ClusterQueue { timeouts: of_queue, ..queue("q", 1) }]);
        play.submit("q", Workload { timeouts: of_job.map(Box::new), ..cpu_workload("w", 1) });
        play.at(0);
        assert_eq!(play.next(), expected, "{of_queue:?} {of_job:?}");
        assert!(play.at(expected - 1).is_empty());
        assert_eq!(play.at(expected), ["w evict: PodsReadyTimeout"]);
    }
}

#[test]
fn switched_off_nothing_is_written_and_what_was_goes() {
    let mut play = started(settings());
    play.pods("w", 2);
    play.at(10);
    play.store.readiness = Some(None);
    play.engine.wait_for_pods_ready(None);
    assert_eq!(play.at(20), ["w pods: nobody asks"]);
    let State::Holding(reservation) = play.state("w") else { panic!("{:?}", play.state("w")) };
    assert_eq!(reservation.pods_ready, None);
    play.pods("w", 0);
    assert!(play.at(100_000).is_empty());
}

#[test]
fn a_clock_that_is_set_loses_no_deadline_and_makes_none_early_by_more_than_the_step() {
    let mut play = started(settings());
    assert_eq!(play.at(0 - 600), [] as [&str; 0], "set back, nothing is due");
    assert!(play.at(299).is_empty());
    assert_eq!(play.at(300), ["w evict: PodsReadyTimeout"]);

    let mut play = started(settings());
    assert!(play.at(100).is_empty());
    assert_eq!(play.at(100 + 600), ["w evict: PodsReadyTimeout"], "set forward, it is over");
    assert_eq!(play.requeue_state("w").count, 1);
}

#[test]
fn an_outage_costs_at_most_one_count() {
    let mut play = started(settings());
    play.engine = play.store.rebuilt(play.now);
    assert_eq!(play.at(600), ["w evict: PodsReadyTimeout"]);
    assert_eq!(play.requeue_state("w").count, 1);
    let back = play.next();
    assert_eq!(back, 600 + settings().backoff_seconds(&"w".into(), 1));
    let State::Pending(pending) = play.state("w") else { panic!("{:?}", play.state("w")) };
    let eviction = pending.evicted.as_ref().expect("it was evicted");
    assert_eq!((eviction.reason, eviction.at), (EvictionReason::PodsReadyTimeout, at(BEGIN + 600)));
}

#[test]
fn who_gets_quota_waits_for_no_time_even_if_the_clock_was_set_back() {
    let mut play = started(settings());
    play.at(300);
    play.submit("q", cpu_workload("x", 1));
    assert_eq!(play.at(301), ["x admit in q on f"]);
    play.pods("x", 2);
    play.at(302);
    let later = play.engine.decide(at(BEGIN + 10_000), 0);
    assert_eq!(later, [], "the backoff is over, and nobody has told that yet");
    play.end_job("x");
    // An hour and more back: before the end of the backoff.
    assert_eq!(play.at(310), ["x finish: Succeeded", "w admit in q on f"]);
    assert_eq!(play.requeue_state("w"), RequeueState { count: 1, requeue_at: None });
}

/// Somebody who was sent back for not being ready, and by when that is to be tried again.
fn sent_back(name: &str, created: i64, evicted: i64, requeue_at: Option<i64>) -> Workload {
    let eviction = Eviction {
        reason: EvictionReason::PodsReadyTimeout,
        message: "late".to_owned(),
        at: at(evicted),
        preemption: None,
        overdue: None,
    };
    let state = State::Pending(Pending {
        evicted: Some(Box::new(eviction)),
        requeued: Some(Requeued {
            eligible: requeue_at.is_none(),
            reason: RequeueReason::PodsReadyTimeout,
            at: at(evicted),
        }),
        requeue_state: RequeueState { count: 1, requeue_at: requeue_at.map(at) }.noted(),
        ..Pending::default()
    });
    Workload { state, ..ranked(name, 1, 0, created) }
}

/// In the queue, who was sent back later stands behind. With quota, also with one that is only decided on, age counts.
#[test]
fn who_was_sent_back_later_is_not_newer_while_its_admission_is_on_its_way() {
    let within_cluster_queue = WithinClusterQueue::LowerOrNewerEqualPriority;
    let preemption = PreemptionPolicy { within_cluster_queue, ..PreemptionPolicy::default() };
    let mut play = Play::new(settings(), vec![ClusterQueue { preemption, ..queue("q", 1) }]);
    play.submit("q", sent_back("old", 0, 310, None));
    play.submit("q", sent_back("new", 1, 300, Some(BEGIN + 500)));
    let admitted = play.engine.decide(at(BEGIN + 400), usize::MAX);
    assert_eq!(admitted.len(), 1, "{admitted:?}");
    assert_eq!(admitted[0].uid, gangway_model::Uid::from("old"));
    // Nothing is told of it, but who is to leave is known before the admission has landed.
    let later = play.engine.decide(at(BEGIN + 600), usize::MAX);
    assert!(later.iter().all(|decision| !matches!(decision.action, Action::Evict(..))), "{later:?}");
    assert_eq!(play.carry_out(&admitted[0]).as_deref(), Some("old admit in q on f"));
    play.pods("old", 2);
    assert_eq!(play.at(600), ["old pods: Started"]);
}
