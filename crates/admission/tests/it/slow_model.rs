//! What should be, computed slowly and obviously from the objects.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gangway_model::queues::{ClusterQueue, QueueingStrategy, StopPolicy};
use gangway_model::readiness::RequeuingTimestamp;
use gangway_model::reasons::{EvictionReason, RequeueReason};
use gangway_model::workload::{Eviction, Pending, PodSet, Requeued, State, Workload};
use gangway_model::{ClusterQueueName, FlavorName, ObjectName, ResourceName, Timestamp, Uid};

use crate::store::{Store, nominal};

pub type Order = (Reverse<i32>, Timestamp, Uid);

/// The order of a Workload in its queue.
pub fn order(store: &Store, workload: &Workload) -> Order {
    let settings = store.readiness.as_ref().and_then(Option::as_ref);
    let stays = settings.is_some_and(|settings| settings.timestamp == RequeuingTimestamp::Creation);
    let sent_back = match &workload.state {
        State::Pending(pending) => pending.evicted.as_ref().filter(|eviction| match eviction.reason {
            EvictionReason::PodsReadyTimeout => !stays,
            EvictionReason::FlavorFallback => settings.is_some() && !stays,
            reason => reason == EvictionReason::AdmissionCheck,
        }),
        _ => None,
    };
    let at = sent_back.map_or(workload.created, |eviction| eviction.at);
    (Reverse(workload.priority), at, workload.uid.clone())
}

/// The ClusterQueue in which a Workload waits for quota, if it does.
pub fn waits_in<'s>(store: &'s Store, workload: &Workload, now: Timestamp) -> Option<&'s ClusterQueue> {
    let State::Pending(pending) = &workload.state else { return None };
    let may_be_queued = workload.active
        && !workload.deleting
        && workload.impediments.is_none()
        && pending.requeued.as_ref().is_none_or(|requeued| {
            requeued.eligible
                || matches!(
                    requeued.reason,
                    RequeueReason::PodsReadyTimeout
                        | RequeueReason::AdmissionCheck
                        | RequeueReason::FlavorFallback
                )
        })
        && !is_being_deactivated(pending)
        && pending.requeue_state.as_ref().and_then(|state| state.requeue_at).is_none_or(|at| at <= now);
    let runs_or_will = match &workload.owner {
        Some(owner) => store.jobs.get(owner).is_some_and(|job| job.end.is_none()),
        None => true,
    };
    let name = ObjectName { namespace: workload.name.namespace.clone(), name: workload.queue.clone() };
    let local = store.local_queues.get(&name)?;
    let queue = store.cluster_queues.get(&local.cluster_queue)?;
    let labels = &store.namespaces.get(&workload.name.namespace)?.labels;
    let is_open = !local.deleting
        && local.stop_policy == StopPolicy::None
        && !queue.deleting
        && queue.stop_policy == StopPolicy::None
        && queue.invalid.is_none()
        && queue
            .admission_checks
            .iter()
            .all(|check| store.admission_checks.get(&check.name).is_some_and(|check| check.active))
        && queue.namespace_selector.as_ref().is_some_and(|selector| selector.matches(labels))
        && queue
            .resource_groups
            .iter()
            .flat_map(|g| &g.flavors)
            .all(|f| store.flavors.contains_key(&f.flavor));
    (may_be_queued && runs_or_will && is_open).then_some(queue)
}

/// Whether it was decided that a Workload is deactivated, and nobody has done it or undone it.
fn is_being_deactivated(pending: &Pending) -> bool {
    let by_fallback =
        |eviction: &Eviction| eviction.reason == EvictionReason::DeactivatedDueToFlavorFallbackExhausted;
    let is_done = |requeued: &Requeued| {
        requeued.reason == RequeueReason::DeactivatedDueToFlavorFallbackExhausted
            || requeued.reason == RequeueReason::Reactivated
    };
    pending.evicted.as_deref().is_some_and(by_fallback) && !pending.requeued.as_ref().is_some_and(is_done)
}

/// The flavors that a Workload gave up, where that counts.
pub fn given_up(queue: &ClusterQueue, workload: &Workload) -> Vec<FlavorName> {
    let history = workload.state.history().filter(|_| queue.fallback.is_some());
    history.into_iter().flat_map(|history| history.exhausted().cloned()).collect()
}

/// Whether each podSet could run somewhere if nobody else were there.
pub fn could_ever_run(store: &Store, queue: &ClusterQueue, workload: &Workload) -> bool {
    let given_up = given_up(queue, workload);
    let alone = |pod_set| fit_pod_set(store, queue, pod_set, &given_up, &mut BTreeMap::new()).is_some();
    workload.pod_sets.iter().all(alone)
}

