//! Conditions of a Job's status.

use gangway_model::Timestamp;
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};

use super::view::to_time;

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    success: bool,
    pub reason: String,
    pub message: String,
}

impl Outcome {
    pub(super) fn success() -> Self {
        let message = "Reached expected number of succeeded pods".to_owned();
        Self { success: true, reason: "CompletionsReached".to_owned(), message }
    }

    pub(super) fn failure(reason: &str, message: &str) -> Self {
        Self { success: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    pub(super) fn is_failure(&self) -> bool {
        !self.success
    }

    /// The condition that announces the outcome, and the one that makes it final.
    pub(super) fn condition_types(&self) -> (&'static str, &'static str) {
        if self.success { ("SuccessCriteriaMet", "Complete") } else { ("FailureTarget", "Failed") }
    }
}

/// The outcome that an earlier step announced.
pub(super) fn recorded_outcome(status: &JobStatus) -> Option<Outcome> {
    let announced = |kind| find(status, kind).filter(|condition| condition.status == "True");
    let (success, condition) = match announced("SuccessCriteriaMet") {
        Some(condition) => (true, condition),
        None => (false, announced("FailureTarget")?),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(Outcome { success, reason: text(&condition.reason), message: text(&condition.message) })
}

pub(super) fn has_condition(status: &JobStatus, kind: &str) -> bool {
    find(status, kind).is_some_and(|condition| condition.status == "True")
}

fn find<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind)
}

/// Sets a condition; says whether that changed anything. What is False anyway is not added.
pub(super) fn set_condition(
    status: &mut JobStatus,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> bool {
    let condition = JobCondition {
        type_: kind.to_owned(),
        status: value.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(to_time(now)),
        last_transition_time: Some(to_time(now)),
    };
    let conditions = status.conditions.get_or_insert_default();
    let changed = match conditions.iter_mut().find(|condition| condition.type_ == kind) {
        Some(old) => {
            let changed = (&old.status, &old.reason, &old.message)
                != (&condition.status, &condition.reason, &condition.message);
            if changed {
                *old = condition;
            }
            changed
        }
        None if value == "False" => false,
        None => {
            conditions.push(condition);
            true
        }
    };
    if conditions.is_empty() {
        status.conditions = None;
    }
    changed
}
