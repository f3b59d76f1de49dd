//! Gangway works with nothing but the rights that were installed.

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::e2e::audit;

use super::stage::{
    CLUSTER_QUEUE, CONFIG_MAP, FLAVOR, JOB, LEASE, LOCAL_QUEUE, MUTATING, Stage, VALIDATING, WORKLOAD,
};

const OURS: &str = "gangway-system";

pub async fn play(stage: &Stage, round: &str) -> Result<()> {
    let controller = stage.give_account("gangway-controller").await?;
    let scheduler = stage.give_account("gangway-scheduler").await?;
    let config = configuration(stage, "gangway-controller").await?;
    stage.start("controller", &["controller", "--config", &config], Some(&controller))?;
    let config = configuration(stage, "gangway-scheduler").await?;
    stage.start("scheduler", &["scheduler", "--config", &config], Some(&scheduler))?;
    stage.start("node", &["node", "--fake", "count=1,cpu=100"], None)?;
    stage
        .until("the controller knows that the policies are in force", async || {
            Ok(stage.said("controller").contains("the admission policies are in force"))
        })
        .await?;
    jobs(stage, round).await?;
    policies_follow(stage).await?;
    leases(stage).await?;
    stage.stop_parts()?;
    for part in ["controller", "scheduler"] {
        let said = stage.said(part);
        ensure!(!said.to_lowercase().contains("forbidden"), "rights are missing:\n{said}");
    }
    every_right_was_used(stage)
}

/// The configuration file that was installed, with ports that are free here.
async fn configuration(stage: &Stage, part: &str) -> Result<String> {
    let map = stage.get(CONFIG_MAP, OURS, part).await?.context("a ConfigMap")?;
    let text = map["data"]["gangway.yaml"].as_str().context("a configuration")?;
    let text = text.replace(":8443", "127.0.0.1:0").replace(":8081", "127.0.0.1:0");
    Ok(stage.file(&format!("{part}.yaml"), &text)?.display().to_string())
}

fn job(name: &str, queue: &str, run_for: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"backoffLimit": 0, "template": {
            "metadata": {"annotations": {"fake.gangway.dev/run-for": run_for}},
            "spec": {"schedulerName": "gangway", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "main", "image": "host", "command": ["true"],
                    "resources": {"requests": {"cpu": "1"}}}]},
        }},
    })
}

async fn queues(stage: &Stage, round: &str) -> Result<()> {
    let object = |(version, kind): (&str, &str), name: &str, spec: Value| json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    stage.create(FLAVOR, "", object(FLAVOR, round, json!({}))).await?;
    let flavor = json!({"name": round, "resources": [{"name": "cpu", "nominalQuota": 1}]});
    let spec = json!({"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]});
    stage.create(CLUSTER_QUEUE, "", object(CLUSTER_QUEUE, round, spec)).await?;
    stage.create(LOCAL_QUEUE, "work", object(LOCAL_QUEUE, round, json!({"clusterQueue": round}))).await?;
    Ok(())
}

async fn jobs(stage: &Stage, round: &str) -> Result<()> {
    queues(stage, round).await?;
    let name = |name: &str| format!("{name}-{round}");
    let of = |kind: &'static str| {
        move |job: &Value| {
            let conditions = job["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
        }
    };
    let job_is = async |name: String, what: &str, is: &dyn Fn(&Value) -> bool| {
        stage
            .until(&format!("Job {name} {what}"), async || {
                Ok(stage.get(JOB, "work", &name).await?.is_some_and(|job| is(&job)))
            })
            .await
    };
    stage.create(JOB, "work", job(&name("short"), round, "1s")).await?;
    job_is(name("short"), "completes", &of("Complete")).await?;
    // One that runs and is told to leave, one that waits for its place, one that is changed while it waits.
    stage.create(JOB, "work", job(&name("long"), round, "forever")).await?;
    job_is(name("long"), "starts", &|job| job["spec"]["suspend"] == false).await?;
    stage.create(JOB, "work", job(&name("next"), round, "1s")).await?;
    stage.until("the next one waits", async || Ok(workload_of(stage, &name("next")).await.is_ok())).await?;
    let label = json!({"spec": {"template": {"metadata": {"labels": {"changed": "yes"}}}}});
    stage.merge(JOB, "work", &name("next"), &label).await?;
    let workload = workload_of(stage, &name("long")).await?;
    stage.merge(WORKLOAD, "work", &workload, &json!({"spec": {"active": false}})).await?;
    job_is(name("long"), "is suspended", &|job| job["spec"]["suspend"] == true).await?;
    job_is(name("next"), "completes", &of("Complete")).await?;
    stage.api(JOB, "work").delete(&name("long"), &DeleteParams::background()).await?;
    stage
        .until("the Workload of a deleted Job is gone", async || {
            Ok(stage.get(WORKLOAD, "work", &workload).await?.is_none())
        })
        .await
}

async fn workload_of(stage: &Stage, job: &str) -> Result<String> {
    let job = stage.get(JOB, "work", job).await?.context("the Job")?;
    let all = stage.api(WORKLOAD, "work").list(&Default::default()).await?;
    let owned = all.items.into_iter().find(|workload| {
        let owners = workload.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|owner| job["metadata"]["uid"] == owner.uid.as_str())
    });
    owned.and_then(|workload| workload.metadata.name).context("its Workload")
}

/// What somebody changes in a policy is put right again.
async fn policies_follow(stage: &Stage) -> Result<()> {
    let never = json!({"spec": {"matchConditions": [{"name": "never", "expression": "false"}]}});
    for (kind, name) in [(MUTATING, "gangway-suspend-jobs"), (VALIDATING, "gangway-job-rules")] {
        let before = stage.get(kind, "", name).await?.context("the policy")?["spec"].clone();
        stage.merge(kind, "", name, &never).await?;
        stage
            .until(&format!("{name} is as before"), async || {
                Ok(stage.get(kind, "", name).await?.is_some_and(|policy| policy["spec"] == before))
            })
            .await?;
    }
    Ok(())
}

async fn leases(stage: &Stage) -> Result<()> {
    for name in ["gangway-controller", "gangway-scheduler"] {
        let lease = stage.get(LEASE, OURS, name).await?.with_context(|| format!("Lease {name}"))?;
        ensure!(!lease["spec"]["holderIdentity"].is_null(), "{lease}");
    }
    Ok(())
}

/// Rights for what does not happen here: errors, victims, pods that wait, successors, what Kueue left. As part, resource and verb.
const NOT_SEEN_HERE: &[&str] = &[
    "gangway-controller admissionchecks patch",
    "gangway-controller clusterqueues patch",
    "gangway-controller jobs get",
    "gangway-controller jobs/finalizers update",
    "gangway-controller resourceflavors patch",
    "gangway-controller workloads delete",
    "gangway-controller workloads get",
    "gangway-scheduler pods get",
    "gangway-scheduler pods delete",
    "gangway-scheduler pods/status patch",
];

/// The log of requests shows that nothing is allowed that nobody does.
fn every_right_was_used(stage: &Stage) -> Result<()> {
    let mut unused = audit::unused_rights(&stage.audit_log())?;
    unused.retain(|right| !NOT_SEEN_HERE.contains(&right.as_str()));
    ensure!(unused.is_empty(), "nobody uses these rights:\n{}", unused.join("\n"));
    Ok(())
}
