//! Cordoned nodes take nobody, except who tolerates that.

use gangway_model::constraints::untolerated;

use super::{cordon, node_change, object};
use crate::cluster::{Cluster, Node};
use crate::framework::{Actions, ClusterEvent, Happening, Objection, Plugin, PluginId, Resource};
use crate::records::NodeRecord;
use crate::shapes::Shape;

#[derive(Debug)]
pub(crate) struct NodeUnschedulable;

fn tolerates(shape: &Shape) -> bool {
    untolerated(&cordon(), shape.constraints.tolerations.iter()).is_none()
}

impl Plugin for NodeUnschedulable {
    fn id(&self) -> PluginId {
        PluginId::NodeUnschedulable
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
        match node_change(happening) {
            Some((old, new)) => !new.unschedulable && old.is_none_or(|old: &NodeRecord| old.unschedulable),
            None => tolerates(shape),
        }
    }

    fn filter(&self, shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
        if !tolerates(shape) {
            object(nodes, verdicts, Objection::Unschedulable, |node| !node.record.unschedulable);
        }
    }
}
