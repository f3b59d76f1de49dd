//! The `gangway` command: argument parsing and rendering, one file per command.
//!
//! [`embedded`] puts all the rooms into this process; the rest is the command line around it.

pub mod clock;
pub mod commands;
mod connect;
pub mod embedded;
mod exit;
mod interrupt;
pub mod log;
mod render;

pub use exit::{Exit, Failure, Outcome};
