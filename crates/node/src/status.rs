//! The pod status as a function of what the agent knows.

use gangway_model::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;

use crate::state::{ContainerRun, ContainerState, Exit, PodRun, Role};

const OWN_CONDITIONS: [&str; 3] = ["Initialized", "Ready", "ContainersReady"];
const LOOPBACK: &str = "127.0.0.1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub fn finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Whether the pod's status says that it has ended for good.
pub fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|status| status.phase.as_deref()), Some("Succeeded" | "Failed"))
}

/// A point in time as objects hold it, in whole seconds.
pub fn api_time(time: Timestamp) -> Time {
    Time(jiff::Timestamp::from_second(time.as_seconds()).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
}

/// The phase. A pod is not called finished while a process of it lives.
pub fn phase(run: &PodRun) -> Phase {
    let alive = run.containers.iter().any(ContainerRun::alive);
    let init_failed =
        run.containers.iter().any(|init| init.role == Role::Init && init.finished() && !init.succeeded());
    let ended = run.stopping || init_failed || run.mains().all(ContainerRun::finished);
    if ended && !alive {
        let all_zero = run
            .mains()
            .all(|main| matches!(&main.state, ContainerState::Exited(exit) if exit.record.exit_code == 0));
        return if run.verdict.is_none() && all_zero { Phase::Succeeded } else { Phase::Failed };
    }
    let has_run = |container: &ContainerRun| {
        container.last_exit.is_some()
            || matches!(container.state, ContainerState::Running { .. } | ContainerState::Exited(_))
    };
    if run.mains().any(has_run) && run.mains().all(has_run) { Phase::Running } else { Phase::Pending }
}

/// The status to write for `pod`. Conditions that are not ours are kept as `pod` has them.
pub fn render(pod: &Pod, run: &PodRun, now: Timestamp) -> PodStatus {
    let phase = phase(run);
    let old = pod.status.clone().unwrap_or_default();
    let spec = pod.spec.as_ref();
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    let statuses = |containers: Option<&Vec<Container>>, init: bool| -> Option<Vec<ContainerStatus>> {
        let runs = run.containers.iter().filter(|container| (container.role != Role::Main) == init);
        let rendered: Vec<_> = containers?
            .iter()
            .zip(runs)
            .map(|(container, run)| container_status(container, run, uid, phase))
            .collect();
        (!rendered.is_empty()).then_some(rendered)
    };
    // A pod that was turned away has no containers to speak of.
    let turned_away = run.verdict.is_some() && run.containers.iter().all(never_touched);
    PodStatus {
        phase: Some(phase.name().to_owned()),
        reason: run.verdict.as_ref().map(|verdict| verdict.reason.clone()),
        message: run.verdict.as_ref().map(|verdict| verdict.message.clone()),
        start_time: old.start_time.or_else(|| Some(api_time(run.accepted.time))),
        host_ip: Some(LOOPBACK.to_owned()),
        host_ips: Some(vec![HostIP { ip: LOOPBACK.to_owned() }]),
        pod_ip: Some(LOOPBACK.to_owned()),
        pod_ips: Some(vec![PodIP { ip: LOOPBACK.to_owned() }]),
        conditions: Some(conditions(old.conditions.unwrap_or_default(), pod, run, phase, now)),
        init_container_statuses: spec
            .filter(|_| !turned_away)
            .and_then(|spec| statuses(spec.init_containers.as_ref(), true)),
        container_statuses: spec
            .filter(|_| !turned_away)
            .and_then(|spec| statuses(Some(&spec.containers), false)),
        ..PodStatus::default()
    }
}

/// What of a status is ours and worth a write when it changes.
pub fn essence(mut status: PodStatus) -> PodStatus {
    status.conditions = status.conditions.map(|conditions| {
        let ours =
            conditions.into_iter().filter(|condition| OWN_CONDITIONS.contains(&condition.type_.as_str()));
        ours.map(|condition| PodCondition { last_transition_time: None, ..condition }).collect()
    });
    PodStatus { start_time: None, ..status }
}

fn never_touched(container: &ContainerRun) -> bool {
    matches!(container.state, ContainerState::Waiting { retry_at: None, .. }) && container.last_exit.is_none()
}

fn container_status(container: &Container, run: &ContainerRun, uid: &str, phase: Phase) -> ContainerStatus {
    let id = |restarts: u32| format!("host://{uid}/{}/{restarts}", run.name);
    let current = id(run.restarts);
    let (state, last_state) = match &run.state {
        // A container that waits for its restart shows its last end as such.
        ContainerState::Exited(exit) if !run.finished() && !phase.finished() => {
            (waiting("CrashLoopBackOff", &back_off_message(run)), Some(terminated(exit, &current)))
        }
        state => {
            let before = run.last_exit.as_ref();
            (
                api_state(state, &current),
                before.map(|exit| terminated(exit, &id(run.restarts.saturating_sub(1)))),
            )
        }
    };
    let has_id = matches!(run.state, ContainerState::Running { .. } | ContainerState::Exited(_));
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: container.image.clone().unwrap_or_default(),
        container_id: has_id.then_some(current),
        ready: run.ready(),
        started: Some(run.started()),
        restart_count: i32::try_from(run.restarts).unwrap_or(i32::MAX),
        state: Some(state),
        last_state,
        ..ContainerStatus::default()
    }
}

