//! Steps that every write has in common.

use bytes::Bytes;
use gangway_model::Timestamp;
use http::header;
use http::request::Parts;
use serde_json::{Map, Value};

use super::{Face, Target};
use crate::builtins::{self, FieldError, TemplateRule};
use crate::decode;
use crate::error::ApiError;
use crate::names;
use crate::query::FieldValidation;
use crate::registry::{Resource, Rules, Version};
use crate::store::{Body, Header, Stored};

/// The object as JSON of one version.
pub(crate) fn parse_stored(stored: &Stored, version: &Version) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(&stored.render(&version.prefix))
}

/// The same for requests, where it cannot fail for a client's reason.
pub(super) fn parse_current(stored: &Stored, version: &Version) -> Result<Value, ApiError> {
    parse_stored(stored, version).map_err(|error| ApiError::internal(format!("stored object: {error}")))
}

/// A time as objects store it.
pub(super) fn format_time(time: Timestamp) -> String {
    jiff::Timestamp::from_second(time.as_seconds()).unwrap_or_default().to_string()
}

/// The object in a request body.
pub(super) fn decode_object(parts: &Parts, body: &Bytes) -> Result<Value, ApiError> {
    let media =
        parts.headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if !media.is_empty() && media != "application/json" {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: application/json (got {media})"
        );
        return Err(ApiError::unsupported_media_type(message));
    }
    let object: Value = serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(format!("the object provided is not valid JSON: {error}")))?;
    if object.is_object() {
        Ok(object)
    } else {
        Err(ApiError::bad_request("the object provided is not an object"))
    }
}

/// The object says that it is what the path says it is.
pub(super) fn check_type(target: &Target<'_>, object: &Value) -> Result<(), ApiError> {
    let resource = &target.resource;
    let api_version = resource.api_version(&target.version().name);
    for (key, wanted) in [("apiVersion", api_version.as_str()), ("kind", resource.kind.as_str())] {
        let given = object[key].as_str().unwrap_or_default();
        if given != wanted {
            let message = format!("{key} in the data ({given}) does not match the expected {key} ({wanted})");
            return Err(ApiError::bad_request(message));
        }
    }
    Ok(())
}

/// The metadata of an object, made if absent.
pub(super) fn metadata_mut(object: &mut Value) -> Result<&mut Map<String, Value>, ApiError> {
    let bad = || ApiError::bad_request("metadata must be an object");
    let fields = object.as_object_mut().ok_or_else(bad)?;
    let metadata = fields.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    metadata.as_object_mut().ok_or_else(bad)
}

