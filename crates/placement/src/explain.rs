//! Why is this pod where it is? In numbers, as they are now.

use std::collections::BTreeMap;
use std::fmt;

use gangway_model::quantity::Shown;
use gangway_model::{Amount, NodeName, ObjectName, ResourceName, Timestamp, Uid};

use crate::cluster::{Cluster, Node, Stage};
use crate::framework::{PluginId, PluginSet};
use crate::queue::Place;
use crate::shapes::Shape;
use crate::{Scheduler, cycle, judged};

/// How many nodes there are, how many fit, and how many are ruled out by which plugin and why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnosis {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Nodes that could take the pod.
    pub fitting: usize,
    /// Nodes by the plugin that rules them out.
    pub by_plugin: BTreeMap<PluginId, usize>,
    /// Nodes by what speaks against them. One that lacks several resources counts under each.
    pub reasons: BTreeMap<String, usize>,
    /// What came of trying to make room.
    pub preemption: Option<String>,
}

/// `0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.`, in the words and the order of the reference.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "{}/{} nodes are available", self.fitting, self.nodes)?;
        let mut reasons: Vec<String> =
            self.reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        for (i, reason) in reasons.iter().enumerate() {
            write!(f, "{}{reason}", if i == 0 { ": " } else { ", " })?;
        }
        f.write_str(".")?;
        match &self.preemption {
            Some(preemption) => write!(f, " preemption: {preemption}"),
            None => Ok(()),
        }
    }
}

/// Why a pod is told that it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// It fits on no node.
    NoNodeFits(std::sync::Arc<Diagnosis>),
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

/// Where a pod is on its way to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The scheduler does not know it, or another scheduler is asked to place it.
    Unknown,
    /// It has scheduling gates.
    Gated(Vec<String>),
    /// It has demands that this scheduler cannot judge, by field.
    Unsupported(Vec<String>),
    /// It will be looked at as soon as its turn comes.
    Active,
    /// It fitted nowhere, something may have changed since, and it is tried again then, or earlier if there is nobody else to try.
    BackingOff(Timestamp),
    /// Something went wrong with it, and it is tried again then.
    BackingOffAfterError(Timestamp),
    /// It fits nowhere and waits for something that helps it.
    Unschedulable {
        /// The plugins that ruled nodes out.
        rejectors: PluginSet,
        /// When it is tried again if nothing happens.
        tried_again_at: Timestamp,
    },
    /// Others are being removed to make room for it there.
    Preempting(NodeName),
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
    /// How often its turn came.
    pub attempts: u32,
    /// How the nodes judge it at this moment; only for pods without a node.
    pub diagnosis: Option<Diagnosis>,
    /// What would wake it, by plugin that rejected it.
    pub wakers: Vec<(PluginId, Vec<&'static str>)>,
    /// Resources that no single node has enough of, at this moment.
    pub shortages: Vec<Shortage>,
    /// The node on which room is made for it.
    pub nominated_node: Option<NodeName>,
}

impl Scheduler {
    /// Why this pod is where it is, computed from the state as it is now.
    pub fn explain(&self, uid: &Uid) -> Explanation {
        let Some((id, pod)) =
            self.cluster.pods.find(uid).and_then(|id| Some((id, self.cluster.pods.get(id)?)))
        else {
            return Explanation {
                pod: None,
                state: State::Unknown,
                attempts: 0,
                diagnosis: None,
                wakers: Vec::new(),
                shortages: Vec::new(),
                nominated_node: None,
            };
        };
        let name_of = |node| self.cluster.node(node).map(|node| node.record.name.clone());
        let placed = pod.node.and_then(name_of);
        let nominated_node = pod.nominated.and_then(name_of);
        let state = match (pod.stage, placed) {
            (Stage::Bound, Some(node)) => State::Bound(node),
            (Stage::Assumed(_), Some(node)) => State::Assumed(node),
            (Stage::Preempting(_), _) if nominated_node.is_some() => {
                nominated_node.clone().map_or(State::Active, State::Preempting)
            }
            _ => self.waiting_state(id),
        };
        let waits = !matches!(state, State::Bound(_) | State::Assumed(_));
        let shape = self.cluster.shapes.get(pod.shape).filter(|_| waits);
        let wakers = match &state {
            State::Unschedulable { rejectors, .. } => {
                shape.map_or_else(Vec::new, |s| self.wakers(s, *rejectors))
            }
            _ => Vec::new(),
        };
        Explanation {
            pod: Some(pod.record.name.clone()),
            attempts: self.queue.standing(id).map_or(0, |standing| standing.attempts),
            diagnosis: shape.map(|shape| self.diagnose(shape)),
            wakers,
            shortages: shape.map_or_else(Vec::new, |shape| shortages(&self.cluster, shape)),
            nominated_node,
            state,
        }
    }

