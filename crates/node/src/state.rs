//! What the agent knows about a pod that it runs: data and the changes that events make to it.

use std::time::Duration;

use gangway_model::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::Instant;

use crate::probe::{ProbeKind, ProbeRun};
use crate::shim::ExitRecord;

/// A crash loop is forgiven after a container has run this long.
const FORGIVEN_AFTER: Duration = Duration::from_secs(600);
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_secs(300);

/// A point in time twice: `instant` for timers, which steps of the wall clock must not move, `time` for objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub instant: Instant,
    pub time: Timestamp,
}

/// Why a pod failed as a whole, in words of the pod's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub reason: String,
    pub message: String,
}

/// A pod while this agent is responsible for it.
#[derive(Clone, Debug)]
pub struct PodRun {
    /// Init containers first, each group in the order of the spec.
    pub containers: Vec<ContainerRun>,
    /// When the agent took the pod.
    pub accepted: Moment,
    /// From `activeDeadlineSeconds`.
    pub deadline: Option<Instant>,
    /// Set once the pod has failed for a reason other than its containers' exit codes.
    pub verdict: Option<Verdict>,
    /// No container is started any more; those that run have a [`Stop`].
    pub stopping: bool,
}

/// What a container is for the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: runs beside the main containers and is stopped after them.
    Sidecar,
    Main,
}

/// When an ended container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    Always,
    OnFailure,
    Never,
}

/// One container.
#[derive(Clone, Debug)]
pub struct ContainerRun {
    pub name: String,
    pub role: Role,
    pub restart: Restart,
    pub state: ContainerState,
    /// How the run before this one ended.
    pub last_exit: Option<Exit>,
    pub restarts: u32,
    /// Ends in a row that were followed by a restart without a long run in between.
    pub crashes: u32,
    pub probes: Vec<ProbeRun>,
    pub stop: Option<Stop>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ContainerState {
    /// Not started, or not startable until `retry_at`.
    Waiting {
        reason: &'static str,
        message: String,
        retry_at: Option<Instant>,
    },
    /// Its environment is being resolved; there is no process.
    Preparing,
    /// The shim has been started.
    Starting,
    Running {
        since: Moment,
    },
    Exited(Exit),
}

/// The end of one run of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    pub record: ExitRecord,
    pub started: Option<Moment>,
    pub finished: Moment,
}

/// A container is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// When SIGTERM was not enough.
    pub kill_at: Instant,
    pub terminated: bool,
    pub killed: bool,
}

impl PodRun {
    /// A pod of which nothing has started.
    pub fn new(pod: &Pod, accepted: Moment) -> Self {
        let spec = pod.spec.as_ref();
        let policy = restart_policy(spec.and_then(|spec| spec.restart_policy.as_deref()));
        let inits = spec.and_then(|spec| spec.init_containers.as_ref()).into_iter().flatten();
        let mains = spec.map(|spec| spec.containers.iter()).into_iter().flatten();
        let containers = inits
            .map(|container| ContainerRun::new(container, init_role(container), policy))
            .chain(mains.map(|container| ContainerRun::new(container, Role::Main, policy)))
            .collect();
        let deadline = spec.and_then(|spec| spec.active_deadline_seconds).and_then(|seconds| {
            accepted.instant.checked_add(Duration::from_secs(seconds.max(0).unsigned_abs()))
        });
        Self { containers, accepted, deadline, verdict: None, stopping: false }
    }

    /// The same, failed before anything could start.
    pub fn failed(pod: &Pod, accepted: Moment, verdict: Verdict) -> Self {
        Self { verdict: Some(verdict), stopping: true, ..Self::new(pod, accepted) }
    }

    /// Stops everything, with `grace` between SIGTERM and SIGKILL. A shorter grace replaces a longer one, never the reverse.
    pub fn stop(&mut self, now: Instant, grace: Duration) {
        self.stopping = true;
        for container in &mut self.containers {
            container.stop(now, grace);
        }
    }

    /// Whether every init container has done its part, so that the main containers may start.
    pub fn initialized(&self) -> bool {
        self.containers
            .iter()
            .filter(|container| container.role != Role::Main)
            .all(ContainerRun::lets_next_start)
    }

    /// The main containers.
    pub fn mains(&self) -> impl Iterator<Item = &ContainerRun> {
        self.containers.iter().filter(|container| container.role == Role::Main)
    }
}

impl ContainerRun {
    fn new(container: &Container, role: Role, pod_policy: Restart) -> Self {
        let own = container.restart_policy.as_deref().map(|policy| restart_policy(Some(policy)));
        let restart = match (role, own.unwrap_or(pod_policy)) {
            (Role::Sidecar, _) => Restart::Always,
            (Role::Init, Restart::Always) => Restart::OnFailure,
            (_, policy) => policy,
        };
        Self {
            name: container.name.clone(),
            role,
            restart,
            state: ContainerState::Waiting {
                reason: if role == Role::Main { "ContainerCreating" } else { "PodInitializing" },
                message: String::new(),
                retry_at: None,
            },
            last_exit: None,
            restarts: 0,
            crashes: 0,
            probes: ProbeRun::all(container),
            stop: None,
        }
    }

