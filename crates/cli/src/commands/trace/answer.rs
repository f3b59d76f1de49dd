//! The answer: for people as a table and sentences, for programs as one object.

use gangway_api::kueue::Workload;
use gangway_api::time::{to_api_micro, to_rfc3339};
use gangway_model::Timestamp;
use serde_json::{Value, json};

use super::life::{Entry, Life};
use super::relations::Other;
use crate::commands::jobs::{called, full_name, job_of};
use crate::commands::ladder::{ladder, ladder_json};
use crate::render::palette::{Palette, Tone};
use crate::render::span::span;
use crate::render::table::Table;

/// What stands where something is not stored.
const NOT_RECORDED: &str = "not recorded";

/// The answer for people.
pub fn lines(life: &Life<'_>, palette: Palette) -> Vec<String> {
    let workload =
        life.current().map_or_else(|| "no Workload".to_owned(), |own| format!("Workload {}", full_name(own)));
    let title = format!("Job {}", full_name(life.job));
    let mut lines = vec![format!("{}, {workload}", palette.paint(Tone::Strong, &title)), String::new()];
    let mut table = Table::new(&[">AFTER", "TIME", "OBJECT", "WHAT", "WHY"]);
    for entry in life.entries() {
        table.row(row(life, &entry));
    }
    lines.extend(table.lines(palette, None));
    let mut notes: Vec<String> = life.preemptor().iter().map(preempted_for).collect();
    notes.extend(life.victims().iter().map(preempted));
    notes.extend(life.ladder.iter().map(|rungs| format!("Flavors: {}", ladder(rungs))));
    notes.extend(life.evictions().map(evictions));
    if life.retries() > 0 {
        notes.push(format!("Retries because its pods were not ready in time: {}", life.retries()));
    }
    notes.extend(life.not_recorded().iter().map(|what| format!("Not recorded: {what}")));
    if !notes.is_empty() {
        lines.push(String::new());
        lines.extend(notes);
    }
    lines
}

fn row(life: &Life<'_>, entry: &Entry) -> Vec<String> {
    let after = offset(life, entry.at).map(span);
    let why = match (entry.reason.as_str(), entry.message.as_str()) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    };
    let time = to_rfc3339(entry.at);
    vec![
        after.unwrap_or_else(|| NOT_RECORDED.to_owned()),
        time,
        entry.object.clone(),
        entry.what.clone(),
        why,
    ]
}

/// Nanoseconds from the creation of the Job.
fn offset(life: &Life<'_>, at: Timestamp) -> Option<i64> {
    life.created().map(|created| at.nanos_since(created))
}

fn name(other: &Other<'_>) -> String {
    other.workload.map_or_else(|| format!("a Workload that is gone (uid {})", other.uid), called)
}

fn reason(other: &Other<'_>) -> String {
    match other.reason {
        Some(reason) => format!("{reason}: {}", reason.doc().meaning),
        None => format!("By which right is {NOT_RECORDED}."),
    }
}

fn preempted_for(other: &Other<'_>) -> String {
    format!("Preempted for {}; it {}. {}", name(other), other.standing, reason(other))
}

fn preempted(other: &Other<'_>) -> String {
    format!("Displaced {}, which {}. {}", name(other), other.standing, reason(other))
}

