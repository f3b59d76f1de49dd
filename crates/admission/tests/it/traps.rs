//! Traps that others have fallen into, by their number in §12 of the behaviour specification.
//!
//! Tested elsewhere, under names of their own:
//! 30, 31, 32 in `flavor_table` (resources that nobody covers, pods, selectors on other keys);
//! 34, 35 in `fungibility_table::pairs_by_hand`; 41, 46, 47 in `preemption_table` (the hold, the order of
//! candidates, a threshold that is not given); 64 in `outcomes`; 66 by `Engine::check` after every decision.
//!
//! Not yet, because what they are about does not exist yet:
//! 1, 3, 6 to 12, 38, 63 (readiness, requeueing and its limits); 21, 43 (fair sharing); 36 (partial
//! admission); 37 (topology, second pass); 59, 60, 61 (admission checks).
//!
//! Not here, because the engine has no part in them: 19 (requests are normalised where objects are read),
//! 48 to 58 (Jobs and finalizers), 62, 65, 68, 70 (API versions, visibility, lengths, the process).

use std::sync::Arc;

use gangway_admission::{Action, Decision, Engine, Event, JobEnd, JobFacts, Outcome};
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, PreemptionPolicy, ReclaimWithinCohort, StopPolicy, WithinClusterQueue,
};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Admission, Assignment, RequeueState, State, Workload};

use crate::build::*;
use crate::scene::{Scene, shown};

const NOTHING: [&str; 0] = [];

fn queue(name: &str, amount: i64) -> ClusterQueue {
    member(name, "c", cpu_group(&[("f", quota(amount))]))
}

fn preempting(name: &str, amount: i64) -> ClusterQueue {
    let preemption = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::Any,
        borrow_within_cohort: BorrowWithinCohort::Never,
    };
    ClusterQueue { preemption, ..queue(name, amount) }
}

fn told(decisions: &[Decision]) -> Vec<String> {
    decisions.iter().filter_map(shown).collect()
}

/// `w` of queue `q` (4 cpu) has won the room of `v`, whose Job still runs.
fn won() -> Scene {
    let mut scene = Scene::new(vec![preempting("q", 4), queue("other", 0)]);
    scene.submit_job("other", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 10));
    assert_eq!(scene.run(), ["v leaves for w: InCohortReclamation"]);
    scene
}

#[test]
fn trap_2_a_preemptor_that_failed_does_not_go_first_any_more() {
    let mut scene = won();
    scene.edit_queue("q", |q| q.resource_groups = cpu_group(&[("f", quota(2))]));
    scene.stop_job("v");
    assert_eq!(scene.run(), NOTHING, "w does not fit any more, nor does v");
    scene.submit("other", ranked("runs", 2, 0, 0));
    scene.run();
    scene.submit("q", ranked("urgent", 4, 100, 20));
    scene.run();
    scene.edit_queue("q", |q| q.resource_groups = cpu_group(&[("f", quota(6))]));
    assert_eq!(scene.run()[0], "urgent on f");
}

#[test]
fn trap_4_an_eviction_ends_although_the_event_of_its_job_was_missed() {
    let mut scene = won();
    let facts = JobFacts { stopped: true, ..JobFacts::default() };
    scene.store.jobs.insert("job-v".into(), facts);
    for event in scene.store.list() {
        scene.engine.apply(event, scene.now);
    }
    assert_eq!(scene.run(), ["w on f"], "a list tells it as well as an event");
}

#[test]
fn trap_5_a_time_to_wait_for_does_not_delay_an_eviction() {
    let mut scene = Scene::new(vec![preempting("q", 4), queue("other", 0)]);
    scene.submit("other", ranked("v", 4, 0, 0));
    scene.run();
    let later = scene.now.plus_seconds(3_600);
    scene.edit("v", |v| {
        let State::Holding(reservation) = &mut v.state else { panic!("{v:?}") };
        reservation.requeue_state = Some(Box::new(RequeueState { count: 1, requeue_at: Some(later) }));
    });
    scene.submit("q", ranked("w", 4, 0, 10));
    assert_eq!(scene.run(), ["v leaves for w: InCohortReclamation", "w on f"]);
}

