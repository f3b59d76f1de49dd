//! Settings that an object asks for and that have no effect yet: the object is told, never ignored silently.

use gangway_admission::TooLong;
use gangway_api::names;
use gangway_api::records::Invalid;
use gangway_model::reasons::{EventReason, ReadinessReason};
use gangway_model::workload::Workload;
use kube::Resource;

use super::events::Note;
use super::shell::Shell;
use crate::index::uid_of;

impl Shell {
    /// Tells an object once which of its settings have no effect.
    pub(super) fn say_unsupported<K: Resource<DynamicType = ()>>(
        &mut self,
        object: &K,
        settings: &[Invalid],
    ) {
        self.say_without_effect(object, settings, &[]);
    }

    /// Timeouts that a Workload asks for and that its queue does not allow.
    pub(super) fn timeouts_too_long(&self, workload: &Workload) -> Vec<Invalid> {
        let told = |too_long: TooLong| {
            let TooLong { reason, asked_seconds, allowed_seconds } = too_long;
            let annotation = match reason {
                ReadinessReason::WaitForRecovery => names::PODS_READY_RECOVERY_TIMEOUT_ANNOTATION,
                _ => names::PODS_READY_TIMEOUT_ANNOTATION,
            };
            let asked = match asked_seconds {
                0 => "no limit".to_owned(),
                seconds => format!("{seconds} s"),
            };
            Invalid {
                object: format!("Workload/{}", workload.name),
                path: format!("metadata.annotations[{annotation}]"),
                message: format!("asks for {asked}, and the queue allows {allowed_seconds} s, which hold"),
            }
        };
        self.engine.timeouts_too_long(workload).into_iter().map(told).collect()
    }

    /// The same for an object that has no condition to say what is wrong with it.
    pub(super) fn say_without_effect<K: Resource<DynamicType = ()>>(
        &mut self,
        object: &K,
        settings: &[Invalid],
        problems: &[Invalid],
    ) {
        let Some(message) = without_effect(settings, problems) else { return };
        if self.warned.insert(uid_of(object), message.clone()).as_ref() == Some(&message) {
            return;
        }
        let about = object.object_ref(&());
        self.note(Note {
            about,
            warning: true,
            reason: EventReason::UnsupportedSetting.as_str().to_owned(),
            message,
        });
    }
}

fn without_effect(settings: &[Invalid], problems: &[Invalid]) -> Option<String> {
    let paths: Vec<&str> = settings.iter().map(|setting| setting.path.as_str()).collect();
    let wrong: Vec<String> =
        problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
    let mut sentences = Vec::new();
    if !paths.is_empty() {
        sentences.push(format!("Not supported yet and without effect: {}", paths.join(", ")));
    }
    if !wrong.is_empty() {
        sentences.push(format!("Cannot be used as it is: {}", wrong.join("; ")));
    }
    (!sentences.is_empty()).then(|| sentences.join(". "))
}
