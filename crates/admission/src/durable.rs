//! The part of the engine's state that is a function of the objects, and nothing else.

use std::collections::BTreeMap;

use gangway_model::checks::AdmissionCheck;
use gangway_model::queues::{ClusterQueue, Cohort, Flavor, LocalQueue, Namespace, StopPolicy};
use gangway_model::reasons::{ClusterQueueReason, LocalQueueReason, PendingReason};
use gangway_model::workload::{Impediments, State, Workload};
use gangway_model::{
    AdmissionCheckName, ClusterQueueName, CohortName, FlavorName, NamespaceName, ObjectName, Uid,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::event::JobFacts;
use crate::ledger::in_cycle;
use crate::records::Workloads;

/// Everything that was observed. A restart rebuilds it from the objects, equal to the last bit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    pub(crate) flavors: BTreeMap<FlavorName, Flavor>,
    pub(crate) cluster_queues: BTreeMap<ClusterQueueName, ClusterQueue>,
    /// How many of them give up flavors: as long as none does, nobody looks for its rules.
    pub(crate) queues_that_fall_back: usize,
    pub(crate) cohorts: BTreeMap<CohortName, Cohort>,
    pub(crate) local_queues: BTreeMap<ObjectName, LocalQueue>,
    pub(crate) namespaces: BTreeMap<NamespaceName, Namespace>,
    pub(crate) admission_checks: BTreeMap<AdmissionCheckName, AdmissionCheck>,
    pub(crate) jobs: FxHashMap<Uid, JobFacts>,
    /// The Jobs, there or gone, that have pods.
    pub(crate) owners_with_pods: FxHashSet<Uid>,
    pub(crate) workloads: Workloads,
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
    /// Where two differ first, in words; none if they are equal.
    pub fn difference(&self, other: &Self) -> Option<String> {
        let parts = [
            ("ResourceFlavors", self.flavors == other.flavors),
            ("ClusterQueues", self.cluster_queues == other.cluster_queues),
            ("Cohorts", self.cohorts == other.cohorts),
            ("LocalQueues", self.local_queues == other.local_queues),
            ("namespaces", self.namespaces == other.namespaces),
            ("AdmissionChecks", self.admission_checks == other.admission_checks),
            ("Jobs", self.jobs == other.jobs),
            ("Jobs with pods", self.owners_with_pods == other.owners_with_pods),
        ];
        if let Some((what, _)) = parts.iter().find(|(_, are_equal)| !are_equal) {
            return Some(format!("{what} differ"));
        }
        let differs = |one: &Self, other: &Self| {
            let mut records = one.workloads.iter().map(|(_, record)| record);
            let found = records.find(|record| other.workloads.find(&record.uid) != Some(*record));
            found.map(|record| format!("Workload {} differs", record.name))
        };
        differs(self, other).or_else(|| differs(other, self))
    }

    /// The LocalQueue that a Workload names.
    pub(crate) fn queue_name(workload: &Workload) -> ObjectName {
        ObjectName { namespace: workload.name.namespace.clone(), name: workload.queue.clone() }
    }

    /// The ClusterQueue behind a Workload's LocalQueue, whether it exists or not.
    pub(crate) fn cluster_queue_of(&self, workload: &Workload) -> Option<&ClusterQueueName> {
        self.local_queues.get(&Self::queue_name(workload)).map(|queue| &queue.cluster_queue)
    }

    /// A ClusterQueue as it was last observed.
    pub fn cluster_queue(&self, name: &ClusterQueueName) -> Option<&ClusterQueue> {
        self.cluster_queues.get(name)
    }

    /// Every ClusterQueue, by name.
    pub fn cluster_queues(&self) -> impl Iterator<Item = &ClusterQueue> {
        self.cluster_queues.values()
    }

    /// Every LocalQueue, by name.
    pub fn local_queues(&self) -> impl Iterator<Item = &LocalQueue> {
        self.local_queues.values()
    }

    /// Every AdmissionCheck, by name.
    pub fn admission_checks(&self) -> impl Iterator<Item = &AdmissionCheck> {
        self.admission_checks.values()
    }

    /// Every flavor, by name.
    pub fn flavors(&self) -> impl Iterator<Item = &Flavor> {
        self.flavors.values()
    }

    /// Every Workload, in no order.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        self.workloads.iter().map(|(_, workload)| workload)
    }

    pub(crate) fn put_cluster_queue(&mut self, queue: ClusterQueue) {
        self.queues_that_fall_back += usize::from(queue.fallback.is_some());
        let known = self.cluster_queues.insert(queue.name.clone(), queue);
        self.queues_that_fall_back -= usize::from(known.is_some_and(|known| known.fallback.is_some()));
    }

    /// Whether it was there.
    pub(crate) fn remove_cluster_queue(&mut self, name: &ClusterQueueName) -> bool {
        let known = self.cluster_queues.remove(name);
        self.queues_that_fall_back -=
            usize::from(known.as_ref().is_some_and(|known| known.fallback.is_some()));
        known.is_some()
    }

    /// The highest cohort above this one, or itself.
    pub(crate) fn root_cohort(&self, name: &CohortName) -> CohortName {
        let mut root = name;
        for _ in 0..self.cohorts.len() {
            match self.cohorts.get(root).and_then(|cohort| cohort.parent.as_ref()) {
                Some(parent) => root = parent,
                None => break,
            }
        }
        root.clone()
    }

    /// The ClusterQueues in a cohort or below it.
    pub(crate) fn queues_under(&self, name: &CohortName) -> impl Iterator<Item = &ClusterQueueName> {
        let is_under = move |cohort: &CohortName| {
            let mut above = Some(cohort);
            for _ in 0..=self.cohorts.len() {
                if above == Some(name) {
                    return true;
                }
                above = above.and_then(|above| self.cohorts.get(above)?.parent.as_ref());
            }
            false
        };
        let queues = self.cluster_queues.values();
        queues.filter(move |queue| queue.cohort.as_ref().is_some_and(&is_under)).map(|queue| &queue.name)
    }

    /// What keeps a Workload out of every queue, if anything does.
    pub(crate) fn standing(&self, workload: &Workload) -> Option<Standing> {
        Self::own_standing(workload).or_else(|| self.queue_standing(&Self::queue_name(workload)))
    }

    /// What of itself keeps a Workload out of every queue, if anything does.
    pub(crate) fn own_standing(workload: &Workload) -> Option<Standing> {
        use PendingReason::{AdmissionGated, Deactivated, Misconfigured};
        if !workload.active {
            let by_gangway = match &workload.state {
                State::Pending(pending) => {
                    pending.evicted.as_ref().filter(|eviction| eviction.reason.deactivates())
                }
                State::Evicting(_, eviction) => {
                    Some(eviction).filter(|eviction| eviction.reason.deactivates())
                }
                _ => None,
            };
            let message = match by_gangway {
                Some(eviction) => format!(
                    "Gangway deactivated the Workload: {}; set spec.active to true to begin anew",
                    eviction.message
                ),
                None => "The Workload is not active; set spec.active to true".into(),
            };
            return standing(Deactivated, message);
        }
        let Impediments { invalid, gates, foreign_owner } = workload.impediments.as_deref()?;
        match (foreign_owner, invalid) {
            (Some(kind), _) => {
                let message = format!(
                    "The Workload belongs to a {kind}, which Gangway cannot start yet; use a batch/v1 Job"
                );
                standing(Misconfigured, message)
            }
            (None, Some(problem)) => standing(Misconfigured, problem.clone()),
            (None, None) => standing(AdmissionGated, format!("Waiting for {} to approve", gates.join(", "))),
        }
    }

    /// What keeps every Workload of a LocalQueue out, if anything does.
    pub(crate) fn queue_standing(&self, name: &ObjectName) -> Option<Standing> {
        use PendingReason::{Misconfigured, Suspended};
        let Some(local) = self.local_queues.get(name).filter(|queue| !queue.deleting) else {
            let missing = if name.name.is_empty() {
                "no LocalQueue is named; give the Job the label kueue.x-k8s.io/queue-name".to_owned()
            } else {
                format!("LocalQueue {name} does not exist")
            };
            return standing(Misconfigured, missing);
        };
        if local.stop_policy != StopPolicy::None {
            return standing(Suspended, format!("LocalQueue {name} is stopped"));
        }
        let Some(queue) = self.cluster_queues.get(&local.cluster_queue) else {
            let missing = format!("ClusterQueue {} of LocalQueue {name} does not exist", local.cluster_queue);
            return standing(Misconfigured, missing);
        };
        match self.cluster_queue_activity(queue) {
            (ClusterQueueReason::Ready, _) => self.namespace_problem(queue, &name.namespace),
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
    pub fn cluster_queue_activity(&self, queue: &ClusterQueue) -> (ClusterQueueReason, String) {
        use ClusterQueueReason::{CohortCycle, FlavorNotFound, Ready, Stopped, Terminating, Unknown};
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
        if let Some(problem) = self.not_supported(queue) {
            return problem;
        }
        if let Some(cohort) = queue.cohort.as_ref().filter(|cohort| in_cycle(&self.cohorts, cohort)) {
            let message = format!(
                "ClusterQueue {name} is in cohort {cohort}, whose parents lead back to itself; give one of them another parent"
            );
            return (CohortCycle, message);
        }
        if let Some(problem) = self.problem_of_checks(queue) {
            return problem;
        }
        (Ready, ready_message(queue))
    }

    /// What a queue asks for that would change who is admitted, and that nobody does, if it asks for such a thing.
    fn not_supported(&self, queue: &ClusterQueue) -> Option<(ClusterQueueReason, String)> {
        let mut problems = queue.not_supported.clone();
        let quotas = queue.resource_groups.iter().flat_map(|group| &group.flavors);
        problems.extend(quotas.filter_map(|quotas| {
            let topology = self.flavors.get(&quotas.flavor)?.topology.as_ref()?;
            Some(format!(
                "ResourceFlavor {} has spec.topologyName {topology}; use a flavor without one",
                quotas.flavor
            ))
        }));
        let name = &queue.name;
        let message =
            || format!("ClusterQueue {name} asks for what Gangway does not do yet: {}", problems.join(". "));
        (!problems.is_empty()).then(|| (ClusterQueueReason::NotSupported, message()))
    }

    /// What keeps a queue's admission checks from being answered, if anything does.
    fn problem_of_checks(&self, queue: &ClusterQueue) -> Option<(ClusterQueueReason, String)> {
        use ClusterQueueReason::{AdmissionCheckInactive, AdmissionCheckNotFound};
        let demanded = || queue.admission_checks.iter().map(|check| &check.name);
        let list = |names: Vec<&AdmissionCheckName>| {
            names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let missing: Vec<_> = demanded().filter(|name| !self.admission_checks.contains_key(*name)).collect();
        let name = &queue.name;
        if !missing.is_empty() {
            let message =
                format!("ClusterQueue {name} demands AdmissionChecks that do not exist: {}", list(missing));
            return Some((AdmissionCheckNotFound, message));
        }
        let is_idle = |name: &&AdmissionCheckName| !self.admission_checks[*name].active;
        let idle: Vec<_> = demanded().filter(is_idle).collect();
        if idle.is_empty() {
            return None;
        }
        let message = format!(
            "ClusterQueue {name} demands AdmissionChecks that nobody answers: {}; install their controller or take them off spec.admissionChecksStrategy. Those of Kueue itself, kueue.x-k8s.io/multikueue and kueue.x-k8s.io/provisioning-request, cannot be answered here",
            list(idle)
        );
        Some((AdmissionCheckInactive, message))
    }

    /// Whether a LocalQueue passes Workloads on, and what its condition says.
    pub fn local_queue_activity(&self, queue: &LocalQueue) -> (LocalQueueReason, String) {
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
    if queue.not_acted_on.is_empty() {
        return "The ClusterQueue admits Workloads".into();
    }
    let ignored = queue.not_acted_on.join(", ");
    format!("The ClusterQueue admits Workloads; not supported yet and not acted on: {ignored}")
}
