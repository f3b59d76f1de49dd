//! Who is tried again when, counted.

use gangway_admission::Event;
use gangway_model::queues::{ClusterQueue, QueueingStrategy};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::Workload;

use crate::build::*;
use crate::flavor_table::{cpu_queue, one_queue, run, state, submit, waits_for};
use crate::world::World;

fn set_quota(world: &mut World, milli: i64) {
    let groups = vec![group(&["cpu"], &[("default", &[milli])])];
    let queue = ClusterQueue { resource_groups: groups, ..world.store.cluster_queues["cq"].clone() };
    world.administer(Event::ClusterQueue(Box::new(queue)));
    world.deliver_all();
}

fn evaluations(world: &World) -> u64 {
    world.engine.work().evaluations
}

#[test]
fn what_exceeds_the_quota_is_not_tried_again_until_the_quota_changes() {
    let mut world = cpu_queue(2);
    submit(&mut world, cpu_workload("small", 1));
    submit(&mut world, cpu_workload("large", 3));
    run(&mut world);
    assert_eq!(waits_for(&world, "large"), PendingReason::ExceedsMaxQuota);
    let before = evaluations(&world);
    assert_eq!(before, 2, "each was tried once");
    world.delete(&"small".into());
    run(&mut world);
    assert_eq!(evaluations(&world), before, "free quota does not help it");
    let touched = world.store.workload("large").clone();
    submit(&mut world, touched);
    world.administer(Event::Namespace(namespace("ns", &[("colour", "green")])));
    run(&mut world);
    assert_eq!(evaluations(&world), before, "neither does a change that has nothing to do with quota");
    set_quota(&mut world, 3);
    run(&mut world);
    assert!(state(&world, "large").may_run());
    assert_eq!(evaluations(&world), before + 1);
}

#[test]
fn what_only_others_make_too_large_is_tried_again_when_they_leave() {
    let groups = vec![group(&["cpu"], &[("small", &[2]), ("large", &[3])])];
    let mut world = one_queue(vec![flavor("small"), flavor("large")], groups);
    submit(&mut world, cpu_workload("runs", 2));
    run(&mut world);
    let pod_sets = vec![pod_set("main", 1, &[("cpu", 1)]), pod_set("rest", 3, &[("cpu", 1)])];
    submit(&mut world, workload("w", pod_sets));
    run(&mut world);
    assert_eq!(waits_for(&world, "w"), PendingReason::WaitingForQuota);
    let message = crate::flavor_table::waiting_message(&world, "w");
    assert_eq!(message, "cpu in flavor small: 1m needed, 0 free of 2m");
    world.delete(&"runs".into());
    run(&mut world);
    assert!(state(&world, "w").may_run());
}

#[test]
fn equal_requests_are_evaluated_once() {
    let mut world = cpu_queue(1);
    for index in 0..1_001 {
        world.put(cpu_workload(&format!("w{index:04}"), 1));
    }
    run(&mut world);
    assert!(state(&world, "w0000").may_run());
    let before = evaluations(&world);
    assert_eq!(before, 2, "one fits, one does not");
    world.delete(&"w0000".into());
    run(&mut world);
    assert!(state(&world, "w0001").may_run());
    assert!(evaluations(&world) <= before + 2, "{} evaluations", evaluations(&world) - before);
}

#[test]
fn a_strict_queue_is_held_up_by_its_first_and_says_so() {
    let mut world = cpu_queue(2);
    let strict =
        ClusterQueue { strategy: QueueingStrategy::StrictFifo, ..world.store.cluster_queues["cq"].clone() };
    world.administer(Event::ClusterQueue(Box::new(strict)));
    submit(&mut world, cpu_workload("runs", 1));
    run(&mut world);
    submit(&mut world, Workload { created: at(1), ..cpu_workload("first", 2) });
    submit(&mut world, Workload { created: at(2), ..cpu_workload("second", 1) });
    run(&mut world);
    assert_eq!(waits_for(&world, "first"), PendingReason::WaitingForQuota);
    assert_eq!(waits_for(&world, "second"), PendingReason::WaitingForQuota);
    let message = crate::flavor_table::waiting_message(&world, "second");
    assert_eq!(message, "ClusterQueue cq is StrictFIFO and ns/first goes first");
    world.delete(&"runs".into());
    run(&mut world);
    assert!(state(&world, "first").may_run());
    let best_effort = ClusterQueue {
        strategy: QueueingStrategy::BestEffortFifo,
        ..world.store.cluster_queues["cq"].clone()
    };
    submit(&mut world, Workload { created: at(1), ..cpu_workload("huge", 9) });
    world.delete(&"first".into());
    run(&mut world);
    assert!(!state(&world, "second").may_run(), "the new first holds it up");
    world.administer(Event::ClusterQueue(Box::new(best_effort)));
    run(&mut world);
    assert!(state(&world, "second").may_run(), "what fits may pass");
}

#[test]
fn priority_goes_first_then_age_then_uid() {
    let mut world = cpu_queue(0);
    let table = [("d", 0, 5), ("c", 0, 5), ("b", 0, 4), ("a", 7, 9)];
    for (name, priority, created) in table {
        submit(&mut world, Workload { priority, created: at(created), ..cpu_workload(name, 1) });
    }
    run(&mut world);
    let mut order = Vec::new();
    for quota in 1..=4 {
        set_quota(&mut world, quota);
        run(&mut world);
        let started = table.iter().map(|(name, ..)| *name).filter(|name| state(&world, name).may_run());
        let new: Vec<&str> = started.filter(|name| !order.contains(name)).collect();
        order.extend(new);
    }
    assert_eq!(order, ["a", "b", "c", "d"]);
}

#[test]
fn every_setting_that_could_help_wakes() {
    type Step = fn(&mut World);
    let picky = || constrained(pod_set("main", 1, &[("cpu", 1)]), selects("type", "gold"));
    let table: [(&str, PendingReason, Step); 4] = [
        ("the flavor gets the label", PendingReason::NoMatchingFlavor, |world| {
            world.administer(Event::Flavor(labelled("default", "type", "gold")));
        }),
        ("the missing flavor is created", PendingReason::Suspended, |world| {
            world.administer(Event::Flavor(labelled("default", "type", "gold")));
        }),
        ("the namespace is selected", PendingReason::Misconfigured, |world| {
            world.administer(Event::Namespace(namespace("ns", &[])));
        }),
        ("the LocalQueue is created", PendingReason::Misconfigured, |world| {
            world.administer(Event::LocalQueue(local_queue("ns", "lq", "cq")));
        }),
    ];
    for (case, reason, cure) in table {
        let groups = vec![group(&["cpu"], &[("default", &[1])])];
        let first = match case {
            "the flavor gets the label" => labelled("default", "type", "iron"),
            "the missing flavor is created" => flavor("another"),
            _ => labelled("default", "type", "gold"),
        };
        let mut world = one_queue(vec![first], groups);
        match case {
            "the namespace is selected" => world.administer(Event::NamespaceGone("ns".into())),
            "the LocalQueue is created" => {
                world.administer(Event::LocalQueueGone(local_queue("ns", "lq", "cq").name));
            }
            _ => {}
        }
        submit(&mut world, workload("w", vec![picky()]));
        run(&mut world);
        assert_eq!(waits_for(&world, "w"), reason, "{case}");
        cure(&mut world);
        run(&mut world);
        assert!(state(&world, "w").may_run(), "{case}");
    }
}
