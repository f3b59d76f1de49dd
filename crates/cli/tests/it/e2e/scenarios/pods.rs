//! The pod scheduler in processes of its own: many pods, priorities, pods that fit nowhere, schedulers that are killed or stand
//! still, nodes that go.
//!
//! Each scenario has nodes of its own, on which nothing runs, and schedulers for the pods that ask for it by name.

use std::collections::BTreeMap;
use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::e2e::kinds::{LEASE, NODE, POD};
use crate::e2e::objects::{condition, name};
use crate::e2e::scene::{Objects, Scene};

/// Requests at a time.
const AT_ONCE: usize = 16;

/// A `gangway scheduler` for the pods of a scene. It is killed when this is dropped.
struct Scheduler {
    child: Child,
    _directory: TempDir,
}

impl Scheduler {
    /// May send so many requests per second, and that many at once.
    fn start(scene: &Scene, qps: u32) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("scheduler.yaml");
        let configuration = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"qps": qps, "burst": qps},
            "leaderElection": {
                "leaderElect": true, "resourceName": "scheduler", "resourceNamespace": scene.name(),
                "leaseDuration": "3s", "renewDeadline": "2s", "retryPeriod": "500ms",
            },
            "profiles": [{"schedulerName": scene.name()}],
        });
        fs::write(&file, configuration.to_string())?;
        let file = file.to_str().context("a path of text")?;
        let child = scene.start_gangway(&["scheduler", "--config", file])?;
        Ok(Self { child, _directory: directory })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id())?;
        kill(Pid::from_raw(pid), signal).with_context(|| format!("send {signal} to the scheduler"))
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed; nothing else can go wrong here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn node_name(scene: &Scene, number: usize) -> String {
    scene.own(&format!("{number:03}"))
}

/// Makes nodes with so many CPUs each, and returns when pods may go to all of them.
async fn create_nodes(scene: &Scene, count: usize, cpu: &str) -> Result<()> {
    let amounts = &json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
    let create = |number: usize| async move {
        let node = node_name(scene, number);
        let labels = json!({"kubernetes.io/hostname": node, "scene": scene.name()});
        let ready = json!([{"type": "Ready", "status": "True", "reason": "Pretended", "message": ""}]);
        let status = json!({"capacity": amounts, "allocatable": amounts, "conditions": ready});
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}, "status": status,
        });
        scene.create_object(object).await?;
        // Not every API takes what a node says of itself from whoever makes it.
        scene.patch_status(NODE, &node, status).await
    };
    stream::iter(0..count).map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let usable = |nodes: &Objects| {
        let own = nodes.values().filter(|node| node["metadata"]["labels"]["scene"] == scene.name());
        (own.filter(|node| node["spec"]["taints"].is_null()).count() == count).then_some(())
    };
    scene.until(NODE, "pods may go to the nodes", usable).await
}

async fn delete_nodes(scene: &Scene, numbers: std::ops::Range<usize>) -> Result<()> {
    for number in numbers {
        scene.delete(NODE, &node_name(scene, number)).await?;
    }
    Ok(())
}

/// A pod that goes to the nodes of the scene only, and that is gone when it is deleted.
fn pod(scene: &Scene, name: &str, cpu: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "schedulerName": scene.name(),
            "nodeSelector": {"scene": scene.name()},
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "host", "resources": {"requests": {"cpu": cpu}}}],
        },
    })
}

/// Makes the pods `TITLE-0` and so on; `change` may ask for something else.
async fn create_pods(
    scene: &Scene,
    title: &str,
    count: usize,
    cpu: &str,
    change: impl Fn(&mut Value),
) -> Result<()> {
    let pods = (0..count).map(|number| {
        let mut pod = pod(scene, &format!("{title}-{number}"), cpu);
        change(&mut pod);
        pod
    });
    let created = stream::iter(pods).map(|pod| scene.create_object(pod)).buffer_unordered(AT_ONCE);
    created.try_for_each(|_| async { Ok(()) }).await
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str()
}

fn is_of(pod: &Value, title: &str) -> bool {
    name(pod).strip_prefix(title).is_some_and(|rest| rest.starts_with('-'))
}

/// Waits until so many pods of a title have nodes: how many each node has.
async fn bound(scene: &Scene, title: &str, count: usize) -> Result<BTreeMap<String, usize>> {
    let look = |pods: &Objects| {
        let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
        for node in pods.values().filter(|pod| is_of(pod, title)).filter_map(node_of) {
            *nodes.entry(node.to_owned()).or_default() += 1;
        }
        (nodes.values().sum::<usize>() >= count).then_some(nodes)
    };
    scene.until(POD, &format!("{count} pods {title} have nodes"), look).await
}

