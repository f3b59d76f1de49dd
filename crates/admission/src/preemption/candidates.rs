//! Who may be preempted, and in which order.

use std::collections::{BTreeSet, BinaryHeap, btree_set};
use std::iter::Rev;

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
}

/// Everybody who may be preempted for one request.
pub(crate) struct Candidates<'l> {
    accounts: &'l [Account],
    fronts: &'l Fronts,
    asker: Asker<'l>,
    request: Request<'l>,
    view: &'l QueueView,
    root: NodeId,
    /// The cohorts above the asker, and whether it has the better claim to what others below them use.
    above: SmallVec<[(NodeId, bool); 4]>,
}

impl<'l> Candidates<'l> {
    /// The candidates among the holders of the asker's queue and, if it may take from them, of others. Their fronts were
    /// found.
    pub(crate) fn of(
        accounts: &'l [Account],
        fronts: &'l Fronts,
        tree: &Tree,
        asker: Asker<'l>,
        request: Request<'l>,
        view: &'l QueueView,
    ) -> Self {
        let mut above = SmallVec::new();
        if view.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never {
            above = claims(tree, view.node, request);
        }
        Self { accounts, fronts, asker, request, view, root: tree.root(view.node), above }
    }

    /// Whether anybody of another queue may be taken; if `hierarchical`, by the better claim.
    pub(crate) fn any_elsewhere(&self, tree: &Tree, hierarchical: bool) -> bool {
        let kinds: &[bool] = if hierarchical { &[true] } else { &[true, false] };
        kinds.iter().any(|kind| {
            [false, true].into_iter().any(|stays| self.elsewhere(*kind, stays).next(tree).is_some())
        })
    }

    /// Another queue of the tree, as one from which may be taken.
    fn source(&self, tree: &Tree, queue: QueueId) -> Option<Source> {
        let view = self.accounts[queue.index()].view.as_ref().filter(|view| view.active)?;
        let mut below = view.node;
        while let Some(common) = tree.parent(below) {
            if let Some((_, hierarchical)) = self.above.iter().find(|(above, _)| *above == common) {
                return Some(Source { queue, node: view.node, common, hierarchical: *hierarchical });
            }
            below = common;
        }
        None
    }

    /// Whether a queue, and every cohort between it and the asker, uses more than its own: otherwise it has nothing to
    /// give back.
    fn borrows(&self, tree: &Tree, source: Source) -> bool {
        let mut node = Some(source.node);
        while let Some(here) = node.filter(|here| *here != source.common) {
            if tree.is_within_quota(here, self.request.needing) {
                return false;
            }
            node = tree.parent(here);
        }
        true
    }

    /// The candidates of one queue, those that stay or those on their way out, in order.
    fn legal(
        &self,
        source: Option<Source>,
        stays: bool,
        from: Option<&HolderKey>,
    ) -> impl Iterator<Item = (&'l HolderKey, Candidate<'l>)> + use<'l> {
        let queue = source.map_or(self.asker.queue, |source| source.queue);
        let holders = &self.accounts[queue.index()].holders;
        let (asker, request, view) = (self.asker, self.request, self.view);
        let limit = priority_limit(view, asker, source.is_some());
        let is_in_reach = move |key: &HolderKey| limit.is_none_or(|limit| key.priority.0 < limit);
        holders
            .up_to(from)
            .rev()
            // Those on their way out come first.
            .skip_while(move |(key, _)| stays && key.leaves)
            .take_while(move |(key, _)| key.leaves != stays && is_in_reach(key))
            .filter_map(move |(key, holder)| {
                let right = right(view, asker, request, key, holder, source)?;
                Some((key, Candidate { holder, queue, right }))
            })
    }

    /// The candidates of other queues by one kind of claim, those that stay or those on their way out.
    fn elsewhere(&self, hierarchical: bool, stays: bool) -> Elsewhere<'_, 'l> {
        let cells =
            if self.above.iter().any(|(_, kind)| *kind == hierarchical) { self.request.needing } else { &[] };
        let limit = priority_limit(self.view, self.asker, true);
        let closed = |cell| Some(Closed::new(self.fronts.of_tree(self.root, cell, stays)?, limit));
        Elsewhere {
            candidates: self,
            hierarchical,
            stays,
            closed: cells.iter().copied().filter_map(closed).collect(),
            seen: if cells.len() > 1 { vec![false; self.accounts.len()] } else { Vec::new() },
            open: BinaryHeap::new(),
        }
    }

    /// All of them: first who is on the way out, and of both kinds first who may be taken by the better
    /// claim, then who else is of another queue, then the asker's own.
    pub(crate) fn in_order(&self) -> InOrder<'_, 'l> {
        InOrder { candidates: self, stage: 0, elsewhere: self.elsewhere(true, false), own: None }
    }
}

