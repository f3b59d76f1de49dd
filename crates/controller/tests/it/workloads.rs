//! Workloads through the API: nothing is lost and nothing is admitted twice, whatever happens on the way.
//!
//! Time is paused: waits cost nothing, and what never happens is noticed after a minute of virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt, TryStreamExt};
use gangway_api::kueue::{ClusterQueue, LocalQueue, ResourceFlavor, Workload};
use gangway_apiserver::{ApiServer, controllers};
use gangway_controller::workloads::{Counts, Explained, Options, RequestCounts, Snapshot, run};
use gangway_model::Clock;
use http::{Method, Request};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::wait::await_condition;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::connection::{Connection, Fault, TokioClock};

/// Longer than any wait of the controller.
const PATIENCE: Duration = Duration::from_secs(120);
const JOBS: usize = 3;

/// An API with a quota of one cpu, and what watches over it.
struct World {
    server: ApiServer,
    clock: Arc<dyn Clock>,
    counts: Arc<RequestCounts>,
}

impl World {
    async fn new() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::new());
        let server = ApiServer::builder().seed(1).clock(Arc::clone(&clock)).build();
        let world = Self { server, clock, counts: Arc::default() };
        let client = world.server.client();
        let crds: Api<_> = Api::all(client.clone());
        for crd in gangway_api::crds() {
            crds.create(&PostParams::default(), &crd).await.expect("a CRD");
        }
        let flavor: Api<ResourceFlavor> = Api::all(client.clone());
        create(&flavor, json!({"metadata": {"name": "default"}, "spec": {}})).await;
        let queues: Api<ClusterQueue> = Api::all(client.clone());
        let quota = json!({"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]});
        let group = json!({"coveredResources": ["cpu"], "flavors": [quota]});
        let spec = json!({"namespaceSelector": {}, "resourceGroups": [group]});
        create(&queues, json!({"metadata": {"name": "cq"}, "spec": spec})).await;
        let queues: Api<LocalQueue> = Api::default_namespaced(client);
        create(&queues, json!({"metadata": {"name": "lq"}, "spec": {"clusterQueue": "cq"}})).await;
        world
    }

    fn controller(&self, client: Client) -> impl Future<Output = ()> + use<> {
        let options = Options { counts: Arc::clone(&self.counts), ..Options::default() };
        run(client, Arc::clone(&self.clock), options).map(|ended| panic!("the controller ended: {ended:?}"))
    }

    fn counts(&self) -> Counts {
        self.counts.snapshot()
    }

    fn jobs(&self) -> Api<Job> {
        Api::default_namespaced(self.server.client())
    }

    fn workloads(&self) -> Api<Workload> {
        Api::default_namespaced(self.server.client())
    }

    async fn submit(&self, name: &str) {
        let container = json!({"name": "main", "image": "host", "resources": {"requests": {"cpu": "1"}}});
        let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
        let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        let job = json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"suspend": true, "template": template},
        });
        create(&self.jobs(), job).await;
    }

    async fn complete(&self, name: &str) {
        let is_complete = |job: Option<&Job>| {
            let conditions = job.and_then(|job| job.status.as_ref()?.conditions.as_ref());
            conditions.is_some_and(|list| list.iter().any(|c| c.type_ == "Complete" && c.status == "True"))
        };
        let reached = tokio::time::timeout(PATIENCE, await_condition(self.jobs(), name, is_complete)).await;
        reached.unwrap_or_else(|_| panic!("Job {name} does not complete")).expect("a watch");
    }

    /// Waits until the Workload of every Job says that it has finished.
    async fn all_finished(&self) {
        let stream = watcher(self.workloads(), watcher::Config::default()).applied_objects();
        let mut stream = std::pin::pin!(stream);
        let mut finished = BTreeSet::new();
        let wait = async {
            while finished.len() < JOBS {
                let workload = stream.try_next().await.expect("a watch").expect("no end");
                if condition(&workload, "Finished").is_some() {
                    finished.insert(workload.name_any());
                }
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("every Workload finishes");
    }

    /// What a cluster brings: the Job controller, garbage collection, and kubelets whose pods succeed at once.
    async fn cluster(&self) {
        let client = self.server.client();
        let jobs = controllers::jobs::run(client.clone(), Arc::clone(&self.clock));
        let garbage = controllers::garbage::run(client.clone());
        futures::join!(jobs, garbage, kubelet(Api::default_namespaced(client)));
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of its kind");
    api.create(&PostParams::default(), &object).await.expect("it is created");
}

async fn kubelet(pods: Api<Pod>) {
    let stream = watcher(pods.clone(), watcher::Config::default()).applied_objects();
    let mut stream = std::pin::pin!(stream);
    while let Some(Ok(pod)) = stream.next().await {
        if pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending") {
            let done = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            let _gone_meanwhile = pods.patch_status(&pod.name_any(), &PatchParams::default(), &done).await;
        }
    }
}

fn condition<'w>(workload: &'w Workload, kind: &str) -> Option<&'w str> {
    let conditions = &workload.status.as_ref()?.conditions;
    conditions.iter().find(|c| c.type_ == kind && c.status == "True").map(|c| c.reason.as_str())
}

