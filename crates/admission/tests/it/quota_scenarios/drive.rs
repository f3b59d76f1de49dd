//! Plays a scenario with the engine and with the model, by the rounds and cycles of the replay protocol.

use std::collections::{BTreeMap, BTreeSet};

use gangway_admission::{Action, Decision, Engine, Event, JobFacts, Outcome, ReadyPods, Rules};
use gangway_model::checks::{AdmissionCheck, CheckAnswer};
use gangway_model::queues::ClusterQueue;
use gangway_model::reasons::{EvictionReason, FinishReason};
use gangway_model::workload::{Admission, Finish, RequeueState, State, Workload};
use gangway_model::{FlavorName, ResourceName, Timestamp, Uid};

use super::fallback::Said;
use super::generate::Scenario;
use super::readiness::Pause;
use crate::build;
use crate::quota_model::{
    self, Answer, Decided, Edit, Evicted, IDLE_PASSES, Model, ReplayClock, Standing, Tried,
};

/// When the first cycle runs.
pub const START: i64 = 10_000;
/// After so many cycles in one scenario, or in one round where time passes between rounds, it will not come to rest.
pub const MOST_CYCLES: u32 = 300;
/// After so many cycles in a row without a decision nothing will be decided any more: every workload had
/// its turn with every flavor, more than once.
const IDLE_CYCLES: u32 = 30;

/// What was decided in a round, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub at: Timestamp,
    /// What an administrator changed.
    pub edits: Vec<Edit>,
    /// Who had to leave in the beginning.
    pub evicted: Vec<Evicted>,
    /// By cycle.
    pub cycles: Vec<Vec<Decided>>,
    /// Where pods have to be ready: how everybody stands in the end.
    pub standing: BTreeMap<Uid, Standing>,
}

/// Who has quota, and the flavors per podSet.
pub type Holders = BTreeMap<Uid, Vec<Vec<(ResourceName, FlavorName)>>>;

/// What one side made of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    pub rounds: Vec<Round>,
    /// At the end of each round.
    pub holders: Vec<Holders>,
    pub at_rest: bool,
}

pub fn play_model(scenario: &Scenario, rules: quota_model::Rules) -> (Played, Model) {
    let mut model = Model::new(rules, scenario.setup.clone());
    if let Some(settings) = scenario.readiness.as_ref().and_then(|readiness| readiness.settings.clone()) {
        model.wait_for_pods_ready(settings);
    }
    let mut clock = ReplayClock { start: build::at(START), passes: 0, limit: MOST_CYCLES, stands_at: None };
    let mut played = Played { at_rest: true, ..Played::default() };
    let mut at = build::at(START);
    for round in 0..=scenario.last_round() {
        at = begin_of(scenario, &model, round, at);
        if scenario.readiness.is_some() {
            clock.stands_at = Some(at);
            clock.limit = clock.passes + MOST_CYCLES;
        }
        let (evicted, edits) = begin_model_round(scenario, &mut model, round, at);
        let settled = model.settle(&mut clock);
        let uids = scenario.workloads.iter().map(|(_, workload)| &workload.uid);
        let uids = uids.filter(|_| scenario.readiness.is_some());
        let standing = uids.filter_map(|uid| Some((uid.clone(), model.standing_of(uid)?))).collect();
        played.rounds.push(Round { at, edits, evicted, cycles: settled.passes, standing });
        let holders = model.holders().keys().map(|uid| (uid.clone(), model.flavors_of(uid).to_vec()));
        played.holders.push(holders.collect());
        if !settled.at_rest {
            played.at_rest = false;
            break;
        }
    }
    (played, model)
}

/// When a round begins, if the one before it began then.
fn begin_of(scenario: &Scenario, model: &Model, round: u32, before: Timestamp) -> Timestamp {
    let pauses = scenario.readiness.as_ref().map(|readiness| &readiness.pauses);
    let pause = pauses.and_then(|pauses| pauses.get(round.checked_sub(1)? as usize));
    let due = || model.next_due().unwrap_or(before.plus_seconds(100));
    match pause {
        None => before,
        Some(Pause::Seconds(seconds)) => before.plus_seconds(*seconds),
        Some(Pause::UntilDue) => due(),
        Some(Pause::UntilJustBefore) => due().plus_seconds(-1),
    }
}

