//! What the reference does and Gangway does not, cycle by cycle, where random scenarios seldom come to it.

use gangway_admission::{Event, Rules};
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, LocalQueue, PreemptionPolicy, QueueingStrategy, ReclaimWithinCohort,
    StopPolicy, WithinClusterQueue,
};
use gangway_model::reasons::FinishReason;
use gangway_model::workload::{Finish, State, Workload};

use crate::build::*;
use crate::scene::Scene;

const NOTHING: [&str; 0] = [];
/// The reference looks at memory first.
const GPU: &str = "example.com/gpu";

fn strict(queue: ClusterQueue) -> ClusterQueue {
    ClusterQueue { strategy: QueueingStrategy::StrictFifo, ..queue }
}

fn two_flavors(name: &str, first: i64, second: i64) -> ClusterQueue {
    member(name, "c", cpu_group(&[("f0", quota(first)), ("f1", quota(second))]))
}

/// A Workload of two podSets: `main` fits on either flavor, `extra` on none for now.
fn w(main: &str, extra: &[(&str, i64)]) -> Workload {
    workload("w", vec![pod_set("main", 1, &[(main, 1)]), pod_set("extra", 1, extra)])
}

/// Of a queue each, somebody holds so much of a flavor.
fn occupied(queues: Vec<ClusterQueue>, holders: &[(&str, &str, i64)]) -> Scene {
    let mut scene = Scene::with_rules(Rules::reference(), queues);
    for (queue, flavor, amount) in holders {
        scene.submit(queue, pinned(cpu_workload(&format!("{queue}-{flavor}"), *amount), flavor));
    }
    scene.run();
    scene
}

/// Tries `w` until the next flavor for `main` is noted: what is told for the first time ends the search.
fn search_on(scene: &mut Scene, cycles: usize) {
    for _ in 0..cycles {
        assert_eq!(scene.cycle(), NOTHING);
    }
}

#[test]
fn a_search_begins_again_when_somebody_of_its_queue_is_admitted() {
    for (newcomers, flavors) in [(0, "w on f1, f0"), (1, "w on f0")] {
        let queues = vec![strict(two_flavors("q", 2, 2)), two_flavors("p", 4, 4)];
        let mut scene = occupied(queues, &[("p", "f0", 4), ("p", "f1", 4)]);
        scene.submit("q", w("cpu", &[("cpu", 3)]));
        search_on(&mut scene, 2);
        scene.delete("p-f0");
        scene.delete("p-f1");
        for _ in 0..newcomers {
            scene.submit("q", ranked("v", 1, 1, 0));
            assert_eq!(scene.cycle(), ["v on f0"]);
        }
        assert_eq!(scene.cycle(), [flavors]);
    }
}

/// Stops a LocalQueue, or starts it.
fn hold(scene: &mut Scene, local: &str, queue: &str, stop_policy: StopPolicy) {
    scene.tell(Event::LocalQueue(LocalQueue { stop_policy, ..local_queue("ns", local, queue) }));
}

#[test]
fn a_search_begins_again_when_somebody_of_its_queue_ends_whom_nobody_notices() {
    let mut scene = Scene::with_rules(Rules::reference(), vec![strict(two_flavors("q", 5, 2))]);
    hold(&mut scene, "held", "q", StopPolicy::None);
    scene.submit("held", pinned(cpu_workload("holder", 3), "f0"));
    scene.run();
    hold(&mut scene, "held", "q", StopPolicy::Hold);
    scene.submit("q", w("cpu", &[("cpu", 3)]));
    search_on(&mut scene, 2);
    let finish = Finish { reason: FinishReason::Succeeded, message: String::new(), at: scene.now };
    scene.edit("holder", |holder| {
        holder.state = State::Finished(Box::new(finish), Box::new(holder.state.clone()));
    });
    assert_eq!(scene.cycle(), ["w on f0"]);
}

/// `victim` left for `w`, and is in a LocalQueue on hold. Whoever was set aside before stays so.
#[test]
fn whom_somebody_leaves_for_is_tried_again_and_nobody_else_if_nobody_notices() {
    let queue = |name, amount| member(name, "c", cpu_group(&[("f", quota(amount))]));
    let queues = vec![preempting(queue("q", 4), WithinClusterQueue::LowerPriority), queue("p", 2)];
    let mut scene = Scene::with_rules(Rules::reference(), queues);
    hold(&mut scene, "held", "q", StopPolicy::None);
    scene.submit("held", ranked("victim", 4, 0, 0));
    scene.run();
    hold(&mut scene, "held", "q", StopPolicy::Hold);
    scene.submit("p", ranked("waits", 3, 0, 1));
    assert_eq!(scene.cycle(), NOTHING);
    scene.submit("q", ranked("w", 3, 1, 2));
    assert_eq!(scene.cycle(), ["victim leaves for w: InClusterQueue"]);
    assert_eq!(scene.cycle(), ["w on f"]);
    assert_eq!(scene.cycle(), NOTHING, "there is room for the other, too");
}

#[test]
fn a_preemptor_that_has_lost_its_room_is_told_again_what_it_lacks() {
    let reclaiming = PreemptionPolicy {
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        ..PreemptionPolicy::default()
    };
    let queue = ClusterQueue { preemption: reclaiming, ..strict(two_flavors("q", 4, 1)) };
    let mut scene = occupied(vec![queue, two_flavors("p", 0, 3)], &[("p", "f1", 3)]);
    let priority = |priority| Workload { priority, ..pinned(cpu_workload("v", 3), "f0") };
    scene.submit("p", priority(9));
    scene.run();
    scene.submit("q", w("cpu", &[("cpu", 3)]));
    search_on(&mut scene, 2);
    scene.edit("v", |victim| victim.priority = -1);
    assert_eq!(scene.cycle(), ["v leaves for w: InCohortReclamation"]);
    scene.submit("q", Workload { uid: "thief".into(), ..priority(9) });
    assert_eq!(scene.cycle(), ["thief on f0"]);
    // It lacks what it lacked before it preempted. That is news, so the search begins again.
    search_on(&mut scene, 1);
    scene.delete("p-f1");
    assert_eq!(scene.cycle(), ["w on f0, f1"]);
}

