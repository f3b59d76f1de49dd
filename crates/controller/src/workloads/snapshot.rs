//! What the engine would say of a cluster as it is now: list, rebuild, explain.

use std::fmt::Debug;
use std::sync::Arc;

use gangway_admission::{Decision, Durable, Engine, Event, Explanation};
use gangway_api::config::Configuration;
use gangway_api::kueue::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass,
};
use gangway_api::{names, records};
use gangway_model::reasons::EventReason;
use gangway_model::{Clock, Uid};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use super::Error;
use super::jobs::{self, Classes, Step, Surroundings};
use crate::index::uid_of;

/// A cluster at one moment, as the engine sees it.
pub struct Snapshot {
    engine: Engine,
    jobs: Vec<Job>,
    workloads: Vec<Workload>,
    classes: Classes,
    decisions: Vec<Decision>,
    manages_unnamed: bool,
}

/// What there is to say of a Job.
#[derive(Debug)]
pub enum Explained {
    /// There is no Job of that name.
    NoSuchJob,
    /// It names no queue, so nobody looks after it.
    NotQueued,
    /// No Workload stands for it yet.
    NoWorkload,
    /// No Workload can stand for it, for a reason that lies with the Job.
    Refused {
        /// The reason.
        reason: EventReason,
        /// The reason in a sentence.
        message: String,
    },
    /// Where its Workload is and why.
    Workload(Box<Explanation>),
}

/// Enough for every Workload to be evaluated.
const WHOLE_BUDGET: usize = usize::MAX;

impl Snapshot {
    /// Reads a cluster and evaluates what waits there, without writing anything.
    ///
    /// # Errors
    ///
    /// If something cannot be listed.
    pub async fn read(client: Client, clock: Arc<dyn Clock>, config: &Configuration) -> Result<Self, Error> {
        let rules = config.resource_rules();
        let now = clock.now();
        let mut engine = Engine::new();
        // Who asks may not have the configuration of the controller: then what is written down of pods stays.
        if config.wait_for_pods_ready.is_some() {
            engine.wait_for_pods_ready(config.wait_for_pods_ready.clone());
        }
        for object in list::<Namespace>(&client, "namespaces").await? {
            engine.apply(Event::Namespace(records::namespace(&object)), now);
        }
        for object in list::<ResourceFlavor>(&client, "ResourceFlavors").await? {
            engine.apply(Event::Flavor(records::flavor(&object).record), now);
        }
        for object in list::<ClusterQueue>(&client, "ClusterQueues").await? {
            engine.apply(Event::ClusterQueue(Box::new(records::cluster_queue(&object).record)), now);
        }
        for object in list::<Cohort>(&client, "Cohorts").await? {
            engine.apply(Event::Cohort(records::cohort(&object).record), now);
        }
        for object in list::<LocalQueue>(&client, "LocalQueues").await? {
            engine.apply(Event::LocalQueue(records::local_queue(&object).record), now);
        }
        for object in list::<AdmissionCheck>(&client, "AdmissionChecks").await? {
            engine.apply(Event::AdmissionCheck(records::admission_check(&object)), now);
        }
        let jobs = list::<Job>(&client, "Jobs").await?;
        for job in &jobs {
            engine.apply(Event::Job(uid_of(job), jobs::facts(job)), now);
        }
        let workloads = list::<Workload>(&client, "Workloads").await?;
        for object in &workloads {
            engine.apply(Event::Workload(Box::new(records::workload(object, &rules).record)), now);
        }
        let mut classes = Classes::default();
        for class in list::<WorkloadPriorityClass>(&client, "WorkloadPriorityClasses").await? {
            classes.set_workload_class(&class);
        }
        for owner in owners_of_marked_pods(&client).await? {
            engine.apply(Event::Pods(owner, true), now);
        }
        engine.apply(Event::Synced, now);
        let decisions = engine.decide(now, WHOLE_BUDGET);
        let manages_unnamed = config.manage_jobs_without_queue_name;
        Ok(Self { engine, jobs, workloads, classes, decisions, manages_unnamed })
    }

    /// The engine that a controller would have if it started now, after its first decisions.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What a controller that started now would know.
    pub fn durable(&self) -> &Durable {
        self.engine.durable()
    }

    /// What a controller that started now would decide.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Where the Workload of a Job is and why.
    pub fn explain_job(&self, namespace: &str, name: &str) -> Explained {
        let is_named = |job: &&Job| job.name_any() == name && job.namespace().as_deref() == Some(namespace);
        let Some(job) = self.jobs.iter().find(is_named) else { return Explained::NoSuchJob };
        let owner: Uid = uid_of(job);
        let is_owned = |workload: &&Workload| {
            workload.owner_references().iter().any(|reference| owner == reference.uid.as_str())
        };
        let explanation =
            self.workloads.iter().find(is_owned).and_then(|workload| self.engine.explain(&uid_of(workload)));
        match explanation {
            Some(found) => Explained::Workload(Box::new(found)),
            None if jobs::queue_name(job).is_none() && !self.manages_unnamed => Explained::NotQueued,
            None => self.without_workload(job),
        }
    }

    /// A Workload of the cluster.
    pub fn workload(&self, uid: &Uid) -> Option<&Workload> {
        self.workloads.iter().find(|workload| uid_of(*workload) == *uid)
    }

    /// The Job that a Workload stands for.
    pub fn job_of(&self, workload: &Workload) -> Option<&Job> {
        let owns = |job: &&Job| {
            let uid = uid_of(*job);
            workload.owner_references().iter().any(|reference| uid == reference.uid.as_str())
        };
        self.jobs.iter().find(owns)
    }

    fn without_workload(&self, job: &Job) -> Explained {
        let manages_unnamed = self.manages_unnamed;
        let around = Surroundings { classes: &self.classes, flavor: &|_| None, manages_unnamed };
        match jobs::plan(job, &[], &around) {
            Step::Warn { reason, message } => Explained::Refused { reason, message },
            _ => Explained::NoWorkload,
        }
    }
}

/// The Jobs of pods that a start has marked.
async fn owners_of_marked_pods(client: &Client) -> Result<Vec<Uid>, Error> {
    let api: Api<Pod> = Api::all(client.clone());
    let marked = ListParams::default().labels(names::POD_SET_LABEL);
    let found = api.list_metadata(&marked).await;
    let pods = found.map_err(|source| Error::List { what: "pods", source: Box::new(source) })?;
    let owners = pods.items.into_iter().flat_map(|pod| pod.metadata.owner_references.unwrap_or_default());
    Ok(owners.filter(|owner| owner.controller == Some(true)).map(|owner| owner.uid.into()).collect())
}

async fn list<K>(client: &Client, what: &'static str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    let found = api.list(&ListParams::default()).await;
    found.map(|list| list.items).map_err(|source| Error::List { what, source: Box::new(source) })
}
