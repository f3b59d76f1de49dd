//! A queue of its own for one measurement, and the Jobs that go through it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use gangway_api::config::Configuration;
use gangway_api::kueue::{ClusterQueue, LocalQueue, ResourceFlavor, WorkloadPriorityClass};
use gangway_api::names::{PRIORITY_CLASS_LABEL, QUEUE_NAME_LABEL, SCHEDULER_NAME};
use gangway_node::fake::parse_nodes;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::timeline::{Goal, Moments, Timeline};
use crate::clock::SystemClock;
use crate::commands::api_failure;
use crate::embedded::{World, WorldOptions};
use crate::exit::Failure;

/// Names of everything that the benchmark makes on a cluster.
const NAME: &str = "gangway-bench";
/// How long a benchmark may stand still.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at whether all is gone.
const LOOK: Duration = Duration::from_millis(500);
/// Creates in flight.
const IN_FLIGHT: usize = 64;
/// The nodes: room for everything.
pub const NODES: &str = "count=10,cpu=100000,memory=100Ti,pods=100000";

/// A world in this process with room for everything.
pub async fn start_world() -> Result<World, Failure> {
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

/// Which Jobs are created.
pub struct Plan {
    /// What their names begin with.
    pub title: &'static str,
    pub count: usize,
    pub pace: Pace,
    /// How long their fake pods run.
    pub run_for: &'static str,
    /// Whether they are of the class that comes first.
    pub is_urgent: bool,
    /// Whether they go through the queue; otherwise nobody holds them back.
    pub is_queued: bool,
}

/// When Jobs are created.
#[derive(Clone, Copy)]
pub enum Pace {
    AtOnce,
    /// One after another, with a pause in between.
    Apart(Duration),
}

/// A queue of its own for one measurement.
pub struct Stage {
    client: Client,
    name: String,
}

impl Stage {
    /// A queue with so many cpus and this policy of preemption.
    pub async fn new(client: Client, name: &str, cpus: &str, preemption: Value) -> Result<Self, Failure> {
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
        stage
            .create(
                Api::<WorkloadPriorityClass>::all(stage.client.clone()),
                json!({"metadata": {"name": title}, "value": 1000}),
            )
            .await?;
        let queue = json!({
            "metadata": {"name": title},
            "spec": {
                "namespaceSelector": {},
                "preemption": preemption,
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

    /// Creates Jobs and watches until all of them have come as far as `until` says.
    pub async fn run(
        &self,
        plan: &Plan,
        until: fn(&Moments) -> Option<Instant>,
    ) -> Result<Timeline, Failure> {
        let api: Api<Job> = Api::namespaced(self.client.clone(), &self.name);
        let objects: Vec<(String, Job)> =
            (0..plan.count).map(|index| self.job(plan, index)).collect::<Result<_, _>>()?;
        let creating = create_jobs(&api, &objects, plan.pace);
        let goal = Goal { title: plan.title, count: plan.count, until };
        let watching = Timeline::watched(self.client.clone(), self.name.clone(), PATIENCE, goal);
        let (created, watched) = futures::join!(creating, watching);
        let created = created.map_err(|error| api_failure("create the Jobs of the benchmark", &error))?;
        let mut timeline = watched?;
        for (name, at) in created {
            timeline.created(name, at);
        }
        Ok(timeline)
    }

    fn job(&self, plan: &Plan, index: usize) -> Result<(String, Job), Failure> {
        let name = format!("{}-{index:06}", plan.title);
        let mut labels = if plan.is_queued { json!({QUEUE_NAME_LABEL: "main"}) } else { json!({}) };
        if plan.is_urgent {
            labels[PRIORITY_CLASS_LABEL] = json!(self.name);
        }
        let value = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "suspend": plan.is_queued,
                "template": {
                    "metadata": {"annotations": {"fake.gangway.dev/run-for": plan.run_for}},
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

    /// Removes what was made, as far as that goes: a benchmark that was measured is not spoilt by its remains.
    pub async fn remove(&self) {
        let background = DeleteParams::background();
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &self.name);
        let local_queues: Api<LocalQueue> = Api::namespaced(self.client.clone(), &self.name);
        let cluster_queues: Api<ClusterQueue> = Api::all(self.client.clone());
        let flavors: Api<ResourceFlavor> = Api::all(self.client.clone());
        let classes: Api<WorkloadPriorityClass> = Api::all(self.client.clone());
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let failures = [
            jobs.delete_collection(&background, &kube::api::ListParams::default()).await.err(),
            local_queues.delete("main", &background).await.err(),
            cluster_queues.delete(&self.name, &background).await.err(),
            flavors.delete(&self.name, &background).await.err(),
            classes.delete(&self.name, &background).await.err(),
            namespaces.delete(&self.name, &background).await.err(),
        ];
        for error in failures.into_iter().flatten() {
            tracing::warn!(%error, "something of the benchmark was left behind");
        }
        // What is measured next must not pay for what goes away.
        let began = Instant::now();
        while began.elapsed() < PATIENCE && !matches!(namespaces.get_opt(&self.name).await, Ok(None)) {
            tokio::time::sleep(LOOK).await;
        }
    }
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
