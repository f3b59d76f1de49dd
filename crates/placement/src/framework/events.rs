//! What can happen in a cluster that may help a pod that waits.

use std::sync::Arc;

use gangway_model::Uid;

use crate::ids::NodeIndex;
use crate::records::{NodeRecord, PodRecord};

/// What something happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// A node.
    Node,
    /// A pod that has a node.
    AssignedPod,
    /// Another pod that has none.
    UnscheduledPod,
    /// The pod itself.
    TargetPod,
    /// Anything.
    Wildcard,
}

/// What happened; a bit for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actions(u32);

impl Actions {
    /// It came.
    pub const ADD: Self = Self(1);
    /// It went.
    pub const DELETE: Self = Self(1 << 1);
    /// A node offers something else.
    pub const UPDATE_NODE_ALLOCATABLE: Self = Self(1 << 2);
    /// A node's labels.
    pub const UPDATE_NODE_LABEL: Self = Self(1 << 3);
    /// A node's taints, or it is not cordoned any more.
    pub const UPDATE_NODE_TAINT: Self = Self(1 << 4);
    /// A pod's labels.
    pub const UPDATE_POD_LABEL: Self = Self(1 << 5);
    /// A pod asks for less.
    pub const UPDATE_POD_SCALE_DOWN: Self = Self(1 << 6);
    /// A pod asks for more.
    pub const UPDATE_POD_SCALE_UP: Self = Self(1 << 7);
    /// A pod's last scheduling gate is gone.
    pub const UPDATE_POD_GATES_ELIMINATED: Self = Self(1 << 8);
    /// A pod tolerates something else.
    pub const UPDATE_POD_TOLERATION: Self = Self(1 << 9);
    /// It changed in a way that has no name: every kind of change at once.
    pub const UPDATE: Self = Self(((1 << 10) - 1) & !3);
    /// All of them.
    pub const ALL: Self = Self((1 << 10) - 1);

    /// All of both.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether what happened is among these. A change without a name is only in all changes.
    pub const fn contains(self, happened: Self) -> bool {
        self.0 & happened.0 == happened.0
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterEvent {
    /// To what.
    pub resource: Resource,
    /// What.
    pub action: Actions,
}

impl ClusterEvent {
    /// Whether somebody who registered for `self` is told of `happened`.
    pub fn includes(self, happened: Self) -> bool {
        happened.resource == Resource::Wildcard
            || self.resource == happened.resource && self.action.contains(happened.action)
    }

    /// The names of everything that it includes.
    pub fn labels(self) -> impl Iterator<Item = &'static str> {
        let single = (0..10).map(|bit| Actions(1 << bit)).filter(move |one| self.action.contains(*one));
        single.map(move |action| Self { action, ..self }.label())
    }

    /// The name under which it is counted.
    pub fn label(self) -> &'static str {
        let names = |plain: [&'static str; 3]| match self.action {
            Actions::ADD => plain[0],
            Actions::DELETE => plain[1],
            _ => plain[2],
        };
        match (self.resource, self.action) {
            (Resource::Node, Actions::UPDATE_NODE_ALLOCATABLE) => "NodeUpdateNodeAllocatable",
            (Resource::Node, Actions::UPDATE_NODE_LABEL) => "NodeUpdateNodeLabel",
            (Resource::Node, Actions::UPDATE_NODE_TAINT) => "NodeUpdateNodeTaint",
            (Resource::Node, _) => names(["NodeAdd", "NodeDelete", "NodeUpdate"]),
            (Resource::AssignedPod, Actions::UPDATE_POD_LABEL) => "AssignedPodUpdatePodLabel",
            (Resource::AssignedPod, Actions::UPDATE_POD_SCALE_DOWN) => "AssignedPodUpdatePodScaleDown",
            (Resource::AssignedPod, Actions::UPDATE_POD_SCALE_UP) => "AssignedPodUpdatePodScaleUp",
            (Resource::AssignedPod, _) => names(["AssignedPodAdd", "AssignedPodDelete", "AssignedPodUpdate"]),
            (Resource::UnscheduledPod, _) => {
                names(["UnscheduledPodAdd", "UnscheduledPodDelete", "UnscheduledPodUpdate"])
            }
            (Resource::TargetPod, Actions::UPDATE_POD_LABEL) => "TargetPodUpdatePodLabel",
            (Resource::TargetPod, Actions::UPDATE_POD_SCALE_DOWN) => "TargetPodUpdatePodScaleDown",
            (Resource::TargetPod, Actions::UPDATE_POD_SCALE_UP) => "TargetPodUpdatePodScaleUp",
            (Resource::TargetPod, Actions::UPDATE_POD_GATES_ELIMINATED) => {
                "TargetPodUpdatePodSchedulingGatesEliminated"
            }
            (Resource::TargetPod, Actions::UPDATE_POD_TOLERATION) => "TargetPodUpdatePodToleration",
            (Resource::TargetPod, _) => names(["TargetPodAdd", "TargetPodDelete", "TargetPodUpdate"]),
            (Resource::Wildcard, _) => "Wildcard",
        }
    }
}

/// An event with what there was before and what there is now.
#[derive(Clone, Debug)]
pub struct Happening {
    /// What kind of thing happened.
    pub event: ClusterEvent,
    /// The name under which it is counted: the event's, or that of who calls for everybody to be looked at.
    pub label: &'static str,
    /// To what it happened.
    pub change: Change,
}

/// What there was before and what there is now.
#[derive(Clone, Debug)]
pub enum Change {
    /// A node.
    Node {
        /// Its place, if it has one.
        index: NodeIndex,
        /// What it was.
        old: Option<Arc<NodeRecord>>,
        /// What it is.
        new: Option<Arc<NodeRecord>>,
    },
    /// A pod.
    Pod {
        /// The node that it has, had, or was to get.
        node: Option<NodeIndex>,
        /// What it was.
        old: Option<Arc<PodRecord>>,
        /// What it is.
        new: Option<Arc<PodRecord>>,
        /// Whether that node is only kept for it: then it stands in nobody's way who has a higher priority.
        nominated: bool,
    },
    /// Anything; if somebody is named, only for that pod.
    Anything(Option<Uid>),
}

impl Change {
    /// What has, had or was about to get its node changed.
    pub fn pod(node: Option<NodeIndex>, old: Option<Arc<PodRecord>>, new: Option<Arc<PodRecord>>) -> Self {
        Self::Pod { node, old, new, nominated: false }
    }

    /// What a node is, or was, only kept for.
    pub fn nomination(node: NodeIndex, old: Option<Arc<PodRecord>>, new: Option<Arc<PodRecord>>) -> Self {
        Self::Pod { node: Some(node), old, new, nominated: true }
    }

    /// The highest priority of those whom it may concern, if there is one.
    pub(crate) fn highest_priority(&self) -> Option<i32> {
        match self {
            Self::Pod { old, new, nominated: true, .. } => {
                old.as_ref().or(new.as_ref()).map(|pod| pod.priority)
            }
            _ => None,
        }
    }
}

/// Whether an event may help a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Help {
    /// It does not.
    No,
    /// It may help so many pods of this kind, each after its backoff; those that are first in order.
    AfterBackoff {
        /// How many at most; `usize::MAX` if that cannot be said.
        at_most: usize,
    },
    /// It helps a pod that only waited for this: at once.
    Immediately,
}
