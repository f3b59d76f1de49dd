//! Schemas of the parts that types alone cannot say: quantities, names, conditions, tolerant enums.
//!
//! Every function here has the shape that `#[schemars(schema_with = "…")]` expects.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Value, json};

/// A quantity without a sign: digits, a fraction, then a suffix or an exponent.
const QUANTITY_PATTERN: &str =
    r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?$";
const SUBDOMAIN_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const LABEL_PATTERN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const QUALIFIED_NAME_PATTERN: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
const LABEL_VALUE_PATTERN: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

/// A schema from a JSON literal; anything else than an object would be a mistake in this file.
fn schema(value: Value) -> Schema {
    Schema::try_from(value).unwrap_or_default()
}

/// A quantity that is zero or more, as a number or a string.
pub fn quantity(_: &mut SchemaGenerator) -> Schema {
    schema(quantity_value())
}

fn quantity_value() -> Value {
    json!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": QUANTITY_PATTERN,
        "minimum": 0,
    })
}

/// A fair-sharing weight: zero, or more than a billionth, which smaller numbers would round to.
pub fn weight(_: &mut SchemaGenerator) -> Schema {
    let mut value = quantity_value();
    value["x-kubernetes-validations"] = json!([{
        "rule": "quantity(string(self)).compareTo(quantity('0')) == 0 || quantity(string(self)).isGreaterThan(quantity('1n'))",
        "message": "weight must be 0 or more than 1n",
    }]);
    schema(value)
}

/// A map of resource name to quantity.
pub fn quantities(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "object", "additionalProperties": quantity_value()}))
}

/// A name like `gpu.team-a` of at most 253 characters.
pub fn subdomain(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 253, "pattern": SUBDOMAIN_PATTERN}))
}

/// The same where an empty string means that there is none.
pub fn optional_subdomain(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 253, "pattern": format!("^$|{SUBDOMAIN_PATTERN}")}))
}

/// The name of a flavor, or `*` for all others.
pub fn flavor_or_any(_: &mut SchemaGenerator) -> Schema {
    let pattern = format!(r"^\*$|{SUBDOMAIN_PATTERN}");
    schema(json!({"type": "string", "minLength": 1, "maxLength": 253, "pattern": pattern}))
}

/// Names like `gpu.team-a`, at most 64, each once.
pub fn subdomains(_: &mut SchemaGenerator) -> Schema {
    let item = json!({"type": "string", "maxLength": 253, "pattern": SUBDOMAIN_PATTERN});
    schema(json!({"type": "array", "maxItems": 64, "items": item, "x-kubernetes-list-type": "set"}))
}

/// The name of a pod set.
pub fn pod_set_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 63, "pattern": LABEL_PATTERN, "default": "main"}))
}

/// The name of a pod set where it only refers to one.
pub fn pod_set_reference(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 63, "pattern": LABEL_PATTERN}))
}

/// The name of an admission check, which has no pattern.
pub fn check_reference(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "minLength": 1, "maxLength": 316}))
}

/// The v1beta1 list of admission checks.
pub fn check_references(_: &mut SchemaGenerator) -> Schema {
    let item = json!({"type": "string", "minLength": 1, "maxLength": 316});
    schema(json!({"type": "array", "maxItems": 64, "items": item}))
}

/// The name of a resource such as `cpu` or `nvidia.com/gpu`.
pub fn resource_name(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "maxLength": 317, "minLength": 1, "pattern": QUALIFIED_NAME_PATTERN}))
}

/// The resources that a group covers.
pub fn covered_resources(_: &mut SchemaGenerator) -> Schema {
    let item = json!({"type": "string", "maxLength": 317, "minLength": 1, "pattern": QUALIFIED_NAME_PATTERN});
    schema(json!({
        "type": "array", "minItems": 1, "maxItems": 64, "items": item, "x-kubernetes-list-type": "atomic",
    }))
}

/// Labels that a flavor's nodes carry.
pub fn node_labels(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object", "maxProperties": 8, "x-kubernetes-map-type": "atomic",
        "additionalProperties": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE_PATTERN},
        "x-kubernetes-validations": [{
            "rule": format!("self.all(key, size(key) <= 317 && key.matches('{}'))", cel_text(QUALIFIED_NAME_PATTERN)),
            "message": "every key must be a valid label name",
        }],
    }))
}

