//! The schedulers that are measured, each a process with the same configuration.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use super::super::processes::Part;
use crate::connect::Connection;
use crate::exit::Failure;

/// The gate of KEP-5142.
const GATE: &str = "SchedulerPopFromBackoffQ";

/// What all of them are told.
pub struct Settings {
    pub qps: u32,
    pub backoff_seconds: u32,
}

/// Where their configuration is, and how they reach the API server.
pub struct Setup {
    directory: TempDir,
    kubeconfig: PathBuf,
    settings: Settings,
}

impl Setup {
    pub fn new(connection: &Connection, settings: Settings) -> Result<Self, Failure> {
        let Some(kubeconfig) = connection.kubeconfig.clone() else {
            let failure = Failure::bad_input("bench cluster: the API server is not named");
            return Err(failure.try_this("gangway bench cluster --kubeconfig FILE"));
        };
        let directory = tempfile::tempdir()
            .map_err(|error| Failure::bad_input(format!("cannot make a directory: {error}")))?;
        Ok(Self { directory, kubeconfig, settings })
    }

    /// The configuration file of a scheduler.
    fn configuration(&self, scheduler_name: &str) -> Result<PathBuf, Failure> {
        let Settings { qps, backoff_seconds } = self.settings;
        let file = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": self.kubeconfig, "qps": qps, "burst": qps},
            "leaderElection": {"leaderElect": false},
            "podInitialBackoffSeconds": backoff_seconds,
            "podMaxBackoffSeconds": backoff_seconds,
            "profiles": [{"schedulerName": scheduler_name}],
        });
        let path = self.directory.path().join(format!("{scheduler_name}.yaml"));
        fs::write(&path, file.to_string())
            .map_err(|error| Failure::bad_input(format!("{}: cannot be written: {error}", path.display())))?;
        Ok(path)
    }
}

/// A scheduler that is measured.
pub struct Rival<'p> {
    /// Another than this program.
    program: Option<&'p Path>,
    /// Whether it pops from backoff when idle.
    pops: bool,
}

impl<'p> Rival<'p> {
    /// Ours and, if its program is given, kube-scheduler; each with the gate on and off.
    pub fn all(kube_scheduler: Option<&'p Path>) -> Vec<Self> {
        let programs = std::iter::once(None).chain(kube_scheduler.map(Some));
        programs.flat_map(|program| [true, false].map(|pops| Self { program, pops })).collect()
    }

    pub fn title(&self) -> String {
        let name = if self.program.is_some() { "kube-scheduler" } else { "gangway scheduler" };
        format!("{name}, {GATE}={}", self.pops)
    }

    /// What its pods ask for.
    pub fn scheduler_name(&self) -> &'static str {
        match (self.program.is_some(), self.pops) {
            (false, true) => "bench-gangway",
            (false, false) => "bench-gangway-without-gate",
            (true, true) => "bench-reference",
            (true, false) => "bench-reference-without-gate",
        }
    }

    pub fn start(&self, setup: &Setup) -> Result<Part, Failure> {
        let failed = |error| Failure::bad_input(format!("cannot start {}: {error}", self.title()));
        let mut command = match self.program {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(["--secure-port", "0"]);
                command
            }
            None => {
                let mut command = Command::new(std::env::current_exe().map_err(failed)?);
                command.arg("scheduler");
                command
            }
        };
        command.arg("--config").arg(setup.configuration(self.scheduler_name())?);
        command.arg("--feature-gates").arg(format!("{GATE}={}", self.pops));
        Part::spawn(command).map_err(failed)
    }
}
