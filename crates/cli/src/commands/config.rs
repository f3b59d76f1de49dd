//! `gangway config`: looks at a configuration file before a controller does.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use gangway_api::config::Configuration;

use super::print;
use crate::exit::{Exit, Failure, Outcome};

/// Subcommands of `gangway config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Says whether a configuration file can be used, and if not, why; warns of settings that are dangerous together.
    Check {
        /// The configuration file.
        file: PathBuf,
    },
    /// Prints the configuration that takes effect, defaults included.
    Show {
        /// The configuration file; without one the defaults are shown.
        file: Option<PathBuf>,
    },
}

/// Checks or shows.
pub fn run(command: ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Check { file } => {
            for (setting, warning) in load(Some(&file))?.warnings() {
                print(&format!("{}: warning: {setting}: {warning}\n", file.display()))?;
            }
            print(&format!("{}: ok\n", file.display()))?;
        }
        ConfigCommand::Show { file } => print(&load(file.as_deref())?.show())?,
    }
    Ok(Exit::Success)
}

/// The configuration in `file`, or the defaults.
pub fn load(file: Option<&Path>) -> Result<Configuration, Failure> {
    let Some(file) = file else { return Ok(Configuration::default()) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::bad_input(format!("{}: cannot be read: {error}", file.display())))?;
    gangway_api::config::load(&file.display().to_string(), &text).map_err(|error| {
        Failure::bad_input(error).try_this("gangway config show    prints every setting with its default")
    })
}
