//! Random scenarios, and what they share with each other.

use gangway_sim::{Scenario, check};

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn every_sentence_holds_in_random_scenarios() {
    let (first, count) = (number_from("GANGWAY_SEED", 1), number_from("GANGWAY_SCENARIOS", 5));
    let (mut steps, mut failures) = (0, Vec::new());
    let began = std::time::Instant::now();
    for seed in first..first + count {
        let outcome = check(&Scenario::random(seed, 12), None);
        steps += outcome.steps;
        println!(
            "seed {seed}: {} steps, {} finished, {} evictions",
            outcome.steps, outcome.finished, outcome.evictions
        );
        if let Some(violation) = outcome.violation {
            failures.push(format!("seed {seed}: {violation}"));
        }
    }
    println!("{steps} steps in {:?}", began.elapsed());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
