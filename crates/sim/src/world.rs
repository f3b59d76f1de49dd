//! The whole stack on one thread in virtual time.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::FutureExt;
use gangway_api::kueue::{
    self, AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass,
};
use gangway_apiserver::{ApiServer, controllers};
use gangway_controller::workloads::Snapshot;
use gangway_controller::{pods, workloads};
use gangway_model::Clock;
use gangway_model::readiness::WaitForPodsReady;
use gangway_node::fake::{FakeNode, run_fake_nodes};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::checker::Checker;
use crate::clock::VirtualClock;
use crate::controller::{Controller, config};
use crate::fallbacks::CHECKS;
use crate::faults::{Chance, Connection, Faults};
use crate::objects;
use crate::scenario::{CARD, CARDS, COHORTS, Deed, JobPlan, QUEUES, Queue, Scenario};
use crate::witness::{CONTROLLERS, Listener, Witness};

/// Cpus of a fake node: more than all quotas together, so that quota alone decides.
const NODE_CPUS: &str = "1000";

fn node_name(flavor: &str) -> String {
    format!("node-{flavor}")
}

/// All machines of a flavor.
fn fake_node(flavor: &str) -> FakeNode {
    FakeNode {
        name: node_name(flavor),
        labels: [("pool".to_owned(), flavor.to_owned())].into(),
        capacity: [("cpu", NODE_CPUS), (CARD, NODE_CPUS), ("pods", "10000")]
            .map(|(resource, amount)| (resource.to_owned(), amount.to_owned()))
            .into(),
        ..FakeNode::default()
    }
}

/// A cluster that is only played.
pub struct World {
    /// Sees all that happens.
    pub witness: Arc<Witness>,
    /// The time that it is, for all but the controller.
    pub clock: Arc<VirtualClock>,
    api: ApiServer,
    user: Client,
    controller_clock: Arc<VirtualClock>,
    parts: JoinSet<()>,
    plans: BTreeMap<String, JobPlan>,
    queues: BTreeMap<&'static str, Queue>,
    /// Whoever answers checks agrees to everything.
    agrees: watch::Sender<bool>,
    readiness: Option<WaitForPodsReady>,
}

impl World {
    /// The API with the scenario's queues, and everybody who acts on it.
    pub async fn start(scenario: &Scenario, listener: Option<Listener>) -> Self {
        let began = Instant::now();
        let clock = Arc::new(VirtualClock::since(began));
        let api = ApiServer::builder().seed(scenario.seed).clock(clock.clone()).build();
        let chance = Chance::seeded(scenario.seed ^ 0x5eed, Faults::default());
        let witness = Witness::begin(api.clone(), clock.clone(), chance, listener);
        witness.expect(scenario.readiness.clone(), scenario.clock_error_seconds());
        let user = Connection::spared_client(&api, "user", &witness);
        let queues = scenario.queues.iter().map(|queue| (queue.name, queue.clone())).collect();
        let mut world = Self {
            witness,
            api,
            user,
            controller_clock: Arc::new(VirtualClock::since(began)),
            clock,
            parts: JoinSet::new(),
            plans: BTreeMap::new(),
            queues,
            agrees: watch::Sender::new(false),
            readiness: scenario.readiness.clone(),
        };
        world.define(scenario).await;
        world.witness.set_faults(scenario.faults);
        world.start_parts(scenario);
        world
    }

    async fn define(&self, scenario: &Scenario) {
        let crds: Api<gangway_api::CustomResourceDefinition> = Api::all(self.user.clone());
        for crd in gangway_api::crds() {
            self.expect(crds.create(&PostParams::default(), &crd).await);
        }
        for name in scenario.flavors() {
            self.create(&Api::<ResourceFlavor>::all(self.user.clone()), objects::flavor(name)).await;
        }
        for name in CARDS.iter().filter(|_| scenario.scarcity.is_some()) {
            self.create(&Api::<ResourceFlavor>::all(self.user.clone()), objects::card(name)).await;
        }
        for priority in 0..3 {
            let api: Api<WorkloadPriorityClass> = Api::all(self.user.clone());
            self.create(&api, objects::priority_class(priority)).await;
        }
        for name in COHORTS {
            let parent = (name != "root").then_some("root");
            self.create(&Api::<Cohort>::all(self.user.clone()), objects::cohort(name, parent, 0)).await;
        }
        for name in CHECKS.iter().filter(|_| scenario.scarcity.is_some()) {
            let api: Api<AdmissionCheck> = Api::all(self.user.clone());
            self.create(&api, objects::admission_check(name)).await;
        }
        for queue in &scenario.queues {
            self.create(&Api::<ClusterQueue>::all(self.user.clone()), objects::cluster_queue(queue)).await;
        }
        for name in QUEUES {
            let api: Api<LocalQueue> = Api::default_namespaced(self.user.clone());
            self.create(&api, objects::local_queue(name)).await;
        }
    }

