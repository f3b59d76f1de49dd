//! The agent's end of a shim.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::shim::{ExitRecord, Order, ProcessSpec, Report};

/// What a process tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// The command runs.
    Started,
    /// The command has ended and nothing of it is left. Also sent if it never ran.
    Exited(ExitRecord),
}

/// A process under a shim. Dropping it kills the process and everything that it started.
#[derive(Debug)]
pub struct Process {
    orders: UnboundedSender<Order>,
}

impl Process {
    /// Starts `spec` under a shim; `label` is what a list of processes shows.
    pub fn spawn(
        shim_program: &Path,
        label: &str,
        spec: &ProcessSpec,
        on_event: impl FnMut(ProcessEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let mut line = serde_json::to_vec(spec)?;
        line.push(b'\n');
        let mut child = Command::new(shim_program)
            .args(["shim", label])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.ok_or_else(|| io::Error::other("the shim has no pipes"))?;
        let (orders, receiver) = unbounded_channel();
        tokio::spawn(write_orders(stdin, line, receiver));
        tokio::spawn(follow(child, stdout, spec.exit_file.clone(), on_event));
        Ok(Self { orders })
    }

    /// Passes an order on; a shim that has ended needs none.
    pub fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }
}

/// Ends, and thereby closes the pipe, when the [`Process`] is dropped or the shim has ended.
async fn write_orders(mut stdin: ChildStdin, first: Vec<u8>, mut orders: UnboundedReceiver<Order>) {
    let mut line = first;
    loop {
        if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
        let Some(order) = orders.recv().await else { return };
        line = order.line().as_bytes().to_vec();
    }
}

async fn follow(
    mut child: Child,
    stdout: ChildStdout,
    exit_file: Option<PathBuf>,
    mut on_event: impl FnMut(ProcessEvent),
) {
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line).await;
    let report = read.ok().and_then(|_| serde_json::from_str::<Report>(&line).ok());
    if matches!(report, Some(Report::Started(_))) {
        on_event(ProcessEvent::Started);
    }
    let status = child.wait().await.ok();
    let code = status.and_then(|status| status.code());
    let recorded = match (&report, exit_file) {
        (Some(Report::NotStarted(record)), _) => Some(record.clone()),
        (_, Some(file)) => ExitRecord::read(&file).ok(),
        (_, None) => code.map(ExitRecord::exited),
    };
    on_event(ProcessEvent::Exited(recorded.unwrap_or_else(|| shim_lost(report.as_ref()))));
}

/// The shim itself was killed or could not run: its command's process group is all that we know of the tree.
fn shim_lost(report: Option<&Report>) -> ExitRecord {
    match report {
        Some(Report::Started(pid)) => {
            let _ = killpg(Pid::from_raw(*pid), Signal::SIGKILL);
            ExitRecord::signaled(Signal::SIGKILL as i32)
        }
        _ => {
            let error = io::Error::other("the shim ended");
            ExitRecord::not_started(&error, "The shim ended before it could start the command.".to_owned())
        }
    }
}