/// Waits until a pod was told that it fits nowhere: what it was told.
async fn fits_nowhere(scene: &Scene, pod: &str) -> Result<String> {
    let waits = |pod: &Value| condition(pod, "PodScheduled").is("False", "Unschedulable");
    let waiting = scene.object(POD, pod, "fits nowhere", waits).await?;
    Ok(condition(&waiting, "PodScheduled").message)
}

/// Every place is used, one more pod waits and says why, and gets the first place that is free.
pub async fn thousand_pods_on_a_hundred_nodes(scene: &Scene) -> Result<()> {
    create_nodes(scene, 100, "10").await?;
    let _scheduler = Scheduler::start(scene, 1000)?;
    create_pods(scene, "p", 1000, "1", |_| {}).await?;
    let nodes = bound(scene, "p", 1000).await?;
    ensure!(nodes.len() == 100 && nodes.values().all(|pods| *pods == 10), "{nodes:?}");

    scene.create_object(pod(scene, "late-0", "1")).await?;
    let message = fits_nowhere(scene, "late-0").await?;
    ensure!(message.contains("100 Insufficient cpu"), "{message}");
    let explained = scene.gangway(&format!("explain pod/late-0 -n {}", scene.name())).await?;
    ensure!(explained.0 == Some(0) && explained.1.contains("Insufficient cpu"), "{explained:?}");
    let leaving = scene.get(POD, "p-0").await?;
    scene.delete_at_once(POD, "p-0").await?;
    let nodes = bound(scene, "late", 1).await?;
    ensure!(nodes.keys().map(String::as_str).eq(node_of(&leaving)), "{nodes:?}");
    delete_nodes(scene, 0..100).await
}

/// Pods of higher priority take the places of others, no more than they need, and those who left are told.
pub async fn higher_priority_pods_take_places(scene: &Scene) -> Result<()> {
    create_nodes(scene, 4, "2").await?;
    let class = scene.own("high");
    scene
        .create_object(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
        }))
        .await?;
    let _scheduler = Scheduler::start(scene, 1000)?;
    create_pods(scene, "low", 8, "1", |_| {}).await?;
    bound(scene, "low", 8).await?;
    create_pods(scene, "high", 3, "2", |pod| pod["spec"]["priorityClassName"] = json!(class)).await?;
    let nodes = bound(scene, "high", 3).await?;
    ensure!(nodes.values().all(|pods| *pods == 1), "{nodes:?}");
    let left = scene.list(POD).await?.into_iter().filter(|pod| is_of(pod, "low")).collect::<Vec<Value>>();
    ensure!(left.len() == 2 && node_of(&left[0]) == node_of(&left[1]), "nobody left in vain: {left:?}");
    let gone =
        (0..8).map(|number| format!("low-{number}")).find(|low| !left.iter().any(|pod| name(pod) == low));
    scene.event(POD, &gone.context("somebody left")?, "Preempted").await?;
    delete_nodes(scene, 0..4).await
}

/// Pods of high priority that fit nowhere are woken again and again, and do not keep the others from their turn.
pub async fn cloggers_starve_nobody(scene: &Scene) -> Result<()> {
    create_nodes(scene, 10, "10").await?;
    let class = scene.own("urgent");
    scene
        .create_object(json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": class}, "value": 1000,
            "preemptionPolicy": "Never",
        }))
        .await?;
    let _scheduler = Scheduler::start(scene, 1000)?;
    let label = format!("{}/clog", scene.name());
    create_pods(scene, "clog", 300, "11", |pod| {
        pod["spec"]["priorityClassName"] = json!(class);
        pod["spec"]["nodeSelector"][&label] = json!("yes");
    })
    .await?;
    fits_nowhere(scene, "clog-299").await?;
    // A node that they ask for comes and goes all the time: each time they have to be tried again, in vain.
    let node = node_name(scene, 0);
    let churn = async {
        for value in [json!("yes"), Value::Null].into_iter().cycle() {
            let change = json!({"metadata": {"labels": {&label: value}}});
            scene.patch(NODE, &node, change).await?;
        }
        Ok(BTreeMap::new())
    };
    let others = async {
        create_pods(scene, "other", 100, "1", |_| {}).await?;
        bound(scene, "other", 100).await
    };
    let nodes = tokio::select! {
        stopped = churn => stopped,
        nodes = others => nodes,
    }?;
    ensure!(nodes.values().all(|pods| *pods <= 10), "{nodes:?}");
    let clogging =
        scene.list(POD).await?.into_iter().filter(|pod| is_of(pod, "clog") && node_of(pod).is_none());
    ensure!(clogging.count() == 300, "they fit nowhere");
    delete_nodes(scene, 0..10).await
}

