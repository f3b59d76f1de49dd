//! What is said and counted when a decision has landed: to the Workload, and to the one that it was preempted for.
//!
//! It is said once. Where the answer to a write was lost, what the watch shows next tells whether it landed.

use gangway_admission::{Action, Decision};
use gangway_api::kueue::Workload;
use gangway_api::time;
use gangway_model::conditions::ConditionType;
use gangway_model::reasons::{
    EventReason, EvictionReason, FallbackTrigger, PendingReason, ReadinessReason, RequeueReason,
};
use gangway_model::workload::{Admission, Preemption, State, Workload as Record};
use gangway_model::{Timestamp, Uid};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use rustc_hash::FxHashMap;

use super::events::Note;
use super::metrics::{self, Times, Whose};
use super::shell::{Shell, object_name};
use crate::metrics::Metric;

/// Decisions that were sent without anybody knowing how that ended, by Workload. A restart forgets them: what they did is
/// on the object then, and nobody is told.
pub(super) type Unsettled = FxHashMap<Uid, Decision>;

impl Shell {
    /// Counts what a decision did to a Workload, and says it.
    pub(super) fn say_landed(&mut self, decision: &Decision, object: &Workload) {
        let preemptor = match &decision.action {
            Action::Evict(_, Some(Preemption { preemptor: Some(uid), .. })) => {
                self.workloads.get(uid).cloned()
            }
            _ => None,
        };
        match &decision.action {
            Action::Evict(reason, preemption) => {
                self.count_eviction(*reason, object, preemption.as_ref(), preemptor.as_deref());
            }
            Action::ReportOverdue => self.warn_of_overdue(object),
            Action::PodsReady(Some(ReadinessReason::Started)) => self.measure_start(object),
            Action::Release(reason) => self.measure_release(*reason, object),
            Action::Requeue(reason) => {
                metrics::requeued(self.counts.metrics(), self.whose(object).cluster_queue, *reason);
            }
            Action::Admit(_) => self.count_quota(object, true, true),
            Action::Reserve(_) => self.count_quota(object, true, false),
            Action::LetStart(_) => self.count_quota(object, false, true),
            Action::Finish(_) => self.count_end(object),
            _ => {}
        }
        for note in notes(decision, object, preemptor.as_deref()) {
            self.note(note);
        }
    }

    /// Tells a Workload that nobody has to approve any more, if somebody had to before.
    pub(super) fn say_gates_open(&mut self, record: &Record, object: &Workload) {
        let is_gated = |record: &Record| {
            record.impediments.as_ref().is_some_and(|impediments| !impediments.gates.is_empty())
        };
        let was_gated = self.engine.workload(&record.uid).is_some_and(is_gated);
        if was_gated && !is_gated(record) && !record.state.is_finished() {
            let reason = EventReason::AdmissionGateCleared.as_str().to_owned();
            self.note(note(object, reason, "Nobody has to approve any more".to_owned()));
        }
    }

    /// Counts that a Workload has quota, or may start, or both.
    fn count_quota(&self, object: &Workload, is_reserved: bool, is_admitted: bool) {
        let (whose, times, registry) = (self.whose(object), times_of(object), self.counts.metrics());
        if is_reserved {
            metrics::reserved(registry, whose, times);
            // That a backoff is over is written down with this.
            if is_back_from_backoff(object) {
                metrics::requeued(registry, whose.cluster_queue, RequeueReason::BackoffFinished);
            }
        }
        if is_admitted {
            metrics::admitted(registry, whose, times);
            for cohort in self.engine.cohorts_above(&whose.cluster_queue.into()) {
                registry.count(Metric::CohortAdmitted, &[cohort.as_str(), whose.priority_class]);
            }
        }
    }

