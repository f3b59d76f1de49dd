//! What a start puts into a pod template, what a stop takes out again, and when two templates are equal.

use std::collections::{BTreeMap, HashSet};

use gangway_api::kueue::{PodTemplate, ResourceFlavorSpec, Workload};
use gangway_api::names;
use gangway_model::quantity::Quantity as Amount;
use gangway_model::reasons::CheckState;
use gangway_model::workload::Admission;
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec, Toleration};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

type Texts = BTreeMap<String, String>;

/// Labels that the Job controller puts into the template; they stay whatever is restored.
const JOB_CONTROLLER_LABELS: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// Labels that only a start puts into the template; who writes them by hand loses them.
const START_LABELS: [&str; 3] = [names::POD_SET_LABEL, names::CLUSTER_QUEUE_LABEL, names::LOCAL_QUEUE_LABEL];

/// Annotations that only a start puts into the template, ours or that of the reference.
const START_ANNOTATIONS: [&str; 2] = [names::ORIGINAL_TEMPLATE_ANNOTATION, names::WORKLOAD_ANNOTATION];

/// The parts of a template that a start changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Directives {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: Texts,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    node_selector: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tolerations: Vec<Toleration>,
    /// None where a start leaves them alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<Texts>,
}

impl Directives {
    /// Those of a template, without what the Job controller or a start brought.
    fn of(template: &PodTemplateSpec) -> Self {
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
        let pod = template.spec.as_ref();
        Self {
            labels: users_labels(labels.unwrap_or_default()),
            node_selector: pod.and_then(|pod| pod.node_selector.clone()).unwrap_or_default(),
            tolerations: pod.and_then(|pod| pod.tolerations.clone()).unwrap_or_default(),
            annotations: None,
        }
    }

    /// The same with the annotations of the template, if a start changes them: then they are restored, too.
    pub(super) fn including_annotations(
        self,
        template: Option<&PodTemplateSpec>,
        injection: &Injection,
    ) -> Self {
        if injection.annotations.is_empty() {
            return self;
        }
        let known = template.and_then(annotations).cloned().unwrap_or_default();
        Self { annotations: Some(users_annotations(known)), ..self }
    }

    /// Those that a Job had before its start: as the start noted them, else as its Workload has them.
    pub(super) fn before_start(template: &PodTemplateSpec, workload: Option<&Workload>) -> Self {
        if !is_injected(template) {
            return Self::of(template);
        }
        let note = annotations(template).and_then(|all| all.get(names::ORIGINAL_TEMPLATE_ANNOTATION));
        if let Some(noted) = note.and_then(|note| serde_json::from_str::<Self>(note).ok()) {
            return Self { labels: users_labels(noted.labels), ..noted };
        }
        let recorded = workload.and_then(|workload| workload.spec.pod_sets.first()?.template.typed().ok());
        let Some(recorded) = recorded else { return Self::of(template) };
        // Started by somebody else, who may have brought annotations as well.
        let annotations = users_annotations(annotations(&recorded).cloned().unwrap_or_default());
        Self { annotations: Some(annotations), ..Self::of(&recorded) }
    }

    /// With what a start brings.
    pub(super) fn with(mut self, injection: &Injection) -> Result<Self, Contradiction> {
        add("node selector", &mut self.node_selector, &injection.node_labels)?;
        for toleration in &injection.tolerations {
            if !self.tolerations.contains(toleration) {
                self.tolerations.push(toleration.clone());
            }
        }
        add("label", &mut self.labels, &injection.labels_of_checks)?;
        if let Some(annotations) = &mut self.annotations {
            add("annotation", annotations, &injection.annotations)?;
        }
        self.labels.extend(injection.labels.clone());
        Ok(self)
    }

    /// The text from which [`Self::before_start`] reads them back.
    pub(super) fn note(&self) -> String {
        json!(self).to_string()
    }

