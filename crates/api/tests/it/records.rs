//! Objects to records and back.

use gangway_api::kueue;
use gangway_api::records::{
    ResourceRules, cluster_queue, cluster_queue_status, cohort, flavor, local_queue, local_queue_status,
    workload, workload_status,
};
use gangway_model::conditions::ConditionType;
use gangway_model::queues::{
    BorrowWithinCohort, FlavorUsage, FungibilityPolicy, QueueCounts, QueueingStrategy, ReclaimWithinCohort,
    StopPolicy,
};
use gangway_model::readiness::Timeouts;
use gangway_model::reasons::{
    ClusterQueueReason, EvictionReason, LocalQueueReason, PendingReason, PreemptionReason,
};
use gangway_model::workload::{
    Admission, Assignment, Eviction, Pending, Preemption, Reservation, State, Waiting,
};
use gangway_model::{Amount, Requests, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn object<T: DeserializeOwned>(kind: &str, name: &str, rest: Value) -> T {
    let mut object = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 3},
        "spec": {},
    });
    for (field, value) in rest.as_object().unwrap() {
        object[field] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn queue(spec: Value) -> gangway_api::records::Read<gangway_model::queues::ClusterQueue> {
    cluster_queue(&object::<kueue::ClusterQueue>("ClusterQueue", "main", json!({"spec": spec})))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(second)
}

#[test]
fn both_spellings_mean_the_same() {
    let older = queue(json!({
        "cohort": "all", "admissionChecks": ["budget"],
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"},
        "preemption": {"withinCohort": "ReclaimFromAny", "withinClusterQueue": "LowerPriorityOnly"},
    }));
    let newer = queue(json!({
        "cohortName": "all", "admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]},
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
    }));
    assert_eq!(older, newer);
    assert_eq!(newer.problems, vec![]);
    assert_eq!(newer.record.fungibility.when_can_preempt, FungibilityPolicy::MayStopSearch);
}

#[test]
fn kep_83_words_are_understood() {
    let table = [
        ("Never", ReclaimWithinCohort::Never),
        ("Any", ReclaimWithinCohort::Any),
        ("ReclaimFromAny", ReclaimWithinCohort::Any),
        ("ReclaimAny", ReclaimWithinCohort::Any),
        ("Always", ReclaimWithinCohort::Any),
        ("LowerPriority", ReclaimWithinCohort::LowerPriority),
        ("ReclaimFromLowerPriority", ReclaimWithinCohort::LowerPriority),
        ("LowerPriorityOnly", ReclaimWithinCohort::LowerPriority),
    ];
    for (word, expected) in table {
        for field in ["withinCohort", "reclaimWithinCohort"] {
            let read = queue(json!({"preemption": {field: word}}));
            assert_eq!(
                (read.record.preemption.reclaim_within_cohort, read.problems),
                (expected, vec![]),
                "{word}"
            );
        }
    }
}

#[test]
fn an_empty_queue_has_the_defaults() {
    let read = queue(json!({}));
    assert_eq!(read.problems, vec![]);
    let record = read.record;
    assert_eq!(record.strategy, QueueingStrategy::BestEffortFifo);
    assert_eq!(record.namespace_selector, None);
    assert_eq!(record.stop_policy, StopPolicy::None);
    assert_eq!(record.fungibility, Default::default());
    assert_eq!(record.preemption.borrow_within_cohort, BorrowWithinCohort::Never);
    assert_eq!((record.cohort, record.invalid), (None, None));
}

#[test]
fn quotas_are_counted_in_their_units() {
    let read = queue(
        json!({"cohortName": "all", "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [
        {"name": "spot", "resources": [
            {"name": "cpu", "nominalQuota": "1.5", "borrowingLimit": 1, "lendingLimit": "500m"},
            {"name": "memory", "nominalQuota": "100E"}]}]}]}),
    );
    assert_eq!(read.problems, vec![]);
    let quotas = &read.record.resource_groups[0].flavors[0].quotas;
    assert_eq!((quotas[0].nominal, quotas[0].lending_limit), (Amount::new(1500), Some(Amount::new(500))));
    assert!(quotas[1].nominal.is_unlimited(), "what does not fit is no limit");
}

