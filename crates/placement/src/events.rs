//! How does news change the state?
//!
//! Every change is told to the queue as what happened, and wakes those whom it may help; no pod is looked at only because time has
//! passed.

use std::sync::Arc;

use gangway_model::{NodeName, Timestamp, Uid};

use crate::cluster::Stage;
use crate::framework::{Actions, Change, ClusterEvent, Happening, PluginId, PluginSet, Resource};
use crate::ids::{NodeIndex, PodId};
use crate::queue::{Arrival, Attempt, Place};
use crate::records::{NodeRecord, PodRecord};
use crate::shapes::Shape;
use crate::wake::Judging;
use crate::{DecisionId, Event, Flight, Outcome, Scheduler};

impl Scheduler {
    /// Takes in news. Says whether something appeared for [`Scheduler::next`] to take.
    pub fn apply(&mut self, event: Event, now: Timestamp) -> bool {
        match event {
            Event::NodeApplied(node) => self.node_applied(node, now),
            Event::NodeDeleted(name) => self.node_deleted(&name, now),
            Event::PodApplied(pod) => self.pod_applied(pod, now),
            Event::PodDeleted(uid) => self.pod_gone(&uid, now),
            Event::BudgetApplied(budget) => {
                self.budgets.insert(budget.name.clone(), budget);
            }
            Event::BudgetDeleted(name) => {
                self.budgets.remove(&name);
            }
            Event::Outcome(decision, outcome) => self.outcome(decision, outcome, now),
            Event::FamilyApplied(family) => self.family_applied(family, now),
            Event::FamilyDeleted(kind, name) => self.family_deleted(kind, name, now),
            Event::Synced => {
                self.reshape_all(now);
                self.synced = true;
            }
        }
        // Before the first lists are complete nothing may be taken, and what appeared stays to be said.
        self.synced && (self.queue.take_appeared() || !self.unreported.is_empty())
    }

