//! Settings that an object asks for and that have no effect yet: the object is told, never ignored silently.

use gangway_api::records::Invalid;
use gangway_model::reasons::EventReason;
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
        let paths: Vec<&str> = settings.iter().map(|setting| setting.path.as_str()).collect();
        if paths.is_empty() {
            return;
        }
        let message = format!("Not supported yet and without effect: {}", paths.join(", "));
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
