//! How a Pod may change.

use serde_json::Value;

use super::fields::{Errors, elements, same};
use super::{pod_defaults, pod_validation};

/// Defaults and validates a changed Pod, and the change itself.
pub(super) fn prepare_update(old: &Value, new: &mut Value, errors: &mut Errors) {
    pod_defaults::apply_to_pod(new);
    pod_validation::validate_pod(new, errors);
    validate_gates_only_shrink(old, new, errors);
    validate_tolerations_only_grow(old, new, errors);
    validate_deadline_only_shrinks(old, new, errors);
    let comparable = with_mutable_fields_of(old, new);
    if !same(&comparable, &old["spec"]) {
        errors.forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`, \
             `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to \
             existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)",
        );
    }
}

/// The new spec with the fields that may change set back to what they were.
fn with_mutable_fields_of(old: &Value, new: &Value) -> Value {
    let (old_spec, mut spec) = (&old["spec"], new["spec"].clone());
    let gated = !elements(&old_spec["schedulingGates"]).is_empty();
    let mut restore = vec!["activeDeadlineSeconds", "tolerations", "schedulingGates"];
    if gated {
        // A Pod that waits at a gate has no node yet, so where it may go can still be narrowed.
        restore.extend(["nodeSelector", "affinity"]);
    }
    for key in restore {
        if let Some(fields) = spec.as_object_mut() {
            fields.insert(key.to_owned(), old_spec[key].clone());
        }
    }
    for key in ["containers", "initContainers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut);
        for (container, old) in containers.into_iter().flatten().zip(elements(&old_spec[key])) {
            if let Some(container) = container.as_object_mut() {
                container.insert("image".to_owned(), old["image"].clone());
            }
        }
    }
    spec
}

fn validate_gates_only_shrink(old: &Value, new: &Value, errors: &mut Errors) {
    let old_gates = elements(&old["spec"]["schedulingGates"]);
    for gate in elements(&new["spec"]["schedulingGates"]) {
        if !old_gates.contains(gate) {
            errors
                .forbidden("spec.schedulingGates", "only deletion is allowed, but found new scheduling gate");
        }
    }
}

fn validate_tolerations_only_grow(old: &Value, new: &Value, errors: &mut Errors) {
    let new_tolerations = elements(&new["spec"]["tolerations"]);
    for toleration in elements(&old["spec"]["tolerations"]) {
        if !new_tolerations.contains(toleration) {
            errors.forbidden(
                "spec.tolerations",
                "existing toleration can not be modified except its tolerationSeconds",
            );
        }
    }
}

fn validate_deadline_only_shrinks(old: &Value, new: &Value, errors: &mut Errors) {
    let deadline = |pod: &Value| pod["spec"]["activeDeadlineSeconds"].as_i64();
    match (deadline(old), deadline(new)) {
        (Some(_), None) => errors.invalid("spec.activeDeadlineSeconds", "must not be removed once set"),
        (Some(old), Some(new)) if new > old => {
            errors.invalid("spec.activeDeadlineSeconds", "must be less than or equal to previous value");
        }
        _ => {}
    }
}

/// Validates a Pod's status.
pub(super) fn validate_status(new: &Value, errors: &mut Errors) {
    let phase = &new["status"]["phase"];
    if !phase.is_null() {
        let known = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
        errors.one_of("status.phase", phase.as_str().unwrap_or_default(), &known);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(change: impl Fn(&mut Value)) -> Value {
        let mut pod = json!({
            "metadata": {"name": "p"},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "tolerations": [{"key": "a", "operator": "Exists"}],
                "schedulingGates": [{"name": "g"}],
            },
        });
        pod_defaults::apply_to_new_pod(&mut pod);
        change(&mut pod);
        pod
    }

    fn problems(old: Value, change: impl Fn(&mut Value)) -> Vec<String> {
        let mut errors = Errors::default();
        prepare_update(&old, &mut pod(change), &mut errors);
        errors.into_result().err().unwrap_or_default().into_iter().map(|error| error.path).collect()
    }

    #[test]
    fn what_may_change() {
        let old = || pod(|_| {});
        assert!(problems(old(), |_| {}).is_empty());
        assert!(problems(old(), |pod| pod["spec"]["containers"][0]["image"] = json!("j")).is_empty());
        assert!(problems(old(), |pod| pod["spec"]["schedulingGates"] = json!([])).is_empty());
        assert!(problems(old(), |pod| pod["spec"]["activeDeadlineSeconds"] = json!(5)).is_empty());
        assert!(problems(old(), |pod| pod["spec"]["nodeSelector"] = json!({"a": "b"})).is_empty());
    }

    #[test]
    fn what_may_not_change() {
        let old = || pod(|_| {});
        assert_eq!(problems(old(), |pod| pod["spec"]["containers"][0]["command"] = json!(["x"])), ["spec"]);
        assert_eq!(problems(old(), |pod| pod["spec"]["tolerations"] = json!([])), ["spec.tolerations"]);
        let more_gates =
            |pod: &mut Value| pod["spec"]["schedulingGates"] = json!([{"name": "g"}, {"name": "h"}]);
        assert_eq!(problems(old(), more_gates), ["spec.schedulingGates"]);
        let ungated = pod(|pod| pod["spec"]["schedulingGates"] = json!([]));
        let moved = |pod: &mut Value| {
            pod["spec"]["schedulingGates"] = json!([]);
            pod["spec"]["nodeSelector"] = json!({"a": "b"});
        };
        assert_eq!(problems(ungated, moved), ["spec"]);
    }
}
