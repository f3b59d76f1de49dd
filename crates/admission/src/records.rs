//! The records of Workloads, found by uid or by number.

use gangway_model::Uid;
use gangway_model::workload::Workload;
use rustc_hash::FxHashMap;

use crate::ids::WorkloadId;

/// The Workloads that are known. Two are equal if they hold equal records, whatever their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workloads {
    slots: Vec<Option<Workload>>,
    numbers: FxHashMap<Uid, WorkloadId>,
    free: Vec<WorkloadId>,
}

impl PartialEq for Workloads {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(_, record)| other.find(&record.uid) == Some(record))
    }
}

impl Eq for Workloads {}

impl Workloads {
    pub(crate) fn id(&self, uid: &Uid) -> Option<WorkloadId> {
        self.numbers.get(uid).copied()
    }

    pub(crate) fn get(&self, id: WorkloadId) -> Option<&Workload> {
        self.slots.get(id.index())?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: WorkloadId) -> Option<&mut Workload> {
        self.slots.get_mut(id.index())?.as_mut()
    }

    pub(crate) fn find(&self, uid: &Uid) -> Option<&Workload> {
        self.get(self.id(uid)?)
    }

    /// Takes a record in, in place of the one with the same uid.
    pub(crate) fn insert(&mut self, record: Workload) -> WorkloadId {
        let id = self.id(&record.uid).unwrap_or_else(|| {
            let id = self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                WorkloadId::from(self.slots.len() - 1)
            });
            self.numbers.insert(record.uid.clone(), id);
            id
        });
        self.slots[id.index()] = Some(record);
        id
    }

    pub(crate) fn remove(&mut self, id: WorkloadId) {
        if let Some(record) = self.slots.get_mut(id.index()).and_then(Option::take) {
            self.numbers.remove(&record.uid);
            self.free.push(id);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| Some((WorkloadId::from(index), slot.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}
