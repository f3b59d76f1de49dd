//! A port of the host can be had once.

use super::object;
use crate::cluster::{Cluster, Node};
use crate::framework::{Actions, Change, ClusterEvent, Happening, Objection, Plugin, PluginId, Resource};
use crate::shapes::Shape;

#[derive(Debug)]
pub(crate) struct NodePorts;

impl Plugin for NodePorts {
    fn id(&self) -> PluginId {
        PluginId::NodePorts
    }

    fn registrations(&self) -> &'static [ClusterEvent] {
        const {
            &[
                ClusterEvent { resource: Resource::AssignedPod, action: Actions::DELETE },
                ClusterEvent { resource: Resource::Node, action: Actions::ADD },
            ]
        }
    }

    fn may_help(&self, shape: &Shape, happening: &Happening, _: &Cluster) -> bool {
        match &happening.change {
            Change::Pod { old: Some(gone), .. } => {
                let freed = &gone.demands.ports;
                shape.ports.iter().any(|port| freed.iter().any(|other| other.conflicts_with(port)))
            }
            _ => true,
        }
    }

    fn filter(&self, shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
        if !shape.ports.is_empty() {
            object(nodes, verdicts, Objection::Ports, |node| node.has_free_ports(&shape.ports));
        }
    }
}
