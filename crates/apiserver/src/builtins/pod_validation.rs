//! What a Pod or pod template must be like.

use std::collections::HashSet;

use serde_json::Value;

use super::fields::{Errors, elements};
use super::metadata::{validate_annotations, validate_labels};
use super::names::{DNS_LABEL_RULE, DNS_SUBDOMAIN_RULE, QUALIFIED_NAME_RULE};
use super::resources;
use crate::names::{is_dns_label, is_dns_subdomain, is_qualified_name};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const TOLERATION_EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Validates a Pod.
pub(super) fn validate_pod(pod: &Value, errors: &mut Errors) {
    let spec = &pod["spec"];
    if spec["restartPolicy"].is_string() {
        errors.one_of("spec.restartPolicy", text(spec, "restartPolicy"), &RESTART_POLICIES);
    }
    if !elements(&spec["schedulingGates"]).is_empty() && !text(spec, "nodeName").is_empty() {
        errors.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
    }
    validate_spec(spec, "spec", errors);
}

/// Validates a pod template that stands at `path`.
pub(super) fn validate_template(template: &Value, path: &str, errors: &mut Errors) {
    let metadata = &template["metadata"];
    validate_labels(&metadata["labels"], &format!("{path}.metadata.labels"), errors);
    validate_annotations(&metadata["annotations"], &format!("{path}.metadata.annotations"), errors);
    validate_spec(&template["spec"], &format!("{path}.spec"), errors);
}

fn validate_spec(spec: &Value, path: &str, errors: &mut Errors) {
    if !spec.is_object() {
        errors.required(path, "must be an object");
        return;
    }
    if elements(&spec["containers"]).is_empty() {
        errors.required(format!("{path}.containers"), "must have at least one container");
    }
    let volumes = validate_volumes(spec, path, errors);
    validate_containers(spec, path, &volumes, errors);
    validate_numbers(spec, path, errors);
    validate_labels(&spec["nodeSelector"], &format!("{path}.nodeSelector"), errors);
    for (index, toleration) in elements(&spec["tolerations"]).iter().enumerate() {
        validate_toleration(toleration, &format!("{path}.tolerations[{index}]"), errors);
    }
    validate_gates(spec, path, errors);
    resources::validate(&spec["resources"], &format!("{path}.resources"), errors);
    resources::validate_list(&spec["overhead"], &format!("{path}.overhead"), errors);
    for field in ["schedulerName", "priorityClassName", "serviceAccountName", "nodeName"] {
        let name = text(spec, field);
        if !name.is_empty() && !is_dns_subdomain(name) {
            errors.invalid(format!("{path}.{field}"), DNS_SUBDOMAIN_RULE);
        }
    }
}

fn validate_numbers(spec: &Value, path: &str, errors: &mut Errors) {
    let deadline = &spec["activeDeadlineSeconds"];
    if !deadline.is_null()
        && !deadline.as_i64().is_some_and(|seconds| (1..=i64::from(i32::MAX)).contains(&seconds))
    {
        errors.invalid(format!("{path}.activeDeadlineSeconds"), "must be between 1 and 2147483647");
    }
    let grace = &spec["terminationGracePeriodSeconds"];
    if !grace.is_null() && grace.as_i64().is_none_or(|seconds| seconds < 0) {
        errors.invalid(format!("{path}.terminationGracePeriodSeconds"), "must be greater than or equal to 0");
    }
}

fn validate_volumes<'a>(spec: &'a Value, path: &str, errors: &mut Errors) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    for (index, volume) in elements(&spec["volumes"]).iter().enumerate() {
        let (name, path) = (text(volume, "name"), format!("{path}.volumes[{index}].name"));
        if name.is_empty() {
            errors.required(path, "must not be empty");
        } else if !is_dns_label(name) {
            errors.invalid(path, DNS_LABEL_RULE);
        } else if !names.insert(name) {
            errors.duplicate(path, name);
        }
    }
    names
}