#[test]
fn problems_are_all_reported_and_make_the_queue_invalid() {
    let read = queue(json!({
        "cohortName": "a", "cohort": "b", "stopPolicy": "Pause", "queueingStrategy": "Random",
        "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
            {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": "-1", "lendingLimit": "x"}]},
            {"name": "spot", "resources": [{"name": "memory", "nominalQuota": 1}]}]}],
    }));
    let mut paths: Vec<&str> = read.problems.iter().map(|problem| problem.path.as_str()).collect();
    paths.sort_unstable();
    let expected = [
        "spec.cohortName",
        "spec.namespaceSelector",
        "spec.queueingStrategy",
        "spec.resourceGroups[0].flavors",
        "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit",
        "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
        "spec.resourceGroups[0].flavors[1].resources",
        "spec.stopPolicy",
    ];
    assert_eq!(paths, expected);
    let record = read.record;
    assert!(record.invalid.unwrap().contains("spec.cohortName: differs from spec.cohort"));
    assert_eq!(record.stop_policy, StopPolicy::Hold, "what cannot be read stops the queue");
    assert!(!record.namespace_selector.unwrap().matches(&Default::default()), "and selects nothing");
}

#[test]
fn what_is_not_supported_is_said() {
    let read = queue(json!({"fairSharing": {"weight": 1}, "waitForPodsReady": {"timeout": "1m"}}));
    let paths: Vec<&str> = read.unsupported.iter().map(|note| note.path.as_str()).collect();
    assert_eq!(paths, ["spec.fairSharing"]);
    assert_eq!(read.record.invalid, None);
}

#[test]
fn timeouts_of_a_queue_and_of_a_job_are_read() {
    let of = |setting: serde_json::Value| queue(json!({"waitForPodsReady": setting})).record;
    let read = of(json!({"timeout": "1m30s", "recoveryTimeout": "0s"}));
    assert_eq!(read.timeouts, Timeouts { start_seconds: Some(90), recovery_seconds: Some(0) });
    assert_eq!(read.invalid, None);
    for (setting, path) in [("timeout", "soon"), ("recoveryTimeout", "-1s"), ("timeout", "0s")] {
        let invalid = of(json!({setting: path})).invalid.unwrap_or_default();
        assert!(invalid.starts_with(&format!("spec.waitForPodsReady.{setting}: ")), "{invalid}");
    }

    let annotated = |start: &str| {
        let object = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": "w", "annotations": {"gangway.dev/pods-ready-timeout": start,
                "gangway.dev/pods-ready-recovery-timeout": "10s"}},
            "spec": {"podSets": []}});
        workload(&serde_json::from_value(object).unwrap(), &ResourceRules::default())
    };
    let read = annotated("20s");
    let expected = Timeouts { start_seconds: Some(20), recovery_seconds: Some(10) };
    assert_eq!((read.record.timeouts.as_deref(), read.cautions), (Some(&expected), Vec::new()));
    let read = annotated("shortly");
    assert_eq!(read.record.impediments, None, "it is queued all the same");
    assert_eq!(read.cautions[0].path, "metadata.annotations[gangway.dev/pods-ready-timeout]");
    assert!(
        read.cautions[0].message.starts_with("\"shortly\" is not a length of time"),
        "{:?}",
        read.cautions
    );
}

#[test]
fn flavors_cohorts_and_local_queues() {
    let spec = json!({"nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "k", "effect": "Never"}],
        "tolerations": [{"key": "k", "operator": "Exists"}]});
    let read = flavor(&object("ResourceFlavor", "spot", json!({"spec": spec})));
    assert_eq!(read.problems[0].path, "spec.nodeTaints[0].effect");
    assert_eq!((read.record.node_taints.len(), read.record.tolerations.len()), (1, 1));

    let spec = json!({"parentName": "root", "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": "spot", "resources": [{"name": "cpu", "nominalQuota": 1, "lendingLimit": 5}]}]}]});
    let read = cohort(&object("Cohort", "all", json!({"spec": spec})));
    assert_eq!(read.problems, vec![], "a cohort lends what its members have");
    assert_eq!(read.record.parent.unwrap().as_str(), "root");

    let spec = json!({"clusterQueue": "main", "stopPolicy": "HoldAndDrain"});
    let read = local_queue(&object("LocalQueue", "team", json!({"spec": spec})));
    assert_eq!(read.record.name.to_string(), "ns/team");
    assert_eq!(read.record.stop_policy, StopPolicy::HoldAndDrain);
}

