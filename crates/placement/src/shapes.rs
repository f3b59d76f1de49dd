//! What makes two pods the same to every filter and score.

use gangway_model::constraints::Constraints;
use gangway_model::{Requests, ResourceName};
use rustc_hash::FxHashMap;

/// A resource as an index, so that nodes keep amounts in arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Column(u32);

impl Column {
    pub(crate) const CPU: Self = Self(0);
    pub(crate) const MEMORY: Self = Self(1);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Every resource name seen so far. Grows with the number of distinct resources only.
#[derive(Debug)]
pub(crate) struct Columns {
    names: Vec<ResourceName>,
    /// Looked up, never walked.
    by_name: FxHashMap<ResourceName, Column>,
}

impl Default for Columns {
    fn default() -> Self {
        let mut columns = Self { names: Vec::new(), by_name: FxHashMap::default() };
        for name in ["cpu", "memory"] {
            columns.column(&ResourceName::from(name));
        }
        columns
    }
}

impl Columns {
    pub(crate) fn column(&mut self, name: &ResourceName) -> Column {
        if let Some(column) = self.by_name.get(name) {
            return *column;
        }
        // One column per distinct resource name; four thousand million of them do not fit in memory.
        let column = Column(u32::try_from(self.names.len()).unwrap_or(u32::MAX));
        self.names.push(name.clone());
        self.by_name.insert(name.clone(), column);
        column
    }

    pub(crate) fn name(&self, column: Column) -> Option<&ResourceName> {
        self.names.get(column.index())
    }
}

/// Requests and constraints of a pod. Pods of one shape fit the same nodes at any moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Resources with a positive amount, by column.
    pub(crate) needs: Vec<(Column, i64)>,
    pub(crate) constraints: Constraints,
}

/// What a pod without a CPU request is taken to use when nodes are scored (in millicores).
const ASSUMED_CPU_MILLIS: i64 = 100;
/// What a pod without a memory request is taken to use when nodes are scored (in bytes).
const ASSUMED_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

impl Shape {
    pub(crate) fn new(columns: &mut Columns, requests: &Requests, constraints: &Constraints) -> Self {
        let mut needs: Vec<_> = requests
            .iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(name, amount)| (columns.column(name), amount))
            .collect();
        needs.sort_unstable();
        Self { needs, constraints: constraints.clone() }
    }

    pub(crate) fn need(&self, column: Column) -> i64 {
        self.needs.iter().find(|(c, _)| *c == column).map_or(0, |(_, amount)| *amount)
    }

    /// CPU for scoring only: a pod without a request is not taken to be free of charge, or all of them
    /// would pile up on one node.
    pub(crate) fn scored_cpu_millis(&self) -> i64 {
        match self.need(Column::CPU) {
            0 => ASSUMED_CPU_MILLIS,
            amount => amount,
        }
    }

    /// Memory for scoring only, likewise.
    pub(crate) fn scored_memory_bytes(&self) -> i64 {
        match self.need(Column::MEMORY) {
            0 => ASSUMED_MEMORY_BYTES,
            amount => amount,
        }
    }
}
