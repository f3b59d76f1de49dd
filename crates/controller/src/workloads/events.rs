//! Events: what happened, for people who ask the object.

use gangway_api::{names, time};
use gangway_model::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The longest message that an Event may have.
const MESSAGE_LIMIT: usize = 1024;

/// Something to say about an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Note {
    pub(super) about: ObjectReference,
    /// Whether somebody should look at it.
    pub(super) warning: bool,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Note {
    /// The Event, named after the object, the time and a number of its own.
    pub(super) fn event(&self, now: Timestamp, number: u64) -> Event {
        let mut message = self.message.clone();
        if message.len() > MESSAGE_LIMIT {
            let end = (0..=MESSAGE_LIMIT).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
            message.truncate(end);
        }
        let object = self.about.name.clone().unwrap_or_default();
        let stamp = now.as_nanos().wrapping_add_unsigned(number);
        // The suffix takes 17 of the 253 characters that a name may have.
        let name: String = object.chars().take(236).collect();
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{stamp:016x}")),
                namespace: Some(self.about.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: self.about.clone(),
            type_: Some(if self.warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(self.reason.clone()),
            action: Some(self.reason.clone()),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(time::to_api(now)),
            last_timestamp: Some(time::to_api(now)),
            event_time: Some(time::to_api_micro(now)),
            reporting_component: Some(names::FIELD_MANAGER.to_owned()),
            reporting_instance: Some(names::FIELD_MANAGER.to_owned()),
            source: Some(EventSource { component: Some(names::FIELD_MANAGER.to_owned()), host: None }),
            ..Event::default()
        }
    }
}
