//! Probes: what the spec asks, and what the answers so far mean. How an answer is got is in `prober`.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

/// How a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAction {
    /// Exit code 0 of a command with the container's environment and working directory.
    Exec(Vec<String>),
    /// Something listens on this port of 127.0.0.1.
    Tcp(u16),
    /// A GET of this path on 127.0.0.1 answers with a status from 200 to 399.
    Http { port: u16, path: String, headers: Vec<(String, String)> },
}

/// A probe of the spec, with the defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlan {
    pub kind: ProbeKind,
    pub action: ProbeAction,
    pub initial_delay: Duration,
    pub period: Duration,
    pub timeout: Duration,
    pub success_threshold: u32,
    pub failure_threshold: u32,
}

/// A probe of a running container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeRun {
    pub plan: ProbePlan,
    pub next_at: Instant,
    pub in_flight: bool,
    /// Answers of one kind in a row.
    successes: u32,
    failures: u32,
    pub passing: bool,
}

impl ProbePlan {
    /// The plan for a probe of `container`, or a sentence about what cannot be done here.
    pub fn new(kind: ProbeKind, probe: &Probe, container: &Container) -> Result<Self, String> {
        let seconds = |value: Option<i32>, default: u32| {
            Duration::from_secs(value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default).into())
        };
        let count = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
        };
        let least = Duration::from_secs(1);
        Ok(Self {
            kind,
            action: action(probe, container)?,
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10).max(least),
            timeout: seconds(probe.timeout_seconds, 1).max(least),
            success_threshold: count(probe.success_threshold, 1),
            failure_threshold: count(probe.failure_threshold, 3),
        })
    }
}

fn action(probe: &Probe, container: &Container) -> Result<ProbeAction, String> {
    if let Some(exec) = &probe.exec {
        return match exec.command.clone().unwrap_or_default() {
            command if command.is_empty() => Err("exec.command is empty".to_owned()),
            command => Ok(ProbeAction::Exec(command)),
        };
    }
    if let Some(tcp) = &probe.tcp_socket {
        local_host(tcp.host.as_deref())?;
        return Ok(ProbeAction::Tcp(port(&tcp.port, container)?));
    }
    let Some(http) = &probe.http_get else {
        return Err("only exec, tcpSocket and httpGet are known".to_owned());
    };
    local_host(http.host.as_deref())?;
    if http.scheme.as_deref().is_some_and(|scheme| scheme != "HTTP") {
        return Err("httpGet.scheme HTTPS is not supported; use exec".to_owned());
    }
    let path = http.path.clone().filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
    let headers: Vec<(String, String)> = http
        .http_headers
        .iter()
        .flatten()
        .map(|header| (header.name.clone(), header.value.clone()))
        .collect();
    let texts = headers.iter().flat_map(|(name, value)| [name, value]).chain([&path]);
    if texts.into_iter().any(|text| text.contains(['\r', '\n'])) {
        return Err("httpGet must not contain line breaks".to_owned());
    }
    Ok(ProbeAction::Http { port: port(&http.port, container)?, path, headers })
}

fn local_host(host: Option<&str>) -> Result<(), String> {
    match host {
        None | Some("" | "127.0.0.1" | "localhost") => Ok(()),
        Some(other) => Err(format!("host {other:?} is not this machine; only 127.0.0.1 is probed")),
    }
}

fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .find(|port| port.name.as_deref() == Some(name))
            .map(|port| port.container_port)
            .or_else(|| name.parse().ok()),
    };
    number
        .and_then(|number| u16::try_from(number).ok())
        .filter(|number| *number > 0)
        .ok_or_else(|| format!("{port:?} is no port of the container"))
}

impl ProbeRun {
    /// All probes of a container. Those that cannot be done here are reported by `refusal`, before anything starts.
    pub fn all(container: &Container) -> Vec<Self> {
        specs(container)
            .filter_map(|(kind, probe)| ProbePlan::new(kind, probe, container).ok())
            .map(Self::new)
            .collect()
    }