fn validate_containers(spec: &Value, path: &str, volumes: &HashSet<&str>, errors: &mut Errors) {
    let mut names = HashSet::new();
    for key in ["containers", "initContainers"] {
        for (index, container) in elements(&spec[key]).iter().enumerate() {
            let path = format!("{path}.{key}[{index}]");
            let name = text(container, "name");
            if name.is_empty() {
                errors.required(format!("{path}.name"), "must not be empty");
            } else if !is_dns_label(name) {
                errors.invalid(format!("{path}.name"), DNS_LABEL_RULE);
            } else if !names.insert(name) {
                errors.duplicate(format!("{path}.name"), name);
            }
            validate_container(container, &path, volumes, errors);
        }
    }
    for (index, container) in elements(&spec["initContainers"]).iter().enumerate() {
        let policy = &container["restartPolicy"];
        if !policy.is_null() {
            let path = format!("{path}.initContainers[{index}].restartPolicy");
            errors.one_of(&path, policy.as_str().unwrap_or_default(), &RESTART_POLICIES);
        }
    }
}

fn validate_container(container: &Value, path: &str, volumes: &HashSet<&str>, errors: &mut Errors) {
    let image = text(container, "image");
    if image.is_empty() {
        errors.required(format!("{path}.image"), "must not be empty");
    } else if image != image.trim() {
        errors.invalid(format!("{path}.image"), "must not have leading or trailing whitespace");
    }
    errors.one_of(&format!("{path}.imagePullPolicy"), text(container, "imagePullPolicy"), &PULL_POLICIES);
    resources::validate(&container["resources"], &format!("{path}.resources"), errors);
    for (index, variable) in elements(&container["env"]).iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(format!("{path}.name"), "must not be empty");
        } else if name.contains(['=', '\0']) {
            errors.invalid(format!("{path}.name"), "must not contain '=' or a null character");
        }
        if !text(variable, "value").is_empty() && !variable["valueFrom"].is_null() {
            errors.invalid(format!("{path}.valueFrom"), "may not be specified when `value` is not empty");
        }
    }
    validate_ports(container, path, errors);
    validate_mounts(container, path, volumes, errors);
}

fn validate_ports(container: &Value, path: &str, errors: &mut Errors) {
    for (index, port) in elements(&container["ports"]).iter().enumerate() {
        if !port["containerPort"].as_i64().is_some_and(|number| (1..=65535).contains(&number)) {
            errors.invalid(format!("{path}.ports[{index}].containerPort"), "must be between 1 and 65535");
        }
        let path = format!("{path}.ports[{index}].protocol");
        errors.one_of(&path, text(port, "protocol"), &["TCP", "UDP", "SCTP"]);
    }
}

fn validate_mounts(container: &Value, path: &str, volumes: &HashSet<&str>, errors: &mut Errors) {
    let mut mount_paths = HashSet::new();
    for (index, mount) in elements(&container["volumeMounts"]).iter().enumerate() {
        let (name, mount_path) = (text(mount, "name"), text(mount, "mountPath"));
        let path = format!("{path}.volumeMounts[{index}]");
        if !volumes.contains(name) {
            errors.invalid(format!("{path}.name"), format!("there is no volume \"{name}\""));
        }
        if mount_path.is_empty() {
            errors.required(format!("{path}.mountPath"), "must not be empty");
        } else if !mount_paths.insert(mount_path) {
            errors.invalid(format!("{path}.mountPath"), "must be unique");
        }
    }
}

