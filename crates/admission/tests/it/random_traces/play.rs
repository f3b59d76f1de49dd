//! Plays a trace: an API that may fail, a watch that may lag, and Jobs that stop when a step says so.

use std::collections::BTreeSet;
use std::ops::AddAssign;

use gangway_admission::{Decision, Event, Outcome};
use gangway_model::Uid;
use gangway_model::workload::{State, Workload};

use super::steps::{Ending, Step, Trace};
use crate::build::*;
use crate::scene::Scene;

/// As often as this those who have to leave are stopped before something is said to go on for ever.
const MOST_ROUNDS: usize = 60;

/// What came of a trace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Played {
    pub admissions: usize,
    pub evictions: usize,
    /// Who was preempted when all were tried again, and after a restart.
    pub evictions_again: usize,
}

impl AddAssign for Played {
    fn add_assign(&mut self, other: Self) {
        self.admissions += other.admissions;
        self.evictions += other.evictions;
        self.evictions_again += other.evictions_again;
    }
}

struct Player {
    scene: Scene,
    in_flight: Vec<Decision>,
    /// Objects that others changed, or that were stored without an answer.
    unseen: BTreeSet<Uid>,
    submitted: usize,
}

/// Plays a trace to its end and lets it come to rest. Panics where a sentence does not hold.
pub fn play(trace: &Trace) -> Played {
    let mut player = Player::new(trace);
    for step in &trace.steps {
        player.perform(step);
        player.check();
    }
    let told = player.settle();
    let count = |told: &[String], what: &str| told.iter().filter(|line| line.contains(what)).count();
    let evictions = count(&told, " leaves");
    let most = 4 * player.scene.store.workloads.len();
    assert!(evictions <= most, "{evictions} evictions though nothing happens: {told:?}");
    player.scene.engine.reconsider();
    let again = player.settle();
    assert!(!admits(&again), "a lost wake-up: {again:?} after {told:?}");
    player.scene.restart();
    let restarted = player.settle();
    assert!(!admits(&restarted), "a restart decides: {restarted:?} after {told:?} and {again:?}");
    let evictions_again = count(&again, " leaves") + count(&restarted, " leaves");
    Played { admissions: count(&told, " on "), evictions, evictions_again }
}

/// Whether somebody is admitted although nothing happened.
///
/// That somebody is preempted is another matter. Nobody is woken because another was admitted who may be preempted; and
/// after a restart those who were admitted within the same second are taken in another order.
fn admits(told: &[String]) -> bool {
    told.first().is_some_and(|first| first.contains(" on "))
}

impl Player {
    fn new(trace: &Trace) -> Self {
        let mut scene = Scene::new(trace.queues.clone());
        for name in ["left", "right"] {
            scene.set_cohort(cohort(name, Some("root"), vec![]));
        }
        Self { scene, in_flight: Vec::new(), unseen: BTreeSet::new(), submitted: 0 }
    }

    fn check(&self) {
        if let Err(violation) = self.scene.engine.check() {
            panic!("check: {violation}");
        }
    }

    fn perform(&mut self, step: &Step) {
        match step {
            Step::Submit { .. } => self.submit(step),
            Step::Delete(index) => self.with_any(*index, |scene, uid| scene.delete(uid)),
            Step::Activate(index, active) => self.edit_any(*index, |w| w.active = *active),
            Step::Prioritize(index, priority) => self.edit_any(*index, |w| w.priority = *priority),
            Step::Stop(index) => {
                let leaving = self.leaving();
                if let Some(uid) = leaving.get(index % leaving.len().max(1)) {
                    self.scene.stop_job(uid);
                }
            }
            Step::Pods(index, exist) => self.with_any(*index, |scene, uid| {
                scene.tell(Event::Pods(format!("job-{uid}").as_str().into(), *exist));
            }),
            Step::Decide { budget, seconds } => {
                self.scene.now = self.scene.now.plus_seconds(*seconds);
                let decisions = self.scene.decide(*budget);
                self.in_flight.extend(decisions);
            }
            Step::Write(index, ending) => {
                if !self.in_flight.is_empty() {
                    let decision = self.in_flight.remove(index % self.in_flight.len());
                    self.write(decision, *ending);
                }
            }
            Step::WriteAll => self.write_all(),
            Step::Watch => self.watch(),
            Step::Restart => {
                self.in_flight.clear();
                self.unseen.clear();
                self.scene.restart();
            }
            definition => self.define(definition),
        }
    }

