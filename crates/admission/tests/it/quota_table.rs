//! What a queue may use of its own quota, of its cohort's and of what others lend, row by row; and what
//! becomes of it when quotas, cohorts and queues change.

use gangway_admission::{Event, JobEnd, JobFacts};
use gangway_model::queues::{ClusterQueue, Quota, StopPolicy};
use gangway_model::reasons::{ClusterQueueReason, PendingReason};
use gangway_model::workload::Workload;

use crate::build::*;
use crate::scene::Scene;

const MOST: i64 = 20;

fn queue(name: &str, parent: Option<&str>, quota: Quota) -> ClusterQueue {
    ClusterQueue { cohort: parent.map(Into::into), ..cluster_queue(name, cpu_group(&[("f", quota)])) }
}

/// Nominal quota, borrowing limit, lending limit.
type Amounts = [Option<i64>; 3];

/// A queue or cohort, its parent, and what it has.
type Member<A> = (&'static str, Option<&'static str>, A);

struct Row {
    case: &'static str,
    cohorts: &'static [Member<Option<Amounts>>],
    queues: &'static [Member<Amounts>],
    used: &'static [(&'static str, i64)],
    room: &'static [(&'static str, i64)],
}

fn quota_of([nominal, borrowing, lending]: Amounts) -> Quota {
    limited(nominal.unwrap_or(0), borrowing, lending)
}

const fn own(nominal: i64) -> Amounts {
    [Some(nominal), None, None]
}

const fn borrows(nominal: i64, at_most: i64) -> Amounts {
    [Some(nominal), Some(at_most), None]
}

const fn lends(nominal: i64, at_most: i64) -> Amounts {
    [Some(nominal), None, Some(at_most)]
}

const C: Option<&str> = Some("c");

const FLAT: &[Row] = &[
    Row {
        case: "without a cohort a queue has its own",
        cohorts: &[],
        queues: &[("a", None, own(4)), ("b", None, own(9))],
        used: &[("a", 1)],
        room: &[("a", 3), ("b", 9)],
    },
    Row {
        case: "in a cohort all of it may be borrowed and lent",
        cohorts: &[],
        queues: &[("a", C, own(4)), ("b", C, own(6))],
        used: &[],
        room: &[("a", 10), ("b", 10)],
    },
    Row {
        case: "what the others use is not there",
        cohorts: &[],
        queues: &[("a", C, own(4)), ("b", C, own(6))],
        used: &[("b", 8)],
        room: &[("a", 2), ("b", 2)],
    },
    Row {
        case: "a borrowing limit",
        cohorts: &[],
        queues: &[("a", C, borrows(4, 3)), ("b", C, own(6))],
        used: &[],
        room: &[("a", 7), ("b", 10)],
    },
    Row {
        case: "a borrowing limit counts what is borrowed already",
        cohorts: &[],
        queues: &[("a", C, borrows(4, 3)), ("b", C, own(6))],
        used: &[("a", 6)],
        room: &[("a", 1), ("b", 4)],
    },
    Row {
        case: "a borrowing limit promises nothing",
        cohorts: &[],
        queues: &[("a", C, borrows(4, 3)), ("b", C, own(6))],
        used: &[("b", 5)],
        room: &[("a", 5), ("b", 5)],
    },
    Row {
        case: "a borrowing limit of nothing",
        cohorts: &[],
        queues: &[("a", C, borrows(4, 0)), ("b", C, own(6))],
        used: &[],
        room: &[("a", 4), ("b", 10)],
    },
    Row {
        case: "a lending limit",
        cohorts: &[],
        queues: &[("a", C, own(4)), ("b", C, lends(6, 2))],
        used: &[],
        room: &[("a", 6), ("b", 10)],
    },
    Row {
        case: "a lending limit of nothing",
        cohorts: &[],
        queues: &[("a", C, own(4)), ("b", C, lends(6, 0))],
        used: &[],
        room: &[("a", 4), ("b", 10)],
    },
    Row {
        case: "the part that is not lent is used first and takes nothing from the others",
        cohorts: &[],
        queues: &[("a", C, own(4)), ("b", C, lends(6, 2))],
        used: &[("b", 4)],
        room: &[("a", 6), ("b", 6)],
    },
    Row {
        case: "beyond the part that is not lent it does",
        cohorts: &[],
        queues: &[("a", C, own(4)), ("b", C, lends(6, 2))],
        used: &[("b", 5)],
        room: &[("a", 5), ("b", 5)],
    },
    Row {
        case: "the part that is not lent stays when the others use everything else",
        cohorts: &[],
        queues: &[("a", C, own(4)), ("b", C, lends(6, 2))],
        used: &[("a", 6)],
        room: &[("a", 0), ("b", 4)],
    },
    Row {
        case: "both limits in one queue",
        cohorts: &[],
        queues: &[("a", C, [Some(4), Some(1), Some(1)]), ("b", C, own(6))],
        used: &[],
        room: &[("a", 5), ("b", 7)],
    },
    Row {
        case: "a queue with no quota of its own",
        cohorts: &[],
        queues: &[("a", C, borrows(0, 2)), ("b", C, own(6))],
        used: &[],
        room: &[("a", 2), ("b", 6)],
    },
    Row {
        case: "the cohort's own quota comes on top",
        cohorts: &[("c", None, Some(own(5)))],
        queues: &[("a", C, own(1)), ("b", C, borrows(2, 4))],
        used: &[("a", 3)],
        room: &[("a", 5), ("b", 5)],
    },
    Row {
        case: "no limit at all",
        cohorts: &[],
        queues: &[("a", C, own(i64::MAX)), ("b", C, own(0)), ("d", C, borrows(1, 2))],
        used: &[("a", 7)],
        room: &[("a", MOST), ("b", MOST), ("d", 3)],
    },
    Row {
        case: "no limit, and only some of it is lent",
        cohorts: &[],
        queues: &[("a", C, lends(i64::MAX, 3)), ("b", C, own(1))],
        used: &[("b", 2)],
        room: &[("a", MOST), ("b", 2)],
    },
    Row {
        case: "limits that are no limits",
        cohorts: &[],
        queues: &[("a", C, [Some(4), Some(i64::MAX), Some(i64::MAX)]), ("b", C, own(6))],
        used: &[],
        room: &[("a", 10), ("b", 10)],
    },
];

