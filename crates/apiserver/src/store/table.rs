//! The objects of one kind and the log of their changes.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use tokio::sync::Notify;

use super::object::SharedLine;
use super::{Body, CommitError, Expect, Stored, WirePrefix, Write};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TableId(pub(super) usize);

/// Namespace (empty for cluster-scoped kinds) and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is another than before.
    Modified,
    /// It is gone.
    Deleted,
}

impl ChangeKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// One entry of a table's log.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) kind: ChangeKind,
    pub(crate) key: Key,
    /// The object after the change; for a deletion its last state with the version of the deletion.
    pub(crate) object: Arc<Stored>,
    /// The object before the change, for watchers whose selector it may have entered or left.
    pub(crate) previous: Option<Arc<Stored>>,
    line: SharedLine,
}

impl Change {
    /// Appends the watch line in the storage version, rendered once for all watchers.
    pub(crate) fn write_shared_line(&self, storage: &WirePrefix, out: &mut BytesMut) {
        out.put_slice(self.line.get(&self.object, self.kind.as_str(), storage));
    }
}

/// A part of a table, as of one version.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) version: u64,
    pub(crate) objects: Vec<(Key, Arc<Stored>)>,
    /// Whether the limit cut the page short.
    pub(crate) more: bool,
}

#[derive(Debug)]
pub(crate) enum LogRead {
    Changes(Vec<Arc<Change>>),
    /// Nothing new; the reader is up to date as of this version.
    UpToDate(u64),
    /// The log does not reach back to the version asked for, or that version is yet to come.
    TooOld,
    NoTable,
}

#[derive(Debug)]
pub(super) struct Table {
    objects: BTreeMap<Key, Arc<Stored>>,
    log: VecDeque<Arc<Change>>,
    /// Changes up to and including this version are no longer in the log.
    forgotten: u64,
    doorbell: Doorbell,
}

/// Rings at every change of a table, and when the table is gone. Whoever has waited longest hears it first, so that the same
/// requests wake the same watchers in the same order every time.
pub(crate) type Doorbell = Arc<Notify>;

impl Drop for Table {
    fn drop(&mut self) {
        self.doorbell.notify_waiters();
    }
}

impl Table {
    pub(super) fn new() -> Self {
        Self { objects: BTreeMap::new(), log: VecDeque::new(), forgotten: 0, doorbell: Doorbell::default() }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Stored>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    pub(super) fn iter<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        let start = match (after, namespace) {
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        let inside = move |key: &Key| namespace.is_none_or(|namespace| key.namespace == namespace);
        self.objects.range((start, Bound::Unbounded)).take_while(move |(key, _)| inside(key))
    }

    pub(super) fn count(&self, namespace: Option<&str>) -> usize {
        match namespace {
            None => self.objects.len(),
            Some(_) => self.iter(namespace, None).count(),
        }
    }

    pub(super) fn changes(&self, after: u64, limit: usize, current: u64) -> LogRead {
        if after < self.forgotten || after > current {
            return LogRead::TooOld;
        }
        let start = self.log.partition_point(|change| change.object.version <= after);
        let changes: Vec<_> = self.log.range(start..).take(limit).cloned().collect();
        if changes.is_empty() { LogRead::UpToDate(current) } else { LogRead::Changes(changes) }
    }

    pub(super) fn apply(
        &mut self,
        key: Key,
        expect: Expect,
        write: Write,
        version: u64,
        log_capacity: usize,
    ) -> Result<Arc<Stored>, CommitError> {
        let previous = self.objects.get(&key).cloned();
        match (expect, &previous) {
            (Expect::Absent, Some(_)) => return Err(CommitError::Exists),
            (Expect::Version(_), None) => return Err(CommitError::Gone),
            (Expect::Version(expected), Some(previous)) if expected != previous.version => {
                return Err(CommitError::Changed);
            }
            _ => {}
        }
        let (kind, object) = match write {
            Write::Put(Body { header, tail }) => {
                let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
                let object = Arc::new(Stored { version, header, tail });
                self.objects.insert(key.clone(), object.clone());
                (kind, object)
            }
            Write::Delete => {
                let last = previous.as_ref().ok_or(CommitError::Gone)?;
                let object =
                    Arc::new(Stored { version, header: last.header.clone(), tail: last.tail.clone() });
                self.objects.remove(&key);
                (ChangeKind::Deleted, object)
            }
        };
        let change = Change { kind, key, object: object.clone(), previous, line: SharedLine::default() };
        self.log.push_back(Arc::new(change));
        while self.log.len() > log_capacity {
            self.forgotten = self.log.pop_front().map_or(self.forgotten, |change| change.object.version);
        }
        self.doorbell.notify_waiters();
        Ok(object)
    }
}
