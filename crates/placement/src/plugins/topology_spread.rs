//! Pods spread evenly over the values of a node label: no domain further ahead than the pod allows.

use std::sync::Arc;

use super::MAX_SCORE;
use crate::cluster::{Cluster, NO_DOMAIN};
use crate::framework::{
    Actions, Asked, Change, ClusterEvent, Happening, Objection, Plugin, PluginId, Prepared, Resource,
};
use crate::ids::NodeIndex;
use crate::judged::Marks;
use crate::records::{NodeRecord, PodRecord};
use crate::shapes::{Shape, Spread};

/// The label of which each node has a value of its own: there a node is its own domain.
const HOSTNAME: &str = "kubernetes.io/hostname";

#[derive(Debug)]
pub(crate) struct TopologySpread;

/// Whether pods on such a node count for the constraint.
fn is_counted(spread: &Spread, marks: Marks) -> bool {
    (!spread.node_affinity_honored || marks.accepts_node())
        && (!spread.node_taints_honored || marks.tolerates_taints())
}

/// Which pods are in which domain, for one hard constraint.
#[derive(Clone)]
struct Counts {
    spread: Spread,
    /// By node: its domain.
    domains: Arc<Vec<u32>>,
    /// By node: whether its pods count.
    counted: Arc<[bool]>,
    /// By domain: how many pods count there; none if no node of it counts.
    pods: Vec<Option<i64>>,
}

impl Counts {
    fn domain(&self, node: NodeIndex) -> Option<usize> {
        self.domains.get(node.index()).copied().filter(|domain| *domain != NO_DOMAIN).map(|d| d as usize)
    }

    /// What the emptiest domain has.
    fn least(&self) -> i64 {
        let there = self.pods.iter().flatten();
        let enough =
            there.clone().count() >= usize::try_from(self.spread.min_domains.unwrap_or(1)).unwrap_or(1);
        if enough { there.copied().min().unwrap_or(0) } else { 0 }
    }
}

#[derive(Clone)]
struct Hard {
    constraints: Vec<Counts>,
    /// For each constraint what the emptiest domain has.
    least: Vec<i64>,
}

impl Hard {
    fn new(asked: Asked<'_>) -> Option<Self> {
        let hard: Vec<&Spread> = asked.shape.spread.iter().filter(|spread| spread.is_hard).collect();
        if hard.is_empty() {
            return None;
        }
        let constraints: Vec<Counts> = hard.iter().map(|spread| count(asked, spread, &hard)).collect();
        let least = constraints.iter().map(Counts::least).collect();
        Some(Self { constraints, least })
    }
}

/// Counts the pods of every domain, on nodes that have all the labels and that count.
fn count(asked: Asked<'_>, spread: &Spread, all: &[&Spread]) -> Counts {
    let topology = &asked.cluster.topology;
    let own = topology.domains(&spread.topology_key);
    let others = all.iter().filter(|other| other.topology_key != spread.topology_key);
    let others: Vec<_> = others.map(|other| topology.domains(&other.topology_key)).collect();
    let tally = topology.tally(&spread.counted);
    let mut counted = vec![false; asked.cluster.node_bound()];
    let mut pods = vec![None; own.map_or(0, |own| own.bound())];
    for index in asked.nodes {
        let domain = own.map_or(NO_DOMAIN, |own| own.of(*index));
        let has_others = others.iter().all(|one| one.is_some_and(|one| one.of(*index) != NO_DOMAIN));
        let marks = asked.marks.get(index.index()).copied().unwrap_or_default();
        if domain == NO_DOMAIN || !has_others || !is_counted(spread, marks) {
            continue;
        }
        counted[index.index()] = true;
        if let Some(sum) = pods.get_mut(domain as usize) {
            *sum = Some(sum.unwrap_or(0) + tally.map_or(0, |tally| i64::from(tally.on(*index))));
        }
    }
    let domains = own.map(|own| own.of_nodes()).unwrap_or_default();
    Counts { spread: spread.clone(), domains, counted: counted.into(), pods }
}

impl Prepared for Hard {
    fn filter(&self, node: NodeIndex) -> Option<Objection> {
        for (counts, least) in self.constraints.iter().zip(&self.least) {
            let Some(domain) = counts.domain(node) else { return Some(Objection::SpreadLabel) };
            let there = counts.pods.get(domain).copied().flatten().unwrap_or(0);
            let skew = there + i64::from(counts.spread.counts_itself) - least;
            if skew > i64::from(counts.spread.max_skew) {
                return Some(Objection::Spread);
            }
        }
        None
    }

