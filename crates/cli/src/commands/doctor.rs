//! `gangway doctor`: what keeps Jobs from starting on a cluster, and the line that mends it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use gangway_controller::doctor::{self, Area, Finding, Level};
use gangway_model::Clock;
use serde_json::{Value, json};

use super::{api_failure, config, print};
use crate::clock::SystemClock;
use crate::connect::Connection;
use crate::exit::{Exit, Outcome};
use crate::render::palette::{Palette, Tone};
use crate::render::{printable, wrap};

/// Arguments of `gangway doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gangway doctor                                  looks at the cluster of your kubeconfig
  gangway doctor --config gangway.yaml            with the configuration of its controller
  gangway doctor --as system:serviceaccount:gangway-system:gangway-controller
                                                  the rights of that account instead of yours
  gangway doctor -o json                          for programs

It exits with 0 if there is no problem, with 6 if there is one, and with 2 if the cluster cannot be
reached. Warnings do not count. What each finding means is in docs/doctor.md.")]
pub struct DoctorArgs {
    /// The configuration file of the controller.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The account whose rights are looked at; otherwise your own.
    #[arg(long = "as", value_name = "ACCOUNT")]
    account: Option<String>,
    /// `json` for programs.
    #[arg(short, long, value_enum, value_name = "FORM")]
    output: Option<Form>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Json,
}

/// Looks, and tells.
pub async fn run(args: DoctorArgs) -> Outcome {
    let options = doctor::Options {
        config: config::load(args.config.as_deref())?,
        config_file: args.config.as_ref().map(|file| file.display().to_string()),
        account: args.account,
    };
    let client = args.connection.client("doctor").await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut findings = doctor::examine(&client, clock, &options)
        .await
        .map_err(|error| api_failure("ask the API server for its version", &error))?;
    // What matters most is read last, where a terminal stands still.
    findings.sort_by_key(|finding| finding.level);
    match args.output {
        Some(Form::Json) => print(&format!("{:#}\n", as_json(&findings)))?,
        None => {
            let columns = terminal_size::terminal_size().map_or(COLUMNS_MAX, |(columns, _)| columns.0.into());
            for line in lines(&findings, columns, Palette::of_stdout()) {
                print(&format!("{line}\n"))?;
            }
        }
    }
    let is_ill = findings.iter().any(|finding| finding.level == Level::Problem);
    Ok(if is_ill { Exit::ProblemsFound } else { Exit::Success })
}

/// Longer lines are hard to read; no terminal says its width to a file.
const COLUMNS_MAX: usize = 120;
/// What stands before the text of a finding: its level, then its area.
const LEVEL_COLUMNS: usize = 9;
const AREA_COLUMNS: usize = 15;

/// The findings for people: one line each for what is well, a paragraph for what is not.
fn lines(findings: &[Finding], columns: usize, palette: Palette) -> Vec<String> {
    let columns = columns.min(COLUMNS_MAX);
    let mut lines = Vec::new();
    for finding in findings {
        let is_well = finding.level <= Level::Skipped;
        if !is_well && !lines.is_empty() {
            lines.push(String::new());
        }
        let heading = heading(finding);
        let first = LEVEL_COLUMNS + AREA_COLUMNS;
        let level = palette.paint(tone(finding.level), &format!("{:<LEVEL_COLUMNS$}", finding.level));
        let area = format!("{:<AREA_COLUMNS$}", finding.area.as_str());
        let mut wrapped = broken(&heading, columns.saturating_sub(first)).into_iter();
        lines.push(format!("{level}{area}{}", wrapped.next().unwrap_or_default()));
        lines.extend(wrapped.map(|line| format!("{:first$}{line}", "")));
        let why = broken(&finding.why, columns.saturating_sub(LEVEL_COLUMNS));
        lines.extend(why.into_iter().map(|line| format!("{:LEVEL_COLUMNS$}{line}", "")));
        // Never broken and never cut, so that it can be pasted.
        let fix = finding.fix.iter().map(|fix| palette.paint(Tone::Strong, &printable(fix)));
        lines.extend(fix.map(|fix| format!("{:LEVEL_COLUMNS$}{fix}", "")));
    }
    lines.push(String::new());
    lines.push(summary(findings));
    lines
}

/// Breaks between words. A word that is longer than a line stays whole: names are looked for.
fn broken(text: &str, columns: usize) -> Vec<String> {
    let text = printable(text);
    let longest = text.split_whitespace().map(crate::render::width).max().unwrap_or(0);
    wrap(&text, columns.max(longest))
}

