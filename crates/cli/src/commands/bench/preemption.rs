//! Jobs that take the place of others: how soon they start, and what that costs.

use std::time::{Duration, Instant};

use clap::Args;
use kube::Client;
use serde_json::json;

use super::Form;
use super::figure::{Figure, Unit};
use super::processes::start_parts;
use super::stage::{Pace, Plan, Stage, start_world};
use super::timeline::{Moments, Timeline};
use crate::connect::Connection;
use crate::exit::Failure;

/// Arguments of `gangway bench preemption`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cargo run --release -- bench preemption                           everything in this process
  cargo run --release -- bench preemption --kubeconfig admin.conf   on a real API server that knows our kinds")]
pub struct PreemptionArgs {
    /// Jobs that run, each of which has to leave for one of a higher priority.
    #[arg(long, default_value_t = 200)]
    victims: usize,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    pub(super) output: Option<Form>,
    #[command(flatten)]
    connection: Connection,
}

/// Between preemptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the victims have run at least. A Job shows times in seconds: that one which was started a moment ago is
/// suspended again is believed only later.
const RUN_BEFORE: Duration = Duration::from_secs(2);

/// Measures preemptors that come one by one, each of which needs the room of one victim.
pub async fn measure(args: &PreemptionArgs) -> Result<Vec<Figure>, Failure> {
    if args.connection.kubeconfig.is_some() || args.connection.context.is_some() {
        let client = args.connection.client("bench").await?;
        let _parts = start_parts(&args.connection)?;
        let stage = stage(client, args.victims).await?;
        let timeline = play(&stage, args.victims, async || {}).await;
        stage.remove().await;
        return Ok(vec![latency(&timeline?, args.victims, "on the API server of the kubeconfig")]);
    }
    let world = start_world().await?;
    let stage = stage(world.client.clone(), args.victims).await?;
    let mut before = world.counts.snapshot();
    let timeline = play(&stage, args.victims, async || before = world.counts.snapshot()).await?;
    let after = world.counts.snapshot();
    let mut figures = vec![latency(&timeline, args.victims, "in this process")];
    let requests = after.decisions - before.decisions;
    figures.push(Figure::single(
        "decision requests per preemption",
        input(args.victims, "in this process"),
        requests,
        Unit::PerJob,
        requests as f64 / args.victims.max(1) as f64,
    ));
    world.stop().await;
    Ok(figures)
}

async fn stage(client: Client, victims: usize) -> Result<Stage, Failure> {
    let policy = json!({"withinClusterQueue": "LowerPriority"});
    Stage::new(client, "preemption", &victims.to_string(), policy).await
}

/// Starts the victims, says when they all run, and lets the preemptors come.
async fn play(stage: &Stage, count: usize, victims_run: impl AsyncFnOnce()) -> Result<Timeline, Failure> {
    let victims = Plan {
        title: "victim",
        count,
        pace: Pace::AtOnce,
        run_for: "forever",
        is_urgent: false,
        is_queued: true,
    };
    stage.run(&victims, |moments| moments.running).await?;
    tokio::time::sleep(RUN_BEFORE).await;
    victims_run().await;
    let preemptors = Plan { title: "preemptor", pace: Pace::Apart(PAUSE), is_urgent: true, ..victims };
    stage.run(&preemptors, unsuspended).await
}

fn unsuspended(moments: &Moments) -> Option<Instant> {
    moments.unsuspended
}

fn latency(timeline: &Timeline, count: usize, place: &str) -> Figure {
    let spans = timeline.spans(|moments| moments.created, unsuspended);
    Figure::spans("preemptor created → started", input(count, place), 1, &spans)
}

fn input(count: usize, place: &str) -> String {
    format!("{count} preemptors, one every {PAUSE:?}, one victim each, whose fake pod ends at once, {place}")
}
