//! The framework that plugins stand in: their names, what wakes pods, what a profile runs.
//!
//! | question | file |
//! |---|---|
//! | which plugins are there? | `plugin.rs` |
//! | what can a plugin do? | `point.rs` |
//! | what can happen, and whom may it help? | `events.rs` |
//! | what does a plugin say about a node? | `status.rs` |
//! | which plugins run for a pod? | `profile.rs` |

mod events;
mod plugin;
mod point;
mod profile;
mod status;

pub use events::{Actions, Change, ClusterEvent, Happening, Help, Resource};
pub use plugin::{PluginId, PluginSet};
pub(crate) use point::{Asked, Plugin, Prepared};
pub(crate) use profile::Profile;
pub(crate) use status::Objection;
