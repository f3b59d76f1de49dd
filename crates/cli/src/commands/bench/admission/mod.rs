//! The engine alone, in one thread: from what is observed to what is decided.

mod runs;
mod world;

use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use self::runs::{Measured, Size, Victims};
use super::Form;
use super::figure::{BUILD, Figure, Unit};

/// Arguments of `gangway bench admission`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  cargo run --release -- bench admission --mode full --queues 100 --workloads 100000"
)]
pub struct AdmissionArgs {
    /// ClusterQueues, ten to a cohort.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queues: u32,
    /// Workloads that wait.
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    workloads: u32,
    /// Different requests among them.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    shapes: u32,
    /// What is measured.
    #[arg(long, value_enum, default_value_t = Mode::Fit)]
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
    /// Everything fits; also memory and a restart.
    Fit,
    /// Nothing fits until a running Workload ends.
    Full,
    /// A Workload takes back what others borrow: 100 queues of one cohort, 4 flavors.
    Preempt,
    /// The pods of 10,000 Workloads are not ready in time, all in the same second.
    Deadlines,
}

/// What was measured, for people and for programs.
pub struct Report {
    pub figures: Vec<Figure>,
    pub json: Value,
}

/// Queues in a cohort.
const PER_COHORT: usize = 10;

/// Pending Workloads on which memory is measured: enough that pages do not matter.
const FOR_MEMORY: usize = 400_000;

/// Records of a restart.
const FOR_REBUILD: usize = 100_000;

/// Measures the engine in this thread.
pub fn measure(args: &AdmissionArgs) -> Report {
    let size = Size {
        queues: args.queues as usize,
        per_cohort: PER_COHORT,
        workloads: args.workloads as usize,
        shapes: args.shapes as usize,
        at_least: Duration::from_secs_f64(args.seconds.clamp(0.0, 600.0)),
    };
    match args.mode {
        Mode::Fit => fit(size),
        Mode::Full => full(size),
        Mode::Preempt => preempt(size.at_least),
        Mode::Deadlines => deadlines(size),
    }
}

fn input(size: Size) -> String {
    let Size { queues, per_cohort, workloads, shapes, .. } = size;
    format!("{workloads} Workloads of {shapes} shapes in {queues} queues, {per_cohort} to a cohort, 1 flavor")
}