const ROOT: Option<&str> = Some("root");
const LEFT: Option<&str> = Some("left");
const RIGHT: Option<&str> = Some("right");

/// `root` has `left` with a and b, and `right` with d.
const DEEP: &[Row] = &[
    Row {
        case: "lending goes through every level",
        cohorts: &[("left", ROOT, None), ("right", ROOT, None)],
        queues: &[("a", LEFT, own(2)), ("b", LEFT, own(2)), ("d", RIGHT, own(4))],
        used: &[("b", 1)],
        room: &[("a", 7), ("b", 7), ("d", 7)],
    },
    Row {
        case: "a cohort's borrowing limit counts for all below it",
        cohorts: &[("left", ROOT, Some(borrows(0, 1))), ("right", ROOT, None)],
        queues: &[("a", LEFT, own(2)), ("b", LEFT, own(2)), ("d", RIGHT, own(4))],
        used: &[],
        room: &[("a", 5), ("b", 5), ("d", 8)],
    },
    Row {
        case: "and counts what they borrowed together",
        cohorts: &[("left", ROOT, Some(borrows(0, 1))), ("right", ROOT, None)],
        queues: &[("a", LEFT, own(2)), ("b", LEFT, own(2)), ("d", RIGHT, own(4))],
        used: &[("a", 3), ("b", 2)],
        room: &[("a", 0), ("b", 0), ("d", 3)],
    },
    Row {
        case: "a cohort's lending limit",
        cohorts: &[("left", ROOT, Some(lends(0, 1))), ("right", ROOT, None)],
        queues: &[("a", LEFT, own(2)), ("b", LEFT, own(2)), ("d", RIGHT, own(4))],
        used: &[],
        room: &[("a", 8), ("d", 5)],
    },
    Row {
        case: "what a cohort does not lend stays below it",
        cohorts: &[("left", ROOT, Some(lends(0, 1))), ("right", ROOT, None)],
        queues: &[("a", LEFT, own(2)), ("b", LEFT, own(2)), ("d", RIGHT, own(4))],
        used: &[("d", 5)],
        room: &[("a", 3), ("b", 3), ("d", 0)],
    },
    Row {
        case: "a cohort may lend more than it has of its own: its children's, too",
        cohorts: &[("left", ROOT, Some(lends(1, 3))), ("right", ROOT, None)],
        queues: &[("a", LEFT, own(2)), ("b", LEFT, own(2)), ("d", RIGHT, own(4))],
        used: &[],
        room: &[("a", 9), ("d", 7)],
    },
    Row {
        case: "quota at the root and in the middle",
        cohorts: &[("root", None, Some(own(3))), ("left", ROOT, Some(own(2))), ("right", ROOT, None)],
        queues: &[("a", LEFT, borrows(1, 4)), ("b", LEFT, own(0)), ("d", RIGHT, own(0))],
        used: &[("d", 2)],
        room: &[("a", 4), ("b", 4), ("d", 4)],
    },
    Row {
        case: "a parent without an object is a cohort like any other",
        cohorts: &[("left", ROOT, None)],
        queues: &[("a", LEFT, own(2)), ("d", ROOT, own(4))],
        used: &[],
        room: &[("a", 6), ("d", 6)],
    },
    Row {
        case: "two trees have nothing to do with each other",
        cohorts: &[("left", ROOT, None), ("right", None, None)],
        queues: &[("a", LEFT, own(2)), ("d", RIGHT, own(4))],
        used: &[("d", 1)],
        room: &[("a", 2), ("d", 3)],
    },
];