    fn count_end(&self, object: &Workload) {
        let at = |kind| condition(object, kind).map(changed_at);
        let was_admitted = condition(object, ConditionType::Admitted).filter(|c| c.status == "True");
        let status = object.status.as_ref();
        let past = status.and_then(|status| status.accumulated_past_execution_time_seconds).unwrap_or(0);
        let ran = (was_admitted.map(changed_at), at(ConditionType::Finished));
        metrics::finished(self.counts.metrics(), self.whose(object), ran, past.into());
    }

    /// Tells a Workload and its Job that it has not left, and what is left of it.
    fn warn_of_overdue(&mut self, object: &Workload) {
        self.counts.overdue_evictions();
        let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
        let job = owner.and_then(|owner| self.jobs.get(&Uid::from(owner.uid.as_str()))).cloned();
        let message = overdue_message(job.as_deref());
        let about_job = job.map(|job| job.object_ref(&()));
        for about in about_job.into_iter().chain([object.object_ref(&())]) {
            let reason = EventReason::EvictionOverdue.as_str().to_owned();
            self.note(Note { about, warning: true, reason, message: message.clone() });
        }
    }

    /// The queues and the priority class under which a Workload is counted.
    fn whose<'a>(&'a self, object: &'a Workload) -> Whose<'a> {
        let admission = object.status.as_ref().and_then(|status| status.admission.as_ref());
        let reserved = admission.map(|admission| admission.cluster_queue.as_str());
        let class = object.spec.priority_class_ref.as_ref().map(|class| class.name.as_str());
        let names = object.spec.queue_name.as_deref().zip(object.metadata.namespace.as_deref());
        Whose {
            cluster_queue: reserved.or_else(|| self.queue_of(object)).unwrap_or_default(),
            priority_class: class.unwrap_or_default(),
            local_queue: names.filter(|(name, namespace)| self.counts_for_local_queue(namespace, name)),
        }
    }

    /// The ClusterQueue behind the LocalQueue that a Workload names.
    fn queue_of(&self, object: &Workload) -> Option<&str> {
        let name = object.spec.queue_name.as_deref()?;
        let queue =
            self.local_queues.named(object.metadata.namespace.as_deref().unwrap_or_default(), name)?;
        queue.spec.cluster_queue.as_deref()
    }

    fn count_eviction(
        &self,
        reason: EvictionReason,
        victim: &Workload,
        preemption: Option<&Preemption>,
        preemptor: Option<&Workload>,
    ) {
        let whose = self.whose(victim);
        let waited_for = readiness_of(victim);
        let cause = reason.underlying_cause(waited_for, gave_up(victim));
        let registry = self.counts.metrics();
        if let Some(times) = ready_before_eviction(victim, waited_for) {
            metrics::evicted_when_ready(registry, whose.cluster_queue, (reason, cause), times);
        }
        let is_first = is_first_eviction(victim, reason.base(), cause);
        metrics::evicted(registry, whose, reason, cause, is_first);
        if let Some(preemption) = preemption {
            let preempting = preemptor.and_then(|preemptor| self.queue_of(preemptor));
            metrics::preempted(registry, preempting.unwrap_or_default(), preemption.reason);
        }
    }

    /// Measures how long a Workload took from its queue to the first time that all its pods were ready.
    fn measure_start(&self, object: &Workload) {
        metrics::started(self.counts.metrics(), self.whose(object), times_of(object));
    }

    /// Measures how long a Job waited for its Workload.
    pub(super) fn measure_creation(&self, job: &Uid, workload: &Workload) {
        let job = self.jobs.get(job).and_then(|job| job.metadata.creation_timestamp.as_ref());
        if let Some((job, workload)) = job.zip(workload.metadata.creation_timestamp.as_ref()) {
            let seconds = metrics::seconds(time::from_api(job), time::from_api(workload));
            self.counts.metrics().observe(Metric::WorkloadCreation, &["batch/job"], seconds);
        }
    }

