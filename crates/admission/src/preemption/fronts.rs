//! Who of a queue's holders would be preempted first for a cell. Searches ask that of every queue, again and again.

use std::collections::BTreeMap;

use crate::ids::{CellId, QueueId};
use crate::ledger::{Account, Holder, HolderKey};

/// The first holders by cell and queue, as far as they were asked for since the queue's holders last changed.
#[derive(Debug, Default)]
pub(crate) struct Fronts {
    by_cell: Vec<Vec<Option<Front>>>,
}

/// The first holders of a cell in one queue, in the order in which they would be preempted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Front {
    /// Of those on their way out.
    leaving: Option<HolderKey>,
    /// Of those that stay.
    staying: Option<HolderKey>,
}

impl Front {
    fn of(holders: &BTreeMap<HolderKey, Holder>, cell: CellId) -> Self {
        let mut front = Self::default();
        let uses = |holder: &Holder| holder.usage.iter().any(|(used, _)| *used == cell);
        for (key, _) in holders.iter().filter(|(_, holder)| uses(holder)) {
            if key.stays {
                front.staying = Some(key.clone());
                break;
            }
            front.leaving.get_or_insert_with(|| key.clone());
        }
        front
    }
}

impl Fronts {
    /// Somebody who uses this has come or gone.
    pub(crate) fn forget(&mut self, queue: QueueId, usage: &[(CellId, i64)]) {
        for (cell, _) in usage {
            let row = self.by_cell.get_mut(cell.index());
            if let Some(front) = row.and_then(|row| row.get_mut(queue.index())) {
                *front = None;
            }
        }
    }

    /// Works out who of a queue holds these cells first, unless it is known.
    pub(crate) fn find(&mut self, queue: QueueId, account: &Account, cells: &[CellId]) {
        for cell in cells {
            if self.by_cell.len() <= cell.index() {
                self.by_cell.resize_with(cell.index() + 1, Vec::new);
            }
            let row = &mut self.by_cell[cell.index()];
            if row.len() <= queue.index() {
                row.resize_with(queue.index() + 1, || None);
            }
            row[queue.index()].get_or_insert_with(|| Front::of(&account.holders, *cell));
        }
    }

    /// The first holder of any of these cells on its way out, and the first that stays; they were
    /// [found](Self::find) before.
    pub(crate) fn get(&self, queue: QueueId, cells: &[CellId]) -> (Option<&HolderKey>, Option<&HolderKey>) {
        let (mut leaving, mut staying) = (None, None);
        for cell in cells {
            let row = self.by_cell.get(cell.index());
            if let Some(front) = row.and_then(|row| row.get(queue.index())?.as_ref()) {
                leaving = first_of(leaving, front.leaving.as_ref());
                staying = first_of(staying, front.staying.as_ref());
            }
        }
        (leaving, staying)
    }

    /// Checks that nobody else would be first.
    pub(crate) fn check(&self, accounts: &[Account]) -> Result<(), String> {
        for (cell, row) in self.by_cell.iter().enumerate() {
            for (account, front) in accounts.iter().zip(row) {
                let is_right = |front: &Front| *front == Front::of(&account.holders, CellId::from(cell));
                if !front.as_ref().is_none_or(is_right) {
                    return Err("somebody else would be preempted first".into());
                }
            }
        }
        Ok(())
    }
}

fn first_of<'k>(one: Option<&'k HolderKey>, other: Option<&'k HolderKey>) -> Option<&'k HolderKey> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
