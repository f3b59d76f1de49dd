//! Why does a pod wait? For people in sentences and a table, for programs in one object.

use gangway_api::time::to_rfc3339;
use gangway_controller::pods::{ExplainedPod, Turn};
use gangway_placement::{Diagnosis, Explanation, State};
use serde_json::{Value, json};

use super::next_try;
use crate::render::palette::{Palette, Tone};
use crate::render::table::Table;

/// The answer for people.
pub fn lines(pod: &str, explained: &ExplainedPod, palette: Palette) -> Vec<String> {
    let ExplainedPod { explanation, scheduler_name, turn, condition, .. } = explained;
    let situation = palette.paint(Tone::Strong, situation(&explanation.state));
    let mut lines =
        vec![format!("{pod}: {situation}"), format!("  It asks for the scheduler {scheduler_name}")];
    if !explained.has_profile {
        lines.push(
            "  The configuration has no profile of that name: judged by the default plugins".to_owned(),
        );
    }
    lines.extend(details(&explanation.state).map(|line| format!("  {line}")));
    if let Some(diagnosis) = &explanation.diagnosis {
        lines.push(format!("  {diagnosis}"));
    }
    lines.extend(told(turn).map(|line| format!("  {line}")));
    lines.extend(explanation.shortages.iter().map(|shortage| format!("  Missing: {shortage}")));
    if let Some(table) = plugins(explanation) {
        lines.push(String::new());
        lines.extend(table.lines(palette, None).into_iter().map(|line| format!("  {line}")));
    }
    let next_try = next_try::lines(explained);
    if !next_try.is_empty() {
        lines.push(String::new());
        lines.extend(next_try.into_iter().map(|line| format!("  {line}")));
    }
    if let Some(condition) = condition {
        lines.push(format!("  Last told: {}: {}", condition.reason, condition.message));
    }
    lines
}

fn situation(state: &State) -> &'static str {
    match state {
        State::Unknown => "Unknown",
        State::Gated(_) => "SchedulingGated",
        State::Unsupported(_) => "Unsupported",
        State::Active | State::BackingOff(_) | State::BackingOffAfterError(_) => "Waiting",
        State::Unschedulable { .. } => "Unschedulable",
        State::Preempting(_) => "Preempting",
        State::Assumed(_) => "Fits",
        State::Bound(_) => "Scheduled",
    }
}

fn details(state: &State) -> Option<String> {
    Some(match state {
        State::Gated(gates) => format!("It has scheduling gates: {}", gates.join(", ")),
        State::Unsupported(fields) => format!("This scheduler cannot judge {}", fields.join(", ")),
        State::Bound(node) => format!("It has the node {node}"),
        State::BackingOff(until) | State::BackingOffAfterError(until) => {
            format!("It is not tried before {}", to_rfc3339(*until))
        }
        _ => return None,
    })
}

fn told(turn: &Turn) -> Option<String> {
    match turn {
        Turn::Placed(node) => Some(format!("It fits: if it were its turn now it would get the node {node}")),
        Turn::Preempts { node, victims } => {
            let names: Vec<String> = victims.iter().map(|victim| victim.name.to_string()).collect();
            Some(format!("Room could be made on {node}: {} would have to leave", names.join(", ")))
        }
        Turn::Waits | Turn::None => None,
    }
}

/// Which plugin rules out how many nodes, and what would wake the pod.
fn plugins(explanation: &Explanation) -> Option<Table> {
    let ruled_out = &explanation.diagnosis.as_ref()?.by_plugin;
    if ruled_out.is_empty() {
        return None;
    }
    let mut table = Table::new(&["PLUGIN", ">NODES RULED OUT", "WOKEN BY"]);
    for (plugin, nodes) in ruled_out {
        let wakers = explanation.wakers.iter().find(|(known, _)| known == plugin);
        let wakers = wakers.map(|(_, events)| events.join(", ")).unwrap_or_default();
        table.row([plugin.to_string(), nodes.to_string(), wakers]);
    }
    Some(table)
}

/// The answer for programs.
pub fn as_json(pod: &str, explained: &ExplainedPod) -> Value {
    let ExplainedPod { explanation, scheduler_name, turn, condition, .. } = explained;
    let by_plugin = |diagnosis: &Diagnosis| -> Value {
        diagnosis.by_plugin.iter().map(|(plugin, nodes)| (plugin.to_string(), json!(nodes))).collect()
    };
    let turn = match turn {
        Turn::Placed(node) => json!({"node": node.as_str()}),
        Turn::Preempts { node, victims } => json!({
            "node": node.as_str(),
            "victims": victims.iter().map(|victim| victim.name.to_string()).collect::<Vec<_>>(),
        }),
        Turn::Waits | Turn::None => Value::Null,
    };
    let wakers: Value =
        explanation.wakers.iter().map(|(plugin, events)| (plugin.to_string(), json!(events))).collect();
    json!({
        "pod": pod,
        "schedulerName": scheduler_name,
        "hasProfile": explained.has_profile,
        "situation": situation(&explanation.state),
        "nodes": explanation.diagnosis.as_ref().map(|diagnosis| diagnosis.nodes),
        "fitting": explanation.diagnosis.as_ref().map(|diagnosis| diagnosis.fitting),
        "ruledOut": explanation.diagnosis.as_ref().map(by_plugin),
        "reasons": explanation.diagnosis.as_ref().map(|diagnosis| json!(diagnosis.reasons)),
        "wokenBy": wakers,
        "ifItWereItsTurn": turn,
        "nextTry": next_try::as_json(explained),
        "nominatedNode": explanation.nominated_node.as_ref().map(|node| node.as_str()),
        "missing": explanation.shortages.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "lastTold": condition.as_ref().map(|told| json!({"reason": told.reason, "message": told.message})),
    })
}
