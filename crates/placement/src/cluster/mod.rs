//! What is where? Nodes, the pods on them, and what is free, changed step by step: there is no snapshot to be copied.
//!
//! | question | file |
//! |---|---|
//! | what is free on a node? | `node.rs` |
//! | which pods are known? | `pods.rs` |
//! | over which domains are pods spread, and how many count where? | `topology.rs` |
//! | which resources are there? | `columns.rs` |

mod columns;
mod node;
mod pods;
mod topology;

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use gangway_model::{NodeName, Requests};
use rustc_hash::{FxHashMap, FxHasher};

pub(crate) use columns::{Column, Columns};
pub(crate) use node::{Node, Usage};
pub(crate) use pods::{Pod, Pods, Stage};
pub(crate) use topology::{NO_DOMAIN, Topology};

use crate::ids::{NodeIndex, PodId, ShapeId};
use crate::records::{NodeRecord, PodRecord};
use crate::shapes::{Shape, Shapes};

/// The label that names a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// All nodes and pods.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) columns: Columns,
    pub(crate) shapes: Shapes,
    pub(crate) pods: Pods,
    pub(crate) topology: Topology,
    nodes: Vec<Node>,
    /// By node: its generation. Looked at for many nodes at a time, so they stand together.
    generations: Vec<u64>,
    /// By node: what its name adds to chance.
    name_hashes: Vec<u64>,
    /// Pods for which room is made somewhere.
    nominations: usize,
    free: Vec<NodeIndex>,
    /// Looked up, never walked.
    by_name: FxHashMap<NodeName, NodeIndex>,
    /// Nodes that are there, one zone after the other, so that whoever looks at some of them sees all zones.
    order: Vec<NodeIndex>,
    order_is_old: bool,
    /// Grows with every change of any node.
    generation: u64,
    /// Grows with every change after which more may fit somewhere.
    relief: u64,
}

impl Cluster {
    /// A number that is another one after every change of any node.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// A number that is another one after every change that may have made room somewhere.
    pub(crate) fn relief(&self) -> u64 {
        self.relief
    }

    /// By node: a number that is another one after every change of it.
    pub(crate) fn generations(&self) -> &[u64] {
        &self.generations
    }

    /// What a node adds to the chance by which one of several equally good ones is taken.
    pub(crate) fn name_hash(&self, index: NodeIndex) -> u64 {
        self.name_hashes.get(index.index()).copied().unwrap_or(0)
    }

    /// Whether room is made for anybody anywhere.
    pub(crate) fn has_nominations(&self) -> bool {
        self.nominations > 0
    }

    pub(crate) fn node(&self, index: NodeIndex) -> Option<&Node> {
        self.nodes.get(index.index())
    }

    pub(crate) fn find_node(&self, name: &NodeName) -> Option<NodeIndex> {
        self.by_name.get(name).copied()
    }

    /// More than any node's index.
    pub(crate) fn node_bound(&self) -> usize {
        self.nodes.len()
    }

    /// Every node that is there, in the order in which they are looked at; see [`Cluster::refresh_order`].
    pub(crate) fn order(&self) -> &[NodeIndex] {
        &self.order
    }

    /// Takes nodes that came or went into the order.
    pub(crate) fn refresh_order(&mut self) {
        if std::mem::take(&mut self.order_is_old) {
            self.order = self.zone_by_zone();
        }
    }

    /// Every node that is there, in no particular order.
    pub(crate) fn present(&self) -> impl Iterator<Item = (NodeIndex, &Node)> + Clone {
        (0..).map(NodeIndex).zip(&self.nodes).filter(|(_, node)| node.is_present)
    }

    /// Every node with pods, there or not, with its books.
    pub(crate) fn books(&self) -> impl Iterator<Item = (NodeIndex, &Node)> {
        (0..).map(NodeIndex).zip(&self.nodes).filter(|(_, node)| !node.pods.is_empty())
    }

