//! What a tree of queues and cohorts may use: added up anew, from the objects alone.

use std::collections::{BTreeMap, BTreeSet};

use gangway_model::queues::{ClusterQueue, Quota, ResourceGroup};
use gangway_model::workload::{Admission, Workload};
use gangway_model::{ClusterQueueName, CohortName, FlavorName, ResourceName, Uid};

use crate::view::{SeenPod, View};

/// A resource of a flavor.
pub type Cell = (FlavorName, ResourceName);

/// What is used of each cell.
pub type Use = BTreeMap<Cell, i128>;

/// What all that counts in a queue comes to: reservations, and pods that outlive theirs.
pub fn use_of(view: &View, queue: &ClusterQueueName) -> Use {
    let mut used = Use::new();
    let reservations = view.workloads.values().filter_map(|seen| seen.record.state.reservation());
    for reservation in reservations.filter(|reservation| reservation.admission.cluster_queue == *queue) {
        add_admission(&mut used, &reservation.admission);
    }
    let holders = view.workloads.values().filter(|seen| seen.record.state.reservation().is_some());
    let with_quota: BTreeSet<&Uid> = holders.filter_map(|seen| seen.record.owner.as_ref()).collect();
    let outlive = |pod: &&SeenPod| pod.is_alive && pod.is_marked && !with_quota.contains(&pod.owner);
    for pod in view.pods.values().filter(outlive) {
        if let Some(given) = view.given.get(&pod.owner).filter(|given| given.cluster_queue == *queue) {
            add_pod(&mut used, given, &pod.requests);
        }
    }
    used
}

/// The same of all queues.
pub fn all_uses(view: &View) -> BTreeMap<ClusterQueueName, Use> {
    view.queues.keys().map(|queue| (queue.clone(), use_of(view, queue))).collect()
}

/// Whether a Workload of a queue would find room on one of the flavors that it has not given up where queues use so much.
pub fn has_room_somewhere(
    view: &View,
    uses: &BTreeMap<ClusterQueueName, Use>,
    queue: &ClusterQueueName,
    workload: &Workload,
) -> bool {
    let Some(record) = view.queues.get(queue) else { return false };
    let history = workload.state.history().filter(|_| record.fallback.is_some());
    let is_given_up = |flavor: &FlavorName| {
        history.is_some_and(|history| history.exhausted().any(|given_up| given_up == flavor))
    };
    let covers = |resource: &ResourceName| {
        record.resource_groups.iter().any(|group| group.resources.contains(resource))
    };
    let mut wanted = workload.pod_sets.iter().flat_map(|pod_set| pod_set.requests.iter());
    wanted.all(|(resource, _)| covers(resource))
        && needed_groups(record, workload).all(|group| {
            let mut flavors = group.flavors.iter().map(|quotas| &quotas.flavor);
            flavors.any(|flavor| !is_given_up(flavor) && has_room_on(view, uses, queue, workload, flavor))
        })
}

/// The resource groups of a queue of which a Workload wants something.
pub fn needed_groups<'q>(
    queue: &'q ClusterQueue,
    workload: &'q Workload,
) -> impl Iterator<Item = &'q ResourceGroup> {
    let is_wanted = |resource: &ResourceName| {
        workload.pod_sets.iter().any(|pod_set| pod_set.requests.contains(resource.as_str()))
    };
    queue.resource_groups.iter().filter(move |group| group.resources.iter().any(is_wanted))
}

/// Whether a Workload of a queue would find room on a flavor if nobody used anything.
pub fn could_have(view: &View, queue: &ClusterQueueName, workload: &Workload, flavor: &FlavorName) -> bool {
    has_room_on(view, &BTreeMap::new(), queue, workload, flavor)
}

