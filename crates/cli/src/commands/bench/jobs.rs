//! Jobs through the whole stack: in this process, or on a real API server with the parts as processes.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::Form;
use super::figure::{Figure, Unit};
use super::processes::start_parts;
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

    let stage = Stage::new(client.clone(), "burst", PLENTY, json!({})).await?;
    let cpu_before = controller.cpu_seconds();
    let burst = stage.run(&plan(args.burst, Pace::AtOnce), finished).await;
    let cpu = controller.cpu_seconds() - cpu_before;
    stage.remove().await;
    figures.extend(burst_figures(&burst?, args.burst, place));
    let jobs = args.burst.max(1);
    let input = format!("{jobs} Jobs at once, `gangway controller`");
    figures.push(Figure::single(
        "controller CPU per Job",
        input.clone(),
        jobs as u64,
        Unit::Nanoseconds,
        cpu * 1e9 / jobs as f64,
    ));
    figures.push(Figure::single(
        "controller peak memory",
        input,
        jobs as u64,
        Unit::Bytes,
        controller.peak_memory_bytes(),
    ));
    Ok(figures)
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
    vec![
        Figure::single("all Jobs unsuspended after", input.clone(), count, Unit::Nanoseconds, started),
        Figure::single("all Jobs finished after", input, count, Unit::Nanoseconds, finished),
    ]
}

fn plan(count: usize, pace: Pace) -> Plan {
    Plan { title: "bench", count, pace, run_for: RUN_FOR, is_urgent: false }
}

fn finished(moments: &Moments) -> Option<Instant> {
    moments.finished
}
