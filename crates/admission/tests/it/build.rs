//! Records for tests, in as few words as possible.

use std::sync::Arc;

use gangway_model::constraints::{Constraints, NodeSelectorTerm, Taint, TaintEffect, Toleration};
use gangway_model::queues::{
    ClusterQueue, Cohort, Flavor, FlavorQuotas, Fungibility, LocalQueue, Namespace, PreemptionPolicy,
    QueueingStrategy, Quota, ResourceGroup, StopPolicy,
};
use gangway_model::readiness::Timeouts;
use gangway_model::selector::{LabelSelector, Requirement};
use gangway_model::workload::{PodSet, State, Workload};
use gangway_model::{Amount, ObjectName, Requests, Timestamp};

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(second)
}

pub fn requests(amounts: &[(&str, i64)]) -> Requests {
    amounts.iter().map(|(resource, value)| ((*resource).into(), *value)).collect()
}

pub fn flavor(name: &str) -> Flavor {
    Flavor {
        name: name.into(),
        node_labels: [].into(),
        node_taints: vec![],
        tolerations: vec![],
        topology: None,
    }
}

pub fn labelled(name: &str, key: &str, value: &str) -> Flavor {
    Flavor { node_labels: [(key.to_owned(), value.to_owned())].into(), ..flavor(name) }
}

pub fn tainted(name: &str, key: &str) -> Flavor {
    Flavor { node_taints: vec![taint(key)], ..flavor(name) }
}

pub fn taint(key: &str) -> Taint {
    Taint { key: key.into(), value: "true".into(), effect: TaintEffect::NoSchedule }
}

pub fn tolerates(key: &str) -> Toleration {
    Toleration { key: Some(key.into()), exists: true, value: String::new(), effect: None, seconds: None }
}

/// Quota without limits.
pub fn quota(nominal: i64) -> Quota {
    limited(nominal, None, None)
}

/// Quota of which so much may be borrowed on top, and so much be lent.
pub fn limited(nominal: i64, borrowing: Option<i64>, lending: Option<i64>) -> Quota {
    Quota {
        nominal: Amount::new(nominal),
        borrowing_limit: borrowing.map(Amount::new),
        lending_limit: lending.map(Amount::new),
    }
}

/// One group with nothing but cpu, and a quota per flavor.
pub fn cpu_group(flavors: &[(&str, Quota)]) -> Vec<ResourceGroup> {
    let quotas =
        |(name, quota): &(&str, Quota)| FlavorQuotas { flavor: (*name).into(), quotas: vec![*quota] };
    vec![ResourceGroup { resources: vec!["cpu".into()], flavors: flavors.iter().map(quotas).collect() }]
}

/// A Cohort with quota of its own.
pub fn cohort(name: &str, parent: Option<&str>, resource_groups: Vec<ResourceGroup>) -> Cohort {
    Cohort { name: name.into(), parent: parent.map(Into::into), resource_groups }
}

/// A ClusterQueue in a cohort.
pub fn member(name: &str, cohort: &str, resource_groups: Vec<ResourceGroup>) -> ClusterQueue {
    ClusterQueue { cohort: Some(cohort.into()), ..cluster_queue(name, resource_groups) }
}

/// A group of resources with, per flavor, one quota for each resource.
pub fn group(resources: &[&str], flavors: &[(&str, &[i64])]) -> ResourceGroup {
    let quota = |nominal: &i64| Quota { nominal: Amount::new(*nominal), ..Quota::default() };
    ResourceGroup {
        resources: resources.iter().map(|r| (*r).into()).collect(),
        flavors: flavors
            .iter()
            .map(|(name, quotas)| FlavorQuotas {
                flavor: (*name).into(),
                quotas: quotas.iter().map(quota).collect(),
            })
            .collect(),
    }
}

pub fn cluster_queue(name: &str, resource_groups: Vec<ResourceGroup>) -> ClusterQueue {
    ClusterQueue {
        name: name.into(),
        cohort: None,
        resource_groups,
        strategy: QueueingStrategy::BestEffortFifo,
        namespace_selector: Some(LabelSelector::default()),
        fungibility: Fungibility::default(),
        preemption: PreemptionPolicy::default(),
        admission_checks: vec![],
        fallback: None,
        stop_policy: StopPolicy::None,
        deleting: false,
        invalid: None,
        not_acted_on: vec![],
        not_supported: vec![],
        timeouts: Timeouts::default(),
    }
}

pub fn local_queue(namespace: &str, name: &str, cluster_queue: &str) -> LocalQueue {
    LocalQueue {
        name: ObjectName::new(namespace, name),
        cluster_queue: cluster_queue.into(),
        stop_policy: StopPolicy::None,
        deleting: false,
    }
}

pub fn namespace(name: &str, labels: &[(&str, &str)]) -> Namespace {
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Namespace { name: name.into(), labels }
}

pub fn pod_set(name: &str, count: i32, amounts: &[(&str, i64)]) -> PodSet {
    PodSet { name: name.into(), count, requests: requests(amounts), constraints: Arc::default() }
}

pub fn constrained(pod_set: PodSet, constraints: Constraints) -> PodSet {
    PodSet { constraints: Arc::new(constraints), ..pod_set }
}

pub fn selects(key: &str, value: &str) -> Constraints {
    Constraints { node_selector: vec![(key.into(), value.into())], ..Constraints::default() }
}

pub fn tolerating(key: &str) -> Constraints {
    Constraints { tolerations: vec![tolerates(key)], ..Constraints::default() }
}

pub fn prefers_one_of(terms: &[Requirement]) -> Constraints {
    let term = |r: &Requirement| NodeSelectorTerm { labels: vec![r.clone()], fields: vec![] };
    Constraints { affinity: Some(terms.iter().map(term).collect()), ..Constraints::default() }
}

/// A Workload of namespace `ns` and queue `lq`, created at second 0, without an owner.
pub fn workload(name: &str, pod_sets: Vec<PodSet>) -> Workload {
    Workload {
        uid: name.into(),
        name: ObjectName::new("ns", name),
        version: 1,
        generation: 1,
        created: at(0),
        queue: "lq".into(),
        priority: 0,
        active: true,
        pod_sets: pod_sets.into(),
        impediments: None,
        deleting: false,
        owner: None,
        timeouts: None,
        state: State::new(),
    }
}

pub fn cpu_workload(name: &str, milli: i64) -> Workload {
    workload(name, vec![pod_set("main", 1, &[("cpu", milli)])])
}

/// A Workload of one pod, with its priority and the second in which it was created.
pub fn ranked(name: &str, milli: i64, priority: i32, created: i64) -> Workload {
    Workload { priority, created: at(created), ..cpu_workload(name, milli) }
}

/// The same pods, but only on this flavor. The flavors of a [`Scene`](crate::scene::Scene) are labelled so.
pub fn pinned(workload: Workload, flavor: &str) -> Workload {
    let pin = |pod_set| constrained(pod_set, selects("flavor", flavor));
    Workload { pod_sets: workload.pod_sets.iter().cloned().map(pin).collect(), ..workload }
}
