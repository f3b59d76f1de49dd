//! The `x-kubernetes-validations` rules of a schema.
//!
//! Rules see what a real API server shows them: declared fields only, of the root's metadata only
//! the names, timestamps and durations as such. A rule is not evaluated where nothing that it
//! governs has changed.

use std::collections::HashMap;
use std::sync::Arc;

use kube::core::cel::cel::objects::{Key, Map, OptionalValue};
use kube::core::cel::cel::{Context, Value as Cel};
use kube::core::cel::{CompilationResult, KubeCelExt, compile_schema};
use serde_json::{Value, json};

use super::validate::shown;
use super::{Additional, Format, Node, SchemaError, join, join_index};
use crate::builtins::{FieldError, FieldErrorKind};

/// One compiled rule.
#[derive(Debug)]
pub(super) struct Rule(CompilationResult);

pub(super) fn compile(schema: &Value, path: &str) -> Result<Vec<Rule>, SchemaError> {
    let Some(rules) = schema.get("x-kubernetes-validations") else { return Ok(Vec::new()) };
    compile_schema(&json!({"x-kubernetes-validations": rules}))
        .validations
        .into_iter()
        .map(|rule| {
            let failed = |error: &dyn std::fmt::Display| SchemaError::Rule {
                path: path.to_owned(),
                message: error.to_string(),
            };
            rule.map(Rule).map_err(|error| failed(&error))
        })
        .collect()
}

thread_local! {
    /// Registering the functions costs more than evaluating most rules.
    static FUNCTIONS: Context<'static> = Context::default().with_all();
}

pub(super) fn validate(root: &Node, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if root.has_rules {
        FUNCTIONS.with(|functions| walk(root, object, old, "", functions, &mut errors));
    }
    errors
}

fn walk(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    functions: &Context<'static>,
    errors: &mut Vec<FieldError>,
) {
    if !node.has_rules || value.is_null() || old.is_some_and(|old| unchanged(node, value, old)) {
        return;
    }
    if !node.rules.is_empty() {
        evaluate(node, value, old, path, functions, errors);
    }
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                if let Some(schema) = node.field(key).filter(|schema| schema.has_rules) {
                    let old = old.and_then(|old| old.get(key));
                    walk(schema, field, old, &join(path, key), functions, errors);
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = node.items.as_ref().filter(|schema| schema.has_rules) else { return };
            for (index, item) in items.iter().enumerate() {
                let old = node.old_item(item, old);
                walk(schema, item, old, &join_index(path, index), functions, errors);
            }
        }
        _ => {}
    }
}

/// Whether the rules of `node` see the same in both.
fn unchanged(node: &Node, value: &Value, old: &Value) -> bool {
    let (true, Some(fields), Some(old_fields)) = (node.is_resource, value.as_object(), old.as_object())
    else {
        return value == old;
    };
    let relevant = |key: &&String| !node.is_resource_field(key);
    fields.keys().filter(relevant).count() == old_fields.keys().filter(relevant).count()
        && fields
            .iter()
            .filter(|(key, _)| relevant(key))
            .all(|(key, field)| old_fields.get(key) == Some(field))
}

fn evaluate(
    node: &Node,
    value: &Value,
    old: Option<&Value>,
    path: &str,
    functions: &Context<'static>,
    errors: &mut Vec<FieldError>,
) {
    let mut context = functions.new_inner_scope();
    context.add_variable_from_value("self", to_cel(node, value));
    let old = old.map(|old| to_cel(node, old));
    if let Some(old) = &old {
        context.add_variable_from_value("oldSelf", old.clone());
    }
    for Rule(rule) in &node.rules {
        let optional = rule.rule.optional_old_self == Some(true);
        if rule.is_transition_rule && old.is_none() && !optional {
            continue;
        }
        let message = if optional {
            let mut scope = context.new_inner_scope();
            let old = old.clone().map_or_else(OptionalValue::none, OptionalValue::of);
            scope.add_variable_from_value("oldSelf", Cel::Opaque(Arc::new(old)));
            failure(rule, &scope)
        } else {
            failure(rule, &context)
        };
        if let Some(message) = message {
            errors.push(error(rule, value, path, &message));
        }
    }
}