fn has_room_on(
    view: &View,
    uses: &BTreeMap<ClusterQueueName, Use>,
    queue: &ClusterQueueName,
    workload: &Workload,
    flavor: &FlavorName,
) -> bool {
    let groups = view.queues.get(queue).into_iter().flat_map(|queue| &queue.resource_groups);
    let mut groups = groups.filter(|group| group.flavors.iter().any(|quotas| quotas.flavor == *flavor));
    let Some(group) = groups.next() else { return false };
    let mut needs = Use::new();
    for pod_set in workload.pod_sets.iter() {
        let here = pod_set.requests.iter().filter(|(resource, _)| group.resources.contains(resource));
        for (resource, amount) in here {
            let amount = i128::from(amount) * i128::from(pod_set.count);
            *needs.entry((flavor.clone(), resource.clone())).or_default() += amount;
        }
    }
    let mut uses = uses.clone();
    let own = uses.entry(queue.clone()).or_default();
    needs.iter().for_each(|(cell, amount)| *own.entry(cell.clone()).or_default() += amount);
    let use_in = |queue: &ClusterQueueName| uses.get(queue).cloned().unwrap_or_default();
    needs.keys().all(|cell| exceeded_by(view, &use_in, queue, cell).is_none())
}

/// Takes off what an admission gave.
pub fn take_off(used: &mut Use, admission: &Admission) {
    for (flavor, resource, amount) in admission.usage() {
        *used.entry((flavor.clone(), resource.clone())).or_default() -= i128::from(amount);
    }
}

/// Whether a queue could have this much more of its own where queues use so much.
pub fn fits_without_borrowing(
    view: &View,
    uses: &BTreeMap<ClusterQueueName, Use>,
    admission: &Admission,
) -> bool {
    let queue = &admission.cluster_queue;
    let mut uses = uses.clone();
    let own = uses.entry(queue.clone()).or_default();
    add_admission(own, admission);
    let own = own.clone();
    let mut gets = Use::new();
    add_admission(&mut gets, admission);
    let use_in = |queue: &ClusterQueueName| uses.get(queue).cloned().unwrap_or_default();
    gets.keys().all(|cell| {
        own.get(cell).copied().unwrap_or(0) <= nominal(view, queue, cell)
            && exceeded_by(view, &use_in, queue, cell).is_none()
    })
}

/// Adds what an admission gives.
pub fn add_admission(used: &mut Use, admission: &Admission) {
    for (flavor, resource, amount) in admission.usage() {
        *used.entry((flavor.clone(), resource.clone())).or_default() += i128::from(amount);
    }
}

fn add_pod(used: &mut Use, given: &Admission, requests: &gangway_model::Requests) {
    for (resource, flavor) in given.pod_sets.iter().flat_map(|assignment| &assignment.flavors) {
        let amount = requests.get(resource.as_str());
        *used.entry((flavor.clone(), resource.clone())).or_default() += i128::from(amount);
    }
}

/// What is used in a queue.
type UseIn<'a> = &'a dyn Fn(&ClusterQueueName) -> Use;

/// The first limit on the way from a queue to the root that is exceeded in a cell.
pub fn exceeded(view: &View, queue: &ClusterQueueName, cell: &Cell) -> Option<String> {
    exceeded_by(view, &|queue| use_of(view, queue), queue, cell)
}

fn exceeded_by(view: &View, use_in: UseIn<'_>, queue: &ClusterQueueName, cell: &Cell) -> Option<String> {
    let record = view.queues.get(queue)?;
    let used = use_in(queue).get(cell).copied().unwrap_or(0);
    let quota = quota_of(&record.resource_groups, cell);
    let Some(cohort) = &record.cohort else {
        return over(&format!("ClusterQueue {queue}"), used, amount(quota.nominal.value()));
    };
    if let Some(limit) = quota.borrowing_limit {
        let most = amount(quota.nominal.value()) + amount(limit.value());
        if let Some(problem) = over(&format!("ClusterQueue {queue}"), used, most) {
            return Some(problem);
        }
    }
    let mut above = Some(cohort);
    for _ in 0..=view.cohorts.len() {
        let Some(name) = above else { break };
        let (quota, used) = sum_below(view, use_in, name, cell, &mut BTreeSet::new());
        let object = view.cohorts.get(name);
        let parent = object.and_then(|cohort| cohort.parent.as_ref());
        let own = object.map(|cohort| quota_of(&cohort.resource_groups, cell)).unwrap_or_default();
        let most = match (parent, own.borrowing_limit) {
            (None, _) => Some(quota),
            (Some(_), Some(limit)) => Some(quota + amount(limit.value())),
            (Some(_), None) => None,
        };
        if let Some(problem) = most.and_then(|most| over(&format!("cohort {name}"), used, most)) {
            return Some(problem);
        }
        above = parent;
    }
    None
}

