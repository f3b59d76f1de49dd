//! What agent and shim say to each other: one JSON value or word per line.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What to run. The first line on the shim's standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The program and its arguments; the program is looked up in the `PATH` of `env`.
    pub command: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Where the command starts.
    pub working_directory: PathBuf,
    /// Standard output and standard error are appended here; without it they are discarded.
    pub log_file: Option<PathBuf>,
    /// Where the [`ExitRecord`] goes.
    pub exit_file: Option<PathBuf>,
}

/// A further line on the shim's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// SIGTERM to the command's process group.
    Terminate,
    /// SIGKILL to everything.
    Kill,
}

impl Order {
    /// The line that says it.
    pub fn line(self) -> &'static str {
        match self {
            Self::Terminate => "terminate\n",
            Self::Kill => "kill\n",
        }
    }

    /// Reads a line; `None` if it says nothing we know.
    pub fn parse(line: &str) -> Option<Self> {
        match line.trim_end() {
            "terminate" => Some(Self::Terminate),
            "kill" => Some(Self::Kill),
            _ => None,
        }
    }
}

/// The one line on the shim's standard output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Report {
    /// The command runs under this process id, which is also its process group.
    Started(i32),
    /// The command could not be started; the exit record says why.
    NotStarted(ExitRecord),
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The exit code; 128 + signal for a command that a signal ended, as shells count.
    pub exit_code: i32,
    /// The signal that ended the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Set when the command never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_error: Option<String>,
}

impl ExitRecord {
    /// A command that ended by itself.
    pub fn exited(code: i32) -> Self {
        Self { exit_code: code, ..Self::default() }
    }

    /// A command that a signal ended.
    pub fn signaled(signal: i32) -> Self {
        Self { exit_code: 128 + signal, signal: Some(signal), start_error: None }
    }

    /// A command that could not be started, with the exit code a shell would give.
    pub fn not_started(error: &io::Error, message: String) -> Self {
        let exit_code = match error.kind() {
            io::ErrorKind::NotFound => 127,
            io::ErrorKind::PermissionDenied => 126,
            _ => 128,
        };
        Self { exit_code, signal: None, start_error: Some(message) }
    }

    /// Writes the record so that a reader sees all of it or none.
    pub fn write(&self, file: &Path) -> io::Result<()> {
        let unfinished = file.with_extension("unfinished");
        std::fs::write(&unfinished, serde_json::to_vec(self)?)?;
        std::fs::rename(unfinished, file)
    }

    /// Reads a record that [`ExitRecord::write`] wrote.
    pub fn read(file: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(file)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read_as_they_are_written() {
        for order in [Order::Terminate, Order::Kill] {
            assert_eq!(Order::parse(order.line()), Some(order));
        }
        assert_eq!(Order::parse("dance\n"), None);
    }

    #[test]
    fn a_start_error_has_the_exit_code_of_a_shell() {
        let of = |kind: io::ErrorKind| ExitRecord::not_started(&kind.into(), String::new()).exit_code;
        assert_eq!(of(io::ErrorKind::NotFound), 127);
        assert_eq!(of(io::ErrorKind::PermissionDenied), 126);
        assert_eq!(of(io::ErrorKind::OutOfMemory), 128);
    }
}
