//! Who uses how much of what: the quota tree, the Workloads that hold quota in it, and what is kept free.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use gangway_model::planted::{Bug, Planted};
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, Cohort, Fungibility, PreemptionPolicy, QueueingStrategy,
    ReclaimWithinCohort, WithinClusterQueue,
};
use gangway_model::workload::Admission;
use gangway_model::{ClusterQueueName, CohortName, FlavorName, ResourceName, Timestamp, Uid};
use smallvec::SmallVec;

use crate::holders::Holders;
use crate::ids::{CellAmounts, CellId, Cells, Interner, NodeId, QueueId, WorkloadId, add_amount, amount_of};
use crate::preemption::fronts::Fronts;
use crate::tree::{Plan, Tree};

/// A place among the holders of a queue's quota. The greatest would be preempted first: those on their way out, then the
/// lowest priority, then who came last. So newcomers are usually the last of the list, where it grows without being moved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HolderKey {
    pub(crate) leaves: bool,
    pub(crate) priority: Reverse<i32>,
    pub(crate) reserved_at: Timestamp,
    /// Within a second: which admission was decided later. 0 for what was there at the start.
    pub(crate) sequence: u64,
    pub(crate) uid: Reverse<Uid>,
}

/// A Workload that holds quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) id: WorkloadId,
    /// Its place in the order of its queue, were it waiting.
    pub(crate) queued_at: Timestamp,
    pub(crate) usage: Arc<CellAmounts>,
    /// Nobody here could make it leave.
    pub(crate) is_fixed: bool,
}

/// A flavor of a resource group, as a queue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlavorView {
    pub(crate) name: FlavorName,
    /// One cell per resource of the group.
    pub(crate) cells: SmallVec<[CellId; 4]>,
}

/// A resource group, as a queue has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupView {
    pub(crate) resources: Vec<ResourceName>,
    pub(crate) flavors: Vec<FlavorView>,
}

/// What a search needs to know of a ClusterQueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueView {
    pub(crate) node: NodeId,
    /// Names what it offers: queues with the same groups and flavors have the same.
    pub(crate) offer: OfferId,
    pub(crate) groups: Vec<GroupView>,
    pub(crate) fungibility: Fungibility,
    pub(crate) preemption: PreemptionPolicy,
    pub(crate) strict: bool,
    /// Its Workloads may be preempted and its pending ones tried.
    pub(crate) active: bool,
    /// Its definition, if it demands admission checks or gives up flavors; most do neither.
    pub(crate) extras: Option<Arc<ClusterQueue>>,
}

/// Names groups of resources with their flavors, as of one building of the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfferId {
    built: u64,
    number: u32,
}

impl OfferId {
    /// Whether the other is of the same building of the trees.
    pub(crate) fn is_as_old_as(self, other: Self) -> bool {
        self.built == other.built
    }
}

impl QueueView {
    /// Which group covers a resource.
    pub(crate) fn group_of(&self, resource: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.resources.iter().any(|r| r.as_str() == resource))
    }

    /// Whether anybody may be preempted for its Workloads.
    pub(crate) fn may_preempt(&self) -> bool {
        self.preemption.within_cluster_queue != WithinClusterQueue::Never
            || self.preemption.reclaim_within_cohort != ReclaimWithinCohort::Never
    }

    pub(crate) fn may_preempt_while_borrowing(&self) -> bool {
        self.preemption.borrow_within_cohort != BorrowWithinCohort::Never
    }
}

fn has_extras(queue: &ClusterQueue) -> bool {
    !queue.admission_checks.is_empty() || queue.fallback.is_some()
}

/// Room that is kept free for a Workload that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) id: WorkloadId,
    /// What it needs.
    pub(crate) need: CellAmounts,
    /// What is booked for it now.
    booked: CellAmounts,
    /// The flavors that it is to get, and of which definition of its queue; none if that is open.
    pub(crate) flavors: Option<(u64, Flavors)>,
}

impl Kept {
    /// Whether somebody who gets this instead leaves room to others.
    pub(crate) fn leaves_some_of(&self, instead: &[(CellId, i64)]) -> bool {
        self.booked.iter().any(|(cell, amount)| amount_of(instead, *cell) < *amount)
    }
}

/// Flavors by their place in their group, one per podSet and group.
pub(crate) type Flavors = SmallVec<[u16; 4]>;

/// What was taken off the trees for a while.
#[derive(Debug, Default)]
pub(crate) struct Lifted(SmallVec<[(QueueId, CellAmounts); 1]>);

