//! Which workload, when, on which flavor: a pure engine.
//!
//! [`Engine::apply`] takes notice of what was observed, [`Engine::decide`] says what to do about it as
//! data, and the outcome of each write comes back through `apply`. Nothing here does I/O, reads a clock
//! or takes a lock: the same events at the same times give the same decisions.
//!
//! State has two parts: [`Durable`], a function of the objects, and a memory that may be lost.

#![warn(missing_docs)]

mod census;
mod check;
mod checks;
mod chunks;
mod cycle;
mod decision;
mod definitions;
mod durable;
mod engine;
mod event;
mod explain;
mod fallback;
mod flavors;
mod holders;
mod holds;
mod ids;
mod ledger;
mod lifecycle;
mod memory;
mod on_the_way;
mod preemption;
mod queues;
mod readiness;
mod records;
mod rules;
mod shapes;
mod tally;
#[cfg(test)]
mod testing;
mod trace;
mod tree;
mod waiting;
mod workloads;
mod writes;

pub use census::{CohortCensus, QuotaCensus, Waiters};
pub use check::Violation;
pub use decision::{Action, Decision, DecisionId, PendingWrite};
pub use durable::{Durable, Standing};
pub use engine::Engine;
pub use event::{Event, JobEnd, JobFacts, Outcome, ReadyPods};
pub use explain::{Explanation, LeavingVictim, PreemptedFor, Situation, Start};
pub use fallback::{Rung, ladder};
pub use memory::{QueueRef, Work};
pub use readiness::TooLong;
pub use rules::Rules;
pub use trace::{FlavorTrace, Shortage, Verdict};
