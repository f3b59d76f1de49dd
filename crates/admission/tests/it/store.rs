//! The objects, as an API server would hold them, and the events that tell of them.

use std::collections::BTreeMap;

use gangway_admission::{Engine, Event, JobFacts};
use gangway_model::checks::AdmissionCheck;
use gangway_model::queues::{ClusterQueue, Cohort, Flavor, LocalQueue, Namespace};
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::workload::{Admission, State, Workload};
use gangway_model::{
    AdmissionCheckName, ClusterQueueName, CohortName, FlavorName, NamespaceName, ObjectName, ResourceName,
    Timestamp, Uid,
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    pub flavors: BTreeMap<FlavorName, Flavor>,
    pub cluster_queues: BTreeMap<ClusterQueueName, ClusterQueue>,
    pub cohorts: BTreeMap<CohortName, Cohort>,
    pub local_queues: BTreeMap<ObjectName, LocalQueue>,
    pub namespaces: BTreeMap<NamespaceName, Namespace>,
    pub admission_checks: BTreeMap<AdmissionCheckName, AdmissionCheck>,
    pub jobs: BTreeMap<Uid, JobFacts>,
    /// The Jobs that have pods.
    pub pods: BTreeMap<Uid, ()>,
    pub workloads: BTreeMap<Uid, Workload>,
    /// The configuration: when pods have to be ready; none if nothing was said of it.
    pub readiness: Option<Option<WaitForPodsReady>>,
}

/// A flavor's resource in a ClusterQueue.
pub type Cell = (ClusterQueueName, FlavorName, ResourceName);

impl Store {
    /// A Workload that is known to be there.
    pub fn workload(&self, uid: &str) -> &Workload {
        &self.workloads[&uid.into()]
    }

    /// What an event says, applied to the objects. Older versions say nothing.
    pub fn take_in(&mut self, event: &Event) {
        match event {
            Event::Flavor(flavor) => drop(self.flavors.insert(flavor.name.clone(), flavor.clone())),
            Event::FlavorGone(name) => drop(self.flavors.remove(name)),
            Event::ClusterQueue(queue) => {
                self.cluster_queues.insert(queue.name.clone(), (**queue).clone());
            }
            Event::ClusterQueueGone(name) => drop(self.cluster_queues.remove(name)),
            Event::Cohort(cohort) => drop(self.cohorts.insert(cohort.name.clone(), cohort.clone())),
            Event::CohortGone(name) => drop(self.cohorts.remove(name)),
            Event::LocalQueue(queue) => drop(self.local_queues.insert(queue.name.clone(), queue.clone())),
            Event::LocalQueueGone(name) => drop(self.local_queues.remove(name)),
            Event::Namespace(namespace) => {
                self.namespaces.insert(namespace.name.clone(), namespace.clone());
            }
            Event::NamespaceGone(name) => drop(self.namespaces.remove(name)),
            Event::AdmissionCheck(check) => {
                self.admission_checks.insert(check.name.clone(), check.clone());
            }
            Event::AdmissionCheckGone(name) => drop(self.admission_checks.remove(name)),
            Event::Job(uid, facts) => drop(self.jobs.insert(uid.clone(), facts.clone())),
            Event::JobGone(uid) => drop(self.jobs.remove(uid)),
            Event::Workload(workload) => {
                if self.workloads.get(&workload.uid).is_none_or(|known| known.version < workload.version) {
                    self.workloads.insert(workload.uid.clone(), (**workload).clone());
                }
            }
            Event::WorkloadGone(uid) => drop(self.workloads.remove(uid)),
            Event::Pods(owner, true) => drop(self.pods.insert(owner.clone(), ())),
            Event::Pods(owner, false) => drop(self.pods.remove(owner)),
            // None of these is an object.
            Event::Outcome(..) | Event::Unstartable(..) | Event::Synced => {}
        }
    }

