//! The planner, one situation at a time.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobStatus, UncountedTerminatedPods};

use super::super::backoff::FailureRecord;
use super::super::conditions::{has_condition, set_condition};
use super::super::view::{JobView, Phase, PodView, to_time};
use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_000);

fn job() -> JobView {
    JobView {
        suspended: false,
        deleting: false,
        parallelism: 3,
        completions: Some(3),
        backoff_limit: 1,
        backoff_limit_per_index: None,
        max_failed_indexes: None,
        active_deadline_seconds: None,
        indexed: false,
        restarts_in_place: false,
        replaces_only_failed: false,
        unsupported: None,
        status: JobStatus::default(),
    }
}

fn pod(name: &str, phase: Phase) -> PodView {
    PodView {
        uid: name.to_owned(),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        phase,
        ready: phase == Phase::Running,
        deleting: false,
        assigned: phase != Phase::Pending,
        tracking_finalizer: Some(0),
        restarts: 0,
        index: None,
        index_failures: 0,
        created: Timestamp::EPOCH,
        finished: Timestamp::EPOCH,
    }
}

fn step(job: &JobView, pods: &[PodView]) -> Plan {
    let pods: Vec<&PodView> = pods.iter().collect();
    plan(job, &pods, FailureRecord::default(), NOW)
}

/// Does what a plan says to a world without delays, until nothing is left to do.
fn settle(job: &mut JobView, pods: &mut Vec<PodView>) {
    for round in 0.. {
        assert!(round < 20, "the plan never settles");
        let plan = step(job, pods);
        let done = plan.status.is_none() && plan.create.is_empty() && plan.delete.is_empty();
        for created in plan.create {
            let mut new = pod(&format!("new-{round}-{}", pods.len()), Phase::Pending);
            new.index = created.index;
            new.index_failures = created.index_failures.unwrap_or(0);
            pods.push(new);
        }
        for deletion in plan.delete {
            pods.iter_mut().filter(|pod| pod.uid == deletion.uid).for_each(|pod| {
                pod.deleting = true;
                if deletion.uncounted {
                    pod.tracking_finalizer = None;
                }
            });
        }
        job.status = plan.status.unwrap_or(job.status.clone());
        for uid in plan.release {
            pods.iter_mut().filter(|pod| pod.uid == uid).for_each(|pod| pod.tracking_finalizer = None);
        }
        pods.retain(|pod| !pod.deleting || pod.tracking_finalizer.is_some());
        if done {
            return;
        }
    }
}

fn uncounted(status: &JobStatus) -> UncountedTerminatedPods {
    status.uncounted_terminated_pods.clone().unwrap_or_default()
}

fn reason(status: &JobStatus, kind: &str) -> Option<String> {
    let conditions = status.conditions.iter().flatten();
    conditions.filter(|condition| condition.type_ == kind).find_map(|condition| condition.reason.clone())
}

#[test]
fn a_new_job_starts_its_pods() {
    let plan = step(&job(), &[]);
    assert_eq!(plan.create, vec![NewPod::default(); 3]);
    let status = plan.status.unwrap();
    assert_eq!((status.active, status.ready, status.terminating), (Some(3), Some(0), Some(0)));
    assert_eq!(status.start_time, Some(to_time(NOW)));
    assert_eq!(status.conditions, None);
}

#[test]
fn nothing_changed_means_nothing_to_do() {
    let mut job = job();
    let mut pods = Vec::new();
    settle(&mut job, &mut pods);
    assert_eq!(pods.len(), 3);
    assert_eq!(step(&job, &pods), Plan::default());
}

#[test]
fn parallelism_and_completions_bound_what_runs() {
    for (parallelism, completions, succeeded, running, created, deleted) in [
        (2, Some(5), 0, 0, 2, 0),
        (2, Some(5), 4, 0, 1, 0),
        (5, Some(3), 0, 1, 2, 0),
        (1, Some(5), 0, 3, 0, 2),
        (0, Some(5), 0, 2, 0, 2),
        (3, None, 0, 0, 3, 0),
        (3, None, 1, 2, 0, 0),
        (3, Some(5), 4, 2, 0, 1),
    ] {
        let mut job = JobView { parallelism, completions, ..job() };
        job.status.succeeded = Some(succeeded);
        let pods: Vec<PodView> = (0..running).map(|i| pod(&i.to_string(), Phase::Running)).collect();
        let plan = step(&job, &pods);
        let case = (parallelism, completions, succeeded, running);
        assert_eq!((plan.create.len(), plan.delete.len()), (created, deleted), "{case:?}");
        assert!(plan.delete.iter().all(|deletion| deletion.uncounted), "scaling down is no failure");
    }
}

