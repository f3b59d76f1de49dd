//! POST: a new object.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Map, Value};

use super::write::{
    body_of, check_type, decode_object, format_time, metadata_mut, prepare_new, settle_identity,
    settle_unknown_fields,
};
use super::{Answer, Target, definitions, intercept, object_response, priority};
use crate::error::ApiError;
use crate::intercept::StoreView;
use crate::query::Query;
use crate::service::Inner;
use crate::store::{Body, CommitError, Expect, Key, Requires, Stored, Write};

/// How often another suffix is tried for `generateName` when the name is taken.
const GENERATE_ATTEMPTS: usize = 8;
/// Leaves room for the suffix in a name of at most 63 characters.
const MAX_GENERATED_PREFIX: usize = 58;

pub(super) async fn answer(
    server: &Arc<Inner>,
    target: &Target<'_>,
    query: &Query<'_>,
    parts: &Parts,
    body: Bytes,
) -> Answer {
    if target.name.is_some() || (target.resource.namespaced && target.namespace.is_none()) {
        return Err(ApiError::method_not_allowed());
    }
    let (dry_run, validation) = (query.dry_run()?, query.field_validation()?);
    let mut object = decode_object(parts, &body)?;
    check_type(target, &object)?;
    settle_identity(target, &mut object)?;
    settle_new_metadata(server, target, &mut object)?;
    let warnings = settle_unknown_fields(target.version(), &mut object, validation)?;
    drop_status(target, &mut object);
    intercept::creation(server, target, &mut object)?;
    settle_priority(server, target, &mut object)?;
    prepare_new(&target.resource, target.version(), &mut object)?;
    let definition = definitions::prepare_new(server, &target.resource, &mut object)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let body = body_of(&target.resource, &object)?;
    let stored = if dry_run {
        Arc::new(Stored { version: server.store.version(), header: body.header, tail: body.tail })
    } else {
        commit(server, target, &name, body).await?
    };
    match definition {
        Some(definition) if !dry_run => server.registry.put(Arc::new(definition)),
        Some(definition) => server.store.drop_table(definition.table),
        None => {}
    }
    Ok(object_response(StatusCode::CREATED, target.version(), &stored, &warnings))
}

/// What the server decides about a new object's metadata.
fn settle_new_metadata(server: &Inner, target: &Target<'_>, object: &mut Value) -> Result<(), ApiError> {
    let metadata = metadata_mut(object)?;
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    if !text("resourceVersion").is_empty() {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    if text("name").is_empty() && !text("generateName").is_empty() {
        let name = generate_name(server, target, text("generateName"));
        metadata.insert("name".into(), name.into());
    }
    for key in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        metadata.remove(key);
    }
    metadata.insert("uid".into(), server.ids.uid(server.clock.now()).into());
    metadata.insert("creationTimestamp".into(), format_time(server.clock.now()).into());
    if target.resource.tracks_generation {
        metadata.insert("generation".into(), 1.into());
    }
    Ok(())
}

/// A name with this prefix that is free right now.
fn generate_name(server: &Inner, target: &Target<'_>, prefix: &str) -> String {
    let prefix: String = prefix.chars().take(MAX_GENERATED_PREFIX).collect();
    let namespace = target.namespace.unwrap_or_default();
    let mut name = format!("{prefix}{}", server.ids.suffix());
    for _ in 1..GENERATE_ATTEMPTS {
        if server.store.get(target.resource.table, &Key::new(namespace, &name)).is_none() {
            break;
        }
        name = format!("{prefix}{}", server.ids.suffix());
    }
    name
}

/// Where status is a subresource, a new object has none; but nodes register with theirs.
fn drop_status(target: &Target<'_>, object: &mut Value) {
    if target.version().has_status
        && !target.resource.is("", "nodes")
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
}

fn settle_priority(server: &Inner, target: &Target<'_>, object: &mut Value) -> Result<(), ApiError> {
    if !target.resource.is("", "pods") {
        return Ok(());
    }
    let view = StoreView { store: &server.store, registry: &server.registry };
    priority::settle(&view, object).map_err(|why| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        ApiError::forbidden(&target.resource, name, &why)
    })
}

async fn commit(
    server: &Inner,
    target: &Target<'_>,
    name: &str,
    body: Body,
) -> Result<Arc<Stored>, ApiError> {
    let resource = &target.resource;
    let namespace = target.namespace.unwrap_or_default();
    let requires = resource
        .namespaced
        .then(|| Requires { table: server.registry.namespaces, key: Key::new("", namespace) });
    let key = Key::new(namespace, name);
    let committed =
        server.store.commit(resource.table, key, Expect::Absent, Write::Put(body), requires).await;
    committed.map_err(|error| match error {
        CommitError::Exists => ApiError::already_exists(resource, name),
        CommitError::RequiredMissing => namespace_not_found(server, namespace),
        CommitError::RequiredTerminating => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            ApiError::forbidden(resource, name, &why)
        }
        CommitError::NoTable => ApiError::no_such_path(),
        CommitError::Gone | CommitError::Changed => ApiError::internal(error.to_string()),
    })
}

fn namespace_not_found(server: &Inner, namespace: &str) -> ApiError {
    match server.registry.find("", "namespaces") {
        Some(namespaces) => ApiError::not_found(&namespaces, namespace),
        None => ApiError::no_such_path(),
    }
}

/// The metadata of an object that the server itself makes.
pub(super) fn own_metadata(server: &Inner, name: &str) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("name".into(), name.into());
    metadata.insert("uid".into(), server.ids.uid(server.clock.now()).into());
    metadata.insert("creationTimestamp".into(), format_time(server.clock.now()).into());
    metadata
}