    /// The name under which it is counted how long news takes, before it is taken in: that of an event which plugins may register for,
    /// without what exactly changed. None for other news.
    pub fn label_of(&self, event: &Event) -> Option<&'static str> {
        let (resource, action) = match event {
            Event::NodeApplied(record) => (Resource::Node, Some(self.action_on(&record.name))),
            Event::NodeDeleted(_) => (Resource::Node, Some(Actions::DELETE)),
            Event::PodApplied(record) => self.kind_of(record),
            Event::PodDeleted(uid) => {
                let has_node = self.has_node(uid)?;
                (pod_resource(has_node), Some(Actions::DELETE))
            }
            _ => return None,
        };
        Some(ClusterEvent { resource, action: action? }.label())
    }

    fn action_on(&self, node: &NodeName) -> Actions {
        let known = self.cluster.find_node(node).and_then(|index| self.cluster.node(index));
        if known.is_some_and(|node| node.is_present) { Actions::UPDATE } else { Actions::ADD }
    }

    fn kind_of(&self, record: &PodRecord) -> (Resource, Option<Actions>) {
        let is_ours = self.profile_of(record).is_some();
        match (self.has_node(&record.uid), record.node.is_some()) {
            (Some(had_node), _) if record.finished => (pod_resource(had_node), Some(Actions::DELETE)),
            (Some(had_node), has_node) => {
                let is_new_there = has_node && !had_node;
                let action = if is_new_there { Actions::ADD } else { Actions::UPDATE };
                (pod_resource(had_node || has_node), Some(action))
            }
            // Pods that have ended and those that others place are nobody to the scheduler.
            (None, has_node) if record.finished || !(has_node || is_ours) => (pod_resource(has_node), None),
            (None, has_node) => (pod_resource(has_node), Some(Actions::ADD)),
        }
    }

    /// Whether a pod is seen on a node; none if the pod is not known.
    fn has_node(&self, uid: &Uid) -> Option<bool> {
        let pod = self.cluster.pods.get(self.cluster.pods.find(uid)?)?;
        Some(pod.stage == Stage::Bound)
    }

    /// Wakes those whom it may help.
    pub(crate) fn happened(&mut self, resource: Resource, action: Actions, change: Change, now: Timestamp) {
        let event = ClusterEvent { resource, action };
        let happening = Happening { event, label: event.label(), change };
        let judge = Judging { cluster: &self.cluster, profiles: &self.profiles };
        self.queue.happened(&happening, now, &judge);
    }

    fn node_applied(&mut self, record: NodeRecord, now: Timestamp) {
        let Some((index, old)) = self.cluster.observe_node(record) else { return };
        let new = self.cluster.node(index).map(|node| Arc::clone(&node.record));
        for action in node_changes(old.as_deref(), new.as_deref()) {
            let change = Change::Node { index, old: old.clone(), new: new.clone() };
            self.happened(Resource::Node, action, change, now);
        }
        self.reconsider_nominated(index, now);
    }

    /// Pods for which room is made on a node that is not what it was may have to look elsewhere, and others may have that room.
    fn reconsider_nominated(&mut self, index: NodeIndex, now: Timestamp) {
        let nominated = self.cluster.node(index).map(|node| node.nominated.clone()).unwrap_or_default();
        if !nominated.is_empty() {
            self.queue.activate(
                &nominated,
                now,
                &Judging { cluster: &self.cluster, profiles: &self.profiles },
            );
        }
    }

    fn node_deleted(&mut self, name: &NodeName, now: Timestamp) {
        let Some((index, old)) = self.cluster.remove_node(name) else { return };
        let change = Change::Node { index, old: Some(old), new: None };
        self.happened(Resource::Node, Actions::DELETE, change, now);
        self.reconsider_nominated(index, now);
    }

    fn pod_applied(&mut self, record: PodRecord, now: Timestamp) {
        if record.finished {
            self.pod_gone(&record.uid, now);
            return;
        }
        let Some(id) = self.cluster.pods.find(&record.uid) else {
            match record.node.clone() {
                Some(node) => self.bound(record, &node, now),
                None => self.new_pod(record, now),
            }
            return;
        };
        let Some(pod) = self.cluster.pods.get(id) else { return };
        let (stage, at) = (pod.stage, pod.node);
        match (stage, record.node.clone()) {
            (_, Some(node)) if at.is_some() && at == self.cluster.find_node(&node) => {
                self.bound_pod_changed(id, record, now);
            }
            (_, Some(node)) => {
                self.pod_gone(&record.uid, now);
                self.bound(record, &node, now);
            }
            // A pod never loses its node: this is older than what we know, or our own binding is not seen yet.
            (Stage::Bound, None) => {}
            (Stage::Assumed(_), None) if !record.deleting => {}
            (_, None) if record.deleting => self.pod_gone(&record.uid, now),
            (_, None) => self.waiting_pod_changed(id, record, now),
        }
    }

    /// A pod that has its node, be it from us or from somebody else.
    fn bound(&mut self, record: PodRecord, node: &NodeName, now: Timestamp) {
        let index = self.cluster.node_named(node);
        let shape = Shape::of_bound(&mut self.cluster.columns, &record);
        let id = self.cluster.add_pod(record, shape);
        self.cluster.occupy(id, index);
        let Some(pod) = self.cluster.pods.get_mut(id) else { return };
        pod.stage = Stage::Bound;
        let change = Change::pod(Some(index), None, Some(Arc::clone(&pod.record)));
        self.happened(Resource::AssignedPod, Actions::ADD, change, now);
    }

    /// News of a pod on its node: our binding is seen, or it changed.
    fn bound_pod_changed(&mut self, id: PodId, record: PodRecord, now: Timestamp) {
        let Some(pod) = self.cluster.pods.get_mut(id) else { return };
        let old = Arc::clone(&pod.record);
        if let Stage::Assumed(decision) = std::mem::replace(&mut pod.stage, Stage::Bound) {
            self.families.leave(id, &old);
            self.in_flight.remove(&decision);
            self.queue.delete(id, now, &Judging { cluster: &self.cluster, profiles: &self.profiles });
        }
        let shape = Shape::of_bound(&mut self.cluster.columns, &record);
        let index = self.cluster.settle(id, record, shape);
        let new = self.cluster.pods.get(id).map(|pod| Arc::clone(&pod.record));
        for action in new.iter().flat_map(|new| bound_pod_changes(&old, new)) {
            let change = Change::pod(index, Some(Arc::clone(&old)), new.clone());
            self.happened(Resource::AssignedPod, action, change, now);
        }
    }

    /// A pod that waits for a node from us appears.
    fn new_pod(&mut self, record: PodRecord, now: Timestamp) {
        let Some(profile) = self.profile_of(&record).filter(|_| !record.deleting) else { return };
        let shape = self.shape_for(profile, &record);
        let nominated = record.nominated_node.clone().map(|node| self.cluster.node_named(&node));
        let id = self.cluster.add_pod(record, shape);
        if let Some(pod) = self.cluster.pods.get(id) {
            self.families.enter(id, &pod.record);
        }
        // Before it can be popped.
        self.cluster.nominate(id, nominated);
        let Some(arrival) = self.arrival(id) else { return };
        self.queue.add(arrival, now, &Judging { cluster: &self.cluster, profiles: &self.profiles });
        self.note_refusal(id);
    }

    fn waiting_pod_changed(&mut self, id: PodId, record: PodRecord, now: Timestamp) {
        let Some(pod) = self.cluster.pods.get(id) else { return };
        let (old, was_nominated) = (Arc::clone(&pod.record), pod.nominated);
        let Some(profile) = self.profile_of(&record).filter(|_| *old != record) else { return };
        let shape = self.shape_for(profile, &record);
        // What we decided may not be written yet: where the object says what it said before, we know better.
        let nominated = if old.nominated_node == record.nominated_node {
            was_nominated
        } else {
            record.nominated_node.clone().map(|node| self.cluster.node_named(&node))
        };
        self.families.leave(id, &old);
        self.families.enter(id, &record);
        self.cluster.replace_record(id, record, shape);
        self.cluster.nominate(id, nominated);
        let new = self.cluster.pods.get(id).map(|pod| Arc::clone(&pod.record));
        let mut happenings = seen_by_itself(&old, new.as_ref());
        if was_nominated != nominated {
            happenings.push(must_look_again(&old.uid));
        }
        let Some(arrival) = self.arrival(id) else { return };
        let judge = Judging { cluster: &self.cluster, profiles: &self.profiles };
        self.queue.update(arrival, &happenings, now, &judge);
        self.note_refusal(id);
        match was_nominated {
            Some(node) if was_nominated != nominated => self.not_kept(node, Some(old), now),
            Some(node) => self.kept_for_another_shape(node, &old, new, now),
            None => {}
        }
    }

    /// A pod for which a node is kept changed: whom it keeps out there may be others now.
    fn kept_for_another_shape(
        &mut self,
        node: NodeIndex,
        old: &Arc<PodRecord>,
        new: Option<Arc<PodRecord>>,
        now: Timestamp,
    ) {
        for action in new.iter().flat_map(|new| bound_pod_changes(old, new)) {
            let change = Change::nomination(node, Some(Arc::clone(old)), new.clone());
            self.happened(Resource::AssignedPod, action, change, now);
        }
    }

    /// Drops a pod and everything that it holds.
    fn pod_gone(&mut self, uid: &Uid, now: Timestamp) {
        let Some(id) = self.cluster.pods.find(uid) else { return };
        let Some(pod) = self.cluster.pods.get(id) else { return };
        let (stage, nominated) = (pod.stage, pod.nominated);
        if let Stage::Assumed(decision) | Stage::Preempting(decision) = stage {
            self.in_flight.remove(&decision);
        }
        self.unreported.remove(&id);
        if stage != Stage::Bound {
            self.queue.delete(id, now, &Judging { cluster: &self.cluster, profiles: &self.profiles });
        }
        let left = self.cluster.vacate(id);
        let Some(record) = self.cluster.forget_pod(id) else { return };
        self.families.leave(id, &record);
        if let Some(node) = nominated {
            self.not_kept(node, Some(Arc::clone(&record)), now);
        }
        if left.is_some() {
            let change = Change::pod(left, Some(record), None);
            self.happened(Resource::AssignedPod, Actions::DELETE, change, now);
        }
    }

    fn outcome(&mut self, decision: DecisionId, outcome: Outcome, now: Timestamp) {
        if outcome == Outcome::Unknown {
            return;
        }
        let Some(Flight { attempt, rejectors }) = self.in_flight.remove(&decision) else { return };
        let id = attempt.pod();
        let Some(pod) = self.cluster.pods.get_mut(id) else { return };
        match (pod.stage, outcome) {
            // The pod stays assumed until it is seen as bound.
            (Stage::Assumed(_), Outcome::Landed) => {}
            (Stage::Assumed(_), _) => {
                pod.stage = Stage::Waiting;
                self.binding_failed(attempt, now);
            }
            (Stage::Preempting(_), outcome) => {
                pod.stage = Stage::Waiting;
                let judge = Judging { cluster: &self.cluster, profiles: &self.profiles };
                match outcome {
                    Outcome::Landed => self.queue.rejected(attempt, rejectors, PluginSet::EMPTY, now, &judge),
                    _ => self.queue.failed(attempt, now, &judge),
                }
            }
            (Stage::Waiting | Stage::Bound, _) => {}
        }
    }

    /// The pod waits again, and its room is free for others; itself is not woken by that.
    fn binding_failed(&mut self, attempt: Attempt, now: Timestamp) {
        let id = attempt.pod();
        let old = self.cluster.pods.get(id).map(|pod| Arc::clone(&pod.record));
        let node = self.cluster.vacate(id);
        self.queue.failed(attempt, now, &Judging { cluster: &self.cluster, profiles: &self.profiles });
        self.happened(Resource::AssignedPod, Actions::DELETE, Change::pod(node, old, None), now);
    }

    pub(crate) fn profile_of(&self, record: &PodRecord) -> Option<usize> {
        self.profiles.iter().position(|profile| *profile.settings.scheduler_name == *record.scheduler_name)
    }

    pub(crate) fn arrival(&self, id: PodId) -> Option<Arrival> {
        let pod = self.cluster.pods.get(id)?;
        let PodRecord { uid, priority, created_at, .. } = &*pod.record;
        let (uid, priority, created_at) = (uid.clone(), *priority, *created_at);
        Some(Arrival { pod: id, uid, shape: pod.shape, priority, created_at })
    }

    /// Whoever is refused is told so, once.
    fn note_refusal(&mut self, id: PodId) {
        if matches!(self.queue.place(id), Some(Place::Gated { plugin: PluginId::Unsupported, .. })) {
            self.unreported.insert(id);
        }
    }
}

