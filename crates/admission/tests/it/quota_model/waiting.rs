//! Who waits where, and in which order.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gangway_model::constraints::Constraints;
use gangway_model::queues::{LocalQueue, QueueingStrategy, StopPolicy};
use gangway_model::workload::Workload;
use gangway_model::{
    ClusterQueueName, FlavorName, ObjectName, PodSetName, Requests, ResourceName, Timestamp, Uid,
};

use super::Model;
use super::flavors::{Complaint, ScanPositions};
use super::tree::{Amounts, Node};

/// Where a pending workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It will be tried.
    Active,
    /// It is set aside until something happens.
    Inadmissible,
    /// It is not queued at all.
    Outside,
}

/// What makes two workloads of a queue equal to an evaluation: priority, podSets, and the flavors that are given up.
pub type Shape = (i32, Vec<(PodSetName, i32, Requests, Constraints)>, BTreeSet<FlavorName>);

/// The number of a shape, and for whom somebody of that shape left.
pub type LaneName = (usize, Option<Uid>);

/// Where the flavor scan of the last attempt ended, and the queue's generation at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanMemory {
    pub generation: u64,
    pub positions: ScanPositions,
    /// The farthest that the scan has come to in each of its podSets and resources.
    pub farthest: BTreeMap<(usize, ResourceName), usize>,
}

/// A pending workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiter {
    pub queue: Option<ClusterQueueName>,
    pub place: Place,
    pub memory: Option<ScanMemory>,
    pub told: Option<Told>,
}

/// What a workload that is not admitted is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Complaints(Vec<Complaint>),
    /// Somebody else went first.
    Passed {
        /// They wanted the same victims.
        overlaps: bool,
    },
}

impl Waiter {
    pub fn outside() -> Self {
        Self { queue: None, place: Place::Outside, memory: None, told: None }
    }
}

/// What a queue remembers.
#[derive(Clone, Debug, Default)]
pub struct QueueState {
    /// The last preemptor, if it goes first.
    pub sticky: Option<Uid>,
    /// Shapes that were set aside since the queue was last woken.
    pub failed: BTreeSet<LaneName>,
    /// What others may not borrow, by the shape that was set aside with such a need when last evaluated.
    pub claims: BTreeMap<LaneName, Amounts>,
    /// What was kept from others when last looked.
    pub claimed: Option<Amounts>,
    /// How often something was released in the tree.
    pub generation: u64,
}

/// Lower goes first.
pub type QueueOrder = (bool, Reverse<i32>, bool, Timestamp, Uid);

impl Model {
    pub(super) fn local_queue(&self, workload: &Workload) -> Option<&LocalQueue> {
        self.local_queues.get(&ObjectName::new(workload.name.namespace.clone(), &workload.queue))
    }

    /// The queue in which a workload may wait, if it may at all.
    fn queue_for(&self, workload: &Workload) -> Option<ClusterQueueName> {
        let local = self.local_queue(workload)?;
        let open = local.stop_policy == StopPolicy::None && !local.deleting;
        let ready = workload.active && workload.impediments.is_none() && !workload.deleting;
        (open && ready && self.cluster_queues.contains_key(&local.cluster_queue))
            .then(|| local.cluster_queue.clone())
    }

    /// Puts a workload without quota where it belongs.
    pub(super) fn enqueue(&mut self, uid: &Uid) {
        self.note_shape(uid);
        let queue = self.queue_for(&self.workloads[uid]).filter(|_| !self.backs_off(uid));
        let mut waiter = Waiter { queue, ..Waiter::outside() };
        if let Some(queue) = &waiter.queue {
            waiter.place = Place::Active;
            if self.queues[queue].failed.contains(&self.lane(uid)) {
                waiter.place = Place::Inadmissible;
                self.counts.parked_by_shape += 1;
            }
        }
        self.waiters.insert(uid.clone(), waiter);
    }

