//! The engine against the slow model on random scenarios, decision by decision, under both sets of rules.
//!
//! `GANGWAY_SCENARIOS=n` plays n scenarios instead of 10,000, `GANGWAY_SEED=s` begins with another seed.

mod drive;
mod fallback;
mod generate;
pub mod random;
mod readiness;
mod sentences;
mod show;
mod shrink;

use std::collections::BTreeMap;
use std::fmt;

use gangway_admission::Rules;
use gangway_model::Timestamp;
use gangway_model::planted::Bug;
use gangway_model::workload::Workload;

use crate::quota_model::{self, Counts, Decided, Edit, Model, Node};
use drive::{Driver, Played, Round, play_engine, play_model};
use generate::Scenario;

/// The least share of scenarios in which each feature must have occurred, in percent.
const LEAST_SHARE: usize = 5;

/// Whose rules a scenario is played by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Reference,
    Gangway,
}

impl Whose {
    fn rules(self) -> (Rules, quota_model::Rules) {
        match self {
            Self::Reference => (Rules::reference(), quota_model::Rules::reference()),
            Self::Gangway => (Rules::gangway(), quota_model::Rules::gangway()),
        }
    }
}

/// How the two sides differ, or which sentence does not hold.
#[derive(Clone, Debug)]
struct Difference {
    whose: Whose,
    /// With the rules, what a smaller scenario has to show, too.
    kind: &'static str,
    text: String,
}

impl Difference {
    fn is_like(&self, other: &Self) -> bool {
        (self.whose, self.kind) == (other.whose, other.kind)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules of {:?}, {}:\n{}", self.whose, self.kind, self.text)
    }
}

/// What came of a scenario on which both sides agree.
struct Agreed {
    counts: Counts,
    /// Otherwise it goes on for ever, and was not compared.
    at_rest: bool,
}

fn compare(scenario: &Scenario, whose: Whose) -> Result<Agreed, Difference> {
    let difference = |kind, text| Difference { whose, kind, text };
    let (rules, model_rules) = whose.rules();
    let stripped;
    let scenario = if whose == Whose::Reference && scenario.readiness.is_some() {
        // The reference parks its thread while somebody starts: there is nothing to compare.
        stripped = scenario.without_readiness();
        &stripped
    } else {
        scenario
    };
    let (expected, model) = play_model(scenario, model_rules);
    let counts = model.counts();
    // Under the reference's rules preemption may go on for ever; then there is nothing to compare.
    if !expected.at_rest && whose == Whose::Reference {
        return Ok(Agreed { counts, at_rest: false });
    }
    let begins: Vec<(Timestamp, &[Edit])> =
        expected.rounds.iter().map(|round| (round.at, &round.edits[..])).collect();
    let alone = |problem| difference("the engine alone", problem);
    let (played, mut driver) = play_engine(scenario, rules, &begins).map_err(alone)?;
    if !played.at_rest || !expected.at_rest {
        return Err(difference("no rest", show::beginning(&played)));
    }
    compare_sides(scenario, &model, &played, &expected).map_err(|text| difference("decisions", text))?;
    if whose == Whose::Gangway {
        sentences::check(scenario, &played, model.proofs()).map_err(|text| difference("sentence", text))?;
        nobody_is_forgotten(scenario, &mut driver).map_err(alone)?;
    }
    Ok(Agreed { counts, at_rest: true })
}

/// The decisions of a round are the same in every tree, and then the same workloads have the same quota. The
/// order between trees means nothing.
fn compare_sides(
    scenario: &Scenario,
    model: &Model,
    played: &Played,
    expected: &Played,
) -> Result<(), String> {
    for (number, (played, expected)) in played.rounds.iter().zip(&expected.rounds).enumerate() {
        if played.evicted != expected.evicted {
            let (engine, model) = (&played.evicted, &expected.evicted);
            return Err(format!("round {number}, told to leave: engine {engine:?}\nmodel {model:?}"));
        }
        let (standing, expected_standing) = (&played.standing, &expected.standing);
        let (played, expected) = (by_root(scenario, model, played), by_root(scenario, model, expected));
        if played != expected {
            let (engine, model) = (show::decisions(&played), show::decisions(&expected));
            return Err(format!("round {number}: engine{engine}\nmodel{model}"));
        }
        if standing != expected_standing {
            let (engine, model) = (standing, expected_standing);
            return Err(format!("round {number}, standing: engine {engine:?}\nmodel {model:?}"));
        }
    }
    if played.holders == expected.holders {
        return Ok(());
    }
    Err(format!("quota: engine {:?}\nmodel {:?}", played.holders, expected.holders))
}

fn by_root<'r>(scenario: &Scenario, model: &Model, round: &'r Round) -> BTreeMap<Node, Vec<&'r Decided>> {
    let mut roots: BTreeMap<Node, Vec<&Decided>> = BTreeMap::new();
    for decided in round.cycles.iter().flatten() {
        let workload = scenario.workloads.iter().find(|(_, workload)| workload.uid == *decided.uid());
        let queue = workload.map_or("", |(_, workload)| &*workload.queue);
        roots.entry(model.root(&queue.into())).or_default().push(decided);
    }
    roots
}

/// Who is admitted when all are tried again should have been admitted before.
///
/// But an admission may help a workload of several podSets: what its first podSet prefers is taken, and so
/// it leaves to the second what that needs. As in the reference, nobody is tried again for that reason; nor
/// because somebody who was admitted borrows now and could be preempted.
fn nobody_is_forgotten(scenario: &Scenario, driver: &mut Driver) -> Result<(), String> {
    let again = driver.try_all_again()?;
    let Some(Decided::Admitted { uid, .. }) = again.first() else { return Ok(()) };
    let is_simple = |workload: &Workload| workload.uid == *uid && workload.pod_sets.len() == 1;
    if scenario.workloads.iter().any(|(_, workload)| is_simple(workload)) {
        return Err(format!("{uid} is admitted when all are tried again, and was not before"));
    }
    Ok(())
}

