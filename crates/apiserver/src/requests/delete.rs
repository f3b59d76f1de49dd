//! DELETE: of one object, of a collection; with finalizers, grace and propagation.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::write::{body_of, format_time, metadata_mut, parse_current};
use super::{Answer, Target, containers, definitions, object_response, value_response};
use crate::error::ApiError;
use crate::query::Query;
use crate::registry::Resource;
use crate::selectors::Selector;
use crate::service::Inner;
use crate::store::{CommitError, Expect, Key, Stored, Write};

const ORPHAN_FINALIZER: &str = "orphan";
const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// What a pod gets when neither it nor the request says how long it may take.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// What happens to the objects that the deleted one owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Propagation {
    /// The garbage collector deletes them afterwards.
    #[default]
    Background,
    /// They go first.
    Foreground,
    /// They stay.
    Orphan,
}

/// `DeleteOptions`.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    grace_seconds: Option<i64>,
    propagation: Propagation,
    uid: Option<String>,
    version: Option<String>,
    dry_run: bool,
}

impl Options {
    fn read(query: &Query<'_>, body: &Bytes) -> Result<Self, ApiError> {
        let given: Value = if body.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(body)
                .map_err(|error| ApiError::bad_request(format!("DeleteOptions cannot be read: {error}")))?
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let grace_seconds = match query.number("gracePeriodSeconds")? {
            Some(seconds) => Some(seconds),
            None => given["gracePeriodSeconds"].as_i64(),
        };
        if grace_seconds.is_some_and(|seconds| seconds < 0) {
            return Err(ApiError::bad_request("gracePeriodSeconds must not be negative"));
        }
        let policy = query.get("propagationPolicy").or(given["propagationPolicy"].as_str());
        let propagation = match policy {
            None | Some("" | "Background") => Propagation::Background,
            Some("Foreground") => Propagation::Foreground,
            Some("Orphan") => Propagation::Orphan,
            Some(other) => {
                return Err(ApiError::bad_request(format!("invalid propagationPolicy: {other:?}")));
            }
        };
        let dry_run = given["dryRun"].as_array().is_some_and(|runs| !runs.is_empty());
        Ok(Self {
            grace_seconds,
            propagation,
            uid: text(&given["preconditions"]["uid"]),
            version: text(&given["preconditions"]["resourceVersion"]),
            dry_run: dry_run || query.dry_run()?,
        })
    }

    fn check(&self, resource: &Resource, name: &str, current: &Stored) -> Result<(), ApiError> {
        let version = current.version.to_string();
        let wanted = [("UID", &self.uid, &current.header.uid), ("ResourceVersion", &self.version, &version)];
        for (what, wanted, actual) in wanted {
            if let Some(wanted) = wanted
                && wanted != actual
            {
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {actual}"
                );
                return Err(ApiError::conflict(resource, name, &why));
            }
        }
        Ok(())
    }
}

/// How a deletion went.
pub(super) enum Deleted {
    /// The object is gone; this was its last state.
    Gone(Arc<Stored>),
    /// It waits for finalizers or for its grace period.
    Waiting(Arc<Stored>),
}

pub(super) async fn answer_one(
    server: &Arc<Inner>,
    target: &Target<'_>,
    query: &Query<'_>,
    body: Bytes,
) -> Answer {
    let options = Options::read(query, &body)?;
    let (resource, key) = (&target.resource, target.key()?);
    let deleted = delete_with_content(server, resource, &key, &options).await?;
    Ok(match deleted {
        Deleted::Waiting(stored) => object_response(StatusCode::OK, target.version(), &stored, &[]),
        Deleted::Gone(stored) => value_response(StatusCode::OK, &success(resource, &key.name, &stored)),
    })
}

fn success(resource: &Resource, name: &str, stored: &Stored) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": name, "group": resource.group, "kind": resource.plural, "uid": stored.header.uid},
    })
}

pub(super) async fn answer_many(
    server: &Arc<Inner>,
    target: &Target<'_>,
    query: &Query<'_>,
    body: Bytes,
) -> Answer {
    let options = Options::read(query, &body)?;
    let resource = &target.resource;
    let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?;
    let keep = |key: &Key, object: &Stored| selector.matches(key, object);
    let page = server.store.page(resource.table, target.namespace, None, usize::MAX, &keep);
    let mut items = Vec::with_capacity(page.objects.len());
    for (key, object) in page.objects {
        match delete_with_content(server, resource, &key, &options).await {
            Ok(Deleted::Gone(stored) | Deleted::Waiting(stored)) => {
                items.push(parse_current(&stored, target.version())?);
            }
            // Gone before we came to it.
            Err(_) if server.store.get(resource.table, &key).is_none() => {
                items.push(parse_current(&object, target.version())?);
            }
            Err(error) => return Err(error),
        }
    }
    let list = json!({
        "apiVersion": resource.api_version(&target.version().name),
        "kind": resource.list_kind,
        "metadata": {"resourceVersion": server.store.version().to_string()},
        "items": items,
    });
    Ok(value_response(StatusCode::OK, &list))
}

