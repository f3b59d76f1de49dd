//! Watches in, writes out: carries decisions to a Kubernetes API and news back.
//!
//! The shell of both cores. It only knows [`kube::Client`], so the same code runs on a cluster and on
//! the embedded API.

pub mod doctor;
pub mod election;
pub mod endpoints;
mod index;
pub mod metrics;
pub mod pace;
pub mod pods;
pub mod policies;
pub mod pulse;
mod trouble;
pub mod workloads;