    fn define(&mut self, step: &Step) {
        let scene = &mut self.scene;
        match step {
            Step::Quota(queue, groups) => scene.edit_queue(queue, |q| q.resource_groups = groups.clone()),
            Step::Move(queue, to) => scene.edit_queue(queue, |q| q.cohort = Some((*to).into())),
            Step::Cohort(name, parent, groups) => scene.set_cohort(cohort(name, *parent, groups.clone())),
            Step::StopQueue(queue, policy) => scene.edit_queue(queue, |q| q.stop_policy = *policy),
            other => unreachable!("{other:?} defines nothing"),
        }
    }

    fn submit(&mut self, step: &Step) {
        let Step::Submit { queue, amount, priority, created, flavor, job } = step else { return };
        let workload = ranked(&format!("w{:02}", self.submitted), *amount, *priority, *created);
        self.submitted += 1;
        let workload = match flavor {
            Some(flavor) => pinned(workload, flavor),
            None => workload,
        };
        if *job { self.scene.submit_job(queue, workload) } else { self.scene.submit(queue, workload) }
    }

    fn with_any(&mut self, index: usize, act: impl FnOnce(&mut Scene, &str)) {
        let count = self.scene.store.workloads.len().max(1);
        let uid = self.scene.store.workloads.keys().nth(index % count).cloned();
        if let Some(uid) = uid {
            act(&mut self.scene, &uid.to_string());
        }
    }

    fn edit_any(&mut self, index: usize, edit: impl FnOnce(&mut Workload)) {
        self.with_any(index, |scene, uid| scene.edit(uid, edit));
    }

    fn leaving(&self) -> Vec<String> {
        let all = self.scene.store.workloads.values();
        let leaving = all.filter(|workload| matches!(workload.state, State::Evicting(..)));
        leaving.map(|workload| workload.uid.to_string()).collect()
    }

    fn write(&mut self, decision: Decision, ending: Ending) {
        let Some(write) = self.scene.engine.pending_write(decision.id) else { return };
        let Some(object) = self.scene.store.workloads.get_mut(&decision.uid) else { return };
        let fits = object.version == write.version;
        if fits && matches!(ending, Ending::Stored | Ending::StoredAndLost) {
            object.state = write.state;
        }
        if fits && matches!(ending, Ending::Stored | Ending::StoredAndLost | Ending::Conflict) {
            object.version += 1;
        }
        let outcome = match ending {
            Ending::StoredAndLost | Ending::Lost => Outcome::Unknown,
            Ending::Refused => Outcome::Rejected("refused".into()),
            Ending::Stored if fits => Outcome::Landed(object.version),
            Ending::Stored | Ending::Conflict => Outcome::Conflict,
        };
        if !matches!(outcome, Outcome::Landed(_) | Outcome::Rejected(_)) {
            self.unseen.insert(decision.uid.clone());
        }
        let is_unknown = outcome == Outcome::Unknown;
        self.scene.engine.apply(Event::Outcome(decision.id, outcome), self.scene.now);
        if is_unknown {
            // Who does not know tries again.
            self.in_flight.push(decision);
        }
    }

    fn write_all(&mut self) {
        for decision in std::mem::take(&mut self.in_flight) {
            self.write(decision, Ending::Stored);
        }
    }

    fn watch(&mut self) {
        for uid in std::mem::take(&mut self.unseen) {
            if let Some(object) = self.scene.store.workloads.get(&uid) {
                self.scene.tell(Event::Workload(Box::new(object.clone())));
            }
        }
    }

    /// The faults end, everybody who has to leave does, and time passes, until nothing happens any more.
    fn settle(&mut self) -> Vec<String> {
        self.write_all();
        self.watch();
        for owner in self.scene.store.pods.keys().cloned().collect::<Vec<_>>() {
            self.scene.tell(Event::Pods(owner, false));
        }
        let mut told = Vec::new();
        for _ in 0..MOST_ROUNDS {
            let more = self.scene.run();
            let is_quiet = more.is_empty();
            told.extend(more);
            let leaving = self.leaving();
            leaving.iter().for_each(|uid| self.scene.stop_job(uid));
            let deadline = self.scene.engine.next_deadline();
            self.scene.now = deadline.map_or(self.scene.now, |deadline| self.scene.now.max(deadline));
            if is_quiet && leaving.is_empty() && deadline.is_none() {
                return told;
            }
        }
        panic!("no rest: {told:?}");
    }
}