#[test]
fn the_least_advanced_pods_go_first() {
    let job = JobView { parallelism: 1, ..job() };
    let mut unready = pod("unready", Phase::Running);
    unready.ready = false;
    let pods = [pod("ready", Phase::Running), unready, pod("pending", Phase::Pending)];
    let deleted: BTreeSet<String> = step(&job, &pods).delete.into_iter().map(|d| d.uid).collect();
    assert_eq!(deleted, BTreeSet::from(["unready".to_owned(), "pending".to_owned()]));
}

#[test]
fn an_end_is_noted_then_released_then_counted() {
    let mut job = JobView { completions: Some(1), parallelism: 1, ..job() };
    let done = pod("a", Phase::Succeeded);
    let first = step(&job, std::slice::from_ref(&done));
    let status = first.status.unwrap();
    assert_eq!(uncounted(&status).succeeded, Some(vec!["a".to_owned()]));
    assert_eq!(status.succeeded, None);
    assert_eq!(first.release, ["a"]);
    assert!(has_condition(&status, "SuccessCriteriaMet") && !has_condition(&status, "Complete"));

    job.status = status;
    let stuck = step(&job, std::slice::from_ref(&done));
    assert_eq!((stuck.status, stuck.release), (None, vec!["a".to_owned()]), "the release is tried again");

    let last = step(&job, &[PodView { tracking_finalizer: None, ..done }]);
    let status = last.status.unwrap();
    assert_eq!((status.succeeded, status.active), (Some(1), None));
    assert_eq!(uncounted(&status), UncountedTerminatedPods::default());
    assert_eq!(reason(&status, "Complete").as_deref(), Some("CompletionsReached"));
    assert_eq!(status.completion_time, Some(to_time(NOW)));
    assert_eq!(last.notes.len(), 1);
}

#[test]
fn failures_beyond_the_limit_fail_the_job() {
    let mut job = job();
    job.status.start_time = Some(to_time(NOW));
    let mut pods = vec![pod("f1", Phase::Failed), pod("f2", Phase::Failed), pod("r", Phase::Running)];
    let first = step(&job, &pods);
    assert!(first.create.is_empty());
    assert_eq!(first.delete, [Deletion { uid: "r".to_owned(), uncounted: false }]);
    let status = first.status.unwrap();
    assert!(has_condition(&status, "FailureTarget") && !has_condition(&status, "Failed"));
    assert_eq!(status.terminating, Some(1));
    settle(&mut job, &mut pods);
    assert_eq!(job.status.failed, Some(3), "running pods of a failed Job count as failed");
    assert_eq!(reason(&job.status, "Failed").as_deref(), Some("BackoffLimitExceeded"));
    assert_eq!(job.status.terminating, Some(0));
}

#[test]
fn a_failed_job_waits_for_pods_that_terminate() {
    let mut job = job();
    set_condition(&mut job.status, "FailureTarget", "True", "BackoffLimitExceeded", "m", NOW);
    job.status.start_time = Some(to_time(NOW));
    let leaving = PodView { deleting: true, tracking_finalizer: None, ..pod("r", Phase::Running) };
    let status = step(&job, std::slice::from_ref(&leaving)).status.unwrap();
    assert!(!has_condition(&status, "Failed"));
    let status = step(&job, &[PodView { phase: Phase::Failed, ..leaving }]).status.unwrap();
    assert!(has_condition(&status, "Failed"));
}

#[test]
fn a_failed_pod_is_replaced_after_a_delay() {
    let job = JobView { parallelism: 1, completions: Some(1), ..job() };
    let mut failed = pod("f", Phase::Failed);
    failed.finished = NOW;
    let plan = step(&job, std::slice::from_ref(&failed));
    assert!(plan.create.is_empty());
    assert_eq!(plan.wake_at, Some(NOW.plus_seconds(10)));
    failed.finished = NOW.plus_seconds(-10);
    assert_eq!(step(&job, &[failed]).create.len(), 1);
}