    fn suppose(&mut self, node: NodeIndex, pod: &PodRecord, comes: bool) {
        for (counts, least) in self.constraints.iter_mut().zip(&mut self.least) {
            let counts_here = counts.counted.get(node.index()).copied().unwrap_or(false);
            let Some(domain) = counts.domain(node).filter(|_| counts_here) else { continue };
            if pod.deleting || !counts.spread.counted.counts(pod) {
                continue;
            }
            if let Some(Some(sum)) = counts.pods.get_mut(domain) {
                *sum += if comes { 1 } else { -1 };
                *least = counts.least();
            }
        }
    }

    fn fork(&self) -> Box<dyn Prepared> {
        Box::new(self.clone())
    }
}

/// How a soft constraint ranks nodes.
struct Soft<'a> {
    spread: &'a Spread,
    /// The more domains there are, the more a pod in one of them weighs.
    weight: f64,
    /// By domain; none where the node itself is the domain.
    pods: Option<Vec<i64>>,
}

impl<'a> Soft<'a> {
    fn new(
        asked: Asked<'_>,
        spread: &'a Spread,
        ranked: &[NodeIndex],
        has_all: &dyn Fn(NodeIndex) -> bool,
    ) -> Self {
        let topology = &asked.cluster.topology;
        let domains = topology.domains(&spread.topology_key);
        if spread.topology_key == HOSTNAME {
            return Self { spread, weight: weight(ranked.len()), pods: None };
        }
        let mut pods: Vec<Option<i64>> = vec![None; domains.map_or(0, |domains| domains.bound())];
        let domain = |index: NodeIndex| domains.map_or(NO_DOMAIN, |domains| domains.of(index)) as usize;
        for index in ranked {
            if let Some(sum) = pods.get_mut(domain(*index)) {
                *sum = Some(0);
            }
        }
        // Nodes without the label are one more domain, where they are ranked at all.
        let lacks_label = ranked.iter().any(|index| domain(*index) == NO_DOMAIN as usize);
        let size = pods.iter().flatten().count() + usize::from(lacks_label);
        let tally = topology.tally(&spread.counted);
        for index in asked.nodes.iter().copied() {
            let marks = asked.marks.get(index.index()).copied().unwrap_or_default();
            if has_all(index)
                && is_counted(spread, marks)
                && let Some(Some(sum)) = pods.get_mut(domain(index))
            {
                *sum += tally.map_or(0, |tally| i64::from(tally.on(index)));
            }
        }
        let pods = pods.into_iter().map(|sum| sum.unwrap_or(0)).collect();
        Self { spread, weight: weight(size), pods: Some(pods) }
    }

    fn score(&self, asked: Asked<'_>, node: NodeIndex) -> f64 {
        let topology = &asked.cluster.topology;
        let domain =
            topology.domains(&self.spread.topology_key).map_or(NO_DOMAIN, |domains| domains.of(node));
        if domain == NO_DOMAIN {
            return 0.0;
        }
        let there = match &self.pods {
            Some(pods) => pods.get(domain as usize).copied().unwrap_or(0),
            None => topology.tally(&self.spread.counted).map_or(0, |tally| i64::from(tally.on(node))),
        };
        there as f64 * self.weight + f64::from(self.spread.max_skew - 1)
    }
}

fn weight(domains: usize) -> f64 {
    (domains as f64 + 2.0).ln()
}

/// Scores from pods: few are good. Who lacks a label gets nothing.
fn normalized(scores: Vec<Option<i64>>) -> Vec<i64> {
    let most = scores.iter().flatten().copied().max().unwrap_or(0);
    let least = scores.iter().flatten().copied().min().unwrap_or(0);
    let share = |score: i64| if most == 0 { MAX_SCORE } else { MAX_SCORE * (most + least - score) / most };
    scores.into_iter().map(|score| score.map_or(0, share)).collect()
}

impl Plugin for TopologySpread {
    fn id(&self) -> PluginId {
        PluginId::PodTopologySpread
    }