    /// A node was observed; gives its place and what it was before, unless that is no news.
    pub(crate) fn observe_node(
        &mut self,
        record: NodeRecord,
    ) -> Option<(NodeIndex, Option<Arc<NodeRecord>>)> {
        let index = self.node_named(&record.name);
        let known = &self.nodes[index.index()];
        let old = known.is_present.then(|| Arc::clone(&known.record));
        if old.as_deref() == Some(&record) {
            return None;
        }
        let record = Arc::new(record);
        self.topology.node_changed(index, Some(&record));
        let moved = old.as_ref().is_none_or(|old| old.labels.get(ZONE) != record.labels.get(ZONE));
        self.order_is_old |= moved;
        self.nodes[index.index()].observe(&mut self.columns, record);
        self.changed(index, true);
        Some((index, old))
    }

    /// A node is gone. Its pods are remembered until they are gone too.
    pub(crate) fn remove_node(&mut self, name: &NodeName) -> Option<(NodeIndex, Arc<NodeRecord>)> {
        let index = self.find_node(name).filter(|index| self.nodes[index.index()].is_present)?;
        let node = &mut self.nodes[index.index()];
        node.is_present = false;
        let record = Arc::clone(&node.record);
        self.topology.node_changed(index, None);
        self.order_is_old = true;
        self.changed(index, true);
        self.release_slot(index);
        Some((index, record))
    }

