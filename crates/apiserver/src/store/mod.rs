//! Where objects live: tables of objects, one version counter, a log of changes per table.
//!
//! **The contract.** Objects are bytes plus a [`Header`]; nothing here looks into the bytes.
//! [`Store::commit`] is a compare-and-set and the only way to change anything. Readers and
//! watchers see a change only after its commit, whole, and in the order of versions.
//! `commit` is async because a durable store answers when the change is on disk.

mod object;
mod table;

use std::collections::BTreeMap;

use parking_lot::RwLock;

pub(crate) use object::{Body, Header, Stored, WirePrefix};
pub use table::ChangeKind;
use table::Table;
pub(crate) use table::{Change, Doorbell, Key, LogRead, Page, TableId};

use std::sync::Arc;

/// What must hold for a commit to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// No object of this name.
    Absent,
    /// The object is at this version.
    Version(u64),
}

/// What a commit does to the object.
#[derive(Debug)]
pub(crate) enum Write {
    Put(Body),
    Delete,
}

/// Another object that must exist and not be on its way out: the namespace of a new object.
#[derive(Debug, Clone)]
pub(crate) struct Requires {
    pub(crate) table: TableId,
    pub(crate) key: Key,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CommitError {
    #[error("an object of this name exists")]
    Exists,
    #[error("the object is gone")]
    Gone,
    #[error("the object has changed")]
    Changed,
    #[error("the required object does not exist")]
    RequiredMissing,
    #[error("the required object is being deleted")]
    RequiredTerminating,
    #[error("the table is gone")]
    NoTable,
}

/// Everything that is stored. Cheap reads, one writer at a time.
#[derive(Debug)]
pub(crate) struct Store {
    state: RwLock<State>,
    log_capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    next_table: usize,
    tables: BTreeMap<TableId, Table>,
}

impl Store {
    pub(crate) fn new(log_capacity: usize) -> Self {
        // Version 0 means "any" in requests, so the first change must not be 1 below a list at 0.
        let state = State { version: 1, ..State::default() };
        Self { state: RwLock::new(state), log_capacity: log_capacity.max(1) }
    }

    /// The version of the last commit.
    pub(crate) fn version(&self) -> u64 {
        self.state.read().version
    }

    pub(crate) fn create_table(&self) -> TableId {
        let mut state = self.state.write();
        let id = TableId(state.next_table);
        state.next_table += 1;
        state.tables.insert(id, Table::new());
        id
    }

    /// Removes a table and what is left in it; its watchers end.
    pub(crate) fn drop_table(&self, table: TableId) {
        self.state.write().tables.remove(&table);
    }

    pub(crate) fn get(&self, table: TableId, key: &Key) -> Option<Arc<Stored>> {
        self.state.read().tables.get(&table)?.get(key)
    }

    /// Objects after `after` in key order, of one namespace or all, that `keep` wants: at most
    /// `limit`, and whether there are more; and the version they are as of.
    pub(crate) fn page(
        &self,
        table: TableId,
        namespace: Option<&str>,
        after: Option<&Key>,
        limit: usize,
        keep: &dyn Fn(&Key, &Stored) -> bool,
    ) -> Page {
        let state = self.state.read();
        let mut page = Page { version: state.version, objects: Vec::new(), more: false };
        let Some(table) = state.tables.get(&table) else { return page };
        for (key, object) in table.iter(namespace, after).filter(|(key, object)| keep(key, object)) {
            if page.objects.len() == limit {
                page.more = true;
                break;
            }
            page.objects.push((key.clone(), object.clone()));
        }
        page
    }

    /// All objects of one namespace or of the table.
    pub(crate) fn all(&self, table: TableId, namespace: Option<&str>) -> Vec<(Key, Arc<Stored>)> {
        self.page(table, namespace, None, usize::MAX, &|_, _| true).objects
    }

    pub(crate) fn count(&self, table: TableId, namespace: Option<&str>) -> usize {
        self.state.read().tables.get(&table).map_or(0, |table| table.count(namespace))
    }

    /// A bell that rings at every change of the table. Listen before reading.
    pub(crate) fn doorbell(&self, table: TableId) -> Option<Doorbell> {
        Some(self.state.read().tables.get(&table)?.doorbell())
    }

    /// The changes of all tables after version `after` that are still in their logs, in order.
    pub(crate) fn all_changes(&self, after: u64) -> Vec<(TableId, Arc<Change>)> {
        let state = self.state.read();
        let of_table = |(id, table): (&TableId, &Table)| -> Vec<(TableId, Arc<Change>)> {
            match table.changes(after, usize::MAX, state.version) {
                LogRead::Changes(changes) => changes.into_iter().map(|change| (*id, change)).collect(),
                _ => Vec::new(),
            }
        };
        let mut all: Vec<_> = state.tables.iter().flat_map(of_table).collect();
        all.sort_by_key(|(_, change)| change.object.version);
        all
    }

    /// At most `limit` changes after version `after`.
    pub(crate) fn changes(&self, table: TableId, after: u64, limit: usize) -> LogRead {
        let state = self.state.read();
        match state.tables.get(&table) {
            Some(table) => table.changes(after, limit, state.version),
            None => LogRead::NoTable,
        }
    }

    /// Changes one object if `expect` holds; says the new state of it.
    pub(crate) async fn commit(
        &self,
        table: TableId,
        key: Key,
        expect: Expect,
        write: Write,
        requires: Option<Requires>,
    ) -> Result<Arc<Stored>, CommitError> {
        let mut state = self.state.write();
        if let Some(required) = requires {
            let found = state.tables.get(&required.table).and_then(|table| table.get(&required.key));
            match found {
                None => return Err(CommitError::RequiredMissing),
                Some(found) if found.header.deletion.is_some() => {
                    return Err(CommitError::RequiredTerminating);
                }
                Some(_) => {}
            }
        }
        let version = state.version + 1;
        let table = state.tables.get_mut(&table).ok_or(CommitError::NoTable)?;
        let stored = table.apply(key, expect, write, version, self.log_capacity)?;
        state.version = version;
        Ok(stored)
    }
}
