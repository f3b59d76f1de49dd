//! Which nodes can take a pod of this shape? Each filter objects to nodes; no objection means fit.
//!
//! Filters take a slice of nodes, so what depends on the shape alone is worked out once per call. They run
//! in the order of [`FILTERS`], and a node that has an objection is not judged again: the first
//! objection is the one that is reported.

use gangway_model::constraints::{Taint, TaintEffect, untolerated};

use crate::nodes::Node;
use crate::shapes::{Column, Shape};

/// Why a node cannot take a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Objection {
    Cordoned,
    Taint,
    NodeSelector,
    NodeAffinity,
    PodLimit,
    /// See [`shortages`] for the resources.
    Resources,
}

type Filter = fn(&Shape, &[&Node], &mut [Option<Objection>]);

/// The order of the reference scheduler, which shows in what is reported.
const FILTERS: [Filter; 6] = [cordoned, taints, node_selector, node_affinity, pod_limit, resources];

/// One verdict per node: `None` where a pod of this shape fits.
pub(crate) fn judge(shape: &Shape, nodes: &[&Node]) -> Vec<Option<Objection>> {
    let mut verdicts = vec![None; nodes.len()];
    for filter in FILTERS {
        filter(shape, nodes, &mut verdicts);
    }
    verdicts
}

/// Whether a pod of this shape fits on this node.
pub(crate) fn fits(shape: &Shape, node: &Node) -> bool {
    judge(shape, &[node]) == [None]
}

/// The resources of which the node has less than the shape needs.
pub(crate) fn shortages(shape: &Shape, node: &Node) -> impl Iterator<Item = (Column, i64)> {
    shape.needs.iter().copied().filter(|(column, amount)| i128::from(*amount) > node.free(*column))
}

fn object(
    nodes: &[&Node],
    verdicts: &mut [Option<Objection>],
    objection: Objection,
    accepts: impl Fn(&Node) -> bool,
) {
    for (node, verdict) in nodes.iter().zip(verdicts) {
        if verdict.is_none() && !accepts(node) {
            *verdict = Some(objection);
        }
    }
}

/// A cordoned node counts as tainted, so that what tolerates that taint (agents of the node) still fits.
fn cordoned(shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
    let taint = [Taint {
        key: "node.kubernetes.io/unschedulable".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    }];
    let tolerated = untolerated(&taint, shape.constraints.tolerations.iter()).is_none();
    object(nodes, verdicts, Objection::Cordoned, |node| tolerated || !node.record.unschedulable);
}

fn taints(shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
    let tolerations = &shape.constraints.tolerations;
    object(nodes, verdicts, Objection::Taint, |node| {
        untolerated(&node.record.taints, tolerations.iter()).is_none()
    });
}

fn node_selector(shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
    let wanted = &shape.constraints.node_selector;
    if wanted.is_empty() {
        return;
    }
    object(nodes, verdicts, Objection::NodeSelector, |node| {
        wanted.iter().all(|(key, value)| node.record.labels.get(key) == Some(value))
    });
}

fn node_affinity(shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
    let Some(terms) = &shape.constraints.affinity else { return };
    object(nodes, verdicts, Objection::NodeAffinity, |node| {
        terms.iter().any(|term| term.matches(node.record.name.as_str(), &node.record.labels))
    });
}

fn pod_limit(_: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
    object(nodes, verdicts, Objection::PodLimit, Node::has_room_for_one_more_pod);
}

fn resources(shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
    if shape.needs.is_empty() {
        return;
    }
    object(nodes, verdicts, Objection::Resources, |node| shortages(shape, node).next().is_none());
}

#[cfg(test)]
mod tests {
    use gangway_model::constraints::{Constraints, NodeSelectorTerm, Toleration};
    use gangway_model::selector::{Operator, Requirement};
    use gangway_model::{Requests, ResourceName};

    use super::*;
    use crate::nodes::Usage;
    use crate::records::NodeRecord;
    use crate::shapes::Columns;

    fn requests(amounts: &[(&str, i64)]) -> Requests {
        amounts.iter().map(|(name, amount)| (ResourceName::from(*name), *amount)).collect()
    }

