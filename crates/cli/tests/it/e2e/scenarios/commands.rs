//! What the commands say of a cluster.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::leaving::one_of_two_has_left;
use crate::e2e::kinds::{JOB, WORKLOAD};
use crate::e2e::objects::{Job, name};
use crate::e2e::scene::Scene;

/// Runs a command that has to end well, and gives what it said.
pub(super) async fn says(scene: &Scene, command: &str) -> Result<String> {
    let (code, said, complaint) = scene.gangway(command).await?;
    ensure!(code == Some(0), "gangway {command} ended with {code:?}: {said}{complaint}");
    Ok(said)
}

pub(super) async fn answers(scene: &Scene, command: &str) -> Result<Value> {
    let said = says(scene, &format!("{command} -n {} -o json", scene.name())).await?;
    serde_json::from_str(&said).with_context(|| format!("gangway {command} -o json is no JSON: {said}"))
}

/// The command fails with one message and its usual exit code.
async fn complains(scene: &Scene, command: &str, complaint: &str) -> Result<()> {
    let (code, said, stderr) = scene.gangway(&format!("{command} -n {}", scene.name())).await?;
    ensure!(code == Some(2) && said.is_empty(), "gangway {command} ended with {code:?}: {said}");
    ensure!(stderr.contains(complaint), "gangway {command} does not say {complaint:?}: {stderr}");
    Ok(())
}

/// `quick` has left for `high`, `slow` is leaving: both commands tell so, of each of the three.
pub async fn commands_tell_of_a_preemption(scene: &Scene) -> Result<()> {
    one_of_two_has_left(scene).await?;
    let full = |job: &str| format!("{}/{job}", scene.name());

    let high = answers(scene, "explain job/high").await?;
    ensure!(high["situation"] == "WaitingForPreemptedWorkloads", "{high}");
    let waits_for = high["waitsFor"].as_array().context("a list")?;
    ensure!(waits_for.len() == 1, "only for those who have not left: {high}");
    ensure!(waits_for[0]["job"] == full("slow") && waits_for[0]["reason"] == "InClusterQueue", "{high}");
    ensure!(waits_for[0]["terminatingPods"] == 1 && waits_for[0]["toldAt"].is_string(), "{high}");
    for (job, has_left) in [("quick", true), ("slow", false)] {
        let victim = answers(scene, &format!("explain job/{job}")).await?;
        let preempted_for = &victim["preemptedFor"];
        ensure!(preempted_for["job"] == full("high") && preempted_for["hasLeft"] == has_left, "{victim}");
        let life = answers(scene, &format!("trace job/{job}")).await?;
        let standing = if has_left { "has left" } else { "is leaving" };
        ensure!(life["preemptedFor"]["job"] == full("high"), "{life}");
        ensure!(life["preemptedFor"]["victim"] == standing, "{life}");
        ensure!(life["preemptedFor"]["reason"] == "InClusterQueue", "{life}");
    }
    let life = answers(scene, "trace job/high").await?;
    let mut displaced: Vec<&Value> =
        life["preempted"].as_array().context("a list")?.iter().map(|victim| &victim["job"]).collect();
    displaced.sort_by_key(ToString::to_string);
    ensure!(displaced == [&Value::from(full("quick")), &Value::from(full("slow"))], "{life}");

    let slow = scene.workload("slow").await?;
    scene.event(WORKLOAD, name(&slow), "EvictedDueToPreempted").await?;
    scene.event(JOB, "slow", "Started").await?;
    let text = says(scene, &format!("trace job/slow -n {}", scene.name())).await?;
    for line in ["QuotaReserved=True", "Evicted=True", "Started", "EvictedDueToPreempted", "it is leaving"] {
        ensure!(text.contains(line), "{line}: {text}");
    }
    let text = says(scene, &format!("explain job/high -n {}", scene.name())).await?;
    ensure!(text.contains("1 terminating") && text.contains(&full("slow")), "{text}");
    not_traced(scene).await
}

async fn not_traced(scene: &Scene) -> Result<()> {
    let mut without_queue = Job::new("alone").object();
    without_queue["metadata"]["labels"] = Value::Null;
    scene.create_object(without_queue).await?;
    complains(scene, "trace job/missing", "there is no Job").await?;
    complains(scene, "trace job/alone", "names no queue").await?;
    complains(scene, "trace missing", "is not job/NAME").await
}

/// One runs, one waits since it left, one is leaving, and one waits for it. Replayed, those who leave are gone at once.
pub async fn snapshot_is_replayed(scene: &Scene) -> Result<()> {
    one_of_two_has_left(scene).await?;
    scene.later().await?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("dump.yaml");
    let file = file.to_str().context("a path of text")?;
    says(scene, &format!("snapshot -o {file}")).await?;
    ensure!(says(scene, "snapshot").await?.lines().count() > 10, "without a file it is printed");
    complains_of_file(scene, directory.path().to_str().context("a path of text")?).await?;

    let replay = std::process::Command::new(env!("CARGO_BIN_EXE_gangway"))
        .args(["replay", file, "-o", "json"])
        .output()?;
    ensure!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    let answer: Value = serde_json::from_slice(&replay.stdout)?;
    ensure!(answer["outcome"] == "quiescent" && answer["scenario"] == "snapshot", "{answer}");
    let mut states = Vec::new();
    for job in ["quick", "slow", "high"] {
        let workload = scene.workload(job).await?;
        let full = format!("{}/{}", scene.name(), name(&workload));
        states.push((job, answer["final"]["workloads"][full.as_str()]["state"].clone()));
    }
    let expected = [("quick", "pending"), ("slow", "pending"), ("high", "admitted")];
    ensure!(states == expected.map(|(job, state)| (job, Value::from(state))), "{states:?}");
    Ok(())
}

async fn complains_of_file(scene: &Scene, directory: &str) -> Result<()> {
    let (code, _, complaint) = scene.gangway(&format!("snapshot -o {directory}")).await?;
    ensure!(code == Some(2) && complaint.contains("cannot be written"), "{code:?}: {complaint}");
    Ok(())
}
