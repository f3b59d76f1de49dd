//! The counts of queues, for their status.

use gangway_model::ResourceName;
use gangway_model::queues::{ClusterQueue, FlavorUsage, QueueCounts};

use crate::ids::{CellId, Cells};

/// Amounts by cell. Sums are wider than what can be asked for: a sum that saturated would give too much
/// back when its parts leave one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums(Vec<(CellId, i128)>);

impl Sums {
    fn book(&mut self, amounts: &[(CellId, i64)], sign: i128) {
        for (cell, amount) in amounts {
            self.add(*cell, i128::from(*amount) * sign);
        }
    }

    fn add(&mut self, cell: CellId, amount: i128) {
        match self.0.binary_search_by_key(&cell, |(cell, _)| *cell) {
            Ok(index) => {
                self.0[index].1 += amount;
                if self.0[index].1 == 0 {
                    self.0.remove(index);
                }
            }
            Err(index) if amount != 0 => self.0.insert(index, (cell, amount)),
            Err(_) => {}
        }
    }

    fn plus(&self, other: &Self) -> Self {
        let mut sums = self.clone();
        for (cell, amount) in &other.0 {
            sums.add(*cell, *amount);
        }
        sums
    }

    fn get(&self, cell: CellId) -> i64 {
        self.0.binary_search_by_key(&cell, |(cell, _)| *cell).map_or(0, |index| saturate(self.0[index].1))
    }
}

fn saturate(sum: i128) -> i64 {
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN } else { i64::MAX })
}

/// What a Workload counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    Pending,
    Reserving,
    Admitted,
}

/// Counts and usage of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) pending: i32,
    pub(crate) reserving: i32,
    pub(crate) admitted: i32,
    /// What the admitted use.
    usage: Sums,
    /// What those have set aside who are not admitted yet.
    set_aside: Sums,
}

impl Tally {
    pub(crate) fn count(&mut self, counted: Counted, usage: &[(CellId, i64)], sign: i32) {
        match counted {
            Counted::Pending => self.pending += sign,
            Counted::Reserving => {
                self.reserving += sign;
                self.set_aside.book(usage, i128::from(sign));
            }
            Counted::Admitted => {
                self.reserving += sign;
                self.admitted += sign;
                self.usage.book(usage, i128::from(sign));
            }
        }
    }

    /// The counts for a queue's status, flavors in the order of the ClusterQueue's spec. What a
    /// ClusterQueue uses beyond its own is borrowed.
    pub(crate) fn to_counts(
        &self,
        cells: &Cells,
        queue: Option<&ClusterQueue>,
        borrows: bool,
    ) -> QueueCounts {
        QueueCounts {
            pending: self.pending,
            reserving: self.reserving,
            admitted: self.admitted,
            reservation: by_flavor(&self.usage.plus(&self.set_aside), cells, queue, borrows),
            usage: by_flavor(&self.usage, cells, queue, borrows),
        }
    }
}

/// Every flavor and resource of the queue, be it with 0; and what is used of flavors it has no more.
fn by_flavor(sums: &Sums, cells: &Cells, queue: Option<&ClusterQueue>, borrows: bool) -> Vec<FlavorUsage> {
    let mut list: Vec<FlavorUsage> = Vec::new();
    for group in queue.iter().flat_map(|queue| &queue.resource_groups) {
        for quotas in &group.flavors {
            let used = |resource: &ResourceName| {
                let cell = cells.find(&(quotas.flavor.clone(), resource.clone()));
                cell.map_or(0, |cell| sums.get(CellId::from(cell)))
            };
            let entry = |(resource, quota): (&ResourceName, &gangway_model::queues::Quota)| {
                let total = used(resource);
                let borrowed = if borrows { total.saturating_sub(quota.nominal.value()).max(0) } else { 0 };
                (resource.clone(), total, borrowed)
            };
            let mut resources: Vec<_> = group.resources.iter().zip(&quotas.quotas).map(entry).collect();
            resources.sort();
            list.push(FlavorUsage { flavor: quotas.flavor.clone(), resources });
        }
    }
    let mut others: Vec<_> =
        sums.0.iter().map(|(cell, sum)| (cells.name(cell.index()), saturate(*sum))).collect();
    others.sort();
    for ((flavor, resource), value) in others {
        match list.iter_mut().find(|entry| entry.flavor == *flavor) {
            Some(entry) if entry.resources.iter().any(|(name, ..)| name == resource) => {}
            Some(entry) => entry.resources.push((resource.clone(), value, 0)),
            None => list
                .push(FlavorUsage { flavor: flavor.clone(), resources: vec![(resource.clone(), value, 0)] }),
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_saturates_is_given_back_exactly() {
        let mut sums = Sums::default();
        let cell = CellId(0);
        let huge = [(cell, i64::MAX - 1)];
        sums.book(&huge, 1);
        sums.book(&huge, 1);
        assert_eq!(sums.get(cell), i64::MAX);
        sums.book(&huge, -1);
        assert_eq!(sums.get(cell), i64::MAX - 1);
        sums.book(&huge, -1);
        assert_eq!(sums, Sums::default());
    }
}