/// Whether the asker has the better claim to what others use below each cohort above it: outside the smallest subtree
/// whose quota the request fits, it has.
fn claims(tree: &Tree, node: NodeId, request: Request<'_>) -> SmallVec<[(NodeId, bool); 4]> {
    let mut above = SmallVec::new();
    let mut below = node;
    let amounts = request.amounts.iter();
    let mut remaining: SmallVec<[(CellId, i128); 4]> =
        amounts.map(|(cell, amount)| (*cell, i128::from(*amount))).collect();
    let mut hierarchical = false;
    while let Some(common) = tree.parent(below) {
        hierarchical |= remaining.iter().all(|(cell, amount)| !tree.borrows_with(below, *cell, *amount));
        for (cell, amount) in &mut remaining {
            *amount = tree.beyond_local(below, *cell, *amount);
        }
        above.push((common, hierarchical));
        below = common;
    }
    above
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
    if !uses_any || holder.is_fixed || asker.barred.contains(&holder.id) {
        return None;
    }
    let Some(source) = source else {
        let lower = key.priority.0 < asker.priority;
        return (lower || asker.queued_at < holder.queued_at).then_some(Right::WithinQueue);
    };
    if source.hierarchical {
        return Some(Right::Hierarchical);
    }
    Some(match view.preemption.borrow_within_cohort {
        BorrowWithinCohort::LowerPriority { max_priority }
            if key.priority.0 < asker.priority && max_priority.is_none_or(|most| key.priority.0 <= most) =>
        {
            Right::ReclaimWhileBorrowing
        }
        _ => Right::ReclaimWithoutBorrowing,
    })
}

/// The candidates of other queues as one list. A queue is looked at when its first is the next, and given up when it has
/// nothing more to give back.
struct Elsewhere<'c, 'l> {
    candidates: &'c Candidates<'l>,
    hierarchical: bool,
    stays: bool,
    /// Queues that were not looked at yet, by their first, one list per cell.
    closed: SmallVec<[Closed<'l>; 2]>,
    /// The queues that were looked at, where several lists may tell of one.
    seen: Vec<bool>,
    /// The next of the queues that were.
    open: BinaryHeap<Next<'l>>,
}

/// Queues that were not looked at yet, by their first for one cell.
struct Closed<'l> {
    next: Option<&'l (HolderKey, QueueId)>,
    rest: Rev<btree_set::Iter<'l, (HolderKey, QueueId)>>,
    /// From this priority on they are out of reach.
    limit: Option<i32>,
}

impl<'l> Closed<'l> {
    fn new(fronts: &'l BTreeSet<(HolderKey, QueueId)>, limit: Option<i32>) -> Self {
        let mut closed = Self { next: None, rest: fronts.iter().rev(), limit };
        closed.advance();
        closed
    }

    fn advance(&mut self) {
        let is_in_reach = |key: &HolderKey| self.limit.is_none_or(|limit| key.priority.0 < limit);
        self.next = self.rest.next().filter(|(key, _)| is_in_reach(key));
    }
}

/// The next of one queue.
struct Next<'l> {
    key: &'l HolderKey,
    source: Source,
}

impl PartialEq for Next<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Next<'_> {}

impl PartialOrd for Next<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Next<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(other.key)
    }
}

impl<'l> Elsewhere<'_, 'l> {
    fn next(&mut self, tree: &Tree) -> Option<Candidate<'l>> {
        loop {
            self.look_at_next_queues(tree);
            let Next { key, source } = self.open.pop()?;
            if !self.candidates.borrows(tree, source) {
                continue;
            }
            let mut rest = self.candidates.legal(Some(source), self.stays, Some(key));
            let (_, candidate) = rest.next()?;
            if let Some((key, _)) = rest.next() {
                self.open.push(Next { key, source });
            }
            return Some(candidate);
        }
    }

    /// Looks at queues until the next candidate is known.
    fn look_at_next_queues(&mut self, tree: &Tree) {
        loop {
            let Some(closed) = self.closed.iter_mut().max_by_key(|closed| closed.next) else { return };
            let Some((key, queue)) = closed.next else { return };
            if self.open.peek().is_some_and(|next| next.key >= key) {
                return;
            }
            closed.advance();
            let is_news = self.seen.get_mut(queue.index()).is_none_or(|seen| !std::mem::replace(seen, true));
            if is_news && *queue != self.candidates.asker.queue {
                self.look_at(tree, *queue, key);
            }
        }
    }

    fn look_at(&mut self, tree: &Tree, queue: QueueId, first: &'l HolderKey) {
        let source = self.candidates.source(tree, queue);
        let Some(source) = source.filter(|source| source.hierarchical == self.hierarchical) else { return };
        if !self.candidates.borrows(tree, source) {
            return;
        }
        let mut legal = self.candidates.legal(Some(source), self.stays, Some(first));
        if let Some((key, _)) = legal.next() {
            self.open.push(Next { key, source });
        }
    }
}

type Own<'l> = Box<dyn Iterator<Item = Candidate<'l>> + 'l>;

/// All candidates in order. What comes next depends on what was taken before.
pub(crate) struct InOrder<'c, 'l> {
    candidates: &'c Candidates<'l>,
    stage: u8,
    elsewhere: Elsewhere<'c, 'l>,
    own: Option<Own<'l>>,
}

impl<'l> InOrder<'_, 'l> {
    pub(crate) fn next(&mut self, tree: &Tree) -> Option<Candidate<'l>> {
        loop {
            let stays = self.stage >= 3;
            let found = match &mut self.own {
                Some(own) => own.next(),
                None => self.elsewhere.next(tree),
            };
            if found.is_some() {
                return found;
            }
            self.stage += 1;
            match self.stage {
                1 | 4 => self.elsewhere = self.candidates.elsewhere(false, stays),
                2 | 5 => {
                    let own = self.candidates.legal(None, stays, None).map(|(_, candidate)| candidate);
                    self.own = Some(Box::new(own));
                }
                3 => (self.elsewhere, self.own) = (self.candidates.elsewhere(true, true), None),
                _ => return None,
            }
        }
    }
}
