//! A stage for tables: several ClusterQueues, an API that stores everything at once, and Jobs that stop
//! when the test says so.
//!
//! [`World`](crate::world::World) has faults and a model of one queue; a scene has cohorts and preemption.

use std::collections::BTreeSet;

use gangway_admission::{Action, Decision, Engine, Event, JobFacts, Outcome, Rules};
use gangway_model::queues::{ClusterQueue, Cohort};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{State, Workload};
use gangway_model::{ClusterQueueName, FlavorName, Timestamp, Uid};

use crate::build::*;
use crate::store::Store;

/// As often as this is decided before something is said to go on for ever.
const MOST_DECIDES: usize = 100;

pub struct Scene {
    pub engine: Engine,
    pub store: Store,
    pub now: Timestamp,
}

impl Scene {
    /// Each ClusterQueue has a LocalQueue of its name in namespace `ns`; each flavor a label `flavor` with
    /// its name.
    pub fn new(queues: Vec<ClusterQueue>) -> Self {
        Self::with_rules(Rules::gangway(), queues)
    }

    pub fn with_rules(rules: Rules, queues: Vec<ClusterQueue>) -> Self {
        let engine = Engine::with_rules(rules);
        let mut scene = Self { engine, store: Store::default(), now: at(1_000) };
        scene.tell(Event::Namespace(namespace("ns", &[])));
        for queue in queues {
            scene.add_queue(queue);
        }
        scene.tell(Event::Synced);
        scene
    }

    pub fn add_queue(&mut self, queue: ClusterQueue) {
        let groups = queue.resource_groups.iter();
        let named: BTreeSet<FlavorName> = groups.flat_map(|g| &g.flavors).map(|f| f.flavor.clone()).collect();
        for name in named {
            self.tell(Event::Flavor(labelled(name.as_str(), "flavor", name.as_str())));
        }
        self.tell(Event::LocalQueue(local_queue("ns", queue.name.as_str(), queue.name.as_str())));
        self.tell(Event::ClusterQueue(Box::new(queue)));
    }

    /// Something happens, and the engine hears of it.
    pub fn tell(&mut self, event: Event) {
        self.store.take_in(&event);
        self.engine.apply(event, self.now);
    }

    pub fn set_cohort(&mut self, cohort: Cohort) {
        self.tell(Event::Cohort(cohort));
    }

    pub fn edit_queue(&mut self, name: &str, edit: impl FnOnce(&mut ClusterQueue)) {
        let mut queue = self.store.cluster_queues[name].clone();
        edit(&mut queue);
        self.tell(Event::ClusterQueue(Box::new(queue)));
    }

    /// A Workload without pods of its own: it is gone as soon as it is told to leave.
    pub fn submit(&mut self, queue: &str, workload: Workload) {
        self.tell(Event::Workload(Box::new(Workload { queue: queue.into(), ..workload })));
    }

    /// A Workload whose Job runs until [`Self::stop_job`].
    pub fn submit_job(&mut self, queue: &str, workload: Workload) {
        let job = format!("job-{}", workload.uid);
        self.tell(Event::Job(job.as_str().into(), JobFacts::default()));
        self.submit(queue, Workload { owner: Some(job.as_str().into()), ..workload });
    }

    /// The pods of a Workload are gone.
    pub fn stop_job(&mut self, uid: &str) {
        let facts = JobFacts { stopped: true, ..JobFacts::default() };
        self.tell(Event::Job(format!("job-{uid}").as_str().into(), facts));
    }

    /// Somebody changes a Workload.
    pub fn edit(&mut self, uid: &str, edit: impl FnOnce(&mut Workload)) {
        let mut workload = self.store.workload(uid).clone();
        edit(&mut workload);
        workload.version += 1;
        workload.generation += 1;
        self.tell(Event::Workload(Box::new(workload)));
    }

    pub fn delete(&mut self, uid: &str) {
        self.tell(Event::WorkloadGone(uid.into()));
    }

    pub fn decide(&mut self, budget: usize) -> Vec<Decision> {
        let decisions = self.engine.decide(self.now, budget);
        assert!(decisions.len() <= budget, "more decisions than asked for: {decisions:?}");
        if let Err(violation) = self.engine.check() {
            panic!("check: {violation}");
        }
        decisions
    }

    /// The API stores what was decided.
    pub fn land(&mut self, decision: &Decision) {
        let Some(write) = self.engine.pending_write(decision.id) else { return };
        let Some(object) = self.store.workloads.get_mut(&decision.uid) else { return };
        assert_eq!(object.version, write.version, "{decision} is based on another version");
        object.version += 1;
        object.state = write.state;
        let landed = Outcome::Landed(object.version);
        self.engine.apply(Event::Outcome(decision.id, landed), self.now);
    }

