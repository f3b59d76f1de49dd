//! `gangway sim check`: the same seed is the same story, in every process.

use std::process::{Command, Output};

use serde_json::Value;

use crate::tidy::workspace_root;

fn sim_check(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gangway"));
    command.args(["sim", "check"]).args(arguments).env_remove("KUBECONFIG").output().expect("gangway runs")
}

fn report(seed: &str) -> Value {
    let output = sim_check(&["--seeds", "2", "--seed", seed, "--jobs", "8", "-o", "json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn the_same_seeds_give_the_same_hash_in_two_processes() {
    let (one, again, other) = (report("7"), report("7"), report("11"));
    assert_eq!(one["hash"], again["hash"]);
    assert_eq!(one["checkedSteps"], again["checkedSteps"]);
    assert_ne!(one["hash"], other["hash"]);
    assert!(one["checkedSteps"].as_u64().is_some_and(|steps| steps > 300), "{one}");
}

#[test]
fn a_trace_tells_what_happens_and_ends_with_the_hash() {
    let output = sim_check(&["--seeds", "1", "--seed", "7", "--jobs", "4", "--trace"]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    for part in [
        "Submit(JobPlan",
        "gangway-controller +workloads/",
        "has quota of",
        "ended: Succeeded",
        " steps, hash ",
    ] {
        assert!(told.contains(part), "{part:?} is missing in\n{told}");
    }
}

#[test]
fn a_trace_of_many_seeds_is_refused() {
    let output = sim_check(&["--seeds", "2", "--trace"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--trace tells of one scenario"));
}

#[test]
fn the_page_lists_every_sentence_as_it_is_checked() {
    let page = std::fs::read_to_string(workspace_root().join("docs/simulation.md")).expect("the page");
    let listed = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| |")).count();
    for invariant in gangway_sim::INVARIANTS {
        let row = format!("| {} | {} |", invariant.id, invariant.sentence);
        assert!(page.contains(&row), "docs/simulation.md lacks\n{row}");
    }
    assert_eq!(listed, gangway_sim::INVARIANTS.len());
}
