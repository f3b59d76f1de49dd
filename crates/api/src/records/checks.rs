//! Admission checks, and what they say of a Workload.

use gangway_model::Timestamp;
use gangway_model::checks::{AdmissionCheck, CheckAnswer, CheckAnswers};
use gangway_model::reasons::CheckState;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{kueue, names, time};

/// An AdmissionCheck. Those that people answer by hand need no controller that says it is there.
pub fn admission_check(object: &kueue::AdmissionCheck) -> AdmissionCheck {
    let conditions = object.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let says_so =
        conditions.iter().any(|condition| condition.type_ == "Active" && condition.status == "True");
    // Who answered those has gone with the installation that was taken over, whatever it said last.
    let is_orphaned = names::REFERENCE_CHECK_CONTROLLERS.contains(&object.spec.controller_name.as_str());
    let active = says_so && !is_orphaned || object.spec.controller_name == names::MANUAL_CHECK_CONTROLLER;
    AdmissionCheck { name: object.name_any().into(), active }
}

/// What checks say of a Workload. A word that nobody knows is no answer.
pub(super) fn answers(status: &kueue::WorkloadStatus) -> CheckAnswers {
    let answer = |entry: &kueue::AdmissionCheckState| CheckAnswer {
        name: entry.name.as_str().into(),
        state: CheckState::parse(&entry.state).unwrap_or(CheckState::Pending),
        message: entry.message.clone(),
        at: entry.last_transition_time.as_ref().map_or(Timestamp::EPOCH, time::from_api),
        requeue_after_seconds: entry.requeue_after_seconds.map(i64::from),
        retry_count: entry.retry_count.and_then(|count| u32::try_from(count).ok()),
    };
    CheckAnswers(status.admission_checks.iter().map(answer).collect())
}

/// The list of a Workload's checks as it is to be; none if it is so already. What a check wants changed in the pods stays as
/// long as its answer does.
pub(super) fn list(wanted: Option<&CheckAnswers>, current: Option<&kueue::WorkloadStatus>) -> Option<Value> {
    let known = current.map(answers).unwrap_or_default().noted().map(|known| *known).unwrap_or_default();
    let wanted = wanted.cloned().unwrap_or_default();
    if known == wanted {
        return None;
    }
    let written = current.map(|status| status.admission_checks.as_slice()).unwrap_or_default();
    let entry = |answer: &CheckAnswer| {
        let as_it_is = written.iter().find(|entry| answer.name.as_str() == entry.name);
        match as_it_is.filter(|_| known.find(&answer.name) == Some(answer)) {
            Some(entry) => json!(entry),
            None => json!(kueue::AdmissionCheckState {
                name: answer.name.to_string(),
                state: answer.state.as_str().to_owned(),
                last_transition_time: Some(time::to_api(answer.at)),
                message: answer.message.clone(),
                requeue_after_seconds: answer.requeue_after_seconds.and_then(|s| i32::try_from(s).ok()),
                retry_count: answer.retry_count.and_then(|count| i32::try_from(count).ok()),
                pod_set_updates: None,
            }),
        }
    };
    Some(wanted.0.iter().map(entry).collect())
}
