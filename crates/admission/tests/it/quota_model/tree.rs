//! The quota tree, recomputed by recursion from the list of those who hold quota.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gangway_model::queues::{ClusterQueue, Cohort, Quota, ResourceGroup};
use gangway_model::{Amount, ClusterQueueName, CohortName, FlavorName, ResourceName, Timestamp, Uid};

/// What quota is counted by.
pub type Cell = (FlavorName, ResourceName);
/// How much of each.
pub type Amounts = BTreeMap<Cell, Amount>;

/// Adds `more` to `sum`.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (cell, amount) in more {
        let entry = sum.entry(cell.clone()).or_default();
        *entry = entry.plus(*amount);
    }
}

/// A place in the quota tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    Queue(ClusterQueueName),
    Cohort(CohortName),
}

/// The part of the tree that does not change: who is below whom, and the quotas.
#[derive(Debug, Default)]
pub struct Layout {
    parents: BTreeMap<Node, Node>,
    children: BTreeMap<Node, Vec<Node>>,
    quotas: BTreeMap<Node, BTreeMap<Cell, Quota>>,
    /// What a node and those below it own together, less what these keep to themselves; and of that the
    /// part that it keeps to itself. Worked out once, since it is asked for all the time.
    owned: BTreeMap<Node, BTreeMap<Cell, (Amount, Amount)>>,
    /// Queues that take no part: their quota and usage count, they themselves are not looked at.
    asleep: BTreeSet<ClusterQueueName>,
}

impl Layout {
    pub fn new<'a>(
        queues: impl Iterator<Item = &'a ClusterQueue>,
        cohorts: impl Iterator<Item = &'a Cohort>,
    ) -> Self {
        let mut layout = Self::default();
        for queue in queues {
            let parent = queue.cohort.clone().map(Node::Cohort);
            layout.place(Node::Queue(queue.name.clone()), parent, &queue.resource_groups);
        }
        for cohort in cohorts {
            let parent = cohort.parent.clone().map(Node::Cohort);
            layout.place(Node::Cohort(cohort.name.clone()), parent, &cohort.resource_groups);
        }
        layout.work_out();
        layout
    }

    /// From below, since a node owns what its children lend it.
    fn work_out(&mut self) {
        let cells: BTreeSet<Cell> = self.quotas.values().flat_map(BTreeMap::keys).cloned().collect();
        let nodes: BTreeSet<Node> = self.quotas.keys().chain(self.parents.values()).cloned().collect();
        let mut nodes: Vec<Node> = nodes.into_iter().filter(|node| self.has_root(node)).collect();
        nodes.sort_by_cached_key(|node| Reverse(self.path_up(node).len()));
        for node in nodes {
            let owned = cells.iter().map(|cell| (cell.clone(), self.owned_by(&node, cell))).collect();
            self.owned.insert(node, owned);
        }
    }

    fn owned_by(&self, node: &Node, cell: &Cell) -> (Amount, Amount) {
        let quota = self.quota(node, cell);
        let subtree = self.children(node).iter().fold(quota.nominal, |sum, child| {
            let (owned, kept) = self.owned(child, cell);
            sum.plus(owned.minus(kept))
        });
        let kept = quota.lending_limit.map(|limit| subtree.minus(limit).max(Amount::ZERO));
        (subtree, kept.unwrap_or_default())
    }

    fn place(&mut self, node: Node, parent: Option<Node>, groups: &[ResourceGroup]) {
        let quotas = self.quotas.entry(node.clone()).or_default();
        for group in groups {
            for flavor in &group.flavors {
                for (resource, quota) in group.resources.iter().zip(&flavor.quotas) {
                    quotas.insert((flavor.flavor.clone(), resource.clone()), *quota);
                }
            }
        }
        if let Some(parent) = parent {
            self.children.entry(parent.clone()).or_default().push(node.clone());
            self.parents.insert(node, parent);
        }
    }

    pub fn put_to_sleep(&mut self, queue: &ClusterQueueName) {
        self.asleep.insert(queue.clone());
    }

    pub fn is_awake(&self, queue: &ClusterQueueName) -> bool {
        !self.asleep.contains(queue)
    }

    pub fn parent(&self, node: &Node) -> Option<&Node> {
        self.parents.get(node)
    }

    /// The node and all above it, from below; ends where it would begin to repeat itself.
    pub fn path_up(&self, node: &Node) -> Vec<Node> {
        let mut path = vec![node.clone()];
        while let Some(parent) = path.last().and_then(|last| self.parent(last)) {
            if path.contains(parent) {
                break;
            }
            path.push(parent.clone());
        }
        path
    }

    /// Whether the way up ends somewhere.
    fn has_root(&self, node: &Node) -> bool {
        self.path_up(node).last().is_some_and(|last| self.parent(last).is_none())
    }

    /// Whether the way up from a queue never ends.
    pub fn in_a_cycle(&self, queue: &ClusterQueueName) -> bool {
        !self.has_root(&Node::Queue(queue.clone()))
    }

    pub fn root(&self, queue: &ClusterQueueName) -> Node {
        let node = Node::Queue(queue.clone());
        self.path_up(&node).pop().unwrap_or(node)
    }

    fn children(&self, node: &Node) -> &[Node] {
        self.children.get(node).map_or(&[], Vec::as_slice)
    }

    pub fn awake_children(&self, node: &Node) -> impl Iterator<Item = &Node> {
        self.children(node).iter().filter(|child| !matches!(child, Node::Queue(q) if self.asleep.contains(q)))
    }

    /// The distance to the deepest leaf below.
    fn height(&self, node: &Node) -> usize {
        self.awake_children(node).map(|child| 1 + self.height(child)).max().unwrap_or(0)
    }

    pub fn quota(&self, node: &Node, cell: &Cell) -> Quota {
        self.quotas.get(node).and_then(|quotas| quotas.get(cell)).copied().unwrap_or_default()
    }

    fn owned(&self, node: &Node, cell: &Cell) -> (Amount, Amount) {
        self.owned.get(node).and_then(|owned| owned.get(cell)).copied().unwrap_or_default()
    }

    /// What a node and those below it own together, less what these keep to themselves.
    pub fn subtree_quota(&self, node: &Node, cell: &Cell) -> Amount {
        self.owned(node, cell).0
    }

    /// The part of its quota that a node keeps to itself.
    pub fn local_quota(&self, node: &Node, cell: &Cell) -> Amount {
        self.owned(node, cell).1
    }

    /// What a node could use if nobody used anything.
    pub fn potential(&self, node: &Node, cell: &Cell) -> Amount {
        let own = self.subtree_quota(node, cell);
        let Some(parent) = self.parent(node) else { return own };
        let with_parent = self.local_quota(node, cell).plus(self.potential(parent, cell));
        match self.quota(node, cell).borrowing_limit {
            Some(limit) => with_parent.min(own.plus(limit)),
            None => with_parent,
        }
    }
}

