//! Who may be preempted, and in which order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Bound;

use gangway_model::queues::{BorrowWithinCohort, ReclaimWithinCohort, WithinClusterQueue};
use gangway_model::reasons::PreemptionReason;
use smallvec::SmallVec;

use crate::ids::{CellId, NodeId, QueueId};
use crate::ledger::{Account, Holder, HolderKey, QueueView};
use crate::preemption::fronts::Fronts;
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
    sources: Vec<Firsts<'l>>,
}

/// Another queue from which may be taken, with its first candidates.
struct Firsts<'l> {
    source: Source,
    /// Of those on their way out.
    leaving: Option<&'l HolderKey>,
    /// Of those that stay.
    staying: Option<&'l HolderKey>,
}

/// Other queues of the tree that use more than their own of what is asked for. Walks from the asker's cohort to the
/// root: outside the smallest subtree whose quota the request fits, the asker has the better claim.
pub(crate) fn sources(
    tree: &Tree,
    node: NodeId,
    request: Request<'_>,
    queue_of: impl Fn(NodeId) -> Option<QueueId>,
) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut below = node;
    let amounts = request.amounts.iter();
    let mut remaining: SmallVec<[(CellId, i128); 4]> =
        amounts.map(|(cell, amount)| (*cell, i128::from(*amount))).collect();
    let mut hierarchical = false;
    while let Some(common) = tree.parent(below) {
        let fits = remaining.iter().all(|(cell, amount)| !tree.borrows_with(below, *cell, *amount));
        for (cell, amount) in &mut remaining {
            *amount = tree.beyond_local(below, *cell, *amount);
        }
        hierarchical |= fits;
        let mut open: SmallVec<[NodeId; 4]> = SmallVec::from_elem(common, 1);
        while let Some(parent) = open.pop() {
            // Who uses no more than its own has nothing to give back.
            for node in tree.borrowers(parent, request.needing).filter(|node| *node != below) {
                match queue_of(node) {
                    Some(queue) => sources.push(Source { queue, node, common, hierarchical }),
                    None => open.push(node),
                }
            }
        }
        below = common;
    }
    sources
}

impl<'l> Candidates<'l> {
    /// The candidates among the holders of the asker's queue and of `sources`, whose fronts were found.
    pub(crate) fn of(
        accounts: &'l [Account],
        fronts: &'l Fronts,
        asker: Asker<'l>,
        request: Request<'l>,
        view: &'l QueueView,
        sources: Vec<Source>,
    ) -> Self {
        let mut found = Self { accounts, asker, request, view, sources: Vec::new() };
        let limit = priority_limit(view, asker, true);
        let firsts = |source: Source| {
            accounts[source.queue.index()].view.as_ref().filter(|view| view.active)?;
            let (leaving, staying) = fronts.get(source.queue, request.needing);
            let first = |front, stays| found.first(source, front, stays, limit);
            let (leaving, staying) = (first(leaving, false), first(staying, true));
            (leaving.is_some() || staying.is_some()).then_some(Firsts { source, leaving, staying })
        };
        found.sources = sources.into_iter().filter_map(firsts).collect();
        found
    }

    /// Whether anybody of another queue may be taken.
    pub(crate) fn any_elsewhere(&self) -> bool {
        !self.sources.is_empty()
    }

    /// Whether anybody may be taken by a hierarchical right.
    pub(crate) fn any_hierarchical(&self) -> bool {
        self.sources.iter().any(|firsts| firsts.source.hierarchical)
    }

    /// The first candidate of another queue whose first holder is `front`.
    fn first(
        &self,
        source: Source,
        front: Option<&'l HolderKey>,
        stays: bool,
        limit: Option<i32>,
    ) -> Option<&'l HolderKey> {
        let front = front.filter(|front| limit.is_none_or(|limit| front.priority < limit))?;
        if self.asker.barred.is_empty() {
            return Some(front);
        }
        self.legal(Some(source), stays, Bound::Included(front)).next().map(|(key, _)| key)
    }

    /// The candidates of one queue, those that stay or those on their way out, in order.
    fn legal(
        &self,
        source: Option<Source>,
        stays: bool,
        from: Bound<&HolderKey>,
    ) -> impl Iterator<Item = (&'l HolderKey, Candidate<'l>)> + use<'l> {
        let queue = source.map_or(self.asker.queue, |source| source.queue);
        let holders = &self.accounts[queue.index()].holders;
        let (asker, request, view) = (self.asker, self.request, self.view);
        let limit = priority_limit(view, asker, source.is_some());
        holders
            .range((from, Bound::Unbounded))
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
            let elsewhere = move |hierarchical| Merged::new(self, hierarchical, stays);
            let own = self.legal(None, stays, Bound::Unbounded).map(|(_, candidate)| candidate);
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

/// The candidates of several queues as one list. A queue's holders are looked at one by one, as they are taken.
struct Merged<'c, 'l> {
    candidates: &'c Candidates<'l>,
    stays: bool,
    fronts: BinaryHeap<Reverse<Front<'l>>>,
}

/// The next of one queue.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Front<'l> {
    key: &'l HolderKey,
    /// Its number among the sources.
    source: usize,
}

impl<'c, 'l> Merged<'c, 'l> {
    fn new(candidates: &'c Candidates<'l>, hierarchical: bool, stays: bool) -> Self {
        let sources = candidates.sources.iter().enumerate();
        let front = |(source, firsts): (usize, &Firsts<'l>)| {
            let key = if stays { firsts.staying? } else { firsts.leaving? };
            (firsts.source.hierarchical == hierarchical).then_some(Reverse(Front { key, source }))
        };
        let fronts: Vec<_> = sources.filter_map(front).collect();
        Self { candidates, stays, fronts: fronts.into() }
    }
}

impl<'l> Iterator for Merged<'_, 'l> {
    type Item = Candidate<'l>;

    fn next(&mut self) -> Option<Candidate<'l>> {
        let Reverse(front) = self.fronts.pop()?;
        let source = self.candidates.sources[front.source].source;
        let mut rest = self.candidates.legal(Some(source), self.stays, Bound::Included(front.key));
        let (_, candidate) = rest.next()?;
        if let Some((key, _)) = rest.next() {
            self.fronts.push(Reverse(Front { key, source: front.source }));
        }
        Some(candidate)
    }
}
