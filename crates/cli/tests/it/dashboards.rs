//! The dashboard and the alert rules ask for what there is: every metric and every label in them is one of the list.

use std::collections::BTreeSet;

use gangway_controller::metrics::{Kind, Metric};
use serde_json::Value;

use crate::tidy::workspace_root;

/// Labels that a scrape adds.
const OF_A_SCRAPE: [&str; 4] = ["instance", "job", "pod", "le"];

/// The labels of a metric as a query may name it; none if there is no such metric.
fn labels_of(name: &str) -> Option<Vec<&'static str>> {
    let is_meant = |metric: &&Metric| {
        let about = metric.about();
        about.name == name
            || matches!(about.kind, Kind::Histogram(_))
                && ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|part| name.strip_suffix(part) == Some(about.name))
    };
    let metric = Metric::ALL.iter().find(is_meant)?;
    let role = metric.has_role().then_some("replica_role");
    Some(metric.about().labels.iter().copied().chain(role).collect())
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Every word of a query with what stands after it, but for what stands in quotes.
fn words(query: &str) -> Vec<(String, &str)> {
    let mut words = Vec::new();
    let (mut rest, mut quoted) = (query, false);
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            quoted = !quoted;
        }
        if quoted || !is_word(first) {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        words.push((rest[..end].to_owned(), &rest[end..]));
        rest = &rest[end..];
    }
    words
}

/// What is asked for in a query and is not there.
fn missing(query: &str) -> Vec<String> {
    const PREFIXES: [&str; 4] = ["kueue_", "gangway_", "scheduler_", "multikueue_"];
    let mut missing = Vec::new();
    let mut known: BTreeSet<&str> = OF_A_SCRAPE.into();
    let words = words(query);
    for (name, after) in &words {
        if !PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let Some(labels) = labels_of(name) else {
            missing.push(name.clone());
            continue;
        };
        known.extend(&labels);
        let matchers = after.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or_default();
        let asked = self::words(matchers).into_iter().map(|(label, _)| label);
        missing.extend(
            asked
                .filter(|label| !labels.contains(&label.as_str()) && !OF_A_SCRAPE.contains(&label.as_str()))
                .map(|label| format!("{name}{{{label}}}")),
        );
    }
    for (_, after) in words.iter().filter(|(word, _)| matches!(word.as_str(), "by" | "on" | "without")) {
        let list =
            after.trim_start().strip_prefix('(').and_then(|rest| rest.split(')').next()).unwrap_or_default();
        let labels = list.split(',').map(str::trim);
        missing.extend(labels.filter(|label| !known.contains(label)).map(|label| format!("by {label}")));
    }
    missing
}

/// All texts below a value under one of these keys.
fn texts<'v>(value: &'v Value, keys: &[&str], found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let Some(text) = value.as_str().filter(|_| keys.contains(&key.as_str())) {
                    found.push(text);
                }
                texts(value, keys, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, keys, found)),
        _ => {}
    }
}

fn check(file: &str, value: &Value, least: usize) {
    let mut queries = Vec::new();
    texts(value, &["expr", "query"], &mut queries);
    assert!(queries.len() >= least, "{file} has {} queries", queries.len());
    let wrong: Vec<String> = queries
        .iter()
        .map(|query| (query, missing(query)))
        .filter(|(_, missing)| !missing.is_empty())
        .map(|(query, missing)| format!("{file}: {query}\n  there is no {}", missing.join(", ")))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_dashboard_asks_for_what_there_is() {
    let file = "deploy/grafana/gangway.json";
    let text = std::fs::read_to_string(workspace_root().join(file)).unwrap();
    check(file, &serde_json::from_str(&text).unwrap(), 18);
}

#[test]
fn the_alerts_ask_for_what_there_is() {
    let file = "deploy/alerts.yaml";
    let text = std::fs::read_to_string(workspace_root().join(file)).unwrap();
    let value: Value = serde_saphyr::from_str(&text).unwrap();
    check(file, &value, 9);
    for rule in value["spec"]["groups"][0]["rules"].as_array().unwrap() {
        assert!(
            rule["annotations"]["summary"].is_string() && rule["labels"]["severity"].is_string(),
            "{rule}"
        );
    }
}

#[test]
fn what_is_not_there_is_found() {
    assert_eq!(missing("rate(kueue_pending_workloads{cluster_queue=\"x\"}[5m])"), Vec::<String>::new());
    assert_eq!(missing("kueue_pending_workload"), ["kueue_pending_workload"]);
    assert_eq!(missing("gangway_writes_total{lane=\"kueue_x\"}"), ["gangway_writes_total{lane}"]);
    assert_eq!(missing("sum by (fate, lane) (gangway_writes_total)"), ["by lane"]);
    assert_eq!(missing("kueue_admission_wait_time_seconds_bucket{le=\"1\"}"), Vec::<String>::new());
    assert_eq!(missing("kueue_pending_workloads_bucket"), ["kueue_pending_workloads_bucket"]);
}
