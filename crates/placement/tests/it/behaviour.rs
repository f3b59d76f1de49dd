//! What the scheduler does, case by case.

use gangway_model::constraints::Constraints;
use gangway_placement::framework::PluginId;
use gangway_placement::{Event, NodeRecord, Outcome, PodRecord, State};

use crate::world::{Done, at, bound, demanding, empty, labelled, land, node, pod, requests, run, synced};

/// What a pod is told that asks for more than the only node has.
const NO_ROOM: &str = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
     1 Preemption is not helpful for scheduling.";

#[test]
fn nothing_is_decided_before_everything_was_seen() {
    let mut scheduler = empty();
    assert!(!scheduler.apply(Event::NodeApplied(node("a", 1000)), at(0)));
    assert!(!scheduler.apply(Event::PodApplied(pod("p", 1000)), at(0)));
    assert_eq!(run(&mut scheduler, at(0)), Done::default());
    assert!(scheduler.apply(Event::Synced, at(0)), "what came before is poppable now");
    assert_eq!(run(&mut scheduler, at(0)).bound_pods(), ["p"]);
}

#[test]
fn order_is_priority_then_age_then_uid() {
    let pods = vec![
        PodRecord { created_at: at(5), ..pod("young", 100) },
        pod("b", 100),
        PodRecord { priority: 9, created_at: at(9), ..pod("vip", 300) },
        pod("a", 100),
    ];
    let mut scheduler = synced(vec![node("n", 10_000)], pods);
    assert_eq!(run(&mut scheduler, at(10)).bound_pods(), ["vip", "a", "b", "young"]);
}

#[test]
fn a_pod_that_fits_nowhere_does_not_hold_up_others() {
    let big = PodRecord { priority: 1, ..pod("big", 5000) };
    let mut scheduler = synced(vec![node("n", 1000)], vec![big, pod("small", 1000)]);
    let done = run(&mut scheduler, at(0));
    assert_eq!(done.bound_pods(), ["small"]);
    assert_eq!(done.reports, [("big".to_owned(), NO_ROOM.to_owned())]);
}

#[test]
fn the_message_counts_nodes_by_cause() {
    let labelled =
        |name: &str| NodeRecord { labels: [("disk".to_owned(), "ssd".to_owned())].into(), ..node(name, 100) };
    let constraints =
        Constraints { node_selector: vec![("disk".into(), "ssd".into())], ..Constraints::default() };
    let wants = demanding(pod("p", 200), |demands| demands.constraints = constraints);
    let cordoned = NodeRecord { unschedulable: true, ..node("d", 9000) };
    let nodes = vec![labelled("a"), labelled("b"), node("c", 9000), cordoned];
    let mut scheduler = synced(nodes, vec![wants]);
    let done = run(&mut scheduler, at(0));
    let told = "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, \
                1 node(s) were unschedulable, 2 Insufficient cpu.";
    assert!(done.reports[0].1.starts_with(told), "{:?}", done.reports[0]);
    let explanation = scheduler.explain(&"p".into());
    assert!(matches!(explanation.state, State::Unschedulable { .. }), "{explanation:?}");
    let by_plugin = explanation.diagnosis.as_ref().map(|diagnosis| diagnosis.by_plugin.clone());
    let ruled_out =
        [(PluginId::NodeUnschedulable, 1), (PluginId::NodeAffinity, 1), (PluginId::NodeResourcesFit, 2)];
    assert_eq!(by_plugin, Some(ruled_out.into()));
    assert!(explanation.shortages.is_empty(), "a single node has enough CPU: {explanation:?}");
}

#[test]
fn without_nodes_a_pod_waits_for_one() {
    let mut scheduler = synced(vec![], vec![pod("p", 100)]);
    assert_eq!(run(&mut scheduler, at(0)).reports[0].1, "no nodes available to schedule pods");
    assert_eq!(scheduler.next_deadline(), Some(at(300)), "no polling");
    assert!(scheduler.apply(Event::NodeApplied(node("n", 100)), at(1)));
    assert_eq!(run(&mut scheduler, at(1)).bound_pods(), ["p"]);
}

