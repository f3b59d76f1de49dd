//! A world in which every write lands and only pods take their time, and what happens in it second by second.

use std::collections::BTreeMap;

use gangway_admission::{Action, Decision, Engine, Event, JobEnd, JobFacts, Outcome, ReadyPods};
use gangway_model::checks::CheckAnswer;
use gangway_model::queues::ClusterQueue;
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::reasons::{CheckState, ReadinessReason};
use gangway_model::workload::{Pending, RequeueState, Reservation, State, Workload};
use gangway_model::{Timestamp, Uid};

use crate::build::*;
use crate::store::Store;

/// When plays begin.
pub const BEGIN: i64 = 1_000;

/// A world in which every write lands, Jobs follow their Workloads at once, and only pods take their time.
pub struct Play {
    pub engine: Engine,
    pub store: Store,
    pub now: Timestamp,
    /// How many pods of each Job are ready; those of others are not.
    pub ready: BTreeMap<Uid, i32>,
    pub ended: BTreeMap<Uid, JobEnd>,
    /// The engine is made anew before every step.
    pub restarts: bool,
}

impl Play {
    pub fn new(settings: impl Into<Option<WaitForPodsReady>>, queues: Vec<ClusterQueue>) -> Self {
        let mut store = Store { readiness: Some(settings.into()), ..Store::default() };
        store.take_in(&Event::Namespace(namespace("ns", &[])));
        for queue in queues {
            for quotas in queue.resource_groups.iter().flat_map(|group| &group.flavors) {
                store.take_in(&Event::Flavor(flavor(quotas.flavor.as_str())));
            }
            store.take_in(&Event::LocalQueue(local_queue("ns", queue.name.as_str(), queue.name.as_str())));
            store.take_in(&Event::ClusterQueue(Box::new(queue)));
        }
        let now = at(BEGIN);
        let engine = store.rebuilt(now);
        Self { engine, store, now, ready: BTreeMap::new(), ended: BTreeMap::new(), restarts: false }
    }

    pub fn tell(&mut self, event: Event) {
        self.store.take_in(&event);
        self.engine.apply(event, self.now);
    }

    pub fn submit(&mut self, queue: &str, workload: Workload) {
        let owner = job_of(&workload.uid);
        self.tell(Event::Job(owner.clone(), JobFacts { stopped: true, ..JobFacts::default() }));
        self.tell(Event::Workload(Box::new(Workload {
            queue: queue.into(),
            owner: Some(owner),
            ..workload
        })));
    }

    /// So many of the two pods of a Job are ready.
    pub fn pods(&mut self, uid: &str, ready: i32) {
        self.ready.insert(job_of(&uid.into()), ready);
    }

    pub fn end_job(&mut self, uid: &str) {
        self.ended.insert(job_of(&uid.into()), JobEnd { succeeded: true, message: "done".into() });
    }

    /// A queue is changed.
    pub fn change(&mut self, queue: &str, change: impl FnOnce(&mut ClusterQueue)) {
        let mut changed = self.store.cluster_queues[queue].clone();
        change(&mut changed);
        self.tell(Event::ClusterQueue(Box::new(changed)));
    }

    /// A check says something of a Workload, as its controller would.
    pub fn answer(&mut self, uid: &str, check: &str, state: CheckState, requeue_after_seconds: Option<i64>) {
        let now = self.now;
        self.edit(uid, |workload| {
            let (State::Holding(Reservation { checks, .. }) | State::Pending(Pending { checks, .. })) =
                &mut workload.state
            else {
                panic!("nobody is asked: {:?}", workload.state)
            };
            let list = &mut checks.get_or_insert_default().0;
            let known = list.iter().find(|answer| answer.name.as_str() == check);
            let retry_count = known.and_then(|answer| answer.retry_count);
            list.retain(|answer| answer.name.as_str() != check);
            let pending = CheckAnswer::pending(check.into(), now);
            list.push(CheckAnswer { state, requeue_after_seconds, retry_count, ..pending });
            list.sort_by(|one, other| one.name.cmp(&other.name));
        });
    }

