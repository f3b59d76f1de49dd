//! kube-scheduler, in a process of its own, on an API server of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use gangway_controller::pods::FamilyObject;
use gangway_placement::FamilyKind;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::families;
use super::generate::{BUDGETS, Bound, Cluster, NAMESPACES};
use super::log::{Line, Log};
use crate::tidy::workspace_root;

/// Admission that would change or refuse what is written: priorities without a class, nodes that no kubelet reports on.
const NO_ADMISSION: &str = "--disable-admission-plugins=Priority,RuntimeClass,TaintNodesByCondition,\
     DefaultTolerationSeconds,ServiceAccount,LimitRanger,ResourceQuota";
/// The files of kube-scheduler that tell of what it sees and decides.
const TELLING: &str = "--vmodule=eventhandlers=10,schedule_one=10,preemption=10,executor=10";
/// Requests at a time.
const AT_ONCE: usize = 16;

/// What it decided.
#[derive(Debug)]
pub enum Verdict {
    /// The pod got this node; all nodes that could take it with their scores by plugin. One that is alone has none.
    Bound { node: String, scores: BTreeMap<String, BTreeMap<String, i64>> },
    /// The pod waits, and was told why.
    Waits { message: String, preemption: Option<Preemption> },
}

/// Room that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// Where.
    pub node: String,
    /// Who has to go, as `namespace/name`.
    pub victims: BTreeSet<String>,
}

/// What is in the cluster, as the API server gives it.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub nodes: Vec<Node>,
    pub bound: Vec<Pod>,
    pub budgets: Vec<PodDisruptionBudget>,
    pub families: Vec<(FamilyKind, FamilyObject)>,
}

/// A running control plane with the scheduler. Everything ends when it is dropped.
pub struct ControlPlane {
    directory: TempDir,
    kubeconfig: PathBuf,
}

impl ControlPlane {
    pub fn start() -> Result<Self> {
        let directory = tempfile::tempdir().context("make a directory for the control plane")?;
        let output = Command::new(script())
            .arg("start")
            .arg(directory.path())
            .args(["--scheduler", "--controllers", "none"])
            .args(["--apiserver-arg", NO_ADMISSION, "--scheduler-arg", TELLING])
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("run {}", script().display()))?;
        let kubeconfig = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let started = Self { directory, kubeconfig };
        ensure!(output.status.success(), "the control plane did not start: {}", output.status);
        Ok(started)
    }

    pub async fn open(&self) -> Result<Reference> {
        let config = Kubeconfig::read_from(&self.kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let log = Log::open(&self.directory.path().join("log/kube-scheduler.log"))?;
        let mut reference = Reference { client, log, budgets: Vec::new(), families: Vec::new() };
        reference.prepare().await?;
        reference.families = families::create(&reference.client).await?;
        families::wait(&mut reference).await?;
        Ok(reference)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        let stopped = Command::new(script()).arg("stop").arg(self.directory.path()).status();
        if !stopped.as_ref().is_ok_and(|status| status.success()) {
            eprintln!("the control plane in {} did not stop: {stopped:?}", self.directory.path().display());
        }
    }
}

fn script() -> PathBuf {
    workspace_root().join("../shared/cluster/control-plane")
}

/// The scheduler and what it is asked through.
pub struct Reference {
    client: Client,
    log: Log,
    budgets: Vec<PodDisruptionBudget>,
    families: Vec<(FamilyKind, FamilyObject)>,
}