    fn new(plan: ProbePlan) -> Self {
        let passing = plan.kind == ProbeKind::Liveness;
        Self { plan, next_at: Instant::now(), in_flight: false, successes: 0, failures: 0, passing }
    }

    /// A readiness probe whose answer is given, not asked for.
    pub fn answered(passing: bool) -> Self {
        let plan = ProbePlan {
            kind: ProbeKind::Readiness,
            action: ProbeAction::Exec(Vec::new()),
            initial_delay: Duration::ZERO,
            period: Duration::MAX,
            timeout: Duration::MAX,
            success_threshold: 1,
            failure_threshold: 1,
        };
        Self { passing, ..Self::new(plan) }
    }

    /// The container has started.
    pub fn restart(&mut self, now: Instant) {
        let next_at = now + self.plan.initial_delay;
        *self = Self { next_at, ..Self::new(self.plan.clone()) };
    }

    /// The probe is being asked.
    pub fn on_asked(&mut self, now: Instant) {
        self.in_flight = true;
        self.next_at = now + self.plan.period;
    }

    /// An answer came. Says whether the container must be stopped for it.
    #[must_use]
    pub fn on_answer(&mut self, success: bool) -> bool {
        self.in_flight = false;
        if success {
            self.failures = 0;
            self.successes = self.successes.saturating_add(1);
            self.passing |= self.successes >= self.plan.success_threshold;
            return false;
        }
        self.successes = 0;
        self.failures = self.failures.saturating_add(1);
        if self.failures < self.plan.failure_threshold {
            return false;
        }
        self.passing = false;
        self.plan.kind != ProbeKind::Readiness
    }
}

/// The probes of a container as the spec has them.
pub fn specs(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    [
        (ProbeKind::Startup, container.startup_probe.as_ref()),
        (ProbeKind::Readiness, container.readiness_probe.as_ref()),
        (ProbeKind::Liveness, container.liveness_probe.as_ref()),
    ]
    .into_iter()
    .filter_map(|(kind, probe)| Some((kind, probe?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(kind: ProbeKind, success: i32, failure: i32) -> ProbeRun {
        let probe =
            json!({"exec": {"command": ["true"]}, "successThreshold": success, "failureThreshold": failure});
        let probe = serde_json::from_value(probe).unwrap();
        ProbeRun::new(ProbePlan::new(kind, &probe, &Container::default()).unwrap())
    }

    #[test]
    fn thresholds_count_answers_in_a_row() {
        let mut probe = run(ProbeKind::Readiness, 2, 2);
        let mut seen = Vec::new();
        for answer in [true, false, true, true, false, true, false, false] {
            assert!(!probe.on_answer(answer));
            seen.push(probe.passing);
        }
        assert_eq!(seen, [false, false, false, true, true, true, true, false]);
    }

    #[test]
    fn a_failing_liveness_probe_stops_the_container() {
        let mut probe = run(ProbeKind::Liveness, 1, 2);
        assert!(probe.passing);
        assert!(!probe.on_answer(false));
        assert!(probe.on_answer(false));
    }

    #[test]
    fn named_ports_are_looked_up_and_foreign_hosts_refused() {
        let container: Container =
            serde_json::from_value(json!({"name": "c", "ports": [{"name": "web", "containerPort": 8080}]}))
                .unwrap();
        let plan =
            |probe| ProbePlan::new(ProbeKind::Readiness, &serde_json::from_value(probe).unwrap(), &container);
        assert_eq!(plan(json!({"tcpSocket": {"port": "web"}})).unwrap().action, ProbeAction::Tcp(8080));
        assert!(plan(json!({"tcpSocket": {"port": "nope"}})).is_err());
        assert!(plan(json!({"httpGet": {"port": 80, "host": "example.com"}})).is_err());
        assert!(plan(json!({"grpc": {"port": 80}})).is_err());
    }
}
