//! How a Job may change, and what its status may say.

use std::collections::HashSet;

use serde_json::Value;

use super::fields::{Errors, at, elements, same};
use super::job;

/// Fields that stay as created.
const IMMUTABLE: [&str; 6] =
    ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];

/// Scheduling directives of a template that may change while the Job is suspended and nothing of it runs.
const SCHEDULING_FIELDS: [&str; 3] = ["nodeSelector", "tolerations", "schedulingGates"];

/// When the template of a suspended Job may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TemplateRule {
    /// When nothing of it runs.
    #[default]
    WhenResting,
    /// As long as it has no start time: the rule before Kubernetes 1.36.
    WithoutStartTime,
}

/// Defaults and validates a changed Job, and the change itself.
pub(super) fn prepare_update(rule: TemplateRule, old: &Value, new: &mut Value, errors: &mut Errors) {
    job::apply_defaults(new);
    job::validate(new, errors);
    let (old_spec, spec) = (&old["spec"], &new["spec"]);
    for field in IMMUTABLE {
        errors.immutable(format!("spec.{field}"), &old_spec[field], &spec[field]);
    }
    validate_completions(old_spec, spec, errors);
    validate_template(rule, old, new, errors);
}

/// Completions may change only for an Indexed Job that is scaled as a whole.
fn validate_completions(old_spec: &Value, spec: &Value, errors: &mut Errors) {
    if old_spec["completions"] == spec["completions"] {
        return;
    }
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    if !elastic || old_spec["completions"].is_null() || spec["completions"].is_null() {
        errors.invalid("spec.completions", "field is immutable");
    }
}

fn validate_template(rule: TemplateRule, old: &Value, new: &Value, errors: &mut Errors) {
    let mut expected = old["spec"]["template"].clone();
    let template = &new["spec"]["template"];
    if template_is_mutable(rule, old) {
        adopt_directives(&mut expected, template);
        if rule == TemplateRule::WhenResting {
            adopt_resources(&mut expected, template);
        }
    }
    if !same(&expected, template) {
        errors.invalid("spec.template", "field is immutable");
    }
}

/// A suspended Job may be fitted to where it will run next, once nothing of it runs where it ran before.
fn template_is_mutable(rule: TemplateRule, job: &Value) -> bool {
    let status = &job["status"];
    let not_started = status["startTime"].is_null();
    if rule == TemplateRule::WithoutStartTime {
        return job["spec"]["suspend"] == true && not_started;
    }
    job["spec"]["suspend"] == true
        && (not_started || has_condition(status, "Suspended"))
        && status["active"].as_i64().unwrap_or_default() == 0
}

/// Takes scheduling directives of `new` over into `template`.
fn adopt_directives(template: &mut Value, new: &Value) {
    if let Some(fields) = template.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Default::default()));
        for key in ["labels", "annotations"] {
            adopt(metadata, &new["metadata"], key);
        }
    }
    let Some(spec) = template.get_mut("spec") else { return };
    let new_spec = &new["spec"];
    for key in SCHEDULING_FIELDS {
        adopt(spec, new_spec, key);
    }
    if let Some(fields) = spec.as_object_mut() {
        let affinity = fields.entry("affinity").or_insert_with(|| Value::Object(Default::default()));
        if affinity.is_null() {
            *affinity = Value::Object(Default::default());
        }
        adopt(affinity, &new_spec["affinity"], "nodeAffinity");
    }
}

/// Takes the containers' resources of `new` over into `template`.
fn adopt_resources(template: &mut Value, new: &Value) {
    let Some(spec) = template.get_mut("spec") else { return };
    let new_spec = &new["spec"];
    for key in ["containers", "initContainers"] {
        let containers = spec.get_mut(key).and_then(Value::as_array_mut);
        for (container, new) in containers.into_iter().flatten().zip(elements(&new_spec[key])) {
            adopt(container, new, "resources");
        }
    }
}

fn adopt(target: &mut Value, source: &Value, key: &str) {
    if let Some(target) = target.as_object_mut() {
        target.insert(key.to_owned(), source[key].clone());
    }
}

