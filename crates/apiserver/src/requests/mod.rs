//! What each request does.

mod binding;
mod containers;
mod create;
mod definitions;
mod delete;
mod discovery;
mod intercept;
mod list;
mod logs;
mod patch;
mod priority;
mod update;
mod watch;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::Value;

use crate::error::ApiError;
use crate::query::Query;
use crate::registry::{Resource, Subresource, Version};
use crate::route::{self, ResourcePath, Route};
use crate::service::{Inner, ResponseBody, full_body};
use crate::store::{Key, Stored};

pub(crate) use containers::create_initial_namespaces;
pub(crate) use write::parse_stored;

type Answer = Result<Response<ResponseBody>, ApiError>;

/// Which face of an object a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Face {
    Object,
    Status,
    Binding,
    Log,
}

/// A resource path that was found in the registry.
struct Target<'a> {
    resource: Arc<Resource>,
    version_index: usize,
    /// `None`: all namespaces, or a cluster-scoped kind.
    namespace: Option<&'a str>,
    name: Option<&'a str>,
    face: Face,
}

impl Target<'_> {
    fn version(&self) -> &Version {
        &self.resource.versions[self.version_index]
    }

    /// The key of the named object.
    fn key(&self) -> Result<Key, ApiError> {
        let name = self.name.ok_or_else(ApiError::method_not_allowed)?;
        if self.resource.namespaced && self.namespace.is_none() {
            return Err(ApiError::no_such_path());
        }
        Ok(Key::new(self.namespace.unwrap_or_default(), name))
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.resource, self.name.unwrap_or_default())
    }

    fn counted_as(&self) -> String {
        let plural = self.resource.qualified_plural();
        match self.face {
            Face::Object => plural,
            Face::Status => format!("{plural}/status"),
            Face::Binding => format!("{plural}/binding"),
            Face::Log => format!("{plural}/log"),
        }
    }
}

/// Answers one request.
pub(crate) async fn answer(server: &Arc<Inner>, parts: &Parts, body: Bytes) -> Answer {
    let route = route::parse(parts.uri.path()).ok_or_else(ApiError::no_such_path)?;
    let Route::Resource(path) = route else {
        return discovery::answer(server, &parts.method, route);
    };
    let target = find(server, path)?;
    let query = Query::parse(parts.uri.query());
    let verb = verb(&parts.method, &target, &query);
    let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    server.counts.add(agent.unwrap_or_default(), verb, target.counted_as());
    match (verb, target.face) {
        ("get", Face::Object | Face::Status) => get(server, &target),
        ("get", Face::Log) => logs::answer(server, &target, &query).await,
        ("list", Face::Object) => list::answer(server, &target, &query),
        ("watch", Face::Object) => watch::answer(server, &target, &query),
        ("create", Face::Object) => create::answer(server, &target, &query, parts, body).await,
        ("create", Face::Binding) => binding::answer(server, &target, &query, parts, body).await,
        ("update", Face::Object | Face::Status) => update::answer(server, &target, &query, parts, body).await,
        ("patch", Face::Object | Face::Status) => patch::answer(server, &target, &query, parts, body).await,
        ("delete", Face::Object) => delete::answer_one(server, &target, &query, body).await,
        ("deletecollection", Face::Object) => delete::answer_many(server, &target, &query, body).await,
        _ => Err(ApiError::method_not_allowed()),
    }
}

fn find<'a>(server: &Inner, path: ResourcePath<'a>) -> Result<Target<'a>, ApiError> {
    let resource = server.registry.find(path.group, path.plural).ok_or_else(ApiError::no_such_path)?;
    let version_index = resource.versions.iter().position(|version| version.name == path.version);
    let version_index = version_index.ok_or_else(ApiError::no_such_path)?;
    if path.namespace.is_some() && !resource.namespaced {
        return Err(ApiError::no_such_path());
    }
    let face = match path.subresource {
        None => Face::Object,
        Some("status") if resource.versions[version_index].has_status => Face::Status,
        Some("binding") if resource.subresources.contains(&Subresource::Binding) => Face::Binding,
        Some("log") if resource.subresources.contains(&Subresource::Log) => Face::Log,
        Some(_) => return Err(ApiError::no_such_path()),
    };
    Ok(Target { resource, version_index, namespace: path.namespace, name: path.name, face })
}

fn verb(method: &Method, target: &Target<'_>, query: &Query<'_>) -> &'static str {
    match (method.as_str(), target.name.is_some()) {
        ("GET", true) => "get",
        ("GET", false) if query.flag("watch") => "watch",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "",
    }
}

fn get(server: &Inner, target: &Target<'_>) -> Answer {
    let stored = server.store.get(target.resource.table, &target.key()?).ok_or_else(|| target.not_found())?;
    Ok(object_response(StatusCode::OK, target.version(), &stored, &[]))
}

fn json_response(status: StatusCode, body: Bytes) -> Response<ResponseBody> {
    let mut response = Response::new(full_body(body));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

fn value_response(status: StatusCode, value: &Value) -> Response<ResponseBody> {
    json_response(status, Bytes::from(value.to_string()))
}

fn object_response(
    status: StatusCode,
    version: &Version,
    stored: &Stored,
    warnings: &[String],
) -> Response<ResponseBody> {
    let mut response = json_response(status, stored.render(&version.prefix));
    add_warnings(&mut response, warnings);
    response
}

fn add_warnings(response: &mut Response<ResponseBody>, warnings: &[String]) {
    for warning in warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}
