//! Jobs through the whole stack: in this process, or on a real API server with the parts as processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use gangway_api::config::Configuration;
use gangway_api::kueue::{ClusterQueue, LocalQueue, ResourceFlavor};
use gangway_api::names::{QUEUE_NAME_LABEL, SCHEDULER_NAME};
use gangway_node::fake::parse_nodes;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::Form;
use super::figure::{Figure, Unit};
use super::processes::Part;
use super::timeline::{Timeline, nanos};
use crate::clock::SystemClock;
use crate::commands::api_failure;
use crate::connect::Connection;
use crate::embedded::{World, WorldOptions};
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

/// Names of everything that the benchmark makes on a cluster.
const NAME: &str = "gangway-bench";
/// How long a benchmark may stand still.
const PATIENCE: Duration = Duration::from_secs(60);
/// A quota of cpus that holds back nobody.
const PLENTY: &str = "1000000";
/// How long the fake pods run.
const RUN_FOR: &str = "10ms";
/// Between Jobs that are created one by one.
const PAUSE: Duration = Duration::from_millis(200);
/// Creates in flight.
const IN_FLIGHT: usize = 64;
/// The nodes: room for everything.
const NODES: &str = "count=10,cpu=100000,memory=100Ti,pods=100000";

/// Measures turns, then a burst, each on a fresh world or queue.
pub async fn measure(args: &JobsArgs) -> Result<Vec<Figure>, Failure> {
    if args.connection.kubeconfig.is_some() || args.connection.context.is_some() {
        return on_cluster(args).await;
    }
    let mut figures = Vec::new();
    let began = Instant::now();
    let world = start_world().await?;
    let stage = Stage::new(world.client.clone(), "turns", "1").await?;
    let turns = stage.run(args.turns, Pace::AtOnce).await?;
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
    let stage = Stage::new(world.client.clone(), "singles", PLENTY).await?;
    let singles = stage.run(args.turns, Pace::Apart(PAUSE)).await?;
    figures.extend(single_figures(&singles, args.turns, "in this process"));
    world.stop().await;

    let world = start_world().await?;
    let stage = Stage::new(world.client.clone(), "burst", PLENTY).await?;
    let burst = stage.run(args.burst, Pace::AtOnce).await?;
    figures.extend(burst_figures(&burst, args.burst, "in this process"));
    world.stop().await;
    Ok(figures)
}

async fn start_world() -> Result<World, Failure> {
    let fake_nodes = parse_nodes(NODES)
        .map_err(|error| Failure::broken(format!("the nodes of the benchmark: {error}")))?;
    World::start(WorldOptions {
        clock: Arc::new(SystemClock),
        config: Configuration::default(),
        machines: Vec::new(),
        fake_nodes,
        any_image: false,
        working_directory: None,
    })
    .await
}

