//! What a head sees of the tree: holds of others and standing reserves of other queues are booked.

use std::collections::BTreeSet;

use gangway_model::queues::ReclaimWithinCohort;
use gangway_model::{Amount, ClusterQueueName, FlavorName, Uid};

use super::Model;
use super::flavors::{Assignment, Mode, suits, wanted_of};
use super::tree::{Amounts, Booking, Cell, Node, Snapshot};
use super::waiting::LaneName;

impl Model {
    /// Holders alone.
    pub(super) fn snapshot_of_holders(&self) -> Snapshot {
        Snapshot { layout: self.layout.clone(), holders: self.holders.clone(), booked: Vec::new() }
    }

    /// Holders and holds as they are now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let booked = self.holds.iter().filter_map(|(uid, hold)| {
            let queue = self.waiters.get(uid)?.queue.clone()?;
            Some((Booking::Hold(uid.clone()), queue, hold.usage.clone()))
        });
        Snapshot { booked: booked.collect(), ..self.snapshot_of_holders() }
    }

    /// The snapshot as a queue's head sees it: without its own hold and those in `beats`, with the reserves of
    /// other queues. What is held for a preemptor nobody may reserve.
    pub(super) fn seen_by(
        &self,
        snapshot: &Snapshot,
        queue: &ClusterQueueName,
        uid: &Uid,
        beats: &BTreeSet<Uid>,
    ) -> Snapshot {
        let mut view = snapshot.clone();
        let is_lifted = |holder: &Uid| holder == uid || beats.contains(holder);
        view.booked.retain(|(kind, ..)| !matches!(kind, Booking::Hold(holder) if is_lifted(holder)));
        if self.holds.contains_key(uid) {
            return view;
        }
        for other in self.cluster_queues.keys().filter(|other| *other != queue) {
            if let Some(reserve) = self.standing_reserve(snapshot, other) {
                view.booked.push((Booking::Standing, other.clone(), reserve));
            }
        }
        view
    }

    /// The need of the first in order whose shape was set aside with one that counts.
    fn claim(&self, queue: &ClusterQueueName) -> Option<&Amounts> {
        let claims = &self.queues[queue].claims;
        if claims.is_empty() {
            return None;
        }
        let mut waiting = self.waiting_in(queue);
        if self.is_strict(queue) {
            // Behind the first nobody can start.
            waiting.truncate(1);
        }
        let mut waiting = waiting.iter().filter(|uid| !self.holds.contains_key(*uid));
        waiting.find_map(|uid| claims.get(&self.lane(uid)))
    }

    /// What the first claim of a queue keeps from others, beyond what this pass reserves anyway.
    fn standing_reserve(&self, snapshot: &Snapshot, queue: &ClusterQueueName) -> Option<Amounts> {
        let need = self.claim(queue)?;
        let node = Node::Queue(queue.clone());
        let reserve = need.iter().map(|(cell, need)| {
            let used = snapshot.used(queue, cell, |kind| matches!(kind, Booking::Hold(_)));
            let in_this_pass = snapshot.used(queue, cell, |_| true).minus(used);
            let own_room = snapshot.layout.quota(&node, cell).nominal.minus(used).max(Amount::ZERO);
            (cell.clone(), own_room.min(*need).minus(in_this_pass).max(Amount::ZERO))
        });
        Some(reserve.collect())
    }

    /// Forgets the claims of shapes of which nobody waits any more, and notes whose reserve has become smaller.
    pub(super) fn follow_claims(&mut self) {
        let claimed =
            self.queues.iter().filter(|(_, state)| state.claimed.is_some() || !state.claims.is_empty());
        for queue in claimed.map(|(queue, _)| queue.clone()).collect::<Vec<_>>() {
            let waiting = self.waiting_in(&queue);
            let waiting = waiting.iter().filter(|uid| !self.holds.contains_key(*uid));
            let shapes: BTreeSet<LaneName> = waiting.map(|uid| self.lane(uid)).collect();
            let Some(state) = self.queues.get_mut(&queue) else { continue };
            state.claims.retain(|shape, _| shapes.contains(shape));
            let claim = self.claim(&queue).cloned();
            let Some(state) = self.queues.get_mut(&queue) else { continue };
            let before = std::mem::replace(&mut state.claimed, claim.clone());
            let now = claim.unwrap_or_default();
            let less =
                |(cell, amount): (&Cell, &Amount)| now.get(cell).copied().unwrap_or_default() < *amount;
            if before.is_some_and(|before| before.iter().any(less)) {
                self.unclaimed.insert(self.layout.root(&queue));
            }
        }
    }

    /// What entitles a workload that fails to the standing reserve: it needs no more than its queue has of its own,
    /// each podSet of the first flavor of the list that allows it. Who uses it at the moment does not matter.
    pub(super) fn qualification(&self, queue: &ClusterQueueName, uid: &Uid) -> Option<Amounts> {
        let definition = &self.cluster_queues[queue];
        let counts =
            self.rules.standing_reserve && definition.cohort.is_some() && self.cannot_always_reclaim(queue);
        if !counts {
            return None;
        }
        let node = Node::Queue(queue.clone());
        let given_up = self.given_up(uid);
        let mut needs = Amounts::new();
        for pod_set in self.workloads[uid].pod_sets.iter() {
            for (group, wanted) in wanted_of(definition, pod_set)? {
                let with_wanted = |flavor: &FlavorName| {
                    let more = wanted.iter().map(|(resource, value)| {
                        let cell = (flavor.clone(), resource.clone());
                        let before = needs.get(&cell).copied().unwrap_or_default();
                        (cell, before.plus(*value))
                    });
                    let more: Amounts = more.collect();
                    let is_own = |(cell, need): (&Cell, &Amount)| {
                        *need <= self.layout.quota(&node, cell).nominal
                            && *need <= self.layout.potential(&node, cell)
                    };
                    more.iter().all(is_own).then_some(more)
                };
                let suiting = group.flavors.iter().map(|quotas| &quotas.flavor);
                let mut suiting = suiting
                    .filter(|flavor| suits(&self.flavors, pod_set, flavor) && !given_up.contains(*flavor));
                let more = suiting.find_map(with_wanted)?;
                needs.extend(more);
            }
        }
        Some(needs)
    }

    fn cannot_always_reclaim(&self, queue: &ClusterQueueName) -> bool {
        self.cluster_queues[queue].preemption.reclaim_within_cohort != ReclaimWithinCohort::Any
    }

    /// What a head without victims keeps from lower ranked heads of the same pass; nothing where it could
    /// take it back, and nothing where a standing reserve keeps it anyway.
    pub(super) fn reserve_in_pass(
        &self,
        view: &Snapshot,
        queue: &ClusterQueueName,
        uid: &Uid,
        assignment: &Assignment,
    ) -> Option<Amounts> {
        let stands = self.qualification(queue, uid).is_some();
        if assignment.mode == Mode::NoFit || !self.cannot_always_reclaim(queue) || stands {
            return None;
        }
        let node = Node::Queue(queue.clone());
        let mut reserve = Amounts::new();
        for (cell, need) in &assignment.usage {
            let quota = self.layout.quota(&node, cell);
            let used = view.usage(&node, cell);
            let kept = match (assignment.borrow > 0, quota.borrowing_limit) {
                (false, _) => quota.nominal.minus(used).min(*need).max(Amount::ZERO),
                (true, None) => *need,
                (true, Some(limit)) => quota.nominal.plus(limit).minus(used).min(*need),
            };
            reserve.insert(cell.clone(), kept);
        }
        Some(reserve)
    }
}
