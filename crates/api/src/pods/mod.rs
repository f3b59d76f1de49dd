//! What a pod asks for: resources, and where it may run.

mod constraints;
mod requests;

pub use constraints::{ConstraintsError, constraints, taint, tolerations};
pub use requests::{RequestsError, requests};