    fn waiting_state(&self, id: crate::ids::PodId) -> State {
        let record = self.cluster.pods.get(id).map(|pod| &pod.record);
        match self.queue.place(id) {
            Some(Place::Gated { plugin: PluginId::SchedulingGates, .. }) => {
                State::Gated(record.map(|record| record.gates.to_vec()).unwrap_or_default())
            }
            Some(Place::Gated { plugin: PluginId::Unsupported, .. }) => {
                State::Unsupported(record.map(|record| record.unsupported.to_vec()).unwrap_or_default())
            }
            Some(Place::Backoff { until, error: true }) => State::BackingOffAfterError(until),
            Some(Place::Backoff { until, error: false }) => State::BackingOff(until),
            Some(Place::Unschedulable { unschedulable, pending, flush_at }) => {
                State::Unschedulable { rejectors: unschedulable.union(pending), tried_again_at: flush_at }
            }
            Some(Place::Active | Place::InFlight | Place::Decided | Place::Gated { .. }) => State::Active,
            None => State::Unknown,
        }
    }

    fn wakers(&self, shape: &Shape, rejectors: PluginSet) -> Vec<(PluginId, Vec<&'static str>)> {
        let Some(profile) = self.profiles.get(shape.profile) else { return Vec::new() };
        let labels = |plugin: PluginId| match profile.filter_of(plugin) {
            Some(known) => known.registrations().iter().flat_map(|event| event.labels()).collect(),
            None if plugin == PluginId::NoNode => vec!["NodeAdd"],
            None => Vec::new(),
        };
        rejectors.iter().map(|plugin| (plugin, labels(plugin))).collect()
    }

    /// How every node judges a pod of this shape now.
    fn diagnose(&self, shape: &Shape) -> Diagnosis {
        let Some(profile) = self.profiles.get(shape.profile) else { return Diagnosis::default() };
        let (indexes, nodes): (Vec<_>, Vec<&Node>) = self.cluster.present().unzip();
        let verdicts = judged::verdicts(profile, shape, &nodes);
        let bound = self.cluster.node_bound();
        let mut marks = vec![judged::Marks::default(); bound];
        for (index, node) in indexes.iter().zip(&nodes) {
            marks[index.index()] = judged::Marks::new(shape, node);
        }
        let asked = crate::framework::Asked { shape, cluster: &self.cluster, nodes: &indexes, marks: &marks };
        let prepared: Vec<_> = profile.filters.iter().filter_map(|plugin| plugin.prepare(asked)).collect();
        let objections = indexes.iter().zip(verdicts).filter_map(|(index, verdict)| {
            let objection = verdict.or_else(|| prepared.iter().find_map(|plugin| plugin.filter(*index)))?;
            Some((*index, objection))
        });
        let rejected: Vec<_> = objections.collect();
        let mut diagnosis = cycle::diagnosis(&self.cluster, shape, &rejected);
        diagnosis.fitting = nodes.len() - rejected.len();
        diagnosis
    }
}

fn shortages(cluster: &Cluster, shape: &Shape) -> Vec<Shortage> {
    let shortage = |(column, requested): &(_, i64)| {
        let most_free = cluster.present().map(|(_, node)| node.free(*column)).max().unwrap_or(0).max(0);
        let most_free = i64::try_from(most_free).unwrap_or(i64::MAX);
        let resource = cluster.columns.name(*column)?.clone();
        (most_free < *requested).then_some(Shortage { resource, requested: *requested, most_free })
    };
    shape.needs.iter().filter_map(shortage).collect()
}
