//! A replay goes on where a dump found a Workload on its way from flavor to flavor.

use serde_json::Value;

use super::{items, replay_text};

/// A queue with three flavors that may take ten minutes each. Whoever gets the second has to be allowed to by a check.
const QUEUE: &str = r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: reservation}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: spot}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: on-demand}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
status:
  conditions:
  - {type: Active, status: "True", reason: Active, message: "", lastTransitionTime: "2026-03-01T08:00:00Z"}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: training}
spec:
  namespaceSelector: {}
  admissionChecksStrategy: {admissionChecks: [{name: budget, onFlavors: [spot]}]}
  flavorFungibility: {fallbackStrategy: {rules: [{name: "*", timeout: 10m}]}}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - {name: reservation, resources: [{name: cpu, nominalQuota: 1}]}
    - {name: spot, resources: [{name: cpu, nominalQuota: 1}]}
    - {name: on-demand, resources: [{name: cpu, nominalQuota: 1}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: training, namespace: lab}
spec: {clusterQueue: training}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: train, namespace: lab, creationTimestamp: "2026-03-01T09:00:00Z"}
spec:
  queueName: training
  podSets:
  - {name: main, count: 1, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}
status:
"#;

/// It waits, gave up the first flavor, and was preempted when most of the second's time was used up.
const WAITS: &str = r#"
  flavorAssignmentHistory:
  - {resourceFlavor: reservation, assignmentTime: "2026-03-01T09:00:00Z", accumulatedSeconds: 600, exhausted: true,
     trigger: TimeoutForPodsReadyExceeded, rounds: 0}
  - {resourceFlavor: spot, assignmentTime: "2026-03-01T09:10:00Z", accumulatedSeconds: 540, exhausted: false, rounds: 0}
"#;

/// It has had the second flavor for five minutes and waits for the check.
const ASKS: &str = r#"
  admission:
    clusterQueue: training
    podSetAssignments: [{name: main, count: 1, flavors: {cpu: spot}, resourceUsage: {cpu: 1}}]
  admissionChecks:
  - {name: budget, state: Pending, message: "", lastTransitionTime: "2026-03-01T11:55:00Z"}
  conditions:
  - {type: QuotaReserved, status: "True", reason: QuotaReserved, message: "", lastTransitionTime: "2026-03-01T11:55:00Z"}
  flavorAssignmentHistory:
  - {resourceFlavor: reservation, assignmentTime: "2026-03-01T11:45:00Z", accumulatedSeconds: 600, exhausted: true,
     trigger: TimeoutForPodsReadyExceeded, rounds: 0}
  - {resourceFlavor: spot, assignmentTime: "2026-03-01T11:55:00Z", accumulatedSeconds: 0, exhausted: false, rounds: 0}
"#;

fn replayed(status: &str, spec: &str) -> Value {
    let replay = "---\napiVersion: replay.gangway.dev/v1alpha1\nkind: Replay\nmetadata: {name: fallback}\n";
    let text = format!("{QUEUE}{}\n{replay}spec: {spec}\n", status.trim_start_matches('\n').trim_end());
    let (code, said, complaint) = replay_text(text.as_bytes(), &["-o", "json"]);
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    serde_json::from_str(&said).expect("JSON")
}

/// The round and the flavor of every admission, and the round and the reason of every eviction.
fn steps(answer: &Value) -> Vec<String> {
    let mut steps = Vec::new();
    for cycle in answer["cycles"].as_array().into_iter().flatten() {
        let round = &cycle["round"];
        let evicted = cycle["evicted"].as_array().into_iter().flatten();
        steps.extend(
            evicted.map(|entry| format!("{round}: {}", entry["reason"].as_str().unwrap_or_default())),
        );
        let admitted = cycle["admitted"].as_array().into_iter().flatten();
        let flavor =
            |entry: &Value| entry["podSets"][0]["flavors"]["cpu"].as_str().unwrap_or_default().to_owned();
        steps.extend(admitted.map(|entry| format!("{round}: {}", flavor(entry))));
    }
    steps
}

fn state(answer: &Value) -> &str {
    answer["final"]["workloads"]["lab/train"]["state"].as_str().unwrap_or_default()
}

const NOW: &str = r#"now: "2026-03-01T12:00:00Z""#;

#[test]
fn a_flavor_that_was_given_up_is_not_assigned() {
    let answer = replayed(WAITS, &format!("{{{NOW}}}"));
    assert_eq!(steps(&answer), ["0: spot"]);
    assert_eq!(state(&answer), "reserved", "its check has to agree");
    let untried = replayed("  conditions: []", &format!("{{{NOW}}}"));
    assert_eq!(steps(&untried), ["0: reservation"]);
    assert_eq!(state(&untried), "admitted");
}

#[test]
fn when_time_passes_the_next_flavor_is_tried_and_in_the_end_all_again() {
    let pauses = "pauses: [{round: 1, seconds: 60}, {round: 2, seconds: 600}, {round: 3, seconds: 70}]";
    let answer = replayed(WAITS, &format!("{{{NOW}, {pauses}}}"));
    let expected = ["0: spot", "1: FlavorFallback", "1: on-demand", "2: FlavorFallback", "3: reservation"];
    assert_eq!(steps(&answer), expected, "what was used up before counts");
    let too_short = replayed(WAITS, &format!("{{{NOW}, pauses: [{{round: 1, seconds: 30}}]}}"));
    assert_eq!(steps(&too_short), ["0: spot"]);
}

#[test]
fn who_waits_for_a_check_waits_on_and_its_time_runs() {
    let answer = replayed(ASKS, &format!("{{{NOW}}}"));
    assert!(steps(&answer).is_empty(), "{answer:#}");
    assert_eq!((state(&answer), items(&answer, "evicted").count()), ("reserved", 0));
    let later = replayed(ASKS, &format!("{{{NOW}, pauses: [{{round: 1, seconds: 300}}]}}"));
    assert_eq!(steps(&later), ["1: FlavorFallback", "1: on-demand"]);
    assert_eq!(state(&later), "admitted", "nobody checks that one");
    // A dump that is looked at when the time is over.
    let late = replayed(ASKS, r#"{now: "2026-03-01T12:05:00Z"}"#);
    assert_eq!(steps(&late), ["0: FlavorFallback", "0: on-demand"]);
}

#[test]
fn time_does_not_pass_in_the_protocol() {
    let pauses = |pauses: &str| {
        format!(
            "{}\n---\napiVersion: replay.gangway.dev/v1alpha1\nkind: Replay\nspec: {{pauses: [{pauses}]}}\n",
            super::scenario()
        )
    };
    let (code, _, said) = replay_text(pauses("{round: 1, seconds: 5}").as_bytes(), super::PROTOCOL);
    assert_eq!(code, Some(4), "{said}");
    assert!(said.contains("spec.pauses: time does not pass in the protocol"), "{said}");
    let (code, _, said) = replay_text(pauses("{round: 0, seconds: 5}").as_bytes(), &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("spec.pauses: round must be from 1 to 10000"), "{said}");
}
