//! Fallback and admission checks: what objects say, by every spelling, and what is written back.

use gangway_api::kueue;
use gangway_api::records::{ResourceRules, admission_check, cluster_queue, workload, workload_status};
use gangway_model::Timestamp;
use gangway_model::checks::{CheckAnswer, CheckAnswers};
use gangway_model::fallback::{FailurePolicy, FallbackRule, FlavorHistory};
use gangway_model::queues::ClusterQueue;
use gangway_model::reasons::{CheckState, FallbackTrigger};
use gangway_model::workload::{Pending, State};
use serde_json::{Value, json};

/// The document's own example, its indentation repaired.
const DOCUMENT: &str = "
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata:
  name: cluster-queue
spec:
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: reservation, resources: [{name: cpu, nominalQuota: 1}]}
    - {name: spot, resources: [{name: cpu, nominalQuota: 1}]}
    - {name: on-demand, resources: [{name: cpu, nominalQuota: 1}]}
  flavorFungibility:
    whenCanBorrow: TryNextFlavor
    flavorFallbackStrategy:
      failurePolicy: DeactivateWorkload
      strategy: TimeoutBased
      rules:
      - name: reservation
        timeout: 10m
      - name: spot
        timeout: 15m
      - name: on-demand
";

fn queue(strategy: Value) -> (ClusterQueue, Vec<String>) {
    let flavors = ["spot", "on-demand"]
        .map(|name| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": 1}]}));
    let object = json!({
        "metadata": {"name": "q"},
        "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "flavorFungibility": {"fallbackStrategy": strategy},
        },
    });
    let read = cluster_queue(&serde_json::from_value(object).unwrap());
    let problems = read.problems.iter().map(|p| format!("{}: {}", p.path, p.message)).collect();
    (read.record, problems)
}

#[test]
fn the_documents_example_means_what_it_says() {
    let object: kueue::ClusterQueue = serde_saphyr::from_str(DOCUMENT).unwrap();
    let read = cluster_queue(&object);
    assert_eq!((&read.problems, &read.unsupported), (&vec![], &vec![]));
    let strategy = read.record.fallback.unwrap();
    assert_eq!(strategy.failure_policy, FailurePolicy::DeactivateWorkload);
    let timeouts = ["reservation", "spot", "on-demand"].map(|f| strategy.timeout_seconds(&f.into()));
    assert_eq!(timeouts, [Some(600), Some(900), None]);
}

#[test]
fn spellings_of_one_thing_mean_the_same() {
    let (short, problems) = queue(json!({"rules": [{"name": "*", "timeoutMinutes": 10}]}));
    assert_eq!(problems, Vec::<String>::new());
    let long = json!({"failurePolicy": "RetryAllFlavors", "strategy": "TimeoutBased",
        "rules": [{"name": "*", "trigger": "TimeoutForPodsReadyExceeded", "timeout": "10m"}]});
    assert_eq!(short, queue(long).0);
    let trigger = FallbackTrigger::TimeoutForPodsReadyExceeded;
    let rule = FallbackRule { flavor: None, trigger, timeout_seconds: Some(600) };
    assert_eq!(short.fallback.map(|strategy| strategy.rules), Some(vec![rule]));
}

