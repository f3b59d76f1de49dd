//! Plays a scenario with the engine and with the model, by the rounds and cycles of the replay protocol.

use std::collections::BTreeMap;

use gangway_admission::{Action, Decision, Engine, Event, Outcome, Rules};
use gangway_model::reasons::FinishReason;
use gangway_model::workload::{Admission, Finish, State, Workload};
use gangway_model::{FlavorName, ResourceName, Timestamp, Uid};

use super::generate::Scenario;
use crate::build;
use crate::quota_model::{self, Decided, Evicted, IDLE_PASSES, Model, ReplayClock};

/// When the first cycle runs.
pub const START: i64 = 10_000;
/// After so many cycles in one scenario it will not come to rest.
pub const MOST_CYCLES: u32 = 300;
/// After so many cycles in a row without a decision nothing will be decided any more: every workload had
/// its turn with every flavor, more than once.
const IDLE_CYCLES: u32 = 30;

/// What was decided in a round, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Round {
    pub evicted: Vec<(Uid, String)>,
    /// By cycle.
    pub cycles: Vec<Vec<Decided>>,
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
    let mut clock = ReplayClock { start: build::at(START), passes: 0, limit: MOST_CYCLES };
    let mut played = Played { at_rest: true, ..Played::default() };
    for round in 0..=scenario.last_round() {
        for (_, uid) in scenario.finishes.iter().filter(|(at, _)| *at == round) {
            model.finish(uid);
        }
        for (_, workload) in scenario.workloads.iter().filter(|(at, _)| *at == round) {
            model.add(workload.clone());
        }
        let told = |evicted: Evicted| (evicted.uid, evicted.reason.to_owned());
        let evicted = model.begin_round().into_iter().map(told).collect();
        let settled = model.settle(&mut clock);
        played.rounds.push(Round { evicted, cycles: settled.passes });
        let holders = model.holders().keys().map(|uid| (uid.clone(), model.flavors_of(uid).to_vec()));
        played.holders.push(holders.collect());
        if !settled.at_rest {
            played.at_rest = false;
            break;
        }
    }
    (played, model)
}

/// The engine with a clock, and an API that stores everything at once.
pub struct Driver {
    engine: Engine,
    now: Timestamp,
    cycles: u32,
    uids: Vec<Uid>,
    is_reference: bool,
}

/// Plays a scenario with the engine.
pub fn play_engine(scenario: &Scenario, rules: Rules) -> Result<(Played, Driver), String> {
    let mut driver = Driver::new(scenario, rules);
    let mut played = Played { at_rest: true, ..Played::default() };
    for round in 0..=scenario.last_round() {
        let mut done = Round { evicted: driver.begin_round(scenario, round), ..Round::default() };
        driver.engine.reconsider();
        played.at_rest = driver.settle(&mut done.cycles)?;
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
        let mut engine = Engine::with_rules(rules);
        let now = build::at(START);
        for event in flavors.chain(cohorts).chain(queues).chain(locals).chain(namespaces) {
            engine.apply(event, now);
        }
        let uids = scenario.workloads.iter().map(|(_, workload)| workload.uid.clone()).collect();
        Self { engine, now, cycles: 0, uids, is_reference: rules == Rules::reference() }
    }

    fn begin_round(&mut self, scenario: &Scenario, round: u32) -> Vec<(Uid, String)> {
        for (_, uid) in scenario.finishes.iter().filter(|(at, _)| *at == round) {
            self.finish(uid);
        }
        for (_, workload) in scenario.workloads.iter().filter(|(at, _)| *at == round) {
            self.engine.apply(Event::Workload(Box::new(workload.clone())), self.now);
        }
        if round == 0 {
            self.engine.apply(Event::Synced, self.now);
        }
        let mut evicted = self.do_what_is_due();
        evicted.sort();
        evicted
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
    fn do_what_is_due(&mut self) -> Vec<(Uid, String)> {
        let mut evicted = Vec::new();
        loop {
            let due = self.engine.decide_only_due(self.now, usize::MAX);
            if due.is_empty() {
                return evicted;
            }
            for decision in due {
                if let Action::Evict(reason, _) = &decision.action {
                    evicted.push((decision.uid.clone(), reason.to_string()));
                }
                self.land(&decision);
            }
        }
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
        self.do_what_is_due();
        Some(told(&decisions))
    }

    /// Cycles until nothing happens any more. Says whether it came to rest.
    fn settle(&mut self, cycles: &mut Vec<Vec<Decided>>) -> Result<bool, String> {
        let mut idle = 0;
        self.now = build::at(START + i64::from(self.cycles) + 1);
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
            self.now = build::at(START + i64::from(self.cycles) + 1);
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

fn flavors(admission: &Admission) -> Vec<Vec<(ResourceName, FlavorName)>> {
    let sorted = |mut flavors: Vec<_>| {
        flavors.sort();
        flavors
    };
    admission.pod_sets.iter().map(|set| sorted(set.flavors.clone())).collect()
}

/// The decisions of a cycle, the victims of one preemptor together.
fn told(decisions: &[Decision]) -> Vec<Decided> {
    let mut all: Vec<Decided> = Vec::new();
    for decision in decisions {
        match &decision.action {
            Action::Admit(admission) => all.push(Decided::Admitted {
                uid: decision.uid.clone(),
                queue: admission.cluster_queue.clone(),
                flavors: flavors(admission),
            }),
            Action::Evict(_, Some(preemption)) => {
                let preemptor = preemption.preemptor.clone().unwrap_or_else(|| "nobody".into());
                let victim = (decision.uid.clone(), preemption.reason.to_string());
                match all.last_mut() {
                    Some(Decided::Preempted { preemptor: same, victims }) if *same == preemptor => {
                        victims.push(victim);
                    }
                    _ => all.push(Decided::Preempted { preemptor, victims: vec![victim] }),
                }
            }
            _ => {}
        }
    }
    for decided in &mut all {
        if let Decided::Preempted { victims, .. } = decided {
            victims.sort();
        }
    }
    all
}
