//! What happens to a Workload whatever the quota: evict, release, requeue, finish.

use gangway_admission::{Event, JobEnd, JobFacts, Situation};
use gangway_model::Uid;
use gangway_model::queues::{ClusterQueue, LocalQueue, StopPolicy};
use gangway_model::reasons::{EvictionReason, FinishReason, PendingReason, RequeueReason};
use gangway_model::workload::{Eviction, Pending, RequeueState, Requeued, Reservation, State, Workload};

use crate::build::*;
use crate::flavor_table::{cpu_queue, run, state, submit, waits_for};
use crate::scene::Scene;
use crate::world::World;

fn job() -> Uid {
    "job".into()
}

/// A world in which `w`, of Job `job`, runs.
fn running() -> World {
    let mut world = cpu_queue(1);
    world.set_job(job(), JobFacts { stopped: true, ..JobFacts::default() });
    submit(&mut world, Workload { owner: Some(job()), ..cpu_workload("w", 1) });
    run(&mut world);
    assert!(state(&world, "w").may_run());
    assert!(!world.store.jobs[&"job".into()].stopped, "the Job follows");
    world
}

fn edit(world: &mut World, change: impl Fn(&mut Workload)) {
    let mut workload = world.store.workload("w").clone();
    change(&mut workload);
    submit(world, workload);
}

fn stop_cluster(world: &mut World, stop_policy: StopPolicy) {
    let queue = ClusterQueue { stop_policy, ..world.store.cluster_queues["cq"].clone() };
    world.administer(Event::ClusterQueue(Box::new(queue)));
    world.deliver_all();
}

fn stop_local(world: &mut World, stop_policy: StopPolicy) {
    let queue = LocalQueue { stop_policy, ..local_queue("ns", "lq", "cq") };
    world.administer(Event::LocalQueue(queue));
    world.deliver_all();
}

/// Carries out what is decided once, without letting the Job follow.
fn one_round(world: &mut World) {
    world.decide(100);
    while !world.in_flight.is_empty() {
        world.execute(0, crate::world::Fate::Lands);
    }
    world.deliver_all();
}

type Step = fn(&mut World);

#[test]
fn who_has_to_leave_keeps_its_quota_until_its_pods_are_gone_and_comes_back_when_the_cause_is_over() {
    let table: [(Step, Step, EvictionReason, PendingReason, RequeueReason); 3] = [
        (
            |world| edit(world, |w| w.active = false),
            |world| edit(world, |w| w.active = true),
            EvictionReason::Deactivated,
            PendingReason::Deactivated,
            RequeueReason::Reactivated,
        ),
        (
            |world| stop_cluster(world, StopPolicy::HoldAndDrain),
            |world| stop_cluster(world, StopPolicy::None),
            EvictionReason::ClusterQueueStopped,
            PendingReason::Suspended,
            RequeueReason::ClusterQueueRestarted,
        ),
        (
            |world| stop_local(world, StopPolicy::HoldAndDrain),
            |world| stop_local(world, StopPolicy::None),
            EvictionReason::LocalQueueStopped,
            PendingReason::Suspended,
            RequeueReason::LocalQueueRestarted,
        ),
    ];
    for (cause, end, evicted, waits, requeued) in table {
        let mut world = running();
        cause(&mut world);
        one_round(&mut world);
        let State::Evicting(reservation, eviction) = state(&world, "w") else {
            panic!("{evicted}: {:?}", state(&world, "w"))
        };
        assert_eq!((eviction.reason, reservation.admitted_at.is_some()), (evicted, true));
        assert_eq!(world.decide(100), 0, "{evicted}: the pods are still there");

        run(&mut world);
        assert_eq!(waits_for(&world, "w"), waits);
        let State::Pending(pending) = state(&world, "w") else { panic!("it waits") };
        assert_eq!(pending.evicted.as_ref().map(|e| e.reason), Some(evicted));
        let out = pending.requeued.as_ref().expect("it says whether it may come back");
        assert_eq!((out.eligible, out.reason), (false, evicted.requeue_reason()));

        end(&mut world);
        run(&mut world);
        let State::Holding(reservation) = state(&world, "w") else { panic!("{evicted}: it is back") };
        let back = reservation.requeued.as_ref().expect("it says why it came back");
        assert_eq!((back.eligible, back.reason), (true, requeued));
        assert!(reservation.past_eviction.is_some());

        cause(&mut world);
        run(&mut world);
        assert_eq!(waits_for(&world, "w"), waits, "it can be evicted again");
    }
}