    /// Measures how long a Workload took to leave, and counts it if it may be queued again at once.
    fn measure_release(&self, reason: EvictionReason, object: &Workload) {
        let (queue, registry) = (self.whose(object).cluster_queue, self.counts.metrics());
        let evicted = condition(object, ConditionType::Evicted).map(changed_at);
        let requeued = condition(object, ConditionType::Requeued).map(changed_at);
        if let Some(times) = evicted.zip(requeued) {
            metrics::released(registry, queue, reason, times);
        }
        if reason.requeues_at_once() {
            metrics::requeued(registry, queue, reason.requeue_reason());
        }
    }

    /// Nobody knows how a decision ended: the watch has shown it already, or will.
    pub(super) fn await_sight_of(&mut self, decision: Decision) {
        let state = self.engine.workload(&decision.uid).map(|workload| &workload.state);
        if !state.is_some_and(|state| shows(&decision.action, state)) {
            self.unsettled.insert(decision.uid.clone(), decision);
        } else if let Some(object) = self.workloads.get(&decision.uid).cloned() {
            self.say_landed(&decision, &object);
        }
    }

    /// The watch shows a Workload that is newer than what was known: it tells how a decision ended.
    pub(super) fn settle_by_sight(&mut self, uid: &Uid, state: &State, object: &Workload) {
        if let Some(decision) = self.unsettled.remove(uid)
            && shows(&decision.action, state)
        {
            self.say_landed(&decision, object);
        }
    }
}

/// Whether a Workload in this state shows that a decision of which there is something to say has landed.
fn shows(action: &Action, state: &State) -> bool {
    match (action, state) {
        (Action::Admit(admission) | Action::LetStart(admission), State::Holding(reservation)) => {
            *admission == reservation.admission && reservation.admitted_at.is_some()
        }
        (Action::Reserve(admission), State::Holding(reservation)) => *admission == reservation.admission,
        (Action::Evict(reason, None), State::Pending(pending)) if reason.deactivates() => {
            pending.evicted.as_ref().is_some_and(|eviction| eviction.reason == *reason)
        }
        (Action::Evict(reason, preemption), State::Evicting(_, eviction)) => {
            (reason, preemption) == (&eviction.reason, &eviction.preemption)
        }
        (Action::ReportOverdue, State::Evicting(_, eviction)) => eviction.overdue.is_some(),
        (Action::PodsReady(reason), State::Holding(reservation)) => {
            *reason == reservation.pods_ready.as_ref().map(|ready| ready.reason)
        }
        (Action::Release(reason), State::Pending(pending)) => {
            pending.evicted.as_ref().is_some_and(|eviction| eviction.reason == *reason)
        }
        (Action::Requeue(reason), State::Pending(pending)) => {
            pending.requeued.as_ref().is_some_and(|requeued| requeued.reason == *reason)
        }
        _ => false,
    }
}

/// What is left of a Job that should have stopped, and where to look.
fn overdue_message(job: Option<&Job>) -> String {
    let Some(job) = job else {
        return "Pods of a Job that was deleted are still there; the quota counts until they are gone"
            .to_owned();
    };
    let status = job.status.as_ref();
    let active = status.and_then(|status| status.active).unwrap_or(0);
    let terminating = status.and_then(|status| status.terminating).unwrap_or(0);
    if active + terminating == 0 {
        return "The Job has no pods left but the Job controller has not reported that it stopped, so the quota counts; \
                see whether the Job controller runs"
            .to_owned();
    }
    format!(
        "{active} pods still run and {terminating} are terminating; the quota counts until they are gone. Look for nodes \
         that do not answer and for finalizers: kubectl get pods -n {} -l batch.kubernetes.io/job-name={} -o wide",
        job.namespace().unwrap_or_default(),
        job.name_any()
    )
}

