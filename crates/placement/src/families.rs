//! Which pods belong together? For pods that do not say how they want to be spread: then those of a Service, or of one set of replicas,
//! are spread as the profile says.
//!
//! What pods have in common follows from the Services that select them and from their owner. It is worked out when a pod comes, and
//! again when one of those changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::selector::LabelSelector;
use gangway_model::{NamespaceName, ObjectName, Timestamp};

use crate::Scheduler;
use crate::cluster::Stage;
use crate::framework::{Actions, Change, ClusterEvent, Happening, Profile, Resource};
use crate::ids::PodId;
use crate::records::{Family, FamilyKind, PodRecord};
use crate::shapes::{Shape, Spread};
use crate::wake::Judging;

/// Every family that is known.
#[derive(Debug, Default)]
pub(crate) struct Families {
    /// Services take in whoever their selector matches.
    services: BTreeMap<NamespaceName, BTreeMap<Arc<str>, LabelSelector>>,
    /// The others are for pods that name them as their owner.
    sets: BTreeMap<(FamilyKind, ObjectName), LabelSelector>,
    /// Pods without a node, by that owner.
    owned: BTreeMap<(FamilyKind, ObjectName), BTreeSet<PodId>>,
}

fn owner_of(pod: &PodRecord) -> Option<(FamilyKind, ObjectName)> {
    let owner = pod.owner.as_ref()?;
    Some((owner.kind, ObjectName { namespace: pod.name.namespace.clone(), name: Arc::clone(&owner.name) }))
}

impl Families {
    fn is_empty(&self) -> bool {
        self.services.is_empty() && self.sets.is_empty()
    }

    /// Sets what a family selects, or that it is gone; gives what it selected before. A Service without a selector is for nobody.
    fn set(
        &mut self,
        kind: FamilyKind,
        name: ObjectName,
        selector: Option<LabelSelector>,
    ) -> Option<LabelSelector> {
        let selector = selector.filter(|selector| !selector.requirements.is_empty());
        if kind != FamilyKind::Service {
            return match selector {
                Some(selector) => self.sets.insert((kind, name), selector),
                None => self.sets.remove(&(kind, name)),
            };
        }
        let Some(selector) = selector else {
            let services = self.services.get_mut(&name.namespace)?;
            let old = services.remove(&name.name);
            if services.is_empty() {
                self.services.remove(&name.namespace);
            }
            return old;
        };
        self.services.entry(name.namespace).or_default().insert(name.name, selector)
    }

    /// What all have in common who belong together with the pod; an empty selector if it belongs to nobody.
    fn selector_for(&self, pod: &PodRecord) -> LabelSelector {
        let services = self.services.get(&pod.name.namespace).into_iter().flat_map(BTreeMap::values);
        let services = services.filter(|selector| pod.labels.match_selector(selector));
        let owner = owner_of(pod).and_then(|owner| self.sets.get(&owner));
        let mut all = LabelSelector::default();
        for requirement in services.chain(owner).flat_map(|selector| &selector.requirements) {
            if !all.requirements.contains(requirement) {
                all.requirements.push(requirement.clone());
            }
        }
        all
    }

    /// A pod waits for a node from now on.
    pub(crate) fn enter(&mut self, id: PodId, pod: &PodRecord) {
        if let Some(owner) = owner_of(pod) {
            self.owned.entry(owner).or_default().insert(id);
        }
    }

    /// A pod has its node, or is gone.
    pub(crate) fn leave(&mut self, id: PodId, pod: &PodRecord) {
        let Some(owner) = owner_of(pod) else { return };
        if let Some(owned) = self.owned.get_mut(&owner) {
            owned.remove(&id);
            if owned.is_empty() {
                self.owned.remove(&owner);
            }
        }
    }

    /// How the profile spreads such a pod if the pod itself does not say.
    fn spread(&self, profile: &Profile, pod: &PodRecord) -> Vec<Spread> {
        if self.is_empty() || profile.default_spread.is_empty() || !pod.demands.spread.is_empty() {
            return Vec::new();
        }
        let selector = self.selector_for(pod);
        if selector.requirements.is_empty() {
            return Vec::new();
        }
        let is_system = profile.settings.spread.is_system;
        let spread = profile.default_spread.iter();
        spread.map(|constraint| Spread::by_default(constraint, is_system, &selector, pod)).collect()
    }
}

impl Scheduler {
    /// What makes a pod equal to others for a profile.
    pub(crate) fn shape_for(&mut self, profile: usize, pod: &PodRecord) -> Shape {
        let mut shape = Shape::new(&mut self.cluster.columns, profile, pod);
        if let Some(profile) = self.profiles.get(profile) {
            shape.spread.extend(self.families.spread(profile, pod));
        }
        shape
    }

    pub(crate) fn family_applied(&mut self, family: Family, now: Timestamp) {
        let Family { kind, name, selector } = family;
        self.family_changed(kind, name, Some(selector), now);
    }

    pub(crate) fn family_deleted(&mut self, kind: FamilyKind, name: ObjectName, now: Timestamp) {
        self.family_changed(kind, name, None, now);
    }

    fn family_changed(
        &mut self,
        kind: FamilyKind,
        name: ObjectName,
        new: Option<LabelSelector>,
        now: Timestamp,
    ) {
        let old = self.families.set(kind, name.clone(), new.clone());
        // Before the first lists are complete nobody is tried; then all are gone through once.
        if old == new || !self.synced {
            return;
        }
        let members: Vec<PodId> = match kind {
            FamilyKind::Service => {
                let selects = |pod: &PodRecord| {
                    [&old, &new].into_iter().flatten().any(|selector| pod.labels.match_selector(selector))
                };
                let waiting = self.cluster.pods.iter().filter(|(_, pod)| pod.stage != Stage::Bound);
                let here = waiting.filter(|(_, pod)| pod.record.name.namespace == name.namespace);
                here.filter(|(_, pod)| selects(&pod.record)).map(|(id, _)| id).collect()
            }
            _ => self.families.owned.get(&(kind, name)).into_iter().flatten().copied().collect(),
        };
        members.into_iter().for_each(|id| self.reshape(id, now));
    }

    /// Works out anew how every pod without a node is spread.
    pub(crate) fn reshape_all(&mut self, now: Timestamp) {
        if !self.families.is_empty() {
            let all: Vec<PodId> = self.cluster.pods.iter().map(|(id, _)| id).collect();
            all.into_iter().for_each(|id| self.reshape(id, now));
        }
    }

    /// Works out anew how a pod is spread. Where that is news it may help the pod, just as if its labels had changed.
    fn reshape(&mut self, id: PodId, now: Timestamp) {
        let Some(pod) = self.cluster.pods.get(id).filter(|pod| pod.stage != Stage::Bound) else { return };
        let record = Arc::clone(&pod.record);
        let Some(profile) = self.profile_of(&record) else { return };
        let shape = self.shape_for(profile, &record);
        if self.cluster.shape_of(id).is_some_and(|known| **known == shape) {
            return;
        }
        self.cluster.replace_record(id, PodRecord::clone(&record), shape);
        let event = ClusterEvent { resource: Resource::TargetPod, action: Actions::UPDATE_POD_LABEL };
        let change = Change::pod(None, Some(Arc::clone(&record)), Some(record));
        let happening = Happening { event, label: event.label(), change };
        let Some(arrival) = self.arrival(id) else { return };
        let judge = Judging { cluster: &self.cluster, profiles: &self.profiles };
        self.queue.update(arrival, &[happening], now, &judge);
    }
}
