//! The CustomResourceDefinitions: whether ours are there, are served, and keep every field that we write.

use gangway_api::CustomResourceDefinition;
use gangway_api::kueue::VERSION;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionVersion;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use super::finding::{Area, Finding, counted, first_of};
use super::unreadable;

const APPLY: &str = "gangway crds | kubectl apply --server-side --force-conflicts -f -";

/// Compares the definitions of a cluster with ours.
pub(super) async fn examine(client: &Client) -> Vec<Finding> {
    let listed = Api::<CustomResourceDefinition>::all(client.clone()).list(&ListParams::default()).await;
    match listed {
        Ok(found) => judge(&gangway_api::crds(), &found.items),
        Err(error) => vec![unreadable(Area::Definitions, "customresourcedefinitions", &error)],
    }
}

fn judge(ours: &[CustomResourceDefinition], found: &[CustomResourceDefinition]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut missing = Vec::new();
    for our in ours {
        let name = our.name_any();
        match found.iter().find(|found| found.name_any() == name) {
            Some(found) => findings.extend(judge_one(our, found)),
            None => missing.push(name),
        }
    }
    if !missing.is_empty() {
        let what = match missing.len() == ours.len() {
            true => "none of them is there".to_owned(),
            false => {
                format!("{} not there: {}", if missing.len() == 1 { "is" } else { "are" }, missing.join(", "))
            }
        };
        let finding = Finding::problem(Area::Definitions, "CustomResourceDefinitions", what, APPLY);
        findings.push(
            finding
                .because("This cluster cannot store queues and Workloads, and the controller cannot start."),
        );
    }
    if findings.is_empty() {
        let served =
            format!("{} are there, with every field that Gangway writes", counted(ours.len(), "kind"));
        findings.push(Finding::ok(Area::Definitions, served));
    }
    findings
}

fn judge_one(our: &CustomResourceDefinition, found: &CustomResourceDefinition) -> Vec<Finding> {
    let place = format!("CustomResourceDefinition {}", found.name_any());
    let problem = |what: String| Finding::problem(Area::Definitions, place.as_str(), what, APPLY);
    let mut findings = Vec::new();
    let conditions =
        found.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    for condition in conditions {
        if matches!(condition.type_.as_str(), "Established" | "NamesAccepted") && condition.status == "False"
        {
            let message = condition.message.as_deref().unwrap_or_default();
            findings.push(problem(format!("is not in force: {} is False: {message}", condition.type_)));
        }
    }
    let version =
        |name: &str| found.spec.versions.iter().find(|version| version.name == name && version.served);
    for wanted in &our.spec.versions {
        match version(&wanted.name) {
            Some(found) => findings.extend(pruned(wanted, found).map(|what| {
                problem(what).because(
                    "The API server drops these fields from every object that is written, without a word.",
                )
            })),
            None if wanted.name == VERSION => {
                let why = "Gangway reads and writes that version.";
                findings.push(problem(format!("does not serve {VERSION}")).because(why));
            }
            None => {
                let what = format!("does not serve {}", wanted.name);
                let finding = Finding::warning(Area::Definitions, place.as_str(), what, APPLY);
                findings.push(finding.because("Manifests of that version are refused."));
            }
        }
    }
    // Both versions have one schema: what is said of one need not be said of the other.
    findings.dedup_by(|one, other| one.what == other.what);
    if found.spec.conversion.as_ref().is_some_and(|conversion| conversion.strategy == "Webhook") {
        let what = "is converted by a webhook of another system";
        let finding = Finding::warning(Area::Definitions, place.as_str(), what, APPLY);
        findings.push(finding.because(
            "Without the pods of that system no object of this kind can be read in its other version.",
        ));
    }
    findings
}

/// The fields of our schema that a version of a definition would drop, in words; none if it keeps all.
fn pruned(ours: &CustomResourceDefinitionVersion, found: &CustomResourceDefinitionVersion) -> Option<String> {
    let schema = |version: &CustomResourceDefinitionVersion| {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        schema.and_then(|schema| serde_json::to_value(schema).ok()).unwrap_or_default()
    };
    let mut missing = Vec::new();
    compare("", &schema(ours), &schema(found), &mut missing);
    (!missing.is_empty()).then(|| {
        format!("lacks {} that Gangway writes: {}", counted(missing.len(), "field"), first_of(&missing))
    })
}

