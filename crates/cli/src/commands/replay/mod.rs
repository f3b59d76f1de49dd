//! `gangway replay`: what would be decided about the objects of a file, without a cluster.

mod answer;
mod documents;
mod driver;
mod scenario;
mod screen;
mod settings;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use gangway_admission::Rules;

use self::scenario::Scenario;
pub(super) use self::settings::document as replay_document;
use super::print;
use crate::exit::{Exit, Failure, Outcome};
use crate::render::palette::Palette;

/// Arguments of `gangway replay`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway replay dump.yaml                                   what would be decided, and who waits for what
  gangway replay queues.yaml workloads.yaml -o json          for programs
  gangway replay scenario.yaml --protocol reference -o json  to compare with the reference

The files hold queues and Workloads, as `kubectl get -o yaml` writes them. Nothing is
written anywhere: every decision is taken to succeed at once, and what is evicted is
gone at once. docs/replay.md says more.")]
pub struct ReplayArgs {
    /// YAML files with queues and Workloads.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    /// Decides as this protocol asks instead of by Gangway's own rules, and refuses what it does not know.
    #[arg(long, value_enum, value_name = "NAME")]
    protocol: Option<Protocol>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Json,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Protocol {
    /// The replay protocol, with the reference's choices where Gangway's differ.
    Reference,
}

/// Replays the files.
pub fn run(args: &ReplayArgs) -> Outcome {
    let (rules, is_strict) = match args.protocol {
        None => (Rules::gangway(), false),
        Some(Protocol::Reference) => (Rules::reference(), true),
    };
    let documents = documents::read(&args.files, is_strict)?;
    let scenario = Scenario::read(documents, is_strict)?;
    for note in &scenario.notes {
        eprintln!("gangway: {note}");
    }
    let mut answer = driver::replay(&scenario, rules);
    if answer.outcome == answer::Outcome::CycleLimit && rules != Rules::gangway() {
        eprintln!(
            "gangway: under the reference's rules this does not come to rest within {} cycles; below is what Gangway's own rules decide",
            answer.cycles_run
        );
        answer = driver::replay(&scenario, Rules::gangway());
    }
    match args.output {
        Some(Form::Json) => {
            let text = serde_json::to_string_pretty(&answer)
                .map_err(|error| Failure::broken(format!("cannot write JSON: {error}")))?;
            print(&format!("{text}\n"))?;
        }
        None => {
            let lines = screen::lines(&answer, Palette::of_stdout());
            print(&format!("{}\n", lines.join("\n")))?;
        }
    }
    Ok(Exit::Success)
}