/// What happens at the beginning of a round: who has to leave, and what an administrator changes.
fn begin_model_round(
    scenario: &Scenario,
    model: &mut Model,
    round: u32,
    at: Timestamp,
) -> (Vec<Evicted>, Vec<Edit>) {
    model.set_time(at);
    for (_, uid) in scenario.finishes.iter().filter(|(at, _)| *at == round) {
        model.finish(uid);
    }
    for (uid, active) in scenario.activations_in(round) {
        model.set_active(uid, active);
    }
    for (uid, ready) in scenario.pods_in(round) {
        model.set_ready(uid, ready);
    }
    for Said { uid, check, state, after_seconds, .. } in scenario.said_in(round) {
        model.answer(uid, check, Answer { state: *state, at, after_seconds: *after_seconds });
    }
    let edits = scenario.edits_in(round).filter(|edit| !model.keeps_room_near(&edit.queue));
    let edits: Vec<Edit> = edits.cloned().collect();
    edits.iter().for_each(|edit| model.redefine(edit));
    for (_, workload) in scenario.workloads.iter().filter(|(at, _)| *at == round) {
        model.add(workload.clone());
    }
    (model.begin_round(), edits)
}

/// The engine with a clock, and an API that stores everything at once.
pub struct Driver {
    engine: Engine,
    now: Timestamp,
    cycles: u32,
    uids: Vec<Uid>,
    is_reference: bool,
    /// Pods have to be ready: there are Jobs, and time stands still while a round lasts.
    has_jobs: bool,
    jobs: BTreeMap<Uid, JobFacts>,
    /// Whose pods are ready when it runs.
    ready: BTreeSet<Uid>,
}

/// Plays a scenario with the engine. Rounds begin when they do on the other side, and an administrator changes the same.
pub fn play_engine(
    scenario: &Scenario,
    rules: Rules,
    begins: &[(Timestamp, &[Edit])],
) -> Result<(Played, Driver), String> {
    let mut driver = Driver::new(scenario, rules);
    let mut played = Played { at_rest: true, ..Played::default() };
    for round in 0..=scenario.last_round() {
        let Some((at, edits)) = begins.get(round as usize).copied() else { break };
        let evicted = driver.begin_round(scenario, round, at, edits);
        let mut done = Round { at, evicted, ..Round::default() };
        driver.engine.reconsider();
        played.at_rest = driver.settle(&mut done.cycles)?;
        done.standing = driver.standing();
        played.rounds.push(done);
        played.holders.push(driver.holders());
        if !played.at_rest {
            break;
        }
    }
    Ok((played, driver))
}

impl Driver {
    fn new(scenario: &Scenario, rules: Rules) -> Self {
        let setup = &scenario.setup;
        let flavors = setup.flavors.iter().cloned().map(Event::Flavor);
        let cohorts = setup.cohorts.iter().cloned().map(Event::Cohort);
        let queues = setup.cluster_queues.iter().cloned().map(|queue| Event::ClusterQueue(Box::new(queue)));
        let locals = setup.local_queues.iter().cloned().map(Event::LocalQueue);
        let namespaces = setup.namespaces.iter().cloned().map(Event::Namespace);
        let checks = setup.cluster_queues.iter().flat_map(|queue| &queue.admission_checks);
        let checks = checks.chain(scenario.edits.iter().flat_map(|(_, edit)| &edit.checks));
        let checks = checks.map(|check| AdmissionCheck { name: check.name.clone(), active: true });
        let mut engine = Engine::with_rules(rules);
        engine.plant(scenario.planted);
        let now = build::at(START);
        for event in checks
            .map(Event::AdmissionCheck)
            .chain(flavors)
            .chain(cohorts)
            .chain(queues)
            .chain(locals)
            .chain(namespaces)
        {
            engine.apply(event, now);
        }
        let settings = scenario.readiness.as_ref().and_then(|readiness| readiness.settings.clone());
        if settings.is_some() {
            engine.wait_for_pods_ready(settings);
        }
        let uids = scenario.workloads.iter().map(|(_, workload)| workload.uid.clone()).collect();
        Self {
            engine,
            now,
            cycles: 0,
            uids,
            is_reference: rules == Rules::reference(),
            has_jobs: scenario.readiness.is_some(),
            jobs: BTreeMap::new(),
            ready: BTreeSet::new(),
        }
    }

