//! Brings the objects of an installation of Kueue onto another API server, as they were.
//!
//! Pods are made by the Job controller of that API and get the nodes and phases that they had. What the API numbers itself is
//! mapped: owners and the labels that name their UID. Times move by as much as has passed since the objects were written down.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use gangway_cli::clock::SystemClock;
use gangway_model::Clock;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::e2e::kinds::{JOB, Kind, POD, WORKLOAD};
use crate::e2e::objects::{condition, name, uid};
use crate::e2e::scene::Scene;
use crate::e2e::steps::pods_of;
use crate::tidy::workspace_root;

/// When the objects were written down.
const TAKEN_AT: &str = "2026-11-15T22:51:57Z";

/// The objects of the installation, by kind.
pub struct Dump(BTreeMap<String, Vec<Value>>);

impl Dump {
    /// None where the shared files are not there.
    pub fn read() -> Result<Option<Self>> {
        let directory: PathBuf = workspace_root().join("../shared/data/kueue-dump");
        let Ok(entries) = std::fs::read_dir(&directory) else {
            println!("skipped: {} is not there", directory.display());
            return Ok(None);
        };
        let mut kinds: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|end| end != "yaml") {
                continue;
            }
            let objects: Vec<Value> = serde_saphyr::from_multiple(&std::fs::read_to_string(&path)?)?;
            for object in objects.into_iter().filter(Value::is_object) {
                kinds.entry(text(&object["kind"]).to_owned()).or_default().push(object);
            }
        }
        Ok(Some(Self(kinds)))
    }

    /// The objects of a kind, the oldest first.
    pub fn of(&self, kind: &str) -> Vec<&Value> {
        let mut objects: Vec<&Value> = self.0.get(kind).into_iter().flatten().collect();
        objects.sort_by_key(|object| text(&object["metadata"]["creationTimestamp"]).to_owned());
        objects
    }

    /// The pods of a Job.
    fn pods_of(&self, job: &Value) -> Vec<&Value> {
        let owner = uid(job);
        let is_owned = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == owner;
        let mut pods: Vec<&Value> = self.of("Pod").into_iter().filter(is_owned).collect();
        pods.sort_by_key(|pod| name(pod).to_owned());
        pods
    }
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The stage of the namespace in which an object lives.
pub fn stage(scene: &Scene, object: &Value) -> Scene {
    scene.beside(text(&object["metadata"]["namespace"]))
}

/// Loads everything but the status of queues, which tells afterwards what was made of it.
pub async fn load(scene: &Scene, dump: &Dump) -> Result<()> {
    for namespace in dump.of("Namespace") {
        if namespace["metadata"]["labels"]["tenant"].is_string() {
            scene.create_object(bare(namespace)).await?;
        }
    }
    for kind in ["Node", "ResourceFlavor", "Cohort", "WorkloadPriorityClass", "AdmissionCheck"] {
        for object in dump.of(kind) {
            create(scene, object, matches!(kind, "Node" | "AdmissionCheck")).await?;
        }
    }
    for kind in ["ClusterQueue", "LocalQueue"] {
        for object in dump.of(kind) {
            create(&stage(scene, object), object, false).await?;
        }
    }
    let mut jobs = BTreeMap::new();
    for job in dump.of("Job") {
        let created = stage(scene, job).create_object(unstarted(job)).await?;
        jobs.insert(uid(job).to_owned(), uid(&created).to_owned());
    }
    for workload in dump.of("Workload") {
        let mut owned = workload.clone();
        let owner = text(&workload["metadata"]["ownerReferences"][0]["uid"]);
        let owner = jobs.get(owner).with_context(|| format!("nobody owns {workload}"))?;
        owned["metadata"]["ownerReferences"][0]["uid"] = json!(owner);
        owned["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] = json!(owner);
        create(&stage(scene, workload), &owned, true).await?;
    }
    for job in dump.of("Job").into_iter().filter(|job| job["spec"]["suspend"] == false) {
        run(&stage(scene, job), job, &dump.pods_of(job)).await?;
    }
    Ok(())
}

/// Creates an object as it was, and writes its status if it is to have one.
async fn create(scene: &Scene, object: &Value, with_status: bool) -> Result<()> {
    scene.create_object(bare(object)).await?;
    if with_status {
        let (kind, _) = Kind::named(text(&object["kind"]), text(&object["apiVersion"]))
            .with_context(|| format!("unknown kind of {object}"))?;
        scene.patch_status(kind, name(object), moved(&object["status"])?).await?;
        let found = scene.get(kind, name(object)).await?;
        // A cluster adds taints to a Node; what is ours nobody else changes.
        if kind.kind != "Node" {
            is_kept(&object["spec"], &found["spec"], "spec")?;
            is_kept(&moved(&object["status"])?, &found["status"], "status")?;
        }
    }
    Ok(())
}

/// Nothing of what was written is lost; times may be a second apart.
fn is_kept(written: &Value, found: &Value, path: &str) -> Result<()> {
    match (written, found) {
        (Value::Object(written), Value::Object(found)) => {
            for (field, inner) in written {
                is_kept(inner, found.get(field).unwrap_or(&Value::Null), &format!("{path}.{field}"))?;
            }
            Ok(())
        }
        (Value::Array(written), Value::Array(found)) => {
            ensure!(written.len() == found.len(), "{path}: some are lost");
            written.iter().zip(found).try_for_each(|(written, found)| is_kept(written, found, path))
        }
        _ => {
            ensure!(written.is_null() || !found.is_null(), "{path} is lost");
            Ok(())
        }
    }
}

/// An object without what an API server says of it.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

/// A Job before it has a uid and pods.
fn unstarted(job: &Value) -> Value {
    let mut job = bare(job);
    let is_queued = job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"].is_string();
    let spec = &mut job["spec"];
    spec["suspend"] = json!(true);
    let template = &mut spec["template"]["metadata"];
    for label in
        ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"]
    {
        template["labels"].as_object_mut().map(|labels| labels.remove(label));
    }
    if !is_queued {
        // It may come to a node that plays its part.
        template["annotations"]["fake.gangway.dev/run-for"] = json!("forever");
    }
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("selector");
        spec.remove("manualSelector");
    }
    job
}

