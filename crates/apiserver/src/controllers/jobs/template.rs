//! The pods of a Job, made from its template.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};

use super::plan::NewPod;
use super::view::{INDEX_ANNOTATION, INDEX_FAILURES_ANNOTATION, TRACKING_FINALIZER};

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// A pod for `job`.
pub(super) fn pod(job: &Job, new: NewPod) -> Pod {
    let template = job.spec.as_ref().map(|spec| spec.template.clone()).unwrap_or_default();
    let name = job.name_any();
    let mut metadata = template.metadata.unwrap_or_default();
    let mut finalizers = metadata.finalizers.take().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == TRACKING_FINALIZER) {
        finalizers.push(TRACKING_FINALIZER.to_owned());
    }
    let mut metadata = ObjectMeta {
        generate_name: Some(format!("{name}-")),
        namespace: job.namespace(),
        labels: metadata.labels,
        annotations: metadata.annotations,
        finalizers: Some(finalizers),
        owner_references: Some(vec![owner(job, &name)]),
        ..ObjectMeta::default()
    };
    let mut spec = template.spec.unwrap_or_default();
    if let Some(index) = new.index {
        give_index(&mut metadata, &mut spec, &name, index);
    }
    if let Some(failures) = new.index_failures {
        let annotations = metadata.annotations.get_or_insert_default();
        annotations.insert(INDEX_FAILURES_ANNOTATION.to_owned(), failures.to_string());
    }
    Pod { metadata, spec: Some(spec), status: None }
}

fn owner(job: &Job, name: &str) -> OwnerReference {
    OwnerReference {
        api_version: Job::api_version(&()).into_owned(),
        kind: Job::kind(&()).into_owned(),
        name: name.to_owned(),
        uid: job.uid().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

fn give_index(metadata: &mut ObjectMeta, spec: &mut PodSpec, job_name: &str, index: u32) {
    let text = index.to_string();
    metadata.generate_name = Some(format!("{job_name}-{index}-"));
    metadata.annotations.get_or_insert_default().insert(INDEX_ANNOTATION.to_owned(), text.clone());
    metadata.labels.get_or_insert_default().insert(INDEX_ANNOTATION.to_owned(), text);
    spec.hostname = Some(format!("{job_name}-{index}"));
    for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
        tell_index(container);
    }
}

fn tell_index(container: &mut Container) {
    let variables = container.env.get_or_insert_default();
    if variables.iter().any(|variable| variable.name == INDEX_VARIABLE) {
        return;
    }
    let field_path = format!("metadata.labels['{INDEX_ANNOTATION}']");
    let field = ObjectFieldSelector { api_version: None, field_path };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    variables.push(EnvVar { name: INDEX_VARIABLE.to_owned(), value: None, value_from: Some(source) });
}
