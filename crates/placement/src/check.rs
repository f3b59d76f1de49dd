//! Is the scheduler's state sound? Every invariant, slowly, for tests and diagnosis.

use gangway_model::{NodeName, Uid};

use crate::Scheduler;
use crate::cluster::{Node, Stage, Usage};
use crate::ids::PodId;
use crate::judged;
use crate::queue::Place;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The books of a node differ from the pods on it.
    #[error("what is taken of node {0} is not the sum of its pods")]
    Books(NodeName),
    /// The books of spreading differ from the pods.
    #[error("pods that count where others are spread are counted wrongly")]
    Tallies,
    /// A pod says that it waits and is not in the queue, or the other way round.
    #[error("pod {0} is not where it says it is")]
    Misplaced(Uid),
    /// The queue itself is not sound.
    #[error("the queue: {0}")]
    Queue(String),
    /// Everybody of a kind waits although a node could take one of them.
    #[error("pod {pod} waits although node {node} could take it, and nobody like it is about to be tried")]
    LostWakeUp {
        /// A pod that waits.
        pod: Uid,
        /// The node.
        node: NodeName,
    },
    /// A write is in flight of which no pod knows.
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
        self.check_decisions()?;
        self.check_wake_ups()?;
        self.queue.check().map_err(|violation| Violation::Queue(violation.to_string()))
    }

    fn check_books(&self) -> Result<(), Violation> {
        for (index, node) in self.cluster.books() {
            let mut expected = Usage::default();
            for id in &node.pods {
                let placed = self.cluster.pods.get(*id).is_some_and(|pod| pod.node == Some(index));
                if let Some(shape) = self.cluster.shape_of(*id).filter(|_| placed) {
                    expected.add(shape);
                }
            }
            if expected.normalized() != node.usage.clone().normalized() {
                return Err(Violation::Books(node.record.name.clone()));
            }
        }
        let placed = self.cluster.pods.iter().filter_map(|(_, pod)| Some((pod.node?, &*pod.record)));
        if self.cluster.topology.is_sound(placed) { Ok(()) } else { Err(Violation::Tallies) }
    }

    fn check_places(&self) -> Result<(), Violation> {
        for (id, pod) in self.cluster.pods.iter() {
            let place = self.queue.place(id);
            let sound = match pod.stage {
                Stage::Waiting => {
                    let waits = place.is_some_and(|place| !matches!(place, Place::Decided | Place::InFlight));
                    pod.node.is_none() && waits
                }
                Stage::Preempting(_) => pod.node.is_none() && place == Some(Place::InFlight),
                Stage::Assumed(_) => pod.node.is_some() && place == Some(Place::Decided),
                Stage::Bound => pod.node.is_some() && place.is_none(),
            };
            if !sound {
                return Err(Violation::Misplaced(pod.record.uid.clone()));
            }
        }
        Ok(())
    }

    fn check_decisions(&self) -> Result<(), Violation> {
        for (decision, flight) in &self.in_flight {
            let stage = self.cluster.pods.get(flight.attempt.pod()).map(|pod| pod.stage);
            let expected = [Stage::Assumed(*decision), Stage::Preempting(*decision)];
            if !stage.is_some_and(|stage| expected.contains(&stage)) {
                return Err(Violation::StrayDecision(decision.0));
            }
        }
        Ok(())
    }

    /// No kind of pod waits for something to happen while a node could take one, unless one of them is about to be tried.
    fn check_wake_ups(&self) -> Result<(), Violation> {
        for (_, pod) in self.cluster.pods.iter().filter(|(_, pod)| pod.stage == Stage::Waiting) {
            let Some(id) = self.cluster.pods.find(&pod.record.uid) else { continue };
            let is_parked = matches!(self.queue.place(id), Some(Place::Unschedulable { .. }));
            let shape =
                self.cluster.shapes.get(pod.shape).filter(|shape| is_parked && !shape.must_be_spread());
            let Some((shape, profile)) = shape.and_then(|s| Some((s, self.profiles.get(s.profile)?))) else {
                continue;
            };
            if self.is_one_about_to_be_tried(pod.shape) {
                continue;
            }
            for (_, node) in self.cluster.present() {
                let fuller = self.with_nominated(node, id, shape.priority);
                if judged::verdicts(profile, shape, &[node, &fuller]) == [None, None] {
                    let (pod, node) = (pod.record.uid.clone(), node.record.name.clone());
                    return Err(Violation::LostWakeUp { pod, node });
                }
            }
        }
        Ok(())
    }

    /// The node with those for whom room is kept there from such a pod.
    fn with_nominated(&self, node: &Node, pod: PodId, priority: i32) -> Node {
        let mut fuller = node.clone();
        for other in node.nominated.iter().filter(|other| **other != pod) {
            if let Some(shape) = self.cluster.shape_of(*other).filter(|shape| shape.priority >= priority) {
                fuller.usage.add(shape);
            }
        }
        fuller
    }

    fn is_one_about_to_be_tried(&self, shape: crate::ids::ShapeId) -> bool {
        self.cluster.pods.iter().filter(|(_, pod)| pod.shape == shape).any(|(id, _)| {
            matches!(self.queue.place(id), Some(Place::Active | Place::Backoff { .. } | Place::InFlight))
        })
    }
}
