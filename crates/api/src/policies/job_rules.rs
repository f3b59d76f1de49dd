//! What may not be done to a `batch/v1` Job, each rule once as CEL for a cluster and once as Rust for the embedded API.
//!
//! Rules ratchet: what an object said before it may go on saying, so that no rule ever keeps somebody from
//! taking a finalizer off.

use serde_json::Value;

use crate::names::{
    ADMISSION_GATED_BY_ANNOTATION as GATES, ELASTIC_JOB_ANNOTATION as ELASTIC,
    JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION as EQUAL, JOB_MIN_PARALLELISM_ANNOTATION as LEAST,
    MAX_EXEC_TIME_LABEL as MAX_TIME, PREBUILT_WORKLOAD as PREBUILT, PRIORITY_CLASS_LABEL as CLASS,
    QUEUE_NAME_LABEL as QUEUE,
};

/// One rule.
pub struct Rule {
    /// For tests and for people who read the table.
    pub name: &'static str,
    /// What is wrong, why, and what to try.
    pub message: &'static str,
    /// True where the rule is kept; uses the [`variables`].
    pub cel: String,
    /// The same in Rust.
    pub is_kept: fn(&Change<'_>) -> bool,
}

/// A Job that is created or changed.
#[derive(Clone, Copy)]
pub struct Change<'v> {
    /// Before; none where it is created.
    pub old: Option<&'v Value>,
    /// After.
    pub new: &'v Value,
}

/// Texts of one object, by key.
#[derive(Clone, Copy)]
struct Texts<'v>(Option<&'v Value>);

impl<'v> Texts<'v> {
    fn get(self, key: &str) -> Option<&'v str> {
        self.0?.get(key)?.as_str()
    }

    /// Empty where there is none.
    fn value(self, key: &str) -> &'v str {
        self.get(key).unwrap_or_default()
    }
}

fn labels(object: &Value) -> Texts<'_> {
    Texts(object.pointer("/metadata/labels"))
}

fn annotations(object: &Value) -> Texts<'_> {
    Texts(object.pointer("/metadata/annotations"))
}

fn number(object: &Value, field: &str, default: Option<i64>) -> Option<i64> {
    object.pointer(&format!("/spec/{field}")).and_then(Value::as_i64).or(default)
}

impl Change<'_> {
    fn is_creation(&self) -> bool {
        self.old.is_none()
    }

    fn is_suspended(&self) -> bool {
        self.new.pointer("/spec/suspend") == Some(&Value::Bool(true))
    }

    fn was_suspended(&self) -> bool {
        self.old.is_some_and(|old| old.pointer("/spec/suspend") == Some(&Value::Bool(true)))
    }

    fn label(&self, key: &str) -> &str {
        labels(self.new).value(key)
    }

    fn old_label(&self, key: &str) -> &str {
        self.old.map_or("", |old| labels(old).value(key))
    }

    fn annotation(&self, key: &str) -> &str {
        annotations(self.new).value(key)
    }

    fn old_annotation(&self, key: &str) -> &str {
        self.old.map_or("", |old| annotations(old).value(key))
    }

    fn has_same_label(&self, key: &str) -> bool {
        self.old.is_some_and(|old| labels(old).get(key) == labels(self.new).get(key))
    }

    fn has_same_annotation(&self, key: &str) -> bool {
        self.old.is_some_and(|old| annotations(old).get(key) == annotations(self.new).get(key))
    }

    fn parallelism(&self) -> i64 {
        number(self.new, "parallelism", Some(1)).unwrap_or(1)
    }

    fn completions(&self) -> Option<i64> {
        number(self.new, "completions", None)
    }

    fn pods(&self) -> i64 {
        self.completions().map_or(self.parallelism(), |completions| completions.min(self.parallelism()))
    }

    fn has_same_size(&self) -> bool {
        let same = |field: &str| self.old.map(|old| old.pointer(field)) == Some(self.new.pointer(field));
        ["/spec/parallelism", "/spec/completions", "/spec/completionMode"].into_iter().all(same)
    }

    fn template_annotations(&self) -> usize {
        let annotations = Texts(self.new.pointer("/spec/template/metadata/annotations"));
        TOPOLOGIES.iter().filter(|key| annotations.get(key).is_some()).count()
    }

    fn gates(&self) -> Vec<&str> {
        gates(self.annotation(GATES))
    }
}

