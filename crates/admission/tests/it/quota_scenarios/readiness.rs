//! Scenarios in which pods have to be ready in time: when each round begins, whose pods are ready from when on, and whom
//! somebody activates.

use gangway_model::Uid;
use gangway_model::readiness::{RequeuingTimestamp, Timeouts, WaitForPodsReady};
use gangway_model::workload::{RequeueState, State};

use super::drive::START;
use super::generate::Scenario;
use super::random::Random;
use crate::build;

/// In so many of a hundred scenarios pods have to be ready in time.
const SHARE: i64 = 40;

/// How long it takes from one round to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    Seconds(i64),
    /// Until a deadline or a backoff ends.
    UntilDue,
    /// Until a second before that.
    UntilJustBefore,
}

/// What a scenario has in which pods have to be ready in time, for the configuration or for a flavor. While a round lasts,
/// time stands still.
#[derive(Clone, Debug)]
pub struct Readiness {
    /// None if the configuration does not ask.
    pub settings: Option<WaitForPodsReady>,
    /// Before each round but the first.
    pub pauses: Vec<Pause>,
    /// From this round on all pods of a workload are ready when it runs, or are not.
    pub pods: Vec<(u32, Uid, bool)>,
    /// In this round somebody sets whether a workload is active.
    pub activations: Vec<(u32, Uid, bool)>,
}

impl Readiness {
    /// Whether one starts at a time.
    pub fn is_sequential(&self) -> bool {
        self.settings.as_ref().is_some_and(|settings| settings.block_admission)
    }
}

/// Lets pods have to be ready in some scenarios. The numbers are drawn for this alone, so that all else stays as it is.
pub fn add(scenario: &mut Scenario, seed: u64) {
    let mut random = Random::new(seed ^ 0x4ead_4ead);
    if random.percent(SHARE) {
        let_time_pass(scenario, &mut random, true);
    }
}

/// Lets time pass between the rounds, and Jobs have pods. With `has_settings` the configuration asks when they are ready.
pub fn let_time_pass(scenario: &mut Scenario, random: &mut Random, has_settings: bool) {
    let rounds = random.between(5, 8).max(i64::from(scenario.last_round()));
    let mut readiness = Readiness {
        settings: has_settings.then(|| settings(random)),
        pauses: (0..rounds).map(|_| pause(random)).collect(),
        pods: Vec::new(),
        activations: Vec::new(),
    };
    for (_, workload) in &mut scenario.workloads {
        let uid = &workload.uid;
        readiness.pods.extend(pods(random, rounds).map(|(round, ready)| (round, uid.clone(), ready)));
        let acts = activations(random, rounds);
        readiness.activations.extend(acts.map(|(round, active)| (round, uid.clone(), active)));
        if random.percent(10) {
            workload.timeouts = Some(Box::new(timeouts(random, &[50, 150, 900])));
        }
        if let State::Holding(reservation) = &mut workload.state {
            // It began to start a while ago, and not for ever.
            let second = reservation.reserved_at.as_seconds() % 1000;
            reservation.reserved_at = build::at(START - 200 + second);
            reservation.admitted_at = Some(reservation.reserved_at);
            let count = random.one_of(&[0, 0, 1, 1, 2]);
            reservation.requeue_state = RequeueState { count, requeue_at: None }.noted();
        }
    }
    for queue in &mut scenario.setup.cluster_queues {
        if random.percent(10) {
            queue.timeouts = timeouts(random, &[0, 80, 250, 600]);
            queue.timeouts.start_seconds = queue.timeouts.start_seconds.filter(|seconds| *seconds > 0);
        }
    }
    scenario.readiness = Some(readiness);
}

fn settings(random: &mut Random) -> WaitForPodsReady {
    WaitForPodsReady {
        timeout_seconds: random.one_of(&[100, 200, 300, 600]),
        recovery_timeout_seconds: random.one_of(&[None, Some(50), Some(100), Some(300)]),
        block_admission: random.percent(40),
        timestamp: random.one_of(&[RequeuingTimestamp::Eviction, RequeuingTimestamp::Creation]),
        backoff_limit_count: random.one_of(&[None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(3)]),
        backoff_base_seconds: random.one_of(&[0, 30, 60, 60, 300]),
        backoff_max_seconds: random.one_of(&[0, 50, 100, 400, 3600]),
        reset_after_ready_seconds: random.one_of(&[0, 100, 300, 600]),
    }
}

fn pause(random: &mut Random) -> Pause {
    match random.between(1, 10) {
        1..=3 => Pause::UntilDue,
        4 => Pause::UntilJustBefore,
        _ => Pause::Seconds(random.one_of(&[50, 100, 200, 300, 400, 700, 1000])),
    }
}

/// When the pods of a workload become ready or stop being so.
fn pods(random: &mut Random, rounds: i64) -> impl Iterator<Item = (u32, bool)> + use<> {
    let mut round = |from| u32::try_from(random.between(from, rounds)).unwrap_or(0);
    let (later, last) = (round(1), round(2));
    let kind = random.between(1, 100);
    let times = match kind {
        1..=30 => vec![(0, true)],
        31..=55 => vec![(0, true), (later, false), (last.max(later + 1), true)],
        56..=65 => vec![(0, true), (later, false)],
        66..=80 => vec![(later, true)],
        _ => vec![],
    };
    times.into_iter()
}

/// When somebody activates a workload, and seldom when somebody deactivates it before.
fn activations(random: &mut Random, rounds: i64) -> impl Iterator<Item = (u32, bool)> + use<> {
    let round = u32::try_from(random.between(2, rounds)).unwrap_or(2);
    let (deactivates, activates) = (random.percent(8), random.percent(60));
    let off = deactivates.then_some((round - 1, false));
    off.into_iter().chain(activates.then_some((round, true)))
}

fn timeouts(random: &mut Random, seconds: &[i64]) -> Timeouts {
    let mut some = || random.percent(50).then(|| random.one_of(seconds));
    Timeouts { start_seconds: some(), recovery_seconds: some() }
}
