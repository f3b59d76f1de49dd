//! Container and pod resources: defaults, validation and quality of service.

use gangway_model::Quantity;
use serde_json::{Map, Value};

use super::fields::{Errors, at, elements};
use super::names::QUALIFIED_NAME_RULE;
use super::quantities::{read, written};
use crate::names::is_qualified_name;

/// Writes bare numbers as strings, which is how the API speaks of quantities.
pub(super) fn normalise(resources: &mut Value) {
    for kind in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(kind) {
            normalise_list(list);
        }
    }
}

/// Like [`normalise`], for one list of resource to quantity.
pub(super) fn normalise_list(list: &mut Value) {
    for quantity in list.as_object_mut().into_iter().flat_map(Map::values_mut) {
        if quantity.is_number()
            && let Some(text) = written(quantity).map(String::from)
        {
            *quantity = Value::String(text);
        }
    }
}

/// A limit is also the request where none is given.
pub(super) fn requests_from_limits(resources: &mut Value) {
    let Some(limits) = resources["limits"].as_object().cloned() else { return };
    if resources["requests"].is_null() {
        resources["requests"] = Value::Object(Map::new());
    }
    if let Some(requests) = resources["requests"].as_object_mut() {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    }
}

/// Validates `limits` and `requests` of `resources`, which stands at `path`.
pub(super) fn validate(resources: &Value, path: &str, errors: &mut Errors) {
    let limits = validate_list(&resources["limits"], &format!("{path}.limits"), errors);
    let requests = validate_list(&resources["requests"], &format!("{path}.requests"), errors);
    for (name, request) in &requests {
        let limit = limits.iter().find(|(limited, _)| limited == name).map(|(_, limit)| *limit);
        let request_path = format!("{path}.requests");
        let no_overcommit = is_extended(name) || name.starts_with("hugepages-");
        match limit {
            Some(limit) if no_overcommit && *request != limit => {
                errors.invalid(request_path, format!("must be equal to the {name} limit"));
            }
            Some(limit) if *request > limit => {
                errors.invalid(request_path, format!("must be less than or equal to the {name} limit"));
            }
            None if no_overcommit => {
                errors.required(format!("{path}.limits"), format!("a limit must be set for {name}"));
            }
            _ => {}
        }
    }
}

/// The readable quantities of a list of resource to quantity; what is wrong with the others is reported.
pub(super) fn validate_list<'a>(
    list: &'a Value,
    path: &str,
    errors: &mut Errors,
) -> Vec<(&'a str, Quantity)> {
    let mut quantities = Vec::new();
    if !list.is_null() && !list.is_object() {
        errors.invalid(path, "must be a map of resource name to quantity");
    }
    for (name, value) in list.as_object().into_iter().flatten() {
        let path = format!("{path}[{name}]");
        if !is_qualified_name(name) {
            errors.invalid(&path, QUALIFIED_NAME_RULE);
        }
        match read(value) {
            Err(problem) => errors.invalid(path, problem.to_string()),
            Ok(quantity) if quantity.is_negative() => {
                errors.invalid(path, "must be greater than or equal to 0");
            }
            Ok(quantity) if is_extended(name) && !quantity.is_whole() => {
                errors.invalid(path, "must be an integer");
            }
            Ok(quantity) => quantities.push((name.as_str(), quantity)),
        }
    }
    quantities
}

/// Resources a device plugin or administrator names, as `nvidia.com/gpu`: whole, and never shared.
fn is_extended(name: &str) -> bool {
    match name.split_once('/') {
        Some((domain, _)) => domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"),
        None => false,
    }
}

/// `Guaranteed`, `Burstable` or `BestEffort`, from cpu and memory of all containers.
pub(super) fn quality_of_service(pod_spec: &Value) -> &'static str {
    let containers = || elements(&pod_spec["containers"]).iter().chain(elements(&pod_spec["initContainers"]));
    let amount = |container: &Value, kind: &str, name: &str| {
        read(at(container, &["resources", kind, name])).ok().filter(|quantity| !quantity.is_zero())
    };
    let mut any = false;
    let mut guaranteed = true;
    for container in containers() {
        for name in ["cpu", "memory"] {
            let (request, limit) = (amount(container, "requests", name), amount(container, "limits", name));
            any |= request.is_some() || limit.is_some();
            guaranteed &= limit.is_some() && request.is_none_or(|request| Some(request) == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(resources: Value) -> Vec<String> {
        let mut errors = Errors::default();
        validate(&resources, "resources", &mut errors);
        errors.into_result().err().unwrap_or_default().into_iter().map(|error| error.path).collect()
    }

    #[test]
    fn requests_stay_within_limits() {
        assert!(problems(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}})).is_empty());
        assert_eq!(
            problems(json!({"requests": {"cpu": "1.1"}, "limits": {"cpu": 1}})),
            ["resources.requests"]
        );
    }

    #[test]
    fn bad_quantities_are_named() {
        assert_eq!(problems(json!({"requests": {"cpu": "-1"}})), ["resources.requests[cpu]"]);
        assert_eq!(problems(json!({"limits": {"memory": "lots"}})), ["resources.limits[memory]"]);
        assert_eq!(problems(json!({"limits": {"memory": "9Ei"}})), ["resources.limits[memory]"]);
    }

    #[test]
    fn extended_resources_are_whole_and_not_overcommitted() {
        assert_eq!(problems(json!({"requests": {"nvidia.com/gpu": 1}})), ["resources.limits"]);
        assert_eq!(
            problems(json!({"limits": {"nvidia.com/gpu": "500m"}})),
            ["resources.limits[nvidia.com/gpu]"]
        );
        let fewer = json!({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}});
        assert_eq!(problems(fewer), ["resources.requests"]);
    }

    #[test]
    fn quality_classes() {
        let pod = |resources: Value| json!({"containers": [{"resources": resources}]});
        let both = json!({"cpu": "1", "memory": "1Gi"});
        assert_eq!(quality_of_service(&pod(json!({}))), "BestEffort");
        assert_eq!(quality_of_service(&pod(json!({"requests": both}))), "Burstable");
        assert_eq!(quality_of_service(&pod(json!({"requests": both, "limits": both}))), "Guaranteed");
    }
}
