//! Jobs: defaults, the generated selector, and what a Job must be like.

use serde_json::{Map, Value, json};

use super::fields::{Errors, at, default_string, default_to, elements, object_at};
use super::{pod_defaults, pod_validation};
use crate::names::is_dns_label;

const CONTROLLER_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
const LEGACY_CONTROLLER_UID_LABEL: &str = "controller-uid";
const LEGACY_JOB_NAME_LABEL: &str = "job-name";

const DEFAULT_BACKOFF_LIMIT: i64 = 6;
/// Indexed Jobs report every index, so their width is bounded.
const MAX_INDEXED_PARALLELISM: i64 = 100_000;

/// Defaults and validates a new Job.
pub(super) fn prepare_create(job: &mut Value, errors: &mut Errors) {
    if let Some(fields) = job.as_object_mut() {
        fields.insert("status".to_owned(), json!({}));
    }
    apply_defaults(job);
    generate_selector(job);
    validate_generated_selector(job, errors);
    validate(job, errors);
}

/// Fills in what the author of the Job did not say.
pub(super) fn apply_defaults(job: &mut Value) {
    let template_labels = at(job, &["spec", "template", "metadata", "labels"]).clone();
    let Some(spec) = object_at(job, "spec") else { return };
    let absent = |spec: &Map<String, Value>, key: &str| spec.get(key).is_none_or(Value::is_null);
    if absent(spec, "completions") && absent(spec, "parallelism") {
        spec.insert("completions".to_owned(), 1.into());
    }
    default_to(spec, "parallelism", 1);
    let limit =
        if absent(spec, "backoffLimitPerIndex") { DEFAULT_BACKOFF_LIMIT } else { i64::from(i32::MAX) };
    default_to(spec, "backoffLimit", limit);
    default_to(spec, "completionMode", "NonIndexed");
    default_to(spec, "suspend", false);
    let replacement = if absent(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    default_to(spec, "podReplacementPolicy", replacement);
    default_to(spec, "manualSelector", false);
    apply_policy_defaults(spec);
    if let Some(template) = spec.get_mut("template").and_then(|template| object_at(template, "spec")) {
        pod_defaults::apply_to_spec(template);
    }
    if template_labels.as_object().is_some_and(|labels| !labels.is_empty())
        && let Some(metadata) = object_at(job, "metadata")
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
    {
        metadata.insert("labels".to_owned(), template_labels);
    }
}

fn apply_policy_defaults(spec: &mut Map<String, Value>) {
    let rules = spec.get_mut("podFailurePolicy").and_then(|policy| policy.get_mut("rules"));
    for rule in rules.and_then(Value::as_array_mut).into_iter().flatten() {
        let patterns = rule.get_mut("onPodConditions").and_then(Value::as_array_mut);
        for pattern in patterns.into_iter().flatten().filter_map(Value::as_object_mut) {
            default_string(pattern, "status", "True");
        }
    }
}

/// Makes the Job's pods recognisable by labels that only they have, unless the author took charge of that.
fn generate_selector(job: &mut Value) {
    let (name, uid) = (job["metadata"]["name"].clone(), job["metadata"]["uid"].clone());
    if at(job, &["spec", "manualSelector"]) == true {
        return;
    }
    let Some(spec) = object_at(job, "spec") else { return };
    let template = spec.entry("template").or_insert_with(|| json!({}));
    if object_at(template, "metadata").is_some()
        && let Some(labels) = object_at(&mut template["metadata"], "labels")
    {
        for (label, value) in [
            (LEGACY_JOB_NAME_LABEL, &name),
            (JOB_NAME_LABEL, &name),
            (LEGACY_CONTROLLER_UID_LABEL, &uid),
            (CONTROLLER_UID_LABEL, &uid),
        ] {
            labels.entry(label).or_insert_with(|| value.clone());
        }
    }
    let selector = spec.entry("selector").or_insert_with(|| json!({}));
    if selector.is_null() {
        *selector = json!({});
    }
    if let Some(labels) = object_at(selector, "matchLabels") {
        labels.entry(CONTROLLER_UID_LABEL).or_insert(uid);
    }
}

/// Labels and selector that the author set by hand must agree with the generated ones.
fn validate_generated_selector(job: &Value, errors: &mut Errors) {
    if at(job, &["spec", "manualSelector"]) == true {
        return;
    }
    let (name, uid) = (&job["metadata"]["name"], &job["metadata"]["uid"]);
    let labels = at(job, &["spec", "template", "metadata", "labels"]);
    for (label, expected) in [
        (LEGACY_CONTROLLER_UID_LABEL, uid),
        (LEGACY_JOB_NAME_LABEL, name),
        (CONTROLLER_UID_LABEL, uid),
        (JOB_NAME_LABEL, name),
    ] {
        if &labels[label] != expected {
            let path = format!("spec.template.metadata.labels[{label}]");
            errors.invalid(path, format!("must be {expected}, or unset to be filled in"));
        }
    }
    let selected = at(job, &["spec", "selector", "matchLabels"]);
    if &selected[CONTROLLER_UID_LABEL] != uid {
        errors.invalid("spec.selector", "`selector` not auto-generated");
    }
}

/// Validates a defaulted Job, new or changed.
pub(super) fn validate(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    validate_numbers(spec, errors);
    validate_modes(job, errors);
    let template = &spec["template"];
    pod_validation::validate_template(template, "spec.template", errors);
    validate_restart_policy(spec, errors);
    if !spec["selector"].is_object() {
        errors.required("spec.selector", "must be set when manualSelector is true");
    } else if !selector_matches(&spec["selector"], &template["metadata"]["labels"]) {
        errors.invalid("spec.template.metadata.labels", "`selector` does not match template `labels`");
    }
}

fn validate_numbers(spec: &Value, errors: &mut Errors) {
    for (field, largest) in [
        ("parallelism", i64::from(i32::MAX)),
        ("completions", i64::from(i32::MAX)),
        ("backoffLimit", i64::from(i32::MAX)),
        ("ttlSecondsAfterFinished", i64::from(i32::MAX)),
        ("backoffLimitPerIndex", i64::from(i32::MAX)),
        ("maxFailedIndexes", i64::from(i32::MAX)),
        ("activeDeadlineSeconds", i64::MAX),
    ] {
        let path = || format!("spec.{field}");
        match &spec[field] {
            Value::Null => {}
            number => match number.as_i64() {
                Some(value) if value < 0 => errors.invalid(path(), "must be greater than or equal to 0"),
                Some(value) if value > largest => {
                    errors.invalid(path(), format!("must be less than or equal to {largest}"));
                }
                Some(_) => {}
                None => errors.invalid(path(), "must be an integer"),
            },
        }
    }
}

fn validate_modes(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    let mode = spec["completionMode"].as_str().unwrap_or_default();
    errors.one_of("spec.completionMode", mode, &["NonIndexed", "Indexed"]);
    let replacement = spec["podReplacementPolicy"].as_str().unwrap_or_default();
    let with_failure_policy = !spec["podFailurePolicy"].is_null();
    let known: &[&str] = if with_failure_policy { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    errors.one_of("spec.podReplacementPolicy", replacement, known);
    if mode == "Indexed" {
        validate_indexed(job, errors);
    } else {
        for field in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
            if !spec[field].is_null() {
                errors.invalid(format!("spec.{field}"), "requires indexed completion mode");
            }
        }
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified");
    }
}

fn validate_indexed(job: &Value, errors: &mut Errors) {
    let spec = &job["spec"];
    if spec["parallelism"].as_i64().is_some_and(|parallelism| parallelism > MAX_INDEXED_PARALLELISM) {
        let message = format!(
            "must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is Indexed"
        );
        errors.invalid("spec.parallelism", message);
    }
    match spec["completions"].as_i64() {
        None => errors.required("spec.completions", "when completion mode is Indexed"),
        Some(completions) if completions > 0 => {
            let name = job["metadata"]["name"].as_str().unwrap_or_default();
            let longest = format!("{name}-{}", completions - 1);
            if !is_dns_label(&longest) {
                let message = format!("will not able to create pod with invalid DNS label: {longest}");
                errors.invalid("metadata.name", message);
            }
        }
        Some(_) => {}
    }
}

fn validate_restart_policy(spec: &Value, errors: &mut Errors) {
    let path = "spec.template.spec.restartPolicy";
    match at(spec, &["template", "spec", "restartPolicy"]).as_str().unwrap_or_default() {
        "" | "Always" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            errors.invalid(path, "only \"Never\" is supported when podFailurePolicy is specified");
        }
        other => errors.one_of(path, other, &["OnFailure", "Never"]),
    }
}