#[test]
fn trap_13_room_that_is_freed_in_the_middle_wakes() {
    // After how many decisions of the first round the room is freed.
    for after in 0..4 {
        let mut scene = Scene::new(vec![queue("q", 2), queue("other", 2)]);
        scene.submit("q", ranked("runs", 4, 0, 0));
        scene.run();
        scene.submit("q", ranked("w", 3, 0, 1));
        scene.submit("other", ranked("x", 1, 0, 1));
        let under_way = scene.decide(after);
        scene.delete("runs");
        for decision in &under_way {
            scene.land(decision);
        }
        scene.run();
        assert_eq!(scene.running(), ["w", "x"], "freed after {after} decisions");
    }
}

#[test]
fn trap_14_many_who_leave_at_once_cost_one_look_each() {
    let mut scene = Scene::new(vec![queue("q", 200), queue("other", 0)]);
    for index in 0..200 {
        scene.submit("q", ranked(&format!("old-{index:03}"), 1, 0, 0));
    }
    scene.run();
    for index in 0..400 {
        let home = if index % 2 == 0 { "q" } else { "other" };
        scene.submit(home, ranked(&format!("new-{index:03}"), 1, 0, 1));
    }
    scene.run();
    let before = scene.engine.work().evaluations;
    for index in 0..200 {
        scene.delete(&format!("old-{index:03}"));
    }
    scene.run();
    assert_eq!(scene.running().len(), 200);
    let looks = scene.engine.work().evaluations - before;
    assert!(looks <= 200 + 2 * 200, "{looks} looks for 200 admissions");
}

fn pending(scene: &Scene, queue: &str) -> i32 {
    scene.engine.cluster_queue_status(&queue.into()).expect("the queue is known").2.pending
}

#[test]
fn trap_15_nobody_is_counted_or_queued_twice() {
    let mut scene = won();
    assert_eq!((pending(&scene, "q"), pending(&scene, "other")), (1, 0), "v is leaving, not waiting");
    scene.engine.reconsider();
    scene.run();
    scene.edit("w", |w| w.priority = 3);
    assert_eq!(pending(&scene, "q"), 1);
    scene.stop_job("v");
    scene.run();
    assert_eq!((pending(&scene, "q"), pending(&scene, "other")), (0, 1));
}

#[test]
fn trap_16_a_change_in_flight_is_evaluated_anew() {
    let mut scene = Scene::new(vec![queue("q", 4)]);
    scene.submit("q", ranked("w", 2, 0, 0));
    let decided = scene.decide(usize::MAX);
    assert_eq!(told(&decided), ["w on f"]);
    scene.edit("w", |w| w.pod_sets = cpu_workload("w", 5).pod_sets);
    assert!(scene.engine.pending_write(decided[0].id).is_none(), "what was decided of the old one is void");
    scene.submit("q", ranked("next", 4, 0, 1));
    assert_eq!(scene.run(), ["next on f"], "and books nothing");
    assert_eq!(scene.waits_for("w").0, PendingReason::ExceedsMaxQuota);
}

#[test]
fn trap_17_a_priority_that_is_raised_while_it_waits_may_preempt() {
    let mut scene = Scene::new(vec![preempting("q", 4)]);
    scene.submit("q", ranked("runs", 4, 5, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 1));
    assert_eq!(scene.run(), NOTHING);
    scene.edit("w", |w| w.priority = 6);
    assert_eq!(scene.run(), ["runs leaves for w: InClusterQueue", "w on f"]);
}

#[test]
fn trap_17_a_priority_that_is_lowered_may_be_preempted() {
    let mut scene = Scene::new(vec![preempting("q", 4)]);
    scene.submit("q", ranked("runs", 4, 5, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 5, 1));
    assert_eq!(scene.run(), NOTHING);
    scene.edit("runs", |runs| runs.priority = 0);
    assert_eq!(scene.run(), ["runs leaves for w: InClusterQueue", "w on f"]);
}

