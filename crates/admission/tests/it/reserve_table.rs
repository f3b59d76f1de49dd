//! What a waiting Workload has of its queue's own quota is not lent to others.

use gangway_model::queues::*;
use gangway_model::workload::Workload;

use crate::build::*;
use crate::preemption_table::*;
use crate::scene::Scene;

// ---- Standing reserve -----------------------------------------------------------------------------------

/// `q` (quota 4) has 2 free and `w` of 4 waits in it; the rest is used by its own `runs`, or lent to `loan`.
fn waiting_for_its_own(policy: PreemptionPolicy, strategy: QueueingStrategy, used_by: &str) -> Scene {
    let q = ClusterQueue { strategy, ..queue("q", 4, policy) };
    let mut scene = Scene::new(vec![q, queue("other", 0, never())]);
    scene.submit(used_by, ranked("runs", 2, 9, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 1));
    scene.run();
    scene
}

const STRATEGIES: [QueueingStrategy; 2] = [QueueingStrategy::StrictFifo, QueueingStrategy::BestEffortFifo];

#[test]
fn nobody_borrows_what_a_waiting_workload_has_of_its_own() {
    let lower = reclaims(ReclaimWithinCohort::LowerPriority);
    for strategy in STRATEGIES {
        for policy in [never(), lower] {
            for used_by in ["q", "other"] {
                let mut scene = waiting_for_its_own(policy, strategy, used_by);
                for round in 0..3 {
                    scene.submit("other", ranked(&format!("borrower-{round}"), 2, 5, 0));
                    assert_eq!(scene.run(), NOTHING, "{strategy:?}, {policy:?}, used by {used_by}");
                }
                scene.delete("runs");
                assert_eq!(scene.run(), ["w on f"]);
            }
        }
    }
}

#[test]
fn a_restart_keeps_the_reserve() {
    for strategy in STRATEGIES {
        for used_by in ["q", "other"] {
            let mut scene = waiting_for_its_own(never(), strategy, used_by);
            scene.submit("other", ranked("borrower", 2, 5, 0));
            assert_eq!(scene.run(), NOTHING);
            scene.restart();
            assert_eq!(scene.run(), NOTHING, "{strategy:?}, used by {used_by}");
        }
    }
}

#[test]
fn what_can_be_taken_back_may_be_borrowed() {
    for strategy in STRATEGIES {
        let mut scene = waiting_for_its_own(reclaims_any(), strategy, "q");
        scene.submit("other", ranked("borrower", 2, 5, 0));
        assert_eq!(scene.run(), ["borrower on f"], "{strategy:?}");
        scene.delete("runs");
        assert_eq!(scene.run(), ["borrower leaves for w: InCohortReclamation", "w on f"], "{strategy:?}");
    }
}

#[test]
fn the_reserve_ends_with_the_wait() {
    type End = fn(&mut Scene);
    let table: [(&str, End); 4] = [
        ("deleted", |scene| scene.delete("w")),
        ("deactivated", |scene| scene.edit("w", |w| w.active = false)),
        ("more than its queue's own", |scene| {
            scene.edit("w", |w| w.pod_sets = cpu_workload("w", 5).pod_sets)
        }),
        ("the policy", |scene| scene.edit_queue("q", |q| q.preemption = reclaims_any())),
    ];
    for (case, end) in table {
        let mut scene = waiting_for_its_own(never(), QueueingStrategy::BestEffortFifo, "q");
        scene.submit("other", ranked("borrower", 2, 5, 0));
        assert_eq!(scene.run(), NOTHING, "{case}");
        end(&mut scene);
        assert_eq!(scene.run(), ["borrower on f"], "{case}");
    }
}

#[test]
fn the_reserve_does_not_bind_its_own_queue() {
    let mut scene = waiting_for_its_own(never(), QueueingStrategy::BestEffortFifo, "q");
    scene.submit("q", ranked("small", 2, 0, 5));
    assert_eq!(scene.run(), ["small on f"], "what fits may pass what does not");
}

