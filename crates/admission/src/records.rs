//! The records of Workloads, found by uid or by number.

use gangway_model::Uid;
use gangway_model::workload::Workload;
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

use crate::chunks::Chunks;
use crate::ids::WorkloadId;

/// The Workloads that are known. Two are equal if they hold equal records, whatever their numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workloads {
    /// In place: a box of its own would take a tenth more.
    slots: Chunks<Option<Workload>>,
    /// The numbers by uid. The uids themselves stand in the records.
    numbers: HashTable<Numbered>,
    free: Vec<WorkloadId>,
}

/// A number with the hash of its uid, so that the table grows without a look at the records.
#[derive(Clone, Copy, Debug)]
struct Numbered {
    hash: u32,
    id: WorkloadId,
}

impl Numbered {
    fn hash(&self) -> u64 {
        spread(self.hash)
    }
}

impl PartialEq for Workloads {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(_, record)| other.find(&record.uid) == Some(record))
    }
}

impl Eq for Workloads {}

fn hash(uid: &Uid) -> u32 {
    FxBuildHasher.hash_one(uid) as u32
}

/// The table takes its places from the low bits of a hash and its marks from the high ones.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn uid_at(slots: &Chunks<Option<Workload>>, id: WorkloadId) -> Option<&Uid> {
    slots.get(id.index())?.as_ref().map(|record| &record.uid)
}

impl Workloads {
    pub(crate) fn id(&self, uid: &Uid) -> Option<WorkloadId> {
        let hash = hash(uid);
        let is_same = |number: &Numbered| number.hash == hash && uid_at(&self.slots, number.id) == Some(uid);
        self.numbers.find(spread(hash), is_same).map(|number| number.id)
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

    /// Takes a record in, in place of the one with the same uid, whose number is `known`.
    pub(crate) fn insert(&mut self, known: Option<WorkloadId>, record: Workload) -> WorkloadId {
        if let Some(id) = known {
            self.slots[id.index()] = Some(record);
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            WorkloadId::from(self.slots.len() - 1)
        });
        let number = Numbered { hash: hash(&record.uid), id };
        self.slots[id.index()] = Some(record);
        self.numbers.insert_unique(number.hash(), number, Numbered::hash);
        id
    }

    pub(crate) fn remove(&mut self, id: WorkloadId) {
        let Some(uid) = uid_at(&self.slots, id) else { return };
        if let Ok(entry) = self.numbers.find_entry(spread(hash(uid)), |other| other.id == id) {
            entry.remove();
        }
        self.slots[id.index()] = None;
        self.free.push(id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (WorkloadId, &Workload)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| Some((WorkloadId::from(index), slot.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }
}
