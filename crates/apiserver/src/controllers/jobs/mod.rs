//! The Job controller: keeps as many pods of each Job running as its spec asks for, and counts how they end.
//!
//! Watches fill a [`cache::Cache`]; a Job about which something changed gets one [`plan::plan`], which
//! [`execute::execute`] carries out; the answers go into the cache, and the Job is planned again until nothing
//! is left to do. There is at most one sync per Job under way.

mod backoff;
mod cache;
mod conditions;
mod controller;
mod execute;
mod indexes;
mod notes;
mod per_index;
mod plan;
mod template;
mod view;

use std::sync::Arc;

use gangway_model::Clock;

/// Runs Jobs. Never returns; dropping the future stops it at any point without harm.
pub async fn run(client: kube::Client, clock: Arc<dyn Clock>) {
    controller::Controller::new(client, clock).run().await;
}

/// The same as before Kubernetes 1.36: a Job keeps its start time when it is suspended.
pub async fn run_before_1_36(client: kube::Client, clock: Arc<dyn Clock>) {
    controller::Controller::new(client, clock).keeping_start_times().run().await;
}