#[test]
fn of_two_groups_of_which_one_has_no_flavor_nothing_is_told_of_the_other() {
    let groups = |memory: i64| {
        vec![group(&["memory"], &[("f0", &[memory]), ("f1", &[memory])]), group(&[GPU], &[("g", &[1])])]
    };
    let queues = vec![strict(member("q", "c", groups(4))), member("p", "c", groups(0))];
    let mut scene = Scene::with_rules(Rules::reference(), queues);
    for (flavor, resource, amount) in [("f0", "memory", 3), ("f1", "memory", 3), ("g", GPU, 1)] {
        let holder = workload(flavor, vec![pod_set("main", 1, &[(resource, amount)])]);
        scene.submit("p", pinned(holder, flavor));
    }
    scene.run();
    scene.submit("q", w("memory", &[("memory", 2), (GPU, 2)]));
    // Where `main` stands changes how much memory lacks. That is not told, so every second cycle notes the next flavor.
    search_on(&mut scene, 4);
    for holder in ["f0", "f1", "g"] {
        scene.delete(holder);
    }
    assert_eq!(scene.cycle(), ["w on f1, g, f0"]);
}

#[test]
fn what_exceeds_all_quota_is_told_without_what_is_free() {
    let queues = vec![strict(two_flavors("q", 2, 2)), two_flavors("p", 2, 8)];
    let mut scene = occupied(queues, &[("p", "f1", 8)]);
    scene.submit("q", w("cpu", &[("cpu", 9)]));
    scene.submit("p", pinned(cpu_workload("p-f0", 1), "f0"));
    assert_eq!(scene.cycle(), ["p-f0 on f0"], "less is free on f0");
    search_on(&mut scene, 1);
    scene.delete("p-f1");
    assert_eq!(scene.cycle(), ["w on f1"]);
}

fn preempting(queue: ClusterQueue, within_cluster_queue: WithinClusterQueue) -> ClusterQueue {
    let preemption = PreemptionPolicy {
        within_cluster_queue,
        reclaim_within_cohort: ReclaimWithinCohort::Any,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { max_priority: None },
    };
    ClusterQueue { preemption, ..queue }
}

#[test]
fn who_is_older_is_not_tried_where_its_shape_has_failed() {
    let told = [Rules::gangway(), Rules::reference()].map(|rules| {
        let queue = cluster_queue("q", cpu_group(&[("f", quota(4))]));
        let queue = preempting(queue, WithinClusterQueue::LowerOrNewerEqualPriority);
        let mut scene = Scene::with_rules(rules, vec![queue]);
        scene.submit("q", ranked("runs", 4, 0, 5));
        scene.run();
        scene.submit("q", ranked("newer", 4, 0, 9));
        scene.run();
        scene.submit("q", ranked("older", 4, 0, 1));
        scene.cycle()
    });
    assert_eq!(told, [vec!["runs leaves for older: InClusterQueue".to_owned()], vec![]]);
}

/// `q1` of queue `q` has won all there is, and lost it again. `q3` is the next but for its `equals`.
fn failed_preemptor(equals: &[&str]) -> Scene {
    let queue = |name, cohort| member(name, cohort, cpu_group(&[("f", quota(3))]));
    let queues = vec![queue("p", "c"), preempting(queue("q", "below"), WithinClusterQueue::LowerPriority)];
    let mut scene = Scene::with_rules(Rules::reference(), queues);
    scene.set_cohort(cohort("c", None, cpu_group(&[("f", quota(2))])));
    scene.set_cohort(cohort("below", Some("c"), vec![]));
    scene.submit("p", ranked("p1", 4, 1, 8));
    scene.submit("p", ranked("p2", 1, 0, 6));
    scene.run();
    scene.submit("p", ranked("thief", 2, 1, 3));
    scene.submit("q", ranked("q1", 8, 3, 0));
    for equal in equals {
        scene.submit("q", ranked(equal, 8, 3, 4));
    }
    scene.submit("q", ranked("q3", 2, 0, 5));
    let leaves = |name| format!("{name} leaves for q1: InCohortReclaimWhileBorrowing");
    assert_eq!(scene.cycle(), [leaves("p2"), leaves("p1")]);
    assert_eq!(scene.cycle(), ["thief on f"], "it needs not borrow");
    assert_eq!(scene.cycle(), ["p1 on f"], "q1 fails");
    scene
}

#[test]
fn who_asks_for_the_same_as_a_preemptor_that_failed_is_not_tried() {
    let mut scene = failed_preemptor(&["q2"]);
    assert_eq!(scene.cycle(), ["q3 on f"], "it is not the turn of q2");
}

#[test]
fn a_preemptor_that_failed_is_not_tried_when_another_goes_first() {
    let mut scene = failed_preemptor(&[]);
    assert_eq!(scene.cycle(), ["q3 on f"]);
    // Nobody notices that p1 leaves.
    hold(&mut scene, "p", "p", StopPolicy::Hold);
    scene.submit("q", ranked("q4", 1, 5, 9));
    assert_eq!(scene.cycle(), ["p1 leaves for q4: InCohortReclamation"]);
    assert_eq!(scene.cycle(), ["q4 on f"]);
    scene.submit("q", ranked("q5", 1, 0, 9));
    assert_eq!(scene.cycle(), ["q5 on f"], "it is not the turn of q1");
}
