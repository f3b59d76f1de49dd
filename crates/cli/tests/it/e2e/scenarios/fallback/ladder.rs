//! Which flavor is next when the machines of one do not come.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::super::commands::{answers, says};
use super::queue::Queue;
use super::stage::{Stage, Variant, evictions, timeouts};
use crate::e2e::kinds::WORKLOAD;
use crate::e2e::objects::{Job, condition, name};
use crate::e2e::scene::Scene;

/// A flavor is out of stock: the next is tried at once, told with the reason, counted once, and forgotten when it has started.
pub async fn next_flavor_when_machines_do_not_come(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["on-demand"], &["spot"]).await?;
    stage.queue(&Queue::of(&["spot", "on-demand"]).time("spot", "3s")).await?;
    stage.submit(Job::new("a")).await?;
    let waits = stage.has_flavor("a", "spot").await?;
    ensure!(stage.tried(&waits, "spot")["exhausted"] == false, "{waits}");
    stage.interrupt()?;
    let evicted = stage.workload_has("a", ("Evicted", "True", "FlavorFallback")).await?;
    stage.interrupt()?;
    let spot = stage.tried(&evicted, "spot");
    ensure!(spot["trigger"] == "TimeoutForPodsReadyExceeded", "{evicted}");
    ensure!(stage.given_up(&evicted) == ["spot"] && stage.used(&evicted, "spot") >= 3, "{evicted}");
    ensure!(*evictions(&evicted) == json!([timeouts(1)]), "{evicted}");
    ensure!(evicted["status"]["requeueState"].is_null(), "no backoff and no count: {evicted}");
    stage.is_told(&evicted, "EvictedDueToFlavorFallback").await?;

    let ready = stage.starts_on("a", "on-demand").await?;
    ensure!(condition(&ready, "Requeued").is("True", "FlavorFallback"), "{ready}");
    ensure!(*evictions(&ready) == json!([timeouts(1)]), "neither lost nor counted twice: {ready}");
    let life = answers(&stage, "trace job/a").await?;
    let is_told = life["timeline"].to_string().contains("EvictedDueToFlavorFallback");
    ensure!(is_told || stage.variant.restarted, "{life}");
    stage.finishes("a").await
}

/// The document's first story and its first integration test: the reservation is full, spot is out of stock. Back to the
/// reservation if it is free by then, otherwise on to on-demand; never to spot again.
async fn reservation_spot_on_demand(stage: Stage<'_>, is_freed: bool) -> Result<()> {
    stage.flavors(&["reservation", "on-demand"], &["spot"]).await?;
    let queue = |time: &str| Queue::of(&["reservation", "spot", "on-demand"]).time("spot", time);
    // Who has to be free by then takes the time it takes.
    stage.queue(&queue(if is_freed { "1h" } else { "3s" })).await?;
    stage.submit(Job::new("first")).await?;
    stage.starts_on("first", "reservation").await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "spot").await?;
    if is_freed {
        stage.finishes("first").await?;
        stage.queue_becomes(&queue("3s")).await?;
    }
    stage.interrupt()?;
    let ready = stage.starts_on("a", if is_freed { "reservation" } else { "on-demand" }).await?;
    ensure!(*evictions(&ready) == json!([timeouts(1)]), "spot was tried once: {ready}");
    stage.finishes("a").await
}

pub async fn back_to_the_reservation(stage: Stage<'_>) -> Result<()> {
    reservation_spot_on_demand(stage, true).await
}

pub async fn on_to_the_third_flavor(stage: Stage<'_>) -> Result<()> {
    reservation_spot_on_demand(stage, false).await
}

/// The document's second story: first A, on fallback B, and where that is out of stock too, C.
pub async fn down_the_whole_ladder(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["c"], &["a", "b"]).await?;
    stage.queue(&Queue::of(&["a", "b", "c"]).time("a", "2s").time("b", "2s")).await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavor("a", "a").await?;
    stage.interrupt()?;
    let second = stage.has_flavor("a", "b").await?;
    ensure!(stage.given_up(&second) == ["a"], "{second}");
    stage.interrupt()?;
    let ready = stage.starts_on("a", "c").await?;
    ensure!(*evictions(&ready) == json!([timeouts(2)]), "neither lost nor counted twice: {ready}");
    stage.finishes("a").await
}

/// The interleaving of the document's "Risks": A is full, so B is tried and fails. Meanwhile A has become free, is tried and fails
/// too. Each has its own time, from its own assignment on, and when both have failed all begin again.
pub async fn the_full_one_and_the_other_fail_in_turn(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&[], &["a", "b"]).await?;
    stage.queue(&Queue::of(&["a", "b"]).time("a", "3s").time("b", "3s")).await?;
    stage.machines_come("a", true).await?;
    stage.submit(Job::new("first")).await?;
    stage.starts_on("first", "a").await?;
    stage.machines_come("a", false).await?;
    stage.submit(Job::new("w")).await?;
    let on_b = stage.has_flavor("w", "b").await?;
    ensure!(stage.tried(&on_b, "a").is_null(), "nobody tried A: {on_b}");
    stage.finishes("first").await?;
    stage.interrupt()?;

    let on_a = stage.has_flavor("w", "a").await?;
    ensure!(stage.given_up(&on_a) == ["b"] && stage.used(&on_a, "a") == 0, "{on_a}");
    stage.interrupt()?;
    let evicted = |w: &Value| condition(w, "Evicted").status == "True" && stage.given_up(w) == ["b", "a"];
    let evicted = stage.workload_that("w", "has given up both", evicted).await?;
    ensure!(stage.used(&evicted, "a") >= 3 && stage.used(&evicted, "b") >= 3, "{evicted}");
    let again = stage.workload_has("w", ("Requeued", "False", "FlavorFallback")).await?;
    ensure!(stage.given_up(&again).is_empty() && stage.tried(&again, "a")["rounds"] == 1, "{again}");
    ensure!(*evictions(&again) == json!([timeouts(2)]), "{again}");
    Ok(())
}

