//! Flavors whose machines do not come, queues that give them up, and checks that have to agree. Data, made from a seed.

use std::time::Duration;

use gangway_model::readiness::WaitForPodsReady;

use crate::scenario::{Act, CARDS, Deed, Dice, FLAVORS, JobPlan, QUEUES, Scenario, USUAL_FLAVORS};

/// The checks that queues may demand.
pub const CHECKS: [&str; 2] = ["budget", "stock"];

/// Which flavors a queue has and gives up, and which checks it demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallbacks {
    /// The flavors that it has, in the order in which they are tried.
    pub flavors: Vec<usize>,
    /// The same of the second group, with how much it has of each; empty if there is no such group.
    pub cards: Vec<(usize, u32)>,
    /// When it gives one up; none if never.
    pub strategy: Option<Strategy>,
    /// The checks.
    pub checks: Vec<Demand>,
}

impl Fallbacks {
    /// So many flavors, of which none is given up, and no checks.
    pub fn none(flavors: usize) -> Self {
        let (flavors, cards) = ((0..flavors).collect(), Vec::new());
        Self { flavors, cards, strategy: None, checks: Vec::new() }
    }
}

/// `fallbackStrategy` of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// Whoever has given up all is deactivated, instead of trying all again.
    pub deactivates: bool,
    /// Its rules.
    pub rules: Vec<Rule>,
}

/// A rule of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The flavor; none is `*`.
    pub flavor: Option<usize>,
    /// It is about checks that reject, instead of about time.
    pub is_about_checks: bool,
    /// How long it may take, if it is about time; none is for ever.
    pub timeout_seconds: Option<u32>,
}

/// A check that a queue demands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Its name.
    pub check: &'static str,
    /// The flavors that it is about; empty is all.
    pub flavors: Vec<usize>,
}

/// Machines that do not come, and checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scarcity {
    /// How many flavors there are.
    pub flavors: usize,
    /// Queues have a second group of flavors, and some Jobs ask for it, too.
    pub has_cards: bool,
    /// What is gone in the end stays away, and what was never answered never is. Then nobody tries all flavors again:
    /// that would never end.
    pub lasts: bool,
}

/// No flavor is given up sooner: pods of Jobs that are not hopeless are ready by then, if there are machines.
const SHORTEST_SECONDS: u32 = 15;
/// See above.
const SLOWEST_MILLIS: u64 = 8_000;
/// Who tries all flavors for ever does so once an hour in the end. With more of them it would never be quiet for long.
const HOPELESS_JOBS: usize = 2;

impl Dice {
    /// Some of the flavors, in any order.
    fn some_flavors(&mut self, flavors: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..flavors).collect();
        self.0.shuffle(&mut all);
        if self.in_a_thousand(150) {
            all.pop();
        }
        all
    }

    fn rule(&mut self, flavor: Option<usize>) -> Rule {
        let timeout_seconds = (!self.in_a_thousand(150)).then(|| SHORTEST_SECONDS + self.0.u32(0..30));
        Rule { flavor, is_about_checks: false, timeout_seconds }
    }

    fn strategy(&mut self, flavors: &[usize], deactivates: bool) -> Strategy {
        let mut rules = Vec::new();
        if self.in_a_thousand(600) {
            let timeout_seconds = Some(SHORTEST_SECONDS + self.0.u32(0..30));
            rules.push(Rule { flavor: None, is_about_checks: false, timeout_seconds });
        }
        for flavor in flavors {
            if self.in_a_thousand(500) {
                rules.push(self.rule(Some(*flavor)));
            }
            if self.in_a_thousand(300) {
                rules.push(Rule { flavor: Some(*flavor), is_about_checks: true, timeout_seconds: None });
            }
        }
        if self.in_a_thousand(400) {
            rules.push(Rule { flavor: None, is_about_checks: true, timeout_seconds: None });
        }
        Strategy { deactivates, rules }
    }

    fn demands(&mut self, flavors: &[usize]) -> Vec<Demand> {
        let mut demands = Vec::new();
        for check in CHECKS {
            if self.in_a_thousand(250) {
                let is_about = |dice: &mut Self| {
                    flavors.iter().copied().filter(|_| dice.in_a_thousand(600)).collect::<Vec<_>>()
                };
                let flavors = if self.in_a_thousand(500) { Vec::new() } else { is_about(self) };
                demands.push(Demand { check, flavors });
            }
        }
        demands
    }

    fn fallbacks(&mut self, scarcity: &Scarcity) -> Fallbacks {
        let flavors = self.some_flavors(scarcity.flavors);
        let deactivates = scarcity.lasts || self.in_a_thousand(400);
        let cards = if scarcity.has_cards { self.cards() } else { Vec::new() };
        let listed = [flavors.clone(), cards.iter().map(|(flavor, _)| *flavor).collect()].concat();
        let strategy = self.in_a_thousand(800).then(|| self.strategy(&listed, deactivates));
        let checks = self.demands(&listed);
        Fallbacks { flavors, cards, strategy, checks }
    }

    fn cards(&mut self) -> Vec<(usize, u32)> {
        let flavors = self.some_flavors(CARDS.len());
        flavors.into_iter().map(|flavor| (FLAVORS.len() + flavor, self.0.u32(1..5))).collect()
    }

    fn moment(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.0.u64(from..to.max(from + 1)))
    }
}