    fn begin_round(
        &mut self,
        scenario: &Scenario,
        round: u32,
        at: Timestamp,
        edits: &[Edit],
    ) -> Vec<Evicted> {
        if self.has_jobs {
            (self.now, self.cycles) = (at, 0);
        }
        for (_, uid) in scenario.finishes.iter().filter(|(at, _)| *at == round) {
            self.finish(uid);
        }
        for (uid, active) in scenario.activations_in(round) {
            self.set_active(uid, active);
        }
        for (uid, ready) in scenario.pods_in(round) {
            if ready {
                self.ready.insert(uid.clone());
            } else {
                self.ready.remove(uid);
            }
        }
        for said in scenario.said_in(round) {
            self.answer(said);
        }
        for Edit { queue, fallback, checks } in edits {
            let Some(known) = self.engine.durable().cluster_queue(queue) else { continue };
            let (fallback, admission_checks) = (fallback.clone(), checks.clone());
            let changed = ClusterQueue { fallback, admission_checks, ..known.clone() };
            self.engine.apply(Event::ClusterQueue(Box::new(changed)), self.now);
        }
        for (_, workload) in scenario.workloads.iter().filter(|(at, _)| *at == round) {
            self.add(workload);
        }
        if round == 0 {
            self.engine.apply(Event::Synced, self.now);
        }
        self.do_what_is_due()
    }

    /// A check says something of a workload with quota, if it was asked.
    fn answer(&mut self, said: &Said) {
        let Some(mut workload) = self.engine.workload(&said.uid).cloned() else { return };
        let State::Holding(reservation) = &mut workload.state else { return };
        let answers = reservation.checks.iter_mut().flat_map(|checks| &mut checks.0);
        for answer in answers.filter(|answer| answer.name == said.check) {
            let pending = CheckAnswer::pending(said.check.clone(), self.now);
            let (state, requeue_after_seconds) = (said.state, said.after_seconds);
            *answer =
                CheckAnswer { state, requeue_after_seconds, retry_count: answer.retry_count, ..pending };
        }
        workload.version += 1;
        self.engine.apply(Event::Workload(Box::new(workload)), self.now);
    }

    fn add(&mut self, workload: &Workload) {
        let owner = self.has_jobs.then(|| job_of(&workload.uid));
        if let Some(owner) = &owner {
            self.follow(owner, workload.state.may_run(), &workload.uid);
        }
        let workload = Workload { owner, ..workload.clone() };
        self.engine.apply(Event::Workload(Box::new(workload)), self.now);
    }

    /// A Job is what its Workload lets it be. Says whether that is news.
    fn follow(&mut self, job: &Uid, runs: bool, uid: &Uid) -> bool {
        let ready = if self.ready.contains(uid) { 2 } else { 1 };
        let pods = runs.then_some(ReadyPods { ready, wanted: 2 });
        let facts = JobFacts { stopped: !runs, pods, ..JobFacts::default() };
        if self.jobs.get(job) == Some(&facts) {
            return false;
        }
        self.jobs.insert(job.clone(), facts.clone());
        self.engine.apply(Event::Job(job.clone(), facts), self.now);
        true
    }

