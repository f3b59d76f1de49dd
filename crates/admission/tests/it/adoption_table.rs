//! What was there before: Workloads of kinds that are not started here, pods that are not needed any more, queues that ask for
//! what nobody does.

use std::sync::Arc;

use gangway_admission::Event;
use gangway_model::queues::{ClusterQueue, Flavor};
use gangway_model::reasons::{ClusterQueueReason, PendingReason};
use gangway_model::workload::{Impediments, Reservation, State, Workload};

use crate::build::*;
use crate::scene::Scene;

const NOTHING: [&str; 0] = [];

fn foreign(workload: Workload) -> Workload {
    let impediments = Impediments::new(None, Vec::new(), Some("JobSet".to_owned()));
    Workload { impediments, owner: Some("jobset".into()), ..workload }
}

/// A scene whose queue has 4 CPUs, all of which a JobSet holds that is less urgent than anybody.
fn held_by_jobset() -> Scene {
    let queue = cluster_queue("q", cpu_group(&[("f", quota(4))]));
    let within_cluster_queue = gangway_model::queues::WithinClusterQueue::LowerPriority;
    let preemption = gangway_model::queues::PreemptionPolicy { within_cluster_queue, ..queue.preemption };
    let mut scene = Scene::new(vec![ClusterQueue { preemption, ..queue }]);
    scene.submit("q", ranked("jobset", 4, -9, 0));
    assert_eq!(scene.run(), ["jobset on f"]);
    scene.edit("jobset", |workload| *workload = foreign(workload.clone()));
    // To whom a Workload belongs does not change in its life: it was there before.
    scene.restart();
    scene
}

#[test]
fn who_belongs_to_others_holds_its_quota_and_nobody_takes_it() {
    let mut scene = held_by_jobset();
    scene.submit("q", ranked("urgent", 2, 9, 1));
    assert_eq!(scene.run(), NOTHING);
    assert_eq!(scene.waits_for("urgent").0, PendingReason::WaitingForQuota);
    scene.restart();
    assert_eq!(scene.run(), NOTHING, "nor after a restart");
    assert!(scene.runs("jobset") && !scene.is_leaving("jobset"));
    // Deactivated: nobody here could stop its pods.
    scene.edit("jobset", |workload| workload.active = false);
    assert_eq!(scene.run(), NOTHING);
    assert!(!scene.is_leaving("jobset"));
    scene.delete("jobset");
    assert_eq!(scene.run(), ["urgent on f"]);
}

#[test]
fn who_belongs_to_others_is_not_admitted() {
    let mut scene = Scene::new(vec![cluster_queue("q", cpu_group(&[("f", quota(4))]))]);
    scene.submit("q", foreign(ranked("jobset", 1, 0, 0)));
    assert_eq!(scene.run(), NOTHING);
    let (reason, message) = scene.waits_for("jobset");
    assert_eq!(reason, PendingReason::Misconfigured);
    assert!(message.contains("JobSet"), "{message}");
}

#[test]
fn pods_that_are_not_needed_any_more_make_room() {
    let mut scene = Scene::new(vec![cluster_queue("q", cpu_group(&[("f", quota(4))]))]);
    scene.submit(
        "q",
        Workload { pod_sets: [pod_set("main", 4, &[("cpu", 1)])].into(), ..ranked("a", 4, 0, 0) },
    );
    assert_eq!(scene.run(), ["a on f"]);
    scene.submit("q", ranked("b", 3, 0, 1));
    assert_eq!(scene.run(), NOTHING);
    scene.edit("a", |workload| {
        Arc::make_mut(&mut workload.pod_sets)[0].count = 1;
        let State::Holding(Reservation { admission, .. }) = &mut workload.state else { panic!("it runs") };
        Arc::make_mut(&mut Arc::make_mut(admission).pod_sets)[0].reclaimed = 3;
    });
    assert_eq!(scene.run(), ["b on f"]);
    scene.restart();
    assert_eq!(scene.run(), NOTHING);
    assert!(scene.runs("a") && scene.runs("b"));
    scene.engine.check().expect("what is used is what is added up");
}

#[test]
fn a_queue_that_asks_for_what_nobody_does_admits_nobody_and_says_why() {
    let mut scene = Scene::new(vec![cluster_queue("q", cpu_group(&[("f", quota(4))]))]);
    scene.submit("q", ranked("runs", 1, 0, 0));
    assert_eq!(scene.run(), ["runs on f"]);
    scene.edit_queue("q", |queue| queue.not_supported = vec!["spec.admissionScope is set".to_owned()]);
    scene.submit("q", ranked("waits", 1, 0, 1));
    assert_eq!(scene.run(), NOTHING, "and what runs goes on");
    assert_eq!(scene.waits_for("waits").0, PendingReason::Suspended);
    let (reason, message, _) = scene.engine.cluster_queue_status(&"q".into()).expect("it exists");
    assert_eq!(reason, ClusterQueueReason::NotSupported);
    assert!(message.contains("spec.admissionScope is set"), "{message}");

    let topology =
        |name: Option<&str>| Flavor { topology: name.map(str::to_owned), ..labelled("f", "flavor", "f") };
    scene.edit_queue("q", |queue| queue.not_supported.clear());
    scene.tell(Event::Flavor(topology(Some("racks"))));
    assert_eq!(scene.run(), NOTHING);
    let (reason, message, _) = scene.engine.cluster_queue_status(&"q".into()).expect("it exists");
    assert_eq!(reason, ClusterQueueReason::NotSupported);
    assert!(message.contains("ResourceFlavor f has spec.topologyName racks"), "{message}");
    scene.tell(Event::Flavor(topology(None)));
    assert_eq!(scene.run(), ["waits on f"]);
}