#[test]
fn one_reserve_per_queue_and_the_first_in_order_has_it() {
    let mut scene = waiting_for_its_own(never(), QueueingStrategy::BestEffortFifo, "q");
    scene.submit("other", ranked("borrower", 1, 5, 0));
    scene.submit("q", ranked("also", 3, 0, 2));
    assert_eq!(scene.run(), NOTHING);
    scene.delete("w");
    assert_eq!(scene.run(), NOTHING, "now it is kept for the next one");
    scene.delete("also");
    assert_eq!(scene.run(), ["borrower on f"]);
}

/// In a strict queue another goes first now and never fits. What the next one may keep from others does not
/// depend on whether it was evaluated before that, or the process began after it.
#[test]
fn a_restart_finds_the_same_reserves_in_a_strict_queue() {
    let q = ClusterQueue { strategy: QueueingStrategy::StrictFifo, ..queue("q", 2, never()) };
    let mut scene = Scene::new(vec![q, queue("other", 0, never())]);
    scene.submit("q", ranked("runs", 1, 9, 0));
    scene.run();
    scene.submit("q", ranked("w", 2, 0, 1));
    scene.run();
    scene.submit("q", ranked("too-large", 99, 9, 2));
    scene.run();
    scene.submit("other", ranked("borrower", 1, 5, 3));
    scene.run();
    let before = scene.running();
    scene.restart();
    scene.run();
    assert_eq!(scene.running(), before);
}

/// The first who reserved cpu and memory leaves; the next one needs memory only. So there is cpu again.
#[test]
fn a_reserve_that_passes_to_one_who_needs_less_wakes() {
    let groups = |amount: i64| vec![group(&["cpu", "memory"], &[("f", &[amount, amount])])];
    let wants = |name: &str, created, amounts: &[(&str, i64)]| Workload {
        created: at(created),
        ..workload(name, vec![pod_set("main", 1, amounts)])
    };
    let mut scene = Scene::new(vec![member("q", "c", groups(4)), member("other", "c", groups(0))]);
    scene.submit("q", wants("runs", 0, &[("memory", 1)]));
    scene.run();
    scene.submit("q", wants("both", 1, &[("cpu", 2), ("memory", 4)]));
    scene.submit("q", wants("memory-only", 2, &[("memory", 4)]));
    scene.run();
    scene.submit("other", wants("borrower", 3, &[("cpu", 3)]));
    assert_eq!(scene.run(), NOTHING, "two of four cpu are reserved");
    scene.delete("both");
    assert_eq!(scene.run(), ["borrower on f"]);
}

/// Nobody is tried again because somebody else was admitted, so what is reserved may not depend on that.
#[test]
fn a_reserve_stays_on_its_flavor_whoever_starts() {
    let q = ClusterQueue {
        resource_groups: cpu_group(&[("f", quota(4)), ("g", quota(4))]),
        ..queue("q", 0, never())
    };
    let none = cpu_group(&[("f", quota(0)), ("g", quota(0))]);
    let mut scene = Scene::new(vec![q, ClusterQueue { resource_groups: none, ..queue("other", 0, never()) }]);
    scene.submit("q", pinned(ranked("runs", 1, 9, 0), "f"));
    scene.submit("other", pinned(ranked("loan", 1, 9, 0), "g"));
    scene.run();
    // On f it would borrow now, on g not. Once `small` runs it would on both.
    scene.submit("q", ranked("w", 4, 0, 1));
    scene.run();
    scene.submit("q", pinned(ranked("small", 1, 0, 2), "g"));
    scene.submit("other", pinned(ranked("on-f", 1, 0, 3), "f"));
    scene.submit("other", pinned(ranked("on-g", 2, 0, 4), "g"));
    assert_eq!(scene.run(), ["small on g", "on-g on g"], "what w could have of its own first is reserved");
    scene.engine.reconsider();
    assert_eq!(scene.run(), NOTHING);
    scene.restart();
    assert_eq!(scene.run(), NOTHING);
}
