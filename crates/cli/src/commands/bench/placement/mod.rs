//! The pod scheduler alone, in one thread: from what is observed to what is decided.

mod runs;
mod world;

use std::time::Duration;

use clap::{Args, ValueEnum};

use self::runs::Measured;
use super::Form;
use super::figure::{Figure, Unit};

/// Arguments of `gangway bench placement`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  cargo run --release -- bench placement --mode spread --pods 10000")]
pub struct PlacementArgs {
    /// Nodes, in ten zones.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// Pods that are placed.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pods: u32,
    /// Different kinds among them.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    shapes: u32,
    /// What is measured.
    #[arg(long, value_enum, default_value_t = Mode::Plain)]
    mode: Mode,
    /// Repeats until this many seconds were measured.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Form>,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Pods that ask for CPU and memory.
    Plain,
    /// Pods that are also spread over zones, strictly.
    Spread,
    /// Pods that back off, popped one by one because nobody else is to be tried.
    Backoff,
    /// Pods that fit nowhere, and what happens that helps some or none of them.
    Events,
    /// What a queued pod occupies.
    Memory,
}

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub nodes: usize,
    pub pods: usize,
    pub shapes: usize,
    /// Runs are repeated until this much time was measured.
    pub at_least: Duration,
}

/// Measures the scheduler in this thread.
pub fn measure(args: &PlacementArgs) -> Vec<Figure> {
    let size = Size {
        nodes: args.nodes as usize,
        pods: args.pods as usize,
        shapes: args.shapes as usize,
        at_least: Duration::from_secs_f64(args.seconds.clamp(0.0, 600.0)),
    };
    match args.mode {
        Mode::Plain => placed("pods placed", size, false),
        Mode::Spread => placed("pods placed, spread over zones", size, true),
        Mode::Backoff => backoff(size),
        Mode::Events => events(size),
        Mode::Memory => memory(size),
    }
}

fn placed(name: &'static str, size: Size, is_spread: bool) -> Vec<Figure> {
    let Size { nodes, pods, shapes, .. } = size;
    let input = format!("{pods} pods of {shapes} shapes on {nodes} nodes, default plugins and percentage");
    let measured = runs::place(size, is_spread);
    let rates =
        |nanos: &[i64]| nanos.iter().map(|nanos| pods as f64 * 1e9 / (*nanos).max(1) as f64).collect();
    let Measured { nanos, cpu_nanos, count, work } = measured;
    let per_pod = |number: u64| number as f64 / count.max(1) as f64;
    vec![
        Figure::rates(name, input.clone(), count, rates(&nanos)),
        Figure::rates("per processor second", input.clone(), count, rates(&cpu_nanos)),
        Figure::single(
            "nodes looked at per pod",
            input.clone(),
            work.nodes_visited,
            Unit::PerJob,
            per_pod(work.nodes_visited),
        ),
        Figure::single(
            "nodes judged anew per pod",
            input,
            work.nodes_judged,
            Unit::PerJob,
            per_pod(work.nodes_judged),
        ),
    ]
}

fn backoff(size: Size) -> Vec<Figure> {
    let input = format!("{} pods back off, popped one by one, each put back into backoff", size.pods);
    let nanos = runs::pop_from_backoff(size);
    vec![Figure::spans("pop from backoff", input, 1, &nanos)]
}

fn events(size: Size) -> Vec<Figure> {
    let mut figures = Vec::new();
    for run in runs::events(size) {
        let input = format!("{} pods of {} shapes that fit nowhere; {}", size.pods, size.shapes, run.what);
        let events = run.nanos.len().max(1) as f64;
        figures.push(Figure::spans(run.name, input.clone(), 1, &run.nanos));
        for (name, count) in [("groups asked per event", run.hints), ("pods visited per event", run.visits)] {
            figures.push(Figure::single(name, input.clone(), count, Unit::PerJob, count as f64 / events));
        }
    }
    figures
}

fn memory(size: Size) -> Vec<Figure> {
    let input = format!(
        "{} pods of {} shapes that wait, each with the labels of a Job's pod",
        size.pods, size.shapes
    );
    let bytes = runs::bytes_per_pod(size);
    vec![Figure::single("per queued pod", input, size.pods as u64, Unit::FewBytes, bytes)]
}
