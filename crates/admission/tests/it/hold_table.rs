//! For how long the room that a preemptor has won is kept for it, and that nobody preempts for ever.

use gangway_admission::{Decision, Event, Outcome, Rules};
use gangway_model::queues::*;
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Impediments, Workload};

use crate::build::*;
use crate::preemption_table::*;
use crate::scene::{Scene, shown};

// ---- The hold -------------------------------------------------------------------------------------------

/// `w` of queue `q` (quota 4) has won the room of `v1` and `v2`, whose Jobs still run.
pub fn won(policy: PreemptionPolicy) -> Scene {
    let mut scene =
        Scene::new(vec![queue("q", 4, policy), queue("other", 0, never()), queue("third", 0, never())]);
    for name in ["v1", "v2"] {
        scene.submit_job("other", ranked(name, 2, 0, 0));
    }
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 10));
    assert_eq!(victims_of(&scene.run()), ["v1", "v2"]);
    scene
}

#[test]
fn the_preemptor_says_for_whom_it_waits_and_starts_when_they_are_gone() {
    let mut scene = won(reclaims_any());
    let (reason, message) = scene.waits_for("w");
    assert_eq!(
        (reason, message),
        (PendingReason::WaitingForPreemptedWorkloads, "Waiting for 2 Workloads to leave")
    );
    scene.stop_job("v1");
    assert_eq!(scene.run(), NOTHING);
    scene.stop_job("v2");
    assert_eq!(scene.run(), ["w on f"]);
}

#[test]
fn who_was_not_told_before_a_restart_is_told_after_it_and_before_the_others_have_left() {
    let mut scene = Scene::new(vec![queue("q", 4, reclaims_any()), queue("other", 0, never())]);
    for name in ["v1", "v2"] {
        scene.submit_job("other", ranked(name, 2, 0, 0));
    }
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 10));
    let first = scene.decide(1);
    assert_eq!(first.iter().filter_map(shown).collect::<Vec<_>>(), ["v2 leaves for w: InCohortReclamation"]);
    scene.land(&first[0]);
    scene.restart();
    assert_eq!(scene.run(), ["v1 leaves for w: InCohortReclamation"]);
    scene.stop_job("v2");
    assert_eq!(scene.run(), NOTHING, "its room is kept");
    scene.stop_job("v1");
    assert_eq!(scene.run(), ["w on f"]);
}

#[test]
fn nobody_takes_the_room_that_is_half_free() {
    let mut scene = won(reclaims_any());
    scene.stop_job("v1");
    scene.submit("third", ranked("thief", 2, 99, 0));
    scene.submit("q", ranked("small", 1, 0, 0));
    assert_eq!(scene.run(), NOTHING, "neither a neighbour, nor its victim, nor an older one of its queue");
    scene.stop_job("v2");
    assert_eq!(scene.run(), ["w on f"]);
}

#[test]
fn a_preemptor_whose_queue_has_left_the_cohort_is_tried_when_its_victims_are_gone() {
    let policy = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::Any,
        ..never()
    };
    let mut scene = Scene::new(vec![queue("q", 4, policy), queue("other", 0, never())]);
    scene.submit("q", ranked("low", 2, 0, 0));
    scene.submit_job("other", ranked("v", 2, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 2, 5, 10));
    assert_eq!(scene.run(), ["v leaves for w: InCohortReclamation"]);
    scene.edit_queue("q", |q| {
        q.cohort = None;
        q.resource_groups[0].flavors[0].quotas[0].nominal = gangway_model::Amount::new(2);
    });
    assert_eq!(scene.run(), NOTHING, "it chose its victims and chooses no others before they have left");
    scene.stop_job("v");
    let told = scene.run();
    assert_eq!(told, ["low leaves for w: InClusterQueue", "w on f"]);
}

