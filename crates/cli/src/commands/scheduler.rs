//! `gangway scheduler`: placement on a cluster.

use std::sync::Arc;

use clap::Args;
use gangway_api::names::SCHEDULER_NAME;
use gangway_controller::pods;

use crate::clock::SystemClock;
use crate::connect::{Connection, causes};
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt::interrupted;

/// Arguments of `gangway scheduler`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway scheduler                              pods with `schedulerName: gangway`
  gangway scheduler --name default-scheduler     on a cluster without another scheduler")]
pub struct SchedulerArgs {
    /// The scheduler name that pods ask for; may be given more than once.
    #[arg(long = "name", value_name = "NAME", default_value = SCHEDULER_NAME)]
    names: Vec<String>,
    #[command(flatten)]
    connection: Connection,
}

/// Places pods until it is told to stop.
pub async fn run(args: SchedulerArgs) -> Outcome {
    let client = args.connection.client("scheduler").await?;
    eprintln!("gangway scheduler: places pods that ask for {}", args.names.join(" or "));
    let options = pods::Options { scheduler_names: args.names, ..pods::Options::default() };
    tokio::select! {
        ended = pods::run(client, Arc::new(SystemClock), options) => match ended {
            Err(error) => Err(Failure::bad_input(format!("the scheduler cannot go on: {}", causes(&error)))),
            Ok(()) => Err(Failure::broken("the scheduler ended by itself")),
        },
        () = interrupted() => Ok(Exit::Success),
    }
}
