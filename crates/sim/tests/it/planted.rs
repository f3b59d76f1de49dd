//! Whether the checks find mistakes: each is planted, and a sentence must not hold.
//!
//! `gangway sim planted` plays the seeds from 1 on until each mistake shows, and says after how many steps. Here the scenario
//! in which it showed is played again.

use gangway_model::planted::Bug;
use gangway_sim::{Scenario, check};

/// Jobs in a scenario, as in `gangway sim planted`.
const JOBS: usize = 80;

/// With which seed to begin for each: where it showed when this was written.
const SEEDS: [(Bug, u64); 17] = [
    (Bug::QuotaLeakedOnConflict, 5),
    (Bug::WakeUpLost, 1),
    (Bug::DoubleAdmissionAfterRestart, 2),
    (Bug::VictimReleasedTwice, 1),
    (Bug::HoldForgotten, 3),
    (Bug::StaleLeaderWrites, 1),
    (Bug::TemplateNotRestored, 1),
    (Bug::TerminatingPodsNotCounted, 2),
    (Bug::BackoffIgnored, 2),
    (Bug::CountLost, 2),
    (Bug::DeadlineLost, 2),
    (Bug::DeactivationForgotten, 1),
    (Bug::HistoryLost, 1),
    (Bug::ExhaustedFlavorTried, 1),
    (Bug::FallbackTimeLost, 1),
    (Bug::UntriedFlavorGivenUp, 1),
    (Bug::CheckIgnored, 2),
];

/// A mistake that does not show in so many scenarios would go unnoticed.
const MOST_SEEDS: u64 = 12;

#[test]
fn every_planted_bug_is_found() {
    assert_eq!(SEEDS.map(|(bug, _)| bug), Bug::ALL);
    let is_found = |bug: Bug, from: u64| {
        let mut seeds = from..from + MOST_SEEDS;
        seeds.any(|seed| check(&Scenario::random(seed, JOBS).with_mistake(bug), None).violation.is_some())
    };
    let missed: Vec<Bug> =
        SEEDS.iter().filter(|(bug, from)| !is_found(*bug, *from)).map(|(bug, _)| *bug).collect();
    assert_eq!(missed, []);
}