/// Everybody who waits in a ClusterQueue, in order.
pub fn waiting<'s>(store: &'s Store, queue: &ClusterQueueName, now: Timestamp) -> Vec<&'s Workload> {
    let mut list: Vec<&Workload> = store
        .workloads
        .values()
        .filter(|workload| waits_in(store, workload, now).is_some_and(|q| q.name == *queue))
        .collect();
    list.sort_by_key(|workload| order(store, workload));
    list
}

/// Whether two Workloads ask for the same.
pub fn same_shape(a: &Workload, b: &Workload) -> bool {
    let asked = |w: &Workload| -> Vec<_> {
        w.pod_sets.iter().map(|p| (p.count, p.requests.clone(), p.constraints.clone())).collect()
    };
    let given_up = |w: &Workload| -> BTreeSet<FlavorName> {
        w.state.history().into_iter().flat_map(|history| history.exhausted().cloned()).collect()
    };
    a.priority == b.priority && asked(a) == asked(b) && given_up(a) == given_up(b)
}

/// The flavors that a Workload gets now, one list per podSet; none if it does not fit.
pub fn fit(
    store: &Store,
    queue: &ClusterQueue,
    workload: &Workload,
) -> Option<Vec<BTreeMap<ResourceName, FlavorName>>> {
    let mut used: BTreeMap<(FlavorName, ResourceName), i128> = BTreeMap::new();
    for ((owner, flavor, resource), sum) in store.usage() {
        if owner == queue.name {
            used.insert((flavor, resource), sum);
        }
    }
    let given_up = given_up(queue, workload);
    workload.pod_sets.iter().map(|pod_set| fit_pod_set(store, queue, pod_set, &given_up, &mut used)).collect()
}

fn fit_pod_set(
    store: &Store,
    queue: &ClusterQueue,
    pod_set: &PodSet,
    given_up: &[FlavorName],
    used: &mut BTreeMap<(FlavorName, ResourceName), i128>,
) -> Option<BTreeMap<ResourceName, FlavorName>> {
    let covered = |resource: &str| {
        queue.resource_groups.iter().any(|group| group.resources.iter().any(|r| r.as_str() == resource))
    };
    let mut wanted: BTreeMap<ResourceName, i128> = BTreeMap::new();
    for (resource, each) in pod_set.requests.iter() {
        if covered(resource.as_str()) {
            wanted.insert(resource.clone(), i128::from(each) * i128::from(pod_set.count));
        } else if each != 0 && pod_set.count != 0 {
            return None;
        }
    }
    if covered("pods") {
        wanted.insert("pods".into(), i128::from(pod_set.count));
    }
    let mut given = BTreeMap::new();
    for group in &queue.resource_groups {
        let of_group: Vec<&ResourceName> =
            group.resources.iter().filter(|r| wanted.contains_key(*r)).collect();
        if of_group.is_empty() {
            continue;
        }
        let quotas = group.flavors.iter().find(|quotas| {
            let flavor = &store.flavors[&quotas.flavor];
            let tolerated = flavor.node_taints.iter().all(|taint| {
                let mut all = pod_set.constraints.tolerations.iter().chain(&flavor.tolerations);
                all.any(|toleration| toleration.tolerates(taint))
            });
            let has_room = of_group.iter().all(|resource| {
                let taken = used.get(&(flavor.name.clone(), (*resource).clone())).copied().unwrap_or(0);
                let quota = nominal(queue, &flavor.name, resource);
                quota == i64::MAX || taken + wanted[*resource] <= i128::from(quota)
            });
            let suits = tolerated && pod_set.constraints.accept_flavor(&flavor.node_labels);
            suits && !given_up.contains(&flavor.name) && has_room
        })?;
        for resource in of_group {
            *used.entry((quotas.flavor.clone(), resource.clone())).or_default() += wanted[resource];
            given.insert(resource.clone(), quotas.flavor.clone());
        }
    }
    Some(given)
}

/// Workloads that could be admitted now, by the rules of their queues.
pub fn could_start(store: &Store, now: Timestamp) -> Vec<ObjectName> {
    let mut list = Vec::new();
    for queue in store.cluster_queues.values() {
        let waiting = waiting(store, &queue.name, now);
        let candidates = match queue.strategy {
            QueueingStrategy::StrictFifo => &waiting[..waiting.len().min(1)],
            QueueingStrategy::BestEffortFifo => &waiting[..],
        };
        let fitting = candidates.iter().filter(|workload| fit(store, queue, workload).is_some());
        list.extend(fitting.map(|workload| workload.name.clone()));
    }
    list
}