fn scene_of(row: &Row) -> Scene {
    let queues = row.queues.iter().map(|(name, parent, amounts)| queue(name, *parent, quota_of(*amounts)));
    let mut scene = Scene::new(queues.collect());
    for (name, parent, amounts) in row.cohorts {
        let groups = amounts.map(|amounts| cpu_group(&[("f", quota_of(amounts))])).unwrap_or_default();
        scene.set_cohort(cohort(name, *parent, groups));
    }
    for (queue, amount) in row.used {
        scene.submit(queue, cpu_workload(&format!("in-{queue}"), *amount));
    }
    scene.run();
    scene
}

/// Who borrows less far away goes first. How far away that is follows from the queues that admit: one that is stopped lends
/// what it has and is not part of the way.
#[test]
fn a_stopped_queue_does_not_make_a_cohort_larger() {
    for (stop_policy, expected) in [(StopPolicy::None, ["low", "high"]), (StopPolicy::Hold, ["high", "low"])]
    {
        let of = |name, cohort, nominal| queue(name, Some(cohort), quota(nominal));
        let deep = ClusterQueue { stop_policy, ..of("deep", "deep", 0) };
        let mut scene = Scene::new(vec![
            of("left", "left", 0),
            of("left-lends", "left", 1),
            deep,
            of("right", "right", 0),
            of("right-lends", "right", 1),
        ]);
        for (name, parent) in [("deep", "left"), ("left", "root"), ("right", "root")] {
            scene.set_cohort(cohort(name, Some(parent), vec![]));
        }
        scene.submit("left", ranked("high", 1, 1, 0));
        scene.submit("right", ranked("low", 1, 0, 1));
        let order: Vec<String> = scene.decide(2).iter().map(|decision| decision.uid.to_string()).collect();
        assert_eq!(order, expected, "{stop_policy:?}");
    }
}

#[test]
fn what_a_queue_may_use() {
    for row in FLAT.iter().chain(DEEP) {
        let scene = scene_of(row);
        assert_eq!(scene.running().len(), row.used.len(), "{}: what is used fits", row.case);
        for (queue, room) in row.room {
            assert_eq!(scene.room(queue, MOST), *room, "{}: queue {queue}", row.case);
        }
    }
}

#[test]
fn quota_is_counted_by_flavor_and_by_resource() {
    let groups =
        |cpu, memory| vec![group(&["cpu", "memory"], &[("f", &[cpu, memory]), ("g", &[cpu, memory])])];
    let mut scene = Scene::new(vec![member("a", "c", groups(1, 4)), member("b", "c", groups(3, 4))]);
    let wants = |name: &str, cpu, memory| {
        workload(name, vec![pod_set("main", 1, &[("cpu", cpu), ("memory", memory)])])
    };
    scene.submit("a", wants("w1", 4, 1));
    scene.submit("a", wants("w2", 1, 1));
    scene.submit("b", wants("w3", 4, 1));
    // All cpu of f is borrowed by w1, so w2 goes to g although f has memory; w3 finds cpu in neither.
    assert_eq!(scene.run(), ["w1 on f", "w2 on g"]);
    assert_eq!(scene.waits_for("w3").0, PendingReason::WaitingForQuota);
    assert_eq!(scene.borrowed("a"), 3, "three cpu of f; the one cpu of g is its own");
    assert_eq!(scene.borrowed("b"), 0);
}