/// An empty text names none.
fn gates(text: &str) -> Vec<&str> {
    if text.is_empty() { Vec::new() } else { text.split(',').collect() }
}

const TOPOLOGIES: [&str; 3] = [
    "kueue.x-k8s.io/podset-required-topology",
    "kueue.x-k8s.io/podset-preferred-topology",
    "kueue.x-k8s.io/podset-unconstrained-topology",
];

const GATE_LENGTH_MAX: usize = 63;
const NAME_LENGTH_MAX: usize = 253;

fn is_alphanumeric(text: &str, more: &str, upper: bool) -> bool {
    let is_end = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase() || (upper && c.is_ascii_uppercase());
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(|c| is_end(c) || more.contains(c))
}

/// A DNS subdomain, as names of objects are.
fn is_subdomain(text: &str) -> bool {
    text.len() <= NAME_LENGTH_MAX && text.split('.').all(|part| is_alphanumeric(part, "-", false))
}

fn is_gate(text: &str) -> bool {
    let Some((domain, name)) = text.split_once('/') else { return false };
    text.len() <= GATE_LENGTH_MAX && is_subdomain(domain) && is_alphanumeric(name, "-_.", true)
}

/// A whole number of at most nine digits, so that it fits everywhere.
fn is_count(text: &str) -> bool {
    (1..=9).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_digit()) && !text.starts_with('0')
}

const SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const GATE: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$";
const COUNT: &str = "^[1-9][0-9]{0,8}$";

/// The names that the rules use, and what they stand for; a later one may use earlier ones.
pub fn variables() -> Vec<(&'static str, String)> {
    let texts = |of: &str, field: &str| format!("has({of}.{field}) ? {of}.{field} : {{}}");
    let old_texts =
        |field: &str| format!("oldObject != null && has(oldObject.{field}) ? oldObject.{field} : {{}}");
    let suspended = |of: &str| format!("has({of}.spec.suspend) && {of}.spec.suspend");
    vec![
        ("isCreation", "oldObject == null".to_owned()),
        ("labels", texts("object", "metadata.labels")),
        ("oldLabels", old_texts("metadata.labels")),
        ("annotations", texts("object", "metadata.annotations")),
        ("oldAnnotations", old_texts("metadata.annotations")),
        ("isSuspended", suspended("object")),
        ("wasSuspended", format!("oldObject != null && {}", suspended("oldObject"))),
        ("parallelism", "has(object.spec.parallelism) ? object.spec.parallelism : 1".to_owned()),
        (
            "pods",
            "has(object.spec.completions) && object.spec.completions < variables.parallelism ? \
             object.spec.completions : variables.parallelism"
                .to_owned(),
        ),
        ("hasSameSize", format!("oldObject != null && {}", same_size())),
        (
            "templateAnnotations",
            "has(object.spec.template.metadata) && has(object.spec.template.metadata.annotations) ? \
             object.spec.template.metadata.annotations : {}"
                .to_owned(),
        ),
    ]
}

fn same_size() -> String {
    let same = |field: &str| {
        format!(
            "(has(object.spec.{field}) ? has(oldObject.spec.{field}) && object.spec.{field} == oldObject.spec.{field} : \
             !has(oldObject.spec.{field}))"
        )
    };
    ["parallelism", "completions", "completionMode"].map(same).join(" && ")
}

/// The value of a label or an annotation, empty where there is none.
fn value(map: &str, key: &str) -> String {
    format!("('{key}' in variables.{map} ? variables.{map}['{key}'] : '')")
}

