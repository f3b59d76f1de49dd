use gangway_admission::Event;
use gangway_api::records::cluster_queue;
use gangway_model::Timestamp;
use gangway_model::readiness::WaitForPodsReady;
use serde_json::{Value, json};

use super::super::finding::Level;
use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// A queue with so many milli-CPUs of each flavor.
pub(in super::super) fn queue(name: &str, quotas: &[(&str, i64)]) -> ClusterQueue {
    queue_with(name, quotas, json!({}))
}

pub(in super::super) fn queue_with(name: &str, quotas: &[(&str, i64)], more: Value) -> ClusterQueue {
    let flavors: Vec<Value> = quotas
        .iter()
        .map(|(flavor, quota)| {
            json!({"name": flavor, "resources": [{"name": "cpu", "nominalQuota": format!("{quota}m")}]})
        })
        .collect();
    let mut spec = json!({
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = json!({"metadata": {"name": name}, "spec": spec});
    cluster_queue(&serde_json::from_value(object).unwrap()).record
}

pub(in super::super) fn flavor(name: &str) -> Event {
    let object = json!({"metadata": {"name": name}, "spec": {}});
    Event::Flavor(records::flavor(&serde_json::from_value(object).unwrap()).record)
}

pub(in super::super) fn local(namespace: &str, name: &str, behind: &str, more: Value) -> Event {
    let mut spec = json!({"clusterQueue": behind});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let object = json!({"metadata": {"name": name, "namespace": namespace}, "spec": spec});
    Event::LocalQueue(records::local_queue(&serde_json::from_value(object).unwrap()).record)
}

pub(in super::super) fn engine(events: Vec<Event>) -> Engine {
    let mut engine = Engine::new();
    for event in events.into_iter().chain([Event::Synced]) {
        engine.apply(event, NOW);
    }
    engine.decide(NOW, usize::MAX);
    engine
}

fn defined(queue: ClusterQueue) -> Event {
    Event::ClusterQueue(Box::new(queue))
}

fn check(name: &str, controller: &str, active: bool) -> kueue::AdmissionCheck {
    let status = if active { "True" } else { "False" };
    let condition = json!({"type": "Active", "status": status, "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let object = json!({"metadata": {"name": name}, "spec": {"controllerName": controller},
        "status": {"conditions": [condition]}});
    serde_json::from_value(object).unwrap()
}

#[test]
fn every_queue_that_does_not_admit_says_why_and_what_mends_it() {
    let cohort = |name: &str, parent: &str| {
        let object = json!({"metadata": {"name": name}, "spec": {"parentName": parent}});
        Event::Cohort(records::cohort(&serde_json::from_value(object).unwrap()).record)
    };
    let demands = |check: &str| json!({"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}});
    let of = |name: &str, more: Value| defined(queue_with(name, &[("any", 1000)], more));
    let idle = records::admission_check(&check("idle", "example.com/c", false));
    let engine = engine(vec![
        flavor("any"),
        cohort("one", "other"),
        cohort("other", "one"),
        Event::AdmissionCheck(idle),
        of("a-fine", json!({})),
        of("b-stopped", json!({"stopPolicy": "Hold"})),
        defined(queue("c-flavor", &[("any", 1000), ("gone", 1000)])),
        of("d-cycle", json!({"cohortName": "one"})),
        of("e-check", demands("gone")),
        of("f-idle", demands("idle")),
        of("g-unknown", json!({"queueingStrategy": "Sometimes"})),
    ]);
    let told: Vec<(Level, String, String)> = inactive(&engine)
        .into_iter()
        .map(|finding| (finding.level, finding.place, finding.fix.unwrap_or_default()))
        .collect();
    let manual = |name: &str| {
        format!(
            r#"echo '{{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"AdmissionCheck","metadata":{{"name":"{name}"}},"spec":{{"controllerName":"gangway.dev/manual"}}}}' | kubectl create -f -"#
        )
    };
    let expected = [
        (
            Level::Warning,
            "b-stopped",
            r#"kubectl patch clusterqueue b-stopped --type=merge -p '{"spec":{"stopPolicy":"None"}}'"#.to_owned(),
        ),
        (
            Level::Problem,
            "c-flavor",
            r#"echo '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor","metadata":{"name":"gone"},"spec":{}}' | kubectl create -f -"#.to_owned(),
        ),
        (
            Level::Problem,
            "d-cycle",
            r#"kubectl patch cohort one --type=json -p '[{"op":"remove","path":"/spec/parentName"}]'"#.to_owned(),
        ),
        (Level::Problem, "e-check", manual("gone")),
        (Level::Problem, "f-idle", format!("kubectl delete admissioncheck idle && {}", manual("idle"))),
        (Level::Problem, "g-unknown", "kubectl edit clusterqueue g-unknown".to_owned()),
    ];
    let expected = expected.map(|(level, name, fix)| (level, format!("ClusterQueue {name}"), fix));
    assert_eq!(told, expected);
}

#[test]
fn local_queues_that_lead_nowhere_are_a_problem_and_stopped_ones_a_warning() {
    let engine = engine(vec![
        flavor("any"),
        defined(queue("there", &[("any", 1000)])),
        local("team", "fine", "there", json!({})),
        local("team", "lost", "gone", json!({})),
        local("team", "stopped", "there", json!({"stopPolicy": "Hold"})),
    ]);
    let told = inactive(&engine);
    let places: Vec<(Level, &str)> =
        told.iter().map(|finding| (finding.level, finding.place.as_str())).collect();
    let expected = [(Level::Problem, "LocalQueue team/lost"), (Level::Warning, "LocalQueue team/stopped")];
    assert_eq!(places, expected);
    let fix = told[0].fix.as_deref().unwrap();
    assert!(
        fix.contains(r#""kind":"ClusterQueue","metadata":{"name":"gone"}"#)
            && fix.contains(r#""name":"any""#),
        "{fix}"
    );
}

#[test]
fn what_is_made_by_a_fix_is_valid() {
    let engine = engine(vec![local("team", "lost", "gone", json!({}))]);
    let told = inactive(&engine);
    let fix = told[0].fix.as_deref().unwrap();
    let object = fix.strip_prefix("echo '").and_then(|rest| rest.split_once('\'')).unwrap().0;
    let made: kueue::ClusterQueue = serde_json::from_str(object).unwrap();
    let read = cluster_queue(&made);
    assert!(read.problems.is_empty() && read.record.name.as_str() == "gone", "{:?}", read.problems);
}

#[test]
fn strict_order_and_return_to_the_front_are_dangerous_together() {
    let strict = queue_with("strict", &[("any", 1)], json!({"queueingStrategy": "StrictFIFO"}));
    let loose = queue("loose", &[("any", 1)]);
    let settings = |timestamp| WaitForPodsReady { timestamp, ..WaitForPodsReady::default() };
    let places = |settings: Option<&WaitForPodsReady>| -> Vec<String> {
        dangerous_order(&[&strict, &loose], settings).into_iter().map(|finding| finding.place).collect()
    };
    assert!(places(None).is_empty());
    assert!(places(Some(&settings(RequeuingTimestamp::Eviction))).is_empty());
    assert_eq!(places(Some(&settings(RequeuingTimestamp::Creation))), ["ClusterQueue strict"]);
}

#[test]
fn checks_that_nobody_answers_stop_their_queues() {
    let demanding = queue_with(
        "team",
        &[("any", 1)],
        json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "idle"}, {"name": "live"}]}}),
    );
    let table = [
        (check("live", "example.com/c", true), Level::Ok),
        (check("by-hand", MANUAL_CHECK_CONTROLLER, false), Level::Ok),
        (check("unused", "example.com/c", false), Level::Warning),
        (check("idle", "example.com/c", false), Level::Problem),
    ];
    for (check, level) in table {
        let told = checks(std::slice::from_ref(&check), &[&demanding]);
        assert_eq!(told.iter().map(|finding| finding.level).collect::<Vec<_>>(), [level], "{check:?}");
    }
    assert!(checks(&[], &[&demanding]).is_empty());
}

#[test]
fn queues_of_which_nobody_says_anything_are_told() {
    let queue = |generation: i64, observed: Option<i64>| -> kueue::ClusterQueue {
        let mut object = json!({"metadata": {"name": "q", "generation": generation}, "spec": {}});
        if let Some(observed) = observed {
            object["status"] = json!({"conditions": [{"type": "Active", "status": "True", "reason": "Ready",
                "message": "", "observedGeneration": observed, "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        }
        serde_json::from_value(object).unwrap()
    };
    assert!(unanswered(&[queue(2, Some(2))], "ours").is_none());
    assert!(unanswered(&[], "ours").is_none());
    for silent in [queue(2, Some(1)), queue(1, None)] {
        let told = unanswered(&[silent], "ours").unwrap();
        assert_eq!(told.fix.as_deref(), Some("kubectl -n ours rollout status deployment gangway-controller"));
    }
}