#[test]
fn hold_lets_run_what_runs_and_admits_nobody() {
    let stops: [Step; 2] =
        [|world| stop_cluster(world, StopPolicy::Hold), |world| stop_local(world, StopPolicy::Hold)];
    for stop in stops {
        let mut world = running();
        stop(&mut world);
        submit(&mut world, cpu_workload("late", 0));
        run(&mut world);
        assert!(state(&world, "w").may_run());
        assert_eq!(waits_for(&world, "late"), PendingReason::Suspended);
    }
}

#[test]
fn hold_takes_back_quota_that_is_only_set_aside() {
    let mut world = running();
    stop_cluster(&mut world, StopPolicy::Hold);
    edit(&mut world, |w| {
        let State::Holding(reservation) = &w.state else { panic!("it holds quota") };
        w.state = State::Holding(Reservation { admitted_at: None, ..reservation.clone() });
    });
    run(&mut world);
    assert_eq!(waits_for(&world, "w"), PendingReason::Suspended);
}

#[test]
fn quota_that_is_set_aside_becomes_admission_when_nothing_else_has_to_happen() {
    let mut world = running();
    edit(&mut world, |w| {
        let State::Holding(reservation) = &w.state else { panic!("it holds quota") };
        w.state = State::Holding(Reservation { admitted_at: None, ..reservation.clone() });
    });
    run(&mut world);
    assert!(state(&world, "w").may_run());
}

#[test]
fn a_workload_ends_with_its_job() {
    let table: [(Step, FinishReason); 3] = [
        (
            |world| {
                let end = Some(JobEnd { succeeded: true, message: "done".into() });
                world.set_job(job(), JobFacts { stopped: true, end, ..JobFacts::default() });
            },
            FinishReason::Succeeded,
        ),
        (
            |world| {
                let end = Some(JobEnd { succeeded: false, message: "exit code 1".into() });
                world.set_job(job(), JobFacts { stopped: true, end, ..JobFacts::default() });
            },
            FinishReason::Failed,
        ),
        (|world| world.delete_job(&job()), FinishReason::OwnerNotFound),
    ];
    for (cause, reason) in table {
        let mut world = running();
        submit(&mut world, cpu_workload("next", 1));
        run(&mut world);
        assert_eq!(waits_for(&world, "next"), PendingReason::WaitingForQuota);
        cause(&mut world);
        run(&mut world);
        let State::Finished(finish, before) = state(&world, "w") else { panic!("{reason}") };
        assert_eq!(finish.reason, reason);
        assert!(before.may_run(), "what it was before stays readable");
        assert!(state(&world, "next").may_run(), "{reason}: its quota is free");
    }
}

#[test]
fn an_eviction_ends_when_the_job_does() {
    let mut world = running();
    edit(&mut world, |w| w.active = false);
    one_round(&mut world);
    let end = Some(JobEnd { succeeded: true, message: "done".into() });
    world.set_job(job(), JobFacts { stopped: true, end, ..JobFacts::default() });
    world.deliver_all();
    run(&mut world);
    assert!(
        matches!(state(&world, "w"), State::Finished(_, before) if matches!(**before, State::Evicting(..)))
    );
}

#[test]
fn nobody_has_pods_to_stop_without_a_job() {
    let mut world = cpu_queue(1);
    submit(&mut world, cpu_workload("w", 1));
    run(&mut world);
    edit(&mut world, |w| w.active = false);
    one_round(&mut world);
    one_round(&mut world);
    assert_eq!(waits_for(&world, "w"), PendingReason::Deactivated);
}

