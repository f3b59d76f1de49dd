//! Workloads: what they ask for, and the state that their conditions mean.

use std::sync::Arc;

use gangway_model::conditions::{Condition, ConditionType, Notes, read};
use gangway_model::constraints::Constraints;
use gangway_model::readiness::Timeouts;
use gangway_model::workload::{Admission, Assignment, Impediments, PodSet, RequeueState, Workload};
use gangway_model::{ObjectName, Quantity, Requests, Timestamp, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::ResourceExt;

use super::{Read, Reader, checks, fallback};
use crate::{kueue, names, pods, time};

/// How the configuration changes what pods ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRules {
    /// Resources whose names begin so do not count against quota.
    pub exclude_prefixes: Vec<String>,
}

impl ResourceRules {
    fn apply(&self, requests: &Requests) -> Requests {
        let counts =
            |name: &str| !self.exclude_prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
        requests
            .iter()
            .filter(|(resource, _)| counts(resource.as_str()))
            .map(|(resource, value)| (resource.clone(), value))
            .collect()
    }
}

/// A Workload. One whose pods cannot be understood says that it is invalid, and is not admitted.
pub fn workload(object: &kueue::Workload, rules: &ResourceRules) -> Read<Workload> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let mut reader = Reader::new(format!("Workload/{namespace}/{name}"));
    let pod_sets = pod_sets(&mut reader, object, rules);
    let invalid = reader.summary();
    let status = object.status.as_ref();
    let admission = status
        .and_then(|status| status.admission.as_ref())
        .map(|admission| self::admission(&mut reader, admission, &pod_sets));
    let conditions: Vec<Condition> =
        status.map(|status| status.conditions.iter().filter_map(condition).collect()).unwrap_or_default();
    let preemptor = object.status.as_ref().and_then(|status| status.preemptor.as_deref()).map(Uid::from);
    let requeue_state = status.and_then(|status| status.requeue_state.as_ref()).map(requeue_state);
    let checks = status.map(checks::answers).unwrap_or_default();
    let history = status.map(fallback::history).unwrap_or_default();
    let reading = read(&conditions, Notes { admission, preemptor, requeue_state, checks, history });
    let timeouts = timeouts(&mut reader, object);
    unsupported(&mut reader, &object.spec);
    let record = Workload {
        uid: object.uid().unwrap_or_default().into(),
        name: ObjectName::new(namespace.as_str(), &name),
        version: object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0),
        generation: object.metadata.generation.unwrap_or(0),
        created: object.creation_timestamp().as_ref().map_or(Timestamp::EPOCH, time::from_api),
        queue: object.spec.queue_name.as_deref().unwrap_or_default().into(),
        priority: object.spec.priority.unwrap_or(0),
        active: object.spec.active.unwrap_or(true),
        pod_sets: pod_sets.into(),
        impediments: Impediments::new(invalid, gates(object), foreign_owner(object)),
        deleting: object.metadata.deletion_timestamp.is_some(),
        owner: owner(object),
        timeouts: timeouts.map(Box::new),
        state: reading.state,
    };
    Read { repaired: reading.repaired, ..reader.finish(record) }
}

fn requeue_state(state: &kueue::RequeueState) -> RequeueState {
    let count = state.count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0);
    RequeueState { count, requeue_at: state.requeue_at.as_ref().map(time::from_api) }
}

/// The timeouts that a Job asks for. One that cannot be read has no effect, and that is said.
fn timeouts(reader: &mut Reader, object: &kueue::Workload) -> Option<Timeouts> {
    let mut seconds = |annotation: &str| {
        let path = format!("metadata.annotations[{annotation}]");
        reader.seconds(&path, object.annotations().get(annotation))
    };
    let start_seconds = seconds(names::PODS_READY_TIMEOUT_ANNOTATION);
    let recovery_seconds = seconds(names::PODS_READY_RECOVERY_TIMEOUT_ANNOTATION);
    let timeouts = Timeouts { start_seconds, recovery_seconds };
    (timeouts != Timeouts::default()).then_some(timeouts)
}

fn unsupported(reader: &mut Reader, spec: &kueue::WorkloadSpec) {
    reader.unsupported(spec.pod_sets.iter().any(|set| set.min_count.is_some()), "spec.podSets[].minCount");
    let topology = spec.pod_sets.iter().filter_map(|set| set.topology_request.as_ref());
    reader.unsupported(topology.into_iter().any(asks_for_places), "spec.podSets[].topologyRequest");
    reader.unsupported(spec.maximum_execution_time_seconds.is_some(), "spec.maximumExecutionTimeSeconds");
    reader.unsupported(!spec.preemption_gates.is_empty(), "spec.preemptionGates");
}

/// Whether a topology request asks for something. Labels by which pods are told apart ask for nothing, and every Job of
/// the reference has one.
fn asks_for_places(request: &serde_json::Value) -> bool {
    const NAMES_OF_PODS: [&str; 3] = ["podIndexLabel", "subGroupIndexLabel", "subGroupCount"];
    let fields = request.as_object();
    fields.into_iter().flatten().any(|(field, _)| !NAMES_OF_PODS.contains(&field.as_str()))
}

