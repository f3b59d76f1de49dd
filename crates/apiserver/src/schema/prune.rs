//! Dropping what a schema does not have.

use serde_json::Value;

use super::{Additional, Node, join, join_index};

pub(super) fn prune(root: &Node, object: &mut Value) -> Vec<String> {
    let mut dropped = Vec::new();
    walk(root, object, "", &mut dropped);
    dropped
}

fn walk(node: &Node, value: &mut Value, path: &str, dropped: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let keeps_all = node.preserves_unknown || matches!(node.additional, Additional::Any);
            let mut unknown = Vec::new();
            for (key, field) in fields.iter_mut() {
                match node.field(key) {
                    _ if node.is_resource_field(key) => {}
                    Some(schema) if descends(schema, field) => walk(schema, field, &join(path, key), dropped),
                    Some(_) => {}
                    None if keeps_all => {}
                    None => unknown.push(key.clone()),
                }
            }
            for key in unknown {
                fields.remove(&key);
                dropped.push(join(path, &key));
            }
        }
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            for (index, item) in items.iter_mut().enumerate() {
                if descends(schema, item) {
                    walk(schema, item, &join_index(path, index), dropped);
                }
            }
        }
        _ => {}
    }
}

/// Whether there can be anything to drop; spares the path of every scalar.
fn descends(schema: &Node, value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::Array(_) => schema.items.is_some(),
        _ => false,
    }
}
