//! What happens in a simulation: queues, Jobs, people who interfere, and faults. Data, made from a seed.

use std::time::Duration;

use gangway_model::planted::{Bug, Planted};
use gangway_model::readiness::{RequeuingTimestamp, WaitForPodsReady};

use crate::fallbacks::{Fallbacks, Scarcity, add_fallbacks};
use crate::faults::Faults;

/// The queues of every scenario.
pub const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
/// The cohorts: `left` and `right` are below `root`.
pub const COHORTS: [&str; 3] = ["root", "left", "right"];
/// The flavors. The last is only there where flavors are given up.
pub const FLAVORS: [&str; 3] = ["f", "g", "h"];
/// How many of them every scenario has.
pub const USUAL_FLAVORS: usize = 2;
/// The flavors of the second group, where queues have one. Every node serves all of them.
pub const CARDS: [&str; 2] = ["x", "y"];
/// What is counted in it.
pub const CARD: &str = "example.com/card";

/// The name of a flavor of either group: those of the second are counted on from the first.
pub fn flavor_name(index: usize) -> &'static str {
    FLAVORS.get(index).or_else(|| CARDS.get(index - FLAVORS.len())).unwrap_or(&FLAVORS[0])
}

/// What a queue has of a flavor: in cpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Of its own.
    pub nominal: u32,
    /// How much more it may use.
    pub borrowing_limit: Option<u32>,
    /// How much of its own it lends.
    pub lending_limit: Option<u32>,
}

/// How a queue is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: &'static str,
    /// Its cohort.
    pub cohort: &'static str,
    /// StrictFIFO instead of BestEffortFIFO.
    pub is_strict: bool,
    /// One per flavor.
    pub quotas: Vec<Quota>,
    /// `withinClusterQueue`.
    pub within: &'static str,
    /// `reclaimWithinCohort`.
    pub reclaim: &'static str,
    /// Whether it preempts while it borrows.
    pub borrows_by_priority: bool,
    /// Which flavors it gives up, and which checks it demands.
    pub fallbacks: Fallbacks,
}

/// A Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// Its queue.
    pub queue: &'static str,
    /// How many pods.
    pub pods: u32,
    /// Cpus per pod.
    pub cpus: u32,
    /// Cards per pod.
    pub cards: u32,
    /// 0, 1 or 2.
    pub priority: u32,
    /// How long its pods run, in milliseconds.
    pub runs_millis: u64,
    /// How long its pods take to end when they are told to, in milliseconds.
    pub leaves_millis: u64,
    /// Whether its pods fail.
    pub fails: bool,
    /// How long its pods take to be ready, in milliseconds; none if they never are.
    pub ready_millis: Option<u64>,
}

