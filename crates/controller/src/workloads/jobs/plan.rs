//! What a Job needs next, given its Workloads. A pure function: it is asked again after every change.

use gangway_api::kueue::{ResourceFlavorSpec, Workload};
use gangway_api::names;
use gangway_model::reasons::{EventReason, FinishReason};
use gangway_model::workload::{Admission, State};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::batch_job::{JobView, queue_name};
use super::priority::{Classes, Priority};
use super::template::{Contradiction, Injection};

/// The next thing to do for a Job. After it landed the plan is made again.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::workloads) enum Step {
    /// All is as it should be, or somebody else moves next.
    Nothing,
    /// Create the Workload that stands for it.
    CreateWorkload(Box<Workload>),
    /// Make a Workload without quota follow the Job (a merge patch of its spec).
    UpdateWorkload { name: String, patch: Value },
    /// Delete a Workload that does not describe the Job.
    DeleteWorkload { name: String, uid: String },
    /// Unsuspend it on its flavors (a JSON patch).
    Start { patch: Value, message: String },
    /// Suspend it.
    Suspend { reason: EventReason, message: String },
    /// Take its start time away, which keeps the API from changing its template (a merge patch of its status).
    ForgetStart { patch: Value },
    /// Take back what a start injected (a JSON patch).
    Restore { patch: Value },
    /// It can never start on what it was given.
    Unstartable { workload: String, contradiction: Contradiction },
    /// It waits for an object that does not exist, or asks for something not supported.
    Warn { reason: EventReason, message: String },
}

/// A Workload that a Job owns, and its state.
pub(in crate::workloads) struct Owned<'w> {
    pub(in crate::workloads) object: &'w Workload,
    pub(in crate::workloads) state: &'w State,
}

/// What the plan looks up.
pub(in crate::workloads) struct Surroundings<'s> {
    pub(in crate::workloads) classes: &'s Classes,
    pub(in crate::workloads) flavor: &'s dyn Fn(&str) -> Option<&'s ResourceFlavorSpec>,
}

/// The priority of a Job, or the name of the WorkloadPriorityClass that does not exist.
type Wanted = Result<Priority, String>;

/// What a Job needs next.
pub(in crate::workloads) fn plan(job: &Job, owned: &[Owned<'_>], around: &Surroundings<'_>) -> Step {
    let view = JobView(job);
    if job.metadata.deletion_timestamp.is_some() || view.has_ended() {
        return Step::Nothing;
    }
    let live: Vec<&Owned<'_>> = owned.iter().filter(|w| !w.state.is_finished()).collect();
    // Who takes the label off a Job that is queued or runs does not get around the queue by that.
    let known_queue = live.iter().find_map(|w| w.object.spec.queue_name.as_deref());
    let Some(queue) = queue_name(job).or(known_queue) else { return Step::Nothing };
    if let Some(message) = unsupported(job) {
        return refuse(view, &live, message);
    }
    let priority = around.classes.of_job(job);
    match (the_one_to_keep(view, &live), live.as_slice()) {
        (Some(kept), _) if live.len() > 1 => delete_other(&live, kept),
        (Some(kept), _) => follow(view, live[kept], queue, &priority, around),
        (None, []) if !owned.is_empty() => ended(view, owned),
        (None, []) => without_workload(view, queue, &priority),
        (None, others) => mismatch(view, others, queue),
    }
}

/// Which Workload stands for the Job: one that describes it, if possible one with quota.
fn the_one_to_keep(view: JobView<'_>, live: &[&Owned<'_>]) -> Option<usize> {
    let holds = |w: &&Owned<'_>| w.state.reservation().is_some();
    let describes = |w: &&Owned<'_>| view.is_described_by(w.object);
    live.iter().position(|w| holds(w) && describes(w)).or_else(|| live.iter().position(describes))
}

/// What a Job asks for that nobody does yet, in a sentence.
fn unsupported(job: &Job) -> Option<String> {
    let value = |key: &str| job.annotations().get(key).or_else(|| job.labels().get(key));
    let names = [names::ELASTIC_JOB_ANNOTATION, names::PREBUILT_WORKLOAD, names::MAX_EXEC_TIME_LABEL];
    let asks = |key: &&str| value(key).is_some_and(|value| value != "false");
    let asked = names.into_iter().find(asks)?;
    Some(format!("{asked} is not supported yet; remove it to have the Job queued"))
}

