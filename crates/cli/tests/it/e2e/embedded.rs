//! The world of one machine: the API and everything that works on it in this process, on one thread.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use gangway_api::config::Configuration;
use gangway_cli::clock::SystemClock;
use gangway_cli::embedded::{World as Stack, WorldOptions};
use gangway_node::fake::parse_nodes;

use super::world::{FAKE_NODES, World};

/// The world, and what has to live as long as it is used.
pub async fn start() -> Result<(World, Stack)> {
    let options = WorldOptions {
        clock: Arc::new(SystemClock),
        config: Configuration::default(),
        machines: Vec::new(),
        fake_nodes: parse_nodes(FAKE_NODES)?,
        any_image: false,
        working_directory: None,
    };
    let stack = Stack::start(options).await.map_err(|failure| anyhow!("{failure}"))?;
    let world =
        World { client: stack.client.clone(), api: "the embedded API", patience: Duration::from_secs(10) };
    Ok((world, stack))
}
