//! The quota tree: ClusterQueues are its leaves, cohorts lend what their members leave idle.
//!
//! All amounts are `i128`: no sum of quotas or uses can overflow, so what was added is taken away
//! exactly. No limit at all is a number so large that no sum of real ones reaches it.

use gangway_model::Amount;
use gangway_model::queues::Quota;

use crate::ids::{CellId, NodeId};

/// More than anybody has or wants. A thousand billion of them still fit an `i128`.
const UNLIMITED: i128 = 1 << 80;

/// From here on an amount counts as without limit.
const AS_GOOD_AS_UNLIMITED: i128 = UNLIMITED / 2;

fn wide(amount: Amount) -> i128 {
    if amount.is_unlimited() { UNLIMITED } else { i128::from(amount.value()) }
}

/// An amount of the tree as a quota.
pub(crate) fn narrow(amount: i128) -> Amount {
    if amount >= AS_GOOD_AS_UNLIMITED {
        return Amount::UNLIMITED;
    }
    // Real sums beyond i64 are shown as the largest finite amount.
    Amount::new(i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX - 1 }))
}

/// One flavor's resource at one node: what every evaluation asks for, together in one line of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(align(64))]
struct Cell {
    usage: i128,
    /// Quota of the node and of all that its children lend.
    subtree: i128,
    /// The part of it that the parent does not see.
    local: i128,
    /// [`NO_LIMIT`] if there is none.
    borrowing_limit: i128,
}

/// There is no limit, not even one that is as good as none.
const NO_LIMIT: i128 = i128::MAX;

impl Default for Cell {
    fn default() -> Self {
        Self { usage: 0, subtree: 0, local: 0, borrowing_limit: NO_LIMIT }
    }
}

/// What else is known of a flavor's resource at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Given {
    nominal: i128,
    lending_limit: Option<i128>,
    /// The most that could ever be used here.
    potential: i128,
}

impl Cell {
    fn borrowing_limit(&self) -> Option<i128> {
        (self.borrowing_limit != NO_LIMIT).then_some(self.borrowing_limit)
    }

    /// What is used beyond the part that the parent does not see.
    fn usage_above_local(&self) -> i128 {
        (self.usage - self.local).max(0)
    }

    /// What is left of the part that the parent does not see.
    fn local_available(&self) -> i128 {
        (self.local - self.usage).max(0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    parent: Option<NodeId>,
    root: NodeId,
    children: Vec<NodeId>,
    /// Where its cells begin.
    row: usize,
    /// A queue that admits nobody: what it has counts, the way to it does not.
    is_asleep: bool,
    /// How far its deepest leaf is away; 0 for a leaf.
    height: u32,
}

/// What a tree is built from: nodes with their parents, and quotas.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    parents: Vec<Option<NodeId>>,
    quotas: Vec<(NodeId, CellId, Quota)>,
    uses: Vec<(NodeId, CellId)>,
    asleep: Vec<NodeId>,
}

impl Plan {
    pub(crate) fn node(&mut self) -> NodeId {
        self.parents.push(None);
        NodeId::from(self.parents.len() - 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.parents.len()
    }

    pub(crate) fn set_parent(&mut self, node: NodeId, parent: NodeId) {
        self.parents[node.index()] = Some(parent);
    }

    pub(crate) fn quota(&mut self, node: NodeId, cell: CellId, quota: Quota) {
        self.quotas.push((node, cell, quota));
    }

    /// A queue admits nobody.
    pub(crate) fn put_to_sleep(&mut self, node: NodeId) {
        self.asleep.push(node);
    }

    /// A cell that is in use at a node, whether or not it has quota there.
    pub(crate) fn used(&mut self, node: NodeId, cell: CellId) {
        self.uses.push((node, cell));
    }
}

/// How high up a request has to borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    /// 0 if it does not borrow; otherwise the height of the smallest subtree that it fits in.
    pub(crate) height: u32,
    /// That subtree is smaller than the whole tree: its own may be taken back from outside.
    pub(crate) may_reclaim: bool,
}

/// How a request stands at a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weighed {
    /// What the queue could still use, at least nothing.
    pub(crate) available: i128,
    /// How high up the request has to borrow.
    pub(crate) level: Level,
}

