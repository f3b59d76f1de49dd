//! The loop around the graph.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{AbortHandle, BoxFuture};
use futures::stream::{BoxStream, FuturesUnordered, SelectAll, abortable};
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use rustc_hash::{FxHashMap, FxHashSet};

use super::actions::{self, Found};
use super::graph::{Action, Graph, Node, Uid};
use super::resources::{Metadata, Resource, ResourceKey, Resources};

const MAX_ACTIONS: usize = 64;
const RETRY: Duration = Duration::from_millis(500);
const CRDS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

type WatchEvent = Result<Event<Metadata>, watcher::Error>;
type Change = (Arc<Resource>, WatchEvent);

/// What a task of the collector comes back with.
enum Outcome {
    Discovered(Result<Resources, kube::Error>),
    /// Discovery, or what it waits for, is to be tried again.
    DiscoverAgain,
    Found {
        asked_by: Uid,
        found: Result<Vec<Found>, kube::Error>,
    },
    Done {
        uid: Uid,
        result: Result<(), kube::Error>,
    },
    LookAgain(Uid),
}

/// A watch under way.
struct Watch {
    resource: Arc<Resource>,
    stop: AbortHandle,
    listing: u64,
}

pub(super) struct Collector {
    client: Client,
    graph: Graph,
    resources: Resources,
    watches: FxHashMap<ResourceKey, Watch>,
    changes: SelectAll<BoxStream<'static, Change>>,
    tasks: FuturesUnordered<BoxFuture<'static, Outcome>>,
    queue: VecDeque<Uid>,
    /// Objects with a task under way, and whether they are to be looked at again after it.
    busy: FxHashMap<Uid, bool>,
    /// Owners of kinds that are not served.
    undecidable: FxHashSet<Uid>,
    discovering: bool,
    discover_again: bool,
}