#[test]
fn a_queue_borrows_only_what_its_group_covers() {
    let lender = member("lender", "c", cpu_group(&[("f", quota(4)), ("g", quota(4))]));
    let scene = Scene::new(vec![queue("a", C, quota(1)), lender]);
    assert_eq!(scene.room("a", MOST), 5, "it does not know flavor g");
}

#[test]
fn more_than_there_can_ever_be_is_said_to_be_too_much() {
    let mut scene = Scene::new(vec![queue("a", C, limited(4, Some(3), None)), queue("b", C, quota(6))]);
    scene.submit("b", cpu_workload("other", 6));
    scene.run();
    scene.submit("a", cpu_workload("fits-some-day", 7));
    scene.submit("a", cpu_workload("never-fits", 8));
    scene.run();
    assert_eq!(scene.waits_for("fits-some-day").0, PendingReason::WaitingForQuota);
    assert_eq!(scene.waits_for("never-fits").0, PendingReason::ExceedsMaxQuota);
    scene.delete("other");
    assert_eq!(scene.run(), ["fits-some-day on f"]);
}

#[test]
fn the_sums_of_huge_quotas_never_wrap() {
    let largest = i64::MAX - 1;
    let names = ["a", "b", "d"];
    let mut scene = Scene::new(names.iter().map(|name| queue(name, C, quota(largest))).collect());
    for name in ["w1", "w2", "w3", "w4"] {
        scene.submit("a", cpu_workload(name, largest));
    }
    assert_eq!(scene.run(), ["w1 on f", "w2 on f", "w3 on f"]);
    assert_eq!(scene.waits_for("w4").0, PendingReason::WaitingForQuota);
    scene.submit("b", cpu_workload("small", 1));
    assert_eq!(scene.run(), [] as [&str; 0], "everything is lent");
    scene.delete("w2");
    assert_eq!(scene.run(), ["small on f"], "b goes first: it does not borrow");
    assert_eq!(scene.waits_for("w4").0, PendingReason::WaitingForQuota, "one is missing");
    scene.delete("small");
    assert_eq!(scene.run(), ["w4 on f"], "what was given back is there again, to the last one");
}

#[test]
fn huge_limits_never_wrap() {
    let largest = i64::MAX - 1;
    let queues = vec![
        queue("a", C, limited(largest, Some(largest), Some(largest))),
        queue("b", C, limited(largest, Some(0), Some(0))),
        queue("d", C, limited(0, Some(i64::MAX), None)),
    ];
    let mut scene = Scene::new(queues);
    scene.submit("d", cpu_workload("w1", largest));
    scene.submit("b", cpu_workload("w2", largest));
    assert_eq!(scene.run(), ["w2 on f", "w1 on f"]);
    assert_eq!((scene.room("a", MOST), scene.room("b", MOST), scene.room("d", MOST)), (0, 0, 0));
}

#[test]
fn a_raised_quota_wakes_the_whole_tree() {
    type Raise = fn(&mut Scene);
    let table: [(&str, Raise); 5] = [
        ("its own quota", |scene| {
            scene.edit_queue("a", |q| q.resource_groups = cpu_group(&[("f", quota(4))]))
        }),
        ("another queue's quota", |scene| {
            scene.edit_queue("b", |q| q.resource_groups = cpu_group(&[("f", quota(3))]));
        }),
        ("the cohort's own quota", |scene| {
            scene.set_cohort(cohort("c", None, cpu_group(&[("f", quota(3))])));
        }),
        ("a parent with quota", |scene| {
            scene.set_cohort(cohort("c", ROOT, vec![]));
            scene.set_cohort(cohort("root", None, cpu_group(&[("f", quota(3))])));
        }),
        ("a queue far away in the tree", |scene| {
            scene.set_cohort(cohort("c", ROOT, vec![]));
            scene.set_cohort(cohort("right", ROOT, vec![]));
            scene.add_queue(queue("far", RIGHT, quota(3)));
        }),
    ];
    for (case, raise) in table {
        let mut scene = Scene::new(vec![queue("a", C, quota(1)), queue("b", C, quota(0))]);
        scene.submit("a", cpu_workload("w", 4));
        scene.run();
        assert_eq!(scene.waits_for("w").0, PendingReason::ExceedsMaxQuota, "{case}");
        raise(&mut scene);
        assert_eq!(scene.run(), ["w on f"], "{case}");
    }
}

