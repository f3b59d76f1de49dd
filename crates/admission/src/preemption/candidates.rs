//! Who may be preempted, and in which order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gangway_model::queues::{BorrowWithinCohort, ReclaimWithinCohort, WithinClusterQueue};
use gangway_model::reasons::PreemptionReason;

use crate::ids::{NodeId, QueueId};
use crate::ledger::{Account, Holder, HolderKey, QueueView};
use crate::preemption::{Asker, Request};
use crate::tree::Tree;

/// By which right a candidate may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// It is of the asker's own queue.
    WithinQueue,
    /// The asker stays within a quota that it has a better claim to.
    Hierarchical,
    /// Lent quota is taken back, and the asker itself may not borrow.
    ReclaimWithoutBorrowing,
    /// The asker may borrow what the candidate had borrowed.
    ReclaimWhileBorrowing,
}

impl Right {
    pub(crate) fn reason(self) -> PreemptionReason {
        match self {
            Self::WithinQueue => PreemptionReason::InClusterQueue,
            Self::Hierarchical | Self::ReclaimWithoutBorrowing => PreemptionReason::InCohortReclamation,
            Self::ReclaimWhileBorrowing => PreemptionReason::InCohortReclaimWhileBorrowing,
        }
    }
}

/// Another queue from which may be taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) queue: QueueId,
    pub(crate) node: NodeId,
    /// The smallest cohort that has both this queue and the asker's.
    pub(crate) common: NodeId,
    hierarchical: bool,
}

/// A Workload that may be preempted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'l> {
    pub(crate) holder: &'l Holder,
    pub(crate) queue: QueueId,
    pub(crate) right: Right,
    /// Where it comes from; none if it is the asker's own queue.
    pub(crate) source: Option<Source>,
}

/// Everybody who may be preempted for one request.
pub(crate) struct Candidates<'l> {
    accounts: &'l [Account],
    asker: Asker<'l>,
    request: Request<'l>,
    view: &'l QueueView,
    sources: Vec<Source>,
    /// Whether anybody of another queue may be taken.
    pub(crate) any_elsewhere: bool,
    /// Whether anybody may be taken by a hierarchical right.
    pub(crate) any_hierarchical: bool,
}

impl<'l> Candidates<'l> {
    pub(crate) fn collect(
        accounts: &'l [Account],
        queue_of: &dyn Fn(NodeId) -> Option<QueueId>,
        tree: &Tree,
        asker: Asker<'l>,
        request: Request<'l>,
        view: &'l QueueView,
    ) -> Self {
        let mut found = Self {
            accounts,
            asker,
            request,
            view,
            sources: Vec::new(),
            any_elsewhere: false,
            any_hierarchical: false,
        };
        if view.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never {
            found.collect_elsewhere(tree, queue_of);
        }
        found
    }

    /// Walks from the asker's cohort to the root. Outside the smallest subtree whose quota the request
    /// fits, the asker has the better claim.
    fn collect_elsewhere(&mut self, tree: &Tree, queue_of: &dyn Fn(NodeId) -> Option<QueueId>) {
        let mut below = self.view.node;
        let mut remaining: Vec<_> =
            self.request.amounts.iter().map(|(cell, amount)| (*cell, i128::from(*amount))).collect();
        let mut has_better_claim = false;
        while let Some(common) = tree.parent(below) {
            let fits = remaining.iter().all(|(cell, amount)| !tree.borrows_with(below, *cell, *amount));
            for (cell, amount) in &mut remaining {
                *amount = tree.beyond_local(below, *cell, *amount);
            }
            has_better_claim |= fits;
            let mut open: Vec<NodeId> = vec![common];
            while let Some(node) = open.pop() {
                for child in tree.children(node) {
                    // Who uses no more than its own has nothing to give back.
                    if *child == below || tree.is_within_quota(*child, self.request.needing) {
                        continue;
                    }
                    match queue_of(*child) {
                        Some(queue) => self.add_source(Source {
                            queue,
                            node: *child,
                            common,
                            hierarchical: has_better_claim,
                        }),
                        None => open.push(*child),
                    }
                }
            }
            below = common;
        }
    }

    fn add_source(&mut self, source: Source) {
        let is_active = self.accounts[source.queue.index()].view.as_ref().is_some_and(|view| view.active);
        if is_active && self.legal(Some(source), true).chain(self.legal(Some(source), false)).next().is_some()
        {
            self.any_elsewhere = true;
            self.any_hierarchical |= source.hierarchical;
            self.sources.push(source);
        }
    }