/// What was ever seen of the world, from its objects alone.
#[derive(Default)]
struct Seen {
    /// The pods that ever were.
    pods: BTreeSet<String>,
    /// Pods that have not finished.
    running: BTreeSet<String>,
    most_running: usize,
    /// How often each Workload went from no quota to quota.
    reservations: BTreeMap<String, usize>,
    holding: BTreeSet<String>,
    most_holding: usize,
}

impl Seen {
    async fn watch(&mut self, client: Client) {
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
                let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
                self.pods.insert(pod.name_any());
                if phase == "Succeeded" {
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

fn is_write(request: &Request<Body>) -> bool {
    *request.method() != Method::GET && !request.uri().path().contains("/events")
}

fn names() -> impl Iterator<Item = String> {
    (0..JOBS).map(|i| format!("j{i}"))
}

/// Three Jobs through a quota of one, with a controller that ends at the fault and is started again.
fn story(
    fault_of: impl Fn(usize) -> Fault + Send + Sync + 'static,
) -> LocalBoxFuture<'static, (Counts, usize)> {
    tell(fault_of).boxed_local()
}

async fn tell(fault_of: impl Fn(usize) -> Fault + Send + Sync + 'static) -> (Counts, usize) {
    let world = World::new().await;
    for name in names() {
        world.submit(&name).await;
    }
    let mut seen = Seen::default();
    let first = Connection::new(&world.server, is_write, fault_of);
    let life = async {
        tokio::select! {
            () = world.controller(first.client()) => {}
            () = first.cut.notified() => {}
            () = world.all_finished() => return,
        }
        tokio::select! {
            () = world.controller(world.server.client()) => {}
            () = world.all_finished() => {}
        }
    };
    let ends = async {
        for name in names() {
            world.complete(&name).await;
        }
    };
    tokio::select! {
        () = world.cluster() => panic!("the cluster ended"),
        () = seen.watch(world.server.client()) => panic!("the watch ended"),
        _ = futures::future::join(life, ends) => {}
    }
    assert_eq!(seen.pods.len(), JOBS, "every Job ran once: {:?}", seen.pods);
    assert!(seen.most_running <= 1, "the quota was exceeded by pods");
    assert!(seen.most_holding <= 1, "the quota was exceeded by reservations");
    assert_eq!(seen.reservations.len(), JOBS, "{:?}", seen.reservations);
    assert!(seen.reservations.values().all(|times| *times == 1), "admitted twice: {:?}", seen.reservations);
    let workloads = world.workloads().list(&ListParams::default()).await.expect("a list");
    assert_eq!(workloads.items.len(), JOBS);
    (world.counts(), first.counted())
}

#[tokio::test(start_paused = true)]
async fn a_jobs_life_takes_four_decisions() {
    let (counts, _) = story(|_| Fault::None).await;
    assert_eq!(counts.decisions, 4 * JOBS as u64, "{counts:?}");
    assert!(counts.diagnostics <= 3 * JOBS as u64 + 2, "{counts:?}");
    assert_eq!(
        (counts.conflicts, counts.rejected, counts.retried, counts.repairs),
        (0, 0, 0, 0),
        "{counts:?}"
    );
}

/// The controller is dropped before, and in another life right after, its nth write reaches the API.
#[tokio::test(start_paused = true)]
async fn a_controller_dropped_at_any_write_loses_nothing_and_admits_nothing_twice() {
    let (_, writes) = story(|_| Fault::None).await;
    assert!(writes >= 4 * JOBS, "{writes} writes");
    for nth in 0..writes {
        for fault in [Fault::CutOff, Fault::CutOffAfter] {
            println!("write {nth}: {fault:?}"); // shown only if it fails
            story(move |n| if n >= nth { fault } else { Fault::None }).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_lost_answers_are_found_out() {
    let (counts, _) = story(|n| match n % 5 {
        1 => Fault::Lost,
        3 => Fault::AnswerLost,
        _ => Fault::None,
    })
    .await;
    assert!(counts.retried > 0, "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_controller_asks_for_nothing() {
    let world = World::new().await;
    for name in names() {
        world.submit(&name).await;
    }
    let requests = |server: &ApiServer| {
        let counts = server.request_counts();
        counts.iter().filter(|(key, _)| key.user_agent == "controller").map(|(_, n)| n).sum::<u64>()
    };
    let idle = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = requests(&world.server);
        assert!(before > 0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(requests(&world.server), before);
    };
    tokio::select! {
        () = world.controller(world.server.client_named("controller")) => {}
        () = idle => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_explains_a_job_without_writing() {
    let world = World::new().await;
    for name in names() {
        world.submit(&name).await;
    }
    let waits = |workload: &Workload| {
        let conditions =
            workload.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "QuotaReserved" && c.reason == "WaitingForQuota")
    };
    let two_wait = async {
        let stream = watcher(world.workloads(), watcher::Config::default()).applied_objects();
        let mut stream = std::pin::pin!(stream);
        let mut waiting = BTreeSet::new();
        while waiting.len() < 2 {
            let workload = stream.try_next().await.expect("a watch").expect("no end");
            if waits(&workload) {
                waiting.insert(workload.name_any());
            }
        }
    };
    tokio::select! {
        () = world.controller(world.server.client()) => {}
        waited = tokio::time::timeout(PATIENCE, two_wait) => waited.expect("two Jobs wait"),
    }
    let config = gangway_api::config::Configuration::default();
    let client = world.server.client_named("snapshot");
    let snapshot = Snapshot::read(client, Arc::clone(&world.clock), &config).await.expect("a snapshot");
    let mut situations: Vec<&str> = Vec::new();
    for name in names() {
        let Explained::Workload(explanation) = snapshot.explain_job("default", &name) else {
            panic!("{name}")
        };
        situations.push(explanation.situation.as_str());
        if explanation.situation.as_str() == "WaitingForQuota" {
            assert!(explanation.message.contains("1 needed, 0 free of 1"), "{}", explanation.message);
        }
    }
    situations.sort_unstable();
    assert_eq!(situations, ["Admitted", "WaitingForQuota", "WaitingForQuota"]);
    assert!(matches!(snapshot.explain_job("default", "none"), Explained::NoSuchJob));
    let writes = world.server.request_counts();
    let of_snapshot = writes.keys().filter(|key| key.user_agent == "snapshot");
    assert!(of_snapshot.into_iter().all(|key| key.verb == "list" || key.verb == "get"));
}
