//! Pods on a real API server: what the scheduler binds in a second and what that costs, beside kube-scheduler if it is there.
//!
//! Each scheduler is a process of its own and has the same configuration file but for its name; they take turns on the same
//! nodes. Pods are there before a scheduler starts, so that it is not their creation that is measured.

mod field;
mod rivals;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};

use self::field::Field;
use self::rivals::{Rival, Settings, Setup};
use super::Form;
use super::figure::{Figure, Unit};
use crate::connect::Connection;
use crate::exit::Failure;

/// Arguments of `gangway bench cluster`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway bench cluster --kubeconfig admin.conf --kube-scheduler bin/kube-scheduler
  gangway bench cluster --kubeconfig admin.conf --mode backoff --pods 1000

It makes nodes and pods of its own and removes them. The API server should be there for nothing else.")]
pub struct ClusterArgs {
    /// Nodes, of 4 CPUs each. Nothing runs on them.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    nodes: u32,
    /// Pods of a run.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pods: u32,
    /// Different kinds among them.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    shapes: u32,
    /// What is measured.
    #[arg(long, value_enum, default_value_t = Mode::Place)]
    mode: Mode,
    /// Requests per second that each scheduler may send, and at once.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    qps: u32,
    /// The program kube-scheduler, to be measured on the same nodes.
    #[arg(long, value_name = "PROGRAM")]
    kube_scheduler: Option<PathBuf>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Form>,
    #[command(flatten)]
    connection: Connection,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Pods that all fit.
    Place,
    /// Pods that fit nowhere and back off for ten seconds, when room comes while nobody else is to be tried.
    Backoff,
}

/// Measures every scheduler, with and without the gate.
pub async fn measure(args: &ClusterArgs) -> Result<Vec<Figure>, Failure> {
    let client = args.connection.client("bench").await?;
    let setup = Setup::new(&args.connection, Settings { qps: args.qps, backoff_seconds: 10 })?;
    let field = Field::new(client, args.nodes as usize, args.shapes as usize);
    let measured = async {
        field.prepare().await?;
        let mut figures = Vec::new();
        for rival in Rival::all(args.kube_scheduler.as_deref()) {
            eprintln!("gangway bench: {}", rival.title());
            let run = match args.mode {
                Mode::Place => place(&field, &setup, &rival, args).await,
                Mode::Backoff => back_off(&field, &setup, &rival, args).await,
            };
            field.remove_pods().await?;
            figures.extend(run?);
        }
        Ok(figures)
    };
    let figures = measured.await;
    field.remove().await;
    figures
}

async fn place(
    field: &Field,
    setup: &Setup,
    rival: &Rival<'_>,
    args: &ClusterArgs,
) -> Result<Vec<Figure>, Failure> {
    let pods = args.pods as usize;
    field.create_pods(rival.scheduler_name(), pods, false).await?;
    let watch = field.watch();
    let began = Instant::now();
    let process = rival.start(setup)?;
    let seen = watch.all_bound(pods).await?;
    let (cpu, memory) = (process.cpu_seconds(), process.peak_memory_bytes());
    let input = format!(
        "{}: {pods} pods of {} shapes on {} nodes, {} requests/s",
        rival.title(),
        args.shapes,
        args.nodes,
        args.qps
    );
    let count = pods as u64;
    let single =
        |name: &'static str, unit: Unit, value: f64| Figure::single(name, input.clone(), count, unit, value);
    Ok(vec![
        single("pods bound", Unit::PerSecond, seen.rate()),
        single("all bound after its start", Unit::Nanoseconds, seen.last_after(began)),
        single("CPU per 10,000 pods", Unit::Nanoseconds, cpu * 1e9 * 10_000.0 / pods as f64),
        single("peak memory", Unit::Bytes, memory),
    ])
}

async fn back_off(
    field: &Field,
    setup: &Setup,
    rival: &Rival<'_>,
    args: &ClusterArgs,
) -> Result<Vec<Figure>, Failure> {
    let pods = args.pods as usize;
    field.create_pods(rival.scheduler_name(), pods, true).await?;
    let watch = field.watch();
    let _process = rival.start(setup)?;
    let refused = watch.all_refused(pods).await?;
    let watch = field.watch();
    let began = Instant::now();
    field.open_room(true).await?;
    let seen = watch.all_bound(pods).await;
    field.open_room(false).await?;
    let seen = seen?;
    let input = format!(
        "{}: {pods} pods that back off for 10 s, the first tried {:.1} s before room came on {} nodes",
        rival.title(),
        began.duration_since(refused.first).as_secs_f64(),
        field.nodes()
    );
    let count = pods as u64;
    let first = seen.first.duration_since(began).as_nanos() as f64;
    Ok(vec![
        Figure::single("first bound after", input.clone(), count, Unit::Nanoseconds, first),
        Figure::single("all bound after", input, count, Unit::Nanoseconds, seen.last_after(began)),
    ])
}
