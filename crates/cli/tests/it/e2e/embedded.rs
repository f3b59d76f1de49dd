//! The world of one machine: the API and everything that works on it in this process, on one thread.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, anyhow};
use gangway_api::config::Configuration;
use gangway_apiserver::{ServeOptions, Serving};
use gangway_cli::clock::SystemClock;
use gangway_cli::embedded::{World as Stack, WorldOptions};
use gangway_model::Clock;
use gangway_node::fake::parse_nodes;

use super::world::{Controller, FAKE_NODES, World};

impl Controller for RefCell<Stack> {
    fn kill(&self) -> Result<()> {
        self.borrow_mut().kill_admission();
        Ok(())
    }

    fn start(&self) -> Result<()> {
        self.start_by(Arc::new(SystemClock))
    }

    fn start_by(&self, clock: Arc<dyn Clock>) -> Result<()> {
        self.borrow_mut().start_admission(clock);
        Ok(())
    }

    fn configure(&self, config: &str) -> Result<()> {
        self.borrow_mut().configure(gangway_api::config::load("configuration", config)?);
        Ok(())
    }
}

/// The world, and what has to live as long as it is used.
pub async fn start() -> Result<(World, Rc<RefCell<Stack>>, Serving)> {
    let options = WorldOptions {
        clock: Arc::new(SystemClock),
        config: Configuration::default(),
        machines: Vec::new(),
        fake_nodes: parse_nodes(FAKE_NODES)?,
        any_image: false,
        working_directory: None,
    };
    let stack = Stack::start(options).await.map_err(|failure| anyhow!("{failure}"))?;
    let options = ServeOptions {
        address: (Ipv4Addr::LOCALHOST, 0).into(),
        kubeconfig: stack.directory().join("kubeconfig"),
    };
    let serving = stack.api.serve(options).await?;
    let (client, kubeconfig) = (stack.client.clone(), serving.kubeconfig.clone());
    let stack = Rc::new(RefCell::new(stack));
    let patience = Duration::from_secs(30);
    let controller = stack.clone();
    let api = "the embedded API";
    let world = World { client, api, patience, controller, kubeconfig, audit_log: None };
    Ok((world, stack, serving))
}
