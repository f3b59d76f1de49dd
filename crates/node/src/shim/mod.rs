//! The shim: one small process between the agent and each container.
//!
//! It is a re-exec of our own binary (`gangway shim`). It becomes the subreaper of everything the container starts, so
//! no descendant can leave its tree, not even with `setsid` and a double fork. Its standard input is a pipe from the
//! agent: the first line is a [`ProcessSpec`], each further line an [`Order`], and the end of the pipe, however the agent
//! died, kills the tree. Its standard output tells the agent one [`Report`] line once the command runs. When the command
//! ends, whatever it left behind is killed, as in a container, and the [`ExitRecord`] is written to a file.
//!
//! There is no runtime in here: three threads, blocking calls, a few milliseconds from start to `exec`.

mod protocol;
mod supervise;
mod tree;

pub use protocol::{ExitRecord, Order, ProcessSpec, Report};

use std::ffi::OsString;
use std::process::ExitCode;

/// The exit code of a shim that was not told what to run.
const EXIT_NOTHING_TO_RUN: u8 = 125;

/// Runs the shim; the binary calls this for `shim …` before it starts anything else.
///
/// `arguments` are those after `shim`. They only make the process recognizable in a list of processes; what to run comes
/// through standard input, because it can hold secrets.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    drop(arguments.into_iter());
    match supervise::run(std::io::stdin(), std::io::stdout()) {
        Ok(record) => ExitCode::from(u8::try_from(record.exit_code).unwrap_or(u8::MAX)),
        Err(error) => {
            eprintln!("gangway shim: {error}");
            ExitCode::from(EXIT_NOTHING_TO_RUN)
        }
    }
}
