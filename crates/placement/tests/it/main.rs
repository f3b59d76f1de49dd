//! The scheduler through its contract alone.

mod behaviour;
mod properties;
mod world;
