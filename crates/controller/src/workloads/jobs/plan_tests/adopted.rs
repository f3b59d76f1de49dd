//! Jobs that the reference started.

use gangway_api::names;
use gangway_model::reasons::EventReason;
use serde_json::{Value, json};

use super::super::plan::Step;
use super::world::{World, admitted, evicting, job, merged, pending};
use super::{is_restore, is_start, suspends, warns};

/// A Job of 8 pods that runs with 2 of them, as the reference starts it.
fn started_by_reference(change: Value) -> World {
    let asks = json!({
        "metadata": {"annotations": {names::JOB_MIN_PARALLELISM_ANNOTATION: "1"}},
        "spec": {"parallelism": 8, "completions": 16},
    });
    let mut world = World::queued_with(merged(asks, change));
    assert_eq!(world.workload()["spec"]["podSets"][0]["count"], 8);
    assert_eq!(world.workload()["spec"]["podSets"][0]["minCount"], 1);
    world.workload_is(admitted());
    let assignment = json!([{"name": "main", "count": 2}]);
    world.workloads[0].0["status"]["admission"]["podSetAssignments"] = assignment;
    let labels = json!({names::POD_SET_LABEL: "main", names::CLUSTER_QUEUE_LABEL: "cq"});
    let template = json!({
        "metadata": {"labels": labels, "annotations": {names::WORKLOAD_ANNOTATION: "job-train"}},
        "spec": {"nodeSelector": {"machine": "fast"}},
    });
    world.change_job(json!({"spec": {"suspend": false, "parallelism": 2, "template": template}}));
    world.pods_run();
    world
}

#[test]
fn a_job_that_runs_with_fewer_pods_goes_on_and_gets_all_back_when_it_stops() {
    for completions_follow in [false, true] {
        let annotation = names::JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION;
        let change = json!({"metadata": {"annotations": {annotation: completions_follow.to_string()}}});
        let mut world = started_by_reference(change);
        assert_eq!(world.step(), Step::Nothing);
        world.workload_is(evicting());
        world.workloads[0].0["status"]["admission"]["podSetAssignments"] =
            json!([{"name": "main", "count": 2}]);
        world.take(suspends(EventReason::Stopped));
        world.pods_are_gone();
        // The quota may be given back before the template is restored.
        if completions_follow {
            world.workload_is(pending());
        }
        world.take(is_restore);
        let spec = &world.job["spec"];
        let completions = if completions_follow { 8 } else { 16 };
        assert_eq!((&spec["parallelism"], &spec["completions"]), (&json!(8), &json!(completions)));
        assert_eq!(world.template()["spec"], job()["spec"]["template"]["spec"]);
        assert_eq!(world.template()["metadata"]["annotations"], json!({"note": "mine"}));
        world.workload_is(pending());
        assert_eq!(world.step(), Step::Nothing, "it waits for all 8");
    }
}

#[test]
fn who_was_admitted_with_fewer_pods_starts_with_them() {
    let annotations = json!({names::JOB_MIN_PARALLELISM_ANNOTATION: "1"});
    let asks =
        json!({"metadata": {"annotations": annotations}, "spec": {"parallelism": 8, "completions": 16}});
    let mut world = World::queued_with(asks);
    world.workload_is(admitted());
    world.workloads[0].0["status"]["admission"]["podSetAssignments"] = json!([{"name": "main", "count": 2}]);
    world.take(is_start);
    assert_eq!(world.job["spec"]["parallelism"], 2);
    world.pods_run();
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn another_number_of_pods_than_was_given_is_a_changed_job() {
    let mut world = started_by_reference(json!({}));
    world.change_job(json!({"spec": {"parallelism": 3}}));
    world.take(suspends(EventReason::Stopped));
}

#[test]
fn what_is_not_supported_goes_on_where_the_reference_started_it() {
    let asks = json!({"metadata": {"labels": {names::MAX_EXEC_TIME_LABEL: "60"}}});
    let mut world = started_by_reference(json!({}));
    world.change_job(asks);
    world.take(warns(EventReason::UnsupportedJob));
    world.workload_is(evicting());
    world.take(suspends(EventReason::Suspended));
}
