//! Events about Jobs.

use gangway_model::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client, Resource, ResourceExt};

use super::plan::Note;
use super::view::to_time;

const COMPONENT: &str = "job-controller";

/// Writes one Event about a Job; a lost Event is logged and not missed otherwise.
pub(super) async fn post(client: Client, job: &Job, note: Note, now: Timestamp) {
    let namespace = job.namespace().unwrap_or_default();
    let event = Event {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}.", job.name_any())),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        involved_object: job.object_ref(&()),
        type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(note.reason),
        message: Some(note.message),
        first_timestamp: Some(to_time(now)),
        last_timestamp: Some(to_time(now)),
        count: Some(1),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        ..Event::default()
    };
    let api: Api<Event> = Api::namespaced(client, &namespace);
    if let Err(error) = api.create(&PostParams::default(), &event).await {
        tracing::debug!(job = %job.name_any(), %error, "an Event about a Job could not be written");
    }
}
