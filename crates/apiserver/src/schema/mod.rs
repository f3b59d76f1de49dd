//! The structural schema of a custom kind: read once per CRD, then applied to each write.

mod cel;
mod compile;
mod defaults;
mod prune;
mod validate;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::builtins::FieldError;

/// A schema and its CEL rules, compiled.
#[derive(Debug)]
pub(crate) struct Schema {
    root: Node,
}

/// Why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SchemaError {
    #[error("{path}: the pattern {pattern:?} is not a regular expression: {source}")]
    Pattern { path: String, pattern: String, source: Box<regex::Error> },
    #[error("{path}: {message}")]
    Rule { path: String, message: String },
    #[error("{path}: the schema is nested deeper than {limit} levels")]
    TooDeep { path: String, limit: usize },
    #[error("{path}: {message}")]
    Malformed { path: String, message: String },
}

impl Schema {
    pub(crate) fn compile(schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { root: compile::root(schema)? })
    }

    /// Drops fields that the schema does not have; says which.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune(&self.root, object)
    }

    /// Fills in defaults.
    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        defaults::apply(&self.root, object);
    }

    /// What is wrong with `object`. What was already so in `old` is not held against it.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let errors = validate::validate(&self.root, object, old);
        if errors.is_empty() { cel::validate(&self.root, object, old) } else { errors }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// What keys an object may have beyond its properties.
#[derive(Debug, Default)]
enum Additional {
    #[default]
    None,
    Any,
    Of(Box<Node>),
}

/// How the elements of a list are told apart.
#[derive(Debug, Default)]
enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Format {
    #[default]
    None,
    Int32,
    Int64,
    DateTime,
    Duration,
    Bytes,
}

/// A bound on numbers.
#[derive(Debug, Clone, Copy)]
struct Bound {
    value: f64,
    exclusive: bool,
}

/// Numbers that a value may not be below or above.
#[derive(Debug, Default)]
struct Limits {
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<f64>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
}

/// One node of a schema.
#[derive(Debug, Default)]
struct Node {
    kind: Option<Type>,
    int_or_string: bool,
    nullable: bool,
    preserves_unknown: bool,
    /// The root, or an `x-kubernetes-embedded-resource`: has apiVersion, kind and metadata.
    is_resource: bool,
    properties: BTreeMap<String, Node>,
    additional: Additional,
    items: Option<Box<Node>>,
    list_type: ListType,
    required: Vec<String>,
    default: Option<Value>,
    one_of_values: Vec<Value>,
    pattern: Option<Regex>,
    format: Format,
    limits: Limits,
    unique_items: bool,
    all_of: Vec<Node>,
    any_of: Vec<Node>,
    one_of: Vec<Node>,
    not: Option<Box<Node>>,
    rules: Vec<cel::Rule>,
    /// Whether this node or one below it has CEL rules.
    has_rules: bool,
}

const RESOURCE_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Node {
    /// The schema of one field of an object.
    fn field(&self, key: &str) -> Option<&Node> {
        match (self.properties.get(key), &self.additional) {
            (Some(node), _) => Some(node),
            (None, Additional::Of(node)) => Some(node),
            _ => None,
        }
    }

    /// Fields of the resource itself, which the schema does not govern.
    fn is_resource_field(&self, key: &str) -> bool {
        self.is_resource && RESOURCE_FIELDS.contains(&key)
    }

    /// The element of `old` that `item`, the `index`th of a list, was before.
    fn old_item<'a>(&self, item: &Value, old: Option<&'a Value>) -> Option<&'a Value> {
        let ListType::Map(keys) = &self.list_type else { return None };
        let same = |candidate: &&Value| keys.iter().all(|key| candidate.get(key) == item.get(key));
        old?.as_array()?.iter().find(same)
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn join_index(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}
