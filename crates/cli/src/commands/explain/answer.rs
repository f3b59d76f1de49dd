//! The answer: for people in sentences and a table, for programs in one object.

use gangway_admission::{Explanation, FlavorTrace, ReadyPods, Shortage, Situation, Start, Verdict};
use gangway_api::time::to_rfc3339;
use gangway_model::Amount;
use gangway_model::quantity::{Shown, to_quantity_text};
use gangway_model::reasons::FallbackTrigger;
use serde_json::{Value, json};

use crate::commands::ladder::{checks, checks_json, ladder, ladder_json};
use crate::render::palette::{Palette, Tone};
use crate::render::table::Table;

/// The answer for people.
pub fn lines(job: &str, explanation: &Explanation, preemption: &[String], palette: Palette) -> Vec<String> {
    let situation = palette.paint(Tone::Strong, explanation.situation.as_str());
    let mut lines =
        vec![format!("{job}: {situation}"), format!("  {}", explanation.message), place(explanation)];
    lines.extend(explanation.start.as_ref().map(start));
    lines.extend(
        explanation.ladder.iter().map(|rungs| format!("  Flavors: {}{}", ladder(rungs), round(explanation))),
    );
    if !explanation.checks.is_empty() {
        lines.push(format!("  Admission checks: {}", checks(&explanation.checks)));
    }
    if let Situation::Backoff(until) = explanation.situation {
        let what = match explanation.retries {
            0 => "It is".to_owned(),
            retries => format!("Retry {retries}:"),
        };
        lines.push(format!("  {what} not tried before {}", to_rfc3339(until)));
    }
    lines.extend_from_slice(preemption);
    if !explanation.flavors.is_empty() {
        lines.push(String::new());
        let table = flavor_table(&explanation.flavors).lines(palette, None);
        lines.extend(table.into_iter().map(|line| format!("  {line}")));
    }
    if !explanation.advice.is_empty() {
        lines.push(String::new());
        lines.extend(explanation.advice.iter().map(|advice| ends_when(advice)).take(1));
        lines.extend(
            explanation.flavors.iter().filter_map(missing).map(|missing| format!("  Missing: {missing}")),
        );
        lines.extend(explanation.advice.iter().skip(1).map(|advice| format!("  Try: {advice}")));
    }
    lines
}

/// In which round flavors are tried, unless it is the first.
fn round(explanation: &Explanation) -> String {
    match explanation.rounds {
        0 => String::new(),
        rounds => format!(" (round {})", rounds + 1),
    }
}

/// How far its start has come: `WaitForStart: 3 of 8 pods are ready, all have to be by 2026-01-01T14:03:00Z`.
fn start(start: &Start) -> String {
    let pods = match start.pods {
        Some(ReadyPods { ready, wanted }) => format!("{} of {wanted} pods are ready", ready.min(wanted)),
        None => "how many pods are ready is not known".to_owned(),
    };
    let until = start.until.map(|until| format!(", all have to be by {}", to_rfc3339(until)));
    format!("  {}: {pods}{}", start.reason, until.unwrap_or_default())
}

fn start_json(start: &Start) -> Value {
    json!({
        "reason": start.reason.as_str(),
        "since": to_rfc3339(start.since),
        "until": start.until.map(to_rfc3339),
        "readyPods": start.pods.map(|pods| pods.ready),
        "wantedPods": start.pods.map(|pods| pods.wanted),
    })
}

/// Where it stands.
fn place(explanation: &Explanation) -> String {
    let name = &explanation.name;
    let Some(queue) = &explanation.cluster_queue else { return format!("  Workload {name}") };
    let before = match explanation.ahead {
        0 => String::new(),
        1 => format!(", one goes before it{}", named(explanation)),
        ahead => format!(", {ahead} go before it{}", named(explanation)),
    };
    format!("  Workload {name}, ClusterQueue {queue}{before}")
}

/// The first few of those who go before it.
fn named(explanation: &Explanation) -> String {
    const SHOWN: usize = 3;
    let names: Vec<String> = explanation.first_ahead.iter().take(SHOWN).map(ToString::to_string).collect();
    match names.is_empty() {
        true => String::new(),
        false if explanation.ahead > names.len() => format!(": {}, …", names.join(", ")),
        false => format!(": {}", names.join(", ")),
    }
}

