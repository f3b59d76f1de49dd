//! The answer for people: what was decided, and how every Workload ended up.

use std::collections::BTreeMap;

use super::answer::{Answer, Cycle, Outcome, PodSet, WorkloadEnd, WorkloadState};
use crate::render::palette::{Palette, Tone};
use crate::render::table::{Cell, Table};

/// The lines of the answer.
pub fn lines(answer: &Answer, palette: Palette) -> Vec<String> {
    let mut lines = Vec::new();
    if answer.cycles.is_empty() {
        lines.push("Nothing would be decided.".to_owned());
    } else {
        lines.extend(decisions(answer).lines(palette, None));
    }
    lines.push(String::new());
    if !answer.end.workloads.is_empty() {
        lines.extend(ends(answer).lines(palette, None));
        lines.push(String::new());
    }
    lines.push(summary(answer));
    lines
}

fn decisions(answer: &Answer) -> Table {
    let with_round = answer.cycles.iter().any(|cycle| cycle.round > 0);
    let headings = ["ROUND", "CYCLE", "WHAT", "WORKLOAD", "QUEUE", "FLAVORS", "FOR WHOM, OR WHY"];
    let mut table = Table::new(if with_round { &headings } else { &headings[1..] });
    for cycle in &answer.cycles {
        for row in rows(cycle) {
            let number = [Cell::from(cycle.cycle.to_string())];
            let round = with_round.then(|| Cell::from(cycle.round.to_string()));
            table.row(round.into_iter().chain(number).chain(row));
        }
    }
    table
}

/// The rows of a cycle, in the order of its decisions.
fn rows(cycle: &Cycle) -> Vec<[Cell; 5]> {
    let mut rows: Vec<(usize, [Cell; 5])> = Vec::new();
    for entry in &cycle.admitted {
        let why = if entry.borrowing { "borrows" } else { "" };
        let what = Cell::new(Tone::Good, "admit");
        let (workload, queue) = (entry.workload.as_str(), entry.cluster_queue.as_str());
        let flavors = flavors(&entry.pod_sets);
        rows.push((entry.sequence, [what, workload.into(), queue.into(), flavors.into(), why.into()]));
    }
    for entry in &cycle.preempted {
        let why = format!("for {}: {}", entry.preemptor, entry.reason);
        let what = Cell::new(Tone::Warn, "preempt");
        let (workload, queue) = (entry.workload.as_str(), entry.cluster_queue.as_str());
        rows.push((entry.sequence, [what, workload.into(), queue.into(), "".into(), why.into()]));
    }
    rows.sort_by_key(|(sequence, _)| *sequence);
    let finished = cycle
        .finished
        .iter()
        .map(|workload| [Cell::from("finish"), workload.as_str().into(), "".into(), "".into(), "".into()]);
    let evicted = cycle.evicted.iter().map(|entry| {
        let what = Cell::new(Tone::Warn, "evict");
        let (workload, queue) = (entry.workload.as_str(), entry.cluster_queue.as_str());
        [what, workload.into(), queue.into(), "".into(), entry.reason.into()]
    });
    finished.chain(evicted).chain(rows.into_iter().map(|(_, row)| row)).collect()
}

/// `cpu: spot, memory: spot` in short: the distinct flavors.
fn flavors(pod_sets: &[PodSet]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for flavor in pod_sets.iter().flat_map(|set| set.flavors.values()) {
        if !distinct.contains(&flavor.as_str()) {
            distinct.push(flavor);
        }
    }
    distinct.join(", ")
}

fn ends(answer: &Answer) -> Table {
    let mut table = Table::new(&["WORKLOAD", "STATE", "QUEUE", "FLAVORS", "WHY IT WAITS"]);
    for (name, end) in &answer.end.workloads {
        let tone = match end.state {
            WorkloadState::Admitted | WorkloadState::Reserved => Tone::Good,
            WorkloadState::Pending => Tone::Warn,
            WorkloadState::Inactive | WorkloadState::Finished => Tone::Dim,
        };
        let state = Cell::new(tone, end.state.as_str());
        let queue = end.cluster_queue.as_deref().unwrap_or_default();
        table.row([
            name.as_str().into(),
            state,
            queue.into(),
            flavors(&end.pod_sets).into(),
            why(end).into(),
        ]);
    }
    table
}

fn why(end: &WorkloadEnd) -> String {
    match (end.reason, &end.message) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        _ => String::new(),
    }
}

fn summary(answer: &Answer) -> String {
    let mut counts: BTreeMap<WorkloadState, usize> = BTreeMap::new();
    for end in answer.end.workloads.values() {
        *counts.entry(end.state).or_default() += 1;
    }
    let counts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {}", state.as_str())).collect();
    let cycles = match answer.cycles_run {
        1 => "1 cycle".to_owned(),
        number => format!("{number} cycles"),
    };
    let how = match answer.outcome {
        Outcome::Quiescent => format!("At rest after {cycles}"),
        Outcome::CycleLimit => format!("Not at rest after {cycles}, which is the limit"),
    };
    match counts.is_empty() {
        true => format!("{how}: there is no Workload."),
        false => format!("{how}: {}.", counts.join(", ")),
    }
}
