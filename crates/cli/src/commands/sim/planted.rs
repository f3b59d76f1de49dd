//! `gangway sim planted`: whether the checks find mistakes.

use clap::Args;
use clap::builder::PossibleValuesParser;
use gangway_model::planted::Bug;
use gangway_sim::{Scenario, Violation, check};
use serde_json::{Value, json};

use super::super::print;
use super::Form;
use crate::exit::{Exit, Failure, Outcome};
use crate::render::palette::Palette;
use crate::render::table::Table;

/// Arguments of `gangway sim planted`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway sim planted                         every mistake, one after the other
  gangway sim check --plant wake-up-lost      how one shows, made small and told

Each mistake is planted into the controller and the same seeds are played until a sentence
does not hold. The exit code is 5 if a mistake is not found.")]
pub struct PlantedArgs {
    /// How many scenarios are played at most for each.
    #[arg(long, default_value_t = 100, value_name = "N")]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1, value_name = "S")]
    seed: u64,
    /// Jobs in a scenario: many, so that they are in each other's way.
    #[arg(long, default_value_t = 80, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=5000))]
    jobs: u16,
    /// Plants this mistake only.
    #[arg(long, value_name = "BUG", value_parser = PossibleValuesParser::new(Bug::ALL.map(Bug::as_str)))]
    bug: Option<String>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
}

/// How long it took until a mistake showed.
struct Search {
    bug: Bug,
    steps: u64,
    scenarios: u64,
    found: Option<(u64, Violation)>,
}

/// Plants each.
pub fn run(args: &PlantedArgs) -> Outcome {
    let is_wanted = |bug: &Bug| args.bug.as_deref().is_none_or(|name| name == bug.as_str());
    let bugs: Vec<Bug> = Bug::ALL.into_iter().filter(is_wanted).collect();
    let searches: Vec<Search> = std::thread::scope(|threads| {
        let all: Vec<_> = bugs.iter().map(|bug| threads.spawn(|| search(*bug, args))).collect();
        all.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    match args.output {
        Some(Form::Json) => {
            let all: Vec<Value> = searches.iter().map(as_json).collect();
            print(&format!(
                "{:#}\n",
                json!({"firstSeed": args.seed, "jobsPerScenario": args.jobs, "bugs": all})
            ))?;
        }
        None => print(&table(&searches))?,
    }
    let missed: Vec<&str> = searches.iter().filter(|s| s.found.is_none()).map(|s| s.bug.as_str()).collect();
    if searches.len() < bugs.len() {
        return Err(Failure::broken("a simulation ended with a panic"));
    }
    if missed.is_empty() {
        Ok(Exit::Success)
    } else {
        Err(Failure::broken(format!("not found: {}", missed.join(", "))))
    }
}

fn search(bug: Bug, args: &PlantedArgs) -> Search {
    let mut search = Search { bug, steps: 0, scenarios: 0, found: None };
    for seed in args.seed..args.seed.saturating_add(args.seeds) {
        let outcome = check(&Scenario::random(seed, args.jobs.into()).with_mistake(bug), None);
        search.steps += outcome.steps;
        search.scenarios += 1;
        if let Some(violation) = outcome.violation {
            search.found = Some((seed, violation));
            break;
        }
    }
    search
}

fn as_json(search: &Search) -> Value {
    let found = search.found.as_ref();
    json!({
        "bug": search.bug.as_str(),
        "found": found.is_some(),
        "checkedSteps": search.steps,
        "scenarios": search.scenarios,
        "seed": found.map(|(seed, _)| seed),
        "invariant": found.map(|(_, violation)| violation.id),
        "what": found.map(|(_, violation)| &violation.what),
    })
}

fn table(searches: &[Search]) -> String {
    let mut table = Table::new(&["PLANTED", "FOUND BY", ">STEPS", ">SCENARIOS", "WHAT WAS SEEN"]);
    for search in searches {
        let (sentence, what) = match &search.found {
            Some((_, violation)) => (violation.id.to_owned(), violation.what.clone()),
            None => ("nobody".to_owned(), String::new()),
        };
        let (steps, scenarios) = (search.steps.to_string(), search.scenarios.to_string());
        table.row([search.bug.as_str().to_owned(), sentence, steps, scenarios, what]);
    }
    let mut text = table.lines(Palette::of_stdout(), None).join("\n");
    text.push('\n');
    text
}