/// Every time in a status later by as much as has passed.
fn moved(status: &Value) -> Result<Value> {
    let seconds_of = |text: &str| -> Option<i64> {
        serde_json::from_value::<Time>(json!(text)).ok().map(|time| time.0.as_second())
    };
    let taken_at = seconds_of(TAKEN_AT).context("no time")?;
    let passed = SystemClock.now().as_seconds() - taken_at;
    fn walk(value: &mut Value, moved: &impl Fn(&str) -> Option<Value>) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(|inner| walk(inner, moved)),
            Value::Array(items) => items.iter_mut().for_each(|inner| walk(inner, moved)),
            Value::String(text) => {
                if let Some(later) = moved(text) {
                    *value = later;
                }
            }
            _ => {}
        }
    }
    let later = |text: &str| {
        let is_time = text.len() == TAKEN_AT.len() && text.ends_with('Z');
        let seconds = seconds_of(text).filter(|_| is_time)?;
        let time = gangway_model::Timestamp::from_seconds(seconds + passed);
        Some(json!(gangway_api::time::to_api(time)))
    };
    let mut status = status.clone();
    walk(&mut status, &later);
    Ok(status)
}

/// Lets a Job run as it did: its pods get the nodes and phases that they had.
async fn run(scene: &Scene, job: &Value, pods: &[&Value]) -> Result<()> {
    let job_name = name(job);
    scene.patch(JOB, job_name, json!({ "spec": { "suspend": false } })).await?;
    let made = scene
        .until(POD, &format!("{} pods of Job {job_name} are made", pods.len()), |objects| {
            let mut made: Vec<String> =
                pods_of(objects, job_name).into_iter().map(|pod| name(pod).to_owned()).collect();
            made.sort();
            (made.len() == pods.len()).then_some(made)
        })
        .await?;
    for (made, pod) in made.iter().zip(pods) {
        bind(scene, made, text(&pod["spec"]["nodeName"])).await?;
        let mut status = moved(&pod["status"])?;
        if let Some(fields) = status.as_object_mut() {
            fields.retain(|field, _| matches!(field.as_str(), "phase" | "conditions" | "startTime"));
        }
        scene.patch_status(POD, made, status).await?;
    }
    let count = |job: &Value, field: &str| job["status"][field].as_i64().unwrap_or(0);
    let ended = |job: &Value| ["Complete", "Failed"].map(|kind| condition(job, kind).status == "True");
    scene
        .object(JOB, job_name, "is as it was", |now| {
            ["ready", "succeeded", "failed"].iter().all(|field| count(now, field) == count(job, field))
                && ended(now) == ended(job)
        })
        .await
        .map(|_| ())
}

/// Puts a pod on a node, unless the scheduler of the API was faster.
async fn bind(scene: &Scene, pod: &str, node: &str) -> Result<()> {
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let api = POD.api(scene.client(), scene.name());
    let bound = api.create_subresource::<_, Value>("binding", pod, &PostParams::default(), &binding).await;
    match bound {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        bound => bound.map(|_| ()).with_context(|| format!("bind pod {pod} to {node}")),
    }
}

/// The Workload of a Job, as it is now.
pub async fn workload_of(scene: &Scene, job: &Value) -> Result<Value> {
    let workloads = scene.list(WORKLOAD).await?;
    let owned = |workload: &&Value| workload["metadata"]["ownerReferences"][0]["uid"] == uid(job);
    workloads.iter().find(owned).cloned().with_context(|| format!("Job {} has no Workload", name(job)))
}
