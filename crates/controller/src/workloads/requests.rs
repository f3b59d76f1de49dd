//! What is sent: decisions, steps of Jobs, queue status, Events.

use std::fmt::Debug;

use futures::FutureExt;
use gangway_admission::{Action, DecisionId, Event, QueueRef};
use gangway_api::kueue::{ClusterQueue, LocalQueue, Workload};
use gangway_api::records;
use gangway_model::planted::Bug;
use gangway_model::reasons::{EventReason, FinishReason};
use gangway_model::{ClusterQueueName, ObjectName, Timestamp, Uid};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::events::Note;
use super::jobs::{self, Owned, Step, Surroundings};
use super::lanes::{Answer, End, Purpose, Refusal, Request, Target};
use super::shell::{Retry, Shell, millis, object_name};
use crate::index::uid_of;
use crate::pace::Lane;
use crate::trouble::wait_after;

impl Shell {
    /// Sends what a decision or report of the engine comes to now.
    pub(super) fn send_workload_write(&mut self, id: DecisionId, lane: Lane) {
        let write = self.engine.pending_write(id);
        let uid = self.under_way.get(&id).map(|sent| sent.decision.uid.clone());
        let object = uid.as_ref().and_then(|uid| self.workloads.get(uid));
        let (Some(write), Some(object)) = (write, object) else {
            self.under_way.remove(&id);
            self.counts.superseded();
            return;
        };
        let deactivates = write.deactivates;
        let mut patch =
            json!({"metadata": {"uid": object.uid(), "resourceVersion": write.version.to_string()}});
        if deactivates {
            patch["spec"] = json!({"active": false});
        } else {
            let status = records::workload_status(&write.state, write.generation, object.status.as_ref());
            patch["status"] = status;
        }
        let api = self.api::<Workload>(lane, object.namespace());
        let name = object.name_any();
        let missing = self.missing_owner(id, object);
        let request = async move {
            if let Some(job) = found_after_all(missing).await? {
                return Ok(Answer::Job(Box::new(job)));
            }
            let (how, patch) = (PatchParams::default(), Patch::Merge(patch));
            let object = if deactivates {
                api.patch(&name, &how, &patch).await?
            } else {
                api.patch_status(&name, &how, &patch).await?
            };
            Ok(Answer::Workload(Box::new(object)))
        };
        let target = Target::Workload(uid_of(object.as_ref()));
        self.lanes.send(lane, vec![target], Purpose::Decision(id), request.boxed());
    }

    /// The Job for lack of which a Workload is to end. It is asked for once more: a list may have been too old to show it.
    fn missing_owner(&self, id: DecisionId, object: &Workload) -> Option<(Api<Job>, OwnerReference)> {
        let action = &self.under_way.get(&id)?.decision.action;
        if *action != Action::Finish(FinishReason::OwnerNotFound) {
            return None;
        }
        let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
        Some((self.api::<Job>(Lane::Decisions, object.namespace()), owner.clone()))
    }