#[test]
fn trap_18_who_ended_or_was_deleted_on_its_way_out_does_not_come_back() {
    type End = fn(&mut Scene);
    let table: [(&str, End); 3] = [
        ("its Job ended", |scene| {
            let end = Some(JobEnd { succeeded: true, message: "done".into() });
            scene.tell(Event::Job("job-v".into(), JobFacts { stopped: true, end, ..JobFacts::default() }));
        }),
        ("it was deleted", |scene| scene.delete("v")),
        ("it was deactivated", |scene| {
            scene.edit("v", |v| v.active = false);
            scene.stop_job("v");
        }),
    ];
    for (case, end) in table {
        let mut scene = won();
        end(&mut scene);
        assert_eq!(scene.run(), ["w on f"], "{case}");
        scene.delete("w");
        assert_eq!(scene.run(), NOTHING, "{case}: v is not queued");
    }
}

#[test]
fn trap_20_the_order_of_arrival_means_nothing_where_times_are_equal() {
    let names = ["d", "a", "c", "b"];
    let mut seen = Vec::new();
    for turn in 0..names.len() {
        let mut scene = Scene::new(vec![preempting("q", 2), preempting("p", 1), queue("other", 0)]);
        for index in 0..names.len() {
            let name = names[(index + turn) % names.len()];
            let home = if name < "c" { "q" } else { "p" };
            scene.tell(Event::Workload(Box::new(Workload { queue: home.into(), ..ranked(name, 1, 0, 0) })));
        }
        seen.push(scene.run());
    }
    assert!(seen.iter().all(|log| *log == seen[0]), "{seen:?}");
    assert_eq!(seen[0].len(), 3);
}

#[test]
fn trap_22_at_the_start_objects_come_in_any_order() {
    let mut scene = Scene::new(vec![preempting("q", 4), queue("other", 0)]);
    scene.submit_job("other", ranked("v", 2, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 2, 0, 1));
    scene.submit("q", ranked("late", 2, 0, 2));
    let mut events = scene.store.list();
    events.reverse();
    let mut engine = Engine::new();
    for event in events {
        engine.apply(event, scene.now);
    }
    engine.apply(Event::Synced, scene.now);
    engine.check().expect("everything is in its place");
    scene.engine = engine;
    assert_eq!(scene.run()[..2], ["w on f", "v leaves for late: InCohortReclamation"]);
}

#[test]
fn trap_23_two_of_one_cycle_do_not_take_the_same_quota() {
    let mut scene = Scene::new(vec![queue("a", 0), queue("b", 0), queue("idle", 2)]);
    scene.submit("a", ranked("wa", 2, 0, 0));
    scene.submit("b", ranked("wb", 2, 0, 1));
    assert_eq!(told(&scene.decide(usize::MAX)), ["wa on f"]);
}

