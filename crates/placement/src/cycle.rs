//! One pod's turn: which nodes can take it, and which of them is best?

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use gangway_model::Uid;
use rustc_hash::FxHasher;

use crate::cluster::{Cluster, Node};
use crate::evaluations::{Evaluations, ExtensionPoint};
use crate::explain::Diagnosis;
use crate::framework::{Asked, Objection, PluginId, PluginSet, Prepared, Profile};
use crate::ids::{NodeIndex, PodId};
use crate::judged::{self, Failed, Table};
use crate::plugins;
use crate::shapes::Shape;

/// Nodes are judged this many at a time, so that not many more are than are needed.
const CHUNK: usize = 64;
/// In a cluster with fewer nodes all of them are looked at, and of a larger one at least as many are found.
const FEWEST_NODES_TO_FIND: usize = 100;

/// What was done, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Pods whose turn it was.
    pub attempts: u64,
    /// Nodes that were looked at.
    pub nodes_visited: u64,
    /// Nodes that had changed and were judged anew.
    pub nodes_judged: u64,
    /// Attempts that ended like that of an equal pod before, since nothing had changed.
    pub attempts_repeated: u64,
    /// Nodes on which it was tried out whom to remove.
    pub dry_runs: u64,
    /// Pods for which room was looked for among others.
    pub preemptions: u64,
}

/// Why no node can take a pod.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    pub(crate) diagnosis: Arc<Diagnosis>,
    pub(crate) plugins: PluginSet,
    /// Every node with what speaks against it.
    pub(crate) nodes: Arc<[(NodeIndex, Objection)]>,
}

/// One pod's question, with all that is needed to answer it.
pub(crate) struct Cycle<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) order: &'a [NodeIndex],
    pub(crate) profile: &'a Profile,
    pub(crate) table: &'a mut Table,
    pub(crate) shape: &'a Arc<Shape>,
    pub(crate) pod: PodId,
    /// With which node to begin; moved on by as many as were looked at.
    pub(crate) start: &'a mut usize,
    pub(crate) seed: u64,
    pub(crate) work: &'a mut Work,
    pub(crate) evaluations: &'a mut Evaluations,
}

