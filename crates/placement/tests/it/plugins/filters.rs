//! Which nodes does a plugin rule out, and in which words?

use gangway_model::constraints::{Protocol, TaintEffect};
use gangway_model::selector::Operator;
use gangway_placement::{NodeRecord, PodRecord};

use super::{cordoned, listening, requirement, selecting, tainted, term, tolerating, verdict, with_label};
use crate::world::{bound, demanding, node, pod, requests};

const CORDON: &str = "node.kubernetes.io/unschedulable";
const CORDONED: &str = "node(s) were unschedulable";
const UNTOLERATED: &str = "node(s) had untolerated taint(s)";
const NO_MATCH: &str = "node(s) didn't match Pod's node affinity/selector";
const NO_PORT: &str = "node(s) didn't have free ports for the requested pod ports";

fn check(table: Vec<(&str, NodeRecord, PodRecord, &str)>) {
    for (name, node, pod, expected) in table {
        assert_eq!(verdict(node, Vec::new(), pod), expected, "{name}");
    }
}

#[test]
fn node_unschedulable() {
    use TaintEffect::{NoExecute, NoSchedule};
    let (n, p) = (|| node("n", 1000), || pod("p", 100));
    check(vec![
        ("not cordoned", n(), p(), "fits"),
        ("cordoned", cordoned(n()), p(), CORDONED),
        ("tolerated", cordoned(n()), tolerating(p(), CORDON, None), "fits"),
        ("with its effect", cordoned(n()), tolerating(p(), CORDON, Some(NoSchedule)), "fits"),
        ("with another effect", cordoned(n()), tolerating(p(), CORDON, Some(NoExecute)), CORDONED),
        ("everything tolerated", cordoned(n()), tolerating(p(), "", None), "fits"),
        ("something else tolerated", cordoned(n()), tolerating(p(), "spot", None), CORDONED),
    ]);
}

#[test]
fn taint_toleration() {
    use TaintEffect::{NoExecute, NoSchedule, PreferNoSchedule};
    let (n, p) = (|| node("n", 1000), || pod("p", 100));
    let spot = |effect| tainted(n(), "spot", effect);
    let both = || tainted(spot(NoSchedule), "gpu", NoExecute);
    check(vec![
        ("no schedule", spot(NoSchedule), p(), UNTOLERATED),
        ("no execute", spot(NoExecute), p(), UNTOLERATED),
        ("a soft one rules nothing out", spot(PreferNoSchedule), p(), "fits"),
        ("tolerated", spot(NoSchedule), tolerating(p(), "spot", None), "fits"),
        ("with its effect", spot(NoExecute), tolerating(p(), "spot", Some(NoExecute)), "fits"),
        ("with another effect", spot(NoExecute), tolerating(p(), "spot", Some(NoSchedule)), UNTOLERATED),
        ("one of two", both(), tolerating(p(), "spot", None), UNTOLERATED),
        ("each of two", both(), tolerating(tolerating(p(), "spot", None), "gpu", None), "fits"),
        ("everything", both(), tolerating(p(), "", None), "fits"),
    ]);
    let valued = |value: &str| {
        demanding(tolerating(p(), "spot", None), |demands| {
            demands.constraints.tolerations[0].exists = false;
            demands.constraints.tolerations[0].value = value.to_owned();
        })
    };
    check(vec![
        ("the same value", spot(NoSchedule), valued("v"), "fits"),
        ("another value", spot(NoSchedule), valued("w"), UNTOLERATED),
    ]);
}

#[test]
fn node_affinity() {
    use Operator::{DoesNotExist, Exists, GreaterThan, In, LessThan, NotIn};
    let n = || with_label(with_label(node("n", 1000), "disk", "ssd"), "cores", "8");
    let p = || pod("p", 100);
    let demands = |terms: Vec<_>| demanding(p(), |demands| demands.constraints.affinity = Some(terms));
    let label = |key: &str, operator, values: &[&str]| {
        demands(vec![term(&[requirement(key, operator, values)], &[])])
    };
    let named =
        |operator, name: &str| demands(vec![term(&[], &[requirement("metadata.name", operator, &[name])])]);
    let (ssd, tape) = (requirement("disk", In, &["ssd"]), requirement("disk", In, &["tape"]));
    check(vec![
        ("selected", n(), selecting(p(), "disk", "ssd"), "fits"),
        ("another value", n(), selecting(p(), "disk", "hdd"), NO_MATCH),
        ("no such label", n(), selecting(p(), "zone", "a"), NO_MATCH),
        ("both labels", n(), selecting(selecting(p(), "disk", "ssd"), "zone", "a"), NO_MATCH),
        ("in", n(), label("disk", In, &["hdd", "ssd"]), "fits"),
        ("not in", n(), label("disk", NotIn, &["ssd"]), NO_MATCH),
        ("not in, without the label", n(), label("zone", NotIn, &["a"]), "fits"),
        ("exists", n(), label("disk", Exists, &[]), "fits"),
        ("does not exist", n(), label("disk", DoesNotExist, &[]), NO_MATCH),
        ("greater", n(), label("cores", GreaterThan, &["7"]), "fits"),
        ("not greater", n(), label("cores", GreaterThan, &["8"]), NO_MATCH),
        ("less", n(), label("cores", LessThan, &["9"]), "fits"),
        ("no number", n(), label("disk", LessThan, &["9"]), NO_MATCH),
        ("by name", n(), named(In, "n"), "fits"),
        ("by another name", n(), named(In, "m"), NO_MATCH),
        ("all but one", n(), named(NotIn, "n"), NO_MATCH),
        (
            "one term of two",
            n(),
            demands(vec![term(std::slice::from_ref(&tape), &[]), term(std::slice::from_ref(&ssd), &[])]),
            "fits",
        ),
        ("half a term", n(), demands(vec![term(&[tape, ssd.clone()], &[])]), NO_MATCH),
        ("a term that demands nothing matches nothing", n(), demands(vec![term(&[], &[])]), NO_MATCH),
        ("no term at all", n(), demands(vec![]), NO_MATCH),
        ("selector and affinity", n(), selecting(demands(vec![term(&[ssd], &[])]), "zone", "a"), NO_MATCH),
    ]);
}

