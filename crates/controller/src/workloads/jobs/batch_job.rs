//! What a batch/v1 Job asks for, and how it is changed to start and to stop.

use std::collections::BTreeMap;

use gangway_admission::{JobEnd, JobFacts};
use gangway_api::kueue::{PodSet, PodTemplate, Workload, WorkloadSpec};
use gangway_api::names;
use gangway_model::workload::Admission;
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use sha1::{Digest, Sha1};

use super::priority::Priority;

/// Labels that the Job controller puts into the template; they stay whatever is restored.
const JOB_CONTROLLER_LABELS: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// The LocalQueue that a Job names.
pub(in crate::workloads) fn queue_name(job: &Job) -> Option<&str> {
    job.labels().get(names::QUEUE_NAME_LABEL).map(String::as_str).filter(|name| !name.is_empty())
}

/// What the engine needs to know of a Job.
pub(in crate::workloads) fn facts(job: &Job) -> JobFacts {
    let view = JobView(job);
    JobFacts { stopped: view.is_suspended() && !view.has_pods(), end: view.end() }
}

/// A Job, with answers to what the integration asks of it.
#[derive(Clone, Copy)]
pub(in crate::workloads) struct JobView<'j>(pub(in crate::workloads) &'j Job);

impl<'j> JobView<'j> {
    fn spec(self) -> Option<&'j JobSpec> {
        self.0.spec.as_ref()
    }

    fn template(self) -> Option<&'j PodTemplateSpec> {
        self.spec().map(|spec| &spec.template)
    }

    pub(in crate::workloads) fn is_suspended(self) -> bool {
        self.spec().and_then(|spec| spec.suspend).unwrap_or(false)
    }

    /// Whether pods of it are active or on their way out.
    pub(in crate::workloads) fn has_pods(self) -> bool {
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

    /// Whether the template carries what a start injected.
    pub(in crate::workloads) fn is_injected(self) -> bool {
        let labels = self.template().and_then(|template| template.metadata.as_ref()?.labels.as_ref());
        labels.is_some_and(|labels| labels.contains_key(names::POD_SET_LABEL))
    }

    /// Whether the API lets the template of this Job be changed.
    ///
    /// A Job that was never started may always; one that was, once the Job controller reports it
    /// suspended with no active pod.
    pub(in crate::workloads) fn may_change_template(self) -> bool {
        let started = self.0.status.as_ref().is_some_and(|status| status.start_time.is_some());
        let reported = self.condition("Suspended").is_some();
        self.is_suspended() && !self.has_active_pods() && (!started || reported)
    }

    /// The one podSet that the Job asks for.
    pub(in crate::workloads) fn pod_set(self) -> PodSet {
        let template = self.template().cloned().unwrap_or_default();
        PodSet {
            name: names::MAIN_POD_SET.to_owned(),
            template: PodTemplate::from(&recorded_template(template)),
            count: Some(self.pod_count()),
            ..PodSet::default()
        }
    }

    /// The name of the Workload of this Job. The uid in it tells a re-created Job from the one before.
    pub(in crate::workloads) fn workload_name(self) -> String {
        const LONGEST: usize = 253;
        let job_name = self.0.name_any();
        let uid = self.0.uid().unwrap_or_default();
        let digest = Sha1::digest(format!("Job\nbatch\n{job_name}\n{uid}"));
        let suffix = format!("{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2]);
        let mut base = format!("job-{job_name}");
        base.truncate(LONGEST - 6);
        format!("{base}-{}", &suffix[..5])
    }

    /// The Workload that stands for this Job.
    pub(in crate::workloads) fn workload(self, queue: &str, priority: &Priority) -> Workload {
        let uid = self.0.uid().unwrap_or_default();
        let owner = OwnerReference {
            controller: Some(true),
            block_owner_deletion: Some(true),
            ..self.0.owner_ref(&()).unwrap_or_default()
        };
        let gated = self.0.annotations().get(names::ADMISSION_GATED_BY_ANNOTATION);
        let metadata = ObjectMeta {
            name: Some(self.workload_name()),
            namespace: self.0.namespace(),
            labels: Some([(names::JOB_UID_LABEL.to_owned(), uid)].into()),
            annotations: gated
                .map(|gates| [(names::ADMISSION_GATED_BY_ANNOTATION.to_owned(), gates.clone())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        };
        let spec = WorkloadSpec {
            pod_sets: vec![self.pod_set()],
            queue_name: Some(queue.to_owned()),
            priority_class_ref: priority.class.clone(),
            priority: Some(priority.value),
            active: Some(true),
            ..WorkloadSpec::default()
        };
        Workload { metadata, spec, status: None }
    }

    /// Whether a Workload still describes the Job: same pods, same number.
    ///
    /// Node selector, labels and annotations do not count, and tolerations only as long as nothing is
    /// injected: a start changes them.
    pub(in crate::workloads) fn is_described_by(self, workload: &Workload) -> bool {
        let [set] = workload.spec.pod_sets.as_slice() else { return false };
        if set.count.unwrap_or(1) != self.pod_count() || set.min_count.is_some() {
            return false;
        }
        let (Some(mine), Ok(theirs)) = (self.template(), set.template.typed()) else { return false };
        let (Some(mine), Some(theirs)) = (&mine.spec, &theirs.spec) else { return false };
        same_pods(mine, theirs)
            && (self.is_injected()
                || mine.tolerations.as_deref().unwrap_or_default()
                    == theirs.tolerations.as_deref().unwrap_or_default())
    }

    /// The JSON patch that starts the Job on its flavors: what the Workload's template says plus what the
    /// flavors bring. It applies only to the generation that was looked at.
    pub(in crate::workloads) fn start_patch(
        self,
        workload: &Workload,
        start: &Injection,
    ) -> Result<Value, Contradiction> {
        let original = original_template(workload);
        let pod = original.spec.unwrap_or_default();
        let mut selector = pod.node_selector.unwrap_or_default();
        for (key, value) in &start.node_labels {
            let before = selector.insert(key.clone(), value.clone());
            if before.as_ref().is_some_and(|before| before != value) {
                let wanted = before.unwrap_or_default();
                return Err(Contradiction { key: key.clone(), wanted, flavor: value.clone() });
            }
        }
        let mut tolerations = pod.tolerations.unwrap_or_default();
        for toleration in &start.tolerations {
            if !tolerations.contains(toleration) {
                tolerations.push(toleration.clone());
            }
        }
        let mut labels = original.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        labels.extend(start.labels.clone());
        let mut patch = self.template_patch(selector, tolerations, labels);
        patch.push(json!({"op": "add", "path": "/spec/suspend", "value": false}));
        Ok(Value::Array(patch))
    }

    /// The JSON patch that takes back what a start injected.
    pub(in crate::workloads) fn restore_patch(self, workload: &Workload) -> Value {
        let original = original_template(workload);
        let pod = original.spec.unwrap_or_default();
        let labels = original.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        let selector = pod.node_selector.unwrap_or_default();
        Value::Array(self.template_patch(selector, pod.tolerations.unwrap_or_default(), labels))
    }

    fn template_patch(
        self,
        selector: BTreeMap<String, String>,
        tolerations: Vec<Toleration>,
        mut labels: BTreeMap<String, String>,
    ) -> Vec<Value> {
        let template = self.template();
        let current = template.and_then(|template| template.metadata.as_ref()?.labels.as_ref());
        for key in JOB_CONTROLLER_LABELS {
            if let Some(value) = current.and_then(|labels| labels.get(key)) {
                labels.insert(key.to_owned(), value.clone());
            }
        }
        let mut patch = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": self.0.uid()}),
            json!({"op": "test", "path": "/metadata/generation", "value": self.0.metadata.generation}),
        ];
        if template.is_none_or(|template| template.metadata.is_none()) {
            patch.push(json!({"op": "add", "path": "/spec/template/metadata", "value": {}}));
        }
        patch.push(json!({"op": "add", "path": "/spec/template/metadata/labels", "value": labels}));
        patch.push(json!({"op": "add", "path": "/spec/template/spec/nodeSelector", "value": selector}));
        patch.push(json!({"op": "add", "path": "/spec/template/spec/tolerations", "value": tolerations}));
        patch
    }
}

/// What a start injects into the template.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::workloads) struct Injection {
    node_labels: BTreeMap<String, String>,
    tolerations: Vec<Toleration>,
    labels: BTreeMap<String, String>,
}

impl Injection {
    /// What the flavors of an admission bring, and the labels that say where the pods belong.
    pub(in crate::workloads) fn new<'f>(
        admission: &Admission,
        queue: &str,
        flavor: impl Fn(&str) -> Option<&'f gangway_api::kueue::ResourceFlavorSpec>,
    ) -> Self {
        let mut injection = Self::default();
        for name in admission.flavors() {
            let Some(spec) = flavor(name.as_str()) else { continue };
            injection.node_labels.extend(spec.node_labels.clone());
            injection.tolerations.extend(spec.tolerations.iter().cloned());
        }
        injection.labels.insert(names::POD_SET_LABEL.to_owned(), names::MAIN_POD_SET.to_owned());
        for (key, value) in [
            (names::CLUSTER_QUEUE_LABEL, admission.cluster_queue.as_str()),
            (names::LOCAL_QUEUE_LABEL, queue),
        ] {
            // A queue's name may be longer than a label's value.
            if value.len() <= 63 {
                injection.labels.insert(key.to_owned(), value.to_owned());
            }
        }
        injection
    }
}

/// The pods demand one value of a node label and the flavor has another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pods' node selector wants {key}={wanted} but the flavor's nodes have {key}={flavor}")]
pub(in crate::workloads) struct Contradiction {
    key: String,
    wanted: String,
    flavor: String,
}

/// A Workload keeps labels and annotations of the template's metadata, and no trace of the Job controller.
fn recorded_template(mut template: PodTemplateSpec) -> PodTemplateSpec {
    template.metadata = template.metadata.map(|metadata| {
        let labels = metadata.labels.map(|labels| {
            labels.into_iter().filter(|(key, _)| !JOB_CONTROLLER_LABELS.contains(&key.as_str())).collect()
        });
        ObjectMeta { labels, annotations: metadata.annotations, ..ObjectMeta::default() }
    });
    template
}

fn original_template(workload: &Workload) -> PodTemplateSpec {
    workload.spec.pod_sets.first().and_then(|set| set.template.typed().ok()).unwrap_or_default()
}

/// Whether two pods ask for the same. Quantities were written by the same hand, so text compares.
fn same_pods(a: &PodSpec, b: &PodSpec) -> bool {
    a.containers == b.containers
        && a.init_containers.as_deref().unwrap_or_default()
            == b.init_containers.as_deref().unwrap_or_default()
}