/// A count of bookings. Trees in which the same is booked are equal, however that came about.
#[derive(Clone, Copy, Debug, Default)]
struct Bookings(u64);

impl PartialEq for Bookings {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Bookings {}

/// All quota trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Grows with everything that is booked.
    bookings: Bookings,
    nodes: Vec<Node>,
    cells: Vec<Cell>,
    /// One for each of the cells.
    given: Vec<Given>,
    /// Per root, where the column of each cell is; `NONE` if nobody in that tree has it.
    columns: Vec<Vec<u32>>,
}

const NONE: u32 = u32::MAX;

impl Tree {
    pub(crate) fn build(plan: &Plan, cell_count: usize) -> Self {
        let roots: Vec<NodeId> = (0..plan.parents.len()).map(|i| root_of(plan, NodeId::from(i))).collect();
        let mut columns: Vec<Vec<u32>> = vec![Vec::new(); plan.parents.len()];
        let mut widths = vec![0_u32; plan.parents.len()];
        let quotas = plan.quotas.iter().map(|(node, cell, _)| (*node, *cell));
        for (node, cell) in quotas.chain(plan.uses.iter().copied()) {
            let root = roots[node.index()].index();
            columns[root].resize(cell_count, NONE);
            if columns[root][cell.index()] == NONE {
                columns[root][cell.index()] = widths[root];
                widths[root] += 1;
            }
        }
        let mut nodes = Vec::with_capacity(plan.parents.len());
        let mut row = 0;
        for (index, root) in roots.iter().enumerate() {
            let parent = plan.parents[index];
            nodes.push(Node { parent, root: *root, children: Vec::new(), row, is_asleep: false, height: 0 });
            row += widths[root.index()] as usize;
        }
        for (index, parent) in plan.parents.iter().enumerate() {
            if let Some(parent) = parent {
                nodes[parent.index()].children.push(NodeId::from(index));
            }
        }
        for node in &plan.asleep {
            nodes[node.index()].is_asleep = true;
        }
        let (cells, given) = (vec![Cell::default(); row], vec![Given::default(); row]);
        let mut tree = Self { bookings: Bookings::default(), nodes, cells, given, columns };
        for (node, cell, quota) in &plan.quotas {
            let Some(index) = tree.find(*node, *cell) else { continue };
            tree.given[index].nominal = wide(quota.nominal);
            tree.given[index].lending_limit = quota.lending_limit.map(wide);
            tree.cells[index].borrowing_limit = quota.borrowing_limit.map_or(NO_LIMIT, wide);
        }
        tree.sum_up();
        tree
    }

    /// Works out what follows from the quotas: from the leaves up, then down again.
    fn sum_up(&mut self) {
        let order = self.children_first();
        for node in &order {
            let (row, width) = (self.nodes[node.index()].row, self.width(*node));
            for cell in row..row + width {
                let column = cell - row;
                let lent: i128 = self.nodes[node.index()]
                    .children
                    .iter()
                    .map(|child| &self.cells[self.nodes[child.index()].row + column])
                    .map(|child| child.subtree - child.local)
                    .sum();
                let (here, given) = (&mut self.cells[cell], &self.given[cell]);
                here.subtree = given.nominal + lent;
                here.local = given.lending_limit.map_or(0, |limit| (here.subtree - limit).max(0));
            }
            let children = self.nodes[node.index()].children.iter().map(|child| &self.nodes[child.index()]);
            let height = children.filter(|child| !child.is_asleep).map(|child| child.height + 1).max();
            self.nodes[node.index()].height = height.unwrap_or(0);
        }
        for node in order.iter().rev() {
            let Node { parent, row, .. } = self.nodes[node.index()];
            for column in 0..self.width(*node) {
                let above = parent.map(|p| self.given[self.nodes[p.index()].row + column].potential);
                let here = &self.cells[row + column];
                self.given[row + column].potential = match above {
                    None => here.subtree,
                    Some(above) => {
                        let lent = here.local + above;
                        here.borrowing_limit().map_or(lent, |limit| lent.min(here.subtree + limit))
                    }
                };
            }
        }
    }

