//! Admission policies: what a cluster does to Jobs on their way in, without a webhook.
//!
//! Two MutatingAdmissionPolicies suspend queued Jobs and apply the namespace's `default` LocalQueue, a
//! ValidatingAdmissionPolicy refuses what cannot be. All are functions of the configuration, and have to say all that an API server
//! would fill in, so that what is stored can be compared with what is wanted. [`crate::interceptors`] does the
//! same on the embedded API.

mod job_rules;

use k8s_openapi::api::admissionregistration::v1::{
    ApplyConfiguration, MatchCondition, MatchResources, MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding, MutatingAdmissionPolicyBindingSpec, MutatingAdmissionPolicySpec,
    Mutation, NamedRuleWithOperations, ParamKind, ParamRef, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    Validation, Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use serde_json::Value;

use crate::config::{Configuration, requirement_json};
use crate::install::labels;
use crate::kueue::{GROUP, VERSION};
use crate::names::{DEFAULT_NAME, QUEUE_NAME_LABEL};
pub use job_rules::{Change, Rule, broken, rules, variables};

/// The policy that suspends queued Jobs.
pub const SUSPEND: &str = "gangway-suspend-jobs";
/// The policy that applies the `default` LocalQueue.
pub const DEFAULT_QUEUE: &str = "gangway-default-queue";
/// The policy that refuses what cannot be.
pub const JOB_RULES: &str = "gangway-job-rules";
/// The kinds of objects that policies are made of, as plurals of `admissionregistration.k8s.io`.
pub const PLURALS: [&str; 4] = [
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
];
/// The names of the objects of each kind of [`PLURALS`].
pub const NAMES: [&[&str]; 4] =
    [&[DEFAULT_QUEUE, SUSPEND], &[DEFAULT_QUEUE, SUSPEND], &[JOB_RULES], &[JOB_RULES]];
/// The first Kubernetes that serves all of them as `v1`.
pub const FIRST_MINOR: u32 = 36;

/// The policies for a configuration, as objects, each before its binding.
pub fn objects(configuration: &Configuration) -> Vec<Value> {
    let mutating = |name: &str, spec| MutatingAdmissionPolicy { metadata: metadata(name), spec: Some(spec) };
    let rules = ValidatingAdmissionPolicy {
        metadata: metadata(JOB_RULES),
        spec: Some(rules_spec(configuration)),
        status: None,
    };
    let rules_binding = ValidatingAdmissionPolicyBinding {
        metadata: metadata(JOB_RULES),
        spec: ValidatingAdmissionPolicyBindingSpec {
            policy_name: JOB_RULES.to_owned(),
            validation_actions: vec!["Deny".to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        },
    };
    let default = ParamRef {
        name: Some(DEFAULT_NAME.to_owned()),
        parameter_not_found_action: Some("Allow".to_owned()),
        ..ParamRef::default()
    };
    vec![
        json(&mutating(SUSPEND, suspend_spec(configuration))),
        json(&mutating_binding(SUSPEND, None)),
        json(&mutating(DEFAULT_QUEUE, default_queue_spec(configuration))),
        json(&mutating_binding(DEFAULT_QUEUE, Some(default))),
        json(&rules),
        json(&rules_binding),
    ]
}

fn json(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).expect("an object of Kubernetes has a JSON form")
}

fn metadata(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels("policies")), ..ObjectMeta::default() }
}

fn mutating_binding(name: &str, param_ref: Option<ParamRef>) -> MutatingAdmissionPolicyBinding {
    let spec = MutatingAdmissionPolicyBindingSpec {
        policy_name: Some(name.to_owned()),
        param_ref,
        ..MutatingAdmissionPolicyBindingSpec::default()
    };
    MutatingAdmissionPolicyBinding { metadata: metadata(name), spec: Some(spec) }
}

