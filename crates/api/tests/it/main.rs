//! The crate as its users see it.

#![allow(clippy::unwrap_used)]

mod crds;
mod fallback;
mod golden;
mod manifests;
mod policies;
mod records;
mod scheduler_config;
mod schema;
