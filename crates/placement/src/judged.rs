//! What was said of each node for a shape, kept until the node changes.
//!
//! A node is judged again when its generation is another one. Of a few hundred nodes that are looked at for a pod, only those on which
//! something happened since the last pod of that shape are.

use std::sync::Arc;

use crate::cluster::{Cluster, Node};
use crate::cycle::Rejection;
use crate::explain::Diagnosis;
use crate::framework::{Objection, Profile};
use crate::ids::{NodeIndex, ShapeId};
use crate::plugins;
use crate::preemption::Preemption;
use crate::shapes::Shape;

/// Shapes times nodes that are kept; some 25 bytes each.
const MOST_JUDGEMENTS: usize = 8 << 20;

/// What a pod's selectors and tolerations say of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks(u8);

impl Marks {
    pub(crate) fn new(shape: &Shape, node: &Node) -> Self {
        let accepts = plugins::accepts_node(shape, &node.record);
        let tolerates = plugins::tolerates_taints(shape, &node.record);
        Self(u8::from(accepts) | u8::from(tolerates) << 1)
    }

    /// Whether the node selector and the required affinity accept the node.
    pub(crate) fn accepts_node(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether all hard taints are tolerated.
    pub(crate) fn tolerates_taints(self) -> bool {
        self.0 & 2 != 0
    }
}

/// What was said of each node for one shape.
#[derive(Debug)]
pub(crate) struct Table {
    shape: Arc<Shape>,
    used_at: u64,
    /// By node: the generation that was judged.
    generations: Vec<u64>,
    verdicts: Vec<Option<Objection>>,
    marks: Vec<Marks>,
    /// By scorer and node.
    scores: Vec<Vec<i32>>,
    /// How it ended the last time, if nothing has changed since that could help.
    pub(crate) failed: Option<Failed>,
}

/// No node was found.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) relief: u64,
    pub(crate) generation: u64,
    pub(crate) rejection: Rejection,
    /// That nobody can be removed to make room, once that was tried, and what pods are told then: all of them the same.
    pub(crate) preemption: Option<(Preemption, Arc<Diagnosis>)>,
}

impl Table {
    fn new(shape: Arc<Shape>) -> Self {
        Self {
            shape,
            used_at: 0,
            generations: Vec::new(),
            verdicts: Vec::new(),
            marks: Vec::new(),
            scores: Vec::new(),
            failed: None,
        }
    }

    fn fit(&mut self, nodes: usize, scorers: usize) {
        if self.generations.len() < nodes {
            self.generations.resize(nodes, 0);
            self.verdicts.resize(nodes, None);
            self.marks.resize(nodes, Marks::default());
            self.scores.resize_with(scorers, Vec::new);
            self.scores.iter_mut().for_each(|scores| scores.resize(nodes, 0));
        }
    }

    pub(crate) fn verdict(&self, node: NodeIndex) -> Option<Objection> {
        self.verdicts[node.index()]
    }

    pub(crate) fn marks(&self) -> &[Marks] {
        &self.marks
    }

    /// What a scorer said of every node.
    pub(crate) fn scores(&self, scorer: usize) -> &[i32] {
        &self.scores[scorer]
    }

    /// Judges those of the nodes that changed since they were judged; gives how many those were.
    pub(crate) fn judge(&mut self, cluster: &Cluster, profile: &Profile, indexes: &[NodeIndex]) -> usize {
        self.fit(cluster.node_bound(), profile.scorers.len());
        let generations = cluster.generations();
        let is_stale = |index: &&NodeIndex| self.generations[index.index()] != generations[index.index()];
        let stale: Vec<NodeIndex> = indexes.iter().filter(is_stale).copied().collect();
        if stale.is_empty() {
            return 0;
        }
        let nodes: Vec<&Node> = stale.iter().filter_map(|index| cluster.node(*index)).collect();
        let shape = Arc::clone(&self.shape);
        let verdicts = verdicts(profile, &shape, &nodes);
        for ((index, node), verdict) in stale.iter().zip(&nodes).zip(verdicts) {
            self.generations[index.index()] = generations[index.index()];
            self.verdicts[index.index()] = verdict;
            if !shape.spread.is_empty() {
                self.marks[index.index()] = Marks::new(&shape, node);
            }
        }
        self.rank(profile, &shape, &stale, &nodes);
        stale.len()
    }

    fn rank(&mut self, profile: &Profile, shape: &Shape, indexes: &[NodeIndex], nodes: &[&Node]) {
        let mut scores = vec![0; nodes.len()];
        for (place, scorer) in profile.scorers.iter().enumerate() {
            if !scorer.plugin.has_opinion(shape) {
                continue;
            }
            scorer.plugin.score(shape, nodes, &mut scores);
            for (index, score) in indexes.iter().zip(&scores) {
                self.scores[place][index.index()] = i32::try_from(*score).unwrap_or(i32::MAX);
            }
        }
    }
}

/// What the plugins that look at one node at a time say of some nodes.
pub(crate) fn verdicts(profile: &Profile, shape: &Shape, nodes: &[&Node]) -> Vec<Option<Objection>> {
    let mut verdicts = vec![None; nodes.len()];
    for plugin in &profile.filters {
        plugin.filter(shape, nodes, &mut verdicts);
    }
    verdicts
}

/// The tables of the shapes that were asked for last.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    by_shape: Vec<Option<Table>>,
    now: u64,
    tables: usize,
}

impl Tables {
    /// The table of a shape. If there are too many, those that were not asked for the longest go.
    pub(crate) fn of(&mut self, id: ShapeId, shape: &Arc<Shape>, nodes: usize) -> &mut Table {
        self.now += 1;
        if (self.tables + 1).saturating_mul(nodes) > MOST_JUDGEMENTS {
            self.drop_older_half();
        }
        if self.by_shape.len() <= id.index() {
            self.by_shape.resize_with(id.index() + 1, || None);
        }
        let slot = &mut self.by_shape[id.index()];
        // The number may have belonged to another shape.
        if !slot.as_ref().is_some_and(|table| Arc::ptr_eq(&table.shape, shape)) {
            self.tables += usize::from(slot.is_none());
            *slot = None;
        }
        let table = slot.get_or_insert_with(|| Table::new(Arc::clone(shape)));
        table.used_at = self.now;
        table
    }

    fn drop_older_half(&mut self) {
        let mut times: Vec<u64> = self.by_shape.iter().flatten().map(|table| table.used_at).collect();
        times.sort_unstable();
        let Some(middle) = times.get(times.len() / 2).copied() else { return };
        for slot in &mut self.by_shape {
            if slot.as_ref().is_some_and(|table| table.used_at <= middle) {
                *slot = None;
                self.tables -= 1;
            }
        }
    }
}
