//! A world around the engine: an object store, watches that lag, and an executor whose writes meet faults.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gangway_admission::{Action, Decision, DecisionId, Engine, Event, JobFacts, Outcome, ReadyPods};
use gangway_model::queues::ClusterQueue;
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::reasons::{CheckState, ReadinessReason};
use gangway_model::workload::{PodsReady, Reservation, State, Workload};
use gangway_model::{ClusterQueueName, Timestamp, Uid};

use crate::invariants;
use crate::store::Store;

/// What happens to a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It lands, and the answer arrives before the watch tells of it.
    Lands,
    /// It lands, and the watch tells of it before the answer arrives.
    LandsWatchFirst,
    /// Somebody else writes first.
    Overtaken,
    /// The API refuses it.
    Refused,
    /// It lands and the answer is lost.
    UnknownLanded,
    /// It is lost and nobody answers.
    UnknownLost,
}

/// How often interesting things happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(pub BTreeMap<&'static str, u64>);

impl Tally {
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

pub struct World {
    pub now: Timestamp,
    /// The objects.
    pub store: Store,
    /// The objects as far as the engine was told of them.
    pub seen: Store,
    pub engine: Engine,
    /// What the administrator changed and the engine has not heard yet.
    admin_watch: VecDeque<Event>,
    /// Jobs and Workloads that changed and the engine has not heard of yet.
    work_watch: VecDeque<Event>,
    /// Decided and not sent.
    pub in_flight: VecDeque<Decision>,
    /// Sent, and nobody knows how it ended.
    pub unanswered: Vec<Decision>,
    /// Workloads whose write met a conflict, until a newer version is seen.
    pub stale: BTreeSet<Uid>,
    /// Workloads whose decision was refused, until it is tried again or asks for something else.
    pub refused: BTreeSet<Uid>,
    /// Every definition of a queue that the engine was told, with the step.
    pub quota_history: Vec<(u64, ClusterQueueName, ClusterQueue)>,
    /// The step at which an admission was decided.
    pub decided_at: BTreeMap<DecisionId, u64>,
    pub step: u64,
    /// Old versions of Workloads, for watch events that come late.
    past: Vec<Workload>,
    next_version: u64,
    /// Every event is applied twice, and the second time must change nothing.
    pub tells_twice: bool,
    /// Every decision, as text.
    pub log: String,
    pub tally: Tally,
}

impl World {
    pub fn new() -> Self {
        let mut engine = Engine::new();
        engine.apply(Event::Synced, Timestamp::EPOCH);
        Self {
            now: Timestamp::from_seconds(1_000),
            store: Store::default(),
            seen: Store::default(),
            engine,
            admin_watch: VecDeque::new(),
            work_watch: VecDeque::new(),
            in_flight: VecDeque::new(),
            unanswered: Vec::new(),
            stale: BTreeSet::new(),
            refused: BTreeSet::new(),
            quota_history: Vec::new(),
            decided_at: BTreeMap::new(),
            step: 0,
            past: Vec::new(),
            next_version: 1,
            tells_twice: false,
            log: String::new(),
            tally: Tally::default(),
        }
    }

    /// An administrator changes something.
    pub fn administer(&mut self, event: Event) {
        self.store.take_in(&event);
        self.admin_watch.push_back(event);
    }

    pub fn set_job(&mut self, uid: Uid, facts: JobFacts) {
        let event = Event::Job(uid, facts);
        self.store.take_in(&event);
        self.work_watch.push_back(event);
    }

    pub fn delete_job(&mut self, uid: &Uid) {
        self.store.jobs.remove(uid);
        self.work_watch.push_back(Event::JobGone(uid.clone()));
    }

    /// Stores a Workload under a new version.
    pub fn put(&mut self, mut workload: Workload) -> u64 {
        self.next_version += 1;
        workload.version = self.next_version;
        if let Some(old) = self.store.workloads.insert(workload.uid.clone(), workload.clone()) {
            self.past.push(old);
        }
        self.work_watch.push_back(Event::Workload(Box::new(workload)));
        self.next_version
    }

    pub fn delete(&mut self, uid: &Uid) {
        if self.store.workloads.remove(uid).is_some() {
            self.past.retain(|old| old.uid != *uid);
            self.work_watch.push_back(Event::WorkloadGone(uid.clone()));
        }
    }

    pub fn is_caught_up(&self) -> bool {
        self.admin_watch.is_empty() && self.work_watch.is_empty()
    }

    /// The engine is told of something.
    pub fn tell(&mut self, event: Event) {
        if let Event::ClusterQueue(queue) = &event {
            self.quota_history.push((self.step, queue.name.clone(), (**queue).clone()));
        }
        if let Event::Workload(workload) = &event
            && let Some(known) = self.seen.workloads.get(&workload.uid)
            && known.version < workload.version
        {
            self.stale.remove(&workload.uid);
            if !known.asks_the_same_as(workload) {
                self.refused.remove(&workload.uid);
            }
        }
        self.seen.take_in(&event);
        self.engine.apply(event.clone(), self.now);
        if self.tells_twice {
            let once = format!("{:?}", self.engine);
            self.engine.apply(event.clone(), self.now);
            let twice = format!("{:?}", self.engine);
            assert!(
                once == twice,
                "R2: {event:?} changed something the second time: {}",
                differing(&once, &twice)
            );
        }
    }