/// Whether a label selector selects something with `labels`.
fn selector_matches(selector: &Value, labels: &Value) -> bool {
    let required = selector["matchLabels"].as_object().into_iter().flatten();
    let plain = required.into_iter().all(|(key, value)| &labels[key] == value);
    plain
        && elements(&selector["matchExpressions"])
            .iter()
            .all(|expression| expression_matches(expression, labels))
}

fn expression_matches(expression: &Value, labels: &Value) -> bool {
    let value = expression["key"].as_str().map_or(&Value::Null, |key| &labels[key]);
    let listed = elements(&expression["values"]).contains(value);
    match expression["operator"].as_str() {
        Some("In") => listed,
        Some("NotIn") => !listed,
        Some("Exists") => !value.is_null(),
        Some("DoesNotExist") => value.is_null(),
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn minimal() -> Value {
        json!({
            "metadata": {"name": "j", "namespace": "default", "uid": "u-1"},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "i:1"}],
            }}},
        })
    }

    fn prepared(change: impl Fn(&mut Value)) -> (Value, Vec<String>) {
        let mut job = minimal();
        change(&mut job);
        let mut errors = Errors::default();
        prepare_create(&mut job, &mut errors);
        let problems = errors.into_result().err().unwrap_or_default();
        (job, problems.into_iter().map(|error| error.path).collect())
    }

    #[test]
    fn defaults_and_selector() {
        let (job, problems) = prepared(|_| {});
        assert!(problems.is_empty(), "{problems:?}");
        let spec = &job["spec"];
        for (field, value) in [
            ("parallelism", json!(1)),
            ("completions", json!(1)),
            ("backoffLimit", json!(6)),
            ("completionMode", json!("NonIndexed")),
            ("suspend", json!(false)),
            ("podReplacementPolicy", json!("TerminatingOrFailed")),
            ("manualSelector", json!(false)),
            ("selector", json!({"matchLabels": {CONTROLLER_UID_LABEL: "u-1"}})),
        ] {
            assert_eq!(spec[field], value, "{field}");
        }
        let labels = json!({
            "controller-uid": "u-1", "job-name": "j",
            CONTROLLER_UID_LABEL: "u-1", JOB_NAME_LABEL: "j",
        });
        assert_eq!(spec["template"]["metadata"]["labels"], labels);
        assert_eq!(job["metadata"]["labels"], Value::Null, "only labels of the author become the Job's");
    }

    #[test]
    fn completions_and_parallelism_depend_on_each_other() {
        let (job, _) = prepared(|job| job["spec"]["parallelism"] = json!(3));
        assert_eq!(job["spec"]["completions"], Value::Null, "a work queue");
        let (job, _) = prepared(|job| job["spec"]["completions"] = json!(3));
        assert_eq!(job["spec"]["parallelism"], 1);
    }

    #[test]
    fn bad_jobs_are_refused_by_field() {
        type Change = fn(&mut Value);
        let cases: [(Change, &[&str]); 8] = [
            (|job| job["spec"]["parallelism"] = json!(-1), &["spec.parallelism"]),
            (|job| job["spec"]["completions"] = json!(1_i64 << 40), &["spec.completions"]),
            (|job| job["spec"]["backoffLimit"] = json!("many"), &["spec.backoffLimit"]),
            (|job| job["spec"]["completionMode"] = json!("Odd"), &["spec.completionMode"]),
            (
                |job| job["spec"]["template"]["spec"]["restartPolicy"] = json!("Always"),
                &["spec.template.spec.restartPolicy"],
            ),
            (
                |job| {
                    let spec = job["spec"]["template"]["spec"].as_object_mut().unwrap();
                    spec.remove("restartPolicy");
                },
                &["spec.template.spec.restartPolicy"],
            ),
            (
                |job| job["spec"]["template"]["spec"]["containers"] = json!([]),
                &["spec.template.spec.containers"],
            ),
            (|job| job["spec"]["manualSelector"] = json!(true), &["spec.selector"]),
        ];
        for (change, expected) in cases {
            assert_eq!(prepared(change).1, expected);
        }
    }

    #[test]
    fn odd_shapes_do_not_panic() {
        for mut job in
            [json!(1), json!({}), json!({"spec": 1}), json!({"spec": {"template": 1, "selector": 1}})]
        {
            let mut errors = Errors::default();
            prepare_create(&mut job, &mut errors);
            assert!(errors.into_result().is_err());
        }
    }
}