/// The topmost fields of `ours` that `found` does not have.
fn compare(path: &str, ours: &Value, found: &Value, missing: &mut Vec<String>) {
    if found["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, inner) in ours["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        match found["properties"].get(name) {
            Some(found) => compare(&path, inner, found, missing),
            None => missing.push(path),
        }
    }
    for (key, mark) in [("items", "[]"), ("additionalProperties", ".*")] {
        if ours[key].is_object() {
            compare(&format!("{path}{mark}"), &ours[key], &found[key], missing);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;

    /// Our definitions after a change of one of them.
    fn changed(change: impl Fn(&mut CustomResourceDefinition)) -> Vec<Finding> {
        let ours = gangway_api::crds();
        let mut found = ours.clone();
        let queue = found.iter_mut().find(|crd| crd.name_any().starts_with("clusterqueues.")).unwrap();
        change(queue);
        judge(&ours, &found)
    }

    fn without(path: &[&str]) -> Vec<Finding> {
        changed(|crd| {
            for version in &mut crd.spec.versions {
                let mut schema = serde_json::to_value(&version.schema).unwrap();
                let mut inner = &mut schema["openAPIV3Schema"];
                for field in &path[..path.len() - 1] {
                    inner =
                        if *field == "[]" { &mut inner["items"] } else { &mut inner["properties"][*field] };
                }
                inner["properties"].as_object_mut().unwrap().remove(path[path.len() - 1]).unwrap();
                version.schema = serde_json::from_value(schema).unwrap();
            }
        })
    }

    #[test]
    fn our_own_are_fine() {
        let findings = changed(|_| {});
        assert_eq!(
            findings.iter().map(|finding| finding.level).collect::<Vec<_>>(),
            [Level::Ok],
            "{findings:?}"
        );
    }

    #[test]
    fn fields_that_would_be_dropped_are_named_once() {
        let table: [(&[&str], &str); 3] = [
            (&["spec", "waitForPodsReady"], "lacks 1 field that Gangway writes: .spec.waitForPodsReady"),
            (
                &["spec", "flavorFungibility", "fallbackStrategy", "rules", "[]", "timeoutMinutes"],
                "lacks 1 field that Gangway writes: .spec.flavorFungibility.fallbackStrategy.rules[].timeoutMinutes",
            ),
            (&["status"], "lacks 1 field that Gangway writes: .status"),
        ];
        for (path, what) in table {
            let findings = without(path);
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert_eq!((findings[0].level, findings[0].what.as_str()), (Level::Problem, what));
            assert_eq!(findings[0].fix.as_deref(), Some(APPLY));
        }
    }

    #[test]
    fn a_schema_that_keeps_what_it_does_not_know_drops_nothing() {
        let mut missing = Vec::new();
        let ours = json!({"properties": {"spec": {"properties": {"a": {}, "b": {}}}}});
        let open = json!({"properties": {"spec": {"x-kubernetes-preserve-unknown-fields": true}}});
        compare("", &ours, &open, &mut missing);
        assert!(missing.is_empty(), "{missing:?}");
        compare("", &ours, &json!({"properties": {"spec": {"properties": {"a": {}}}}}), &mut missing);
        assert_eq!(missing, [".spec.b"]);
    }

    #[test]
    fn versions_that_are_not_served_and_webhooks_are_told() {
        let levels =
            |findings: Vec<Finding>| findings.iter().map(|finding| finding.level).collect::<Vec<_>>();
        assert_eq!(levels(changed(|crd| crd.spec.versions[0].served = false)), [Level::Warning]);
        assert_eq!(levels(changed(|crd| crd.spec.versions[1].served = false)), [Level::Problem]);
        let converted = changed(|crd| {
            crd.spec.conversion = serde_json::from_value(json!({"strategy": "Webhook"})).unwrap();
        });
        assert_eq!(levels(converted), [Level::Warning]);
        let refused = changed(|crd| {
            let condition = json!({"type": "NamesAccepted", "status": "False", "message": "taken"});
            crd.status = serde_json::from_value(json!({"conditions": [condition]})).unwrap();
        });
        assert_eq!(levels(refused), [Level::Problem]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let ours = gangway_api::crds();
        let none = judge(&ours, &[]);
        assert_eq!((none.len(), none[0].what.as_str()), (1, "none of them is there"));
        let some = judge(&ours, &ours[1..]);
        assert_eq!((some.len(), some[0].what.as_str()), (1, "is not there: admissionchecks.kueue.x-k8s.io"));
    }
}