    /// The operations of a JSON patch that give a template these directives and this note.
    pub(super) fn patch(mut self, template: Option<&PodTemplateSpec>, note: Option<String>) -> Vec<Value> {
        let metadata = template.and_then(|template| template.metadata.as_ref());
        let pod = template.and_then(|template| template.spec.as_ref());
        let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
        let kept = labels.into_iter().flatten();
        let kept = kept.filter(|(key, _)| JOB_CONTROLLER_LABELS.contains(&key.as_str()));
        self.labels.extend(kept.map(|(key, value)| (key.clone(), value.clone())));

        let current_annotations = metadata.and_then(|metadata| metadata.annotations.as_ref());
        let known = || users_annotations(current_annotations.cloned().unwrap_or_default());
        let mut annotations = self.annotations.take().unwrap_or_else(known);
        annotations.extend(note.map(|note| (names::ORIGINAL_TEMPLATE_ANNOTATION.to_owned(), note)));

        let mut patch = Vec::new();
        if metadata.is_none() && !(self.labels.is_empty() && annotations.is_empty()) {
            patch.push(json!({"op": "add", "path": "/spec/template/metadata", "value": {}}));
        }
        let has_selector = pod.is_some_and(|pod| pod.node_selector.is_some());
        let has_tolerations = pod.is_some_and(|pod| pod.tolerations.is_some());
        let tolerations = (!self.tolerations.is_empty()).then(|| json!(self.tolerations));
        patch.extend(put("metadata/labels", labels.is_some(), filled(&self.labels)));
        patch.extend(put("metadata/annotations", current_annotations.is_some(), filled(&annotations)));
        patch.extend(put("spec/nodeSelector", has_selector, filled(&self.node_selector)));
        patch.extend(put("spec/tolerations", has_tolerations, tolerations));
        patch
    }
}

/// Adds texts under names that do not have another text already.
fn add(what: &'static str, texts: &mut Texts, more: &[(String, String)]) -> Result<(), Contradiction> {
    for (key, value) in more {
        let before = texts.insert(key.clone(), value.clone());
        if let Some(wanted) = before.filter(|before| before != value) {
            return Err(Contradiction { what, key: key.clone(), wanted, given: value.clone() });
        }
    }
    Ok(())
}

fn filled(texts: &Texts) -> Option<Value> {
    (!texts.is_empty()).then(|| json!(texts))
}

/// Sets a part of the template, or removes what is there.
fn put(part: &str, is_present: bool, value: Option<Value>) -> Option<Value> {
    let path = format!("/spec/template/{part}");
    match value {
        Some(value) => Some(json!({"op": "add", "path": path, "value": value})),
        None => is_present.then(|| json!({"op": "remove", "path": path})),
    }
}

/// What a start injects into the template.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Injection {
    /// In the order of the flavors and checks, so that those that contradict each other are noticed.
    node_labels: Vec<(String, String)>,
    tolerations: Vec<Toleration>,
    labels: Texts,
    labels_of_checks: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
}

/// What an admission check wants changed in the pods of a podSet.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PodSetUpdate {
    name: String,
    labels: Texts,
    annotations: Texts,
    node_selector: Texts,
    tolerations: Vec<Toleration>,
}

impl Injection {
    /// What the flavors of an admission bring, and the labels that say where the pods belong.
    /// None while a flavor does not exist: without its node labels the pods could run anywhere.
    pub(super) fn new<'f>(
        admission: &Admission,
        queue: &str,
        flavor: impl Fn(&str) -> Option<&'f ResourceFlavorSpec>,
    ) -> Option<Self> {
        let mut injection = Self::default();
        for name in admission.flavors() {
            let spec = flavor(name.as_str())?;
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
        Some(injection)
    }

    /// With what the admission checks of a Workload want changed, once they agree.
    pub(super) fn with_checks(mut self, workload: &Workload) -> Self {
        let checks =
            workload.status.as_ref().map(|status| status.admission_checks.as_slice()).unwrap_or_default();
        let agreeing = checks.iter().filter(|check| check.state == CheckState::Ready.as_str());
        let updates = agreeing.flat_map(|check| check.pod_set_updates.iter().flatten());
        for update in updates.filter_map(|update| serde_json::from_value::<PodSetUpdate>(update.clone()).ok())
        {
            if update.name == names::MAIN_POD_SET {
                self.node_labels.extend(update.node_selector);
                self.tolerations.extend(update.tolerations);
                self.labels_of_checks.extend(update.labels);
                self.annotations.extend(update.annotations);
            }
        }
        self
    }
}

