//! What the watches say, as events of the engine.

use gangway_admission::{Event, JobFacts, QueueRef};
use gangway_api::kueue::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass,
};
use gangway_api::records;
use gangway_model::Uid;
use gangway_model::planted::Bug;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::ResourceExt;

use super::Error;
use super::finalizers::Going;
use super::jobs;
use super::objects::Change;
use super::shell::{Retry, Shell, millis, object_name};
use super::succession::Role;
use super::watches::News;
use crate::index::uid_of;
use crate::trouble::wait_after;

impl Shell {
    /// Takes in one thing that a watch said.
    pub(super) fn observe(&mut self, item: News) -> Result<(), Error> {
        match item {
            News::Namespace(item) => {
                let changes = self.namespaces.take(*item)?;
                self.take_in(changes, Self::namespace_changed);
            }
            News::Flavor(item) => {
                let changes = self.flavors.take(*item)?;
                self.take_in(changes, Self::flavor_changed);
            }
            News::ClusterQueue(item) => {
                let changes = self.cluster_queues.take(*item)?;
                self.take_in(changes, Self::cluster_queue_changed);
            }
            News::Cohort(item) => {
                let changes = self.cohorts.take(*item)?;
                self.take_in(changes, Self::cohort_changed);
            }
            News::LocalQueue(item) => {
                let changes = self.local_queues.take(*item)?;
                self.take_in(changes, Self::local_queue_changed);
            }
            News::AdmissionCheck(item) => {
                let changes = self.admission_checks.take(*item)?;
                self.take_in(changes, Self::admission_check_changed);
            }
            News::WorkloadPriorityClass(item) => {
                let changes = self.workload_classes.take(*item)?;
                self.take_in(changes, Self::workload_class_changed);
            }
            News::PriorityClass(item) => {
                let changes = self.pod_classes.take(*item)?;
                self.take_in(changes, Self::pod_class_changed);
            }
            News::Workload(item) => {
                let changes = self.workloads.take(*item)?;
                self.take_in(changes, Self::workload_changed);
            }
            News::Job(item) => {
                let changes = self.jobs.take(*item)?;
                self.take_in(changes, Self::job_changed);
            }
            News::Pod(item) => {
                let events = self.pods_left.take(*item)?;
                self.take_in(events, Self::apply);
            }
        }
        Ok(())
    }

    /// Who only listens keeps the objects and makes nothing of them yet.
    fn take_in<T>(&mut self, news: Vec<T>, take: fn(&mut Self, T)) {
        if self.role != Role::Listens {
            news.into_iter().for_each(|news| take(self, news));
        }
    }

    /// What was only kept until now is taken in as if it were new.
    pub(super) fn take_in_all(&mut self) {
        self.role = Role::TakesOver;
        self.take_in(self.namespaces.all(), Self::namespace_changed);
        self.take_in(self.flavors.all(), Self::flavor_changed);
        self.take_in(self.cluster_queues.all(), Self::cluster_queue_changed);
        self.take_in(self.cohorts.all(), Self::cohort_changed);
        self.take_in(self.local_queues.all(), Self::local_queue_changed);
        self.take_in(self.admission_checks.all(), Self::admission_check_changed);
        self.take_in(self.workload_classes.all(), Self::workload_class_changed);
        self.take_in(self.pod_classes.all(), Self::pod_class_changed);
        self.take_in(self.workloads.all(), Self::workload_changed);
        self.take_in(self.jobs.all(), Self::job_changed);
        self.take_in(self.pods_left.owners(), Self::apply);
        self.role = Role::Leads;
        self.tell_role();
    }

    pub(super) fn apply(&mut self, event: Event) {
        let now = self.clock.now();
        self.engine.apply(event, now);
    }

    fn namespace_changed(&mut self, change: Change<Namespace>) {
        let event = match change {
            Change::Applied(object) => Event::Namespace(records::namespace(&object)),
            Change::Gone(object) => Event::NamespaceGone(object.name_any().into()),
        };
        self.apply(event);
        // A namespace may have become one whose Jobs are managed.
        self.dirty.extend(self.jobs.values().map(|job| uid_of(job.as_ref())));
    }

    fn flavor_changed(&mut self, change: Change<ResourceFlavor>) {
        let event = match change {
            Change::Applied(object) => {
                self.note_going(object.as_ref(), Going::Flavor);
                let read = records::flavor(&object);
                self.say_unsupported(object.as_ref(), &read.unsupported);
                Event::Flavor(read.record)
            }
            Change::Gone(object) => Event::FlavorGone(object.name_any().into()),
        };
        self.apply(event);
        // A Job may wait for the flavor that it was admitted on to come back.
        self.look_at_live_jobs();
    }

    pub(super) fn cluster_queue_changed(&mut self, change: Change<ClusterQueue>) {
        let event = match change {
            Change::Applied(object) => {
                self.note_going(object.as_ref(), Going::ClusterQueue);
                let read = records::cluster_queue(&object);
                self.say_unsupported(object.as_ref(), &read.unsupported);
                Event::ClusterQueue(Box::new(read.record))
            }
            Change::Gone(object) => {
                self.diagnostics.queue_gone(&QueueRef::Cluster(object.name_any().into()));
                self.counts.metrics().forget(&[("cluster_queue", &object.name_any())]);
                Event::ClusterQueueGone(object.name_any().into())
            }
        };
        self.apply(event);
    }