fn same(new: &str, old: &str, key: &str) -> String {
    format!(
        "(!variables.isCreation && ('{key}' in variables.{new}) == ('{key}' in variables.{old}) && {} == {})",
        value(new, key),
        value(old, key)
    )
}

fn same_label(key: &str) -> String {
    same("labels", "oldLabels", key)
}

fn same_annotation(key: &str) -> String {
    same("annotations", "oldAnnotations", key)
}

/// A value is missing, as it was, or fine.
fn valid(map: &str, key: &str, same: &str, is_fine: &str) -> String {
    format!("!('{key}' in variables.{map}) || {same} || ({is_fine})")
}

fn is_valid(texts: Texts<'_>, key: &str, same: bool, is_fine: fn(&str) -> bool) -> bool {
    same || texts.get(key).is_none_or(is_fine)
}

/// Every rule, in the order in which they are looked at.
pub fn rules() -> Vec<Rule> {
    let mut rules = queue_rules();
    rules.extend(label_rules());
    rules.extend(gate_rules());
    rules.extend(size_rules());
    rules.extend(completion_rules());
    rules
}

fn queue_rules() -> Vec<Rule> {
    let subdomain = |map: &str, key: &str| {
        let text = value(map, key);
        format!("size({text}) <= {NAME_LENGTH_MAX} && {text}.matches('{SUBDOMAIN}')")
    };
    vec![
        Rule {
            name: "queue-name-is-a-name",
            message: "label kueue.x-k8s.io/queue-name: no LocalQueue can have this name; write lower-case letters, digits, '-' and '.', \
                      or remove the label",
            cel: valid("labels", QUEUE, &same_label(QUEUE), &subdomain("labels", QUEUE)),
            is_kept: |job| is_valid(labels(job.new), QUEUE, job.has_same_label(QUEUE), is_subdomain),
        },
        Rule {
            name: "queue-name-stays",
            message: "label kueue.x-k8s.io/queue-name: cannot change while the Job runs, since it runs on its queue's quota; set \
                      spec.suspend to true in the same change, or create another Job",
            cel: format!(
                "variables.isCreation || variables.isSuspended || {} == {}",
                value("labels", QUEUE),
                value("oldLabels", QUEUE)
            ),
            is_kept: |job| {
                job.is_creation() || job.is_suspended() || job.label(QUEUE) == job.old_label(QUEUE)
            },
        },
        Rule {
            name: "prebuilt-is-a-name",
            message: "kueue.x-k8s.io/prebuilt-workload-name: no Workload can have this name; write lower-case letters, digits, '-' and \
                      '.', at most 253 in all",
            cel: format!(
                "({}) && ({})",
                valid("labels", PREBUILT, &same_label(PREBUILT), &subdomain("labels", PREBUILT)),
                valid(
                    "annotations",
                    PREBUILT,
                    &same_annotation(PREBUILT),
                    &subdomain("annotations", PREBUILT)
                ),
            ),
            is_kept: |job| {
                is_valid(labels(job.new), PREBUILT, job.has_same_label(PREBUILT), is_subdomain)
                    && is_valid(
                        annotations(job.new),
                        PREBUILT,
                        job.has_same_annotation(PREBUILT),
                        is_subdomain,
                    )
            },
        },
        Rule {
            name: "prebuilt-stays",
            message: "kueue.x-k8s.io/prebuilt-workload-name: cannot change while the Job runs; set spec.suspend to true in the same \
                      change, or create another Job",
            cel: format!(
                "variables.isCreation || variables.isSuspended || ({} && {})",
                same_label(PREBUILT),
                same_annotation(PREBUILT)
            ),
            is_kept: |job| {
                job.is_creation()
                    || job.is_suspended()
                    || (job.has_same_label(PREBUILT) && job.has_same_annotation(PREBUILT))
            },
        },
    ]
}

