//! The scheduler through its contract alone.

mod behaviour;
mod plugins;
mod properties;
mod queue;
mod world;
