//! News from the API as events of the scheduler.

use std::hash::Hash;

use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use gangway_model::{NodeName, ObjectName, Uid};
use gangway_placement::{Event, FamilyKind};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use super::records::{
    FamilyObject, budget_record, family_record, family_resource, node_record, object_name, pod_record,
};
use crate::index::{Forbidden, Index, Seen, uid_of};
use crate::trouble::Waits;

/// Items that are there already are taken together, so that a burst is decided on once.
const MOST_ITEMS_AT_ONCE: usize = 1024;

/// One thing that a watch said.
pub(super) enum Item {
    Pod(Box<Result<watcher::Event<Pod>, watcher::Error>>),
    Node(Box<Result<watcher::Event<Node>, watcher::Error>>),
    Budget(Box<Result<watcher::Event<PodDisruptionBudget>, watcher::Error>>),
    Family(FamilyKind, Box<Result<watcher::Event<FamilyObject>, watcher::Error>>),
}

/// All watches as one stream; those of families only where somebody asks for them.
pub(super) fn watch(client: &Client, with_families: bool) -> BoxStream<'static, Vec<Item>> {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let pods = pods.backoff(Waits::default()).map(|item| Item::Pod(Box::new(item)));
    let nodes = nodes.backoff(Waits::default()).map(|item| Item::Node(Box::new(item)));
    let budgets = watcher(Api::<PodDisruptionBudget>::all(client.clone()), watcher::Config::default());
    let budgets = budgets.backoff(Waits::default()).map(|item| Item::Budget(Box::new(item)));
    let families = FamilyKind::ALL.into_iter().filter(|_| with_families);
    let families = stream::select_all(families.map(|kind| watch_family(client, kind)));
    let others = stream::select(budgets, families);
    stream::select(stream::select(pods, nodes), others).ready_chunks(MOST_ITEMS_AT_ONCE).boxed()
}

/// A server that does not know the kind is not asked again.
fn watch_family(client: &Client, kind: FamilyKind) -> BoxStream<'static, Item> {
    let objects = Api::<FamilyObject>::all_with(client.clone(), &family_resource(kind));
    let items = watcher(objects, watcher::Config::default()).backoff(Waits::default());
    let until_unknown = items.scan(false, |is_over, item| {
        let item = (!*is_over).then_some(item);
        *is_over = item.as_ref().is_some_and(|item| refused_with(item) == Some(404));
        ready(item)
    });
    until_unknown.map(move |item| Item::Family(kind, Box::new(item))).boxed()
}

/// Whether a list is refused and will be until somebody changes the cluster: for lack of rights, or because the kind is not known.
pub(super) fn is_refused<T>(item: &Result<T, watcher::Error>) -> bool {
    matches!(refused_with(item), Some(401 | 403 | 404))
}

/// What the server answers to a list or a watch that it does not give.
fn refused_with<T>(item: &Result<T, watcher::Error>) -> Option<u16> {
    match item {
        Err(
            watcher::Error::InitialListFailed(kube::Error::Api(status))
            | watcher::Error::WatchStartFailed(kube::Error::Api(status)),
        ) => Some(status.code),
        _ => None,
    }
}

/// An object that is watched and what the scheduler is told of it.
pub(super) trait Watched {
    type Key: Ord + Hash + Clone;
    fn key(&self) -> Self::Key;
    fn applied(&self) -> Event;
    fn deleted(key: Self::Key) -> Event;
}

impl Watched for Pod {
    type Key = Uid;

    fn key(&self) -> Uid {
        uid_of(self)
    }

    fn applied(&self) -> Event {
        Event::PodApplied(pod_record(self))
    }

    fn deleted(uid: Uid) -> Event {
        Event::PodDeleted(uid)
    }
}

impl Watched for Node {
    type Key = NodeName;

    fn key(&self) -> NodeName {
        self.metadata.name.clone().unwrap_or_default().into()
    }

    fn applied(&self) -> Event {
        Event::NodeApplied(node_record(self))
    }

    fn deleted(name: NodeName) -> Event {
        Event::NodeDeleted(name)
    }
}

impl Watched for PodDisruptionBudget {
    type Key = ObjectName;

    fn key(&self) -> ObjectName {
        object_name(&self.metadata)
    }

    fn applied(&self) -> Event {
        Event::BudgetApplied(budget_record(self))
    }

    fn deleted(name: ObjectName) -> Event {
        Event::BudgetDeleted(name)
    }
}

/// The watch of one kind of families.
pub(super) struct FamilyWatch {
    pub(super) kind: FamilyKind,
    index: Index<ObjectName>,
    /// They may not be listed, or there is no such kind: then they spread nobody.
    is_given_up: bool,
}

impl FamilyWatch {
    pub(super) fn new(kind: FamilyKind) -> Self {
        let index = Index::new("watching what tells which pods belong together");
        Self { kind, index, is_given_up: false }
    }

    /// Whether all that can be known of them is known.
    pub(super) fn is_settled(&self) -> bool {
        self.is_given_up || self.index.is_complete()
    }

    /// What one item tells the scheduler. That they cannot be listed is said once; what the watch brings later counts from then on.
    pub(super) fn take(
        &mut self,
        item: Result<watcher::Event<FamilyObject>, watcher::Error>,
    ) -> Result<Vec<Event>, Forbidden> {
        let kind = self.kind;
        if !self.index.is_complete() && is_refused(&item) {
            if !self.is_given_up && refused_with(&item) != Some(404) {
                let plural = family_resource(kind).plural;
                tracing::warn!("{plural} cannot be listed: pods that do not say how are not spread by them");
            }
            self.is_given_up = true;
            return Ok(Vec::new());
        }
        let seen = self.index.take(item, |object| object_name(&object.metadata))?;
        let events = seen.into_iter().map(|seen| match seen {
            Seen::Applied(object) => Event::FamilyApplied(family_record(kind, &object)),
            Seen::Gone(name) => Event::FamilyDeleted(kind, name),
        });
        Ok(events.collect())
    }
}

/// What one item of a watch tells the scheduler.
pub(super) fn events<W: Watched>(
    index: &mut Index<W::Key>,
    item: Result<watcher::Event<W>, watcher::Error>,
) -> Result<Vec<Event>, Forbidden> {
    let seen = index.take(item, W::key)?;
    let events = seen.into_iter().map(|seen| match seen {
        Seen::Applied(object) => object.applied(),
        Seen::Gone(key) => W::deleted(key),
    });
    Ok(events.collect())
}
