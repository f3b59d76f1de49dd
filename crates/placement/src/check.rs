//! Is the scheduler's state sound? Every invariant, slowly, for tests and diagnosis.

use std::collections::BTreeMap;

use gangway_model::{NodeName, Uid};

use crate::nodes::Usage;
use crate::queue::ShapeId;
use crate::{Place, Scheduler, filters};

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The books of a node differ from the pods on it.
    #[error("what is taken of node {0} is not the sum of its pods")]
    Books(NodeName),
    /// A pod says that it is in a line or in backoff, and is not there, or the other way round.
    #[error("pod {0} is not where it says it is")]
    Misplaced(Uid),
    /// A line's indexes do not fit its state.
    #[error("a line of pending pods is filed wrongly")]
    Misfiled,
    /// A pod waits although a node could take it.
    #[error("pod {pod} waits although node {node} could take it")]
    LostWakeUp {
        /// The first pod that waits.
        pod: Uid,
        /// The node.
        node: NodeName,
    },
    /// A binding is in flight of which no pod knows.
    #[error("decision {0} is in flight for a pod that does not wait for it")]
    StrayDecision(u64),
}

impl Scheduler {
    /// Checks every invariant.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_books()?;
        self.check_places()?;
        self.check_lines()?;
        self.check_decisions()
    }

    fn check_books(&self) -> Result<(), Violation> {
        let mut expected: BTreeMap<NodeName, Usage> = BTreeMap::new();
        for entry in self.pods.values() {
            if let Some(node) = entry.place.node() {
                expected.entry(node.clone()).or_default().add(&entry.shape);
            }
        }
        let found = self.nodes.usages();
        let names = expected.keys().chain(found.keys());
        let wrong = names.into_iter().find(|name| expected.get(*name) != found.get(*name));
        wrong.map_or(Ok(()), |name| Err(Violation::Books(name.clone())))
    }

    fn check_places(&self) -> Result<(), Violation> {
        let mut lines: BTreeMap<&Uid, ShapeId> = BTreeMap::new();
        for (id, line) in self.queue.lines() {
            for position in &line.pods {
                if lines.insert(position.uid(), id).is_some() {
                    return Err(Violation::Misplaced(position.uid().clone()));
                }
            }
        }
        let backoffs: BTreeMap<_, _> = self.queue.backoffs().map(|(until, uid)| (uid, until)).collect();
        for (uid, entry) in &self.pods {
            let (in_line, in_backoff) = (lines.remove(uid), backoffs.get(uid));
            let sound = match &entry.place {
                Place::Queued(id) => in_line == Some(*id) && in_backoff.is_none(),
                Place::BackingOff(until) => in_line.is_none() && in_backoff == Some(&until),
                _ => in_line.is_none() && in_backoff.is_none(),
            };
            if !sound {
                return Err(Violation::Misplaced(uid.clone()));
            }
        }
        let stray =
            lines.keys().copied().chain(backoffs.keys().copied().filter(|u| !self.pods.contains_key(*u)));
        stray.into_iter().next().map_or(Ok(()), |uid| Err(Violation::Misplaced(uid.clone())))
    }

    fn check_lines(&self) -> Result<(), Violation> {
        let mut ready = 0;
        for (id, line) in self.queue.lines() {
            let first = line.pods.first().ok_or(Violation::Misfiled)?;
            if !line.unreported.is_subset(&line.pods) {
                return Err(Violation::Misfiled);
            }
            if line.parked.is_none() {
                ready += 1;
                if !self.queue.is_ready(id, first) {
                    return Err(Violation::Misfiled);
                }
            } else if let Some(node) = self.nodes.all().into_iter().find(|n| filters::fits(&line.shape, n)) {
                let (pod, node) = (first.uid().clone(), node.record.name.clone());
                return Err(Violation::LostWakeUp { pod, node });
            }
        }
        if ready == self.queue.ready_count() { Ok(()) } else { Err(Violation::Misfiled) }
    }

    fn check_decisions(&self) -> Result<(), Violation> {
        for (id, uid) in &self.in_flight {
            let entry = self.pods.get(uid).ok_or(Violation::StrayDecision(id.0))?;
            if !matches!(&entry.place, Place::Assumed { decision, .. } if decision == id) {
                return Err(Violation::StrayDecision(id.0));
            }
        }
        Ok(())
    }
}
