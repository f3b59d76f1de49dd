//! Puts the planned objects into the API.

use kube::api::{DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt};

use gangway_api::names::QUEUE_NAME_LABEL;

use super::picture::JobKey;
use super::plan::{Plan, Planned};
use crate::connect::causes;
use crate::exit::Failure;

/// A Job that was applied.
pub struct AppliedJob {
    pub key: JobKey,
    pub queue: String,
}

/// Applies everything. The first refusal ends it, and with it the run: no node is there yet, so nothing has started.
pub async fn apply(client: &Client, plan: &Plan) -> Result<Vec<AppliedJob>, Failure> {
    let mut jobs = Vec::new();
    for planned in &plan.objects {
        let created = create(client, planned).await.map_err(|error| {
            let message = match &error {
                kube::Error::Api(status) => status.message.clone(),
                other => causes(other),
            };
            Failure::bad_input(format!("nothing was started\n{}: {}: {message}", planned.at, planned.title()))
        })?;
        if planned.object["kind"] == "Job" {
            let queue = created.labels().get(QUEUE_NAME_LABEL).cloned().unwrap_or_default();
            let key = JobKey { namespace: created.namespace().unwrap_or_default(), name: created.name_any() };
            jobs.push(AppliedJob { key, queue });
        }
    }
    Ok(jobs)
}

async fn create(client: &Client, planned: &Planned) -> Result<DynamicObject, kube::Error> {
    let object: DynamicObject =
        serde_json::from_value(planned.object.clone()).map_err(kube::Error::SerdeError)?;
    let resource = &planned.place.resource;
    let api: Api<DynamicObject> = match planned.object["metadata"]["namespace"].as_str() {
        Some(namespace) if planned.place.namespaced => {
            Api::namespaced_with(client.clone(), namespace, resource)
        }
        _ => Api::all_with(client.clone(), resource),
    };
    match api.create(&PostParams::default(), &object).await {
        // `default` and `kube-system` are there from the beginning; a file may describe them again.
        Err(kube::Error::Api(status)) if status.code == 409 && planned.object["kind"] == "Namespace" => {
            let name = object.name_any();
            let patch = kube::api::Patch::Merge(&planned.object);
            api.patch(&name, &kube::api::PatchParams::default(), &patch).await
        }
        other => other,
    }
}