#[test]
fn node_ports() {
    use Protocol::{Tcp, Udp};
    let any = "0.0.0.0";
    let table = [
        ("another port", (any, Tcp, 80), (any, Tcp, 81), "fits"),
        ("the same port", (any, Tcp, 80), (any, Tcp, 80), NO_PORT),
        ("another protocol", (any, Tcp, 80), (any, Udp, 80), "fits"),
        ("another address", ("10.0.0.1", Tcp, 80), ("10.0.0.2", Tcp, 80), "fits"),
        ("the same address", ("10.0.0.1", Tcp, 80), ("10.0.0.1", Tcp, 80), NO_PORT),
        ("one of all addresses", (any, Tcp, 80), ("10.0.0.1", Tcp, 80), NO_PORT),
        ("all addresses, one of them taken", ("10.0.0.1", Tcp, 80), (any, Tcp, 80), NO_PORT),
    ];
    for (name, taken, wanted, expected) in table {
        let with_port = |pod, (ip, protocol, port): (&str, _, _)| listening(pod, ip, protocol, port);
        let other = bound(&with_port(pod("other", 0), taken), "n");
        assert_eq!(verdict(node("n", 1000), vec![other], with_port(pod("p", 0), wanted)), expected, "{name}");
    }
}

#[test]
fn node_resources_fit() {
    let asks = |amounts: &[(&str, i64)]| {
        let amounts = requests(amounts);
        demanding(pod("p", 0), move |demands| demands.requests = amounts)
    };
    let offers = |amounts: &[(&str, i64)]| NodeRecord { allocatable: requests(amounts), ..node("n", 0) };
    let small = || offers(&[("cpu", 1000), ("memory", 1000), ("gpu", 1), ("pods", 2)]);
    let other = |cpu| vec![bound(&pod("other", cpu), "n")];
    let table = [
        ("exactly", small(), other(600), asks(&[("cpu", 400)]), "fits"),
        ("one too many", small(), other(600), asks(&[("cpu", 401)]), "Insufficient cpu"),
        ("more than there is", small(), vec![], asks(&[("memory", 1001)]), "Insufficient memory"),
        ("nothing of a full node", small(), other(2000), asks(&[]), "fits"),
        ("a zero of a full node", small(), other(2000), asks(&[("cpu", 0)]), "fits"),
        ("something else of a full node", small(), other(2000), asks(&[("memory", 1)]), "fits"),
        ("what the node has none of", small(), vec![], asks(&[("fpga", 1)]), "Insufficient fpga"),
        ("zero of it", small(), vec![], asks(&[("fpga", 0)]), "fits"),
        (
            "several",
            small(),
            other(600),
            asks(&[("cpu", 401), ("gpu", 2)]),
            "Insufficient cpu, 1 Insufficient gpu",
        ),
        ("no pod more", offers(&[("pods", 1)]), other(0), asks(&[]), "Too many pods"),
    ];
    for (name, node, others, pod, expected) in table {
        assert_eq!(verdict(node, others, pod), expected, "{name}");
    }
}

#[test]
fn pods_that_are_on_their_way_out_hold_their_room_and_finished_ones_do_not() {
    let other = bound(&pod("other", 600), "n");
    let leaving = PodRecord { deleting: true, ..other.clone() };
    let finished = PodRecord { finished: true, ..other };
    assert_eq!(verdict(node("n", 1000), vec![leaving], pod("p", 500)), "Insufficient cpu");
    assert_eq!(verdict(node("n", 1000), vec![finished], pod("p", 500)), "fits");
}
