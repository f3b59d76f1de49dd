//! All the rooms in this process: an API server, its controllers, admission, placement and nodes on one thread.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use gangway_api::config::Configuration;
use gangway_api::interceptors::{Surroundings, queue_job, refuse_job};
use gangway_api::names::{DEFAULT_NAME, SCHEDULER_NAME};
use gangway_api::{kueue, records};
use gangway_apiserver::{ApiServer, Interceptor, ObjectRequest, ReadView, Rejection, controllers};
use gangway_controller::workloads::RequestCounts;
use gangway_controller::{pods, workloads};
use gangway_model::Clock;
use gangway_node::fake::{FakeNode, run_fake_nodes};
use gangway_node::{NodeOptions, run_node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client};
use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::connect::causes;
use crate::exit::Failure;

/// The scheduler that pods ask for when they ask for none.
const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";
/// How long pods may take to go when the world ends, beyond what nodes allow them.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// A node that this machine plays.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// The Node's name.
    pub name: String,
    /// The Node's labels, besides the usual ones.
    pub labels: BTreeMap<String, String>,
    /// What it offers where that differs from this machine.
    pub capacity: BTreeMap<String, String>,
}

/// What the world is made of.
pub struct WorldOptions {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The configuration of admission.
    pub config: Configuration,
    /// Nodes that run processes of this machine.
    pub machines: Vec<Machine>,
    /// Nodes that pretend.
    pub fake_nodes: Vec<FakeNode>,
    /// Whether pods of any image run as processes of this machine.
    pub any_image: bool,
    /// Where containers without a working directory start; otherwise in one of their own.
    pub working_directory: Option<PathBuf>,
}

/// Everything that a cluster would bring, in this process. Stops when it is dropped; [`World::stop`] also
/// waits until the last process is gone.
pub struct World {
    /// The API server, to be served or asked for its counts.
    pub api: ApiServer,
    /// A client of it.
    pub client: Client,
    /// Requests of the admission controller, by lane.
    pub counts: Arc<RequestCounts>,
    options: WorldOptions,
    /// The same configuration for what happens to Jobs on their way in.
    config: Arc<RwLock<Configuration>>,
    tasks: JoinSet<()>,
    admission: Option<AbortHandle>,
    nodes: JoinSet<()>,
    shutdown: watch::Sender<bool>,
    report: mpsc::UnboundedSender<String>,
    ended: mpsc::UnboundedReceiver<String>,
    /// Logs and files of pods. Removed with the world.
    state: TempDir,
}

impl World {
    /// Starts everything.
    pub async fn start(options: WorldOptions) -> Result<Self, Failure> {
        let mut world = Self::prepare(options).await?;
        world.start_parts()?;
        Ok(world)
    }

    /// An API that knows all kinds, and nobody who acts on what is in it.
    pub async fn prepare(options: WorldOptions) -> Result<Self, Failure> {
        let state = tempfile::Builder::new()
            .prefix("gangway-")
            .tempdir()
            .map_err(|error| Failure::bad_input(format!("no directory for the state of pods: {error}")))?;
        let config = Arc::new(RwLock::new(options.config.clone()));
        let api = ApiServer::builder()
            .clock(options.clock.clone())
            .interceptor(Arc::new(QueuedJobs { config: Arc::clone(&config) }))
            .log_directory(state.path().join("logs"))
            .build();
        let client = api.client_named("gangway-cli");
        apply_crds(&client).await?;
        let (report, ended) = mpsc::unbounded_channel();
        Ok(Self {
            api,
            client,
            counts: Arc::default(),
            options,
            config,
            tasks: JoinSet::new(),
            admission: None,
            nodes: JoinSet::new(),
            shutdown: watch::Sender::new(false),
            report,
            ended,
            state,
        })
    }

    /// Starts controllers, scheduler and nodes.
    pub fn start_parts(&mut self) -> Result<(), Failure> {
        self.start_controllers();
        self.start_nodes()
    }

    /// Returns when a part has ended that never should, with a sentence about it.
    pub async fn broken(&mut self) -> Failure {
        match self.ended.recv().await {
            Some(sentence) => Failure::broken(sentence),
            None => std::future::pending().await,
        }
    }

    /// The configuration of admission.
    pub fn config(&self) -> &Configuration {
        &self.options.config
    }

    /// The directory of this world's files.
    pub fn directory(&self) -> &std::path::Path {
        self.state.path()
    }

    /// Ends every process and everything else.
    pub async fn stop(mut self) {
        self.shutdown.send_replace(true);
        let all = async { while self.nodes.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_PATIENCE, all).await.is_err() {
            tracing::warn!("some pods did not end in time; their shims kill them now");
        }
        self.tasks.abort_all();
    }

    fn start_controllers(&mut self) {
        let clock = &self.options.clock;
        let jobs = controllers::jobs::run(self.api.client_named("job-controller"), clock.clone());
        self.tasks.spawn(async move {
            jobs.await;
        });
        let garbage = controllers::garbage::run(self.api.client_named("garbage-collector"));
        self.tasks.spawn(async move {
            garbage.await;
        });
        self.start_admission(self.options.clock.clone());
        let placement = pods::run(
            self.api.client_named("gangway-scheduler"),
            self.options.clock.clone(),
            pods::Options::named(&[DEFAULT_SCHEDULER_NAME, SCHEDULER_NAME]).without_families(),
        );
        self.tasks.spawn(reporting("the pod scheduler", placement, self.report.clone()));
    }

    /// Drops the admission controller where it stands, with every write that it waits for.
    pub fn kill_admission(&mut self) {
        if let Some(admission) = self.admission.take() {
            admission.abort();
        }
    }

