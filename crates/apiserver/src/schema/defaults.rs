//! Filling in the defaults of a schema.

use serde_json::Value;

use super::Node;

pub(super) fn apply(node: &Node, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // A null where none is allowed counts as absent.
            fields.retain(|key, field| {
                !field.is_null() || node.field(key).is_none_or(|schema| schema.nullable)
            });
            for (key, property) in &node.properties {
                if let Some(default) = &property.default
                    && !fields.contains_key(key)
                {
                    fields.insert(key.clone(), default.clone());
                }
            }
            for (key, field) in fields.iter_mut() {
                if !node.is_resource_field(key)
                    && let Some(schema) = node.field(key)
                {
                    apply(schema, field);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &node.items {
                items.iter_mut().for_each(|item| apply(schema, item));
            }
        }
        _ => {}
    }
}
