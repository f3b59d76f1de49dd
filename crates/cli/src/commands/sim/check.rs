//! `gangway sim check`: many seeds on all cores; a seed that fails is made small and told.

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::PossibleValuesParser;
use gangway_model::planted::Bug;
use gangway_sim::{Outcome as Played, Scenario, check, shrink};
use serde_json::{Value, json};

use super::super::print;
use super::Form;
use crate::exit::{Exit, Failure, Outcome};

/// Arguments of `gangway sim check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway sim check --seeds 1000              a thousand scenarios
  gangway sim check --seeds 1 --seed 17 --trace   what happens in one of them, line by line

Each scenario is a cluster of its own: an API server, the controllers, the pod scheduler and
fake nodes, on one thread and in virtual time. Requests are late, refused, or lost after they
were carried out; watches break and lag; the controller dies and comes back; machines of a
flavor do not come; checks refuse; people delete, suspend and change things. After every change of an object the promises of Gangway are
checked; in the end the faults stop, and everything has to come to rest.
The same seed always gives the same scenario and the same hash.")]
pub struct CheckArgs {
    /// How many scenarios.
    #[arg(long, default_value_t = 100, value_name = "N")]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Jobs in a scenario.
    #[arg(long, default_value_t = 12, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=5000))]
    jobs: u16,
    /// Tells everything that happens; for one seed.
    #[arg(long)]
    trace: bool,
    /// Plants a mistake, to see how it shows.
    #[arg(long, value_name = "BUG", value_parser = PossibleValuesParser::new(Bug::ALL.map(Bug::as_str)))]
    plant: Option<String>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
}

impl CheckArgs {
    fn scenario(&self, seed: u64) -> Scenario {
        let bug = Bug::ALL.into_iter().find(|bug| self.plant.as_deref() == Some(bug.as_str()));
        let scenario = Scenario::random(seed, self.jobs.into());
        match bug {
            Some(bug) => scenario.with_mistake(bug),
            None => scenario,
        }
    }
}

/// What came of all seeds.
#[derive(Debug, Default)]
struct Total {
    seeds: u64,
    steps: u64,
    finished: usize,
    evictions: usize,
    given_up: usize,
    answers: usize,
    /// In how many of them a flavor was given up, or a check said something.
    scarce_seeds: u64,
    /// All hashes in one, whatever the order in which seeds ended.
    hash: u64,
    failed: Option<(u64, Played)>,
}

/// How often the line of progress is written anew.
const PROGRESS_PERIOD: Duration = Duration::from_millis(200);

/// Plays the seeds.
pub fn run(args: &CheckArgs) -> Outcome {
    if args.trace && args.seeds != 1 {
        return Err(Failure::bad_input("--trace tells of one scenario")
            .try_this("gangway sim check --seeds 1 --seed S --trace"));
    }
    if args.trace {
        return trace(args);
    }
    let began = Instant::now();
    let total = play_all(args, began);
    let per_second = total.steps as f64 / began.elapsed().as_secs_f64();
    match args.output {
        Some(Form::Json) => print(&format!("{:#}\n", as_json(args, &total, per_second)))?,
        None => print(&format!(
            "{} scenarios, {} steps checked, {per_second:.0} per second: {} Workloads ended, {} evictions, {} flavors given up, {} checks answered; hash {:016x}\n",
            total.seeds,
            total.steps,
            total.finished,
            total.evictions,
            total.given_up,
            total.answers,
            total.hash
        ))?,
    }
    match &total.failed {
        None => Ok(Exit::Success),
        Some((seed, played)) => Err(tell_failure(args, *seed, played)),
    }
}