    /// The candidates of one queue, those that stay or those on their way out, in order.
    fn legal(
        &self,
        source: Option<Source>,
        stays: bool,
    ) -> impl Iterator<Item = (&'l HolderKey, Candidate<'l>)> + use<'l> {
        let queue = source.map_or(self.asker.queue, |source| source.queue);
        let holders = &self.accounts[queue.index()].holders;
        let (asker, request, view) = (self.asker, self.request, self.view);
        let limit = priority_limit(view, asker, source.is_some());
        holders
            .iter()
            .skip_while(move |(key, _)| key.stays != stays)
            .take_while(move |(key, _)| key.stays == stays && limit.is_none_or(|limit| key.priority < limit))
            .filter_map(move |(key, holder)| {
                let right = right(view, asker, request, key, holder, source)?;
                Some((key, Candidate { holder, queue, right, source }))
            })
    }

    /// All of them: first who is on the way out, and of both kinds first who may be taken by the better
    /// claim, then who else is of another queue, then the asker's own.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = Candidate<'l>> {
        [false, true].into_iter().flat_map(move |stays| {
            let elsewhere = move |hierarchical| {
                let sources = self.sources.iter().filter(move |source| source.hierarchical == hierarchical);
                Merged::new(sources.map(|source| self.legal(Some(*source), stays)).collect())
            };
            let own = self.legal(None, stays).map(|(_, candidate)| candidate);
            elsewhere(true).chain(elsewhere(false)).chain(own)
        })
    }
}

/// Candidates of this priority and above are out of reach, whoever they are; none if nobody is.
fn priority_limit(view: &QueueView, asker: Asker<'_>, elsewhere: bool) -> Option<i32> {
    if elsewhere {
        return match view.preemption.reclaim_within_cohort {
            ReclaimWithinCohort::Never => Some(i32::MIN),
            ReclaimWithinCohort::LowerPriority => Some(asker.priority),
            ReclaimWithinCohort::Any => None,
        };
    }
    match view.preemption.within_cluster_queue {
        WithinClusterQueue::Never => Some(i32::MIN),
        WithinClusterQueue::LowerPriority => Some(asker.priority),
        WithinClusterQueue::LowerOrNewerEqualPriority => asker.priority.checked_add(1),
    }
}

/// By which right the asker may take somebody whose priority is within reach, if by any.
fn right(
    view: &QueueView,
    asker: Asker<'_>,
    request: Request<'_>,
    key: &HolderKey,
    holder: &Holder,
    source: Option<Source>,
) -> Option<Right> {
    let uses_any = holder.usage.iter().any(|(cell, _)| request.needing.contains(cell));
    if !uses_any || asker.barred.contains(&holder.id) {
        return None;
    }
    let Some(source) = source else {
        let lower = key.priority < asker.priority;
        return (lower || asker.queued_at < holder.queued_at).then_some(Right::WithinQueue);
    };
    if source.hierarchical {
        return Some(Right::Hierarchical);
    }
    Some(match view.preemption.borrow_within_cohort {
        BorrowWithinCohort::LowerPriority { max_priority }
            if key.priority < asker.priority && max_priority.is_none_or(|most| key.priority <= most) =>
        {
            Right::ReclaimWhileBorrowing
        }
        _ => Right::ReclaimWithoutBorrowing,
    })
}

/// Several ordered lists as one.
struct Merged<'l, I: Iterator<Item = (&'l HolderKey, Candidate<'l>)>> {
    lists: Vec<I>,
    fronts: BinaryHeap<Reverse<Front<'l>>>,
}

struct Front<'l> {
    key: &'l HolderKey,
    list: usize,
    candidate: Candidate<'l>,
}

impl PartialEq for Front<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Front<'_> {}

impl PartialOrd for Front<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Front<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(other.key)
    }
}

impl<'l, I: Iterator<Item = (&'l HolderKey, Candidate<'l>)>> Merged<'l, I> {
    fn new(mut lists: Vec<I>) -> Self {
        let fronts = lists
            .iter_mut()
            .enumerate()
            .filter_map(|(list, items)| {
                let (key, candidate) = items.next()?;
                Some(Reverse(Front { key, list, candidate }))
            })
            .collect();
        Self { lists, fronts }
    }
}

impl<'l, I: Iterator<Item = (&'l HolderKey, Candidate<'l>)>> Iterator for Merged<'l, I> {
    type Item = Candidate<'l>;

    fn next(&mut self) -> Option<Candidate<'l>> {
        let Reverse(front) = self.fronts.pop()?;
        if let Some((key, candidate)) = self.lists[front.list].next() {
            self.fronts.push(Reverse(Front { key, list: front.list, candidate }));
        }
        Some(front.candidate)
    }
}
