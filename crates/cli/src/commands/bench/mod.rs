//! `gangway bench`: measures Gangway on this machine and says how.

mod admission;
mod api;
mod cluster;
mod figure;
mod jobs;
mod placement;
mod preemption;
mod processes;
mod stage;
mod stopwatch;
mod timeline;

use clap::{Subcommand, ValueEnum};

use self::figure::{Figure, as_json, table};
use super::print;
use crate::exit::{Exit, Outcome};
use crate::render::palette::Palette;

/// Subcommands of `gangway bench`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// The engine alone: decisions per second, what one end costs among many that wait, preemption.
    Admission(admission::AdmissionArgs),
    /// The embedded API: creates per second, and how soon a watcher sees them.
    Api(api::ApiArgs),
    /// The pod scheduler on a real API server: pods bound per second, processor time and memory, beside kube-scheduler.
    Cluster(cluster::ClusterArgs),
    /// Jobs through the whole stack: how soon they start, and what that costs.
    Jobs(jobs::JobsArgs),
    /// The pod scheduler alone: pods placed per second, what an event costs among many that wait, popping from backoff, memory.
    Placement(placement::PlacementArgs),
    /// Jobs that take the place of others: how soon they start.
    Preemption(preemption::PreemptionArgs),
}

/// The form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Json,
}

/// Measures.
pub async fn run(command: BenchCommand) -> Outcome {
    if cfg!(debug_assertions) {
        eprintln!(
            "gangway bench: this is a debug build; use `cargo run --release -- bench …` for figures that count"
        );
    }
    let (figures, form) = match command {
        BenchCommand::Admission(args) => {
            let report = admission::measure(&args);
            if args.output == Some(Form::Json) {
                print(&format!("{:#}\n", report.json))?;
                return Ok(Exit::Success);
            }
            (report.figures, args.output)
        }
        BenchCommand::Api(args) => (Box::pin(api::measure(&args)).await?, args.output),
        BenchCommand::Cluster(args) => (Box::pin(cluster::measure(&args)).await?, args.output),
        BenchCommand::Jobs(args) => (Box::pin(jobs::measure(&args)).await?, args.output),
        BenchCommand::Placement(args) => (placement::measure(&args), args.output),
        BenchCommand::Preemption(args) => (Box::pin(preemption::measure(&args)).await?, args.output),
    };
    show(&figures, form)
}

fn show(figures: &[Figure], form: Option<Form>) -> Outcome {
    match form {
        Some(Form::Json) => print(&format!("{:#}\n", as_json(figures)))?,
        None => {
            print(&format!("build: {}\n", figure::BUILD))?;
            for line in table(figures).lines(Palette::of_stdout(), None) {
                print(&format!("{line}\n"))?;
            }
        }
    }
    Ok(Exit::Success)
}
