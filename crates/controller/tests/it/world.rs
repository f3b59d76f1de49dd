//! The world around the workload controller: an API with a quota of one cpu, a Job controller, and a kubelet
//! that tests hold back as long as they like.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt, TryStreamExt};
use gangway_api::config::Configuration;
use gangway_api::kueue::{ClusterQueue, LocalQueue, ResourceFlavor, Workload};
use gangway_apiserver::{ApiServer, controllers};
use gangway_controller::workloads::{Counts, Options, RequestCounts, run};
use gangway_model::Clock;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::connection::TokioClock;

/// Longer than any wait of the controller.
const PATIENCE: Duration = Duration::from_secs(120);

/// An API with a quota of one cpu, and what watches over it.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    /// Whether the rules for Jobs are those before Kubernetes 1.36.
    is_older: bool,
    pub(crate) clock: Arc<dyn Clock>,
    counts: Arc<RequestCounts>,
    /// The configuration of the controller.
    pub(crate) config: Configuration,
    /// Whether pods may finish.
    pods_may_finish: watch::Sender<bool>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with_rules(false).await
    }

    /// The same with the rules for Jobs that held before Kubernetes 1.36.
    pub(crate) async fn before_1_36() -> Self {
        Self::with_rules(true).await
    }

    async fn with_rules(is_older: bool) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let server = ApiServer::builder().seed(1).clock(Arc::clone(&clock));
        let server = if is_older { server.before_1_36() } else { server }.build();
        let (counts, pods_may_finish) = (Arc::default(), watch::Sender::new(false));
        let config = Configuration::default();
        let world = Self { server, is_older, clock, counts, config, pods_may_finish };
        let client = world.server.client();
        let crds: Api<_> = Api::all(client.clone());
        for crd in gangway_api::crds() {
            crds.create(&PostParams::default(), &crd).await.expect("a CRD");
        }
        let flavor: Api<ResourceFlavor> = Api::all(client.clone());
        let spec = json!({"nodeLabels": {"pool": "default"}});
        create(&flavor, json!({"metadata": {"name": "default"}, "spec": spec})).await;
        let quota = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]});
        let group = json!({"coveredResources": ["cpu"], "flavors": [quota]});
        let spec = json!({"namespaceSelector": {}, "resourceGroups": [group]});
        create(&world.cluster_queues(), json!({"metadata": {"name": "cq"}, "spec": spec})).await;
        let queues: Api<LocalQueue> = Api::default_namespaced(client);
        create(&queues, json!({"metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}})).await;
        world
    }

    pub(crate) fn controller(&self, client: Client) -> impl Future<Output = ()> + use<> {
        let (counts, config) = (Arc::clone(&self.counts), self.config.clone());
        let options = Options { counts, config, ..Options::default() };
        run(client, Arc::clone(&self.clock), options).map(|ended| panic!("the controller ended: {ended:?}"))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts.snapshot()
    }

    pub(crate) fn requests(&self) -> &RequestCounts {
        &self.counts
    }

    /// The lines of a metric, in order, without the role of the replica.
    pub(crate) fn metric(&self, name: &str) -> Vec<String> {
        let text = self.counts.metrics().text();
        let is_meant = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
        let role = ",replica_role=\"standalone\"";
        let mut lines: Vec<String> =
            text.lines().filter(is_meant).map(|line| line.replace(role, "")).collect();
        lines.sort();
        lines
    }

    pub(crate) fn cluster_queues(&self) -> Api<ClusterQueue> {
        Api::all(self.server.client())
    }

    pub(crate) fn jobs(&self) -> Api<Job> {
        Api::default_namespaced(self.server.client())
    }

    pub(crate) fn workloads(&self) -> Api<Workload> {
        Api::default_namespaced(self.server.client())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.server.client())
    }

    /// Submits a Job with one pod of one cpu; returns it as the API took it.
    pub(crate) async fn submit(&self, name: &str) -> Job {
        self.submit_to("lq", name).await
    }

    /// The same to another queue.
    pub(crate) async fn submit_to(&self, queue: &str, name: &str) -> Job {
        self.submit_with(name, json!({"kueue.x-k8s.io/queue-name": queue})).await
    }

    /// The same with these labels.
    pub(crate) async fn submit_with(&self, name: &str, labels: Value) -> Job {
        let container = json!({"name": "main", "image": "host", "resources": {"requests": {"cpu": "1"}}});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let job = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"suspend": true, "template": template},
        });
        create(&self.jobs(), job).await
    }

    /// Changes the spec of the ClusterQueue.
    pub(crate) async fn change_queue(&self, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.cluster_queues().patch("cq", &PatchParams::default(), &patch).await.expect("a changed queue");
    }

    pub(crate) async fn set_stop_policy(&self, policy: &str) {
        self.change_queue(json!({"stopPolicy": policy})).await;
    }

    pub(crate) fn let_pods_finish(&self) {
        self.pods_may_finish.send_replace(true);
    }

    pub(crate) async fn a_pod_runs(&self) {
        until("a pod runs", self.pods(), |pods| pods.values().any(|pod| phase(pod) == "Running")).await;
    }

    /// Waits until so many Jobs are complete.
    pub(crate) async fn complete(&self, count: usize) {
        let is_complete = |job: &Job| {
            let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|list| list.iter().any(|c| c.type_ == "Complete" && c.status == "True"))
        };
        let all =
            |jobs: &BTreeMap<String, Job>| jobs.values().filter(|job| is_complete(job)).count() == count;
        until("every Job completes", self.jobs(), all).await;
    }

    /// Waits until so many Workloads say that they have finished.
    pub(crate) async fn finished(&self, count: usize) {
        let is_finished = |workload: &&Workload| condition(workload, "Finished").is_some();
        let all =
            |workloads: &BTreeMap<String, Workload>| workloads.values().filter(is_finished).count() == count;
        until("every Workload finishes", self.workloads(), all).await;
    }

    /// What a cluster brings: the Job controller, garbage collection, and kubelets.
    pub(crate) async fn cluster(&self) {
        let client = self.server.client();
        let jobs = match self.is_older {
            true => controllers::jobs::run_before_1_36(client.clone(), Arc::clone(&self.clock)).boxed(),
            false => controllers::jobs::run(client.clone(), Arc::clone(&self.clock)).boxed(),
        };
        let garbage = controllers::garbage::run(client);
        futures::join!(jobs, garbage, kubelet(self.pods(), self.pods_may_finish.subscribe()));
    }
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + Debug + serde::Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of its kind");
    api.create(&PostParams::default(), &object).await.expect("it is created")
}

