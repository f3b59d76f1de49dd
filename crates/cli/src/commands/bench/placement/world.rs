//! Nodes and pods for the measurements, made before anything is measured.

use std::sync::Arc;

use gangway_model::constraints::{Constraints, SpreadConstraint, Toleration};
use gangway_model::scheduling::SchedulerSettings;
use gangway_model::selector::{LabelSelector, Labels, Requirement};
use gangway_model::{ObjectName, Requests, ResourceName, Timestamp, Uid};
use gangway_placement::{Demands, Event, NodeRecord, Options, PodLabels, PodRecord, Scheduler};

/// When everything begins.
pub const START: Timestamp = Timestamp::from_seconds(1_800_000_000);

const ZONE: &str = "topology.kubernetes.io/zone";
const ZONES: usize = 10;
const GIB: i64 = 1 << 30;

fn requests(cpu_millis: i64, memory_bytes: i64) -> Requests {
    [("cpu", cpu_millis), ("memory", memory_bytes)]
        .into_iter()
        .map(|(name, amount)| (ResourceName::from(name), amount))
        .collect()
}

/// A node of 32 CPUs and 128 GiB for 110 pods.
pub fn node(index: usize) -> NodeRecord {
    let name = format!("node-{index:05}");
    let mut allocatable = requests(32_000, 128 * GIB);
    allocatable.set(ResourceName::from("pods"), 110);
    let labels: Labels = [
        (ZONE.to_owned(), format!("zone-{}", index % ZONES)),
        ("kubernetes.io/hostname".to_owned(), name.clone()),
        ("kubernetes.io/arch".to_owned(), "amd64".to_owned()),
    ]
    .into();
    NodeRecord { name: name.into(), labels, taints: Vec::new(), unschedulable: false, allocatable }
}

/// The uid of a pod, as API servers give them.
pub fn uid(index: usize) -> Uid {
    Uid::from(format!("{index:08x}-0000-4000-8000-000000000000"))
}

/// What the pods of one template ask for. All of them tolerate what every pod does on a cluster.
pub fn demands(shape: usize, is_spread: bool) -> Arc<Demands> {
    let (cpu, memory) = (100 + 10 * (shape as i64 % 20), (256 + 16 * (shape as i64 / 20)) << 20);
    let tolerated = |key: &str| Toleration {
        key: Some(format!("node.kubernetes.io/{key}")),
        exists: true,
        value: String::new(),
        effect: Some(gangway_model::constraints::TaintEffect::NoExecute),
        seconds: Some(300),
    };
    let spread = SpreadConstraint {
        max_skew: 1,
        topology_key: ZONE.to_owned(),
        is_hard: true,
        selector: LabelSelector { requirements: vec![Requirement::equals("app", &format!("app-{shape}"))] },
        match_label_keys: Vec::new(),
        min_domains: None,
        node_affinity_honored: true,
        node_taints_honored: false,
    };
    Arc::new(Demands {
        requests: requests(cpu, memory),
        scored_cpu_millis: cpu,
        scored_memory_bytes: memory,
        constraints: Constraints {
            tolerations: vec![tolerated("not-ready"), tolerated("unreachable")],
            ..Constraints::default()
        },
        spread: is_spread.then_some(spread).into_iter().collect(),
        ..Demands::default()
    })
}

/// A pod of a Job, with the labels that such pods have.
pub fn pod(index: usize, shape: usize, demands: Arc<Demands>) -> PodRecord {
    let job = format!("job-{shape:04}");
    let labels: Labels = [
        ("app".to_owned(), format!("app-{shape}")),
        ("batch.kubernetes.io/controller-uid".to_owned(), uid(shape).to_string()),
        ("batch.kubernetes.io/job-completion-index".to_owned(), index.to_string()),
        ("batch.kubernetes.io/job-name".to_owned(), job.clone()),
    ]
    .into();
    PodRecord {
        uid: uid(index),
        name: ObjectName::new("team", &format!("{job}-{index}-x7k2p")),
        labels: PodLabels::from(&labels),
        scheduler_name: "gangway".into(),
        priority: 0,
        never_preempts: false,
        owner: None,
        created_at: START,
        started_at: None,
        demands,
        gates: Box::default(),
        unsupported: Box::default(),
        node: None,
        nominated_node: None,
        deleting: false,
        preempted: false,
        finished: false,
    }
}

/// A scheduler that knows so many empty nodes and may decide.
pub fn scheduler(nodes: usize) -> Scheduler {
    let mut scheduler = Scheduler::new(Options { settings: SchedulerSettings::default(), seed: 1 });
    for index in 0..nodes {
        scheduler.apply(Event::NodeApplied(node(index)), START);
    }
    scheduler.apply(Event::Synced, START);
    scheduler
}
