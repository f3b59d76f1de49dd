use std::time::Duration;

use gangway_model::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::shim::ExitRecord;
use crate::state::Moment;

/// A pod whose clock is turned by hand.
struct Bench {
    run: PodRun,
    start: Instant,
}

fn bench(spec: Value) -> Bench {
    let start = Instant::now();
    let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
    let run = PodRun::new(&pod, Moment { instant: start, time: Timestamp::EPOCH });
    Bench { run, start }
}

fn one(policy: &str) -> Bench {
    bench(json!({"restartPolicy": policy, "containers": [{"name": "a"}]}))
}

impl Bench {
    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn moment(&self, seconds: u64) -> Moment {
        Moment { instant: self.at(seconds), time: Timestamp::from_seconds(seconds.cast_signed()) }
    }

    fn step(&self, seconds: u64) -> Step {
        next_step(&self.run, self.at(seconds))
    }

    fn start(&mut self, container: usize, seconds: u64) {
        assert_eq!(self.step(seconds), Step::Start(container));
        let now = self.moment(seconds);
        self.run.containers[container].on_preparing();
        self.run.containers[container].on_started(now);
    }

    fn exit(&mut self, container: usize, code: i32, seconds: u64) {
        let now = self.moment(seconds);
        self.run.containers[container].on_exit(ExitRecord::exited(code), now);
    }

    fn stop(&mut self, seconds: u64, grace: u64) {
        let now = self.at(seconds);
        self.run.stop(now, Duration::from_secs(grace));
    }

    fn signaled(&mut self, container: usize, killed: bool) {
        let stop = self.run.containers[container].stop.as_mut().unwrap();
        stop.terminated = true;
        stop.killed = killed;
    }
}

#[test]
fn restart_policies() {
    for (policy, code, restarts) in [
        ("Never", 0, false),
        ("Never", 1, false),
        ("OnFailure", 0, false),
        ("OnFailure", 1, true),
        ("Always", 0, true),
        ("Always", 1, true),
    ] {
        let mut pod = one(policy);
        pod.start(0, 0);
        assert_eq!(pod.step(1), Step::Wait(None));
        pod.exit(0, code, 1);
        let expected = if restarts { Step::Start(0) } else { Step::Finish };
        assert_eq!(pod.step(1), expected, "{policy} {code}");
    }
}

#[test]
fn a_crash_loop_waits_longer_each_time_and_is_forgiven() {
    let mut pod = one("Always");
    pod.start(0, 0);
    pod.exit(0, 1, 0);
    pod.start(0, 0);
    pod.exit(0, 1, 5);
    assert_eq!(pod.step(5), Step::Wait(Some(pod.at(15))));
    pod.start(0, 15);
    pod.exit(0, 1, 16);
    assert_eq!(pod.step(16), Step::Wait(Some(pod.at(36))));
    pod.start(0, 36);
    pod.exit(0, 1, 1000);
    assert_eq!(pod.step(1000), Step::Wait(Some(pod.at(1040))));
    pod.start(0, 1040);
    pod.exit(0, 1, 1041);
    assert_eq!(pod.run.containers[0].restarts, 4);
    assert_eq!(pod.step(1041), Step::Wait(Some(pod.at(1051))));
}

#[test]
fn init_containers_run_in_order_then_all_main_ones() {
    let mut pod = bench(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}, {"name": "b"}]}));
    pod.start(0, 0);
    assert_eq!(pod.step(0), Step::Wait(None));
    pod.exit(0, 0, 1);
    pod.start(1, 1);
    pod.exit(1, 0, 2);
    pod.start(2, 2);
    pod.start(3, 2);
    pod.exit(2, 0, 3);
    assert_eq!(pod.step(3), Step::Wait(None));
    pod.exit(3, 0, 4);
    assert_eq!(pod.step(4), Step::Finish);
}

#[test]
fn a_failed_init_container_ends_the_pod_unless_it_is_retried() {
    let spec = |policy: &str| json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    let mut pod = bench(spec("Never"));
    pod.start(0, 0);
    pod.exit(0, 1, 1);
    assert_eq!(pod.step(1), Step::Finish);
    let mut pod = bench(spec("Always"));
    pod.start(0, 0);
    pod.exit(0, 1, 1);
    pod.start(0, 1);
    pod.exit(0, 0, 2);
    assert_eq!(pod.step(2), Step::Start(1));
}