/// In how many scenarios each feature occurred.
#[derive(Clone, Debug, Default)]
struct Shares {
    scenarios: usize,
    /// Scenarios that were not compared, by whose rules.
    without_rest: [usize; 2],
    features: BTreeMap<&'static str, usize>,
}

impl Shares {
    /// Plays a scenario under both sets of rules; what occurs under Gangway's counts.
    fn play(&mut self, scenario: &Scenario) -> Result<(), Difference> {
        let reference = compare(scenario, Whose::Reference)?;
        let Agreed { counts, at_rest } = compare(scenario, Whose::Gangway)?;
        self.scenarios += 1;
        self.without_rest[0] += usize::from(!reference.at_rest);
        self.without_rest[1] += usize::from(!at_rest);
        let features = [
            ("preemption", counts.preempted_in_queue),
            ("reclaim", counts.reclaimed),
            ("fill-back", counts.spared),
            ("borrowing", counts.borrowed),
            ("hierarchical lending", counts.borrowed_across_levels),
            ("parked shape", counts.parked_by_shape),
            ("timeout of pods", counts.timed_out),
            ("backoff", counts.backed_off),
            ("deactivation at the limit", counts.deactivated),
            ("reactivation", counts.reactivated),
            ("one start at a time", counts.blocked),
            ("lost pod", counts.lost_pods),
            ("count begins anew", counts.counted_anew),
            ("fallback by timeout", counts.fell_back_by_timeout),
            ("fallback by rejected check", counts.fell_back_by_rejection),
            ("exhausted round retried", counts.rounds_retried),
            ("deactivation by exhaustion", counts.deactivated_exhausted),
            ("preemption mid-budget", counts.preempted_mid_budget),
            ("quota before checks agree", counts.reserved),
            ("start when checks agree", counts.let_start),
            ("retry of a check", counts.retried_by_check),
            ("deactivation by a check", counts.deactivated_by_check),
            ("other rules or checks", counts.redefined),
        ];
        for (feature, count) in features {
            *self.features.entry(feature).or_default() += usize::from(count > 0);
        }
        Ok(())
    }

    fn merge(&mut self, other: Self) {
        self.scenarios += other.scenarios;
        for (all, more) in self.without_rest.iter_mut().zip(other.without_rest) {
            *all += more;
        }
        for (feature, count) in other.features {
            *self.features.entry(feature).or_default() += count;
        }
    }

    /// Prints the shares, and says which are too small.
    fn print(&self) -> Vec<&'static str> {
        let [reference, gangway] = self.without_rest;
        println!("{} scenarios; never at rest: reference {reference}, Gangway {gangway}", self.scenarios);
        let mut too_seldom = Vec::new();
        for (feature, occurred) in &self.features {
            println!("{feature}: {:.1} %", *occurred as f64 * 100.0 / self.scenarios.max(1) as f64);
            if occurred * 100 < self.scenarios * LEAST_SHARE {
                too_seldom.push(*feature);
            }
        }
        too_seldom
    }
}

/// A number from the environment.
pub fn number_from(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")),
        Err(_) => default,
    }
}

/// Plays the scenarios of some seeds; the first that fails ends it.
fn play_all(seeds: impl Iterator<Item = u64>) -> Result<Shares, (u64, Difference)> {
    let mut shares = Shares::default();
    for seed in seeds {
        shares.play(&Scenario::random(seed)).map_err(|difference| (seed, difference))?;
    }
    Ok(shares)
}

/// The smallest scenario that shows the same difference, and that difference.
fn report(seed: u64, difference: &Difference) -> String {
    let shown = |scenario: &Scenario| {
        compare(scenario, difference.whose).err().filter(|other| other.is_like(difference))
    };
    let small = shrink::shrink(&Scenario::random(seed), |scenario| shown(scenario).is_some());
    let text = shown(&small).unwrap_or_else(|| difference.clone());
    format!("GANGWAY_SEED={seed} GANGWAY_SCENARIOS=1\n{}\n{text}", show::scenario(&small))
}

#[test]
fn the_engine_decides_as_the_model_does() {
    let (first, count) = (number_from("GANGWAY_SEED", 1), number_from("GANGWAY_SCENARIOS", 10_000));
    println!("GANGWAY_SEED={first} GANGWAY_SCENARIOS={count}");
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let results: Vec<_> = std::thread::scope(|scope| {
        let seeds = |thread| (first..first + count).skip(thread).step_by(threads);
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || play_all(seeds(thread)))).collect();
        running.into_iter().map(|thread| thread.join()).collect()
    });
    let mut shares = Shares::default();
    for result in results {
        match result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(more) => shares.merge(more),
            Err((seed, difference)) => panic!("{}", report(seed, &difference)),
        }
    }
    let too_seldom = shares.print();
    // A few scenarios say nothing about shares.
    assert!(too_seldom.is_empty() || count < 1000, "{too_seldom:?} occur too seldom to be tested");
}

/// Whether the comparison sees anything: the engine makes a mistake, and sooner or later decides otherwise.
#[test]
fn mistakes_about_readiness_are_seen() {
    for bug in [Bug::BackoffIgnored, Bug::CountLost, Bug::DeactivationForgotten] {
        let differs = |seed: &u64| {
            let scenario = Scenario { planted: Some(bug).into(), ..Scenario::random(*seed) };
            compare(&scenario, Whose::Gangway).is_err()
        };
        assert!((1..200).find(differs).is_some(), "{bug:?} makes no difference");
    }
}
