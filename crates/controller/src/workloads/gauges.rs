//! How things stand, for whoever reads metrics. It is worked out when somebody asks, so that nobody who does not pays for it.

use std::collections::BTreeMap;

use gangway_admission::Waiters;
use gangway_model::queues::{FlavorUsage, QueueCounts};
use gangway_model::reasons::{ClusterQueueReason, LocalQueueReason};
use gangway_model::selector::LabelSelector;
use gangway_model::{Amount, ClusterQueueName, ObjectName};
use kube::ResourceExt;

use super::shell::Shell;
use super::succession::Role;
use crate::metrics::{Metric, Registry, ReplicaRole};

/// What is told only if the configuration asks for it.
#[derive(Clone, Debug)]
pub(super) struct Extent {
    /// Quota and its use, by flavor and resource.
    pub(super) resources: bool,
    /// The LocalQueues that have metrics of their own.
    pub(super) local_queues: Option<LabelSelector>,
}

/// All that is worked out anew each time.
const GAUGES: [Metric; 26] = [
    Metric::PendingWorkloads,
    Metric::PendingSchedulingHashes,
    Metric::UnadmittedWorkloads,
    Metric::ReservingActive,
    Metric::AdmittedActive,
    Metric::ClusterQueueStatus,
    Metric::ResourceReservation,
    Metric::ResourceUsage,
    Metric::ResourcePending,
    Metric::NominalQuota,
    Metric::BorrowingLimit,
    Metric::LendingLimit,
    Metric::ClusterQueueInfo,
    Metric::CohortInfo,
    Metric::CohortQuota,
    Metric::CohortReservations,
    Metric::CohortAdmittedActive,
    Metric::LocalPending,
    Metric::LocalUnadmitted,
    Metric::LocalReserving,
    Metric::LocalAdmittedActive,
    Metric::LocalStatus,
    Metric::LocalReservation,
    Metric::LocalUsage,
    Metric::Deadlines,
    Metric::UnderWay,
];

impl Shell {
    /// Whether a LocalQueue has metrics of its own.
    pub(super) fn counts_for_local_queue(&self, namespace: &str, name: &str) -> bool {
        let Some(selector) = &self.extent.local_queues else { return false };
        if selector.requirements.is_empty() {
            return true;
        }
        let queue = self.local_queues.named(namespace, name);
        queue.is_some_and(|queue| selector.matches(queue.labels()))
    }

    /// From now on it counts as what it is.
    pub(super) fn tell_role(&self) {
        self.counts.metrics().set_role(match self.role {
            _ if self.is_alone => ReplicaRole::Standalone,
            Role::Leads => ReplicaRole::Leader,
            Role::Listens | Role::TakesOver => ReplicaRole::Follower,
        });
    }

    /// Works out how things stand.
    pub(super) fn publish(&self) {
        let registry = self.counts.metrics();
        registry.set(Metric::Leads, &[], f64::from(u8::from(self.role == Role::Leads)));
        GAUGES.iter().for_each(|metric| registry.clear(*metric));
        let work = self.engine.work();
        for (metric, count) in [
            (Metric::Cycles, work.cycles),
            (Metric::Evaluations, work.evaluations),
            (Metric::PassedBy, work.passed_by),
            (Metric::Preemptions, work.preemptions),
            (Metric::Spared, work.spared),
            (Metric::Deadlines, self.engine.deadlines() as u64),
            (Metric::UnderWay, self.engine.decisions_under_way() as u64),
            (Metric::Known, self.engine.known_workloads() as u64),
        ] {
            registry.set(metric, &[], count as f64);
        }
        // Only the leader knows what it has decided.
        if self.role == Role::Leads {
            let (clusters, locals) = self.engine.waiters(self.extent.resources);
            self.publish_cluster_queues(registry, &clusters);
            self.publish_local_queues(registry, &locals);
            self.publish_cohorts(registry);
        }
    }

    fn publish_cluster_queues(&self, registry: &Registry, waiting: &BTreeMap<ClusterQueueName, Waiters>) {
        for object in self.cluster_queues.values() {
            let name = ClusterQueueName::from(object.name_any());
            let Some((reason, _, counts)) = self.engine.cluster_queue_status(&name) else { continue };
            let nobody = Waiters::default();
            let waiters = waiting.get(&name).unwrap_or(&nobody);
            let queue = name.as_str();
            let set = |metric, labels: &[&str], count: usize| registry.set(metric, labels, count as f64);
            set(Metric::PendingWorkloads, &[queue, "active"], waiters.active);
            set(Metric::PendingWorkloads, &[queue, "inadmissible"], waiters.inadmissible);
            set(Metric::PendingSchedulingHashes, &[queue, "active"], waiters.active_shapes);
            set(Metric::PendingSchedulingHashes, &[queue, "inadmissible"], waiters.inadmissible_shapes);
            for (reason, count) in &waiters.reasons {
                set(Metric::UnadmittedWorkloads, &[queue, reason.as_str(), ""], *count);
            }
            registry.set(Metric::ReservingActive, &[queue], f64::from(counts.reserving));
            registry.set(Metric::AdmittedActive, &[queue], f64::from(counts.admitted));
            let deleting = object.metadata.deletion_timestamp.is_some();
            let status = match reason {
                _ if deleting => "terminating",
                ClusterQueueReason::Ready => "active",
                _ => "pending",
            };
            for each in ["pending", "active", "terminating"] {
                set(Metric::ClusterQueueStatus, &[queue, each], usize::from(each == status));
            }
            let above = self.engine.cohorts_above(&name);
            let [parent, root] =
                [above.first(), above.last()].map(|cohort| cohort.map_or("", |cohort| cohort.as_str()));
            set(Metric::ClusterQueueInfo, &[queue, parent, root], 1);
            if self.extent.resources {
                self.publish_resources(registry, (parent, &name), &counts, waiters);
            }
        }
    }

