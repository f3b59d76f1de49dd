//! How a pod wants to be spread among others of its kind.

use gangway_model::constraints::SpreadConstraint;
use k8s_openapi::api::core::v1 as core;

use crate::records::label_selector;
use crate::strict::item_path;

/// Why a spread constraint cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct SpreadError {
    /// Where in the pod spec.
    pub path: String,
    /// What is wrong there.
    pub problem: String,
}

/// The spread constraints of a pod, in its order.
pub fn spread_constraints(pod: &core::PodSpec) -> Result<Vec<SpreadConstraint>, SpreadError> {
    let written = pod.topology_spread_constraints.iter().flatten().enumerate();
    written.map(|(index, c)| spread_constraint(c, &item_path("topologySpreadConstraints", index))).collect()
}

/// One spread constraint, which stands at `path`.
pub(crate) fn spread_constraint(
    constraint: &core::TopologySpreadConstraint,
    path: &str,
) -> Result<SpreadConstraint, SpreadError> {
    let error = |field: &str, problem: String| SpreadError { path: format!("{path}.{field}"), problem };
    let one_of = |field: &'static str, value: &str, allowed: &str| {
        error(field, format!("{value:?} is not one of {allowed}"))
    };
    let honored = |field, policy: &Option<String>, default| match policy.as_deref() {
        None | Some("") => Ok(default),
        Some("Honor") => Ok(true),
        Some("Ignore") => Ok(false),
        Some(other) => Err(one_of(field, other, "Honor, Ignore")),
    };
    if constraint.max_skew < 1 {
        return Err(error("maxSkew", "must be more than 0".to_owned()));
    }
    if constraint.topology_key.is_empty() {
        return Err(error("topologyKey", "must name a label of nodes".to_owned()));
    }
    if constraint.min_domains.is_some_and(|domains| domains < 1) {
        return Err(error("minDomains", "must be more than 0".to_owned()));
    }
    let is_hard = match constraint.when_unsatisfiable.as_str() {
        "DoNotSchedule" => true,
        "ScheduleAnyway" => false,
        other => return Err(one_of("whenUnsatisfiable", other, "DoNotSchedule, ScheduleAnyway")),
    };
    let selector = constraint.label_selector.as_ref().map(label_selector).transpose();
    let selector = selector.map_err(|problem| error("labelSelector", problem))?;
    // Keys narrow a selector; without one nothing is selected, and there is nothing to narrow.
    let match_label_keys = selector.as_ref().and(constraint.match_label_keys.clone()).unwrap_or_default();
    Ok(SpreadConstraint {
        max_skew: constraint.max_skew,
        topology_key: constraint.topology_key.clone(),
        is_hard,
        selector: selector.unwrap_or_default(),
        match_label_keys,
        min_domains: constraint.min_domains,
        node_affinity_honored: honored("nodeAffinityPolicy", &constraint.node_affinity_policy, true)?,
        node_taints_honored: honored("nodeTaintsPolicy", &constraint.node_taints_policy, false)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangway_model::selector::{LabelSelector, Requirement};
    use serde_json::{Value, json};

    fn read(changes: Value) -> Result<SpreadConstraint, String> {
        let mut written = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        for (field, value) in changes.as_object().unwrap() {
            written[field] = value.clone();
        }
        let pod = json!({"containers": [], "topologySpreadConstraints": [written]});
        let read = spread_constraints(&serde_json::from_value(pod).unwrap());
        read.map(|mut list| list.remove(0)).map_err(|error| error.to_string())
    }

    fn plain() -> SpreadConstraint {
        SpreadConstraint {
            max_skew: 1,
            topology_key: "zone".to_owned(),
            is_hard: true,
            selector: LabelSelector::default(),
            match_label_keys: vec![],
            min_domains: None,
            node_affinity_honored: true,
            node_taints_honored: false,
        }
    }

    #[test]
    fn constraints() {
        let selector = LabelSelector { requirements: vec![Requirement::equals("app", "a")] };
        let keys = vec!["hash".to_owned()];
        let table = [
            (json!({}), plain()),
            (
                json!({"maxSkew": 3, "minDomains": 2}),
                SpreadConstraint { max_skew: 3, min_domains: Some(2), ..plain() },
            ),
            (json!({"whenUnsatisfiable": "ScheduleAnyway"}), SpreadConstraint { is_hard: false, ..plain() }),
            (
                json!({"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["hash"]}),
                SpreadConstraint { selector, match_label_keys: keys, ..plain() },
            ),
            (json!({"matchLabelKeys": ["hash"]}), plain()),
            (
                json!({"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}),
                SpreadConstraint { node_affinity_honored: false, node_taints_honored: true, ..plain() },
            ),
        ];
        for (changes, expected) in table {
            assert_eq!(read(changes.clone()), Ok(expected), "{changes}");
        }
        assert_eq!(spread_constraints(&core::PodSpec::default()), Ok(vec![]));
    }

    #[test]
    fn mistakes_are_named() {
        let table = [
            (json!({"maxSkew": 0}), "maxSkew: must be more than 0"),
            (json!({"minDomains": 0}), "minDomains: must be more than 0"),
            (json!({"topologyKey": ""}), "topologyKey: must name a label of nodes"),
            (
                json!({"whenUnsatisfiable": "Never"}),
                "whenUnsatisfiable: \"Never\" is not one of DoNotSchedule, ScheduleAnyway",
            ),
            (json!({"nodeTaintsPolicy": "No"}), "nodeTaintsPolicy: \"No\" is not one of Honor, Ignore"),
            (
                json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}),
                "labelSelector: operator In of \"a\" has the wrong number of values",
            ),
        ];
        for (changes, expected) in table {
            assert_eq!(read(changes), Err(format!("topologySpreadConstraints[0].{expected}")));
        }
    }
}