fn rates(nanos: &[i64], per_run: f64) -> Vec<f64> {
    nanos.iter().map(|nanos| per_run * 1e9 / (*nanos).max(1) as f64).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The same with ten times as many Workloads; one run of it is long enough.
fn tenfold(size: Size) -> Size {
    Size { workloads: size.workloads.saturating_mul(10), at_least: Duration::from_nanos(1), ..size }
}

fn fit(size: Size) -> Report {
    let memory = Size { queues: size.queues.min(100), workloads: FOR_MEMORY, ..size };
    let bytes = runs::bytes_per_pending(memory);
    let (first, later) = runs::fit(size);
    let (_, tenfold_later) = runs::fit(tenfold(size));
    let rebuilt = runs::rebuild(FOR_REBUILD, size.at_least);
    let per_run = |measured: &Measured| measured.decisions as f64 / measured.nanos.len().max(1) as f64;
    let wall = |measured: &Measured| rates(&measured.nanos, per_run(measured));
    let cpu = |measured: &Measured| rates(&measured.cpu_nanos, per_run(measured));
    let rebuild_input = format!("{FOR_REBUILD} records in 100 queues, from the first event to Synced");
    let json = json!({
        "build": BUILD, "mode": "fit", "queues": size.queues, "workloads": size.workloads, "shapes": size.shapes,
        "repetitions": later.nanos.len(),
        "admissionsPerSecond": median(wall(&later)),
        "admissionsPerCpuSecond": median(cpu(&later)),
        "admissionsPerSecondInNewEngine": median(wall(&first)),
        "admissionsPerCpuSecondOfTenTimesAsMany": median(cpu(&tenfold_later)),
        "bytesPerPendingWorkload": bytes,
        "cycles": later.work.cycles,
        "evaluations": later.work.evaluations,
        "admissions": later.decisions,
        "rebuildSeconds": median(seconds(&rebuilt.nanos)),
        "rebuildCpuSeconds": median(seconds(&rebuilt.cpu_nanos)),
    });
    let figures = vec![
        Figure::rates("admissions", input(size), later.decisions, wall(&later)),
        Figure::rates("admissions, processor time", input(size), later.work.evaluations, cpu(&later)),
        Figure::rates("admissions in a new engine", input(size), first.decisions, wall(&first)),
        Figure::rates(
            "ten times as many, processor time",
            input(tenfold(size)),
            tenfold_later.work.evaluations,
            cpu(&tenfold_later),
        ),
        Figure::single(
            "memory per pending Workload",
            input(memory),
            FOR_MEMORY as u64,
            Unit::FewBytes,
            bytes,
        ),
        Figure::spans("restart", rebuild_input.clone(), rebuilt.nanos.len(), &rebuilt.nanos),
        Figure::spans("restart, processor time", rebuild_input, rebuilt.nanos.len(), &rebuilt.cpu_nanos),
    ];
    Report { figures, json }
}

fn seconds(nanos: &[i64]) -> Vec<f64> {
    nanos.iter().map(|nanos| *nanos as f64 / 1e9).collect()
}

fn full(size: Size) -> Report {
    let measured = runs::full(size);
    let tenfold_measured = runs::full(tenfold(size));
    let input = |size| format!("{}; nothing fits until one of 20 per queue ends", input(size));
    let json = json!({
        "build": BUILD, "mode": "full", "queues": size.queues, "workloads": size.workloads, "shapes": size.shapes,
        "repetitions": measured.nanos.len(),
        "cycles": measured.work.cycles,
        "evaluations": measured.work.evaluations,
        "admissions": measured.decisions,
        "nanosPerFinish": spans_json(&measured.nanos),
        "cpuNanosPerFinish": spans_json(&measured.cpu_nanos),
        "cpuNanosPerFinishWithTenTimesAsMany": spans_json(&tenfold_measured.cpu_nanos),
    });
    let spans = |name, size, nanos: &Vec<i64>| Figure::spans(name, input(size), nanos.len(), nanos);
    let figures = vec![
        spans("end → decisions", size, &measured.nanos),
        spans("end → decisions, processor time", size, &measured.cpu_nanos),
        spans("ten times as many, processor time", tenfold(size), &tenfold_measured.cpu_nanos),
    ];
    Report { figures, json }
}

/// Running Workloads whose time is over in the same second.
const FOR_DEADLINES: usize = 10_000;

fn deadlines(size: Size) -> Report {
    let size = Size { queues: FOR_DEADLINES / runs::RUNNING_PER_QUEUE, workloads: 0, ..size };
    let measured = runs::deadlines(size);
    let runs = measured.nanos.len().max(1);
    let each = |nanos: &[i64]| -> Vec<i64> {
        let per_run = measured.decisions.max(1) as i64 / runs as i64;
        nanos.iter().map(|nanos| nanos / per_run.max(1)).collect()
    };
    let input = format!(
        "{FOR_DEADLINES} Workloads in {} queues whose start takes too long, all at once",
        size.queues
    );
    let json = json!({
        "build": BUILD, "mode": "deadlines", "queues": size.queues, "workloads": FOR_DEADLINES,
        "repetitions": runs,
        "evictions": measured.decisions,
        "cycles": measured.work.cycles,
        "nanosPerEviction": spans_json(&each(&measured.nanos)),
        "cpuNanosPerEviction": spans_json(&each(&measured.cpu_nanos)),
    });
    let spans = |name, nanos: &[i64]| {
        let count = measured.decisions;
        Figure { count, ..Figure::spans(name, input.clone(), runs, &each(nanos)) }
    };
    let figures = vec![
        spans("deadline → eviction, each", &measured.nanos),
        spans("deadline → eviction, each, processor time", &measured.cpu_nanos),
    ];
    Report { figures, json }
}

fn spans_json(nanos: &[i64]) -> Value {
    let mut sorted = nanos.to_vec();
    sorted.sort_unstable();
    let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0);
    json!({"p50": at(0.5), "p99": at(0.99)})
}

/// Queues and running Workloads per queue where preemption is measured, and whom it finds.
const PREEMPTIONS: [(&str, usize, usize, Victims); 4] = [
    ("one of many", 100, 12, Victims::One),
    ("one of ten times as many", 100, 120, Victims::One),
    ("nobody", 100, 12, Victims::Nobody),
    ("too few", 100, 12, Victims::TooFew),
];

fn preempt(at_least: Duration) -> Report {
    let mut figures = Vec::new();
    let mut results = serde_json::Map::new();
    for (name, queues, running, victims) in PREEMPTIONS {
        let measured: Measured = runs::preempt(queues, running, victims, at_least);
        let input = format!(
            "{} running in {queues} queues of one cohort, {} flavors",
            queues * running,
            runs::FLAVORS
        );
        figures.push(Figure::spans(name, input.clone(), measured.nanos.len(), &measured.nanos));
        figures.push(Figure::spans("  processor time", input, measured.nanos.len(), &measured.cpu_nanos));
        let result = json!({
            "repetitions": measured.nanos.len(),
            "cycles": measured.work.cycles,
            "evaluations": measured.work.evaluations,
            "preemptions": measured.work.preemptions,
            "nanos": spans_json(&measured.nanos),
            "cpuNanos": spans_json(&measured.cpu_nanos),
        });
        results.insert(name.to_owned(), result);
    }
    Report { figures, json: json!({"build": BUILD, "mode": "preempt", "victims": results}) }
}