fn label_rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "max-time-is-a-count",
            message: "label kueue.x-k8s.io/max-exec-time-seconds: must be a whole number of seconds from 1 to 999999999",
            cel: valid(
                "labels",
                MAX_TIME,
                &same_label(MAX_TIME),
                &format!("{}.matches('{COUNT}')", value("labels", MAX_TIME)),
            ),
            is_kept: |job| is_valid(labels(job.new), MAX_TIME, job.has_same_label(MAX_TIME), is_count),
        },
        Rule {
            name: "max-time-stays",
            message: "label kueue.x-k8s.io/max-exec-time-seconds: can only change while the Job is suspended before and after",
            cel: format!(
                "variables.isCreation || (variables.wasSuspended && variables.isSuspended) || {}",
                same_label(MAX_TIME)
            ),
            is_kept: |job| {
                job.is_creation()
                    || (job.was_suspended() && job.is_suspended())
                    || job.has_same_label(MAX_TIME)
            },
        },
        Rule {
            name: "priority-class-stays",
            message: "label kueue.x-k8s.io/priority-class: cannot be removed, since the priority of the Job comes from it; name another \
                      class",
            cel: format!("{} == '' || {} != ''", value("oldLabels", CLASS), value("labels", CLASS)),
            is_kept: |job| job.old_label(CLASS).is_empty() || !job.label(CLASS).is_empty(),
        },
        Rule {
            name: "priority-class-not-added",
            message: "label kueue.x-k8s.io/priority-class: cannot be added while the Job runs; a Job that has one may change it at any \
                      time",
            cel: format!(
                "variables.isCreation || variables.isSuspended || {} != '' || {} == ''",
                value("oldLabels", CLASS),
                value("labels", CLASS)
            ),
            is_kept: |job| {
                job.is_creation()
                    || job.is_suspended()
                    || !job.old_label(CLASS).is_empty()
                    || job.label(CLASS).is_empty()
            },
        },
        Rule {
            name: "elastic-stays",
            message: "annotation kueue.x-k8s.io/elastic-job: cannot change after creation; create another Job",
            cel: format!("variables.isCreation || {}", same_annotation(ELASTIC)),
            is_kept: |job| job.is_creation() || job.has_same_annotation(ELASTIC),
        },
    ]
}

fn gate_rules() -> Vec<Rule> {
    let gates_of = |map: &str| {
        let text = value(map, GATES);
        format!("({text} == '' ? [] : {text}.split(','))")
    };
    let fine = format!(
        "{0}.all(g, size(g) <= {GATE_LENGTH_MAX} && g.matches('{GATE}') && {0}.filter(other, other == g).size() == 1)",
        gates_of("annotations")
    );
    vec![
        Rule {
            name: "gates-are-names",
            message: "annotation kueue.x-k8s.io/admission-gated-by: write names such as example.com/license, each once, at most 63 \
                      characters long, with commas and nothing else in between",
            cel: valid("annotations", GATES, &same_annotation(GATES), &fine),
            is_kept: |job| {
                let gates = job.gates();
                let once = |gate: &&str| gates.iter().filter(|other| *other == gate).count() == 1;
                job.has_same_annotation(GATES) || gates.iter().all(|gate| is_gate(gate) && once(gate))
            },
        },
        Rule {
            name: "gates-only-go",
            message: "annotation kueue.x-k8s.io/admission-gated-by: names can only be taken away after creation; to hold a queued Job \
                      back, set active: false on its Workload",
            cel: format!(
                "variables.isCreation || {}.all(g, g in {})",
                gates_of("annotations"),
                gates_of("oldAnnotations")
            ),
            is_kept: |job| {
                let old = gates(job.old_annotation(GATES));
                job.is_creation() || job.gates().iter().all(|gate| old.contains(gate))
            },
        },
        Rule {
            name: "one-topology",
            message: "spec.template.metadata.annotations: only one of kueue.x-k8s.io/podset-required-topology, \
                      podset-preferred-topology and podset-unconstrained-topology may be there; remove the others",
            cel: format!(
                "!variables.isCreation || [{}].filter(key, key in variables.templateAnnotations).size() <= 1",
                TOPOLOGIES.map(|key| format!("'{key}'")).join(", ")
            ),
            is_kept: |job| !job.is_creation() || job.template_annotations() <= 1,
        },
    ]
}

