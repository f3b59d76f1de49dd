//! What the scheduler knows of a pod and of a node: nothing that it does not use.

use gangway_model::constraints::{Constraints, Taint};
use gangway_model::selector::Labels;
use gangway_model::{NodeName, ObjectName, Requests, Timestamp, Uid};

/// A pod as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    /// Tells a re-created pod from the one before it.
    pub uid: Uid,
    /// Where the binding is written.
    pub name: ObjectName,
    /// Who is asked to place it.
    pub scheduler_name: String,
    /// Higher goes first.
    pub priority: i32,
    /// Older goes first.
    pub created_at: Timestamp,
    /// What it takes of its node; the pod count of one is implied.
    pub requests: Requests,
    /// Which nodes it accepts.
    pub constraints: Constraints,
    /// Scheduling gates; while there is one the pod is not placed.
    pub gates: Vec<String>,
    /// Fields with hard demands that this scheduler cannot judge. Such a pod is refused, never placed
    /// against its will.
    pub unsupported: Vec<String>,
    /// Its node, once it is bound.
    pub node: Option<NodeName>,
    /// Whether its deletion has begun. A bound pod still holds its room.
    pub deleting: bool,
    /// Whether it has succeeded or failed and holds nothing any more.
    pub finished: bool,
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
