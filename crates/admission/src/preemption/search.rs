//! Removes candidates until the asker fits, then spares whom it can.

use gangway_model::queues::ReclaimWithinCohort;

use crate::ids::{CellId, NodeId, QueueId};
use crate::ledger::Ledger;
use crate::preemption::candidates::{Candidate, Candidates, Right};
use crate::preemption::{Asker, Request, Victim};
use crate::tree::Tree;

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Who has to leave; nobody if there is no way.
    pub(crate) victims: Vec<Victim>,
    /// How many were removed on the way and spared in the end.
    pub(crate) spared: usize,
}

/// Who has to leave so that the request fits. The trees are left as they were.
pub(crate) fn search(ledger: &mut Ledger, asker: Asker<'_>, request: Request<'_>) -> Found {
    let Ledger { tree, accounts, fronts, .. } = ledger;
    let Some(view) = accounts.get(asker.queue.index()).and_then(|account| account.view.as_ref()) else {
        return Found::default();
    };
    if !view.may_preempt() {
        return Found::default();
    }
    if view.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never {
        fronts.find(request.needing, accounts, tree);
    }
    let candidates = Candidates::of(accounts, fronts, tree, asker, request, view);
    let node_of = |queue: QueueId| accounts[queue.index()].view.as_ref().map(|view| view.node);
    let under_nominal = || {
        let under = |cell: &CellId| tree.usage(view.node, *cell) < tree.nominal(view.node, *cell);
        request.needing.iter().all(under)
    };
    let may_borrow = view.may_preempt_while_borrowing();
    let attempts: &[bool] = if !candidates.any_elsewhere(tree, false) || (!may_borrow && !under_nominal()) {
        &[true]
    } else if !may_borrow && !candidates.any_elsewhere(tree, true) {
        &[false, true]
    } else {
        &[true, false]
    };
    for borrows in attempts {
        let mut attempt = Attempt { tree, node: view.node, request, borrows: *borrows, removed: Vec::new() };
        if attempt.remove_until_it_fits(&candidates, &node_of) {
            let removed = attempt.removed.len();
            attempt.fill_back(&node_of);
            let victims: Vec<Victim> = attempt.removed.iter().map(|removed| removed.victim()).collect();
            attempt.restore(&node_of);
            return Found { spared: removed - victims.len(), victims };
        }
        attempt.restore(&node_of);
    }
    Found::default()
}

struct Attempt<'a, 'l> {
    tree: &'a mut Tree,
    node: NodeId,
    request: Request<'a>,
    /// Whether the asker may borrow in the end.
    borrows: bool,
    removed: Vec<Candidate<'l>>,
}

impl Candidate<'_> {
    fn victim(&self) -> Victim {
        let usage = self.holder.usage.clone();
        Victim { id: self.holder.id, queue: self.queue, reason: self.right.reason(), usage }
    }
}

impl<'l> Attempt<'_, 'l> {
    fn remove_until_it_fits(
        &mut self,
        candidates: &Candidates<'l>,
        node_of: &dyn Fn(QueueId) -> Option<NodeId>,
    ) -> bool {
        let mut in_order = candidates.in_order();
        while let Some(candidate) = in_order.next(self.tree) {
            if !self.may_take(&candidate) {
                continue;
            }
            self.book(&candidate, -1, node_of);
            self.removed.push(candidate);
            if self.fits() {
                return true;
            }
        }
        false
    }

    /// Whether a candidate that has something to give back may be taken in this attempt.
    fn may_take(&self, candidate: &Candidate<'l>) -> bool {
        !(self.borrows && candidate.right == Right::ReclaimWithoutBorrowing)
    }

    fn fits(&self) -> bool {
        self.request.amounts.iter().all(|(cell, amount)| {
            let amount = i128::from(*amount);
            amount <= self.tree.available(self.node, *cell)
                && (self.borrows || !self.tree.borrows_with(self.node, *cell, amount))
        })
    }

    /// Lets those stay whose leaving turns out not to be needed, the last removed first. The very last
    /// one was needed: without it the asker did not fit.
    fn fill_back(&mut self, node_of: &dyn Fn(QueueId) -> Option<NodeId>) {
        for index in (0..self.removed.len().saturating_sub(1)).rev() {
            let candidate = self.removed[index];
            self.book(&candidate, 1, node_of);
            if self.fits() {
                self.removed.remove(index);
            } else {
                self.book(&candidate, -1, node_of);
            }
        }
    }

    fn book(&mut self, candidate: &Candidate<'l>, sign: i64, node_of: &dyn Fn(QueueId) -> Option<NodeId>) {
        if let Some(node) = node_of(candidate.queue) {
            self.tree.add_all(node, &candidate.holder.usage, sign);
        }
    }

    fn restore(&mut self, node_of: &dyn Fn(QueueId) -> Option<NodeId>) {
        for candidate in std::mem::take(&mut self.removed) {
            self.book(&candidate, 1, node_of);
        }
    }
}
