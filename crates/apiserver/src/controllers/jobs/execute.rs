//! Carries out a plan through the API.

use std::sync::Arc;

use futures::future::join_all;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};

use super::backoff::FailureRecord;
use super::cache::Uid;
use super::plan::{Note, Plan};
use super::template;
use super::view::{PodView, TRACKING_FINALIZER};

/// What a sync brought to light.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub created: Vec<Pod>,
    pub changed: Vec<Pod>,
    /// Uids of pods that are no more.
    pub gone: Vec<Uid>,
    pub job: Option<Job>,
    /// To be remembered, as the status that goes with it is written.
    pub failures: Option<FailureRecord>,
    pub notes: Vec<Note>,
    /// Why the sync must be tried again.
    pub error: Option<kube::Error>,
}

/// What happened to one pod.
enum PodFate {
    Changed(Box<Pod>),
    Gone,
}

/// Creates and deletes pods, writes the status, takes finalizers off, in this order.
pub(super) async fn execute(
    client: Client,
    job: Arc<Job>,
    mut plan: Plan,
    pods: FxHashMap<Uid, PodView>,
) -> Report {
    let namespace = job.namespace().unwrap_or_default();
    let pod_api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    let mut report = Report::default();
    delete_pods(&pod_api, &plan, &pods, &mut report).await;
    if report.error.is_some() {
        return report;
    }
    create_pods(&pod_api, &job, &plan, &mut report).await;
    let missing = plan.create.len() - report.created.len();
    if let Some(status) = plan.status.as_mut().filter(|_| missing > 0) {
        let active = status.active.unwrap_or(0).saturating_sub(i32::try_from(missing).unwrap_or(i32::MAX));
        status.active = Some(active).filter(|active| *active > 0);
    }
    if let Some(status) = plan.status {
        match write_status(&client, &job, &status).await {
            Ok(written) => {
                report.failures = Some(plan.failures);
                report.notes.append(&mut plan.notes);
                report.job = Some(written);
            }
            Err(StatusError::Outdated(current)) => {
                report.job = current.map(|job| *job);
                return report;
            }
            Err(StatusError::Failed(error)) => {
                report.error = Some(error);
                return report;
            }
        }
    }
    let released = plan.release.iter().filter_map(|uid| pods.get(uid));
    let pod_api = &pod_api;
    let fates = join_all(released.map(|pod| async move { (pod, release(pod_api, pod).await) })).await;
    fates.into_iter().for_each(|(pod, fate)| report.add(pod, fate));
    report
}

impl Report {
    fn add(&mut self, pod: &PodView, fate: Result<PodFate, kube::Error>) {
        match fate {
            Ok(PodFate::Changed(changed)) => self.changed.push(*changed),
            Ok(PodFate::Gone) => self.gone.push(pod.uid.clone()),
            Err(error) => self.error = Some(error),
        }
    }
}

async fn delete_pods(api: &Api<Pod>, plan: &Plan, pods: &FxHashMap<Uid, PodView>, report: &mut Report) {
    let deletions = plan.delete.iter().filter_map(|deletion| Some((pods.get(&deletion.uid)?, deletion)));
    let fates = join_all(deletions.map(|(pod, deletion)| async move {
        if deletion.uncounted
            && pod.is_tracked()
            && let fate @ (Ok(PodFate::Gone) | Err(_)) = release(api, pod).await
        {
            return (pod, fate);
        }
        (pod, delete(api, pod).await)
    }))
    .await;
    fates.into_iter().for_each(|(pod, fate)| report.add(pod, fate));
}

async fn delete(api: &Api<Pod>, pod: &PodView) -> Result<PodFate, kube::Error> {
    let preconditions = Preconditions { uid: Some(pod.uid.clone()), resource_version: None };
    match api.delete(&pod.name, &DeleteParams::background().preconditions(preconditions)).await {
        Ok(answer) => match answer.left() {
            Some(deleted)
                if deleted.metadata.deletion_timestamp.is_some()
                    && deleted.uid().as_deref() == Some(&*pod.uid) =>
            {
                Ok(PodFate::Changed(Box::new(deleted)))
            }
            _ => Ok(PodFate::Gone),
        },
        // A conflict means that another pod has this name by now.
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(PodFate::Gone),
        Err(error) => Err(error),
    }
}