/// Waits until something is true of the objects of a kind, by name.
pub(crate) async fn until<K>(what: &str, api: Api<K>, holds: impl Fn(&BTreeMap<String, K>) -> bool)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut stream = std::pin::pin!(watcher(api, watcher::Config::default()));
    let mut objects = BTreeMap::new();
    let mut listed = false;
    let wait = async {
        while !(listed && holds(&objects)) {
            match stream.try_next().await.expect("a watch").expect("no end") {
                watcher::Event::Init => objects.clear(),
                watcher::Event::InitDone => listed = true,
                watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                    objects.insert(object.name_any(), object);
                }
                watcher::Event::Delete(object) => {
                    objects.remove(&object.name_any());
                }
            }
        }
    };
    let reached = tokio::time::timeout(PATIENCE, wait).await.is_ok();
    assert!(reached, "not in time: {what}: {objects:#?}");
}

/// Pods run as soon as they are there, and finish as soon as they may.
async fn kubelet(pods: Api<Pod>, mut may_finish: watch::Receiver<bool>) {
    tokio::select! {
        biased;
        _ = may_finish.wait_for(|may| *may) => {}
        () = move_pods(&pods, &["Pending"], "Running") => {}
    }
    move_pods(&pods, &["Pending", "Running"], "Succeeded").await;
}

async fn move_pods(pods: &Api<Pod>, from: &[&str], to: &str) {
    let stream = watcher(pods.clone(), watcher::Config::default()).applied_objects();
    let mut stream = std::pin::pin!(stream);
    while let Some(Ok(pod)) = stream.next().await {
        if pod.metadata.deletion_timestamp.is_none() && from.contains(&phase(&pod)) {
            let moved = Patch::Merge(json!({"status": {"phase": to}}));
            let _gone_meanwhile = pods.patch_status(&pod.name_any(), &PatchParams::default(), &moved).await;
        }
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The reason of a condition that is true.
pub(crate) fn condition<'w>(workload: &'w Workload, kind: &str) -> Option<&'w str> {
    let conditions = &workload.status.as_ref()?.conditions;
    conditions.iter().find(|c| c.type_ == kind && c.status == "True").map(|c| c.reason.as_str())
}

/// The Workload of a Job.
pub(crate) fn workload_of<'w>(job: &str, workloads: &'w BTreeMap<String, Workload>) -> Option<&'w Workload> {
    workloads.values().find(|workload| workload.owner_references().iter().any(|owner| owner.name == job))
}

/// What was ever seen of the world, from its objects alone.
#[derive(Default)]
pub(crate) struct Seen {
    /// The pods that ever were.
    pub(crate) pods: BTreeSet<String>,
    /// Pods that have not finished.
    running: BTreeSet<String>,
    pub(crate) most_running: usize,
    /// How often each Workload went from no quota to quota.
    pub(crate) reservations: BTreeMap<String, usize>,
    holding: BTreeSet<String>,
    pub(crate) most_holding: usize,
}

impl Seen {
    pub(crate) async fn watch(&mut self, client: Client) {
        enum Item {
            Pod(Box<watcher::Event<Pod>>),
            Workload(Box<watcher::Event<Workload>>),
        }
        let pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default());
        let workloads = watcher(Api::<Workload>::all(client), watcher::Config::default());
        let pods = pods.map_ok(|event| Item::Pod(Box::new(event))).boxed();
        let workloads = workloads.map_ok(|event| Item::Workload(Box::new(event))).boxed();
        let mut all = futures::stream::select(pods, workloads);
        while let Some(Ok(item)) = all.next().await {
            match item {
                Item::Pod(event) => self.pod(*event),
                Item::Workload(event) => self.workload(*event),
            }
        }
    }

    fn pod(&mut self, event: watcher::Event<Pod>) {
        match event {
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                self.pods.insert(pod.name_any());
                if phase(&pod) == "Succeeded" {
                    self.running.remove(&pod.name_any());
                } else {
                    self.running.insert(pod.name_any());
                }
            }
            watcher::Event::Delete(pod) => {
                self.running.remove(&pod.name_any());
            }
            _ => {}
        }
        self.most_running = self.most_running.max(self.running.len());
    }

    fn workload(&mut self, event: watcher::Event<Workload>) {
        let (watcher::Event::Apply(workload) | watcher::Event::InitApply(workload)) = event else { return };
        let holds =
            condition(&workload, "QuotaReserved").is_some() && condition(&workload, "Finished").is_none();
        if !holds {
            self.holding.remove(&workload.name_any());
        } else if self.holding.insert(workload.name_any()) {
            *self.reservations.entry(workload.name_any()).or_default() += 1;
        }
        self.most_holding = self.most_holding.max(self.holding.len());
    }
}
