//! `gangway sim`: the whole system in virtual time.

mod check;
mod planted;

use clap::{Subcommand, ValueEnum};

use crate::exit::{Failure, Outcome};

/// Subcommands of `gangway sim`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Plays random scenarios with faults, and checks every promise after every step.
    Check(check::CheckArgs),
    /// Plants mistakes, and says how soon the checks find each.
    Planted(planted::PlantedArgs),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Json,
}

/// Simulates.
pub fn run(command: &SimCommand) -> Outcome {
    // Simulations have runtimes of their own, which cannot be made inside another.
    let ended = std::thread::scope(|threads| {
        let work = || match command {
            SimCommand::Check(args) => check::run(args),
            SimCommand::Planted(args) => planted::run(args),
        };
        threads.spawn(work).join()
    });
    ended.unwrap_or_else(|_| Err(Failure::broken("the simulation ended with a panic")))
}