fn waiting_workload(status: Value) -> kueue::Workload {
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 2, "example.com/x": 1}}}]}});
    let spec = json!({"queueName": "team", "priority": 5, "podSets": [{"name": "main", "count": 3, "template": template}]});
    object("Workload", "w", json!({"spec": spec, "status": status}))
}

#[test]
fn a_workload_is_read() {
    let rules = ResourceRules { exclude_prefixes: vec!["example.com/".to_owned()] };
    let read = workload(&waiting_workload(json!({})), &rules);
    assert_eq!((read.problems, read.repaired), (vec![], false));
    let record = read.record;
    assert_eq!((record.version, record.generation, record.priority, record.active), (7, 3, 5, true));
    assert_eq!((record.pod_sets[0].count, record.pod_sets[0].requests.get("cpu")), (3, 2000));
    assert!(!record.pod_sets[0].requests.contains("example.com/x"));
    assert_eq!(record.state, State::new());
}

#[test]
fn a_template_that_is_none_makes_the_workload_invalid() {
    for template in [
        json!(5),
        json!({"spec": {"containers": 5}}),
        json!({"spec": {"containers": [{"name": "c",
        "resources": {"requests": {"cpu": "-1"}}}]}}),
    ] {
        let spec = json!({"podSets": [{"name": "main", "count": -1, "template": template}]});
        let read = workload(&object("Workload", "w", json!({"spec": spec})), &ResourceRules::default());
        let problem = read.record.impediments.and_then(|impediments| impediments.invalid);
        assert!(problem.unwrap().contains("spec.podSets[0].template"));
        assert_eq!(read.record.pod_sets[0].count, 0);
    }
}

fn holding() -> State {
    let mut usage = Requests::new();
    usage.set("cpu".into(), 6000);
    usage.set("memory".into(), 3 << 20);
    let assignment = Assignment {
        name: "main".into(),
        flavors: vec![("cpu".into(), "spot".into()), ("memory".into(), "spot".into())],
        usage,
        count: 3,
        reclaimed: 0,
    };
    let admission = Admission { cluster_queue: "main".into(), pod_sets: [assignment].into() };
    State::Holding(Reservation {
        admission: admission.into(),
        reserved_at: at(10),
        admitted_at: Some(at(10)),
        past_eviction: None,
        requeued: None,
        requeue_state: None,
        pods_ready: None,
        checks: None,
        history: None,
    })
}

#[test]
fn a_state_survives_the_way_through_the_object() {
    let waiting = Waiting { reason: PendingReason::WaitingForQuota, message: "3 cpu".into(), since: at(5) };
    let pending = State::Pending(Pending { waiting: Some(waiting), ..Pending::default() });
    for state in [State::new(), pending, holding()] {
        let status = workload_status(&state, 3, None);
        let read = workload(&waiting_workload(status), &ResourceRules::default());
        assert_eq!((read.record.state, read.repaired), (state, false));
    }
}

fn preempted() -> (Reservation, Eviction) {
    let State::Holding(reservation) = holding() else { unreachable!("it holds quota") };
    let preemption =
        Preemption { preemptor: Some("uid-w".into()), reason: PreemptionReason::InCohortReclamation };
    let eviction = Eviction {
        reason: EvictionReason::Preempted,
        message: "Preempted for Workload ns/w".into(),
        at: at(20),
        preemption: Some(preemption),
        overdue: None,
    };
    (reservation, eviction)
}

