//! The admission policies at work: the table of `crates/api`, and Jobs as users create them.

use anyhow::{Context, Result, ensure};
use gangway_api::policies::rules;
use kube::api::PostParams;
use serde_json::{Value, json};

use super::stage::{JOB, LOCAL_QUEUE, Stage};
use crate::tidy::workspace_root;

const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";

fn read(file: &str) -> Result<Value> {
    let path = workspace_root().join("crates/api/tests/policies").join(file);
    Ok(serde_saphyr::from_str(&std::fs::read_to_string(path)?)?)
}

fn cases() -> Result<Vec<Value>> {
    read("cases.yaml")?.as_array().cloned().context("a list of cases")
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().map(|target| target.remove(key));
        } else {
            if !target[key].is_object() && value.is_object() {
                target[key] = json!({});
            }
            merge(&mut target[key], value);
        }
    }
}

fn job(name: &str, patch: &Value) -> Result<Value> {
    let mut job = read("job.yaml")?;
    merge(&mut job, patch);
    job["metadata"]["name"] = json!(name);
    Ok(job)
}

fn name_of(case: &Value, round: &str) -> String {
    let name = case["name"].as_str().unwrap_or_default();
    let name = name.to_ascii_lowercase();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let round = if case["earlier"] == true { "earlier" } else { round };
    format!("{}-{round}", name.chars().take(40).collect::<String>().trim_end_matches('-'))
}

/// Jobs that could not be created any more once the policies are there.
pub async fn create_what_was_there_earlier(stage: &Stage) -> Result<()> {
    for case in cases()?.iter().filter(|case| case["earlier"] == true) {
        stage.create(JOB, "work", job(&name_of(case, ""), &case["old"])?).await?;
    }
    Ok(())
}

pub async fn play(stage: &Stage, round: &str) -> Result<()> {
    stage.until("the policies are in force", async || Ok(is_suspended(&tried(stage, "work").await?))).await?;
    let free = tried(stage, "kube-system").await?;
    ensure!(!is_suspended(&free), "kube-system is left alone: {free}");
    default_queue(stage).await?;
    for case in cases()? {
        play_case(stage, &case, round).await.with_context(|| format!("case {}", case["name"]))?;
    }
    Ok(())
}

fn is_suspended(job: &Value) -> bool {
    job["spec"]["suspend"] == true
}

/// What would become of a queued Job that is not suspended.
async fn tried(stage: &Stage, namespace: &str) -> Result<Value> {
    tried_as(stage, namespace, job("tried", &json!({"spec": {"suspend": false}}))?).await
}

async fn tried_as(stage: &Stage, namespace: &str, job: Value) -> Result<Value> {
    let how = PostParams { dry_run: true, ..PostParams::default() };
    let created = stage.api(JOB, namespace).create(&how, &serde_json::from_value(job)?).await?;
    Ok(serde_json::to_value(created)?)
}

async fn default_queue(stage: &Stage) -> Result<()> {
    let no_queue = json!({"spec": {"suspend": false}, "metadata": {"labels": {QUEUE_NAME: null}}});
    let plain = job("tried", &no_queue)?;
    let untouched = tried_as(stage, "work", plain.clone()).await?;
    ensure!(
        !is_suspended(&untouched) && untouched["metadata"]["labels"][QUEUE_NAME].is_null(),
        "{untouched}"
    );
    let queue = json!({"apiVersion": LOCAL_QUEUE.0, "kind": LOCAL_QUEUE.1, "metadata": {"name": "default"},
        "spec": {"clusterQueue": "any"}});
    stage.create(LOCAL_QUEUE, "work", queue).await?;
    stage
        .until("the default queue is applied", async || {
            let job = tried_as(stage, "work", plain.clone()).await?;
            Ok(is_suspended(&job) && job["metadata"]["labels"][QUEUE_NAME] == "default")
        })
        .await?;
    let mut child = plain.clone();
    child["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "0", "controller": true}]);
    let child = tried_as(stage, "work", child).await?;
    ensure!(!is_suspended(&child), "the Job of a Job is left alone: {child}");
    stage.delete(LOCAL_QUEUE, "work", "default").await?;
    stage
        .until("the default queue is no longer applied", async || {
            Ok(!is_suspended(&tried_as(stage, "work", plain.clone()).await?))
        })
        .await
}

async fn play_case(stage: &Stage, case: &Value, round: &str) -> Result<()> {
    let name = name_of(case, round);
    let answer = if case["old"].is_null() {
        stage.create(JOB, "work", job(&name, &case["new"])?).await
    } else {
        if case["earlier"] != true {
            let old = job(&name, &case["old"])?;
            stage.create(JOB, "work", old.clone()).await?;
            // The policy has suspended it; somebody starts it.
            let spec = json!({"spec": {"suspend": old["spec"]["suspend"]}});
            stage.merge(JOB, "work", &name, &spec).await?;
        }
        stage
            .merge(JOB, "work", &name, &difference(&job(&name, &case["old"])?, &job(&name, &case["new"])?))
            .await
    };
    match (case["refused"].as_str(), answer) {
        (None, answer) => answer.map(drop).context("it is allowed"),
        (Some(rule), Err(kube::Error::Api(status))) => {
            let rules = rules();
            let rule = rules.iter().find(|known| known.name == rule).context("a known rule")?;
            ensure!(
                status.message.contains(rule.message),
                "{} does not say {}",
                status.message,
                rule.message
            );
            Ok(())
        }
        (Some(rule), answer) => {
            ensure!(false, "{rule} lets it pass: {answer:?}");
            Ok(())
        }
    }
}

/// The merge patch that makes one of the other.
fn difference(old: &Value, new: &Value) -> Value {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return new.clone() };
    let mut patch = json!({});
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before) => patch[key] = difference(before, value),
            None => patch[key] = value.clone(),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch[key] = Value::Null;
    }
    patch
}