fn notes(decision: &Decision, object: &Workload, preemptor: Option<&Workload>) -> Vec<Note> {
    match &decision.action {
        // The Job is told when it starts; a Workload that nobody owns has only itself to ask.
        Action::Admit(_) | Action::LetStart(_) if !object.owner_references().is_empty() => Vec::new(),
        Action::Admit(admission) | Action::LetStart(admission) => {
            let message =
                format!("Admitted by ClusterQueue {} on {}", admission.cluster_queue, flavors_of(admission));
            vec![note(object, EventReason::Admitted.as_str().to_owned(), message)]
        }
        Action::Reserve(admission) => {
            let (queue, flavors) = (&admission.cluster_queue, flavors_of(admission));
            let message = format!("Quota of ClusterQueue {queue} is reserved on {flavors}");
            vec![note(object, EventReason::QuotaReserved.as_str().to_owned(), message)]
        }
        Action::ReportWaiting(PendingReason::AdmissionGated) => {
            let waits = condition(object, ConditionType::QuotaReserved);
            let message = waits.map(|condition| condition.message.clone()).unwrap_or_default();
            vec![note(object, EventReason::AdmissionGated.as_str().to_owned(), message)]
        }
        Action::Evict(reason, preemption) => {
            let mut notes = Vec::new();
            let message = evicted_message(object).unwrap_or_else(|| reason.doc().meaning.to_owned());
            if let Some(preemption) = preemption {
                notes.push(note(object, EvictionReason::Preempted.as_str().to_owned(), message.clone()));
                notes.extend(preemptor.map(|preemptor| displaces(preemptor, object, preemption)));
            }
            if is_rejection(*reason, object) {
                let rejected = EventReason::AdmissionCheckRejected.as_str().to_owned();
                notes.push(Note { warning: true, ..note(object, rejected, message.clone()) });
            }
            notes.push(note(object, format!("EvictedDueTo{reason}"), message));
            notes
        }
        _ => Vec::new(),
    }
}

fn flavors_of(admission: &Admission) -> String {
    admission.flavors().iter().map(|flavor| flavor.as_str()).collect::<Vec<_>>().join(", ")
}

/// What made a Workload give up a flavor that it has at the moment.
fn gave_up(object: &Workload) -> Option<FallbackTrigger> {
    let status = object.status.as_ref()?;
    let assigned = status.admission.as_ref()?.pod_set_assignments.iter().flat_map(|set| set.flavors.values());
    let is_assigned = |flavor: &str| assigned.clone().any(|assigned| assigned == flavor);
    let given_up = status.flavor_assignment_history.iter().filter(|entry| entry.exhausted == Some(true));
    let assigned = given_up.filter(|entry| is_assigned(&entry.resource_flavor));
    FallbackTrigger::leading(assigned.filter_map(|entry| FallbackTrigger::parse(entry.trigger.as_deref()?)))
}

/// Whether a Workload has to leave because an admission check rejected it.
fn is_rejection(reason: EvictionReason, object: &Workload) -> bool {
    reason == EvictionReason::DeactivatedDueToAdmissionCheck
        || reason == EvictionReason::FlavorFallback
            && gave_up(object) == Some(FallbackTrigger::AdmissionCheckRejected)
}