fn back_off_message(run: &ContainerRun) -> String {
    let delay = crate::state::backoff(run.crashes).as_secs();
    format!("back-off {delay}s restarting container {}", run.name)
}

fn api_state(state: &ContainerState, id: &str) -> ApiState {
    match state {
        ContainerState::Waiting { reason, message, .. } => waiting(reason, message),
        ContainerState::Preparing | ContainerState::Starting => waiting("ContainerCreating", ""),
        ContainerState::Running { since } => ApiState {
            running: Some(ContainerStateRunning { started_at: Some(api_time(since.time)) }),
            ..ApiState::default()
        },
        ContainerState::Exited(exit) => terminated(exit, id),
    }
}

fn waiting(reason: &str, message: &str) -> ApiState {
    let message = (!message.is_empty()).then(|| message.to_owned());
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    ApiState { waiting: Some(waiting), ..ApiState::default() }
}

fn terminated(exit: &Exit, id: &str) -> ApiState {
    let record = &exit.record;
    let reason = match (&record.start_error, record.exit_code) {
        (Some(_), _) => "StartError",
        (None, 0) => "Completed",
        (None, _) => "Error",
    };
    let started = exit.started.unwrap_or(exit.finished);
    let terminated = ContainerStateTerminated {
        exit_code: record.exit_code,
        signal: record.signal,
        reason: Some(reason.to_owned()),
        message: record.start_error.clone(),
        started_at: Some(api_time(started.time)),
        finished_at: Some(api_time(exit.finished.time)),
        container_id: Some(id.to_owned()),
    };
    ApiState { terminated: Some(terminated), ..ApiState::default() }
}

/// One condition of ours before it meets the old ones.
struct Wanted {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

fn conditions(
    old: Vec<PodCondition>,
    pod: &Pod,
    run: &PodRun,
    phase: Phase,
    now: Timestamp,
) -> Vec<PodCondition> {
    let wanted = wanted_conditions(&old, pod, run, phase);
    let mut result: Vec<PodCondition> =
        old.iter().filter(|old| wanted.iter().all(|wanted| wanted.kind != old.type_)).cloned().collect();
    result.extend(wanted.into_iter().map(|wanted| {
        let status = if wanted.holds { "True" } else { "False" };
        let unchanged = old.iter().find(|old| old.type_ == wanted.kind && old.status == status);
        PodCondition {
            type_: wanted.kind.to_owned(),
            status: status.to_owned(),
            reason: wanted.reason.map(str::to_owned),
            message: wanted.message,
            last_transition_time: unchanged
                .and_then(|old| old.last_transition_time.clone())
                .or_else(|| Some(api_time(now))),
            ..PodCondition::default()
        }
    }));
    result
}

fn wanted_conditions(old: &[PodCondition], pod: &Pod, run: &PodRun, phase: Phase) -> Vec<Wanted> {
    let is_true = |kind: &str| old.iter().any(|old| old.type_ == kind && old.status == "True");
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    let gates_open = gates.into_iter().flatten().all(|gate| is_true(&gate.condition_type));
    let unready: Vec<&str> = run
        .containers
        .iter()
        .filter(|container| container.role != Role::Init && !container.ready())
        .map(|container| container.name.as_str())
        .collect();
    let live = !phase.finished();
    let (reason, message) = match phase {
        Phase::Succeeded => (Some("PodCompleted"), None),
        Phase::Failed => (Some("PodFailed"), None),
        _ if unready.is_empty() => (None, None),
        _ => {
            let message = format!("containers with unready status: [{}]", unready.join(" "));
            (Some("ContainersNotReady"), Some(message))
        }
    };
    let containers_ready = live && unready.is_empty();
    let gate_reason = (containers_ready && !gates_open).then_some("ReadinessGatesNotReady");
    let initialized = run.initialized();
    let mut wanted = vec![
        Wanted {
            kind: "Initialized",
            holds: initialized || phase == Phase::Succeeded,
            reason: if initialized { reason.filter(|_| !live) } else { Some("ContainersNotInitialized") },
            message: None,
        },
        Wanted {
            kind: "Ready",
            holds: containers_ready && gates_open,
            reason: reason.or(gate_reason),
            message: message.clone(),
        },
        Wanted { kind: "ContainersReady", holds: containers_ready, reason, message },
    ];
    if !old.iter().any(|old| old.type_ == "PodScheduled") {
        wanted.push(Wanted { kind: "PodScheduled", holds: true, reason: None, message: None });
    }
    wanted
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