/// The Job stays suspended, holds no quota, and says why. One that runs and was started by somebody who could do what it asks
/// for goes on until it has to leave.
fn refuse(view: JobView<'_>, live: &[&Owned<'_>], message: String) -> Step {
    let is_adopted = view.is_injected() && !view.was_started_here();
    if is_adopted && !view.is_suspended() && live.iter().any(|owned| owned.state.may_run()) {
        let message = format!("{message}; it goes on as it was admitted");
        return Step::Warn { reason: EventReason::UnsupportedJob, message };
    }
    if !view.is_suspended() {
        return Step::Suspend { reason: EventReason::Suspended, message };
    }
    match live.first() {
        Some(owned) => give_up(view, owned.object),
        None => Step::Warn { reason: EventReason::UnsupportedJob, message },
    }
}

fn warn_of_missing(class: &str) -> Step {
    let message = format!("WorkloadPriorityClass {class} does not exist; create it or change the label");
    Step::Warn { reason: EventReason::WorkloadPriorityClassNotFound, message }
}

fn without_workload(view: JobView<'_>, queue: &str, priority: &Wanted) -> Step {
    if !view.is_suspended() {
        let message = "The Job ran without admission; it is suspended until its turn".to_owned();
        return Step::Suspend { reason: EventReason::Suspended, message };
    }
    if !view.has_stopped() {
        return Step::Nothing;
    }
    if view.is_injected() {
        return restore(view, None);
    }
    match priority {
        Ok(priority) => Step::CreateWorkload(Box::new(view.workload(queue, priority))),
        Err(class) => warn_of_missing(class),
    }
}

/// All Workloads of a Job have ended, and the Job has not. If that was because the Job was taken for gone, by a list that was
/// too old to show it, it begins anew.
fn ended(view: JobView<'_>, owned: &[Owned<'_>]) -> Step {
    let taken_for_gone = owned.iter().find(|owned| {
        matches!(owned.state, State::Finished(finish, _) if finish.reason == FinishReason::OwnerNotFound)
    });
    match taken_for_gone {
        None => Step::Nothing,
        Some(owned) if view.is_suspended() => give_up(view, owned.object),
        Some(_) => {
            let message = "The Job was taken for gone and lost its quota; it begins anew".to_owned();
            Step::Suspend { reason: EventReason::Stopped, message }
        }
    }
}

/// A Job has one Workload: the others go, one at a time.
fn delete_other(live: &[&Owned<'_>], kept: usize) -> Step {
    let other = live.iter().enumerate().find(|(index, _)| *index != kept).map(|(_, other)| other.object);
    other.map_or(Step::Nothing, delete)
}

fn delete(workload: &Workload) -> Step {
    if workload.metadata.deletion_timestamp.is_some() {
        return Step::Nothing;
    }
    Step::DeleteWorkload { name: workload.name_any(), uid: workload.uid().unwrap_or_default() }
}

/// Deletes the Workload of a suspended Job once its pods are gone and its template is the user's again.
fn give_up(view: JobView<'_>, workload: &Workload) -> Step {
    if !view.has_stopped() {
        return Step::Nothing;
    }
    if view.is_injected() { restore(view, Some(workload)) } else { delete(workload) }
}

/// No Workload describes the Job: it was changed. Quota that was given for something else goes back.
fn mismatch(view: JobView<'_>, live: &[&Owned<'_>], queue: &str) -> Step {
    if !view.is_suspended() {
        let message = "The Job was changed and no longer is what was admitted".to_owned();
        return Step::Suspend { reason: EventReason::Stopped, message };
    }
    match live {
        [] => Step::Nothing,
        [one] if one.state.reservation().is_none() && view.has_stopped() && !view.is_injected() => {
            update(one.object, json!({"podSets": [view.pod_set()], "queueName": queue}))
        }
        [one, ..] => give_up(view, one.object),
    }
}

fn update(workload: &Workload, spec: Value) -> Step {
    let version = workload.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version, "uid": workload.uid()}, "spec": spec});
    Step::UpdateWorkload { name: workload.name_any(), patch }
}

