//! Collecting field errors, and walking JSON objects without surprises.

use serde_json::{Map, Value};

use super::{FieldError, FieldErrorKind};

/// The errors found so far.
#[derive(Debug, Default)]
pub(super) struct Errors(Vec<FieldError>);

impl Errors {
    pub(super) fn add(&mut self, kind: FieldErrorKind, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldError { path: path.into(), kind, message: message.into() });
    }

    pub(super) fn invalid(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(FieldErrorKind::Invalid, path, message);
    }

    pub(super) fn required(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(FieldErrorKind::Required, path, message);
    }

    pub(super) fn forbidden(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.add(FieldErrorKind::Forbidden, path, message);
    }

    pub(super) fn duplicate(&mut self, path: impl Into<String>, value: &str) {
        self.add(FieldErrorKind::Duplicate, path, format!("Duplicate value: \"{value}\""));
    }

    /// `value` must be one of `supported`.
    pub(super) fn one_of(&mut self, path: &str, value: &str, supported: &[&str]) {
        if !supported.contains(&value) {
            let known: Vec<String> = supported.iter().map(|known| format!("\"{known}\"")).collect();
            let message = format!("Unsupported value: \"{value}\": supported values: {}", known.join(", "));
            self.add(FieldErrorKind::NotSupported, path, message);
        }
    }

    /// A field that must not change once set.
    pub(super) fn immutable(&mut self, path: impl Into<String>, old: &Value, new: &Value) {
        if !same(old, new) {
            self.invalid(path, "field is immutable");
        }
    }

    pub(super) fn into_result(self) -> Result<(), Vec<FieldError>> {
        if self.0.is_empty() { Ok(()) } else { Err(self.0) }
    }
}

/// The JSON object at `key`, made if absent; `None` if something else is there.
pub(super) fn object_at<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let parent = parent.as_object_mut()?;
    let slot = parent.entry(key).or_insert_with(|| Value::Object(Map::new()));
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

/// Sets `key` unless it is there already.
pub(super) fn default_to(object: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    let slot = object.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = value.into();
    }
}

/// Like [`default_to`], and also replaces the empty string, which these fields treat as unset.
pub(super) fn default_string(object: &mut Map<String, Value>, key: &str, value: &str) {
    if object.get(key).and_then(Value::as_str).is_none_or(str::is_empty) {
        object.insert(key.to_owned(), value.into());
    }
}

/// The elements of the array at `key`, to be changed; none where there is no array.
pub(super) fn elements_mut<'a>(parent: &'a mut Map<String, Value>, key: &str) -> &'a mut [Value] {
    parent.get_mut(key).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// The JSON objects of the array at `key`, to be changed.
pub(super) fn objects_mut<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    elements_mut(parent, key).iter_mut().filter_map(Value::as_object_mut)
}

/// Whether two values mean the same: null, empty lists and empty maps are as good as absent.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.iter().all(|(key, value)| same(value, right.get(key).unwrap_or(&Value::Null)))
                && right.iter().all(|(key, value)| left.contains_key(key) || is_empty(value))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        _ => left == right || (is_empty(left) && is_empty(right)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(elements) => elements.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        _ => false,
    }
}

/// The value at a path of keys; `Value::Null` where there is none.
pub(super) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(object, |value, key| &value[*key])
}

/// The elements of an array; none where there is no array.
pub(super) fn elements(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_null_and_empty_mean_the_same() {
        assert!(same(&json!({"a": null, "b": {}, "c": []}), &json!({})));
        assert!(same(&json!({}), &json!({"metadata": {"creationTimestamp": null}})));
        assert!(same(&json!({"a": [1]}), &json!({"a": [1]})));
        assert!(!same(&json!({"a": 0}), &json!({})));
        assert!(!same(&json!({"a": [1]}), &json!({"a": [1, 2]})));
    }
}
