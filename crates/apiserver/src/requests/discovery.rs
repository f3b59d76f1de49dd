//! What the server says about itself: version, health, and which kinds it serves.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Value, json};

use super::{Answer, value_response};
use crate::builtins::TemplateRule;
use crate::error::ApiError;
use crate::registry::{Resource, Version};
use crate::route::Route;
use crate::service::{Inner, full_body};

/// The Kubernetes version whose API this is.
const MINOR_VERSION: &str = "37";
/// The same with the rules that held before 1.36.
const OLDER_MINOR_VERSION: &str = "35";

pub(super) fn answer(server: &Inner, method: &Method, route: Route<'_>) -> Answer {
    if method != Method::GET && method != Method::HEAD {
        return Err(ApiError::method_not_allowed());
    }
    let document = match route {
        Route::Version => version(server),
        Route::Health => return Ok(health()),
        Route::CoreVersions => {
            json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
        }
        Route::Groups => {
            let groups = groups(server).into_values().collect::<Vec<_>>();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        Route::Group(name) => {
            let mut group = groups(server).remove(name).ok_or_else(ApiError::no_such_path)?;
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        Route::Resources { group, version } => resources(server, group, version)?,
        Route::Resource(_) => return Err(ApiError::no_such_path()),
    };
    Ok(value_response(StatusCode::OK, &document))
}

fn health() -> Response<crate::ResponseBody> {
    let mut response = Response::new(full_body(Bytes::from_static(b"ok")));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

fn version(server: &Inner) -> Value {
    let minor = match server.template_rule {
        TemplateRule::WhenResting => MINOR_VERSION,
        TemplateRule::WithoutStartTime => OLDER_MINOR_VERSION,
    };
    json!({
        "major": "1", "minor": minor, "gitVersion": format!("v1.{minor}.0+gangway"),
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// Groups other than core, by name.
fn groups(server: &Inner) -> BTreeMap<String, Value> {
    let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for resource in server.registry.all().iter().filter(|resource| !resource.group.is_empty()) {
        let versions = names.entry(resource.group.clone()).or_default();
        for version in &resource.versions {
            if !versions.contains(&version.name) {
                versions.push(version.name.clone());
            }
        }
    }
    let entry = |group: &str, version: &str| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    names
        .into_iter()
        .filter_map(|(group, versions)| {
            let preferred = entry(&group, versions.first()?);
            let versions: Vec<Value> = versions.iter().map(|version| entry(&group, version)).collect();
            let document = json!({"name": group, "versions": versions, "preferredVersion": preferred});
            Some((group, document))
        })
        .collect()
}

const OBJECT_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

fn resources(server: &Inner, group: &str, version: &str) -> Result<Value, ApiError> {
    let all: Vec<Arc<Resource>> = server.registry.all();
    let here = all.iter().filter(|resource| resource.group == group);
    let served: Vec<(&Arc<Resource>, &Version)> =
        here.filter_map(|resource| Some((resource, resource.version(version)?))).collect();
    let Some((first, _)) = served.first() else { return Err(ApiError::no_such_path()) };
    let group_version = first.api_version(version);
    let mut entries = Vec::new();
    for (resource, version) in &served {
        let entry = |name: String, kind: &str, verbs: &[&str]| json!({"name": name, "singularName": "", "namespaced": resource.namespaced, "kind": kind, "verbs": verbs});
        let mut object = entry(resource.plural.clone(), &resource.kind, &OBJECT_VERBS);
        object["singularName"] = resource.singular.as_str().into();
        for (key, names) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
            if !names.is_empty() {
                object[key] = names.clone().into();
            }
        }
        entries.push(object);
        if version.has_status {
            entries.push(entry(format!("{}/status", resource.plural), &resource.kind, &STATUS_VERBS));
        }
        for subresource in resource.subresources {
            let (kind, verb) = match subresource {
                crate::registry::Subresource::Binding => ("Binding", "create"),
                crate::registry::Subresource::Log => (resource.kind.as_str(), "get"),
            };
            entries.push(entry(format!("{}/{}", resource.plural, subresource.as_str()), kind, &[verb]));
        }
    }
    Ok(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries,
    }))
}
