//! Where a pod may run, in the terms of the model.

use gangway_model::constraints::{
    Constraints, NodeSelectorTerm, PreferredTerm, Taint, TaintEffect, Toleration,
};
use gangway_model::selector::{Operator, Requirement};
use k8s_openapi::api::core::v1 as core;

/// Why a pod's constraints cannot be understood.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{path}: {}", self.problem())]
pub struct ConstraintsError {
    /// Where.
    pub path: String,
    /// What stands there.
    pub value: String,
    /// What may.
    pub allowed: &'static str,
}

impl ConstraintsError {
    /// What is wrong, without where.
    pub fn problem(&self) -> String {
        format!("{:?} is not one of {}", self.value, self.allowed)
    }
}

/// Node selector, required node affinity and tolerations of a pod.
pub fn constraints(pod: &core::PodSpec) -> Result<Constraints, ConstraintsError> {
    let node_selector = pod.node_selector.iter().flatten().map(|(k, v)| (k.clone(), v.clone())).collect();
    let affinity = node_affinity(pod).map_or(Ok(None), required_terms)?;
    let tolerations = tolerations(pod.tolerations.as_deref().unwrap_or_default())?;
    Ok(Constraints { node_selector, affinity, tolerations })
}

/// What a pod would like of its node, apart from what it demands.
pub fn preferred_node_affinity(pod: &core::PodSpec) -> Result<Vec<PreferredTerm>, ConstraintsError> {
    node_affinity(pod).map_or(Ok(Vec::new()), preferred_terms)
}

fn node_affinity(pod: &core::PodSpec) -> Option<&core::NodeAffinity> {
    pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref())
}

/// The terms one of which must match; none if nothing is demanded.
pub(crate) fn required_terms(
    affinity: &core::NodeAffinity,
) -> Result<Option<Vec<NodeSelectorTerm>>, ConstraintsError> {
    let required = affinity.required_during_scheduling_ignored_during_execution.as_ref();
    required.map(|selector| selector.node_selector_terms.iter().map(term).collect()).transpose()
}

/// The terms that count towards the score.
pub(crate) fn preferred_terms(affinity: &core::NodeAffinity) -> Result<Vec<PreferredTerm>, ConstraintsError> {
    let preferred = affinity.preferred_during_scheduling_ignored_during_execution.iter().flatten();
    preferred.map(|p| Ok(PreferredTerm { weight: p.weight, term: term(&p.preference)? })).collect()
}

/// Tolerations of a pod or a flavor.
pub fn tolerations(tolerations: &[core::Toleration]) -> Result<Vec<Toleration>, ConstraintsError> {
    tolerations
        .iter()
        .enumerate()
        .map(|(index, toleration)| {
            let path = |field: &str| format!("tolerations[{index}].{field}");
            let exists = match toleration.operator.as_deref() {
                None | Some("" | "Equal") => false,
                Some("Exists") => true,
                Some(other) => return Err(unknown(path("operator"), other, "Equal, Exists")),
            };
            let effect = match toleration.effect.as_deref() {
                None | Some("") => None,
                Some(text) => Some(effect(text).ok_or_else(|| unknown(path("effect"), text, EFFECTS))?),
            };
            Ok(Toleration {
                key: toleration.key.clone().filter(|key| !key.is_empty()),
                exists,
                value: toleration.value.clone().unwrap_or_default(),
                effect,
                seconds: toleration.toleration_seconds,
            })
        })
        .collect()
}

/// A taint of a node or a flavor; `path` is where it stands.
pub fn taint(taint: &core::Taint, path: &str) -> Result<Taint, ConstraintsError> {
    let effect =
        effect(&taint.effect).ok_or_else(|| unknown(format!("{path}.effect"), &taint.effect, EFFECTS))?;
    Ok(Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect })
}

const EFFECTS: &str = "NoSchedule, PreferNoSchedule, NoExecute";

fn effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