/// The message of a rule that does not hold.
fn failure(rule: &CompilationResult, context: &Context<'_>) -> Option<String> {
    match rule.program.execute(context) {
        Ok(Cel::Bool(true)) => None,
        Ok(Cel::Bool(false)) => Some(message(rule, context)),
        Ok(_) => Some(format!("rule {:?} does not evaluate to true or false", rule.rule.rule)),
        Err(error) => Some(format!("rule {:?} cannot be evaluated: {error}", rule.rule.rule)),
    }
}

fn message(rule: &CompilationResult, context: &Context<'_>) -> String {
    if let Some(program) = &rule.message_program
        && let Ok(Cel::String(text)) = program.execute(context)
        && !text.trim().is_empty()
    {
        return text.trim().to_owned();
    }
    rule.rule.message.clone().unwrap_or_else(|| format!("failed rule: {}", rule.rule.rule))
}

fn error(rule: &CompilationResult, value: &Value, path: &str, message: &str) -> FieldError {
    let path = match rule.rule.field_path.as_deref() {
        Some(field) => join(path, field.trim_start_matches('.')),
        None => path.to_owned(),
    };
    let kind = match rule.rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldErrorKind::Forbidden,
        Some("FieldValueRequired") => FieldErrorKind::Required,
        Some("FieldValueDuplicate") => FieldErrorKind::Duplicate,
        _ => FieldErrorKind::Invalid,
    };
    let message = match kind {
        FieldErrorKind::Forbidden | FieldErrorKind::Required => message.to_owned(),
        _ => format!("{}: {message}", shown(value)),
    };
    FieldError { path, kind, message }
}

fn to_cel(node: &Node, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => number_to_cel(node, number),
        Value::String(text) => string_to_cel(node, text),
        Value::Array(items) => match &node.items {
            Some(schema) => Cel::List(Arc::new(items.iter().map(|item| to_cel(schema, item)).collect())),
            None => Cel::List(Arc::default()),
        },
        Value::Object(fields) => object_to_cel(node, fields),
    }
}

fn number_to_cel(node: &Node, number: &serde_json::Number) -> Cel {
    let float = || Cel::Float(number.as_f64().unwrap_or(f64::NAN));
    match node.kind {
        Some(super::Type::Number) => float(),
        Some(super::Type::Integer) if number.is_f64() => {
            Cel::Int(number.as_f64().map_or(0, |number| number as i64))
        }
        _ => number.as_i64().map_or_else(float, Cel::Int),
    }
}

fn string_to_cel(node: &Node, text: &str) -> Cel {
    let parsed = match node.format {
        Format::DateTime => chrono::DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp),
        Format::Duration => text
            .parse::<jiff::SignedDuration>()
            .ok()
            .and_then(|span| i64::try_from(span.as_nanos()).ok())
            .map(|nanos| Cel::Duration(chrono::Duration::nanoseconds(nanos))),
        _ => None,
    };
    parsed.unwrap_or_else(|| Cel::String(Arc::new(text.to_owned())))
}

fn object_to_cel(node: &Node, fields: &serde_json::Map<String, Value>) -> Cel {
    let mut map: HashMap<Key, Cel> = HashMap::with_capacity(fields.len());
    for (key, field) in fields {
        if node.is_resource_field(key) {
            map.insert(Key::from(key.as_str()), resource_field_to_cel(key, field));
        } else if let Some(schema) = node.properties.get(key) {
            map.insert(Key::from(escape(key)), to_cel(schema, field));
        } else if let Additional::Of(schema) = &node.additional {
            map.insert(Key::from(key.as_str()), to_cel(schema, field));
        }
    }
    Cel::Map(Map { map: Arc::new(map) })
}

/// Of the metadata, rules see only the names.
fn resource_field_to_cel(key: &str, field: &Value) -> Cel {
    let text = |value: &Value| Cel::String(Arc::new(value.as_str().unwrap_or_default().to_owned()));
    if key != "metadata" {
        return text(field);
    }
    let names = ["name", "generateName"].into_iter().filter_map(|key| Some((key, field.get(key)?)));
    let map: HashMap<Key, Cel> = names.map(|(key, value)| (Key::from(key), text(value))).collect();
    Cel::Map(Map { map: Arc::new(map) })
}