    fn api<K>(&self, lane: Lane, namespace: Option<String>) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.lanes.client(lane).clone(), namespace.as_deref().unwrap_or("default"))
    }

    /// Plans the next step of every Job that may need one.
    pub(super) fn look_at_jobs(&mut self) {
        let mut later = Vec::new();
        while let Some(uid) = self.dirty.pop_first() {
            if self.lanes.free_slots(Lane::Decisions) == 0 {
                later.push(uid);
                break;
            }
            if self.lanes.is_busy(&Target::Job(uid.clone())) {
                continue; // Looked at again when the write ends.
            }
            if !self.look_at_job(&uid) {
                later.push(uid);
            }
        }
        self.dirty.extend(later);
    }

    /// Sends the next step of a Job, if it needs one. False if that has to wait for another write.
    fn look_at_job(&mut self, uid: &Uid) -> bool {
        let Some(job) = self.jobs.get(uid).cloned() else { return true };
        if !self.manages(&job.namespace().unwrap_or_default()) {
            return true;
        }
        let ids: Vec<Uid> = self.owned.get(uid).into_iter().flatten().cloned().collect();
        let objects: Vec<_> = ids.iter().filter_map(|id| self.workloads.get(id).cloned()).collect();
        let step = {
            let states = objects.iter().filter_map(|object| {
                let state = &self.engine.workload(&uid_of(object.as_ref()))?.state;
                Some(Owned { object: object.as_ref(), state })
            });
            let owned: Vec<Owned<'_>> = states.collect();
            let flavor = |name: &str| self.flavors.named("", name).map(|flavor| &flavor.spec);
            let manages_unnamed = self.manages_unnamed;
            jobs::plan(
                &job,
                &owned,
                &Surroundings { classes: &self.classes, flavor: &flavor, manages_unnamed },
            )
        };
        if matches!(step, Step::Restore { .. }) && self.planted.is(Bug::TemplateNotRestored) {
            return true;
        }
        let concerns_workload = matches!(step, Step::UpdateWorkload { .. } | Step::DeleteWorkload { .. });
        if concerns_workload && ids.iter().any(|id| self.lanes.is_busy(&Target::Workload(id.clone()))) {
            return false;
        }
        self.take_step(&job, step);
        true
    }

    fn take_step(&mut self, job: &Job, step: Step) {
        let uid = uid_of(job);
        let namespace = job.namespace();
        let workloads: Api<Workload> = self.api(Lane::Decisions, namespace.clone());
        let jobs: Api<Job> = self.api(Lane::Decisions, namespace.clone());
        let name = job.name_any();
        let mut targets = vec![Target::Job(uid.clone())];
        let request: Request = match step {
            Step::Nothing => return,
            Step::Warn { reason, message } => return self.warn(job, reason, message),
            Step::Unstartable { workload, contradiction } => {
                let event = Event::Unstartable(workload.into(), contradiction.to_string());
                self.engine.apply(event, self.clock.now());
                return;
            }
            Step::CreateWorkload(workload) => async move {
                let object = workloads.create(&PostParams::default(), &workload).await?;
                Ok(Answer::Created(Box::new(object)))
            }
            .boxed(),
            Step::UpdateWorkload { name, patch } => {
                self.say_of_job(
                    job,
                    EventReason::UpdatedWorkload,
                    format!("Workload {name} follows the Job"),
                );
                let object = self.workloads.named(&namespace.unwrap_or_default(), &name);
                targets.extend(object.map(|object| Target::Workload(uid_of(object.as_ref()))));
                merge_patch(workloads, name, patch, |object| Answer::Workload(Box::new(object)))
            }
            Step::DeleteWorkload { name, uid } => {
                let message = format!("Workload {name} does not describe the Job");
                self.say_of_job(job, EventReason::DeletedWorkload, message);
                targets.push(Target::Workload(uid.as_str().into()));
                delete(workloads, name, uid)
            }
            Step::Start { patch, message } => {
                self.say_of_job(job, EventReason::Started, message);
                json_patch(jobs, name, patch)
            }
            Step::Suspend { reason, message } => {
                self.say_of_job(job, reason, message);
                let patch = json!({"metadata": {"uid": job.uid()}, "spec": {"suspend": true}});
                merge_patch(jobs, name, patch, |object| Answer::Job(Box::new(object)))
            }
            Step::ForgetStart { patch } => async move {
                let object = jobs.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                Ok(Answer::Job(Box::new(object)))
            }
            .boxed(),
            Step::Restore { patch } => json_patch(jobs, name, patch),
        };
        self.lanes.send(Lane::Decisions, targets, Purpose::JobStep(uid), request);
    }

    fn say_of_job(&mut self, job: &Job, reason: EventReason, message: String) {
        if self.troubled.contains_key(&uid_of(job)) {
            return; // Said at the first attempt.
        }
        let about = job.object_ref(&());
        self.note(Note { about, warning: false, reason: reason.as_str().to_owned(), message });
    }

    fn warn(&mut self, job: &Job, reason: EventReason, message: String) {
        let before = self.warned.insert(uid_of(job), message.clone());
        if before.as_ref() != Some(&message) {
            let about = job.object_ref(&());
            self.note(Note { about, warning: true, reason: reason.as_str().to_owned(), message });
        }
    }

    /// Takes in how a step of a Job ended. One that did not land is planned anew after a while.
    pub(super) fn job_step_written(&mut self, job: Uid, end: End) {
        match end {
            End::Landed(answer) => {
                self.troubled.remove(&job);
                if let Answer::Created(workload) = &answer {
                    self.measure_creation(&job, workload);
                }
                self.take_answer(answer);
                self.dirty.insert(job);
            }
            _ if self.jobs.get(&job).is_none() => {} // There is nothing left to try.
            End::Conflict | End::Refused(_) | End::Unknown => {
                let attempts = self.troubled.entry(job.clone()).or_insert(0);
                let wait = wait_after(*attempts) / 2;
                *attempts = attempts.saturating_add(1);
                let attempts = *attempts;
                if let End::Refused(refusal) = end {
                    self.step_refused(&job, refusal, attempts);
                }
                let due = self.clock.now().plus_millis(millis(wait));
                self.retries.insert((due, Retry::Job(job)));
            }
        }
    }

    /// Says once per Job and cause that it cannot go on.
    ///
    /// A patch that tests a Job which has changed in the meantime is refused as invalid, and the next plan
    /// starts from the Job as it is now: only what is still invalid then is worth a word.
    fn step_refused(&mut self, uid: &Uid, refusal: Refusal, attempts: u32) {
        const INVALID: u16 = 422;
        const ATTEMPTS_BEFORE_INVALID_IS_SAID: u32 = 3;
        let Refusal { code, message } = refusal;
        if code == INVALID && attempts < ATTEMPTS_BEFORE_INVALID_IS_SAID {
            return;
        }
        let Some(job) = self.jobs.get(uid).cloned() else { return };
        if self.warned.get(uid) != Some(&message) {
            let name = object_name(job.as_ref());
            tracing::warn!(job = %name, code, message, "the API refuses what the Job needs; trying again until it works");
        }
        self.warn(&job, EventReason::WriteRefused, message);
    }

    /// Sends what informs, as far as there is room for it.
    pub(super) fn send_diagnostics(&mut self, now: Timestamp) {
        while self.lanes.free_slots(Lane::Diagnostics) > 0 {
            if let Some(id) = self.diagnostics.next_report(now) {
                let uid = self.under_way.get(&id).map(|sent| sent.decision.uid.clone());
                if uid.is_some_and(|uid| self.lanes.is_busy(&Target::Workload(uid))) {
                    self.diagnostics.report(id, now);
                } else {
                    self.send_workload_write(id, Lane::Diagnostics);
                }
                continue;
            }
            if let Some(queue) = self.next_queue(now) {
                self.send_queue_status(queue, now);
                continue;
            }
            let Some((at, note)) = self.diagnostics.next_note() else { break };
            self.send_note(&note, at);
        }
    }

    fn next_queue(&mut self, now: Timestamp) -> Option<QueueRef> {
        let (lanes, cluster_queues, local_queues) = (&self.lanes, &self.cluster_queues, &self.local_queues);
        self.diagnostics.next_status(now, |queue| {
            let target = match queue {
                QueueRef::Cluster(name) => {
                    cluster_queues.named("", name.as_str()).map(|o| Target::ClusterQueue(uid_of(o.as_ref())))
                }
                QueueRef::Local(name) => local_queues
                    .named(name.namespace.as_str(), &name.name)
                    .map(|o| Target::LocalQueue(uid_of(o.as_ref()))),
            };
            target.is_none_or(|target| !lanes.is_busy(&target))
        })
    }

    fn send_queue_status(&mut self, queue: QueueRef, now: Timestamp) {
        let write = match &queue {
            QueueRef::Cluster(name) => self.cluster_queue_write(name, now),
            QueueRef::Local(name) => self.local_queue_write(name, now),
        };
        if let Some((target, request)) = write {
            self.diagnostics.status_written(queue.clone(), now);
            self.lanes.send(Lane::Diagnostics, vec![target], Purpose::QueueStatus(queue), request);
        }
    }

    fn cluster_queue_write(&self, name: &ClusterQueueName, now: Timestamp) -> Option<(Target, Request)> {
        let object = self.cluster_queues.named("", name.as_str())?.as_ref();
        let (reason, message, counts) = self.engine.cluster_queue_status(name)?;
        let generation = object.metadata.generation.unwrap_or(0);
        let current = object.status.as_ref();
        let status = records::cluster_queue_status(current, &counts, (reason, &message), generation, now)?;
        let api: Api<ClusterQueue> = Api::all(self.lanes.client(Lane::Diagnostics).clone());
        let request = status_patch(api, object, status, |object| Answer::ClusterQueue(Box::new(object)));
        Some((Target::ClusterQueue(uid_of(object)), request))
    }

    fn local_queue_write(&self, name: &ObjectName, now: Timestamp) -> Option<(Target, Request)> {
        let object = self.local_queues.named(name.namespace.as_str(), &name.name)?.as_ref();
        let (reason, message, counts) = self.engine.local_queue_status(name)?;
        let generation = object.metadata.generation.unwrap_or(0);
        let current = object.status.as_ref();
        let status = records::local_queue_status(current, &counts, (reason, &message), generation, now)?;
        let api: Api<LocalQueue> = self.api(Lane::Diagnostics, object.namespace());
        let request = status_patch(api, object, status, |object| Answer::LocalQueue(Box::new(object)));
        Some((Target::LocalQueue(uid_of(object)), request))
    }

    fn send_note(&mut self, note: &Note, at: Timestamp) {
        self.notes += 1;
        let event = note.event(at, self.notes);
        let api: Api<core::Event> = self.api(Lane::Diagnostics, event.metadata.namespace.clone());
        let request = async move {
            api.create(&PostParams::default(), &event).await?;
            Ok(Answer::Nothing)
        };
        self.lanes.send(Lane::Diagnostics, Vec::new(), Purpose::Note, request.boxed());
    }
}

