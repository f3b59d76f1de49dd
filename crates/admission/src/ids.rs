//! Small numbers for names: what is looked at often is found by index, not by text.

use std::hash::Hash;

use gangway_model::{FlavorName, ResourceName};
use rustc_hash::FxHashMap;

macro_rules! ids {
    ($($(#[$doc:meta])* $type:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $type(pub(crate) u32);

        impl $type {
            pub(crate) fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl From<usize> for $type {
            /// There are never four billion of anything here.
            fn from(index: usize) -> Self {
                Self(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }
    )*};
}

ids! {
    /// A Workload, as long as it is known.
    WorkloadId;
    /// A ClusterQueue by name, whether it exists or not.
    QueueId;
    /// A LocalQueue by name, whether it exists or not.
    LocalQueueId;
    /// A flavor's resource: what quota is given for.
    CellId;
    /// A node of the quota tree.
    NodeId;
}

/// Numbers for names, for as long as the engine lives. A name that nobody uses any more keeps its number.
#[derive(Debug)]
pub(crate) struct Interner<K> {
    numbers: FxHashMap<K, u32>,
    names: Vec<K>,
}

impl<K> Default for Interner<K> {
    fn default() -> Self {
        Self { numbers: FxHashMap::default(), names: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash> Interner<K> {
    /// The number of a name, a new one if it has none yet.
    pub(crate) fn number(&mut self, name: &K) -> usize {
        if let Some(number) = self.numbers.get(name) {
            return *number as usize;
        }
        let number = self.names.len();
        self.names.push(name.clone());
        self.numbers.insert(name.clone(), u32::try_from(number).unwrap_or(u32::MAX));
        number
    }

    /// The number of a name, if it has one.
    pub(crate) fn find(&self, name: &K) -> Option<usize> {
        self.numbers.get(name).map(|number| *number as usize)
    }

    /// The name behind a number.
    pub(crate) fn name(&self, number: usize) -> &K {
        &self.names[number]
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

/// Numbers for flavors' resources.
pub(crate) type Cells = Interner<(FlavorName, ResourceName)>;

/// Amounts by cell, sorted, each cell once.
pub(crate) type CellAmounts = smallvec::SmallVec<[(CellId, i64); 4]>;

/// Adds to the amount of a cell. Sums saturate: a sum that did is more than anybody has.
pub(crate) fn add_amount(amounts: &mut CellAmounts, cell: CellId, value: i64) {
    match amounts.binary_search_by_key(&cell, |(cell, _)| *cell) {
        Ok(index) => amounts[index].1 = amounts[index].1.saturating_add(value),
        Err(index) => amounts.insert(index, (cell, value)),
    }
}

/// The amount of a cell; 0 if it is not there.
pub(crate) fn amount_of(amounts: &[(CellId, i64)], cell: CellId) -> i64 {
    amounts.binary_search_by_key(&cell, |(cell, _)| *cell).map_or(0, |index| amounts[index].1)
}
