//! Which names, labels and annotations the API accepts.

use serde_json::Value;

use crate::builtins::{FieldError, FieldErrorKind};

const MAX_SUBDOMAIN: usize = 253;
const MAX_LABEL: usize = 63;
/// All annotations of an object together.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// A lowercase RFC 1123 label: what a namespace may be called.
pub(crate) fn is_dns_label(name: &str) -> bool {
    let bytes = name.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let edge =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    name.len() <= MAX_LABEL && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

/// A lowercase RFC 1123 subdomain: what most objects may be called.
pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_SUBDOMAIN && name.split('.').all(is_subdomain_part)
}

/// Parts of a subdomain have no length limit of their own.
fn is_subdomain_part(part: &str) -> bool {
    let bytes = part.as_bytes();
    let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.first().is_some_and(plain)
        && bytes.last().is_some_and(plain)
        && bytes.iter().all(|byte| plain(byte) || *byte == b'-')
}

/// The name part of a label key, and a label value that is not empty.
fn is_qualified_part(part: &str) -> bool {
    let bytes = part.as_bytes();
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    part.len() <= MAX_LABEL
        && edge(bytes.first())
        && edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// `[prefix/]name`, as label keys, annotation keys and finalizers are.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_qualified_part(name),
        None => is_qualified_part(key),
    }
}

pub(crate) fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_qualified_part(value)
}

fn invalid(path: &str, value: &str, message: &str) -> FieldError {
    FieldError { path: path.into(), kind: FieldErrorKind::Invalid, message: format!("{value:?}: {message}") }
}

/// What is wrong with the metadata of an object.
pub(crate) fn validate_metadata(object: &Value, name_is_label: bool) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let mut errors = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if name.is_empty() {
        let message = "name or generateName is required".to_owned();
        errors.push(FieldError { path: "metadata.name".into(), kind: FieldErrorKind::Required, message });
    } else if name_is_label && !is_dns_label(name) {
        let rule = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                    start and end with an alphanumeric character, and have at most 63 characters";
        errors.push(invalid("metadata.name", name, rule));
    } else if !is_dns_subdomain(name) {
        let rule = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
                    '.', start and end with an alphanumeric character, and have at most 253 characters";
        errors.push(invalid("metadata.name", name, rule));
    }
    validate_labels(metadata, &mut errors);
    validate_annotations(metadata, &mut errors);
    validate_finalizers(metadata, &mut errors);
    validate_owners(metadata, &mut errors);
    errors
}

fn validate_labels(metadata: &Value, errors: &mut Vec<FieldError>) {
    let Some(labels) = metadata["labels"].as_object() else { return };
    for (key, value) in labels {
        if !is_qualified_name(key) {
            errors.push(invalid("metadata.labels", key, "a label key must be a qualified name of at most 63 characters, with an optional DNS subdomain prefix and '/'"));
        }
        let value = value.as_str().unwrap_or_default();
        if !is_label_value(value) {
            errors.push(invalid("metadata.labels", value, "a valid label must be an empty string or at most 63 alphanumeric characters, '-', '_' or '.', starting and ending with an alphanumeric character"));
        }
    }
}

fn validate_annotations(metadata: &Value, errors: &mut Vec<FieldError>) {
    let Some(annotations) = metadata["annotations"].as_object() else { return };
    let mut bytes = 0;
    for (key, value) in annotations {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified_name(&key.to_ascii_lowercase()) {
            errors.push(invalid("metadata.annotations", key, "an annotation key must be a qualified name of at most 63 characters, with an optional DNS subdomain prefix and '/'"));
        }
    }
    if bytes > MAX_ANNOTATION_BYTES {
        let message = format!("Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes");
        errors.push(FieldError {
            path: "metadata.annotations".into(),
            kind: FieldErrorKind::Invalid,
            message,
        });
    }
}

fn validate_finalizers(metadata: &Value, errors: &mut Vec<FieldError>) {
    for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
        let name = finalizer.as_str().unwrap_or_default();
        if !is_qualified_name(name) {
            errors.push(invalid("metadata.finalizers", name, "must be a qualified name"));
        }
    }
}

fn validate_owners(metadata: &Value, errors: &mut Vec<FieldError>) {
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let mut controllers = 0;
    for (index, owner) in owners.enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                let message = "must not be empty".to_owned();
                errors.push(FieldError { path, kind: FieldErrorKind::Required, message });
            }
        }
        controllers += usize::from(owner["controller"] == Value::Bool(true));
    }
    if controllers > 1 {
        let message = "Only one reference can have Controller set to true".to_owned();
        errors.push(FieldError {
            path: "metadata.ownerReferences".into(),
            kind: FieldErrorKind::Invalid,
            message,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_rfc_1123() {
        for good in ["a", "a-b", "x.y.z", "0"] {
            assert!(is_dns_subdomain(good), "{good}");
        }
        for bad in ["", "A", "-a", "a-", "a..b", "a_b", "ä"] {
            assert!(!is_dns_subdomain(bad), "{bad}");
        }
        assert!(!is_dns_label("a.b") && !is_dns_label(&"a".repeat(64)) && is_dns_label(&"a".repeat(63)));
    }

    #[test]
    fn label_keys_and_values() {
        assert!(is_qualified_name("kueue.x-k8s.io/queue-name") && is_qualified_name("App_1"));
        assert!(!is_qualified_name("/x") && !is_qualified_name("a/b/c") && !is_qualified_name("-x"));
        assert!(is_label_value("") && is_label_value("v1.2") && !is_label_value("a b"));
    }
}