/// The holders of one queue's quota, and the room kept for its waiting Workloads.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) view: Option<QueueView>,
    pub(crate) holders: Holders,
    /// Room freed for preemptors of this queue, kept until they start or give up.
    pub(crate) holds: Vec<Kept>,
    /// Own quota that others may not borrow as long as this Workload waits for it.
    pub(crate) reserve: Option<Box<Kept>>,
    /// Grows with every change of what the queue could use.
    pub(crate) generation: u64,
    /// Grows with every change of a definition in the queue's tree, and of its flavors.
    pub(crate) definition: u64,
}

impl Account {
    /// All room that is kept in it.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &Kept> {
        self.holds.iter().chain(self.reserve.as_deref())
    }
}

/// The quota trees with everything that is booked in them.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) cells: Cells,
    pub(crate) queue_names: Interner<ClusterQueueName>,
    pub(crate) tree: Tree,
    /// The same trees with nothing booked: what could ever fit.
    pub(crate) unused: Tree,
    pub(crate) accounts: Vec<Account>,
    pub(crate) fronts: Fronts,
    /// The queue of each node; none for cohorts.
    pub(crate) queue_of_node: Vec<Option<QueueId>>,
    /// Grows with every rebuild.
    pub(crate) generation: u64,
    pub(crate) planted: Planted,
    is_outdated: bool,
}

impl Ledger {
    /// The number of a ClusterQueue.
    pub(crate) fn queue(&mut self, name: &ClusterQueueName) -> QueueId {
        let number = self.queue_names.number(name);
        if number >= self.accounts.len() {
            self.accounts.resize_with(number + 1, Account::default);
        }
        QueueId::from(number)
    }

    pub(crate) fn account(&self, queue: QueueId) -> &Account {
        &self.accounts[queue.index()]
    }

    pub(crate) fn account_mut(&mut self, queue: QueueId) -> &mut Account {
        &mut self.accounts[queue.index()]
    }

    pub(crate) fn view(&self, queue: QueueId) -> Option<&QueueView> {
        self.accounts.get(queue.index())?.view.as_ref()
    }

    pub(crate) fn node(&self, queue: QueueId) -> Option<NodeId> {
        self.view(queue).map(|view| view.node)
    }

    pub(crate) fn queue_of(&self, node: NodeId) -> Option<QueueId> {
        self.queue_of_node.get(node.index()).copied().flatten()
    }

    /// Every queue in the tree of this one.
    pub(crate) fn queues_of_tree(&self, queue: QueueId) -> Vec<QueueId> {
        let Some(node) = self.node(queue) else { return vec![queue] };
        let mut queues = Vec::new();
        let mut open = vec![self.tree.root(node)];
        while let Some(node) = open.pop() {
            queues.extend(self.queue_of(node));
            open.extend(self.tree.children(node));
        }
        queues
    }

    /// A definition has changed: the trees have to be built anew before they are looked at.
    pub(crate) fn outdate(&mut self) {
        self.is_outdated = true;
    }

    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// What an admission uses, by cell.
    pub(crate) fn usage(&mut self, admission: &Admission) -> CellAmounts {
        let mut usage = CellAmounts::new();
        for (flavor, resource, value) in admission.usage() {
            let cell = CellId::from(self.cells.number(&(flavor.clone(), resource.clone())));
            // Whatever somebody wrote into an object, nobody gets credit.
            add_amount(&mut usage, cell, value.max(0));
        }
        usage
    }

    /// A Workload holds quota from now on.
    pub(crate) fn enter(&mut self, queue: QueueId, key: HolderKey, holder: Holder) {
        let usage = holder.usage.clone();
        self.fronts.forget(queue, &usage);
        self.accounts[queue.index()].holders.insert(key, holder);
        if let Some(node) = self.node(queue)
            && !self.tree.knows_all(node, &usage)
        {
            // Quota of a flavor that nobody in the tree has any more is counted as well.
            self.outdate();
            return;
        }
        self.book(queue, &usage, 1);
    }

    /// A Workload holds quota no more.
    pub(crate) fn leave(&mut self, queue: QueueId, key: &HolderKey) {
        let Some(holder) = self.accounts[queue.index()].holders.remove(key) else { return };
        self.fronts.forget(queue, &holder.usage);
        self.book(queue, &holder.usage, -1);
        if key.leaves && self.planted.is(Bug::VictimReleasedTwice) {
            self.book(queue, &holder.usage, -1);
        }
    }

