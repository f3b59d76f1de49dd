//! A slow, obvious model of the quota engine. It knows nothing of the engine's code: everything is
//! recomputed from the list of holders, snapshots are cloned, and one head per queue is taken per pass.

mod checks;
mod cycle;
mod fallback;
mod flavors;
mod preemption;
mod readiness;
mod reserve;
mod settle;
mod tree;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gangway_model::queues::{ClusterQueue, Cohort, Flavor, LocalQueue, Namespace, StopPolicy};
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::selector::Labels;
use gangway_model::workload::{Assignment, State, Workload};
use gangway_model::{
    AdmissionCheckName, Amount, ClusterQueueName, FlavorName, NamespaceName, ObjectName, ResourceName,
    Timestamp, Uid,
};

pub use checks::Answer;
pub use fallback::Tried;
pub use preemption::Proof;
pub use readiness::Standing;
use readiness::{Attempts, Pods};
pub use settle::{IDLE_PASSES, ReplayClock};
use tree::Layout;
pub use tree::{Amounts, Cell, Holder, Node, Snapshot};
use waiting::{QueueState, Shape, Waiter};

/// The deliberate differences from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Room freed for a preemptor is kept for it.
    pub hold: bool,
    /// A waiting workload that could live on its queue's own quota keeps others from borrowing it.
    pub standing_reserve: bool,
    /// Nothing is admitted on room that a victim still has.
    pub victims_room_waits: bool,
    /// A preemptor loses its place at the front when it fails.
    pub sticky_mark_ends: bool,
    /// A scan that finds itself where it was is over, and every resource counts for how well a flavor suits.
    pub searches_end: bool,
}

impl Rules {
    pub fn reference() -> Self {
        Self {
            hold: false,
            standing_reserve: false,
            victims_room_waits: false,
            sticky_mark_ends: false,
            searches_end: false,
        }
    }

    pub fn gangway() -> Self {
        Self {
            hold: true,
            standing_reserve: true,
            victims_room_waits: true,
            sticky_mark_ends: true,
            searches_end: true,
        }
    }
}

/// What an administrator sets up.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    pub flavors: Vec<Flavor>,
    pub cohorts: Vec<Cohort>,
    pub cluster_queues: Vec<ClusterQueue>,
    pub local_queues: Vec<LocalQueue>,
    pub namespaces: Vec<Namespace>,
}

/// A decision, in the order in which they are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    Admitted {
        uid: Uid,
        queue: ClusterQueueName,
        /// Per podSet.
        flavors: Vec<Vec<(ResourceName, FlavorName)>>,
        /// Otherwise its checks have to agree first.
        may_start: bool,
    },
    Preempted {
        preemptor: Uid,
        /// By uid, with the right by which each was taken.
        victims: Vec<(Uid, String)>,
    },
    /// It has given up every flavor and tries all of them again after a while.
    RetriesAll { uid: Uid },
    /// It had to leave, or is deactivated, while a round lasts.
    Left(Evicted),
}

impl Decided {
    /// Whom it is about.
    pub fn uid(&self) -> &Uid {
        match self {
            Self::Admitted { uid, .. }
            | Self::Preempted { preemptor: uid, .. }
            | Self::RetriesAll { uid } => uid,
            Self::Left(evicted) => &evicted.uid,
        }
    }
}

/// A workload that had to leave because of a stop policy, a check or its deactivation, or because its pods were not ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub uid: Uid,
    pub reason: &'static str,
    /// How often it was sent back by now.
    pub count: u32,
    /// It is not tried before.
    pub requeue_at: Option<Timestamp>,
}

