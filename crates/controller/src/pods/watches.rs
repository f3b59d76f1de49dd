//! News from the API as events of the scheduler.

use std::hash::Hash;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use gangway_model::{NodeName, ObjectName, Uid};
use gangway_placement::Event;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use super::records::{budget_record, node_record, object_name, pod_record};
use crate::index::{Forbidden, Index, Seen, uid_of};
use crate::trouble::Waits;

/// Items that are there already are taken together, so that a burst is decided on once.
const MOST_ITEMS_AT_ONCE: usize = 1024;

/// One thing that a watch said.
pub(super) enum Item {
    Pod(Box<Result<watcher::Event<Pod>, watcher::Error>>),
    Node(Box<Result<watcher::Event<Node>, watcher::Error>>),
    Budget(Box<Result<watcher::Event<PodDisruptionBudget>, watcher::Error>>),
}

/// All watches as one stream.
pub(super) fn watch(client: &Client) -> BoxStream<'static, Vec<Item>> {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let pods = pods.backoff(Waits::default()).map(|item| Item::Pod(Box::new(item)));
    let nodes = nodes.backoff(Waits::default()).map(|item| Item::Node(Box::new(item)));
    let budgets = watcher(Api::<PodDisruptionBudget>::all(client.clone()), watcher::Config::default());
    let budgets = budgets.backoff(Waits::default()).map(|item| Item::Budget(Box::new(item)));
    stream::select(stream::select(pods, nodes), budgets).ready_chunks(MOST_ITEMS_AT_ONCE).boxed()
}

/// Whether a list is refused and will be until somebody changes the cluster: for lack of rights, or because the kind is not known.
pub(super) fn is_refused<T>(item: &Result<T, watcher::Error>) -> bool {
    let Err(
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)),
    ) = item
    else {
        return false;
    };
    matches!(status.code, 401 | 403 | 404)
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
