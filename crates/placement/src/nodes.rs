//! What is free where? Every node with what its pods take, assumed ones included.

use std::collections::BTreeMap;

use gangway_model::{NodeName, PODS_RESOURCE};

use crate::records::NodeRecord;
use crate::shapes::{Column, Columns, Shape};

/// A node and what is taken of it. Sums are wider than any single amount, so they never saturate and
/// taking back always restores what was there.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) record: NodeRecord,
    /// By column; shorter than the columns where the node offers nothing of the last ones.
    allocatable: Vec<i64>,
    pod_limit: Option<i64>,
    usage: Usage,
}

/// What the pods on one node take together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) taken: BTreeMap<Column, i128>,
    pub(crate) scored_cpu_millis: i128,
    pub(crate) scored_memory_bytes: i128,
    pub(crate) pods: i64,
}

impl Usage {
    pub(crate) fn add(&mut self, shape: &Shape) {
        self.change(shape, 1);
    }

    fn subtract(&mut self, shape: &Shape) {
        self.change(shape, -1);
    }

    fn change(&mut self, shape: &Shape, sign: i128) {
        for (column, amount) in &shape.needs {
            let taken = self.taken.entry(*column).or_insert(0);
            *taken += sign * i128::from(*amount);
            if *taken == 0 {
                self.taken.remove(column);
            }
        }
        self.scored_cpu_millis += sign * i128::from(shape.scored_cpu_millis());
        self.scored_memory_bytes += sign * i128::from(shape.scored_memory_bytes());
        self.pods += if sign > 0 { 1 } else { -1 };
    }

    fn taken(&self, column: Column) -> i128 {
        self.taken.get(&column).copied().unwrap_or(0)
    }
}

impl Node {
    pub(crate) fn new(columns: &mut Columns, record: NodeRecord, usage: Usage) -> Self {
        let mut allocatable = Vec::new();
        let pod_limit =
            record.allocatable.contains(PODS_RESOURCE).then(|| record.allocatable.get(PODS_RESOURCE));
        for (name, amount) in record.allocatable.iter() {
            let index = columns.column(name).index();
            if allocatable.len() <= index {
                allocatable.resize(index + 1, 0);
            }
            allocatable[index] = amount;
        }
        Self { record, allocatable, pod_limit, usage }
    }

    pub(crate) fn allocatable(&self, column: Column) -> i64 {
        self.allocatable.get(column.index()).copied().unwrap_or(0)
    }

    /// Negative where more is taken than there is: others may bind too, and nodes may shrink.
    pub(crate) fn free(&self, column: Column) -> i128 {
        i128::from(self.allocatable(column)) - self.usage.taken(column)
    }

    pub(crate) fn has_room_for_one_more_pod(&self) -> bool {
        self.pod_limit.is_none_or(|limit| self.usage.pods < limit)
    }

    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }
}

/// All nodes by name.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    present: BTreeMap<NodeName, Node>,
    /// Use of nodes that are not there: pods and nodes are watched apart and arrive in any order.
    absent: BTreeMap<NodeName, Usage>,
}

impl Nodes {
    /// Takes over what was observed; says whether it is news.
    pub(crate) fn apply(&mut self, columns: &mut Columns, record: NodeRecord) -> bool {
        let usage = match self.present.get(&record.name) {
            Some(known) if known.record == record => return false,
            Some(known) => known.usage.clone(),
            None => self.absent.remove(&record.name).unwrap_or_default(),
        };
        self.present.insert(record.name.clone(), Node::new(columns, record, usage));
        true
    }

    /// The node is gone; its pods are remembered until they are gone too.
    pub(crate) fn delete(&mut self, name: &NodeName) -> bool {
        let Some(node) = self.present.remove(name) else { return false };
        if node.usage != Usage::default() {
            self.absent.insert(name.clone(), node.usage);
        }
        true
    }

    /// A pod of this shape takes its room on the node.
    pub(crate) fn occupy(&mut self, name: &NodeName, shape: &Shape) {
        match self.present.get_mut(name) {
            Some(node) => node.usage.add(shape),
            None => self.absent.entry(name.clone()).or_default().add(shape),
        }
    }

    /// A pod of this shape gives its room back.
    pub(crate) fn vacate(&mut self, name: &NodeName, shape: &Shape) {
        if let Some(node) = self.present.get_mut(name) {
            node.usage.subtract(shape);
        } else if let Some(usage) = self.absent.get_mut(name) {
            usage.subtract(shape);
            if *usage == Usage::default() {
                self.absent.remove(name);
            }
        }
    }

    pub(crate) fn get(&self, name: &NodeName) -> Option<&Node> {
        self.present.get(name)
    }

    /// Every node that is there, by name.
    pub(crate) fn all(&self) -> Vec<&Node> {
        self.present.values().collect()
    }

    /// Use by node, of absent nodes too, leaving out those without pods.
    pub(crate) fn usages(&self) -> BTreeMap<NodeName, Usage> {
        let present = self.present.iter().map(|(name, node)| (name.clone(), node.usage.clone()));
        let absent = self.absent.iter().map(|(name, usage)| (name.clone(), usage.clone()));
        present.chain(absent).filter(|(_, usage)| *usage != Usage::default()).collect()
    }
}
