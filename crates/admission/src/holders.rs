//! The Workloads that hold a queue's quota, in order.

use crate::ledger::{Holder, HolderKey};

/// How many stand next to each other at most.
const PART: usize = 64;

/// Holders in the order of their keys, in parts. Newcomers are usually the last: they are appended where a tree would be
/// searched. Everybody else is found by halving, and no more than a part is moved.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// None of them is empty, unless it is the only one.
    parts: Vec<Vec<(HolderKey, Holder)>>,
    len: usize,
}

/// The part, and the place in it.
type Place = (usize, usize);

impl Holders {
    /// Where a key stands, else where it belongs.
    fn find(&self, key: &HolderKey) -> Result<Place, Place> {
        let Some(last) = self.parts.last() else { return Err((0, 0)) };
        if last.last().is_some_and(|(last, _)| last < key) {
            return Err((self.parts.len() - 1, last.len()));
        }
        let ends_before = |part: &Vec<(HolderKey, Holder)>| part.last().is_some_and(|(last, _)| last < key);
        let part = self.parts.partition_point(ends_before);
        let found = self.parts[part].binary_search_by(|(other, _)| other.cmp(key));
        found.map(|index| (part, index)).map_err(|index| (part, index))
    }

    pub(crate) fn insert(&mut self, key: HolderKey, holder: Holder) {
        let (mut part, mut index) = match self.find(&key) {
            Ok((part, index)) => {
                self.parts[part][index].1 = holder;
                return;
            }
            Err(place) => place,
        };
        self.len += 1;
        let Some(full) = self.parts.get_mut(part) else {
            self.parts.push(vec![(key, holder)]);
            return;
        };
        if full.len() == PART {
            // Behind the last nothing is moved; otherwise the half behind is.
            let mut behind = Vec::with_capacity(PART);
            behind.extend(full.drain(if index == PART { PART } else { PART / 2 }..));
            self.parts.insert(part + 1, behind);
            let left = self.parts[part].len();
            if index >= left {
                (part, index) = (part + 1, index - left);
            }
        }
        self.parts[part].insert(index, (key, holder));
    }

    pub(crate) fn remove(&mut self, key: &HolderKey) -> Option<Holder> {
        let (part, index) = self.find(key).ok()?;
        let (_, holder) = self.parts[part].remove(index);
        if self.parts[part].is_empty() && self.parts.len() > 1 {
            self.parts.remove(part);
        }
        self.len -= 1;
        Some(holder)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&HolderKey, &Holder)> {
        self.up_to(None)
    }

    /// Those up to a key and that one; without a key, all.
    pub(crate) fn up_to(
        &self,
        key: Option<&HolderKey>,
    ) -> impl DoubleEndedIterator<Item = (&HolderKey, &Holder)> + use<'_> {
        let (part, index) = match key.map(|key| self.find(key)) {
            None => (self.parts.len(), 0),
            Some(Ok((part, index))) => (part, index + 1),
            Some(Err(place)) => place,
        };
        let rest = self.parts.get(part).map_or(&[][..], |part| &part[..index]);
        self.parts[..part].iter().flatten().chain(rest).map(|(key, holder)| (key, holder))
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use gangway_model::Timestamp;

    use super::*;
    use crate::ids::WorkloadId;

    fn key(number: u64) -> HolderKey {
        HolderKey {
            leaves: false,
            priority: Reverse(0),
            reserved_at: Timestamp::EPOCH,
            sequence: number,
            uid: Reverse("w".into()),
        }
    }

    fn holder(number: u64) -> Holder {
        Holder {
            id: WorkloadId(number as u32),
            queued_at: Timestamp::EPOCH,
            usage: Arc::default(),
            is_fixed: false,
        }
    }

    #[test]
    fn holders_are_those_of_a_tree_in_its_order() {
        let (mut holders, mut tree) = (Holders::default(), BTreeMap::new());
        let mut number: u64 = 1;
        for step in 0..20_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Half of the time the newest comes, otherwise one of a few hundred comes or goes.
            let chosen = if step % 2 == 0 { 1_000 + step } else { number >> 33 & 511 };
            if number >> 32 & 1 == 0 {
                holders.insert(key(chosen), holder(step));
                tree.insert(key(chosen), holder(step));
            } else {
                let gone = if step % 2 == 0 { 1_000 + (number >> 40) % (step + 1) } else { chosen };
                assert_eq!(holders.remove(&key(gone)), tree.remove(&key(gone)));
            }
            assert_eq!(holders.len(), tree.len());
            if step % 100 == 0 {
                assert!(holders.iter().eq(tree.iter()), "after {step} steps");
                let up_to = key(number >> 33 & 1023);
                assert!(holders.up_to(Some(&up_to)).rev().eq(tree.range(..=up_to.clone()).rev()));
            }
        }
        assert!(holders.len() > 3 * PART, "only {} are left", holders.len());
    }
}
