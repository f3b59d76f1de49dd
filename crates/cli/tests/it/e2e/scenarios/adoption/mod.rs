//! Taking over an installation of Kueue, and what can be given back.

mod load;
mod vocabulary;

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use gangway_model::Quantity;
use serde_json::{Value, json};

use crate::e2e::clock::SetClock;
use crate::e2e::kinds::{CLUSTER_QUEUE, JOB, LOCAL_QUEUE, POD, WORKLOAD};
use crate::e2e::objects::{Job, changed_at, condition, is_suspended, name, seconds, uid};
use crate::e2e::scene::Scene;
use load::{Dump, load, stage, text, workload_of};

/// As Kueue was configured.
pub const AS_BEFORE: &str = "
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
waitForPodsReady:
  timeout: 10s
  requeuingStrategy: {timestamp: Eviction, backoffLimitCount: 5, backoffBaseSeconds: 3600, backoffMaxSeconds: 7200}
";

/// Kueue is gone and Gangway comes: nothing is suspended, made anew or deleted, nothing starts before its turn, and the queues
/// say what they said. Then life goes on, and what is left could be given back.
pub async fn installation_is_taken_over(scene: &Scene) -> Result<()> {
    let Some(dump) = Dump::read()? else { return Ok(()) };
    scene.controller().kill()?;
    load(scene, &dump).await?;
    let before = Seen::now(scene, &dump).await?;
    scene.controller().start()?;
    scene.later().await?;

    queues_say_what_they_said(scene, &dump).await?;
    goes_on_as_it_was(scene, &dump, &before).await?;
    nobody_starts_early(scene, &dump).await?;

    fewer_pods_than_asked_for_are_given_back(scene).await?;
    running_job_is_preempted(scene).await?;
    backoff_ends_at_its_time(scene).await?;
    deleted_objects_go(scene).await?;
    vocabulary::could_be_given_back(scene, &dump).await
}

/// The objects that run or have ended, as they are at a moment.
struct Seen {
    pods: Vec<(String, Value)>,
    jobs: BTreeMap<String, Value>,
    workloads: BTreeMap<String, Value>,
}

impl Seen {
    async fn now(scene: &Scene, dump: &Dump) -> Result<Self> {
        let (mut pods, mut jobs, mut workloads) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let mut namespaces: Vec<&str> =
            dump.of("Job").iter().map(|job| text(&job["metadata"]["namespace"])).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        for namespace in namespaces {
            let scene = scene.beside(namespace);
            let of = |pod: &Value| (uid(pod).to_owned(), pod["metadata"]["deletionTimestamp"].clone());
            pods.extend(scene.list(POD).await?.iter().map(of));
            jobs.extend(scene.list(JOB).await?.into_iter().map(|job| (uid(&job).to_owned(), job)));
            let listed = scene.list(WORKLOAD).await?.into_iter();
            workloads.extend(listed.map(|workload| (uid(&workload).to_owned(), workload)));
        }
        pods.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(Self { pods, jobs, workloads })
    }
}

/// Nothing that runs was touched, nothing was deleted, and nothing was made.
async fn goes_on_as_it_was(scene: &Scene, dump: &Dump, before: &Seen) -> Result<()> {
    let now = Seen::now(scene, dump).await?;
    ensure!(now.pods == before.pods, "pods were made, deleted or told to go: {:?}", now.pods);
    ensure!(now.jobs.len() == before.jobs.len() && now.workloads.len() == before.workloads.len());
    for (uid, job) in &before.jobs {
        let found = now.jobs.get(uid).with_context(|| format!("Job {} is gone", name(job)))?;
        ensure!(found["spec"] == job["spec"], "Job {} was changed: {found}", name(job));
    }
    for (uid, workload) in &before.workloads {
        let found = now.workloads.get(uid).with_context(|| format!("{} is gone", name(workload)))?;
        ensure!(found["spec"] == workload["spec"], "{} was changed: {found}", name(workload));
        let holds = !workload["status"]["admission"].is_null();
        ensure!(
            !holds || found["metadata"]["resourceVersion"] == workload["metadata"]["resourceVersion"],
            "there was no need to write to {}: {}, now {}",
            name(workload),
            workload["status"],
            found["status"]
        );
    }
    Ok(())
}

