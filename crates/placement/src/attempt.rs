//! What happens when it is a pod's turn?

use std::sync::Arc;

use gangway_model::Timestamp;

use crate::cluster::Stage;
use crate::cycle::{Cycle, Rejection};
use crate::evaluations::ExtensionPoint;
use crate::framework::{Actions, Asked, Change, PluginId, PluginSet, Resource};
use crate::ids::{NodeIndex, PodId, ShapeId};
use crate::preemption::{Preemption, Question};
use crate::queue::{Attempt, Popped};
use crate::records::PodRecord;
use crate::shapes::Shape;
use crate::wake::Judging;
use crate::{Decision, Diagnosis, Flight, Scheduler, WaitReason};

impl Scheduler {
    /// Places a pod, makes room for it, or tells it why it waits.
    pub(crate) fn attempt(&mut self, popped: &Popped, now: Timestamp, decisions: &mut Vec<Decision>) {
        let id = popped.pod;
        let (Some(shape), Some(shape_id)) =
            (self.cluster.shape_of(id).cloned(), self.cluster.shape_id_of(id))
        else {
            self.queue.delete(id, now, &Judging { cluster: &self.cluster, profiles: &self.profiles });
            return;
        };
        self.last_tried = Some(shape.profile);
        match self.find_node(id, shape_id, &shape) {
            Ok(node) => {
                let bind = self.assume(popped.attempt, node, now);
                if bind.is_some() {
                    self.evaluations[shape.profile].count(PluginId::DefaultBinder, ExtensionPoint::Bind);
                }
                decisions.extend(bind);
            }
            Err(rejection) => self.reject(popped.attempt, (shape_id, &shape), rejection, now, decisions),
        }
    }

    fn find_node(
        &mut self,
        id: PodId,
        shape_id: ShapeId,
        shape: &Arc<Shape>,
    ) -> Result<NodeIndex, Rejection> {
        self.cluster.refresh_order();
        let table = self.tables.of(shape_id, shape, self.cluster.node_bound());
        let uid = self.cluster.pods.get(id).map(|pod| pod.record.uid.clone());
        let cycle = Cycle {
            cluster: &self.cluster,
            order: self.cluster.order(),
            profile: &self.profiles[shape.profile],
            table,
            shape,
            pod: id,
            start: &mut self.start,
            seed: self.seed,
            work: &mut self.work,
            evaluations: &mut self.evaluations[shape.profile],
        };
        cycle.run(&uid.unwrap_or_else(|| "".into()))
    }

    /// Books the pod on the node before anybody has written it.
    fn assume(&mut self, attempt: Attempt, index: NodeIndex, now: Timestamp) -> Option<Decision> {
        let id = attempt.pod();
        self.queue.done(attempt);
        let node = self.cluster.node(index)?.record.name.clone();
        let left = self.cluster.nominate(id, None).filter(|nominated| *nominated != index);
        self.cluster.occupy(id, index);
        let decision = self.new_decision(Flight { attempt, rejectors: PluginSet::EMPTY });
        let pod = self.cluster.pods.get_mut(id)?;
        pod.stage = Stage::Assumed(decision);
        pod.told = None;
        let record = Arc::clone(&pod.record);
        if let Some(left) = left {
            self.not_kept(left, Some(Arc::clone(&record)), now);
        }
        let change = Change::pod(Some(index), None, Some(record));
        self.happened(Resource::AssignedPod, Actions::ADD, change, now);
        Some(Decision::Bind { id: decision, pod: self.reference(id)?, node })
    }

    fn reject(
        &mut self,
        attempt: Attempt,
        (shape_id, shape): (ShapeId, &Arc<Shape>),
        rejection: Rejection,
        now: Timestamp,
        decisions: &mut Vec<Decision>,
    ) {
        let id = attempt.pod();
        let plugins = rejection.plugins;
        let may_preempt = self.profiles[shape.profile].preempts && !plugins.contains(PluginId::NoNode);
        let (found, diagnosis) = match may_preempt {
            true => self.make_room(id, shape_id, shape, &rejection),
            false => (Preemption::NotEligible(""), rejection.diagnosis),
        };
        match &found {
            Preemption::Found { node, victims } => {
                let flight = Flight { attempt, rejectors: plugins };
                decisions.extend(self.preempt(flight, *node, victims, diagnosis, now));
                // It stays in flight until they are on their way, so that what happens meanwhile is not lost.
                return;
            }
            Preemption::NotEligible(_) => decisions.extend(self.tell(id, diagnosis)),
            Preemption::NoCandidate { .. } => {
                self.give_up_nomination(id, now);
                decisions.extend(self.tell(id, diagnosis));
            }
        }
        let judge = Judging { cluster: &self.cluster, profiles: &self.profiles };
        self.queue.rejected(attempt, plugins, PluginSet::EMPTY, now, &judge);
    }

