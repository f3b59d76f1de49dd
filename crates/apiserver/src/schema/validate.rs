//! Validation of a value against a schema.

use serde_json::Value;

use super::{Format, ListType, Node, Type, join, join_index};
use crate::builtins::{FieldError, FieldErrorKind};

pub(super) fn validate(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut found = Found(Vec::new());
    found.walk(root, object, old, "");
    found.0
}

/// A value as messages show it: composite values by their type.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "\"object\"".to_owned(),
        Value::Array(_) => "\"array\"".to_owned(),
        scalar => scalar.to_string(),
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

struct Found(Vec<FieldError>);

impl Found {
    fn add(&mut self, path: &str, kind: FieldErrorKind, message: String) {
        self.0.push(FieldError { path: path.to_owned(), kind, message });
    }

    fn invalid(&mut self, path: &str, value: &Value, rule: impl std::fmt::Display) {
        let message = format!("{}: {path} in body {rule}", shown(value));
        self.add(path, FieldErrorKind::Invalid, message);
    }

    fn walk(&mut self, node: &Node, value: &Value, old: Option<&Value>, path: &str) {
        // What did not change is not held against a write: a schema may have become stricter.
        if old == Some(value) || (value.is_null() && node.nullable) {
            return;
        }
        if !self.type_fits(node, value, path) {
            return;
        }
        if !node.one_of_values.is_empty() && !node.one_of_values.contains(value) {
            let known: Vec<String> = node.one_of_values.iter().map(Value::to_string).collect();
            let message = format!("{value}: supported values: {}", known.join(", "));
            self.add(path, FieldErrorKind::NotSupported, message);
        }
        match value {
            Value::Number(number) => self.number(node, value, number.as_f64().unwrap_or(f64::NAN), path),
            Value::String(text) => self.string(node, value, text, path),
            Value::Array(items) => self.array(node, value, items, old, path),
            Value::Object(fields) => self.object(node, value, fields, old, path),
            _ => {}
        }
        self.combinations(node, value, path);
    }

    fn type_fits(&mut self, node: &Node, value: &Value, path: &str) -> bool {
        let integral = || value.as_f64().is_some_and(|number| number.fract() == 0.0);
        if node.int_or_string {
            let fits = value.is_string() || integral();
            if !fits {
                self.invalid(
                    path,
                    value,
                    format_args!("must be of type int-or-string: \"{}\"", type_name(value)),
                );
            }
            return fits;
        }
        let Some(kind) = node.kind else { return true };
        let fits = match kind {
            Type::Object => value.is_object(),
            Type::Array => value.is_array(),
            Type::String => value.is_string(),
            Type::Integer => value.is_i64() || value.is_u64() || integral(),
            Type::Number => value.is_number(),
            Type::Boolean => value.is_boolean(),
        };
        if !fits {
            let rule =
                format_args!("must be of type {}: \"{}\"", kind.as_str(), type_name(value)).to_string();
            self.invalid(path, value, rule);
        }
        fits
    }

    fn number(&mut self, node: &Node, value: &Value, number: f64, path: &str) {
        let limits = &node.limits;
        if let Some(bound) = limits.minimum
            && (number < bound.value || (bound.exclusive && number == bound.value))
        {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            self.invalid(path, value, format_args!("should be greater than{or_equal} {}", bound.value));
        }
        if let Some(bound) = limits.maximum
            && (number > bound.value || (bound.exclusive && number == bound.value))
        {
            let or_equal = if bound.exclusive { "" } else { " or equal to" };
            self.invalid(path, value, format_args!("should be less than{or_equal} {}", bound.value));
        }
        if let Some(step) = limits.multiple_of
            && (number / step).fract() != 0.0
        {
            self.invalid(path, value, format_args!("should be a multiple of {step}"));
        }
        let fits = match node.format {
            Format::Int32 => i32::MIN as f64 <= number && number <= i32::MAX as f64,
            Format::Int64 => value.is_i64() || number.fract() == 0.0 && number.abs() < i64::MAX as f64,
            _ => true,
        };
        if !fits {
            let name = if node.format == Format::Int32 { "int32" } else { "int64" };
            self.invalid(path, value, format_args!("must be of type {name}: {value}"));
        }
    }

