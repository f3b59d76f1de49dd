//! What is said and counted when a decision has landed: to the Workload, and to the one that it was preempted for.
//!
//! It is said once. Where the answer to a write was lost, what the watch shows next tells whether it landed.

use gangway_admission::{Action, Decision};
use gangway_api::kueue::Workload;
use gangway_model::Uid;
use gangway_model::conditions::ConditionType;
use gangway_model::reasons::{EventReason, EvictionReason, ReadinessReason};
use gangway_model::workload::{Preemption, State};
use k8s_openapi::api::batch::v1::Job;
use kube::{Resource, ResourceExt};
use rustc_hash::FxHashMap;

use super::events::Note;
use super::shell::{Shell, object_name};

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
            _ => {}
        }
        for note in notes(decision, object, preemptor.as_deref()) {
            self.note(note);
        }
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

    fn count_eviction(
        &self,
        reason: EvictionReason,
        victim: &Workload,
        preemption: Option<&Preemption>,
        preemptor: Option<&Workload>,
    ) {
        let admission = victim.status.as_ref().and_then(|status| status.admission.as_ref());
        let from = admission.map(|admission| admission.cluster_queue.as_str()).unwrap_or_default();
        let waited_for = readiness_of(victim);
        self.counts.evicted(from.into(), reason, waited_for);
        let Some(preemption) = preemption else { return };
        let preempting = preemptor.and_then(|preemptor| {
            let queue = preemptor.spec.queue_name.as_deref()?;
            let queue = self.local_queues.named(&preemptor.namespace().unwrap_or_default(), queue)?;
            queue.spec.cluster_queue.as_deref()
        });
        self.counts.preempted(preempting.unwrap_or_default().into(), preemption.reason);
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
        (Action::Admit(admission), State::Holding(reservation)) => *admission == reservation.admission,
        (Action::Evict(reason, preemption), State::Evicting(_, eviction)) => {
            (reason, preemption) == (&eviction.reason, &eviction.preemption)
        }
        (Action::ReportOverdue, State::Evicting(_, eviction)) => eviction.overdue.is_some(),
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
        Action::Admit(_) if !object.owner_references().is_empty() => Vec::new(),
        Action::Admit(admission) => {
            let flavors: Vec<&str> = admission.flavors().iter().map(|flavor| flavor.as_str()).collect();
            let message =
                format!("Admitted by ClusterQueue {} on {}", admission.cluster_queue, flavors.join(", "));
            vec![note(object, EventReason::Admitted.as_str().to_owned(), message)]
        }
        Action::Evict(reason, preemption) => {
            let mut notes = Vec::new();
            let message = evicted_message(object).unwrap_or_else(|| reason.doc().meaning.to_owned());
            if let Some(preemption) = preemption {
                notes.push(note(object, EvictionReason::Preempted.as_str().to_owned(), message.clone()));
                notes.extend(preemptor.map(|preemptor| displaces(preemptor, object, preemption)));
            }
            notes.push(note(object, format!("EvictedDueTo{reason}"), message));
            notes
        }
        _ => Vec::new(),
    }
}

/// What the pods of a Workload waited for, or whether they did not.
fn readiness_of(object: &Workload) -> Option<ReadinessReason> {
    let conditions = &object.status.as_ref()?.conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == ConditionType::PodsReady.as_str())?;
    ReadinessReason::parse(&ready.reason)
}

/// What the condition says, which names the preemptor.
fn evicted_message(object: &Workload) -> Option<String> {
    let conditions = &object.status.as_ref()?.conditions;
    let evicted = conditions.iter().find(|condition| condition.type_ == ConditionType::Evicted.as_str())?;
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
