//! The scheduler through its contract alone.

mod behaviour;
mod families;
mod nominations;
mod numbers;
mod plugins;
mod properties;
mod queue;
mod world;
