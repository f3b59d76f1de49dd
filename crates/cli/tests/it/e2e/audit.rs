//! What the audit log of a real API server tells of the requests of Gangway's parts.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
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
