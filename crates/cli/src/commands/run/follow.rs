//! The watches of a run: Jobs, Workloads, pods and Events, turned into news.

use futures::stream::{self, BoxStream, StreamExt};
use gangway_api::kueue::Workload;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event as ApiEvent, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
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
    /// An Event that warns of something about a Job.
    Warning(JobKey, Why),
}

/// Whether a pod takes room on a node.
#[derive(Debug)]
pub struct PodRoom {
    pub uid: String,
    /// What it takes; none if it is on no node, has ended, or is gone. The ClusterQueue is left empty.
    pub takes: Option<PodOnNode>,
}

/// Everything that the API says about Jobs, their Workloads and pods, from now on.
pub fn news(client: &Client) -> BoxStream<'static, News> {
    let jobs = events::<Job>(client).filter_map(|event| async { job_news(event) });
    let workloads = events::<Workload>(client).filter_map(|event| async { workload_news(event) });
    let pods = events::<Pod>(client).filter_map(|event| async { pod_news(event) });
    let warnings = events::<ApiEvent>(client).filter_map(|event| async { warning(event) });
    stream::select_all([jobs.boxed(), workloads.boxed(), pods.boxed(), warnings.boxed()]).boxed()
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
        wants_no_pods: job.spec.as_ref().and_then(|spec| spec.parallelism) == Some(0),
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
    let why =
        |condition: &Condition| Why { reason: condition.reason.clone(), message: condition.message.clone() };
    let waiting = condition("QuotaReserved").filter(|condition| condition.status != "True").map(why);
    // The condition Preempted says more than Evicted, which only says that it was preempted.
    let evicted = holds("Evicted") && holds("QuotaReserved");
    let reason = if holds("Preempted") { "Preempted" } else { "Evicted" };
    let leaving = condition(reason).filter(|_| evicted).map(why);
    let admitted = holds("Admitted") && leaving.is_none();
    let assignments = status.admission.iter().flat_map(|admission| &admission.pod_set_assignments);
    let mut flavors: Vec<String> =
        assignments.flat_map(|assignment| assignment.flavors.values().cloned()).collect();
    flavors.sort_unstable();
    flavors.dedup();
    Some(News::Workload(key, WorkloadNews { admitted, leaving, waiting, flavors }))
}

fn pod_news((pod, exists): Event<Pod>) -> Option<News> {
    let key = owner(pod.namespace()?, pod.owner_references())?;
    let uid = pod.uid()?;
    let is_going = pod.metadata.deletion_timestamp.is_some();
    let status = pod.status.unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let spec = pod.spec.unwrap_or_default();
    let takes_room = exists && spec.node_name.is_some() && !matches!(phase, "Succeeded" | "Failed");
    let takes = takes_room.then(|| PodOnNode {
        cluster_queue: String::new(),
        // The API server has validated the requests of every pod that it stores.
        requests: gangway_api::pods::requests(&spec).unwrap_or_default(),
        node_selector: spec.node_selector.clone().unwrap_or_default(),
    });
    let news = PodNews {
        began: matches!(phase, "Running" | "Succeeded" | "Failed") && !is_going,
        placed: spec.node_name.is_some(),
        held_up: if phase == "Pending" { held_up(&status, spec.node_name.is_some()) } else { None },
        gone: !exists,
    };
    Some(News::Pod(key, news, PodRoom { uid, takes }))
}

/// Reasons of a container that waits for somebody to mend something.
const NOT_STARTABLE: &[&str] = &[
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// Why a pod that does not run yet will not by itself.
fn held_up(status: &PodStatus, placed: bool) -> Option<Why> {
    let why = |reason: &Option<String>, message: &Option<String>| Why {
        reason: reason.clone().unwrap_or_default(),
        message: message.clone().unwrap_or_default(),
    };
    let mut conditions = status.conditions.iter().flatten();
    let unplaced =
        conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unplaced.filter(|_| !placed) {
        return Some(why(&condition.reason, &condition.message));
    }
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let mut waiting = containers.filter_map(|container| container.state.as_ref()?.waiting.as_ref());
    let stuck = waiting
        .find(|waiting| waiting.reason.as_deref().is_some_and(|reason| NOT_STARTABLE.contains(&reason)))?;
    Some(why(&stuck.reason, &stuck.message))
}

fn warning((event, exists): Event<ApiEvent>) -> Option<News> {
    let about = event.involved_object;
    let concerns_job = about.kind.as_deref() == Some("Job") && event.type_.as_deref() == Some("Warning");
    if !exists || !concerns_job {
        return None;
    }
    let key = JobKey { namespace: about.namespace?, name: about.name? };
    Some(News::Warning(key, Why { reason: event.reason?, message: event.message.unwrap_or_default() }))
}

fn owner(namespace: String, owners: &[OwnerReference]) -> Option<JobKey> {
    let job = owners.iter().find(|owner| owner.kind == "Job" && owner.api_version == "batch/v1")?;
    Some(JobKey { namespace, name: job.name.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(status: Value, node: Option<&str>) -> PodNews {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1"});
        let metadata = json!({"name": "j-1", "namespace": "a", "uid": "2", "ownerReferences": [owner]});
        let spec = json!({"nodeName": node, "containers": []});
        let pod = json!({"metadata": metadata, "spec": spec, "status": status});
        match pod_news((serde_json::from_value(pod).unwrap(), true)) {
            Some(News::Pod(_, news, _)) => news,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_pod_is_held_up_if_it_finds_no_node_or_cannot_start_there() {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"});
        let unplaced = seen(json!({"phase": "Pending", "conditions": [condition]}), None);
        assert_eq!(unplaced.held_up.map(|why| why.reason).as_deref(), Some("Unschedulable"));

        let waits = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "ConfigMap x does not exist"}});
            let container = json!({"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            seen(json!({"phase": "Pending", "containerStatuses": [container]}), Some("n"))
        };
        let blocked = waits("CreateContainerConfigError");
        assert_eq!(blocked.held_up.map(|why| why.message).as_deref(), Some("ConfigMap x does not exist"));
        let initializing = waits("PodInitializing");
        assert!(initializing.placed && initializing.held_up.is_none() && !initializing.began);
    }

    #[test]
    fn only_warnings_about_jobs_are_news() {
        let event = |kind: &str, type_: &str| {
            let about = json!({"kind": kind, "name": "j", "namespace": "a"});
            let event =
                json!({"metadata": {}, "involvedObject": about, "type": type_, "reason": "UnsupportedJob"});
            warning((serde_json::from_value(event).unwrap(), true))
        };
        assert!(matches!(event("Job", "Warning"), Some(News::Warning(key, _)) if key.name == "j"));
        assert!(event("Job", "Normal").is_none() && event("Pod", "Warning").is_none());
    }
}