    /// Says whether any Job has changed.
    fn jobs_follow(&mut self) -> bool {
        let mut changed = false;
        for uid in self.uids.clone() {
            let workload = self.engine.workload(&uid).filter(|_| self.has_jobs);
            if let Some(runs) = workload.map(|workload| workload.state.may_run()) {
                changed |= self.follow(&job_of(&uid), runs, &uid);
            }
        }
        changed
    }

    fn set_active(&mut self, uid: &Uid, active: bool) {
        let changes = |workload: &&Workload| workload.active != active && !workload.state.is_finished();
        if let Some(workload) = self.engine.workload(uid).filter(changes).cloned() {
            let version = workload.version + 1;
            let workload = Workload { active, version, ..workload };
            self.engine.apply(Event::Workload(Box::new(workload)), self.now);
        }
    }

    fn standing(&self) -> BTreeMap<Uid, Standing> {
        let known = self.uids.iter().filter_map(|uid| self.engine.workload(uid));
        let known = known.filter(|workload| self.has_jobs && !workload.state.is_finished());
        let standing = known.map(|workload| {
            let RequeueState { count, requeue_at } = requeue_state(workload);
            let standing = Standing {
                count,
                requeue_at: requeue_at.filter(|at| *at > self.now),
                active: workload.active,
                is_admitted: workload.state.may_run(),
                tried: tried(&workload.state),
            };
            (workload.uid.clone(), standing)
        });
        standing.collect()
    }

    fn finish(&mut self, uid: &Uid) {
        let holds = |workload: &&Workload| workload.state.reservation().is_some();
        let Some(mut workload) = self.engine.workload(uid).filter(holds).cloned() else { return };
        let finish = Finish { reason: FinishReason::Succeeded, message: String::new(), at: self.now };
        workload.version += 1;
        workload.state = State::Finished(finish.into(), Box::new(workload.state));
        self.engine.apply(Event::Workload(Box::new(workload)), self.now);
    }

    /// Carries out what is due until nothing is, and says who was evicted and why.
    fn do_what_is_due(&mut self) -> Vec<Evicted> {
        let mut evicted = Vec::new();
        loop {
            let jobs_changed = self.jobs_follow();
            let due = self.engine.decide_only_due(self.now, usize::MAX);
            if due.is_empty() && !jobs_changed {
                evicted.sort_by_key(|evicted: &Evicted| evicted.uid.clone());
                return evicted;
            }
            for decision in due {
                self.land(&decision);
                if let Action::Evict(reason, _) = &decision.action {
                    evicted.push(self.evicted(&decision.uid, *reason));
                }
            }
        }
    }

    fn evicted(&self, uid: &Uid, reason: EvictionReason) -> Evicted {
        let standing = self.engine.workload(uid).map(requeue_state);
        let RequeueState { count, requeue_at } = standing.unwrap_or_default();
        Evicted { uid: uid.clone(), reason: reason.as_str(), count, requeue_at }
    }

    fn land(&mut self, decision: &Decision) {
        if let Some(write) = self.engine.pending_write(decision.id) {
            let landed = Outcome::Landed(write.version + 1);
            self.engine.apply(Event::Outcome(decision.id, landed), self.now);
        }
    }

    /// One cycle, and then its victims are gone. None if there was nobody to try.
    fn cycle(&mut self) -> Option<Vec<Decided>> {
        let decisions = self.engine.decide_one_cycle(self.now)?;
        self.cycles += 1;
        for decision in &decisions {
            self.land(decision);
        }
        let mut decided = self.told(&decisions);
        decided.extend(self.do_what_is_due().into_iter().map(Decided::Left));
        Some(decided)
    }

