//! What a Job needs next, case by case; every step lands, and the plan that follows is looked at too.

mod adopted;
mod changes;
mod world;

use gangway_api::names;
use gangway_model::reasons::{EventReason, FinishReason};
use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::batch_job::{JobView, facts};
use super::plan::Step;
use world::{World, admitted, admitted_on, evicting, finished, finished_as, job, merged, pending, reserved};

fn is_start(step: &Step) -> bool {
    matches!(step, Step::Start { .. })
}

fn is_restore(step: &Step) -> bool {
    matches!(step, Step::Restore { .. })
}

fn is_creation(step: &Step) -> bool {
    matches!(step, Step::CreateWorkload(_))
}

fn is_update(step: &Step) -> bool {
    matches!(step, Step::UpdateWorkload { .. })
}

fn is_deletion(step: &Step) -> bool {
    matches!(step, Step::DeleteWorkload { .. })
}

fn suspends(reason: EventReason) -> impl Fn(&Step) -> bool {
    move |step| matches!(step, Step::Suspend { reason: given, .. } if *given == reason)
}

fn warns(reason: EventReason) -> impl Fn(&Step) -> bool {
    move |step| matches!(step, Step::Warn { reason: given, .. } if *given == reason)
}

#[test]
fn a_job_that_is_not_ours_or_is_over_needs_nothing() {
    let condition = |kind| json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
    let no_queue =
        json!({"metadata": {"labels": {names::QUEUE_NAME_LABEL: null}}, "spec": {"suspend": false}});
    let cases = [
        ("no queue name", no_queue),
        ("an empty queue name", json!({"metadata": {"labels": {names::QUEUE_NAME_LABEL: ""}}})),
        ("complete", condition("Complete")),
        ("failed", condition("Failed")),
        ("going away", json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
    ];
    for (name, change) in cases {
        assert_eq!(World::new(merged(job(), change)).step(), Step::Nothing, "{name}");
    }
}

#[test]
fn a_job_without_a_queue_waits_for_one_where_such_jobs_are_managed() {
    let unnamed = |change: Value| {
        let no_queue = json!({"metadata": {"labels": {names::QUEUE_NAME_LABEL: null}}});
        let mut world = World::new(merged(merged(job(), no_queue), change));
        world.manages_unnamed = true;
        world
    };
    let step = unnamed(json!({"spec": {"suspend": false}})).step();
    assert!(suspends(EventReason::Suspended)(&step), "{step:?}");
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "o", "uid": "o", "controller": true}]);
    let child = unnamed(json!({"metadata": {"ownerReferences": owner}, "spec": {"suspend": false}}));
    assert_eq!(child.step(), Step::Nothing, "its owner is what is queued");
    let mut world = unnamed(json!({}));
    let step = world.step();
    let Step::CreateWorkload(workload) = &step else { panic!("{step:?}") };
    assert_eq!(workload.spec.queue_name, None);
    world.land(step);
    assert_eq!(world.step(), Step::Nothing);
    world.job = merged(world.job, json!({"metadata": {"labels": {names::QUEUE_NAME_LABEL: "lq"}}}));
    let step = world.step();
    assert!(is_update(&step), "{step:?}");
    world.land(step);
    assert_eq!(world.workloads[0].0["spec"]["queueName"], "lq");
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_suspended_job_gets_a_workload_that_describes_it() {
    let gates = json!({"metadata": {"annotations": {names::ADMISSION_GATED_BY_ANNOTATION: "x.io/gate"}}});
    let world = World::queued_with(gates);
    let workload = world.workload();
    let metadata = &workload["metadata"];
    let name = metadata["name"].as_str().unwrap();
    assert_eq!((name.len(), &name[..10]), ("job-train-".len() + 5, "job-train-"));
    assert_eq!(metadata["namespace"], "team");
    assert_eq!(metadata["labels"], json!({names::JOB_UID_LABEL: "job-uid"}));
    assert_eq!(metadata["annotations"], json!({names::ADMISSION_GATED_BY_ANNOTATION: "x.io/gate"}));
    assert_eq!(
        metadata["ownerReferences"],
        json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid",
            "controller": true, "blockOwnerDeletion": true,
        }])
    );
    let set = &workload["spec"]["podSets"][0];
    assert_eq!((&set["name"], &set["count"]), (&json!("main"), &json!(2)));
    let kept = json!({"labels": {"app": "train"}, "annotations": {"note": "mine"}});
    assert_eq!(set["template"]["metadata"], kept);
    assert_eq!(set["template"]["spec"], job()["spec"]["template"]["spec"]);
    let spec = &workload["spec"];
    let rest = (&spec["queueName"], &spec["priority"], &spec["active"]);
    assert_eq!(rest, (&json!("lq"), &json!(0), &json!(true)));
}

