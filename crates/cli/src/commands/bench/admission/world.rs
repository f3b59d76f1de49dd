//! The engine with queues, and records of Workloads as if they had just been read from the API.

use std::sync::Arc;

use gangway_admission::{Decision, Engine, Event, Outcome};
use gangway_model::queues::{
    ClusterQueue, Flavor, FlavorQuotas, Fungibility, LocalQueue, Namespace, PreemptionPolicy,
    QueueingStrategy, Quota, ResourceGroup, StopPolicy,
};
use gangway_model::readiness::Timeouts;
use gangway_model::selector::LabelSelector;
use gangway_model::workload::{Admission, Assignment, PodSet, Reservation, State, Workload};
use gangway_model::{Amount, ObjectName, Requests, Timestamp, Uid};

/// All records live in this namespace.
const NAMESPACE: &str = "default";

/// When everything begins.
pub const START: Timestamp = Timestamp::from_seconds(1_767_225_600);

/// A gibibyte.
const GIB: i64 = 1 << 30;

/// The name of a queue; its LocalQueue has the same.
pub fn queue_name(queue: usize) -> String {
    format!("q{queue:05}")
}

/// The name of a flavor.
pub fn flavor_name(flavor: usize) -> String {
    format!("flavor{flavor}")
}

/// How queues are set up.
#[derive(Clone, Debug)]
pub struct Queues {
    pub count: usize,
    pub per_cohort: usize,
    pub flavors: usize,
    pub preemption: PreemptionPolicy,
    /// The cpus that each queue has of its own in each flavor, and as many GiB of memory.
    pub cpus: Vec<i64>,
}

impl Queues {
    /// An engine that knows these queues and nothing else.
    pub fn engine(&self) -> Engine {
        let mut engine = Engine::new();
        let labels = [("kubernetes.io/metadata.name".to_owned(), NAMESPACE.to_owned())].into_iter().collect();
        engine.apply(Event::Namespace(Namespace { name: NAMESPACE.into(), labels }), START);
        for flavor in 0..self.flavors {
            let name = flavor_name(flavor).into();
            let flavor = Flavor {
                name,
                node_labels: [].into(),
                node_taints: Vec::new(),
                tolerations: Vec::new(),
                topology: None,
            };
            engine.apply(Event::Flavor(flavor), START);
        }
        for queue in 0..self.count {
            engine.apply(Event::ClusterQueue(Box::new(self.cluster_queue(queue))), START);
            let local = LocalQueue {
                name: ObjectName::new(NAMESPACE, &queue_name(queue)),
                cluster_queue: queue_name(queue).into(),
                stop_policy: StopPolicy::None,
                deleting: false,
            };
            engine.apply(Event::LocalQueue(local), START);
        }
        engine
    }

    fn cluster_queue(&self, queue: usize) -> ClusterQueue {
        let quota = |amount: i64| Quota { nominal: Amount::new(amount), ..Quota::default() };
        let cpus = self.cpus[queue];
        let flavors = (0..self.flavors).map(|flavor| FlavorQuotas {
            flavor: flavor_name(flavor).into(),
            quotas: vec![quota(cpus * 1_000), quota(cpus * GIB)],
        });
        ClusterQueue {
            name: queue_name(queue).into(),
            cohort: Some(format!("cohort{:05}", queue / self.per_cohort).as_str().into()),
            strategy: QueueingStrategy::BestEffortFifo,
            resource_groups: vec![ResourceGroup {
                resources: vec!["cpu".into(), "memory".into()],
                flavors: flavors.collect(),
            }],
            fungibility: Fungibility::default(),
            preemption: self.preemption,
            namespace_selector: Some(LabelSelector::default()),
            stop_policy: StopPolicy::None,
            admission_checks: Vec::new(),
            fallback: None,
            invalid: None,
            not_acted_on: Vec::new(),
            not_supported: Vec::new(),
            timeouts: Timeouts::default(),
            deleting: false,
        }
    }
}

/// What a Workload asks for: some pods, each of some cpus and as many GiB of memory.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub pods: i32,
    pub cpus: i64,
}

impl Shape {
    /// 1 to 5 pods, each of 1, 2, … cpus.
    pub fn numbered(number: usize) -> Self {
        Self { pods: 1 + (number % 5) as i32, cpus: 1 + (number / 5) as i64 }
    }

    /// The cpus of all its pods.
    pub fn total(self) -> i64 {
        i64::from(self.pods) * self.cpus
    }

    fn requests(self, pods: i64) -> Requests {
        let pairs = [("cpu".into(), self.cpus * 1_000 * pods), ("memory".into(), self.cpus * GIB * pods)];
        pairs.into_iter().collect()
    }
}

/// A Workload's uid, in the form that API servers give.
pub fn uid(number: usize) -> Uid {
    format!("{number:08x}-6761-4e67-8e61-790000000000").into()
}

/// A Workload that waits.
pub fn pending(number: usize, queue: usize, shape: Shape, priority: i32) -> Workload {
    Workload {
        uid: uid(number),
        name: ObjectName::new(NAMESPACE, &format!("job-workload-{number:07}-a1b2c")),
        version: 1,
        generation: 1,
        created: Timestamp::from_nanos(START.as_nanos() + number as i64 * 1_000_000),
        queue: queue_name(queue).as_str().into(),
        priority,
        active: true,
        pod_sets: [PodSet {
            name: "main".into(),
            count: shape.pods,
            requests: shape.requests(1),
            constraints: Arc::default(),
        }]
        .into(),
        impediments: None,
        deleting: false,
        owner: None,
        timeouts: None,
        state: State::new(),
    }
}

/// A Workload that runs.
pub fn running(number: usize, queue: usize, shape: Shape, priority: i32, flavor: usize) -> Workload {
    let flavor = flavor_name(flavor);
    let admission = Admission {
        cluster_queue: queue_name(queue).into(),
        pod_sets: [Assignment {
            name: "main".into(),
            flavors: ["cpu", "memory"].map(|resource| (resource.into(), flavor.as_str().into())).into(),
            usage: shape.requests(i64::from(shape.pods)),
            count: shape.pods,
            reclaimed: 0,
        }]
        .into(),
    };
    let reservation = Reservation {
        admission: Arc::new(admission),
        reserved_at: START,
        admitted_at: Some(START),
        past_eviction: None,
        requeued: None,
        requeue_state: None,
        pods_ready: None,
        checks: None,
        history: None,
    };
    Workload { state: State::Holding(reservation), ..pending(number, queue, shape, priority) }
}

/// Tells the engine that all these writes have landed.
pub fn land(engine: &mut Engine, decisions: &[Decision], now: Timestamp) {
    for decision in decisions {
        let Some(write) = engine.pending_write(decision.id) else { continue };
        engine.apply(Event::Outcome(decision.id, Outcome::Landed(write.version + 1)), now);
    }
}