    /// Has the admission controller use another configuration when it is started next.
    pub fn configure(&mut self, config: Configuration) {
        self.config.write().unwrap_or_else(PoisonError::into_inner).clone_from(&config);
        self.options.config = config;
    }

    /// Starts the admission controller, which knows only what is stored, by its own clock.
    pub fn start_admission(&mut self, clock: Arc<dyn Clock>) {
        // There is no API server to be spared: its work is ours.
        let config = Configuration {
            requests_per_second: f64::MAX,
            request_burst: u32::MAX,
            ..self.options.config.clone()
        };
        let admission = workloads::run(
            self.api.client_named("gangway-controller"),
            clock,
            workloads::Options { config, counts: self.counts.clone(), ..workloads::Options::default() },
        );
        let admission = reporting("the admission controller", admission, self.report.clone());
        self.admission = Some(self.tasks.spawn(admission));
    }

    fn start_nodes(&mut self) -> Result<(), Failure> {
        let options = &self.options;
        let program = std::env::current_exe().map_err(|error| {
            Failure::bad_input(format!("cannot find the gangway program itself: {error}"))
        })?;
        for machine in &options.machines {
            let mut node = NodeOptions::new(&machine.name, self.state.path().to_owned(), program.clone());
            node.labels.clone_from(&machine.labels);
            node.capacity.clone_from(&machine.capacity);
            node.any_image = options.any_image;
            node.working_directory.clone_from(&options.working_directory);
            let client = self.api.client_named("gangway-node");
            let agent = run_node(client, options.clock.clone(), node, requested(self.shutdown.subscribe()));
            self.nodes.spawn(reporting_errors("the node agent", agent, self.report.clone()));
        }
        if !options.fake_nodes.is_empty() {
            let client = self.api.client_named("gangway-node");
            let stop = requested(self.shutdown.subscribe());
            let fakes = run_fake_nodes(client, options.clock.clone(), options.fake_nodes.clone(), stop);
            self.nodes.spawn(reporting_errors("the fake nodes", fakes, self.report.clone()));
        }
        Ok(())
    }
}

async fn requested(mut shutdown: watch::Receiver<bool>) {
    // An error means that the sender is gone, and with it the world.
    let _ = shutdown.wait_for(|asked| *asked).await;
}

/// Runs a part that must never end, and says so when it does.
async fn reporting<T, E: std::error::Error>(
    part: &'static str,
    work: impl Future<Output = Result<T, E>>,
    report: mpsc::UnboundedSender<String>,
) {
    let sentence = match work.await {
        Ok(_) => format!("{part} ended by itself"),
        Err(error) => format!("{part} failed: {}", causes(&error)),
    };
    let _ = report.send(sentence);
}

/// Runs a part that may end well.
async fn reporting_errors<T, E: std::error::Error>(
    part: &'static str,
    work: impl Future<Output = Result<T, E>>,
    report: mpsc::UnboundedSender<String>,
) {
    if let Err(error) = work.await {
        let _ = report.send(format!("{part} failed: {}", causes(&error)));
    }
}

/// Defines our kinds in an API that does not know them.
pub async fn apply_crds(client: &Client) -> Result<(), Failure> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in gangway_api::crds() {
        api.create(&PostParams::default(), &crd).await.map_err(|error| {
            let name = crd.metadata.name.as_deref().unwrap_or_default();
            Failure::broken(format!("the definition of {name} was refused: {}", causes(&error)))
        })?;
    }
    Ok(())
}

/// Suspends queued Jobs when they are created, applies the namespace's `default` LocalQueue and refuses what cannot be, as
/// admission policies do on a cluster.
struct QueuedJobs {
    config: Arc<RwLock<Configuration>>,
}

impl QueuedJobs {
    /// What holds for a Job of a namespace; none for objects of other kinds.
    fn surroundings(&self, view: &dyn ReadView, request: &ObjectRequest<'_>) -> Option<Surroundings> {
        if (request.group, request.kind) != ("batch", "Job") {
            return None;
        }
        // Who panicked while writing a configuration has left a whole one.
        let config = self.config.read().unwrap_or_else(PoisonError::into_inner);
        let namespace = view.get("", "namespaces", "", request.namespace);
        let labels = namespace.and_then(|object| serde_json::from_value(object).ok());
        let labels = labels.map(|namespace| records::namespace(&namespace).labels).unwrap_or_default();
        Some(Surroundings {
            default_queue_exists: view.exists(kueue::GROUP, "localqueues", request.namespace, DEFAULT_NAME),
            namespace_is_managed: config.managed_jobs_namespace_selector.matches(&labels),
            manages_unnamed: config.manage_jobs_without_queue_name,
        })
    }
}

impl Interceptor for QueuedJobs {
    fn before_create(
        &self,
        view: &dyn ReadView,
        request: &ObjectRequest<'_>,
        object: &mut serde_json::Value,
    ) -> Result<(), Rejection> {
        let Some(surroundings) = self.surroundings(view, request) else { return Ok(()) };
        queue_job(object, surroundings);
        rejection(refuse_job(None, object, surroundings.namespace_is_managed))
    }

    fn before_update(
        &self,
        view: &dyn ReadView,
        request: &ObjectRequest<'_>,
        old: &serde_json::Value,
        new: &serde_json::Value,
    ) -> Result<(), Rejection> {
        let Some(surroundings) = self.surroundings(view, request) else { return Ok(()) };
        rejection(refuse_job(Some(old), new, surroundings.namespace_is_managed))
    }
}

fn rejection(message: Option<&str>) -> Result<(), Rejection> {
    message.map_or(Ok(()), |message| Err(Rejection { message: message.to_owned() }))
}
