//! `gangway rights`: writes docs/rights.md from the table of which the roles are made.

use crate::commands::print;
use crate::exit::{Exit, Outcome};

/// Prints the page.
pub fn run() -> Outcome {
    print(&page())?;
    Ok(Exit::Success)
}

/// The whole of docs/rights.md.
pub fn page() -> String {
    gangway_api::install::rights_page()
}