    /// The place of a node, made if it has none.
    pub(crate) fn node_named(&mut self, name: &NodeName) -> NodeIndex {
        if let Some(index) = self.by_name.get(name) {
            return *index;
        }
        let record = NodeRecord {
            name: name.clone(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            unschedulable: false,
            allocatable: Requests::new(),
        };
        let node = Node::absent(Arc::new(record));
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index.index()] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.generations.push(0);
                self.name_hashes.push(0);
                NodeIndex(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
            }
        };
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
        self.name_hashes[index.index()] = hasher.finish();
        self.by_name.insert(name.clone(), index);
        index
    }

    /// A pod takes its room on a node.
    pub(crate) fn occupy(&mut self, id: PodId, index: NodeIndex) {
        let Some((shape, record)) = self.shape_and_record(id) else { return };
        let node = &mut self.nodes[index.index()];
        node.usage.add(&shape);
        node.pods.push(id);
        if let Some(pod) = self.pods.get_mut(id) {
            pod.node = Some(index);
        }
        self.topology.pod_moved(index, &record, true);
        self.changed(index, false);
    }

    /// A pod gives its room back.
    pub(crate) fn vacate(&mut self, id: PodId) -> Option<NodeIndex> {
        let (shape, record) = self.shape_and_record(id)?;
        let index = self.pods.get_mut(id)?.node.take()?;
        let node = &mut self.nodes[index.index()];
        node.usage.subtract(&shape);
        node.pods.retain(|other| *other != id);
        self.topology.pod_moved(index, &record, false);
        self.changed(index, true);
        self.release_slot(index);
        Some(index)
    }

    /// Room is made for a pod on this node, or on none any more; gives the node before.
    pub(crate) fn nominate(&mut self, id: PodId, to: Option<NodeIndex>) -> Option<NodeIndex> {
        let pod = self.pods.get_mut(id)?;
        let from = std::mem::replace(&mut pod.nominated, to);
        if from == to {
            return from;
        }
        if from.is_some() {
            // What it was told named that node.
            pod.told = None;
        }
        self.nominations = self.nominations + usize::from(to.is_some()) - usize::from(from.is_some());
        if let Some(index) = from {
            self.nodes[index.index()].nominated.retain(|other| *other != id);
            self.changed(index, true);
        }
        if let Some(index) = to {
            self.nodes[index.index()].nominated.push(id);
            self.changed(index, false);
        }
        if let Some(index) = from {
            self.release_slot(index);
        }
        from
    }

    /// A pod is known from now on.
    pub(crate) fn add_pod(&mut self, mut record: PodRecord, shape: Shape) -> PodId {
        let shape = self.enter_shape(shape, &mut record);
        self.pods.insert(Pod {
            record: Arc::new(record),
            shape,
            node: None,
            nominated: None,
            stage: Stage::Waiting,
            told: None,
        })
    }

    /// Another record of a pod that takes the same room as before, if it takes any.
    pub(crate) fn replace_record(&mut self, id: PodId, mut record: PodRecord, shape: Shape) {
        let shape = self.enter_shape(shape, &mut record);
        let Some(pod) = self.pods.get_mut(id) else { return };
        pod.record = Arc::new(record);
        let old = std::mem::replace(&mut pod.shape, shape);
        let nominated = pod.nominated;
        self.leave_shape(old);
        // What it keeps others from may be something else now.
        if let Some(index) = nominated {
            self.changed(index, true);
        }
    }

    /// A pod without room is not known any more.
    pub(crate) fn forget_pod(&mut self, id: PodId) -> Option<Arc<PodRecord>> {
        self.nominate(id, None);
        let pod = self.pods.remove(id)?;
        self.leave_shape(pod.shape);
        Some(pod.record)
    }

    /// Another record of a pod that stays on its node; gives the node.
    pub(crate) fn settle(&mut self, id: PodId, mut record: PodRecord, shape: Shape) -> Option<NodeIndex> {
        let (was, known) = self.shape_and_record(id)?;
        let index = self.pods.get(id)?.node?;
        let takes_the_same = was.takes_the_same_as(&shape)
            && known.labels == record.labels
            && known.deleting == record.deleting;
        if !takes_the_same {
            self.vacate(id);
        }
        let shape = self.enter_shape(shape, &mut record);
        let pod = self.pods.get_mut(id)?;
        pod.record = Arc::new(record);
        let old = std::mem::replace(&mut pod.shape, shape);
        self.leave_shape(old);
        if !takes_the_same {
            // The node may have been forgotten with its last pod.
            let name = self.nodes[index.index()].record.name.clone();
            let index = self.node_named(&name);
            self.occupy(id, index);
            return Some(index);
        }
        Some(index)
    }

    pub(crate) fn shape_id_of(&self, id: PodId) -> Option<ShapeId> {
        self.pods.get(id).map(|pod| pod.shape)
    }

    pub(crate) fn shape_of(&self, id: PodId) -> Option<&Arc<Shape>> {
        self.shapes.get(self.pods.get(id)?.shape)
    }

    fn enter_shape(&mut self, shape: Shape, record: &mut PodRecord) -> ShapeId {
        let (id, is_new) = self.shapes.enter(shape, record);
        self.shapes.share(id, record);
        if is_new && let Some(shape) = self.shapes.get(id) {
            let nodes = (0..).map(NodeIndex).zip(&self.nodes).filter(|(_, node)| node.is_present);
            let placed = |(_, pod): (PodId, &'_ Pod)| pod.node.is_some();
            let pods = self.pods.iter().filter(move |entry| placed(*entry));
            self.topology.enter(
                shape,
                nodes.map(|(index, node)| (index, &*node.record)),
                pods.filter_map(|(_, pod)| Some((pod.node?, &*pod.record))),
            );
        }
        id
    }

    fn leave_shape(&mut self, id: ShapeId) {
        if let Some(shape) = self.shapes.leave(id) {
            self.topology.leave(&shape);
        }
    }

    fn shape_and_record(&self, id: PodId) -> Option<(Arc<Shape>, Arc<PodRecord>)> {
        let pod = self.pods.get(id)?;
        Some((Arc::clone(self.shapes.get(pod.shape)?), Arc::clone(&pod.record)))
    }

    fn changed(&mut self, index: NodeIndex, is_relief: bool) {
        self.generation += 1;
        self.generations[index.index()] = self.generation;
        if is_relief {
            self.relief += 1;
        }
    }

    /// Forgets a node that is not there and that nobody refers to.
    fn release_slot(&mut self, index: NodeIndex) {
        let node = &self.nodes[index.index()];
        if node.is_present || !node.pods.is_empty() || !node.nominated.is_empty() {
            return;
        }
        if self.by_name.remove(&node.record.name).is_some() {
            self.free.push(index);
        }
    }

    fn zone_by_zone(&self) -> Vec<NodeIndex> {
        let mut zones: BTreeMap<Option<&String>, Vec<NodeIndex>> = BTreeMap::new();
        let mut nodes: Vec<_> = self.present().collect();
        nodes.sort_by(|(_, a), (_, b)| a.record.name.cmp(&b.record.name));
        for (index, node) in nodes {
            zones.entry(node.record.labels.get(ZONE)).or_default().push(index);
        }
        let longest = zones.values().map(Vec::len).max().unwrap_or(0);
        (0..longest).flat_map(|row| zones.values().filter_map(move |zone| zone.get(row).copied())).collect()
    }
}
