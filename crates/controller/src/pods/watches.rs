//! News from the API as events of the scheduler.

use std::collections::BTreeSet;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use gangway_model::{NodeName, Uid};
use gangway_placement::Event;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};

use super::Error;
use super::records::{node_record, pod_record};
use crate::trouble::{Trouble, Waits};

/// Items that are there already are taken together, so that a burst is decided on once.
const MOST_ITEMS_AT_ONCE: usize = 1024;

/// One thing that a watch said.
pub(super) enum Item {
    Pod(Box<Result<watcher::Event<Pod>, watcher::Error>>),
    Node(Box<Result<watcher::Event<Node>, watcher::Error>>),
}

/// Both watches as one stream.
pub(super) fn watch(client: &Client) -> BoxStream<'static, Vec<Item>> {
    let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
    let nodes = watcher(Api::<Node>::all(client.clone()), watcher::Config::default());
    let pods = pods.backoff(Waits::default()).map(|item| Item::Pod(Box::new(item)));
    let nodes = nodes.backoff(Waits::default()).map(|item| Item::Node(Box::new(item)));
    stream::select(pods, nodes).ready_chunks(MOST_ITEMS_AT_ONCE).boxed()
}

/// An object that is watched and what the scheduler is told of it.
pub(super) trait Watched {
    type Key: Ord + Clone;
    fn key(&self) -> Self::Key;
    fn applied(&self) -> Event;
    fn deleted(key: Self::Key) -> Event;
}

impl Watched for Pod {
    type Key = Uid;

    fn key(&self) -> Uid {
        self.metadata.uid.clone().unwrap_or_default().into()
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

/// Which objects of a kind exist, so that one that vanished while nobody watched is noticed.
pub(super) struct Index<W: Watched> {
    known: BTreeSet<W::Key>,
    /// What the list that is being read has shown so far.
    listed: BTreeSet<W::Key>,
    /// Whether a list was read to its end.
    complete: bool,
    trouble: Trouble,
}

impl<W: Watched> Index<W> {
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            known: BTreeSet::new(),
            listed: BTreeSet::new(),
            complete: false,
            trouble: Trouble::with(what),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// What one item of the watch means.
    ///
    /// Errors are waited out, except that a first list which is forbidden is final: nothing that we
    /// do will change it, and whoever started us should know.
    pub(super) fn take(
        &mut self,
        item: Result<watcher::Event<W>, watcher::Error>,
    ) -> Result<Vec<Event>, Error> {
        match item {
            Ok(event) => {
                self.trouble.worked();
                Ok(self.observe(event))
            }
            Err(error) if !self.complete && is_forbidden(&error) => {
                Err(Error::Forbidden { what: self.trouble.what(), source: Box::new(error) })
            }
            Err(error) => {
                self.trouble.failed(&error);
                Ok(Vec::new())
            }
        }
    }

    fn observe(&mut self, event: watcher::Event<W>) -> Vec<Event> {
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                self.listed.insert(object.key());
                vec![object.applied()]
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let gone = self.known.difference(&listed).cloned().map(W::deleted).collect();
                self.known = listed;
                self.complete = true;
                gone
            }
            watcher::Event::Apply(object) => {
                self.known.insert(object.key());
                vec![object.applied()]
            }
            watcher::Event::Delete(object) => {
                self.known.remove(&object.key());
                vec![W::deleted(object.key())]
            }
        }
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    matches!(status.code, 401 | 403)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use watcher::Event as Watch;

    use super::*;

    fn pod(uid: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_owned());
        pod
    }

    fn take(index: &mut Index<Pod>, item: Watch<Pod>) -> Vec<String> {
        let events = index.take(Ok(item)).unwrap();
        let shown = events.into_iter().map(|event| match event {
            Event::PodApplied(pod) => format!("+{}", pod.uid),
            Event::PodDeleted(uid) => format!("-{uid}"),
            other => format!("{other:?}"),
        });
        shown.collect()
    }

    #[test]
    fn what_vanished_between_two_lists_is_noticed() {
        let mut index = Index::new("watching pods");
        assert!(take(&mut index, Watch::Init).is_empty());
        assert_eq!(take(&mut index, Watch::InitApply(pod("a"))), ["+a"]);
        assert_eq!(take(&mut index, Watch::InitApply(pod("b"))), ["+b"]);
        assert!(!index.is_complete());
        assert!(take(&mut index, Watch::InitDone).is_empty());
        assert!(index.is_complete());
        assert_eq!(take(&mut index, Watch::Apply(pod("c"))), ["+c"]);
        assert_eq!(take(&mut index, Watch::Delete(pod("b"))), ["-b"]);
        take(&mut index, Watch::Init);
        take(&mut index, Watch::InitApply(pod("c")));
        assert_eq!(take(&mut index, Watch::InitDone), ["-a"]);
    }

    #[test]
    fn a_list_that_breaks_off_deletes_nothing() {
        let mut index = Index::new("watching pods");
        take(&mut index, Watch::InitApply(pod("a")));
        take(&mut index, Watch::InitDone);
        take(&mut index, Watch::Init);
        take(&mut index, Watch::Init);
        take(&mut index, Watch::InitApply(pod("a")));
        assert!(take(&mut index, Watch::InitDone).is_empty());
    }

    #[test]
    fn only_a_first_list_that_is_forbidden_is_final() {
        let refused = |code| {
            let status = Status { code, ..Status::failure("no", "Forbidden") };
            watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)))
        };
        let mut index = Index::<Pod>::new("watching pods");
        assert!(index.take(Err(refused(503))).is_ok());
        assert!(index.take(Err(refused(403))).is_err());
        take(&mut index, Watch::InitDone);
        assert!(index.take(Err(refused(403))).is_ok());
    }
}
