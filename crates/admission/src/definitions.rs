//! What an administrator changes: flavors, queues, cohorts, namespaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::planted::Bug;
use gangway_model::queues::{ClusterQueue, Cohort, QueueingStrategy, StopPolicy};
use gangway_model::reasons::ClusterQueueReason;
use gangway_model::{
    AdmissionCheckName, ClusterQueueName, CohortName, FlavorName, NamespaceName, ObjectName,
};

use crate::engine::Engine;
use crate::event::Event;
use crate::ids::{LocalQueueId, QueueId, WorkloadId};
use crate::ledger::Definitions;
use crate::memory::{ChangedQueue, Local, Outlook};
use crate::queues::PendingQueue;

/// Takes a definition in. Says whether it differs from what was known.
fn is_news<K: Ord + Clone, V: PartialEq>(known: &mut BTreeMap<K, V>, name: &K, definition: V) -> bool {
    if known.get(name) == Some(&definition) {
        return false;
    }
    known.insert(name.clone(), definition);
    true
}

impl Engine {
    pub(crate) fn on_definition(&mut self, event: Event) {
        let durable = &mut self.durable;
        match event {
            Event::Flavor(flavor) => {
                let name = flavor.name.clone();
                if is_news(&mut durable.flavors, &name, flavor) {
                    self.on_flavor_change(&name);
                }
            }
            Event::FlavorGone(name) => {
                let was_there = durable.flavors.remove(&name).is_some();
                if was_there {
                    self.on_flavor_change(&name);
                }
            }
            Event::ClusterQueue(queue) => self.on_cluster_queue(*queue),
            Event::ClusterQueueGone(name) => {
                let was_there = durable.remove_cluster_queue(&name);
                if was_there {
                    self.on_cluster_queue_change(&name);
                }
            }
            Event::Cohort(cohort) => self.on_cohort(cohort),
            Event::CohortGone(name) => {
                let was_there = durable.cohorts.remove(&name).is_some();
                if was_there {
                    self.on_cohort_change(&name);
                }
            }
            Event::LocalQueue(queue) => {
                let name = queue.name.clone();
                if is_news(&mut durable.local_queues, &name, queue) {
                    self.on_local_queue_change(&name);
                }
            }
            Event::LocalQueueGone(name) => {
                let was_there = durable.local_queues.remove(&name).is_some();
                if was_there {
                    self.on_local_queue_change(&name);
                }
            }
            Event::Namespace(namespace) => {
                let name = namespace.name.clone();
                if is_news(&mut durable.namespaces, &name, namespace) {
                    self.on_namespace_change(&name);
                }
            }
            Event::NamespaceGone(name) => {
                let was_there = durable.namespaces.remove(&name).is_some();
                if was_there {
                    self.on_namespace_change(&name);
                }
            }
            Event::AdmissionCheck(check) => {
                let name = check.name.clone();
                if is_news(&mut durable.admission_checks, &name, check) {
                    self.on_admission_check_change(&name);
                }
            }
            Event::AdmissionCheckGone(name) => {
                let was_there = durable.admission_checks.remove(&name).is_some();
                if was_there {
                    self.on_admission_check_change(&name);
                }
            }
            // The others are no definitions.
            _ => {}
        }
    }

    fn on_cluster_queue(&mut self, queue: ClusterQueue) {
        let name = queue.name.clone();
        let known = self.durable.cluster_queues.get(&name).cloned();
        if known.as_ref() == Some(&queue) {
            return;
        }
        if let Some(cohort) =
            known.and_then(|known| known.cohort).filter(|old| queue.cohort.as_ref() != Some(old))
        {
            self.redefine_cohort(&cohort);
        }
        self.durable.put_cluster_queue(queue);
        self.on_cluster_queue_change(&name);
    }

    fn on_cohort(&mut self, cohort: Cohort) {
        let name = cohort.name.clone();
        if self.durable.cohorts.get(&name) == Some(&cohort) {
            return;
        }
        // Who was in the tree before it moves is affected, and who is in it afterwards.
        self.redefine_cohort(&name);
        self.durable.cohorts.insert(name.clone(), cohort);
        self.on_cohort_change(&name);
    }

