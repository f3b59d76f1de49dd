//! Scenarios and decisions in few words, for the message of a test that fails.

use std::collections::BTreeMap;
use std::fmt::Write;

use gangway_model::checks::RequiredCheck;
use gangway_model::fallback::FallbackStrategy;
use gangway_model::queues::{Quota, ResourceGroup};
use gangway_model::readiness::Timeouts;
use gangway_model::workload::{State, Workload};

use super::drive::Played;
use super::fallback::Said;
use super::generate::Scenario;
use super::readiness::Readiness;
use crate::quota_model::{Decided, Node};

pub fn scenario(scenario: &Scenario) -> String {
    let mut text = String::new();
    for flavor in &scenario.setup.flavors {
        let taints: Vec<&str> = flavor.node_taints.iter().map(|taint| &*taint.key).collect();
        line(&mut text, format!("flavor {} labels {:?} taints {taints:?}", flavor.name, flavor.node_labels));
    }
    for cohort in &scenario.setup.cohorts {
        let parent = cohort.parent.as_ref().map_or("-", |parent| parent.as_str());
        line(&mut text, format!("cohort {} in {parent}: {}", cohort.name, groups(&cohort.resource_groups)));
    }
    for queue in &scenario.setup.cluster_queues {
        let cohort = queue.cohort.as_ref().map_or("-", |cohort| cohort.as_str());
        let local = scenario.setup.local_queues.iter().find(|local| local.cluster_queue == queue.name);
        line(
            &mut text,
            format!(
                "queue {} in {cohort} {:?} stop {:?}/{:?}: {}\n    {:?}\n    {:?}",
                queue.name,
                queue.strategy,
                queue.stop_policy,
                local.map(|local| local.stop_policy),
                groups(&queue.resource_groups),
                queue.preemption,
                queue.fungibility,
            ) + &timeouts(&queue.timeouts)
                + &extras(queue.fallback.as_ref(), &queue.admission_checks),
        );
    }
    for (round, workload) in &scenario.workloads {
        line(&mut text, format!("round {round}: {}", self::workload(workload)));
    }
    for (round, uid) in &scenario.finishes {
        line(&mut text, format!("round {round}: {uid} finishes"));
    }
    for Said { round, uid, check, state, after_seconds } in &scenario.said {
        let after = after_seconds.map(|seconds| format!(" after {seconds} s")).unwrap_or_default();
        line(&mut text, format!("round {round}: check {check} says {state}{after} of {uid}"));
    }
    for (round, edit) in &scenario.edits {
        line(
            &mut text,
            format!(
                "round {round}: {} changes to{}",
                edit.queue,
                extras(edit.fallback.as_ref(), &edit.checks)
            ),
        );
    }
    if let Some(readiness) = &scenario.readiness {
        self::readiness(&mut text, readiness);
    }
    text
}

/// When a queue gives up flavors, and which checks have to agree.
fn extras(strategy: Option<&FallbackStrategy>, checks: &[RequiredCheck]) -> String {
    let mut text = String::new();
    if let Some(FallbackStrategy { failure_policy, rules }) = strategy {
        let _ = write!(text, "\n    {failure_policy:?}:");
        for rule in rules {
            let flavor = rule.flavor.as_ref().map_or("*", |flavor| flavor.as_str());
            let _ = write!(text, " {flavor} {} {:?};", rule.trigger, rule.timeout_seconds);
        }
    }
    for check in checks {
        let _ = write!(text, "\n    check {} on {:?}", check.name, check.on_flavors);
    }
    text
}

fn readiness(text: &mut String, readiness: &Readiness) {
    line(text, format!("{:?}", readiness.settings));
    for (round, pause) in (1..).zip(&readiness.pauses) {
        line(text, format!("round {round} after {pause:?}"));
    }
    for (round, uid, ready) in &readiness.pods {
        let ready = if *ready { "ready" } else { "not ready" };
        line(text, format!("round {round}: pods of {uid} are {ready} from now on"));
    }
    for (round, uid, active) in &readiness.activations {
        let what = if *active { "activated" } else { "deactivated" };
        line(text, format!("round {round}: {uid} is {what}"));
    }
}