/// A row for each flavor that was tried, with the numbers of what is short.
fn flavor_table(flavors: &[FlavorTrace]) -> Table {
    let headings =
        ["POD SET", "FLAVOR", "VERDICT", "RESOURCE", ">NEED", ">FREE", ">QUOTA", ">BORROWABLE", "IN USE BY"];
    let mut table = Table::new(&headings);
    for trace in flavors {
        let mut row = vec![trace.pod_set.to_string(), trace.flavor.to_string(), verdict(&trace.verdict)];
        row.extend(shortage(&trace.verdict).map(numbers).into_iter().flatten());
        table.row(row);
    }
    table
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Fits => "has room".to_owned(),
        Verdict::Taint(taint) => format!("taint {}={} not tolerated", taint.key, taint.value),
        Verdict::Affinity => "excluded by node selector or affinity".to_owned(),
        Verdict::GivenUp(FallbackTrigger::AdmissionCheckRejected) => "given up: rejected".to_owned(),
        Verdict::GivenUp(_) => "given up: out of time".to_owned(),
        Verdict::Exceeds(_) => "too small".to_owned(),
        Verdict::Busy(_) => "in use".to_owned(),
    }
}

fn shortage(verdict: &Verdict) -> Option<&Shortage> {
    match verdict {
        Verdict::Exceeds(short) | Verdict::Busy(short) => Some(short),
        Verdict::Fits | Verdict::Taint(_) | Verdict::Affinity | Verdict::GivenUp(_) => None,
    }
}

fn numbers(short: &Shortage) -> [String; 6] {
    let shown = |amount: Amount| Shown { resource: &short.resource, amount }.to_string();
    let users = match users(short) {
        users if users.is_empty() => "-".to_owned(),
        users => users,
    };
    [
        short.resource.to_string(),
        shown(Amount::new(short.need)),
        shown(Amount::new(short.free)),
        shown(short.quota),
        shown(short.borrowable),
        users,
    ]
}

/// `research 6, vision 2, kept for others 1`.
fn users(short: &Shortage) -> String {
    let user = |(queue, amount): &(_, i64)| {
        format!("{queue} {}", Shown { resource: &short.resource, amount: Amount::new(*amount) })
    };
    let kept = Shown { resource: &short.resource, amount: Amount::new(short.kept) };
    let kept = (short.kept > 0).then(|| format!("kept for others {kept}"));
    short.used_by.iter().map(user).chain(kept).collect::<Vec<String>>().join(", ")
}

/// How much more would have to be free for a flavor to do.
fn missing(trace: &FlavorTrace) -> Option<String> {
    let Verdict::Busy(short) = &trace.verdict else { return None };
    let amount = Amount::new(short.need.saturating_sub(short.free));
    let amount = Shown { resource: &short.resource, amount };
    let holders = match users(short) {
        users if users.is_empty() => String::new(),
        users => format!(", in use by {users}"),
    };
    Some(format!("{amount} more {} in flavor {}{holders}", short.resource, trace.flavor))
}

/// The sentence goes on after the colon, so it begins with a small letter.
fn ends_when(advice: &str) -> String {
    let mut letters = advice.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
    format!("  It ends when: {first}{}", letters.as_str())
}

/// The answer for programs.
pub fn as_json(explanation: &Explanation) -> Value {
    let flavors = explanation.flavors.iter().map(|trace| {
        json!({
            "podSet": trace.pod_set.as_str(),
            "flavor": trace.flavor.as_str(),
            "fits": trace.verdict == Verdict::Fits,
            "verdict": trace.to_string(),
            "shortage": shortage(&trace.verdict).map(shortage_json),
        })
    });
    json!({
        "workload": explanation.name.to_string(),
        "clusterQueue": explanation.cluster_queue.as_ref().map(ToString::to_string),
        "situation": explanation.situation.as_str(),
        "neverStarts": explanation.situation.never_starts(),
        "message": explanation.message,
        "ahead": explanation.ahead,
        "firstAhead": explanation.first_ahead.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "flavors": flavors.collect::<Vec<_>>(),
        "missing": explanation.flavors.iter().filter_map(missing).collect::<Vec<_>>(),
        "advice": explanation.advice,
        "start": explanation.start.as_ref().map(start_json),
        "retries": explanation.retries,
        "checks": checks_json(&explanation.checks),
        "ladder": explanation.ladder.iter().map(|rungs| ladder_json(rungs)).collect::<Vec<_>>(),
        "rounds": explanation.rounds,
        "notBefore": match explanation.situation {
            Situation::Backoff(until) => Some(to_rfc3339(until)),
            _ => None,
        },
    })
}