    fn start_parts(&mut self, scenario: &Scenario) {
        let client = |who| Connection::late_client(&self.api, who, &self.witness);
        let clock: Arc<dyn Clock> = self.clock.clone();
        self.parts.spawn(controllers::jobs::run(client("job-controller"), clock.clone()).map(drop));
        self.parts.spawn(controllers::garbage::run(client("garbage-collector")).map(drop));
        let nodes = scenario.flavors().iter().map(|flavor| fake_node(flavor)).collect();
        let nodes = run_fake_nodes(client("node"), clock.clone(), nodes, std::future::pending());
        self.parts.spawn(nodes.map(drop));
        if scenario.scarcity.is_some() {
            let checker = Checker {
                client: client("checker"),
                clock: self.clock.clone(),
                witness: self.witness.clone(),
                agrees: self.agrees.subscribe(),
                seed: scenario.seed,
            };
            self.parts.spawn(checker.run());
        }
        let scheduler = Connection::client(&self.api, "gangway-scheduler", &self.witness);
        let options = pods::Options::named(&["default-scheduler"]).without_families();
        self.parts.spawn(pods::run(scheduler, clock, options).map(drop));
        let controllers = if scenario.is_elected { CONTROLLERS.len() } else { 1 };
        for number in 0..controllers {
            let controller = Controller {
                number,
                is_elected: scenario.is_elected,
                planted: scenario.planted,
                readiness: scenario.readiness.clone(),
                api: self.api.clone(),
                clock: self.controller_clock.clone(),
                witness: self.witness.clone(),
            };
            self.parts.spawn(controller.run());
        }
    }

    /// Somebody does something. What the API refuses is not done, as in life.
    pub async fn perform(&mut self, deed: &Deed) {
        self.witness.tell(&format!("{deed:?}"));
        match deed {
            Deed::Submit(plan) => {
                self.plans.insert(plan.name.clone(), plan.clone());
                self.submit(plan).await;
            }
            Deed::Delete(name) => self.delete(name).await,
            Deed::Recreate(name) => {
                self.delete(name).await;
                if let Some(plan) = self.plans.get(name).cloned() {
                    self.submit(&plan).await;
                }
            }
            Deed::Suspend(name) => self.patch_job(name, json!({"spec": {"suspend": true}})).await,
            Deed::Unsuspend(name) => self.patch_job(name, json!({"spec": {"suspend": false}})).await,
            Deed::Move(name, queue) => self.move_job(name, queue).await,
            Deed::SetActive(name, active) => self.set_active(name, *active).await,
            Deed::CrashAfter(writes) => self.witness.crash_after(*writes),
            Deed::StepClock(seconds) => self.controller_clock.set_wrong_by(*seconds),
            Deed::Freeze(seconds) => self.witness.freeze_leader(*seconds),
            Deed::CutOff(seconds) => self.witness.cut_leader_off(*seconds),
            Deed::SetStock(flavor, is_there) => self.set_stock(flavor, *is_there).await,
            redefinition => self.redefine(redefinition).await,
        }
    }

