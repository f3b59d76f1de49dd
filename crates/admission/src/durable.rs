//! The part of the engine's state that is a function of the objects, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use gangway_model::queues::{ClusterQueue, Flavor, LocalQueue, Namespace, StopPolicy};
use gangway_model::reasons::{ClusterQueueReason, LocalQueueReason, PendingReason};
use gangway_model::workload::Workload;
use gangway_model::{ClusterQueueName, FlavorName, NamespaceName, ObjectName, Uid};

use crate::event::JobFacts;

/// Everything that was observed. A restart rebuilds it from the objects, equal to the last bit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    pub(crate) flavors: BTreeMap<FlavorName, Flavor>,
    pub(crate) cluster_queues: BTreeMap<ClusterQueueName, ClusterQueue>,
    pub(crate) local_queues: BTreeMap<ObjectName, LocalQueue>,
    pub(crate) namespaces: BTreeMap<NamespaceName, Namespace>,
    pub(crate) jobs: BTreeMap<Uid, JobFacts>,
    /// The Jobs, there or gone, that have pods.
    pub(crate) owners_with_pods: BTreeSet<Uid>,
    pub(crate) workloads: BTreeMap<Uid, Workload>,
}

/// Why a Workload waits whatever the quota, with the message for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The reason.
    pub reason: PendingReason,
    /// The message.
    pub message: String,
}

fn standing(reason: PendingReason, message: String) -> Option<Standing> {
    Some(Standing { reason, message })
}

impl Durable {
    /// The LocalQueue that a Workload names.
    pub(crate) fn queue_name(workload: &Workload) -> ObjectName {
        ObjectName { namespace: workload.name.namespace.clone(), name: workload.queue.clone() }
    }

    /// The ClusterQueue behind a Workload's LocalQueue, whether it exists or not.
    pub(crate) fn cluster_queue_of(&self, workload: &Workload) -> Option<&ClusterQueueName> {
        self.local_queues.get(&Self::queue_name(workload)).map(|queue| &queue.cluster_queue)
    }

    /// What keeps a Workload out of every queue, if anything does.
    pub(crate) fn standing(&self, workload: &Workload) -> Option<Standing> {
        use PendingReason::{AdmissionGated, Deactivated, Misconfigured, Suspended};
        if !workload.active {
            return standing(Deactivated, "The Workload is not active; set spec.active to true".into());
        }
        if let Some(problem) = &workload.invalid {
            return standing(Misconfigured, problem.clone());
        }
        if !workload.gates.is_empty() {
            return standing(AdmissionGated, format!("Waiting for {} to approve", workload.gates.join(", ")));
        }
        let name = Self::queue_name(workload);
        let Some(local) = self.local_queues.get(&name).filter(|queue| !queue.deleting) else {
            return standing(Misconfigured, format!("LocalQueue {name} does not exist"));
        };
        if local.stop_policy != StopPolicy::None {
            return standing(Suspended, format!("LocalQueue {name} is stopped"));
        }
        let Some(queue) = self.cluster_queues.get(&local.cluster_queue) else {
            let missing = format!("ClusterQueue {} of LocalQueue {name} does not exist", local.cluster_queue);
            return standing(Misconfigured, missing);
        };
        match self.cluster_queue_activity(queue) {
            (ClusterQueueReason::Ready, _) => self.namespace_problem(queue, &workload.name.namespace),
            (ClusterQueueReason::Terminating, message) => standing(Misconfigured, message),
            (_, message) => standing(Suspended, message),
        }
    }

    fn namespace_problem(&self, queue: &ClusterQueue, namespace: &NamespaceName) -> Option<Standing> {
        let selected = self.namespaces.get(namespace).is_some_and(|namespace| {
            queue.namespace_selector.as_ref().is_some_and(|selector| selector.matches(&namespace.labels))
        });
        if selected {
            return None;
        }
        let message = format!("ClusterQueue {} does not select namespace {namespace}", queue.name);
        standing(PendingReason::Misconfigured, message)
    }

    /// Whether a ClusterQueue admits, and what its condition says.
    pub(crate) fn cluster_queue_activity(&self, queue: &ClusterQueue) -> (ClusterQueueReason, String) {
        use ClusterQueueReason::{
            AdmissionCheckInactive, FlavorNotFound, Ready, Stopped, Terminating, Unknown,
        };
        let name = &queue.name;
        if queue.deleting {
            return (Terminating, format!("ClusterQueue {name} is being deleted"));
        }
        if queue.stop_policy != StopPolicy::None {
            return (Stopped, format!("ClusterQueue {name} is stopped"));
        }
        if let Some(problem) = &queue.invalid {
            return (Unknown, format!("ClusterQueue {name} cannot be used: {problem}"));
        }
        let missing: Vec<&str> = queue
            .resource_groups
            .iter()
            .flat_map(|group| &group.flavors)
            .filter(|quotas| !self.flavors.contains_key(&quotas.flavor))
            .map(|quotas| quotas.flavor.as_str())
            .collect();
        if !missing.is_empty() {
            let list = missing.join(", ");
            return (
                FlavorNotFound,
                format!("ClusterQueue {name} needs ResourceFlavors that do not exist: {list}"),
            );
        }
        if let Some(check) = queue.admission_checks.first() {
            let message = format!(
                "ClusterQueue {name} demands admission check {}: checks are not supported yet",
                check.name
            );
            return (AdmissionCheckInactive, message);
        }
        (Ready, ready_message(queue))
    }

    /// Whether a LocalQueue passes Workloads on, and what its condition says.
    pub(crate) fn local_queue_activity(&self, queue: &LocalQueue) -> (LocalQueueReason, String) {
        let target = &queue.cluster_queue;
        if queue.stop_policy != StopPolicy::None {
            return (LocalQueueReason::Stopped, "The LocalQueue is stopped".into());
        }
        match self.cluster_queues.get(target).map(|queue| self.cluster_queue_activity(queue)) {
            None => {
                (LocalQueueReason::ClusterQueueDoesNotExist, format!("ClusterQueue {target} does not exist"))
            }
            Some((ClusterQueueReason::Ready, _)) => {
                (LocalQueueReason::Ready, format!("Workloads go to ClusterQueue {target}"))
            }
            Some((_, message)) => (LocalQueueReason::ClusterQueueIsInactive, message),
        }
    }
}

/// An active queue says which of its settings nobody acts on yet.
fn ready_message(queue: &ClusterQueue) -> String {
    let mut ignored = queue.not_acted_on.clone();
    if let Some(cohort) = &queue.cohort {
        ignored.push(format!("cohort {cohort} (only nominal quota is used)"));
    }
    if queue.preemption != gangway_model::queues::PreemptionPolicy::default() {
        ignored.push("preemption".to_owned());
    }
    if ignored.is_empty() {
        return "The ClusterQueue admits Workloads".into();
    }
    format!("The ClusterQueue admits Workloads; not supported yet and not acted on: {}", ignored.join(", "))
}
