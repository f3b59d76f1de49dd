//! `gangway config`: looks at a configuration file before a controller or a scheduler does.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use gangway_api::config::{ConfigError, Configuration};
use gangway_api::scheduler_config::{self, SchedulerConfiguration};

use super::print;
use crate::exit::{Exit, Failure, Outcome};

/// Subcommands of `gangway config`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Says whether a configuration file can be used, and if not, why; warns of settings that are dangerous together.
    Check {
        /// The configuration file: kind Configuration or KubeSchedulerConfiguration.
        file: PathBuf,
    },
    /// Prints the configuration that takes effect, defaults included.
    Show {
        /// The configuration file, of either kind; without one the defaults are shown.
        file: Option<PathBuf>,
        /// Without a file: the defaults of the pod scheduler.
        #[arg(long, conflicts_with = "file")]
        scheduler: bool,
    },
}

/// Checks or shows.
pub fn run(command: ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Check { file } => {
            for (setting, warning) in Either::load(&file)?.warnings() {
                print(&format!("{}: warning: {setting}: {warning}\n", file.display()))?;
            }
            print(&format!("{}: ok\n", file.display()))?;
        }
        ConfigCommand::Show { file: Some(file), .. } => print(&Either::load(&file)?.show())?,
        ConfigCommand::Show { file: None, scheduler: true } => {
            print(&SchedulerConfiguration::default().show())?;
        }
        ConfigCommand::Show { file: None, scheduler: false } => print(&Configuration::default().show())?,
    }
    Ok(Exit::Success)
}

/// A configuration of one kind or the other.
enum Either {
    Admission(Box<Configuration>),
    Scheduler(Box<SchedulerConfiguration>),
}

impl Either {
    /// What a file says, by the kind that it names.
    fn load(file: &Path) -> Result<Self, Failure> {
        let text = read(file)?;
        if !scheduler_config::recognizes(&text) {
            return Ok(Self::Admission(Box::new(admission(file, &text)?)));
        }
        Ok(Self::Scheduler(Box::new(scheduler(file, &text)?)))
    }

    fn warnings(&self) -> Vec<(String, String)> {
        match self {
            Self::Admission(configuration) => configuration.warnings(),
            Self::Scheduler(configuration) => configuration.warnings(),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Admission(configuration) => configuration.show(),
            Self::Scheduler(configuration) => configuration.show(),
        }
    }
}

/// The configuration of the controller in `file`, or the defaults.
pub fn load(file: Option<&Path>) -> Result<Configuration, Failure> {
    match file {
        Some(file) => admission(file, &read(file)?),
        None => Ok(Configuration::default()),
    }
}

fn admission(file: &Path, text: &str) -> Result<Configuration, Failure> {
    let loaded = gangway_api::config::load(&file.display().to_string(), text);
    loaded.map_err(|error| unusable(&error, "gangway config show    prints every setting with its default"))
}

/// The configuration of the pod scheduler in `file`.
pub fn load_scheduler(file: &Path) -> Result<SchedulerConfiguration, Failure> {
    scheduler(file, &read(file)?)
}

fn scheduler(file: &Path, text: &str) -> Result<SchedulerConfiguration, Failure> {
    let loaded = scheduler_config::load(&file.display().to_string(), text);
    let hint = "gangway config show --scheduler    prints every setting with its default";
    loaded.map_err(|error| unusable(&error, hint))
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::bad_input(format!("{}: cannot be read: {error}", file.display())))
}

fn unusable(error: &ConfigError, hint: &str) -> Failure {
    Failure::bad_input(error).try_this(hint)
}