#[test]
fn trap_23_two_of_one_cycle_do_not_count_on_the_same_victim() {
    let mut scene = Scene::new(vec![preempting("a", 2), preempting("b", 2), queue("other", 0)]);
    scene.submit("other", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("a", ranked("wa", 2, 0, 1));
    scene.submit("b", ranked("wb", 2, 0, 2));
    let log = scene.run();
    assert_eq!(log[0], "v leaves for wa: InCohortReclamation");
    assert_eq!(scene.running(), ["wa", "wb"], "the rest of v's room is enough for wb: {log:?}");
    assert_eq!(log.len(), 3, "v leaves once: {log:?}");
}

#[test]
fn trap_24_an_admission_that_failed_gives_its_quota_back() {
    type End = fn(&mut Scene, &Decision);
    let table: [(&str, End); 3] = [
        ("refused", |scene, decision| {
            assert!(scene.engine.pending_write(decision.id).is_some());
            scene.engine.apply(Event::Outcome(decision.id, Outcome::Rejected("no".into())), scene.now);
        }),
        ("deleted before it was sent", |scene, _| scene.delete("w")),
        ("deleted after it was sent", |scene, decision| {
            assert!(scene.engine.pending_write(decision.id).is_some());
            scene.delete("w");
            scene.engine.apply(Event::Outcome(decision.id, Outcome::Conflict), scene.now);
        }),
    ];
    for (case, end) in table {
        let mut scene = Scene::new(vec![queue("q", 4), queue("other", 0)]);
        scene.submit("q", ranked("w", 4, 0, 0));
        let decided = scene.decide(usize::MAX);
        scene.submit("other", ranked("next", 4, 0, 1));
        let reports = scene.decide(usize::MAX);
        assert_eq!(told(&reports), NOTHING, "{case}: what is decided counts");
        reports.iter().for_each(|decision| scene.land(decision));
        end(&mut scene, &decided[0]);
        assert_eq!(told(&scene.decide(usize::MAX)), ["next on f"], "{case}");
    }
}

#[test]
fn trap_25_who_is_deactivated_in_the_middle_is_not_admitted() {
    let mut scene = Scene::new(vec![queue("q", 4)]);
    scene.submit("q", ranked("w", 4, 0, 0));
    let decided = scene.decide(usize::MAX);
    scene.edit("w", |w| w.active = false);
    assert!(scene.engine.pending_write(decided[0].id).is_none());
    scene.submit("q", ranked("next", 4, 0, 1));
    assert_eq!(scene.run(), ["next on f"]);
}

#[test]
fn trap_26_a_cohort_that_moves_leaves_nothing_behind() {
    let mut scene = Scene::new(vec![
        member("a", "middle", cpu_group(&[("f", quota(3))])),
        member("b", "first", cpu_group(&[("f", quota(1))])),
        member("d", "second", cpu_group(&[("f", quota(2))])),
    ]);
    scene.set_cohort(cohort("middle", Some("first"), vec![]));
    scene.submit("a", ranked("w", 1, 0, 0));
    scene.run();
    let rooms = |scene: &Scene| ["a", "b", "d"].map(|queue| scene.room(queue, 20));
    assert_eq!(rooms(&scene), [3, 3, 2]);
    scene.set_cohort(cohort("middle", Some("second"), vec![]));
    scene.run();
    assert_eq!(rooms(&scene), [4, 1, 4], "quota and use have moved");
    scene.tell(Event::CohortGone("middle".into()));
    scene.run();
    assert_eq!(rooms(&scene), [2, 1, 2]);
    scene.tell(Event::ClusterQueueGone("d".into()));
    scene.set_cohort(cohort("middle", Some("second"), vec![]));
    scene.run();
    assert_eq!(scene.room("a", 20), 2, "what d had is gone");
}

#[test]
fn trap_27_a_stopped_queue_lends_all_the_same() {
    for policy in [StopPolicy::Hold, StopPolicy::HoldAndDrain] {
        let mut scene = Scene::new(vec![queue("q", 1), queue("stopped", 3)]);
        scene.edit_queue("stopped", |queue| queue.stop_policy = policy);
        scene.submit("q", ranked("w", 4, 0, 0));
        assert_eq!(scene.run(), ["w on f"], "{policy:?}");
    }
}

#[test]
fn trap_27_what_runs_in_a_stopped_queue_is_used_and_out_of_reach() {
    let mut scene = Scene::new(vec![preempting("q", 4), queue("stopped", 0)]);
    scene.submit("stopped", ranked("runs", 4, 0, 0));
    scene.run();
    scene.edit_queue("stopped", |queue| queue.stop_policy = StopPolicy::Hold);
    scene.submit("q", ranked("w", 4, 9, 1));
    assert_eq!(scene.run(), NOTHING, "a queue that is not active is not part of the search");
}

#[test]
fn trap_28_use_of_a_flavor_that_is_gone_is_not_forgotten() {
    type Loss = (fn(&mut Scene), fn(&mut Scene));
    let table: [(&str, Loss); 2] = [
        (
            "the flavor is deleted",
            (|s| s.tell(Event::FlavorGone("f".into())), |s| s.tell(Event::Flavor(flavor("f")))),
        ),
        (
            "the queues do not name it",
            (
                |s| {
                    ["q", "other"]
                        .map(|name| s.edit_queue(name, |q| q.resource_groups = vec![]))
                        .into_iter()
                        .collect()
                },
                |s| {
                    s.edit_queue("q", |q| q.resource_groups = cpu_group(&[("f", quota(4))]));
                    s.edit_queue("other", |q| q.resource_groups = cpu_group(&[("f", quota(2))]));
                },
            ),
        ),
    ];
    for (case, (lose, find)) in table {
        let mut scene = Scene::new(vec![queue("q", 4), queue("other", 2)]);
        scene.submit("q", ranked("runs", 5, 0, 0));
        scene.run();
        lose(&mut scene);
        scene.run();
        assert_eq!(scene.running(), ["runs"], "{case}: what runs goes on");
        scene.restart();
        find(&mut scene);
        scene.run();
        assert_eq!((scene.room("q", 20), scene.room("other", 20)), (1, 1), "{case}");
    }
}

#[test]
fn trap_29_nobody_gets_credit_from_a_negative_amount() {
    let mut scene = Scene::new(vec![queue("q", 4), queue("other", 0)]);
    scene.submit("q", ranked("w", 2, 0, 0));
    scene.run();
    scene.edit("w", |w| {
        if let State::Holding(reservation) = &mut w.state {
            let admission = (*reservation.admission).clone();
            let owes = |set: &Assignment| Assignment { usage: requests(&[("cpu", -5)]), ..set.clone() };
            let pod_sets = admission.pod_sets.iter().map(owes).collect();
            reservation.admission = Arc::new(Admission { pod_sets, ..admission });
        }
    });
    scene.run();
    assert_eq!(scene.room("other", 20), 4, "no more than there is");
}

/// Two podSets of which each, where the other begins, finds what the other needs.
#[test]
fn trap_33_searches_that_take_turns_come_to_an_end() {
    let mut scene = Scene::new(vec![member("q", "c", cpu_group(&[("f1", quota(2)), ("f2", quota(3))]))]);
    scene.submit("q", pinned(ranked("runs", 2, 9, 0), "f2"));
    scene.run();
    let pod_sets = vec![pod_set("main", 1, &[("cpu", 2)]), pod_set("side", 1, &[("cpu", 2)])];
    scene.submit("q", workload("w", pod_sets));
    let before = scene.engine.work().evaluations;
    assert_eq!(scene.run(), NOTHING);
    assert!(scene.engine.work().evaluations - before <= 4);
    scene.delete("runs");
    assert_eq!(scene.run(), ["w on f1, f2"]);
}

/// Numbers that look random and are the same every time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn perhaps(&mut self, bound: u64) -> Option<i64> {
        (self.below(2) == 0).then(|| self.below(bound) as i64)
    }

    fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

