//! Refusals, in the words and codes of the Kubernetes API.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use crate::builtins::{FieldError, FieldErrorKind};
use crate::registry::Resource;
use crate::service::{ResponseBody, full_body};

/// A request that was refused; becomes a `Status` object.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    code: StatusCode,
    reason: &'static str,
    message: String,
    details: Option<Value>,
}

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = Some(json!({"name": name, "group": resource.group, "kind": resource.plural}));
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", resource.qualified_plural());
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified_plural());
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified_plural());
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified_plural());
        Self::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    pub(crate) fn invalid(resource: &Resource, name: &str, errors: Vec<FieldError>) -> Self {
        let causes: Vec<Value> = errors.iter().map(cause).collect();
        let mut lines: Vec<String> = errors.iter().map(line).collect();
        lines.dedup();
        let all = if lines.len() == 1 { lines.remove(0) } else { format!("[{}]", lines.join(", ")) };
        let message = format!("{} \"{name}\" is invalid: {all}", resource.qualified_kind());
        let mut error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        error.details =
            Some(json!({"name": name, "group": resource.group, "kind": resource.kind, "causes": causes}));
        error
    }

    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
    }

    pub(crate) fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn too_large() -> Self {
        let message = "the request body is larger than the limit";
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    /// The `Status` object that tells the client.
    pub(crate) fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code.as_u16(),
        });
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status
    }

    pub(crate) fn into_response(self) -> Response<ResponseBody> {
        let mut response = Response::new(full_body(Bytes::from(self.to_status().to_string())));
        *response.status_mut() = self.code;
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}

/// What `kind` is called in a message, and as the machine-readable reason of a cause.
fn words(kind: FieldErrorKind) -> (&'static str, &'static str) {
    match kind {
        FieldErrorKind::Invalid => ("Invalid value", "FieldValueInvalid"),
        FieldErrorKind::Required => ("Required value", "FieldValueRequired"),
        FieldErrorKind::Forbidden => ("Forbidden", "FieldValueForbidden"),
        FieldErrorKind::NotSupported => ("Unsupported value", "FieldValueNotSupported"),
        FieldErrorKind::Duplicate => ("Duplicate value", "FieldValueDuplicate"),
    }
}

/// The message with its leading words, which some callers have already put there.
fn full_message(error: &FieldError) -> String {
    let (text, _) = words(error.kind);
    if error.message.starts_with(text) || error.message.starts_with("Too ") {
        error.message.clone()
    } else if error.message.is_empty() {
        text.to_owned()
    } else {
        format!("{text}: {}", error.message)
    }
}

fn line(error: &FieldError) -> String {
    format!("{}: {}", error.path, full_message(error))
}

fn cause(error: &FieldError) -> Value {
    json!({"reason": words(error.kind).1, "message": full_message(error), "field": error.path})
}