/// Words that CEL reserves.
const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// A field's name as rules write it.
fn escape(name: &str) -> String {
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    if !name.contains(['_', '.', '-', '/']) {
        return name.to_owned();
    }
    name.replace("__", "__underscores__")
        .replace('.', "__dot__")
        .replace('-', "__dash__")
        .replace('/', "__slash__")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Schema;

    /// The messages of `object` under one rule at the root of a kind with some fields.
    fn messages(rule: Value, object: &Value, old: Option<&Value>) -> Vec<String> {
        let schema = Schema::compile(&json!({
            "type": "object",
            "x-kubernetes-validations": [rule],
            "properties": {"spec": {"type": "object", "properties": {
                "begin": {"type": "string", "format": "date-time"},
                "end": {"type": "string", "format": "date-time"},
                "wait": {"type": "string", "format": "duration"},
                "ratio": {"type": "number"},
                "namespace": {"type": "string"},
                "queue-name": {"type": "string"},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        }));
        let errors = schema.unwrap().validate(object, old);
        errors.into_iter().map(|error| error.message).collect()
    }

    fn holds(rule: &str, spec: Value) -> bool {
        let object = json!({"apiVersion": "e.com/v1", "kind": "K", "metadata": {"name": "n", "uid": "u"}, "spec": spec});
        messages(json!({"rule": rule}), &object, None).is_empty()
    }

    #[test]
    fn rules_see_values_as_what_they_are() {
        let times =
            json!({"begin": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00+00:00", "wait": "1h30m"});
        assert!(holds("self.spec.begin < self.spec.end", times.clone()));
        assert!(holds("self.spec.end - self.spec.begin < self.spec.wait", times));
        assert!(holds("self.spec.ratio == 2.0", json!({"ratio": 2})));
        assert!(holds("self.spec.__namespace__ == 'x'", json!({"namespace": "x"})));
        assert!(holds("self.spec.queue__dash__name == 'x'", json!({"queue-name": "x"})));
        assert!(holds("self.spec.labels['a-b'] == 'x'", json!({"labels": {"a-b": "x"}})));
        assert!(holds("self.metadata.name == 'n' && !has(self.metadata.uid)", json!({})));
        assert!(holds("!has(self.spec.free.hidden)", json!({"free": {"hidden": 1}})));
        assert!(!holds("self.spec.missing == 1", json!({})));
        assert!(!holds("1 + 1", json!({})));
    }

    #[test]
    fn old_self_may_be_optional() {
        let rule = json!({"rule": "!oldSelf.hasValue() || oldSelf.value().spec.ratio <= self.spec.ratio", "optionalOldSelf": true});
        let object = |ratio: f64| json!({"spec": {"ratio": ratio}});
        assert!(messages(rule.clone(), &object(1.0), None).is_empty());
        assert!(messages(rule.clone(), &object(2.0), Some(&object(1.0))).is_empty());
        assert_eq!(messages(rule, &object(1.0), Some(&object(2.0))).len(), 1);
    }

    #[test]
    fn messages_may_be_computed() {
        let rule = json!({"rule": "self.spec.ratio < 1.0", "messageExpression": "'too much: ' + self.spec.__namespace__"});
        let object = json!({"spec": {"ratio": 2.0, "namespace": "x"}});
        assert_eq!(messages(rule, &object, None), ["\"object\": too much: x"]);
    }

    #[test]
    fn rules_rest_where_nothing_they_govern_has_changed() {
        let rule = json!({"rule": "self.spec.ratio < 1.0"});
        let old = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ratio": 2.0}});
        let new = json!({"metadata": {"labels": {"a": "c"}}, "spec": {"ratio": 2.0}});
        assert!(messages(rule.clone(), &new, Some(&old)).is_empty());
        let worse = json!({"metadata": {}, "spec": {"ratio": 3.0}});
        assert_eq!(messages(rule, &worse, Some(&old)).len(), 1);
    }
}
