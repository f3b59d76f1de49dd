//! Why is this pod where it is? In numbers, as they are now.

use std::collections::BTreeMap;
use std::fmt;

use gangway_model::quantity::Shown;
use gangway_model::{Amount, NodeName, ObjectName, ResourceName, Timestamp, Uid};

use crate::filters::{self, Objection};
use crate::nodes::Node;
use crate::shapes::{Columns, Shape};
use crate::{Place, Scheduler};

/// Why one node cannot take a pod. A node may lack several resources and then counts under each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The node is cordoned.
    Cordoned,
    /// The node has a taint that the pod does not tolerate.
    UntoleratedTaint,
    /// The node lacks a label that the pod's nodeSelector names.
    NodeSelector,
    /// No term of the pod's required node affinity matches the node.
    NodeAffinity,
    /// The node has as many pods as it takes.
    PodLimit,
    /// The node has less of this resource free than the pod asks for.
    Insufficient(ResourceName),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordoned => f.write_str("cordoned"),
            Self::UntoleratedTaint => f.write_str("untolerated taint"),
            Self::NodeSelector => f.write_str("node selector"),
            Self::NodeAffinity => f.write_str("node affinity"),
            Self::PodLimit => f.write_str("pod limit reached"),
            Self::Insufficient(resource) => write!(f, "insufficient {resource}"),
        }
    }
}

/// How many nodes there are, how many fit, and how many object for which cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Nodes that could take the pod.
    pub fitting: usize,
    /// Nodes by cause.
    pub causes: BTreeMap<Cause, usize>,
}

impl Diagnosis {
    pub(crate) fn new(columns: &Columns, shape: &Shape, nodes: &[&Node]) -> Self {
        let mut diagnosis = Self { nodes: nodes.len(), ..Self::default() };
        for (node, objection) in nodes.iter().zip(filters::judge(shape, nodes)) {
            let cause = match objection {
                None => {
                    diagnosis.fitting += 1;
                    continue;
                }
                Some(Objection::Cordoned) => Cause::Cordoned,
                Some(Objection::Taint) => Cause::UntoleratedTaint,
                Some(Objection::NodeSelector) => Cause::NodeSelector,
                Some(Objection::NodeAffinity) => Cause::NodeAffinity,
                Some(Objection::PodLimit) => Cause::PodLimit,
                Some(Objection::Resources) => {
                    for (column, _) in filters::shortages(shape, node) {
                        if let Some(resource) = columns.name(column) {
                            diagnosis.count(Cause::Insufficient(resource.clone()));
                        }
                    }
                    continue;
                }
            };
            diagnosis.count(cause);
        }
        diagnosis
    }

    fn count(&mut self, cause: Cause) {
        *self.causes.entry(cause).or_insert(0) += 1;
    }
}

/// `0/3 nodes: 2 insufficient cpu, 1 node selector`, the most frequent cause first.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("there is no node in the cluster");
        }
        write!(f, "{}/{} nodes", self.fitting, self.nodes)?;
        let mut causes: Vec<_> = self.causes.iter().collect();
        // Stable: causes of equal count stay in the order of the enum.
        causes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (i, (cause, count)) in causes.into_iter().enumerate() {
            let separator = if i == 0 { ": " } else { ", " };
            write!(f, "{separator}{count} {cause}")?;
        }
        Ok(())
    }
}

/// Why a pod is reported as unschedulable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It fits on no node.
    NoNodeFits(Diagnosis),
    /// It has hard demands that this scheduler cannot judge, by field.
    Unsupported(Vec<String>),
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodeFits(diagnosis) => diagnosis.fmt(f),
            Self::Unsupported(fields) => {
                write!(f, "not placed, since this scheduler cannot judge {}", fields.join(", "))
            }
        }
    }
}

/// Where a pod is in its way to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The scheduler does not know it, or another scheduler is asked to place it.
    Unknown,
    /// It has scheduling gates.
    Gated(Vec<String>),
    /// It has demands that this scheduler cannot judge, by field.
    Unsupported(Vec<String>),
    /// It will be looked at as soon as its turn comes.
    Ready,
    /// It fits nowhere and waits for a node or for room.
    Waiting,
    /// A binding failed; it is tried again then.
    BackingOff(Timestamp),
    /// A binding is on its way or not yet observed.
    Assumed(NodeName),
    /// It is bound.
    Bound(NodeName),
}

/// A resource of which no node has enough, and the most that one of them has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The resource.
    pub resource: ResourceName,
    /// What the pod asks for.
    pub requested: i64,
    /// The most that is free on one node.
    pub most_free: i64,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value| Shown { resource: &self.resource, amount: Amount::new(value) };
        let (requested, most_free) = (shown(self.requested), shown(self.most_free));
        write!(f, "{}: {requested} requested, at most {most_free} free on a node", self.resource)
    }
}

/// The state of one pod with the numbers behind it.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The pod's name, if it is known.
    pub pod: Option<ObjectName>,
    /// Where it is.
    pub state: State,
    /// How the nodes judge it at this moment; only for pods without a node.
    pub diagnosis: Option<Diagnosis>,
    /// Resources that no single node has enough of, at this moment.
    pub shortages: Vec<Shortage>,
}

impl Scheduler {
    /// Why this pod is where it is, computed from the state as it is now.
    pub fn explain(&self, pod: &Uid) -> Explanation {
        let Some(entry) = self.pods.get(pod) else {
            return Explanation { pod: None, state: State::Unknown, diagnosis: None, shortages: Vec::new() };
        };
        let state = match &entry.place {
            Place::Gated => State::Gated(entry.record.gates.clone()),
            Place::Refused => State::Unsupported(entry.record.unsupported.clone()),
            Place::Queued(line) => match self.queue.line(*line) {
                Some(line) if line.parked.is_some() => State::Waiting,
                _ => State::Ready,
            },
            Place::BackingOff(until) => State::BackingOff(*until),
            Place::Assumed { node, .. } => State::Assumed(node.clone()),
            Place::Bound(node) => State::Bound(node.clone()),
        };
        let placed = matches!(state, State::Assumed(_) | State::Bound(_));
        let nodes = self.nodes.all();
        Explanation {
            pod: Some(entry.record.name.clone()),
            state,
            diagnosis: (!placed).then(|| Diagnosis::new(&self.columns, &entry.shape, &nodes)),
            shortages: if placed { Vec::new() } else { self.shortages(&entry.shape, &nodes) },
        }
    }

    fn shortages(&self, shape: &Shape, nodes: &[&Node]) -> Vec<Shortage> {
        let shortage = |(column, requested): &(_, i64)| {
            let most_free = nodes.iter().map(|node| node.free(*column)).max().unwrap_or(0).max(0);
            let most_free = i64::try_from(most_free).unwrap_or(i64::MAX);
            let resource = self.columns.name(*column)?.clone();
            (most_free < *requested).then_some(Shortage { resource, requested: *requested, most_free })
        };
        shape.needs.iter().filter_map(shortage).collect()
    }
}