    /// Delivers the next events of the watches.
    pub fn deliver(&mut self, admin: usize, work: usize) {
        for _ in 0..admin {
            let Some(event) = self.admin_watch.pop_front() else { break };
            self.tell(event);
        }
        for _ in 0..work {
            let Some(event) = self.work_watch.pop_front() else { break };
            self.tell(event);
        }
    }

    pub fn deliver_all(&mut self) {
        self.deliver(usize::MAX, usize::MAX);
    }

    /// The watches are lost and begin again with a list.
    pub fn relist(&mut self) {
        self.admin_watch.clear();
        self.work_watch.clear();
        for event in self.store.relist(&self.seen) {
            self.tell(event);
        }
    }

    /// An event of the past arrives once more.
    pub fn tell_late(&mut self, pick: usize) {
        if self.past.is_empty() {
            return;
        }
        let old = self.past[pick % self.past.len()].clone();
        if self.seen.workloads.get(&old.uid).is_some_and(|known| known.version > old.version) {
            self.tally.count("late events");
            self.engine.apply(Event::Workload(Box::new(old)), self.now);
        }
    }

    /// The process ends and another begins, with nothing but the objects.
    pub fn crash(&mut self) {
        self.admin_watch.clear();
        self.work_watch.clear();
        self.in_flight.clear();
        self.unanswered.clear();
        self.stale.clear();
        self.refused.clear();
        self.decided_at.clear();
        self.seen = self.store.clone();
        self.engine = self.store.rebuilt(self.now);
        let queues = self.seen.cluster_queues.values();
        self.quota_history.extend(queues.map(|q| (self.step, q.name.clone(), q.clone())));
        self.tally.count("crashes");
    }

    pub fn decide(&mut self, budget: usize) -> usize {
        let decisions = self.engine.decide(self.now, budget);
        assert!(decisions.len() <= budget, "more decisions than asked for");
        invariants::check_decisions(self, &decisions);
        for decision in &decisions {
            self.log += &format!("{:?} {decision:?}\n", self.now);
            self.decided_at.insert(decision.id, self.step);
            if !decision.action.is_diagnostic() {
                self.refused.remove(&decision.uid);
            }
            self.tally.count(name_of(&decision.action));
        }
        let count = decisions.len();
        self.in_flight.extend(decisions);
        count
    }

    /// Carries out one decision, the first or another one.
    pub fn execute(&mut self, pick: usize, fate: Fate) {
        if self.in_flight.is_empty() {
            return;
        }
        let index = pick % self.in_flight.len();
        let decision = self.in_flight.remove(index).expect("the index is in range");
        self.send(decision, fate);
    }

    /// Sends again what nobody answered.
    pub fn ask_again(&mut self) {
        for decision in std::mem::take(&mut self.unanswered) {
            let again = decision.clone();
            self.send(decision, Fate::Lands);
            // It met a conflict that may be its own first attempt: it is under way until the watch tells.
            if self.stale.contains(&again.uid) {
                self.unanswered.push(again);
            }
        }
    }

    fn send(&mut self, decision: Decision, fate: Fate) {
        let (id, uid) = (decision.id, decision.uid.clone());
        let Some(write) = self.engine.pending_write(id) else {
            self.tally.count("void decisions");
            return;
        };
        if fate == Fate::Overtaken
            && let Some(object) = self.store.workloads.get(&uid).cloned()
        {
            self.put(Workload { priority: object.priority ^ 1, ..object });
        }
        if fate == Fate::Refused {
            if !decision.action.is_diagnostic() {
                self.refused.insert(uid);
            }
            return self.answer(id, Outcome::Rejected("no".into()));
        }
        if fate == Fate::UnknownLost {
            self.unanswered.push(decision);
            return self.answer(id, Outcome::Unknown);
        }
        let stored = self.store.workloads.get(&uid).filter(|object| object.version == write.version).cloned();
        let Some(object) = stored else {
            if self.seen.workloads.get(&uid).is_some_and(|known| known.version <= write.version) {
                self.stale.insert(uid);
            }
            return self.answer(id, Outcome::Conflict);
        };
        let before = object.clone();
        let active = object.active && !write.deactivates;
        let version = self.put(Workload { state: write.state, active, ..object });
        invariants::check_landing(self, &decision, &before);
        if fate == Fate::UnknownLanded {
            self.unanswered.push(decision);
            return self.answer(id, Outcome::Unknown);
        }
        if fate == Fate::LandsWatchFirst {
            self.deliver(0, usize::MAX);
        }
        let landed = self.store.workloads[&uid].clone();
        if self.seen.workloads.get(&uid).is_some_and(|known| known.version < version) {
            self.seen.workloads.insert(uid, landed);
        }
        self.answer(id, Outcome::Landed(version));
    }