impl Cycle<'_> {
    /// The best node, or why there is none.
    pub(crate) fn run(mut self, uid: &Uid) -> Result<NodeIndex, Rejection> {
        self.work.attempts += 1;
        if let Some(rejection) = self.repeated() {
            self.work.attempts_repeated += 1;
            return Err(rejection);
        }
        let judged_before = self.work.nodes_judged;
        let found = self.search(uid);
        if self.work.nodes_judged > judged_before {
            self.evaluations.count_filters(self.profile);
        }
        found
    }

    fn search(&mut self, uid: &Uid) -> Result<NodeIndex, Rejection> {
        let prepared = self.prepare();
        if let Some(node) = self.nominated_node(&prepared) {
            return Ok(node);
        }
        let (feasible, rejected) = self.feasible(&prepared);
        match feasible.as_slice() {
            [] => Err(self.reject(rejected)),
            [only] => Ok(*only),
            _ => Ok(self.best(&feasible, uid)),
        }
    }

    /// How it ended for an equal pod, if it would end like that again.
    fn repeated(&self) -> Option<Rejection> {
        // The room that is made for it is there for nobody else.
        self.cluster.pods.get(self.pod).filter(|pod| pod.nominated.is_none())?;
        let Failed { relief, generation, rejection, .. } = self.table.failed.as_ref()?;
        // Where pods have to be spread, one more somewhere may make room elsewhere.
        let is_same = match self.shape.must_be_spread() {
            false => *relief == self.cluster.relief(),
            true => *generation == self.cluster.generation(),
        };
        is_same.then(|| rejection.clone())
    }

    /// What plugins need that look at all nodes. For them every node is judged.
    fn prepare(&mut self) -> Vec<Box<dyn Prepared>> {
        if self.shape.spread.is_empty() {
            return Vec::new();
        }
        self.judge(self.order);
        let asked =
            Asked { shape: self.shape, cluster: self.cluster, nodes: self.order, marks: self.table.marks() };
        let mut all = Vec::new();
        for plugin in &self.profile.filters {
            if let Some(prepared) = plugin.prepare(asked) {
                self.evaluations.count(plugin.id(), ExtensionPoint::PreFilter);
                self.evaluations.count(plugin.id(), ExtensionPoint::Filter);
                all.push(prepared);
            }
        }
        all
    }

    fn judge(&mut self, nodes: &[NodeIndex]) {
        let judged = self.table.judge(self.cluster, self.profile, nodes);
        self.work.nodes_judged += u64::try_from(judged).unwrap_or(u64::MAX);
    }

    /// The node on which room was made for the pod, if it is there and fits.
    fn nominated_node(&mut self, prepared: &[Box<dyn Prepared>]) -> Option<NodeIndex> {
        let node = self.cluster.pods.get(self.pod)?.nominated?;
        self.cluster.node(node).filter(|node| node.is_present)?;
        self.judge(&[node]);
        self.objection(node, prepared).is_none().then_some(node)
    }

    /// Nodes that can take the pod, as many as are enough, and what speaks against the others that were looked at.
    fn feasible(&mut self, prepared: &[Box<dyn Prepared>]) -> (Vec<NodeIndex>, Vec<(NodeIndex, Objection)>) {
        let count = self.order.len();
        let enough = nodes_to_find(count, self.profile);
        let begin = if count == 0 { 0 } else { *self.start % count };
        let (mut feasible, mut rejected) = (Vec::with_capacity(enough), Vec::new());
        let mut visited = 0;
        'all: for part in [&self.order[begin..], &self.order[..begin]] {
            for chunk in part.chunks(CHUNK) {
                self.judge(chunk);
                for node in chunk {
                    visited += 1;
                    match self.objection(*node, prepared) {
                        None => feasible.push(*node),
                        Some(objection) => rejected.push((*node, objection)),
                    }
                    if feasible.len() == enough {
                        break 'all;
                    }
                }
            }
        }
        *self.start = (begin + visited) % count.max(1);
        self.work.nodes_visited += u64::try_from(visited).unwrap_or(u64::MAX);
        (feasible, rejected)
    }

    /// What speaks against a node that was judged: with the pods for which room is made there, and without them.
    fn objection(&self, index: NodeIndex, prepared: &[Box<dyn Prepared>]) -> Option<Objection> {
        let alone =
            self.table.verdict(index).or_else(|| prepared.iter().find_map(|plugin| plugin.filter(index)));
        if alone.is_some() || !self.cluster.has_nominations() {
            return alone;
        }
        let node = self.cluster.node(index).filter(|node| !node.nominated.is_empty())?;
        self.objection_with_nominated(index, node, prepared)
    }

    fn objection_with_nominated(
        &self,
        index: NodeIndex,
        node: &Node,
        prepared: &[Box<dyn Prepared>],
    ) -> Option<Objection> {
        let mut fuller = node.clone();
        let mut prepared: Vec<_> = prepared.iter().map(|plugin| plugin.fork()).collect();
        let mut is_fuller = false;
        for other in node.nominated.iter().filter(|other| **other != self.pod) {
            let (Some(pod), Some(shape)) = (self.cluster.pods.get(*other), self.cluster.shape_of(*other))
            else {
                continue;
            };
            if shape.priority >= self.shape.priority {
                is_fuller = true;
                fuller.usage.add(shape);
                prepared.iter_mut().for_each(|plugin| plugin.suppose(index, &pod.record, true));
            }
        }
        if !is_fuller {
            return None;
        }
        let verdict = judged::verdicts(self.profile, self.shape, &[&fuller]).pop().flatten();
        verdict.or_else(|| prepared.iter().find_map(|plugin| plugin.filter(index)))
    }

    /// The node with the highest score; among equals one that depends on the pod.
    fn best(&mut self, feasible: &[NodeIndex], uid: &Uid) -> NodeIndex {
        let totals = self.totals(feasible);
        let highest = totals.iter().copied().max().unwrap_or(0);
        let ties =
            feasible.iter().zip(&totals).filter(|(_, total)| **total == highest).map(|(node, _)| *node);
        let mut hasher = FxHasher::default();
        uid.hash(&mut hasher);
        self.seed.hash(&mut hasher);
        let pod = hasher.finish();
        ties.max_by_key(|node| mixed(pod ^ self.cluster.name_hash(*node))).unwrap_or(feasible[0])
    }

    /// The sum of all scores, for each node.
    fn totals(&mut self, feasible: &[NodeIndex]) -> Vec<i64> {
        let mut totals = vec![0_i64; feasible.len()];
        let asked =
            Asked { shape: self.shape, cluster: self.cluster, nodes: self.order, marks: self.table.marks() };
        let mut scores = Vec::with_capacity(feasible.len());
        for (place, scorer) in self.profile.scorers.iter().enumerate() {
            if let Some(ranked) = scorer.plugin.rank(asked, feasible) {
                scores = ranked;
            } else if scorer.plugin.has_opinion(self.shape) {
                let known = self.table.scores(place);
                scores.clear();
                scores.extend(feasible.iter().map(|node| i64::from(known[node.index()])));
                scorer.plugin.normalize(&mut scores);
            } else {
                continue;
            }
            self.evaluations.count(scorer.plugin.id(), ExtensionPoint::Score);
            for (total, score) in totals.iter_mut().zip(&scores) {
                *total += score * scorer.weight;
            }
        }
        totals
    }

    /// No node can take the pod; equal ones need not ask again until something changes.
    fn reject(&mut self, nodes: Vec<(NodeIndex, Objection)>) -> Rejection {
        let mut plugins: PluginSet = nodes.iter().map(|(_, objection)| objection.plugin()).collect();
        if nodes.is_empty() {
            plugins = plugins.with(PluginId::NoNode);
        }
        let diagnosis = Arc::new(diagnosis(self.cluster, self.shape, &nodes));
        let rejection = Rejection { diagnosis, plugins, nodes: nodes.into() };
        self.table.failed = Some(Failed {
            relief: self.cluster.relief(),
            generation: self.cluster.generation(),
            rejection: rejection.clone(),
            preemption: None,
        });
        rejection
    }
}

