//! Queues that cannot work: inactive, pointing nowhere, too small, or in a dangerous order.

use gangway_admission::{Durable, Engine, Explanation, Shortage, Verdict};
use gangway_api::kueue;
use gangway_api::names::MANUAL_CHECK_CONTROLLER;
use gangway_api::records;
use gangway_model::quantity::to_quantity_text;
use gangway_model::queues::{ClusterQueue, LocalQueue, QueueingStrategy};
use gangway_model::readiness::{RequeuingTimestamp, WaitForPodsReady};
use gangway_model::reasons::{ClusterQueueReason, LocalQueueReason};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::finding::{Area, Finding, counted, first_of};
use super::fix;

/// Which queues do not admit, and why.
pub(super) fn inactive(engine: &Engine) -> Vec<Finding> {
    let durable = engine.durable();
    let queues = durable.cluster_queues().filter_map(|queue| {
        let (reason, message) = durable.cluster_queue_activity(queue);
        inactive_queue(engine, queue, reason, message)
    });
    let locals = durable.local_queues().filter_map(|queue| {
        let (reason, message) = durable.local_queue_activity(queue);
        let some_flavor = durable.flavors().next().map_or("default", |flavor| flavor.name.as_str());
        inactive_local(queue, reason, message, some_flavor)
    });
    queues.chain(locals).collect()
}

fn inactive_queue(
    engine: &Engine,
    queue: &ClusterQueue,
    reason: ClusterQueueReason,
    message: String,
) -> Option<Finding> {
    let name = queue.name.as_str();
    let place = format!("ClusterQueue {name}");
    let told = reason.doc();
    let what = format!("does not admit: {reason}: {message}");
    let why = format!("{} It ends when: {}", told.meaning, lower_first(told.ends_when));
    let is_meant = matches!(reason, ClusterQueueReason::Stopped | ClusterQueueReason::Terminating);
    let level = if is_meant { Finding::warning } else { Finding::problem };
    let fix = match reason {
        ClusterQueueReason::Ready => return None,
        ClusterQueueReason::Stopped => {
            fix::merge("clusterqueue", name, None, &json!({"spec": {"stopPolicy": "None"}}))
        }
        ClusterQueueReason::Terminating => {
            fix::merge("clusterqueue", name, None, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}))
        }
        ClusterQueueReason::FlavorNotFound => missing_flavor(engine, queue),
        ClusterQueueReason::CohortCycle => {
            let cohort = queue.cohort.as_ref().map(ToString::to_string).unwrap_or_default();
            fix::change_fields("cohort", &cohort, &json!([{"op": "remove", "path": "/spec/parentName"}]))
        }
        ClusterQueueReason::AdmissionCheckNotFound => missing_check(engine, queue),
        ClusterQueueReason::AdmissionCheckInactive => idle_check(engine, queue),
        ClusterQueueReason::NotSupported | ClusterQueueReason::Unknown => {
            format!("kubectl edit clusterqueue {}", fix::word(name))
        }
    };
    Some(level(Area::Queues, place, what, fix).because(why))
}

fn missing_flavor(engine: &Engine, queue: &ClusterQueue) -> String {
    let exists = |name: &str| engine.durable().flavors().any(|flavor| flavor.name.as_str() == name);
    let mut names =
        queue.resource_groups.iter().flat_map(|group| &group.flavors).map(|quotas| quotas.flavor.as_str());
    let name = names.find(|name| !exists(name)).unwrap_or_default();
    fix::create(&object("ResourceFlavor", json!({"name": name}), json!({})))
}

fn missing_check(engine: &Engine, queue: &ClusterQueue) -> String {
    let exists = |name: &str| engine.durable().admission_checks().any(|check| check.name.as_str() == name);
    let mut names = queue.admission_checks.iter().map(|check| check.name.as_str());
    manual_check(names.find(|name| !exists(name)).unwrap_or_default())
}

fn idle_check(engine: &Engine, queue: &ClusterQueue) -> String {
    let is_idle = |name: &str| {
        engine.durable().admission_checks().any(|check| check.name.as_str() == name && !check.active)
    };
    let mut names = queue.admission_checks.iter().map(|check| check.name.as_str());
    answered_by_hand(names.find(|name| is_idle(name)).unwrap_or_default())
}

/// The replacement of a check by one that people answer.
fn answered_by_hand(name: &str) -> String {
    format!("kubectl delete admissioncheck {} && {}", fix::word(name), manual_check(name))
}