impl Reference {
    /// What all clusters have in common.
    async fn prepare(&mut self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        for name in &NAMESPACES[1..] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
            namespaces.create(&PostParams::default(), &namespace).await.context("create a namespace")?;
        }
        let places = NAMESPACES[..2].iter().flat_map(|namespace| BUDGETS.map(|budget| (namespace, budget)));
        for (namespace, (name, allowed)) in places {
            let budgets: Api<PodDisruptionBudget> = Api::namespaced(self.client.clone(), namespace);
            let budget = json!({
                "metadata": {"name": name},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"budget": name}}},
            });
            budgets.create(&PostParams::default(), &serde_json::from_value(budget)?).await?;
            let status = json!({"status": {
                "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
            }});
            let status = Patch::Merge(&status);
            self.budgets.push(budgets.patch_status(name, &PatchParams::default(), &status).await?);
        }
        Ok(())
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Writes nodes and bound pods, and waits until the scheduler has seen all that was written.
    pub async fn build(&mut self, cluster: &Cluster) -> Result<State> {
        self.log.forget()?;
        let nodes: Api<Node> = Api::all(self.client.clone());
        let made = cluster.nodes.iter().map(|node| {
            let nodes = &nodes;
            async move {
                let node: Node = serde_json::from_value(node.clone())?;
                nodes.create(&PostParams::default(), &node).await.context("create a node")
            }
        });
        let nodes: Vec<Node> = stream::iter(made).buffered(AT_ONCE).try_collect().await?;
        let this = &*self;
        let made = cluster.bound.iter().map(|bound| this.place(bound));
        let pods: Vec<(Pod, usize)> = stream::iter(made).buffered(AT_ONCE).try_collect().await?;
        let mut expected: BTreeMap<String, usize> =
            nodes.iter().map(|node| (node.metadata.name.clone().unwrap_or_default(), 1)).collect();
        expected.extend(pods.iter().map(|(pod, writes)| (key(pod), *writes)));
        self.log
            .wait("that it has seen the nodes and pods", |lines| {
                let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
                for line in lines.iter().filter(|line| is_news(line)) {
                    *seen.entry(about(line)).or_default() += 1;
                }
                let all = expected.iter().all(|(name, writes)| seen.get(name.as_str()) >= Some(writes));
                all.then_some(())
            })
            .await?;
        let bound = pods.into_iter().map(|(pod, _)| pod).collect();
        Ok(State { nodes, bound, budgets: self.budgets.clone(), families: self.families.clone() })
    }

    /// Writes a pod on its node; gives it as it is then, and how often it was written.
    async fn place(&self, bound: &Bound) -> Result<(Pod, usize)> {
        let pod: Pod = serde_json::from_value(bound.pod.clone())?;
        let name = pod.metadata.name.clone().unwrap_or_default();
        let pods = self.pods(pod.metadata.namespace.as_deref().unwrap_or_default());
        let show = || format!("write {}", bound.pod);
        pods.create(&PostParams::default(), &pod).await.with_context(show)?;
        let status = json!({"status": bound.status});
        let pod = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
        if !bound.deleting {
            return Ok((pod, 2));
        }
        pods.delete(&name, &DeleteParams::default()).await.with_context(show)?;
        Ok((pods.get(&name).await?, 3))
    }

    /// Creates a pod and waits for what becomes of it. Gives the pod as it was created.
    pub async fn ask(&mut self, pod: &Value) -> Result<(Pod, Verdict)> {
        self.log.forget()?;
        let written: Pod = serde_json::from_value(pod.clone())?;
        let pods = self.pods(written.metadata.namespace.as_deref().unwrap_or_default());
        let created = pods.create(&PostParams::default(), &written).await;
        let created = created.with_context(|| format!("create {pod}"))?;
        let key = key(&created);
        let verdict = self.log.wait(&format!("what becomes of {key}"), |lines| verdict(lines, &key)).await?;
        Ok((created, verdict))
    }

    /// Removes a pod that has asked, and waits until it is forgotten.
    pub async fn withdraw(&mut self, pod: &Pod) -> Result<()> {
        let (name, namespace) = (pod.metadata.name.as_deref(), pod.metadata.namespace.as_deref());
        let pods = self.pods(namespace.unwrap_or_default());
        let (name, key) = (name.unwrap_or_default(), key(pod));
        let deleted = pods.delete(name, &DeleteParams::default().grace_period(0)).await;
        deleted.with_context(|| format!("delete {key}"))?;
        self.log.wait("that it has seen a pod go", |lines| find_gone(lines, &key)).await
    }

    /// Removes everything that `build` made, and waits until it is forgotten.
    pub async fn clear(&mut self, state: &State) -> Result<()> {
        let (now, all) = (DeleteParams::default().grace_period(0), ListParams::default());
        for namespace in NAMESPACES {
            self.pods(namespace).delete_collection(&now, &all).await.context("delete the pods")?;
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.delete_collection(&now, &all).await.context("delete the nodes")?;
        let is_finished = |pod: &&Pod| {
            pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Succeeded"))
        };
        let pods = state.bound.iter().filter(|pod| !is_finished(pod)).map(key);
        let nodes = state.nodes.iter().map(|node| node.metadata.name.clone().unwrap_or_default());
        let expected: BTreeSet<String> = pods.chain(nodes).collect();
        self.log
            .wait("that it has seen everything go", |lines| {
                let gone = lines.iter().filter(|line| line.said.starts_with("Delete event")).map(about);
                let gone: BTreeSet<&str> = gone.collect();
                expected.iter().all(|name| gone.contains(name.as_str())).then_some(())
            })
            .await
    }
}