    pub fn edit(&mut self, uid: &str, edit: impl FnOnce(&mut Workload)) {
        let mut workload = self.store.workload(uid).clone();
        edit(&mut workload);
        workload.version += 1;
        self.tell(Event::Workload(Box::new(workload)));
    }

    pub fn jobs_follow(&mut self) -> bool {
        let jobs: Vec<Uid> = self.store.jobs.keys().cloned().collect();
        let mut changed = false;
        for uid in jobs {
            let runs =
                self.store.workloads.values().any(|w| w.owner.as_ref() == Some(&uid) && w.state.may_run());
            let ready = self.ready.get(&uid).copied().unwrap_or(0);
            let pods = runs.then_some(ReadyPods { ready, wanted: 2 });
            let end = self.ended.get(&uid).cloned();
            let facts = JobFacts { stopped: !runs, pods, end, suspended_at: None };
            if self.store.jobs[&uid] != facts {
                self.tell(Event::Job(uid, facts));
                changed = true;
            }
        }
        changed
    }

    /// A decision lands, and is told if it is worth that.
    pub fn carry_out(&mut self, decision: &Decision) -> Option<String> {
        let write = self.engine.pending_write(decision.id)?;
        let object = self.store.workloads.get_mut(&decision.uid).expect("a Workload");
        object.version += 1;
        object.state = write.state;
        object.active &= !write.deactivates;
        self.engine.apply(Event::Outcome(decision.id, Outcome::Landed(object.version)), self.now);
        let is_told = !matches!(decision.action, Action::ReportWaiting(_) | Action::Release(_));
        let text = decision.to_string();
        is_told.then(|| text.split_once(" ns/").map_or(text.clone(), |(_, rest)| rest.to_owned()))
    }

    /// What happens at a second, until nothing does any more.
    pub fn at(&mut self, second: i64) -> Vec<String> {
        self.now = at(BEGIN + second);
        let mut told = Vec::new();
        for _ in 0..100 {
            let changed = self.jobs_follow();
            if self.restarts {
                self.engine = self.store.rebuilt(self.now);
            }
            let decisions = self.engine.decide(self.now, usize::MAX);
            if let Err(violation) = self.engine.check() {
                panic!("check: {violation}");
            }
            if decisions.is_empty() && !changed {
                assert!(self.store.rebuilt(self.now).durable() == self.engine.durable(), "R1");
                return told;
            }
            told.extend(decisions.iter().filter_map(|decision| self.carry_out(decision)));
        }
        panic!("no rest: {told:?}");
    }

    pub fn state(&self, uid: &str) -> &State {
        &self.store.workload(uid).state
    }

    pub fn requeue_state(&self, uid: &str) -> RequeueState {
        self.state(uid).requeue_state().copied().unwrap_or_default()
    }

    pub fn readiness(&self, uid: &str) -> ReadinessReason {
        let reservation = self.state(uid).reservation().expect("it has quota");
        reservation.pods_ready.as_ref().expect("it is written down").reason
    }

    /// The flavors that a Workload has given up.
    pub fn given_up(&self, uid: &str) -> Vec<String> {
        let history = self.state(uid).history();
        history.into_iter().flat_map(|history| history.exhausted()).map(ToString::to_string).collect()
    }

    /// How much of a flavor's time is used up.
    pub fn used(&self, uid: &str, flavor: &str) -> i64 {
        self.state(uid).history().map_or(0, |history| history.accumulated_seconds(&flavor.into()))
    }

    /// When something happens next, in seconds of the play.
    pub fn next(&self) -> i64 {
        self.engine.next_deadline().expect("something is due").as_seconds() - BEGIN
    }

    pub fn waiting(&self, uid: &str) -> &str {
        match self.state(uid) {
            State::Pending(pending) => &pending.waiting.as_ref().expect("it says why").message,
            other => panic!("{other:?}"),
        }
    }
}

pub fn job_of(uid: &Uid) -> Uid {
    format!("job-{uid}").as_str().into()
}
