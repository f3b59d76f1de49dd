//! How does news change the state?
//!
//! Every change that frees room or changes a node looks at the parked lines and wakes those that it
//! helps, so no pod is ever looked at because time has passed.

use std::sync::Arc;

use gangway_model::{NodeName, Timestamp, Uid};

use crate::records::{NodeRecord, PodRecord};
use crate::shapes::Shape;
use crate::{DecisionId, Event, Outcome, Place, PodEntry, Scheduler, filters};

/// The wait after a first failed binding; each further failure doubles it.
const FIRST_BACKOFF_SECONDS: i64 = 1;
/// The longest such wait. Both are the reference scheduler's defaults.
const LONGEST_BACKOFF_SECONDS: i64 = 10;

impl Scheduler {
    /// Takes in news. Says whether something appeared for [`Scheduler::next`] to take.
    pub fn apply(&mut self, event: Event, now: Timestamp) -> bool {
        match event {
            Event::NodeApplied(node) => self.node_applied(node),
            Event::NodeDeleted(name) => self.node_deleted(&name),
            Event::PodApplied(pod) => self.pod_applied(pod),
            Event::PodDeleted(uid) => self.forget(&uid),
            Event::Outcome(decision, outcome) => self.outcome(decision, outcome, now),
            Event::Synced => self.synced = true,
        }
        // Before the first lists are complete nothing may be taken, and what appeared stays to be said.
        self.synced && self.queue.take_appeared()
    }

    fn node_applied(&mut self, record: NodeRecord) {
        if self.nodes.apply(&mut self.columns, record) {
            self.wake_all();
        }
    }

    fn node_deleted(&mut self, name: &NodeName) {
        if self.nodes.delete(name) {
            self.wake_all();
        }
    }

    fn pod_applied(&mut self, record: PodRecord) {
        if record.finished {
            self.forget(&record.uid);
            return;
        }
        let known = self.pods.get(&record.uid);
        if known.is_some_and(|entry| entry.record == record || is_outdated(entry, &record)) {
            return;
        }
        let shape = Arc::new(Shape::new(&mut self.columns, &record.requests, &record.constraints));
        match record.node.clone() {
            Some(node) => self.bound(record, shape, node),
            None if record.deleting || !self.options.scheduler_names.contains(&record.scheduler_name) => {
                self.forget(&record.uid);
            }
            None => self.pending(record, shape),
        }
    }

    /// The pod has its node, be it from us or from somebody else.
    fn bound(&mut self, record: PodRecord, shape: Arc<Shape>, node: NodeName) {
        let uid = record.uid.clone();
        let same_room = |known: &PodEntry| known.shape == shape && known.place.node() == Some(&node);
        match self.pods.get_mut(&uid) {
            Some(known) if same_room(known) => {
                if let Place::Assumed { decision, .. } = known.place {
                    self.in_flight.remove(&decision);
                }
                known.record = record;
                known.place = Place::Bound(node);
            }
            _ => {
                self.forget(&uid);
                self.nodes.occupy(&node, &shape);
                let place = Place::Bound(node);
                self.pods.insert(uid, PodEntry { record, shape, place, failures: 0 });
            }
        }
    }

    /// The pod waits for a node from us.
    fn pending(&mut self, record: PodRecord, shape: Arc<Shape>) {
        let uid = record.uid.clone();
        let known = self.pods.get(&uid).map(|known| (known.place.clone(), known.failures));
        let failures = known.as_ref().map_or(0, |(_, failures)| *failures);
        self.forget(&uid);
        let mut entry = PodEntry { record, shape, place: Place::Gated, failures };
        entry.place = match known {
            _ if !entry.record.gates.is_empty() => Place::Gated,
            _ if !entry.record.unsupported.is_empty() => {
                self.unreported_refusals.insert(uid.clone());
                self.queue.note_appeared();
                Place::Refused
            }
            // A change of the pod does not cut its wait short: the API may be in trouble, not the pod.
            Some((Place::BackingOff(until), _)) => {
                self.queue.back_off(until, uid.clone());
                Place::BackingOff(until)
            }
            _ => Place::Queued(self.queue.add(&entry.shape, entry.position())),
        };
        self.pods.insert(uid, entry);
    }

    fn outcome(&mut self, decision: DecisionId, outcome: Outcome, now: Timestamp) {
        if outcome == Outcome::Unknown {
            return;
        }
        let Some(uid) = self.in_flight.remove(&decision) else { return };
        let Some(entry) = self.pods.get_mut(&uid) else { return };
        if outcome == Outcome::Landed {
            entry.failures = 0;
            return;
        }
        let node = entry.place.node().cloned();
        let until = now.plus_seconds(backoff_seconds(entry.failures));
        entry.failures = entry.failures.saturating_add(1);
        entry.place = Place::BackingOff(until);
        let shape = Arc::clone(&entry.shape);
        self.queue.back_off(until, uid);
        if let Some(node) = node {
            self.vacate(&node, &shape);
        }
    }

    /// Puts the pods whose wait is over back into the queue.
    pub(crate) fn end_expired_backoffs(&mut self, now: Timestamp) {
        while let Some(uid) = self.queue.pop_expired(now) {
            if let Some(entry) = self.pods.get_mut(&uid) {
                entry.place = Place::Queued(self.queue.add(&entry.shape, entry.position()));
            }
        }
        // The caller is about to take them; there is nothing to announce.
        self.queue.take_appeared();
    }

    /// Drops a pod and everything it holds.
    fn forget(&mut self, uid: &Uid) {
        let Some(entry) = self.pods.remove(uid) else { return };
        match &entry.place {
            Place::Gated => {}
            Place::Refused => {
                self.unreported_refusals.remove(uid);
            }
            Place::Queued(line) => self.queue.remove(*line, &entry.position()),
            Place::BackingOff(until) => self.queue.end_backoff(*until, uid),
            Place::Assumed { node, decision } => {
                self.in_flight.remove(decision);
                self.vacate(node, &entry.shape);
            }
            Place::Bound(node) => self.vacate(node, &entry.shape),
        }
    }

    fn vacate(&mut self, node: &NodeName, shape: &Shape) {
        self.nodes.vacate(node, shape);
        let Some(node) = self.nodes.get(node) else { return };
        let helped: Vec<_> = self
            .queue
            .parked()
            .filter(|(_, shape)| filters::fits(shape, node))
            .map(|(line, _)| line)
            .collect();
        for line in helped {
            self.queue.wake(line);
        }
    }

    /// Looks at every parked line again: a node changed, and with it what the lines were told. Nodes
    /// change rarely (their heartbeats are not news), so this is not worth an index.
    fn wake_all(&mut self) {
        let parked: Vec<_> = self.queue.parked().map(|(line, _)| line).collect();
        for line in parked {
            self.queue.wake(line);
        }
    }
}

/// A pod never loses its node, so one without a node is older than what we know, or is our own
/// binding not yet observed. Its deletion is news all the same, unless it is bound.
fn is_outdated(known: &PodEntry, record: &PodRecord) -> bool {
    match known.place {
        Place::Bound(_) => record.node.is_none(),
        Place::Assumed { .. } => record.node.is_none() && !record.deleting,
        _ => false,
    }
}

fn backoff_seconds(failures: u32) -> i64 {
    let doubled = FIRST_BACKOFF_SECONDS.checked_shl(failures.min(16)).unwrap_or(LONGEST_BACKOFF_SECONDS);
    doubled.min(LONGEST_BACKOFF_SECONDS)
}