/// How often something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Admissions above the queue's own quota.
    pub borrowed: usize,
    /// Admissions for which a cohort above the queue's own had to lend.
    pub borrowed_across_levels: usize,
    /// Victims in the preemptor's own queue.
    pub preempted_in_queue: usize,
    /// Victims in other queues.
    pub reclaimed: usize,
    /// Searches in which somebody who had been removed was spared.
    pub spared: usize,
    /// Workloads set aside untried because one of the same shape was.
    pub parked_by_shape: usize,
    /// Workloads that took what was held for a preemptor of less priority in their queue.
    pub taken_over: usize,
    /// Workloads that were sent back because their pods were not ready in time.
    pub timed_out: usize,
    /// Workloads that were queued again when they had not been tried for a while.
    pub backed_off: usize,
    /// Workloads that were deactivated because they had been sent back often enough.
    pub deactivated: usize,
    /// Such workloads that somebody activated again.
    pub reactivated: usize,
    /// Workloads that fitted and had to wait until somebody else had started.
    pub blocked: usize,
    /// Workloads of which a pod was lost.
    pub lost_pods: usize,
    /// Workloads that had been sent back and counted anew because they were ready for long.
    pub counted_anew: usize,
    /// Workloads that gave up flavors because their time was over.
    pub fell_back_by_timeout: usize,
    /// Workloads that gave up flavors because a check rejected them.
    pub fell_back_by_rejection: usize,
    /// Workloads that had given up all flavors and try all of them again.
    pub rounds_retried: usize,
    /// Workloads that had given up all flavors and were deactivated.
    pub deactivated_exhausted: usize,
    /// Victims that had waited for their start on flavors that they do not have for ever.
    pub preempted_mid_budget: usize,
    /// Workloads that had quota and had to wait for their checks.
    pub reserved: usize,
    /// Workloads that started when their checks had agreed.
    pub let_start: usize,
    /// Workloads that were sent back because a check asked for it.
    pub retried_by_check: usize,
    /// Workloads that were deactivated because a check rejected them.
    pub deactivated_by_check: usize,
}

/// What is kept for a preemptor, and the flavors for which it found its victims.
#[derive(Clone, Debug)]
struct Hold {
    usage: Amounts,
    /// Per podSet.
    flavors: Vec<Vec<(ResourceName, FlavorName)>>,
    /// When the last victim left.
    victims_left_at: Option<Timestamp>,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    flavors: BTreeMap<FlavorName, Flavor>,
    cluster_queues: BTreeMap<ClusterQueueName, ClusterQueue>,
    local_queues: BTreeMap<ObjectName, LocalQueue>,
    namespaces: BTreeMap<NamespaceName, Labels>,
    layout: Rc<Layout>,
    workloads: BTreeMap<Uid, Rc<Workload>>,
    holders: BTreeMap<Uid, Rc<Holder>>,
    assignments: BTreeMap<Uid, Vec<Vec<(ResourceName, FlavorName)>>>,
    waiters: BTreeMap<Uid, Waiter>,
    queues: BTreeMap<ClusterQueueName, QueueState>,
    /// What is kept for preemptors that wait for their victims' room.
    holds: BTreeMap<Uid, Hold>,
    /// By whom a workload was preempted last.
    evicted_for: BTreeMap<Uid, Uid>,
    /// Trees in which a preemptor gave up in this pass. They are woken at its end, so that whoever was
    /// evaluated before that is not forgotten.
    given_up: BTreeSet<Node>,
    /// Trees in which a queue stopped keeping others from borrowing.
    unclaimed: BTreeSet<Node>,
    /// Every shape that ever waited; workloads refer to it by its number.
    shapes: Vec<Shape>,
    shape_of: BTreeMap<Uid, usize>,
    /// Who took over what was kept for a preemptor.
    beaten_by: BTreeMap<Uid, Uid>,
    now: Timestamp,
    /// When pods have to be ready; none if nobody asks.
    readiness: Option<WaitForPodsReady>,
    /// Whose pods are ready when it runs.
    ready: BTreeSet<Uid>,
    /// The pods of those who have quota.
    pods: BTreeMap<Uid, Pods>,
    attempts: BTreeMap<Uid, Attempts>,
    tried: BTreeMap<Uid, Tried>,
    /// Since when those have had quota whose pods were not all ready since.
    waits_since: BTreeMap<Uid, Timestamp>,
    /// What the checks say of those who have quota.
    asked: BTreeMap<Uid, BTreeMap<AdmissionCheckName, Answer>>,
    /// Those who have quota and may not start yet.
    not_admitted: BTreeSet<Uid>,
    proofs: Vec<Proof>,
    counts: Counts,
}