fn over(whose: &str, used: i128, most: i128) -> Option<String> {
    (used > most).then(|| format!("{whose} uses {used} of {most}"))
}

fn amount(value: i64) -> i128 {
    // Unlimited is more than anybody can use.
    if value == i64::MAX { i128::from(i64::MAX) * 1_000_000 } else { i128::from(value) }
}

fn quota_of(groups: &[ResourceGroup], (flavor, resource): &Cell) -> Quota {
    for group in groups {
        let Some(index) = group.resources.iter().position(|name| name == resource) else { continue };
        let Some(quotas) = group.flavors.iter().find(|quotas| quotas.flavor == *flavor) else { continue };
        return quotas.quotas.get(index).copied().unwrap_or_default();
    }
    Quota::default()
}

/// What a child keeps for itself and never lends.
fn kept(own: i128, quota: &Quota) -> i128 {
    quota.lending_limit.map_or(0, |limit| (own - amount(limit.value())).max(0))
}

/// What a cohort and all below it have, as far as it is lent upwards to it, and what all below it use of that, beyond what
/// they keep for themselves.
fn sum_below<'v>(
    view: &'v View,
    use_in: UseIn<'_>,
    cohort: &'v CohortName,
    cell: &Cell,
    seen: &mut BTreeSet<&'v CohortName>,
) -> (i128, i128) {
    if !seen.insert(cohort) {
        return (0, 0);
    }
    let own =
        view.cohorts.get(cohort).map(|cohort| quota_of(&cohort.resource_groups, cell)).unwrap_or_default();
    let (mut has, mut asks) = (amount(own.nominal.value()), 0);
    for (name, queue) in view.queues.iter().filter(|(_, queue)| queue.cohort.as_ref() == Some(cohort)) {
        let quota = quota_of(&queue.resource_groups, cell);
        let nominal = amount(quota.nominal.value());
        let used = use_in(name).get(cell).copied().unwrap_or(0);
        let kept = kept(nominal, &quota);
        has += nominal - kept;
        asks += (used - kept).max(0);
    }
    let children = view.cohorts.iter().filter(|(_, child)| child.parent.as_ref() == Some(cohort));
    for (name, child) in children {
        let (below_has, below_asks) = sum_below(view, use_in, name, cell, seen);
        let kept = kept(below_has, &quota_of(&child.resource_groups, cell));
        has += below_has - kept;
        asks += (below_asks - kept).max(0);
    }
    (has, asks)
}

/// What a queue has of its own in a cell.
pub fn nominal(view: &View, queue: &ClusterQueueName, cell: &Cell) -> i128 {
    view.queues.get(queue).map_or(0, |queue| amount(quota_of(&queue.resource_groups, cell).nominal.value()))
}

/// The highest cohort above a queue; its own name if it is in none.
pub fn root_of(view: &View, queue: &ClusterQueueName) -> String {
    let Some(mut name) = view.queues.get(queue).and_then(|queue| queue.cohort.as_ref()) else {
        return format!("ClusterQueue {queue}");
    };
    for _ in 0..view.cohorts.len() {
        match view.cohorts.get(name).and_then(|cohort| cohort.parent.as_ref()) {
            Some(parent) => name = parent,
            None => break,
        }
    }
    format!("cohort {name}")
}
