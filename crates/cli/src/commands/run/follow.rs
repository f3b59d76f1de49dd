//! The watches of a run: Jobs, Workloads and pods, turned into news.

use futures::stream::{self, BoxStream, StreamExt};
use gangway_api::kueue::Workload;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};

use super::picture::{JobKey, JobNews, PodNews, Why, WorkloadNews};
use super::quota_watch::PodOnNode;

/// Something that the API said.
#[derive(Debug)]
pub enum News {
    Job(JobKey, JobNews),
    Workload(JobKey, WorkloadNews),
    Pod(JobKey, PodNews, PodRoom),
}

/// Whether a pod takes room on a node.
#[derive(Debug)]
pub struct PodRoom {
    pub uid: String,
    /// What it takes; none if it is on no node, has ended, or is gone. The ClusterQueue is left empty.
    pub takes: Option<PodOnNode>,
}

/// Everything that the API says about Jobs, Workloads and pods, from now on.
pub fn news(client: &Client) -> BoxStream<'static, News> {
    let jobs = events::<Job>(client).filter_map(|event| async { job_news(event) });
    let workloads = events::<Workload>(client).filter_map(|event| async { workload_news(event) });
    let pods = events::<Pod>(client).filter_map(|event| async { pod_news(event) });
    stream::select_all([jobs.boxed(), workloads.boxed(), pods.boxed()]).boxed()
}

/// An object, and whether it is still there.
type Event<K> = (K, bool);

fn events<K>(client: &Client) -> BoxStream<'static, Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Send + 'static,
    K: serde::de::DeserializeOwned,
{
    let watched = watcher(Api::<K>::all(client.clone()), watcher::Config::default()).default_backoff();
    let events = watched.filter_map(|event| async move {
        match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => Some((object, true)),
            Ok(watcher::Event::Delete(object)) => Some((object, false)),
            Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
            Err(error) => {
                tracing::warn!(%error, "a watch of the run broke and is opened again");
                None
            }
        }
    });
    events.boxed()
}

fn job_news((job, exists): Event<Job>) -> Option<News> {
    let key = JobKey { namespace: job.namespace()?, name: job.name_any() };
    let status = job.status.as_ref();
    let condition = |wanted: &str| {
        let conditions = status.and_then(|status| status.conditions.as_ref())?;
        conditions.iter().find(|condition| condition.type_ == wanted && condition.status == "True")
    };
    let failed = condition("Failed").map(|condition| Why {
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    });
    let deleted = || Why { reason: "Deleted".into(), message: "the Job was deleted during the run".into() };
    let succeeded = condition("Complete").is_some();
    let count = |count: Option<i32>| count.unwrap_or(0);
    let news = JobNews {
        suspended: job.spec.as_ref().and_then(|spec| spec.suspend).unwrap_or(false),
        pods_left: status.map_or(0, |status| count(status.active) + count(status.terminating)),
        succeeded,
        failed: failed.or_else(|| (!exists && !succeeded).then(deleted)),
    };
    Some(News::Job(key, news))
}

fn workload_news((workload, exists): Event<Workload>) -> Option<News> {
    let key = owner(workload.namespace()?, workload.owner_references())?;
    if !exists {
        return Some(News::Workload(key, WorkloadNews::default()));
    }
    let status = workload.status.unwrap_or_default();
    let condition = |wanted: &str| status.conditions.iter().find(|condition| condition.type_ == wanted);
    let holds = |wanted: &str| condition(wanted).is_some_and(|condition| condition.status == "True");
    let waiting = condition("QuotaReserved")
        .filter(|condition| condition.status != "True")
        .map(|condition| Why { reason: condition.reason.clone(), message: condition.message.clone() });
    let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    let mut flavors: Vec<String> =
        assignments.flat_map(|assignment| assignment.flavors.values().cloned()).collect();
    flavors.sort_unstable();
    flavors.dedup();
    Some(News::Workload(key, WorkloadNews { admitted: holds("Admitted"), waiting, flavors }))
}

fn pod_news((pod, exists): Event<Pod>) -> Option<News> {
    let key = owner(pod.namespace()?, pod.owner_references())?;
    let uid = pod.uid()?;
    let status = pod.status.unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let unplaced = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    let unplaced = unplaced.filter(|_| exists).map(|condition| Why {
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    });
    let spec = pod.spec.unwrap_or_default();
    let takes_room = exists && spec.node_name.is_some() && !matches!(phase, "Succeeded" | "Failed");
    let takes = takes_room.then(|| PodOnNode {
        cluster_queue: String::new(),
        // The API server has validated the requests of every pod that it stores.
        requests: gangway_api::pods::requests(&spec).unwrap_or_default(),
        node_selector: spec.node_selector.clone().unwrap_or_default(),
    });
    let news = PodNews { began: matches!(phase, "Running" | "Succeeded" | "Failed"), unplaced };
    Some(News::Pod(key, news, PodRoom { uid, takes }))
}

fn owner(namespace: String, owners: &[OwnerReference]) -> Option<JobKey> {
    let job = owners.iter().find(|owner| owner.kind == "Job" && owner.api_version == "batch/v1")?;
    Some(JobKey { namespace, name: job.name.clone() })
}