impl Collector {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            graph: Graph::default(),
            resources: Resources::default(),
            watches: FxHashMap::default(),
            changes: SelectAll::new(),
            tasks: FuturesUnordered::new(),
            queue: VecDeque::new(),
            busy: FxHashMap::default(),
            undecidable: FxHashSet::default(),
            discovering: false,
            discover_again: false,
        }
    }

    pub(super) async fn run(mut self) {
        self.discover();
        loop {
            self.start_actions();
            tokio::select! {
                biased;
                Some((resource, event)) = self.changes.next(), if !self.changes.is_empty() => self.on_change(&resource, event),
                Some(outcome) = self.tasks.next(), if !self.tasks.is_empty() => self.on_outcome(outcome),
            }
        }
    }

    /// Finds out which kinds are served, unless that is under way.
    fn discover(&mut self) {
        if self.discovering {
            self.discover_again = true;
            return;
        }
        self.discovering = true;
        let client = self.client.clone();
        self.tasks.push(async move { Outcome::Discovered(Resources::discover(&client).await) }.boxed());
    }

    fn on_change(&mut self, resource: &Arc<Resource>, event: WatchEvent) {
        let key = resource.key();
        let Some(watch) = self.watches.get_mut(&key) else { return };
        let affected = match event {
            Ok(Event::Init) => {
                watch.listing += 1;
                Vec::new()
            }
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                self.graph.apply(resource, object.metadata, watch.listing)
            }
            Ok(Event::Delete(object)) => object.uid().map(|uid| self.graph.remove(&uid)).unwrap_or_default(),
            Ok(Event::InitDone) => self.graph.remove_unlisted(resource, watch.listing),
            Err(error) => {
                tracing::warn!(kind = %resource.api.kind, %error, "a watch for garbage collection was interrupted");
                return;
            }
        };
        if (key.0.as_str(), key.1.as_str()) == CRDS {
            self.discover();
        }
        self.queue.extend(affected);
    }

    fn start_actions(&mut self) {
        while self.busy.len() < MAX_ACTIONS {
            let Some(uid) = self.queue.pop_front() else { return };
            if let Some(again) = self.busy.get_mut(&uid) {
                *again = true;
                continue;
            }
            let action = self.graph.decide(&uid);
            self.start(uid, action);
        }
    }

    fn start(&mut self, uid: Uid, action: Action) {
        let Some(node) = self.graph.node(&uid).cloned() else { return };
        let client = self.client.clone();
        let task_uid = uid.clone();
        let task: BoxFuture<'static, Result<(), kube::Error>> = match action {
            Action::Nothing | Action::Await(_) => return,
            Action::FindOwners(owners) => return self.find_owners(uid, node, owners),
            Action::DropOwners(dropped) => {
                async move { actions::drop_owners(&client, &task_uid, &node, &dropped).await }.boxed()
            }
            Action::Delete(propagation) => {
                async move { actions::delete(&client, &task_uid, &node, propagation).await }.boxed()
            }
            Action::RemoveFinalizer(finalizer) => {
                async move { actions::remove_finalizer(&client, &task_uid, &node, finalizer).await }.boxed()
            }
            Action::OrphanDependents(dependents) => self.orphan(task_uid, dependents),
        };
        self.busy.insert(uid.clone(), false);
        self.tasks.push(async move { Outcome::Done { result: task.await, uid } }.boxed());
    }

    /// Makes dependents forget an owner; the watch shows them again without it, and then the owner goes.
    fn orphan(&self, owner: Uid, dependents: Vec<Uid>) -> BoxFuture<'static, Result<(), kube::Error>> {
        let client = self.client.clone();
        let nodes: Vec<(Uid, Node)> = dependents
            .into_iter()
            .filter_map(|uid| Some((uid.clone(), self.graph.node(&uid)?.clone())))
            .collect();
        async move {
            for (uid, node) in nodes {
                actions::drop_owners(&client, &uid, &node, std::slice::from_ref(&owner)).await?;
            }
            Ok(())
        }
        .boxed()
    }

    fn find_owners(&mut self, uid: Uid, node: Node, owners: Vec<OwnerReference>) {
        let undecided = owners.iter().any(|owner| self.undecidable.contains(&owner.uid));
        if undecided || self.discovering {
            // New kinds lead to another look at everything that has owners.
            return;
        }
        let (client, resources) = (self.client.clone(), self.resources.clone());
        self.busy.insert(uid.clone(), false);
        let task = async move {
            let found = actions::find_owners(&client, &resources, node.namespace.as_deref(), owners).await;
            Outcome::Found { asked_by: uid, found }
        };
        self.tasks.push(task.boxed());
    }

    fn on_outcome(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Discovered(result) => self.on_discovered(result),
            Outcome::DiscoverAgain => self.discover(),
            Outcome::LookAgain(uid) => self.queue.push_back(uid),
            Outcome::Done { uid, result } => self.on_done(uid, result),
            Outcome::Found { asked_by, found } => {
                let result = found.map(|found| found.into_iter().for_each(|owner| self.on_found(owner)));
                // What was found decides what to do now.
                if result.is_ok() {
                    self.busy.insert(asked_by.clone(), true);
                }
                self.on_done(asked_by, result);
            }
        }
    }

    fn on_found(&mut self, owner: Found) {
        match owner {
            Found::Present(uid) => self.graph.note_present(&uid),
            Found::Absent(uid) => self.graph.note_absent(&uid),
            Found::Undecidable(uid) => {
                self.undecidable.insert(uid);
            }
        }
    }

    fn on_done(&mut self, uid: Uid, result: Result<(), kube::Error>) {
        let again = self.busy.remove(&uid).unwrap_or(false);
        if let Err(error) = result {
            tracing::warn!(%uid, %error, "an object could not be collected");
            self.after_pause(Outcome::LookAgain(uid));
        } else if again {
            self.queue.push_back(uid);
        }
    }

    fn after_pause(&mut self, outcome: Outcome) {
        let task = async move {
            tokio::time::sleep(RETRY).await;
            outcome
        };
        self.tasks.push(task.boxed());
    }

    fn on_discovered(&mut self, result: Result<Resources, kube::Error>) {
        self.discovering = false;
        match result {
            Ok(resources) => self.adopt(resources),
            Err(error) => {
                tracing::warn!(%error, "the served kinds could not be found out");
                self.after_pause(Outcome::DiscoverAgain);
            }
        }
        if std::mem::take(&mut self.discover_again) {
            self.discover();
        }
    }

    /// Watches new kinds and stops watching those that are not served any more.
    fn adopt(&mut self, resources: Resources) {
        let vanished: Vec<ResourceKey> =
            self.watches.keys().filter(|key| !resources.contains(key)).cloned().collect();
        for watch in vanished.iter().filter_map(|key| self.watches.remove(key)) {
            watch.stop.abort();
            let affected = self.graph.remove_unlisted(&watch.resource, u64::MAX);
            self.queue.extend(affected);
        }
        for (key, resource) in resources.iter() {
            if !self.watches.contains_key(key) {
                self.watches.insert(key.clone(), watch(&self.client, resource, &mut self.changes));
            }
        }
        self.resources = resources;
        self.undecidable.clear();
        self.queue.extend(self.graph.owned());
    }
}

fn watch(
    client: &Client,
    resource: &Arc<Resource>,
    changes: &mut SelectAll<BoxStream<'static, Change>>,
) -> Watch {
    let api = resource.api_in(client, None);
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let source = resource.clone();
    let (events, stop) = abortable(events.map(move |event| (source.clone(), event)));
    changes.push(events.boxed());
    Watch { resource: resource.clone(), stop, listing: 0 }
}
