//! Random scenarios, and those that once failed.

use std::time::Duration;

use gangway_sim::{Act, Deed, Faults, JobPlan, Scenario, check};

/// Jobs in a scenario.
const JOBS: usize = 12;

/// Seeds that found something, with what it was.
const FOUND: [(u64, &str); 2] = [
    (2, "a Job that an old list did not show was taken for gone, and its Workload ended for good"),
    (162, "news from before a Job's end that came late made it run again"),
];

fn number_from(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `GANGWAY_SCENARIOS=n` plays n scenarios instead of 5, `GANGWAY_SEED=s` begins with another seed.
#[test]
fn every_sentence_holds_in_random_scenarios() {
    let (first, count) = (number_from("GANGWAY_SEED", 1000), number_from("GANGWAY_SCENARIOS", 5));
    let mut steps = 0;
    for seed in first..first + count {
        let outcome = check(&Scenario::random(seed, JOBS), None);
        steps += outcome.steps;
        assert!(
            outcome.violation.is_none(),
            "seed {seed}: {}",
            outcome.violation.map_or(String::new(), |v| v.to_string())
        );
    }
    assert!(steps > 100 * count, "hardly anything happens: {steps} steps");
}

#[test]
fn what_was_found_once_is_not_found_again() {
    for (seed, what) in FOUND {
        let outcome = check(&Scenario::random(seed, JOBS), None);
        assert!(outcome.violation.is_none(), "seed {seed}, {what}: {:?}", outcome.violation);
    }
}

/// While the news are on their way, the Job controller and the garbage collector know of the new Job, or of the old one's
/// end, before others do. Nobody may write without end until they do.
#[test]
fn a_job_that_takes_the_name_of_one_that_runs_is_another() {
    let plan = JobPlan {
        name: "j".to_owned(),
        queue: "a",
        pods: 1,
        cpus: 1,
        cards: 0,
        priority: 0,
        runs_millis: 20_000,
        leaves_millis: 5_000,
        fails: false,
        ready_millis: Some(0),
    };
    let random = Scenario::random(1, 0);
    let mut queues = random.queues.clone();
    queues[0].quotas[0].nominal = 2;
    let at = Duration::from_secs;
    for lag_millis in [0, 300, 3_000] {
        let acts = vec![
            Act { at: at(0), what: Deed::Submit(plan.clone()) },
            Act { at: at(10), what: Deed::Recreate("j".to_owned()) },
            Act { at: at(11), what: Deed::Delete("j".to_owned()) },
        ];
        let faults = Faults { lag_millis, ..Faults::default() };
        let scenario = Scenario { queues: queues.clone(), faults, acts, ..random.clone() };
        let outcome = check(&scenario, None);
        assert!(outcome.violation.is_none(), "{lag_millis}: {:?}", outcome.violation);
        assert!(outcome.steps < 500, "{lag_millis}: {} steps for three Jobs", outcome.steps);
    }
}