#[test]
fn a_preempted_workload_says_for_whom_and_by_which_right() {
    let (reservation, eviction) = preempted();
    let state = State::Evicting(reservation, Box::new(eviction));
    let status = workload_status(&state, 3, None);
    let said = |kind: &str| {
        let conditions = status["conditions"].as_array().unwrap();
        let condition = conditions.iter().find(|condition| condition["type"] == kind).unwrap().clone();
        (condition["status"].clone(), condition["reason"].clone(), condition["message"].clone())
    };
    let message = json!("Preempted for Workload ns/w");
    assert_eq!(said("Evicted"), (json!("True"), json!("Preempted"), message.clone()));
    assert_eq!(said("Preempted"), (json!("True"), json!("InCohortReclamation"), message));
    assert_eq!(status["preemptor"], json!("uid-w"));
    let read = workload(&waiting_workload(status), &ResourceRules::default());
    assert_eq!((read.record.state, read.repaired), (state, false));
}

#[test]
fn the_preemptor_is_written_only_when_it_changes() {
    let (reservation, eviction) = preempted();
    let state = State::Evicting(reservation, Box::new(eviction));
    let current: kueue::WorkloadStatus = serde_json::from_value(workload_status(&state, 3, None)).unwrap();
    assert!(workload_status(&state, 3, Some(&current)).get("preemptor").is_none());
    let forgotten = workload_status(&holding(), 3, Some(&current));
    assert_eq!(forgotten.get("preemptor"), Some(&Value::Null), "null takes it away");
}

/// The status of an object after a merge patch.
fn patched(current: Option<&kueue::WorkloadStatus>, patch: Value) -> kueue::WorkloadStatus {
    let mut status = current.map_or_else(|| json!({}), |status| serde_json::to_value(status).unwrap());
    for (field, value) in patch.as_object().unwrap() {
        status[field] = value.clone();
    }
    serde_json::from_value(status).unwrap()
}

#[test]
fn an_eviction_is_counted_once_and_never_forgotten() {
    let (reservation, eviction) = preempted();
    let evicting = State::Evicting(reservation, Box::new(eviction.clone()));
    let evicted = Pending { evicted: Some(Box::new(eviction.clone())), ..Pending::default() };
    let drained = Eviction { reason: EvictionReason::ClusterQueueStopped, preemption: None, ..eviction };
    let rejected = Eviction { reason: EvictionReason::DeactivatedDueToAdmissionCheck, ..drained.clone() };
    let again = |eviction: Eviction| State::Evicting(preempted().0, Box::new(eviction));
    let life = [
        (holding(), json!(null)),
        (evicting.clone(), json!([["Preempted", "", 1]])),
        (evicting.clone(), json!([["Preempted", "", 1]])),
        (State::Pending(evicted), json!([["Preempted", "", 1]])),
        (holding(), json!([["Preempted", "", 1]])),
        (evicting, json!([["Preempted", "", 2]])),
        (holding(), json!([["Preempted", "", 2]])),
        (again(drained), json!([["Preempted", "", 2], ["ClusterQueueStopped", "", 1]])),
        (holding(), json!([["Preempted", "", 2], ["ClusterQueueStopped", "", 1]])),
        (
            again(rejected),
            json!([
                ["Preempted", "", 2],
                ["ClusterQueueStopped", "", 1],
                ["Deactivated", "AdmissionCheck", 1]
            ]),
        ),
    ];
    let mut status: Option<kueue::WorkloadStatus> = None;
    for (state, expected) in life {
        let patch = workload_status(&state, 3, status.as_ref());
        assert_eq!(workload_status(&state, 3, status.as_ref()), patch, "sent twice it says the same");
        status = Some(patched(status.as_ref(), patch));
        let stats = status.as_ref().and_then(|status| status.scheduling_stats.as_ref());
        let counted = stats.map(|stats| {
            let entry = |e: &kueue::EvictionCount| json!([e.reason, e.underlying_cause, e.count]);
            stats.evictions.iter().map(entry).collect::<Vec<_>>()
        });
        assert_eq!(json!(counted), expected, "after {state:?}");
    }
}

