//! Short ways to write nodes, pods and a scheduler.

use gangway_model::constraints::Constraints;
use gangway_model::{ObjectName, Requests, ResourceName, Timestamp};
use gangway_placement::{
    Decision, DecisionId, Event, NodeRecord, Options, Outcome, PodRecord, Scheduler, WaitReason,
};

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

pub fn requests(amounts: &[(&str, i64)]) -> Requests {
    amounts.iter().map(|(name, amount)| (ResourceName::from(*name), *amount)).collect()
}

pub fn node(name: &str, cpu: i64) -> NodeRecord {
    NodeRecord {
        name: name.into(),
        labels: Default::default(),
        taints: Vec::new(),
        unschedulable: false,
        allocatable: requests(&[("cpu", cpu), ("memory", 1 << 40), ("pods", 110)]),
    }
}

pub fn pod(uid: &str, cpu: i64) -> PodRecord {
    PodRecord {
        uid: uid.into(),
        name: ObjectName::new("default", uid),
        scheduler_name: "gangway".to_owned(),
        priority: 0,
        created_at: at(0),
        requests: requests(&[("cpu", cpu)]),
        constraints: Constraints::default(),
        gates: Vec::new(),
        unsupported: Vec::new(),
        node: None,
        deleting: false,
        finished: false,
    }
}

pub fn bound(pod: &PodRecord, node: &str) -> PodRecord {
    PodRecord { node: Some(node.into()), ..pod.clone() }
}

/// A scheduler that has seen these nodes and pods and may decide.
pub fn synced(nodes: Vec<NodeRecord>, pods: Vec<PodRecord>) -> Scheduler {
    let mut scheduler = empty();
    for node in nodes {
        scheduler.apply(Event::NodeApplied(node), at(0));
    }
    for pod in pods {
        scheduler.apply(Event::PodApplied(pod), at(0));
    }
    scheduler.apply(Event::Synced, at(0));
    scheduler
}

pub fn empty() -> Scheduler {
    Scheduler::new(Options { scheduler_names: vec!["gangway".to_owned()], seed: 7 })
}

/// Everything that is to be done now, as `(pod, node)` and `(pod, message)`.
#[derive(Debug, Default, PartialEq)]
pub struct Done {
    pub binds: Vec<(String, String)>,
    pub reports: Vec<(String, String)>,
    pub ids: Vec<DecisionId>,
}

impl Done {
    pub fn bound_pods(&self) -> Vec<&str> {
        self.binds.iter().map(|(pod, _)| pod.as_str()).collect()
    }
}

pub fn run(scheduler: &mut Scheduler, now: Timestamp) -> Done {
    let mut done = Done::default();
    loop {
        let decisions = scheduler.next(now, 2);
        if decisions.is_empty() {
            scheduler.check().expect("every invariant holds");
            return done;
        }
        for decision in decisions {
            match decision {
                Decision::Bind { id, pod, node } => {
                    done.binds.push((pod.uid.to_string(), node.to_string()));
                    done.ids.push(id);
                }
                Decision::Unschedulable { pod, reason } => {
                    done.reports.push((pod.uid.to_string(), message(&reason)));
                }
            }
        }
    }
}

fn message(reason: &WaitReason) -> String {
    reason.to_string()
}

pub fn land(scheduler: &mut Scheduler, done: &Done) {
    for id in &done.ids {
        scheduler.apply(Event::Outcome(*id, Outcome::Landed), at(0));
    }
}
