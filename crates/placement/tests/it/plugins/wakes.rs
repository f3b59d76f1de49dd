//! What wakes a pod that a plugin rejected, and what must not?

use gangway_model::constraints::{Protocol, TaintEffect};
use gangway_model::{ObjectName, Requests};
use gangway_placement::Event::{NodeApplied, NodeDeleted, PodApplied, PodDeleted};
use gangway_placement::framework::PluginId;
use gangway_placement::{Event, NodeRecord, PodRecord, State};

use super::{cordoned, listening, selecting, tainted, tolerating, with_label, woken};
use crate::world::{at, bound, demanding, labelled, node, pod, requests, run, synced};

/// What happens, and who is woken by it.
type Case = (&'static str, Event, &'static [&'static str]);

fn check(nodes: &[NodeRecord], bound: &[PodRecord], waiting: &[PodRecord], table: Vec<Case>) {
    for (name, event, expected) in table {
        assert_eq!(woken(nodes, bound, waiting, event), expected, "{name}");
    }
}

fn asking(pod: PodRecord, amounts: Requests) -> PodRecord {
    demanding(pod, |demands| demands.requests = amounts)
}

fn offering(name: &str, amounts: &[(&str, i64)]) -> NodeRecord {
    NodeRecord { allocatable: requests(amounts), ..node(name, 0) }
}

#[test]
fn scheduling_gates() {
    let gated = |name: &str| PodRecord { gates: ["quota".to_owned()].into(), ..pod(name, 100) };
    let other = bound(&pod("other", 1000), "n");
    let waiting = [gated("p"), gated("q")];
    let two_gates = PodRecord { gates: ["quota".to_owned(), "more".to_owned()].into(), ..pod("p", 100) };
    check(
        &[node("n", 1000)],
        &[other],
        &waiting,
        vec![
            ("its last gate goes", PodApplied(pod("p", 100)), &["p"]),
            ("another gate", PodApplied(two_gates), &[]),
            ("a label", PodApplied(labelled(gated("p"), &[("a", "b")])), &[]),
            ("somebody leaves", PodDeleted("other".into()), &[]),
            ("a node comes", NodeApplied(node("m", 1000)), &[]),
        ],
    );
}

#[test]
fn node_unschedulable() {
    let n = || cordoned(node("n", 1000));
    let p = || pod("p", 100);
    check(
        &[n()],
        &[bound(&pod("other", 100), "n")],
        &[p()],
        vec![
            ("it is cordoned no more", NodeApplied(node("n", 1000)), &["p"]),
            ("a node comes", NodeApplied(node("m", 1000)), &["p"]),
            ("a cordoned node comes", NodeApplied(cordoned(node("m", 1000))), &[]),
            ("a label of the cordoned node", NodeApplied(with_label(n(), "a", "b")), &[]),
            ("more room on the cordoned node", NodeApplied(cordoned(node("n", 2000))), &[]),
            ("somebody leaves", PodDeleted("other".into()), &[]),
            (
                "it tolerates that",
                PodApplied(tolerating(p(), "node.kubernetes.io/unschedulable", None)),
                &["p"],
            ),
            ("it tolerates something else", PodApplied(tolerating(p(), "spot", None)), &[]),
        ],
    );
}

#[test]
fn taint_toleration() {
    use TaintEffect::{NoSchedule, PreferNoSchedule};
    let with = |name: &str, key: &str| tainted(node(name, 1000), key, NoSchedule);
    let (p, q) = (pod("p", 100), tolerating(pod("q", 100), "gpu", None));
    check(
        &[with("n", "spot")],
        &[bound(&pod("other", 100), "n")],
        &[p.clone(), q.clone()],
        vec![
            ("it tolerates that", PodApplied(tolerating(p.clone(), "spot", None)), &["p"]),
            ("another taint instead", NodeApplied(with("n", "gpu")), &["q"]),
            ("one taint more", NodeApplied(tainted(with("n", "spot"), "gpu", NoSchedule)), &[]),
            (
                "only a soft one is left",
                NodeApplied(tainted(node("n", 1000), "spot", PreferNoSchedule)),
                &["p", "q"],
            ),
            ("no taint any more", NodeApplied(node("n", 1000)), &["p", "q"]),
            ("a node comes with a taint that one tolerates", NodeApplied(with("m", "gpu")), &["q"]),
            ("a node comes with a taint that nobody tolerates", NodeApplied(with("m", "spot")), &[]),
            ("a label of the pod", PodApplied(labelled(p, &[("a", "b")])), &[]),
            ("a label of the node", NodeApplied(with_label(with("n", "spot"), "a", "b")), &[]),
            ("more room on the tainted node", NodeApplied(tainted(node("n", 9000), "spot", NoSchedule)), &[]),
            ("somebody leaves", PodDeleted("other".into()), &[]),
        ],
    );
}

#[test]
fn a_taint_stays_while_the_node_grows() {
    let small = tainted(node("n", 100), "spot", TaintEffect::NoSchedule);
    let grown = tainted(node("n", 1000), "spot", TaintEffect::NoSchedule);
    let waiting = [pod("p", 500), tolerating(pod("q", 500), "spot", None)];
    check(&[small], &[], &waiting, vec![("only who tolerates it is helped", NodeApplied(grown), &["q"])]);
}

#[test]
fn node_affinity() {
    let zone = |name: &str, zone: &str| with_label(node(name, 1000), "zone", zone);
    let (b, c) = (selecting(pod("b", 100), "zone", "b"), selecting(pod("c", 100), "zone", "c"));
    check(
        &[zone("n", "a")],
        &[bound(&pod("other", 100), "n")],
        &[b.clone(), c],
        vec![
            ("the label changes", NodeApplied(zone("n", "b")), &["b"]),
            ("another label changes", NodeApplied(with_label(zone("n", "a"), "disk", "ssd")), &[]),
            ("a node comes", NodeApplied(zone("m", "c")), &["c"]),
            ("a node comes that nobody wants", NodeApplied(zone("m", "d")), &[]),
            ("more room", NodeApplied(with_label(node("n", 9000), "zone", "a")), &[]),
            ("a node goes", NodeDeleted("n".into()), &[]),
            ("somebody leaves", PodDeleted("other".into()), &[]),
            ("a label of the pod", PodApplied(labelled(b, &[("a", "b")])), &[]),
        ],
    );
    let full = |more: bool| if more { with_label(zone("n", "b"), "disk", "ssd") } else { zone("n", "b") };
    let waits_for_room = selecting(pod("b", 2000), "zone", "b");
    check(&[full(false)], &[], &[waits_for_room], vec![("it matched before", NodeApplied(full(true)), &[])]);
}

#[test]
fn node_ports() {
    let with = |name: &str, port| listening(pod(name, 0), "0.0.0.0", Protocol::Tcp, port);
    let others = [bound(&with("web", 80), "n"), bound(&with("db", 5432), "n"), bound(&pod("plain", 0), "n")];
    check(
        &[node("n", 1000)],
        &others,
        &[with("p", 80)],
        vec![
            ("who has the port leaves", PodDeleted("web".into()), &["p"]),
            ("who has another port leaves", PodDeleted("db".into()), &[]),
            ("who has none leaves", PodDeleted("plain".into()), &[]),
            ("a node comes", NodeApplied(node("m", 1000)), &["p"]),
            ("a label of the node", NodeApplied(with_label(node("n", 1000), "a", "b")), &[]),
            ("more room", NodeApplied(node("n", 2000)), &[]),
        ],
    );
}

#[test]
fn node_resources_fit() {
    let offers = |cpu, memory, pods| offering("n", &[("cpu", cpu), ("memory", memory), ("pods", pods)]);
    let asks = |name: &str, cpu| asking(pod(name, 0), requests(&[("cpu", cpu)]));
    let other = bound(&asking(pod("other", 0), requests(&[("cpu", 1000), ("memory", 10)])), "n");
    let smaller =
        |cpu, memory| bound(&asking(pod("other", 0), requests(&[("cpu", cpu), ("memory", memory)])), "n");
    let comes = |cpu| NodeApplied(offering("m", &[("cpu", cpu), ("memory", 100), ("pods", 10)]));
    check(
        &[offers(2000, 100, 10)],
        &[other],
        &[asks("four", 4000), asks("five", 5000)],
        vec![
            ("a node of four comes", comes(4000), &["four"]),
            ("a small node comes", comes(3999), &[]),
            ("it grows, but not enough", NodeApplied(offers(4000, 100, 10)), &[]),
            ("it grows enough for one", NodeApplied(offers(5000, 100, 10)), &["four"]),
            ("what nobody asks for grows", NodeApplied(offers(2000, 999, 10)), &[]),
            ("more pods, but no more CPU", NodeApplied(offers(2000, 100, 99)), &[]),
            ("a label of the node", NodeApplied(with_label(offers(2000, 100, 10), "a", "b")), &[]),
            ("it asks for less", PodApplied(asks("four", 1000)), &["four"]),
            ("a label of the pod", PodApplied(labelled(asks("four", 4000), &[("a", "b")])), &[]),
            ("somebody leaves, and it is not enough", PodDeleted("other".into()), &[]),
        ],
    );
    let one = || smaller(1000, 10);
    check(
        &[offers(2000, 100, 10)],
        &[one()],
        &[asks("two", 2000), asks("half", 1500)],
        vec![
            ("somebody leaves", PodDeleted("other".into()), &["two", "half"]),
            ("somebody finishes", PodApplied(PodRecord { finished: true, ..one() }), &["two", "half"]),
            ("somebody asks for less", PodApplied(smaller(500, 10)), &["half"]),
            ("somebody asks for less of something else", PodApplied(smaller(1000, 5)), &[]),
            ("somebody is on its way out", PodApplied(PodRecord { deleting: true, ..one() }), &[]),
        ],
    );
    check(
        &[offers(2000, 100, 1)],
        &[bound(&pod("other", 0), "n")],
        &[asks("p", 100)],
        vec![
            ("the pod limit grows", NodeApplied(offers(2000, 100, 2)), &["p"]),
            ("the pod limit stays", NodeApplied(offers(2000, 200, 1)), &[]),
            ("somebody leaves", PodDeleted("other".into()), &["p"]),
        ],
    );
}

#[test]
fn pods_that_wait_elsewhere_change_nothing() {
    let waits = pod("p", 5000);
    let another = PodRecord { name: ObjectName::new("default", "late"), ..pod("late", 9000) };
    check(&[node("n", 1000)], &[], &[waits], vec![("another one comes", PodApplied(another), &[])]);
}

#[test]
fn by_name_and_by_room() {
    let named = |name: &str, cpu| selecting(pod(name, cpu), "name", "n");
    let n = |cpu| with_label(node("n", cpu), "name", "n");
    let mut scheduler = synced(vec![n(100), node("m", 9000)], vec![named("p", 500)]);
    run(&mut scheduler, at(0));
    let State::Unschedulable { rejectors, .. } = scheduler.explain(&"p".into()).state else {
        panic!("it fits nowhere")
    };
    let both = [PluginId::NodeAffinity, PluginId::NodeResourcesFit];
    assert!(rejectors.iter().eq(both), "{rejectors:?}");
    check(
        &[n(100), node("m", 9000)],
        &[],
        &[named("p", 500)],
        vec![
            ("the node that it wants grows", NodeApplied(n(1000)), &["p"]),
            (
                "the large node is what it wants",
                NodeApplied(with_label(node("m", 9000), "name", "n")),
                &["p"],
            ),
            ("the other node grows", NodeApplied(node("m", 9999)), &[]),
        ],
    );
}
