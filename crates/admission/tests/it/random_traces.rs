//! Random traces over cohorts, flavors and policies, with faults and restarts, under Gangway's rules.
//!
//! After every step the engine's state is sound. When nothing happens any more it comes to rest; then trying everybody
//! again admits nobody, nor does a restart.
//!
//! `GANGWAY_SCENARIOS=n` plays n traces instead of 300, `GANGWAY_SEED=s` begins with another seed.

mod play;
mod steps;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::quota_scenarios::number_from;
use play::{Played, play};
use steps::Trace;

/// A trace that takes longer does not end.
const LONGEST: Duration = Duration::from_secs(60);

thread_local! {
    /// What panics here is caught and told later.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Keeps the many attempts to make a trace smaller from telling how each of them fails.
fn silence_this_thread() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !IS_QUIET.get() {
            loud(panic);
        }
    }));
    IS_QUIET.set(true);
}

/// What came of a trace, or how it failed.
fn attempt(trace: &Trace) -> Result<Played, String> {
    catch_unwind(AssertUnwindSafe(|| play(trace))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// What failures have in common that are of the same kind: what is told before the first colon.
fn kind(failure: &str) -> &str {
    failure.split(':').next().unwrap_or_default()
}

/// Leaves out steps as long as the trace fails in the same way.
fn shrink(mut trace: Trace, failure: &str) -> (Trace, String) {
    let mut last = failure.to_owned();
    let mut before = usize::MAX;
    while trace.steps.len() < before {
        before = trace.steps.len();
        for index in (0..before).rev() {
            let mut shorter = trace.clone();
            shorter.steps.remove(index);
            if let Err(other) = attempt(&shorter)
                && kind(&other) == kind(failure)
            {
                (trace, last) = (shorter, other);
            }
        }
    }
    (trace, last)
}

fn shown(seed: u64, trace: &Trace, failure: &str) -> String {
    let mut text = format!("{failure}\nGANGWAY_SEED={seed} GANGWAY_SCENARIOS=1\n");
    for queue in &trace.queues {
        let cohort = queue.cohort.as_ref().map_or("", |cohort| cohort.as_str());
        let (fungibility, preemption) = (queue.fungibility, queue.preemption);
        text += &format!("queue {} in {cohort}, {:?}\n", queue.name, queue.strategy);
        text += &format!("    {fungibility:?}\n    {preemption:?}\n");
        for flavor in queue.resource_groups.iter().flat_map(|group| &group.flavors) {
            text += &format!("    {}: {:?}\n", flavor.flavor, flavor.quotas[0]);
        }
    }
    for step in &trace.steps {
        text += &format!("{step:?}\n");
    }
    text
}

/// Plays the traces of some seeds in a thread of its own, so that one that does not end is noticed.
fn play_all(seeds: Range<u64>) -> (Played, BTreeMap<u64, String>) {
    let (tell, told) = channel();
    let traces = seeds.clone();
    std::thread::spawn(move || {
        silence_this_thread();
        for seed in traces {
            if tell.send(attempt(&Trace::random(seed))).is_err() {
                return;
            }
        }
    });
    let (mut total, mut failures) = (Played::default(), BTreeMap::new());
    for seed in seeds {
        match told.recv_timeout(LONGEST) {
            Ok(Ok(played)) => total += played,
            Ok(Err(failure)) => drop(failures.insert(seed, failure)),
            Err(_) => panic!("{}", shown(seed, &Trace::random(seed), "It does not end.")),
        }
    }
    (total, failures)
}

/// The first failure, as small as it can be made, after the seeds of all, by kind.
fn report(failures: &BTreeMap<u64, String>) -> String {
    let mut kinds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, failure) in failures {
        kinds.entry(kind(failure)).or_default().push(*seed);
    }
    let mut text = String::new();
    for (kind, seeds) in kinds {
        text += &format!("{kind}: seeds {seeds:?}\n");
    }
    if let Some((seed, failure)) = failures.first_key_value() {
        silence_this_thread();
        let (small, failure) = shrink(Trace::random(*seed), failure);
        IS_QUIET.set(false);
        text += &shown(*seed, &small, &failure);
    }
    text
}

/// Traces that failed once: room that a preemptor left, and victims that it no longer waited for, woke nobody.
#[test]
fn what_failed_once_does_not_again() {
    for seed in [73_032, 89_163] {
        play(&Trace::random(seed));
    }
}

#[test]
fn at_rest_nobody_is_forgotten_and_a_restart_admits_nobody() {
    let (first, count) = (number_from("GANGWAY_SEED", 1), number_from("GANGWAY_SCENARIOS", 300));
    let (total, failures) = play_all(first..first + count);
    println!("{count} traces from seed {first}: {total:?}");
    assert!(failures.is_empty(), "{} of {count} fail\n{}", failures.len(), report(&failures));
    let Played { admissions, evictions, evictions_again } = total;
    let (little, much) = (evictions * 10 < admissions, evictions_again * 10 > evictions);
    assert!(count < 100 || !little && !much, "too little happens, or too much again: {total:?}");
}