fn owner(object: &kueue::Workload) -> Option<Uid> {
    let controller = object.owner_references().iter().find(|owner| owner.controller == Some(true))?;
    Some(controller.uid.as_str().into())
}

/// What kind of object owns it, if that is no Job. Groups of pods own their Workload together: none of them controls it.
fn foreign_owner(object: &kueue::Workload) -> Option<String> {
    let is_job =
        |owner: &&meta::OwnerReference| owner.kind == "Job" && owner.api_version.starts_with("batch/v1");
    let foreign = object.owner_references().iter().find(|owner| !is_job(owner))?;
    Some(foreign.kind.clone())
}

fn gates(object: &kueue::Workload) -> Vec<String> {
    let annotation = object.annotations().get(names::ADMISSION_GATED_BY_ANNOTATION);
    let gates = annotation.iter().flat_map(|text| text.split(',')).map(str::trim);
    gates.filter(|gate| !gate.is_empty()).map(str::to_owned).collect()
}

fn pod_sets(reader: &mut Reader, object: &kueue::Workload, rules: &ResourceRules) -> Vec<PodSet> {
    let mut sets = Vec::with_capacity(object.spec.pod_sets.len());
    for (index, set) in object.spec.pod_sets.iter().enumerate() {
        let path = format!("spec.podSets[{index}]");
        let count = set.count.unwrap_or(1);
        if count < 0 {
            reader.problem(format!("{path}.count"), "must be 0 or more");
        }
        let (requests, constraints) = match understand(set) {
            Ok((requests, constraints)) => (rules.apply(&requests), constraints),
            Err(message) => {
                reader.problem(format!("{path}.template"), message);
                (Requests::new(), Constraints::default())
            }
        };
        let reclaimable = object.status.iter().flat_map(|status| &status.reclaimable_pods);
        let reclaimable =
            reclaimable.filter(|pods| pods.name == set.name).map(|pods| pods.count.max(0)).sum();
        sets.push(PodSet {
            name: set.name.as_str().into(),
            // Pods that are not needed any more are not asked for.
            count: count.saturating_sub(reclaimable).max(0),
            requests,
            constraints: Arc::new(constraints),
        });
    }
    sets
}

fn understand(set: &kueue::PodSet) -> Result<(Requests, Constraints), String> {
    let template = set.template.typed().map_err(|error| error.to_string())?;
    let pod = template.spec.unwrap_or_default();
    let requests = pods::requests(&pod).map_err(|error| format!("spec.{error}"))?;
    let constraints = pods::constraints(&pod).map_err(|error| format!("spec.{error}"))?;
    Ok((requests, constraints))
}

/// One of our conditions; those of others are none of the engine's business.
fn condition(condition: &meta::Condition) -> Option<Condition> {
    Some(Condition {
        kind: ConditionType::parse(&condition.type_)?,
        status: condition.status == "True",
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        at: time::from_api(&condition.last_transition_time),
    })
}

/// The quota that a Workload holds, in the order of its pod sets.
pub(super) fn admission(reader: &mut Reader, admission: &kueue::Admission, sets: &[PodSet]) -> Admission {
    let mut pod_sets: Vec<Assignment> = Vec::with_capacity(admission.pod_set_assignments.len());
    for assignment in &admission.pod_set_assignments {
        let set = sets.iter().find(|set| set.name.as_str() == assignment.name);
        let count = assignment.count.or(set.map(|set| set.count)).unwrap_or(0);
        let mut usage = Requests::new();
        for (resource, amount) in &assignment.resource_usage {
            let value = Quantity::parse_non_negative(&amount.0).map(|quantity| quantity.counted_as(resource));
            let value = value.unwrap_or_else(|error| {
                let path = format!("status.admission.podSetAssignments[{}].resourceUsage", assignment.name);
                reader.problem(format!("{path}.{resource}"), error.to_string());
                // What it asked for is the best that is known about what it holds.
                set.map_or(0, |set| set.requests.get(resource).saturating_mul(i64::from(count)))
            });
            usage.set(resource.as_str().into(), value);
        }
        let flavors = assignment.flavors.iter();
        let flavors = flavors.map(|(resource, flavor)| (resource.as_str().into(), flavor.as_str().into()));
        pod_sets.push(Assignment {
            name: assignment.name.as_str().into(),
            flavors: flavors.collect(),
            usage,
            count,
            // Who runs with fewer pods than it asked for still needs all of them.
            reclaimed: set.map_or(0, |set| (count - set.count).max(0)),
        });
    }
    let position = |a: &Assignment| sets.iter().position(|set| set.name == a.name).unwrap_or(usize::MAX);
    pod_sets.sort_by_key(position);
    Admission { cluster_queue: admission.cluster_queue.as_str().into(), pod_sets: pod_sets.into() }
}