#[test]
fn a_reason_is_reported_once_per_change() {
    let mut scheduler = synced(vec![node("n", 100)], vec![pod("p", 500), pod("q", 500)]);
    assert_eq!(run(&mut scheduler, at(0)).reports.len(), 2);
    assert_eq!(run(&mut scheduler, at(1)).reports.len(), 0);
    assert!(!scheduler.apply(Event::NodeApplied(node("n", 100)), at(2)), "a heartbeat is no news");
    assert!(!scheduler.apply(Event::PodApplied(pod("p", 500)), at(2)));
    scheduler.apply(Event::PodApplied(pod("r", 500)), at(3));
    let done = run(&mut scheduler, at(3));
    assert_eq!(done.reports, [("r".to_owned(), NO_ROOM.to_owned())]);
    assert!(!scheduler.apply(Event::NodeApplied(node("m", 100)), at(4)), "it helps nobody");
    scheduler.apply(Event::NodeDeleted("m".into()), at(5));
    scheduler.apply(Event::NodeApplied(node("m", 600)), at(5));
    let done = run(&mut scheduler, at(5));
    assert_eq!(done.bound_pods(), ["p"], "one has room there, so only one is looked at");
    let smaller = demanding(pod("q", 500), |demands| demands.requests = requests(&[("cpu", 200)]));
    scheduler.apply(Event::PodApplied(smaller), at(6));
    let done = run(&mut scheduler, at(6));
    assert_eq!(done.reports.len(), 1);
    assert!(done.reports[0].1.starts_with("0/2 nodes are available: 2 Insufficient cpu."), "{done:?}");
}

#[test]
fn room_that_a_pod_leaves_wakes_those_it_helps() {
    let first = pod("first", 800);
    let mut scheduler = synced(vec![node("n", 1000)], vec![first.clone(), pod("second", 600)]);
    let done = run(&mut scheduler, at(0));
    land(&mut scheduler, &done);
    scheduler.apply(Event::PodApplied(bound(&first, "n")), at(1));
    let finished = PodRecord { finished: true, ..bound(&first, "n") };
    assert!(scheduler.apply(Event::PodApplied(finished), at(2)));
    assert_eq!(run(&mut scheduler, at(2)).bound_pods(), ["second"]);
}

#[test]
fn pods_of_other_schedulers_take_room_but_are_not_placed() {
    let other = PodRecord { scheduler_name: "other".into(), ..pod("other", 900) };
    let mut scheduler =
        synced(vec![node("n", 1000)], vec![other.clone(), bound(&other, "n"), pod("ours", 200)]);
    let waiting = PodRecord { uid: "waiting".into(), ..other };
    assert!(!scheduler.apply(Event::PodApplied(waiting), at(0)));
    assert!(run(&mut scheduler, at(0)).binds.is_empty());
    scheduler.apply(Event::PodDeleted("other".into()), at(1));
    assert_eq!(run(&mut scheduler, at(1)).bound_pods(), ["ours"]);
}

#[test]
fn gates_keep_a_pod_out() {
    let gated = PodRecord { gates: ["quota".to_owned()].into(), ..pod("p", 100) };
    let mut scheduler = synced(vec![node("n", 1000)], vec![gated]);
    assert_eq!(run(&mut scheduler, at(0)), Done::default());
    assert_eq!(scheduler.explain(&"p".into()).state, State::Gated(vec!["quota".into()]));
    assert!(scheduler.apply(Event::PodApplied(pod("p", 100)), at(1)));
    assert_eq!(run(&mut scheduler, at(1)).bound_pods(), ["p"]);
}

#[test]
fn demands_that_cannot_be_judged_are_refused_and_said() {
    let strange = PodRecord { unsupported: ["spec.affinity.podAffinity".to_owned()].into(), ..pod("p", 1) };
    let mut scheduler = synced(vec![node("n", 1000)], vec![strange]);
    let done = run(&mut scheduler, at(0));
    assert!(done.binds.is_empty());
    assert!(done.reports[0].1.contains("spec.affinity.podAffinity"), "{done:?}");
    assert_eq!(run(&mut scheduler, at(1)), Done::default());
}

