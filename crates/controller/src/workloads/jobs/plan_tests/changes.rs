//! Jobs that are changed while they wait or run, and Workloads that do not fit.

use gangway_api::names;
use gangway_model::reasons::EventReason;
use serde_json::{Value, json};

use super::super::plan::Step;
use super::world::{World, admitted, evicting, job, merged, pending};
use super::{is_creation, is_deletion, is_restore, is_start, is_update, suspends, warns};

fn container(change: Value) -> Value {
    let containers = json!([merged(job()["spec"]["template"]["spec"]["containers"][0].clone(), change)]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}

fn label(key: &str, value: Option<&str>) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

#[test]
fn a_workload_without_quota_follows_a_changed_job_in_place() {
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}});
    let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let cases = [
        ("parallelism", json!({"spec": {"parallelism": 1}})),
        ("requests", container(json!({"resources": {"requests": {"cpu": "2"}}}))),
        ("image", container(json!({"image": "other"}))),
        ("tolerations", template(json!({"tolerations": null}))),
        ("node selector", template(json!({"nodeSelector": {"disk": "hdd"}}))),
        ("affinity", template(json!({"affinity": affinity}))),
        ("template labels", json!({"spec": {"template": {"metadata": {"labels": {"app": "x"}}}}})),
        ("template annotations", json!({"spec": {"template": {"metadata": {"annotations": {"note": "x"}}}}})),
    ];
    for (name, change) in cases {
        let mut world = World::queued();
        world.workloads[0].0["spec"]["active"] = json!(false);
        world.pods_are_gone();
        world.change_job(change.clone());
        world.take(is_update);
        assert_eq!(world.step(), Step::Nothing, "{name}");
        let expected = World::queued_with(change).workload()["spec"]["podSets"].clone();
        assert_eq!(world.workload()["spec"]["podSets"], expected, "{name}");
        assert_eq!(world.workload()["spec"]["active"], false, "{name}");
    }
}

