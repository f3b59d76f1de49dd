//! The smaller kinds: Namespace, Node, ConfigMap, Secret, Lease, PriorityClass, ServiceAccount, Event.

use serde_json::{Map, Value, json};

use super::fields::{Errors, default_string, default_to, elements, object_at};
use super::names::{QUALIFIED_NAME_RULE, is_data_key};
use super::resources;
use crate::names::is_qualified_name;

const MAX_DATA_BYTES: usize = 1024 * 1024;
/// Priorities above this are kept for the system.
const HIGHEST_USER_PRIORITY: i64 = 1_000_000_000;

/// Defaults and validates a new object; kinds that are not known pass.
pub(super) fn prepare_create(group: &str, plural: &str, object: &mut Value, errors: &mut Errors) {
    if (group, plural) == ("", "namespaces") {
        apply_namespace_defaults(object);
    }
    prepare(group, plural, object, errors);
}

/// Defaults and validates a changed object, and the change itself.
pub(super) fn prepare_update(group: &str, plural: &str, old: &Value, new: &mut Value, errors: &mut Errors) {
    prepare(group, plural, new, errors);
    match (group, plural) {
        ("scheduling.k8s.io", "priorityclasses") => {
            for field in ["value", "preemptionPolicy"] {
                errors.immutable(field, &old[field], &new[field]);
            }
        }
        ("", "configmaps" | "secrets") if old["immutable"] == true => {
            if new["immutable"] != true {
                errors.forbidden("immutable", "field is immutable when `immutable` is set");
            }
            for field in ["data", "binaryData"] {
                if !super::fields::same(&old[field], &new[field]) {
                    errors.forbidden(field, "field is immutable when `immutable` is set");
                }
            }
        }
        _ => {}
    }
    if (group, plural) == ("", "secrets") {
        errors.immutable("type", &old["type"], &new["type"]);
    }
}

/// Fills in and validates a changed status.
pub(super) fn prepare_status_update(group: &str, plural: &str, new: &mut Value, errors: &mut Errors) {
    if (group, plural) == ("", "nodes") {
        prepare_node(new, errors);
    }
}

fn prepare(group: &str, plural: &str, object: &mut Value, errors: &mut Errors) {
    match (group, plural) {
        ("", "nodes") => prepare_node(object, errors),
        ("", "configmaps") => validate_data(object, &["data", "binaryData"], errors),
        ("", "secrets") => prepare_secret(object, errors),
        ("", "events") => prepare_event(object, errors),
        ("coordination.k8s.io", "leases") => validate_lease(object, errors),
        ("scheduling.k8s.io", "priorityclasses") => prepare_priority_class(object, errors),
        _ => {}
    }
}

fn apply_namespace_defaults(namespace: &mut Value) {
    let name = namespace["metadata"]["name"].clone();
    if let Some(metadata) = object_at(namespace, "metadata") {
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let Some(labels) = labels.as_object_mut() {
            labels.insert("kubernetes.io/metadata.name".to_owned(), name);
        }
    }
    if let Some(status) = object_at(namespace, "status") {
        status.insert("phase".to_owned(), "Active".into());
    }
}

fn prepare_node(node: &mut Value, errors: &mut Errors) {
    for key in ["capacity", "allocatable"] {
        if let Some(list) = node.get_mut("status").and_then(|status| status.get_mut(key)) {
            resources::normalise_list(list);
        }
        resources::validate_list(&node["status"][key], &format!("status.{key}"), errors);
    }
    for (index, taint) in elements(&node["spec"]["taints"]).iter().enumerate() {
        let path = format!("spec.taints[{index}]");
        if !taint["key"].as_str().is_some_and(is_qualified_name) {
            errors.invalid(format!("{path}.key"), QUALIFIED_NAME_RULE);
        }
        let effect = taint["effect"].as_str().unwrap_or_default();
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        errors.one_of(&format!("{path}.effect"), effect, &known);
    }
}

fn prepare_secret(secret: &mut Value, errors: &mut Errors) {
    let Some(fields) = secret.as_object_mut() else { return };
    default_string(fields, "type", "Opaque");
    if let Some(Value::Object(plain)) = fields.remove("stringData") {
        let data = fields.entry("data").or_insert_with(|| Value::Object(Map::new()));
        if data.is_null() {
            *data = Value::Object(Map::new());
        }
        for (key, value) in plain {
            match (data.as_object_mut(), value.as_str()) {
                (Some(data), Some(text)) => {
                    data.insert(key, encode_base64(text.as_bytes()).into());
                }
                _ => errors.invalid(format!("stringData[{key}]"), "must be a string"),
            }
        }
    }
    validate_data(secret, &["data"], errors);
}