/// Validates one toleration that stands at `path`.
pub(super) fn validate_toleration(toleration: &Value, path: &str, errors: &mut Errors) {
    let key = text(toleration, "key");
    let operator = match text(toleration, "operator") {
        "" => "Equal",
        given => given,
    };
    if !key.is_empty() && !is_qualified_name(key) {
        errors.invalid(format!("{path}.key"), QUALIFIED_NAME_RULE);
    }
    if key.is_empty() && operator != "Exists" {
        errors.invalid(
            format!("{path}.operator"),
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        );
    }
    errors.one_of(&format!("{path}.operator"), operator, &["Equal", "Exists", "Lt", "Gt"]);
    if operator == "Exists" && !text(toleration, "value").is_empty() {
        errors.invalid(format!("{path}.value"), "value must be empty when `operator` is 'Exists'");
    }
    let effect = text(toleration, "effect");
    if !effect.is_empty() {
        errors.one_of(&format!("{path}.effect"), effect, &TOLERATION_EFFECTS);
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        errors
            .invalid(format!("{path}.effect"), "effect must be 'NoExecute' when `tolerationSeconds` is set");
    }
}

fn validate_gates(spec: &Value, path: &str, errors: &mut Errors) {
    let mut names = HashSet::new();
    for (index, gate) in elements(&spec["schedulingGates"]).iter().enumerate() {
        let (name, path) = (text(gate, "name"), format!("{path}.schedulingGates[{index}].name"));
        if !is_qualified_name(name) {
            errors.invalid(path, QUALIFIED_NAME_RULE);
        } else if !names.insert(name) {
            errors.duplicate(path, name);
        }
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::pod_defaults;
    use super::*;

    fn problems(spec: Value) -> Vec<String> {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": spec});
        pod_defaults::apply_to_new_pod(&mut pod);
        let mut errors = Errors::default();
        validate_pod(&pod, &mut errors);
        errors.into_result().err().unwrap_or_default().into_iter().map(|error| error.path).collect()
    }

    fn with_container(extra: Value) -> Value {
        let mut container = json!({"name": "c", "image": "i"});
        for (key, value) in extra.as_object().unwrap() {
            container[key] = value.clone();
        }
        json!({"containers": [container]})
    }

    #[test]
    fn a_plain_pod_is_fine() {
        assert!(problems(with_container(json!({}))).is_empty());
    }

    #[test]
    fn containers_need_name_and_image() {
        assert_eq!(problems(json!({})), ["spec.containers"]);
        assert_eq!(problems(with_container(json!({"name": ""}))), ["spec.containers[0].name"]);
        assert_eq!(problems(with_container(json!({"name": "A_b"}))), ["spec.containers[0].name"]);
        assert_eq!(problems(with_container(json!({"image": " i"}))), ["spec.containers[0].image"]);
        let twins = json!({"containers": [{"name": "c", "image": "i"}, {"name": "c", "image": "i"}]});
        assert_eq!(problems(twins), ["spec.containers[1].name"]);
    }

    #[test]
    fn references_inside_the_pod_must_resolve() {
        let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        assert_eq!(problems(with_container(mounts.clone())), ["spec.containers[0].volumeMounts[0].name"]);
        let mut spec = with_container(mounts);
        spec["volumes"] = json!([{"name": "v"}]);
        assert!(problems(spec).is_empty());
    }

    #[test]
    fn tolerations_gates_and_numbers() {
        let mut spec = with_container(json!({}));
        spec["tolerations"] = json!([{"operator": "Equal"}, {"key": "a", "effect": "Sometimes"}]);
        spec["schedulingGates"] = json!([{"name": "a"}, {"name": "a"}]);
        spec["activeDeadlineSeconds"] = json!(0);
        spec["restartPolicy"] = json!("Perhaps");
        assert_eq!(
            problems(spec),
            [
                "spec.restartPolicy",
                "spec.activeDeadlineSeconds",
                "spec.tolerations[0].operator",
                "spec.tolerations[1].effect",
                "spec.schedulingGates[1].name"
            ]
        );
    }

    #[test]
    fn odd_shapes_are_reported_not_followed() {
        assert_eq!(problems(json!(1)), ["spec"]);
        assert_eq!(problems(json!({"containers": 1})), ["spec.containers"]);
    }
}