    /// The list of all objects, in the order in which a restart reads them.
    pub fn list(&self) -> Vec<Event> {
        let flavors = self.flavors.values().cloned().map(Event::Flavor);
        let cluster_queues = self.cluster_queues.values().cloned().map(|q| Event::ClusterQueue(Box::new(q)));
        let cohorts = self.cohorts.values().cloned().map(Event::Cohort);
        let local_queues = self.local_queues.values().cloned().map(Event::LocalQueue);
        let namespaces = self.namespaces.values().cloned().map(Event::Namespace);
        let checks = self.admission_checks.values().cloned().map(Event::AdmissionCheck);
        let jobs = self.jobs.iter().map(|(uid, facts)| Event::Job(uid.clone(), facts.clone()));
        let pods = self.pods.keys().map(|owner| Event::Pods(owner.clone(), true));
        let workloads = self.workloads.values().cloned().map(|w| Event::Workload(Box::new(w)));
        flavors
            .chain(cluster_queues)
            .chain(cohorts)
            .chain(local_queues)
            .chain(namespaces)
            .chain(checks)
            .chain(jobs)
            .chain(pods)
            .chain(workloads)
            .collect()
    }

    /// The events that lead from `known` to what is here: a watch that was lost and begins again.
    pub fn relist(&self, known: &Self) -> Vec<Event> {
        fn gone<K: Ord + Clone, V>(
            known: &BTreeMap<K, V>,
            here: &BTreeMap<K, V>,
            event: impl Fn(K) -> Event,
        ) -> Vec<Event> {
            known.keys().filter(|key| !here.contains_key(*key)).cloned().map(event).collect()
        }
        let mut events = gone(&known.flavors, &self.flavors, Event::FlavorGone);
        events.extend(gone(&known.cluster_queues, &self.cluster_queues, Event::ClusterQueueGone));
        events.extend(gone(&known.cohorts, &self.cohorts, Event::CohortGone));
        events.extend(gone(&known.local_queues, &self.local_queues, Event::LocalQueueGone));
        events.extend(gone(&known.namespaces, &self.namespaces, Event::NamespaceGone));
        events.extend(gone(&known.admission_checks, &self.admission_checks, Event::AdmissionCheckGone));
        events.extend(gone(&known.workloads, &self.workloads, Event::WorkloadGone));
        events.extend(gone(&known.jobs, &self.jobs, Event::JobGone));
        events.extend(gone(&known.pods, &self.pods, |owner| Event::Pods(owner, false)));
        events.extend(self.list());
        events
    }

    /// An engine that knows these objects and nothing else.
    pub fn rebuilt(&self, now: Timestamp) -> Engine {
        let mut engine = Engine::new();
        if let Some(settings) = &self.readiness {
            engine.wait_for_pods_ready(settings.clone());
        }
        for event in self.list() {
            engine.apply(event, now);
        }
        engine.apply(Event::Synced, now);
        engine
    }

    /// What Workloads with a reservation use, by the objects alone.
    pub fn usage(&self) -> BTreeMap<Cell, i128> {
        let mut sums: BTreeMap<Cell, i128> = BTreeMap::new();
        for reservation in self.workloads.values().filter_map(|w| w.state.reservation()) {
            for (cell, amount) in cells(&reservation.admission) {
                *sums.entry(cell).or_default() += i128::from(amount);
            }
        }
        sums
    }

    /// The nominal quota of a cell; 0 if the queue does not have it.
    pub fn nominal(&self, cell: &Cell) -> i64 {
        self.cluster_queues.get(&cell.0).map_or(0, |queue| nominal(queue, &cell.1, &cell.2))
    }
}

pub fn nominal(queue: &ClusterQueue, flavor: &FlavorName, resource: &ResourceName) -> i64 {
    for group in &queue.resource_groups {
        let Some(index) = group.resources.iter().position(|r| r == resource) else { continue };
        if let Some(quotas) = group.flavors.iter().find(|f| f.flavor == *flavor) {
            return quotas.quotas[index].nominal.value();
        }
    }
    0
}

/// What an admission uses of which cell.
pub fn cells(admission: &Admission) -> Vec<(Cell, i64)> {
    let queue = &admission.cluster_queue;
    admission
        .usage()
        .map(|(flavor, resource, amount)| ((queue.clone(), flavor.clone(), resource.clone()), amount))
        .collect()
}

/// The admission that stands in the object of a Workload in this state.
pub fn stored_admission(state: &State) -> Option<Admission> {
    match state {
        State::Finished(_, before) => stored_admission(before),
        other => other.reservation().map(|r| (*r.admission).clone()),
    }
}