fn line(text: &mut String, line: String) {
    text.push_str(&line);
    text.push('\n');
}

fn timeouts(timeouts: &Timeouts) -> String {
    if *timeouts == Timeouts::default() { String::new() } else { format!(" {timeouts:?}") }
}

fn groups(groups: &[ResourceGroup]) -> String {
    let mut text = String::new();
    for group in groups {
        for flavor in &group.flavors {
            for (resource, quota) in group.resources.iter().zip(&flavor.quotas) {
                let _ = write!(text, "{}/{resource} {}; ", flavor.flavor, self::quota(quota));
            }
        }
    }
    text
}

fn quota(quota: &Quota) -> String {
    let mut text = quota.nominal.value().to_string();
    if let Some(limit) = quota.borrowing_limit {
        let _ = write!(text, " borrows {}", limit.value());
    }
    if let Some(limit) = quota.lending_limit {
        let _ = write!(text, " lends {}", limit.value());
    }
    text
}

fn workload(workload: &Workload) -> String {
    let Workload { uid, queue, priority, created, .. } = workload;
    let mut text = format!("{uid} in {queue} priority {priority} created {}", created.as_seconds());
    for set in workload.pod_sets.iter() {
        let requests: Vec<String> =
            set.requests.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let _ = write!(text, ", {}x({})", set.count, requests.join(" "));
        let constraints = &set.constraints;
        if !constraints.tolerations.is_empty() {
            text.push_str(" tolerates spot");
        }
        if !constraints.node_selector.is_empty() {
            let _ = write!(text, " selects {:?}", constraints.node_selector);
        }
    }
    if !workload.active {
        text.push_str(", inactive");
    }
    if let Some(own) = &workload.timeouts {
        text += &timeouts(own);
    }
    if let State::Holding(held) = &workload.state {
        let flavors: Vec<String> = held
            .admission
            .usage()
            .map(|(flavor, resource, amount)| format!("{flavor}/{resource} {amount}"))
            .collect();
        let _ = write!(text, ", has {} since {}", flavors.join(" "), held.reserved_at.as_seconds());
        if let Some(state) = &held.requeue_state {
            let _ = write!(text, ", was sent back {} times", state.count);
        }
        if held.admitted_at.is_none() {
            text.push_str(", waits for its checks");
        }
        for tried in held.history.iter().flat_map(|history| &history.0) {
            let _ = write!(text, ", tried {} for {} s", tried.flavor, tried.accumulated_seconds);
            text.push_str(if tried.exhausted.is_some() { " and gave it up" } else { "" });
        }
    }
    text
}

/// How a side that never comes to rest begins.
pub fn beginning(played: &Played) -> String {
    let cycles = played.rounds.last().map(|round| &round.cycles[..round.cycles.len().min(20)]);
    format!("it goes on for ever, or the model does; its last round begins with {cycles:?}")
}

pub fn decisions(roots: &BTreeMap<Node, Vec<&Decided>>) -> String {
    let mut text = String::new();
    for (root, decided) in roots {
        let _ = write!(text, "\n  {root:?}");
        for decided in decided {
            match decided {
                Decided::Admitted { uid, flavors, may_start, .. } => {
                    let what = if *may_start { "admitted" } else { "gets quota" };
                    let _ = write!(text, "\n    {uid} {what} on {flavors:?}");
                }
                Decided::Preempted { preemptor, victims } => {
                    let _ = write!(text, "\n    {preemptor} preempts {victims:?}");
                }
                Decided::RetriesAll { uid } => {
                    let _ = write!(text, "\n    {uid} tries all flavors again");
                }
                Decided::Left(evicted) => {
                    let _ = write!(text, "\n    {evicted:?}");
                }
            }
        }
    }
    text
}
