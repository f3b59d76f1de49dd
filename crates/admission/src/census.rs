//! Who waits where and why, in numbers, for whoever asks now and then: nothing here is kept up to date.

use std::collections::BTreeMap;

use gangway_model::queues::ClusterQueue;
use gangway_model::reasons::PendingReason;
use gangway_model::workload::PodSet;
use gangway_model::{Amount, ClusterQueueName, CohortName, FlavorName, ObjectName, ResourceName};

use crate::engine::Engine;
use crate::ids::{CellId, NodeId, WorkloadId};
use crate::memory::{CountedAs, Track};
use crate::shapes::ShapeId;
use crate::tally::Counted;
use crate::tree::narrow;

/// Who waits in a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiters {
    /// How many are about to be tried.
    pub active: usize,
    /// How many wait for something to change.
    pub inadmissible: usize,
    /// How many wait for which reason.
    pub reasons: BTreeMap<PendingReason, usize>,
    /// Different requests among those that are about to be tried.
    pub active_shapes: usize,
    /// Different requests among the others.
    pub inadmissible_shapes: usize,
    /// What all of them ask for, if that was asked.
    pub amounts: BTreeMap<ResourceName, i64>,
    seen: [Vec<ShapeId>; 2],
}

impl Waiters {
    fn add(&mut self, reason: Option<PendingReason>, shape: ShapeId) {
        let is_active = reason.is_none();
        *if is_active { &mut self.active } else { &mut self.inadmissible } += 1;
        *self.reasons.entry(reason.unwrap_or(PendingReason::PendingEvaluation)).or_insert(0) += 1;
        self.seen[usize::from(is_active)].push(shape);
    }

    fn add_amounts(&mut self, pod_sets: &[PodSet]) {
        for pod_set in pod_sets {
            for (resource, value) in pod_set.requests.times(i64::from(pod_set.count)).iter() {
                let sum = self.amounts.entry(resource.clone()).or_insert(0);
                *sum = sum.saturating_add(value);
            }
        }
    }

    fn finish(&mut self) {
        for seen in &mut self.seen {
            seen.sort_unstable();
            seen.dedup();
        }
        (self.inadmissible_shapes, self.active_shapes) = (self.seen[0].len(), self.seen[1].len());
        self.seen = Default::default();
    }
}

/// Quota of a cohort, and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaCensus {
    /// The flavor.
    pub flavor: FlavorName,
    /// The resource.
    pub resource: ResourceName,
    /// Quota of the cohort and of all that its members lend.
    pub quota: Amount,
    /// What its members use of it.
    pub used: Amount,
}

/// A cohort with a ClusterQueue in or below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CohortCensus {
    /// Its name.
    pub name: CohortName,
    /// The cohort above it.
    pub parent: Option<CohortName>,
    /// The highest cohort above it, or itself.
    pub root: CohortName,
    /// Its quotas.
    pub quotas: Vec<QuotaCensus>,
    /// Workloads in or below it that are admitted and have not ended.
    pub admitted: usize,
}

impl Engine {
    /// Who waits in which queue. With amounts if those are wanted.
    pub fn waiters(
        &self,
        with_amounts: bool,
    ) -> (BTreeMap<ClusterQueueName, Waiters>, BTreeMap<ObjectName, Waiters>) {
        let memory = &self.memory;
        let mut clusters = vec![Waiters::default(); memory.cluster_tallies.len()];
        let mut locals = vec![Waiters::default(); memory.locals.len()];
        for (id, workload) in self.durable.workloads.iter() {
            let waiting = self.track(id).and_then(|track| Some((track, waits_in(track)?)));
            let Some((track, counted)) = waiting else { continue };
            let reason = self.waits_inactive(id, track);
            let cluster = counted.cluster.and_then(|queue| clusters.get_mut(queue.index()));
            for waiters in cluster.into_iter().chain(locals.get_mut(counted.local.index())) {
                waiters.add(reason, track.shape);
                if with_amounts {
                    waiters.add_amounts(&workload.pod_sets);
                }
            }
        }
        clusters.iter_mut().chain(&mut locals).for_each(Waiters::finish);
        let names = &memory.ledger.queue_names;
        let clusters =
            clusters.into_iter().enumerate().map(|(index, found)| (names.name(index).clone(), found));
        let locals = locals
            .into_iter()
            .enumerate()
            .map(|(index, found)| (memory.local_names.name(index).clone(), found));
        (clusters.collect(), locals.collect())
    }