#[test]
fn who_won_first_starts_first_though_victims_of_another_have_yet_to_leave() {
    let policy = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::Any,
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { max_priority: None },
    };
    let queues = vec![queue("q", 2, policy), queue("other", 0, never()), queue("lender", 1, never())];
    let mut scene = Scene::new(queues);
    scene.submit_job("q", ranked("low", 1, 0, 0));
    scene.submit_job("other", ranked("v", 2, 0, 0));
    scene.run();
    scene.submit("q", ranked("first", 1, 0, 10));
    assert_eq!(scene.run(), ["v leaves for first: InCohortReclamation"]);
    scene.submit("q", ranked("urgent", 2, 5, 20));
    assert_eq!(
        scene.run(),
        ["low leaves for urgent: InClusterQueue"],
        "it needs the rest of v's room as well"
    );
    scene.stop_job("v");
    assert_eq!(scene.run(), ["first on f"], "what low still uses is not kept from it twice");
    scene.stop_job("low");
    assert_eq!(scene.run(), ["urgent on f"]);
}

#[test]
fn who_may_take_over_does_not_start_on_room_that_is_still_used() {
    let policy = PreemptionPolicy { within_cluster_queue: WithinClusterQueue::LowerPriority, ..never() };
    let mut scene = Scene::new(vec![queue("q", 9, policy)]);
    scene.edit_queue("q", |q| q.cohort = None);
    for (name, amount, priority) in [("v1", 4, 0), ("v2", 4, 0), ("x", 1, 20)] {
        scene.submit_job("q", ranked(name, amount, priority, 0));
    }
    scene.run();
    scene.submit("q", ranked("low", 4, 5, 10));
    assert_eq!(victims_of(&scene.run()).len(), 1);
    scene.submit("q", ranked("high", 4, 10, 20));
    assert_eq!(victims_of(&scene.run()).len(), 1);
    scene.delete("x");
    assert_eq!(scene.run(), NOTHING, "one cpu is free, the rest is used until v1 and v2 are gone");
    for victim in ["v1", "v2"] {
        scene.stop_job(victim);
    }
    assert_eq!(scene.run(), ["high on f", "low on f"]);
}

#[test]
fn nothing_is_admitted_on_the_room_of_one_who_has_yet_to_leave() {
    let mut scene = Scene::new(vec![queue("q", 4, reclaims_any()), queue("other", 0, never())]);
    scene.submit_job("other", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 2, 0, 10));
    scene.submit("q", ranked("next", 2, 0, 20));
    assert_eq!(scene.run(), ["v leaves for w: InCohortReclamation"]);
    assert_eq!(scene.running(), NOTHING, "next would fit once v is gone, and not before");
    scene.stop_job("v");
    assert_eq!(scene.run(), ["w on f", "next on f"]);
}

#[test]
fn the_hold_ends_with_the_preemptor() {
    type End = fn(&mut Scene);
    let table: [(&str, End); 4] = [
        ("deleted", |scene| scene.delete("w")),
        ("deactivated", |scene| scene.edit("w", |w| w.active = false)),
        ("gated", |scene| {
            scene.edit("w", |w| w.impediments = Impediments::new(None, vec!["budget".into()], None))
        }),
        ("its queue is stopped", |scene| scene.edit_queue("q", |q| q.stop_policy = StopPolicy::Hold)),
    ];
    for (case, end) in table {
        let mut scene = won(reclaims_any());
        scene.submit("third", ranked("next", 2, 5, 0));
        scene.stop_job("v1");
        assert_eq!(scene.run(), NOTHING, "{case}");
        end(&mut scene);
        assert_eq!(scene.run(), ["next on f"], "{case}: what is free is free for all");
        scene.stop_job("v2");
        assert_eq!(scene.run().len(), 1, "{case}: and a victim comes back");
    }
}

#[test]
fn a_preemptor_that_asks_for_too_much_holds_nothing() {
    let mut scene = won(reclaims_any());
    scene.submit("third", ranked("next", 2, 5, 0));
    scene.stop_job("v1");
    scene.edit("w", |w| w.pod_sets = cpu_workload("w", 9).pod_sets);
    assert_eq!(scene.run(), ["next on f"]);
}

#[test]
fn a_preemptor_that_asks_for_less_takes_what_is_there() {
    let mut scene = won(reclaims_any());
    scene.submit("third", ranked("next", 1, 5, 0));
    scene.stop_job("v1");
    assert_eq!(scene.run(), NOTHING);
    scene.edit("w", |w| w.pod_sets = cpu_workload("w", 1).pod_sets);
    assert_eq!(scene.run(), ["w on f", "next on f"]);
}