    fn string(&mut self, node: &Node, value: &Value, text: &str, path: &str) {
        let length = text.chars().count() as u64;
        if let Some(most) = node.limits.max_length
            && length > most
        {
            self.add(path, FieldErrorKind::Invalid, format!("Too long: may not be more than {most} bytes"));
        }
        if let Some(least) = node.limits.min_length
            && length < least
        {
            self.invalid(path, value, format_args!("should be at least {least} chars long"));
        }
        if let Some(pattern) = &node.pattern
            && !pattern.is_match(text)
        {
            self.invalid(path, value, format_args!("should match '{pattern}'"));
        }
        if node.format == Format::DateTime && text.parse::<jiff::Timestamp>().is_err() {
            self.invalid(path, value, format_args!("must be of type date-time: {value}"));
        }
    }

    fn array(&mut self, node: &Node, value: &Value, items: &[Value], old: Option<&Value>, path: &str) {
        let count = items.len() as u64;
        if let Some(most) = node.limits.max_items
            && count > most
        {
            let message = format!("Too many: {count}: must have at most {most} items");
            self.add(path, FieldErrorKind::Invalid, message);
        }
        if let Some(least) = node.limits.min_items
            && count < least
        {
            self.invalid(path, value, format_args!("should have at least {least} items"));
        }
        self.uniqueness(node, items, path);
        let Some(schema) = &node.items else { return };
        for (index, item) in items.iter().enumerate() {
            self.walk(schema, item, node.old_item(item, old), &join_index(path, index));
        }
    }

    fn uniqueness(&mut self, node: &Node, items: &[Value], path: &str) {
        let mut seen = std::collections::BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let identity = match &node.list_type {
                ListType::Map(keys) => {
                    let keys = keys.iter().map(|key| (key.clone(), item[key].clone())).collect();
                    Value::Object(keys).to_string()
                }
                ListType::Set => item.to_string(),
                ListType::Atomic if node.unique_items => item.to_string(),
                ListType::Atomic => return,
            };
            if let Some(identity) = seen.replace(identity) {
                self.add(&join_index(path, index), FieldErrorKind::Duplicate, identity);
            }
        }
    }

    fn object(
        &mut self,
        node: &Node,
        value: &Value,
        fields: &serde_json::Map<String, Value>,
        old: Option<&Value>,
        path: &str,
    ) {
        for key in node.required.iter().filter(|key| !fields.contains_key(*key)) {
            self.add(&join(path, key), FieldErrorKind::Required, String::new());
        }
        let count = fields.len() as u64;
        if let Some(most) = node.limits.max_properties
            && count > most
        {
            let message = format!("Too many: {count}: must have at most {most} items");
            self.add(path, FieldErrorKind::Invalid, message);
        }
        if let Some(least) = node.limits.min_properties
            && count < least
        {
            self.invalid(path, value, format_args!("should have at least {least} properties"));
        }
        for (key, field) in fields {
            if let Some(schema) = node.field(key).filter(|_| !node.is_resource_field(key)) {
                self.walk(schema, field, old.and_then(|old| old.get(key)), &join(path, key));
            }
        }
    }

    fn combinations(&mut self, node: &Node, value: &Value, path: &str) {
        for branch in &node.all_of {
            self.walk(branch, value, None, path);
        }
        let fits = |branch: &&Node| validate_at(branch, value, path);
        if !node.any_of.is_empty() && !node.any_of.iter().any(|branch| fits(&branch)) {
            self.invalid(path, value, "must validate at least one schema (anyOf)");
        }
        if !node.one_of.is_empty() && node.one_of.iter().filter(fits).count() != 1 {
            self.invalid(path, value, "must validate one and only one schema (oneOf)");
        }
        if node.not.as_deref().is_some_and(|branch| fits(&branch)) {
            self.invalid(path, value, "must not validate the schema (not)");
        }
    }
}

fn validate_at(node: &Node, value: &Value, path: &str) -> bool {
    let mut found = Found(Vec::new());
    found.walk(node, value, None, path);
    found.0.is_empty()
}