fn size_rules() -> Vec<Rule> {
    let least = value("annotations", LEAST);
    vec![
        Rule {
            name: "least-pods-is-less",
            message: "annotation kueue.x-k8s.io/job-min-parallelism: must be a whole number from 1 to one less than the Job's pods, and \
                      the Job not elastic",
            cel: valid(
                "annotations",
                LEAST,
                &same_annotation(LEAST),
                &format!(
                    "{least}.matches('{COUNT}') && int({least}) < variables.pods && {} != 'true'",
                    value("annotations", ELASTIC)
                ),
            ),
            is_kept: |job| {
                let is_less =
                    |text: &str| is_count(text) && text.parse::<i64>().is_ok_and(|least| least < job.pods());
                job.has_same_annotation(LEAST)
                    || annotations(job.new)
                        .get(LEAST)
                        .is_none_or(|text| is_less(text) && job.annotation(ELASTIC) != "true")
            },
        },
        Rule {
            name: "parallelism-stays",
            message: "spec.parallelism: cannot change while the Job runs with kueue.x-k8s.io/job-min-parallelism, since its queue decides \
                      it; suspend the Job first",
            cel: format!(
                "variables.isCreation || variables.wasSuspended || !('{LEAST}' in variables.annotations) || \
                 (has(oldObject.spec.parallelism) ? oldObject.spec.parallelism : 1) == variables.parallelism"
            ),
            is_kept: |job| {
                let before = job.old.and_then(|old| number(old, "parallelism", Some(1)));
                job.is_creation()
                    || job.was_suspended()
                    || annotations(job.new).get(LEAST).is_none()
                    || before == Some(job.parallelism())
            },
        },
    ]
}

fn completion_rules() -> Vec<Rule> {
    vec![
        Rule {
            name: "equal-completions-are-equal",
            message: "annotation kueue.x-k8s.io/job-completions-equal-parallelism: must be true or false; with true the Job has to be \
                      Indexed with as many completions as parallelism",
            cel: valid(
                "annotations",
                EQUAL,
                &format!("({} && variables.hasSameSize)", same_annotation(EQUAL)),
                &format!(
                    "{0} == 'false' || ({0} == 'true' && has(object.spec.completionMode) && object.spec.completionMode == 'Indexed' && \
                     has(object.spec.completions) && object.spec.completions == variables.parallelism)",
                    value("annotations", EQUAL)
                ),
            ),
            is_kept: |job| {
                let is_indexed =
                    job.new.pointer("/spec/completionMode").and_then(Value::as_str) == Some("Indexed");
                let is_equal = is_indexed && job.completions() == Some(job.parallelism());
                (job.has_same_annotation(EQUAL) && job.has_same_size())
                    || match annotations(job.new).get(EQUAL) {
                        None | Some("false") => true,
                        Some(text) => text == "true" && is_equal,
                    }
            },
        },
        Rule {
            name: "equal-completions-stay",
            message: "annotation kueue.x-k8s.io/job-completions-equal-parallelism: cannot change while the Job runs; suspend it first",
            cel: format!("variables.isCreation || variables.wasSuspended || {}", same_annotation(EQUAL)),
            is_kept: |job| job.is_creation() || job.was_suspended() || job.has_same_annotation(EQUAL),
        },
    ]
}

/// What is wrong with a change of a Job, if something is.
pub fn broken(change: &Change<'_>) -> Option<&'static str> {
    // The rules as CEL are long texts that are not needed here.
    static RULES: std::sync::LazyLock<Vec<Rule>> = std::sync::LazyLock::new(rules);
    RULES.iter().find(|rule| !(rule.is_kept)(change)).map(|rule| rule.message)
}