/// The Job follows its one Workload.
fn follow(
    view: JobView<'_>,
    owned: &Owned<'_>,
    queue: &str,
    priority: &Wanted,
    around: &Surroundings<'_>,
) -> Step {
    let workload = owned.object;
    if workload.metadata.deletion_timestamp.is_some() {
        return stop(view, workload, "The Workload is being deleted");
    }
    match owned.state {
        State::Finished(..) => Step::Nothing,
        State::Evicting(_, eviction) => stop(view, workload, &eviction.message),
        State::Holding(reservation) if reservation.admitted_at.is_some() => {
            if view.is_suspended() {
                return start(view, workload, &reservation.admission, queue, around);
            }
            follow_wishes(view, workload).unwrap_or_else(|| follow_priority(workload, priority))
        }
        State::Holding(_) => stop(view, workload, "The Workload is not admitted yet"),
        State::Pending(_) if !view.is_suspended() || view.is_injected() => {
            stop(view, workload, "The Workload is not admitted")
        }
        State::Pending(_) => follow_queued_job(view, workload, queue, priority),
    }
}

/// The Workload of a queued Job follows what may be changed of it.
fn follow_queued_job(view: JobView<'_>, workload: &Workload, queue: &str, priority: &Wanted) -> Step {
    if workload.spec.queue_name.as_deref() != Some(queue) {
        return update(workload, json!({"queueName": queue}));
    }
    if !view.is_up_to_date(workload) {
        return update(workload, json!({"podSets": [view.pod_set()]}));
    }
    follow_wishes(view, workload).unwrap_or_else(|| follow_priority(workload, priority))
}

/// The Workload has the annotations that it takes over from its Job.
fn follow_wishes(view: JobView<'_>, workload: &Workload) -> Option<Step> {
    let changed = view.changed_wishes(workload);
    let mut step = Some(update(workload, json!({}))).filter(|_| !changed.is_empty())?;
    if let Step::UpdateWorkload { patch, .. } = &mut step {
        patch["metadata"]["annotations"] = Value::Object(changed);
    }
    Some(step)
}

/// A Workload's priority follows its class; where it has no class and holds quota, it gets none.
fn follow_priority(workload: &Workload, priority: &Wanted) -> Step {
    let known = &workload.spec.priority_class_ref;
    let priority = match priority {
        Ok(priority) => priority,
        // A class that went away leaves the priority as it was.
        Err(class) if known.as_ref().is_some_and(|known| known.name == *class) => return Step::Nothing,
        Err(class) => return warn_of_missing(class),
    };
    let holds = workload.status.as_ref().is_some_and(|status| status.admission.is_some());
    let is_workload_class = |class: &Option<gangway_api::kueue::PriorityClassRef>| {
        class.as_ref().is_some_and(|class| class.kind == "WorkloadPriorityClass")
    };
    let may_change = !holds || (is_workload_class(known) && is_workload_class(&priority.class));
    // Without a class the number is whoever's wrote it.
    let has_value = known.is_none() || workload.spec.priority == Some(priority.value);
    if !may_change || (*known == priority.class && has_value) {
        return Step::Nothing;
    }
    update(workload, json!({"priorityClassRef": priority.class, "priority": priority.value}))
}

fn start(
    view: JobView<'_>,
    workload: &Workload,
    admission: &Admission,
    queue: &str,
    around: &Surroundings<'_>,
) -> Step {
    if view.has_pods() || !view.may_change_template() {
        return make_changeable(view);
    }
    let Some(injection) = Injection::new(admission, queue, around.flavor) else { return Step::Nothing };
    match view.start_patch(workload, &injection.with_checks(workload)) {
        Ok(patch) => {
            Step::Start { patch, message: format!("Admitted by ClusterQueue {}", admission.cluster_queue) }
        }
        Err(contradiction) => {
            Step::Unstartable { workload: workload.uid().unwrap_or_default(), contradiction }
        }
    }
}

/// Suspends the Job and, when its pods are gone, takes back what its start injected.
fn stop(view: JobView<'_>, workload: &Workload, why: &str) -> Step {
    if !view.is_suspended() {
        return Step::Suspend { reason: EventReason::Stopped, message: why.to_owned() };
    }
    if view.is_injected() { restore(view, Some(workload)) } else { Step::Nothing }
}

/// Takes back what a start injected, as soon as the API allows it.
fn restore(view: JobView<'_>, workload: Option<&Workload>) -> Step {
    if view.has_pods() || !view.may_change_template() {
        return make_changeable(view);
    }
    Step::Restore { patch: view.restore_patch(workload) }
}

/// What a Job needs before its template may be changed. That it carries what a start injected marks a stop that is not
/// finished, so each of the writes may be the last one of a controller.
fn make_changeable(view: JobView<'_>) -> Step {
    if view.keeps_start_time() {
        return Step::ForgetStart { patch: view.forget_start_patch() };
    }
    Step::Nothing
}
