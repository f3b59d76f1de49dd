//! Fields that a field selector may name.

use serde_json::Value;

/// A path such as `spec.nodeName`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectableField {
    /// As it is written in selectors.
    pub(crate) path: String,
    keys: Vec<String>,
}

impl SelectableField {
    pub(crate) fn new(path: &str) -> Self {
        let path = path.trim_start_matches('.').to_owned();
        let keys = path.split('.').map(str::to_owned).collect();
        Self { path, keys }
    }

    /// A field that selectors call `path` and objects store as `stored`.
    pub(crate) fn stored_as(path: &str, stored: &str) -> Self {
        Self { path: path.to_owned(), ..Self::new(stored) }
    }

    /// The field's value as selectors compare it; empty if absent.
    pub(crate) fn read(&self, object: &Value) -> String {
        let found = self.keys.iter().try_fold(object, |value, key| value.get(key));
        match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        }
    }
}
