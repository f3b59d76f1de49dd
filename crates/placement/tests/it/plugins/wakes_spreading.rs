//! What wakes a pod that its spread constraints keep from every node, and what must not?

use gangway_model::ObjectName;
use gangway_model::constraints::{SpreadConstraint, TaintEffect};
use gangway_placement::Event::{NodeApplied, NodeDeleted, PodApplied, PodDeleted};
use gangway_placement::{Event, NodeRecord, PodRecord};

use super::{in_zone, over, spread, tainted, tolerating, with_label, woken};
use crate::world::{bound, labelled, node, pod};

fn of(name: &str, app: &str, on: &str) -> PodRecord {
    bound(&labelled(pod(name, 0), &[("app", app)]), on)
}

fn asks(name: &str, app: &str, constraint: SpreadConstraint) -> PodRecord {
    spread(labelled(pod(name, 0), &[("app", app)]), &[constraint])
}

/// Two zones where three are demanded: every zone counts as ahead of one that is not there.
fn nodes() -> Vec<NodeRecord> {
    vec![in_zone(node("na", 1000), "a"), in_zone(node("nb", 1000), "b")]
}

fn others() -> Vec<PodRecord> {
    let on = |app: &str, node: &str| of(&format!("{app}-{node}"), app, node);
    vec![on("x", "na"), on("x", "nb"), on("y", "na"), on("y", "nb"), on("z", "na")]
}

fn over_three_zones(app: &str) -> SpreadConstraint {
    SpreadConstraint { min_domains: Some(3), ..over("zone", app) }
}

fn waiting() -> Vec<PodRecord> {
    vec![asks("x", "x", over_three_zones("x")), asks("y", "y", over_three_zones("y"))]
}

fn check(table: Vec<(&str, Event, &[&str])>) {
    for (name, event, expected) in table {
        assert_eq!(woken(&nodes(), &others(), &waiting(), event), expected, "{name}");
    }
}

#[test]
fn pods_that_come_go_and_change() {
    let elsewhere = |pod: PodRecord| PodRecord { name: ObjectName::new("other", "new"), ..pod };
    let z = || of("z-na", "z", "na");
    let leaving = PodRecord { deleting: true, ..of("x-na", "x", "na") };
    check(vec![
        ("one that counts comes", PodApplied(of("new", "x", "nb")), &["x"]),
        ("one that counts for nobody comes", PodApplied(of("new", "z", "nb")), &[]),
        ("one of another namespace comes", PodApplied(elsewhere(of("new", "x", "nb"))), &[]),
        ("one that counts goes", PodDeleted("x-na".into()), &["x"]),
        ("one that counts for nobody goes", PodDeleted("z-na".into()), &[]),
        ("it counts for another", PodApplied(of("x-na", "y", "na")), &["x", "y"]),
        ("it counts for nobody", PodApplied(of("x-na", "z", "na")), &["x"]),
        ("one begins to count", PodApplied(of("z-na", "y", "na")), &["y"]),
        ("a label that nobody looks at", PodApplied(labelled(z(), &[("app", "z"), ("a", "b")])), &[]),
        ("one that counts is on its way out", PodApplied(leaving), &["x"]),
    ]);
}

#[test]
fn nodes_that_come_go_and_change() {
    let na = |cpu| in_zone(node("na", cpu), "a");
    check(vec![
        ("a node comes", NodeApplied(in_zone(node("nc", 1000), "c")), &["x", "y"]),
        ("a node without the label comes", NodeApplied(node("nc", 1000)), &[]),
        ("a node goes", NodeDeleted("nb".into()), &["x", "y"]),
        ("its zone changes", NodeApplied(in_zone(node("nb", 1000), "c")), &["x", "y"]),
        ("its zone goes", NodeApplied(node("nb", 1000)), &["x", "y"]),
        ("another label", NodeApplied(with_label(na(1000), "disk", "ssd")), &[]),
        ("more room", NodeApplied(na(9000)), &[]),
        ("a taint", NodeApplied(tainted(na(1000), "spot", TaintEffect::NoSchedule)), &["x", "y"]),
    ]);
}

#[test]
fn a_node_that_still_lacks_the_label() {
    let waiting = [asks("x", "x", over("rack", "x"))];
    let lacking = || node("n", 1000);
    let table: Vec<(&str, Event, &[&str])> = vec![
        ("it gets the label", NodeApplied(with_label(lacking(), "rack", "1")), &["x"]),
        ("it gets another label", NodeApplied(with_label(lacking(), "disk", "ssd")), &[]),
        ("a taint", NodeApplied(tainted(lacking(), "spot", TaintEffect::NoSchedule)), &[]),
        ("a node with the label comes", NodeApplied(with_label(node("m", 1000), "rack", "1")), &["x"]),
    ];
    for (name, event, expected) in table {
        assert_eq!(woken(&[lacking()], &[], &waiting, event), expected, "{name}");
    }
}

#[test]
fn the_pod_itself_changes() {
    let x = || asks("x", "x", over_three_zones("x"));
    let honoring = || asks("x", "x", SpreadConstraint { node_taints_honored: true, ..over_three_zones("x") });
    check(vec![
        ("its labels", PodApplied(labelled(x(), &[("app", "z")])), &["x"]),
        ("its tolerations, where taints do not matter", PodApplied(tolerating(x(), "spot", None)), &[]),
    ]);
    let woken = woken(&nodes(), &others(), &[honoring()], PodApplied(tolerating(honoring(), "spot", None)));
    assert_eq!(woken, ["x"], "its tolerations, where taints matter");
}