    async fn redefine(&mut self, deed: &Deed) {
        let queues: Api<ClusterQueue> = Api::all(self.user.clone());
        match deed {
            Deed::SetQuota(queue, flavor, quota) => {
                let Some(known) = self.queues.get_mut(queue) else { return };
                known.quotas[*flavor] = *quota;
                let groups = objects::groups_of_queue(&known.quotas, &known.fallbacks);
                self.patch(&queues, queue, json!({"spec": {"resourceGroups": groups}})).await;
            }
            Deed::SetFallbacks(queue, fallbacks) => {
                let Some(known) = self.queues.get_mut(queue) else { return };
                known.fallbacks = fallbacks.clone();
                let spec = objects::fallbacks(&known.quotas, fallbacks);
                self.patch(&queues, queue, json!({"spec": spec})).await;
            }
            Deed::SetCohort(queue, cohort) => {
                self.patch(&queues, queue, json!({"spec": {"cohortName": cohort}})).await;
            }
            Deed::SetStopPolicy(queue, policy) => {
                self.patch(&queues, queue, json!({"spec": {"stopPolicy": policy}})).await;
            }
            Deed::SetCohortQuota(cohort, cpus) => {
                let parent = (*cohort != "root").then_some("root");
                let spec = objects::cohort(cohort, parent, *cpus)["spec"].clone();
                let groups = spec.get("resourceGroups").cloned().unwrap_or(Value::Null);
                let api: Api<Cohort> = Api::all(self.user.clone());
                self.patch(&api, cohort, json!({"spec": {"resourceGroups": groups}})).await;
            }
            Deed::TouchFlavor(flavor) => {
                let api: Api<ResourceFlavor> = Api::all(self.user.clone());
                let touched = json!({"metadata": {"annotations": {"touched": self.clock.now().as_nanos().to_string()}}});
                self.patch(&api, flavor, touched).await;
            }
            other => unreachable!("{other:?} is not about a definition"),
        }
    }

    /// A node whose machines are gone takes no more pods; those that run there go on.
    async fn set_stock(&self, flavor: &str, is_there: bool) {
        let nodes: Api<Node> = Api::all(self.user.clone());
        self.patch(&nodes, &node_name(flavor), json!({"spec": {"unschedulable": !is_there}})).await;
    }

    /// Everything that was missing comes back, and checks agree to everything.
    pub async fn end_scarcity(&self, scenario: &Scenario) {
        for flavor in scenario.flavors() {
            self.set_stock(flavor, true).await;
        }
        self.agrees.send_replace(true);
    }

    /// The cluster as a controller that started now would see it.
    pub async fn snapshot(&self) -> Result<Snapshot, workloads::Error> {
        Snapshot::read(self.user.clone(), self.clock.clone(), &config(self.readiness.clone())).await
    }

    fn jobs(&self) -> Api<Job> {
        Api::default_namespaced(self.user.clone())
    }

    async fn submit(&self, plan: &JobPlan) {
        self.create(&self.jobs(), objects::job(plan)).await;
    }

    async fn delete(&self, name: &str) {
        self.done(self.jobs().delete(name, &DeleteParams::background()).await);
    }

    async fn patch_job(&self, name: &str, patch: Value) {
        self.patch(&self.jobs(), name, patch).await;
    }

    /// Only a Job that is suspended may change its queue.
    async fn move_job(&self, name: &str, queue: &str) {
        let Ok(Some(job)) = self.jobs().get_opt(name).await else { return };
        if job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true) {
            let labels = json!({"kueue.x-k8s.io/queue-name": queue});
            let metadata = json!({"resourceVersion": job.resource_version(), "labels": labels});
            self.patch_job(name, json!({"metadata": metadata})).await;
        }
    }

    async fn set_active(&self, job: &str, active: bool) {
        let api: Api<kueue::Workload> = Api::default_namespaced(self.user.clone());
        let Ok(all) = api.list(&ListParams::default()).await else { return };
        let is_of_job =
            |workload: &&kueue::Workload| workload.owner_references().iter().any(|owner| owner.name == job);
        if let Some(workload) = all.items.iter().find(is_of_job) {
            self.patch(&api, &workload.name_any(), json!({"spec": {"active": active}})).await;
        }
    }

    async fn create<K>(&self, api: &Api<K>, object: Value)
    where
        K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    {
        match serde_json::from_value(object) {
            Ok(object) => self.done(api.create(&PostParams::default(), &object).await),
            Err(error) => self.witness.tell(&format!("not an object: {error}")),
        }
    }

    async fn patch<K>(&self, api: &Api<K>, name: &str, patch: Value)
    where
        K: Resource + Clone + Debug + DeserializeOwned,
    {
        self.done(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await);
    }

    fn done<T>(&self, result: Result<T, kube::Error>) {
        if let Err(error) = result {
            self.witness.tell(&format!("refused: {error}"));
        }
    }

    /// What the scenario cannot do without.
    fn expect<T>(&self, result: Result<T, kube::Error>) {
        if let Err(error) = result {
            panic!("a simulated API refuses its own definitions: {error}");
        }
    }
}