    /// Books what holders use; the queue's reserve shrinks and grows with it.
    fn book(&mut self, queue: QueueId, usage: &[(CellId, i64)], sign: i64) {
        let Some(node) = self.node(queue) else { return };
        let Some(reserve) = self.accounts[queue.index()].reserve.take() else {
            self.tree.add_all(node, usage, sign);
            return;
        };
        self.tree.add_all(node, &reserve.booked, -1);
        self.tree.add_all(node, usage, sign);
        self.accounts[queue.index()].reserve = Some(self.book_reserve(node, reserve));
    }

    fn book_reserve(&mut self, node: NodeId, mut kept: Box<Kept>) -> Box<Kept> {
        kept.booked.clear();
        for (cell, need) in &kept.need {
            let free = self.tree.nominal(node, *cell) - self.tree.usage(node, *cell);
            let amount = i64::try_from(free.clamp(0, i128::from(*need))).unwrap_or(0);
            kept.booked.push((*cell, amount));
        }
        self.tree.add_all(node, &kept.booked, 1);
        kept
    }

    /// From now on, as long as this Workload waits, others may not borrow what it needs of its queue's own.
    pub(crate) fn set_reserve(&mut self, queue: QueueId, id: WorkloadId, need: CellAmounts) {
        self.end_reserve(queue);
        let Some(node) = self.node(queue) else { return };
        let kept = Box::new(Kept { id, need, booked: CellAmounts::new(), flavors: None });
        let kept = self.book_reserve(node, kept);
        self.accounts[queue.index()].reserve = Some(kept);
    }

    pub(crate) fn end_reserve(&mut self, queue: QueueId) {
        let Some(kept) = self.accounts[queue.index()].reserve.take() else { return };
        if let Some(node) = self.node(queue) {
            self.tree.add_all(node, &kept.booked, -1);
        }
    }

    /// From now on this room is kept for a preemptor.
    pub(crate) fn set_hold(&mut self, queue: QueueId, id: WorkloadId, need: CellAmounts, flavors: Flavors) {
        let flavors = Some((self.account(queue).definition, flavors));
        self.hold_again(queue, Kept { id, booked: need.clone(), need, flavors });
    }

    /// How much of a cell others may not borrow from a queue.
    pub(crate) fn reserved(&self, queue: QueueId, cell: CellId) -> i64 {
        self.accounts[queue.index()].reserve.as_ref().map_or(0, |kept| amount_of(&kept.booked, cell))
    }

    /// How much of a cell is kept free in a queue.
    pub(crate) fn kept_in(&self, queue: QueueId, cell: CellId) -> i64 {
        self.account(queue).kept().map(|kept| amount_of(&kept.booked, cell)).sum()
    }

    /// The trees as a Workload of this queue sees them, if they differ: without what is kept for itself.
    pub(crate) fn tree_seen_by(&self, queue: QueueId, id: WorkloadId) -> Option<Tree> {
        let node = self.node(queue)?;
        let mut own = self.account(queue).kept().filter(|kept| kept.id == id).peekable();
        own.peek()?;
        let mut tree = self.tree.clone();
        own.for_each(|kept| tree.add_all(node, &kept.booked, -1));
        Some(tree)
    }

    /// The room that is kept for a preemptor of this queue.
    pub(crate) fn hold(&self, queue: QueueId, id: WorkloadId) -> Option<&Kept> {
        self.accounts[queue.index()].holds.iter().find(|kept| kept.id == id)
    }

    /// The room that is kept in the tree of a queue for other preemptors than these.
    pub(crate) fn holds_of_others(
        &self,
        queue: QueueId,
        lifted: &[WorkloadId],
    ) -> Vec<(QueueId, WorkloadId, CellAmounts)> {
        let holds = |queue: QueueId| self.account(queue).holds.iter().map(move |kept| (queue, kept));
        let all = self.queues_of_tree(queue).into_iter().flat_map(holds);
        all.filter(|(_, kept)| !lifted.contains(&kept.id))
            .map(|(queue, kept)| (queue, kept.id, kept.booked.clone()))
            .collect()
    }

    /// Whether a queue could use this much more.
    pub(crate) fn has_room(&self, queue: QueueId, amounts: &[(CellId, i64)]) -> bool {
        let fits =
            |node, (cell, amount): &(CellId, i64)| i128::from(*amount) <= self.tree.available(node, *cell);
        self.node(queue).is_some_and(|node| amounts.iter().all(|amount| fits(node, amount)))
    }