/// The creation of a check that people answer.
fn manual_check(name: &str) -> String {
    fix::create(&object(
        "AdmissionCheck",
        json!({"name": name}),
        json!({"controllerName": MANUAL_CHECK_CONTROLLER}),
    ))
}

/// An object of ours.
pub(super) fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    let version = format!("{}/{}", kueue::GROUP, kueue::VERSION);
    json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
}

fn inactive_local(
    queue: &LocalQueue,
    reason: LocalQueueReason,
    message: String,
    some_flavor: &str,
) -> Option<Finding> {
    let place = format!("LocalQueue {}", queue.name);
    match reason {
        // What is wrong with a ClusterQueue is told of the ClusterQueue.
        LocalQueueReason::Ready | LocalQueueReason::ClusterQueueIsInactive => None,
        LocalQueueReason::Stopped => {
            let change = json!({"spec": {"stopPolicy": "None"}});
            let fix =
                fix::merge("localqueue", &queue.name.name, Some(queue.name.namespace.as_str()), &change);
            let finding =
                Finding::warning(Area::Queues, place, format!("passes nothing on: {reason}: {message}"), fix);
            Some(finding.because("Its stop policy is Hold or HoldAndDrain; Jobs that name it wait."))
        }
        LocalQueueReason::ClusterQueueDoesNotExist => {
            let resource = |name: &str, quota: &str| json!({"name": name, "nominalQuota": quota});
            let flavor =
                json!({"name": some_flavor, "resources": [resource("cpu", "1"), resource("memory", "1Gi")]});
            let group = json!({"coveredResources": ["cpu", "memory"], "flavors": [flavor]});
            let spec = json!({"namespaceSelector": {}, "resourceGroups": [group]});
            let fix =
                fix::create(&object("ClusterQueue", json!({"name": queue.cluster_queue.as_str()}), spec));
            let finding = Finding::problem(Area::Queues, place, format!("leads nowhere: {message}"), fix);
            Some(finding.because(
                "Jobs that name it never start. The line makes a small queue; write your own quota into it.",
            ))
        }
    }
}

/// Queues in which a Workload that is never ready keeps everybody behind it out.
pub(super) fn dangerous_order(
    queues: &[&ClusterQueue],
    readiness: Option<&WaitForPodsReady>,
) -> Vec<Finding> {
    if readiness.is_none_or(|settings| settings.timestamp != RequeuingTimestamp::Creation) {
        return Vec::new();
    }
    let strict = queues.iter().filter(|queue| queue.strategy == QueueingStrategy::StrictFifo);
    strict
        .map(|queue| {
            let name = queue.name.as_str();
            let change = json!({"spec": {"queueingStrategy": "BestEffortFIFO"}});
            let what = "is StrictFIFO while requeuingStrategy.timestamp is Creation";
            Finding::warning(
                Area::Queues,
                format!("ClusterQueue {name}"),
                what,
                fix::merge("clusterqueue", name, None, &change),
            )
            .because("A Workload that was not ready in time returns to the front, and nobody passes it once its backoff is over.")
        })
        .collect()
}

/// A waiting Workload that asks for more than its queue could ever give.
pub(super) struct TooLarge {
    /// Who waits, as people know it.
    pub called: String,
    pub explanation: Explanation,
}

impl TooLarge {
    fn shortages(&self) -> impl Iterator<Item = (&str, &Shortage)> {
        self.explanation.flavors.iter().filter_map(|trace| match &trace.verdict {
            Verdict::Exceeds(short) => Some((trace.flavor.as_str(), short)),
            _ => None,
        })
    }

    /// How much of the first resource that is short is needed.
    fn size(&self) -> i64 {
        self.shortages().map(|(_, short)| short.need).next().unwrap_or(0)
    }
}

/// A queue whose limit is below what waits in it.
pub(super) fn too_small(queue: &ClusterQueue, waiting: &[TooLarge], count: usize) -> Option<Finding> {
    let largest = waiting.iter().max_by_key(|waiting| waiting.size())?;
    let (flavor, _) = largest.shortages().next()?;
    let operations = raise(queue, flavor, largest);
    let place = format!("ClusterQueue {}", queue.name);
    let what = format!("is too small for {}: {}", counted_waiting(count), largest.called);
    let fix = fix::change_fields("clusterqueue", queue.name.as_str(), &Value::Array(operations));
    let why = format!(
        "The largest needs more than the queue could ever give, borrowed quota included: {}. It never starts.",
        largest.explanation.message
    );
    Some(Finding::problem(Area::Queues, place, what, fix).because(why))
}