#[test]
fn raised_limits_wake() {
    let mut scene =
        Scene::new(vec![queue("a", C, limited(1, Some(1), None)), queue("b", C, limited(3, None, Some(0)))]);
    scene.submit("a", cpu_workload("w", 3));
    scene.run();
    assert_eq!(scene.waits_for("w").0, PendingReason::ExceedsMaxQuota);
    scene.edit_queue("a", |a| a.resource_groups = cpu_group(&[("f", quota(1))]));
    assert_eq!(scene.run(), [] as [&str; 0], "nobody lends yet");
    scene.edit_queue("b", |b| b.resource_groups = cpu_group(&[("f", limited(3, None, Some(2)))]));
    assert_eq!(scene.run(), ["w on f"]);
}

/// Both queues are full; then one quota is lowered. Nobody has to go, and nothing comes until there is room.
#[test]
fn a_quota_lowered_under_use_evicts_nobody_and_admits_nothing() {
    type Lower = fn(&mut Scene);
    let table: [(&str, Lower); 4] = [
        ("the queue's own", |s| s.edit_queue("a", |q| q.resource_groups = cpu_group(&[("f", quota(1))]))),
        ("a lender's", |s| s.edit_queue("b", |q| q.resource_groups = cpu_group(&[("f", quota(1))]))),
        ("the cohort's", |s| s.set_cohort(cohort("c", None, cpu_group(&[("f", quota(0))])))),
        ("the cohort's, by deleting it", |s| s.tell(Event::CohortGone("c".into()))),
    ];
    for (case, lower) in table {
        let mut scene = Scene::new(vec![queue("a", C, quota(4)), queue("b", C, quota(4))]);
        scene.set_cohort(cohort("c", None, cpu_group(&[("f", quota(3))])));
        for index in 0..11 {
            scene.submit(if index < 6 { "a" } else { "b" }, cpu_workload(&format!("w{index:02}"), 1));
        }
        scene.run();
        assert_eq!(scene.running().len(), 11, "{case}: full");
        lower(&mut scene);
        scene.submit("a", cpu_workload("new-a", 1));
        scene.submit("b", cpu_workload("new-b", 1));
        assert_eq!(scene.run(), [] as [&str; 0], "{case}: nobody leaves, nobody comes");
        for gone in ["w00", "w01", "w02"] {
            scene.delete(gone);
            assert_eq!(scene.run(), [] as [&str; 0], "{case}: still at or over the limit");
        }
        scene.delete("w03");
        assert_eq!(scene.run().len(), 1, "{case}: room for one again");
    }
}

#[test]
fn a_lowered_borrowing_limit_lets_borrowers_stay() {
    let mut scene = Scene::new(vec![queue("a", C, quota(1)), queue("b", C, quota(3))]);
    scene.submit("a", cpu_workload("w", 4));
    scene.run();
    scene.edit_queue("a", |a| a.resource_groups = cpu_group(&[("f", limited(1, Some(0), None))]));
    scene.submit("a", cpu_workload("next", 1));
    assert_eq!(scene.run(), [] as [&str; 0]);
    assert!(scene.runs("w"));
    scene.delete("w");
    assert_eq!(scene.run(), ["next on f"]);
}

fn activity(scene: &Scene, queue: &str) -> (ClusterQueueReason, String) {
    let (reason, message, _) = scene.engine.cluster_queue_status(&queue.into()).expect("the queue is known");
    (reason, message)
}

