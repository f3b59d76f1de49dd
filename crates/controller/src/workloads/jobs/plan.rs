//! What a Job needs next, given its Workloads. A pure function: it is asked again after every change.

use gangway_api::kueue::{ResourceFlavorSpec, Workload};
use gangway_api::names;
use gangway_model::reasons::EventReason;
use gangway_model::workload::{Admission, State};
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::batch_job::{Contradiction, Injection, JobView, queue_name};
use super::priority::{Classes, Priority};

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

/// What a Job needs next.
pub(in crate::workloads) fn plan(job: &Job, owned: &[Owned<'_>], around: &Surroundings<'_>) -> Step {
    let view = JobView(job);
    if job.metadata.deletion_timestamp.is_some() || view.has_ended() {
        return Step::Nothing;
    }
    let Some(queue) = queue_name(job) else { return Step::Nothing };
    if let Some(step) = unsupported(job) {
        return step;
    }
    let priority = match around.classes.of_job(job) {
        Ok(priority) => priority,
        Err(class) => {
            let message =
                format!("WorkloadPriorityClass {class} does not exist; create it or change the label");
            return Step::Warn { reason: EventReason::WorkloadPriorityClassNotFound, message };
        }
    };
    let live: Vec<&Owned<'_>> = owned.iter().filter(|w| !w.state.is_finished()).collect();
    let injected_without_quota = view.is_injected() && !live.iter().any(|w| w.state.reservation().is_some());
    let matching = live.iter().position(|w| injected_without_quota || view.is_described_by(w.object));
    match (matching, live.as_slice()) {
        (Some(kept), _) if live.len() > 1 => delete_other(&live, kept),
        (Some(kept), _) => follow(view, live[kept], queue, &priority, around),
        (None, []) if !owned.is_empty() => Step::Nothing,
        (None, []) => without_workload(view, queue, &priority),
        (None, others) => mismatch(view, others, queue, &priority),
    }
}

/// What a Job asks for that nobody does yet. It stays suspended and says so.
fn unsupported(job: &Job) -> Option<Step> {
    let asks = |key: &str| job.annotations().contains_key(key) || job.labels().contains_key(key);
    let names = [
        names::ELASTIC_JOB_ANNOTATION,
        names::PREBUILT_WORKLOAD,
        names::JOB_MIN_PARALLELISM_ANNOTATION,
        names::MAX_EXEC_TIME_LABEL,
    ];
    let asked = names.into_iter().find(|name| asks(name))?;
    let message = format!("{asked} is not supported yet; remove it to have the Job queued");
    if !JobView(job).is_suspended() {
        return Some(Step::Suspend { reason: EventReason::Suspended, message });
    }
    Some(Step::Warn { reason: EventReason::UnsupportedJob, message })
}

fn without_workload(view: JobView<'_>, queue: &str, priority: &Priority) -> Step {
    if !view.is_suspended() {
        let message = "The Job ran without admission; it is suspended until its turn".to_owned();
        return Step::Suspend { reason: EventReason::Suspended, message };
    }
    if view.has_pods() {
        return Step::Nothing;
    }
    Step::CreateWorkload(Box::new(view.workload(queue, priority)))
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

/// No Workload describes the Job: it was changed. Quota that was given for something else goes back.
fn mismatch(view: JobView<'_>, live: &[&Owned<'_>], queue: &str, priority: &Priority) -> Step {
    if !view.is_suspended() {
        let message = "The Job was changed and no longer is what was admitted".to_owned();
        return Step::Suspend { reason: EventReason::Stopped, message };
    }
    if view.has_pods() {
        return Step::Nothing;
    }
    match live {
        [one] if one.state.reservation().is_none() => {
            let wanted = view.workload(queue, priority);
            let mut spec = json!(wanted.spec);
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("active");
            }
            update(one.object, spec)
        }
        others => others.first().map_or(Step::Nothing, |other| delete(other.object)),
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
    priority: &Priority,
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
                let injection = Injection::new(&reservation.admission, queue, around.flavor);
                return start(view, workload, &reservation.admission, &injection);
            }
            follow_priority(workload, priority)
        }
        State::Holding(_) => stop(view, workload, "The Workload is not admitted yet"),
        State::Pending(_) => {
            if !view.is_suspended() || view.is_injected() {
                return stop(view, workload, "The Workload is not admitted");
            }
            if workload.spec.queue_name.as_deref() != Some(queue) {
                return update(workload, json!({"queueName": queue}));
            }
            follow_priority(workload, priority)
        }
    }
}

/// A Workload's priority follows its class; where it has no class and holds quota, it gets none.
fn follow_priority(workload: &Workload, priority: &Priority) -> Step {
    let known = &workload.spec.priority_class_ref;
    let holds = workload.status.as_ref().is_some_and(|status| status.admission.is_some());
    let is_workload_class = |class: &Option<gangway_api::kueue::PriorityClassRef>| {
        class.as_ref().is_some_and(|class| class.kind == "WorkloadPriorityClass")
    };
    let may_change = !holds || (is_workload_class(known) && is_workload_class(&priority.class));
    if !may_change || (*known == priority.class && workload.spec.priority == Some(priority.value)) {
        return Step::Nothing;
    }
    update(workload, json!({"priorityClassRef": priority.class, "priority": priority.value}))
}

fn start(view: JobView<'_>, workload: &Workload, admission: &Admission, injection: &Injection) -> Step {
    if view.has_pods() || !view.may_change_template() {
        return Step::Nothing;
    }
    match view.start_patch(workload, injection) {
        Ok(patch) => {
            let flavors: Vec<&str> = admission.flavors().iter().map(|flavor| flavor.as_str()).collect();
            let message =
                format!("Admitted by ClusterQueue {} on {}", admission.cluster_queue, flavors.join(", "));
            Step::Start { patch, message }
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
    if view.is_injected() && view.may_change_template() && !view.has_pods() {
        return Step::Restore { patch: view.restore_patch(workload) };
    }
    Step::Nothing
}
