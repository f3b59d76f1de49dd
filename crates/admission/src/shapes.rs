//! Equal requests are evaluated once: a shape stands for all Workloads that ask for the same.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use gangway_model::FlavorName;
use gangway_model::workload::{Assignment, PodSet};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use crate::flavors::{Need, Pick};
use crate::ids::CellAmounts;
use crate::ledger::OfferId;

/// Names a shape as long as a Workload has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ShapeId(u32);

/// All that decides whether a Workload fits.
#[derive(Debug)]
struct Shape {
    priority: i32,
    pod_sets: Arc<[PodSet]>,
    /// The flavors that it does not try any more, in order.
    excluded: Box<[FlavorName]>,
    users: usize,
    /// What it needs of queues, by what they offer; queues that offer the same share it.
    known: SmallVec<[Known; 1]>,
}

/// What a shape needs of queues that offer the same.
#[derive(Debug)]
struct Known {
    offer: OfferId,
    need: Arc<Need>,
    /// What was last given.
    given: Option<Given>,
}

/// What Workloads of a shape are given: the same as long as they get the same flavors.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) picks: SmallVec<[Pick; 2]>,
    pub(crate) pod_sets: Arc<[Assignment]>,
    pub(crate) usage: Arc<CellAmounts>,
}

/// The shapes in use.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    slots: Vec<Option<Shape>>,
    /// Their numbers, by what they ask for.
    numbers: HashTable<u32>,
    free: Vec<u32>,
}

fn hash(priority: i32, pod_sets: &[PodSet], excluded: &[FlavorName]) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    priority.hash(&mut hasher);
    excluded.iter().for_each(|flavor| flavor.hash(&mut hasher));
    for pod_set in pod_sets {
        (pod_set.count, &pod_set.name, &pod_set.requests, &pod_set.constraints).hash(&mut hasher);
    }
    hasher.finish()
}

impl Shapes {
    /// The shape of a Workload, which has to be [released](Self::release) when the Workload leaves, and its
    /// podSets as they are stored once for all of this shape.
    pub(crate) fn acquire(
        &mut self,
        priority: i32,
        pod_sets: &Arc<[PodSet]>,
        excluded: &[FlavorName],
    ) -> (ShapeId, Arc<[PodSet]>) {
        let hashed = hash(priority, pod_sets, excluded);
        let is_same = |number: &u32| {
            self.slots[*number as usize].as_ref().is_some_and(|shape| {
                shape.priority == priority
                    && (Arc::ptr_eq(&shape.pod_sets, pod_sets) || shape.pod_sets == *pod_sets)
                    && (excluded.is_empty() && shape.excluded.is_empty() || *shape.excluded == *excluded)
            })
        };
        if let Some(number) = self.numbers.find(hashed, is_same).copied()
            && let Some(shape) = &mut self.slots[number as usize]
        {
            shape.users += 1;
            return (ShapeId(number), shape.pod_sets.clone());
        }
        let (pod_sets, excluded) = (pod_sets.clone(), excluded.into());
        let shape =
            Some(Shape { priority, pod_sets: pod_sets.clone(), excluded, users: 1, known: SmallVec::new() });
        let number = match self.free.pop() {
            Some(number) => {
                self.slots[number as usize] = shape;
                number
            }
            None => {
                self.slots.push(shape);
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let Self { slots, numbers, .. } = self;
        numbers.insert_unique(hashed, number, |number| hash_of(slots, *number));
        (ShapeId(number), pod_sets)
    }

    /// The flavors that a shape does not try any more, in order.
    pub(crate) fn excluded(&self, ShapeId(number): ShapeId) -> &[FlavorName] {
        self.slots.get(number as usize).and_then(Option::as_ref).map_or(&[], |shape| &shape.excluded)
    }

    /// A Workload of this shape has left.
    pub(crate) fn release(&mut self, ShapeId(number): ShapeId) {
        let Some(Some(shape)) = self.slots.get_mut(number as usize) else { return };
        shape.users -= 1;
        if shape.users > 0 {
            return;
        }
        let hashed = hash_of(&self.slots, number);
        if let Ok(entry) = self.numbers.find_entry(hashed, |other| *other == number) {
            entry.remove();
        }
        self.slots[number as usize] = None;
        self.free.push(number);
    }

    fn known(&self, ShapeId(number): ShapeId, offer: OfferId) -> Option<&Known> {
        self.slots.get(number as usize)?.as_ref()?.known.iter().find(|known| known.offer == offer)
    }

    /// What a shape needs of queues that offer this, if it was worked out.
    pub(crate) fn need(&self, shape: ShapeId, offer: OfferId) -> Option<Arc<Need>> {
        Some(self.known(shape, offer)?.need.clone())
    }

    pub(crate) fn set_need(&mut self, ShapeId(number): ShapeId, offer: OfferId, need: Arc<Need>) {
        if let Some(Some(shape)) = self.slots.get_mut(number as usize) {
            shape.known.retain(|known| known.offer.is_as_old_as(offer));
            shape.known.push(Known { offer, need, given: None });
        }
    }

    /// What was given with these flavors before.
    pub(crate) fn given(&self, shape: ShapeId, offer: OfferId, picks: &[Pick]) -> Option<&Given> {
        let given = self.known(shape, offer)?.given.as_ref()?;
        let are_same = given.picks.iter().map(|pick| pick.flavor).eq(picks.iter().map(|pick| pick.flavor));
        are_same.then_some(given)
    }

    pub(crate) fn set_given(&mut self, ShapeId(number): ShapeId, offer: OfferId, given: Given) {
        let known = self.slots.get_mut(number as usize).and_then(Option::as_mut);
        let known = known.and_then(|shape| shape.known.iter_mut().find(|known| known.offer == offer));
        if let Some(known) = known {
            known.given = Some(given);
        }
    }

    /// How often all shapes together are in use.
    pub(crate) fn users(&self) -> usize {
        self.slots.iter().flatten().map(|shape| shape.users).sum()
    }
}

fn hash_of(slots: &[Option<Shape>], number: u32) -> u64 {
    slots[number as usize].as_ref().map_or(0, |shape| hash(shape.priority, &shape.pod_sets, &shape.excluded))
}
