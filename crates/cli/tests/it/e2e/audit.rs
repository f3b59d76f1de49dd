//! What the audit log of a real API server tells of the requests of Gangway's parts.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use gangway_api::install::{DEFAULT_NAMESPACE, RIGHTS, Which};
use serde_json::Value;

use super::kinds::Kind;

/// A request that was to change something, and how it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub verb: String,
    pub uri: String,
    pub code: i64,
}

/// What one of Gangway's parts has asked for to change one object, in order.
pub fn writes_of(log: &Path, part: &str, kind: Kind, namespace: &str, name: &str) -> Result<Vec<Write>> {
    let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
    // The last line may be about to be written.
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_about = |entry: &Value| {
        let object = &entry["objectRef"];
        object["resource"] == kind.plural && object["namespace"] == namespace && object["name"] == name
    };
    let agent = format!("gangway-{part}/");
    let is_parts =
        |entry: &Value| entry["userAgent"].as_str().is_some_and(|user_agent| user_agent.starts_with(&agent));
    let is_write = |entry: &Value| !matches!(entry["verb"].as_str(), Some("get" | "list" | "watch"));
    let wanted = entries.filter(|entry| is_about(entry) && is_parts(entry) && is_write(entry));
    Ok(wanted.map(|entry| write(&entry)).collect())
}

fn write(entry: &Value) -> Write {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let code = entry["responseStatus"]["code"].as_i64().unwrap_or_default();
    Write { verb: text(&entry["verb"]), uri: text(&entry["requestURI"]), code }
}

/// Groups that a control plane without add-ons does not serve.
const ADD_ONS: [&str; 7] = [
    "jobset.x-k8s.io",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "sparkoperator.k8s.io",
    "trainer.kubeflow.org",
    "workload.codeflare.dev",
];

/// Rights of the installed accounts that no request has needed so far, as part, resource and verb.
pub fn unused_rights(log: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(log).with_context(|| format!("read {}", log.display()))?;
    let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let used: BTreeSet<(String, String)> = entries.filter_map(|entry| used_right(&entry)).collect();
    let is_here = |which: Which, group: &str| which != Which::AllOfOlder && !ADD_ONS.contains(&group);
    let mut unused = Vec::new();
    for right in RIGHTS.iter().filter(|right| is_here(right.which, right.group)) {
        for resource in right.resources {
            for verb in right.verbs {
                let one = format!("{} {resource} {verb}", right.part);
                if !used.contains(&(right.group.to_owned(), one.clone())) {
                    unused.push(one);
                }
            }
        }
    }
    Ok(unused)
}

/// The group, and the right that an installed account has used with a request.
fn used_right(entry: &Value) -> Option<(String, String)> {
    let accounts = format!("system:serviceaccount:{DEFAULT_NAMESPACE}:");
    let part = entry["user"]["username"].as_str()?.strip_prefix(&accounts)?.to_owned();
    let text = |field: &str| entry["objectRef"][field].as_str().unwrap_or_default();
    let resource = match text("subresource") {
        "" => text("resource").to_owned(),
        subresource => format!("{}/{subresource}", text("resource")),
    };
    Some((text("apiGroup").to_owned(), format!("{part} {resource} {}", entry["verb"].as_str()?)))
}
