//! YAML documents as JSON values that know the line of each of their fields.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;

use crate::strict::{field_path, item_path};

/// One document of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// What it says.
    pub value: Value,
    /// The line on which it begins, counted from 1.
    pub line: u64,
    lines: BTreeMap<String, u64>,
}

impl Document {
    /// The line of a field, or of the closest one around it that is written out.
    pub fn line_of(&self, path: &str) -> u64 {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return *line;
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.line,
            }
        }
    }
}

/// Why a file is not YAML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// The line, counted from 1; 0 if it is not known.
    pub line: u64,
    /// The column, counted from 1.
    pub column: u64,
    /// What is wrong.
    pub message: String,
}

/// The documents of a file; empty ones are left out.
pub fn documents(text: &str) -> Result<Vec<Document>, YamlError> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, with_snippet: false };
    let nodes: Vec<Spanned<Node>> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| yaml_error(&error))?;
    Ok(nodes.into_iter().map(document).collect())
}

fn yaml_error(error: &serde_saphyr::Error) -> YamlError {
    let location = error.location();
    let message = match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_ref().map(|key| format!(" {key:?}")).unwrap_or_default();
            format!("the key{key} stands here a second time; a key may stand in an object once")
        }
        other => {
            let text = other.to_string();
            let message = text.lines().next().unwrap_or_default();
            message.split(" at line ").next().unwrap_or_default().to_owned()
        }
    };
    YamlError {
        line: location.as_ref().map_or(0, serde_saphyr::Location::line),
        column: location.as_ref().map_or(0, serde_saphyr::Location::column),
        message,
    }
}

fn document(node: Spanned<Node>) -> Document {
    let line = node.defined.line().max(1);
    let mut lines = BTreeMap::new();
    let value = flatten(node.value, "", &mut lines);
    Document { value, line, lines }
}

fn flatten(node: Node, path: &str, lines: &mut BTreeMap<String, u64>) -> Value {
    match node {
        Node::Scalar(value) => value,
        Node::List(items) => {
            let mut list = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                let path = item_path(path, index);
                lines.insert(path.clone(), item.referenced.line());
                list.push(flatten(item.value, &path, lines));
            }
            Value::Array(list)
        }
        Node::Map(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                let path = field_path(path, &key.value);
                lines.insert(path.clone(), key.referenced.line());
                map.insert(key.value, flatten(value.value, &path, lines));
            }
            Value::Object(map)
        }
    }
}

/// A part of a document before its lines are collected.
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Map(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    /// `1.0` and `1e3` are integers to Kubernetes, as they are to every JSON reader that asks for one.
    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if value.fract() == 0.0 && value.abs() <= EXACT {
            return Ok(Node::Scalar((value as i64).into()));
        }
        Ok(Node::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_know_their_lines() {
        let text = "# a comment\na:\n  b: 1\n  list:\n  - x: yes\n    y.z: 2\n---\n---\nc: [1, 2]\n";
        let documents = documents(text).unwrap();
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[0].value, json!({"a": {"b": 1, "list": [{"x": true, "y.z": 2}]}}));
        let lines = [("a", 2), ("a.b", 3), ("a.list", 4), ("a.list[0].x", 5), ("a.list[0][\"y.z\"]", 6)];
        for (path, line) in lines {
            assert_eq!(documents[0].line_of(path), line, "{path}");
        }
        assert_eq!(documents[0].line_of("a.list[0].x.deeper"), 5);
        assert_eq!(documents[0].line_of("nothing"), 2);
        assert_eq!((documents[1].line, documents[1].line_of("c[1]")), (9, 9));
    }

    #[test]
    fn scalars_are_those_of_kubectl() {
        let text = "a: 010\nb: 1_000\nc: 1.0\nd: 1e3\ne: 1.5\nf: on\ng: '1'\nh:\ni: 0x10\n";
        let value =
            json!({"a": 8, "b": 1000, "c": 1, "d": 1000, "e": 1.5, "f": true, "g": "1", "h": null, "i": 16});
        assert_eq!(documents(text).unwrap()[0].value, value);
    }

    #[test]
    fn malformed_text_has_a_place() {
        let error = documents("a: 1\nb: [1,\nc: 2\n").unwrap_err();
        assert!(error.line >= 2 && !error.message.is_empty(), "{error:?}");
        let twice = documents("a: 1\na: 2\n").unwrap_err();
        assert_eq!(twice.line, 2, "{twice:?}");
        assert!(twice.message.starts_with("the key \"a\" stands here a second time"), "{twice:?}");
    }
}