const HOMES: [&str; 4] = ["root", "left", "right", "deep"];
const QUEUES: [&str; 5] = ["a", "b", "d", "e", "g"];

/// Five queues in a tree of four cohorts, with limits; policies too if they may preempt.
fn random_tree(numbers: &mut Numbers, may_preempt: bool) -> Scene {
    let mut queues = Vec::new();
    for name in QUEUES {
        let nominal = numbers.below(5) as i64;
        let limits = limited(nominal, numbers.perhaps(4), numbers.perhaps(nominal as u64 + 1));
        let mut queue = member(name, numbers.one_of(&HOMES), cpu_group(&[("f", limits)]));
        if may_preempt {
            queue.preemption = random_policy(numbers);
        }
        queues.push(queue);
    }
    let mut scene = Scene::new(queues);
    for (name, parent) in [("left", "root"), ("right", "root"), ("deep", "left")] {
        let limits = limited(numbers.below(3) as i64, numbers.perhaps(4), numbers.perhaps(4));
        scene.set_cohort(cohort(name, Some(parent), cpu_group(&[("f", limits)])));
    }
    scene.set_cohort(cohort("root", None, cpu_group(&[("f", quota(numbers.below(3) as i64))])));
    scene
}

fn random_policy(numbers: &mut Numbers) -> PreemptionPolicy {
    use WithinClusterQueue::{LowerOrNewerEqualPriority, LowerPriority, Never};
    let thresholds = [None, Some(0), Some(1)];
    PreemptionPolicy {
        within_cluster_queue: numbers.one_of(&[Never, LowerPriority, LowerOrNewerEqualPriority]),
        reclaim_within_cohort: numbers.one_of(&[
            ReclaimWithinCohort::Never,
            ReclaimWithinCohort::LowerPriority,
            ReclaimWithinCohort::Any,
        ]),
        borrow_within_cohort: match numbers.below(2) {
            0 => BorrowWithinCohort::Never,
            _ => BorrowWithinCohort::LowerPriority { max_priority: numbers.one_of(&thresholds) },
        },
    }
}

fn nominal_in(groups: &[gangway_model::queues::ResourceGroup]) -> i64 {
    groups.iter().flat_map(|g| &g.flavors).flat_map(|f| &f.quotas).map(|quota| quota.nominal.value()).sum()
}