#[test]
fn restarts_in_place_count_against_the_limit() {
    for (limit, restarts, fails) in [(0, 0, false), (0, 1, true), (3, 2, false), (3, 3, true)] {
        let job = JobView { backoff_limit: limit, restarts_in_place: true, ..job() };
        let running = PodView { restarts, ..pod("r", Phase::Running) };
        let status = step(&job, &[running]).status.unwrap();
        assert_eq!(has_condition(&status, "FailureTarget"), fails, "{limit} {restarts}");
    }
}

#[test]
fn the_deadline_counts_from_the_start() {
    let mut job = JobView { active_deadline_seconds: Some(60), ..job() };
    job.status.start_time = Some(to_time(NOW.plus_seconds(-50)));
    let plan = step(&job, &[]);
    assert_eq!(plan.wake_at, Some(NOW.plus_seconds(10)));
    job.status.start_time = Some(to_time(NOW.plus_seconds(-60)));
    let status = step(&job, &[]).status.unwrap();
    assert_eq!(reason(&status, "Failed").as_deref(), Some("DeadlineExceeded"));
    job.suspended = true;
    assert!(!has_condition(&step(&job, &[]).status.unwrap(), "FailureTarget"));
}

#[test]
fn suspending_deletes_pods_without_counting_them() {
    let mut job = job();
    let mut pods = Vec::new();
    settle(&mut job, &mut pods);
    job.suspended = true;
    let plan = step(&job, &pods);
    assert_eq!(plan.delete.len(), 3);
    assert!(plan.delete.iter().all(|deletion| deletion.uncounted));
    settle(&mut job, &mut pods);
    assert!(pods.is_empty());
    assert_eq!((job.status.active, job.status.failed, job.status.start_time.clone()), (None, None, None));
    assert_eq!(reason(&job.status, "Suspended").as_deref(), Some("JobSuspended"));

    job.suspended = false;
    settle(&mut job, &mut pods);
    assert_eq!((pods.len(), job.status.active), (3, Some(3)));
    assert_eq!(job.status.start_time, Some(to_time(NOW)));
    assert_eq!(reason(&job.status, "Suspended").as_deref(), Some("JobResumed"));
    assert!(!has_condition(&job.status, "Suspended"));
}

#[test]
fn a_pod_that_terminates_is_replaced_as_the_policy_says() {
    let leaving = || PodView { deleting: true, ..pod("t", Phase::Running) };
    for (only_failed, created, failed) in [(false, 1, 1), (true, 0, 0)] {
        let job =
            JobView { parallelism: 1, completions: Some(1), replaces_only_failed: only_failed, ..job() };
        let plan = step(&job, &[leaving()]);
        assert_eq!(plan.create.len(), created);
        let status = plan.status.unwrap();
        assert_eq!(uncounted(&status).failed.map_or(0, |uids| uids.len()), failed);
        assert_eq!(status.terminating, Some(1));
    }
}

#[test]
fn a_job_being_deleted_lets_its_pods_go() {
    let job = JobView { deleting: true, ..job() };
    let plan = step(&job, &[pod("r", Phase::Running)]);
    assert!(plan.create.is_empty() && plan.delete.is_empty());
    assert_eq!(plan.release, ["r"]);
}

fn for_index(index: u32) -> NewPod {
    NewPod { index: Some(index), index_failures: None }
}

#[test]
fn indexed_jobs_run_each_index_once() {
    let mut job = JobView { indexed: true, parallelism: 2, completions: Some(3), ..job() };
    assert_eq!(step(&job, &[]).create, [0, 1].map(for_index));
    let with_index = |name: &str, phase, index| PodView { index: Some(index), ..pod(name, phase) };
    let mut pods = vec![with_index("a", Phase::Succeeded, 0), with_index("b", Phase::Running, 1)];
    let plan = step(&job, &pods);
    assert_eq!(plan.create, [for_index(2)]);
    assert_eq!(plan.status.unwrap().completed_indexes.as_deref(), Some("0"));
    pods.push(with_index("twin", Phase::Running, 1));
    assert_eq!(step(&job, &pods).delete.len(), 1, "one pod for each index");
    pods.truncate(2);
    settle(&mut job, &mut pods);
    pods.iter_mut().for_each(|pod| pod.phase = Phase::Succeeded);
    settle(&mut job, &mut pods);
    assert_eq!((job.status.succeeded, job.status.completed_indexes.as_deref()), (Some(3), Some("0-2")));
    assert!(has_condition(&job.status, "Complete"));
}