    fn on_cohort_change(&mut self, name: &CohortName) {
        self.memory.definitions += 1;
        self.redefine_cohort(name);
        // Queues of a cycle of cohorts are not active, and become so when it ends.
        let names: Vec<ClusterQueueName> = self.durable.queues_under(name).cloned().collect();
        for name in names {
            self.on_cluster_queue_change(&name);
        }
    }

    /// Every queue of the tree that a cohort is in has to be looked at again.
    fn redefine_cohort(&mut self, name: &CohortName) {
        self.memory.ledger.outdate();
        let root = self.durable.root_cohort(name);
        let names: Vec<ClusterQueueName> = self.durable.queues_under(&root).cloned().collect();
        for name in names {
            let queue = self.queue_id(&name);
            self.memory.redefined.insert(queue);
        }
    }

    fn on_flavor_change(&mut self, flavor: &FlavorName) {
        let uses = |queue: &&ClusterQueue| {
            queue.resource_groups.iter().flat_map(|g| &g.flavors).any(|f| f.flavor == *flavor)
        };
        let users: Vec<ClusterQueueName> =
            self.durable.cluster_queues.values().filter(uses).map(|queue| queue.name.clone()).collect();
        for name in users {
            self.on_cluster_queue_change(&name);
        }
    }

    fn on_admission_check_change(&mut self, check: &AdmissionCheckName) {
        let demands =
            |queue: &&ClusterQueue| queue.admission_checks.iter().any(|demanded| demanded.name == *check);
        let users: Vec<ClusterQueueName> =
            self.durable.cluster_queues.values().filter(demands).map(|queue| queue.name.clone()).collect();
        for name in users {
            self.on_cluster_queue_change(&name);
        }
    }

    /// The number of a ClusterQueue.
    pub(crate) fn queue_id(&mut self, name: &ClusterQueueName) -> QueueId {
        let id = self.memory.ledger.queue(name);
        if id.index() >= self.memory.queues.len() {
            self.memory.queues.resize_with(id.index() + 1, PendingQueue::default);
            self.memory.cluster_tallies.resize_with(id.index() + 1, Default::default);
            self.memory.is_changed.resize(id.index() + 1, false);
        }
        id
    }

    /// The number of a LocalQueue.
    pub(crate) fn local_queue_id(&mut self, name: &ObjectName) -> LocalQueueId {
        let number = self.memory.local_names.number(name);
        if number >= self.memory.locals.len() {
            self.memory.locals.resize_with(number + 1, Local::default);
        }
        LocalQueueId::from(number)
    }

    /// The status of a queue may have changed.
    pub(crate) fn note_changed(&mut self, queue: ChangedQueue) {
        let is_changed = match queue {
            ChangedQueue::Cluster(id) => &mut self.memory.is_changed[id.index()],
            ChangedQueue::Local(id) => &mut self.memory.locals[id.index()].is_changed,
        };
        if !std::mem::replace(is_changed, true) {
            self.memory.changed_queues.push(queue);
        }
    }

    fn on_cluster_queue_change(&mut self, name: &ClusterQueueName) {
        self.memory.definitions += 1;
        self.memory.ledger.outdate();
        let id = self.queue_id(name);
        self.memory.redefined.insert(id);
        self.note_changed(ChangedQueue::Cluster(id));
        if let Some(definition) = self.durable.cluster_queues.get(name) {
            let strict = definition.strategy == QueueingStrategy::StrictFifo;
            self.memory.queues[id.index()].set_strict(strict);
        }
        let behind: Vec<ObjectName> = self
            .durable
            .local_queues
            .values()
            .filter(|queue| queue.cluster_queue == *name)
            .map(|queue| queue.name.clone())
            .collect();
        for local in behind {
            self.on_local_queue_change(&local);
        }
        // Holders of its quota are told even if their LocalQueue is gone; but not those who are gone themselves and
        // whose pods still use it.
        let holders = self.memory.ledger.account(id).holders.iter().rev().map(|(_, holder)| holder.id);
        let known = |holder: &WorkloadId| self.durable.workloads.get(*holder).is_some();
        let holders: Vec<WorkloadId> = holders.filter(known).collect();
        for holder in holders {
            self.reindex(holder);
        }
    }