fn term(term: &core::NodeSelectorTerm) -> Result<NodeSelectorTerm, ConstraintsError> {
    let read = |list: &Option<Vec<core::NodeSelectorRequirement>>| {
        list.iter().flatten().map(requirement).collect::<Result<Vec<_>, _>>()
    };
    Ok(NodeSelectorTerm { labels: read(&term.match_expressions)?, fields: read(&term.match_fields)? })
}

fn requirement(requirement: &core::NodeSelectorRequirement) -> Result<Requirement, ConstraintsError> {
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        "Gt" => Operator::GreaterThan,
        "Lt" => Operator::LessThan,
        other => {
            let path = format!("affinity.nodeAffinity: operator of {:?}", requirement.key);
            return Err(unknown(path, other, "In, NotIn, Exists, DoesNotExist, Gt, Lt"));
        }
    };
    let values = requirement.values.clone().unwrap_or_default();
    Ok(Requirement { key: requirement.key.clone(), operator, values })
}

pub(super) fn unknown(path: String, value: &str, allowed: &'static str) -> ConstraintsError {
    ConstraintsError { path, value: value.to_owned(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> core::PodSpec {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn everything_is_carried_over() {
        let pod = pod(json!({
            "containers": [],
            "nodeSelector": {"zone": "a"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}],
                 "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}}},
            "tolerations": [{"operator": "Exists"}, {"key": "spot", "value": "true", "effect": "NoExecute", "tolerationSeconds": 5}],
        }));
        let constraints = constraints(&pod).unwrap();
        assert_eq!(constraints.node_selector, vec![("zone".to_owned(), "a".to_owned())]);
        let terms = constraints.affinity.unwrap();
        assert_eq!(terms[0].labels[0].operator, Operator::GreaterThan);
        assert_eq!(terms[0].fields[0], Requirement::equals("metadata.name", "n1"));
        assert!(constraints.tolerations[0].exists && constraints.tolerations[0].key.is_none());
        assert_eq!(constraints.tolerations[1].effect, Some(TaintEffect::NoExecute));
        assert_eq!(constraints.tolerations[1].seconds, Some(5));
    }

    #[test]
    fn preferences_are_read() {
        let of = |affinity: serde_json::Value| {
            preferred_node_affinity(&pod(json!({"containers": [], "affinity": affinity})))
                .map_err(|error| error.to_string())
        };
        let preferred = |weight: i32, key: &str, operator: &str| {
            json!({"weight": weight, "preference": {"matchExpressions": [
                {"key": key, "operator": operator, "values": ["v"]}]}})
        };
        let list = |terms: Vec<serde_json::Value>| json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}});
        let read = |weight, key: &str| PreferredTerm {
            weight,
            term: NodeSelectorTerm { labels: vec![Requirement::equals(key, "v")], fields: vec![] },
        };
        let table = [
            (json!(null), Ok(vec![])),
            (json!({"nodeAffinity": {}}), Ok(vec![])),
            (list(vec![preferred(2, "a", "In"), preferred(100, "b", "In")]), Ok(vec![read(2, "a"), read(100, "b")])),
            (
                list(vec![json!({"weight": 1, "preference": {}})]),
                Ok(vec![PreferredTerm { weight: 1, term: NodeSelectorTerm::default() }]),
            ),
            (
                list(vec![preferred(1, "a", "Near")]),
                Err("affinity.nodeAffinity: operator of \"a\": \"Near\" is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt".to_owned()),
            ),
        ];
        for (affinity, expected) in table {
            assert_eq!(of(affinity.clone()), expected, "{affinity}");
        }
    }

    #[test]
    fn unknown_words_are_named() {
        let pod = pod(json!({"containers": [], "tolerations": [{"key": "a", "operator": "Sometimes"}]}));
        assert_eq!(
            constraints(&pod).unwrap_err().to_string(),
            "tolerations[0].operator: \"Sometimes\" is not one of Equal, Exists"
        );
    }
}
