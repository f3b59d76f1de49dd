//! The whole system in virtual time: API server, controllers, scheduler and fake nodes on one thread, from one seed.
//!
//! | question | file |
//! |---|---|
//! | what happens, and who interferes? | `scenario.rs`, `objects.rs`; which machines do not come, and who gives up what: `fallbacks.rs` |
//! | what goes wrong between a client and the API? | `faults.rs` |
//! | who takes part? | `world.rs`, `controller.rs`, `clock.rs`; who answers checks: `checker.rs` |
//! | what must hold? | `invariants.rs`; how much may a tree use: `quota.rs`; what was tried and agreed to: `tried.rs` |
//! | what is there, and what has been? | `view.rs`, `witness.rs`; what has to turn out well yet: `dues.rs` |
//! | how is a seed checked, and what fails made small? | `check.rs` |

#![warn(missing_docs)]

mod check;
mod checker;
mod clock;
mod controller;
mod dues;
mod fallbacks;
mod faults;
mod invariants;
mod objects;
mod quota;
mod scenario;
mod tried;
mod view;
mod witness;
mod world;

pub use check::{Outcome, check, shrink};
pub use fallbacks::{Demand, Fallbacks, Rule, Scarcity, Strategy};
pub use faults::Faults;
pub use invariants::{INVARIANTS, Invariant, Violation};
pub use scenario::{Act, Deed, JobPlan, Queue, Quota, Scenario};
pub use witness::Listener;
