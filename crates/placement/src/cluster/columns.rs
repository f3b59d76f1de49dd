//! Resources as indexes, so that nodes keep amounts in arrays.

use gangway_model::{Requests, ResourceName};
use rustc_hash::FxHashMap;

/// A resource as an index.
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

    pub(crate) fn find(&self, name: &str) -> Option<Column> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn name(&self, column: Column) -> Option<&ResourceName> {
        self.names.get(column.index())
    }

    /// What is asked for, by column, without what is asked for with 0.
    pub(crate) fn needs(&mut self, requests: &Requests) -> Vec<(Column, i64)> {
        let asked = requests.iter().filter(|(_, amount)| *amount > 0);
        let mut needs: Vec<_> = asked.map(|(name, amount)| (self.column(name), amount)).collect();
        needs.sort_unstable();
        needs
    }
}
