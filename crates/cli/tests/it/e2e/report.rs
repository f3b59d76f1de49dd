//! What a failed scenario left behind, in a form that can be read.

use std::fmt::Write;

use serde_json::Value;

use super::kinds::{CLUSTER_QUEUE, COHORT, EVENT, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD};
use super::objects::{name, read_condition};
use super::scene::Scene;

/// Events that are shown, the latest.
const EVENTS_MAX: usize = 30;

/// Every object of the scene with its conditions, and the latest events.
pub async fn describe(scene: &Scene) -> String {
    let mut text = String::new();
    for kind in [COHORT, CLUSTER_QUEUE, LOCAL_QUEUE, WORKLOAD, JOB, POD] {
        for object in list(scene, kind, &mut text).await {
            if kind.is_cluster_wide() && !name(&object).starts_with(scene.name()) {
                continue;
            }
            describe_object(kind, &object, &mut text);
        }
    }
    let mut events = list(scene, EVENT, &mut text).await;
    events.sort_by_key(|event| event["metadata"]["creationTimestamp"].to_string());
    for event in &events[events.len().saturating_sub(EVENTS_MAX)..] {
        line(&mut text, &describe_event(event));
    }
    text
}

/// An error in one line: what was tried, and what the API said.
pub fn explain(error: &anyhow::Error) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => format!("{error}: {}", status.message),
        _ => format!("{error:#}"),
    }
}

async fn list(scene: &Scene, kind: Kind, text: &mut String) -> Vec<Value> {
    scene.list(kind).await.unwrap_or_else(|error| {
        line(text, &format!("{}: {}", kind.kind, explain(&error)));
        Vec::new()
    })
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "      | {line}").expect("writing to a string does not fail");
}

fn describe_object(kind: Kind, object: &Value, text: &mut String) {
    let details: Vec<String> = details(kind)
        .iter()
        .filter_map(|path| object.pointer(path).map(|value| format!("{path}={value}")))
        .collect();
    line(text, &format!("{} {}  {}", kind.kind, name(object), details.join(" ")));
    for raw in object["status"]["conditions"].as_array().into_iter().flatten() {
        let condition = read_condition(raw);
        let kind = raw["type"].as_str().unwrap_or_default();
        line(text, &format!("    {kind}={}/{}: {}", condition.status, condition.reason, condition.message));
    }
}

/// The fields that say most about an object.
fn details(kind: Kind) -> &'static [&'static str] {
    match kind.kind {
        "Workload" => &["/spec/active", "/spec/queueName", "/spec/priority", "/status/admission"],
        "Job" => &[
            "/spec/suspend",
            "/spec/parallelism",
            "/spec/template/spec/nodeSelector",
            "/status/active",
            "/status/terminating",
            "/status/succeeded",
            "/status/failed",
        ],
        "Cohort" => &["/spec/parentName", "/spec/resourceGroups"],
        "Pod" => &["/status/phase", "/spec/nodeName", "/metadata/deletionTimestamp", "/metadata/finalizers"],
        _ => &[
            "/spec/stopPolicy",
            "/status/pendingWorkloads",
            "/status/reservingWorkloads",
            "/status/admittedWorkloads",
            "/status/flavorsReservation",
        ],
    }
}

fn describe_event(event: &Value) -> String {
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    let about = &event["involvedObject"];
    format!(
        "Event {} {} on {} {}: {}",
        text(&event["type"]),
        text(&event["reason"]),
        text(&about["kind"]),
        text(&about["name"]),
        text(&event["message"])
    )
}