/// Amounts as quantities; null is no limit.
fn shortage_json(short: &Shortage) -> Value {
    let text = |amount: i64| to_quantity_text(short.resource.as_str(), amount);
    let limit = |amount: Amount| (!amount.is_unlimited()).then(|| text(amount.value()));
    let used_by = short.used_by.iter();
    let used_by =
        used_by.map(|(queue, amount)| json!({"clusterQueue": queue.as_str(), "amount": text(*amount)}));
    json!({
        "resource": short.resource.as_str(),
        "need": text(short.need),
        "free": text(short.free),
        "quota": limit(short.quota),
        "borrowable": limit(short.borrowable),
        "usedBy": used_by.collect::<Vec<_>>(),
        "kept": text(short.kept),
    })
}

#[cfg(test)]
mod tests {
    use gangway_model::reasons::{PendingReason, ReadinessReason};
    use gangway_model::{ObjectName, Timestamp};

    use super::*;

    fn explanation() -> Explanation {
        let short = Shortage {
            resource: "cpu".into(),
            need: 3000,
            free: 500,
            quota: Amount::new(4000),
            borrowable: Amount::UNLIMITED,
            used_by: vec![("vision".into(), 6000), ("speech".into(), 1500)],
            kept: 250,
        };
        let trace =
            |flavor: &str, verdict| FlavorTrace { pod_set: "main".into(), flavor: flavor.into(), verdict };
        Explanation {
            name: ObjectName::new("team", "job-train"),
            cluster_queue: Some("speech".into()),
            situation: Situation::Waiting(PendingReason::WaitingForQuota),
            message: "too little is free".into(),
            ahead: 2,
            first_ahead: vec![ObjectName::new("team", "job-a"), ObjectName::new("team", "job-b")],
            flavors: vec![trace("spot", Verdict::Busy(short)), trace("on-demand", Verdict::Affinity)],
            advice: vec!["Others end.".into(), "Ask for less.".into()],
            victims: Vec::new(),
            preempted_for: None,
            start: None,
            retries: 0,
            checks: Vec::new(),
            ladder: Vec::new(),
            rounds: 0,
        }
    }

    #[test]
    fn people_see_how_far_a_start_has_come_and_until_when_a_backoff_lasts() {
        let at = Timestamp::from_seconds(1_700_000_000);
        let pods = Some(ReadyPods { ready: 3, wanted: 8 });
        let begun = Start { reason: ReadinessReason::WaitForStart, since: at, until: Some(at), pods };
        let starting = Explanation { situation: Situation::Admitted, start: Some(begun), ..explanation() };
        let told = lines("Job team/train", &starting, &[], Palette::None);
        let expected = "  WaitForStart: 3 of 8 pods are ready, all have to be by 2023-11-14T22:13:20Z";
        assert_eq!(told[3], expected);
        assert_eq!(as_json(&starting)["start"]["readyPods"], 3);
        let back = Explanation { situation: Situation::Backoff(at), retries: 2, ..explanation() };
        let told = lines("Job team/train", &back, &[], Palette::None);
        assert_eq!(told[3], "  Retry 2: not tried before 2023-11-14T22:13:20Z");
        assert_eq!(as_json(&back)["notBefore"], "2023-11-14T22:13:20Z");
    }

    #[test]
    fn people_see_the_numbers_of_each_flavor() {
        let lines = lines("Job team/train", &explanation(), &["  It left.".to_owned()], Palette::None);
        let expected = [
            "Job team/train: WaitingForQuota",
            "  too little is free",
            "  Workload team/job-train, ClusterQueue speech, 2 go before it: team/job-a, team/job-b",
            "  It left.",
            "",
            "  POD SET  FLAVOR     VERDICT                                RESOURCE  NEED  FREE  QUOTA  BORROWABLE  IN USE BY",
            "  main     spot       in use                                 cpu          3  500m      4   unlimited  vision 6, speech 1500m, kept for others 250m",
            "  main     on-demand  excluded by node selector or affinity",
            "",
            "  It ends when: others end.",
            "  Missing: 2500m more cpu in flavor spot, in use by vision 6, speech 1500m, kept for others 250m",
            "  Try: Ask for less.",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn programs_get_the_same_numbers() {
        let value = as_json(&explanation());
        let expected = json!({"resource": "cpu", "need": "3", "free": "500m", "quota": "4", "borrowable": null,
            "usedBy": [{"clusterQueue": "vision", "amount": "6"}, {"clusterQueue": "speech", "amount": "1500m"}], "kept": "250m"});
        assert_eq!(value["flavors"][0]["shortage"], expected);
        assert_eq!((&value["flavors"][1]["shortage"], &value["ahead"]), (&Value::Null, &json!(2)));
    }
}
