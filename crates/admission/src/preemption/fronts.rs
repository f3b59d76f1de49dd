//! Who of each queue's holders would be preempted first for a cell, in order. Searches ask for that again and again, and
//! seldom for more than the first few.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::holders::Holders;
use crate::ids::{CellId, NodeId, QueueId};
use crate::ledger::{Account, Holder, HolderKey};
use crate::tree::Tree;

/// The first holders of every queue, by cell. What has changed is worked out again when the cell is next asked for.
#[derive(Debug, Default)]
pub(crate) struct Fronts {
    by_cell: Vec<Row>,
}

/// The first holders of one cell.
#[derive(Debug, Default)]
struct Row {
    /// By queue.
    fronts: Vec<Front>,
    /// The queues whose holders have changed since.
    changed: Vec<QueueId>,
    /// The fronts of each tree, by its root.
    order: FxHashMap<NodeId, Order>,
}

/// The first holders of a cell in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Front {
    /// Of those on their way out.
    leaving: Option<HolderKey>,
    /// Of those that stay.
    staying: Option<HolderKey>,
    is_changed: bool,
}

/// The fronts of one tree. The greatest would be preempted first.
#[derive(Debug, Default, PartialEq, Eq)]
struct Order {
    leaving: BTreeSet<(HolderKey, QueueId)>,
    staying: BTreeSet<(HolderKey, QueueId)>,
}

impl Front {
    fn of(holders: &Holders, cell: CellId) -> Self {
        let mut front = Self::default();
        let uses = |holder: &Holder| holder.usage.iter().any(|(used, _)| *used == cell);
        for (key, _) in holders.iter().rev().filter(|(_, holder)| uses(holder)) {
            if !key.leaves {
                front.staying = Some(key.clone());
                break;
            }
            front.leaving.get_or_insert_with(|| key.clone());
        }
        front
    }
}

impl Order {
    fn insert(&mut self, queue: QueueId, front: &Front) {
        self.leaving.extend(front.leaving.clone().map(|key| (key, queue)));
        self.staying.extend(front.staying.clone().map(|key| (key, queue)));
    }

    fn remove(&mut self, queue: QueueId, front: Front) {
        front.leaving.map(|key| self.leaving.remove(&(key, queue)));
        front.staying.map(|key| self.staying.remove(&(key, queue)));
    }
}

impl Row {
    fn find(&mut self, cell: CellId, accounts: &[Account], tree: &Tree) {
        let new = self.fronts.len()..accounts.len();
        self.changed.extend(new.map(QueueId::from));
        self.fronts.resize_with(accounts.len(), Front::default);
        for queue in self.changed.drain(..) {
            let account = &accounts[queue.index()];
            let Some(view) = &account.view else { continue };
            let order = self.order.entry(tree.root(view.node)).or_default();
            let front = &mut self.fronts[queue.index()];
            order.remove(queue, std::mem::take(front));
            *front = Front::of(&account.holders, cell);
            order.insert(queue, front);
        }
    }
}

impl Fronts {
    /// Trees are built anew, and queues may be in others.
    pub(crate) fn clear(&mut self) {
        self.by_cell.clear();
    }

    /// Somebody who uses this has come or gone.
    pub(crate) fn forget(&mut self, queue: QueueId, usage: &[(CellId, i64)]) {
        for (cell, _) in usage {
            let Some(row) = self.by_cell.get_mut(cell.index()) else { continue };
            if let Some(front) = row.fronts.get_mut(queue.index())
                && !std::mem::replace(&mut front.is_changed, true)
            {
                row.changed.push(queue);
            }
        }
    }

    /// Works out who holds these cells first, where it is not known.
    pub(crate) fn find(&mut self, cells: &[CellId], accounts: &[Account], tree: &Tree) {
        for cell in cells {
            if self.by_cell.len() <= cell.index() {
                self.by_cell.resize_with(cell.index() + 1, Row::default);
            }
            self.by_cell[cell.index()].find(*cell, accounts, tree);
        }
    }

    /// The first holders of a cell in the queues of a tree, of those that stay or those on their way out. They were
    /// [found](Self::find) before.
    pub(crate) fn of_tree(
        &self,
        root: NodeId,
        cell: CellId,
        stays: bool,
    ) -> Option<&BTreeSet<(HolderKey, QueueId)>> {
        let order = self.by_cell.get(cell.index())?.order.get(&root)?;
        Some(if stays { &order.staying } else { &order.leaving })
    }

    /// Checks that nobody else would be first.
    pub(crate) fn check(&self, accounts: &[Account], tree: &Tree) -> Result<(), String> {
        for (cell, row) in self.by_cell.iter().enumerate() {
            let mut expected: FxHashMap<NodeId, Order> = FxHashMap::default();
            for (index, (account, front)) in accounts.iter().zip(&row.fronts).enumerate() {
                let Some(view) = &account.view else { continue };
                expected.entry(tree.root(view.node)).or_default().insert(QueueId::from(index), front);
                if !front.is_changed && *front != Front::of(&account.holders, CellId::from(cell)) {
                    return Err("somebody else would be preempted first".into());
                }
            }
            if expected != row.order {
                return Err("first holders are not in order".into());
            }
        }
        Ok(())
    }
}
