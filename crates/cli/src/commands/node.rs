//! `gangway node`: this machine as a node, or nodes that pretend.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use gangway_node::fake::{parse_nodes, run_fake_nodes};
use gangway_node::{NodeError, NodeOptions, run_node};
use kube::Client;

use crate::clock::SystemClock;
use crate::connect::{Connection, causes};
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt::interrupted;

/// Arguments of `gangway node`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway node --name desk                            runs pods with `image: host` as processes of this machine
  gangway node --name desk --label tier=spot          with a label that a ResourceFlavor asks for
  gangway node --fake 100                             a hundred nodes that only pretend
  gangway node --fake 'count=4,cpu=16,label:tier=spot;count=2,name=gpu,nvidia.com/gpu=8'

What the pods of fake nodes do is in their annotations fake.gangway.dev/run-for, ready-after, fail, terminate-after.")]
pub struct NodeArgs {
    /// Plays nodes instead of being one: a number, or descriptions separated by `;`.
    #[arg(long, value_name = "SPEC", conflicts_with_all = ["name", "labels", "any_image", "state_directory"])]
    fake: Option<String>,
    /// The Node's name.
    #[arg(long, required_unless_present = "fake")]
    name: Option<String>,
    /// A label of the Node; may be given more than once.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    labels: Vec<(String, String)>,
    /// How much the Node offers of a resource, where that is not what the machine has.
    #[arg(long = "capacity", value_name = "RESOURCE=AMOUNT", value_parser = key_value)]
    capacity: Vec<(String, String)>,
    /// Runs containers of any image as processes of this machine.
    #[arg(long)]
    any_image: bool,
    /// Where logs and volumes of pods are kept; otherwise in a directory that goes with the command.
    #[arg(long, value_name = "DIRECTORY")]
    state_directory: Option<PathBuf>,
    /// Allows pods to run as root, since that is who started this.
    #[arg(long)]
    allow_root: bool,
    #[command(flatten)]
    connection: Connection,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
    if key.is_empty() { Err("the key is empty".to_owned()) } else { Ok((key.to_owned(), value.to_owned())) }
}

/// Is a node until it is told to stop.
pub async fn run(args: NodeArgs) -> Outcome {
    let ended = match args.fake.clone() {
        Some(fake) => pretend(&args, &fake).await?,
        None => be_a_node(args).await?,
    };
    ended.map_err(|error| Failure::bad_input(causes(&error)))?;
    Ok(Exit::Success)
}

async fn pretend(args: &NodeArgs, fake: &str) -> Result<Result<(), NodeError>, Failure> {
    let nodes = parse_nodes(fake).map_err(|error| {
        Failure::bad_input(format!("--fake: {error}"))
            .try_this("gangway node --fake count=4,cpu=16,label:tier=spot")
    })?;
    let client = args.connection.client("node").await?;
    eprintln!("gangway node: plays {} nodes", nodes.len());
    Ok(run_fake_nodes(client, Arc::new(SystemClock), nodes, interrupted()).await)
}

async fn be_a_node(args: NodeArgs) -> Result<Result<(), NodeError>, Failure> {
    if nix::unistd::geteuid().is_root() && !args.allow_root {
        return Err(Failure::bad_input(
            "started as root: every pod of the cluster could run as root on this machine",
        )
        .try_this("start it as another user, or say --allow-root if that is what you want"));
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::bad_input(format!("cannot find the gangway program itself: {error}")))?;
    let client: Client = args.connection.client("node").await?;
    let temporary = match &args.state_directory {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("gangway-node-").tempdir().map_err(|error| {
            Failure::bad_input(format!("no directory for the state of pods: {error}"))
                .try_this("name one with --state-directory")
        })?),
    };
    let directory = temporary.as_ref().map(|directory| directory.path().to_owned()).or(args.state_directory);
    let mut options = NodeOptions::new(args.name.unwrap_or_default(), directory.unwrap_or_default(), program);
    options.labels = args.labels.into_iter().collect();
    options.capacity = args.capacity.into_iter().collect();
    options.any_image = args.any_image;
    eprintln!(
        "gangway node: this machine is node {}; logs are in {}",
        options.name,
        options.log_directory().display()
    );
    Ok(run_node(client, Arc::new(SystemClock), options, interrupted()).await)
}
