//! What is served over HTTP. Nothing is unless it is asked for: metrics tell the names of queues to everybody who can reach
//! the port, and a controller that is started by hand is no reason for that.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};

use super::file::Health;
use super::support::Refusals;

/// What is served over HTTP, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Where metrics are served; none if nowhere.
    pub metrics: Option<SocketAddr>,
    /// Where it is told whether the controller is alive and ready; none if nowhere.
    pub health: Option<SocketAddr>,
    /// The path that tells whether it is ready.
    pub readiness: String,
    /// The path that tells whether it is alive.
    pub liveness: String,
}

impl Default for Serving {
    fn default() -> Self {
        Self { metrics: None, health: None, readiness: "/readyz".to_owned(), liveness: "/healthz".to_owned() }
    }
}

/// Paths that have another meaning.
const TAKEN: [&str; 2] = ["/metrics", "/loglevel"];

impl Serving {
    /// Takes over what a file says of health.
    pub(super) fn read_health(&mut self, file: &Health, refusals: &mut Refusals) {
        self.health =
            listening("health.healthProbeBindAddress", file.health_probe_bind_address.as_ref(), refusals);
        let path = |name: &Option<String>, usual: &str| match name
            .as_deref()
            .map(|name| name.trim_start_matches('/'))
        {
            None | Some("") => usual.to_owned(),
            Some(name) => format!("/{name}"),
        };
        self.readiness = path(&file.readiness_endpoint_name, &self.readiness);
        self.liveness = path(&file.liveness_endpoint_name, &self.liveness);
        let is_plain = |path: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            path[1..].chars().all(allowed) && !TAKEN.contains(&path)
        };
        if !is_plain(&self.readiness) || self.readiness == self.liveness {
            let message = "must be a plain name that is not taken, such as readyz";
            refusals.refuse("health.readinessEndpointName", message);
        }
        if !is_plain(&self.liveness) {
            let message = "must be a plain name that is not taken, such as healthz";
            refusals.refuse("health.livenessEndpointName", message);
        }
    }

    pub(super) fn show_health(&self) -> Value {
        json!({
            "healthProbeBindAddress": show(self.health),
            "readinessEndpointName": self.readiness.trim_start_matches('/'),
            "livenessEndpointName": self.liveness.trim_start_matches('/'),
        })
    }

    /// An address as a person writes it: none for "0". A port alone means every address of the machine.
    pub fn address(text: &str) -> Result<Option<SocketAddr>, String> {
        let address = match text.strip_prefix(':') {
            _ if matches!(text, "" | "0") => return Ok(None),
            Some(port) => port.parse().ok().map(|port: u16| (Ipv4Addr::UNSPECIFIED, port).into()),
            None => text.parse().ok(),
        };
        address.map(Some).ok_or_else(|| format!("{text:?} is none; write :PORT, IP:PORT or \"0\" (off)"))
    }
}

/// As a file would say it.
pub(super) fn show(address: Option<SocketAddr>) -> String {
    address.map_or("0".to_owned(), |address| address.to_string())
}

/// Where a file says that something listens.
pub(super) fn listening(path: &str, setting: Option<&String>, refusals: &mut Refusals) -> Option<SocketAddr> {
    let address = Serving::address(setting?);
    address.map_err(|message| refusals.refuse(path, message)).ok().flatten()
}