/// Name and namespace of the path and of the object agree; the object has both afterwards.
pub(super) fn settle_identity(target: &Target<'_>, object: &mut Value) -> Result<(), ApiError> {
    let metadata = metadata_mut(object)?;
    let given = |metadata: &Map<String, Value>, key: &str| {
        metadata.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let (name, namespace) = (given(metadata, "name"), given(metadata, "namespace"));
    if let Some(wanted) = target.name {
        if !name.is_empty() && name != wanted {
            let message =
                format!("the name of the object ({name}) does not match the name on the URL ({wanted})");
            return Err(ApiError::bad_request(message));
        }
        metadata.insert("name".into(), wanted.into());
    }
    let wanted = target.namespace.unwrap_or_default();
    if !namespace.is_empty() && namespace != wanted {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    if !wanted.is_empty() {
        metadata.insert("namespace".into(), wanted.into());
    } else {
        metadata.remove("namespace");
    }
    metadata.remove("managedFields");
    metadata.remove("selfLink");
    Ok(())
}

/// Handles fields that the kind does not have; returns warnings about them.
pub(super) fn settle_unknown_fields(
    version: &Version,
    object: &mut Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let malformed =
        |error: serde_json::Error| ApiError::bad_request(format!("the object cannot be read: {error}"));
    let unknown = match &version.rules {
        Rules::Typed(check) => decode::drop_unknown(*check, object).map_err(malformed)?,
        Rules::Schema(schema) => {
            let mut unknown = decode::drop_unknown_metadata(object).map_err(malformed)?;
            unknown.extend(schema.prune(object));
            unknown
        }
    };
    if unknown.is_empty() {
        return Ok(Vec::new());
    }
    let named: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
    match validation {
        FieldValidation::Strict => {
            Err(ApiError::bad_request(format!("strict decoding error: {}", named.join(", "))))
        }
        FieldValidation::Warn => Ok(named),
        FieldValidation::Ignore => Ok(Vec::new()),
    }
}

/// Defaults and validation of a new object.
pub(super) fn prepare_new(
    resource: &Resource,
    version: &Version,
    object: &mut Value,
) -> Result<(), ApiError> {
    let mut errors = validate_metadata(resource, object);
    match &version.rules {
        Rules::Typed(_) => {
            let prepared = builtins::prepare_create(&resource.group, &resource.plural, object);
            errors.extend(prepared.err().unwrap_or_default());
        }
        Rules::Schema(schema) => {
            schema.apply_defaults(object);
            errors.extend(schema.validate(object, None));
        }
    }
    refuse(resource, object, errors)
}

/// Defaults and validation of a change to the object itself or to its status.
pub(super) fn prepare_change(
    target: &Target<'_>,
    template_rule: TemplateRule,
    old: &Value,
    new: &mut Value,
) -> Result<(), ApiError> {
    let resource = &target.resource;
    let (group, plural) = (&resource.group, &resource.plural);
    let is_status = target.face == Face::Status;
    let mut errors = if is_status { Vec::new() } else { validate_metadata(resource, new) };
    match &target.version().rules {
        Rules::Typed(_) if is_status => {
            let prepared = builtins::prepare_status_update(group, plural, old, new);
            errors.extend(prepared.err().unwrap_or_default());
        }
        Rules::Typed(_) => {
            let prepared = builtins::prepare_update((group, plural), template_rule, old, new);
            errors.extend(prepared.err().unwrap_or_default());
        }
        Rules::Schema(schema) => {
            schema.apply_defaults(new);
            errors.extend(schema.validate(new, Some(old)));
        }
    }
    errors.extend(new_finalizers(old, new));
    refuse(resource, new, errors)
}

fn validate_metadata(resource: &Resource, object: &Value) -> Vec<FieldError> {
    names::validate_metadata(object, resource.is("", "namespaces"))
}

/// An object on its way out takes no new finalizers: they would have missed its deletion.
fn new_finalizers(old: &Value, new: &Value) -> Option<FieldError> {
    old["metadata"].get("deletionTimestamp")?;
    let empty = Vec::new();
    let before = old["metadata"]["finalizers"].as_array().unwrap_or(&empty);
    let after = new["metadata"]["finalizers"].as_array().unwrap_or(&empty);
    let added = after.iter().find(|finalizer| !before.contains(finalizer))?;
    Some(FieldError {
        path: "metadata.finalizers".into(),
        kind: builtins::FieldErrorKind::Forbidden,
        message: format!(
            "no new finalizers can be added if the object is being deleted, found new finalizer {added}"
        ),
    })
}

fn refuse(resource: &Resource, object: &Value, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    Err(ApiError::invalid(resource, name, errors))
}

/// What the store keeps of an object.
pub(super) fn body_of(resource: &Resource, object: &Value) -> Result<Body, ApiError> {
    if let (Some(to_stored), Value::Object(fields)) = (resource.to_stored, object) {
        let mut fields = fields.clone();
        to_stored(&mut fields);
        return stored_body(resource, &Value::Object(fields));
    }
    stored_body(resource, object)
}

fn stored_body(resource: &Resource, object: &Value) -> Result<Body, ApiError> {
    let header = Header::of(object, &resource.selectable);
    let fields = object.as_object().ok_or_else(|| ApiError::bad_request("the object is not an object"))?;
    Body::of(fields, header).map_err(|error| ApiError::internal(format!("cannot write the object: {error}")))
}
