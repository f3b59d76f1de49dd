//! What a batch/v1 Job asks for, and how it is changed to start and to stop.

use std::collections::BTreeMap;

use gangway_admission::{JobEnd, JobFacts, ReadyPods};
use gangway_api::kueue::{PodSet, Workload, WorkloadSpec};
use gangway_api::{names, time};
use gangway_model::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use super::priority::Priority;
use super::template::{self, Contradiction, Directives, Injection};

/// Annotations of a Job that its Workload has as well: the gates that keep it from being admitted, and how long its pods may
/// take to be ready.
const WISHES: [&str; 3] = [
    names::ADMISSION_GATED_BY_ANNOTATION,
    names::PODS_READY_TIMEOUT_ANNOTATION,
    names::PODS_READY_RECOVERY_TIMEOUT_ANNOTATION,
];

/// How many indexes a text such as `1,3-5` names.
fn indexes(text: &str) -> usize {
    let count = |part: &str| -> Option<usize> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    text.split(',').filter_map(count).sum()
}

/// With how many pods a Workload was admitted.
fn admitted_count(workload: &Workload) -> Option<i32> {
    workload.status.as_ref()?.admission.as_ref()?.pod_set_assignments.first()?.count
}

/// The LocalQueue that a Job names.
pub(in crate::workloads) fn queue_name(job: &Job) -> Option<&str> {
    job.labels().get(names::QUEUE_NAME_LABEL).map(String::as_str).filter(|name| !name.is_empty())
}

/// What the engine needs to know of a Job.
pub(in crate::workloads) fn facts(job: &Job) -> JobFacts {
    let view = JobView(job);
    JobFacts {
        stopped: view.has_stopped(),
        suspended_at: view.suspended_at(),
        end: view.end(),
        pods: view.ready_pods(),
    }
}

/// A Job, with answers to what the integration asks of it.
#[derive(Clone, Copy)]
pub(in crate::workloads) struct JobView<'j>(pub(in crate::workloads) &'j Job);

impl<'j> JobView<'j> {
    /// Whether another Job controls it.
    pub(super) fn has_managed_owner(self) -> bool {
        let owner = self.0.owner_references().iter().find(|owner| owner.controller == Some(true));
        owner.is_some_and(|owner| owner.api_version == "batch/v1" && owner.kind == "Job")
    }

