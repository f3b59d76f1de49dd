//! Taints keep pods away that do not tolerate them, and soft ones if it can be avoided.

use gangway_model::constraints::{TaintEffect, untolerated};

use super::{node_change, normalize_by_highest, object};
use crate::cluster::{Cluster, Node};
use crate::framework::{Actions, ClusterEvent, Happening, Objection, Plugin, PluginId, Resource};
use crate::records::NodeRecord;
use crate::shapes::Shape;

#[derive(Debug)]
pub(crate) struct TaintToleration;

pub(crate) fn tolerates_hard_taints(shape: &Shape, node: &NodeRecord) -> bool {
    node.taints.is_empty() || untolerated(&node.taints, shape.constraints.tolerations.iter()).is_none()
}

/// How many taints the pod should avoid.
fn soft_taints(shape: &Shape, node: &NodeRecord) -> usize {
    let soft = TaintEffect::PreferNoSchedule;
    let tolerations = &shape.constraints.tolerations;
    let tolerated = |taint: &_| {
        let mut concerned =
            tolerations.iter().filter(|toleration| toleration.effect.is_none_or(|e| e == soft));
        concerned.any(|toleration| toleration.tolerates(taint))
    };
    node.taints.iter().filter(|taint| taint.effect == soft && !tolerated(taint)).count()
}

impl Plugin for TaintToleration {
    fn id(&self) -> PluginId {
        PluginId::TaintToleration
    }

    fn registrations(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent {
                    resource: Resource::Node,
                    action: Actions::ADD.or(Actions::UPDATE_NODE_TAINT),
                },
                ClusterEvent { resource: Resource::TargetPod, action: Actions::UPDATE_POD_TOLERATION },
            ]
        }
    }

    fn may_help(&self, shape: &Shape, happening: &Happening, _: &Cluster) -> bool {
        // Whoever tolerates something else is looked at.
        node_change(happening).is_none_or(|(old, new)| {
            tolerates_hard_taints(shape, new) && old.is_none_or(|old| !tolerates_hard_taints(shape, old))
        })
    }

    fn filter(&self, shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
        object(nodes, verdicts, Objection::Taint, |node| tolerates_hard_taints(shape, &node.record));
    }

    fn has_opinion(&self, _: &Shape) -> bool {
        true
    }

    fn score(&self, shape: &Shape, nodes: &[&Node], scores: &mut [i64]) {
        for (node, score) in nodes.iter().zip(scores) {
            *score = i64::try_from(soft_taints(shape, &node.record)).unwrap_or(i64::MAX);
        }
    }

    fn normalize(&self, scores: &mut [i64]) {
        normalize_by_highest(scores, true);
    }
}
