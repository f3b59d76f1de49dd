//! Defaults and validation of the built-in kinds, as a real API server applies them.
//!
//! Objects stay JSON: fields this module does not know are kept as they are. An object's own metadata is
//! checked before, for every kind alike.

mod config;
mod fields;
mod job;
mod job_update;
mod metadata;
mod names;
mod pod_defaults;
mod pod_update;
mod pod_validation;
mod quantities;
mod resources;

use serde_json::Value;

use fields::Errors;
pub(crate) use job_update::TemplateRule;

/// What is wrong with a field, in the words of the API's field errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    Invalid,
    Required,
    Forbidden,
    NotSupported,
    Duplicate,
}

/// One thing wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The field, as `spec.template.spec.containers[0].image`.
    pub path: String,
    pub kind: FieldErrorKind,
    pub message: String,
}

/// Fills in defaults of a new object, then validates it.
/// `metadata.uid`, `metadata.name` and `metadata.namespace` are already set.
pub(crate) fn prepare_create(group: &str, plural: &str, object: &mut Value) -> Result<(), Vec<FieldError>> {
    let mut errors = Errors::default();
    match (group, plural) {
        ("batch", "jobs") => job::prepare_create(object, &mut errors),
        ("", "pods") => {
            pod_defaults::apply_to_new_pod(object);
            pod_validation::validate_pod(object, &mut errors);
        }
        _ => config::prepare_create(group, plural, object, &mut errors),
    }
    errors.into_result()
}

/// Fills in defaults of a changed object, then validates it and the change.
pub(crate) fn prepare_update(
    (group, plural): (&str, &str),
    template_rule: TemplateRule,
    old: &Value,
    new: &mut Value,
) -> Result<(), Vec<FieldError>> {
    let mut errors = Errors::default();
    match (group, plural) {
        ("batch", "jobs") => job_update::prepare_update(template_rule, old, new, &mut errors),
        ("", "pods") => pod_update::prepare_update(old, new, &mut errors),
        _ => config::prepare_update(group, plural, old, new, &mut errors),
    }
    errors.into_result()
}

/// Fills in and validates a change made through the `status` subresource.
pub(crate) fn prepare_status_update(
    group: &str,
    plural: &str,
    old: &Value,
    new: &mut Value,
) -> Result<(), Vec<FieldError>> {
    let mut errors = Errors::default();
    match (group, plural) {
        ("batch", "jobs") => job_update::validate_status(old, new, &mut errors),
        ("", "pods") => pod_update::validate_status(new, &mut errors),
        _ => config::prepare_status_update(group, plural, new, &mut errors),
    }
    errors.into_result()
}