#[test]
fn queues_of_a_cohort_cycle_are_not_active_until_it_is_mended() {
    let mut scene =
        Scene::new(vec![queue("a", LEFT, quota(2)), queue("d", RIGHT, quota(2)), queue("e", C, quota(1))]);
    scene.set_cohort(cohort("left", ROOT, vec![]));
    scene.set_cohort(cohort("right", ROOT, vec![]));
    scene.submit("a", cpu_workload("runs", 1));
    scene.run();
    scene.set_cohort(cohort("root", LEFT, vec![]));
    scene.submit("a", cpu_workload("w", 1));
    scene.submit("d", cpu_workload("below", 1));
    scene.submit("e", cpu_workload("apart", 1));
    assert_eq!(scene.run(), ["apart on f"], "another tree has nothing to do with it");
    assert!(scene.runs("runs"), "what runs goes on");
    let (reason, message) = activity(&scene, "a");
    assert_eq!(reason, ClusterQueueReason::CohortCycle);
    assert_eq!(
        message,
        "ClusterQueue a is in cohort left, whose parents lead back to itself; give one of them another parent"
    );
    assert_eq!(activity(&scene, "d").0, ClusterQueueReason::CohortCycle, "its parents lead into the cycle");
    assert_eq!(activity(&scene, "e").0, ClusterQueueReason::Ready);
    assert_eq!(scene.waits_for("w"), (PendingReason::Suspended, message.as_str()));
    scene.set_cohort(cohort("root", None, vec![]));
    assert_eq!(scene.run(), ["below on f", "w on f"]);
    assert_eq!(activity(&scene, "a").0, ClusterQueueReason::Ready);
    assert_eq!(scene.room("a", MOST), 1, "one tree again: four, and three are used");
}

#[test]
fn a_cohort_that_is_its_own_parent_is_a_cycle_and_its_end_wakes() {
    type Mend = fn(&mut Scene);
    let table: [(&str, Mend); 3] = [
        ("no parent", |scene| scene.set_cohort(cohort("c", None, vec![]))),
        ("deleted", |scene| scene.tell(Event::CohortGone("c".into()))),
        ("the queue moves away", |scene| scene.edit_queue("a", |a| a.cohort = None)),
    ];
    for (case, mend) in table {
        let mut scene = Scene::new(vec![queue("a", C, quota(2))]);
        scene.set_cohort(cohort("c", C, vec![]));
        scene.submit("a", cpu_workload("w", 2));
        assert_eq!(scene.run(), [] as [&str; 0], "{case}");
        assert_eq!(activity(&scene, "a").0, ClusterQueueReason::CohortCycle, "{case}");
        mend(&mut scene);
        assert_eq!(scene.run(), ["w on f"], "{case}");
    }
}

#[test]
fn a_queue_that_moves_takes_its_quota_and_its_use_along() {
    let mut scene =
        Scene::new(vec![queue("a", C, quota(4)), queue("b", C, quota(2)), queue("d", ROOT, quota(1))]);
    scene.submit("a", cpu_workload("big", 5));
    assert_eq!(scene.run(), ["big on f"]);
    scene.submit("b", cpu_workload("in-b", 2));
    scene.submit("d", cpu_workload("in-d", 2));
    assert_eq!(scene.run(), [] as [&str; 0]);
    // With a goes the loan of b: b has its own two again.
    scene.edit_queue("a", |a| a.cohort = ROOT.map(Into::into));
    assert_eq!(scene.run(), ["in-b on f"], "b is alone with its two; a still borrows the one of d");
    assert_eq!((scene.room("a", MOST), scene.room("d", MOST)), (0, 0));
    scene.delete("big");
    assert_eq!(scene.run(), ["in-d on f"], "d borrows of its new neighbour");
    assert_eq!(scene.room("a", MOST), 3);
    scene.edit_queue("a", |a| a.cohort = None);
    scene.run();
    assert_eq!((scene.room("a", MOST), scene.room("d", MOST)), (4, 0), "d keeps what it borrowed");
}

#[test]
fn cohorts_come_and_go() {
    let mut scene = Scene::new(vec![queue("a", LEFT, quota(1)), queue("d", RIGHT, quota(3))]);
    scene.submit("a", cpu_workload("w", 4));
    scene.run();
    assert_eq!(scene.waits_for("w").0, PendingReason::ExceedsMaxQuota, "the cohorts are not related");
    scene.set_cohort(cohort("left", ROOT, vec![]));
    assert_eq!(scene.run(), [] as [&str; 0], "half of it does not help");
    scene.set_cohort(cohort("right", ROOT, vec![]));
    assert_eq!(scene.run(), ["w on f"]);
    scene.tell(Event::CohortGone("left".into()));
    assert_eq!(scene.run(), [] as [&str; 0], "who borrowed stays");
    assert_eq!((scene.room("a", MOST), scene.room("d", MOST)), (0, 3), "and d has its own again");
    scene.delete("w");
    scene.run();
    assert_eq!((scene.room("a", MOST), scene.room("d", MOST)), (1, 3));
}

