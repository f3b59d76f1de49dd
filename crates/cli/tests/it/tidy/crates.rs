//! Who may use whom: the table of crates in ARCHITECTURE.md.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::{assert_none, workspace_root};

/// The rooms, and which other rooms each of them may use. Tests may use more.
const ROOMS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("admission", &["model"]),
    ("placement", &["model"]),
    ("api", &["model"]),
    ("apiserver", &["model", "api"]),
    ("controller", &["model", "api", "admission", "placement"]),
    ("node", &["model", "api"]),
    ("sim", &["model", "api", "admission", "placement", "apiserver", "controller", "node"]),
    ("cli", &["model", "api", "admission", "placement", "apiserver", "controller", "node", "sim"]),
];

/// The rooms that decide. They have no I/O, no clock, no runtime, no randomness and no Kubernetes.
const PURE: &[&str] = &["model", "admission", "placement"];

/// What would bring one of those in; a trailing `*` stands for any ending.
const IMPURE: &[&str] = &[
    "kube*",
    "k8s-openapi*",
    "tokio*",
    "futures*",
    "async-*",
    "hyper*",
    "http*",
    "rand*",
    "fastrand",
    "getrandom",
    "jiff",
    "chrono",
    "time",
    "nix",
    "libc",
    "parking_lot",
];

#[test]
fn every_crate_uses_only_what_its_room_allows() {
    let mut offences = Vec::new();
    let packages = packages();
    for package in &packages {
        let Some((_, allowed)) = ROOMS.iter().find(|(room, _)| *room == package.room) else {
            offences.push(format!("crates/{} is not in the table of crates", package.room));
            continue;
        };
        for used in package.dependencies.iter().filter_map(|name| name.strip_prefix("gangway-")) {
            if !allowed.contains(&used) {
                offences.push(format!("{} may not use {used}", package.room));
            }
        }
    }
    for (room, _) in ROOMS {
        if !packages.iter().any(|package| package.room == *room) {
            offences.push(format!("the table of crates names {room}, which does not exist"));
        }
    }
    assert_none("the table of crates (ARCHITECTURE.md) holds", &offences);
}

#[test]
fn the_rooms_that_decide_are_pure() {
    let mut offences = Vec::new();
    for package in packages().iter().filter(|package| PURE.contains(&package.room.as_str())) {
        for dependency in package.dependencies.iter().filter(|name| is_impure(name)) {
            offences.push(format!("{} uses {dependency}", package.room));
        }
    }
    assert_none("model, admission and placement do without I/O, clocks and Kubernetes", &offences);
}

fn is_impure(dependency: &str) -> bool {
    IMPURE.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => dependency.starts_with(beginning),
        None => dependency == *pattern,
    })
}

struct Package {
    /// The name without the common beginning.
    room: String,
    /// What it uses outside its tests.
    dependencies: BTreeSet<String>,
}

fn packages() -> Vec<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(workspace_root())
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata writes JSON");
    let packages = metadata["packages"].as_array().expect("a list of packages");
    packages.iter().map(package).collect()
}

fn package(metadata: &Value) -> Package {
    let name = metadata["name"].as_str().expect("a package has a name");
    let dependencies = metadata["dependencies"].as_array().expect("a list of dependencies");
    Package {
        room: name.strip_prefix("gangway-").unwrap_or(name).to_owned(),
        dependencies: dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect(),
    }
}
