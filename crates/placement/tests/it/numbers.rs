//! What is counted, and under which names.

use std::collections::BTreeMap;

use gangway_model::constraints::SpreadConstraint;
use gangway_model::selector::{LabelSelector, Requirement};
use gangway_placement::{Event, NodeRecord, PodRecord, Scheduler};

use crate::world::{at, bound, demanding, labelled, node, pod, run, synced};

fn evaluations(scheduler: &Scheduler) -> BTreeMap<String, u64> {
    let name = |plugin: &dyn std::fmt::Display, point| format!("{plugin} {point}");
    let all = scheduler.evaluations().inspect(|evaluated| assert_eq!(evaluated.profile, "gangway"));
    all.map(|evaluated| (name(&evaluated.plugin, evaluated.point.as_str()), evaluated.attempts)).collect()
}

fn counted<const N: usize>(expected: [(&str, u64); N]) -> BTreeMap<String, u64> {
    expected.map(|(name, attempts)| (name.to_owned(), attempts)).into()
}

const FILTERS: [(&str, u64); 6] = [
    ("NodeName Filter", 1),
    ("NodeUnschedulable Filter", 1),
    ("TaintToleration Filter", 1),
    ("NodeAffinity Filter", 1),
    ("NodePorts Filter", 1),
    ("NodeResourcesFit Filter", 1),
];

#[test]
fn an_attempt_counts_once_for_each_plugin_that_is_asked() {
    let mut scheduler = synced(vec![node("a", 1000), node("b", 1000)], vec![pod("p", 100)]);
    assert!(evaluations(&scheduler).is_empty());
    run(&mut scheduler, at(0));
    let mut expected = counted(FILTERS);
    expected.extend(counted([
        ("TaintToleration Score", 1),
        ("NodeResourcesFit Score", 1),
        ("NodeResourcesBalancedAllocation Score", 1),
        ("DefaultBinder Bind", 1),
    ]));
    assert_eq!(evaluations(&scheduler), expected, "both nodes are one question");
}

#[test]
fn what_is_known_from_an_equal_pod_is_not_asked_again() {
    let too_large = || vec![pod("p", 9000), pod("q", 9000), pod("r", 9000)];
    let mut scheduler = synced(vec![node("a", 1000)], too_large());
    let done = run(&mut scheduler, at(0));
    assert_eq!(done.reports.len(), 3);
    let mut expected = counted(FILTERS);
    expected.extend(counted([("DefaultPreemption PostFilter", 1)]));
    assert_eq!(evaluations(&scheduler), expected, "one of three asks");
    assert_eq!(scheduler.work().attempts, 3);
}

#[test]
fn a_plugin_that_compares_nodes_is_asked_for_pods_that_it_concerns() {
    let spread = |name: &str| {
        let constraint = SpreadConstraint {
            max_skew: 1,
            topology_key: "zone".to_owned(),
            is_hard: true,
            selector: LabelSelector { requirements: vec![Requirement::equals("app", "x")] },
            match_label_keys: Vec::new(),
            min_domains: None,
            node_affinity_honored: true,
            node_taints_honored: false,
        };
        let pod = labelled(pod(name, 100), &[("app", "x")]);
        demanding(pod, |demands| demands.spread = vec![constraint])
    };
    let in_zone =
        |name: &str| NodeRecord { labels: [("zone".to_owned(), name.to_owned())].into(), ..node(name, 1000) };
    let mut scheduler = synced(vec![in_zone("a"), in_zone("b")], vec![spread("p"), pod("plain", 100)]);
    run(&mut scheduler, at(0));
    let evaluations = evaluations(&scheduler);
    assert_eq!(evaluations.get("PodTopologySpread PreFilter"), Some(&1), "{evaluations:?}");
    assert_eq!(evaluations.get("PodTopologySpread Filter"), Some(&1), "{evaluations:?}");
    assert_eq!(evaluations.get("NodeName Filter"), Some(&2), "{evaluations:?}");
    assert_eq!(evaluations.get("DefaultBinder Bind"), Some(&2), "{evaluations:?}");
}

#[test]
fn news_has_the_name_of_the_event_that_it_is() {
    let finished = |pod: PodRecord| PodRecord { finished: true, ..pod };
    let foreign = || PodRecord { scheduler_name: "other".into(), ..pod("foreign", 100) };
    let (waits, sits) = (|| pod("waits", 9000), || bound(&pod("sits", 100), "a"));
    let scheduler = synced(vec![node("a", 1000)], vec![waits(), sits()]);
    let applied = Event::PodApplied;
    let table = [
        (Event::NodeApplied(node("a", 2000)), Some("NodeUpdate")),
        (Event::NodeApplied(node("b", 2000)), Some("NodeAdd")),
        (Event::NodeDeleted("a".into()), Some("NodeDelete")),
        (applied(pod("new", 100)), Some("UnscheduledPodAdd")),
        (applied(waits()), Some("UnscheduledPodUpdate")),
        (applied(bound(&waits(), "a")), Some("AssignedPodAdd")),
        (applied(bound(&foreign(), "a")), Some("AssignedPodAdd")),
        (applied(sits()), Some("AssignedPodUpdate")),
        (applied(pod("sits", 100)), Some("AssignedPodUpdate")),
        (applied(finished(sits())), Some("AssignedPodDelete")),
        (applied(finished(waits())), Some("UnscheduledPodDelete")),
        (applied(finished(pod("new", 100))), None),
        (applied(foreign()), None),
        (Event::PodDeleted("sits".into()), Some("AssignedPodDelete")),
        (Event::PodDeleted("waits".into()), Some("UnscheduledPodDelete")),
        (Event::PodDeleted("new".into()), None),
        (Event::Synced, None),
    ];
    for (event, expected) in table {
        assert_eq!(scheduler.label_of(&event), expected, "{event:?}");
    }
}
