//! What a pod asks for: resources, ports, and where it may run or would like to.

mod constraints;
mod ports;
mod requests;
mod spread;

pub use constraints::{ConstraintsError, constraints, preferred_node_affinity, taint, tolerations};
pub(crate) use constraints::{preferred_terms, required_terms};
pub use ports::host_ports;
pub use requests::{RequestsError, requests, scored_requests};
pub(crate) use spread::spread_constraint;
pub use spread::{SpreadError, spread_constraints};