async fn on_cluster(args: &JobsArgs) -> Result<Vec<Figure>, Failure> {
    let client = args.connection.client("bench").await?;
    let controller = Part::start(&["controller"], &args.connection)?;
    let _scheduler = Part::start(&["scheduler"], &args.connection)?;
    let _nodes = Part::start(&["node", "--fake", NODES], &args.connection)?;
    let mut figures = Vec::new();
    let place = "on the API server of the kubeconfig";

    let stage = Stage::new(client.clone(), "turns", "1").await?;
    let turns = stage.run(args.turns, Pace::AtOnce).await;
    stage.remove().await;
    figures.extend(turn_figures(&turns?, args.turns, place));

    let stage = Stage::new(client.clone(), "singles", PLENTY).await?;
    let singles = stage.run(args.turns, Pace::Apart(PAUSE)).await;
    stage.remove().await;
    figures.extend(single_figures(&singles?, args.turns, place));

    let stage = Stage::new(client.clone(), "burst", PLENTY).await?;
    let cpu_before = controller.cpu_seconds();
    let burst = stage.run(args.burst, Pace::AtOnce).await;
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

fn finished(timeline: &Timeline, jobs: usize) -> bool {
    timeline.moments().filter(|moments| moments.finished.is_some()).count() >= jobs
}

/// A queue of its own for one measurement.
struct Stage {
    client: Client,
    name: String,
}

impl Stage {
    async fn new(client: Client, name: &str, cpus: &str) -> Result<Self, Failure> {
        let name = format!("{NAME}-{name}");
        let stage = Self { client, name };
        let title = &stage.name;
        stage
            .create(Api::<Namespace>::all(stage.client.clone()), json!({"metadata": {"name": title}}))
            .await?;
        stage
            .create(
                Api::<ResourceFlavor>::all(stage.client.clone()),
                json!({"metadata": {"name": title}, "spec": {}}),
            )
            .await?;
        let queue = json!({
            "metadata": {"name": title},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{
                    "coveredResources": ["cpu"],
                    "flavors": [{"name": title, "resources": [{"name": "cpu", "nominalQuota": cpus}]}],
                }],
            },
        });
        stage.create(Api::<ClusterQueue>::all(stage.client.clone()), queue).await?;
        let local_queues: Api<LocalQueue> = Api::namespaced(stage.client.clone(), title);
        stage
            .create(local_queues, json!({"metadata": {"name": "main"}, "spec": {"clusterQueue": title}}))
            .await?;
        Ok(stage)
    }

    async fn create<K>(&self, api: Api<K>, value: serde_json::Value) -> Result<(), Failure>
    where
        K: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
    {
        let object: K = serde_json::from_value(value)
            .map_err(|error| Failure::broken(format!("the benchmark's object: {error}")))?;
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(error) => Err(api_failure("create the queue of the benchmark", &error)),
        }
    }

    /// Creates Jobs and watches until all have finished.
    async fn run(&self, jobs: usize, pace: Pace) -> Result<Timeline, Failure> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), &self.name);
        let objects: Vec<(String, Job)> = (0..jobs).map(job).collect::<Result<_, _>>()?;
        let creating = create_jobs(&api, &objects, pace);
        let watching = Timeline::watched(self.client.clone(), self.name.clone(), PATIENCE, move |seen| {
            finished(seen, jobs)
        });
        let (created, watched) = futures::join!(creating, watching);
        let created = created.map_err(|error| api_failure("create the Jobs of the benchmark", &error))?;
        let mut timeline = watched?;
        for (name, at) in created {
            timeline.created(name, at);
        }
        Ok(timeline)
    }

    /// Removes what was made, as far as that goes: a benchmark that was measured is not spoilt by its remains.
    async fn remove(&self) {
        let background = DeleteParams::background();
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.name);
        let local_queues: Api<LocalQueue> = Api::namespaced(self.client.clone(), &self.name);
        let cluster_queues: Api<ClusterQueue> = Api::all(self.client.clone());
        let flavors: Api<ResourceFlavor> = Api::all(self.client.clone());
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let failures = [
            jobs.delete_collection(&background, &kube::api::ListParams::default()).await.err(),
            local_queues.delete("main", &background).await.err(),
            cluster_queues.delete(&self.name, &background).await.err(),
            flavors.delete(&self.name, &background).await.err(),
            namespaces.delete(&self.name, &background).await.err(),
        ];
        for error in failures.into_iter().flatten() {
            tracing::warn!(%error, "something of the benchmark was left behind");
        }
    }
}

/// When Jobs are created.
#[derive(Clone, Copy)]
enum Pace {
    AtOnce,
    /// One after another, with a pause in between.
    Apart(Duration),
}

/// Creates the Jobs. Returns when the creation of each was asked for.
async fn create_jobs<'a>(
    api: &Api<Job>,
    jobs: &'a [(String, Job)],
    pace: Pace,
) -> Result<Vec<(&'a str, Instant)>, kube::Error> {
    let options = PostParams::default();
    let create = async |(name, job): &'a (String, Job)| {
        if let Pace::Apart(pause) = pace {
            tokio::time::sleep(pause).await;
        }
        let asked = Instant::now();
        api.create(&options, job).await?;
        Ok((name.as_str(), asked))
    };
    let in_flight = if matches!(pace, Pace::AtOnce) { IN_FLIGHT } else { 1 };
    stream::iter(jobs).map(create).buffered(in_flight).try_collect().await
}

fn job(index: usize) -> Result<(String, Job), Failure> {
    let name = format!("bench-{index:06}");
    let value = json!({
        "metadata": {"name": name, "labels": {QUEUE_NAME_LABEL: "main"}},
        "spec": {
            "suspend": true,
            "template": {
                "metadata": {"annotations": {"fake.gangway.dev/run-for": RUN_FOR}},
                "spec": {
                    "schedulerName": SCHEDULER_NAME,
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main", "image": "host", "command": ["true"],
                        "resources": {"requests": {"cpu": "1"}},
                    }],
                },
            },
        },
    });
    let job = serde_json::from_value(value)
        .map_err(|error| Failure::broken(format!("the benchmark's Job: {error}")))?;
    Ok((name, job))
}