    /// Why a Workload waits that is not about to be tried.
    fn waits_inactive(&self, id: WorkloadId, track: &Track) -> Option<PendingReason> {
        match self.waiting_reason(id) {
            // It is out of every queue, and what it waits for is not said yet.
            None if track.place.is_none() && track.decision.is_none() => {
                Some(PendingReason::PendingEvaluation)
            }
            reason => reason,
        }
    }

    /// A ClusterQueue as it was last defined.
    pub fn cluster_queue(&self, name: &ClusterQueueName) -> Option<&ClusterQueue> {
        self.durable.cluster_queues.get(name)
    }

    /// The cohorts above a ClusterQueue, the nearest first.
    pub fn cohorts_above(&self, name: &ClusterQueueName) -> Vec<&CohortName> {
        let mut next = self.cluster_queue(name).and_then(|queue| queue.cohort.as_ref());
        let mut above = Vec::new();
        while let Some(cohort) = next.filter(|cohort| !above.contains(cohort)) {
            above.push(cohort);
            next = self.durable.cohorts.get(cohort).and_then(|cohort| cohort.parent.as_ref());
        }
        above
    }

    /// The cohorts that have a ClusterQueue in or below them.
    pub fn cohorts(&self) -> Vec<CohortCensus> {
        let mut found: BTreeMap<&CohortName, CohortCensus> = BTreeMap::new();
        for queue in self.durable.cluster_queues.values() {
            let number = self.memory.ledger.queue_names.find(&queue.name);
            let tally = number.and_then(|number| self.memory.cluster_tallies.get(number));
            let admitted = tally.map_or(0, |tally| usize::try_from(tally.admitted).unwrap_or(0));
            let above = self.cohorts_above(&queue.name);
            let mut node = number.and_then(|number| self.memory.ledger.node(number.into()));
            for (index, name) in above.iter().enumerate() {
                node = node.and_then(|node| self.memory.ledger.tree.parent(node));
                let census = found.entry(name).or_insert_with(|| CohortCensus {
                    name: (*name).clone(),
                    parent: above.get(index + 1).map(|parent| (*parent).clone()),
                    root: self.durable.root_cohort(name),
                    quotas: node.map(|node| self.quotas_at(node)).unwrap_or_default(),
                    admitted: 0,
                });
                census.admitted += admitted;
            }
        }
        found.into_values().collect()
    }

    fn quotas_at(&self, node: NodeId) -> Vec<QuotaCensus> {
        let ledger = &self.memory.ledger;
        let cells = (0..ledger.cells.len()).map(|index| (ledger.cells.name(index), CellId::from(index)));
        let known = cells.map(|((flavor, resource), cell)| QuotaCensus {
            flavor: flavor.clone(),
            resource: resource.clone(),
            quota: narrow(ledger.tree.subtree(node, cell)),
            used: narrow(ledger.tree.usage(node, cell)),
        });
        known.filter(|cell| cell.quota != Amount::new(0) || cell.used != Amount::new(0)).collect()
    }

    /// How many times somebody waits for.
    pub fn deadlines(&self) -> usize {
        self.memory.deadlines.len()
    }

    /// How many decisions are under way.
    pub fn decisions_under_way(&self) -> usize {
        self.memory.under_way.len()
    }

    /// How many Workloads are known.
    pub fn known_workloads(&self) -> usize {
        self.durable.workloads.len()
    }
}

fn waits_in(track: &Track) -> Option<&CountedAs> {
    track.counted.as_ref().filter(|counted| counted.counted == Counted::Pending)
}