/// Spreads what differs in a few bits over all of them.
fn mixed(mut bits: u64) -> u64 {
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        bits = (bits ^ bits >> 30).wrapping_mul(factor);
    }
    bits ^ bits >> 31
}

/// How many nodes that fit are enough to choose from.
pub(crate) fn nodes_to_find(nodes: usize, profile: &Profile) -> usize {
    if profile.scorers.is_empty() {
        return 1;
    }
    if nodes < FEWEST_NODES_TO_FIND {
        return nodes.max(1);
    }
    let percentage = match profile.settings.percentage_of_nodes_to_score {
        Some(percentage) => usize::from(percentage),
        None => 50_usize.saturating_sub(nodes / 125).max(5),
    };
    (nodes * percentage / 100).max(FEWEST_NODES_TO_FIND).min(nodes)
}

/// How many nodes each plugin rules out, and in which words.
pub(crate) fn diagnosis(cluster: &Cluster, shape: &Shape, rejected: &[(NodeIndex, Objection)]) -> Diagnosis {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut by_plugin: BTreeMap<PluginId, usize> = BTreeMap::new();
    for (index, objection) in rejected {
        *by_plugin.entry(objection.plugin()).or_insert(0) += 1;
        let node = cluster.node(*index);
        match (objection, node) {
            (Objection::Resources | Objection::NeverEnough, Some(node)) => {
                for reason in missing(cluster, shape, node) {
                    *reasons.entry(reason).or_insert(0) += 1;
                }
            }
            _ => match reasons.get_mut(objection.reason()) {
                Some(count) => *count += 1,
                None => {
                    reasons.insert(objection.reason().to_owned(), 1);
                }
            },
        }
    }
    Diagnosis { nodes: cluster.present().count(), fitting: 0, by_plugin, reasons, preemption: None }
}

/// What a node does not have enough of, one reason for each.
fn missing(cluster: &Cluster, shape: &Shape, node: &Node) -> Vec<String> {
    let pods = (node.free_pods() < 1).then(|| "Too many pods".to_owned());
    let resources = plugins::shortages(shape, node)
        .filter_map(|(column, _)| Some(format!("Insufficient {}", cluster.columns.name(column)?)));
    pods.into_iter().chain(resources).collect()
}
