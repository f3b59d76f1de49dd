//! Which nodes does a plugin like better?

use gangway_model::constraints::{PreferredTerm, TaintEffect};
use gangway_model::selector::Operator;
use gangway_placement::{NodeRecord, PodRecord};

use super::{HOSTNAME, in_zone, liked_by, over, requirement, spread, tainted, term, tolerating, with_label};
use crate::world::{bound, demanding, labelled, node, pod, requests};

/// What is asked, of which nodes, and who is best.
type Case = (&'static str, Vec<NodeRecord>, Vec<PodRecord>, PodRecord, &'static [&'static str]);

fn check(scorer: &str, table: Vec<Case>) {
    for (name, nodes, others, pod, expected) in table {
        assert_eq!(liked_by(scorer, &nodes, &others, &pod), expected, "{scorer}: {name}");
    }
}

#[test]
fn taint_toleration() {
    use TaintEffect::{NoSchedule, PreferNoSchedule};
    let soft = |name: &str, keys: &[&str]| {
        keys.iter().fold(node(name, 1000), |node, key| tainted(node, key, PreferNoSchedule))
    };
    let p = || pod("p", 100);
    let three = || vec![soft("a", &["x", "y"]), soft("b", &["x"]), soft("c", &["x", "y", "z"])];
    let table: Vec<Case> = vec![
        ("fewest soft taints", three(), vec![], p(), &["b"]),
        ("tolerated ones do not count", three(), vec![], tolerating(p(), "y", None), &["a", "b"]),
        ("soft ones tolerated", three(), vec![], tolerating(p(), "y", Some(PreferNoSchedule)), &["a", "b"]),
        ("hard ones tolerated", three(), vec![], tolerating(p(), "y", Some(NoSchedule)), &["b"]),
        ("all tolerated", three(), vec![], tolerating(p(), "", None), &["a", "b", "c"]),
    ];
    check("TaintToleration", table);
}

#[test]
fn node_affinity() {
    let on = |name: &str, disk: &str, zone: &str| {
        with_label(with_label(node(name, 1000), "disk", disk), "zone", zone)
    };
    let three = || vec![on("a", "ssd", "1"), on("b", "hdd", "2"), on("c", "ssd", "2")];
    let likes = |weights: &[(&str, &str, i32)]| {
        let preferred = weights.iter().map(|(key, value, weight)| PreferredTerm {
            weight: *weight,
            term: term(&[requirement(key, Operator::In, &[value])], &[]),
        });
        demanding(pod("p", 100), |demands| demands.preferred = preferred.collect())
    };
    let anything = || {
        let nothing = PreferredTerm { weight: 100, term: term(&[], &[]) };
        demanding(likes(&[("zone", "1", 1)]), |demands| demands.preferred.push(nothing))
    };
    let table: Vec<Case> = vec![
        ("one term", three(), vec![], likes(&[("disk", "hdd", 1)]), &["b"]),
        ("weights add up", three(), vec![], likes(&[("disk", "ssd", 5), ("zone", "2", 5)]), &["c"]),
        ("the heavier term", three(), vec![], likes(&[("disk", "hdd", 9), ("zone", "1", 8)]), &["b"]),
        ("no match", three(), vec![], likes(&[("disk", "tape", 9)]), &["a", "b", "c"]),
        ("an empty term counts nothing", three(), vec![], anything(), &["a"]),
    ];
    check("NodeAffinity", table);
}

#[test]
fn node_resources_fit() {
    let sized = |name: &str, cpu: i64, memory: i64| NodeRecord {
        allocatable: requests(&[("cpu", cpu), ("memory", memory << 30), ("pods", 110)]),
        ..node(name, cpu)
    };
    let asks = |cpu: i64, memory: i64| {
        demanding(pod("p", cpu), |demands| {
            demands.requests = requests(&[("cpu", cpu), ("memory", memory << 30)]);
            demands.scored_memory_bytes = memory << 30;
        })
    };
    let on_a = |cpu: i64| vec![bound(&pod("other", cpu), "a")];
    let table: Vec<Case> = vec![
        ("the larger one", vec![sized("a", 2000, 4), sized("b", 4000, 4)], vec![], asks(1000, 1), &["b"]),
        ("the emptier one", vec![sized("a", 4000, 4), sized("b", 4000, 4)], on_a(500), asks(1000, 1), &["b"]),
        (
            "who asks for nothing counts for something",
            vec![sized("a", 4000, 4), sized("b", 4000, 4)],
            on_a(0),
            asks(1000, 1),
            &["b"],
        ),
        (
            "both count alike",
            vec![sized("a", 4000, 2), sized("b", 2000, 4)],
            vec![],
            asks(1000, 1),
            &["a", "b"],
        ),
    ];
    check("NodeResourcesFit", table);
}

#[test]
fn node_resources_balanced_allocation() {
    let even = |name: &str| NodeRecord {
        allocatable: requests(&[("cpu", 1000), ("memory", 1000), ("pods", 110)]),
        ..node(name, 0)
    };
    let asks = |name: &str, cpu: i64, memory: i64| {
        demanding(pod(name, cpu), |demands| demands.requests = requests(&[("cpu", cpu), ("memory", memory)]))
    };
    let much_cpu_on_a = || vec![bound(&asks("other", 500, 0), "a")];
    let one_of_each = || vec![bound(&asks("other", 500, 0), "a"), bound(&asks("another", 0, 500), "b")];
    let two = || vec![even("a"), even("b")];
    let table: Vec<Case> = vec![
        ("memory where the CPU is gone", two(), much_cpu_on_a(), asks("p", 0, 300), &["a"]),
        ("CPU where the memory is gone", two(), one_of_each(), asks("p", 300, 0), &["b"]),
        ("as much of both", two(), much_cpu_on_a(), asks("p", 250, 250), &["a", "b"]),
        ("best effort has no say", two(), much_cpu_on_a(), asks("p", 0, 0), &["a", "b"]),
    ];
    check("NodeResourcesBalancedAllocation", table);
}

#[test]
fn pod_topology_spread() {
    let four = || {
        vec![
            in_zone(node("a", 1000), "1"),
            in_zone(node("b", 1000), "1"),
            in_zone(node("c", 1000), "2"),
            node("d", 1000),
        ]
    };
    let app = |name: &str, on: &str| bound(&labelled(pod(name, 0), &[("app", "x")]), on);
    let soft = |key: &str, skew: i32| {
        let mut constraint = over(key, "x");
        (constraint.is_hard, constraint.max_skew) = (false, skew);
        constraint
    };
    let asks = |constraints: &[_]| spread(labelled(pod("p", 0), &[("app", "x")]), constraints);
    let leaving = || vec![PodRecord { deleting: true, ..app("q", "c") }];
    let table: Vec<Case> = vec![
        ("the emptiest zone", four(), vec![app("q", "a")], asks(&[soft("zone", 1)]), &["c"]),
        ("the emptiest nodes", four(), vec![app("q", "a")], asks(&[soft(HOSTNAME, 1)]), &["b", "c"]),
        (
            "both",
            four(),
            vec![app("q", "a"), app("r", "c")],
            asks(&[soft(HOSTNAME, 1), soft("zone", 1)]),
            &["b"],
        ),
        ("who leaves does not count", four(), leaving(), asks(&[soft("zone", 1)]), &["a", "b", "c"]),
        ("nobody there", four(), vec![], asks(&[soft("zone", 1)]), &["a", "b", "c"]),
    ];
    check("PodTopologySpread", table);
}
