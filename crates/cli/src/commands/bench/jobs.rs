//! Jobs through the whole stack: in this process, or on a real API server with the parts as processes.

use std::time::{Duration, Instant};

use clap::Args;
use kube::Client;
use serde_json::json;

use super::Form;
use super::figure::{Figure, Unit};
use super::processes::{Process, start_parts};
use super::stage::{Pace, Plan, Stage, start_world};
use super::timeline::{Moments, Timeline, nanos};
use crate::connect::Connection;
use crate::exit::Failure;

/// Arguments of `gangway bench jobs`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo run --release -- bench jobs                           everything in this process
  cargo run --release -- bench jobs --kubeconfig admin.conf   on a real API server that knows our kinds")]
pub struct JobsArgs {
    /// Jobs that run one after another.
    #[arg(long, default_value_t = 100)]
    turns: usize,
    /// Jobs at once.
    #[arg(long, default_value_t = 1_000)]
    burst: usize,
    /// The process of the API server, if it runs on this machine: what a queued Job costs it more than one without a queue.
    #[arg(long, value_name = "PID")]
    api_server_pid: Option<u32>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Form>,
    #[command(flatten)]
    connection: Connection,
}

/// A quota of cpus that holds back nobody.
const PLENTY: &str = "1000000";
/// How long the fake pods run.
const RUN_FOR: &str = "10ms";
/// Between Jobs that are created one by one.
const PAUSE: Duration = Duration::from_millis(200);

/// Measures turns, then a burst, each on a fresh world or queue.
pub async fn measure(args: &JobsArgs) -> Result<Vec<Figure>, Failure> {
    if args.connection.kubeconfig.is_some() || args.connection.context.is_some() {
        return on_cluster(args).await;
    }
    let mut figures = Vec::new();
    let began = Instant::now();
    let world = start_world().await?;
    let stage = Stage::new(world.client.clone(), "turns", "1", json!({})).await?;
    let turns = stage.run(&plan(args.turns, Pace::AtOnce), finished).await?;
    let counts = world.counts.snapshot();
    let first = turns.moments().filter_map(|moments| moments.unsuspended).min();
    if let Some(first) = first {
        let input = "from nothing, in this process".to_owned();
        figures.push(Figure::single(
            "first admission",
            input,
            1,
            Unit::Nanoseconds,
            first.duration_since(began).as_nanos() as f64,
        ));
    }
    figures.extend(turn_figures(&turns, args.turns, "in this process"));
    let input = format!("{} Jobs one at a time, in this process", args.turns);
    let per_job = |requests: u64| requests as f64 / args.turns.max(1) as f64;
    figures.push(Figure::single(
        "decision requests per Job",
        input.clone(),
        counts.decisions,
        Unit::PerJob,
        per_job(counts.decisions),
    ));
    figures.push(Figure::single(
        "diagnostic requests per Job",
        input,
        counts.diagnostics,
        Unit::PerJob,
        per_job(counts.diagnostics),
    ));
    let stage = Stage::new(world.client.clone(), "singles", PLENTY, json!({})).await?;
    let singles = stage.run(&plan(args.turns, Pace::Apart(PAUSE)), finished).await?;
    figures.extend(single_figures(&singles, args.turns, "in this process"));
    world.stop().await;

    let world = start_world().await?;
    let stage = Stage::new(world.client.clone(), "burst", PLENTY, json!({})).await?;
    let burst = stage.run(&plan(args.burst, Pace::AtOnce), finished).await?;
    figures.extend(burst_figures(&burst, args.burst, "in this process"));
    world.stop().await;
    Ok(figures)
}

