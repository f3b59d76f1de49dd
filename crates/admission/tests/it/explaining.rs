//! Why is my Job pending?

use gangway_admission::{Explanation, Situation, Verdict};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Impediments, Workload};

use crate::build::*;
use crate::flavor_table::{cpu_queue, one_queue, run, submit};
use crate::hold_table::won;
use crate::preemption_table::reclaims_any;
use crate::scene::Scene;
use crate::world::World;

fn explained(world: &World, uid: &str) -> Explanation {
    world.engine.explain(&uid.into()).expect("it is known")
}

#[test]
fn a_busy_queue_is_explained_with_numbers_and_place() {
    let mut world = cpu_queue(4_000);
    submit(&mut world, cpu_workload("runs", 2_500));
    run(&mut world);
    for (second, name) in [(1, "first"), (2, "second"), (3, "third")] {
        submit(&mut world, Workload { created: at(second), ..cpu_workload(name, 2_000) });
    }
    run(&mut world);
    for (ahead, name) in ["first", "second", "third"].into_iter().enumerate() {
        let explanation = explained(&world, name);
        assert_eq!(explanation.situation, Situation::Waiting(PendingReason::WaitingForQuota));
        assert_eq!(explanation.message, "cpu in flavor default: 2 needed, 1500m free of 4");
        assert_eq!(explanation.ahead, ahead, "{name}");
        assert_eq!(explanation.cluster_queue.as_ref().map(|name| name.as_str()), Some("cq"));
        assert!(!explanation.situation.never_starts());
        assert_eq!(explanation.advice, [PendingReason::WaitingForQuota.doc().ends_when]);
    }
    let runs = explained(&world, "runs");
    assert_eq!(
        (runs.situation, runs.message.as_str()),
        (Situation::Admitted, "in ClusterQueue cq on default")
    );
}

#[test]
fn what_can_never_start_is_told_what_would_help() {
    let mut world = one_queue(
        vec![tainted("spot", "preemptible"), flavor("steady")],
        vec![group(&["cpu"], &[("spot", &[9_000]), ("steady", &[1_000])])],
    );
    submit(&mut world, cpu_workload("w", 2_000));
    run(&mut world);
    let explanation = explained(&world, "w");
    assert_eq!(explanation.situation, Situation::Waiting(PendingReason::ExceedsMaxQuota));
    assert!(explanation.situation.never_starts());
    assert_eq!(explanation.message, "cpu in flavor steady: 2 needed, the quota is 1");
    assert_eq!(
        explanation.advice.last().expect("some"),
        "Ask for less cpu, or raise its quota in flavor steady."
    );
    let told: Vec<String> = explanation.flavors.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "flavor spot has the taint preemptible=true, which the pods do not tolerate",
            "cpu in flavor steady: 2 needed, the quota is 1"
        ]
    );
    let Verdict::Exceeds(short) = &explanation.flavors[1].verdict else { panic!("{explanation:?}") };
    assert_eq!((short.need, short.quota.value()), (2_000, 1_000));
}

#[test]
fn a_missing_queue_is_named() {
    let mut world = cpu_queue(1);
    submit(&mut world, Workload { queue: "nowhere".into(), ..cpu_workload("w", 1) });
    run(&mut world);
    let explanation = explained(&world, "w");
    assert_eq!(explanation.situation.as_str(), "Misconfigured");
    assert_eq!(explanation.message, "LocalQueue ns/nowhere does not exist");
    assert!(world.engine.explain(&"unknown".into()).is_none());
}

#[test]
fn every_standing_reason_names_its_object() {
    type Spoil = fn(&mut Workload);
    let table: [(&str, Spoil, PendingReason, &str); 3] = [
        ("inactive", |w| w.active = false, PendingReason::Deactivated, "spec.active"),
        (
            "gated",
            |w| w.impediments = Impediments::new(None, vec!["budget".into()], None),
            PendingReason::AdmissionGated,
            "budget",
        ),
        (
            "invalid",
            |w| w.impediments = Impediments::new(Some("-1 cpu".into()), Vec::new(), None),
            PendingReason::Misconfigured,
            "-1 cpu",
        ),
    ];
    for (name, spoil, reason, told) in table {
        let mut world = cpu_queue(1);
        let mut spoilt = cpu_workload("w", 1);
        spoil(&mut spoilt);
        submit(&mut world, spoilt);
        run(&mut world);
        let explanation = explained(&world, "w");
        assert_eq!(explanation.situation, Situation::Waiting(reason), "{name}");
        assert!(explanation.message.contains(told), "{name}: {}", explanation.message);
        assert!(!explanation.advice.is_empty(), "{name}");
    }
}

#[test]
fn both_sides_of_a_preemption_are_explained() {
    let mut scene = won(reclaims_any());
    let explained = |scene: &Scene, uid: &str| scene.engine.explain(&uid.into()).expect("it is known");
    let to_leave = |scene: &Scene| {
        let explanation = explained(scene, "w");
        let victims = explanation.victims.iter().map(|victim| {
            let queue = victim.cluster_queue.as_ref().expect("it holds quota").to_string();
            assert!(victim.told_at.is_some_and(|told| told < scene.now), "{victim:?}");
            format!("{} of {queue}: {}", victim.uid, victim.reason)
        });
        (explanation.message, victims.collect::<Vec<String>>())
    };
    let (message, victims) = to_leave(&scene);
    assert_eq!(message, "Waiting for 2 Workloads to leave");
    assert_eq!(victims, ["v1 of other: InCohortReclamation", "v2 of other: InCohortReclamation"]);
    let short = |scene: &Scene, uid: &str| match &explained(scene, uid).flavors[0].verdict {
        Verdict::Busy(short) => (short.free, short.used_by[0].1, short.kept),
        other => panic!("{uid}: {other:?}"),
    };
    assert_eq!(short(&scene, "w"), (0, 4, 0), "what is kept for it is not in its way");
    let for_whom = |scene: &Scene, uid: &str| {
        let found = explained(scene, uid).preempted_for.expect("it is a victim");
        (found.uid.expect("it was written").to_string(), found.reason.as_str(), found.has_left)
    };
    assert_eq!(for_whom(&scene, "v1"), ("w".to_owned(), "InCohortReclamation", false));
    scene.stop_job("v1");
    scene.run();
    let (message, victims) = to_leave(&scene);
    assert_eq!(message, "Waiting for 1 Workload to leave");
    assert_eq!(victims, ["v2 of other: InCohortReclamation"]);
    assert_eq!(for_whom(&scene, "v1"), ("w".to_owned(), "InCohortReclamation", true));
    assert_eq!(explained(&scene, "w").preempted_for, None);
    assert_eq!(short(&scene, "w"), (2, 2, 0));
    assert_eq!(short(&scene, "v1"), (0, 2, 4), "what is kept is not in use");
}