/// Something that somebody does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A user submits a Job.
    Submit(JobPlan),
    /// A user deletes a Job.
    Delete(String),
    /// A user deletes a Job and submits another under its name at once.
    Recreate(String),
    /// A user suspends a Job by hand.
    Suspend(String),
    /// A user lets a Job run by hand.
    Unsuspend(String),
    /// A user sets `spec.active` of the Job's Workload.
    SetActive(String, bool),
    /// An administrator changes a quota.
    SetQuota(&'static str, usize, Quota),
    /// An administrator moves a queue.
    SetCohort(&'static str, &'static str),
    /// An administrator gives a cohort quota of its own, or takes it away.
    SetCohortQuota(&'static str, u32),
    /// An administrator stops a queue or lets it go on.
    SetStopPolicy(&'static str, &'static str),
    /// An administrator changes which flavors a queue has and gives up, and which checks it demands.
    SetFallbacks(&'static str, Fallbacks),
    /// A user moves a Job that is suspended to another queue.
    Move(String, &'static str),
    /// There are no machines of a flavor any more, or there are again.
    SetStock(&'static str, bool),
    /// An administrator changes the labels that a flavor puts on pods, to the same values: everybody looks again.
    TouchFlavor(&'static str),
    /// The controller dies with its nth write from now on, and starts again a little later.
    CrashAfter(u64),
    /// The controller's clock is set this many seconds ahead of time, or behind it.
    StepClock(i64),
    /// The controller that leads stands still for this many seconds and then goes on as if nothing had been.
    Freeze(u64),
    /// No request of the controller that leads arrives for this many seconds; what it watches still comes.
    CutOff(u64),
}

impl Deed {
    /// Whether the definitions change by it.
    pub fn redefines(&self) -> bool {
        matches!(
            self,
            Self::SetQuota(..)
                | Self::SetCohort(..)
                | Self::SetCohortQuota(..)
                | Self::SetStopPolicy(..)
                | Self::SetFallbacks(..)
                | Self::TouchFlavor(_)
        )
    }
}

/// Something that happens at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    /// When, since the beginning.
    pub at: Duration,
    /// What.
    pub what: Deed,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// From which everything else follows that is not written down here.
    pub seed: u64,
    /// How many Jobs there were to be.
    pub jobs: usize,
    /// Two controllers, of which one is elected; else there is one, and no election.
    pub is_elected: bool,
    /// A mistake that the controller is to make.
    pub planted: Planted,
    /// When pods have to be ready; none if nobody asks.
    pub readiness: Option<WaitForPodsReady>,
    /// Machines that do not come, and checks; none if all come and nobody asks.
    pub scarcity: Option<Scarcity>,
    /// The queues.
    pub queues: Vec<Queue>,
    /// What goes wrong while things happen.
    pub faults: Faults,
    /// What happens, in order.
    pub acts: Vec<Act>,
}

/// Where all chance comes from.
pub(crate) struct Dice(pub(crate) fastrand::Rng);

impl Dice {
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.0.usize(0..all.len())]
    }

    pub(crate) fn in_a_thousand(&mut self, chance: u32) -> bool {
        self.0.u32(0..1000) < chance
    }

    fn limit(&mut self) -> Option<u32> {
        self.in_a_thousand(400).then(|| self.0.u32(0..4))
    }

    pub(crate) fn quota(&mut self) -> Quota {
        let nominal = self.0.u32(0..5);
        Quota {
            nominal,
            borrowing_limit: self.limit(),
            lending_limit: self.limit().map(|limit| limit.min(nominal)),
        }
    }

    fn queue(&mut self, name: &'static str) -> Queue {
        let reclaim = self.one_of(&["Never", "LowerPriority", "Any"]);
        Queue {
            name,
            cohort: self.one_of(&COHORTS),
            is_strict: self.in_a_thousand(300),
            quotas: vec![self.quota(), self.quota()],
            within: self.one_of(&["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            reclaim,
            borrows_by_priority: reclaim != "Never" && self.in_a_thousand(400),
            fallbacks: Fallbacks::none(USUAL_FLAVORS),
        }
    }

    fn job(&mut self, number: usize) -> JobPlan {
        JobPlan {
            name: format!("j{number:03}"),
            queue: self.one_of(&QUEUES),
            pods: self.0.u32(1..4),
            cpus: self.0.u32(1..3),
            cards: 0,
            priority: self.0.u32(0..3),
            runs_millis: self.0.u64(200..60_000),
            leaves_millis: if self.in_a_thousand(500) { 0 } else { self.0.u64(0..30_000) },
            fails: self.in_a_thousand(100),
            ready_millis: Some(0),
        }
    }

    fn readiness(&mut self) -> WaitForPodsReady {
        WaitForPodsReady {
            timeout_seconds: self.0.i64(5..40),
            recovery_timeout_seconds: self.in_a_thousand(700).then(|| self.0.i64(2..30)),
            block_admission: self.in_a_thousand(300),
            timestamp: self.one_of(&[RequeuingTimestamp::Eviction, RequeuingTimestamp::Creation]),
            backoff_limit_count: Some(self.0.u32(0..3)),
            backoff_base_seconds: self.0.u32(0..20),
            backoff_max_seconds: self.0.u32(0..60),
            reset_after_ready_seconds: self.one_of(&[0, 5, 60]),
        }
    }

    fn faults(&mut self) -> Faults {
        let mut often = |most: u32| if self.0.u32(0..3) == 0 { 0 } else { self.0.u32(0..most) };
        Faults {
            latency_millis: u64::from(often(200)),
            conflict: often(60),
            busy: often(40),
            broken: often(40),
            answer_lost: often(80),
            cut: often(30),
            expired: often(20),
            twice: often(80),
            lag_millis: u64::from(often(1500)),
            old_list: often(300),
        }
    }

    fn interference(&mut self, jobs: usize) -> Deed {
        let job = format!("j{:03}", self.0.usize(0..jobs.max(1)));
        let queue = self.one_of(&QUEUES);
        match self.0.u32(0..13) {
            0 => Deed::Delete(job),
            1 => Deed::Recreate(job),
            2 => Deed::Suspend(job),
            3 => Deed::Unsuspend(job),
            4 => Deed::SetActive(job, self.0.bool()),
            5 | 6 => Deed::SetQuota(queue, self.0.usize(0..USUAL_FLAVORS), self.quota()),
            7 => Deed::SetCohort(queue, self.one_of(&COHORTS)),
            8 => Deed::SetCohortQuota(self.one_of(&COHORTS), self.0.u32(0..4)),
            9 => Deed::SetStopPolicy(queue, self.one_of(&["None", "None", "Hold", "HoldAndDrain"])),
            10 => Deed::TouchFlavor(self.one_of(&FLAVORS[..USUAL_FLAVORS])),
            11 => Deed::CrashAfter(self.0.u64(1..40)),
            _ => Deed::StepClock(self.0.i64(-120..120)),
        }
    }
}

/// Says whether there are two controllers, and adds what happens to the one that leads. The dice are its own, so that
/// all else of a scenario is the same with two.
fn add_hand_overs(seed: u64, span: u64, jobs: usize, acts: &mut Vec<Act>) -> bool {
    let mut dice = Dice(fastrand::Rng::with_seed(seed ^ 0x1ead));
    let is_elected = dice.in_a_thousand(300);
    for _ in 0..if is_elected { 1 + jobs / 8 } else { 0 } {
        let at = Duration::from_millis(dice.0.u64(0..span + 30_000));
        let seconds = dice.0.u64(1..90);
        let what = match dice.0.u32(0..3) {
            0 => Deed::Freeze(seconds),
            1 => Deed::CutOff(seconds),
            _ => Deed::CrashAfter(seconds),
        };
        acts.push(Act { at, what });
    }
    is_elected
}

/// Says when pods have to be ready, if they have to, and makes some Jobs slow and some hopeless. The dice are its own, so
/// that all else of a scenario is the same.
fn add_readiness(seed: u64, acts: &mut [Act], asked: Option<bool>) -> Option<WaitForPodsReady> {
    let mut dice = Dice(fastrand::Rng::with_seed(seed ^ 0x4ead));
    let by_lot = dice.in_a_thousand(300);
    let is_asked = asked.unwrap_or(by_lot);
    let readiness = is_asked.then(|| dice.readiness())?;
    for act in acts {
        if let Deed::Submit(plan) = &mut act.what {
            plan.ready_millis = match dice.0.u32(0..10) {
                0 => None,
                1..4 => Some(dice.0.u64(0..60_000)),
                _ => Some(0),
            };
        }
    }
    Some(readiness)
}

/// What a scenario has to be about, or must not be; none is by lot.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    readiness: Option<bool>,
    fallbacks: Option<bool>,
}

impl Scenario {
    /// A scenario with this many Jobs and a third as many interferences. The same seed makes the same one.
    pub fn random(seed: u64, jobs: usize) -> Self {
        Self::asked_for(seed, jobs, Asked::default())
    }

    fn asked_for(seed: u64, jobs: usize, asked: Asked) -> Self {
        let mut dice = Dice(fastrand::Rng::with_seed(seed));
        let queues = QUEUES.map(|name| dice.queue(name)).into();
        let faults = dice.faults();
        let span = 1_000 + 2_000 * jobs as u64;
        let mut acts: Vec<Act> = Vec::new();
        for number in 0..jobs {
            let at = Duration::from_millis(dice.0.u64(0..span));
            acts.push(Act { at, what: Deed::Submit(dice.job(number)) });
        }
        for _ in 0..jobs / 3 {
            let at = Duration::from_millis(dice.0.u64(0..span + 30_000));
            acts.push(Act { at, what: dice.interference(jobs) });
        }
        let is_elected = add_hand_overs(seed, span, jobs, &mut acts);
        let readiness = add_readiness(seed, &mut acts, asked.readiness);
        let planted = Planted::default();
        let mut scenario =
            Self { seed, jobs, is_elected, planted, readiness, scarcity: None, queues, faults, acts };
        add_fallbacks(&mut scenario, span, asked.fallbacks);
        scenario.acts.sort_by_key(|act| act.at);
        scenario
    }

    /// The same with a mistake, where that can show: pods have to be ready in time, or machines do not come, if it is about
    /// that, and neither is so otherwise, so that nothing else is in its way.
    pub fn with_mistake(self, bug: Bug) -> Self {
        let asked =
            Asked { readiness: Some(bug.is_about_readiness()), fallbacks: Some(bug.is_about_fallbacks()) };
        Self { planted: Some(bug).into(), ..Self::asked_for(self.seed, self.jobs, asked) }
    }

    /// The flavors that there are.
    pub fn flavors(&self) -> &'static [&'static str] {
        &FLAVORS[..self.scarcity.as_ref().map_or(USUAL_FLAVORS, |scarcity| scarcity.flavors)]
    }

    /// By how many seconds the clock of a controller may be wrong.
    pub fn clock_error_seconds(&self) -> i64 {
        let step = |act: &Act| if let Deed::StepClock(seconds) = act.what { seconds.abs() } else { 0 };
        self.acts.iter().map(step).max().unwrap_or(0)
    }

    /// How often somebody interferes or submits.
    pub fn occasions(&self) -> usize {
        self.acts.len()
    }
}