/// A Job that was thought to be gone, if it is there.
async fn found_after_all(missing: Option<(Api<Job>, OwnerReference)>) -> Result<Option<Job>, kube::Error> {
    let Some((jobs, owner)) = missing else { return Ok(None) };
    let found = jobs.get_opt(&owner.name).await?;
    Ok(found.filter(|job| job.uid().as_deref() == Some(owner.uid.as_str())))
}

fn merge_patch<K>(api: Api<K>, name: String, patch: Value, answer: fn(K) -> Answer) -> Request
where
    K: Clone + Debug + DeserializeOwned + 'static,
{
    async move { api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(answer) }.boxed()
}

fn delete(workloads: Api<Workload>, name: String, uid: String) -> Request {
    let preconditions = Some(Preconditions { uid: Some(uid), resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::background() };
    async move { workloads.delete(&name, &params).await.map(|_| Answer::Nothing) }.boxed()
}

/// A JSON patch of a Job. What it tests has changed in the meantime if it is refused.
fn json_patch(jobs: Api<Job>, name: String, patch: Value) -> Request {
    async move {
        let patch: json_patch::Patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
        let object = jobs.patch(&name, &PatchParams::default(), &Patch::Json::<()>(patch)).await?;
        Ok(Answer::Job(Box::new(object)))
    }
    .boxed()
}

fn status_patch<K>(api: Api<K>, object: &K, status: Value, answer: fn(K) -> Answer) -> Request
where
    K: Resource + Clone + Debug + DeserializeOwned + 'static,
{
    let name = object.name_any();
    let patch = json!({
        "metadata": {"uid": object.uid(), "resourceVersion": object.resource_version()},
        "status": status,
    });
    async move {
        let object = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(answer(object))
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gangway_apiserver::ApiServer;
    use gangway_model::ManualClock;

    use super::*;
    use crate::workloads::Options;

    fn refused(code: u16, message: &str) -> End {
        End::Refused(Refusal { code, message: message.to_owned() })
    }

    #[tokio::test]
    async fn a_refusal_is_said_unless_the_job_may_just_have_changed() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_seconds(1)));
        let mut shell = Shell::new(ApiServer::builder().build().client(), clock, Options::default());
        let uid = Uid::from("u");
        let mut job = Job::default();
        job.metadata.uid = Some("u".to_owned());
        shell.jobs.take_answer(job);
        let said = |shell: &Shell| shell.warned.get(&Uid::from("u")).cloned();
        for _ in 0..2 {
            shell.job_step_written(uid.clone(), refused(422, "a test failed"));
            assert_eq!(said(&shell), None);
        }
        shell.job_step_written(uid.clone(), refused(422, "a test failed"));
        assert_eq!(said(&shell).as_deref(), Some("a test failed"));
        shell.job_step_written(uid.clone(), refused(403, "no rights"));
        assert_eq!(said(&shell).as_deref(), Some("no rights"));
        assert_eq!(shell.retries.len(), 4, "it is tried again every time");
        shell.job_step_written("gone".into(), refused(403, "no rights"));
        assert_eq!((shell.retries.len(), shell.warned.len(), shell.troubled.len()), (4, 1, 1));
    }
}