fn counted_waiting(count: usize) -> String {
    match count {
        1 => "a Workload that waits".to_owned(),
        count => format!("{} that wait, the largest of them", counted(count, "Workload")),
    }
}

/// The changes of a queue with which a flavor can give as much as is needed.
fn raise(queue: &ClusterQueue, flavor: &str, waiting: &TooLarge) -> Vec<Value> {
    let mut operations: Vec<Value> = Vec::new();
    for (_, short) in waiting.shortages().filter(|(of, _)| *of == flavor) {
        let at = queue.resource_groups.iter().enumerate().find_map(|(group_index, group)| {
            let resource = group.resources.iter().position(|name| *name == short.resource)?;
            let flavor = group.flavors.iter().position(|quotas| quotas.flavor.as_str() == flavor)?;
            Some((group_index, flavor, resource))
        });
        let Some((group, flavor, resource)) = at else { continue };
        let lacking = short.need.saturating_sub(short.quota.plus(short.borrowable).value()).max(0);
        let quota = to_quantity_text(short.resource.as_str(), short.quota.value().saturating_add(lacking));
        let path = format!("/spec/resourceGroups/{group}/flavors/{flavor}/resources/{resource}/nominalQuota");
        operations.retain(|operation| operation["path"] != path.as_str());
        operations.push(json!({"op": "replace", "path": path, "value": quota}));
    }
    operations
}

/// Checks that nobody answers.
pub(super) fn checks(objects: &[kueue::AdmissionCheck], queues: &[&ClusterQueue]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for object in objects {
        let check = records::admission_check(object);
        if check.active {
            continue;
        }
        let users = queues
            .iter()
            .filter(|queue| queue.admission_checks.iter().any(|wanted| wanted.name == check.name));
        let users: Vec<String> = users.map(|queue| queue.name.to_string()).collect();
        let controller = &object.spec.controller_name;
        let name = check.name.as_str();
        let fix = answered_by_hand(name);
        let what = format!("is not active: its controller {controller} does not say that it answers");
        let place = format!("AdmissionCheck {name}");
        let mend =
            format!("Start {controller}; or let people answer it with `gangway check`, as the line does.");
        findings.push(match users.is_empty() {
            true => Finding::warning(Area::Checks, place, what, fix)
                .because(format!("No queue demands it. {mend}")),
            false => Finding::problem(Area::Checks, place, what, fix)
                .because(format!("ClusterQueues that demand it do not admit: {}. {mend}", first_of(&users))),
        });
    }
    if findings.is_empty() && !objects.is_empty() {
        findings.push(Finding::ok(
            Area::Checks,
            format!("{}, each with somebody who answers", counted(objects.len(), "admission check")),
        ));
    }
    findings
}

/// Queues of which no controller has said anything since they were changed last.
pub(super) fn unanswered(queues: &[kueue::ClusterQueue], namespace: &str) -> Option<Finding> {
    let is_answered = |queue: &&kueue::ClusterQueue| {
        let conditions = queue.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let told = |condition: &Condition| {
            condition.type_ == "Active" && condition.observed_generation >= queue.metadata.generation
        };
        conditions.iter().any(told)
    };
    let names: Vec<String> =
        queues.iter().filter(|queue| !is_answered(queue)).map(|queue| queue.name_any()).collect();
    if names.is_empty() {
        return None;
    }
    let what =
        format!("no controller has looked at {}: {}", counted(names.len(), "ClusterQueue"), first_of(&names));
    let fix = format!("kubectl -n {} rollout status deployment gangway-controller", fix::word(namespace));
    let why = "They have no condition Active of their present definition. If no controller runs, nobody admits Jobs. The line \
               tells how the pods of an installed one fare.";
    Some(Finding::problem(Area::Queues, "", what, fix).because(why))
}

/// How many queues there are, where nothing is wrong with any.
pub(super) fn all_well(durable: &Durable) -> String {
    let (queues, locals) = (durable.cluster_queues().count(), durable.local_queues().count());
    match queues {
        0 => "there are none yet".to_owned(),
        _ => format!(
            "{} and {}, all of them active",
            counted(queues, "ClusterQueue"),
            counted(locals, "LocalQueue")
        ),
    }
}

/// The sentence goes on after a colon, so it begins with a small letter.
pub(super) fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_lowercase).collect();
    format!("{first}{}", letters.as_str())
}

#[cfg(test)]
#[path = "queues_tests.rs"]
pub(super) mod tests;