/// Who waited waits, for the same time, and who was switched off is.
async fn nobody_starts_early(scene: &Scene, dump: &Dump) -> Result<()> {
    for job in dump.of("Job").into_iter().filter(|job| job["spec"]["suspend"] == true) {
        stage(scene, job).not_started(name(job)).await?;
    }
    let nlp = scene.beside("team-nlp");
    for job in ["flaky-eval", "paused-sweep"] {
        let workload = nlp.workload_has(job, ("QuotaReserved", "False", "Deactivated")).await?;
        ensure!(workload["spec"]["active"] == false, "{workload}");
    }
    let slow = nlp.workload("slow-start").await?;
    let at = seconds(&slow["status"]["requeueState"]["requeueAt"])?;
    ensure!(at - changed_at(&slow, "Evicted")? == 3600, "{slow}");
    // It says already what Gangway would say, in the coarser words.
    scene.beside("platform").workload_has("orphan", ("QuotaReserved", "False", "Inadmissible")).await?;
    nlp.workload_has("huge", ("QuotaReserved", "False", "ExceedsMaxQuota")).await?;
    Ok(())
}

/// Counts and amounts in the status of every queue are those of the dump, from which none was loaded.
async fn queues_say_what_they_said(scene: &Scene, dump: &Dump) -> Result<()> {
    for kind in [CLUSTER_QUEUE, LOCAL_QUEUE] {
        for queue in dump.of(kind.kind) {
            let wanted = said(queue)?;
            let what = format!("{} {} says {wanted:?}", kind.kind, name(queue));
            let is_same = |now: &Value| said(now).is_ok_and(|now| now == wanted);
            let waited = stage(scene, queue).object(kind, name(queue), &what, is_same).await;
            if waited.is_err() {
                let now = stage(scene, queue).get(kind, name(queue)).await?;
                waited.with_context(|| format!("it says {:?}: {}", said(&now), now["status"]))?;
            }
        }
    }
    Ok(())
}

/// What the status of a queue says; amounts of 0 are left out.
fn said(queue: &Value) -> Result<BTreeMap<String, String>> {
    let status = &queue["status"];
    let mut said = BTreeMap::new();
    for field in ["pendingWorkloads", "reservingWorkloads", "admittedWorkloads"] {
        said.insert(field.to_owned(), status[field].as_i64().context("a count is missing")?.to_string());
    }
    said.insert("Active".to_owned(), condition(queue, "Active").reason);
    for field in ["flavorsReservation", "flavorsUsage"] {
        for flavor in status[field].as_array().into_iter().flatten() {
            for resource in flavor["resources"].as_array().into_iter().flatten() {
                for amount in ["total", "borrowed"] {
                    // The reference does not write for LocalQueues what is borrowed.
                    let is_left_out = amount == "borrowed" && queue["kind"] == "LocalQueue";
                    let counted =
                        Quantity::parse(text(&resource[amount])).map(|q| q.counted_as(name_of(resource)));
                    if let Ok(counted) = counted
                        && counted != 0
                        && !is_left_out
                    {
                        let cell = [field, name_of(flavor), name_of(resource), amount].join(" ");
                        said.insert(cell, counted.to_string());
                    }
                }
            }
        }
    }
    Ok(said)
}

fn name_of(entry: &Value) -> &str {
    text(&entry["name"])
}

