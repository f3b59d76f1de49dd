use gangway_admission::Event;
use gangway_api::records::{ResourceRules, workload};
use gangway_model::queues::Namespace;
use gangway_model::selector::Labels;
use serde_json::Value;

use super::super::finding::Level;
use super::super::queues::tests::{engine, flavor, local, queue, queue_with};
use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// A Workload of one pod in LocalQueue `main` of `team`.
fn waits(name: &str, cpu: &str, change: impl Fn(&mut Value)) -> Event {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}});
    let mut object = json!({
        "metadata": {"name": name, "namespace": "team", "uid": name, "resourceVersion": "1",
            "creationTimestamp": "2023-11-14T22:00:00Z"},
        "spec": {"queueName": "main", "podSets": [
            {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}},
        ]},
    });
    change(&mut object);
    let object = serde_json::from_value(object).unwrap();
    Event::Workload(Box::new(workload(&object, &ResourceRules::default()).record))
}

fn namespace() -> Event {
    Event::Namespace(Namespace { name: "team".into(), labels: Labels::new() })
}

fn define(queue: ClusterQueue) -> Event {
    Event::ClusterQueue(Box::new(queue))
}

/// What is told of a queue of two CPUs and these Workloads.
fn told(more: Vec<Event>) -> Vec<Finding> {
    let queues = vec![namespace(), flavor("any"), define(queue("behind", &[("any", 2000)]))];
    let events = queues.into_iter().chain([local("team", "main", "behind", json!({}))]).chain(more);
    judge(&engine(events.collect()), &|workload| Some(format!("of-{}", workload.name.name)), NOW, 600)
}

fn only(findings: Vec<Finding>) -> (Level, String, String, String) {
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings.into_iter().next().unwrap();
    (finding.level, finding.place, finding.what, finding.fix.unwrap_or_default())
}

#[test]
fn who_only_waits_for_others_is_well() {
    let findings = told(vec![waits("a", "2", |_| {}), waits("b", "1", |_| {})]);
    assert_eq!(findings[0].level, Level::Ok, "{findings:?}");
}

#[test]
fn a_queue_that_is_not_there_is_named_with_who_waits_in_it() {
    let elsewhere = |object: &mut Value| object["spec"]["queueName"] = "lost".into();
    let (level, place, what, fix) = only(told(vec![waits("a", "1", elsewhere), waits("b", "1", elsewhere)]));
    assert_eq!((level, place.as_str()), (Level::Problem, "LocalQueue team/lost"));
    assert_eq!(what, "does not exist, and 2 Workloads wait in it");
    let expected = r#"echo '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"LocalQueue","metadata":{"name":"lost","namespace":"team"},"spec":{"clusterQueue":"behind"}}' | kubectl create -f -"#;
    assert_eq!(fix, expected);
}

#[test]
fn a_limit_below_the_largest_request_is_raised_to_it() {
    let (level, place, what, fix) =
        only(told(vec![waits("a", "3", |_| {}), waits("b", "5500m", |_| {}), waits("c", "4", |_| {})]));
    assert_eq!((level, place.as_str()), (Level::Problem, "ClusterQueue behind"));
    assert_eq!(what, "is too small for 3 Workloads that wait, the largest of them: Job team/of-b");
    let expected = r#"kubectl patch clusterqueue behind --type=json -p '[{"op":"replace","path":"/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota","value":"5500m"}]'"#;
    assert_eq!(fix, expected);
}

#[test]
fn what_can_be_borrowed_counts_before_a_limit_is_raised() {
    let lender = queue_with("lender", &[("any", 1000)], json!({"cohortName": "all"}));
    let borrower = queue_with("behind", &[("any", 2000)], json!({"cohortName": "all"}));
    let (_, _, _, fix) = only(told(vec![define(lender), define(borrower), waits("a", "5", |_| {})]));
    assert!(fix.contains(r#""value":"4""#), "one of the five is borrowed: {fix}");
}

#[test]
fn what_no_flavor_suits_is_explained() {
    let spot = |object: &mut Value| {
        object["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = json!({"tier": "big"});
    };
    let labelled = json!({"metadata": {"name": "any"}, "spec": {"nodeLabels": {"tier": "spot"}}});
    let labelled = gangway_api::records::flavor(&serde_json::from_value(labelled).unwrap()).record;
    let (level, place, what, fix) = only(told(vec![Event::Flavor(labelled), waits("a", "1", spot)]));
    assert_eq!((level, place.as_str()), (Level::Problem, "LocalQueue team/main"));
    assert!(what.starts_with("1 Workload waits in vain: NoMatchingFlavor: "), "{what}");
    assert_eq!(fix, "gangway explain job/of-a -n team");
}

#[test]
fn a_namespace_that_is_not_selected_is_labelled() {
    let selector = |selector: Value| {
        let narrow = queue_with("behind", &[("any", 2000)], json!({"namespaceSelector": selector}));
        let (_, _, what, fix) = only(told(vec![define(narrow), waits("a", "1", |_| {})]));
        assert!(what.contains("does not select namespace team"), "{what}");
        fix
    };
    let labels = selector(json!({"matchLabels": {"kind": "a", "size": "b"}}));
    assert_eq!(labels, "kubectl label namespace team --overwrite kind=a size=b");
    let odd = selector(json!({"matchExpressions": [{"key": "kind", "operator": "Exists"}]}));
    assert_eq!(odd, "kubectl edit clusterqueue behind");
}

#[test]
fn what_is_deactivated_is_a_warning() {
    let off = |object: &mut Value| object["spec"]["active"] = false.into();
    let (level, place, what, fix) = only(told(vec![waits("a", "1", off), waits("b", "1", off)]));
    assert_eq!((level, place.as_str()), (Level::Warning, "Workload team/a"));
    assert_eq!(what, "and others, 2 in all, are deactivated: Job team/of-a, Job team/of-b");
    assert_eq!(fix, r#"kubectl patch workload a -n team --type=merge -p '{"spec":{"active":true}}'"#);
}

#[test]
fn who_should_have_left_is_a_problem_after_a_while() {
    let evicted = |at: &'static str| {
        move |object: &mut Value| {
            let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": at});
            let owner =
                json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true});
            object["metadata"]["ownerReferences"] = json!([owner]);
            let assignment =
                json!({"name": "main", "count": 1, "flavors": {"cpu": "any"}, "resourceUsage": {"cpu": "1"}});
            object["status"] = json!({
                "admission": {"clusterQueue": "behind", "podSetAssignments": [assignment]},
                "conditions": [
                    condition("QuotaReserved", "True", "QuotaReserved"),
                    condition("Admitted", "True", "Admitted"),
                    condition("Evicted", "True", "Preempted"),
                ],
            });
        }
    };
    // It is 22:13:20.
    let early = told(vec![waits("a", "1", evicted("2023-11-14T22:03:20Z"))]);
    assert_eq!(early[0].level, Level::Ok, "{early:?}");
    let (level, place, what, fix) = only(told(vec![waits("a", "1", evicted("2023-11-14T22:03:19Z"))]));
    assert_eq!((level, place.as_str()), (Level::Problem, "Workload team/a"));
    assert_eq!(what, "was told to leave 601 s ago and has not: Job team/of-a");
    assert_eq!(
        fix,
        "kubectl delete pods -n team -l batch.kubernetes.io/job-name=of-a --force --grace-period=0"
    );
}