#[test]
fn counts_stop_where_the_object_has_no_room_for_more() {
    let mut stats = kueue::SchedulingStats::default();
    for number in 0..300 {
        stats.count("Other", &number.to_string());
    }
    stats.evictions[0].count = i32::MAX;
    stats.count("Other", "0");
    assert_eq!((stats.evictions.len(), stats.evictions[0].count), (256, i32::MAX));
}

#[test]
fn conditions_of_others_are_kept_and_ours_replaced() {
    let foreign = json!({"type": "Billed", "status": "True", "reason": "Paid", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let stale = json!({"type": "Evicted", "status": "True", "reason": "Preempted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let current: kueue::WorkloadStatus =
        serde_json::from_value(json!({"conditions": [foreign, stale]})).unwrap();
    let status = workload_status(&holding(), 3, Some(&current));
    let types: Vec<&str> =
        status["conditions"].as_array().unwrap().iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["QuotaReserved", "Admitted", "Billed"]);
    assert_eq!(status["conditions"][0]["observedGeneration"], json!(3));
    assert_eq!(
        status["admission"]["podSetAssignments"][0]["resourceUsage"],
        json!({"cpu": "6", "memory": "3Mi"})
    );
}

#[test]
fn admission_is_written_only_when_it_changes() {
    let mut status = workload_status(&holding(), 3, None);
    status["admission"]["podSetAssignments"][0]["topologyAssignment"] = json!({"levels": ["rack"]});
    let current: kueue::WorkloadStatus = serde_json::from_value(status).unwrap();
    assert!(workload_status(&holding(), 3, Some(&current)).get("admission").is_none());
    let pending = workload_status(&State::new(), 3, Some(&current));
    assert_eq!(pending["admission"], Value::Null);
    assert!(pending.as_object().unwrap().contains_key("admission"), "null takes it away");
}

#[test]
fn contradictory_conditions_are_a_repair() {
    let admitted = json!({"type": ConditionType::Admitted.as_str(), "status": "True", "reason": "Admitted",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let read = workload(&waiting_workload(json!({"conditions": [admitted]})), &ResourceRules::default());
    assert!(read.repaired && !read.record.state.may_run());
}

#[test]
fn queue_statuses_are_written_once() {
    let usage = FlavorUsage { flavor: "spot".into(), resources: vec![("cpu".into(), 1500, 0)] };
    let counts =
        QueueCounts { pending: 1, reserving: 2, admitted: 2, reservation: vec![usage], usage: vec![] };
    let ready = (ClusterQueueReason::Ready, "It admits");
    let status = cluster_queue_status(None, &counts, ready, 1, at(10)).unwrap();
    assert_eq!(
        status["flavorsReservation"][0]["resources"][0],
        json!({"name": "cpu", "total": "1500m", "borrowed": "0"})
    );
    assert_eq!(status["conditions"][0]["lastTransitionTime"], json!("1970-01-01T00:00:10Z"));
    let current: kueue::ClusterQueueStatus = serde_json::from_value(status).unwrap();
    assert_eq!(cluster_queue_status(Some(&current), &counts, ready, 1, at(20)), None);
    let stopped = (ClusterQueueReason::Stopped, "It is held");
    let status = cluster_queue_status(Some(&current), &counts, stopped, 1, at(20)).unwrap();
    assert_eq!(status["conditions"][0]["status"], json!("False"));
    assert_eq!(status["conditions"][0]["lastTransitionTime"], json!("1970-01-01T00:00:20Z"));

    let ready = (LocalQueueReason::Ready, "It passes on");
    let status = local_queue_status(None, &counts, ready, 1, at(10)).unwrap();
    let current: kueue::LocalQueueStatus = serde_json::from_value(status).unwrap();
    assert_eq!(local_queue_status(Some(&current), &counts, ready, 1, at(20)), None);
}

/// A Workload of 4 pods of 2 CPUs each, of which `assigned` were admitted and `reclaimable` are not needed any more.
fn reclaiming(assigned: i32, reclaimable: i32) -> kueue::Workload {
    let template = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 2}}}]}});
    let spec = json!({"podSets": [{"name": "main", "count": 4, "minCount": 1, "template": template}]});
    let assignment = json!({
        "name": "main", "count": assigned, "flavors": {"cpu": "spot"},
        "resourceUsage": {"cpu": (2 * assigned).to_string()},
    });
    let reserved = json!({
        "type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({
        "conditions": [reserved],
        "admission": {"clusterQueue": "main", "podSetAssignments": [assignment]},
        "reclaimablePods": [{"name": "main", "count": reclaimable}],
    });
    object("Workload", "w", json!({"spec": spec, "status": status}))
}

