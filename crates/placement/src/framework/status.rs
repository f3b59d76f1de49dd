//! What a plugin says about a node.

use crate::framework::PluginId;

/// Why a node cannot take a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub(crate) enum Objection {
    Unschedulable = 1,
    Taint,
    Affinity,
    EnforcedAffinity,
    Ports,
    /// Something is taken that the pod asks for; which resources, the plugin tells.
    Resources,
    /// The node could not hold the pod if it were empty.
    NeverEnough,
    Spread,
    /// The node lacks a label by which pods are spread.
    SpreadLabel,
}

impl Objection {
    pub(crate) fn plugin(self) -> PluginId {
        match self {
            Self::Unschedulable => PluginId::NodeUnschedulable,
            Self::Taint => PluginId::TaintToleration,
            Self::Affinity | Self::EnforcedAffinity => PluginId::NodeAffinity,
            Self::Ports => PluginId::NodePorts,
            Self::Resources | Self::NeverEnough => PluginId::NodeResourcesFit,
            Self::Spread | Self::SpreadLabel => PluginId::PodTopologySpread,
        }
    }

    /// Whether removing pods from the node would not help.
    pub(crate) fn is_unresolvable(self) -> bool {
        match self {
            Self::Unschedulable
            | Self::Taint
            | Self::Affinity
            | Self::EnforcedAffinity
            | Self::NeverEnough
            | Self::SpreadLabel => true,
            Self::Ports | Self::Resources | Self::Spread => false,
        }
    }

    /// What the reference says. Resources are told one by one.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Unschedulable => "node(s) were unschedulable",
            Self::Taint => "node(s) had untolerated taint(s)",
            Self::Affinity => "node(s) didn't match Pod's node affinity/selector",
            Self::EnforcedAffinity => "node(s) didn't match scheduler-enforced node affinity",
            Self::Ports => "node(s) didn't have free ports for the requested pod ports",
            Self::Resources | Self::NeverEnough => "node(s) didn't have enough resources",
            Self::Spread => "node(s) didn't match pod topology spread constraints",
            Self::SpreadLabel => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
        }
    }
}