    fn spec(self) -> Option<&'j JobSpec> {
        self.0.spec.as_ref()
    }

    fn template(self) -> Option<&'j PodTemplateSpec> {
        self.spec().map(|spec| &spec.template)
    }

    pub(in crate::workloads) fn is_suspended(self) -> bool {
        self.spec().and_then(|spec| spec.suspend).unwrap_or(false)
    }

    /// Since when the Job controller has reported it as suspended.
    fn suspended_at(self) -> Option<Timestamp> {
        self.condition("Suspended")?.last_transition_time.as_ref().map(time::from_api)
    }

    /// Whether it is suspended and no pod of it is left.
    ///
    /// A Job that was created suspended never had any. Of one that was changed since, the status says
    /// nothing about pods that were just made until the Job controller reports that it saw the suspension.
    pub(super) fn has_stopped(self) -> bool {
        let as_created = self.0.metadata.generation.unwrap_or(0) <= 1;
        self.is_suspended() && !self.has_pods() && (as_created || self.condition("Suspended").is_some())
    }

    /// Whether pods of it are active or on their way out.
    pub(super) fn has_pods(self) -> bool {
        let status = self.0.status.as_ref();
        let count = |n: Option<i32>| n.unwrap_or(0) > 0;
        status.is_some_and(|status| count(status.active) || count(status.terminating))
    }

    fn has_active_pods(self) -> bool {
        self.0.status.as_ref().and_then(|status| status.active).unwrap_or(0) > 0
    }

    fn condition(self, kind: &str) -> Option<&'j k8s_openapi::api::batch::v1::JobCondition> {
        let conditions = self.0.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|c| c.type_ == kind && c.status == "True")
    }

    fn end(self) -> Option<JobEnd> {
        let complete = self.condition("Complete").map(|c| (true, c));
        let (succeeded, condition) = complete.or_else(|| self.condition("Failed").map(|c| (false, c)))?;
        let message = condition.message.clone().filter(|message| !message.is_empty());
        let fallback = if succeeded { "The Job completed" } else { "The Job failed" };
        Some(JobEnd { succeeded, message: message.unwrap_or_else(|| fallback.to_owned()) })
    }

    pub(in crate::workloads) fn has_ended(self) -> bool {
        self.end().is_some()
    }

    /// How many pods run at a time.
    fn pod_count(self) -> i32 {
        let spec = self.spec();
        let parallelism = spec.and_then(|spec| spec.parallelism).unwrap_or(1);
        spec.and_then(|spec| spec.completions).map_or(parallelism, |completions| parallelism.min(completions))
    }

    /// How many of its pods are ready, and how many have to be. Who has succeeded counts, also before the Job controller has
    /// counted it, so that nothing flickers; an index that failed for good has no pod any more that could be ready.
    fn ready_pods(self) -> Option<ReadyPods> {
        let status = self.0.status.as_ref().filter(|_| !self.is_suspended());
        let wanted = self.pod_count();
        let Some(status) = status else {
            return (!self.is_suspended()).then_some(ReadyPods { ready: 0, wanted });
        };
        let uncounted = status.uncounted_terminated_pods.as_ref();
        let uncounted = uncounted.and_then(|pods| pods.succeeded.as_ref()).map_or(0, Vec::len);
        let failed = status.failed_indexes.as_deref().map_or(0, indexes);
        let counted = status.ready.unwrap_or(0).saturating_add(status.succeeded.unwrap_or(0));
        let others = i32::try_from(uncounted.saturating_add(failed)).unwrap_or(i32::MAX);
        Some(ReadyPods { ready: counted.saturating_add(others), wanted })
    }

    /// Whether the template carries what a start injected.
    pub(super) fn is_injected(self) -> bool {
        self.template().is_some_and(template::is_injected)
    }

    /// Whether it was Gangway that started it, and not the reference.
    pub(super) fn was_started_here(self) -> bool {
        self.template().is_some_and(template::has_note)
    }

    /// Whether the API lets the template of this Job be changed: it is suspended, nothing of it runs, and it has no start
    /// time.
    ///
    /// From Kubernetes 1.36 the Job controller takes the start time away as it reports the suspension.
    pub(super) fn may_change_template(self) -> bool {
        self.is_suspended() && !self.has_active_pods() && !self.has_start_time()
    }

    /// Whether the Job controller has reported a suspension and left the start time, as it does before Kubernetes 1.36.
    pub(super) fn keeps_start_time(self) -> bool {
        self.has_stopped() && self.condition("Suspended").is_some() && self.has_start_time()
    }

    fn has_start_time(self) -> bool {
        self.0.status.as_ref().is_some_and(|status| status.start_time.is_some())
    }

    /// The one podSet that the Job asks for.
    pub(super) fn pod_set(self) -> PodSet {
        let template = self.template().cloned().unwrap_or_default();
        PodSet {
            name: names::MAIN_POD_SET.to_owned(),
            template: template::recorded(template),
            count: Some(self.pod_count()),
            min_count: self.min_count(self.pod_count()),
            ..PodSet::default()
        }
    }

    /// How many pods of `count` are enough for it, if fewer are.
    fn min_count(self, count: i32) -> Option<i32> {
        let least = self.0.annotations().get(names::JOB_MIN_PARALLELISM_ANNOTATION)?.parse().ok()?;
        (0 < least && least < count).then_some(least)
    }

    /// The name of the Workload of this Job. The uid in it tells a re-created Job from the one before.
    pub(super) fn workload_name(self) -> String {
        const LONGEST: usize = 253;
        let job_name = self.0.name_any();
        let uid = self.0.uid().unwrap_or_default();
        let digest = Sha1::digest(format!("Job\nbatch\n{job_name}\n{uid}"));
        let suffix = format!("{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2]);
        let mut base = format!("job-{job_name}");
        base.truncate(base.floor_char_boundary(LONGEST - 6));
        // A part of a name may not begin with the dash that follows.
        let base = base.trim_end_matches('.');
        format!("{base}-{}", &suffix[..5])
    }

    /// The Workload that stands for this Job.
    pub(super) fn workload(self, queue: &str, priority: &Priority) -> Workload {
        let uid = self.0.uid().unwrap_or_default();
        let owner = OwnerReference {
            controller: Some(true),
            block_owner_deletion: Some(true),
            ..self.0.owner_ref(&()).unwrap_or_default()
        };
        let metadata = ObjectMeta {
            name: Some(self.workload_name()),
            namespace: self.0.namespace(),
            labels: Some([(names::JOB_UID_LABEL.to_owned(), uid)].into()),
            annotations: Some(self.wishes()).filter(|wishes| !wishes.is_empty()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        let spec = WorkloadSpec {
            pod_sets: vec![self.pod_set()],
            queue_name: Some(queue.to_owned()).filter(|name| !name.is_empty()),
            priority_class_ref: priority.class.clone(),
            priority: Some(priority.value),
            active: Some(true),
            ..WorkloadSpec::default()
        };
        Workload { metadata, spec, status: None }
    }

    /// Whether a Workload still describes the Job: same pods, same number, or so many of them as it was started with.
    ///
    /// Node selector, labels and annotations do not count, and tolerations only as long as nothing is
    /// injected: a start changes them.
    pub(super) fn is_described_by(self, workload: &Workload) -> bool {
        let [set] = workload.spec.pod_sets.as_slice() else { return false };
        let count = set.count.unwrap_or(1);
        if set.min_count != self.min_count(count) || count != self.pod_count() && !self.is_lowered(workload) {
            return false;
        }
        let (Some(mine), Ok(theirs)) = (self.template(), set.template.typed()) else { return false };
        let (Some(mine), Some(theirs)) = (&mine.spec, &theirs.spec) else { return false };
        let tolerations = |pod: &PodSpec| pod.tolerations.clone().unwrap_or_default();
        template::same_pods(mine, theirs) && (self.is_injected() || tolerations(mine) == tolerations(theirs))
    }

    /// Whether it was started with fewer pods than it asked for, as its Workload says.
    fn is_lowered(self, workload: &Workload) -> bool {
        let Some(set) = workload.spec.pod_sets.first() else { return false };
        let (count, least) = (set.count.unwrap_or(1), set.min_count);
        let pods = self.pod_count();
        let as_given = admitted_count(workload).is_none_or(|given| given == pods);
        self.is_injected() && as_given && pods < count && least.is_some_and(|least| pods >= least)
    }

    /// The operations of a JSON patch by which so many pods run at a time.
    fn resize(self, count: i32) -> Vec<Value> {
        let equal = self.0.annotations().get(names::JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION);
        let fields: &[&str] = match equal.is_some_and(|value| value == "true") {
            true => &["parallelism", "completions"],
            false => &["parallelism"],
        };
        let put = |field: &&str| json!({"op": "add", "path": format!("/spec/{field}"), "value": count});
        fields.iter().map(put).collect()
    }

    /// Whether a Workload that describes the Job also has its labels, annotations and wishes for nodes.
    /// They decide on which flavors it can start, so a Workload without quota follows them.
    pub(super) fn is_up_to_date(self, workload: &Workload) -> bool {
        let theirs = workload.spec.pod_sets.first().and_then(|set| set.template.typed().ok());
        let both = self.template().zip(theirs);
        both.is_none_or(|(mine, theirs)| template::same_directives(mine, &theirs))
    }

    /// The annotations of the Job that its Workload has as well.
    fn wishes(self) -> BTreeMap<String, String> {
        let given = |key: &str| Some((key.to_owned(), self.0.annotations().get(key)?.clone()));
        WISHES.iter().filter_map(|key| given(key)).collect()
    }

    /// Those of them that the Workload does not have, or has with another value; null for one that is to go.
    pub(super) fn changed_wishes(self, workload: &Workload) -> Map<String, Value> {
        let wishes = self.wishes();
        let differ = WISHES.iter().filter(|key| wishes.get(**key) != workload.annotations().get(**key));
        differ.map(|key| ((*key).to_owned(), json!(wishes.get(*key)))).collect()
    }

    /// The JSON patch that starts the Job on its flavors: what the user's template says plus what the
    /// flavors bring, and a note of the former. It applies only to the generation that was looked at.
    pub(super) fn start_patch(
        self,
        workload: &Workload,
        injection: &Injection,
    ) -> Result<Value, Contradiction> {
        let original = self.directives_before_start(Some(workload));
        let original = original.including_annotations(self.template(), injection);
        let note = original.note();
        let mut patch = self.preconditions();
        patch.extend(original.with(injection)?.patch(self.template(), Some(note)));
        let given = admitted_count(workload).filter(|given| *given < self.pod_count());
        let may_be_fewer = workload.spec.pod_sets.first().is_some_and(|set| set.min_count.is_some());
        if let Some(given) = given.filter(|_| may_be_fewer) {
            patch.extend(self.resize(given));
        }
        patch.push(json!({"op": "add", "path": "/spec/suspend", "value": false}));
        Ok(Value::Array(patch))
    }

    /// The JSON patch that takes back what a start injected.
    pub(super) fn restore_patch(self, workload: Option<&Workload>) -> Value {
        let mut patch = self.preconditions();
        patch.extend(self.directives_before_start(workload).patch(self.template(), None));
        let lowered = workload.filter(|workload| self.is_lowered(workload));
        if let Some(count) = lowered.and_then(|workload| workload.spec.pod_sets.first()?.count) {
            patch.extend(self.resize(count));
        }
        Value::Array(patch)
    }

    /// The merge patch of the status that takes the start time away. The status is the Job controller's, so it applies
    /// only to what was looked at.
    pub(super) fn forget_start_patch(self) -> Value {
        let metadata = json!({"uid": self.0.uid(), "resourceVersion": self.0.resource_version()});
        json!({"metadata": metadata, "status": {"startTime": null}})
    }

    fn directives_before_start(self, workload: Option<&Workload>) -> Directives {
        self.template().map(|template| Directives::before_start(template, workload)).unwrap_or_default()
    }

    fn preconditions(self) -> Vec<Value> {
        vec![
            json!({"op": "test", "path": "/metadata/uid", "value": self.0.uid()}),
            json!({"op": "test", "path": "/metadata/generation", "value": self.0.metadata.generation}),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(spec: Value, status: Value) -> Option<ReadyPods> {
        let mut spec = spec;
        spec["template"] = json!({"spec": {"containers": []}});
        let job = json!({"metadata": {"name": "j"}, "spec": spec, "status": status});
        facts(&serde_json::from_value(job).unwrap()).pods
    }

    #[test]
    fn pods_are_ready_when_as_many_as_run_at_a_time_are_or_have_succeeded() {
        let uncounted = json!({"succeeded": ["u1"], "failed": ["u2"]});
        let table = [
            (json!({"parallelism": 4, "completions": 4}), json!({"ready": 3}), (3, 4)),
            (json!({"parallelism": 4, "completions": 2}), json!({"ready": 2}), (2, 2)),
            (json!({"parallelism": 2, "completions": 8}), json!({"ready": 1, "succeeded": 5}), (6, 2)),
            (json!({"parallelism": 2}), json!({"ready": 1, "uncountedTerminatedPods": uncounted}), (2, 2)),
            (json!({"parallelism": 4, "completions": 4}), json!({"ready": 3, "failed": 9}), (3, 4)),
            // An index that failed for good has no pod that could be ready.
            (
                json!({"parallelism": 5, "completions": 5}),
                json!({"ready": 1, "failedIndexes": "0,2-4"}),
                (5, 5),
            ),
            (json!({}), json!({}), (0, 1)),
            (json!({"parallelism": 0}), json!({}), (0, 0)),
        ];
        for (spec, status, (ready_pods, wanted)) in table {
            let expected = Some(ReadyPods { ready: ready_pods, wanted });
            assert_eq!(ready(spec.clone(), status.clone()), expected, "{spec} {status}");
        }
        let suspended = json!({"parallelism": 1, "suspend": true});
        assert_eq!(ready(suspended, json!({"succeeded": 3})), None, "what is suspended does not start");
    }

    #[test]
    fn a_workload_has_the_timeouts_that_its_job_asks_for() {
        let job = json!({"metadata": {"name": "j", "uid": "u", "annotations": {
                "gangway.dev/pods-ready-timeout": "5m", "mine": "x"}},
            "spec": {"template": {"spec": {"containers": []}}}});
        let job: Job = serde_json::from_value(job).unwrap();
        let view = JobView(&job);
        let mut workload = view.workload("lq", &Priority { value: 0, class: None });
        let expected = [(names::PODS_READY_TIMEOUT_ANNOTATION.to_owned(), "5m".to_owned())];
        assert_eq!(*workload.annotations(), expected.into());
        assert!(view.changed_wishes(&workload).is_empty());
        let recovery = names::PODS_READY_RECOVERY_TIMEOUT_ANNOTATION.to_owned();
        workload.annotations_mut().clear();
        workload.annotations_mut().insert(recovery.clone(), "1m".to_owned());
        let changed = view.changed_wishes(&workload);
        assert_eq!(changed[names::PODS_READY_TIMEOUT_ANNOTATION], "5m");
        assert!(changed[&recovery].is_null(), "what the Job does not ask for goes");
    }
}