    fn on_local_queue_change(&mut self, name: &ObjectName) {
        self.memory.definitions += 1;
        let id = self.local_queue_id(name);
        self.note_changed(ChangedQueue::Local(id));
        let mut members: Vec<WorkloadId> = self.memory.locals[id.index()].members.to_vec();
        members.sort_unstable();
        for member in members {
            self.reindex(member);
        }
    }

    fn on_namespace_change(&mut self, name: &NamespaceName) {
        self.memory.definitions += 1;
        let names = (0..self.memory.locals.len()).map(|number| self.memory.local_names.name(number));
        let locals: Vec<ObjectName> = names.filter(|queue| queue.namespace == *name).cloned().collect();
        for local in locals {
            self.on_local_queue_change(&local);
        }
    }

    /// Where a LocalQueue leads, worked out once per change of a definition.
    pub(crate) fn outlook(&mut self, local: LocalQueueId) -> Outlook {
        let definitions = self.memory.definitions;
        let known = self.memory.locals[local.index()].outlook.as_ref();
        if let Some((_, outlook)) = known.filter(|(as_of, _)| *as_of == definitions) {
            return outlook.clone();
        }
        let name = self.memory.local_names.name(local.index()).clone();
        let target = self.durable.local_queues.get(&name).map(|queue| queue.cluster_queue.clone());
        let standing = self.durable.queue_standing(&name).map(Arc::new);
        let is_open = self.durable.local_queues.get(&name).map(|queue| queue.stop_policy == StopPolicy::None);
        let outlook = Outlook { queue: target.map(|target| self.queue_id(&target)), is_open, standing };
        self.memory.locals[local.index()].outlook = Some((definitions, outlook.clone()));
        outlook
    }

    /// Brings the quota trees up to date and wakes whom the changes could help.
    pub(crate) fn follow_definitions(&mut self) {
        if !self.memory.ledger.is_outdated() {
            return;
        }
        let redefined = std::mem::take(&mut self.memory.redefined);
        let mut affected: BTreeSet<QueueId> = redefined.clone();
        for queue in &redefined {
            affected.extend(self.memory.ledger.queues_of_tree(*queue));
        }
        let durable = &self.durable;
        let is_active =
            |queue: &ClusterQueue| durable.cluster_queue_activity(queue).0 == ClusterQueueReason::Ready;
        self.memory.ledger.rebuild(&Definitions {
            cluster_queues: &durable.cluster_queues,
            cohorts: &durable.cohorts,
            is_active: &is_active,
        });
        for queue in &redefined {
            affected.extend(self.memory.ledger.queues_of_tree(*queue));
        }
        for queue in affected {
            let account = self.memory.ledger.account_mut(queue);
            account.generation += 1;
            account.definition += 1;
            self.queue_id(&self.memory.ledger.queue_names.name(queue.index()).clone());
            self.memory.queues[queue.index()].wake_all();
            self.list(queue);
        }
    }

    /// Lets a queue's Workloads be tried in the next cycle.
    pub(crate) fn list(&mut self, queue: QueueId) {
        let pending = &mut self.memory.queues[queue.index()];
        if !std::mem::replace(&mut pending.is_listed, true) {
            self.memory.ready.push(queue);
        }
    }

    pub(crate) fn wake_queue(&mut self, queue: QueueId) {
        self.memory.queues[queue.index()].wake();
        self.list(queue);
    }

    /// Room was freed in a tree: whoever waits in it may fit now, on any flavor.
    pub(crate) fn wake_tree(&mut self, queue: QueueId) {
        for other in self.memory.ledger.queues_of_tree(queue) {
            if other == queue || !self.rules.defects {
                self.memory.ledger.account_mut(other).generation += 1;
            }
            self.wake_queue(other);
        }
    }

    /// Wakes the trees in which room that was kept came free.
    pub(crate) fn wake_freed_trees(&mut self) {
        if self.planted.is(Bug::WakeUpLost) {
            self.memory.freed.clear();
        }
        for queue in std::mem::take(&mut self.memory.freed) {
            self.wake_tree(queue);
        }
    }

    /// Wakes the trees in which somebody stopped keeping others from borrowing.
    pub(crate) fn wake_unclaimed(&mut self) -> bool {
        let queues = std::mem::take(&mut self.memory.unclaimed);
        for queue in &queues {
            self.wake_tree(*queue);
        }
        !queues.is_empty()
    }
}
