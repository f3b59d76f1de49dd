//! `gangway crds`: the CustomResourceDefinitions.

use crate::commands::print;
use crate::exit::{Exit, Failure, Outcome};

/// Prints all of them as YAML.
pub fn run() -> Outcome {
    let yaml = gangway_api::crds_yaml().map_err(|error| {
        Failure::broken(format!("the CustomResourceDefinitions cannot be written: {error}"))
    })?;
    print(&yaml)?;
    Ok(Exit::Success)
}