#[test]
fn who_was_chosen_and_not_told_yet_may_stay_when_the_preemptor_gives_up() {
    let mut scene = Scene::new(vec![queue("q", 4, reclaims_any()), queue("other", 0, never())]);
    for name in ["v1", "v2"] {
        scene.submit("other", ranked(name, 2, 0, 0));
    }
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 10));
    let first = scene.decide(1);
    assert_eq!(first.len(), 1);
    scene.delete("w");
    scene.land(&first[0]);
    scene.run();
    assert_eq!(scene.running(), ["v1", "v2"], "one came back, the other never left");
    assert_eq!(scene.engine.work().preemptions, 1);
}

#[test]
fn a_higher_priority_of_the_same_queue_takes_over() {
    let mut scene = won(reclaims_any());
    scene.stop_job("v1");
    scene.submit("q", ranked("urgent", 4, 9, 20));
    assert_eq!(scene.run(), NOTHING, "it needs v2's room as well");
    scene.stop_job("v2");
    assert_eq!(scene.run(), ["urgent on f"]);
    assert!(!scene.runs("w"));
    scene.delete("urgent");
    assert_eq!(scene.run(), ["w on f"]);
}

#[test]
fn a_higher_priority_of_another_queue_does_not() {
    let mut scene = won(reclaims_any());
    scene.submit("third", ranked("urgent", 4, 99, 0));
    scene.stop_job("v1");
    scene.stop_job("v2");
    assert_eq!(scene.run(), ["w on f"]);
}

/// A strict queue waits for its first; what is behind it cannot start, so it keeps nothing from others.
#[test]
fn the_hold_ends_when_another_goes_first_in_a_strict_queue_and_does_not_fit() {
    let mut scene = won(reclaims_any());
    scene.edit_queue("q", |q| q.strategy = QueueingStrategy::StrictFifo);
    scene.submit("q", ranked("first", 99, 9, 0));
    scene.submit("third", ranked("next", 4, 5, 0));
    scene.stop_job("v1");
    scene.stop_job("v2");
    assert_eq!(scene.run().len(), 1, "the room is there for others");
    assert!(!scene.runs("w"));
}

/// Every write of the preemptor's admission is refused.
#[test]
fn the_hold_ends_a_quarter_of_an_hour_after_the_last_victim_left() {
    let mut scene = won(reclaims_any());
    scene.submit("third", ranked("next", 4, 5, 0));
    scene.stop_job("v1");
    scene.run();
    scene.now = scene.now.plus_seconds(3_600);
    assert_eq!(scene.run(), NOTHING, "it does not end before the last victim left");
    scene.stop_job("v2");
    let last_left = scene.now;
    for _ in 0..100 {
        let decisions = scene.decide(usize::MAX);
        for decision in &decisions {
            match shown(decision).as_deref() {
                Some("w on f") => refuse(&mut scene, decision),
                Some("next on f") => {
                    let kept = scene.now.nanos_since(last_left) / 1_000_000_000;
                    assert!((895..=900).contains(&kept), "the room was kept for {kept} seconds");
                    return;
                }
                _ => scene.land(decision),
            }
        }
        if decisions.is_empty() {
            let deadline = scene.engine.next_deadline().expect("it is tried again, or given up");
            scene.now = deadline.max(scene.now);
        }
    }
    panic!("the room is kept for ever");
}

/// The victims are gone, and the preemptor's admission meets a conflict: somebody wrote a label. Another waits for the room.
fn conflicting(other: &str) -> Scene {
    let mut scene = won(reclaims_any());
    scene.submit("third", ranked(other, 4, 5, 0));
    scene.stop_job("v1");
    scene.stop_job("v2");
    let admission = decide_until(&mut scene, "w on f");
    assert!(scene.engine.pending_write(admission.id).is_some());
    scene.store.workloads.get_mut(&"w".into()).expect("it is there").version += 1;
    scene.engine.apply(Event::Outcome(admission.id, Outcome::Conflict), scene.now);
    scene
}