/// Two indexes of which each may fail once.
fn with_retries_per_index() -> JobView {
    let status = JobStatus { start_time: Some(to_time(NOW)), ..JobStatus::default() };
    let (parallelism, completions, backoff_limit_per_index) = (2, Some(2), Some(1));
    JobView {
        indexed: true,
        parallelism,
        completions,
        backoff_limit: i32::MAX,
        backoff_limit_per_index,
        status,
        ..job()
    }
}

#[test]
fn an_index_fails_by_itself() {
    let mut job = with_retries_per_index();
    let mut pods = Vec::new();
    settle(&mut job, &mut pods);
    pods[0].phase = Phase::Failed;
    let (first, second) = (pods[0].uid.clone(), pods[1].uid.clone());
    settle(&mut job, &mut pods);
    let successor = pods.iter().find(|pod| pod.uid != first && pod.index == Some(0)).unwrap();
    assert_eq!(successor.index_failures, 1, "it carries the count on");
    assert_eq!((job.status.failed, job.status.failed_indexes.as_deref()), (Some(1), Some("")));

    let successor = successor.uid.clone();
    pods.iter_mut().filter(|pod| pod.uid == successor).for_each(|pod| pod.phase = Phase::Failed);
    settle(&mut job, &mut pods);
    assert_eq!((job.status.failed, job.status.failed_indexes.as_deref()), (Some(2), Some("0")));
    assert_eq!(pods.iter().filter(|pod| pod.is_active()).count(), 1, "nothing takes its place");
    assert!(!has_condition(&job.status, "FailureTarget"), "the others go on");

    pods.iter_mut().filter(|pod| pod.uid == second).for_each(|pod| pod.phase = Phase::Succeeded);
    settle(&mut job, &mut pods);
    assert_eq!(job.status.completed_indexes.as_deref(), Some("1"));
    assert_eq!(reason(&job.status, "Failed").as_deref(), Some("FailedIndexes"));
}

#[test]
fn a_failed_pod_keeps_its_count_until_another_takes_it_over() {
    let job = with_retries_per_index();
    let failed = PodView { index: Some(0), finished: NOW, ..pod("f", Phase::Failed) };
    let running = PodView { index: Some(1), ..pod("r", Phase::Running) };
    let mut pods = vec![failed, running];
    let waits = step(&job, &pods);
    assert!(waits.create.is_empty() && waits.release.is_empty());
    assert_eq!(waits.wake_at, Some(NOW.plus_seconds(10)));
    pods[0].finished = NOW.plus_seconds(-10);
    let replaces = step(&job, &pods);
    assert_eq!(replaces.create, [NewPod { index: Some(0), index_failures: Some(1) }]);
    assert!(replaces.release.is_empty());
    pods.push(PodView { index: Some(0), index_failures: 1, ..pod("s", Phase::Pending) });
    assert_eq!(step(&job, &pods).release, ["f"]);
}

#[test]
fn more_failed_indexes_than_allowed_fail_the_job() {
    let mut job = JobView { max_failed_indexes: Some(0), ..with_retries_per_index() };
    job.backoff_limit_per_index = Some(0);
    let mut pods = Vec::new();
    settle(&mut job, &mut pods);
    pods[1].phase = Phase::Failed;
    settle(&mut job, &mut pods);
    assert_eq!(job.status.failed_indexes.as_deref(), Some("1"));
    assert_eq!(reason(&job.status, "Failed").as_deref(), Some("MaxFailedIndexesExceeded"));
}

#[test]
fn what_is_not_supported_fails_at_once_and_says_so() {
    let mut job = JobView { unsupported: Some("podFailurePolicy"), suspended: true, ..job() };
    settle(&mut job, &mut Vec::new());
    assert_eq!(reason(&job.status, "Failed").as_deref(), Some("NotSupported"));
    assert!(job.status.start_time.is_some());
}

#[test]
fn no_completions_wanted_is_complete_at_once() {
    let job = JobView { completions: Some(0), ..job() };
    let status = step(&job, &[]).status.unwrap();
    assert!(has_condition(&status, "Complete"));
}

#[test]
fn many_ends_are_counted_in_parts() {
    let count = 1_200;
    let mut job = JobView { completions: Some(count), parallelism: count, ..job() };
    let mut pods: Vec<PodView> = (0..count).map(|i| pod(&i.to_string(), Phase::Succeeded)).collect();
    assert_eq!(step(&job, &pods).release.len(), 500);
    settle(&mut job, &mut pods);
    assert_eq!(job.status.succeeded, Some(count));
    assert!(has_condition(&job.status, "Complete"));
}