/// The taints of a flavor's nodes.
pub fn node_taints(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array", "maxItems": 8, "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["key", "effect"],
            "properties": {
                "key": {"type": "string", "maxLength": 317, "pattern": QUALIFIED_NAME_PATTERN},
                "value": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE_PATTERN},
                "effect": {"type": "string", "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]},
                "timeAdded": {"type": "string", "format": "date-time"},
            },
        },
        "x-kubernetes-validations": [{
            "rule": "self.all(taint, self.exists_one(other, other.key == taint.key && other.effect == taint.effect))",
            "message": "taints must be unique by key and effect",
        }],
    }))
}

/// Tolerations that a flavor adds to its pods.
pub fn tolerations(_: &mut SchemaGenerator) -> Schema {
    let rules = [
        (
            "!has(self.key) || self.key == '' ? has(self.operator) && self.operator == 'Exists' : true",
            "operator must be Exists when key is empty, which means: every taint",
        ),
        (
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "effect must be NoExecute when tolerationSeconds is set",
        ),
        (
            "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''",
            "value must be empty when operator is Exists",
        ),
    ];
    let rules: Vec<Value> =
        rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect();
    schema(json!({
        "type": "array", "maxItems": 8, "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "properties": {
                "key": {"type": "string", "maxLength": 317,
                    "pattern": format!("^$|{QUALIFIED_NAME_PATTERN}")},
                "operator": {"type": "string", "enum": ["Equal", "Exists"]},
                "value": {"type": "string", "maxLength": 63, "pattern": LABEL_VALUE_PATTERN},
                "effect": {"type": "string", "enum": ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]},
                "tolerationSeconds": {"type": "integer", "format": "int64"},
            },
            "x-kubernetes-validations": rules,
        },
    }))
}

/// A label selector; `{}` selects everything, its absence nothing.
pub fn label_selector(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object", "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {
                "type": "array", "maxItems": 64, "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "maxLength": 317},
                        "operator": {"type": "string", "enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                        "values": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
                    },
                    "x-kubernetes-validations": [{
                        "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                        "message": "In and NotIn need values; Exists and DoesNotExist have none",
                    }],
                },
            },
        },
    }))
}

/// The conditions of a status.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array", "maxItems": 16,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "reason", "message", "lastTransitionTime"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "minLength": 1, "maxLength": 1024,
                    "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
                "message": {"type": "string", "maxLength": 32768},
                "lastTransitionTime": {"type": "string", "format": "date-time"},
                "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            },
        },
    }))
}

/// An object whose inside we keep but do not read.
pub fn opaque(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}))
}

/// A list of objects whose inside we keep but do not read.
pub fn opaques(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array", "maxItems": 256,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }))
}

/// A timestamp of an object.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "format": "date-time"}))
}

/// `None`, `Hold` or `HoldAndDrain`.
pub fn stop_policy(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "string", "enum": ["None", "Hold", "HoldAndDrain"], "default": "None"}))
}

/// One of `values`, without a default: the reader has it, since the field has another spelling.
pub fn one_of(values: &[&str]) -> Schema {
    schema(json!({"type": "string", "enum": values}))
}

/// One of `values`, the first of which is the default.
pub fn one_of_or_first(values: &[&str]) -> Schema {
    schema(json!({"type": "string", "enum": values, "default": values.first()}))
}

/// A duration such as `10m` or `1h30m`.
pub fn duration(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "string", "maxLength": 64,
        "pattern": r"^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$",
    }))
}

/// A regular expression inside a single-quoted CEL string.
fn cel_text(pattern: &str) -> String {
    pattern.replace('\\', "\\\\")
}

/// The kind of an object.
pub fn kind_name() -> Schema {
    schema(json!({"type": "string", "maxLength": 63, "pattern": "^[A-Za-z]([-A-Za-z0-9]*[A-Za-z0-9])?$"}))
}

/// A boolean that is true unless it is said.
pub fn true_by_default(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "boolean", "default": true}))
}

/// How many pods a pod set has.
pub fn pod_count(_: &mut SchemaGenerator) -> Schema {
    schema(json!({"type": "integer", "format": "int32", "minimum": 0, "default": 1}))
}

/// A map of resource to flavor.
pub fn flavors_by_resource(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "object", "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 253, "pattern": SUBDOMAIN_PATTERN},
    }))
}

/// Names of clusters.
pub fn cluster_names(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array", "maxItems": 20, "x-kubernetes-list-type": "set",
        "items": {"type": "string", "maxLength": 253},
    }))
}

/// Text of at most `max` characters.
pub fn bounded_text(max: usize) -> Schema {
    schema(json!({"type": "string", "maxLength": max}))
}