#[test]
fn a_rule_that_cannot_be_is_named() {
    let table = [
        (
            json!([{"name": "gone", "timeout": "1m"}]),
            "rules[0].name: gone is no flavor of this ClusterQueue; name one of them, or *",
        ),
        (
            json!([{"name": "spot", "timeout": "0s"}]),
            "rules[0].timeout: must be more than 0; leave it out to wait for ever",
        ),
        (
            json!([{"name": "spot", "timeoutMinutes": -1}]),
            "rules[0].timeoutMinutes: must be more than 0; leave it out to wait for ever",
        ),
        (
            json!([{"name": "spot", "timeout": "soon"}]),
            "rules[0].timeout: \"soon\" is not a length of time such as \"90s\" or \"1h30m\"",
        ),
        (
            json!([{"name": "spot", "trigger": "AdmissionCheckRejected", "timeout": "1m"}]),
            "rules[0].timeout: has no meaning for AdmissionCheckRejected; leave it out",
        ),
        (
            json!([{"name": "spot", "timeout": "1m"}, {"name": "spot", "timeoutMinutes": 2}]),
            "rules[1]: there is another rule for flavor spot and TimeoutForPodsReadyExceeded",
        ),
        (
            json!([{"name": "spot", "trigger": "Whim"}]),
            "rules[0].trigger: \"Whim\" is not one of TimeoutForPodsReadyExceeded, AdmissionCheckRejected",
        ),
    ];
    for (rules, expected) in table {
        let (record, problems) = queue(json!({"rules": rules}));
        assert_eq!(problems, [format!("spec.flavorFungibility.fallbackStrategy.{expected}")]);
        assert!(record.invalid.is_some(), "the queue is not active: {rules}");
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(second)
}

fn read_back(status: &Value) -> State {
    let object = json!({"metadata": {"name": "w", "namespace": "ns", "uid": "u"}, "spec": {"podSets": []}, "status": status});
    workload(&serde_json::from_value(object).unwrap(), &ResourceRules::default()).record.state
}

#[test]
fn history_and_checks_survive_the_way_through_the_object_and_are_written_only_when_they_change() {
    let mut history = FlavorHistory::default();
    history.take_away(&"spot".into(), at(10), at(70));
    history.give_up(&"spot".into(), FallbackTrigger::AdmissionCheckRejected);
    history.assign(&"on-demand".into(), at(80));
    let retry = CheckAnswer {
        state: CheckState::Retry,
        message: "later".to_owned(),
        requeue_after_seconds: Some(30),
        retry_count: Some(2),
        ..CheckAnswer::pending("budget".into(), at(5))
    };
    let checks = CheckAnswers(vec![retry]).noted();
    let state = State::Pending(Pending { history: history.noted(), checks, ..Pending::default() });
    let status = workload_status(&state, 1, None);
    let expected = json!({"resourceFlavor": "spot", "assignmentTime": "1970-01-01T00:00:10Z", "accumulatedSeconds": 60,
        "exhausted": true, "trigger": "AdmissionCheckRejected", "rounds": 0});
    assert_eq!(status["flavorAssignmentHistory"][0], expected);
    assert_eq!(read_back(&status), state);
    let current: kueue::WorkloadStatus = serde_json::from_value(status).unwrap();
    let again = workload_status(&state, 1, Some(&current));
    assert!(
        again.get("flavorAssignmentHistory").is_none() && again.get("admissionChecks").is_none(),
        "{again}"
    );
    let forgotten = workload_status(&State::new(), 1, Some(&current));
    assert_eq!(
        (&forgotten["flavorAssignmentHistory"], &forgotten["admissionChecks"]),
        (&json!([]), &json!([]))
    );
}

#[test]
fn what_a_check_wants_changed_in_the_pods_stays_as_long_as_its_answer() {
    let update = json!([{"name": "main", "nodeSelector": {"zone": "a"}}]);
    let entry = |name: &str| json!({"name": name, "state": "Ready", "message": "", "lastTransitionTime": "1970-01-01T00:00:05Z", "podSetUpdates": update});
    let current: kueue::WorkloadStatus =
        serde_json::from_value(json!({"admissionChecks": [entry("kept"), entry("reset")]})).unwrap();
    let ready = CheckAnswer { state: CheckState::Ready, ..CheckAnswer::pending("kept".into(), at(5)) };
    let reset = CheckAnswer::pending("reset".into(), at(9));
    let checks = CheckAnswers(vec![ready, reset]).noted();
    let state = State::Pending(Pending { checks, ..Pending::default() });
    let list = workload_status(&state, 1, Some(&current))["admissionChecks"].clone();
    assert_eq!((&list[0]["podSetUpdates"], &list[1]["podSetUpdates"]), (&update, &Value::Null));
    assert_eq!(list[1]["state"], "Pending");
}

#[test]
fn a_check_is_active_when_its_controller_says_so_or_people_answer_it() {
    let check = |controller: &str, conditions: Value| {
        let object = json!({"metadata": {"name": "c"}, "spec": {"controllerName": controller}, "status": {"conditions": conditions}});
        admission_check(&serde_json::from_value(object).unwrap()).active
    };
    let active = |status: &str| json!([{"type": "Active", "status": status, "reason": "r", "message": "", "lastTransitionTime": "1970-01-01T00:00:05Z"}]);
    assert!(check("example.com/budget", active("True")));
    assert!(!check("example.com/budget", active("False")));
    assert!(!check("example.com/budget", json!([])));
    assert!(check("gangway.dev/manual", json!([])));
}
