//! As much of a structural schema as the golden manifests need, beside the CEL rules.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use serde_json::Value;

/// The schema of each kind, from the CRDs, with its rules compiled.
static SCHEMAS: LazyLock<BTreeMap<String, (Value, CompiledSchema)>> = LazyLock::new(|| {
    let crds = gangway_api::crds();
    let schema = |crd: &gangway_api::CustomResourceDefinition| {
        let validation = crd.spec.versions[0].schema.as_ref().unwrap();
        let schema = serde_json::to_value(validation.open_api_v3_schema.as_ref().unwrap()).unwrap();
        let compiled = compile_schema(&schema);
        assert!(!compiled.has_errors(), "{:?}", compiled.compilation_errors());
        (crd.spec.names.kind.clone(), (schema, compiled))
    };
    crds.iter().map(schema).collect()
});

/// Everything that is wrong with an object.
pub fn violations(object: &Value, old: Option<&Value>) -> Vec<String> {
    let (schema, compiled) = &SCHEMAS[object["kind"].as_str().unwrap()];
    let mut found = Vec::new();
    walk(schema, object, "", &mut found);
    if let Err(errors) = Validator::new().validate_compiled(compiled, object, old) {
        found.extend(errors.into_vec().into_iter().map(|error| error.message));
    }
    found
}

fn walk(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            found.push(format!("{path}: {required} is required"));
        }
    }
    if schema["enum"].as_array().is_some_and(|allowed| !allowed.contains(value)) {
        found.push(format!("{path}: {value} is not allowed"));
    }
    if let Some(text) = value.as_str() {
        let too_long = schema["maxLength"].as_u64().is_some_and(|max| text.len() as u64 > max);
        let pattern = schema["pattern"].as_str().map(|pattern| regex::Regex::new(pattern).unwrap());
        if too_long || pattern.is_some_and(|pattern| !pattern.is_match(text)) {
            found.push(format!("{path}: {text:?} is malformed"));
        }
    }
    if value.as_f64().zip(schema["minimum"].as_f64()).is_some_and(|(value, minimum)| value < minimum) {
        found.push(format!("{path}: {value} is too small"));
    }
    if let Some(items) = value.as_array() {
        for (index, item) in items.iter().enumerate() {
            walk(&schema["items"], item, &format!("{path}[{index}]"), found);
        }
    }
    for (field, inner) in value.as_object().into_iter().flatten() {
        let properties = schema["properties"].get(field).or(schema.get("additionalProperties"));
        if let Some(inner_schema) = properties {
            walk(inner_schema, inner, &format!("{path}.{field}"), found);
        }
    }
}
