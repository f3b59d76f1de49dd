//! A node and what is taken of it.

use std::sync::Arc;

use gangway_model::PODS_RESOURCE;
use gangway_model::constraints::HostPort;

use super::columns::{Column, Columns};
use crate::ids::PodId;
use crate::records::NodeRecord;
use crate::shapes::Shape;

/// A node, its pods, and what they take. Cheap enough to copy for a question that begins with "if".
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) record: Arc<NodeRecord>,
    /// Whether it is there. What is not may have pods all the same: pods and nodes are watched apart and arrive in any order.
    pub(crate) is_present: bool,
    /// By column; shorter than the columns where the node offers nothing of the last ones.
    allocatable: Vec<i64>,
    pod_limit: Option<i64>,
    pub(crate) usage: Usage,
    /// Who is on it, assumed ones included, in no order.
    pub(crate) pods: Vec<PodId>,
    /// For whom room is made here.
    pub(crate) nominated: Vec<PodId>,
}

/// What the pods on one node take together. Sums are wider than any single amount, so they never saturate and taking back always
/// restores what was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// By column; no zeros at the end.
    taken: Vec<i128>,
    pub(crate) scored_cpu_millis: i128,
    pub(crate) scored_memory_bytes: i128,
    pub(crate) pods: i64,
    /// Each as often as it is taken: others may bind what does not fit.
    ports: Vec<HostPort>,
}

impl Usage {
    pub(crate) fn add(&mut self, shape: &Shape) {
        self.change(shape, 1);
        self.ports.extend(shape.ports.iter().cloned());
    }

    pub(crate) fn subtract(&mut self, shape: &Shape) {
        self.change(shape, -1);
        for port in &shape.ports {
            if let Some(position) = self.ports.iter().position(|taken| taken == port) {
                self.ports.remove(position);
            }
        }
    }

    fn change(&mut self, shape: &Shape, sign: i128) {
        for (column, amount) in &shape.needs {
            let index = column.index();
            if self.taken.len() <= index {
                self.taken.resize(index + 1, 0);
            }
            self.taken[index] += sign * i128::from(*amount);
        }
        while self.taken.last() == Some(&0) {
            self.taken.pop();
        }
        self.scored_cpu_millis += sign * i128::from(shape.scored_cpu_millis);
        self.scored_memory_bytes += sign * i128::from(shape.scored_memory_bytes);
        self.pods += if sign > 0 { 1 } else { -1 };
    }

    pub(crate) fn taken(&self, column: Column) -> i128 {
        self.taken.get(column.index()).copied().unwrap_or(0)
    }

    /// The same whatever the order in which the pods came.
    pub(crate) fn normalized(mut self) -> Self {
        self.ports.sort();
        self
    }
}

impl Node {
    /// A node that is not there.
    pub(crate) fn absent(record: Arc<NodeRecord>) -> Self {
        Self {
            record,
            is_present: false,
            allocatable: Vec::new(),
            pod_limit: Some(0),
            usage: Usage::default(),
            pods: Vec::new(),
            nominated: Vec::new(),
        }
    }

    /// Takes over what was observed of it.
    pub(crate) fn observe(&mut self, columns: &mut Columns, record: Arc<NodeRecord>) {
        let offered = &record.allocatable;
        self.pod_limit = offered.contains(PODS_RESOURCE).then(|| offered.get(PODS_RESOURCE));
        self.allocatable.clear();
        for (name, amount) in offered.iter() {
            let index = columns.column(name).index();
            if self.allocatable.len() <= index {
                self.allocatable.resize(index + 1, 0);
            }
            self.allocatable[index] = amount;
        }
        self.record = record;
        self.is_present = true;
    }

    pub(crate) fn allocatable(&self, column: Column) -> i64 {
        self.allocatable.get(column.index()).copied().unwrap_or(0)
    }

    /// Negative where more is taken than there is: others may bind too, and nodes may shrink.
    pub(crate) fn free(&self, column: Column) -> i128 {
        i128::from(self.allocatable(column)) - self.usage.taken(column)
    }

    /// How many more pods it takes, whatever they ask for.
    pub(crate) fn free_pods(&self) -> i64 {
        self.pod_limit.map_or(i64::MAX, |limit| limit.saturating_sub(self.usage.pods))
    }

    /// Whether it would take this pod's ports.
    pub(crate) fn has_free_ports(&self, wanted: &[HostPort]) -> bool {
        wanted.iter().all(|port| !self.usage.ports.iter().any(|taken| taken.conflicts_with(port)))
    }
}