    pub(super) fn note_shape(&mut self, uid: &Uid) {
        let workload = &self.workloads[uid];
        let sets = workload.pod_sets.iter();
        let sets =
            sets.map(|set| (set.name.clone(), set.count, set.requests.clone(), (*set.constraints).clone()));
        let shape: Shape = (workload.priority, sets.collect(), self.given_up(uid));
        let known = self.shapes.iter().position(|known| *known == shape);
        let number = known.unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        });
        self.shape_of.insert(uid.clone(), number);
    }

    /// Who is tried together: who asks for the same, and left for the same if for anybody.
    pub(super) fn lane(&self, uid: &Uid) -> LaneName {
        let left_for = self.evicted_for.get(uid).filter(|_| self.rules.hold);
        (self.shape_of[uid], left_for.cloned())
    }

    pub(super) fn is_strict(&self, queue: &ClusterQueueName) -> bool {
        self.cluster_queues[queue].strategy == QueueingStrategy::StrictFifo
    }

    /// In a strict queue it counts for nothing that somebody preempted.
    fn queue_order(&self, queue: &ClusterQueueName, uid: &Uid) -> QueueOrder {
        let workload: &Rc<Workload> = &self.workloads[uid];
        let best_effort = !self.is_strict(queue);
        let is_sticky = best_effort && self.queues[queue].sticky.as_ref() == Some(uid);
        let has_hold = best_effort && self.holds.contains_key(uid);
        (!is_sticky, Reverse(workload.priority), !has_hold, self.queued_at(uid), uid.clone())
    }

    /// The pending workloads of a queue, in queue order.
    pub(super) fn waiting_in(&self, queue: &ClusterQueueName) -> Vec<Uid> {
        let here = self.waiters.iter().filter(|(_, waiter)| waiter.queue.as_ref() == Some(queue));
        let mut uids: Vec<Uid> = here.map(|(uid, _)| uid.clone()).collect();
        uids.sort_by_cached_key(|uid| self.queue_order(queue, uid));
        uids
    }

    /// The workload to try next. A strict queue has none if its first was set aside.
    pub(super) fn head(&self, queue: &ClusterQueueName) -> Option<Uid> {
        let mut waiting = self.waiting_in(queue);
        if self.is_strict(queue) {
            waiting.truncate(1);
        }
        waiting.into_iter().find(|uid| self.waiters[uid].place == Place::Active)
    }

    /// Whether the queue accepts workloads of this one's namespace.
    pub(super) fn namespace_is_selected(&self, uid: &Uid, queue: &ClusterQueueName) -> bool {
        let selector = self.cluster_queues[queue].namespace_selector.as_ref();
        let labels = self.namespaces.get(&self.workloads[uid].name.namespace);
        labels.is_some_and(|labels| selector.is_some_and(|selector| selector.matches(labels)))
    }

    /// A holder of this queue left: all in its tree are reconsidered.
    pub(super) fn wake_after(&mut self, left: &ClusterQueueName) {
        self.wake(&self.layout.root(left), Some(left));
    }

    /// Something came free in a tree: all are reconsidered, and where scans ended counts no more. With the
    /// reference's defects it does count, but in the queue that somebody left.
    pub(super) fn wake(&mut self, root: &Node, left: Option<&ClusterQueueName>) {
        let queues: Vec<ClusterQueueName> =
            self.queues.keys().filter(|queue| self.layout.root(queue) == *root).cloned().collect();
        for queue in queues {
            self.reconsider(&queue);
            let scans_count = !self.rules.searches_end && left.is_some_and(|left| *left != queue);
            if let Some(state) = self.queues.get_mut(&queue) {
                state.generation += u64::from(!scans_count);
            }
        }
    }

    /// Everything that was set aside becomes active again.
    pub(super) fn reconsider_all(&mut self) {
        for queue in self.cluster_queues.keys().cloned().collect::<Vec<_>>() {
            self.reconsider(&queue);
        }
    }

    /// Everything in a queue that was set aside becomes active again.
    pub(super) fn reconsider(&mut self, queue: &ClusterQueueName) {
        for uid in self.waiting_in(queue) {
            if self.namespace_is_selected(&uid, queue) {
                self.move_to(&uid, Place::Active);
            }
        }
        if let Some(state) = self.queues.get_mut(queue) {
            state.failed.clear();
        }
    }

    /// Sets a workload aside, and in a best-effort queue with it all that ask for the same.
    pub(super) fn set_aside(&mut self, uid: &Uid, queue: &ClusterQueueName, claim: Option<Amounts>) {
        let shape = self.lane(uid);
        let strict = self.is_strict(queue);
        if !strict {
            for other in self.waiting_in(queue) {
                if other != *uid && self.lane(&other) == shape && !self.holds.contains_key(&other) {
                    self.counts.parked_by_shape += 1;
                    self.move_to(&other, Place::Inadmissible);
                }
            }
        }
        // Without a standing reserve a strict queue's first is tried in every pass.
        if !strict || self.rules.standing_reserve {
            self.move_to(uid, Place::Inadmissible);
        }
        let Some(state) = self.queues.get_mut(queue) else { return };
        if !strict {
            state.failed.insert(shape.clone());
        }
        match claim {
            Some(claim) => drop(state.claims.insert(shape, claim)),
            None => drop(state.claims.remove(&shape)),
        }
    }

    pub(super) fn move_to(&mut self, uid: &Uid, place: Place) {
        if let Some(waiter) = self.waiters.get_mut(uid) {
            waiter.place = place;
        }
    }
}