/// Deletes an object and, if it holds others (a namespace, a definition), what it holds.
async fn delete_with_content(
    server: &Arc<Inner>,
    resource: &Arc<Resource>,
    key: &Key,
    options: &Options,
) -> Result<Deleted, ApiError> {
    if resource.is("", "namespaces") && containers::PROTECTED_NAMESPACES.contains(&key.name.as_str()) {
        return Err(ApiError::forbidden(resource, &key.name, "this namespace may not be deleted"));
    }
    let deleted = delete_object(server, resource, key, options).await?;
    if options.dry_run {
        return Ok(deleted);
    }
    if resource.is("", "namespaces") {
        containers::empty_namespace(server, &key.name).await;
    } else if definitions::is_definition(resource) {
        definitions::remove_objects(server, &key.name).await;
    }
    if matches!(deleted, Deleted::Gone(_)) {
        containers::after_removal(server, resource, key).await;
    }
    Ok(deleted)
}

/// Deletes one object, or marks it as on its way out.
pub(super) async fn delete_object(
    server: &Arc<Inner>,
    resource: &Arc<Resource>,
    key: &Key,
    options: &Options,
) -> Result<Deleted, ApiError> {
    let version = resource.versions.first().ok_or_else(ApiError::no_such_path)?;
    let not_found = || ApiError::not_found(resource, &key.name);
    loop {
        let current = server.store.get(resource.table, key).ok_or_else(not_found)?;
        options.check(resource, &key.name, &current)?;
        let old = parse_current(&current, version)?;
        let marked = mark(server, resource, &old, options)?;
        let (write, gone) = match &marked {
            None => (Write::Delete, true),
            Some(marked) if *marked == old => return Ok(Deleted::Waiting(current)),
            Some(marked) => (Write::Put(body_of(resource, marked)?), false),
        };
        if options.dry_run {
            return Ok(if gone { Deleted::Gone(current) } else { Deleted::Waiting(current) });
        }
        let expect = Expect::Version(current.version);
        match server.store.commit(resource.table, key.clone(), expect, write, None).await {
            Ok(stored) if gone => return Ok(Deleted::Gone(stored)),
            Ok(stored) => return Ok(Deleted::Waiting(stored)),
            Err(CommitError::Changed) => {}
            Err(_) => return Err(not_found()),
        }
    }
}

/// The object as it waits for its end; `None` if nothing holds it.
fn mark(
    server: &Inner,
    resource: &Resource,
    old: &Value,
    options: &Options,
) -> Result<Option<Value>, ApiError> {
    let mut new = old.clone();
    let grace = grace_seconds(resource, old, options);
    let holds_content = resource.is("", "namespaces") || definitions::is_definition(resource);
    let metadata = metadata_mut(&mut new)?;
    let mut finalizers = metadata.get("finalizers").and_then(Value::as_array).cloned().unwrap_or_default();
    let policy = match options.propagation {
        Propagation::Background => None,
        Propagation::Foreground => Some(FOREGROUND_FINALIZER),
        Propagation::Orphan => Some(ORPHAN_FINALIZER),
    };
    let others = [FOREGROUND_FINALIZER, ORPHAN_FINALIZER];
    if let Some(policy) = policy {
        finalizers.retain(|name| !others.iter().any(|other| name == other && *other != policy));
        if !finalizers.iter().any(|name| name == policy) {
            finalizers.push(policy.into());
        }
        metadata.insert("finalizers".into(), finalizers.clone().into());
    }
    if finalizers.is_empty() && grace == 0 && !holds_content {
        return Ok(None);
    }
    let pending = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64);
    let begun = metadata.contains_key("deletionTimestamp");
    // A second deletion may shorten the grace period, never prolong it.
    if !begun || pending.is_some_and(|pending| grace < pending) {
        let end = format_time(server.clock.now().plus_seconds(grace));
        metadata.insert("deletionTimestamp".into(), end.into());
        metadata.insert("deletionGracePeriodSeconds".into(), grace.into());
        if !begun && let Some(generation) = metadata.get("generation").and_then(Value::as_i64) {
            metadata.insert("generation".into(), generation.saturating_add(1).into());
        }
    }
    if resource.is("", "namespaces") {
        new["status"] = json!({"phase": "Terminating"});
    }
    Ok(Some(new))
}

/// Seconds that the object still has: none, unless it is a pod that may be running somewhere.
fn grace_seconds(resource: &Resource, object: &Value, options: &Options) -> i64 {
    let bound = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let finished = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !resource.is("", "pods") || !bound || finished {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    options.grace_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS).max(0)
}
