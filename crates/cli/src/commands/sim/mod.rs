//! `gangway sim`: the whole system in virtual time.

mod check;

use clap::Subcommand;

use crate::exit::{Failure, Outcome};

/// Subcommands of `gangway sim`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Plays random scenarios with faults, and checks every promise after every step.
    Check(check::CheckArgs),
}

/// Simulates.
pub fn run(command: &SimCommand) -> Outcome {
    // Simulations have runtimes of their own, which cannot be made inside another.
    let ended = std::thread::scope(|threads| {
        let work = || match command {
            SimCommand::Check(args) => check::run(args),
        };
        threads.spawn(work).join()
    });
    ended.unwrap_or_else(|_| Err(Failure::broken("the simulation ended with a panic")))
}
