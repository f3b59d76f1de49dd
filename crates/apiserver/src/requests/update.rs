//! PUT, and what PATCH shares with it: a new state for an object that exists.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use serde_json::{Map, Value};

use super::write::{
    body_of, check_type, decode_object, metadata_mut, parse_current, prepare_change, settle_identity,
    settle_unknown_fields,
};
use super::{Answer, Face, Target, containers, definitions, intercept, object_response};
use crate::error::ApiError;
use crate::query::{FieldValidation, Query};
use crate::service::Inner;
use crate::store::{CommitError, Expect, Key, Stored, Write};

/// Options of a change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    pub(super) dry_run: bool,
    pub(super) validation: FieldValidation,
}

impl Options {
    pub(super) fn of(query: &Query<'_>) -> Result<Self, ApiError> {
        Ok(Self { dry_run: query.dry_run()?, validation: query.field_validation()? })
    }
}

pub(super) async fn answer(
    server: &Arc<Inner>,
    target: &Target<'_>,
    query: &Query<'_>,
    parts: &Parts,
    body: Bytes,
) -> Answer {
    let options = Options::of(query)?;
    let object = decode_object(parts, &body)?;
    check_type(target, &object)?;
    change(server, target, options, &|_| Ok(object.clone())).await
}

/// Replaces the object by what `desired` makes of its current state, until no other write comes in
/// between. A `resourceVersion` in the desired state must be the current one.
pub(super) async fn change(
    server: &Arc<Inner>,
    target: &Target<'_>,
    options: Options,
    desired: &(dyn Fn(&Value) -> Result<Value, ApiError> + Sync),
) -> Answer {
    let key = target.key()?;
    loop {
        let current = server.store.get(target.resource.table, &key).ok_or_else(|| target.not_found())?;
        let old = parse_current(&current, target.version())?;
        let new = desired(&old)?;
        match attempt(server, target, &key, &current, &old, new, options).await? {
            Attempt::Done(stored, warnings) => {
                return Ok(object_response(StatusCode::OK, target.version(), &stored, &warnings));
            }
            Attempt::Overtaken => {}
        }
    }
}

enum Attempt {
    Done(Arc<Stored>, Vec<String>),
    /// Another write came first.
    Overtaken,
}

async fn attempt(
    server: &Arc<Inner>,
    target: &Target<'_>,
    key: &Key,
    current: &Arc<Stored>,
    old: &Value,
    mut new: Value,
    options: Options,
) -> Result<Attempt, ApiError> {
    check_preconditions(target, key, current, &new)?;
    settle_identity(target, &mut new)?;
    let warnings = settle_unknown_fields(target.version(), &mut new, options.validation)?;
    keep_what_is_not_theirs(target, old, &mut new)?;
    prepare_change(target, server.template_rule, old, &mut new)?;
    if target.face == Face::Object {
        intercept::change(server, target, old, &new)?;
    }
    let definition = definitions::prepare_changed(server, &target.resource, old, &mut new)?;
    if new == *old {
        return Ok(Attempt::Done(current.clone(), warnings));
    }
    count_generation(target, old, &mut new)?;
    let body = body_of(&target.resource, &new)?;
    let gone = is_finally_deleted(&new);
    if options.dry_run {
        let stored = Stored { version: current.version, header: body.header, tail: body.tail };
        return Ok(Attempt::Done(Arc::new(stored), warnings));
    }
    let expect = Expect::Version(current.version);
    let write = if gone { Write::Delete } else { Write::Put(body) };
    match server.store.commit(target.resource.table, key.clone(), expect, write, None).await {
        Ok(stored) => {
            if let Some(definition) = definition.filter(|_| !gone) {
                definitions::replace(server, definition).await;
            }
            if gone {
                containers::after_removal(server, &target.resource, key).await;
            } else if target.resource.is("", "namespaces") {
                containers::finish_namespace(server, &key.name).await;
            } else if definitions::is_definition(&target.resource) {
                definitions::finish(server, &key.name).await;
            }
            Ok(Attempt::Done(stored, warnings))
        }
        Err(CommitError::Changed) => Ok(Attempt::Overtaken),
        Err(CommitError::Gone | CommitError::NoTable) => Err(target.not_found()),
        Err(error) => Err(ApiError::internal(error.to_string())),
    }
}

/// A version or uid in the desired state that is not the current one.
fn check_preconditions(
    target: &Target<'_>,
    key: &Key,
    current: &Stored,
    new: &Value,
) -> Result<(), ApiError> {
    let given = |field: &str| new["metadata"][field].as_str().filter(|text| !text.is_empty());
    if let Some(uid) = given("uid")
        && uid != current.header.uid
    {
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            current.header.uid
        );
        return Err(ApiError::conflict(&target.resource, &key.name, &why));
    }
    match given("resourceVersion") {
        None | Some("0") => Ok(()),
        Some(version) if version.parse() == Ok(current.version) => Ok(()),
        Some(version) if version.parse::<u64>().is_err() => {
            Err(ApiError::bad_request(format!("invalid resourceVersion: {version:?}")))
        }
        Some(_) => Err(ApiError::modified(&target.resource, &key.name)),
    }
}

const SERVER_METADATA: [&str; 6] = [
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "resourceVersion",
];

/// Restores the parts of the object that this face of it cannot change.
fn keep_what_is_not_theirs(target: &Target<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    let restore = |from: &Value, to: &mut Map<String, Value>, key: &str| match from.get(key) {
        Some(value) => to.insert(key.to_owned(), value.clone()),
        None => to.remove(key),
    };
    if target.face == Face::Status {
        let status = new.get("status").cloned();
        *new = old.clone();
        let fields = new.as_object_mut().ok_or_else(|| ApiError::bad_request("not an object"))?;
        match status {
            Some(status) if !status.is_null() => fields.insert("status".into(), status),
            _ => fields.remove("status"),
        };
        return Ok(());
    }
    if target.version().has_status
        && let Some(fields) = new.as_object_mut()
    {
        restore(old, fields, "status");
    }
    let metadata = metadata_mut(new)?;
    for key in SERVER_METADATA {
        restore(&old["metadata"], metadata, key);
    }
    if metadata.get("generateName").is_none() {
        restore(&old["metadata"], metadata, "generateName");
    }
    Ok(())
}

/// The generation counts changes of what the user wants: all but metadata and status.
fn count_generation(target: &Target<'_>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    if !target.resource.tracks_generation || target.face == Face::Status {
        return Ok(());
    }
    let has_status = target.version().has_status;
    let counts = |key: &str| key != "metadata" && !(key == "status" && has_status);
    if differs(old, new, &counts) || differs(new, old, &counts) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
        metadata_mut(new)?.insert("generation".into(), generation.into());
    }
    Ok(())
}

/// Whether `one` has a field that `counts` and that `other` does not have like this.
fn differs(one: &Value, other: &Value, counts: &dyn Fn(&str) -> bool) -> bool {
    let fields = one.as_object().into_iter().flatten();
    fields.into_iter().any(|(key, value)| counts(key) && other.get(key) != Some(value))
}

/// Whether the last thing that held a deleted object is gone.
fn is_finally_deleted(object: &Value) -> bool {
    let metadata = &object["metadata"];
    metadata.get("deletionTimestamp").is_some()
        && metadata["finalizers"].as_array().is_none_or(Vec::is_empty)
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        // These end when what they hold has ended.
        && !matches!(object["kind"].as_str(), Some("Namespace" | "CustomResourceDefinition"))
}