fn heading(finding: &Finding) -> String {
    match finding.place.is_empty() {
        true => finding.what.clone(),
        false => format!("{}: {}", finding.place, finding.what),
    }
}

const fn tone(level: Level) -> Tone {
    match level {
        Level::Ok => Tone::Good,
        Level::Skipped => Tone::Dim,
        Level::Warning => Tone::Warn,
        Level::Problem => Tone::Bad,
    }
}

const LEVELS: [Level; 4] = [Level::Problem, Level::Warning, Level::Skipped, Level::Ok];

fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

/// `2 problems, 1 warning, 1 skipped, 6 ok`.
fn summary(findings: &[Finding]) -> String {
    let part = |level: &Level| {
        let plural = if matches!(level, Level::Problem | Level::Warning) { "s" } else { "" };
        match count(findings, *level) {
            0 if *level != Level::Problem => None,
            1 => Some(format!("1 {level}")),
            many => Some(format!("{many} {level}{plural}")),
        }
    };
    LEVELS.iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

/// The findings for programs.
fn as_json(findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "level": finding.level.as_str(),
            "area": Area::as_str(finding.area),
            "where": text(&finding.place),
            "what": finding.what,
            "why": text(&finding.why),
            "fix": finding.fix,
        })
    };
    json!({
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
        "problems": count(findings, Level::Problem),
        "warnings": count(findings, Level::Warning),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::width;

    fn findings() -> Vec<Finding> {
        let finding = |level, area, place: &str, what: &str, why: &str, fix: Option<&str>| Finding {
            level,
            area,
            place: place.to_owned(),
            what: what.to_owned(),
            why: why.to_owned(),
            fix: fix.map(str::to_owned),
        };
        vec![
            finding(Level::Ok, Area::Versions, "", "Kubernetes v1.37.1, Gangway 0.1.0", "", None),
            finding(Level::Skipped, Area::Configuration, "", "no configuration file was given", "", None),
            finding(
                Level::Problem,
                Area::Queues,
                "ClusterQueue team",
                "does not admit: FlavorNotFound: ClusterQueue team needs ResourceFlavors that do not exist: spot",
                "It names a ResourceFlavor that does not exist. It ends when: the ResourceFlavor is created.",
                Some(
                    r#"echo '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor","metadata":{"name":"spot"},"spec":{}}' | kubectl create -f -"#,
                ),
            ),
        ]
    }

    #[test]
    fn people_read_words_and_paste_whole_lines() {
        let expected = [
            "ok       versions       Kubernetes v1.37.1, Gangway 0.1.0",
            "skipped  configuration  no configuration file was given",
            "",
            "problem  queues         ClusterQueue team: does not admit: FlavorNotFound:",
            "                        ClusterQueue team needs ResourceFlavors that do not",
            "                        exist: spot",
            "         It names a ResourceFlavor that does not exist. It ends when: the",
            "         ResourceFlavor is created.",
            r#"         echo '{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor","metadata":{"name":"spot"},"spec":{}}' | kubectl create -f -"#,
            "",
            "1 problem, 1 skipped, 1 ok",
        ];
        assert_eq!(lines(&findings(), 80, Palette::None), expected);
    }

    #[test]
    fn no_sentence_is_wider_than_the_terminal() {
        for columns in [60, 80, 120, 300] {
            for line in lines(&findings(), columns, Palette::None) {
                let is_fix = line.trim_start().starts_with("echo");
                assert!(is_fix || width(&line) <= columns.min(COLUMNS_MAX), "{columns}: {line}");
            }
        }
        let narrow = lines(&findings(), 10, Palette::None).join(" ");
        assert!(narrow.contains("ResourceFlavors") && !narrow.contains('…'), "{narrow}");
    }

    #[test]
    fn colours_come_on_top_of_words() {
        let painted = lines(&findings(), 80, Palette::Ansi);
        assert!(painted[3].starts_with("\x1b[31mproblem"), "{painted:?}");
    }

    #[test]
    fn programs_get_all_of_it() {
        let value = as_json(&findings());
        assert_eq!((&value["problems"], &value["warnings"]), (&json!(1), &json!(0)));
        assert_eq!(value["findings"][2]["where"], "ClusterQueue team");
        assert!(value["findings"][0]["fix"].is_null() && value["findings"][2]["fix"].is_string());
    }
}
