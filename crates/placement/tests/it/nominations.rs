//! A node that is kept for a pod is kept from others: whom does it help when it is not kept any more?

use gangway_model::Requests;
use gangway_placement::{Decision, Event, NodeRecord, PodRecord, Scheduler, State};

use crate::world::{at, bound, demanding, labelled, node, pod, requests, run, synced};

/// On its way out, for somebody who gets its room.
fn leaving(uid: &str, asked: Requests, on: &str) -> PodRecord {
    PodRecord { deleting: true, preempted: true, ..bound(&asking(uid, asked), on) }
}

fn asking(uid: &str, asked: Requests) -> PodRecord {
    demanding(pod(uid, 0), |demands| demands.requests = asked)
}

/// A pod with priority 5 for which a node is kept.
fn nominated(uid: &str, cpu: i64, on: &str) -> PodRecord {
    PodRecord { priority: 5, nominated_node: Some(on.into()), ..pod(uid, cpu) }
}

fn is_parked(scheduler: &Scheduler, uid: &str) -> bool {
    matches!(scheduler.explain(&uid.into()).state, State::Unschedulable { .. })
}

/// 400 of `n` are free and kept for `kept`: `equal` and `lower` have to wait for that alone, `higher` for something else.
fn waiting() -> Scheduler {
    let others = [("equal", 5, 300), ("lower", 1, 300), ("higher", 9, 500)]
        .map(|(uid, priority, cpu)| PodRecord { priority, never_preempts: uid == "higher", ..pod(uid, cpu) });
    let pods = [nominated("kept", 900, "n"), leaving("leaving", requests(&[("cpu", 600)]), "n")];
    let mut scheduler = synced(vec![node("n", 1000)], pods.into_iter().chain(others).collect());
    let done = run(&mut scheduler, at(0));
    assert!(done.binds.is_empty() && done.preemptions.is_empty(), "{done:?}");
    assert_eq!(scheduler.explain(&"kept".into()).nominated_node, Some("n".into()));
    scheduler
}

#[test]
fn whoever_was_kept_out_is_woken_and_nobody_with_a_higher_priority() {
    let kept = || nominated("kept", 900, "n");
    let table: Vec<(&str, Event, &[&str])> = vec![
        ("it is gone", Event::PodDeleted("kept".into()), &["equal", "lower"]),
        ("it ends", Event::PodApplied(PodRecord { deleting: true, ..kept() }), &["equal", "lower"]),
        (
            "somebody gave its room up",
            Event::PodApplied(PodRecord { nominated_node: None, ..kept() }),
            &["equal", "kept", "lower"],
        ),
        (
            "somebody gave it another node",
            Event::PodApplied(nominated("kept", 900, "m")),
            &["equal", "kept", "lower"],
        ),
        ("it asks for less", Event::PodApplied(nominated("kept", 850, "n")), &["equal", "kept", "lower"]),
        ("it asks for more", Event::PodApplied(nominated("kept", 950, "n")), &[]),
        ("its labels change", Event::PodApplied(labelled(kept(), &[("a", "b")])), &[]),
        ("nothing is new", Event::PodApplied(kept()), &[]),
    ];
    for (name, event, expected) in table {
        let mut scheduler = waiting();
        scheduler.apply(event, at(60));
        let woken: Vec<&str> = ["equal", "higher", "kept", "lower"]
            .into_iter()
            .filter(|uid| !is_parked(&scheduler, uid) && scheduler.explain(&(*uid).into()).pod.is_some())
            .collect();
        assert_eq!(woken, expected, "{name}");
        scheduler.check().unwrap();
    }
}