    /// The decisions of a cycle: first who gave up all flavors, then the others in order, the victims of one preemptor
    /// together.
    fn told(&self, decisions: &[Decision]) -> Vec<Decided> {
        let (mut first, mut all): (Vec<Decided>, Vec<Decided>) = (Vec::new(), Vec::new());
        for Decision { uid, action, .. } in decisions {
            match action {
                Action::Admit(admission) | Action::Reserve(admission) => all.push(Decided::Admitted {
                    uid: uid.clone(),
                    queue: admission.cluster_queue.clone(),
                    flavors: flavors(admission),
                    may_start: matches!(action, Action::Admit(_)),
                }),
                Action::Evict(_, Some(preemption)) => {
                    let preemptor = preemption.preemptor.clone().unwrap_or_else(|| "nobody".into());
                    let victim = (uid.clone(), preemption.reason.to_string());
                    match all.last_mut() {
                        Some(Decided::Preempted { preemptor: same, victims }) if *same == preemptor => {
                            victims.push(victim);
                            victims.sort();
                        }
                        _ => all.push(Decided::Preempted { preemptor, victims: vec![victim] }),
                    }
                }
                Action::RetryAllFlavors => first.push(Decided::RetriesAll { uid: uid.clone() }),
                Action::Evict(reason, None) => first.push(Decided::Left(self.evicted(uid, *reason))),
                _ => {}
            }
        }
        first.sort_by_key(|decided| decided.uid().clone());
        first.extend(all);
        first
    }

    fn tick(&mut self) {
        if !self.has_jobs {
            self.now = build::at(START + i64::from(self.cycles) + 1);
        }
    }

    /// Cycles until nothing happens any more. Says whether it came to rest.
    fn settle(&mut self, cycles: &mut Vec<Vec<Decided>>) -> Result<bool, String> {
        let mut idle = 0;
        self.tick();
        let most_idle = if self.is_reference { IDLE_PASSES } else { IDLE_CYCLES };
        while idle < most_idle {
            if self.cycles >= MOST_CYCLES {
                return Ok(false);
            }
            let Some(more) = self.cycle() else { return Ok(true) };
            if !self.is_reference {
                self.engine
                    .check()
                    .map_err(|violation| format!("after cycle {}: {violation}", self.cycles))?;
            }
            self.tick();
            idle = if more.is_empty() { idle + 1 } else { 0 };
            cycles.push(more);
        }
        // The reference may try somebody for ever.
        if self.is_reference {
            return Ok(true);
        }
        Err(format!("{IDLE_CYCLES} cycles decided nothing, and there was always somebody to try"))
    }

    /// Everybody is tried once more, as after a restart; what comes of it.
    pub fn try_all_again(&mut self) -> Result<Vec<Decided>, String> {
        self.engine.reconsider();
        let mut cycles = Vec::new();
        self.settle(&mut cycles)?;
        Ok(cycles.concat())
    }

    fn holders(&self) -> Holders {
        let workloads = self.uids.iter().filter_map(|uid| self.engine.workload(uid));
        let holding = workloads.filter_map(|workload| Some((workload, workload.state.reservation()?)));
        holding.map(|(workload, held)| (workload.uid.clone(), flavors(&held.admission))).collect()
    }
}

fn job_of(uid: &Uid) -> Uid {
    format!("job-{uid}").as_str().into()
}

fn requeue_state(workload: &Workload) -> RequeueState {
    workload.state.requeue_state().copied().unwrap_or_default()
}

fn flavors(admission: &Admission) -> Vec<Vec<(ResourceName, FlavorName)>> {
    let sorted = |mut flavors: Vec<_>| {
        flavors.sort();
        flavors
    };
    admission.pod_sets.iter().map(|set| sorted(set.flavors.clone())).collect()
}

/// What a workload has tried, in the words of the model.
fn tried(state: &State) -> Tried {
    let attempts = state.history().map(|history| &history.0[..]).unwrap_or_default();
    let used = attempts.iter().map(|attempt| (attempt.flavor.clone(), attempt.accumulated_seconds));
    let given_up = attempts.iter().filter(|attempt| attempt.exhausted.is_some());
    Tried {
        used: used.filter(|(_, seconds)| *seconds > 0).collect(),
        given_up: given_up.map(|attempt| attempt.flavor.clone()).collect(),
        rounds: attempts.iter().map(|attempt| attempt.rounds).max().unwrap_or(0),
    }
}