fn evictions(counts: &[gangway_api::kueue::EvictionCount]) -> String {
    let one = |count: &gangway_api::kueue::EvictionCount| match count.underlying_cause.as_str() {
        "" => format!("{} ×{}", count.reason, count.count),
        cause => format!("{}/{cause} ×{}", count.reason, count.count),
    };
    format!("Evictions: {}", counts.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// The answer for programs; null is what is not recorded.
pub fn as_json(life: &Life<'_>) -> Value {
    let entry = |entry: &Entry| {
        json!({
            "at": to_api_micro(entry.at).0.to_string(),
            "offsetSeconds": offset(life, entry.at).map(|nanos| nanos as f64 / 1e9),
            "source": entry.source.as_str(),
            "object": entry.object,
            "what": entry.what,
            "reason": Some(&entry.reason).filter(|reason| !reason.is_empty()),
            "message": entry.message,
        })
    };
    json!({
        "job": full_name(life.job),
        "workload": life.current().map(full_name),
        "created": life.created().map(to_rfc3339),
        "timeline": life.entries().iter().map(entry).collect::<Vec<_>>(),
        "preemptedFor": life.preemptor().as_ref().map(other_json),
        "preempted": life.victims().iter().map(other_json).collect::<Vec<_>>(),
        "evictions": life.evictions(),
        "retries": life.retries(),
        "ladder": life.ladder.iter().map(|rungs| ladder_json(rungs)).collect::<Vec<_>>(),
        "notRecorded": life.not_recorded(),
    })
}

fn other_json(other: &Other<'_>) -> Value {
    json!({
        "uid": other.uid,
        "workload": other.workload.map(full_name::<Workload>),
        "job": other.workload.and_then(job_of),
        "reason": other.reason.map(|reason| reason.as_str()),
        "victim": other.standing,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::api::core::v1::Event;

    use super::*;

    const AT: [&str; 4] =
        ["2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z", "2026-01-01T00:01:05Z", "2026-01-01T02:00:00Z"];

    fn condition(kind: &str, status: &str, reason: &str, at: &str) -> Value {
        json!({"type": kind, "status": status, "reason": reason, "message": format!("{kind} said"), "lastTransitionTime": at})
    }

    fn workload(name: &str, owner: &str, status: &Value) -> Workload {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": format!("uid-{owner}"), "controller": true});
        serde_json::from_value(json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "namespace": "team", "uid": format!("uid-{name}"),
                "creationTimestamp": AT[0], "ownerReferences": [owner]},
            "spec": {"podSets": []}, "status": status,
        }))
        .unwrap()
    }

    fn job(name: &str) -> Job {
        let metadata = json!({"name": name, "namespace": "team", "uid": format!("uid-{name}"), "creationTimestamp": AT[0]});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn event(about: &str, reason: &str, at: &str) -> Event {
        serde_json::from_value(json!({
            "metadata": {"name": reason}, "involvedObject": {"uid": format!("uid-{about}")}, "reason": reason,
            "message": format!("{reason} said"), "eventTime": at, "count": 2,
        }))
        .unwrap()
    }

    /// `low` was told to leave for `high` and its pods are still there.
    fn leaving() -> Vec<Workload> {
        let conditions = json!([
            condition("QuotaReserved", "True", "QuotaReserved", AT[1]),
            condition("Admitted", "True", "Admitted", AT[1]),
            condition("Evicted", "True", "Preempted", AT[2]),
            condition("Preempted", "True", "InClusterQueue", AT[2]),
        ]);
        let counts =
            json!({"evictions": [{"reason": "Preempted", "underlyingCause": "InClusterQueue", "count": 2}]});
        let requeue = json!({"count": 1, "requeueAt": AT[3]});
        let status = json!({"conditions": conditions, "preemptor": "uid-job-high", "schedulingStats": counts, "requeueState": requeue});
        vec![workload("job-low", "low", &status), workload("job-high", "high", &json!({}))]
    }

    fn told(name: &str, workloads: &[Workload], events: &[Event]) -> (Vec<String>, Value) {
        let job = job(name);
        let own = workloads.iter().filter(|workload| crate::commands::jobs::is_of(workload, &job)).collect();
        let life = Life { job: &job, own, all: workloads, events, ladder: Vec::new() };
        (lines(&life, Palette::None), as_json(&life))
    }

    #[test]
    fn a_victim_tells_when_and_for_whom() {
        let started = event("low", "Started", "2026-01-01T00:00:05.250000Z");
        let (lines, json) = told("low", &leaving(), &[started]);
        let expected = [
            "Job team/low, Workload team/job-low",
            "",
            "AFTER  TIME                  OBJECT    WHAT                WHY",
            "0.00s  2026-01-01T00:00:00Z  Job       created             low",
            "0.00s  2026-01-01T00:00:00Z  Workload  created             job-low",
            "5.00s  2026-01-01T00:00:05Z  Workload  QuotaReserved=True  QuotaReserved: QuotaReserved said",
            "5.00s  2026-01-01T00:00:05Z  Workload  Admitted=True       Admitted: Admitted said",
            "5.25s  2026-01-01T00:00:05Z  Job       Started ×2          Started said",
            "1m05s  2026-01-01T00:01:05Z  Workload  Evicted=True        Preempted: Evicted said",
            "1m05s  2026-01-01T00:01:05Z  Workload  Preempted=True      InClusterQueue: Preempted said",
            "2h00m  2026-01-01T02:00:00Z  Workload  requeueAt           not queued again before; retries: 1",
            "",
            "Preempted for Job team/high (Workload team/job-high); it is leaving. InClusterQueue: A Workload of the same ClusterQueue with a higher priority, or of the same and older, needs its quota.",
            "Evictions: Preempted/InClusterQueue ×2",
            "Retries because its pods were not ready in time: 1",
        ];
        assert_eq!(lines, expected);
        assert_eq!(json["timeline"][4]["offsetSeconds"], json!(5.25));
        assert_eq!(json["timeline"][4]["at"], "2026-01-01T00:00:05.25Z");
        assert_eq!(
            (&json["preemptedFor"]["job"], &json["preemptedFor"]["victim"]),
            (&json!("team/high"), &json!("is leaving"))
        );
        assert_eq!((&json["evictions"][0]["count"], &json["notRecorded"]), (&json!(2), &json!([])));
    }

    #[test]
    fn a_preemptor_tells_whom_it_displaced() {
        let (lines, json) = told("high", &leaving(), &[]);
        let said = "Displaced Job team/low (Workload team/job-low), which is leaving. InClusterQueue: ";
        assert!(lines.iter().any(|line| line.starts_with(said)), "{lines:?}");
        assert_eq!((&json["preempted"][0]["job"], &json["preemptedFor"]), (&json!("team/low"), &Value::Null));
    }

    #[test]
    fn what_nobody_wrote_down_is_called_so() {
        let back = json!({"preemptor": "uid-gone", "conditions": [
            condition("QuotaReserved", "True", "QuotaReserved", AT[2]),
            condition("Admitted", "True", "Admitted", AT[2]),
            condition("Evicted", "False", "QuotaReserved", AT[2]),
            condition("Preempted", "False", "QuotaReserved", AT[2]),
        ]});
        let (lines, json) = told("low", &[workload("job-low", "low", &back)], &[]);
        let missing = [
            "when its Job was started",
            "when it was told to leave",
            "when its last pod was gone",
            "how often it had to leave",
            "which Job the Workload with uid uid-gone stood for: it is gone",
        ];
        assert_eq!(json["notRecorded"], json!(missing));
        for what in missing {
            assert!(lines.contains(&format!("Not recorded: {what}")), "{lines:?}");
        }
        let said = "Preempted for a Workload that is gone (uid uid-gone); it is back. By which right is not recorded.";
        assert!(lines.contains(&said.to_owned()), "{lines:?}");
        let (lines, _) = told("new", &[], &[]);
        assert_eq!(lines[0], "Job team/new, no Workload");
        assert_eq!(lines.last().unwrap(), "Not recorded: when a Workload was made for it: there is none");
    }
}
