//! What the scheduler knows of a pod, of a node, of a disruption budget and of a family of pods: nothing that it does not use.

use std::fmt;
use std::sync::Arc;

use gangway_model::constraints::{Constraints, HostPort, PreferredTerm, SpreadConstraint, Taint};
use gangway_model::selector::{LabelSelector, Labels};
use gangway_model::{NodeName, ObjectName, Requests, Timestamp, Uid};

/// A pod as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// Tells a re-created pod from the one before it.
    pub uid: Uid,
    /// Where the binding is written.
    pub name: ObjectName,
    /// Its labels.
    pub labels: PodLabels,
    /// Who is asked to place it.
    pub scheduler_name: Arc<str>,
    /// Higher goes first.
    pub priority: i32,
    /// Whether it must not make room for itself by removing others.
    pub never_preempts: bool,
    /// Older goes first.
    pub created_at: Timestamp,
    /// When its node began with it.
    pub started_at: Option<Timestamp>,
    /// What it takes of its node and which nodes it accepts.
    pub demands: Arc<Demands>,
    /// Who made it, if that tells which other pods belong together with it. Of no interest once it has its node.
    pub owner: Option<Owner>,
    /// Scheduling gates; while there is one the pod is not placed.
    pub gates: Box<[String]>,
    /// Fields with hard demands that this scheduler cannot judge. Such a pod is refused, never placed
    /// against its will.
    pub unsupported: Box<[String]>,
    /// Its node, once it is bound.
    pub node: Option<NodeName>,
    /// The node on which room is made for it.
    pub nominated_node: Option<NodeName>,
    /// Whether its deletion has begun. A bound pod still holds its room.
    pub deleting: bool,
    /// Whether a scheduler removes it to make room.
    pub preempted: bool,
    /// Whether it has succeeded or failed and holds nothing any more.
    pub finished: bool,
}

/// Who made a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its kind.
    pub kind: FamilyKind,
    /// Its name, in the namespace of the pod.
    pub name: Arc<str>,
}

/// What tells which pods belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FamilyKind {
    /// For all pods of its namespace that its selector matches.
    Service,
    /// For the pods that it owns.
    ReplicationController,
    /// The same.
    ReplicaSet,
    /// The same.
    StatefulSet,
}

impl FamilyKind {
    /// Every kind.
    pub const ALL: [Self; 4] =
        [Self::Service, Self::ReplicationController, Self::ReplicaSet, Self::StatefulSet];
}

/// Pods that belong together: if they do not say how they want to be spread, they are spread as the profile says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    /// What it is.
    pub kind: FamilyKind,
    /// Where it is; it is for pods of its namespace.
    pub name: ObjectName,
    /// What its pods have in common; an empty selector is for nobody.
    pub selector: LabelSelector,
}

/// What a pod takes of its node and which nodes it accepts; pods of one template share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Demands {
    /// What it takes of its node; the pod count of one is implied.
    pub requests: Requests,
    /// Its CPU where nodes are scored, in millicores: a container without a request is not taken to be free of charge, or all
    /// of them would pile up on one node.
    pub scored_cpu_millis: i64,
    /// Its memory where nodes are scored, in bytes, likewise.
    pub scored_memory_bytes: i64,
    /// Which nodes it accepts.
    pub constraints: Constraints,
    /// Which of them it likes better.
    pub preferred: Vec<PreferredTerm>,
    /// The ports of its node that it takes for itself.
    pub ports: Vec<HostPort>,
    /// How it is to be spread.
    pub spread: Vec<SpreadConstraint>,
}

/// A node as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node's name.
    pub name: NodeName,
    /// Its labels.
    pub labels: Labels,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// What all pods on it may take together. A resource that is not mentioned is absent, except that
    /// without `pods` the number of pods has no limit.
    pub allocatable: Requests,
}

/// How many of some pods may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisruptionBudget {
    /// Where it is; it counts for pods of its namespace.
    pub name: ObjectName,
    /// Which pods; an empty selector is for none.
    pub selector: LabelSelector,
    /// How many more may go.
    pub allowed: i32,
    /// Pods that are counted as gone already, by name.
    pub disrupted: Box<[String]>,
}

/// Labels of a pod, packed: there are many pods, and their labels are looked at rarely.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct PodLabels(Arc<str>);

/// Neither keys nor values contain it.
const END: char = '\n';

impl PodLabels {
    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Keys with values, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.split_terminator(END).filter_map(|pair| pair.split_once('='))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a selector matches.
    pub fn match_selector(&self, selector: &LabelSelector) -> bool {
        selector.requirements.iter().all(|requirement| requirement.allows(self.get(&requirement.key)))
    }
}

impl From<&Labels> for PodLabels {
    fn from(labels: &Labels) -> Self {
        let mut packed = String::new();
        for (key, value) in labels {
            packed.extend([key.as_str(), "=", value.as_str()]);
            packed.push(END);
        }
        Self(packed.into())
    }
}

impl fmt::Debug for PodLabels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
