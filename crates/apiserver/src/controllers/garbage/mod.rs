//! Garbage collection: what has lost its owners is deleted, and owners that wait for it are let go.
//!
//! Watches of every kind that is served fill a [`graph::Graph`] of owners and dependents; what to do about an
//! object is a function of the graph, and is carried out one step at a time for each object.

mod actions;
mod collector;
mod graph;
mod resources;

/// Deletes what has lost its owner. Never returns; dropping the future stops it.
pub async fn run(client: kube::Client) {
    collector::Collector::new(client).run().await;
}
