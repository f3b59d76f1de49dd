//! The crate as its users see it.

#![allow(clippy::unwrap_used)]

mod crds;
mod golden;
mod manifests;
mod records;
mod schema;
