//! From the JSON of an `openAPIV3Schema` to nodes.

use regex::Regex;
use serde_json::Value;

use super::{Additional, Bound, Format, Limits, ListType, Node, SchemaError, Type, cel, join};

/// Deeper schemas are refused, so that no recursion over one can overflow the stack.
const MAX_DEPTH: usize = 64;

pub(super) fn root(schema: &Value) -> Result<Node, SchemaError> {
    let mut node = node(schema, "", 0)?;
    node.is_resource = true;
    Ok(node)
}

fn flag(schema: &Value, key: &str) -> bool {
    schema[key] == Value::Bool(true)
}

fn node(schema: &Value, path: &str, depth: usize) -> Result<Node, SchemaError> {
    if depth > MAX_DEPTH {
        return Err(SchemaError::TooDeep { path: path.to_owned(), limit: MAX_DEPTH });
    }
    let child = |schema: &Value, name: &str| node(schema, &join(path, name), depth + 1);
    let children = |key: &str| -> Result<Vec<Node>, SchemaError> {
        schema[key].as_array().into_iter().flatten().map(|branch| child(branch, key)).collect()
    };
    let mut properties = std::collections::BTreeMap::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        properties.insert(name.clone(), child(property, name)?);
    }
    let additional = match &schema["additionalProperties"] {
        Value::Bool(true) => Additional::Any,
        of @ Value::Object(_) => Additional::Of(Box::new(child(of, "*")?)),
        _ => Additional::None,
    };
    let items = match &schema["items"] {
        of @ Value::Object(_) => Some(Box::new(child(of, "[*]")?)),
        _ => None,
    };
    let not = match &schema["not"] {
        of @ Value::Object(_) => Some(Box::new(child(of, "not")?)),
        _ => None,
    };
    let mut node = Node {
        kind: kind(schema, path)?,
        int_or_string: flag(schema, "x-kubernetes-int-or-string"),
        nullable: flag(schema, "nullable"),
        preserves_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
        is_resource: flag(schema, "x-kubernetes-embedded-resource"),
        properties,
        additional,
        items,
        list_type: list_type(schema),
        required: texts(&schema["required"]),
        default: schema.get("default").cloned(),
        one_of_values: schema["enum"].as_array().cloned().unwrap_or_default(),
        pattern: pattern(schema, path)?,
        format: format(schema),
        limits: limits(schema),
        unique_items: flag(schema, "uniqueItems"),
        all_of: children("allOf")?,
        any_of: children("anyOf")?,
        one_of: children("oneOf")?,
        not,
        rules: cel::compile(schema, path)?,
        has_rules: false,
    };
    node.has_rules = has_rules(&node);
    Ok(node)
}

fn has_rules(node: &Node) -> bool {
    let below = match &node.additional {
        Additional::Of(node) => node.has_rules,
        _ => false,
    };
    !node.rules.is_empty()
        || below
        || node.items.as_ref().is_some_and(|items| items.has_rules)
        || node.properties.values().any(|property| property.has_rules)
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn kind(schema: &Value, path: &str) -> Result<Option<Type>, SchemaError> {
    let kind = match schema["type"].as_str() {
        None | Some("") => return Ok(None),
        Some("object") => Type::Object,
        Some("array") => Type::Array,
        Some("string") => Type::String,
        Some("integer") => Type::Integer,
        Some("number") => Type::Number,
        Some("boolean") => Type::Boolean,
        Some(other) => {
            let message = format!("unsupported type {other:?}");
            return Err(SchemaError::Malformed { path: path.to_owned(), message });
        }
    };
    Ok(Some(kind))
}

fn list_type(schema: &Value) -> ListType {
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(texts(&schema["x-kubernetes-list-map-keys"])),
        _ => ListType::Atomic,
    }
}

fn format(schema: &Value) -> Format {
    match schema["format"].as_str() {
        Some("int32") => Format::Int32,
        Some("int64") => Format::Int64,
        Some("date-time") => Format::DateTime,
        Some("duration") => Format::Duration,
        Some("byte") => Format::Bytes,
        _ => Format::None,
    }
}

fn pattern(schema: &Value, path: &str) -> Result<Option<Regex>, SchemaError> {
    let Some(pattern) = schema["pattern"].as_str() else { return Ok(None) };
    Regex::new(pattern).map(Some).map_err(|source| SchemaError::Pattern {
        path: path.to_owned(),
        pattern: pattern.to_owned(),
        source: Box::new(source),
    })
}

fn limits(schema: &Value) -> Limits {
    let bound = |key: &str, exclusive: &str| {
        schema[key].as_f64().map(|value| Bound { value, exclusive: flag(schema, exclusive) })
    };
    // CRDs derived by tools write counts as 1.0 as well as 1.
    let count = |key: &str| schema[key].as_u64().or_else(|| schema[key].as_f64().map(|value| value as u64));
    Limits {
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: schema["multipleOf"].as_f64(),
        min_length: count("minLength"),
        max_length: count("maxLength"),
        min_items: count("minItems"),
        max_items: count("maxItems"),
        min_properties: count("minProperties"),
        max_properties: count("maxProperties"),
    }
}