#[test]
fn a_queue_that_is_deleted_takes_its_quota_out_of_the_tree() {
    let mut scene = Scene::new(vec![queue("a", C, quota(1)), queue("b", C, quota(3))]);
    assert_eq!(scene.room("a", MOST), 4);
    scene.tell(Event::ClusterQueueGone("b".into()));
    scene.run();
    assert_eq!(scene.room("a", MOST), 1);
    scene.add_queue(queue("b", C, quota(2)));
    scene.run();
    assert_eq!(scene.room("a", MOST), 3);
}

#[test]
fn who_does_not_borrow_goes_first_then_priority_then_age() {
    let mut scene =
        Scene::new(vec![queue("a", C, quota(0)), queue("b", C, quota(2)), queue("d", C, quota(2))]);
    scene.edit_queue("b", |b| b.stop_policy = StopPolicy::Hold);
    scene.edit_queue("d", |d| d.stop_policy = StopPolicy::Hold);
    scene.submit("a", ranked("borrows", 2, 9, 0));
    scene.submit("b", ranked("younger", 2, 0, 2));
    scene.submit("d", ranked("older", 2, 0, 1));
    scene.edit_queue("b", |b| b.stop_policy = StopPolicy::None);
    scene.edit_queue("d", |d| d.stop_policy = StopPolicy::None);
    assert_eq!(scene.run(), ["older on f", "younger on f"]);
    assert_eq!(scene.waits_for("borrows").0, PendingReason::WaitingForQuota);
}

#[test]
fn a_smaller_subtree_goes_before_a_larger_one() {
    // `near` fits in its own half, `far` has to borrow from the other one, and wins nothing by its priority.
    let queues = vec![queue("a", LEFT, quota(0)), queue("b", LEFT, quota(2)), queue("d", RIGHT, quota(0))];
    let mut scene = Scene::new(queues);
    for side in ["left", "right"] {
        scene.set_cohort(cohort(side, ROOT, vec![]));
    }
    scene.submit("d", ranked("far", 2, 9, 0));
    scene.submit("a", ranked("near", 2, 0, 1));
    assert_eq!(scene.run(), ["near on f"]);
}

#[test]
fn a_restart_finds_the_same_rooms() {
    for row in FLAT.iter().chain(DEEP) {
        let mut scene = scene_of(row);
        let wants_more = |queue: &str| Workload { queue: queue.into(), ..cpu_workload("more", MOST) };
        let asked = row.queues[0].0;
        scene.submit(asked, wants_more(asked));
        scene.run();
        scene.restart();
        assert_eq!(scene.run(), [] as [&str; 0], "{}: a restart is no reason to decide anything", row.case);
    }
}

/// A Workload that is gone counts as long as its pods run, but nothing more is to be done for it.
#[test]
fn a_queue_may_change_while_pods_of_a_deleted_workload_use_its_quota() {
    let mut scene = Scene::new(vec![cluster_queue("q", cpu_group(&[("f", quota(4))]))]);
    scene.submit_job("q", ranked("w", 4, 0, 0));
    scene.run();
    scene.tell(Event::Pods("job-w".into(), true));
    scene.delete("w");
    scene.submit("q", ranked("next", 4, 0, 1));
    scene.edit_queue("q", |q| q.resource_groups = cpu_group(&[("f", quota(5))]));
    assert_eq!(scene.run(), [] as [&str; 0]);
    scene.tell(Event::Pods("job-w".into(), false));
    assert_eq!(scene.run(), ["next on f"]);
}

/// A list that is too old to show a Workload makes it look deleted; the watch then shows it again.
#[test]
fn a_workload_that_comes_back_counts_once() {
    let mut scene = Scene::new(vec![cluster_queue("q", cpu_group(&[("f", quota(4))]))]);
    scene.submit_job("q", ranked("w", 4, 0, 0));
    scene.run();
    scene.tell(Event::Pods("job-w".into(), true));
    let seen = scene.store.workload("w").clone();
    scene.delete("w");
    scene.tell(Event::Workload(Box::new(seen)));
    scene.submit("q", ranked("next", 4, 0, 1));
    assert_eq!(scene.run(), [] as [&str; 0], "its quota counts");
    let end = JobEnd { succeeded: true, message: "done".into() };
    scene.tell(Event::Job("job-w".into(), JobFacts { end: Some(end), ..JobFacts::default() }));
    assert_eq!(scene.run(), ["next on f"], "its pods are still there, and it has ended");
}