#[test]
fn a_rejected_binding_backs_off_and_gives_its_room_to_others() {
    let mut scheduler = synced(vec![node("n", 1000)], vec![pod("p", 800)]);
    let mut now = at(0);
    for expected_seconds in [1, 2, 4, 8, 10, 10] {
        let done = run(&mut scheduler, now);
        assert_eq!(done.bound_pods(), ["p"]);
        scheduler.apply(Event::Outcome(done.ids[0], Outcome::Rejected), now);
        assert_eq!(run(&mut scheduler, now).binds, []);
        now = now.plus_seconds(expected_seconds);
        assert_eq!(scheduler.next_deadline(), Some(now));
    }
    scheduler.apply(Event::PodApplied(pod("q", 800)), now.plus_seconds(-1));
    assert_eq!(run(&mut scheduler, now.plus_seconds(-1)).bound_pods(), ["q"]);
}

#[test]
fn an_unknown_outcome_keeps_the_room_until_somebody_knows() {
    let p = pod("p", 800);
    let mut scheduler = synced(vec![node("n", 1000)], vec![p.clone()]);
    let done = run(&mut scheduler, at(0));
    scheduler.apply(Event::Outcome(done.ids[0], Outcome::Unknown), at(1));
    scheduler.apply(Event::PodApplied(pod("q", 800)), at(1));
    assert!(run(&mut scheduler, at(1)).binds.is_empty());
    scheduler.apply(Event::Outcome(done.ids[0], Outcome::Rejected), at(2));
    assert_eq!(run(&mut scheduler, at(2)).bound_pods(), ["q"]);
}

#[test]
fn old_news_does_not_undo_a_binding() {
    let p = pod("p", 800);
    let mut scheduler = synced(vec![node("n", 1000)], vec![p.clone()]);
    let done = run(&mut scheduler, at(0));
    let relabelled = PodRecord { priority: 1, ..p.clone() };
    scheduler.apply(Event::PodApplied(relabelled.clone()), at(0));
    land(&mut scheduler, &done);
    scheduler.apply(Event::PodApplied(relabelled), at(0));
    assert_eq!(run(&mut scheduler, at(0)), Done::default());
    scheduler.apply(Event::PodApplied(bound(&p, "n")), at(1));
    scheduler.apply(Event::PodApplied(p), at(1));
    assert_eq!(scheduler.explain(&"p".into()).state, State::Bound("n".into()));
    scheduler.apply(Event::Outcome(done.ids[0], Outcome::Rejected), at(2));
    assert_eq!(scheduler.explain(&"p".into()).state, State::Bound("n".into()));
    scheduler.check().unwrap();
}

#[test]
fn a_pod_bound_elsewhere_by_somebody_else_moves_its_room() {
    let p = pod("p", 800);
    let mut scheduler = synced(vec![node("n", 1000)], vec![p.clone()]);
    run(&mut scheduler, at(0));
    scheduler.apply(Event::PodApplied(bound(&p, "elsewhere")), at(1));
    scheduler.apply(Event::PodApplied(pod("q", 800)), at(1));
    assert_eq!(run(&mut scheduler, at(1)).bound_pods(), ["q"]);
}

#[test]
fn a_pod_that_is_deleted_while_it_is_bound_frees_its_room_at_once() {
    let p = pod("p", 800);
    let mut scheduler = synced(vec![node("n", 1000)], vec![p.clone(), pod("q", 800)]);
    run(&mut scheduler, at(0));
    scheduler.apply(Event::PodApplied(PodRecord { deleting: true, ..p }), at(1));
    assert_eq!(run(&mut scheduler, at(1)).bound_pods(), ["q"]);
}

#[test]
fn a_node_that_comes_back_still_has_its_pods() {
    let p = bound(&pod("p", 800), "n");
    let mut scheduler = synced(vec![node("n", 1000)], vec![p, pod("q", 800)]);
    run(&mut scheduler, at(0));
    scheduler.apply(Event::NodeDeleted("n".into()), at(1));
    run(&mut scheduler, at(1));
    scheduler.apply(Event::NodeApplied(node("n", 1000)), at(2));
    assert!(run(&mut scheduler, at(2)).binds.is_empty());
}

