//! PATCH: JSON patch and merge patch.

use std::sync::Arc;

use bytes::Bytes;
use http::header;
use http::request::Parts;
use serde_json::Value;

use super::update::{Options, change};
use super::{Answer, Target};
use crate::builtins::{FieldError, FieldErrorKind};
use crate::error::ApiError;
use crate::query::Query;
use crate::registry::Resource;
use crate::service::Inner;

enum Patch {
    Json(json_patch::Patch),
    Merge(Value),
}

pub(super) async fn answer(
    server: &Arc<Inner>,
    target: &Target<'_>,
    query: &Query<'_>,
    parts: &Parts,
    body: Bytes,
) -> Answer {
    let options = Options::of(query)?;
    let patch = read(parts, &body)?;
    let resource = target.resource.clone();
    let name = target.name.unwrap_or_default().to_owned();
    change(server, target, options, &move |old| apply(&patch, old, &resource, &name)).await
}

fn read(parts: &Parts, body: &Bytes) -> Result<Patch, ApiError> {
    let media =
        parts.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    let bad = |error: serde_json::Error| ApiError::bad_request(format!("the patch cannot be read: {error}"));
    match media.split(';').next().unwrap_or_default().trim() {
        "application/json-patch+json" => Ok(Patch::Json(serde_json::from_slice(body).map_err(bad)?)),
        "application/merge-patch+json" => {
            let patch: Value = serde_json::from_slice(body).map_err(bad)?;
            if patch.is_object() {
                Ok(Patch::Merge(patch))
            } else {
                Err(ApiError::bad_request("a merge patch must be an object"))
            }
        }
        other => Err(ApiError::unsupported_media_type(format!(
            "this server does not support patches of type {other:?}: use application/merge-patch+json or \
             application/json-patch+json"
        ))),
    }
}

fn apply(patch: &Patch, old: &Value, resource: &Resource, name: &str) -> Result<Value, ApiError> {
    let mut new = old.clone();
    match patch {
        Patch::Json(patch) => {
            json_patch::patch(&mut new, patch).map_err(|error| {
                let message = error.to_string();
                let error = FieldError { path: "patch".into(), kind: FieldErrorKind::Invalid, message };
                ApiError::invalid(resource, name, vec![error])
            })?;
        }
        Patch::Merge(patch) => json_patch::merge(&mut new, patch),
    }
    if !new.is_object() {
        return Err(ApiError::bad_request("the patched object is not an object"));
    }
    for key in ["apiVersion", "kind"] {
        if new[key] != old[key] {
            return Err(ApiError::bad_request(format!("a patch cannot change {key}")));
        }
    }
    Ok(new)
}