    /// Whether a process may exist.
    pub fn alive(&self) -> bool {
        matches!(self.state, ContainerState::Starting | ContainerState::Running { .. })
    }

    /// When the container is to be started (again); `None` if it runs or has ended for good.
    pub fn start_at(&self, now: Instant) -> Option<Instant> {
        match &self.state {
            ContainerState::Waiting { retry_at, .. } => Some(retry_at.unwrap_or(now)),
            ContainerState::Exited(exit) if self.restarts_after(exit) => {
                Some(exit.finished.instant + backoff(self.crashes))
            }
            _ => None,
        }
    }

    /// Whether it has ended and stays so.
    pub fn finished(&self) -> bool {
        matches!(&self.state, ContainerState::Exited(exit) if !self.restarts_after(exit))
    }

    /// Whether it has ended for good with exit code 0.
    pub fn succeeded(&self) -> bool {
        matches!(&self.state, ContainerState::Exited(exit) if exit.record.exit_code == 0 && self.finished())
    }

    fn restarts_after(&self, exit: &Exit) -> bool {
        match self.restart {
            Restart::Always => true,
            Restart::OnFailure => exit.record.exit_code != 0,
            Restart::Never => false,
        }
    }

    /// For an init container: whether the one after it may start.
    pub fn lets_next_start(&self) -> bool {
        match self.role {
            // A sidecar that started once does not hold up the pod again while it restarts.
            Role::Sidecar => self.restarts > 0 || self.started(),
            _ => self.succeeded(),
        }
    }

    /// Runs, and its startup probe has passed.
    pub fn started(&self) -> bool {
        matches!(self.state, ContainerState::Running { .. }) && self.passed(ProbeKind::Startup)
    }

    /// Counts for the pod's readiness.
    pub fn ready(&self) -> bool {
        match self.role {
            Role::Init => self.succeeded(),
            _ => self.started() && self.passed(ProbeKind::Readiness) && self.stop.is_none(),
        }
    }

    fn passed(&self, kind: ProbeKind) -> bool {
        self.probes.iter().filter(|probe| probe.plan.kind == kind).all(|probe| probe.passing)
    }

    /// Stops this run of the container.
    pub fn stop(&mut self, now: Instant, grace: Duration) {
        let kill_at = now.checked_add(grace).unwrap_or(now);
        let stop = self.stop.get_or_insert(Stop { kill_at, terminated: false, killed: false });
        stop.kill_at = stop.kill_at.min(kill_at);
    }

    /// A start was ordered.
    pub fn on_preparing(&mut self) {
        let before = std::mem::replace(&mut self.state, ContainerState::Preparing);
        if let ContainerState::Exited(exit) = before {
            let long = exit.started.is_some_and(|started| {
                exit.finished.instant.saturating_duration_since(started.instant) >= FORGIVEN_AFTER
            });
            self.crashes = if long { 1 } else { self.crashes.saturating_add(1) };
            self.restarts = self.restarts.saturating_add(1);
            self.last_exit = Some(exit);
        }
        self.stop = None;
    }

    /// The process runs.
    pub fn on_started(&mut self, now: Moment) {
        self.state = ContainerState::Running { since: now };
        for probe in &mut self.probes {
            probe.restart(now.instant);
        }
    }

    /// It could not be started; tried again at `retry_at`.
    pub fn on_not_startable(&mut self, reason: &'static str, message: String, retry_at: Instant) {
        self.state = ContainerState::Waiting { reason, message, retry_at: Some(retry_at) };
    }

    /// The process has ended, and all it had started.
    pub fn on_exit(&mut self, record: ExitRecord, now: Moment) {
        let started = match self.state {
            ContainerState::Running { since } => Some(since),
            _ => None,
        };
        self.state = ContainerState::Exited(Exit { record, started, finished: now });
        self.stop = None;
    }
}

/// How long an ended container waits before it is started again: not at all the first time, then ever longer.
pub fn backoff(crashes: u32) -> Duration {
    match crashes {
        0 => Duration::ZERO,
        n => FIRST_BACKOFF.saturating_mul(1 << (n - 1).min(16)).min(LONGEST_BACKOFF),
    }
}

fn restart_policy(policy: Option<&str>) -> Restart {
    match policy {
        Some("Never") => Restart::Never,
        Some("OnFailure") => Restart::OnFailure,
        _ => Restart::Always,
    }
}

fn init_role(container: &Container) -> Role {
    if container.restart_policy.as_deref() == Some("Always") { Role::Sidecar } else { Role::Init }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_five_minutes() {
        let seconds: Vec<u64> = (0..8).map(|crashes| backoff(crashes).as_secs()).collect();
        assert_eq!(seconds, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(backoff(u32::MAX), LONGEST_BACKOFF);
    }
}
