//! Objects of any kind on a cluster.

use std::time::Duration;

use gangway_api::CustomResourceDefinition;
use gangway_api::install::{MANAGED_BY, Object};
use gangway_api::names::FIELD_MANAGER;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::super::api_failure;
use crate::exit::Failure;

/// How long an API server may take to serve a new kind.
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster, and whether nothing may change on it.
pub struct Cluster {
    pub client: Client,
    pub dry_run: bool,
}

/// An object as people call it.
pub fn title(object: &Object) -> String {
    name_of(object.text("kind"), object.namespace(), object.name())
}

pub fn name_of(kind: &str, namespace: Option<&str>, name: &str) -> String {
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// A kind by its group, version and name.
pub fn kind(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

impl Cluster {
    /// Objects of a kind, in a namespace or everywhere.
    pub fn api(&self, resource: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    fn api_of(&self, object: &Object) -> Api<DynamicObject> {
        self.api(&kind(object.text("apiVersion"), object.text("kind")), object.namespace())
    }

    /// The object as it is there.
    pub async fn get(&self, object: &Object) -> Result<Option<DynamicObject>, Failure> {
        match self.api_of(object).get_opt(object.name()).await {
            // Nor is its kind.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            found => found.map_err(|error| api_failure(&format!("look for {}", title(object)), &error)),
        }
    }

    /// Whether it is there and does not carry our mark.
    pub async fn is_of_somebody_else(&self, object: &Object) -> Result<bool, Failure> {
        Ok(self.get(object).await?.is_some_and(|found| !is_ours(&found)))
    }

    /// Makes the object what it should be, and says what became of it.
    pub async fn apply(&self, object: &Object) -> Result<&'static str, Failure> {
        let before = self.get(object).await?;
        let created = before.is_none();
        // What it needs may not be there yet where nothing may be done.
        if created && self.dry_run {
            return Ok("would be created");
        }
        let mut how = PatchParams::apply(FIELD_MANAGER).force();
        how.dry_run = self.dry_run;
        let applied = self.api_of(object).patch(object.name(), &how, &Patch::Apply(&object.value)).await;
        let after = applied.map_err(|error| {
            unknown_kind(object, &error)
                .unwrap_or_else(|| api_failure(&format!("apply {}", title(object)), &error))
        })?;
        let same = before.is_some_and(|before| content(before) == content(after));
        Ok(match (created, same, self.dry_run) {
            (true, ..) => "created",
            (false, true, _) => "unchanged",
            (false, false, false) => "changed",
            (false, false, true) => "would be changed",
        })
    }

    /// Returns when objects of a new kind can be stored.
    pub async fn await_established(&self, name: &str) -> Result<(), Failure> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let established = await_condition(api, name, conditions::is_crd_established());
        match tokio::time::timeout(PATIENCE, established).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Failure::bad_input(format!(
                "cannot see whether CustomResourceDefinition {name} is established: {}",
                crate::connect::causes(&error)
            ))),
            Err(_) => Err(Failure::bad_input(format!(
                "CustomResourceDefinition {name} was not established within {} s",
                PATIENCE.as_secs()
            ))
            .try_this(format!("kubectl describe crd {name}    says why; then the same command again"))),
        }
    }

    /// Objects of a kind that carry our mark, everywhere; none if the kind is not there.
    pub async fn ours(&self, resource: &ApiResource) -> Result<Vec<DynamicObject>, Failure> {
        let marked = ListParams::default().labels(&format!("{}={}", MANAGED_BY.0, MANAGED_BY.1));
        self.list(resource, &marked).await
    }

    /// Objects of a kind, everywhere; none if the kind is not there.
    pub async fn list(
        &self,
        resource: &ApiResource,
        which: &ListParams,
    ) -> Result<Vec<DynamicObject>, Failure> {
        match self.api(resource, None).list(which).await {
            Ok(list) => Ok(list.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(api_failure(&format!("list {}", resource.plural), &error)),
        }
    }

    /// Takes an object away, and says what became of it.
    pub async fn delete(&self, resource: &ApiResource, object: &DynamicObject) -> Result<String, Failure> {
        let (name, namespace) = (object.name_any(), object.namespace());
        let title = name_of(&resource.kind, namespace.as_deref(), &name);
        if self.dry_run {
            return Ok(format!("{title}: would be deleted"));
        }
        let api = self.api(resource, namespace.as_deref());
        match api.delete(&name, &DeleteParams::background()).await {
            Ok(_) => Ok(format!("{title}: deleted")),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(format!("{title}: was gone")),
            Err(error) => Err(api_failure(&format!("delete {title}"), &error)),
        }
    }

    /// Changes an object by a merge patch.
    pub async fn merge(
        &self,
        resource: &ApiResource,
        object: &DynamicObject,
        patch: &Value,
    ) -> Result<(), Failure> {
        if self.dry_run {
            return Ok(());
        }
        let api = self.api(resource, object.namespace().as_deref());
        let done = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        let title = name_of(&resource.kind, object.namespace().as_deref(), &object.name_any());
        done.map(drop).map_err(|error| api_failure(&format!("change {title}"), &error))
    }
}

/// What to say where a cluster does not have the kind of an object.
fn unknown_kind(object: &Object, error: &kube::Error) -> Option<Failure> {
    let kube::Error::Api(status) = error else { return None };
    let names_nothing = status.details.as_ref().is_none_or(|details| details.name.is_empty());
    if status.code != 404 || !names_nothing {
        return None;
    }
    let api_version = object.text("apiVersion");
    let message = format!("{}: this cluster does not have the kind, of {api_version}", title(object));
    let advice = match api_version.split('/').next().unwrap_or_default() {
        "monitoring.coreos.com" => "install the Prometheus operator, or leave --service-monitor out",
        "admissionregistration.k8s.io" => {
            "serve it again: Kubernetes 1.36 and later do, unless the API server's --runtime-config or --feature-gates say otherwise"
        }
        _ => "ask who switched it off in the API server",
    };
    Some(Failure::bad_input(message).try_this(advice))
}

/// Whether an object carries our mark.
pub fn is_ours(object: &DynamicObject) -> bool {
    object.labels().get(MANAGED_BY.0).is_some_and(|value| value == MANAGED_BY.1)
}

/// What an object says, without who wrote it when, and how it fares.
fn content(object: DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    for field in ["managedFields", "resourceVersion", "generation"] {
        if let Some(metadata) = value["metadata"].as_object_mut() {
            metadata.remove(field);
        }
    }
    value["status"] = json!(null);
    value
}
