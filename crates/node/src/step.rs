//! What to do next about a pod. Pure: the worker carries it out and asks again.

use tokio::time::Instant;

use crate::probe::ProbeKind;
use crate::state::{ContainerRun, ContainerState, PodRun, Role, Verdict};

/// One thing to do. Containers are named by their place in [`PodRun::containers`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    Start(usize),
    /// SIGTERM.
    Terminate(usize),
    /// SIGKILL.
    Kill(usize),
    Probe(usize, ProbeKind),
    /// The pod has failed as a whole: stop what runs.
    Fail(Verdict),
    /// The main containers have ended for good, or an init container has failed for good: stop the sidecars.
    StopSidecars,
    /// Nothing runs and nothing will.
    Finish,
    /// Nothing to do until an event comes, or this moment.
    Wait(Option<Instant>),
}

/// The first thing that is due.
pub fn next_step(run: &PodRun, now: Instant) -> Step {
    if run.stopping {
        return stopping_step(run, now);
    }
    if run.deadline.is_some_and(|deadline| now >= deadline) {
        return Step::Fail(deadline_exceeded());
    }
    let init_failed = run
        .containers
        .iter()
        .any(|container| container.role == Role::Init && container.finished() && !container.succeeded());
    if init_failed || run.mains().all(ContainerRun::finished) {
        let alive = run.containers.iter().any(ContainerRun::alive);
        return if alive { Step::StopSidecars } else { Step::Finish };
    }
    let mut wake = Wake(run.deadline);
    if let Some(step) = stop_step(run, now, &mut wake) {
        return step;
    }
    if let Some(step) = start_step(run, now, &mut wake) {
        return step;
    }
    probe_step(run, now, &mut wake).unwrap_or(Step::Wait(wake.0))
}

/// The earliest moment anyone asked for.
struct Wake(Option<Instant>);

impl Wake {
    fn at(&mut self, instant: Instant) {
        self.0 = Some(self.0.map_or(instant, |earlier| earlier.min(instant)));
    }
}

fn stopping_step(run: &PodRun, now: Instant) -> Step {
    if !run.containers.iter().any(ContainerRun::alive) {
        return Step::Finish;
    }
    let mut wake = Wake(None);
    stop_step(run, now, &mut wake).unwrap_or(Step::Wait(wake.0))
}

/// SIGTERM or SIGKILL for a container that is being stopped. Sidecars get their SIGTERM after the others have ended.
fn stop_step(run: &PodRun, now: Instant, wake: &mut Wake) -> Option<Step> {
    let others_alive = run.containers.iter().any(|other| other.role != Role::Sidecar && other.alive());
    for (index, container) in run.containers.iter().enumerate() {
        let Some(stop) = container.stop.filter(|stop| container.alive() && !stop.killed) else { continue };
        if now >= stop.kill_at {
            return Some(Step::Kill(index));
        }
        let turn_comes_later = others_alive && container.role == Role::Sidecar;
        if !stop.terminated && !turn_comes_later {
            return Some(Step::Terminate(index));
        }
        wake.at(stop.kill_at);
    }
    None
}

/// The container whose turn it is: init containers one by one, then the main ones together.
fn start_step(run: &PodRun, now: Instant, wake: &mut Wake) -> Option<Step> {
    for (index, container) in run.containers.iter().enumerate() {
        match container.start_at(now) {
            Some(at) if at <= now => return Some(Step::Start(index)),
            Some(at) => wake.at(at),
            None => {}
        }
        if container.role != Role::Main && !container.lets_next_start() {
            return None;
        }
    }
    None
}

fn probe_step(run: &PodRun, now: Instant, wake: &mut Wake) -> Option<Step> {
    for (index, container) in run.containers.iter().enumerate() {
        if !matches!(container.state, ContainerState::Running { .. }) || container.stop.is_some() {
            continue;
        }
        let started = container.started();
        for probe in container.probes.iter().filter(|probe| !probe.in_flight) {
            // A startup probe is over once it has passed, and the others wait for it.
            if (probe.plan.kind == ProbeKind::Startup) == started {
                continue;
            }
            if probe.next_at <= now {
                return Some(Step::Probe(index, probe.plan.kind));
            }
            wake.at(probe.next_at);
        }
    }
    None
}

fn deadline_exceeded() -> Verdict {
    Verdict {
        reason: "DeadlineExceeded".to_owned(),
        message: "Pod was active on the node longer than the specified deadline".to_owned(),
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
