//! What makes two pods the same to every plugin.
//!
//! Pods of one template differ in name and perhaps in a label or two that nothing looks at. Whatever is worked out for one of them
//! holds for all, so it is worked out once: which nodes fit, how good each is, why none does.

use std::sync::Arc;

use gangway_model::NamespaceName;
use gangway_model::constraints::{Constraints, HostPort, PreferredTerm, SpreadConstraint};
use gangway_model::selector::{LabelSelector, Requirement};
use rustc_hash::FxHashMap;

use crate::cluster::{Column, Columns};
use crate::ids::ShapeId;
use crate::records::{Demands, PodRecord};

/// Everything that plugins look at. Pods of one shape get the same answers at any moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    /// Which profile is asked.
    pub(crate) profile: usize,
    pub(crate) priority: i32,
    pub(crate) never_preempts: bool,
    /// What is requested, by column.
    pub(crate) needs: Vec<(Column, i64)>,
    pub(crate) scored_cpu_millis: i64,
    pub(crate) scored_memory_bytes: i64,
    pub(crate) constraints: Constraints,
    pub(crate) preferred: Vec<PreferredTerm>,
    pub(crate) ports: Vec<HostPort>,
    pub(crate) spread: Vec<Spread>,
}

/// A spread constraint with all that the pod itself adds to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spread {
    pub(crate) max_skew: i32,
    pub(crate) topology_key: String,
    pub(crate) is_hard: bool,
    pub(crate) counted: Counted,
    /// Whether the pod is one of those that count.
    pub(crate) counts_itself: bool,
    pub(crate) min_domains: Option<i32>,
    pub(crate) node_affinity_honored: bool,
    pub(crate) node_taints_honored: bool,
    /// Whether nodes that lack the label are ranked all the same.
    pub(crate) key_is_optional: bool,
}

/// Which pods a spread constraint counts: those of a namespace that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Counted {
    pub(crate) namespace: NamespaceName,
    pub(crate) selector: LabelSelector,
}

impl Counted {
    /// Whether it counts a pod. An empty selector counts nobody.
    pub(crate) fn counts(&self, pod: &PodRecord) -> bool {
        !self.selector.requirements.is_empty()
            && pod.name.namespace == self.namespace
            && pod.labels.match_selector(&self.selector)
    }
}

impl Shape {
    pub(crate) fn new(columns: &mut Columns, profile: usize, pod: &PodRecord) -> Self {
        let Demands {
            requests,
            scored_cpu_millis,
            scored_memory_bytes,
            constraints,
            preferred,
            ports,
            spread,
        } = &*pod.demands;
        Self {
            profile,
            priority: pod.priority,
            never_preempts: pod.never_preempts,
            needs: columns.needs(requests),
            scored_cpu_millis: *scored_cpu_millis,
            scored_memory_bytes: *scored_memory_bytes,
            constraints: constraints.clone(),
            preferred: preferred.clone(),
            ports: ports.clone(),
            spread: spread.iter().map(|constraint| Spread::new(constraint, pod)).collect(),
        }
    }

    /// What counts of a pod that has its node.
    pub(crate) fn of_bound(columns: &mut Columns, pod: &PodRecord) -> Self {
        let demands = &*pod.demands;
        Self {
            profile: usize::MAX,
            priority: pod.priority,
            never_preempts: pod.never_preempts,
            needs: columns.needs(&demands.requests),
            scored_cpu_millis: demands.scored_cpu_millis,
            scored_memory_bytes: demands.scored_memory_bytes,
            constraints: Constraints::default(),
            preferred: Vec::new(),
            ports: demands.ports.clone(),
            spread: Vec::new(),
        }
    }

    /// Whether some nodes are ruled out because of where other pods are.
    pub(crate) fn must_be_spread(&self) -> bool {
        self.spread.iter().any(|spread| spread.is_hard)
    }

    /// Whether pods of both shapes take the same of a node.
    pub(crate) fn takes_the_same_as(&self, other: &Self) -> bool {
        self.needs == other.needs
            && self.ports == other.ports
            && self.scored_cpu_millis == other.scored_cpu_millis
            && self.scored_memory_bytes == other.scored_memory_bytes
    }

