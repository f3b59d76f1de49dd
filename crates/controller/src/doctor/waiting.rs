//! Workloads that wait in vain, and those that should have left.

use std::collections::BTreeMap;

use gangway_admission::{Engine, Standing};
use gangway_api::names;
use gangway_model::queues::ClusterQueue;
use gangway_model::reasons::PendingReason;
use gangway_model::selector::{Operator, Requirement};
use gangway_model::workload::{State, Workload};
use gangway_model::{ClusterQueueName, ObjectName, Timestamp};
use kube::ResourceExt;
use serde_json::json;

use super::finding::{Area, Finding, counted, first_of};
use super::fix;
use super::queues::{TooLarge, object, too_small};
use crate::workloads::Snapshot;

/// By which the Job controller marks the pods of a Job.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// So many Workloads of a queue are looked at more closely, to find the largest.
const LOOKED_AT: usize = 50;

/// Workloads that wait for the same.
#[derive(Default)]
struct Together<'w> {
    workloads: Vec<&'w Workload>,
    message: String,
}

impl<'w> Together<'w> {
    fn add(&mut self, workload: &'w Workload, standing: Standing) {
        self.workloads.push(workload);
        self.message = standing.message;
    }

    fn names(&self, job_of: &JobOf<'_>) -> String {
        let mut names: Vec<String> = self.workloads.iter().map(|workload| called(job_of, workload)).collect();
        names.sort();
        first_of(&names)
    }
}

/// The Job that a Workload stands for, if it stands for one.
type JobOf<'j> = dyn Fn(&Workload) -> Option<String> + 'j;

/// A Workload as people know it.
fn called(job_of: &JobOf<'_>, workload: &Workload) -> String {
    match job_of(workload) {
        Some(job) => format!("Job {}/{job}", workload.name.namespace),
        None => format!("Workload {}", workload.name),
    }
}

/// Looks at every Workload.
pub(super) fn examine(snapshot: &Snapshot, now: Timestamp, report_seconds: u32) -> Vec<Finding> {
    let job_of = |workload: &Workload| {
        let object = snapshot.workload(&workload.uid)?;
        let owner = object.owner_references().iter().find(|owner| owner.kind == "Job")?;
        Some(owner.name.clone())
    };
    judge(snapshot.engine(), &job_of, now, report_seconds)
}

fn judge(engine: &Engine, job_of: &JobOf<'_>, now: Timestamp, report_seconds: u32) -> Vec<Finding> {
    let mut without_queue: BTreeMap<ObjectName, Together<'_>> = BTreeMap::new();
    let mut never: BTreeMap<(ObjectName, PendingReason), Together<'_>> = BTreeMap::new();
    let mut too_large: BTreeMap<ClusterQueueName, Vec<&Workload>> = BTreeMap::new();
    let mut inactive = Vec::new();
    let mut overdue = Vec::new();
    let (mut waiting, mut holding) = (0, 0);
    for workload in engine.durable().workloads().filter(|workload| !workload.state.is_finished()) {
        match &workload.state {
            State::Evicting(_, eviction) if eviction.at.plus_seconds(report_seconds.into()) < now => {
                overdue.push((workload, eviction.at));
            }
            State::Holding(_) | State::Evicting(..) => holding += 1,
            State::Pending(_) => waiting += 1,
            State::Finished(..) => {}
        }
        let Some(standing) = engine.wait_of(&workload.uid) else { continue };
        let queue = ObjectName { namespace: workload.name.namespace.clone(), name: workload.queue.clone() };
        let local = engine.durable().local_queues().find(|local| local.name == queue);
        match (standing.reason, local) {
            (PendingReason::Deactivated, _) => inactive.push((workload, standing.message)),
            (PendingReason::Misconfigured, None) => {
                without_queue.entry(queue).or_default().add(workload, standing)
            }
            (PendingReason::ExceedsMaxQuota, Some(local)) => {
                too_large.entry(local.cluster_queue.clone()).or_default().push(workload);
            }
            // What is wrong with a LocalQueue is told of the LocalQueue.
            (PendingReason::Misconfigured, Some(local))
                if engine.durable().cluster_queue(&local.cluster_queue).is_none() => {}
            (reason @ (PendingReason::Misconfigured | PendingReason::NoMatchingFlavor), _) => {
                never.entry((queue, reason)).or_default().add(workload, standing);
            }
            _ => {}
        }
    }
    let mut findings = Vec::new();
    findings.extend(without_queue.iter().map(|(queue, waiting)| no_queue(engine, queue, waiting, job_of)));
    findings.extend(
        too_large.iter().filter_map(|(queue, waiting)| larger_than_its_queue(engine, queue, waiting, job_of)),
    );
    findings.extend(
        never.iter().map(|((queue, reason), waiting)| never_starts(engine, queue, *reason, waiting, job_of)),
    );
    findings.extend(deactivated(&mut inactive, job_of));
    findings.extend(late(&mut overdue, now, job_of));
    if findings.is_empty() {
        let counts =
            format!("{} waiting, {} with quota, nobody waits in vain", counted(waiting, "Workload"), holding);
        findings.push(Finding::ok(Area::Workloads, counts));
    }
    findings
}

fn no_queue(engine: &Engine, queue: &ObjectName, waiting: &Together<'_>, job_of: &JobOf<'_>) -> Finding {
    let behind = engine.durable().cluster_queues().next().map_or("CLUSTERQUEUE", |queue| queue.name.as_str());
    let metadata = json!({"name": &*queue.name, "namespace": queue.namespace.as_str()});
    let fix = fix::create(&object("LocalQueue", metadata, json!({"clusterQueue": behind})));
    let what = format!("does not exist, and {} in it", wait(waiting.workloads.len()));
    Finding::problem(Area::Workloads, format!("LocalQueue {queue}"), what, fix).because(format!(
        "Waiting: {}. The line makes the queue; name the ClusterQueue that is meant.",
        waiting.names(job_of)
    ))
}