#[test]
fn an_unchanged_job_is_described_whoever_wrote_its_quantities_and_variables() {
    let cases = [
        ("quantities by value", json!({"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}})),
        ("the last of two variables", json!({"env": [{"name": "SEED", "value": "1"}]})),
    ];
    for (name, change) in cases {
        let twice = json!([{"name": "SEED", "value": "0"}, {"name": "SEED", "value": "1"}]);
        let mut world = World::queued_with(container(json!({"env": twice})));
        let stored = &mut world.workloads[0].0["spec"]["podSets"][0]["template"]["spec"]["containers"][0];
        assert_eq!(stored["env"], json!([{"name": "SEED", "value": "1"}]));
        json_patch::merge(stored, &change);
        assert_eq!(world.step(), Step::Nothing, "{name}");
        world.workload_is(admitted());
        world.take(is_start);
    }
}

#[test]
fn a_job_changed_while_its_workload_holds_quota_gives_the_quota_back() {
    let mut world = World::queued();
    world.pods_are_gone();
    world.workload_is(admitted());
    world.change_job(json!({"spec": {"parallelism": 1}}));
    world.take(is_deletion);
    world.take(is_creation);
    assert_eq!(world.workload()["spec"]["podSets"][0]["count"], 1);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_job_changed_while_it_runs_is_stopped_restored_and_queued_anew() {
    for state in [admitted(), evicting()] {
        let mut world = World::running();
        world.workload_is(state);
        world.change_job(json!({"spec": {"parallelism": 1}}));
        world.take(suspends(EventReason::Stopped));
        assert_eq!(world.step(), Step::Nothing, "pods are left");
        world.pods_are_gone();
        world.take(is_restore);
        assert_eq!(world.template(), &job()["spec"]["template"]);
        world.take(is_deletion);
        world.take(is_creation);
        assert_eq!(world.step(), Step::Nothing);
    }
}

#[test]
fn a_job_changed_after_it_lost_its_quota_is_restored_before_its_workload_follows() {
    let mut world = World::running();
    world.change_job(json!({"spec": {"suspend": true, "parallelism": 1}}));
    world.pods_are_gone();
    world.workload_is(pending());
    world.take(is_restore);
    world.take(is_update);
    assert_eq!(world.step(), Step::Nothing);
    let template = &world.workload()["spec"]["podSets"][0]["template"];
    assert_eq!(template["spec"], job()["spec"]["template"]["spec"]);
}

#[test]
fn a_selector_changed_after_admission_is_kept_by_start_and_stop() {
    let mut world = World::queued();
    world.pods_are_gone();
    world.workload_is(admitted());
    let selector = |disk: &str| json!({"disk": disk});
    world.change_job(json!({"spec": {"template": {"spec": {"nodeSelector": selector("hdd")}}}}));
    world.take(is_start);
    assert_eq!(world.template()["spec"]["nodeSelector"], json!({"disk": "hdd", "machine": "fast"}));
    world.workload_is(evicting());
    world.take(suspends(EventReason::Stopped));
    world.pods_are_gone();
    world.take(is_restore);
    assert_eq!(world.template()["spec"]["nodeSelector"], selector("hdd"));
    world.workload_is(pending());
    world.take(is_update);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn of_two_workloads_the_one_that_describes_the_job_stays() {
    for described_first in [true, false] {
        let mut world = World::queued();
        let (fitting, state) = world.workloads[0].clone();
        let other =
            json!({"metadata": {"name": "other", "uid": "other"}, "spec": {"podSets": [{"count": 9}]}});
        let mut other = merged(fitting.clone(), other);
        other["spec"]["podSets"] =
            json!([merged(fitting["spec"]["podSets"][0].clone(), json!({"count": 9}))]);
        let at = usize::from(described_first);
        world.workloads.insert(at, (other, state));
        world.take(is_deletion);
        assert_eq!(world.workload()["metadata"]["uid"], "workload-uid");
        assert_eq!(world.step(), Step::Nothing);
    }
}

#[test]
fn of_two_equal_workloads_the_one_with_quota_stays() {
    let mut world = World::running();
    let (object, _) = world.workloads[0].clone();
    let spare = merged(object, json!({"metadata": {"name": "spare", "uid": "spare"}, "status": null}));
    world.workloads.insert(0, (spare, pending()));
    world.take(is_deletion);
    assert_eq!(world.workload()["metadata"]["uid"], "workload-uid");
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn two_workloads_that_do_not_fit_are_deleted_one_by_one() {
    let mut world = World::queued();
    let (object, state) = world.workloads[0].clone();
    let spare = merged(object, json!({"metadata": {"name": "spare", "uid": "spare"}}));
    world.workloads.push((spare, state));
    world.pods_are_gone();
    world.change_job(json!({"spec": {"parallelism": 1}}));
    world.take(is_deletion);
    world.take(is_update);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_queued_job_moves_to_another_queue_and_a_running_one_does_not() {
    let moved = label(names::QUEUE_NAME_LABEL, Some("other"));
    let mut world = World::queued();
    world.change_job(moved.clone());
    world.take(is_update);
    assert_eq!(world.workload()["spec"]["queueName"], "other");
    assert_eq!(world.step(), Step::Nothing);
    let mut world = World::running();
    world.change_job(moved);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_job_does_not_leave_its_queue_by_losing_the_label() {
    let mut world = World::running();
    world.change_job(label(names::QUEUE_NAME_LABEL, None));
    assert_eq!(world.step(), Step::Nothing);
    world.workload_is(evicting());
    world.take(suspends(EventReason::Stopped));
}

#[test]
fn gates_that_open_on_the_job_open_on_its_workload() {
    let key = names::ADMISSION_GATED_BY_ANNOTATION;
    let gates = |gates: Option<&str>| json!({"metadata": {"annotations": {key: gates}}});
    let mut world = World::queued_with(gates(Some("a.io/x,b.io/y")));
    for left in [Some("b.io/y"), None] {
        json_patch::merge(&mut world.job, &gates(left));
        world.take(is_update);
        assert_eq!(world.workload()["metadata"]["annotations"].get(key), left.map(|g| json!(g)).as_ref());
        assert_eq!(world.step(), Step::Nothing);
    }
}

#[test]
fn a_changed_priority_class_is_followed_as_far_as_quota_allows() {
    let class = |name| label(names::PRIORITY_CLASS_LABEL, name);
    let pods = json!({"spec": {"template": {"spec": {"priorityClassName": "pods"}}}});
    let cases = [
        ("queued, no class", json!({}), false, true),
        ("queued, another class", class(Some("low")), false, true),
        ("holding, another class", class(Some("low")), true, true),
        ("holding, no class", json!({}), true, false),
        ("holding, a class of the pods", pods, true, false),
    ];
    for (name, written, holds, is_followed) in cases {
        let mut world = World::queued_with(written);
        if holds {
            world.workload_is(admitted());
            world.take(is_start);
        }
        world.change_job(class(Some("high")));
        if is_followed {
            world.take(is_update);
            let spec = &world.workload()["spec"];
            assert_eq!((&spec["priority"], &spec["priorityClassRef"]["name"]), (&json!(100), &json!("high")));
        }
        assert_eq!(world.step(), Step::Nothing, "{name}");
    }
}

#[test]
fn a_class_whose_value_changes_changes_the_priority() {
    let mut world = World::queued_with(label(names::PRIORITY_CLASS_LABEL, Some("high")));
    world.classes.workload.insert("high".to_owned(), 200);
    world.take(is_update);
    assert_eq!(world.workload()["spec"]["priority"], 200);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_priority_without_a_class_is_whoevers_wrote_it() {
    let mut world = World::queued();
    world.workloads[0].0["spec"]["priority"] = json!(50);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_class_that_does_not_exist_is_said_and_keeps_nobody_from_being_stopped() {
    let missing = label(names::PRIORITY_CLASS_LABEL, Some("none-such"));
    let not_found = || warns(EventReason::WorkloadPriorityClassNotFound);
    World::new(merged(job(), missing.clone())).take(not_found());
    let runs = merged(missing.clone(), json!({"spec": {"suspend": false}}));
    World::new(merged(job(), runs)).take(suspends(EventReason::Suspended));
    let mut world = World::queued();
    world.change_job(missing);
    world.take(not_found());
}

#[test]
fn a_class_that_goes_away_changes_nothing_for_who_has_it() {
    let mut world = World::queued_with(label(names::PRIORITY_CLASS_LABEL, Some("high")));
    world.classes.workload.clear();
    assert_eq!(world.step(), Step::Nothing);
    world.workload_is(admitted());
    world.take(is_start);
    world.pods_run();
    assert_eq!(world.step(), Step::Nothing);
    world.workload_is(evicting());
    world.take(suspends(EventReason::Stopped));
}

#[test]
fn what_is_not_supported_is_said_and_not_run() {
    let annotation = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    for asked in [
        annotation(names::ELASTIC_JOB_ANNOTATION, "true"),
        annotation(names::PREBUILT_WORKLOAD, "w"),
        label(names::PREBUILT_WORKLOAD, Some("w")),
        label(names::MAX_EXEC_TIME_LABEL, Some("60")),
    ] {
        World::new(merged(job(), asked.clone())).take(warns(EventReason::UnsupportedJob));
        let runs = merged(asked, json!({"spec": {"suspend": false}}));
        let mut world = World::new(merged(job(), runs));
        world.take(suspends(EventReason::Suspended));
        world.take(warns(EventReason::UnsupportedJob));
    }
    World::queued_with(annotation(names::ELASTIC_JOB_ANNOTATION, "false"));
}

#[test]
fn a_running_job_that_asks_for_what_is_not_supported_gives_its_quota_back() {
    let mut world = World::running();
    world.change_job(label(names::MAX_EXEC_TIME_LABEL, Some("60")));
    world.take(suspends(EventReason::Suspended));
    assert_eq!(world.step(), Step::Nothing, "pods are left");
    world.pods_are_gone();
    world.take(is_restore);
    world.take(is_deletion);
    world.take(warns(EventReason::UnsupportedJob));
    world.change_job(label(names::MAX_EXEC_TIME_LABEL, None));
    world.take(is_creation);
}