/// The room is still for the preemptor.
#[test]
fn a_conflict_does_not_end_the_hold() {
    let mut scene = conflicting("thief");
    let meanwhile: Vec<String> = scene.engine.decide(scene.now, 100).iter().filter_map(shown).collect();
    assert_eq!(meanwhile, NOTHING, "nobody takes the room before the new version is seen");
    scene.edit("w", |_| {});
    assert_eq!(scene.run(), ["w on f"]);
}

#[test]
fn the_hold_ends_when_the_queue_is_stopped_before_a_conflict_is_over() {
    let mut scene = conflicting("next");
    scene.edit_queue("q", |q| q.stop_policy = StopPolicy::Hold);
    scene.edit("w", |_| {});
    assert_eq!(scene.run(), ["next on f"]);
}

/// The API refuses what was decided.
fn refuse(scene: &mut Scene, decision: &Decision) {
    assert!(scene.engine.pending_write(decision.id).is_some());
    let refused = Outcome::Rejected("not now".into());
    scene.engine.apply(Event::Outcome(decision.id, refused), scene.now);
}

/// Decides and stores until a decision reads like this; that one is not stored.
fn decide_until(scene: &mut Scene, wanted: &str) -> Decision {
    for _ in 0..20 {
        scene.now = scene.now.plus_seconds(1);
        for decision in scene.decide(usize::MAX) {
            if shown(&decision).as_deref() == Some(wanted) {
                return decision;
            }
            scene.land(&decision);
        }
    }
    panic!("{wanted} is never decided");
}

/// The API refuses the preemptor's admission once. It has yet to start, so the room is still for it.
#[test]
fn a_refusal_does_not_end_the_hold_at_once() {
    let mut scene = won(reclaims_any());
    scene.submit("third", ranked("thief", 4, 5, 0));
    scene.stop_job("v1");
    scene.stop_job("v2");
    let admission = decide_until(&mut scene, "w on f");
    refuse(&mut scene, &admission);
    let meanwhile: Vec<String> = scene.engine.decide(scene.now, 100).iter().filter_map(shown).collect();
    assert_eq!(meanwhile, NOTHING, "nobody takes the room before it is tried again");
    scene.now = scene.now.plus_seconds(5);
    assert_eq!(scene.run(), ["w on f"]);
}

// ---- Restart --------------------------------------------------------------------------------------------

/// Its victim has left for it, but it says that it waits for something else.
#[test]
fn who_gave_up_is_no_preemptor_after_a_restart() {
    let borrowing = PreemptionPolicy {
        borrow_within_cohort: BorrowWithinCohort::LowerPriority { max_priority: None },
        ..reclaims(ReclaimWithinCohort::LowerPriority)
    };
    let queues = vec![queue("lends", 4, never()), queue("other", 0, never()), queue("q", 0, borrowing)];
    let mut scene = Scene::new(queues);
    scene.submit("lends", ranked("runs", 2, 9, 0));
    scene.submit_job("other", ranked("v", 2, 0, 1));
    scene.run();
    scene.submit("q", ranked("w", 2, 5, 2));
    assert_eq!(victims_of(&scene.run()), ["v"]);
    scene.edit("w", |w| w.active = false);
    scene.submit("lends", ranked("owner", 4, 0, 3));
    scene.stop_job("v");
    scene.run();
    scene.edit("w", |w| w.active = true);
    assert_eq!(scene.run(), NOTHING, "what is left is reserved for its owner");
    scene.restart();
    assert_eq!(scene.run(), NOTHING);
}

#[test]
fn a_restart_in_the_middle_keeps_the_hold() {
    for left_before in [0, 1, 2] {
        let mut scene = won(reclaims_any());
        scene.submit("third", ranked("thief", 2, 99, 0));
        for name in ["v1", "v2"].iter().take(left_before) {
            scene.stop_job(name);
            if left_before < 2 {
                scene.run();
            }
        }
        scene.restart();
        let told = scene.run();
        if left_before < 2 {
            assert_eq!(told, NOTHING, "{left_before} had left");
            assert_eq!(scene.waits_for("w").0, PendingReason::WaitingForPreemptedWorkloads);
            scene.stop_job("v1");
            scene.stop_job("v2");
            assert_eq!(scene.run(), ["w on f"], "{left_before} had left");
        } else {
            assert_eq!(told, ["w on f"]);
        }
    }
}