#[test]
fn explain_says_how_much_is_missing() {
    let wants = demanding(pod("p", 0), |demands| {
        demands.requests = requests(&[("cpu", 3000), ("nvidia.com/gpu", 2)]);
    });
    let scheduler = synced(vec![node("a", 1000), node("b", 2000)], vec![wants]);
    let shown: Vec<String> =
        scheduler.explain(&"p".into()).shortages.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "cpu: 3 requested, at most 2 free on a node",
            "nvidia.com/gpu: 2 requested, at most 0 free on a node"
        ]
    );
}

#[test]
fn a_change_of_a_pod_does_not_bring_an_older_nomination_back() {
    let mut high = pod("high", 1000);
    (high.priority, high.nominated_node) = (10, Some("gone".into()));
    let low = bound(&pod("low", 1000), "a");
    let mut scheduler = synced(vec![node("a", 1000)], vec![low, high.clone()]);
    let done = run(&mut scheduler, at(0));
    assert_eq!(done.preemptions.len(), 1, "{done:?}");
    // The new nomination is on its way; meanwhile somebody changes a label.
    let changed = labelled(high.clone(), &[("a", "b")]);
    scheduler.apply(Event::PodApplied(changed), at(1));
    assert_eq!(scheduler.explain(&high.uid).nominated_node, Some("a".into()));
}

#[test]
fn whose_room_is_taken_by_a_higher_one_looks_elsewhere_at_once() {
    let on = |uid: &str, node: &str| bound(&pod(uid, 1000), node);
    let mid = PodRecord { priority: 5, ..pod("mid", 1000) };
    let mut a = node("a", 1000);
    a.labels.insert("disk".into(), "ssd".into());
    let mut scheduler = synced(vec![a], vec![on("first", "a"), mid]);
    let done = run(&mut scheduler, at(0));
    let [(_, victims, id)] = &done.preemptions[..] else { panic!("{done:?}") };
    assert_eq!(victims[..], ["first"]);
    let leaving = PodRecord { deleting: true, preempted: true, ..on("first", "a") };
    scheduler.apply(Event::PodApplied(leaving), at(1));
    scheduler.apply(Event::Outcome(*id, Outcome::Landed), at(1));
    // Another node comes whose pod could make room too; the one that leaves takes its time.
    scheduler.apply(Event::PodApplied(on("second", "b")), at(2));
    scheduler.apply(Event::NodeApplied(node("b", 1000)), at(2));
    assert_eq!(run(&mut scheduler, at(2)).preemptions, [], "it has room on a");
    let only_a = demanding(pod("high", 1000), |demands| {
        demands.constraints =
            Constraints { node_selector: vec![("disk".into(), "ssd".into())], ..Constraints::default() };
    });
    scheduler.apply(Event::PodApplied(PodRecord { priority: 10, ..only_a }), at(60));
    let done = run(&mut scheduler, at(60));
    let who: Vec<(&str, &[String])> =
        done.preemptions.iter().map(|(preemptor, victims, _)| (preemptor.as_str(), &victims[..])).collect();
    assert_eq!(who, [("high", &["first".to_owned()][..]), ("mid", &["second".to_owned()][..])]);
    scheduler.check().unwrap();
}

#[test]
fn room_that_was_made_wakes_the_one_it_was_made_for_though_an_equal_one_is_first() {
    let low = bound(&pod("low", 400), "n");
    let high = |uid: &str| PodRecord { priority: 2, ..pod(uid, 400) };
    let mut scheduler = synced(vec![node("n", 500)], vec![low.clone(), high("a"), high("b")]);
    let done = run(&mut scheduler, at(0));
    let [(preemptor, victims, id)] = &done.preemptions[..] else { panic!("{done:?}") };
    assert_eq!((preemptor.as_str(), &victims[..]), ("a", &["low".to_owned()][..]));
    let leaving = PodRecord { deleting: true, preempted: true, ..low };
    scheduler.apply(Event::PodApplied(leaving), at(1));
    scheduler.apply(Event::Outcome(*id, Outcome::Landed), at(1));
    assert_eq!(run(&mut scheduler, at(1)).binds, [], "b waits since before that");
    scheduler.apply(Event::PodDeleted("low".into()), at(20));
    assert_eq!(run(&mut scheduler, at(20)).bound_pods(), ["a"]);
}