/// Takes the tracking finalizer off a pod.
async fn release(api: &Api<Pod>, pod: &PodView) -> Result<PodFate, kube::Error> {
    let mut position = pod.tracking_finalizer;
    loop {
        let Some(index) = position else { return Ok(PodFate::Gone) };
        let path = format!("/metadata/finalizers/{index}");
        let steps = json!([
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": path, "value": TRACKING_FINALIZER},
            {"op": "remove", "path": path},
        ]);
        let patch: json_patch::Patch = serde_json::from_value(steps).map_err(kube::Error::SerdeError)?;
        let refused = match api.patch(&pod.name, &PatchParams::default(), &Patch::Json::<()>(patch)).await {
            Ok(changed) => return Ok(PodFate::Changed(Box::new(changed))),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(PodFate::Gone),
            Err(refused @ kube::Error::Api(_)) => refused,
            Err(error) => return Err(error),
        };
        // The list of finalizers may have changed since it was seen.
        let Some(current) =
            api.get_opt(&pod.name).await?.filter(|current| current.uid().as_deref() == Some(&*pod.uid))
        else {
            return Ok(PodFate::Gone);
        };
        let moved = PodView::of(&current).tracking_finalizer;
        if moved.is_none() {
            return Ok(PodFate::Changed(Box::new(current)));
        }
        if moved == position {
            return Err(refused);
        }
        position = moved;
    }
}

/// Takes the tracking finalizer off a pod that no Job will count any more.
pub(super) async fn release_orphan(client: &Client, pod: &PodView) -> Result<(), kube::Error> {
    release(&Api::namespaced(client.clone(), &pod.namespace), pod).await.map(drop)
}

/// Creates pods in growing batches: if the first one is refused, hundreds more would be too.
async fn create_pods(api: &Api<Pod>, job: &Job, plan: &Plan, report: &mut Report) {
    let mut rest = plan.create.as_slice();
    let mut batch_size = 1;
    while !rest.is_empty() && report.error.is_none() {
        let (batch, later) = rest.split_at(batch_size.min(rest.len()));
        let answers =
            join_all(batch.iter().map(|new| async move {
                api.create(&PostParams::default(), &template::pod(job, *new)).await
            }))
            .await;
        for answer in answers {
            match answer {
                Ok(pod) => report.created.push(pod),
                Err(error) => {
                    let message = format!("Error creating: {}", told(&error));
                    let reason = "FailedCreate".to_owned();
                    report.notes = vec![Note { warning: true, reason, message }];
                    report.error = Some(error);
                }
            }
        }
        rest = later;
        batch_size *= 4;
    }
}

/// An error as the API told it.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

enum StatusError {
    /// The Job has changed since it was seen; this is how it is now, if it still is.
    Outdated(Option<Box<Job>>),
    Failed(kube::Error),
}

async fn write_status(client: &Client, job: &Job, status: &JobStatus) -> Result<Job, StatusError> {
    let api: Api<Job> = Api::namespaced(client.clone(), &job.namespace().unwrap_or_default());
    let name = job.name_any();
    let failed = |error| StatusError::Failed(error);
    let as_json = |status: &JobStatus| serde_json::to_value(status).map_err(kube::Error::SerdeError);
    let old = as_json(job.status.as_ref().unwrap_or(&JobStatus::default())).map_err(failed)?;
    let new = as_json(status).map_err(failed)?;
    let body = json!({
        "metadata": {"resourceVersion": job.resource_version(), "uid": job.uid()},
        "status": difference(&old, &new),
    });
    match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(body)).await {
        Ok(written) => Ok(written),
        Err(kube::Error::Api(answer)) if answer.is_conflict() || answer.is_not_found() => {
            // Another Job may have the name by now.
            let current = api.get_opt(&name).await.map_err(failed)?;
            let current = current.filter(|current| current.uid() == job.uid());
            Err(StatusError::Outdated(current.map(Box::new)))
        }
        Err(error) => Err(failed(error)),
    }
}

/// The merge patch that makes `new` of `old`.
fn difference(old: &Value, new: &Value) -> Value {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return new.clone() };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(key.clone(), difference(before, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patches_remove_what_is_gone() {
        let old = json!({"a": 1, "b": {"c": [1], "d": 2}, "e": 3});
        let new = json!({"a": 1, "b": {"c": [1, 2]}, "f": {}});
        let patch = difference(&old, &new);
        assert_eq!(patch, json!({"b": {"c": [1, 2], "d": null}, "e": null, "f": {}}));
        let mut merged = old;
        json_patch::merge(&mut merged, &patch);
        assert_eq!(merged, new);
    }
}
