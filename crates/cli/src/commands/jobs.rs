//! The Job that a command is about, its Workloads, and the messages where there is none.

use gangway_api::kueue::Workload;
use k8s_openapi::api::batch::v1::Job;
use kube::{Resource, ResourceExt};

use crate::exit::Failure;

/// The name in `job/NAME`.
pub fn job_name<'t>(command: &str, target: &'t str) -> Result<&'t str, Failure> {
    match target.split_once('/') {
        Some(("job" | "jobs", name)) if !name.is_empty() => Ok(name),
        _ => Err(Failure::bad_input(format!("{target:?} is not job/NAME"))
            .try_this(format!("gangway {command} job/{}", target.rsplit('/').next().unwrap_or_default()))),
    }
}

/// There is no Job of that name.
pub fn no_such_job(namespace: &str, name: &str) -> Failure {
    Failure::bad_input(format!("there is no Job {namespace}/{name}")).try_this("gangway get jobs -A")
}

/// A Job is none of ours.
pub fn not_queued(namespace: &str, name: &str) -> Failure {
    let label = gangway_api::names::QUEUE_NAME_LABEL;
    Failure::bad_input(format!("Job {namespace}/{name} names no queue, so Gangway leaves it alone"))
        .try_this(format!("kubectl label job {name} -n {namespace} {label}=QUEUE"))
}

/// Whether a Job names a queue.
pub fn names_queue(job: &Job) -> bool {
    job.labels().get(gangway_api::names::QUEUE_NAME_LABEL).is_some_and(|queue| !queue.is_empty())
}

/// Whether a Workload stands for a Job.
pub fn is_of(workload: &Workload, job: &Job) -> bool {
    let uid = job.meta().uid.as_deref();
    workload.owner_references().iter().any(|owner| Some(owner.uid.as_str()) == uid)
}

/// The Job that a Workload stands for, as `namespace/name`; none if it stands for itself.
pub fn job_of(workload: &Workload) -> Option<String> {
    let owner = workload.owner_references().iter().find(|owner| owner.kind == "Job")?;
    Some(format!("{}/{}", workload.namespace().unwrap_or_default(), owner.name))
}

/// Namespace and name of an object.
pub fn full_name<K: Resource>(object: &K) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// A Workload as people know it: by its Job, if it has one.
pub fn called(workload: &Workload) -> String {
    let name = full_name(workload);
    match job_of(workload) {
        Some(job) => format!("Job {job} (Workload {name})"),
        None => format!("Workload {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_job() {
        assert_eq!(job_name("trace", "job/train").ok(), Some("train"));
        assert_eq!(job_name("trace", "jobs/train").ok(), Some("train"));
        for wrong in ["train", "pod/train", "job/"] {
            let failure = job_name("trace", wrong).unwrap_err();
            assert!(failure.message.contains("is not job/NAME"), "{failure}");
            assert!(failure.advice.starts_with("gangway trace job/"), "{failure}");
        }
    }
}