    fn registrations(&self) -> &'static [ClusterEvent] {
        const {
            let pods = Actions::ADD.or(Actions::DELETE).or(Actions::UPDATE_POD_LABEL);
            let nodes = Actions::ADD
                .or(Actions::DELETE)
                .or(Actions::UPDATE_NODE_LABEL)
                .or(Actions::UPDATE_NODE_TAINT);
            let own = Actions::UPDATE_POD_LABEL.or(Actions::UPDATE_POD_TOLERATION);
            &[
                ClusterEvent { resource: Resource::AssignedPod, action: pods },
                ClusterEvent { resource: Resource::Node, action: nodes },
                ClusterEvent { resource: Resource::TargetPod, action: own },
            ]
        }
    }

    fn may_help(&self, shape: &Shape, happening: &Happening, _: &Cluster) -> bool {
        let hard = || shape.spread.iter().filter(|spread| spread.is_hard);
        match &happening.change {
            Change::Pod { .. } if happening.event.resource == Resource::TargetPod => {
                happening.event.action != Actions::UPDATE_POD_TOLERATION
                    || hard().any(|spread| spread.node_taints_honored)
            }
            Change::Pod { old, new, .. } => {
                let counts = |pod: &Option<Arc<PodRecord>>, spread: &Spread| {
                    pod.as_ref().is_some_and(|pod| spread.counted.counts(pod))
                };
                // Who is on its way out does not count any more.
                let still_counts = |pod: &Option<Arc<PodRecord>>, spread: &Spread| {
                    counts(pod, spread) && pod.as_ref().is_some_and(|pod| !pod.deleting)
                };
                hard().any(|spread| match happening.event.action {
                    Actions::UPDATE_POD_LABEL => still_counts(old, spread) != still_counts(new, spread),
                    _ => counts(old, spread) || counts(new, spread),
                })
            }
            Change::Node { old, new, .. } => node_may_help(&hard, old.as_deref(), new.as_deref(), happening),
            Change::Anything(_) => true,
        }
    }

    fn compares_nodes(&self) -> bool {
        true
    }

    fn prepare(&self, asked: Asked<'_>) -> Option<Box<dyn Prepared>> {
        Hard::new(asked).map(|hard| Box::new(hard) as Box<dyn Prepared>)
    }

    fn rank(&self, asked: Asked<'_>, nodes: &[NodeIndex]) -> Option<Vec<i64>> {
        let soft: Vec<&Spread> = asked.shape.spread.iter().filter(|spread| !spread.is_hard).collect();
        if soft.is_empty() {
            return None;
        }
        let topology = &asked.cluster.topology;
        let domains: Vec<_> = soft.iter().map(|spread| topology.domains(&spread.topology_key)).collect();
        let every_key_is_optional = soft.iter().all(|spread| spread.key_is_optional);
        let has_all = |node: NodeIndex| {
            every_key_is_optional
                || domains.iter().all(|one| one.is_some_and(|domains| domains.of(node) != NO_DOMAIN))
        };
        let ranked: Vec<NodeIndex> = nodes.iter().copied().filter(|node| has_all(*node)).collect();
        let soft: Vec<Soft<'_>> =
            soft.iter().map(|spread| Soft::new(asked, spread, &ranked, &has_all)).collect();
        let score = |node: &NodeIndex| {
            let sum: f64 = soft.iter().map(|soft| soft.score(asked, *node)).sum();
            has_all(*node).then(|| sum.round() as i64)
        };
        Some(normalized(nodes.iter().map(score).collect()))
    }
}

/// Whether a node that came, went or changed alters what counts in some domain.
fn node_may_help<'a, I: Iterator<Item = &'a Spread>>(
    hard: &impl Fn() -> I,
    old: Option<&NodeRecord>,
    new: Option<&NodeRecord>,
    happening: &Happening,
) -> bool {
    let has_all = |node: &NodeRecord| hard().all(|spread| node.labels.contains_key(&spread.topology_key));
    let value = |node: &NodeRecord, spread: &Spread| node.labels.get(&spread.topology_key).cloned();
    match (old, new) {
        (Some(old), Some(new)) if happening.event.action == Actions::UPDATE_NODE_TAINT => {
            has_all(old) || has_all(new)
        }
        (Some(old), Some(new)) => {
            has_all(old) != has_all(new)
                || has_all(new) && hard().any(|spread| value(old, spread) != value(new, spread))
        }
        (None, Some(node)) | (Some(node), None) => has_all(node),
        (None, None) => false,
    }
}
