//! What can a plugin do?

use std::fmt;

use super::{ClusterEvent, Happening, Objection, PluginId};
use crate::cluster::{Cluster, Node};
use crate::ids::NodeIndex;
use crate::records::PodRecord;
use crate::shapes::Shape;

/// A pod's question to a plugin that looks at more than one node at a time.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) cluster: &'a Cluster,
    /// The nodes that are there.
    pub(crate) nodes: &'a [NodeIndex],
    /// By node: what the pod's selectors and tolerations say of it, see [`crate::judged::Marks`].
    pub(crate) marks: &'a [crate::judged::Marks],
}

/// One concern of scheduling. It has no state: what it needs it is given, and the same question gets the same answer.
///
/// What it says of a node may depend on the shape, on that node and on the pods there: then the answer is kept until the node
/// changes. A plugin that looks at other nodes too says so with [`Plugin::prepare`] and [`Plugin::rank`].
pub(crate) trait Plugin: fmt::Debug + Send + Sync {
    fn id(&self) -> PluginId;

    /// What may help a pod that it rejected.
    fn registrations(&self) -> &'static [ClusterEvent] {
        &[]
    }

    /// Whether something that it registered for may help pods of this shape.
    fn may_help(&self, shape: &Shape, happening: &Happening, cluster: &Cluster) -> bool {
        let _ = (shape, happening, cluster);
        true
    }

    /// Whether it rules nodes out only by what it saw of all of them, with [`Plugin::prepare`].
    fn compares_nodes(&self) -> bool {
        false
    }

    /// Rules nodes out. Those that are ruled out already are left as they are.
    fn filter(&self, shape: &Shape, nodes: &[&Node], verdicts: &mut [Option<Objection>]) {
        let _ = (shape, nodes, verdicts);
    }

    /// Whether it ranks nodes for such pods at all.
    fn has_opinion(&self, shape: &Shape) -> bool {
        let _ = shape;
        false
    }

    /// Ranks nodes, each by itself.
    fn score(&self, shape: &Shape, nodes: &[&Node], scores: &mut [i64]) {
        let _ = (shape, nodes, scores);
    }

    /// Brings scores to 0 to 100, 100 being the best.
    fn normalize(&self, scores: &mut [i64]) {
        let _ = scores;
    }

    /// What it needs to rule out nodes by looking at all of them; none if such pods do not concern it.
    fn prepare(&self, asked: Asked<'_>) -> Option<Box<dyn Prepared>> {
        let _ = asked;
        None
    }

    /// Ranks nodes by looking at all of them, 0 to 100; none if such pods do not concern it.
    fn rank(&self, asked: Asked<'_>, nodes: &[NodeIndex]) -> Option<Vec<i64>> {
        let _ = (asked, nodes);
        None
    }
}

/// A plugin that has looked at all nodes.
pub(crate) trait Prepared {
    /// Whether a node is ruled out.
    fn filter(&self, node: NodeIndex) -> Option<Objection>;

    /// What if this pod came to the node, or left it?
    fn suppose(&mut self, node: NodeIndex, pod: &PodRecord, comes: bool);

    /// The same, to suppose something else.
    fn fork(&self) -> Box<dyn Prepared>;
}
