//! The `gangway` binary.

use std::process::ExitCode;

use clap::Parser;
use gangway_cli::commands::Cli;
use gangway_cli::{Exit, Failure, Outcome, log};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // The shim of a pod is this binary again. It must stay small: no runtime, no threads.
    if args.next().is_some_and(|first| first == "shim") {
        return gangway_node::shim::main(args);
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(message) => {
            let asked_for = !message.use_stderr();
            let _ = message.print();
            return if asked_for { Exit::Success.into() } else { Exit::BadInput.into() };
        }
    };
    log::begin();
    match run(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("gangway: {failure}");
            }
            failure.exit.into()
        }
    }
}

/// API, controllers and scheduler share one thread: they hand each other work without waking a core.
fn run(cli: Cli) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::bad_input(format!("cannot start: {error}")))?;
    runtime.block_on(cli.run())
}