fn pod_resource(has_node: bool) -> Resource {
    if has_node { Resource::AssignedPod } else { Resource::UnscheduledPod }
}

/// What changed about a node, each by its name.
fn node_changes(old: Option<&NodeRecord>, new: Option<&NodeRecord>) -> Vec<Actions> {
    let (Some(old), Some(new)) = (old, new) else { return vec![Actions::ADD] };
    let uncordoned = old.unschedulable && !new.unschedulable;
    let changes = [
        (old.allocatable != new.allocatable, Actions::UPDATE_NODE_ALLOCATABLE),
        (old.labels != new.labels, Actions::UPDATE_NODE_LABEL),
        (old.taints != new.taints || uncordoned, Actions::UPDATE_NODE_TAINT),
    ];
    changes.into_iter().filter(|(changed, _)| *changed).map(|(_, action)| action).collect()
}

fn bound_pod_changes(old: &PodRecord, new: &PodRecord) -> Vec<Actions> {
    let less = |a: &PodRecord, b: &PodRecord| {
        a.demands.requests.iter().any(|(name, amount)| b.demands.requests.get(name.as_str()) < amount)
    };
    let changes = [
        // Who is on its way out does not count any more where pods are spread.
        (old.labels != new.labels || old.deleting != new.deleting, Actions::UPDATE_POD_LABEL),
        (less(old, new), Actions::UPDATE_POD_SCALE_DOWN),
        (less(new, old), Actions::UPDATE_POD_SCALE_UP),
    ];
    changes.into_iter().filter(|(changed, _)| *changed).map(|(_, action)| action).collect()
}

