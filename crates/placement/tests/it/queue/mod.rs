//! The scheduling queue through its contract alone.

mod facts;
mod judge;
mod model;
mod random;
mod run;
mod sentences;
mod traps;
mod turns;
