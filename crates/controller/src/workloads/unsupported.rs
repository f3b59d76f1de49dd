//! Objects with a queue name whose kind is not supported yet: they are told so, never ignored silently.

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use gangway_api::names;
use gangway_model::reasons::EventReason;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, PartialObjectMeta};
use kube::core::DynamicObject;
use kube::discovery::Discovery;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use super::events::Note;
use crate::trouble::Waits;

/// Kinds that other systems queue: group and kind.
const KINDS: [(&str, &str); 14] = [
    ("", "Pod"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("jobset.x-k8s.io", "JobSet"),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("ray.io", "RayJob"),
    ("ray.io", "RayCluster"),
    ("ray.io", "RayService"),
    ("kubeflow.org", "MPIJob"),
    ("kubeflow.org", "PyTorchJob"),
    ("kubeflow.org", "TFJob"),
    ("trainer.kubeflow.org", "TrainJob"),
    ("workload.codeflare.dev", "AppWrapper"),
    ("sparkoperator.k8s.io", "SparkApplication"),
];

/// What to say to objects of kinds that are not supported, for the kinds that the API serves.
pub(super) fn watch(client: &Client) -> BoxStream<'static, Note> {
    let client = client.clone();
    stream::once(
        async move { served(&client).await.into_iter().map(|kind| watch_kind(&client, kind)).collect() },
    )
    .flat_map(|watches: SelectAll<BoxStream<'static, Note>>| watches)
    .boxed()
}

async fn served(client: &Client) -> Vec<ApiResource> {
    let mut groups: Vec<&str> = KINDS.iter().map(|(group, _)| *group).collect();
    groups.dedup();
    let discovery = match Discovery::new(client.clone()).filter(&groups).run().await {
        Ok(discovery) => discovery,
        Err(error) => {
            tracing::warn!(%error, "cannot ask the API for its kinds; unsupported kinds with a queue name are not told");
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (kind, _) in group.recommended_resources() {
            if KINDS.contains(&(kind.group.as_str(), kind.kind.as_str())) {
                found.push(kind);
            }
        }
    }
    found
}

fn watch_kind(client: &Client, kind: ApiResource) -> BoxStream<'static, Note> {
    let api: Api<Metadata> = Api::all_with(client.clone(), &kind);
    let config = watcher::Config::default().labels(names::QUEUE_NAME_LABEL);
    watcher(api, config)
        .backoff(Waits::default())
        .filter_map(move |event| {
            let note = event.ok().and_then(applied).and_then(|object| note(&kind, &object));
            std::future::ready(note)
        })
        .boxed()
}

type Metadata = PartialObjectMeta<DynamicObject>;

fn applied(event: watcher::Event<Metadata>) -> Option<Metadata> {
    match event {
        watcher::Event::InitApply(object) => Some(object),
        // Told when it appears, not at each change: an object of generation 1 has just been created.
        watcher::Event::Apply(object) if object.metadata.generation.unwrap_or(1) == 1 => Some(object),
        _ => None,
    }
}

/// Pods of a Job carry its labels; only pods that nobody owns queue for themselves.
fn note(kind: &ApiResource, object: &Metadata) -> Option<Note> {
    if object.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty()) {
        return None;
    }
    Some(Note {
        about: ObjectReference {
            api_version: Some(kind.api_version.clone()),
            kind: Some(kind.kind.clone()),
            name: object.metadata.name.clone(),
            namespace: object.namespace(),
            uid: object.uid(),
            ..ObjectReference::default()
        },
        warning: true,
        reason: EventReason::UnsupportedKind.as_str().to_owned(),
        message: format!(
            "{} with a queue name are not supported yet: this one is not queued; use a batch/v1 Job",
            kind.kind
        ),
    })
}