    fn publish_resources(
        &self,
        registry: &Registry,
        (cohort, name): (&str, &ClusterQueueName),
        counts: &QueueCounts,
        waiters: &Waiters,
    ) {
        let queue = name.as_str();
        let tables =
            [(Metric::ResourceReservation, &counts.reservation), (Metric::ResourceUsage, &counts.usage)];
        for (metric, usage) in tables {
            for (flavor, resource, amount) in amounts(usage) {
                registry.set(metric, &[cohort, queue, flavor, resource], amount);
            }
        }
        for (resource, amount) in &waiters.amounts {
            let amount = counted(resource.as_str(), Amount::new(*amount));
            registry.set(Metric::ResourcePending, &[queue, resource.as_str()], amount);
        }
        let groups = self.engine.cluster_queue(name).into_iter().flat_map(|queue| &queue.resource_groups);
        for (group, flavor) in
            groups.flat_map(|group| group.flavors.iter().map(move |flavor| (group, flavor)))
        {
            for (resource, quota) in group.resources.iter().zip(&flavor.quotas) {
                let labels = [cohort, queue, flavor.flavor.as_str(), resource.as_str()];
                let limit =
                    |limit: Option<Amount>| counted(resource.as_str(), limit.unwrap_or(Amount::UNLIMITED));
                registry.set(Metric::NominalQuota, &labels, counted(resource.as_str(), quota.nominal));
                registry.set(Metric::BorrowingLimit, &labels, limit(quota.borrowing_limit));
                registry.set(Metric::LendingLimit, &labels, limit(quota.lending_limit));
            }
        }
    }

    fn publish_local_queues(&self, registry: &Registry, waiting: &BTreeMap<ObjectName, Waiters>) {
        if self.extent.local_queues.is_none() {
            return;
        }
        for object in self.local_queues.values() {
            let (queue, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
            if !self.counts_for_local_queue(&namespace, &queue) {
                continue;
            }
            let name = ObjectName::new(namespace.clone(), &queue);
            let Some((reason, _, counts)) = self.engine.local_queue_status(&name) else { continue };
            let nobody = Waiters::default();
            let waiters = waiting.get(&name).unwrap_or(&nobody);
            let labels = [queue.as_str(), namespace.as_str()];
            let [queue, namespace] = labels;
            let cluster_queue = object.spec.cluster_queue.as_deref().unwrap_or_default();
            let set = |metric, labels: &[&str], count: usize| registry.set(metric, labels, count as f64);
            set(Metric::LocalPending, &[queue, namespace, "active"], waiters.active);
            set(Metric::LocalPending, &[queue, namespace, "inadmissible"], waiters.inadmissible);
            for (reason, count) in &waiters.reasons {
                set(Metric::LocalUnadmitted, &[queue, namespace, cluster_queue, reason.as_str(), ""], *count);
            }
            registry.set(Metric::LocalReserving, &labels, f64::from(counts.reserving));
            registry.set(Metric::LocalAdmittedActive, &labels, f64::from(counts.admitted));
            let active = if reason == LocalQueueReason::Ready { "True" } else { "False" };
            for each in ["True", "False", "Unknown"] {
                set(Metric::LocalStatus, &[queue, namespace, each], usize::from(each == active));
            }
            if self.extent.resources {
                let tables =
                    [(Metric::LocalReservation, &counts.reservation), (Metric::LocalUsage, &counts.usage)];
                for (metric, usage) in tables {
                    for (flavor, resource, amount) in amounts(usage) {
                        registry.set(metric, &[queue, namespace, flavor, resource], amount);
                    }
                }
            }
        }
    }

    fn publish_cohorts(&self, registry: &Registry) {
        for cohort in self.engine.cohorts() {
            let (name, parent) =
                (cohort.name.as_str(), cohort.parent.as_ref().map_or("", |parent| parent.as_str()));
            registry.set(Metric::CohortInfo, &[name, parent, cohort.root.as_str()], 1.0);
            registry.set(Metric::CohortAdmittedActive, &[name], cohort.admitted as f64);
            for quota in &cohort.quotas {
                let (flavor, resource) = (quota.flavor.as_str(), quota.resource.as_str());
                let labels = [name, flavor, resource];
                registry.set(Metric::CohortQuota, &labels, counted(resource, quota.quota));
                registry.set(Metric::CohortReservations, &labels, counted(resource, quota.used));
            }
        }
    }
}

fn amounts(usage: &[FlavorUsage]) -> impl Iterator<Item = (&str, &str, f64)> {
    usage.iter().flat_map(|usage| {
        let amount = |(resource, total, _): &'_ (gangway_model::ResourceName, i64, i64)| {
            counted(resource.as_str(), Amount::new(*total))
        };
        usage.resources.iter().map(move |entry| (usage.flavor.as_str(), entry.0.as_str(), amount(entry)))
    })
}

/// An amount as the reference shows it: cpus are whole, not thousandths.
fn counted(resource: &str, amount: Amount) -> f64 {
    match amount.is_unlimited() {
        true => f64::INFINITY,
        false if resource == "cpu" => amount.value() as f64 / 1000.0,
        false => amount.value() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_whole_and_no_limit_is_infinite() {
        assert_eq!(counted("cpu", Amount::new(1500)), 1.5);
        assert_eq!(counted("memory", Amount::new(1500)), 1500.0);
        assert_eq!(counted("cpu", Amount::UNLIMITED), f64::INFINITY);
    }
}