#[test]
fn pods_that_are_not_needed_any_more_are_neither_used_nor_asked_for() {
    // Who runs with fewer pods than it asked for still uses all of them until fewer are needed.
    for (assigned, reclaimable, asks_for, uses) in [
        (4, 0, 4, 8000),
        (4, 1, 3, 6000),
        (4, 4, 0, 0),
        (3, 0, 4, 6000),
        (3, 1, 3, 6000),
        (3, 2, 2, 4000),
        (2, 2, 2, 4000),
    ] {
        let read = workload(&reclaiming(assigned, reclaimable), &ResourceRules::default());
        let case = format!("{assigned} assigned, {reclaimable} reclaimable");
        assert_eq!((read.problems, read.repaired), (vec![], false), "{case}");
        assert_eq!(read.record.pod_sets[0].count, asks_for, "{case}");
        let reservation = read.record.state.reservation().unwrap();
        let used: Vec<i64> = reservation.admission.usage().map(|(_, _, amount)| amount).collect();
        assert_eq!(used, [uses], "{case}");
    }
}

#[test]
fn an_admission_with_pods_that_are_not_needed_is_not_written_anew() {
    let object = reclaiming(4, 2);
    let read = workload(&object, &ResourceRules::default());
    let status = workload_status(&read.record.state, 1, object.status.as_ref());
    assert!(status.get("admission").is_none(), "{status}");
}

#[test]
fn only_what_asks_for_places_is_said_to_be_unsupported() {
    let with = |request: Value| {
        let mut object = reclaiming(4, 0);
        object.spec.pod_sets[0].min_count = None;
        object.spec.pod_sets[0].topology_request = Some(request);
        workload(&object, &ResourceRules::default()).unsupported.len()
    };
    assert_eq!(with(json!({"podIndexLabel": "batch.kubernetes.io/job-completion-index"})), 0);
    assert_eq!(with(json!({"required": "rack"})), 1);
}

#[test]
fn who_belongs_to_no_job_says_to_what() {
    let owned = |owners: Value| {
        let mut object = reclaiming(4, 0);
        object.metadata.owner_references = serde_json::from_value(owners).unwrap();
        workload(&object, &ResourceRules::default()).record.foreign_owner().map(str::to_owned)
    };
    let owner = |version: &str, kind: &str, controller: bool| json!([{"apiVersion": version, "kind": kind, "name": "o", "uid": "u", "controller": controller}]);
    assert_eq!(owned(owner("batch/v1", "Job", true)), None);
    assert_eq!(owned(json!([])), None, "made by hand");
    assert_eq!(owned(owner("jobset.x-k8s.io/v1alpha2", "JobSet", true)).as_deref(), Some("JobSet"));
    assert_eq!(owned(owner("v1", "Pod", false)).as_deref(), Some("Pod"), "a group of pods");
    assert_eq!(owned(owner("batch.volcano.sh/v1alpha1", "Job", true)).as_deref(), Some("Job"));
}

#[test]
fn a_queue_that_asks_for_what_would_change_admission_says_so() {
    let said = |spec: Value| queue(spec).record.not_supported;
    let scope = |mode: &str| json!({"admissionScope": {"admissionMode": mode}});
    assert!(said(scope("NoAdmissionFairSharing")).is_empty());
    assert!(said(scope("UsageBasedAdmissionFairSharing"))[0].starts_with("spec.admissionScope"));
    let concurrent = json!({"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}});
    assert!(said(concurrent)[0].starts_with("spec.concurrentAdmissionPolicy"));
    assert!(
        said(json!({"fairSharing": {"weight": 2}})).is_empty(),
        "it acts where the configuration says so"
    );
}