    fn record() -> NodeRecord {
        NodeRecord {
            name: "a".into(),
            labels: [("zone".to_owned(), "north".to_owned())].into(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: requests(&[("cpu", 4000), ("memory", 1 << 30), ("pods", 3)]),
        }
    }

    fn verdict(node: NodeRecord, asked: &[(&str, i64)], constraints: Constraints) -> Option<Objection> {
        let mut columns = Columns::default();
        let shape = Shape::new(&mut columns, &requests(asked), &constraints);
        let node = Node::new(&mut columns, node, Usage::default());
        judge(&shape, &[&node])[0]
    }

    fn taint(effect: TaintEffect) -> Taint {
        Taint { key: "spot".into(), value: "yes".into(), effect }
    }

    fn tolerating(key: &str) -> Constraints {
        let toleration = Toleration {
            key: Some(key.into()),
            exists: true,
            value: String::new(),
            effect: None,
            seconds: None,
        };
        Constraints { tolerations: vec![toleration], ..Constraints::default() }
    }

    #[test]
    fn cordoned_nodes_take_only_what_tolerates_it() {
        let node = NodeRecord { unschedulable: true, ..record() };
        assert_eq!(verdict(node.clone(), &[], Constraints::default()), Some(Objection::Cordoned));
        assert_eq!(verdict(node, &[], tolerating("node.kubernetes.io/unschedulable")), None);
    }

    #[test]
    fn hard_taints_keep_away_and_soft_ones_do_not() {
        let table = [
            (TaintEffect::NoSchedule, "gpu", Some(Objection::Taint)),
            (TaintEffect::NoExecute, "gpu", Some(Objection::Taint)),
            (TaintEffect::PreferNoSchedule, "gpu", None),
            (TaintEffect::NoSchedule, "spot", None),
            (TaintEffect::NoExecute, "spot", None),
        ];
        for (effect, tolerated, expected) in table {
            let node = NodeRecord { taints: vec![taint(effect)], ..record() };
            assert_eq!(verdict(node, &[], tolerating(tolerated)), expected, "{effect:?} {tolerated}");
        }
    }

    #[test]
    fn every_label_of_the_node_selector_must_be_there() {
        let table: [(&[(&str, &str)], _); 4] = [
            (&[], None),
            (&[("zone", "north")], None),
            (&[("zone", "south")], Some(Objection::NodeSelector)),
            (&[("zone", "north"), ("disk", "ssd")], Some(Objection::NodeSelector)),
        ];
        for (selector, expected) in table {
            let node_selector = selector.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
            let constraints = Constraints { node_selector, ..Constraints::default() };
            assert_eq!(verdict(record(), &[], constraints), expected, "{selector:?}");
        }
    }

    #[test]
    fn one_term_of_the_required_affinity_must_match() {
        let zone = |operator, value: &str| NodeSelectorTerm {
            labels: vec![Requirement { key: "zone".into(), operator, values: vec![value.into()] }],
            fields: vec![],
        };
        let named = |name: &str| NodeSelectorTerm {
            labels: vec![],
            fields: vec![Requirement::equals("metadata.name", name)],
        };
        let table = [
            (vec![], Some(Objection::NodeAffinity)),
            (vec![zone(Operator::In, "north")], None),
            (vec![zone(Operator::NotIn, "north")], Some(Objection::NodeAffinity)),
            (vec![zone(Operator::In, "south"), named("a")], None),
            (vec![named("b")], Some(Objection::NodeAffinity)),
        ];
        for (terms, expected) in table {
            let constraints = Constraints { affinity: Some(terms), ..Constraints::default() };
            assert_eq!(verdict(record(), &[], constraints.clone()), expected, "{constraints:?}");
        }
    }

    #[test]
    fn every_requested_resource_must_be_free() {
        let table: [(&[(&str, i64)], _); 6] = [
            (&[], None),
            (&[("cpu", 4000)], None),
            (&[("cpu", 4001)], Some(Objection::Resources)),
            (&[("cpu", i64::MAX)], Some(Objection::Resources)),
            (&[("nvidia.com/gpu", 1)], Some(Objection::Resources)),
            (&[("nvidia.com/gpu", 0)], None),
        ];
        for (asked, expected) in table {
            assert_eq!(verdict(record(), asked, Constraints::default()), expected, "{asked:?}");
        }
    }

    #[test]
    fn the_pod_limit_counts_pods_without_requests() {
        let mut columns = Columns::default();
        let shape = Shape::new(&mut columns, &Requests::new(), &Constraints::default());
        let mut usage = Usage::default();
        for expected in [None, None, None, Some(Objection::PodLimit)] {
            let node = Node::new(&mut columns, record(), usage.clone());
            assert_eq!(judge(&shape, &[&node]), [expected]);
            usage.add(&shape);
        }
        let unlimited = NodeRecord { allocatable: requests(&[("cpu", 1)]), ..record() };
        assert_eq!(judge(&shape, &[&Node::new(&mut columns, unlimited, usage)]), [None]);
    }

    #[test]
    fn amounts_that_saturate_elsewhere_are_summed_exactly() {
        let mut columns = Columns::default();
        let huge = Shape::new(&mut columns, &requests(&[("cpu", i64::MAX)]), &Constraints::default());
        let mut nodes = crate::nodes::Nodes::default();
        nodes.apply(&mut columns, record());
        let name = "a".into();
        nodes.occupy(&name, &huge);
        nodes.occupy(&name, &huge);
        nodes.vacate(&name, &huge);
        nodes.vacate(&name, &huge);
        assert_eq!(nodes.get(&name).unwrap().free(Column::CPU), 4000);
    }
}
