//! What the planner needs to know of a Job and its Pods.

use gangway_model::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// On every pod of a Job until its end is written down in the Job's status.
pub(super) const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// Which completion index a pod of an Indexed Job works on.
pub(super) const INDEX_ANNOTATION: &str = "batch.kubernetes.io/job-completion-index";
/// How often that index had failed before the pod, where a Job counts failures for each index.
pub(super) const INDEX_FAILURES_ANNOTATION: &str = "batch.kubernetes.io/job-index-failure-count";
/// The value of `spec.managedBy` that means this controller.
const THIS_CONTROLLER: &str = "kubernetes.io/job-controller";

/// A Job as the planner sees it.
#[derive(Debug, Clone)]
pub(super) struct JobView {
    pub suspended: bool,
    pub deleting: bool,
    pub parallelism: i32,
    pub completions: Option<i32>,
    pub backoff_limit: i32,
    pub backoff_limit_per_index: Option<i32>,
    pub max_failed_indexes: Option<i32>,
    pub active_deadline_seconds: Option<i64>,
    pub indexed: bool,
    /// Pods restart their containers in place.
    pub restarts_in_place: bool,
    /// A pod is replaced only once it has failed, not already while it terminates.
    pub replaces_only_failed: bool,
    /// A setting this controller does not have; such a Job fails at once rather than run differently.
    pub unsupported: Option<&'static str>,
    pub status: JobStatus,
}

impl JobView {
    pub(super) fn of(job: &Job) -> Self {
        let spec = job.spec.as_ref();
        let text = |field: fn(&JobSpec) -> &Option<String>| spec.and_then(|spec| field(spec).as_deref());
        let template = spec.and_then(|spec| spec.template.spec.as_ref());
        Self {
            suspended: spec.and_then(|spec| spec.suspend).unwrap_or(false),
            deleting: job.metadata.deletion_timestamp.is_some(),
            parallelism: spec.and_then(|spec| spec.parallelism).unwrap_or(1),
            completions: spec.and_then(|spec| spec.completions),
            backoff_limit: spec.and_then(|spec| spec.backoff_limit).unwrap_or(6),
            backoff_limit_per_index: spec.and_then(|spec| spec.backoff_limit_per_index),
            max_failed_indexes: spec.and_then(|spec| spec.max_failed_indexes),
            active_deadline_seconds: spec.and_then(|spec| spec.active_deadline_seconds),
            indexed: text(|spec| &spec.completion_mode) == Some("Indexed"),
            restarts_in_place: template.and_then(|spec| spec.restart_policy.as_deref()) == Some("OnFailure"),
            replaces_only_failed: text(|spec| &spec.pod_replacement_policy) == Some("Failed"),
            unsupported: spec.and_then(unsupported_setting),
            status: job.status.clone().unwrap_or_default(),
        }
    }
}

fn unsupported_setting(spec: &JobSpec) -> Option<&'static str> {
    let settings = [
        (spec.pod_failure_policy.is_some(), "podFailurePolicy"),
        (spec.success_policy.is_some(), "successPolicy"),
    ];
    settings.into_iter().find(|(used, _)| *used).map(|(_, name)| name)
}

/// Whether a Job is finished: its status is final.
pub(super) fn is_finished(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    })
}

/// Whether another controller has been put in charge of a Job.
pub(super) fn is_managed_elsewhere(job: &Job) -> bool {
    let managed_by = job.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    managed_by.is_some_and(|name| name != THIS_CONTROLLER)
}

/// How far a Pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Pending,
    Unknown,
    Running,
    Succeeded,
    Failed,
}

/// A Pod as the planner sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodView {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub phase: Phase,
    pub ready: bool,
    pub deleting: bool,
    pub assigned: bool,
    /// Where in the list of finalizers ours is.
    pub tracking_finalizer: Option<usize>,
    pub restarts: i32,
    pub index: Option<u32>,
    /// How often its index had failed before.
    pub index_failures: u32,
    pub created: Timestamp,
    /// When it finished, as well as the Pod tells.
    pub finished: Timestamp,
}

impl PodView {
    pub(super) fn of(pod: &Pod) -> Self {
        let metadata = &pod.metadata;
        let status = pod.status.clone().unwrap_or_default();
        let phase = match status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            Some("Unknown") => Phase::Unknown,
            _ => Phase::Pending,
        };
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let ready =
            conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
        let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
        let annotations = metadata.annotations.as_ref();
        let number = |key| annotations.and_then(|all| all.get(key)).and_then(|text| text.parse().ok());
        Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            phase,
            ready,
            deleting: metadata.deletion_timestamp.is_some(),
            assigned: pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()),
            tracking_finalizer: finalizers.iter().position(|finalizer| finalizer == TRACKING_FINALIZER),
            restarts: containers.map(|container| container.restart_count).sum(),
            index: number(INDEX_ANNOTATION),
            index_failures: number(INDEX_FAILURES_ANNOTATION).unwrap_or(0),
            created: metadata.creation_timestamp.as_ref().map_or(Timestamp::EPOCH, from_time),
            finished: finish_time(pod),
        }
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub(super) fn is_active(&self) -> bool {
        !self.is_terminal() && !self.deleting
    }

    pub(super) fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.deleting
    }

    pub(super) fn is_tracked(&self) -> bool {
        self.tracking_finalizer.is_some()
    }
}

/// When the last container ended; else when it stopped being ready, was deleted or created.
fn finish_time(pod: &Pod) -> Timestamp {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let ends: Option<Vec<Timestamp>> = containers
        .iter()
        .map(|container| container.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref().map(from_time))
        .collect();
    if let Some(last) = ends.and_then(|ends| ends.into_iter().max()) {
        return last;
    }
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let unready =
        conditions.iter().find(|condition| condition.type_ == "Ready" && condition.status == "False");
    if let Some(time) = unready.and_then(|condition| condition.last_transition_time.as_ref()) {
        return from_time(time);
    }
    let metadata = &pod.metadata;
    if let Some(deletion) = &metadata.deletion_timestamp {
        return from_time(deletion).plus_seconds(-metadata.deletion_grace_period_seconds.unwrap_or(0));
    }
    metadata.creation_timestamp.as_ref().map_or(Timestamp::EPOCH, from_time)
}

/// An API time as a timestamp; times beyond what a timestamp holds saturate.
pub(super) fn from_time(time: &Time) -> Timestamp {
    Timestamp::from_seconds(time.0.as_second())
}

/// A timestamp as the API writes it, in whole seconds.
pub(super) fn to_time(timestamp: Timestamp) -> Time {
    // Every i64 count of nanoseconds lies within the years the API can write.
    Time(jiff::Timestamp::from_second(timestamp.as_seconds()).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}
