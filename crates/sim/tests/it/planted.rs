//! Whether the checks find mistakes: each is planted, and a sentence must not hold.
//!
//! `gangway sim planted` plays the seeds from 1 on until each mistake shows, and says after how many steps. Here the scenario
//! in which it showed is played again.

use gangway_model::planted::Bug;
use gangway_sim::{Scenario, check};

/// Jobs in a scenario, as in `gangway sim planted`.
const JOBS: usize = 80;

/// The seed at which each is found, and the sentence.
const FOUND: [(Bug, u64, &str); 12] = [
    (Bug::QuotaLeakedOnConflict, 5, "L5"),
    (Bug::WakeUpLost, 1, "L4"),
    (Bug::DoubleAdmissionAfterRestart, 1, "S1"),
    (Bug::VictimReleasedTwice, 1, "S1"),
    (Bug::HoldForgotten, 3, "S6"),
    (Bug::StaleLeaderWrites, 1, "S14"),
    (Bug::TemplateNotRestored, 4, "G2"),
    (Bug::TerminatingPodsNotCounted, 2, "S1"),
    (Bug::BackoffIgnored, 2, "S10"),
    (Bug::CountLost, 2, "S11"),
    (Bug::DeadlineLost, 2, "L5"),
    (Bug::DeactivationForgotten, 1, "S11"),
];

#[test]
fn every_planted_bug_is_found() {
    assert_eq!(FOUND.map(|(bug, ..)| bug), Bug::ALL);
    for (bug, seed, sentence) in FOUND {
        let found = check(&Scenario::random(seed, JOBS).with_mistake(bug), None).violation;
        assert_eq!(found.map(|violation| violation.id), Some(sentence), "{bug:?} at seed {seed}");
    }
}