    fn children_first(&self) -> Vec<NodeId> {
        let mut order = Vec::with_capacity(self.nodes.len());
        let roots =
            (0..self.nodes.len()).map(NodeId::from).filter(|n| self.nodes[n.index()].parent.is_none());
        let mut open: Vec<NodeId> = roots.collect();
        while let Some(node) = open.pop() {
            order.push(node);
            open.extend(&self.nodes[node.index()].children);
        }
        order.reverse();
        order
    }

    fn width(&self, node: NodeId) -> usize {
        let columns = &self.columns[self.nodes[node.index()].root.index()];
        columns.iter().filter(|column| **column != NONE).count()
    }

    fn find(&self, node: NodeId, cell: CellId) -> Option<usize> {
        let Node { root, row, .. } = self.nodes[node.index()];
        let column = *self.columns[root.index()].get(cell.index())?;
        (column != NONE).then(|| row + column as usize)
    }

    /// Has this tree take the place of another.
    pub(crate) fn replace(&mut self, tree: Self) {
        let bookings = Bookings(self.bookings.0 + 1);
        *self = Self { bookings, ..tree };
    }

    /// Differs if anything was booked in between.
    pub(crate) fn bookings(&self) -> u64 {
        self.bookings.0
    }

    /// Whether these amounts can be booked at a node.
    pub(crate) fn knows_all(&self, node: NodeId, amounts: &[(CellId, i64)]) -> bool {
        let columns = &self.columns[self.nodes[node.index()].root.index()];
        amounts.iter().all(|(cell, _)| columns.get(cell.index()).is_some_and(|column| *column != NONE))
    }

    pub(crate) fn parent(&self, node: NodeId) -> Option<NodeId> {
        self.nodes[node.index()].parent
    }

    pub(crate) fn root(&self, node: NodeId) -> NodeId {
        self.nodes[node.index()].root
    }

    pub(crate) fn children(&self, node: NodeId) -> &[NodeId] {
        &self.nodes[node.index()].children
    }

    /// Books an amount at a node, or takes it away if it is negative, up to where the parent sees it.
    pub(crate) fn add(&mut self, node: NodeId, cell: CellId, amount: i64) {
        let Some(mut index) = self.find(node, cell) else { return };
        self.bookings.0 += 1;
        let column = index - self.nodes[node.index()].row;
        let (mut node, mut amount) = (node, i128::from(amount));
        loop {
            let here = &mut self.cells[index];
            let before = here.usage_above_local();
            here.usage += amount;
            amount = here.usage_above_local() - before;
            match self.nodes[node.index()].parent {
                Some(parent) if amount != 0 => {
                    node = parent;
                    index = self.nodes[parent.index()].row + column;
                }
                _ => return,
            }
        }
    }

    /// Books all of these, or takes them away if `sign` is -1.
    pub(crate) fn add_all(&mut self, node: NodeId, amounts: &[(CellId, i64)], sign: i64) {
        for (cell, amount) in amounts {
            self.add(node, *cell, amount.saturating_mul(sign));
        }
    }

    /// What a node could still use; negative where more is used than there is.
    fn available_at(&self, node: NodeId, column: usize) -> i128 {
        let Node { parent, row, .. } = self.nodes[node.index()];
        let here = &self.cells[row + column];
        let Some(parent) = parent else { return here.subtree - here.usage };
        let above = self.available_at(parent, column);
        let lent = match here.borrowing_limit() {
            None => above,
            Some(limit) => above.min(limit + (here.subtree - here.local) - here.usage_above_local()),
        };
        here.local_available() + lent
    }

