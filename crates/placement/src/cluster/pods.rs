//! Every pod that is known, by a short name.

use std::sync::Arc;

use gangway_model::Uid;
use rustc_hash::FxHashMap;

use crate::DecisionId;
use crate::explain::Diagnosis;
use crate::ids::{NodeIndex, PodId, ShapeId};
use crate::records::PodRecord;

/// A pod and what follows from its record.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) record: Arc<PodRecord>,
    pub(crate) shape: ShapeId,
    /// The node that it has or is about to get.
    pub(crate) node: Option<NodeIndex>,
    /// The node on which room is made for it.
    pub(crate) nominated: Option<NodeIndex>,
    pub(crate) stage: Stage,
    /// What it was told last of why it waits.
    pub(crate) told: Option<Arc<Diagnosis>>,
}

/// How far a pod is on its way to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits for its turn.
    Waiting,
    /// It has no node yet and others are being removed for it.
    Preempting(DecisionId),
    /// Its binding is under way, or not seen yet.
    Assumed(DecisionId),
    /// It has its node.
    Bound,
}

/// Pods by id and by uid.
#[derive(Debug, Default)]
pub(crate) struct Pods {
    slots: Vec<Option<Pod>>,
    free: Vec<PodId>,
    /// Looked up, never walked.
    by_uid: FxHashMap<Uid, PodId>,
}

impl Pods {
    pub(crate) fn insert(&mut self, pod: Pod) -> PodId {
        let uid = pod.record.uid.clone();
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id.index()] = Some(pod);
                id
            }
            None => {
                self.slots.push(Some(pod));
                PodId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.by_uid.insert(uid, id);
        id
    }

    pub(crate) fn remove(&mut self, id: PodId) -> Option<Pod> {
        let pod = self.slots.get_mut(id.index())?.take()?;
        self.by_uid.remove(&pod.record.uid);
        self.free.push(id);
        Some(pod)
    }

    pub(crate) fn find(&self, uid: &Uid) -> Option<PodId> {
        self.by_uid.get(uid).copied()
    }

    pub(crate) fn get(&self, id: PodId) -> Option<&Pod> {
        self.slots.get(id.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: PodId) -> Option<&mut Pod> {
        self.slots.get_mut(id.index())?.as_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PodId, &Pod)> + Clone {
        (0..).map(PodId).zip(&self.slots).filter_map(|(id, pod)| Some((id, pod.as_ref()?)))
    }
}