fn wait(count: usize) -> String {
    if count == 1 { "1 Workload waits".to_owned() } else { format!("{count} Workloads wait") }
}

fn larger_than_its_queue(
    engine: &Engine,
    queue: &ClusterQueueName,
    waiting: &[&Workload],
    job_of: &JobOf<'_>,
) -> Option<Finding> {
    let queue = engine.durable().cluster_queue(queue)?;
    let mut by_name: Vec<&&Workload> = waiting.iter().collect();
    by_name.sort_by(|one, other| one.name.cmp(&other.name));
    let explained: Vec<TooLarge> = by_name
        .iter()
        .take(LOOKED_AT)
        .filter_map(|workload| {
            Some(TooLarge { called: called(job_of, workload), explanation: engine.explain(&workload.uid)? })
        })
        .collect();
    too_small(queue, &explained, waiting.len())
}

fn never_starts(
    engine: &Engine,
    queue: &ObjectName,
    reason: PendingReason,
    waiting: &Together<'_>,
    job_of: &JobOf<'_>,
) -> Finding {
    let what = format!("{} in vain: {reason}: {}", wait(waiting.workloads.len()), waiting.message);
    let local = engine.durable().local_queues().find(|local| local.name == *queue);
    let behind = local.and_then(|local| engine.durable().cluster_queue(&local.cluster_queue));
    let unselected =
        behind.filter(|_| reason == PendingReason::Misconfigured).and_then(|behind| select(behind, queue));
    let namespace = fix::word(queue.namespace.as_str());
    let first = waiting.workloads.iter().min_by_key(|workload| &workload.name);
    let fix = unselected.unwrap_or_else(|| match first.and_then(|workload| job_of(workload)) {
        Some(job) => format!("gangway explain job/{} -n {namespace}", fix::word(&job)),
        None => format!("gangway get workloads -n {namespace}"),
    });
    Finding::problem(Area::Workloads, format!("LocalQueue {queue}"), what, fix).because(format!(
        "Waiting: {}. It ends when: {}",
        waiting.names(job_of),
        super::queues::lower_first(reason.doc().ends_when)
    ))
}

/// A line with which a ClusterQueue selects the namespace of a LocalQueue.
fn select(behind: &ClusterQueue, queue: &ObjectName) -> Option<String> {
    let name = behind.name.as_str();
    let Some(selector) = &behind.namespace_selector else {
        return Some(fix::merge("clusterqueue", name, None, &json!({"spec": {"namespaceSelector": {}}})));
    };
    let label = |requirement: &Requirement| match (requirement.operator, requirement.values.first()) {
        (Operator::In, Some(value)) => Some(fix::word(&format!("{}={value}", requirement.key))),
        _ => None,
    };
    let labels: Option<Vec<String>> = selector.requirements.iter().map(label).collect();
    let namespace = fix::word(queue.namespace.as_str());
    let labels = labels.filter(|labels| !labels.is_empty());
    Some(match labels {
        Some(labels) => format!("kubectl label namespace {namespace} --overwrite {}", labels.join(" ")),
        None => format!("kubectl edit clusterqueue {}", fix::word(name)),
    })
}

fn deactivated(inactive: &mut [(&Workload, String)], job_of: &JobOf<'_>) -> Option<Finding> {
    inactive.sort_by(|one, other| one.0.name.cmp(&other.0.name));
    let (first, message) = inactive.first()?;
    let (name, namespace) = (&first.name.name, first.name.namespace.as_str());
    let fix = fix::merge("workload", name, Some(namespace), &json!({"spec": {"active": true}}));
    let names: Vec<String> = inactive.iter().map(|(workload, _)| called(job_of, workload)).collect();
    let what = format!("{} deactivated: {}", are(inactive.len()), first_of(&names));
    let finding = Finding::warning(Area::Workloads, format!("Workload {}", first.name), what, fix);
    Some(finding.because(format!("Of the first: {message}.")))
}

fn are(count: usize) -> String {
    if count == 1 { "is".to_owned() } else { format!("and others, {count} in all, are") }
}

fn late(overdue: &mut [(&Workload, Timestamp)], now: Timestamp, job_of: &JobOf<'_>) -> Option<Finding> {
    overdue.sort_by_key(|(_, at)| *at);
    let (first, at) = overdue.first()?;
    let namespace = fix::word(first.name.namespace.as_str());
    let pods = match job_of(first) {
        Some(job) => format!("-l {}", fix::word(&format!("{JOB_NAME_LABEL}={job}"))),
        None => format!("-l {}", names::POD_SET_LABEL),
    };
    let late: Vec<String> = overdue.iter().map(|(workload, _)| called(job_of, workload)).collect();
    let what = format!(
        "was told to leave {} s ago and has not: {}",
        now.as_seconds().saturating_sub(at.as_seconds()),
        first_of(&late)
    );
    let fix = format!("kubectl delete pods -n {namespace} {pods} --force --grace-period=0");
    let finding = Finding::problem(Area::Workloads, format!("Workload {}", first.name), what, fix);
    Some(finding.because(
        "Its pods are still there and hold its quota. The line ends them without waiting for their node: make sure that nothing of \
         them runs any more.",
    ))
}

#[cfg(test)]
#[path = "waiting_tests.rs"]
mod tests;