#[test]
fn after_a_restart_the_victims_of_the_past_hold_nothing() {
    let mut scene = won(reclaims_any());
    scene.stop_job("v1");
    scene.stop_job("v2");
    assert_eq!(scene.run(), ["w on f"]);
    scene.delete("w");
    scene.submit("third", ranked("next", 4, 5, 0));
    scene.restart();
    assert_eq!(scene.run(), ["next on f"]);
}

#[test]
fn after_a_restart_a_preemptor_that_gave_up_holds_nothing() {
    let mut scene = won(reclaims_any());
    scene.submit("third", ranked("next", 2, 5, 0));
    scene.edit("w", |w| w.active = false);
    scene.stop_job("v1");
    scene.restart();
    assert_eq!(scene.run(), ["next on f"]);
}

// ---- Writes under way, budgets --------------------------------------------------------------------------

#[test]
fn a_victim_whose_admission_is_being_written_is_told_afterwards() {
    let mut scene = Scene::new(vec![queue("q", 4, reclaims_any()), queue("other", 0, never())]);
    scene.submit("other", ranked("v", 4, 0, 0));
    let admission = scene.decide(usize::MAX);
    assert_eq!(admission.iter().filter_map(shown).collect::<Vec<_>>(), ["v on f"]);
    scene.submit("q", ranked("w", 4, 0, 10));
    let meanwhile = scene.decide(usize::MAX);
    assert_eq!(
        meanwhile.iter().filter_map(shown).collect::<Vec<_>>(),
        NOTHING,
        "it is in the middle of a write"
    );
    for decision in admission.iter().chain(&meanwhile) {
        scene.land(decision);
    }
    assert_eq!(scene.run(), ["v leaves for w: InCohortReclamation", "w on f"]);
}

#[test]
fn a_victim_whose_admission_fails_need_not_leave() {
    let mut scene = Scene::new(vec![queue("q", 4, reclaims_any()), queue("other", 0, never())]);
    scene.submit("other", ranked("v", 4, 0, 0));
    let admission = scene.decide(usize::MAX);
    scene.submit("q", ranked("w", 4, 0, 10));
    let meanwhile = scene.decide(usize::MAX);
    refuse(&mut scene, &admission[0]);
    for decision in &meanwhile {
        scene.land(decision);
    }
    assert_eq!(scene.run(), ["w on f"]);
}

#[test]
fn victims_beyond_the_budget_are_told_later_and_nobody_else_is_chosen() {
    let mut scene = Scene::new(vec![queue("q", 6, reclaims_any()), queue("other", 0, never())]);
    for name in ["v1", "v2", "v3", "v4", "v5"] {
        scene.submit("other", ranked(name, 1, 0, 0));
        scene.run();
    }
    scene.submit("q", ranked("w", 4, 0, 10));
    let mut told = Vec::new();
    for _ in 0..40 {
        scene.now = scene.now.plus_seconds(1);
        let decisions = scene.decide(1);
        decisions.iter().for_each(|decision| scene.land(decision));
        told.extend(decisions.iter().filter_map(shown));
    }
    assert_eq!(
        told,
        [
            "v5 leaves for w: InCohortReclamation",
            "v4 leaves for w: InCohortReclamation",
            "v3 leaves for w: InCohortReclamation",
            "w on f",
            "v3 on f",
            "v4 on f",
        ][..told.len().min(6)]
    );
    assert_eq!(scene.engine.work().preemptions, 1);
    assert!(scene.runs("w") && scene.runs("v1") && scene.runs("v2"));
}

// ---- Stability ------------------------------------------------------------------------------------------

