//! Admission policies: what CEL says of a change is what Rust says of it, and what the table says.

use std::collections::BTreeSet;

use gangway_api::config::{Configuration, load};
use gangway_api::policies::{self, Change, Rule};
use kube::core::cel::KubeCelExt;
use kube::core::cel::cel::{Context, Program, Value as Cel};
use serde_json::{Value, json};

fn read(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn cases() -> Vec<Value> {
    let cases = read(include_str!("../policies/cases.yaml"));
    cases.as_array().unwrap().clone()
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            if !target[key].is_object() && value.is_object() {
                target[key] = json!({});
            }
            merge(&mut target[key], value);
        }
    }
}

fn job(patch: &Value) -> Option<Value> {
    let mut job = read(include_str!("../policies/job.yaml"));
    merge(&mut job, patch);
    Some(job).filter(|_| !patch.is_null())
}

/// What a rule says of a change as a cluster would evaluate it.
fn is_kept_by_cel(rule: &Rule, old: Option<&Value>, new: &Value) -> bool {
    let mut context = Context::default().with_all();
    context.add_variable("object", new.clone()).unwrap();
    context.add_variable("oldObject", old.cloned().unwrap_or(Value::Null)).unwrap();
    let mut variables: std::collections::HashMap<String, Cel> = std::collections::HashMap::new();
    for (name, text) in policies::variables() {
        context.add_variable_from_value("variables", variables.clone());
        let program = Program::compile(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let value = program.execute(&context).unwrap_or_else(|error| panic!("{name}: {error}"));
        variables.insert(name.to_owned(), value);
    }
    context.add_variable_from_value("variables", variables);
    let program = Program::compile(&rule.cel).unwrap_or_else(|error| panic!("{}: {error}", rule.name));
    match program.execute(&context) {
        Ok(Cel::Bool(kept)) => kept,
        other => panic!("{} with {new}: {other:?}", rule.name),
    }
}

#[test]
fn every_rule_says_the_same_in_both_languages_and_what_the_table_says() {
    let rules = policies::rules();
    let mut refusing = BTreeSet::new();
    for case in cases() {
        let (old, new) = (job(&case["old"]), job(&case["new"]).unwrap());
        let change = Change { old: old.as_ref(), new: &new };
        let broken: Vec<&str> =
            rules.iter().filter(|rule| !(rule.is_kept)(&change)).map(|rule| rule.name).collect();
        assert_eq!(broken, Vec::from_iter(case["refused"].as_str()), "{}", case["name"]);
        for rule in &rules {
            let kept = is_kept_by_cel(rule, old.as_ref(), &new);
            assert_eq!(kept, (rule.is_kept)(&change), "{} of {}", rule.name, case["name"]);
        }
        refusing.extend(broken);
    }
    let all: BTreeSet<&str> = rules.iter().map(|rule| rule.name).collect();
    assert_eq!(refusing, all, "every rule refuses something in the table");
}

#[test]
fn nothing_that_stays_as_it_was_is_refused() {
    for case in cases() {
        let same = job(&case["new"]).unwrap();
        let change = Change { old: Some(&same), new: &same };
        assert_eq!(policies::broken(&change), None, "{}", case["name"]);
        for rule in policies::rules() {
            assert!(is_kept_by_cel(&rule, Some(&same), &same), "{} of {}", rule.name, case["name"]);
        }
    }
}

#[test]
fn messages_say_what_and_what_to_try_in_one_line() {
    for rule in policies::rules() {
        assert!(rule.message.contains(':') && !rule.message.contains('\n'), "{}", rule.message);
        assert!(!rule.message.contains("  "), "{}", rule.message);
    }
}

fn suspend(configuration: &Configuration) -> Value {
    let objects = policies::objects(configuration);
    objects.into_iter().find(|object| object["metadata"]["name"] == policies::SUSPEND).unwrap()
}

#[test]
fn policies_follow_the_configuration() {
    let text = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n\
                manageJobsWithoutQueueName: true\n\
                managedJobsNamespaceSelector: {matchLabels: {team: \"yes\"}}\n";
    let configuration = load("c.yaml", text).unwrap();
    let (usual, other) = (suspend(&Configuration::default()), suspend(&configuration));
    let names = |policy: &Value| -> Vec<String> {
        let conditions = policy["spec"]["matchConditions"].as_array().unwrap().iter();
        conditions.map(|condition| condition["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&usual), ["runs", "has-no-managed-owner", "is-queued"]);
    assert_eq!(names(&other), ["runs", "has-no-managed-owner"]);
    let selector = |policy: &Value| policy["spec"]["matchConstraints"]["namespaceSelector"].clone();
    let own = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]});
    assert_eq!(selector(&usual), json!({"matchExpressions": [own]}));
    let team = json!({"key": "team", "operator": "In", "values": ["yes"]});
    assert_eq!(selector(&other), json!({"matchExpressions": [team]}));
}

#[test]
fn every_policy_has_its_binding_and_its_place_in_the_lists() {
    let objects = policies::objects(&Configuration::default());
    let mut found: Vec<Vec<String>> = vec![Vec::new(); policies::PLURALS.len()];
    for object in &objects {
        let kind = object["kind"].as_str().unwrap().to_lowercase();
        let kind = kind.strip_suffix('y').map_or(format!("{kind}s"), |stem| format!("{stem}ies"));
        let index = policies::PLURALS.iter().position(|plural| *plural == kind).unwrap();
        found[index].push(object["metadata"]["name"].as_str().unwrap().to_owned());
    }
    for (mut found, names) in found.into_iter().zip(policies::NAMES) {
        found.sort();
        assert_eq!(found, names);
    }
}