/// Whether a status has a condition that is True.
fn has_condition(status: &Value, kind: &str) -> bool {
    elements(&status["conditions"])
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Validates a change of a Job's status: counters, and that what is finished stays finished.
pub(super) fn validate_status(old: &Value, new: &Value, errors: &mut Errors) {
    let (old, status) = (&old["status"], &new["status"]);
    validate_counters(old, status, errors);
    validate_uncounted(status, errors);
    for kind in ["Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"] {
        if has_condition(old, kind) && !has_condition(status, kind) {
            errors.invalid("status.conditions", format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    for (left, right) in [
        ("Complete", "Failed"),
        ("Complete", "FailureTarget"),
        ("SuccessCriteriaMet", "Failed"),
        ("SuccessCriteriaMet", "FailureTarget"),
    ] {
        if has_condition(status, left) && has_condition(status, right) {
            let message = format!("cannot set {left}=True and {right}=True conditions");
            errors.invalid("status.conditions", message);
        }
    }
    for (result, interim) in [("Complete", "SuccessCriteriaMet"), ("Failed", "FailureTarget")] {
        if has_condition(status, result) && !has_condition(old, result) && !has_condition(status, interim) {
            let message = format!("cannot set {result}=True condition without the {interim}=True condition");
            errors.invalid("status.conditions", message);
        }
    }
    validate_finished(old, new, errors);
}

fn validate_counters(old: &Value, status: &Value, errors: &mut Errors) {
    let number = |status: &Value, field: &str| status[field].as_i64().unwrap_or_default();
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        if number(status, field) < 0 {
            errors.invalid(format!("status.{field}"), "must be greater than or equal to 0");
        }
    }
    if number(status, "failed") < number(old, "failed") {
        errors.invalid("status.failed", "cannot decrease the failed counter");
    }
    if number(status, "ready") > number(status, "active") {
        errors.invalid("status.ready", "cannot set more ready pods than active");
    }
}

fn validate_uncounted(status: &Value, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for kind in ["succeeded", "failed"] {
        let uids = elements(at(status, &["uncountedTerminatedPods", kind]));
        for (index, uid) in uids.iter().enumerate() {
            let path = format!("status.uncountedTerminatedPods.{kind}[{index}]");
            match uid.as_str().filter(|uid| !uid.is_empty()) {
                None => errors.invalid(path, "must not be empty"),
                Some(uid) if !seen.insert(uid) => errors.duplicate(path, uid),
                Some(_) => {}
            }
        }
    }
}

fn validate_finished(old: &Value, new: &Value, errors: &mut Errors) {
    let status = &new["status"];
    let complete = has_condition(status, "Complete");
    if !old["completionTime"].is_null() && old["completionTime"] != status["completionTime"] {
        errors.invalid("status.completionTime", "field is immutable");
    }
    if complete == status["completionTime"].is_null() {
        errors.invalid("status.completionTime", "must be set when, and only when, the Job is complete");
    }
    if !complete && !has_condition(status, "Failed") {
        return;
    }
    for field in ["active", "terminating"] {
        if status[field].as_i64().is_some_and(|count| count > 0) {
            errors.invalid(format!("status.{field}"), format!("{field}>0 is invalid for finished job"));
        }
    }
    let never_meant_to_run = new["spec"]["suspend"] == true && new["spec"]["completions"] == 0;
    if status["startTime"].is_null() && !never_meant_to_run {
        errors.required("status.startTime", "startTime is required for finished job");
    }
    let uncounted = &status["uncountedTerminatedPods"];
    if ["succeeded", "failed"].iter().any(|kind| !elements(&uncounted[*kind]).is_empty()) {
        errors.invalid("status.uncountedTerminatedPods", "must be empty for finished job");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn created(change: impl Fn(&mut Value)) -> Value {
        let mut job = job::tests::minimal();
        job::prepare_create(&mut job, &mut Errors::default());
        change(&mut job);
        job
    }

    fn problems(old: &Value, change: impl Fn(&mut Value)) -> Vec<String> {
        let mut new = old.clone();
        change(&mut new);
        let mut errors = Errors::default();
        prepare_update(TemplateRule::WhenResting, old, &mut new, &mut errors);
        errors.into_result().err().unwrap_or_default().into_iter().map(|error| error.path).collect()
    }

    fn status_problems(old: Value, status: Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate_status(&json!({"status": old}), &json!({"status": status}), &mut errors);
        errors.into_result().err().unwrap_or_default().into_iter().map(|error| error.path).collect()
    }

    fn move_pods(job: &mut Value) {
        job["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "b"});
        job["spec"]["template"]["spec"]["tolerations"] = json!([{"key": "spot", "operator": "Exists"}]);
        job["spec"]["template"]["metadata"]["annotations"] = json!({"a": "b"});
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    }

    #[test]
    fn width_and_suspension_may_change() {
        let job = created(|_| {});
        assert!(problems(&job, |job| job["spec"]["parallelism"] = json!(5)).is_empty());
        assert!(problems(&job, |job| job["spec"]["suspend"] = json!(true)).is_empty());
        assert_eq!(problems(&job, |job| job["spec"]["completions"] = json!(5)), ["spec.completions"]);
        let image =
            |job: &mut Value| job["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x:1");
        assert_eq!(problems(&job, image), ["spec.template"]);
    }

    #[test]
    fn the_template_of_a_resting_suspended_job_may_move() {
        let suspended = |status: Value| {
            created(move |job| {
                job["spec"]["suspend"] = json!(true);
                job["status"] = status.clone();
            })
        };
        let condition = json!([{"type": "Suspended", "status": "True"}]);
        assert!(problems(&suspended(json!({})), move_pods).is_empty());
        assert!(
            problems(&suspended(json!({"startTime": "t", "conditions": condition})), move_pods).is_empty()
        );
        for status in
            [json!({"startTime": "t"}), json!({"startTime": "t", "conditions": condition, "active": 1})]
        {
            assert_eq!(problems(&suspended(status), move_pods), ["spec.template"]);
        }
        assert_eq!(problems(&created(|_| {}), move_pods), ["spec.template"]);
        let image =
            |job: &mut Value| job["spec"]["template"]["spec"]["containers"][0]["image"] = json!("x:1");
        assert_eq!(problems(&suspended(json!({})), image), ["spec.template"]);
    }

    #[test]
    fn a_start_time_locks_the_template_where_the_older_rule_holds() {
        let stopped = |status: Value| {
            created(move |job| {
                job["spec"]["suspend"] = json!(true);
                job["status"] = status.clone();
            })
        };
        let refused = |old: &Value, change: fn(&mut Value)| {
            let (mut new, mut errors) = (old.clone(), Errors::default());
            change(&mut new);
            prepare_update(TemplateRule::WithoutStartTime, old, &mut new, &mut errors);
            errors.into_result().is_err()
        };
        let select = |job: &mut Value| job["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "b"});
        let suspended = json!([{"type": "Suspended", "status": "True"}]);
        assert!(refused(&stopped(json!({"startTime": "t", "conditions": suspended})), select));
        assert!(!refused(&stopped(json!({"conditions": suspended})), select));
        assert!(refused(&stopped(json!({})), move_pods), "resources stay as created");
    }

    #[test]
    fn finished_is_final() {
        let complete = json!({
            "startTime": "t", "completionTime": "t", "succeeded": 1,
            "conditions": [
                {"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"},
            ],
        });
        let interim =
            json!({"startTime": "t", "conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]});
        assert!(status_problems(interim.clone(), complete.clone()).is_empty());
        assert!(!status_problems(complete.clone(), interim.clone()).is_empty());
        let mut active = complete.clone();
        active["active"] = json!(1);
        assert_eq!(status_problems(interim, active), ["status.active"]);
        let unannounced = json!({"startTime": "t", "conditions": [{"type": "Failed", "status": "True"}]});
        assert_eq!(status_problems(json!({}), unannounced), ["status.conditions"]);
    }

    #[test]
    fn counters_make_sense() {
        assert_eq!(status_problems(json!({"failed": 2}), json!({"failed": 1})), ["status.failed"]);
        assert_eq!(status_problems(json!({}), json!({"ready": 1})), ["status.ready"]);
        let twice = json!({"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}});
        assert_eq!(status_problems(json!({}), twice), ["status.uncountedTerminatedPods.failed[0]"]);
    }
}