#[test]
fn a_backoff_ends_by_itself() {
    for backoff in [0, 30] {
        let mut world = cpu_queue(1);
        let now = world.now;
        let reason = EvictionReason::PodsReadyTimeout;
        let requeue_at = Some(now.plus_seconds(backoff));
        let state_in_backoff = State::Pending(Pending {
            waiting: None,
            evicted: Some(Box::new(Eviction {
                reason,
                message: "late".into(),
                at: now,
                preemption: None,
                overdue: None,
            })),
            requeued: Some(Requeued { eligible: false, reason: reason.requeue_reason(), at: now }),
            requeue_state: Some(Box::new(RequeueState { count: 1, requeue_at })),
            ..Pending::default()
        });
        submit(&mut world, Workload { state: state_in_backoff, ..cpu_workload("w", 1) });
        if backoff > 0 {
            assert_eq!(world.decide(100), 0, "not before its time");
            assert_eq!(world.engine.next_deadline(), requeue_at);
            let explanation = world.engine.explain(&"w".into()).expect("it is known");
            assert_eq!(explanation.situation, Situation::Backoff(now.plus_seconds(backoff)));
            assert_eq!(explanation.message, "PodsReadyTimeout: late");
        }
        run(&mut world);
        assert!(state(&world, "w").may_run());
        assert_eq!(world.now, now.plus_seconds(backoff), "and at its time");
    }
}