#[test]
fn a_victim_never_preempts_its_preemptor() {
    // Both may preempt what is less urgent while borrowing. v becomes more urgent after it had to leave.
    let queues = vec![queue("a", 0, may_do_all()), queue("b", 0, may_do_all()), queue("idle", 4, never())];
    let mut scene = Scene::new(queues);
    scene.submit("b", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("a", ranked("w", 4, 5, 10));
    assert_eq!(scene.run(), ["v leaves for w: InCohortReclaimWhileBorrowing", "w on f"]);
    scene.edit("v", |v| v.priority = 9);
    assert_eq!(scene.run(), NOTHING, "it left for w");
}

/// Equal to somebody who may not preempt is not the same as not being allowed to.
#[test]
fn who_never_left_for_it_may_preempt_it() {
    let queues = vec![queue("a", 0, may_do_all()), queue("b", 0, may_do_all()), queue("idle", 4, never())];
    let mut scene = Scene::new(queues);
    scene.submit("b", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("a", ranked("w", 4, 5, 10));
    scene.run();
    scene.edit("v", |v| v.priority = 9);
    scene.submit("b", ranked("stranger", 4, 9, 20));
    assert_eq!(scene.run(), ["w leaves for stranger: InCohortReclaimWhileBorrowing", "stranger on f"]);
}

#[test]
fn nor_through_others() {
    let names = ["a", "b", "d"];
    let queues = names.iter().map(|name| queue(name, 0, may_do_all())).chain([queue("idle", 4, never())]);
    let mut scene = Scene::new(queues.collect());
    scene.submit("a", ranked("first", 4, 0, 0));
    scene.run();
    scene.submit("b", ranked("second", 4, 5, 10));
    scene.run();
    scene.submit("d", ranked("third", 4, 7, 20));
    assert_eq!(scene.run(), ["second leaves for third: InCohortReclaimWhileBorrowing", "third on f"]);
    for name in ["first", "second"] {
        scene.edit(name, |w| w.priority = 9);
        assert_eq!(scene.run(), NOTHING, "{name} left for third, directly or through second");
    }
    scene.restart();
    assert_eq!(scene.run(), NOTHING, "and a restart does not change that");
}

#[test]
fn two_who_could_preempt_each_other_come_to_rest() {
    // Under Any both reclaim what the other borrows; each wants more than its own.
    for (wa, wb) in [(3, 3), (4, 2), (2, 4), (4, 4)] {
        let mut scene = Scene::new(vec![queue("a", 2, may_do_all()), queue("b", 2, may_do_all())]);
        scene.submit("a", ranked("wa", wa, 1, 0));
        scene.run();
        scene.submit("b", ranked("wb", wb, 1, 1));
        scene.run();
        scene.submit("a", ranked("more", 2, 1, 2));
        scene.run();
        assert!(scene.engine.work().preemptions <= 3, "{wa}, {wb}");
    }
}

/// Who takes over what another of its queue has won may have to borrow for it, and so be preempted in turn.
#[test]
fn who_takes_over_does_not_set_off_an_endless_chain() {
    let mut scene = Scene::new(vec![queue("a", 3, reclaims_any()), queue("b", 1, reclaims_any())]);
    scene.submit("b", ranked("b-large", 4, 2, 0));
    scene.run();
    scene.submit("a", ranked("a-large", 4, 2, 1));
    scene.submit("a", ranked("a-own", 3, 1, 2));
    scene.submit("b", ranked("b-own", 1, 0, 3));
    // Panics if it does not come to rest.
    let told = scene.run();
    assert!(victims_of(&told).len() <= 3, "{told:?}");
}

/// The write of an admission whose end nobody knows has landed, as the watch shows.
#[test]
fn the_hold_ends_with_an_admission_that_is_only_seen() {
    for seen_first in [false, true] {
        let mut scene = won(reclaims_any());
        scene.stop_job("v1");
        scene.stop_job("v2");
        let admission = decide_until(&mut scene, "w on f");
        let write = scene.engine.pending_write(admission.id).expect("it is to be written");
        let known = scene.store.workload("w");
        let stored = Workload { version: known.version + 1, state: write.state, ..known.clone() };
        let seen = Event::Workload(Box::new(stored));
        let unknown = Event::Outcome(admission.id, Outcome::Unknown);
        let events = if seen_first { [seen, unknown] } else { [unknown, seen] };
        events.into_iter().for_each(|event| scene.tell(event));
        assert_eq!(scene.run(), NOTHING, "what w has is not kept for it, too");
        scene.delete("w");
        assert_eq!(scene.run(), ["v1 on f", "v2 on f"]);
    }
}

#[test]
fn who_starts_elsewhere_leaves_the_room_that_it_has_won_to_others() {
    let mut owner = queue("q", 4, reclaims_any());
    owner.resource_groups = cpu_group(&[("f", quota(4)), ("g", quota(0))]);
    let mut scene = Scene::new(vec![owner, queue("other", 0, never())]);
    scene.submit_job("other", ranked("v", 4, 0, 0));
    scene.run();
    scene.submit("q", ranked("w", 4, 0, 10));
    assert_eq!(victims_of(&scene.run()), ["v"]);
    scene.submit("other", ranked("next", 4, 1, 20));
    scene.edit_queue("q", |q| q.resource_groups = cpu_group(&[("g", quota(4)), ("f", quota(4))]));
    scene.stop_job("v");
    assert_eq!(scene.run(), ["w on g", "next on f"]);
}

#[test]
fn a_victim_that_leaves_for_another_reason_is_waited_for_no_longer() {
    let mut scene = Scene::new(vec![queue("q", 4, reclaims_any()), queue("other", 0, never())]);
    scene.submit_job("other", ranked("v", 4, 0, 0));
    let admission = scene.decide(usize::MAX);
    scene.submit("q", ranked("w", 4, 0, 10));
    assert_eq!(scene.run(), NOTHING, "v was chosen, and is told when it is admitted");
    scene.submit("q", ranked("small", 1, 0, 20));
    scene.edit_queue("other", |q| q.stop_policy = StopPolicy::HoldAndDrain);
    scene.edit_queue("q", |q| {
        q.cohort = None;
        q.resource_groups = cpu_group(&[("f", quota(3))]);
    });
    admission.iter().for_each(|decision| scene.land(decision));
    assert_eq!(scene.run(), ["v leaves: ClusterQueueStopped", "small on f"], "nothing is kept for w");
}

/// Two preemptors that chose again whenever the other did would never come to an end.
#[test]
fn who_chose_victims_chooses_no_others_before_they_have_left() {
    let mut scene = Scene::new(vec![queue("q", 6, reclaims_any()), queue("other", 0, never())]);
    for (name, created) in [("v1", 0), ("v2", 1), ("v3", 2)] {
        scene.submit_job("other", ranked(name, 2, 0, created));
        scene.run();
    }
    scene.submit("q", ranked("w", 4, 0, 10));
    assert_eq!(victims_of(&scene.run()), ["v2", "v3"]);
    scene.edit_queue("q", |q| q.resource_groups = cpu_group(&[("f", quota(5))]));
    scene.stop_job("v3");
    assert_eq!(scene.run(), NOTHING, "v1 would have to leave, too, but v2 is still there");
    scene.stop_job("v2");
    assert_eq!(scene.run(), ["v1 leaves for w: InCohortReclamation"]);
    scene.stop_job("v1");
    assert_eq!(scene.run(), ["w on f"]);
}

// ---- What the reference does ----------------------------------------------------------------------------

/// The same as above under the rules of the reference: the freed room is anybody's.
#[test]
fn without_the_hold_the_freed_room_may_go_to_another() {
    let queues =
        || vec![queue("q", 4, reclaims_any()), queue("other", 0, never()), queue("third", 0, never())];
    let mut taken = Vec::new();
    for rules in [Rules::reference(), Rules::gangway()] {
        let mut scene = Scene::with_rules(rules, queues());
        for name in ["v1", "v2"] {
            scene.submit_job("other", ranked(name, 2, 0, 0));
        }
        scene.run();
        scene.submit("q", ranked("w", 4, 0, 10));
        scene.run();
        scene.submit("third", ranked("thief", 2, 99, 0));
        scene.stop_job("v1");
        scene.step();
        scene.step();
        taken.push(scene.runs("thief"));
    }
    assert_eq!(taken, [true, false]);
}

#[test]
fn the_decision_and_the_object_tell_for_whom() {
    let mut scene = won(reclaims_any());
    let victim: &Workload = scene.store.workload("v1");
    assert_eq!(victim.state.preemptor(), Some(&"w".into()));
    assert!(scene.is_leaving("v1"));
    scene.stop_job("v1");
    scene.stop_job("v2");
    scene.run();
    let (reason, _) = scene.waits_for("v1");
    assert_eq!(reason, PendingReason::WaitingForQuota, "it is queued again");
}