/// No queue beyond its borrowing limit, the whole tree not beyond what there is.
fn check_sums(scene: &Scene, seed: u64) {
    let usage = scene.store.usage();
    let used_by = |name: &str| {
        let cells = usage.iter().filter(|((queue, ..), _)| queue.as_str() == name);
        cells.map(|(_, amount)| *amount).sum::<i128>()
    };
    let mut total = 0;
    for queue in scene.store.cluster_queues.values() {
        let used = used_by(queue.name.as_str());
        let limits = &queue.resource_groups[0].flavors[0].quotas[0];
        if let Some(limit) = limits.borrowing_limit {
            let most = i128::from(limits.nominal.value() + limit.value());
            assert!(used <= most, "seed {seed}: {} uses {used} of {most}", queue.name);
        }
        total += used;
    }
    let queues = scene.store.cluster_queues.values().map(|queue| nominal_in(&queue.resource_groups));
    let cohorts = scene.store.cohorts.values().map(|cohort| nominal_in(&cohort.resource_groups));
    let there_is: i64 = queues.chain(cohorts).sum();
    assert!(total <= i128::from(there_is), "seed {seed}: {total} used of {there_is}");
}

/// What a queue does not lend is always there for it.
fn check_private_parts(scene: &Scene, seed: u64) {
    for queue in scene.store.cluster_queues.values() {
        let limits = &queue.resource_groups[0].flavors[0].quotas[0];
        let Some(lending) = limits.lending_limit else { continue };
        let name = queue.name.as_str();
        let own = scene
            .store
            .usage()
            .iter()
            .filter(|((q, ..), _)| q.as_str() == name)
            .map(|(_, a)| *a)
            .sum::<i128>();
        let private = i128::from(limits.nominal.value() - lending.value()) - own;
        let room = i128::from(scene.room(name, private.clamp(0, 12) as i64));
        assert!(room >= private, "seed {seed}: {name} has {room} left, and {private} that it does not lend");
    }
}

#[test]
fn trap_39_no_tree_gives_more_than_it_has() {
    for seed in 0..60 {
        let mut numbers = Numbers(seed);
        let mut scene = random_tree(&mut numbers, false);
        for index in 0..12 {
            let home = numbers.one_of(&QUEUES);
            scene.submit(home, ranked(&format!("w{index:02}"), 1 + numbers.below(3) as i64, 0, index));
            if index % 4 == 3 {
                scene.run();
                check_sums(&scene, seed);
            }
        }
        let waiting = scene.store.workloads.values().filter(|workload| !workload.state.may_run());
        for uid in waiting.map(|workload| workload.uid.to_string()).collect::<Vec<_>>() {
            scene.delete(&uid);
        }
        scene.run();
        check_private_parts(&scene, seed);
    }
}

#[test]
fn trap_42_preemption_comes_to_rest() {
    let mut preemptions = 0;
    for seed in 0..100 {
        let mut numbers = Numbers(seed);
        let mut scene = random_tree(&mut numbers, true);
        for index in 0..14 {
            let priority = numbers.below(3) as i32;
            let amount = 1 + numbers.below(4) as i64;
            scene.submit(
                numbers.one_of(&QUEUES),
                ranked(&format!("w{index:02}"), amount, priority, 20 - index),
            );
            // Panics if it does not come to rest.
            scene.run();
            check_sums(&scene, seed);
        }
        preemptions += scene.engine.work().preemptions;
    }
    assert!(preemptions > 100, "{preemptions} preemptions are too few to say anything");
}

#[test]
fn trap_40_nobody_is_told_to_leave_twice() {
    let mut scene = Scene::new(vec![preempting("q", 4), queue("other", 0)]);
    scene.submit_job("other", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 10));
    let evictions = scene.decide(usize::MAX);
    assert_eq!(told(&evictions), ["v leaves for w: InCohortReclamation"]);
    for _ in 0..3 {
        scene.engine.reconsider();
        let again = scene.decide(usize::MAX);
        assert_eq!(told(&again), NOTHING, "the write is under way");
        again.iter().for_each(|decision| scene.land(decision));
    }
    evictions.iter().for_each(|decision| scene.land(decision));
    scene.engine.reconsider();
    assert_eq!(scene.run(), NOTHING, "it is leaving");
}

