//! A pod that names its node is bound, and never asks. The plugin is there for configurations that name it.

use crate::framework::{Actions, ClusterEvent, Plugin, PluginId, Resource};

#[derive(Debug)]
pub(crate) struct NodeName;

impl Plugin for NodeName {
    fn id(&self) -> PluginId {
        PluginId::NodeName
    }

    fn registrations(&self) -> &'static [ClusterEvent] {
        &[ClusterEvent { resource: Resource::Node, action: Actions::ADD }]
    }
}
