//! States of the model as the statuses of objects, ready for a merge patch.

use std::sync::Arc;

use gangway_model::conditions::{ConditionType, conditions};
use gangway_model::quantity::to_quantity_text;
use gangway_model::queues::{FlavorUsage, QueueCounts};
use gangway_model::reasons::{ClusterQueueReason, LocalQueueReason};
use gangway_model::workload::{Admission, Assignment, RequeueState, State};
use gangway_model::{Timestamp, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::{Map, Value, json};

use super::workloads::admission;
use super::{Reader, checks, fallback};
use crate::kueue::{ClusterQueueStatus, LocalQueueStatus, SchedulingStats, WorkloadStatus};
use crate::{kueue, time};

/// The longest message that a condition may have.
const MESSAGE_LIMIT: usize = 32768;

/// The value of `status` in a merge patch that brings a Workload to `state`.
///
/// Conditions of others are kept. `admission` is null where there is none, and left out where the
/// object already says the same, since others may have added to it.
pub fn workload_status(state: &State, generation: i64, current: Option<&WorkloadStatus>) -> Value {
    let current_conditions = current.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let ours = conditions(state).into_iter().map(|condition| Condition {
        type_: condition.kind.as_str().to_owned(),
        status: if condition.status { "True" } else { "False" }.to_owned(),
        reason: condition.reason,
        message: shortened(condition.message),
        last_transition_time: time::to_api(condition.at),
        observed_generation: Some(generation),
    });
    let others = current_conditions.iter().filter(|c| ConditionType::parse(&c.type_).is_none()).cloned();
    let all: Vec<Condition> = ours.chain(others).collect();
    let mut status = Map::new();
    status.insert("conditions".to_owned(), json!(all));
    match (admission_of(state), current.and_then(|status| status.admission.as_ref())) {
        (None, None) => {}
        (None, Some(_)) => {
            status.insert("admission".to_owned(), Value::Null);
        }
        (Some(wanted), written) => {
            let written = written.map(|w| admission(&mut Reader::new(String::new()), w, &[]));
            if written.map(by_name) != Some(by_name(wanted.clone())) {
                status.insert("admission".to_owned(), admission_json(wanted));
            }
        }
    }
    let written = current.and_then(|status| status.preemptor.as_deref());
    let preemptor = state.preemptor().map(Uid::to_string);
    if preemptor.as_deref() != written {
        status.insert("preemptor".to_owned(), json!(preemptor));
    }
    let wanted = state.requeue_state().map(requeue_state);
    if wanted.as_ref() != current.and_then(|status| status.requeue_state.as_ref()) {
        // In a merge patch, what is left out of an object stays.
        let wanted = wanted.map(|state| json!({"count": state.count, "requeueAt": state.requeue_at}));
        status.insert("requeueState".to_owned(), json!(wanted));
    }
    if let Some(checks) = checks::list(state.checks(), current) {
        status.insert("admissionChecks".to_owned(), checks);
    }
    let history = fallback::written(state.history());
    if current.map_or(&[][..], |status| &status.flavor_assignment_history) != history {
        status.insert("flavorAssignmentHistory".to_owned(), json!(history));
    }
    if let Some(stats) = one_eviction_more(state, current) {
        status.insert("schedulingStats".to_owned(), json!(stats));
    }
    Value::Object(status)
}

/// The count of evictions after a write that is one; none for any other write, which leaves the count alone.
///
/// It is a function of the object that the write is for, and the write holds for that version of it only: however
/// often it is sent, it counts once.
fn one_eviction_more(state: &State, current: Option<&WorkloadStatus>) -> Option<SchedulingStats> {
    let conditions = current.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let told = conditions.iter().find(|c| c.type_ == ConditionType::Evicted.as_str() && c.status == "True");
    let (reason, cause) = match state {
        State::Evicting(reservation, eviction) if told.is_none() => {
            let waited_for = reservation.pods_ready.as_ref().map(|ready| ready.reason);
            (eviction.reason, eviction.reason.underlying_cause(waited_for, reservation.gave_up()))
        }
        // Who has no quota any more is deactivated: that is an eviction of its own.
        State::Pending(pending) => {
            let eviction = pending.evicted.as_ref().filter(|eviction| eviction.reason.deactivates())?;
            if told.is_some_and(|told| told.reason == eviction.reason.as_str()) {
                return None;
            }
            (eviction.reason, eviction.reason.underlying_cause(None, None))
        }
        _ => return None,
    };
    let mut stats = current.and_then(|status| status.scheduling_stats.clone()).unwrap_or_default();
    stats.count(reason.base().as_str(), cause);
    Some(stats)
}

fn requeue_state(state: &RequeueState) -> kueue::RequeueState {
    kueue::RequeueState {
        count: Some(i32::try_from(state.count).unwrap_or(i32::MAX)),
        requeue_at: state.requeue_at.map(time::to_api),
    }
}

/// A finished Workload keeps showing what it held.
fn admission_of(state: &State) -> Option<&Admission> {
    match state {
        State::Finished(_, before) => admission_of(before),
        other => other.reservation().map(|reservation| &*reservation.admission),
    }
}

/// What is written of an admission, whatever the order in which it was.
fn by_name(mut admission: Admission) -> Admission {
    let pod_sets = Arc::make_mut(&mut admission.pod_sets);
    pod_sets.sort_by(|a, b| a.name.cmp(&b.name));
    for assignment in pod_sets {
        assignment.flavors.sort();
        // That is not written with it.
        assignment.reclaimed = 0;
    }
    admission
}

fn admission_json(admission: &Admission) -> Value {
    let assignment = |assignment: &Assignment| {
        let flavors: Map<String, Value> =
            assignment.flavors.iter().map(|(r, f)| (r.to_string(), json!(f.as_str()))).collect();
        let usage: Map<String, Value> = assignment
            .usage
            .iter()
            .map(|(r, value)| (r.to_string(), json!(to_quantity_text(r.as_str(), value))))
            .collect();
        json!({
            "name": assignment.name.as_str(),
            "flavors": flavors,
            "resourceUsage": usage,
            "count": assignment.count,
        })
    };
    json!({
        "clusterQueue": admission.cluster_queue.as_str(),
        "podSetAssignments": admission.pod_sets.iter().map(assignment).collect::<Vec<_>>(),
    })
}

/// The value of `status` in a merge patch for a ClusterQueue; none if the object says the same already.
pub fn cluster_queue_status(
    current: Option<&ClusterQueueStatus>,
    counts: &QueueCounts,
    (reason, message): (ClusterQueueReason, &str),
    generation: i64,
    now: Timestamp,
) -> Option<Value> {
    let conditions = current.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let active = reason == ClusterQueueReason::Ready;
    let conditions = with_active(conditions, active, reason.as_str(), message, generation, now);
    let wanted = queue_status(counts, &conditions);
    let same = current.is_some_and(|current| {
        serde_json::from_value::<ClusterQueueStatus>(wanted.clone()).is_ok_and(|wanted| {
            wanted
                == ClusterQueueStatus {
                    fair_sharing: None,
                    pending_workloads_status: None,
                    ..current.clone()
                }
        })
    });
    (!same).then_some(wanted)
}

/// The value of `status` in a merge patch for a LocalQueue; none if the object says the same already.
pub fn local_queue_status(
    current: Option<&LocalQueueStatus>,
    counts: &QueueCounts,
    (reason, message): (LocalQueueReason, &str),
    generation: i64,
    now: Timestamp,
) -> Option<Value> {
    let conditions = current.map(|status| status.conditions.as_slice()).unwrap_or_default();
    let active = reason == LocalQueueReason::Ready;
    let conditions = with_active(conditions, active, reason.as_str(), message, generation, now);
    let mut wanted = queue_status(counts, &conditions);
    let stale_spelling = current.is_some_and(|current| !current.flavor_usage.is_empty());
    if stale_spelling {
        wanted["flavorUsage"] = Value::Null;
    }
    let same = !stale_spelling
        && current.is_some_and(|current| {
            serde_json::from_value::<LocalQueueStatus>(wanted.clone()).is_ok_and(|wanted| {
                wanted == LocalQueueStatus { fair_sharing: None, flavors: None, ..current.clone() }
            })
        });
    (!same).then_some(wanted)
}

fn queue_status(counts: &QueueCounts, conditions: &[Condition]) -> Value {
    json!({
        "conditions": conditions,
        "pendingWorkloads": counts.pending,
        "reservingWorkloads": counts.reserving,
        "admittedWorkloads": counts.admitted,
        "flavorsReservation": counts.reservation.iter().map(usage).collect::<Vec<_>>(),
        "flavorsUsage": counts.usage.iter().map(usage).collect::<Vec<_>>(),
    })
}

fn usage(usage: &FlavorUsage) -> Value {
    let resources = usage.resources.iter().map(|(resource, total, borrowed)| {
        let text = |value: i64| to_quantity_text(resource.as_str(), value);
        json!({"name": resource.as_str(), "total": text(*total), "borrowed": text(*borrowed)})
    });
    json!({"name": usage.flavor.as_str(), "resources": resources.collect::<Vec<_>>()})
}

/// The conditions with `Active` set; its time moves only when its status does.
fn with_active(
    current: &[Condition],
    active: bool,
    reason: &str,
    message: &str,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let status = if active { "True" } else { "False" };
    let before = current.iter().find(|c| c.type_ == "Active" && c.status == status);
    let wanted = Condition {
        type_: "Active".to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: shortened(message.to_owned()),
        last_transition_time: before.map_or_else(|| time::to_api(now), |c| c.last_transition_time.clone()),
        observed_generation: Some(generation),
    };
    let others = current.iter().filter(|c| c.type_ != "Active").cloned();
    std::iter::once(wanted).chain(others).collect()
}

fn shortened(mut message: String) -> String {
    if message.len() > MESSAGE_LIMIT {
        let mut end = MESSAGE_LIMIT - 3;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        message.push_str("...");
    }
    message
}