#[test]
fn sidecars_start_first_and_stop_last() {
    let mut pod = bench(json!({"restartPolicy": "Never",
        "initContainers": [{"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]}));
    pod.start(0, 0);
    pod.start(1, 0);
    pod.exit(0, 1, 1);
    pod.start(0, 1);
    pod.exit(1, 0, 2);
    assert_eq!(pod.step(2), Step::StopSidecars);
    pod.stop(2, 30);
    assert_eq!(pod.step(2), Step::Terminate(0));
    pod.exit(0, 143, 3);
    assert_eq!(pod.step(3), Step::Finish);
}

#[test]
fn a_deleted_pod_gets_sigterm_then_sigkill() {
    let mut pod = one("Always");
    pod.start(0, 0);
    pod.stop(10, 30);
    assert_eq!(pod.step(10), Step::Terminate(0));
    pod.signaled(0, false);
    assert_eq!(pod.step(10), Step::Wait(Some(pod.at(40))));
    pod.stop(11, 300);
    assert_eq!(pod.step(11), Step::Wait(Some(pod.at(40))));
    pod.stop(12, 5);
    assert_eq!(pod.step(12), Step::Wait(Some(pod.at(17))));
    assert_eq!(pod.step(17), Step::Kill(0));
    pod.signaled(0, true);
    assert_eq!(pod.step(17), Step::Wait(None));
    pod.exit(0, 137, 18);
    assert_eq!(pod.step(18), Step::Finish);
}

#[test]
fn without_grace_the_first_signal_is_sigkill() {
    let mut pod = one("Never");
    pod.start(0, 0);
    pod.stop(1, 0);
    assert_eq!(pod.step(1), Step::Kill(0));
}

#[test]
fn a_pod_deleted_before_its_start_never_starts() {
    let mut pod = one("Never");
    pod.stop(0, 30);
    assert_eq!(pod.step(0), Step::Finish);
    pod.run.stopping = false;
    pod.run.containers[0].on_preparing();
    pod.stop(0, 30);
    assert_eq!(pod.step(0), Step::Finish);
}

#[test]
fn the_active_deadline_fails_the_pod() {
    let mut pod = bench(json!({"activeDeadlineSeconds": 5, "containers": [{"name": "a"}]}));
    pod.start(0, 0);
    assert_eq!(pod.step(4), Step::Wait(Some(pod.at(5))));
    assert!(matches!(pod.step(5), Step::Fail(verdict) if verdict.reason == "DeadlineExceeded"));
}

#[test]
fn a_missing_config_map_is_tried_again_later() {
    let mut pod = one("Never");
    let retry = pod.at(5);
    pod.run.containers[0].on_preparing();
    assert_eq!(pod.step(0), Step::Wait(None));
    pod.run.containers[0].on_not_startable("CreateContainerConfigError", "no".to_owned(), retry);
    assert_eq!(pod.step(0), Step::Wait(Some(retry)));
    assert_eq!(pod.step(5), Step::Start(0));
    assert_eq!(pod.run.containers[0].restarts, 0);
}

#[test]
fn probes_wait_for_their_delay_and_for_the_startup_probe() {
    let exec = |delay: u64| json!({"exec": {"command": ["true"]}, "initialDelaySeconds": delay, "periodSeconds": 10, "failureThreshold": 1});
    let mut pod =
        bench(json!({"containers": [{"name": "a", "startupProbe": exec(3), "readinessProbe": exec(0),
        "livenessProbe": exec(6)}]}));
    pod.start(0, 0);
    assert_eq!(pod.step(0), Step::Wait(Some(pod.at(3))));
    assert_eq!(pod.step(3), Step::Probe(0, ProbeKind::Startup));
    let asked = pod.at(3);
    pod.run.containers[0].probes[0].on_asked(asked);
    assert_eq!(pod.step(3), Step::Wait(None));
    assert!(!pod.run.containers[0].probes[0].on_answer(true));
    assert_eq!(pod.step(4), Step::Probe(0, ProbeKind::Readiness));
    let asked = pod.at(4);
    pod.run.containers[0].probes[1].on_asked(asked);
    assert!(!pod.run.containers[0].ready());
    assert!(!pod.run.containers[0].probes[1].on_answer(true));
    assert!(pod.run.containers[0].ready());
    assert_eq!(pod.step(5), Step::Wait(Some(pod.at(6))));
    assert_eq!(pod.step(6), Step::Probe(0, ProbeKind::Liveness));
}