    /// Looks for somebody to remove. If that was in vain for an equal pod and nothing has changed since, it is again.
    fn make_room(
        &mut self,
        id: PodId,
        shape_id: ShapeId,
        shape: &Arc<Shape>,
        rejection: &Rejection,
    ) -> (Preemption, Arc<Diagnosis>) {
        self.work.preemptions += 1;
        let has_nomination = self.cluster.pods.get(id).is_some_and(|pod| pod.nominated.is_some());
        let table = self.tables.of(shape_id, shape, self.cluster.node_bound());
        let known = table.failed.as_ref().and_then(|failed| failed.preemption.clone());
        if let Some(known) = known.filter(|_| !has_nomination) {
            return known;
        }
        let question = Question {
            cluster: &self.cluster,
            profile: &self.profiles[shape.profile],
            budgets: &self.budgets,
            asked: Asked { shape, cluster: &self.cluster, nodes: self.cluster.order(), marks: table.marks() },
            pod: id,
            rejected: &rejection.nodes,
            seed: self.seed,
        };
        let answer = question.answer(&mut self.work);
        self.evaluations[shape.profile].count(PluginId::DefaultPreemption, ExtensionPoint::PostFilter);
        let said = Some(answer.to_string());
        let diagnosis = Arc::new(Diagnosis { preemption: said, ..Diagnosis::clone(&rejection.diagnosis) });
        let is_final = matches!(answer, Preemption::NoCandidate { .. }) || shape.never_preempts;
        if let Some(failed) = table.failed.as_mut().filter(|_| is_final) {
            failed.preemption = Some((answer.clone(), Arc::clone(&diagnosis)));
        }
        (answer, diagnosis)
    }

    /// Removes others so that the pod can have their room.
    fn preempt(
        &mut self,
        flight: Flight,
        index: NodeIndex,
        victims: &[PodId],
        diagnosis: Arc<Diagnosis>,
        now: Timestamp,
    ) -> Option<Decision> {
        let id = flight.attempt.pod();
        let left = self.cluster.nominate(id, Some(index)).filter(|left| *left != index);
        if let Some(left) = left {
            self.not_kept(left, self.record_of(id), now);
        }
        self.take_from_lower(id, index, now);
        let node = self.cluster.node(index)?.record.name.clone();
        let victims = victims.iter().filter_map(|victim| self.reference(*victim)).collect();
        let decision = self.new_decision(flight);
        let pod = self.cluster.pods.get_mut(id)?;
        pod.stage = Stage::Preempting(decision);
        pod.told = Some(Arc::clone(&diagnosis));
        let reason = WaitReason::NoNodeFits(diagnosis);
        Some(Decision::Preempt { id: decision, preemptor: self.reference(id)?, node, victims, reason })
    }

    /// Room that was made for somebody who matters less is taken: they look elsewhere at once, and whoever they kept out may find
    /// that the new one leaves what it needs.
    fn take_from_lower(&mut self, id: PodId, index: NodeIndex, now: Timestamp) {
        let priority = |id: PodId| self.cluster.shape_of(id).map(|shape| shape.priority);
        let nominated = self.cluster.node(index).map(|node| node.nominated.as_slice()).unwrap_or_default();
        let lower = nominated.iter().copied().filter(|other| priority(*other) < priority(id));
        let lower: Vec<PodId> = lower.collect();
        for other in &lower {
            self.cluster.nominate(*other, None);
            self.not_kept(index, self.record_of(*other), now);
        }
        self.queue.activate(&lower, now, &Judging { cluster: &self.cluster, profiles: &self.profiles });
    }

    /// The node that was kept for the pod does not help it any more.
    fn give_up_nomination(&mut self, id: PodId, now: Timestamp) {
        let Some(node) = self.cluster.nominate(id, None) else { return };
        self.not_kept(node, self.record_of(id), now);
    }

    /// A node is not kept for a pod any more: whom that kept out may fit now.
    pub(crate) fn not_kept(&mut self, node: NodeIndex, pod: Option<Arc<PodRecord>>, now: Timestamp) {
        let change = Change::nomination(node, pod, None);
        self.happened(Resource::AssignedPod, Actions::DELETE, change, now);
    }

    fn record_of(&self, id: PodId) -> Option<Arc<PodRecord>> {
        self.cluster.pods.get(id).map(|pod| Arc::clone(&pod.record))
    }

    /// Tells the pod why it waits, if that is news.
    fn tell(&mut self, id: PodId, diagnosis: Arc<Diagnosis>) -> Option<Decision> {
        let nominated = self.cluster.pods.get(id)?.nominated;
        let nominated_node = nominated.and_then(|node| Some(self.cluster.node(node)?.record.name.clone()));
        let pod = self.cluster.pods.get_mut(id)?;
        if pod.told.as_ref() == Some(&diagnosis) {
            return None;
        }
        pod.told = Some(Arc::clone(&diagnosis));
        let pod = self.reference(id)?;
        Some(Decision::Report { pod, reason: WaitReason::NoNodeFits(diagnosis), nominated_node })
    }
}
