//! Node affinity in a configuration: what an API server would refuse in a pod is refused here.

use gangway_model::constraints::NodeSelectorTerm;
use gangway_model::scheduling::AffinitySettings;
use gangway_model::selector::{Operator, Requirement};
use k8s_openapi::api::core::v1::NodeAffinity;

use crate::pods::{preferred_terms, required_terms};
use crate::strict::{Finding, item_path};

/// Affinity that every pod of a profile has besides its own, or all that is wrong with it.
pub(super) fn read(added: &NodeAffinity, path: &str) -> Result<AffinitySettings, Vec<Finding>> {
    let required_path = format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let preferred_path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution");
    let unreadable = |path: &str, message: String| vec![Finding { path: path.to_owned(), message }];
    let required = required_terms(added).map_err(|error| unreadable(&required_path, error.problem()))?;
    let preferred = preferred_terms(added).map_err(|error| unreadable(&preferred_path, error.problem()))?;
    let mut findings = Vec::new();
    if required.as_ref().is_some_and(Vec::is_empty) {
        findings.extend(unreadable(&required_path, "must have at least one term".to_owned()));
    }
    for (index, term) in required.iter().flatten().enumerate() {
        check_term(term, &item_path(&required_path, index), &mut findings);
    }
    for (index, preferred) in preferred.iter().enumerate() {
        let path = item_path(&preferred_path, index);
        if !(1..=100).contains(&preferred.weight) {
            findings.extend(unreadable(&format!("{path}.weight"), "must be 1 to 100".to_owned()));
        }
        check_term(&preferred.term, &format!("{path}.preference"), &mut findings);
    }
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(AffinitySettings { added_required: required, added_preferred: preferred })
}

fn check_term(term: &NodeSelectorTerm, path: &str, findings: &mut Vec<Finding>) {
    let labels = term.labels.iter().enumerate().map(|(index, r)| (index, "matchExpressions", r));
    let fields = term.fields.iter().enumerate().map(|(index, r)| (index, "matchFields", r));
    for (index, field, requirement) in labels.chain(fields) {
        let problem = if field == "matchFields" { field_problem(requirement) } else { None };
        if let Some(message) = problem.or_else(|| values_problem(requirement)) {
            let path = item_path(&format!("{path}.{field}"), index);
            findings.push(Finding { path, message: message.to_owned() });
        }
    }
}

fn field_problem(requirement: &Requirement) -> Option<&'static str> {
    let is_allowed = requirement.key == "metadata.name"
        && matches!(requirement.operator, Operator::In | Operator::NotIn)
        && requirement.values.len() == 1;
    (!is_allowed).then_some("must be metadata.name with In or NotIn and one value")
}

fn values_problem(requirement: &Requirement) -> Option<&'static str> {
    let values = &requirement.values;
    let (is_allowed, message) = match requirement.operator {
        Operator::In | Operator::NotIn => (!values.is_empty(), "In and NotIn need values"),
        Operator::Exists | Operator::DoesNotExist => {
            (values.is_empty(), "Exists and DoesNotExist have no values")
        }
        Operator::GreaterThan | Operator::LessThan => {
            let is_number = values.len() == 1 && values.iter().all(|value| value.parse::<i64>().is_ok());
            (is_number, "Gt and Lt need one value, a whole number")
        }
    };
    (!is_allowed).then_some(message)
}