async fn on_cluster(args: &JobsArgs) -> Result<Vec<Figure>, Failure> {
    let client = args.connection.client("bench").await?;
    let [controller, _scheduler, _nodes] = start_parts(&args.connection)?;
    let mut figures = Vec::new();
    let place = "on the API server of the kubeconfig";

    let stage = Stage::new(client.clone(), "turns", "1", json!({})).await?;
    let turns = stage.run(&plan(args.turns, Pace::AtOnce), finished).await;
    stage.remove().await;
    figures.extend(turn_figures(&turns?, args.turns, place));

    let stage = Stage::new(client.clone(), "singles", PLENTY, json!({})).await?;
    let singles = stage.run(&plan(args.turns, Pace::Apart(PAUSE)), finished).await;
    stage.remove().await;
    figures.extend(single_figures(&singles?, args.turns, place));

    let api_server = args.api_server_pid.map(|pid| Process { pid });
    let unmanaged = match api_server {
        Some(process) => Some(cpu_of_burst(&client, process, &unqueued(args.burst)).await?.1),
        None => None,
    };
    let cpu_before = controller.cpu_seconds();
    let (burst, api_cpu) = match api_server {
        Some(process) => cpu_of_burst(&client, process, &plan(args.burst, Pace::AtOnce)).await?,
        None => (burst(&client, &plan(args.burst, Pace::AtOnce)).await?, 0.0),
    };
    let cpu = controller.cpu_seconds() - cpu_before;
    figures.extend(burst_figures(&burst, args.burst, place));
    let jobs = args.burst.max(1);
    let single = |name: &'static str, of: &str, unit: Unit, value: f64| {
        Figure::single(name, format!("{jobs} Jobs at once, {of}"), jobs as u64, unit, value)
    };
    let per_job = |seconds: f64| seconds * 1e9 / jobs as f64;
    let of = "`gangway controller`";
    figures.push(single("controller CPU per Job", of, Unit::Nanoseconds, per_job(cpu)));
    figures.push(single("controller peak memory", of, Unit::Bytes, controller.peak_memory_bytes()));
    if let Some(unmanaged) = unmanaged {
        let of = "API server, less that of as many Jobs without a queue";
        let added = per_job(api_cpu - unmanaged);
        figures.push(single("API server CPU added per Job", of, Unit::Nanoseconds, added));
        let of = "Jobs without a queue, API server";
        figures.push(single("its CPU per Job without a queue", of, Unit::Nanoseconds, per_job(unmanaged)));
    }
    Ok(figures)
}

/// So many Jobs at once, until the last has finished, in a queue of their own.
async fn burst(client: &Client, plan: &Plan) -> Result<Timeline, Failure> {
    let stage = Stage::new(client.clone(), "burst", PLENTY, json!({})).await?;
    let timeline = stage.run(plan, finished).await;
    stage.remove().await;
    timeline
}

/// The same, and the seconds of processor time that a process spent on it, with their removal.
async fn cpu_of_burst(client: &Client, process: Process, plan: &Plan) -> Result<(Timeline, f64), Failure> {
    let before = process.cpu_seconds();
    let timeline = burst(client, plan).await?;
    Ok((timeline, process.cpu_seconds() - before))
}

fn turn_figures(turns: &Timeline, jobs: usize, place: &str) -> Vec<Figure> {
    let input = format!("{jobs} Jobs one at a time, fake pods that run 10 ms, {place}");
    vec![Figure::spans("Job finished → next started", input, 1, &turns.turnovers())]
}

fn single_figures(singles: &Timeline, jobs: usize, place: &str) -> Vec<Figure> {
    let input = format!("{jobs} Jobs, one every {PAUSE:?}, with room for all, {place}");
    let spans = singles.spans(|moments| moments.created, |moments| moments.first_pod);
    vec![Figure::spans("Job created → first pod created", input, 1, &spans)]
}

fn burst_figures(burst: &Timeline, jobs: usize, place: &str) -> Vec<Figure> {
    let input = format!("{jobs} Jobs at once with room for all, {place}");
    let first = burst.moments().filter_map(|moments| moments.created).min();
    let until = |moment: Option<Instant>| match (first, moment) {
        (Some(first), Some(moment)) => nanos(moment.duration_since(first)) as f64,
        _ => 0.0,
    };
    let started = until(burst.moments().filter_map(|moments| moments.unsuspended).max());
    let finished = until(burst.moments().filter_map(|moments| moments.finished).max());
    let count = jobs as u64;
    let starts = burst.spans(|moments| moments.created, |moments| moments.unsuspended);
    vec![
        Figure::spans("Job created → unsuspended", input.clone(), 1, &starts),
        Figure::single("all Jobs unsuspended after", input.clone(), count, Unit::Nanoseconds, started),
        Figure::single("all Jobs finished after", input, count, Unit::Nanoseconds, finished),
    ]
}

fn plan(count: usize, pace: Pace) -> Plan {
    Plan { title: "bench", count, pace, run_for: RUN_FOR, is_urgent: false, is_queued: true }
}

/// Jobs that nobody holds back.
fn unqueued(count: usize) -> Plan {
    Plan { is_queued: false, ..plan(count, Pace::AtOnce) }
}

fn finished(moments: &Moments) -> Option<Instant> {
    moments.finished
}
