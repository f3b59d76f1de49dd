//! Short ways to write nodes, pods and a scheduler.

use std::sync::Arc;

use gangway_model::scheduling::SchedulerSettings;
use gangway_model::{ObjectName, Requests, ResourceName, Timestamp};
use gangway_placement::{
    Decision, DecisionId, Demands, Event, NodeRecord, Options, Outcome, PodLabels, PodRecord, Scheduler,
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
    let demands = Demands {
        requests: requests(&[("cpu", cpu)]),
        scored_cpu_millis: if cpu == 0 { 100 } else { cpu },
        scored_memory_bytes: 200 << 20,
        ..Demands::default()
    };
    PodRecord {
        uid: uid.into(),
        name: ObjectName::new("default", uid),
        labels: PodLabels::default(),
        scheduler_name: "gangway".into(),
        priority: 0,
        never_preempts: false,
        owner: None,
        created_at: at(0),
        started_at: None,
        demands: Arc::new(demands),
        gates: Box::default(),
        unsupported: Box::default(),
        node: None,
        nominated_node: None,
        deleting: false,
        preempted: false,
        finished: false,
    }
}

/// The same pod with other demands.
pub fn demanding(pod: PodRecord, change: impl FnOnce(&mut Demands)) -> PodRecord {
    let mut demands = Demands::clone(&pod.demands);
    change(&mut demands);
    PodRecord { demands: Arc::new(demands), ..pod }
}

pub fn labelled(pod: PodRecord, labels: &[(&str, &str)]) -> PodRecord {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    PodRecord { labels: PodLabels::from(&labels), ..pod }
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
    Scheduler::new(Options { settings: SchedulerSettings::default(), seed: 7 })
}

/// Everything that is to be done now, as `(pod, node)` and `(pod, message)`.
#[derive(Debug, Default, PartialEq)]
pub struct Done {
    pub binds: Vec<(String, String)>,
    pub reports: Vec<(String, String)>,
    pub ids: Vec<DecisionId>,
    /// Who is removed for whom, and the decision.
    pub preemptions: Vec<(String, Vec<String>, DecisionId)>,
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
        for decision in decisions {
            match decision {
                Decision::Bind { id, pod, node } => {
                    done.binds.push((pod.uid.to_string(), node.to_string()));
                    done.ids.push(id);
                }
                Decision::Preempt { id, preemptor, victims, .. } => {
                    let victims = victims.iter().map(|victim| victim.uid.to_string()).collect();
                    done.preemptions.push((preemptor.uid.to_string(), victims, id));
                }
                Decision::Report { pod, reason, .. } => {
                    done.reports.push((pod.uid.to_string(), reason.to_string()));
                }
            }
        }
        if !scheduler.has_work() {
            scheduler.check().expect("every invariant holds");
            return done;
        }
    }
}

pub fn land(scheduler: &mut Scheduler, done: &Done) {
    for id in &done.ids {
        scheduler.apply(Event::Outcome(*id, Outcome::Landed), at(0));
    }
}