impl Model {
    pub fn new(rules: Rules, setup: Setup) -> Self {
        let mut layout = Layout::new(setup.cluster_queues.iter(), setup.cohorts.iter());
        let flavors: BTreeMap<_, _> = setup.flavors.into_iter().map(|f| (f.name.clone(), f)).collect();
        for queue in &setup.cluster_queues {
            if layout.in_a_cycle(&queue.name) || !is_usable(queue, &flavors) {
                layout.put_to_sleep(&queue.name);
            }
        }
        let queues = setup.cluster_queues.iter().map(|q| (q.name.clone(), QueueState::default())).collect();
        Self {
            rules,
            flavors,
            cluster_queues: setup.cluster_queues.into_iter().map(|q| (q.name.clone(), q)).collect(),
            local_queues: setup.local_queues.into_iter().map(|q| (q.name.clone(), q)).collect(),
            namespaces: setup.namespaces.into_iter().map(|n| (n.name, n.labels)).collect(),
            layout: Rc::new(layout),
            workloads: BTreeMap::new(),
            holders: BTreeMap::new(),
            assignments: BTreeMap::new(),
            waiters: BTreeMap::new(),
            queues,
            holds: BTreeMap::new(),
            evicted_for: BTreeMap::new(),
            given_up: BTreeSet::new(),
            unclaimed: BTreeSet::new(),
            shapes: Vec::new(),
            shape_of: BTreeMap::new(),
            beaten_by: BTreeMap::new(),
            now: Timestamp::EPOCH,
            readiness: None,
            ready: BTreeSet::new(),
            pods: BTreeMap::new(),
            attempts: BTreeMap::new(),
            tried: BTreeMap::new(),
            waits_since: BTreeMap::new(),
            asked: BTreeMap::new(),
            not_admitted: BTreeSet::new(),
            proofs: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// A workload appears, pending or already holding quota.
    pub fn add(&mut self, workload: Workload) {
        let uid = workload.uid.clone();
        self.note_tried(&uid, &workload.state);
        match &workload.state {
            State::Holding(reservation) | State::Evicting(reservation, _) => {
                let flavors = |set: &Assignment| {
                    let mut flavors = set.flavors.clone();
                    flavors.sort();
                    flavors
                };
                let mut usage = Amounts::new();
                for set in reservation.admission.pod_sets.iter() {
                    let pods = i64::from(set.count);
                    for (resource, flavor) in &set.flavors {
                        let given = set.usage.get(resource.as_str());
                        let ended =
                            if set.reclaimed > 0 { given / pods * i64::from(set.reclaimed) } else { 0 };
                        let cell = (flavor.clone(), resource.clone());
                        tree::add(&mut usage, &Amounts::from([(cell, Amount::new(given - ended))]));
                    }
                }
                let holder = Holder {
                    queue: reservation.admission.cluster_queue.clone(),
                    priority: workload.priority,
                    created: workload.created,
                    reserved_at: reservation.reserved_at,
                    usage,
                };
                self.assignments
                    .insert(uid.clone(), reservation.admission.pod_sets.iter().map(flavors).collect());
                self.holders.insert(uid.clone(), Rc::new(holder));
                self.note_start(&uid, reservation);
                self.workloads.insert(uid, Rc::new(workload));
            }
            State::Pending(_) => {
                self.workloads.insert(uid.clone(), Rc::new(workload));
                self.enqueue(&uid);
            }
            State::Finished(..) => {}
        }
    }

    /// A workload ends. Ignored unless it holds quota.
    pub fn finish(&mut self, uid: &Uid) {
        if let Some(holder) = self.release(uid) {
            self.wake_for(uid, &holder.queue);
        }
    }

    /// A holder of this queue left, and all in its tree are reconsidered. A defect of the reference: who leaves in a
    /// LocalQueue on hold wakes nobody, and only lets scans in its queue begin again.
    pub(crate) fn wake_for(&mut self, uid: &Uid, queue: &ClusterQueueName) {
        let local = self.workloads.get(uid).and_then(|workload| self.local_queue(workload));
        let unnoticed = local.is_some_and(|queue| queue.stop_policy != StopPolicy::None);
        if self.rules.searches_end || !unnoticed {
            self.wake_after(queue);
        } else if let Some(state) = self.queues.get_mut(queue) {
            state.generation += 1;
        }
    }

    /// It is this late now.
    pub fn set_time(&mut self, now: Timestamp) {
        self.now = now;
    }

    /// Stop policies, deactivation and deadlines take effect, and all that was set aside is reconsidered.
    pub fn begin_round(&mut self) -> Vec<Evicted> {
        let mut evicted = Vec::new();
        for (uid, holder) in self.holders.clone() {
            let reason = self.must_leave(&uid, &holder.queue).or_else(|| self.refused(&uid));
            let reason = reason.or_else(|| {
                self.follow_pods(&uid);
                self.give_up_in_time(&uid).or_else(|| self.out_of_time(&uid))
            });
            if let Some(reason) = reason {
                evicted.push(self.evict(uid, &holder.queue, reason));
            }
        }
        self.let_start();
        self.come_back();
        self.end_old_holds();
        self.reconsider_all();
        evicted
    }

    fn must_leave(&self, uid: &Uid, queue: &ClusterQueueName) -> Option<&'static str> {
        let workload = self.workloads.get(uid)?;
        // What runs on a queue on hold goes on; what waits for its checks does not.
        let waits = self.not_admitted.contains(uid);
        let drains =
            |policy| policy == Some(StopPolicy::HoldAndDrain) || waits && policy == Some(StopPolicy::Hold);
        if !workload.active {
            return Some("Deactivated");
        }
        let local = self.local_queue(workload).map(|queue| queue.stop_policy);
        if drains(local) {
            return Some("LocalQueueStopped");
        }
        // A defect of the reference: a LocalQueue on hold hides that its ClusterQueue is drained.
        let hidden = !self.rules.searches_end && local == Some(StopPolicy::Hold);
        let drained = drains(self.cluster_queues.get(queue).map(|queue| queue.stop_policy));
        (drained && !hidden).then_some("ClusterQueueStopped")
    }

    /// Takes quota away from a holder.
    fn release(&mut self, uid: &Uid) -> Option<Rc<Holder>> {
        self.stop_time(uid);
        let holder = self.holders.remove(uid)?;
        self.assignments.remove(uid);
        self.end_readiness(uid);
        self.pods.remove(uid);
        self.forget_checks(uid);
        Some(holder)
    }

    /// The place in the tree, if there is one, where more is used than there is of what a holder uses.
    pub fn oversubscribed_by(&self, uid: &Uid) -> Option<(Node, Cell)> {
        let holder = self.holders.get(uid)?;
        self.snapshot_of_holders().oversubscribed(&holder.queue, &holder.usage)
    }

    /// Those who hold quota.
    pub fn holders(&self) -> &BTreeMap<Uid, Rc<Holder>> {
        &self.holders
    }

    /// The flavors of a holder, per podSet.
    pub fn flavors_of(&self, uid: &Uid) -> &[Vec<(ResourceName, FlavorName)>] {
        self.assignments.get(uid).map_or(&[], Vec::as_slice)
    }

    /// The root of a queue's tree.
    pub fn root(&self, queue: &ClusterQueueName) -> Node {
        self.layout.root(queue)
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What every preemption so far was based on.
    pub fn proofs(&self) -> &[Proof] {
        &self.proofs
    }
}

fn is_usable(queue: &ClusterQueue, flavors: &BTreeMap<FlavorName, Flavor>) -> bool {
    let mut listed = queue.resource_groups.iter().flat_map(|group| &group.flavors);
    queue.stop_policy == StopPolicy::None
        && !queue.deleting
        && queue.invalid.is_none()
        && listed.all(|quotas| flavors.contains_key(&quotas.flavor))
}
