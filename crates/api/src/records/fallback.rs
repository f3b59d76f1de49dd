//! When the Workloads of a queue give up a flavor, and what a Workload has tried.

use std::collections::BTreeSet;

use gangway_model::FlavorName;
use gangway_model::fallback::{FailurePolicy, FallbackRule, FallbackStrategy, FlavorAttempt, FlavorHistory};
use gangway_model::queues::ResourceGroup;
use gangway_model::reasons::FallbackTrigger;

use super::Reader;
use crate::time::{from_api, seconds_of, to_api};
use crate::{kueue, names};

const PATH: &str = "spec.flavorFungibility.fallbackStrategy";

const POLICIES: &[(&str, FailurePolicy)] = &[
    ("RetryAllFlavors", FailurePolicy::RetryAllFlavors),
    ("DeactivateWorkload", FailurePolicy::DeactivateWorkload),
];
const TRIGGERS: &[(&str, FallbackTrigger)] = &[
    ("TimeoutForPodsReadyExceeded", FallbackTrigger::TimeoutForPodsReadyExceeded),
    ("AdmissionCheckRejected", FallbackTrigger::AdmissionCheckRejected),
];

/// The strategy that a queue has by either spelling.
pub(super) fn strategy(
    reader: &mut Reader,
    spec: Option<&kueue::FlavorFungibility>,
    groups: &[ResourceGroup],
) -> Option<FallbackStrategy> {
    let spec = spec?;
    let (spelt, otherwise) = (spec.fallback_strategy.as_ref(), spec.flavor_fallback_strategy.as_ref());
    if spelt.is_some() && otherwise.is_some() {
        reader.problem(PATH, "and flavorFallbackStrategy are two spellings of one field: use one");
    }
    let strategy = spelt.or(otherwise)?;
    let failure_policy = match strategy.failure_policy.as_deref() {
        None | Some("") => FailurePolicy::default(),
        Some(word) => reader.word(&format!("{PATH}.failurePolicy"), word, POLICIES, FailurePolicy::default()),
    };
    if let Some(kind) = strategy.strategy.as_deref().filter(|kind| !matches!(*kind, "" | "TimeoutBased")) {
        reader.problem(format!("{PATH}.strategy"), format!("{kind:?} is not one of TimeoutBased"));
    }
    let mut seen = BTreeSet::new();
    let mut rules = Vec::with_capacity(strategy.rules.len());
    for (index, rule) in strategy.rules.iter().enumerate() {
        let path = format!("{PATH}.rules[{index}]");
        let read = self::rule(reader, rule, &path, groups);
        if !seen.insert((rule.name.clone(), read.trigger)) {
            let message = format!("there is another rule for flavor {} and {}", rule.name, read.trigger);
            reader.problem(path, message);
        }
        rules.push(read);
    }
    Some(FallbackStrategy { failure_policy, rules })
}

fn rule(
    reader: &mut Reader,
    rule: &kueue::FallbackRule,
    path: &str,
    groups: &[ResourceGroup],
) -> FallbackRule {
    let flavor = (rule.name != names::ANY_FLAVOR).then(|| FlavorName::from(rule.name.as_str()));
    let mut listed = groups.iter().flat_map(|group| &group.flavors);
    if flavor.as_ref().is_some_and(|name| !listed.any(|quotas| quotas.flavor == *name)) {
        let message = format!("{} is no flavor of this ClusterQueue; name one of them, or *", rule.name);
        reader.problem(format!("{path}.name"), message);
    }
    let trigger = match rule.trigger.as_deref() {
        None | Some("") => FallbackTrigger::TimeoutForPodsReadyExceeded,
        Some(word) => {
            let safest = FallbackTrigger::TimeoutForPodsReadyExceeded;
            reader.word(&format!("{path}.trigger"), word, TRIGGERS, safest)
        }
    };
    let timeout_seconds = timeout(reader, rule, path);
    if trigger == FallbackTrigger::AdmissionCheckRejected && timeout_seconds.is_some() {
        reader.problem(format!("{path}.timeout"), "has no meaning for AdmissionCheckRejected; leave it out");
    }
    FallbackRule { flavor, trigger, timeout_seconds }
}

fn timeout(reader: &mut Reader, rule: &kueue::FallbackRule, path: &str) -> Option<i64> {
    if rule.timeout.is_some() && rule.timeout_minutes.is_some() {
        let message = "and timeoutMinutes are two spellings of one field: use one";
        reader.problem(format!("{path}.timeout"), message);
    }
    let (field, seconds) = match (&rule.timeout, rule.timeout_minutes) {
        (Some(text), _) => ("timeout", seconds_of(text)),
        (None, Some(minutes)) => ("timeoutMinutes", Ok(i64::from(minutes) * 60)),
        (None, None) => return None,
    };
    match seconds {
        Ok(seconds) if seconds > 0 => Some(seconds),
        Ok(_) => {
            let message = "must be more than 0; leave it out to wait for ever";
            reader.problem(format!("{path}.{field}"), message);
            None
        }
        Err(message) => {
            reader.problem(format!("{path}.{field}"), message);
            None
        }
    }
}

/// What a Workload has tried. An entry that cannot be right in a part is taken for what it safely means.
pub(super) fn history(status: &kueue::WorkloadStatus) -> FlavorHistory {
    let attempt = |entry: &kueue::FlavorAssignment| {
        let trigger = entry.trigger.as_deref().and_then(FallbackTrigger::parse);
        let exhausted = entry.exhausted.unwrap_or(false);
        FlavorAttempt {
            flavor: entry.resource_flavor.as_str().into(),
            assigned_at: entry.assignment_time.as_ref().map(from_api),
            accumulated_seconds: entry.accumulated_seconds.unwrap_or(0).max(0),
            exhausted: exhausted.then(|| trigger.unwrap_or(FallbackTrigger::TimeoutForPodsReadyExceeded)),
            rounds: entry.rounds.and_then(|rounds| u32::try_from(rounds).ok()).unwrap_or(0),
        }
    };
    FlavorHistory(status.flavor_assignment_history.iter().map(attempt).collect())
}

/// The same as it is written.
pub(super) fn written(history: Option<&FlavorHistory>) -> Vec<kueue::FlavorAssignment> {
    let entry = |attempt: &FlavorAttempt| kueue::FlavorAssignment {
        resource_flavor: attempt.flavor.to_string(),
        assignment_time: attempt.assigned_at.map(to_api),
        accumulated_seconds: Some(attempt.accumulated_seconds),
        exhausted: Some(attempt.exhausted.is_some()),
        trigger: attempt.exhausted.map(|trigger| trigger.as_str().to_owned()),
        rounds: Some(i32::try_from(attempt.rounds).unwrap_or(i32::MAX)),
    };
    history.map(|history| history.0.iter().map(entry).collect()).unwrap_or_default()
}