    /// The preemptor started or gave up. What was kept for it comes back.
    pub(crate) fn end_hold(&mut self, queue: QueueId, id: WorkloadId) -> Option<Kept> {
        let holds = &mut self.accounts[queue.index()].holds;
        let index = holds.iter().position(|kept| kept.id == id)?;
        let kept = holds.remove(index);
        self.book(queue, &kept.booked, -1);
        Some(kept)
    }

    /// Keeps room again that was kept before.
    pub(crate) fn hold_again(&mut self, queue: QueueId, kept: Kept) {
        self.end_hold(queue, kept.id);
        self.book(queue, &kept.booked, 1);
        self.accounts[queue.index()].holds.push(kept);
    }

    /// The queue in which room is kept for a Workload.
    pub(crate) fn holder_of_hold(&self, id: WorkloadId) -> Option<QueueId> {
        let has = |account: &Account| account.holds.iter().any(|kept| kept.id == id);
        self.accounts.iter().position(has).map(QueueId::from)
    }

    /// Takes off what is kept for the Workloads of a queue that `whose` picks, and its reserve; with `all_reserves`
    /// those of the whole tree. [`Self::put_back`] puts it on again.
    pub(crate) fn lift(
        &mut self,
        queue: QueueId,
        whose: impl Fn(WorkloadId) -> bool,
        all_reserves: bool,
    ) -> Lifted {
        let mut lifted = Lifted::default();
        let account = &self.accounts[queue.index()];
        if account.reserve.is_some() || !account.holds.is_empty() {
            let holds = account.holds.iter().filter(|kept| whose(kept.id));
            let mut amounts = CellAmounts::new();
            for (cell, amount) in
                account.reserve.as_deref().into_iter().chain(holds).flat_map(|kept| &kept.booked)
            {
                add_amount(&mut amounts, *cell, *amount);
            }
            lifted.0.push((queue, amounts));
        }
        if all_reserves {
            let others = self.queues_of_tree(queue).into_iter().filter(|other| *other != queue);
            for other in others {
                let reserve = self.accounts[other.index()].reserve.as_ref();
                lifted.0.extend(reserve.map(|kept| (other, kept.booked.clone())));
            }
        }
        self.book_lifted(&lifted, -1);
        lifted
    }

    pub(crate) fn put_back(&mut self, lifted: &Lifted) {
        self.book_lifted(lifted, 1);
    }

    fn book_lifted(&mut self, lifted: &Lifted, sign: i64) {
        for (queue, amounts) in &lifted.0 {
            self.book_for_now(*queue, amounts, sign);
        }
    }

    /// Books amounts at a queue for a while, or takes them off again if `sign` is -1.
    pub(crate) fn book_for_now(&mut self, queue: QueueId, amounts: &[(CellId, i64)], sign: i64) {
        if let Some(node) = self.node(queue) {
            self.tree.add_all(node, amounts, sign);
        }
    }
}

/// What the trees are built from.
pub(crate) struct Definitions<'d> {
    pub(crate) cluster_queues: &'d BTreeMap<ClusterQueueName, ClusterQueue>,
    pub(crate) cohorts: &'d BTreeMap<CohortName, Cohort>,
    pub(crate) is_active: &'d dyn Fn(&ClusterQueue) -> bool,
}

impl Ledger {
    /// Builds the trees anew, with everything that is booked.
    pub(crate) fn rebuild(&mut self, definitions: &Definitions<'_>) {
        self.is_outdated = false;
        self.generation += 1;
        self.fronts.clear();
        let mut plan = Plan::default();
        let mut offers: Interner<Vec<Vec<CellId>>> = Interner::default();
        let cohorts = self.plan_cohorts(definitions, &mut plan);
        for account in &mut self.accounts {
            account.view = None;
        }
        for queue in definitions.cluster_queues.values() {
            let id = self.queue(&queue.name);
            let node = plan.node();
            if let Some(cohort) = queue.cohort.as_ref().and_then(|name| cohorts.get(name)) {
                plan.set_parent(node, *cohort);
            }
            let groups = self.plan_groups(&queue.resource_groups, node, &mut plan);
            let offered: Vec<Vec<CellId>> = groups
                .iter()
                .map(|group| group.flavors.iter().flat_map(|flavor| flavor.cells.iter().copied()).collect())
                .collect();
            let number = u32::try_from(offers.number(&offered)).unwrap_or(u32::MAX);
            let view = QueueView {
                node,
                offer: OfferId { built: self.generation, number },
                groups,
                fungibility: queue.fungibility,
                preemption: queue.preemption,
                strict: queue.strategy == QueueingStrategy::StrictFifo,
                active: (definitions.is_active)(queue),
                extras: has_extras(queue).then(|| Arc::new(queue.clone())),
            };
            if !view.active {
                plan.put_to_sleep(node);
            }
            self.account_mut(id).view = Some(view);
        }
        let used = self.accounts.iter().filter_map(|account| Some((account.view.as_ref()?.node, account)));
        for (node, account) in used {
            let holders = account.holders.iter().flat_map(|(_, holder)| holder.usage.iter());
            let kept = account.kept().flat_map(|kept| &kept.need);
            holders.chain(kept).for_each(|(cell, _)| plan.used(node, *cell));
        }
        self.tree.replace(Tree::build(&plan, self.cells.len()));
        self.unused = Tree::build(&plan, self.cells.len());
        self.queue_of_node = vec![None; plan.len()];
        for index in 0..self.accounts.len() {
            self.book_again(QueueId::from(index));
        }
    }

