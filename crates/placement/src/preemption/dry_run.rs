//! Who has to leave one node, and who may stay after all?

use std::cmp::Reverse;

use super::Question;
use crate::cluster::Node;
use crate::framework::Prepared;
use crate::ids::{NodeIndex, PodId};
use crate::judged;

/// A node on which the pod would fit without these pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) node: NodeIndex,
    /// The most important first; never empty.
    pub(crate) victims: Vec<PodId>,
    /// How many of them a disruption budget would keep.
    pub(crate) violations: usize,
}

/// A node as it would be.
struct Supposed {
    index: NodeIndex,
    node: Node,
    prepared: Vec<Box<dyn Prepared>>,
}

impl Question<'_> {
    /// Removes everybody of lower priority, and lets those stay with whom the pod fits all the same: first those whom a budget
    /// protects, the most important first.
    pub(super) fn dry_run(&self, index: NodeIndex, prepared: &[Box<dyn Prepared>]) -> Option<Candidate> {
        let node = self.cluster.node(index)?;
        let priority = self.asked.shape.priority;
        let is_lower = |id: &PodId| self.cluster.shape_of(*id).is_some_and(|shape| shape.priority < priority);
        let mut lower: Vec<PodId> = node.pods.iter().copied().filter(is_lower).collect();
        if lower.is_empty() {
            return None;
        }
        let prepared = prepared.iter().map(|plugin| plugin.fork()).collect();
        let mut supposed = Supposed { index, node: node.clone(), prepared };
        lower.iter().for_each(|id| self.suppose(&mut supposed, *id, false));
        if !self.fits(&supposed) {
            return None;
        }
        lower.sort_by_cached_key(|id| self.importance(*id));
        let (protected, others) = self.by_protection(&lower);
        let (mut victims, mut violations) = (Vec::new(), 0);
        for (group, is_protected) in [(protected, true), (others, false)] {
            for id in group {
                self.suppose(&mut supposed, id, true);
                if !self.fits(&supposed) {
                    self.suppose(&mut supposed, id, false);
                    victims.push(id);
                    violations += usize::from(is_protected);
                }
            }
        }
        victims.sort_by_cached_key(|id| self.importance(*id));
        (!victims.is_empty()).then_some(Candidate { node: index, victims, violations })
    }

    /// Orders pods, the most important first: by priority, then by how long they run.
    fn importance(&self, id: PodId) -> impl Ord + use<> {
        let record = self.cluster.pods.get(id).map(|pod| &pod.record);
        let started = record.and_then(|record| record.started_at);
        let by_start = (started.is_none(), started);
        (Reverse(record.map(|record| record.priority)), by_start, record.map(|record| record.uid.clone()))
    }

    fn suppose(&self, supposed: &mut Supposed, id: PodId, comes: bool) {
        let (Some(pod), Some(shape)) = (self.cluster.pods.get(id), self.cluster.shape_of(id)) else { return };
        match comes {
            true => supposed.node.usage.add(shape),
            false => supposed.node.usage.subtract(shape),
        }
        let index = supposed.index;
        supposed.prepared.iter_mut().for_each(|plugin| plugin.suppose(index, &pod.record, comes));
    }

    /// Whether the pod fits, also with those for whom room is made here.
    fn fits(&self, supposed: &Supposed) -> bool {
        if !self.accepts(&supposed.node, supposed.index, &supposed.prepared) {
            return false;
        }
        let is_ahead = |other: &PodId| {
            let shape = self.cluster.shape_of(*other);
            *other != self.pod && shape.is_some_and(|shape| shape.priority >= self.asked.shape.priority)
        };
        let ahead: Vec<PodId> = supposed.node.nominated.iter().copied().filter(is_ahead).collect();
        if ahead.is_empty() {
            return true;
        }
        let prepared = supposed.prepared.iter().map(|plugin| plugin.fork()).collect();
        let mut fuller = Supposed { index: supposed.index, node: supposed.node.clone(), prepared };
        ahead.into_iter().for_each(|other| self.suppose(&mut fuller, other, true));
        self.accepts(&fuller.node, fuller.index, &fuller.prepared)
    }

    fn accepts(&self, node: &Node, index: NodeIndex, prepared: &[Box<dyn Prepared>]) -> bool {
        judged::verdicts(self.profile, self.asked.shape, &[node]) == [None]
            && prepared.iter().all(|plugin| plugin.filter(index).is_none())
    }
}
