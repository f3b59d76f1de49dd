//! Objects with a queue name whose kind is not supported yet: they are told so, never ignored silently.

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use gangway_api::names;
use gangway_model::Uid;
use gangway_model::reasons::EventReason;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, PartialObjectMeta};
use kube::core::DynamicObject;
use kube::discovery::Discovery;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use rustc_hash::FxHashSet;

use super::events::Note;
use crate::index::{Forbidden, Index, Seen, uid_of};
use crate::trouble::{Trouble, Waits};

/// Kinds that other systems queue: group and kind.
const KINDS: [(&str, &str); 17] = [
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
    ("kubeflow.org", "PaddleJob"),
    ("kubeflow.org", "XGBoostJob"),
    ("kubeflow.org", "JAXJob"),
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
    let mut trouble = Trouble::with("asking the API for its kinds");
    let mut waits = Waits::default();
    let discovery = loop {
        match Discovery::new(client.clone()).filter(&groups).run().await {
            Ok(discovery) => break discovery,
            Err(error) => trouble.failed(&error),
        }
        tokio::time::sleep(waits.next().unwrap_or_default()).await;
    };
    trouble.worked();
    let mut found = Vec::new();
    for group in discovery.groups() {
        for (kind, _) in group.recommended_resources() {
            if KINDS.contains(&(kind.group.as_str(), kind.kind.as_str())) {
                found.push(kind);
            }
        }
    }
    // Discovery has them in no order.
    found.sort_by(|one, other| (&one.group, &one.kind).cmp(&(&other.group, &other.kind)));
    found
}

fn watch_kind(client: &Client, kind: ApiResource) -> BoxStream<'static, Note> {
    let api: Api<Metadata> = Api::all_with(client.clone(), &kind);
    let config = watcher::Config::default().labels(names::QUEUE_NAME_LABEL);
    let mut told = Told::new(kind);
    let watch = watcher(api, config).backoff(Waits::default());
    watch.flat_map(move |item| stream::iter(told.take(item))).boxed()
}

type Metadata = PartialObjectMeta<DynamicObject>;

/// The objects of one kind that were told, so that each is told once and not again at every list.
struct Told {
    kind: ApiResource,
    index: Index<Uid>,
    told: FxHashSet<Uid>,
    forbidden: Trouble,
}

impl Told {
    fn new(kind: ApiResource) -> Self {
        const WATCHING: &str = "watching for kinds that are not supported";
        Self {
            kind,
            index: Index::new(WATCHING),
            told: FxHashSet::default(),
            forbidden: Trouble::with(WATCHING),
        }
    }

    /// What is to be said after an item of the watch. Rights that are missing may be given later.
    fn take(&mut self, item: Result<watcher::Event<Metadata>, watcher::Error>) -> Vec<Note> {
        let seen = match self.index.take(item, uid_of) {
            Ok(seen) => seen,
            Err(Forbidden { source, .. }) => {
                self.forbidden.failed(&source);
                return Vec::new();
            }
        };
        let mut notes = Vec::new();
        for seen in seen {
            match seen {
                Seen::Applied(object) => {
                    if let Some(note) = note(&self.kind, &object)
                        && self.told.insert(uid_of(&object))
                    {
                        notes.push(note);
                    }
                }
                Seen::Gone(uid) => {
                    self.told.remove(&uid);
                }
            }
        }
        notes
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

#[cfg(test)]
mod tests {
    use kube::api::PartialObjectMetaExt;
    use kube::core::{GroupVersionKind, ObjectMeta};
    use watcher::Event as Watch;

    use super::*;

    fn object(uid: &str) -> Metadata {
        let metadata = ObjectMeta { uid: Some(uid.to_owned()), ..ObjectMeta::default() };
        metadata.into_response_partial()
    }

    #[test]
    fn the_page_about_kueue_names_every_kind() {
        let page = include_str!("../../../../docs/from-kueue.md");
        for (_, kind) in KINDS {
            assert!(page.contains(kind), "docs/from-kueue.md does not name {kind}");
        }
    }

    #[test]
    fn an_object_is_told_once() {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayJob"));
        let mut told = Told::new(kind);
        assert_eq!(told.take(Ok(Watch::InitApply(object("a")))).len(), 1);
        assert_eq!(told.take(Ok(Watch::InitDone)).len(), 0);
        assert_eq!(told.take(Ok(Watch::Apply(object("a")))).len(), 0, "it only changed");
        told.take(Ok(Watch::Init));
        assert_eq!(told.take(Ok(Watch::InitApply(object("a")))).len(), 0, "listed again");
        assert_eq!(told.take(Ok(Watch::InitApply(object("b")))).len(), 1, "new since the last list");
        told.take(Ok(Watch::InitDone));
        told.take(Ok(Watch::Delete(object("a"))));
        assert_eq!(told.told.len(), 1, "forgotten when it is gone");
    }
}
