//! Nodes and pods of a benchmark on a cluster, and when pods were seen to be bound.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::commands::api_failure;
use crate::exit::Failure;

/// Names of everything that is made; also a label of the nodes.
const NAME: &str = "gangway-bench-pods";
/// The label of nodes for pods that find no room before.
const ROOM: &str = "gangway-bench-pods/room";
/// Requests at a time.
const IN_FLIGHT: usize = 64;
/// How long nothing may happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long nodes have until a control plane has taken notice of them.
const NODES_PATIENCE: Duration = Duration::from_secs(60);
/// Between looks at what has to go.
const LOOK: Duration = Duration::from_millis(500);

/// Nodes on which nothing runs, and pods that nobody starts.
pub struct Field {
    client: Client,
    nodes: usize,
    shapes: usize,
}

impl Field {
    pub fn new(client: Client, nodes: usize, shapes: usize) -> Self {
        Self { client, nodes, shapes }
    }

    pub fn nodes(&self) -> usize {
        self.nodes
    }

    fn all_nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAME)
    }

    /// Makes the nodes, and returns when pods may go to all of them.
    pub async fn prepare(&self) -> Result<(), Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = object(json!({"metadata": {"name": NAME}}))?;
        namespaces.create(&PostParams::default(), &namespace).await.map_err(|error| {
            api_failure("create the namespace of the benchmark; was one left behind?", &error)
        })?;
        self.create(self.all_nodes(), (0..self.nodes).map(node), "create the nodes of the benchmark").await?;
        let began = Instant::now();
        while self.tainted().await? > 0 {
            if began.elapsed() > NODES_PATIENCE {
                return Err(Failure::bad_input("the nodes of the benchmark keep their taints").try_this(
                    "let a controller manager run beside the API server: it takes `not-ready` from nodes that are",
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    async fn tainted(&self) -> Result<usize, Failure> {
        let own = ListParams::default().labels(NAME);
        let nodes = self.all_nodes().list(&own).await.map_err(|error| api_failure("list nodes", &error))?;
        let is_tainted = |node: &&Node| node.spec.as_ref().is_some_and(|spec| spec.taints.is_some());
        Ok(nodes.iter().filter(is_tainted).count())
    }

    async fn create<K>(
        &self,
        api: Api<K>,
        objects: impl Iterator<Item = Value>,
        what: &str,
    ) -> Result<(), Failure>
    where
        K: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
    {
        let (api, options) = (&api, &PostParams::default());
        let create = |value: Value| async move {
            let created = api.create(options, &object::<K>(value)?).await;
            created.map(|_| ()).map_err(|error| api_failure(what, &error))
        };
        stream::iter(objects).map(create).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    /// Makes pods that ask for a scheduler; those that wait for room go to no node before [`Field::open_room`].
    pub async fn create_pods(
        &self,
        scheduler_name: &str,
        count: usize,
        wait_for_room: bool,
    ) -> Result<(), Failure> {
        let pods = (0..count).map(|number| pod(number, self.shapes, scheduler_name, wait_for_room));
        self.create(self.pods(), pods, "create the pods of the benchmark").await
    }

    /// Lets pods that wait for room go to all nodes, or to none.
    pub async fn open_room(&self, is_open: bool) -> Result<(), Failure> {
        let value = if is_open { json!("yes") } else { Value::Null };
        let label = &Patch::Merge(json!({"metadata": {"labels": {ROOM: value}}}));
        let (api, options) = (&self.all_nodes(), &PatchParams::default());
        let open = |number: usize| async move {
            let patched = api.patch_metadata(&node_name(number), options, label).await;
            patched.map(|_| ()).map_err(|error| api_failure("label the nodes of the benchmark", &error))
        };
        stream::iter(0..self.nodes).map(open).buffer_unordered(IN_FLIGHT).try_collect().await
    }

    /// Begins to watch the pods.
    pub fn watch(&self) -> Watch {
        Watch { pods: self.pods() }
    }

    /// Deletes the pods as a kubelet would, and returns when they are gone.
    pub async fn remove_pods(&self) -> Result<(), Failure> {
        let (pods, at_once) = (self.pods(), DeleteParams::default().grace_period(0));
        loop {
            let some = ListParams::default().limit(1);
            let left = pods.list_metadata(&some).await.map_err(|error| api_failure("list pods", &error))?;
            if left.items.is_empty() {
                return Ok(());
            }
            pods.delete_collection(&at_once, &ListParams::default())
                .await
                .map_err(|error| api_failure("delete the pods of the benchmark", &error))?;
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Removes what was made, as far as that goes: a benchmark that was measured is not spoilt by its remains.
    pub async fn remove(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let at_once = DeleteParams::default().grace_period(0);
        let failures = [
            self.pods().delete_collection(&at_once, &ListParams::default()).await.err(),
            self.all_nodes()
                .delete_collection(&DeleteParams::default(), &ListParams::default().labels(NAME))
                .await
                .err(),
            namespaces.delete(NAME, &DeleteParams::default()).await.err(),
        ];
        for error in failures.into_iter().flatten() {
            tracing::warn!(%error, "something of the benchmark was left behind");
        }
    }
}

fn object<K: DeserializeOwned>(value: Value) -> Result<K, Failure> {
    serde_json::from_value(value)
        .map_err(|error| Failure::broken(format!("an object of the benchmark: {error}")))
}

fn node_name(number: usize) -> String {
    format!("{NAME}-{number:05}")
}

/// The default node of the reference's own benchmark, in one of ten zones.
fn node(number: usize) -> Value {
    let name = node_name(number);
    let amounts = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
    json!({
        "metadata": {
            "name": name,
            "labels": {
                NAME: "yes",
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": format!("zone-{}", number % 10),
            },
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": ""}],
        },
    })
}

/// A pod of one of the shapes: from 100m CPU on.
fn pod(number: usize, shapes: usize, scheduler_name: &str, wait_for_room: bool) -> Value {
    let shape = number % shapes;
    let requests = json!({"cpu": format!("{}m", 100 + shape % 20), "memory": format!("{}Mi", 100 + shape)});
    let mut pod = json!({
        "metadata": {"name": format!("pod-{number:06}")},
        "spec": {
            "schedulerName": scheduler_name,
            "automountServiceAccountToken": false,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": requests}}],
        },
    });
    if wait_for_room {
        pod["spec"]["nodeSelector"] = json!({ROOM: "yes"});
    }
    pod
}

/// When pods were seen to have come as far as was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub first: Instant,
    pub last: Instant,
    pub count: usize,
}

impl Seen {
    /// How many per second, from the first to the last.
    pub fn rate(&self) -> f64 {
        (self.count.saturating_sub(1)) as f64 / self.last.duration_since(self.first).as_secs_f64().max(1e-9)
    }

    /// Nanoseconds until the last.
    pub fn last_after(&self, began: Instant) -> f64 {
        self.last.duration_since(began).as_nanos() as f64
    }
}

/// A watch of the pods.
pub struct Watch {
    pods: Api<Pod>,
}

impl Watch {
    /// Waits until so many pods have nodes.
    pub async fn all_bound(self, count: usize) -> Result<Seen, Failure> {
        self.all(count, |pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())).await
    }

    /// Waits until so many pods were told that there is no room.
    pub async fn all_refused(self, count: usize) -> Result<Seen, Failure> {
        self.all(count, |pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|one| one.reason.as_deref() == Some("Unschedulable"))
        })
        .await
    }

    /// Watches on a thread of its own, so that nothing else delays it.
    async fn all(self, count: usize, reached: fn(&Pod) -> bool) -> Result<Seen, Failure> {
        let failed = |error| Failure::bad_input(format!("cannot start the watcher: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (send, ended) = oneshot::channel();
        let watcher = std::thread::Builder::new().name("watcher".to_owned());
        watcher
            .spawn(move || {
                // Nobody listens any more if the benchmark was given up.
                let _ = send.send(runtime.block_on(until(self.pods, count, reached)));
            })
            .map_err(failed)?;
        ended.await.unwrap_or_else(|_| Err(Failure::broken("the watcher of the benchmark ended by itself")))
    }
}

async fn until(pods: Api<Pod>, count: usize, reached: fn(&Pod) -> bool) -> Result<Seen, Failure> {
    let mut events = pin!(watcher(pods, watcher::Config::default()).default_backoff().applied_objects());
    let mut names = BTreeSet::new();
    let mut seen: Option<Seen> = None;
    loop {
        match tokio::time::timeout(PATIENCE, events.next()).await {
            Ok(Some(Ok(pod))) if reached(&pod) && names.insert(pod.name_any()) => {
                let now = Instant::now();
                let first = seen.map_or(now, |seen| seen.first);
                let so_far = Seen { first, last: now, count: names.len() };
                if so_far.count >= count {
                    return Ok(so_far);
                }
                seen = Some(so_far);
            }
            // What goes wrong is tried again.
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                let message = format!(
                    "the pods of the benchmark made no progress for {PATIENCE:?}: {} of {count}",
                    names.len()
                );
                return Err(Failure::bad_input(message));
            }
        }
    }
}