    pub(crate) fn need(&self, column: Column) -> i64 {
        self.needs.iter().find(|(known, _)| *known == column).map_or(0, |(_, amount)| *amount)
    }
}

impl Spread {
    fn new(constraint: &SpreadConstraint, pod: &PodRecord) -> Self {
        let mut selector = constraint.selector.clone();
        for key in &constraint.match_label_keys {
            selector.requirements.extend(pod.labels.get(key).map(|value| Requirement::equals(key, value)));
        }
        Self::counting(constraint, selector, pod)
    }

    /// How a pod is spread that does not say so itself: among those with whom it belongs together.
    pub(crate) fn by_default(
        constraint: &SpreadConstraint,
        key_is_optional: bool,
        family: &LabelSelector,
        pod: &PodRecord,
    ) -> Self {
        Self { key_is_optional, ..Self::counting(constraint, family.clone(), pod) }
    }

    fn counting(constraint: &SpreadConstraint, selector: LabelSelector, pod: &PodRecord) -> Self {
        let counted = Counted { namespace: pod.name.namespace.clone(), selector };
        Self {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.clone(),
            is_hard: constraint.is_hard,
            counts_itself: pod.labels.match_selector(&counted.selector),
            counted,
            min_domains: constraint.min_domains,
            node_affinity_honored: constraint.node_affinity_honored,
            node_taints_honored: constraint.node_taints_honored,
            key_is_optional: false,
        }
    }
}

/// Every shape of which there is a pod.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    slots: Vec<Option<Slot>>,
    free: Vec<ShapeId>,
    /// Looked up, never walked.
    by_value: FxHashMap<Arc<Shape>, ShapeId>,
}

/// What the first pod of a shape brought, for the others to share: there are many, and most say the same.
#[derive(Debug)]
struct First {
    demands: Arc<Demands>,
    namespace: NamespaceName,
    scheduler_name: Arc<str>,
}

#[derive(Debug)]
struct Slot {
    shape: Arc<Shape>,
    first: First,
    pods: usize,
}

impl Shapes {
    /// The shape of one more pod, and whether it is a new one.
    pub(crate) fn enter(&mut self, shape: Shape, pod: &PodRecord) -> (ShapeId, bool) {
        if let Some(id) = self.by_value.get(&shape) {
            if let Some(slot) = self.slots.get_mut(id.index()).and_then(Option::as_mut) {
                slot.pods += 1;
            }
            return (*id, false);
        }
        let shape = Arc::new(shape);
        let first = First {
            demands: Arc::clone(&pod.demands),
            namespace: pod.name.namespace.clone(),
            scheduler_name: Arc::clone(&pod.scheduler_name),
        };
        let slot = Slot { shape: Arc::clone(&shape), first, pods: 1 };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id.index()] = Some(slot);
                id
            }
            None => {
                self.slots.push(Some(slot));
                ShapeId(u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.by_value.insert(shape, id);
        (id, true)
    }

    /// One pod less; the shape, if that was its last one.
    pub(crate) fn leave(&mut self, id: ShapeId) -> Option<Arc<Shape>> {
        let place = self.slots.get_mut(id.index())?;
        let slot = place.as_mut()?;
        slot.pods -= 1;
        if slot.pods > 0 {
            return None;
        }
        let shape = place.take()?.shape;
        self.by_value.remove(&shape);
        self.free.push(id);
        Some(shape)
    }

    pub(crate) fn get(&self, id: ShapeId) -> Option<&Arc<Shape>> {
        Some(&self.slots.get(id.index())?.as_ref()?.shape)
    }

    /// Lets a pod of that shape use what the first one brought instead of the same of its own.
    pub(crate) fn share(&self, id: ShapeId, pod: &mut PodRecord) {
        let Some(Some(Slot { first, .. })) = self.slots.get(id.index()) else { return };
        pod.demands = Arc::clone(&first.demands);
        if pod.name.namespace == first.namespace {
            pod.name.namespace = first.namespace.clone();
        }
        if pod.scheduler_name == first.scheduler_name {
            pod.scheduler_name = Arc::clone(&first.scheduler_name);
        }
    }
}