/// A workload that holds quota.
#[derive(Clone, Debug)]
pub struct Holder {
    pub queue: ClusterQueueName,
    pub priority: i32,
    pub created: Timestamp,
    pub reserved_at: Timestamp,
    pub usage: Amounts,
}

/// Why quota is booked without a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Booking {
    /// Kept for a preemptor until it is admitted.
    Hold(Uid),
    /// Kept in this pass only, for a head that waits.
    ThisPass,
    /// Kept for the first of a queue that could live on the queue's own quota.
    Standing,
}

/// Who holds what, and what else is booked. Cloned and changed freely.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub layout: Rc<Layout>,
    pub holders: BTreeMap<Uid, Rc<Holder>>,
    pub booked: Vec<(Booking, ClusterQueueName, Amounts)>,
}

impl Snapshot {
    /// The same without some holders.
    pub fn without<'a>(&self, uids: impl IntoIterator<Item = &'a Uid>) -> Self {
        let mut rest = self.clone();
        for uid in uids {
            rest.holders.remove(uid);
        }
        rest
    }

    /// The first place on the way up from a queue where more is used than there is.
    pub fn oversubscribed(&self, queue: &ClusterQueueName, used: &Amounts) -> Option<(Node, Cell)> {
        let path = self.layout.path_up(&Node::Queue(queue.clone()));
        let over = |node: &Node, cell: &Cell| self.raw_available(node, cell) < Amount::ZERO;
        let mut places = path.iter().flat_map(|node| used.keys().map(move |cell| (node, cell)));
        places.find(|(node, cell)| over(node, cell)).map(|(node, cell)| (node.clone(), cell.clone()))
    }

    /// Usage of a queue by its holders and by those bookings that `counts` accepts.
    pub fn used(&self, queue: &ClusterQueueName, cell: &Cell, counts: impl Fn(&Booking) -> bool) -> Amount {
        let held = self.holders.values().filter(|holder| holder.queue == *queue).map(|holder| &holder.usage);
        let booked = self
            .booked
            .iter()
            .filter(|(kind, at, _)| at == queue && counts(kind))
            .map(|(.., amounts)| amounts);
        held.chain(booked)
            .filter_map(|usage| usage.get(cell))
            .fold(Amount::ZERO, |sum, amount| sum.plus(*amount))
    }

    pub fn usage(&self, node: &Node, cell: &Cell) -> Amount {
        match node {
            Node::Queue(queue) => self.used(queue, cell, |_| true),
            Node::Cohort(_) => self.layout.children(node).iter().fold(Amount::ZERO, |sum, child| {
                let above = self.usage(child, cell).minus(self.layout.local_quota(child, cell));
                sum.plus(above.max(Amount::ZERO))
            }),
        }
    }

    fn local_available(&self, node: &Node, cell: &Cell) -> Amount {
        self.layout.local_quota(node, cell).minus(self.usage(node, cell)).max(Amount::ZERO)
    }

    fn raw_available(&self, node: &Node, cell: &Cell) -> Amount {
        let (own, usage) = (self.layout.subtree_quota(node, cell), self.usage(node, cell));
        let Some(parent) = self.layout.parent(node) else { return own.minus(usage) };
        let mut from_parent = self.raw_available(parent, cell);
        if let Some(limit) = self.layout.quota(node, cell).borrowing_limit {
            let local = self.layout.local_quota(node, cell);
            let lent_out = usage.minus(local).max(Amount::ZERO);
            from_parent = from_parent.min(limit.plus(own.minus(local)).minus(lent_out));
        }
        self.local_available(node, cell).plus(from_parent)
    }

    /// How much more a queue could use now.
    pub fn available(&self, queue: &ClusterQueueName, cell: &Cell) -> Amount {
        self.raw_available(&Node::Queue(queue.clone()), cell).max(Amount::ZERO)
    }

    /// Whether a node would be above its own quota with this much more.
    pub fn borrows_with(&self, node: &Node, cell: &Cell, more: Amount) -> bool {
        self.usage(node, cell).plus(more) > self.layout.subtree_quota(node, cell)
    }

    /// Whether a node lives on its own quota in all the cells.
    pub fn within_quota(&self, node: &Node, cells: &BTreeSet<Cell>) -> bool {
        cells.iter().all(|cell| !self.borrows_with(node, cell, Amount::ZERO))
    }

    /// How far up a queue has to go for `need`, and whether anything lies outside of that subtree.
    pub fn borrow_level(&self, queue: &ClusterQueueName, cell: &Cell, need: Amount) -> (usize, bool) {
        let has_parent = |node: &Node| self.layout.parent(node).is_some();
        let mut remaining = need;
        let mut level = 0;
        for node in self.layout.path_up(&Node::Queue(queue.clone())) {
            level = self.layout.height(&node);
            if !self.borrows_with(&node, cell, remaining) {
                return (level, has_parent(&node));
            }
            remaining = remaining.minus(self.local_available(&node, cell));
        }
        (level, false)
    }

    /// Whether the needs fit a node's own quota on top of its usage, and what is left for those above.
    pub fn fits_own_quota(&self, node: &Node, needs: &Amounts) -> (bool, Amounts) {
        let fits = needs.iter().all(|(cell, need)| !self.borrows_with(node, cell, *need));
        let left = needs.iter().map(|(cell, need)| {
            let left = need.minus(self.local_available(node, cell)).max(Amount::ZERO);
            (cell.clone(), left)
        });
        (fits, left.collect())
    }

    /// Whether a queue could use all of this now.
    pub fn fits(&self, queue: &ClusterQueueName, needs: &Amounts) -> bool {
        needs.iter().all(|(cell, need)| *need <= self.available(queue, cell))
    }
}