    fn cohort_changed(&mut self, change: Change<Cohort>) {
        let event = match change {
            Change::Applied(object) => {
                let read = records::cohort(&object);
                self.say_without_effect(object.as_ref(), &read.unsupported, &read.problems);
                Event::Cohort(read.record)
            }
            Change::Gone(object) => {
                self.warned.remove(&uid_of(object.as_ref()));
                Event::CohortGone(object.name_any().into())
            }
        };
        self.apply(event);
    }

    pub(super) fn local_queue_changed(&mut self, change: Change<LocalQueue>) {
        let event = match change {
            Change::Applied(object) => {
                let read = records::local_queue(&object);
                self.say_unsupported(object.as_ref(), &read.unsupported);
                Event::LocalQueue(read.record)
            }
            Change::Gone(object) => {
                let name = object_name(object.as_ref());
                self.diagnostics.queue_gone(&QueueRef::Local(name.clone()));
                self.counts.metrics().forget(&[("name", &name.name), ("namespace", name.namespace.as_str())]);
                Event::LocalQueueGone(name)
            }
        };
        self.apply(event);
    }

    fn admission_check_changed(&mut self, change: Change<AdmissionCheck>) {
        let event = match change {
            Change::Applied(object) => {
                self.note_going(object.as_ref(), Going::AdmissionCheck);
                Event::AdmissionCheck(records::admission_check(&object))
            }
            Change::Gone(object) => Event::AdmissionCheckGone(object.name_any().into()),
        };
        self.apply(event);
    }

    fn workload_class_changed(&mut self, change: Change<WorkloadPriorityClass>) {
        match change {
            Change::Applied(class) => self.classes.set_workload_class(&class),
            Change::Gone(class) => {
                self.classes.workload.remove(&class.name_any());
            }
        }
        self.look_at_live_jobs();
    }

    fn pod_class_changed(&mut self, change: Change<PriorityClass>) {
        match change {
            Change::Applied(class) => {
                self.classes.pod.insert(class.name_any(), class.as_ref().into());
            }
            Change::Gone(class) => {
                self.classes.pod.remove(&class.name_any());
            }
        }
        self.look_at_live_jobs();
    }

    fn look_at_live_jobs(&mut self) {
        let live = self.jobs.values().filter(|job| !jobs::JobView(job).has_ended());
        self.dirty.extend(live.map(|job| uid_of(job.as_ref())));
    }

    pub(super) fn workload_changed(&mut self, change: Change<Workload>) {
        match change {
            Change::Applied(object) => {
                self.note_going(object.as_ref(), Going::Workload);
                let read = records::workload(&object, &self.rules);
                if read.repaired {
                    self.counts.repairs();
                }
                let cautions: Vec<_> =
                    read.cautions.iter().cloned().chain(self.timeouts_too_long(&read.record)).collect();
                self.say_without_effect(object.as_ref(), &read.unsupported, &cautions);
                if let Some(owner) = &read.record.owner {
                    self.owned.entry(owner.clone()).or_default().insert(read.record.uid.clone());
                    self.dirty.insert(owner.clone());
                }
                let uid = &read.record.uid;
                if self.engine.workload(uid).is_some_and(|known| read.record.version > known.version) {
                    self.settle_by_sight(uid, &read.record.state, &object);
                    self.say_gates_open(&read.record, &object);
                }
                self.apply(Event::Workload(Box::new(read.record)));
            }
            Change::Gone(object) => {
                let uid = uid_of(object.as_ref());
                let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
                if let Some(owner) = owner.map(|owner| Uid::from(owner.uid.as_str())) {
                    if let Some(owned) = self.owned.get_mut(&owner) {
                        owned.remove(&uid);
                        if owned.is_empty() {
                            self.owned.remove(&owner);
                        }
                    }
                    // Whoever deletes it may know what the watch has yet to tell: that the Job is gone. Made again at once it
                    // would be deleted again, and so on as fast as both can write.
                    let due = self.clock.now().plus_millis(millis(wait_after(0) / 2));
                    self.retries.insert((due, Retry::Job(owner)));
                }
                self.warned.remove(&uid);
                self.unsettled.remove(&uid);
                self.apply(Event::WorkloadGone(uid));
            }
        }
    }

    pub(super) fn job_changed(&mut self, change: Change<Job>) {
        match change {
            Change::Applied(job) => {
                let uid = uid_of(job.as_ref());
                self.dirty.insert(uid.clone());
                let facts = self.facts_of(&job);
                self.apply(Event::Job(uid, facts));
            }
            Change::Gone(job) => {
                let uid = uid_of(job.as_ref());
                self.dirty.remove(&uid);
                self.troubled.remove(&uid);
                self.warned.remove(&uid);
                self.apply(Event::JobGone(uid));
            }
        }
    }

    fn facts_of(&self, job: &Job) -> JobFacts {
        if !self.planted.is(Bug::TerminatingPodsNotCounted) {
            return jobs::facts(job);
        }
        let mut job = job.clone();
        job.status.iter_mut().for_each(|status| status.terminating = None);
        jobs::facts(&job)
    }
}