fn validate_data(object: &Value, fields: &[&str], errors: &mut Errors) {
    let mut size = 0;
    for field in fields {
        for (key, value) in object[*field].as_object().into_iter().flatten() {
            if !is_data_key(key) {
                let rule = "must be at most 253 letters, digits, '-', '_' or '.'";
                errors.invalid(format!("{field}[{key}]"), rule);
            }
            match value.as_str() {
                Some(text) => size += text.len(),
                None => errors.invalid(format!("{field}[{key}]"), "must be a string"),
            }
        }
    }
    if size > MAX_DATA_BYTES {
        errors.invalid(fields[0], format!("must have at most {MAX_DATA_BYTES} bytes in all"));
    }
    if let [data, binary] = fields {
        for key in object[*data].as_object().into_iter().flatten().map(|(key, _)| key) {
            if !object[*binary][key].is_null() {
                errors.invalid(format!("{data}[{key}]"), format!("must not be in {binary} too"));
            }
        }
    }
}

fn prepare_event(event: &mut Value, errors: &mut Errors) {
    if let Some(fields) = event.as_object_mut() {
        default_string(fields, "type", "Normal");
        default_to(fields, "involvedObject", json!({}));
    }
    let known = ["Normal", "Warning"];
    errors.one_of("type", event["type"].as_str().unwrap_or_default(), &known);
    let involved = event["involvedObject"]["namespace"].as_str().filter(|namespace| !namespace.is_empty());
    let own = event["metadata"]["namespace"].as_str().unwrap_or_default();
    if involved.is_some_and(|involved| involved != own) {
        errors.invalid("involvedObject.namespace", "does not match event.namespace");
    }
}

fn validate_lease(lease: &Value, errors: &mut Errors) {
    let spec = &lease["spec"];
    for (field, least, message) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if !spec[field].is_null() && spec[field].as_i64().is_none_or(|value| value < least) {
            errors.invalid(format!("spec.{field}"), message);
        }
    }
}

fn prepare_priority_class(class: &mut Value, errors: &mut Errors) {
    if let Some(fields) = class.as_object_mut() {
        default_string(fields, "preemptionPolicy", "PreemptLowerPriority");
        default_to(fields, "value", 0);
    }
    let policy = class["preemptionPolicy"].as_str().unwrap_or_default();
    errors.one_of("preemptionPolicy", policy, &["PreemptLowerPriority", "Never"]);
    let system = class["metadata"]["name"].as_str().is_some_and(|name| name.starts_with("system-"));
    match class["value"].as_i64() {
        Some(value) if i32::try_from(value).is_err() => {
            errors.invalid("value", "must fit 32 bits");
        }
        Some(value) if value > HIGHEST_USER_PRIORITY && !system => {
            let message =
                format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
            errors.forbidden("value", message);
        }
        Some(_) => {}
        None => errors.invalid("value", "must be an integer"),
    }
}

fn encode_base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for position in 0..4 {
            let sextet = (group >> (18 - 6 * position)) & 0x3f;
            text.push(if position <= chunk.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(group: &str, plural: &str, mut object: Value) -> (Value, Vec<String>) {
        let mut errors = Errors::default();
        prepare_create(group, plural, &mut object, &mut errors);
        let problems = errors.into_result().err().unwrap_or_default();
        (object, problems.into_iter().map(|error| error.path).collect())
    }

    #[test]
    fn secrets_take_plain_text() {
        let secret = json!({"metadata": {"name": "s"}, "stringData": {"a": "hello", "b": "ab", "c": ""}});
        let (secret, problems) = prepared("", "secrets", secret);
        assert!(problems.is_empty());
        assert_eq!(secret["data"], json!({"a": "aGVsbG8=", "b": "YWI=", "c": ""}));
        assert_eq!(secret["type"], "Opaque");
        assert!(secret.get("stringData").is_none());
    }

    #[test]
    fn namespaces_are_labelled_with_their_name() {
        let (namespace, problems) = prepared("", "namespaces", json!({"metadata": {"name": "team-a"}}));
        assert!(problems.is_empty());
        assert_eq!(namespace["metadata"]["labels"]["kubernetes.io/metadata.name"], "team-a");
        assert_eq!(namespace["status"]["phase"], "Active");
    }

    #[test]
    fn priorities() {
        let class = |value: Value| json!({"metadata": {"name": "p"}, "value": value});
        let group = ("scheduling.k8s.io", "priorityclasses");
        assert!(prepared(group.0, group.1, class(json!(5))).1.is_empty());
        assert_eq!(prepared(group.0, group.1, class(json!(2_000_000_000))).1, ["value"]);
        let mut errors = Errors::default();
        prepare_update(group.0, group.1, &class(json!(5)), &mut class(json!(6)), &mut errors);
        assert!(errors.into_result().is_err());
    }

    #[test]
    fn nodes_events_leases_and_unknown_kinds() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "Odd"}]},
            "status": {"capacity": {"cpu": 4, "memory": "-1"}}});
        let (node, problems) = prepared("", "nodes", node);
        assert_eq!(problems, ["status.capacity[memory]", "spec.taints[0].effect"]);
        assert_eq!(node["status"]["capacity"]["cpu"], "4");
        let event = json!({"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}});
        assert_eq!(prepared("", "events", event).1, ["involvedObject.namespace"]);
        let lease = json!({"metadata": {"name": "l"}, "spec": {"leaseDurationSeconds": 0}});
        assert_eq!(prepared("coordination.k8s.io", "leases", lease).1, ["spec.leaseDurationSeconds"]);
        assert!(prepared("example.com", "things", json!(1)).1.is_empty());
    }
}
