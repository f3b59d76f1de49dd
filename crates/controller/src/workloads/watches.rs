//! News from the API: one stream of everything that is watched.

use std::fmt::Debug;

use futures::stream::{BoxStream, SelectAll};
use futures::{StreamExt, stream};
use gangway_api::kueue::{
    AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass,
};
use gangway_api::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::trouble::Waits;

/// Boxed, since a Job is many times as large as a queue.
type Item<K> = Box<Result<watcher::Event<K>, watcher::Error>>;

/// One thing that a watch said.
pub(super) enum News {
    Namespace(Item<Namespace>),
    Flavor(Item<ResourceFlavor>),
    ClusterQueue(Item<ClusterQueue>),
    Cohort(Item<Cohort>),
    LocalQueue(Item<LocalQueue>),
    AdmissionCheck(Item<AdmissionCheck>),
    WorkloadPriorityClass(Item<WorkloadPriorityClass>),
    PriorityClass(Item<PriorityClass>),
    Workload(Item<Workload>),
    Job(Item<Job>),
    /// Pods that a start has marked; only their metadata is wanted.
    Pod(Item<PartialObjectMeta<Pod>>),
}

/// Items that are there already are taken together, so that a burst is decided on once.
const MOST_ITEMS_AT_ONCE: usize = 1024;

/// All watches as one stream.
pub(super) fn watch(client: &Client) -> BoxStream<'static, Vec<News>> {
    let mut all: SelectAll<BoxStream<'static, News>> = stream::SelectAll::new();
    all.push(watch_kind(client, News::Namespace));
    all.push(watch_kind(client, News::Flavor));
    all.push(watch_kind(client, News::ClusterQueue));
    all.push(watch_kind(client, News::Cohort));
    all.push(watch_kind(client, News::LocalQueue));
    all.push(watch_kind(client, News::AdmissionCheck));
    all.push(watch_kind(client, News::WorkloadPriorityClass));
    all.push(watch_kind(client, News::PriorityClass));
    all.push(watch_kind(client, News::Workload));
    all.push(watch_kind(client, News::Job));
    let started = listing().labels(names::POD_SET_LABEL);
    all.push(watch_selected(client, started, News::Pod));
    all.ready_chunks(MOST_ITEMS_AT_ONCE).boxed()
}

/// Lists come in pages, from the store of the API server and not from a cache: what is held of a list at any time is one page, and
/// with every server that there is. Streamed lists would save the server some work, but not every server has them. Watches ask
/// for bookmarks, so that one which is cut goes on where it was although little of its kind has changed.
fn listing() -> watcher::Config {
    const PAGE: u32 = 500;
    watcher::Config::default().page_size(PAGE)
}

fn watch_kind<K>(client: &Client, news: fn(Item<K>) -> News) -> BoxStream<'static, News>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    watch_selected(client, listing(), news)
}

fn watch_selected<K>(
    client: &Client,
    which: watcher::Config,
    news: fn(Item<K>) -> News,
) -> BoxStream<'static, News>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let watch = watcher(Api::<K>::all(client.clone()), which);
    watch.backoff(Waits::default()).map(move |item| news(Box::new(item.map(without_managed_fields)))).boxed()
}

/// Nobody reads managed fields, and they are a good part of an object.
fn without_managed_fields<K: Resource>(event: watcher::Event<K>) -> watcher::Event<K> {
    event.modify(|object| object.meta_mut().managed_fields = None)
}