#[test]
fn a_deadline_leaves_with_its_workload() {
    let mut world = cpu_queue(1);
    let now = world.now;
    let requeued = Some(Requeued { eligible: false, reason: RequeueReason::PodsReadyTimeout, at: now });
    let requeue_at = Some(now.plus_seconds(30));
    let requeue_state = Some(Box::new(RequeueState { count: 1, requeue_at }));
    let state = State::Pending(Pending { requeued, requeue_state, ..Pending::default() });
    submit(&mut world, Workload { state, ..cpu_workload("w", 1) });
    world.delete(&"w".into());
    world.deliver_all();
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn who_cannot_start_on_what_it_was_given_ends() {
    let mut world = running();
    world.tell(Event::Unstartable("w".into(), "two values for one node label".into()));
    run(&mut world);
    let State::Finished(finish, _) = state(&world, "w") else { panic!("{:?}", state(&world, "w")) };
    assert_eq!(
        (finish.reason, finish.message.as_str()),
        (FinishReason::FailedToStart, "two values for one node label")
    );
}

#[test]
fn a_failed_start_is_not_held_against_the_next_one() {
    let mut world = running();
    edit(&mut world, |w| w.active = false);
    one_round(&mut world);
    world.tell(Event::Unstartable("w".into(), "too late to matter".into()));
    run(&mut world);
    edit(&mut world, |w| w.active = true);
    run(&mut world);
    assert!(state(&world, "w").may_run());
}

#[test]
fn a_report_of_suspension_from_before_the_start_says_nothing_about_its_pods_for_a_while() {
    let mut world = running();
    let State::Holding(reservation) = state(&world, "w") else { panic!("it runs") };
    let started = reservation.admitted_at.expect("it may run");
    stop_cluster(&mut world, StopPolicy::HoldAndDrain);
    one_round(&mut world);
    let stopped_since = |at| JobFacts { stopped: true, suspended_at: Some(at), ..JobFacts::default() };

    world.set_job(job(), stopped_since(started));
    world.deliver_all();
    one_round(&mut world);
    assert!(matches!(state(&world, "w"), State::Evicting(..)), "the report may be from before the start");
    let State::Evicting(_, eviction) = state(&world, "w") else { panic!("it is leaving") };
    assert_eq!(
        world.engine.next_deadline(),
        Some(eviction.at.plus_seconds(5)),
        "but it is believed in the end"
    );

    world.set_job(job(), stopped_since(started.plus_seconds(1)));
    world.deliver_all();
    one_round(&mut world);
    assert!(matches!(state(&world, "w"), State::Pending(_)), "a newer report counts at once");
}

#[test]
fn the_quota_of_a_deleted_job_counts_until_its_pods_are_gone() {
    for workload_goes_first in [false, true] {
        let mut world = running();
        submit(&mut world, Workload { created: at(1), ..cpu_workload("next", 1) });
        run(&mut world);
        assert_eq!(waits_for(&world, "next"), PendingReason::WaitingForQuota);
        let now = world.now;
        world.engine.apply(Event::Pods(job(), true), now);
        world.engine.apply(Event::JobGone(job()), now);
        if workload_goes_first {
            world.engine.apply(Event::WorkloadGone("w".into()), now);
        }
        assert_eq!(world.engine.decide(now, 100), [], "pods use the quota for their grace period");
        world.engine.check().expect("all is accounted for");

        world.engine.apply(Event::Pods(job(), false), now);
        let decisions = world.engine.decide(now, 100);
        let is_finish =
            |d: &gangway_admission::Decision| matches!(d.action, gangway_admission::Action::Finish(_));
        let is_next =
            |d: &gangway_admission::Decision| matches!(d.action, gangway_admission::Action::Admit(_));
        assert!(decisions.iter().any(if workload_goes_first { is_next } else { is_finish }), "{decisions:?}");
        world.engine.check().expect("all is accounted for");
    }
}

/// How often it was said since that a Workload should have left.
fn reports(scene: &mut Scene) -> usize {
    let decisions = scene.decide(100);
    decisions.iter().for_each(|decision| scene.land(decision));
    decisions.iter().filter(|d| d.action == gangway_admission::Action::ReportOverdue).count()
}

#[test]
fn who_does_not_leave_is_reported_once_in_time_and_keeps_its_quota() {
    for restarted in [false, true] {
        let mut scene = Scene::new(vec![cluster_queue("q", cpu_group(&[("f", quota(1))]))]);
        scene.engine.report_evictions_after(600);
        scene.submit_job("q", ranked("w", 1, 0, 0));
        scene.run();
        scene.edit("w", |w| w.active = false);
        scene.run();
        scene.submit("q", ranked("next", 1, 0, 1));
        scene.run();
        let State::Evicting(_, eviction) = &scene.store.workload("w").state else { panic!("it is leaving") };
        let due = eviction.at.plus_seconds(600);
        if restarted {
            scene.restart();
            scene.engine.report_evictions_after(600);
            assert_eq!(reports(&mut scene), 0);
        }
        assert_eq!(scene.engine.next_deadline(), Some(due));
        scene.now = due.plus_seconds(-1);
        assert_eq!(reports(&mut scene), 0, "it has time left");
        scene.now = due;
        assert_eq!(reports(&mut scene), 1);
        let State::Evicting(_, eviction) = &scene.store.workload("w").state else { panic!("it is leaving") };
        let overdue = eviction.overdue.as_ref().expect("its object says so");
        assert!(overdue.message.contains(" 600 s "), "{}", overdue.message);

        scene.now = due.plus_seconds(6_000);
        assert_eq!((reports(&mut scene), scene.engine.next_deadline()), (0, None), "once is enough");
        scene.restart();
        scene.engine.report_evictions_after(600);
        assert_eq!(reports(&mut scene), 0, "also after a restart");
        assert!(!scene.runs("next"), "the quota still counts");

        scene.stop_job("w");
        assert_eq!(scene.run(), ["next on f"]);
        let State::Pending(pending) = &scene.store.workload("w").state else { panic!("it has left") };
        assert!(pending.evicted.as_ref().is_some_and(|eviction| eviction.overdue.is_none()), "{pending:?}");
    }
}

#[test]
fn who_ends_instead_of_leaving_is_not_late() {
    let mut scene = Scene::new(vec![cluster_queue("q", cpu_group(&[("f", quota(1))]))]);
    scene.engine.report_evictions_after(1);
    scene.submit_job("q", ranked("w", 1, 0, 0));
    scene.run();
    scene.edit("w", |w| w.active = false);
    scene.run();
    let is_late = |state: &State| matches!(state, State::Evicting(_, e) if e.overdue.is_some());
    assert!(is_late(&scene.store.workload("w").state));
    let end = Some(JobEnd { succeeded: true, message: String::new() });
    scene.tell(Event::Job("job-w".into(), JobFacts { end, ..JobFacts::default() }));
    scene.run();
    let State::Finished(_, before) = &scene.store.workload("w").state else { panic!("it has ended") };
    assert!(matches!(**before, State::Evicting(..)) && !is_late(before), "{before:?}");
}
