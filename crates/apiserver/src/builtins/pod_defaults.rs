//! What a Pod or pod template has when its author did not say.

use serde_json::{Map, Value, json};

use super::fields::{default_string, default_to, object_at, objects_mut};
use super::resources;

/// Mode 0644: what files of volumes get.
const DEFAULT_FILE_MODE: i64 = 0o644;

/// Defaults of a new Pod, its status included.
pub(super) fn apply_to_new_pod(pod: &mut Value) {
    apply_to_pod(pod);
    let class = resources::quality_of_service(&pod["spec"]);
    if let Some(pod) = pod.as_object_mut() {
        pod.insert("status".to_owned(), json!({"phase": "Pending", "qosClass": class}));
    }
}

/// Defaults of a Pod's spec: those of a template, and those that only Pods get.
pub(super) fn apply_to_pod(pod: &mut Value) {
    let Some(spec) = object_at(pod, "spec") else { return };
    apply_to_spec(spec);
    default_to(spec, "enableServiceLinks", true);
    for key in ["containers", "initContainers"] {
        for container in objects_mut(spec, key) {
            if let Some(resources) = container.get_mut("resources") {
                resources::requests_from_limits(resources);
            }
        }
    }
    if spec.get("priorityClassName").and_then(Value::as_str).is_none_or(str::is_empty) {
        default_to(spec, "priority", 0);
        default_string(spec, "preemptionPolicy", "PreemptLowerPriority");
    }
}

/// Defaults of a pod spec, in a Pod or in a template.
pub(super) fn apply_to_spec(spec: &mut Map<String, Value>) {
    default_string(spec, "restartPolicy", "Always");
    default_to(spec, "terminationGracePeriodSeconds", 30);
    default_string(spec, "dnsPolicy", "ClusterFirst");
    default_to(spec, "securityContext", json!({}));
    default_string(spec, "schedulerName", "default-scheduler");
    if let Some(resources) = spec.get_mut("resources") {
        resources::normalise(resources);
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        resources::normalise_list(overhead);
    }
    for key in ["containers", "initContainers", "ephemeralContainers"] {
        objects_mut(spec, key).for_each(apply_to_container);
    }
    objects_mut(spec, "volumes").for_each(apply_to_volume);
}

fn apply_to_container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = if names_latest_tag(image) { "Always" } else { "IfNotPresent" };
    default_string(container, "imagePullPolicy", policy);
    default_string(container, "terminationMessagePath", "/dev/termination-log");
    default_string(container, "terminationMessagePolicy", "File");
    default_to(container, "resources", json!({}));
    if let Some(resources) = container.get_mut("resources") {
        resources::normalise(resources);
    }
    for port in objects_mut(container, "ports") {
        default_string(port, "protocol", "TCP");
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(key).and_then(Value::as_object_mut) {
            apply_to_probe(probe);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(http) = container.get_mut("lifecycle").and_then(|lifecycle| lifecycle.get_mut(hook)) {
            apply_to_http_get(http.get_mut("httpGet"));
        }
    }
    for variable in objects_mut(container, "env") {
        let field = variable.get_mut("valueFrom").and_then(|from| from.get_mut("fieldRef"));
        if let Some(field) = field.and_then(Value::as_object_mut) {
            default_string(field, "apiVersion", "v1");
        }
    }
}

/// An image without tag and digest means the latest one, which may have changed since it was pulled.
fn names_latest_tag(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn apply_to_probe(probe: &mut Map<String, Value>) {
    for (key, value) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(key).and_then(Value::as_i64).unwrap_or_default() == 0 {
            probe.insert(key.to_owned(), value.into());
        }
    }
    apply_to_http_get(probe.get_mut("httpGet"));
}

fn apply_to_http_get(action: Option<&mut Value>) {
    if let Some(action) = action.and_then(Value::as_object_mut) {
        default_string(action, "path", "/");
        default_string(action, "scheme", "HTTP");
    }
}

fn apply_to_volume(volume: &mut Map<String, Value>) {
    if volume.iter().all(|(key, source)| key == "name" || source.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(key).and_then(Value::as_object_mut) {
            default_to(source, "defaultMode", DEFAULT_FILE_MODE);
        }
    }
    if let Some(source) = volume.get_mut("hostPath").and_then(Value::as_object_mut) {
        default_to(source, "type", "");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_pod_gets_its_defaults() {
        let mut pod = json!({"spec": {"containers": [{"name": "c", "image": "busybox"}]}});
        apply_to_new_pod(&mut pod);
        let expected = json!({
            "spec": {
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
                "securityContext": {}, "schedulerName": "default-scheduler", "enableServiceLinks": true,
                "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
                "containers": [{
                    "name": "c", "image": "busybox", "imagePullPolicy": "Always", "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                }],
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        });
        assert_eq!(pod, expected);
    }

    #[test]
    fn limits_become_requests_and_numbers_become_text() {
        let resources = json!({"limits": {"cpu": 2, "memory": "1Gi"}, "requests": {"cpu": 1}});
        let mut pod = json!({"spec": {"containers": [{"resources": resources}]}});
        apply_to_new_pod(&mut pod);
        let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
        assert_eq!(requests, &json!({"cpu": "1", "memory": "1Gi"}));
    }

    #[test]
    fn pull_policy_follows_the_tag() {
        for (image, latest) in [
            ("busybox", true),
            ("registry:5000/busybox", true),
            ("busybox:latest", true),
            ("busybox:1.36", false),
            ("busybox@sha256:00", false),
        ] {
            assert_eq!(names_latest_tag(image), latest, "{image}");
        }
    }

    #[test]
    fn odd_shapes_are_left_alone() {
        for mut pod in [json!(1), json!({"spec": 1}), json!({"spec": {"containers": [1, {"resources": 1}]}})]
        {
            apply_to_pod(&mut pod);
        }
    }
}
