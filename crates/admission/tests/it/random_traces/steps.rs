//! What may happen in a trace, drawn at random.

use gangway_model::queues::*;

use crate::build::*;
use crate::quota_scenarios::random::Random;

pub const QUEUES: [&str; 4] = ["a", "b", "c", "d"];
const COHORTS: [&str; 3] = ["root", "left", "right"];
const FLAVORS: [&str; 2] = ["f", "g"];

/// How many steps a trace has.
const STEPS: usize = 70;

/// Something that happens. Whom it happens to is a number that is counted through those whom it may happen to then, so
/// that a step means something whichever steps before it are left out.
#[derive(Clone, Debug)]
pub enum Step {
    Submit {
        queue: &'static str,
        amount: i64,
        priority: i32,
        created: i64,
        flavor: Option<&'static str>,
        job: bool,
    },
    Delete(usize),
    Activate(usize, bool),
    Prioritize(usize, i32),
    /// The pods of somebody who has to leave are gone.
    Stop(usize),
    /// Whether a Job has pods, which may outlive it.
    Pods(usize, bool),
    Decide {
        budget: usize,
        seconds: i64,
    },
    /// Somebody's write ends.
    Write(usize, Ending),
    /// All writes under way are stored.
    WriteAll,
    /// What others changed is seen.
    Watch,
    Restart,
    Quota(&'static str, Vec<ResourceGroup>),
    Move(&'static str, &'static str),
    Cohort(&'static str, Option<&'static str>, Vec<ResourceGroup>),
    StopQueue(&'static str, StopPolicy),
}

/// How a write ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Stored,
    /// Somebody else was faster.
    Conflict,
    Refused,
    /// It is stored, and nobody is told.
    StoredAndLost,
    /// It is not stored, and nobody is told.
    Lost,
}

/// A setup and what happens in it.
#[derive(Clone, Debug)]
pub struct Trace {
    pub queues: Vec<ClusterQueue>,
    pub steps: Vec<Step>,
}

impl Trace {
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let queues = QUEUES.iter().map(|name| queue(&mut random, name)).collect();
        let steps = (0..STEPS).map(|_| step(&mut random)).collect();
        Self { queues, steps }
    }
}

fn index(random: &mut Random) -> usize {
    usize::try_from(random.between(0, 999)).unwrap_or(0)
}

fn step(random: &mut Random) -> Step {
    match random.between(0, 27) {
        0..=8 => Step::Submit {
            queue: random.one_of(&QUEUES),
            amount: random.between(1, 4),
            priority: priority(random),
            created: random.between(0, 200),
            flavor: random.one_of(&[None, None, Some("f"), Some("g")]),
            job: random.percent(50),
        },
        9 => Step::Delete(index(random)),
        10 => Step::Activate(index(random), random.percent(66)),
        11 => Step::Prioritize(index(random), priority(random)),
        12..=14 => Step::Stop(index(random)),
        15 => Step::Pods(index(random), random.percent(60)),
        16..=19 => {
            let budget = usize::try_from(random.between(1, 4)).unwrap_or(1);
            Step::Decide { budget, seconds: random.between(0, 2) }
        }
        20 | 21 => Step::Write(index(random), ending(random)),
        22 => Step::WriteAll,
        23 => Step::Watch,
        24 => Step::Restart,
        _ => definition(random),
    }
}

fn priority(random: &mut Random) -> i32 {
    random.one_of(&[0, 1, 2])
}

fn ending(random: &mut Random) -> Ending {
    let endings = [Ending::Stored, Ending::Conflict, Ending::Refused, Ending::StoredAndLost, Ending::Lost];
    random.one_of(&endings)
}

fn definition(random: &mut Random) -> Step {
    let queue = random.one_of(&QUEUES);
    match random.between(0, 3) {
        0 => Step::Quota(queue, groups(random)),
        1 => Step::Move(queue, random.one_of(&COHORTS)),
        2 => {
            let parent = random.one_of(&[None, Some("root"), Some("left")]);
            let groups = if random.percent(50) { groups(random) } else { Vec::new() };
            // A Cohort lends to nobody here, so that its lending limit says nothing.
            Step::Cohort(random.one_of(&COHORTS), parent, groups)
        }
        _ => {
            let none = StopPolicy::None;
            let policy = random.one_of(&[none, none, StopPolicy::Hold, StopPolicy::HoldAndDrain]);
            Step::StopQueue(queue, policy)
        }
    }
}

fn queue(random: &mut Random, name: &str) -> ClusterQueue {
    let policies = [FungibilityPolicy::MayStopSearch, FungibilityPolicy::TryNextFlavor];
    let preferences =
        [FungibilityPreference::BorrowingOverPreemption, FungibilityPreference::PreemptionOverBorrowing];
    let strict = random.percent(25);
    ClusterQueue {
        preemption: preemption(random),
        fungibility: Fungibility {
            when_can_borrow: random.one_of(&policies),
            when_can_preempt: random.one_of(&policies),
            preference: random.one_of(&preferences),
        },
        strategy: if strict { QueueingStrategy::StrictFifo } else { QueueingStrategy::BestEffortFifo },
        ..member(name, random.one_of(&COHORTS), groups(random))
    }
}

fn preemption(random: &mut Random) -> PreemptionPolicy {
    use {BorrowWithinCohort as Borrow, ReclaimWithinCohort as Reclaim, WithinClusterQueue as Within};
    let lower = |max_priority| Borrow::LowerPriority { max_priority };
    PreemptionPolicy {
        within_cluster_queue: random.one_of(&[
            Within::Never,
            Within::LowerPriority,
            Within::LowerOrNewerEqualPriority,
        ]),
        reclaim_within_cohort: random.one_of(&[Reclaim::Never, Reclaim::LowerPriority, Reclaim::Any]),
        borrow_within_cohort: random.one_of(&[
            Borrow::Never,
            Borrow::Never,
            lower(None),
            lower(Some(0)),
            lower(Some(1)),
        ]),
    }
}

fn groups(random: &mut Random) -> Vec<ResourceGroup> {
    let quotas: Vec<(&str, Quota)> = FLAVORS
        .iter()
        .map(|flavor| {
            let nominal = random.between(0, 4);
            let borrowing = random.percent(50).then(|| random.between(0, 3));
            let lending = random.percent(50).then(|| random.between(0, nominal));
            (*flavor, limited(nominal, borrowing, lending))
        })
        .collect();
    cpu_group(&quotas)
}
