use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::shim::ExitRecord;
use crate::state::{Moment, Verdict};

fn moment(seconds: i64) -> Moment {
    Moment { instant: Instant::now(), time: Timestamp::from_seconds(seconds) }
}

fn pod(spec: Value) -> Pod {
    let conditions = json!([
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"},
        {"type": "DisruptionTarget", "status": "True"},
        {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:02Z"}]);
    let value = json!({"metadata": {"name": "p", "uid": "u"}, "spec": spec,
        "status": {"phase": "Pending", "conditions": conditions}});
    serde_json::from_value(value).unwrap()
}

fn condition<'s>(status: &'s PodStatus, kind: &str) -> &'s PodCondition {
    status.conditions.iter().flatten().find(|condition| condition.type_ == kind).unwrap()
}

#[test]
fn from_running_to_the_end() {
    let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "host"}]}));
    let mut run = PodRun::new(&pod, moment(3));
    run.containers[0].on_preparing();
    assert_eq!(phase(&run), Phase::Pending);
    run.containers[0].on_started(moment(4));
    let status = render(&pod, &run, Timestamp::from_seconds(4));
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(condition(&status, "Ready").status, "True");
    assert_eq!(condition(&status, "Ready").last_transition_time, Some(api_time(Timestamp::from_seconds(4))));
    assert_eq!(
        condition(&status, "PodScheduled").last_transition_time,
        Some(api_time(Timestamp::from_seconds(1)))
    );
    assert_eq!(condition(&status, "DisruptionTarget").status, "True");
    assert_eq!(status.start_time, Some(api_time(Timestamp::from_seconds(3))));
    run.containers[0].on_exit(ExitRecord::exited(3), moment(9));
    let status = render(&pod, &run, Timestamp::from_seconds(9));
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let ready = condition(&status, "Ready");
    assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("PodFailed")));
    assert_eq!(ready.last_transition_time, Some(api_time(Timestamp::from_seconds(2))));
    let terminated = status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((terminated.exit_code, terminated.reason.as_deref()), (3, Some("Error")));
    assert_eq!(terminated.started_at, Some(api_time(Timestamp::from_seconds(4))));
}

#[test]
fn a_pod_is_not_finished_while_a_process_lives() {
    let pod = pod(json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b"}]}));
    let mut run = PodRun::new(&pod, moment(0));
    for container in &mut run.containers {
        container.on_started(moment(0));
    }
    run.containers[0].on_exit(ExitRecord::exited(1), moment(1));
    run.verdict = Some(Verdict { reason: "DeadlineExceeded".to_owned(), message: String::new() });
    run.stop(Instant::now(), std::time::Duration::ZERO);
    assert_eq!(phase(&run), Phase::Running);
    run.containers[1].on_exit(ExitRecord::exited(0), moment(1));
    assert_eq!(phase(&run), Phase::Failed);
}

#[test]
fn a_crash_loop_shows_its_last_end() {
    let pod = pod(json!({"restartPolicy": "Always", "containers": [{"name": "a"}]}));
    let mut run = PodRun::new(&pod, moment(0));
    run.containers[0].on_started(moment(0));
    run.containers[0].on_exit(ExitRecord::signaled(9), moment(1));
    let status = render(&pod, &run, Timestamp::EPOCH);
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let container = &status.container_statuses.unwrap()[0];
    let waiting = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.signal), (137, Some(9)));
}

#[test]
fn a_refused_pod_says_why_and_nothing_of_containers() {
    let pod = pod(json!({"containers": [{"name": "a"}]}));
    let verdict = Verdict { reason: "ImageNotHost".to_owned(), message: "m".to_owned() };
    let status = render(&pod, &PodRun::failed(&pod, moment(0), verdict), Timestamp::EPOCH);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("ImageNotHost"));
    assert_eq!(status.container_statuses, None);
}

#[test]
fn the_essence_does_not_change_with_time_or_with_conditions_of_others() {
    let mut pod = pod(json!({"containers": [{"name": "a"}]}));
    let mut run = PodRun::new(&pod, moment(0));
    run.containers[0].on_started(moment(0));
    let first = essence(render(&pod, &run, Timestamp::from_seconds(1)));
    pod.status.as_mut().unwrap().conditions.as_mut().unwrap().remove(1);
    assert_eq!(essence(render(&pod, &run, Timestamp::from_seconds(2))), first);
}