fn as_json(args: &CheckArgs, total: &Total, per_second: f64) -> Value {
    let failed = total.failed.as_ref().map(|(seed, played)| {
        let violation = played.violation.as_ref();
        json!({"seed": seed, "invariant": violation.map(|v| v.id), "what": violation.map(|v| v.what.clone())})
    });
    json!({
        "firstSeed": args.seed,
        "seeds": total.seeds,
        "jobsPerScenario": args.jobs,
        "checkedSteps": total.steps,
        "stepsPerSecond": per_second.round(),
        "finishedWorkloads": total.finished,
        "evictions": total.evictions,
        "flavorsGivenUp": total.given_up,
        "checksAnswered": total.answers,
        "seedsWithFallbacks": total.scarce_seeds,
        "hash": format!("{:016x}", total.hash),
        "failed": failed,
    })
}

/// Plays all seeds on all cores, and ends with the first that fails.
fn play_all(args: &CheckArgs, began: Instant) -> Total {
    let next = AtomicU64::new(args.seed);
    let end = args.seed.saturating_add(args.seeds);
    let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (told, played) = channel();
    std::thread::scope(|threads| {
        for _ in 0..workers {
            let (told, next) = (told.clone(), &next);
            threads.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = check(&args.scenario(seed), None);
                    if told.send((seed, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(told);
        gather(args, &played, &next, end, began)
    })
}

fn gather(
    args: &CheckArgs,
    played: &Receiver<(u64, Played)>,
    next: &AtomicU64,
    end: u64,
    began: Instant,
) -> Total {
    let shows = args.output.is_none() && std::io::stderr().is_terminal();
    let mut total = Total::default();
    let mut shown_at = began;
    for (seed, outcome) in played {
        total.seeds += 1;
        total.steps += outcome.steps;
        total.finished += outcome.finished;
        total.evictions += outcome.evictions;
        total.given_up += outcome.given_up;
        total.answers += outcome.answers;
        total.scarce_seeds += u64::from(outcome.given_up + outcome.answers > 0);
        total.hash ^= outcome.hash.rotate_left((seed % 64) as u32);
        let is_first = total.failed.as_ref().is_none_or(|(first, _)| seed < *first);
        if outcome.violation.is_some() && is_first {
            total.failed = Some((seed, outcome));
            next.store(end, Ordering::Relaxed);
        }
        if shows && shown_at.elapsed() >= PROGRESS_PERIOD {
            shown_at = Instant::now();
            let per_second = total.steps as f64 / began.elapsed().as_secs_f64();
            eprint!(
                "\r{} of {} scenarios, {} steps, {per_second:.0} per second ",
                total.seeds, args.seeds, total.steps
            );
            let _ = std::io::stderr().flush();
        }
    }
    if shows {
        eprintln!();
    }
    total
}

/// A seed failed: what, the smallest scenario that fails alike, and what happens in it.
fn tell_failure(args: &CheckArgs, seed: u64, played: &Played) -> Failure {
    let Some(violation) = &played.violation else { return Failure::broken("a seed failed for no reason") };
    let scenario = args.scenario(seed);
    eprintln!("seed {seed}: {violation}\nmaking it smaller: {} acts…", scenario.acts.len());
    let small = shrink(&scenario, violation);
    eprintln!("\n{small:#?}\n");
    let again = check(&small, Some(Box::new(|line| eprintln!("{line}"))));
    eprintln!("{}", again.violation.unwrap_or_else(|| violation.clone()));
    Failure::broken(format!("seed {seed} breaks {} after {} steps", violation.id, played.steps)).try_this(
        format!("gangway sim check --seeds 1 --seed {seed} --jobs {} --trace    to see it whole", args.jobs),
    )
}

fn trace(args: &CheckArgs) -> Outcome {
    let scenario = args.scenario(args.seed);
    // A reader that goes away is noticed with the last line.
    let listener = |line: &str| drop(print(&format!("{line}\n")));
    let played = check(&scenario, Some(Box::new(listener)));
    print(&format!("{} steps, hash {:016x}\n", played.steps, played.hash))?;
    match played.violation {
        None => Ok(Exit::Success),
        Some(violation) => Err(Failure::broken(format!("seed {}: {violation}", args.seed))),
    }
}