    /// What a queue could still use; negative where more is used than there is.
    pub(crate) fn room(&self, node: NodeId, cell: CellId) -> i128 {
        let Some(index) = self.find(node, cell) else { return 0 };
        self.available_at(node, index - self.nodes[node.index()].row)
    }

    /// What a queue could still use, at least nothing.
    pub(crate) fn available(&self, node: NodeId, cell: CellId) -> i128 {
        self.room(node, cell).max(0)
    }

    /// What a queue could still use, and how high up it has to borrow to use this much more.
    pub(crate) fn weigh(&self, node: NodeId, cell: CellId, amount: i64) -> Weighed {
        let amount = i128::from(amount);
        let Some(index) = self.find(node, cell) else {
            return Weighed { available: 0, level: self.level(node, cell, amount) };
        };
        let (here, Node { parent, row, .. }) = (&self.cells[index], &self.nodes[node.index()]);
        let available = self.available_at(node, index - row).max(0);
        // Most requests borrow nothing.
        let level = if parent.is_some() && here.usage + amount > here.subtree {
            self.level(node, cell, amount)
        } else {
            Level { height: 0, may_reclaim: parent.is_some() }
        };
        Weighed { available, level }
    }

    /// The most that could ever be used at a node.
    pub(crate) fn potential(&self, node: NodeId, cell: CellId) -> i128 {
        self.find(node, cell).map_or(0, |index| self.given[index].potential)
    }

    pub(crate) fn nominal(&self, node: NodeId, cell: CellId) -> i128 {
        self.find(node, cell).map_or(0, |index| self.given[index].nominal)
    }

    /// The quota of a node and of all that its children lend.
    pub(crate) fn subtree(&self, node: NodeId, cell: CellId) -> i128 {
        self.find(node, cell).map_or(0, |index| self.cells[index].subtree)
    }

    pub(crate) fn usage(&self, node: NodeId, cell: CellId) -> i128 {
        self.find(node, cell).map_or(0, |index| self.cells[index].usage)
    }

    pub(crate) fn borrowing_limit(&self, node: NodeId, cell: CellId) -> Option<i128> {
        self.cells[self.find(node, cell)?].borrowing_limit()
    }

    /// Whether a node would borrow with this much more.
    pub(crate) fn borrows_with(&self, node: NodeId, cell: CellId, amount: i128) -> bool {
        self.find(node, cell).is_none_or(|index| {
            let here = &self.cells[index];
            here.usage + amount > here.subtree
        })
    }

    /// Whether a node uses no more than it has of its own, its children's lending included.
    pub(crate) fn is_within_quota(&self, node: NodeId, cells: &[CellId]) -> bool {
        cells.iter().all(|cell| !self.borrows_with(node, *cell, 0))
    }

    /// What is left of an amount once a node has given what its parent does not see.
    pub(crate) fn beyond_local(&self, node: NodeId, cell: CellId, amount: i128) -> i128 {
        let local = self.find(node, cell).map_or(0, |index| self.cells[index].local_available());
        (amount - local).max(0)
    }

    /// How high up a queue has to borrow to use this much more.
    pub(crate) fn level(&self, node: NodeId, cell: CellId, amount: i128) -> Level {
        let Some(mut above) = self.parent(node) else { return Level { height: 0, may_reclaim: false } };
        if !self.borrows_with(node, cell, amount) {
            return Level { height: 0, may_reclaim: true };
        }
        let mut remaining = self.beyond_local(node, cell, amount);
        loop {
            let height = self.nodes[above.index()].height;
            let parent = self.parent(above);
            if !self.borrows_with(above, cell, remaining) {
                return Level { height, may_reclaim: parent.is_some() };
            }
            remaining = self.beyond_local(above, cell, remaining);
            match parent {
                Some(parent) => above = parent,
                None => return Level { height, may_reclaim: false },
            }
        }
    }
}

fn root_of(plan: &Plan, mut node: NodeId) -> NodeId {
    while let Some(parent) = plan.parents[node.index()] {
        node = parent;
    }
    node
}