/// Lets machines of some flavors not come, and queues give flavors up and demand checks, if so. The dice are its own, so that
/// all else of a scenario is the same.
pub fn add_fallbacks(scenario: &mut Scenario, span: u64, asked: Option<bool>) {
    let mut dice = Dice(fastrand::Rng::with_seed(scenario.seed ^ 0xfa11));
    let by_lot = dice.in_a_thousand(330);
    if !asked.unwrap_or(by_lot) {
        return;
    }
    let flavors = if dice.0.bool() { USUAL_FLAVORS } else { FLAVORS.len() };
    let lasts = dice.in_a_thousand(350);
    let scarcity = Scarcity { flavors, has_cards: dice.in_a_thousand(400), lasts };
    for queue in &mut scenario.queues {
        queue.quotas.resize_with(flavors, || dice.quota());
        queue.fallbacks = if dice.in_a_thousand(800) {
            dice.fallbacks(&scarcity)
        } else {
            let cards = if scarcity.has_cards { dice.cards() } else { Vec::new() };
            Fallbacks { cards, ..Fallbacks::none(flavors) }
        };
    }
    add_stock_outs(&mut dice, span, flavors, &mut scenario.acts);
    add_edits(&mut dice, span, scenario.jobs, &scarcity, &mut scenario.acts);
    slow_down(&mut dice, &scarcity, &mut scenario.acts);
    if scarcity.has_cards {
        ask_for_cards(&mut dice, &mut scenario.acts);
    }
    add_moves(&mut dice, span, scenario.jobs, &mut scenario.acts);
    scenario.readiness = scenario.readiness.take().map(with_growing_backoff);
    scenario.scarcity = Some(scarcity);
}

fn add_stock_outs(dice: &mut Dice, span: u64, flavors: usize, acts: &mut Vec<Act>) {
    for flavor in &FLAVORS[..flavors] {
        for _ in 0..if dice.in_a_thousand(700) { 1 + dice.0.u32(0..2) } else { 0 } {
            let at = dice.moment(0, span);
            acts.push(Act { at, what: Deed::SetStock(flavor, false) });
            if dice.in_a_thousand(600) {
                let at = at + dice.moment(1_000, 90_000);
                acts.push(Act { at, what: Deed::SetStock(flavor, true) });
            }
        }
    }
}

/// Administrators think again, and people want their Workloads back that were deactivated.
fn add_edits(dice: &mut Dice, span: u64, jobs: usize, scarcity: &Scarcity, acts: &mut Vec<Act>) {
    for _ in 0..if dice.in_a_thousand(600) { 1 + jobs / 12 } else { 0 } {
        let at = dice.moment(0, span + 60_000);
        let queue = dice.one_of(&QUEUES);
        acts.push(Act { at, what: Deed::SetFallbacks(queue, dice.fallbacks(scarcity)) });
    }
    for _ in 0..jobs / 6 {
        let at = dice.moment(span, span + 180_000);
        let job = format!("j{:03}", dice.0.usize(0..jobs.max(1)));
        acts.push(Act { at, what: Deed::SetActive(job, true) });
    }
}

fn ask_for_cards(dice: &mut Dice, acts: &mut [Act]) {
    for act in acts {
        if let Deed::Submit(plan) = &mut act.what {
            plan.cards = u32::from(dice.in_a_thousand(600));
        }
    }
}

/// People think that it goes faster elsewhere.
fn add_moves(dice: &mut Dice, span: u64, jobs: usize, acts: &mut Vec<Act>) {
    for _ in 0..if dice.in_a_thousand(600) { 1 + jobs / 6 } else { 0 } {
        let at = dice.moment(0, span + 60_000);
        let job = format!("j{:03}", dice.0.usize(0..jobs.max(1)));
        acts.push(Act { at, what: Deed::Move(job, dice.one_of(&QUEUES)) });
    }
}

/// Pods take a while to be ready, and those of some Jobs never are.
fn slow_down(dice: &mut Dice, scarcity: &Scarcity, acts: &mut [Act]) {
    let mut hopeless = 0;
    for act in acts {
        let Deed::Submit(JobPlan { ready_millis, .. }) = &mut act.what else { continue };
        *ready_millis = match dice.0.u32(0..10) {
            0 if scarcity.lasts => None,
            1 if scarcity.lasts => Some(dice.0.u64(0..60_000)),
            0 if hopeless < HOPELESS_JOBS => {
                hopeless += 1;
                None
            }
            0..5 => Some(dice.0.u64(0..SLOWEST_MILLIS)),
            _ => Some(0),
        };
    }
}

/// Whoever tries all flavors again and again does so more and more seldom: otherwise it would never be quiet.
fn with_growing_backoff(settings: WaitForPodsReady) -> WaitForPodsReady {
    let backoff_base_seconds = settings.backoff_base_seconds.max(10);
    WaitForPodsReady { backoff_base_seconds, backoff_max_seconds: 3600, ..settings }
}