#[test]
fn a_workload_counts_the_pods_that_run_at_a_time() {
    for (parallelism, completions, count) in [
        (json!(3), json!(2), 2),
        (json!(3), json!(null), 3),
        (json!(2), json!(5), 2),
        (json!(null), json!(null), 1),
        (json!(0), json!(4), 0),
    ] {
        let change = json!({"spec": {"parallelism": parallelism, "completions": completions}});
        let world = World::queued_with(change.clone());
        assert_eq!(world.workload()["spec"]["podSets"][0]["count"], count, "{change}");
    }
}

#[test]
fn a_workload_has_the_priority_of_its_job() {
    let label = json!({"metadata": {"labels": {names::PRIORITY_CLASS_LABEL: "high"}}});
    let class = json!({"spec": {"template": {"spec": {"priorityClassName": "pods"}}}});
    for (change, priority, kind) in [
        (label, 100, json!("WorkloadPriorityClass")),
        (class, 7, json!("PriorityClass")),
        (json!({}), 0, json!(null)),
    ] {
        let world = World::queued_with(change);
        let spec = &world.workload()["spec"];
        assert_eq!((&spec["priority"], &spec["priorityClassRef"]["kind"]), (&json!(priority), &kind));
    }
}

#[test]
fn a_job_that_runs_without_admission_is_suspended_and_queued_once_its_pods_are_gone() {
    let mut world = World::new(merged(job(), json!({"spec": {"suspend": false}})));
    world.take(suspends(EventReason::Suspended));
    assert_eq!(world.step(), Step::Nothing, "pods may have been made that no status tells of");
    world.pods_run();
    assert_eq!(world.step(), Step::Nothing);
    world.pods_end();
    assert_eq!(world.step(), Step::Nothing);
    world.pods_are_gone();
    world.take(is_creation);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn an_admitted_job_starts_on_its_flavor() {
    let mut world = World::queued();
    world.workload_is(admitted());
    let Step::Start { patch, message } = world.take(is_start) else { unreachable!() };
    assert_eq!(message, "Admitted by ClusterQueue cq");
    assert_eq!(patch[0], json!({"op": "test", "path": "/metadata/uid", "value": "job-uid"}));
    assert_eq!(patch[1], json!({"op": "test", "path": "/metadata/generation", "value": 1}));
    assert_eq!(world.job["spec"]["suspend"], false);
    let before = &job()["spec"]["template"];
    let (template, pod) = (world.template(), &world.template()["spec"]);
    assert_eq!(pod["nodeSelector"], json!({"disk": "ssd", "machine": "fast"}));
    let tolerations = json!([{"key": "slow", "operator": "Exists"}, {"key": "fast", "operator": "Exists"}]);
    assert_eq!(pod["tolerations"], tolerations);
    let added = json!({
        names::POD_SET_LABEL: "main", names::CLUSTER_QUEUE_LABEL: "cq", names::LOCAL_QUEUE_LABEL: "lq",
    });
    assert_eq!(template["metadata"]["labels"], merged(before["metadata"]["labels"].clone(), added));
    assert_eq!(template["metadata"]["annotations"]["note"], "mine");
    assert_eq!(pod["containers"], before["spec"]["containers"]);
    assert_eq!(world.step(), Step::Nothing, "before the Job controller says anything");
    world.pods_run();
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_start_does_not_land_on_a_job_that_was_changed_or_made_anew() {
    let mut world = World::queued();
    world.workload_is(admitted());
    let Step::Start { patch, .. } = world.step() else { panic!("not started") };
    let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
    for other in [json!({"generation": 2}), json!({"uid": "another"})] {
        let mut changed = merged(world.job.clone(), json!({"metadata": other}));
        assert!(json_patch::patch(&mut changed, &patch).is_err(), "{other}");
    }
}

#[test]
fn a_bare_template_starts_and_is_bare_again_after_a_stop() {
    let mut bare = job();
    bare["spec"]["template"] =
        json!({"spec": {"containers": bare["spec"]["template"]["spec"]["containers"]}});
    let mut world = World::new(bare.clone());
    world.take(is_creation);
    world.workload_is(admitted());
    world.take(is_start);
    assert_eq!(world.template()["spec"]["nodeSelector"], json!({"machine": "fast"}));
    world.workload_is(evicting());
    world.take(suspends(EventReason::Stopped));
    world.pods_are_gone();
    world.take(is_restore);
    assert_eq!(world.template()["spec"], bare["spec"]["template"]["spec"]);
    assert_eq!(world.template()["metadata"], json!({}));
}

/// Before Kubernetes 1.36 a Job keeps its start time, and with it its template.
#[test]
fn a_job_that_keeps_its_start_time_loses_it_before_its_template_is_touched() {
    let forgets = |step: &Step| matches!(step, Step::ForgetStart { .. });
    let started = json!("2026-01-01T00:00:00Z");
    let stopped = || {
        let mut world = World::running();
        world.workload_is(evicting());
        world.take(suspends(EventReason::Stopped));
        assert_eq!(world.step(), Step::Nothing, "the Job controller has not reported the suspension");
        world.pods_end();
        world.job["status"]["startTime"] = started.clone();
        assert_eq!(world.step(), Step::Nothing, "pods are left");
        world.pods_are_gone();
        world.job["status"]["startTime"] = started.clone();
        world
    };
    let mut world = stopped();
    world.take(forgets);
    world.take(is_restore);
    assert_eq!(world.template(), &job()["spec"]["template"]);
    assert_eq!(world.step(), Step::Nothing);

    let mut readmitted = stopped();
    readmitted.workload_is(admitted());
    readmitted.take(forgets);
    readmitted.take(is_start);

    let mut by_hand = stopped();
    by_hand.change_job(json!({"spec": {"suspend": false}}));
    by_hand.take(suspends(EventReason::Stopped));
    by_hand.take(forgets);
    by_hand.take(is_restore);
}

#[test]
fn a_job_whose_own_selector_contradicts_its_flavor_cannot_start() {
    let own = json!({"spec": {"template": {"spec": {"nodeSelector": {"machine": "slow"}}}}});
    let mut world = World::queued_with(own);
    world.workload_is(admitted());
    let Step::Unstartable { workload, contradiction } = world.step() else { panic!("it can start") };
    assert_eq!(workload, "workload-uid");
    assert!(
        contradiction.to_string().contains("machine=slow but what they are started with says machine=fast")
    );
    world.take(|step| matches!(step, Step::Unstartable { .. }));
    assert_eq!(world.step(), Step::Nothing, "it is said once");
}

#[test]
fn a_job_on_two_flavors_gets_the_labels_of_both_unless_they_contradict_each_other() {
    let mut world = World::queued();
    for (name, labels) in [("big", json!({"memory": "big"})), ("old", json!({"machine": "old"}))] {
        let flavor = serde_json::from_value(json!({"nodeLabels": labels})).unwrap();
        world.flavors.insert(name.to_owned(), flavor);
    }
    world.workload_is(admitted_on("fast", "old"));
    assert!(matches!(world.step(), Step::Unstartable { .. }));
    world.workload_is(admitted_on("fast", "big"));
    world.take(is_start);
    let selector = json!({"disk": "ssd", "machine": "fast", "memory": "big"});
    assert_eq!(world.template()["spec"]["nodeSelector"], selector);
}

/// What a check wants changed in the pods of an admitted Workload.
fn check_wants(world: &mut World, state: &str, update: &Value) {
    let check = json!({"name": "check", "state": state, "message": "", "podSetUpdates": [update]});
    let (object, _) = world.workloads.last_mut().unwrap();
    object["status"]["admissionChecks"] = json!([check]);
}

#[test]
fn what_checks_want_changed_in_the_pods_is_put_in_and_taken_out_again() {
    let mut world = World::queued();
    let before = world.template().clone();
    world.workload_is(admitted());
    let update = json!({"name": "main", "labels": {"cloud": "x"}, "annotations": {"request": "7"},
        "nodeSelector": {"zone": "a"}, "tolerations": [{"key": "cloud", "operator": "Exists"}]});
    check_wants(&mut world, "Ready", &update);
    world.take(is_start);
    let template = world.template();
    assert_eq!(template["metadata"]["labels"]["cloud"], "x");
    assert_eq!(
        (&template["metadata"]["annotations"]["request"], &template["metadata"]["annotations"]["note"]),
        (&json!("7"), &json!("mine"))
    );
    assert_eq!(
        (&template["spec"]["nodeSelector"]["zone"], &template["spec"]["nodeSelector"]["machine"]),
        (&json!("a"), &json!("fast"))
    );
    assert!(template["spec"]["tolerations"].to_string().contains("cloud"), "{template}");
    world.pods_run();
    world.workload_is(evicting());
    world.take(|step| matches!(step, Step::Suspend { .. }));
    world.pods_are_gone();
    world.take(is_restore);
    assert_eq!(*world.template(), before);
}

#[test]
fn what_a_check_wants_counts_when_it_agrees_and_may_contradict_nobody() {
    let mut world = World::queued();
    world.workload_is(admitted());
    let update = json!({"name": "main", "labels": {"app": "other"}});
    check_wants(&mut world, "Pending", &update);
    assert!(is_start(&world.step()), "nobody agreed to that");
    check_wants(&mut world, "Ready", &update);
    let Step::Unstartable { contradiction, .. } = world.step() else { panic!("it can start") };
    let expected = "the pods' label says app=train but what they are started with says app=other";
    assert_eq!(contradiction.to_string(), expected);
}

#[test]
fn a_job_does_not_start_while_its_flavor_does_not_exist() {
    let mut world = World::queued();
    world.workload_is(admitted());
    let flavors = std::mem::take(&mut world.flavors);
    assert_eq!(world.step(), Step::Nothing);
    world.flavors = flavors;
    world.take(is_start);
}

#[test]
fn a_job_that_its_user_suspends_starts_again_when_its_pods_are_gone() {
    let mut world = World::running();
    world.change_job(json!({"spec": {"suspend": true}}));
    for _ in 0..2 {
        assert_eq!(world.step(), Step::Nothing);
        world.pods_end();
    }
    world.pods_are_gone();
    let started = world.template().clone();
    world.take(is_start);
    assert_eq!(world.template(), &started, "nothing is injected twice");
}

#[test]
fn an_evicted_job_is_suspended_and_gets_its_template_back_when_its_pods_are_gone() {
    let mut world = World::running();
    world.workload_is(evicting());
    world.take(suspends(EventReason::Stopped));
    assert_eq!(world.step(), Step::Nothing, "nobody has reported the suspension");
    world.pods_end();
    assert_eq!(world.step(), Step::Nothing, "pods are left");
    world.pods_are_gone();
    world.take(is_restore);
    assert_eq!(world.template(), &job()["spec"]["template"]);
    assert_eq!(world.step(), Step::Nothing);
    world.workload_is(pending());
    assert_eq!(world.step(), Step::Nothing, "it is queued again");
    world.workload_is(admitted());
    world.take(is_start);
}

#[test]
fn a_template_is_restored_whatever_its_workload_has_become() {
    for state in [pending(), reserved(), evicting()] {
        let mut world = World::running();
        world.change_job(json!({"spec": {"suspend": true}}));
        world.pods_are_gone();
        world.workload_is(state.clone());
        world.take(is_restore);
        assert_eq!(world.template(), &job()["spec"]["template"], "{state:?}");
        assert_eq!(world.step(), Step::Nothing, "{state:?}");
    }
}

#[test]
fn a_template_without_a_note_of_its_start_is_restored_from_the_workload() {
    let mut world = World::running();
    let note = json!({"metadata": {"annotations": {names::ORIGINAL_TEMPLATE_ANNOTATION: null}}});
    world.change_job(json!({"spec": {"suspend": true, "template": note}}));
    world.pods_are_gone();
    world.workload_is(evicting());
    world.take(is_restore);
    assert_eq!(world.template(), &job()["spec"]["template"]);
}

#[test]
fn a_job_that_may_not_run_is_stopped() {
    for state in [pending(), reserved(), evicting()] {
        let mut world = World::running();
        world.workload_is(state.clone());
        world.take(suspends(EventReason::Stopped));
    }
    let mut world = World::running();
    world.workloads[0].0["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.take(suspends(EventReason::Stopped));
    world.pods_are_gone();
    world.take(is_restore);
    assert_eq!(world.step(), Step::Nothing, "until the Workload is gone");
}

#[test]
fn a_job_whose_workload_was_deleted_is_queued_again_as_it_was_written() {
    let mut world = World::running();
    let before = World::queued().workload().clone();
    world.workloads.clear();
    world.take(suspends(EventReason::Suspended));
    world.pods_are_gone();
    world.take(is_restore);
    assert_eq!(world.template(), &job()["spec"]["template"]);
    world.take(is_creation);
    assert_eq!(world.workload(), &before);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_job_written_from_a_started_one_loses_what_the_start_injected() {
    let mut copy = World::running().job;
    copy["spec"]["suspend"] = json!(true);
    copy["metadata"]["generation"] = json!(1);
    copy["status"] = json!({});
    let mut world = World::new(copy);
    world.take(is_restore);
    assert_eq!(world.template(), &job()["spec"]["template"]);
    world.pods_are_gone();
    world.take(is_creation);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_podset_label_of_the_user_is_taken_off_once() {
    let label = json!({"metadata": {"labels": {names::POD_SET_LABEL: "mine"}}});
    let mut world = World::new(merged(job(), json!({"spec": {"template": label}})));
    world.take(is_restore);
    world.pods_are_gone();
    world.take(is_creation);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_workload_that_has_ended_is_left_alone() {
    let mut world = World::queued();
    world.workload_is(finished());
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_job_that_was_taken_for_gone_begins_anew() {
    let mut world = World::running();
    world.workload_is(finished_as(FinishReason::OwnerNotFound));
    world.take(|step| matches!(step, Step::Suspend { .. }));
    world.pods_are_gone();
    world.take(is_restore);
    world.take(|step| matches!(step, Step::DeleteWorkload { .. }));
    world.take(is_creation);
    assert_eq!(world.step(), Step::Nothing);
}

#[test]
fn a_job_has_stopped_once_no_pod_of_it_can_be_left() {
    let stopped = |world: &World| {
        let job: Job = serde_json::from_value(world.job.clone()).unwrap();
        facts(&job).stopped
    };
    assert!(stopped(&World::queued()), "it was created suspended");
    let mut world = World::running();
    assert!(!stopped(&world));
    world.change_job(json!({"spec": {"suspend": true}}));
    world.job["status"] = json!({});
    assert!(!stopped(&world), "pods may have been made that no status tells of");
    world.pods_end();
    assert!(!stopped(&world));
    world.pods_are_gone();
    assert!(stopped(&world));
}

fn workload_name(name: &str, uid: &str) -> String {
    let job: Job = serde_json::from_value(json!({"metadata": {"name": name, "uid": uid}})).unwrap();
    JobView(&job).workload_name()
}

#[test]
fn a_workloads_name_tells_jobs_apart_and_is_never_too_long() {
    assert_eq!(workload_name("train", "1"), workload_name("train", "1"));
    assert_ne!(workload_name("train", "1"), workload_name("train", "2"));
    let mut names: Vec<String> = vec!["a".repeat(300), "ä".repeat(200), format!("x{}", "語".repeat(100))];
    names.push(format!("{}.{}", "a".repeat(242), "b".repeat(20)));
    for name in names {
        let (one, other) = (workload_name(&name, "1"), workload_name(&name, "2"));
        assert!(one.len() <= 253 && one.starts_with("job-"), "{one}");
        assert!(!one.contains(".-"), "{one}");
        assert_eq!(one[..one.len() - 5], other[..other.len() - 5]);
        assert_ne!(one, other, "the hash is kept");
    }
}

#[test]
fn a_step_that_does_not_land_is_planned_again() {
    let mut world = World::running();
    world.workload_is(evicting());
    assert_eq!(world.step(), world.step());
    let value: Value = world.job.clone();
    world.take(suspends(EventReason::Stopped));
    world.job = value;
    world.take(suspends(EventReason::Stopped));
}
