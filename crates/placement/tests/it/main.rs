//! The scheduler through its contract alone.

mod behaviour;
mod nominations;
mod plugins;
mod properties;
mod queue;
mod world;
