//! Strict reading of built-in kinds: what the Go types know, and nothing else.

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;

/// One step of a path into a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Where an unknown field is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Step>);

impl FieldPath {
    fn of(path: &Path<'_>) -> Self {
        let mut steps = Vec::new();
        collect(path, &mut steps);
        Self(steps)
    }

    /// The path below `parent`.
    fn below(mut self, parent: &str) -> Self {
        self.0.insert(0, Step::Key(parent.to_owned()));
        self
    }

    /// Removes the field from the document.
    fn remove_from(&self, object: &mut Value) {
        let Some((Step::Key(last), parents)) = self.0.split_last() else { return };
        let parent = parents.iter().try_fold(object, |value, step| match step {
            Step::Key(key) => value.get_mut(key),
            Step::Index(index) => value.get_mut(index),
        });
        if let Some(parent) = parent.and_then(Value::as_object_mut) {
            parent.remove(last);
        }
    }
}

impl std::fmt::Display for FieldPath {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if position == 0 => write!(out, "{key}")?,
                Step::Key(key) => write!(out, ".{key}")?,
                Step::Index(index) => write!(out, "[{index}]")?,
            }
        }
        Ok(())
    }
}

fn collect(path: &Path<'_>, steps: &mut Vec<Step>) {
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            collect(parent, steps);
            steps.push(Step::Index(*index));
        }
        Path::Map { parent, key } => {
            collect(parent, steps);
            steps.push(Step::Key(key.clone()));
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            collect(parent, steps);
        }
    }
}

/// Reads an object as its Go type would; says which fields that type does not have.
pub(crate) type TypedCheck = fn(&Value) -> Result<Vec<FieldPath>, serde_json::Error>;

pub(crate) fn typed_check<T: DeserializeOwned>(object: &Value) -> Result<Vec<FieldPath>, serde_json::Error> {
    let mut unknown = Vec::new();
    let _: T = serde_ignored::deserialize(object, |path| unknown.push(FieldPath::of(&path)))?;
    Ok(unknown)
}

/// Drops fields that `check` does not know and says which they were.
pub(crate) fn drop_unknown(check: TypedCheck, object: &mut Value) -> Result<Vec<String>, serde_json::Error> {
    drop_nulls(object);
    let unknown = check(object)?;
    Ok(remove_all(unknown, object))
}

/// The same for the metadata of a custom object.
pub(crate) fn drop_unknown_metadata(object: &mut Value) -> Result<Vec<String>, serde_json::Error> {
    let Some(metadata) = object.get_mut("metadata") else { return Ok(Vec::new()) };
    drop_nulls(metadata);
    let unknown = typed_check::<k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta>(metadata)?;
    let unknown = unknown.into_iter().map(|path| path.below("metadata")).collect();
    Ok(remove_all(unknown, object))
}

fn remove_all(unknown: Vec<FieldPath>, object: &mut Value) -> Vec<String> {
    for path in &unknown {
        path.remove_from(object);
    }
    unknown.iter().map(FieldPath::to_string).collect()
}

/// To a Go type, `null` and absent are the same.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.values().any(Value::is_null) {
                fields.retain(|_, field| !field.is_null());
            }
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_are_named_and_dropped() {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "colour": 1, "labels": null},
            "spec": {"containers": [{"name": "c", "imgae": "x"}]},
        });
        let mut unknown = drop_unknown(typed_check::<Pod>, &mut pod).unwrap();
        unknown.sort();
        assert_eq!(unknown, ["metadata.colour", "spec.containers[0].imgae"]);
        assert_eq!(pod["spec"]["containers"], json!([{"name": "c"}]));
        assert_eq!(pod["metadata"], json!({"name": "a"}));
    }
}
