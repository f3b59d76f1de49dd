//! The controllers on the embedded API.

mod cohorts;
mod connection;
mod election;
mod evictions;
mod fallback;
mod logs;
mod metrics;
mod pods;
mod pods_explained;
mod pods_failing;
mod pods_preempting;
mod policies;
mod readiness;
mod succession;
mod workloads;
mod world;
