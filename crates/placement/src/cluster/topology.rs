//! Over what are pods spread? The values of node labels as numbers, and how many pods that count are on each node.
//!
//! Both are kept only as long as somebody who waits asks for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use gangway_model::NamespaceName;
use rustc_hash::FxHashMap;

use crate::ids::NodeIndex;
use crate::records::{NodeRecord, PodRecord};
use crate::shapes::{Counted, Shape};

/// A node that does not have the label.
pub(crate) const NO_DOMAIN: u32 = u32::MAX;

/// The values of one node label.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    users: usize,
    /// Looked up, never walked.
    by_value: FxHashMap<String, u32>,
    /// Shared with whoever is asking.
    of_node: Arc<Vec<u32>>,
}

impl Domains {
    /// The domain of a node, [`NO_DOMAIN`] if it has none.
    pub(crate) fn of(&self, node: NodeIndex) -> u32 {
        self.of_node.get(node.index()).copied().unwrap_or(NO_DOMAIN)
    }

    /// The domain of every node.
    pub(crate) fn of_nodes(&self) -> Arc<Vec<u32>> {
        Arc::clone(&self.of_node)
    }

    /// More than any domain's number.
    pub(crate) fn bound(&self) -> usize {
        self.by_value.len()
    }

    fn set(&mut self, node: NodeIndex, value: Option<&String>) {
        let next = u32::try_from(self.by_value.len()).unwrap_or(NO_DOMAIN);
        let domain = value.map_or(NO_DOMAIN, |value| match self.by_value.get(value) {
            Some(known) => *known,
            None => *self.by_value.entry(value.clone()).or_insert(next),
        });
        let of_node = Arc::make_mut(&mut self.of_node);
        if of_node.len() <= node.index() {
            of_node.resize(node.index() + 1, NO_DOMAIN);
        }
        of_node[node.index()] = domain;
    }
}

/// How many pods that count are on each node.
#[derive(Debug)]
pub(crate) struct Tally {
    users: usize,
    counted: Counted,
    of_node: Vec<u32>,
}

impl Tally {
    pub(crate) fn on(&self, node: NodeIndex) -> u32 {
        self.of_node.get(node.index()).copied().unwrap_or(0)
    }

    fn change(&mut self, node: NodeIndex, pod: &PodRecord, comes: bool) {
        // Who is on its way out does not count.
        if pod.deleting || !self.counted.counts(pod) {
            return;
        }
        if self.of_node.len() <= node.index() {
            self.of_node.resize(node.index() + 1, 0);
        }
        let count = &mut self.of_node[node.index()];
        *count = if comes { *count + 1 } else { count.saturating_sub(1) };
    }
}

/// The labels and pods that somebody's spreading asks for.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    keys: BTreeMap<String, Domains>,
    /// Looked up, never walked.
    tallies: FxHashMap<Counted, usize>,
    slots: Vec<Option<Tally>>,
    free: Vec<usize>,
    by_namespace: BTreeMap<NamespaceName, Vec<usize>>,
}

impl Topology {
    /// A shape with spreading appears. Nodes and pods are gone through for what nobody asked for before.
    pub(crate) fn enter<'a>(
        &mut self,
        shape: &Shape,
        nodes: impl Iterator<Item = (NodeIndex, &'a NodeRecord)> + Clone,
        pods: impl Iterator<Item = (NodeIndex, &'a PodRecord)> + Clone,
    ) {
        for spread in &shape.spread {
            let domains = self.keys.entry(spread.topology_key.clone()).or_default();
            domains.users += 1;
            if domains.users == 1 {
                nodes.clone().for_each(|(index, node)| {
                    domains.set(index, node.labels.get(&spread.topology_key));
                });
            }
            let tally = self.tally_mut(&spread.counted);
            tally.users += 1;
            if tally.users == 1 {
                pods.clone().for_each(|(index, pod)| tally.change(index, pod, true));
            }
        }
    }

    /// The last pod of such a shape is gone.
    pub(crate) fn leave(&mut self, shape: &Shape) {
        for spread in &shape.spread {
            if let Some(domains) = self.keys.get_mut(&spread.topology_key) {
                domains.users -= 1;
                if domains.users == 0 {
                    self.keys.remove(&spread.topology_key);
                }
            }
            let tally = self.tally_mut(&spread.counted);
            tally.users -= 1;
            if tally.users == 0 {
                self.drop_tally(&spread.counted);
            }
        }
    }

    fn tally_mut(&mut self, counted: &Counted) -> &mut Tally {
        let index = match self.tallies.get(counted) {
            Some(index) => *index,
            None => {
                let index = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(None);
                    self.slots.len() - 1
                });
                self.tallies.insert(counted.clone(), index);
                self.by_namespace.entry(counted.namespace.clone()).or_default().push(index);
                index
            }
        };
        let fresh = || Tally { users: 0, counted: counted.clone(), of_node: Vec::new() };
        self.slots[index].get_or_insert_with(fresh)
    }

    fn drop_tally(&mut self, counted: &Counted) {
        let Some(index) = self.tallies.remove(counted) else { return };
        self.slots[index] = None;
        self.free.push(index);
        if let Some(known) = self.by_namespace.get_mut(&counted.namespace) {
            known.retain(|other| *other != index);
            if known.is_empty() {
                self.by_namespace.remove(&counted.namespace);
            }
        }
    }

    /// A node came, changed, or went.
    pub(crate) fn node_changed(&mut self, index: NodeIndex, record: Option<&NodeRecord>) {
        for (key, domains) in &mut self.keys {
            domains.set(index, record.and_then(|record| record.labels.get(key)));
        }
    }

    /// A pod comes to a node, or leaves it.
    pub(crate) fn pod_moved(&mut self, node: NodeIndex, pod: &PodRecord, comes: bool) {
        let Some(tallies) = self.by_namespace.get(&pod.name.namespace) else { return };
        for index in tallies {
            if let Some(tally) = &mut self.slots[*index] {
                tally.change(node, pod, comes);
            }
        }
    }

    pub(crate) fn domains(&self, key: &str) -> Option<&Domains> {
        self.keys.get(key)
    }

    pub(crate) fn tally(&self, counted: &Counted) -> Option<&Tally> {
        self.slots.get(*self.tallies.get(counted)?)?.as_ref()
    }

    /// Whether nothing is kept that nobody asks for, and every tally is what its pods add up to.
    pub(crate) fn is_sound<'a>(
        &self,
        pods: impl Iterator<Item = (NodeIndex, &'a PodRecord)> + Clone,
    ) -> bool {
        self.slots.iter().flatten().all(|tally| {
            let mut anew = Tally { users: tally.users, counted: tally.counted.clone(), of_node: Vec::new() };
            pods.clone().for_each(|(index, pod)| anew.change(index, pod, true));
            let longest = anew.of_node.len().max(tally.of_node.len());
            (0..longest).all(|index| {
                let at = |counts: &[u32]| counts.get(index).copied().unwrap_or(0);
                at(&anew.of_node) == at(&tally.of_node)
            })
        })
    }
}