/// A Job that runs with 6 pods of 8 is stopped: it gets its 8 back, and nothing of its start stays.
async fn fewer_pods_than_asked_for_are_given_back(scene: &Scene) -> Result<()> {
    const JOB_NAME: &str = "finetune-partial";
    let nlp = scene.beside("team-nlp");
    let workload = workload_of(&nlp, &nlp.get(JOB, JOB_NAME).await?).await?;
    nlp.patch(WORKLOAD, name(&workload), json!({ "spec": { "active": false } })).await?;
    nlp.end_stuck_pods(JOB_NAME).await?;
    let is_restored = |job: &Value| job["spec"]["parallelism"] == 8 && is_suspended(job);
    let job = nlp.object(JOB, JOB_NAME, "asks for 8 pods again", is_restored).await?;
    let template = &job["spec"]["template"];
    ensure!(template["spec"]["nodeSelector"].is_null(), "{template}");
    ensure!(template["spec"]["tolerations"].is_null(), "{template}");
    let of_reference = |map: &Value| map.to_string().contains("kueue.x-k8s.io");
    ensure!(!of_reference(&template["metadata"]), "{template}");
    let left = nlp.workload_has(JOB_NAME, ("Evicted", "True", "Deactivated")).await?;
    ensure!(left["status"]["admission"].is_null() && left["spec"]["podSets"][0]["count"] == 8, "{left}");
    ensure!(left["spec"]["podSets"][0]["minCount"] == 2, "{left}");
    // 6 CPUs are enough for the next.
    nlp.started("later-a").await.map(|_| ())
}

/// A Job that Kueue started leaves for a more urgent one, and is as it was written.
async fn running_job_is_preempted(scene: &Scene) -> Result<()> {
    let vision = scene.beside("team-vision");
    let urgent = Job::new("urgent").queue("train").priority_class("high").request("nvidia.com/gpu", "4");
    vision.submit(urgent.request("memory", "1Gi")).await?;
    let preempted = vision.workload_has("train-resnet", ("Preempted", "True", "InClusterQueue")).await?;
    ensure!(preempted["status"]["preemptor"].is_string(), "{preempted}");
    vision.end_stuck_pods("train-resnet").await?;
    vision.started("urgent").await?;
    let job = vision.object(JOB, "train-resnet", "is suspended", is_suspended).await?;
    ensure!(job["spec"]["parallelism"] == 2, "{job}");
    vision.workload_has("train-resnet", ("Requeued", "True", "Preempted")).await.map(|_| ())
}

/// The backoff that Kueue began ends when it said.
async fn backoff_ends_at_its_time(scene: &Scene) -> Result<()> {
    let nlp = scene.beside("team-nlp");
    nlp.not_started("slow-start").await?;
    scene.controller().restart_by(SetClock::ahead(3600))?;
    nlp.started("slow-start").await?;
    let back = nlp.workload_has("slow-start", ("Requeued", "True", "BackoffFinished")).await?;
    ensure!(back["status"]["requeueState"]["count"] == 1, "{back}");
    Ok(())
}

/// What carries the finalizer of Kueue goes when it is deleted and nobody holds it.
async fn deleted_objects_go(scene: &Scene) -> Result<()> {
    let nlp = scene.beside("team-nlp");
    let ended = workload_of(&nlp, &nlp.get(JOB, "score-ok").await?).await?;
    nlp.delete(JOB, "score-ok").await?;
    nlp.gone(WORKLOAD, &ended).await?;

    let platform = scene.beside("platform");
    let queue = platform.get(CLUSTER_QUEUE, "nightly").await?;
    platform.delete(CLUSTER_QUEUE, "nightly").await?;
    let is_terminating = |queue: &Value| condition(queue, "Active").is("False", "Terminating");
    platform.object(CLUSTER_QUEUE, "nightly", "waits for what runs", is_terminating).await?;
    let runs = platform.get(JOB, "etl").await?;
    ensure!(!is_suspended(&runs), "{runs}");
    for pod in platform.running_pods("etl").await? {
        platform.patch_status(POD, &pod, json!({ "phase": "Succeeded" })).await?;
    }
    platform.gone(CLUSTER_QUEUE, &queue).await
}