/// The pods would have two values of one thing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pods' {what} says {key}={wanted} but what they are started with says {key}={given}")]
pub(in crate::workloads) struct Contradiction {
    what: &'static str,
    key: String,
    wanted: String,
    given: String,
}

/// Whether a template carries what a start injected.
pub(super) fn is_injected(template: &PodTemplateSpec) -> bool {
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    labels.is_some_and(|labels| labels.contains_key(names::POD_SET_LABEL))
}

/// Whether a start of ours noted in a template what it was before.
pub(super) fn has_note(template: &PodTemplateSpec) -> bool {
    annotations(template).is_some_and(|all| all.contains_key(names::ORIGINAL_TEMPLATE_ANNOTATION))
}

fn annotations(template: &PodTemplateSpec) -> Option<&Texts> {
    template.metadata.as_ref()?.annotations.as_ref()
}

fn users_labels(mut labels: Texts) -> Texts {
    labels.retain(|key, _| !JOB_CONTROLLER_LABELS.contains(&&**key) && !START_LABELS.contains(&&**key));
    labels
}

fn users_annotations(mut annotations: Texts) -> Texts {
    annotations.retain(|key, _| !START_ANNOTATIONS.contains(&&**key));
    annotations
}

/// The template as a Workload keeps it: of the metadata labels and annotations, and those of the user only.
pub(super) fn recorded(mut template: PodTemplateSpec) -> PodTemplate {
    template.metadata = template.metadata.map(|metadata| {
        let (labels, annotations) = (metadata.labels, metadata.annotations);
        ObjectMeta {
            labels: labels.map(users_labels),
            annotations: annotations.map(users_annotations),
            ..ObjectMeta::default()
        }
    });
    if let Some(pod) = &mut template.spec {
        let init_containers = pod.init_containers.iter_mut().flatten();
        pod.containers.iter_mut().chain(init_containers).for_each(keep_last_of_equal_variables);
    }
    PodTemplate::from(&template)
}

/// Of variables with the same name only the last one counts; a CRD may refuse the others.
fn keep_last_of_equal_variables(container: &mut Container) {
    let Some(variables) = &mut container.env else { return };
    let mut seen = HashSet::new();
    let mut is_last: Vec<bool> =
        variables.iter().rev().map(|variable| seen.insert(variable.name.clone())).collect();
    variables.retain(|_| is_last.pop().unwrap_or(true));
}

/// Whether two pods ask for the same and run the same. Quantities compare by value, since they may have
/// been written by different hands.
pub(super) fn same_pods(a: &PodSpec, b: &PodSpec) -> bool {
    let all = |pod: &PodSpec| -> (Vec<Container>, Vec<Container>) {
        let comparable = |containers: &[Container]| containers.iter().map(comparable).collect();
        (comparable(&pod.containers), comparable(pod.init_containers.as_deref().unwrap_or_default()))
    };
    all(a) == all(b)
}

/// A container such that equal ones are equal to the letter.
fn comparable(container: &Container) -> Container {
    let mut container = container.clone();
    keep_last_of_equal_variables(&mut container);
    container.env = container.env.filter(|env| !env.is_empty());
    if let Some(resources) = &mut container.resources {
        let amounts = [&mut resources.requests, &mut resources.limits];
        for amount in amounts.into_iter().flatten().flat_map(BTreeMap::values_mut) {
            normalize(amount);
        }
    }
    container
}

fn normalize(quantity: &mut Quantity) {
    if let Ok(amount) = Amount::parse(&quantity.0) {
        // Only compared, never written: any text that is the same for equal amounts will do.
        quantity.0 = format!("{amount:?}");
    }
}

/// Whether a Workload's template still says of labels, annotations and nodes what the Job's says.
pub(super) fn same_directives(job: &PodTemplateSpec, workload: &PodTemplateSpec) -> bool {
    let affinity = |template: &PodTemplateSpec| template.spec.as_ref().and_then(|pod| pod.affinity.clone());
    let annotations =
        |template: &PodTemplateSpec| users_annotations(annotations(template).cloned().unwrap_or_default());
    Directives::of(job) == Directives::of(workload)
        && affinity(job) == affinity(workload)
        && annotations(job) == annotations(workload)
}