    fn book_again(&mut self, queue: QueueId) {
        let account = &mut self.accounts[queue.index()];
        let Some(node) = account.view.as_ref().map(|view| view.node) else { return };
        self.queue_of_node[node.index()] = Some(queue);
        for (_, holder) in account.holders.iter() {
            self.tree.add_all(node, &holder.usage, 1);
        }
        for kept in &account.holds {
            self.tree.add_all(node, &kept.booked, 1);
        }
        if let Some(kept) = account.reserve.take() {
            let kept = self.book_reserve(node, kept);
            self.accounts[queue.index()].reserve = Some(kept);
        }
    }

    /// Nodes for the cohorts that somebody names. Those of a cycle have none.
    fn plan_cohorts(
        &mut self,
        definitions: &Definitions<'_>,
        plan: &mut Plan,
    ) -> BTreeMap<CohortName, NodeId> {
        let mut nodes = BTreeMap::new();
        let named = definitions.cluster_queues.values().filter_map(|queue| queue.cohort.as_ref());
        let parents = definitions.cohorts.values().filter_map(|cohort| cohort.parent.as_ref());
        for name in named.chain(parents).chain(definitions.cohorts.keys()) {
            if !nodes.contains_key(name) && !in_cycle(definitions.cohorts, name) {
                nodes.insert(name.clone(), plan.node());
            }
        }
        for cohort in definitions.cohorts.values() {
            let Some(node) = nodes.get(&cohort.name).copied() else { continue };
            if let Some(parent) = cohort.parent.as_ref().and_then(|name| nodes.get(name)) {
                plan.set_parent(node, *parent);
            }
            self.plan_groups(&cohort.resource_groups, node, plan);
        }
        nodes
    }

    fn plan_groups(
        &mut self,
        groups: &[gangway_model::queues::ResourceGroup],
        node: NodeId,
        plan: &mut Plan,
    ) -> Vec<GroupView> {
        let mut views = Vec::with_capacity(groups.len());
        for group in groups {
            let mut flavors = Vec::with_capacity(group.flavors.len());
            for quotas in &group.flavors {
                let mut cells = SmallVec::new();
                for (resource, quota) in group.resources.iter().zip(&quotas.quotas) {
                    let name = (quotas.flavor.clone(), resource.clone());
                    let cell = CellId::from(self.cells.number(&name));
                    plan.quota(node, cell, *quota);
                    cells.push(cell);
                }
                flavors.push(FlavorView { name: quotas.flavor.clone(), cells });
            }
            views.push(GroupView { resources: group.resources.clone(), flavors });
        }
        views
    }
}

/// Whether a cohort is its own ancestor, or a descendant of one that is.
pub(crate) fn in_cycle(cohorts: &BTreeMap<CohortName, Cohort>, name: &CohortName) -> bool {
    let mut current = name;
    for _ in 0..=cohorts.len() {
        match cohorts.get(current).and_then(|cohort| cohort.parent.as_ref()) {
            None => return false,
            Some(parent) => current = parent,
        }
    }
    true
}

impl Ledger {
    /// Checks that what is booked is what holders use and what is kept, by booking it all anew.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut expected = self.unused.clone();
        for account in &self.accounts {
            let Some(node) = account.view.as_ref().map(|view| view.node) else { continue };
            for (_, holder) in account.holders.iter() {
                expected.add_all(node, &holder.usage, 1);
            }
            for kept in account.kept() {
                expected.add_all(node, &kept.booked, 1);
            }
        }
        self.fronts.check(&self.accounts, &self.tree)?;
        if expected == self.tree { Ok(()) } else { Err("usage differs from usage recomputed".into()) }
    }
}