fn condition(object: &Workload, kind: ConditionType) -> Option<&Condition> {
    let conditions = &object.status.as_ref()?.conditions;
    conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

fn changed_at(condition: &Condition) -> Timestamp {
    time::from_api(&condition.last_transition_time)
}

/// When things happened to a Workload. It was queued when it was created, or when it was last queued again.
fn times_of(object: &Workload) -> Times {
    let is_so = |kind| condition(object, kind).filter(|condition| condition.status == "True").map(changed_at);
    let created = object.metadata.creation_timestamp.as_ref().map(time::from_api);
    Times {
        queued: is_so(ConditionType::Requeued).or(created),
        reserved: is_so(ConditionType::QuotaReserved),
        admitted: is_so(ConditionType::Admitted),
        ready: is_so(ConditionType::PodsReady),
    }
}

/// What the pods of a Workload waited for, or whether they did not.
fn readiness_of(object: &Workload) -> Option<ReadinessReason> {
    ReadinessReason::parse(&condition(object, ConditionType::PodsReady)?.reason)
}

/// Since when the pods of a Workload were ready that was told to leave all the same, and when that was.
fn ready_before_eviction(
    object: &Workload,
    readiness: Option<ReadinessReason>,
) -> Option<(Timestamp, Timestamp)> {
    readiness.filter(|reason| reason.is_ready())?;
    let at = |kind| condition(object, kind).map(changed_at);
    at(ConditionType::PodsReady).zip(at(ConditionType::Evicted))
}

/// Whether a Workload has just left its backoff behind: every admission that follows one says so, and no other does.
fn is_back_from_backoff(object: &Workload) -> bool {
    let finished = RequeueReason::BackoffFinished.as_str();
    condition(object, ConditionType::Requeued).is_some_and(|requeued| requeued.reason == finished)
}

/// Whether it was told to leave for this reason and cause only once.
fn is_first_eviction(object: &Workload, reason: EvictionReason, cause: &str) -> bool {
    let stats = object.status.as_ref().and_then(|status| status.scheduling_stats.as_ref());
    stats.is_none_or(|stats| stats.evictions(reason.as_str(), cause) <= 1)
}

/// What the condition says, which names the preemptor.
fn evicted_message(object: &Workload) -> Option<String> {
    let evicted = condition(object, ConditionType::Evicted)?;
    Some(evicted.message.clone()).filter(|message| !message.is_empty())
}

fn displaces(preemptor: &Workload, victim: &Workload, preemption: &Preemption) -> Note {
    let uid = victim.uid().unwrap_or_default();
    let right = preemption.reason.doc().meaning;
    let message = format!("Preempts Workload {} (uid {uid}): {right}", object_name(victim));
    note(preemptor, EventReason::PreemptedWorkload.as_str().to_owned(), message)
}

fn note(object: &Workload, reason: String, message: String) -> Note {
    Note { about: object.object_ref(&()), warning: false, reason, message }
}

#[cfg(test)]
mod tests {
    use gangway_admission::DecisionId;
    use gangway_model::ObjectName;
    use gangway_model::reasons::PreemptionReason;
    use serde_json::json;

    use super::*;

    fn workload(name: &str, message: &str) -> Workload {
        let evicted = json!({"type": "Evicted", "status": "True", "reason": "Preempted", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}")},
            "spec": {"podSets": []}, "status": {"conditions": [evicted]},
        }))
        .unwrap()
    }

    fn evict(reason: EvictionReason, preemption: Option<Preemption>) -> Decision {
        let action = Action::Evict(reason, preemption);
        Decision { id: DecisionId(1), uid: "uid-low".into(), name: ObjectName::new("team", "low"), action }
    }

    #[test]
    fn both_sides_of_a_preemption_are_told() {
        let preemption =
            Preemption { preemptor: Some("uid-high".into()), reason: PreemptionReason::InCohortReclamation };
        let decision = evict(EvictionReason::Preempted, Some(preemption));
        let victim = workload("low", "Preempted for Workload team/high");
        let said = notes(&decision, &victim, Some(&workload("high", "")));
        let said: Vec<_> = said
            .iter()
            .map(|note| (note.about.name.as_deref().unwrap(), note.reason.as_str(), note.message.as_str()))
            .collect();
        let right = PreemptionReason::InCohortReclamation.doc().meaning;
        let displaces = format!("Preempts Workload team/low (uid uid-low): {right}");
        assert_eq!(
            said,
            [
                ("low", "Preempted", "Preempted for Workload team/high"),
                ("high", "PreemptedWorkload", displaces.as_str()),
                ("low", "EvictedDueToPreempted", "Preempted for Workload team/high"),
            ]
        );
    }

    #[test]
    fn any_other_eviction_is_told_once() {
        let said = notes(&evict(EvictionReason::ClusterQueueStopped, None), &workload("low", ""), None);
        let reasons: Vec<&str> = said.iter().map(|note| note.reason.as_str()).collect();
        assert_eq!(reasons, ["EvictedDueToClusterQueueStopped"]);
        assert_eq!(said[0].message, EvictionReason::ClusterQueueStopped.doc().meaning);
    }
}