    /// Decides and stores once. Says how many decisions there were, and tells the important ones.
    pub fn step(&mut self) -> (usize, Vec<String>) {
        self.now = self.now.plus_seconds(1);
        let decisions = self.decide(usize::MAX);
        for decision in &decisions {
            self.land(decision);
        }
        (decisions.len(), decisions.iter().filter_map(shown).collect())
    }

    /// The same for a single cycle, and what is due after it.
    pub fn cycle(&mut self) -> Vec<String> {
        self.now = self.now.plus_seconds(1);
        let mut decisions = self.engine.decide_one_cycle(self.now).unwrap_or_default();
        let mut told = Vec::new();
        while !decisions.is_empty() {
            for decision in &decisions {
                self.land(decision);
            }
            told.extend(decisions.iter().filter_map(shown));
            decisions = self.engine.decide_only_due(self.now, usize::MAX);
        }
        told
    }

    /// Decides and stores until nothing is left to do, and says what was decided: who got quota and where,
    /// who has to leave for whom.
    pub fn run(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..MOST_DECIDES {
            let (decided, more) = self.step();
            told.extend(more);
            if decided == 0 {
                self.check();
                return told;
            }
        }
        panic!("no rest: {told:?}");
    }

    /// A restart would know the same.
    fn check(&self) {
        let rebuilt = self.store.rebuilt(self.now);
        assert!(rebuilt.durable() == self.engine.durable(), "a rebuilt engine knows something else");
        if let Err(violation) = rebuilt.check() {
            panic!("check after a restart: {violation}");
        }
    }

    /// The process ends and another begins, with nothing but the objects.
    pub fn restart(&mut self) {
        self.engine = self.store.rebuilt(self.now);
    }

    /// Who may run, by uid.
    pub fn running(&self) -> Vec<String> {
        let may_run = self.store.workloads.values().filter(|workload| workload.state.may_run());
        may_run.map(|workload| workload.uid.to_string()).collect()
    }

    pub fn runs(&self, uid: &str) -> bool {
        self.store.workload(uid).state.may_run()
    }

    /// Why a Workload waits, as its object says.
    pub fn waits_for(&self, uid: &str) -> (PendingReason, &str) {
        match &self.store.workload(uid).state {
            State::Pending(pending) => {
                let waiting = pending.waiting.as_ref().expect("it says why it waits");
                (waiting.reason, &waiting.message)
            }
            other => panic!("{uid} does not wait: {other:?}"),
        }
    }

    pub fn is_leaving(&self, uid: &str) -> bool {
        matches!(self.store.workload(uid).state, State::Evicting(..))
    }

    /// How much of its flavors a queue could use now, up to `most`: the largest Workload that is admitted.
    pub fn room(&self, queue: &str, most: i64) -> i64 {
        let admits = |amount: &i64| {
            let mut engine = self.store.rebuilt(self.now);
            let probe = Workload { queue: queue.into(), ..ranked("probe", *amount, i32::MAX, 0) };
            engine.apply(Event::Workload(Box::new(probe)), self.now);
            let decisions = engine.decide(self.now, usize::MAX);
            decisions.iter().any(|d| d.uid == "probe" && matches!(d.action, Action::Admit(_)))
        };
        (1..=most).rev().find(admits).unwrap_or(0)
    }

    /// How much a ClusterQueue's status says is borrowed, over all flavors and resources.
    pub fn borrowed(&self, queue: &str) -> i64 {
        let name: ClusterQueueName = queue.into();
        let (_, _, counts) = self.engine.cluster_queue_status(&name).expect("the queue is known");
        counts.reservation.iter().flat_map(|flavor| &flavor.resources).map(|(_, _, borrowed)| borrowed).sum()
    }
}

/// `w on spot`, `v leaves for w: InClusterQueue`, `v leaves: Deactivated`; other decisions are not told.
pub fn shown(decision: &Decision) -> Option<String> {
    let uid = &decision.uid;
    match &decision.action {
        Action::Admit(admission) => {
            let flavors: Vec<&str> = admission.flavors().iter().map(|flavor| flavor.as_str()).collect();
            Some(format!("{uid} on {}", flavors.join(", ")))
        }
        Action::Evict(_, Some(preemption)) => {
            let preemptor = preemption.preemptor.as_ref().map_or("nobody".into(), Uid::to_string);
            Some(format!("{uid} leaves for {preemptor}: {}", preemption.reason))
        }
        Action::Evict(reason, None) => Some(format!("{uid} leaves: {reason}")),
        _ => None,
    }
}
