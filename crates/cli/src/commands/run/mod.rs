//! `gangway run`: everything in one process, until every Job has ended.

mod apply;
mod follow;
mod frame;
mod machines;
mod output;
mod picture;
mod plan;
mod quota_watch;
mod quotas;
mod report;
mod screen;
mod served;
mod session;
mod summary;
mod unsupported;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use gangway_apiserver::{ServeError, ServeOptions, Serving};
use gangway_model::Clock;

use self::plan::Plan;
use self::report::Style;
use self::session::{End, Session};
use super::{config, output_failure};
use crate::clock::SystemClock;
use crate::embedded::{World, WorldOptions};
use crate::exit::{Exit, Failure, Outcome};
use crate::interrupt::interrupted;

/// Arguments of `gangway run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway run examples/quickstart.yaml       two teams, a dozen Jobs
  gangway run queues.yaml jobs.yaml --logs   all output of the Jobs at the end
  gangway run jobs.yaml -o json              one JSON object per line
  gangway run jobs.yaml --serve 0            for kubectl; prints a kubeconfig

Only containers with `image: host` run, as processes of this machine, unless
--any-image is given. This machine plays a node for each set of labels of the
ResourceFlavors in the files. A flavor with the annotation fake.gangway.dev/nodes has
nodes that only pretend: as `gangway node --fake` takes them, or 0 for none.")]
pub struct RunArgs {
    /// YAML files with queues and Jobs. All are checked before anything is applied.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// `json` prints a JSON object per line instead of text.
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    /// Prints all output of all Jobs at the end, not only the end of what failed.
    #[arg(long)]
    logs: bool,
    /// Runs containers of any image as processes of this machine.
    #[arg(long)]
    any_image: bool,
    /// Containers without a workingDir start in the current directory, not in one of their own.
    #[arg(long)]
    here: bool,
    /// Serves the API on this port of 127.0.0.1 during the run; 0 takes a free one.
    #[arg(long, value_name = "PORT")]
    serve: Option<u16>,
    /// The configuration file of the controller.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Json,
}

/// Runs the files.
pub async fn run(args: RunArgs) -> Outcome {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let began = clock.now();
    let plan = plan::read(&args.files)?;
    let config = config::load(args.config.as_deref())?;
    warn_root();
    if !plan.namespaces_added.is_empty() {
        eprintln!("gangway: created the namespaces that the files use: {}", plan.namespaces_added.join(", "));
    }
    let mut world = World::prepare(WorldOptions {
        clock: clock.clone(),
        config,
        machines: plan.machines.clone(),
        fake_nodes: plan.fake_nodes.clone(),
        any_image: args.any_image,
        working_directory: if args.here { std::env::current_dir().ok() } else { None },
    })
    .await?;
    let serving = serve(&world, args.serve).await?;
    let style = if args.output.is_some() { Style::Json } else { Style::for_people() };
    let outcome = tokio::select! {
        ended = follow(&mut world, &plan, clock, Session::settings(style, args.logs, serving.is_some(), began)) => ended,
        () = interrupted() => Ok(Exit::Interrupted),
    };
    drop(serving);
    world.stop().await;
    if matches!(outcome, Ok(Exit::Interrupted)) {
        eprintln!("\ngangway: interrupted; everything was stopped");
    }
    outcome
}

async fn follow(
    world: &mut World,
    plan: &Plan,
    clock: Arc<dyn Clock>,
    settings: session::Settings,
) -> Outcome {
    let jobs = apply::apply(&world.client, plan).await?;
    let mut session = Session::new(world.client.clone(), clock, world.config().clone(), plan, jobs, settings);
    world.start_parts()?;
    let end = tokio::select! {
        end = session.follow() => end.map_err(output_failure)?,
        failure = world.broken() => return Err(failure),
    };
    let exit = session.summarize(&world.counts, end).await.map_err(output_failure)?;
    if exit == Exit::Success && end == End::AllEnded && plan.is_first_example {
        session.hint().map_err(output_failure)?;
    }
    Ok(exit)
}

async fn serve(world: &World, port: Option<u16>) -> Result<Option<Serving>, Failure> {
    let Some(port) = port else { return Ok(None) };
    let options = ServeOptions {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        kubeconfig: world.directory().join("kubeconfig"),
    };
    let serving = world.api.serve(options).await.map_err(|error| {
        let taken = matches!(&error, ServeError::Listen { source, .. } if source.kind() == std::io::ErrorKind::AddrInUse);
        let failure = Failure::bad_input(&error);
        if taken { failure.try_this("--serve 0    takes a free port") } else { failure }
    })?;
    let line = format!("export KUBECONFIG={}    # https://{}", serving.kubeconfig.display(), serving.address);
    eprintln!("gangway: the API is served during the run:\n  {line}");
    Ok(Some(serving))
}

/// Pods are processes of whoever starts the run.
fn warn_root() {
    if nix::unistd::geteuid().is_root() {
        eprintln!("gangway: warning: started as root, so every Job runs as root on this machine");
    }
}
