//! Which nodes do hard spread constraints rule out? They look at all nodes, so the tables are of clusters.

use gangway_model::constraints::{SpreadConstraint, TaintEffect};
use gangway_model::selector::LabelSelector;
use gangway_placement::{NodeRecord, PodRecord};

use super::{HOSTNAME, cordoned, fitting, in_zone, over, selecting, spread, tainted, verdict, with_label};
use crate::world::{bound, labelled, node, pod};

/// Two zones of two and one node.
fn zones() -> Vec<NodeRecord> {
    vec![in_zone(node("a1", 1000), "a"), in_zone(node("a2", 1000), "a"), in_zone(node("b1", 1000), "b")]
}

fn app(name: &str, app: &str, on: &str) -> PodRecord {
    bound(&labelled(pod(name, 0), &[("app", app), ("tier", "web")]), on)
}

fn asks(constraints: &[SpreadConstraint]) -> PodRecord {
    spread(labelled(pod("p", 0), &[("app", "x"), ("tier", "db")]), constraints)
}

fn changed(mut constraint: SpreadConstraint, change: impl FnOnce(&mut SpreadConstraint)) -> SpreadConstraint {
    change(&mut constraint);
    constraint
}

#[test]
fn domains_are_counted() {
    let one = || vec![app("q", "x", "a1")];
    let two = || vec![app("q", "x", "a1"), app("r", "x", "a2")];
    let in_other_namespace =
        || vec![PodRecord { name: gangway_model::ObjectName::new("other", "q"), ..app("q", "x", "a1") }];
    let leaving = || vec![PodRecord { deleting: true, ..app("q", "x", "a1") }];
    let zone = || over("zone", "x");
    type Row<'a> = (&'a str, Vec<PodRecord>, Vec<SpreadConstraint>, &'a [&'a str]);
    let table: Vec<Row<'_>> = vec![
        ("nobody there", vec![], vec![zone()], &["a1", "a2", "b1"]),
        ("one ahead", one(), vec![zone()], &["b1"]),
        ("one ahead is allowed", one(), vec![changed(zone(), |c| c.max_skew = 2)], &["a1", "a2", "b1"]),
        ("two ahead", two(), vec![changed(zone(), |c| c.max_skew = 2)], &["b1"]),
        ("by node", one(), vec![over(HOSTNAME, "x")], &["a2", "b1"]),
        ("both", one(), vec![over(HOSTNAME, "x"), zone()], &["b1"]),
        ("other pods", vec![app("q", "y", "a1")], vec![zone()], &["a1", "a2", "b1"]),
        ("another namespace", in_other_namespace(), vec![zone()], &["a1", "a2", "b1"]),
        ("who leaves does not count", leaving(), vec![zone()], &["a1", "a2", "b1"]),
        ("nodes count all the same", one(), vec![over("zone", "y")], &["a1", "a2", "b1"]),
        (
            "another tier",
            one(),
            vec![changed(zone(), |c| c.match_label_keys = vec!["tier".into()])],
            &["a1", "a2", "b1"],
        ),
        (
            "a key that the pod lacks",
            one(),
            vec![changed(zone(), |c| c.match_label_keys = vec!["rack".into()])],
            &["b1"],
        ),
        ("too few domains", one(), vec![changed(zone(), |c| c.min_domains = Some(3))], &["b1"]),
        ("enough domains", one(), vec![changed(zone(), |c| c.min_domains = Some(2))], &["b1"]),
        ("no such label", vec![], vec![over("rack", "x")], &[]),
        (
            "an empty selector counts nobody",
            one(),
            vec![changed(zone(), |c| c.selector = LabelSelector::default())],
            &["a1", "a2", "b1"],
        ),
    ];
    for (name, others, constraints, expected) in table {
        assert_eq!(fitting(&zones(), &others, &asks(&constraints)), expected, "{name}");
    }
}

#[test]
fn with_too_few_domains_the_emptiest_counts_as_empty() {
    let everywhere = [app("q", "x", "a1"), app("r", "x", "b1")];
    let demand = |count| asks(&[changed(over("zone", "x"), |c| c.min_domains = Some(count))]);
    assert_eq!(fitting(&zones(), &everywhere, &demand(2)), ["a1", "a2", "b1"]);
    assert!(fitting(&zones(), &everywhere, &demand(3)).is_empty());
}

#[test]
fn nodes_that_do_not_count() {
    let mut nodes = zones();
    nodes[2] = with_label(tainted(nodes[2].clone(), "spot", TaintEffect::NoSchedule), "disk", "tape");
    nodes[0] = with_label(nodes[0].clone(), "disk", "ssd");
    nodes[1] = with_label(nodes[1].clone(), "disk", "ssd");
    let one = [app("q", "x", "a1")];
    let ssd = |constraint| selecting(asks(&[constraint]), "disk", "ssd");
    let zone = || over("zone", "x");
    assert_eq!(fitting(&nodes, &one, &ssd(zone())), ["a1", "a2"], "the other zone is not for it");
    let all = changed(zone(), |c| c.node_affinity_honored = false);
    assert!(fitting(&nodes, &one, &ssd(all)).is_empty(), "the other zone counts and is empty");
    assert!(fitting(&nodes, &one, &asks(&[zone()])).is_empty(), "taints are not looked at");
    let tolerated = changed(zone(), |c| c.node_taints_honored = true);
    assert_eq!(fitting(&nodes, &one, &asks(&[tolerated])), ["a1", "a2"], "the tainted zone does not count");
    nodes[2] = cordoned(zones()[2].clone());
    assert!(fitting(&nodes, &one, &asks(&[zone()])).is_empty(), "a cordoned node counts");
}

#[test]
fn a_node_without_the_label_says_so() {
    let told = verdict(node("n", 1000), vec![], asks(&[over("zone", "x")]));
    assert_eq!(told, "node(s) didn't match pod topology spread constraints (missing required label)");
}