#[test]
fn what_happens_to_a_nomination_during_an_attempt_is_not_lost() {
    let gated = PodRecord { gates: ["quota".to_owned()].into(), ..nominated("kept", 900, "n") };
    let rock = PodRecord { priority: 100, ..bound(&pod("rock", 600), "n") };
    let waits = PodRecord { priority: 1, ..pod("waits", 300) };
    let victim = bound(&pod("victim", 1000), "m");
    let nodes = vec![node("n", 1000), node("m", 1000)];
    let mut scheduler = synced(nodes, vec![gated.clone(), rock, victim]);
    run(&mut scheduler, at(0));
    scheduler.apply(Event::PodApplied(waits), at(1));
    let done = run(&mut scheduler, at(1));
    // What it could do about that is to remove the other one's victim.
    let removed = done.preemptions.iter().map(|(_, victims, _)| victims.len()).sum::<usize>();
    assert_eq!((done.binds.len(), removed), (0, 1), "{done:?}");
    // Now the other one looks elsewhere itself: its old room is free while the first is still at it.
    scheduler.apply(Event::PodApplied(PodRecord { gates: Box::default(), ..gated }), at(2));
    let done = run(&mut scheduler, at(2));
    assert_eq!(done.preemptions.len(), 1, "{done:?}");
    assert_eq!(scheduler.explain(&"kept".into()).nominated_node, Some("m".into()));
    assert_eq!(scheduler.explain(&"waits".into()).nominated_node, None, "a higher one took its place");
    scheduler.check().unwrap();
}

#[test]
fn whoever_makes_room_elsewhere_leaves_the_room_that_was_kept() {
    let gated = PodRecord { gates: ["quota".to_owned()].into(), ..nominated("kept", 900, "n") };
    let rock = PodRecord { priority: 100, ..bound(&pod("rock", 600), "n") };
    let waits = PodRecord { priority: 1, never_preempts: true, ..pod("waits", 300) };
    let nodes = vec![node("n", 1000), node("m", 1000)];
    let victim = bound(&pod("victim", 1000), "m");
    let mut scheduler = synced(nodes, vec![gated.clone(), rock, waits, victim]);
    assert_eq!(run(&mut scheduler, at(0)).binds, [], "a gated pod keeps others out too");
    assert!(is_parked(&scheduler, "waits"));
    scheduler.apply(Event::PodApplied(PodRecord { gates: Box::default(), ..gated }), at(60));
    let done = run(&mut scheduler, at(60));
    assert_eq!(done.preemptions.len(), 1, "{done:?}");
    assert_eq!(done.bound_pods(), ["waits"]);
}

#[test]
fn whoever_takes_a_lower_ones_room_leaves_what_it_does_not_need() {
    let amounts = |cpu, memory| requests(&[("cpu", cpu), ("memory", memory)]);
    let big = NodeRecord {
        allocatable: requests(&[("cpu", 1000), ("memory", 1000), ("pods", 110)]),
        ..node("n", 0)
    };
    let kept = PodRecord {
        never_preempts: true,
        ..demanding(nominated("kept", 0, "n"), |demands| demands.requests = amounts(0, 900))
    };
    let waits = PodRecord { priority: 1, never_preempts: true, ..asking("waits", amounts(0, 300)) };
    let low = bound(&asking("low", amounts(800, 0)), "n");
    let going = leaving("going", amounts(0, 600), "n");
    let mut scheduler = synced(vec![big], vec![kept, waits, low, going]);
    assert_eq!(run(&mut scheduler, at(0)).binds, []);
    assert!(is_parked(&scheduler, "waits"));
    let high = PodRecord { priority: 10, ..asking("high", amounts(500, 0)) };
    scheduler.apply(Event::PodApplied(high), at(60));
    let done = run(&mut scheduler, at(60));
    let [(preemptor, victims, _)] = &done.preemptions[..] else { panic!("{done:?}") };
    assert_eq!((preemptor.as_str(), &victims[..]), ("high", &["low".to_owned()][..]));
    assert_eq!(done.bound_pods(), ["waits"]);
    assert_eq!(scheduler.explain(&"kept".into()).nominated_node, None);
}

#[test]
fn a_pod_that_lost_its_room_is_told_so_though_all_else_is_as_it_was() {
    let rock = PodRecord { priority: 100, ..bound(&pod("rock", 600), "n") };
    let waits = PodRecord { priority: 5, ..pod("waits", 900) };
    let mut scheduler = synced(vec![node("n", 1000)], vec![rock, waits.clone()]);
    assert_eq!(run(&mut scheduler, at(0)).reports.len(), 1);
    // Somebody else says that room is made for it there.
    scheduler.apply(Event::PodApplied(PodRecord { nominated_node: Some("n".into()), ..waits }), at(1));
    scheduler.apply(Event::NodeApplied(node("n", 1100)), at(60));
    scheduler.apply(Event::NodeApplied(node("n", 1000)), at(60));
    let decisions = scheduler.next(at(60), 1);
    let [Decision::Report { nominated_node: None, .. }] = &decisions[..] else { panic!("{decisions:?}") };
}
