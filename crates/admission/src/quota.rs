//! Who uses how much: the ledger of quota, and the counts of queues.

use std::collections::BTreeMap;

use gangway_model::queues::{ClusterQueue, FlavorUsage, QueueCounts};
use gangway_model::workload::Admission;
use gangway_model::{FlavorName, ResourceName};

/// Amounts by flavor and resource.
///
/// Sums are kept wider than what can be asked for: a sum that saturated would give too much back when
/// its parts leave one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage(BTreeMap<(FlavorName, ResourceName), i128>);

impl Usage {
    /// Nothing is used.
    pub(crate) const NOTHING: Self = Self(BTreeMap::new());

    /// How much is used of a flavor's resource; saturates.
    pub(crate) fn get(&self, flavor: &FlavorName, resource: &ResourceName) -> i64 {
        self.0.get(&(flavor.clone(), resource.clone())).map_or(0, |sum| saturate(*sum))
    }

    pub(crate) fn add(&mut self, flavor: &FlavorName, resource: &ResourceName, value: i64) {
        self.add_wide(flavor, resource, i128::from(value));
    }

    fn add_wide(&mut self, flavor: &FlavorName, resource: &ResourceName, value: i128) {
        let cell = self.0.entry((flavor.clone(), resource.clone())).or_insert(0);
        *cell = cell.saturating_add(value);
        if *cell == 0 {
            self.0.remove(&(flavor.clone(), resource.clone()));
        }
    }

    fn book(&mut self, admission: &Admission, sign: i64) {
        for (flavor, resource, value) in admission.usage() {
            // Whatever somebody wrote into an object, nobody gets credit.
            let value = value.max(0);
            self.add_wide(flavor, resource, i128::from(value) * i128::from(sign));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&FlavorName, &ResourceName, i64)> {
        self.0.iter().map(|((flavor, resource), value)| (flavor, resource, saturate(*value)))
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
    /// What all holders of quota use.
    pub(crate) reservation: Usage,
    /// What the admitted ones among them use.
    pub(crate) usage: Usage,
}

impl Tally {
    pub(crate) fn count(&mut self, counted: Counted, admission: Option<&Admission>, sign: i32) {
        match counted {
            Counted::Pending => self.pending += sign,
            Counted::Reserving => self.reserving += sign,
            Counted::Admitted => {
                self.reserving += sign;
                self.admitted += sign;
            }
        }
        let Some(admission) = admission else { return };
        self.reservation.book(admission, i64::from(sign));
        if counted == Counted::Admitted {
            self.usage.book(admission, i64::from(sign));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The counts for a queue's status, flavors in the order of the ClusterQueue's spec.
    pub(crate) fn to_counts(&self, queue: Option<&ClusterQueue>) -> QueueCounts {
        QueueCounts {
            pending: self.pending,
            reserving: self.reserving,
            admitted: self.admitted,
            reservation: by_flavor(&self.reservation, queue),
            usage: by_flavor(&self.usage, queue),
        }
    }
}

/// Every flavor and resource of the queue, be it with 0; and what is used of flavors it has no more.
fn by_flavor(usage: &Usage, queue: Option<&ClusterQueue>) -> Vec<FlavorUsage> {
    let mut list: Vec<FlavorUsage> = Vec::new();
    for group in queue.iter().flat_map(|queue| &queue.resource_groups) {
        for quotas in &group.flavors {
            let mut resources: Vec<(ResourceName, i64, i64)> = group
                .resources
                .iter()
                .map(|resource| (resource.clone(), usage.get(&quotas.flavor, resource), 0))
                .collect();
            resources.sort();
            list.push(FlavorUsage { flavor: quotas.flavor.clone(), resources });
        }
    }
    for (flavor, resource, value) in usage.iter() {
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
    use gangway_model::Requests;
    use gangway_model::workload::Assignment;

    use super::*;

    fn admission(cpu: i64) -> Admission {
        let usage: Requests = [("cpu".into(), cpu)].into_iter().collect();
        let flavors = vec![("cpu".into(), "f".into())];
        let assignment = Assignment { name: "main".into(), flavors, usage, count: 1 };
        Admission { cluster_queue: "cq".into(), pod_sets: vec![assignment] }
    }

    fn used(usage: &Usage) -> i64 {
        usage.get(&"f".into(), &"cpu".into())
    }

    #[test]
    fn what_saturates_is_given_back_exactly() {
        let mut usage = Usage::default();
        let huge = admission(i64::MAX - 1);
        usage.book(&huge, 1);
        usage.book(&huge, 1);
        assert_eq!(used(&usage), i64::MAX);
        usage.book(&huge, -1);
        assert_eq!(used(&usage), i64::MAX - 1);
        usage.book(&huge, -1);
        assert_eq!(usage, Usage::NOTHING);
    }

    #[test]
    fn nobody_gets_credit() {
        let mut usage = Usage::default();
        usage.book(&admission(-5), 1);
        assert_eq!(usage, Usage::NOTHING);
    }
}