/// What changed about a pod that waits, as the pod itself sees it.
fn seen_by_itself(old: &Arc<PodRecord>, new: Option<&Arc<PodRecord>>) -> Vec<Happening> {
    let happening = |action| {
        let event = ClusterEvent { resource: Resource::TargetPod, action };
        let change = Change::pod(None, Some(Arc::clone(old)), new.cloned());
        Happening { event, label: event.label(), change }
    };
    waiting_pod_changes(old, new.map(Arc::as_ref)).into_iter().map(happening).collect()
}

/// Somebody else says which node is kept for a pod. It does not wait any more for those who leave another one, and where it cannot use
/// the room, that must not be kept from others. It is counted like a nomination that ends in the reference.
fn must_look_again(uid: &Uid) -> Happening {
    let left = ClusterEvent { resource: Resource::AssignedPod, action: Actions::DELETE };
    let event = ClusterEvent { resource: Resource::Wildcard, action: Actions::ALL };
    Happening { event, label: left.label(), change: Change::Anything(Some(uid.clone())) }
}

fn waiting_pod_changes(old: &PodRecord, new: Option<&PodRecord>) -> Vec<Actions> {
    let Some(new) = new else { return Vec::new() };
    let mut changes = bound_pod_changes(old, new);
    let tolerations = |pod: &PodRecord| pod.demands.constraints.tolerations.len();
    if !old.gates.is_empty() && new.gates.is_empty() {
        changes.push(Actions::UPDATE_POD_GATES_ELIMINATED);
    }
    if tolerations(old) != tolerations(new) {
        changes.push(Actions::UPDATE_POD_TOLERATION);
    }
    if changes.is_empty() {
        changes.push(Actions::UPDATE);
    }
    changes
}