/// Jobs in the namespaces that are managed.
fn jobs(configuration: &Configuration, operations: &[&str]) -> MatchResources {
    let one = |text: &str| Some(vec![text.to_owned()]);
    let rule = NamedRuleWithOperations {
        api_groups: one("batch"),
        api_versions: one("v1"),
        resources: one("jobs"),
        operations: Some(operations.iter().map(|operation| (*operation).to_owned()).collect()),
        scope: Some("*".to_owned()),
        ..NamedRuleWithOperations::default()
    };
    MatchResources {
        resource_rules: Some(vec![rule]),
        namespace_selector: Some(namespaces(configuration)),
        object_selector: Some(LabelSelector::default()),
        match_policy: Some("Equivalent".to_owned()),
        exclude_resource_rules: None,
    }
}

fn namespaces(configuration: &Configuration) -> LabelSelector {
    let requirement = |requirement| -> Option<LabelSelectorRequirement> {
        serde_json::from_value(requirement_json(requirement)).ok()
    };
    let requirements = &configuration.managed_jobs_namespace_selector.requirements;
    let expressions: Vec<_> = requirements.iter().filter_map(requirement).collect();
    LabelSelector {
        match_expressions: Some(expressions).filter(|expressions| !expressions.is_empty()),
        match_labels: None,
    }
}

fn condition(name: &str, expression: String) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression }
}

/// A Job of a Job is spoken for by its owner.
fn has_no_managed_owner() -> MatchCondition {
    let expression = "!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(owner, \
                      has(owner.controller) && owner.controller && owner.apiVersion == 'batch/v1' && owner.kind == 'Job')";
    condition("has-no-managed-owner", expression.to_owned())
}

fn queue() -> String {
    format!(
        "has(object.metadata.labels) && '{QUEUE_NAME_LABEL}' in object.metadata.labels && object.metadata.labels['{QUEUE_NAME_LABEL}'] != ''"
    )
}

fn mutation(expression: String) -> Option<Vec<Mutation>> {
    Some(vec![Mutation {
        patch_type: "ApplyConfiguration".to_owned(),
        apply_configuration: Some(ApplyConfiguration { expression: Some(expression) }),
        json_patch: None,
    }])
}

fn suspend_spec(configuration: &Configuration) -> MutatingAdmissionPolicySpec {
    let runs = "!has(object.spec.suspend) || !object.spec.suspend".to_owned();
    let mut conditions = vec![condition("runs", runs), has_no_managed_owner()];
    if !configuration.manage_jobs_without_queue_name {
        conditions.push(condition("is-queued", queue()));
    }
    MutatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        reinvocation_policy: Some("IfNeeded".to_owned()),
        match_constraints: Some(jobs(configuration, &["CREATE"])),
        match_conditions: Some(conditions),
        mutations: mutation("Object{spec: Object.spec{suspend: true}}".to_owned()),
        ..MutatingAdmissionPolicySpec::default()
    }
}

fn default_queue_spec(configuration: &Configuration) -> MutatingAdmissionPolicySpec {
    let conditions = vec![condition("has-no-queue", format!("!({})", queue())), has_no_managed_owner()];
    MutatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        reinvocation_policy: Some("Never".to_owned()),
        param_kind: Some(ParamKind {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some("LocalQueue".to_owned()),
        }),
        match_constraints: Some(jobs(configuration, &["CREATE"])),
        match_conditions: Some(conditions),
        mutations: mutation(format!(
            "Object{{metadata: Object.metadata{{labels: {{'{QUEUE_NAME_LABEL}': params.metadata.name}}}}, spec: Object.spec{{suspend: true}}}}"
        )),
        ..MutatingAdmissionPolicySpec::default()
    }
}

fn rules_spec(configuration: &Configuration) -> ValidatingAdmissionPolicySpec {
    let variables = variables().into_iter();
    let validations = rules().into_iter().map(|rule| Validation {
        expression: rule.cel,
        message: Some(rule.message.to_owned()),
        ..Validation::default()
    });
    ValidatingAdmissionPolicySpec {
        failure_policy: Some("Fail".to_owned()),
        match_constraints: Some(jobs(configuration, &["CREATE", "UPDATE"])),
        variables: Some(
            variables.map(|(name, expression)| Variable { name: name.to_owned(), expression }).collect(),
        ),
        validations: Some(validations.collect()),
        ..ValidatingAdmissionPolicySpec::default()
    }
}
