//! The parts as processes of their own, against a real API server, and what they cost.

use std::path::Path;
use std::process::Stdio;

use tokio::process::{Child, Command};

use super::stage::NODES;
use crate::connect::Connection;
use crate::exit::Failure;

/// `USER_HZ`: the unit of times in /proc, the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Controller, scheduler and fake nodes with room for everything, each a process.
pub fn start_parts(connection: &Connection) -> Result<[Part; 3], Failure> {
    Ok([
        Part::start(&["controller"], connection)?,
        Part::start(&["scheduler"], connection)?,
        Part::start(&["node", "--fake", NODES], connection)?,
    ])
}

/// What the system says about a process.
#[derive(Clone, Copy, Debug)]
pub struct Process {
    pub pid: u32,
}

/// A part of Gangway that runs as a process. It is killed when this is dropped.
pub struct Part {
    child: Child,
}

impl Part {
    /// Starts `gangway ARGUMENTS` against the same API server.
    fn start(arguments: &[&str], connection: &Connection) -> Result<Self, Failure> {
        let failed =
            |error| Failure::bad_input(format!("cannot start `gangway {}`: {error}", arguments.join(" ")));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(arguments);
        if let Some(kubeconfig) = &connection.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        if let Some(context) = &connection.context {
            command.arg("--context").arg(context);
        }
        Self::spawn(command).map_err(failed)
    }

    /// Starts a program, and lets nobody hear what it says.
    pub fn spawn(mut command: Command) -> std::io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn()?;
        Ok(Self { child })
    }

    /// Seconds of processor time so far.
    pub fn cpu_seconds(&self) -> f64 {
        self.process().map_or(0.0, Process::cpu_seconds)
    }

    /// The most memory that was resident at once, in bytes.
    pub fn peak_memory_bytes(&self) -> f64 {
        self.process().map_or(0.0, Process::peak_memory_bytes)
    }

    fn process(&self) -> Option<Process> {
        self.child.id().map(|pid| Process { pid })
    }
}

impl Process {
    /// Seconds of processor time so far.
    pub fn cpu_seconds(self) -> f64 {
        let stat = self.read("stat");
        // The name in parentheses may hold anything; after it come state and twelve further fields.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(11) + ticks(12)) / TICKS_PER_SECOND
    }

    /// The most memory that was resident at once, in bytes.
    pub fn peak_memory_bytes(self) -> f64 {
        let status = self.read("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes =
            peak.and_then(|rest| rest.trim().strip_suffix(" kB")).and_then(|text| text.parse::<f64>().ok());
        kibibytes.unwrap_or(0.0) * 1024.0
    }

    fn read(self, file: &str) -> String {
        std::fs::read_to_string(Path::new("/proc").join(self.pid.to_string()).join(file)).unwrap_or_default()
    }
}