    fn answer(&mut self, id: DecisionId, outcome: Outcome) {
        self.tally.count(match outcome {
            Outcome::Landed(_) => "landed",
            Outcome::Conflict => "conflicts",
            Outcome::Rejected(_) => "refused",
            Outcome::Unknown => "unknown",
            Outcome::Void => "void",
        });
        self.tell(Event::Outcome(id, outcome));
    }

    /// The administrator starts the controller with another configuration.
    pub fn set_readiness(&mut self, settings: Option<WaitForPodsReady>) {
        self.engine.wait_for_pods_ready(settings.clone());
        self.store.readiness = Some(settings.clone());
        self.seen.readiness = Some(settings);
    }

    /// All pods of all Jobs that run are ready.
    fn pods_become_ready(&mut self) {
        let pods = Some(ReadyPods { ready: 2, wanted: 2 });
        let waits = |job: &JobFacts| !job.stopped && job.end.is_none() && job.pods != pods;
        let waiting: Vec<Uid> =
            self.store.jobs.iter().filter(|(_, job)| waits(job)).map(|(uid, _)| uid.clone()).collect();
        for uid in waiting {
            self.set_job(uid, JobFacts { pods, ..JobFacts::default() });
        }
        self.pods_of_others_become_ready();
    }

    /// Whoever runs the pods of Workloads without a Job writes down that they are ready.
    fn pods_of_others_become_ready(&mut self) {
        let is_asked = |held: &Reservation| {
            let queue = self.store.cluster_queues.get(&held.admission.cluster_queue);
            queue.is_some_and(|queue| queue.fallback.is_some())
        };
        let starts = |workload: &&Workload| {
            workload.owner.is_none()
                && matches!(&workload.state, State::Holding(held) if held.is_starting() && is_asked(held))
        };
        let starting: Vec<Workload> = self.store.workloads.values().filter(starts).cloned().collect();
        for mut workload in starting {
            let State::Holding(held) = &mut workload.state else { continue };
            let (reason, at) = (ReadinessReason::Started, self.now.whole_second());
            held.pods_ready = Some(Box::new(PodsReady { reason, at, allowed_seconds: None }));
            self.put(workload);
        }
    }

    /// Every check that is asked agrees.
    fn checks_agree(&mut self) {
        let is_asked = |workload: &&Workload| matches!(&workload.state, State::Holding(held) if held.checks.as_ref().is_some_and(|c| !c.all_ready()));
        let asked: Vec<Workload> = self.store.workloads.values().filter(is_asked).cloned().collect();
        for mut workload in asked {
            let State::Holding(held) = &mut workload.state else { continue };
            for answer in held.checks.iter_mut().flat_map(|checks| &mut checks.0) {
                (answer.state, answer.at) = (CheckState::Ready, self.now.whole_second());
            }
            self.put(workload);
        }
    }

    /// What a Job controller does: runs Jobs whose Workload may run, stops the others.
    pub fn jobs_follow(&mut self) {
        let mut changes = Vec::new();
        for workload in self.store.workloads.values() {
            let Some(owner) = &workload.owner else { continue };
            let Some(job) = self.store.jobs.get(owner) else { continue };
            let stopped = !workload.state.may_run();
            if job.end.is_none() && job.stopped != stopped {
                changes.push((owner.clone(), JobFacts { stopped, ..JobFacts::default() }));
            }
        }
        for (uid, facts) in changes {
            self.set_job(uid, facts);
        }
    }

    /// The faults stop: everything is delivered and carried out until nothing happens any more.
    pub fn settle(&mut self) {
        for _ in 0..4000 {
            self.deliver_all();
            self.ask_again();
            while !self.in_flight.is_empty() {
                self.execute(0, Fate::Lands);
            }
            self.checks_agree();
            self.jobs_follow();
            self.pods_become_ready();
            self.deliver_all();
            if self.decide(usize::MAX) > 0 || !self.is_caught_up() {
                continue;
            }
            match self.engine.next_deadline() {
                Some(at) => self.now = self.now.max(at),
                None => return,
            }
        }
        let lines: Vec<&str> = self.log.lines().collect();
        panic!("L1: no fixed point: {:#?}", &lines[lines.len().saturating_sub(6)..]);
    }
}

fn name_of(action: &Action) -> &'static str {
    match action {
        Action::Admit(_) => "admit",
        Action::Reserve(_) => "reserve",
        Action::LetStart(_) => "let start",
        Action::AskChecks => "ask checks",
        Action::RetryAllFlavors => "retry all flavors",
        Action::ForgetHistory => "forget history",
        Action::Evict(..) => "evict",
        Action::PodsReady(_) => "pods ready",
        Action::Deactivate => "deactivate",
        Action::ReportOverdue => "report overdue",
        Action::Release(_) => "release",
        Action::Requeue(_) => "requeue",
        Action::Finish(_) => "finish",
        Action::ReportWaiting(_) => "report",
    }
}

/// Where two texts begin to differ, with what stands around it.
fn differing(one: &str, other: &str) -> String {
    let at = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| {
        String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(200)..text.len().min(at + 100)])
            .into_owned()
    };
    format!("\n{}\n{}", around(one), around(other))
}