#[test]
fn trap_40_an_eviction_whose_write_failed_is_tried_again() {
    for outcome in [Outcome::Conflict, Outcome::Rejected("no".into())] {
        let mut scene = Scene::new(vec![preempting("q", 4), queue("other", 0)]);
        scene.submit("other", ranked("v", 4, 0, 0));
        scene.run();
        scene.submit("q", ranked("w", 4, 0, 10));
        let evictions = scene.decide(usize::MAX);
        assert!(scene.engine.pending_write(evictions[0].id).is_some());
        scene.engine.apply(Event::Outcome(evictions[0].id, outcome.clone()), scene.now);
        scene.edit("v", |_| {});
        scene.now = scene.now.plus_seconds(10);
        assert_eq!(scene.run(), ["v leaves for w: InCohortReclamation", "w on f"], "{outcome:?}");
    }
}

#[test]
fn trap_44_one_eviction_that_fails_does_not_stop_the_others() {
    let mut scene = Scene::new(vec![preempting("q", 4), queue("other", 0)]);
    for name in ["v1", "v2"] {
        scene.submit("other", ranked(name, 2, 0, 0));
    }
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 10));
    let evictions = scene.decide(usize::MAX);
    let (failing, landing): (Vec<&Decision>, Vec<&Decision>) =
        evictions.iter().partition(|decision| decision.uid == "v1");
    assert!(scene.engine.pending_write(failing[0].id).is_some());
    scene.engine.apply(Event::Outcome(failing[0].id, Outcome::Rejected("no".into())), scene.now);
    landing.into_iter().for_each(|decision| scene.land(decision));
    let mut log = scene.run();
    scene.now = scene.now.plus_seconds(10);
    log.extend(scene.run());
    assert_eq!(log, ["v1 leaves for w: InCohortReclamation", "w on f"], "only v1 is told again");
}

#[test]
fn trap_45_who_is_leaving_anyway_is_waited_for() {
    let mut scene = Scene::new(vec![preempting("q", 4)]);
    scene.submit_job("q", ranked("leaves", 2, 4, 0));
    scene.submit("q", ranked("stays", 2, 0, 0));
    scene.run();
    scene.edit("leaves", |w| w.active = false);
    assert_eq!(scene.run(), ["leaves leaves: Deactivated"]);
    scene.submit("q", ranked("w", 2, 5, 1));
    assert_eq!(scene.run(), NOTHING, "nobody else has to leave, though stays is less urgent");
    scene.stop_job("leaves");
    assert_eq!(scene.run(), ["w on f"]);
}

#[test]
fn trap_67_a_reason_is_written_once() {
    let mut scene = Scene::new(vec![queue("q", 4)]);
    scene.submit("q", ranked("runs", 4, 0, 0));
    scene.submit("q", ranked("w", 4, 0, 1));
    scene.run();
    let version = scene.store.workload("w").version;
    for index in 0..5 {
        scene.submit("q", ranked(&format!("x{index}"), 1, -1, 2));
        scene.run();
        scene.engine.reconsider();
        scene.delete(&format!("x{index}"));
        scene.run();
    }
    assert_eq!(scene.store.workload("w").version, version);
    assert!(
        scene.decide(usize::MAX).iter().all(|decision| !matches!(decision.action, Action::ReportWaiting(_)))
    );
}

#[test]
fn trap_69_a_deadline_is_over_when_it_is_reached() {
    let mut scene = Scene::new(vec![queue("q", 4)]);
    scene.submit("q", ranked("w", 4, 0, 0));
    let decided = scene.decide(usize::MAX);
    assert!(scene.engine.pending_write(decided[0].id).is_some());
    scene.engine.apply(Event::Outcome(decided[0].id, Outcome::Rejected("no".into())), scene.now);
    let deadline = scene.engine.next_deadline().expect("it is tried again");
    let before = scene.engine.decide(deadline.plus_millis(-1), usize::MAX);
    assert_eq!(told(&before), NOTHING);
    assert_eq!(told(&scene.engine.decide(deadline, usize::MAX)), ["w on f"]);
}