/// Both groups lack machines, and each has its own time: each falls back when its own is over, and the other stays where it is.
pub async fn groups_with_different_times(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["on-demand"], &["spot", "slow-memory"]).await?;
    let queue = Queue::of(&["spot", "on-demand"]).time("spot", "2s").of_memory(["slow-memory", "memory"]);
    stage.queue(&queue.memory_time(Some("8s"))).await?;
    stage.submit(Job::new("a")).await?;
    stage.has_flavors("a", "spot", "slow-memory").await?;
    stage.interrupt()?;
    let second = stage.has_flavors("a", "on-demand", "slow-memory").await?;
    ensure!(stage.given_up(&second) == ["spot"], "{second}");
    ensure!(stage.used(&second, "slow-memory") >= 2, "its time went on: {second}");
    stage.interrupt()?;
    let ready = stage.starts_on("a", "on-demand").await?;
    ensure!(*evictions(&ready) == json!([timeouts(2)]), "{ready}");
    stage.finishes("a").await
}

/// Two pod sets have different flavors with different times: each time one is over, both look for flavors again, and only what was
/// given up is left out.
pub async fn pod_sets_with_different_times(stage: Stage<'_>) -> Result<()> {
    stage.flavors(&["c", "d"], &["a", "b"]).await?;
    stage.queue(&Queue::of(&["a", "b", "c", "d"]).time("a", "2s").time("b", "8s")).await?;
    // Nobody runs its pods: that is not what this is about.
    stage.create_object(stage.workload_of(&["driver", "workers"])).await?;
    let have = async |first: &str, second: &str| {
        let wanted = [first, second].map(|flavor| stage.own(flavor));
        let has = |workload: &Value| {
            let sets = &workload["status"]["admission"]["podSetAssignments"];
            [0, 1].map(|set| sets[set]["flavors"]["cpu"].as_str().unwrap_or_default().to_owned()) == wanted
        };
        let what = format!("Workload by-hand has flavors {wanted:?}");
        stage.until_workload("by-hand", &what, |workload| name(workload) == "by-hand", has).await
    };
    have("a", "b").await?;
    stage.interrupt()?;
    let second = have("b", "c").await?;
    ensure!(stage.given_up(&second) == ["a"], "{second}");
    ensure!(stage.used(&second, "b") >= 2, "the time of the other went on: {second}");
    stage.interrupt()?;
    let third = have("c", "d").await?;
    ensure!(stage.given_up(&third) == ["a", "b"] && stage.used(&third, "b") >= 8, "{third}");
    ensure!(*evictions(&third) == json!([timeouts(2)]), "{third}");
    // It would start for ever, and hold up whoever comes after it where one starts at a time.
    stage.delete(WORKLOAD, "by-hand").await
}

/// A dump is taken while the second flavor is tried. Replayed it stays there; when time passes it goes on to the third, and not
/// back to the first.
pub async fn snapshot_goes_on_where_it_was_taken(scene: &Scene) -> Result<()> {
    let stage = Stage::open(scene, Variant::PLAIN).await?;
    stage.flavors(&["c"], &["a", "b"]).await?;
    stage.queue(&Queue::of(&["a", "b", "c"]).time("a", "2s").time("b", "1h")).await?;
    stage.submit(Job::new("a")).await?;
    let on_b = stage.has_flavor("a", "b").await?;
    ensure!(stage.given_up(&on_b) == ["a"], "{on_b}");
    let full = format!("{}/{}", scene.name(), name(&on_b));
    let dump = says(&stage, "snapshot").await?;
    let at_once = replayed(&dump)?;
    ensure!(happened_to(&full, "admitted", &at_once).is_empty(), "it has its flavor: {at_once}");
    ensure!(happened_to(&full, "evicted", &at_once).is_empty(), "it has time: {at_once}");

    // The Replay document is the first of a dump. Ten seconds more than the second flavor may take:
    let later = dump.replacen("\nspec:\n", "\nspec:\n  pauses: [{round: 1, seconds: 3610}]\n", 1);
    let later = replayed(&later)?;
    let evicted = happened_to(&full, "evicted", &later);
    ensure!(evicted.len() == 1 && evicted[0]["reason"] == "FlavorFallback", "{later}");
    let admitted = happened_to(&full, "admitted", &later);
    let flavors: Vec<&Value> = admitted.iter().map(|entry| &entry["podSets"][0]["flavors"]["cpu"]).collect();
    ensure!(flavors == [&json!(stage.own("c"))], "{later}");
    Ok(())
}

/// What a replay did with a Workload, one after the other.
fn happened_to<'a>(full: &str, what: &str, answer: &'a Value) -> Vec<&'a Value> {
    let cycles = answer["cycles"].as_array().into_iter().flatten();
    let entries = cycles.flat_map(|cycle| cycle[what].as_array().into_iter().flatten());
    entries.filter(|entry| entry["workload"] == full).collect()
}

fn replayed(dump: &str) -> Result<Value> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("dump.yaml");
    std::fs::write(&file, dump)?;
    let command = env!("CARGO_BIN_EXE_gangway");
    let replay =
        std::process::Command::new(command).arg("replay").arg(&file).args(["-o", "json"]).output()?;
    ensure!(replay.status.success(), "{}", String::from_utf8_lossy(&replay.stderr));
    Ok(serde_json::from_slice(&replay.stdout)?)
}