/// The scheduler is killed while pods are bound; the next one goes on, and no node has more than fits.
pub async fn scheduler_killed_while_binding(scene: &Scene) -> Result<()> {
    create_nodes(scene, 20, "10").await?;
    create_pods(scene, "p", 200, "1", |_| {}).await?;
    let first = Scheduler::start(scene, 20)?;
    bound(scene, "p", 30).await?;
    drop(first);
    let before = scene.list(POD).await?;
    let unbound = before.iter().filter(|pod| node_of(pod).is_none()).count();
    ensure!(unbound > 0, "it was killed in the middle");
    let _second = Scheduler::start(scene, 1000)?;
    let nodes = bound(scene, "p", 200).await?;
    ensure!(nodes.len() == 20 && nodes.values().all(|pods| *pods == 10), "{nodes:?}");
    for was in before.iter().filter(|pod| node_of(pod).is_some()) {
        let now = scene.get(POD, name(was)).await?;
        ensure!(node_of(&now) == node_of(was), "{} moved", name(was));
    }
    delete_nodes(scene, 0..20).await
}

/// Who has the Lease of the scene's schedulers.
async fn leader(scene: &Scene, other_than: Option<&str>) -> Result<String> {
    let held = |leases: &Objects| {
        let holder = leases.get("scheduler")?["spec"]["holderIdentity"].as_str()?;
        (!holder.is_empty() && Some(holder) != other_than).then(|| holder.to_owned())
    };
    scene.until(LEASE, "another scheduler has the Lease", held).await
}

/// The one that leads stands still, another takes over, and the first one goes on: it binds nothing any more.
pub async fn scheduler_that_stood_still_binds_nothing(scene: &Scene) -> Result<()> {
    create_nodes(scene, 2, "100").await?;
    let first = Scheduler::start(scene, 1000)?;
    let deposed = leader(scene, None).await?;
    create_pods(scene, "a", 20, "1", |_| {}).await?;
    bound(scene, "a", 20).await?;
    first.signal(Signal::SIGSTOP)?;
    create_pods(scene, "b", 20, "1", |_| {}).await?;
    let _second = Scheduler::start(scene, 1000)?;
    let heir = leader(scene, Some(&deposed)).await?;
    bound(scene, "b", 20).await?;
    // What it learns when it wakes up: there are pods without nodes, and it was leading.
    create_pods(scene, "c", 20, "1", |_| {}).await?;
    first.signal(Signal::SIGCONT)?;
    create_pods(scene, "d", 20, "1", |_| {}).await?;
    for title in ["c", "d"] {
        bound(scene, title, 20).await?;
    }
    ensure!(leader(scene, Some(&deposed)).await? == heir, "it keeps the Lease");
    for pod in ["a-0", "b-0", "c-0", "d-19"] {
        if let Some(bindings) = scene.bindings(pod)? {
            ensure!(bindings.iter().map(|binding| binding.code).eq([201]), "{pod}: {bindings:?}");
        }
    }
    delete_nodes(scene, 0..2).await
}

/// Half of the nodes go while pods are bound to them: the others are never too full, and later pods find their places.
pub async fn nodes_go_while_pods_are_bound(scene: &Scene) -> Result<()> {
    create_nodes(scene, 10, "20").await?;
    create_pods(scene, "p", 80, "1", |_| {}).await?;
    let _scheduler = Scheduler::start(scene, 40)?;
    bound(scene, "p", 20).await?;
    delete_nodes(scene, 0..5).await?;
    create_pods(scene, "q", 20, "1", |_| {}).await?;
    let later = bound(scene, "q", 20).await?;
    // Some were on their way to nodes that are gone: they are nobody's, and whoever cleans up after nodes may have them.
    let look = |pods: &Objects| pods.values().all(|pod| node_of(pod).is_some()).then(|| pods.clone());
    let pods = scene.until(POD, "every pod has a node", look).await?;
    for number in 5..10 {
        let node = node_name(scene, number);
        let on_it = pods.values().filter(|pod| node_of(pod) == Some(node.as_str())).count();
        ensure!(on_it <= 20, "{node} has {on_it}");
    }
    let gone = (0..5).map(|number| node_name(scene, number)).find(|node| later.contains_key(node));
    ensure!(gone.is_none(), "{gone:?} was gone before those pods came");
    delete_nodes(scene, 5..10).await
}
