//! Labels and annotations inside specs; an object's own metadata is checked for every kind alike elsewhere.

use serde_json::Value;

use super::fields::Errors;
use super::names::{LABEL_VALUE_RULE, QUALIFIED_NAME_RULE};
use crate::names::{is_label_value, is_qualified_name};

const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Validates a map of labels that stands at `path`.
pub(super) fn validate_labels(labels: &Value, path: &str, errors: &mut Errors) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        if !is_qualified_name(key) {
            errors.invalid(format!("{path}[{key}]"), QUALIFIED_NAME_RULE);
        }
        if !value.as_str().is_some_and(is_label_value) {
            errors.invalid(format!("{path}[{key}]"), LABEL_VALUE_RULE);
        }
    }
}

/// Validates a map of annotations that stands at `path`.
pub(super) fn validate_annotations(annotations: &Value, path: &str, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        // Keys of annotations may be written in capitals.
        if !is_qualified_name(&key.to_ascii_lowercase()) {
            errors.invalid(format!("{path}[{key}]"), QUALIFIED_NAME_RULE);
        }
        match value.as_str() {
            Some(text) => size += key.len() + text.len(),
            None => errors.invalid(format!("{path}[{key}]"), "must be a string"),
        }
    }
    if size > MAX_ANNOTATION_BYTES {
        errors.invalid(path, format!("must have at most {MAX_ANNOTATION_BYTES} bytes in all"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Validate = fn(&Value, &str, &mut Errors);

    fn problems(validate: Validate, map: Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate(&map, "m", &mut errors);
        errors.into_result().err().unwrap_or_default().into_iter().map(|error| error.path).collect()
    }

    #[test]
    fn keys_and_values_are_checked() {
        assert!(problems(validate_labels, json!({"example.com/a": "b", "c": ""})).is_empty());
        assert_eq!(problems(validate_labels, json!({"a b": "c"})), ["m[a b]"]);
        assert_eq!(problems(validate_labels, json!({"a": 1})), ["m[a]"]);
        assert!(problems(validate_annotations, json!({"Example.com/A": "any text"})).is_empty());
        assert_eq!(problems(validate_annotations, json!({"a": 1})), ["m[a]"]);
        let large = "x".repeat(MAX_ANNOTATION_BYTES);
        assert_eq!(problems(validate_annotations, json!({"a": large})), ["m"]);
    }
}