fn key(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

fn is_news(line: &Line) -> bool {
    let said = line.said.as_str();
    said.starts_with("Add event for")
        || said.starts_with("Update event for")
        || said.starts_with("Delete event for")
}

/// The node or pod of a line.
fn about(line: &Line) -> &str {
    match line.value("pod") {
        "" => line.value("node"),
        pod => pod,
    }
}

fn find_gone(lines: &[Line], key: &str) -> Option<()> {
    // A pod that gets its node is gone from those that wait: what counts is that it is gone from where it is.
    let mut told =
        lines.iter().filter(|line| is_news(line) && line.value("pod") == key).map(|line| line.said.as_str());
    let is_bound = told.clone().any(|said| said == "Add event for scheduled pod");
    let farewell =
        if is_bound { "Delete event for scheduled pod" } else { "Delete event for unscheduled pod" };
    told.any(|said| said == farewell).then_some(())
}

/// What became of a pod, as far as it is told.
fn verdict(lines: &[Line], key: &str) -> Option<Verdict> {
    let own = || lines.iter().filter(|line| line.value("pod") == key);
    let mut scores: BTreeMap<String, BTreeMap<String, i64>> = BTreeMap::new();
    for line in own() {
        match line.said.as_str() {
            "Plugin scored node for pod" => {
                let score = line.value("score").parse().ok()?;
                scores
                    .entry(line.value("node").to_owned())
                    .or_default()
                    .insert(line.value("plugin").to_owned(), score);
            }
            "Successfully bound pod to node" => {
                let node = line.value("node").to_owned();
                scores.entry(node.clone()).or_default();
                return Some(Verdict::Bound { node, scores });
            }
            "Unable to schedule pod; no fit; waiting" => {
                let message = line.value("err").to_owned();
                if !message.contains("found a potential placement") {
                    return Some(Verdict::Waits { message, preemption: None });
                }
                let preemption = preemption(lines, key, &message)?;
                return Some(Verdict::Waits { message, preemption: Some(preemption) });
            }
            _ => {}
        }
    }
    None
}

/// Whom it removes, once it has begun with all of them.
fn preemption(lines: &[Line], key: &str, message: &str) -> Option<Preemption> {
    let is_choice = |line: &&Line| line.said == "the target node for the preemption is determined";
    let chosen = lines.iter().filter(|line| line.value("pod") == key).find(is_choice)?;
    // Somebody who is on its way out anyway is not removed again.
    let is_victim = |line: &&Line| {
        line.said == "Preemptor Pod preempted victim Pod"
            || line.said.starts_with("Victim Pod is already being deleted")
    };
    let own = lines.iter().filter(|line| line.value("preemptor") == key);
    let victims: BTreeSet<String> =
        own.filter(is_victim).map(|line| line.value("victim").to_owned()).collect();
    let is_complete = message.ends_with(&format!("preempting {} victims", victims.len()));
    is_complete.then(|| Preemption { node: chosen.value("node").to_owned(), victims })
}
