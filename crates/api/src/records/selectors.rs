//! Label selectors.

use gangway_model::selector::{LabelSelector, Operator, Requirement};
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;

/// A label selector in the terms of the model, or what is wrong with it.
pub fn label_selector(selector: &meta::LabelSelector) -> Result<LabelSelector, String> {
    let equal =
        selector.match_labels.iter().flatten().map(|(key, value)| Ok(Requirement::equals(key, value)));
    let expressions = selector.match_expressions.iter().flatten().map(requirement);
    Ok(LabelSelector { requirements: equal.chain(expressions).collect::<Result<_, _>>()? })
}

fn requirement(requirement: &meta::LabelSelectorRequirement) -> Result<Requirement, String> {
    let key = requirement.key.clone();
    let operator = match requirement.operator.as_str() {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(format!("{other:?} is not one of In, NotIn, Exists, DoesNotExist")),
    };
    let values = requirement.values.clone().unwrap_or_default();
    if matches!(operator, Operator::In | Operator::NotIn) == values.is_empty() {
        return Err(format!("operator {} of {key:?} has the wrong number of values", requirement.operator));
    }
    Ok(Requirement { key, operator, values })
}
