//! Node selectors and node affinity: which nodes a pod accepts, and which it likes better.

use gangway_model::constraints::NodeSelectorTerm;
use gangway_model::scheduling::AffinitySettings;

use super::{node_change, normalize_by_highest, object};
use crate::cluster::{Cluster, Node};
use crate::framework::{Actions, ClusterEvent, Happening, Objection, Plugin, PluginId, Resource};
use crate::records::NodeRecord;
use crate::shapes::Shape;

#[derive(Debug)]
pub(crate) struct NodeAffinity {
    added: AffinitySettings,
}

pub(crate) fn accepts(shape: &Shape, node: &NodeRecord) -> bool {
    shape.constraints.accept_node(node.name.as_str(), &node.labels)
}

fn matches(term: &NodeSelectorTerm, node: &NodeRecord) -> bool {
    term.matches(node.name.as_str(), &node.labels)
}

impl NodeAffinity {
    pub(crate) fn new(settings: &AffinitySettings) -> Self {
        Self { added: settings.clone() }
    }

    fn accepts_for_all(&self, node: &NodeRecord) -> bool {
        self.added.added_required.as_ref().is_none_or(|terms| terms.iter().any(|term| matches(term, node)))
    }
}

impl Plugin for NodeAffinity {
    fn id(&self) -> PluginId {
        PluginId::NodeAffinity
    }

    fn registrations(&self) -> &'static [ClusterEvent] {
        const { &[ClusterEvent { resource: Resource::Node, action: Actions::ADD.or(Actions::UPDATE_NODE_LABEL) }] }
    }

    fn may_help(&self, shape: &Shape, happening: &Happening, _: &Cluster) -> bool {
        let fits = |node: &NodeRecord| accepts(shape, node) && self.accepts_for_all(node);
        node_change(happening).is_none_or(|(old, new)| fits(new) && old.is_none_or(|old| !fits(old)))
    }

    fn filter(&self, shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
        if self.added.added_required.is_some() {
            object(nodes, verdicts, Objection::EnforcedAffinity, |node| self.accepts_for_all(&node.record));
        }
        let constraints = &shape.constraints;
        if !constraints.node_selector.is_empty() || constraints.affinity.is_some() {
            object(nodes, verdicts, Objection::Affinity, |node| accepts(shape, &node.record));
        }
    }

    fn has_opinion(&self, shape: &Shape) -> bool {
        !shape.preferred.is_empty() || !self.added.added_preferred.is_empty()
    }

    fn score(&self, shape: &Shape, nodes: &[&Node], scores: &mut [i64]) {
        for (node, score) in nodes.iter().zip(scores) {
            let terms = shape.preferred.iter().chain(&self.added.added_preferred);
            let liked = terms.filter(|preferred| matches(&preferred.term, &node.record));
            *score = liked.map(|preferred| i64::from(preferred.weight)).sum();
        }
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_highest(scores, false);
    }
}
