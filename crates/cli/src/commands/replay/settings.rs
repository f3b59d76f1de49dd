//! The Replay document: time, limits, and what ends when.

use std::collections::BTreeMap;

use gangway_api::config::{self, Configuration};
use gangway_api::records::ResourceRules;
use gangway_api::time::{from_rfc3339, to_rfc3339};
use gangway_model::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serde_saphyr::Spanned;

use crate::exit::Failure;

/// The kind of the document.
pub const KIND: &str = "Replay";
/// Its API group.
pub const GROUP: &str = "replay.gangway.dev";
const API_VERSION: &str = "replay.gangway.dev/v1alpha1";

/// Further rounds than this are a slip of the pen.
pub const ROUNDS_MAX: u32 = 10_000;

/// Feature gates of the reference that the protocol itself sets, and the value that is the case.
const PROTOCOL_GATES: &[(&str, bool)] = &[
    ("FlavorFungibilityPreserveScanProgress", false),
    ("RecomputeAssignmentUponPreemptionTargetsOverlap", false),
];

/// What the Replay document says.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The name of the scenario.
    pub name: String,
    /// When the replay begins.
    pub now: Option<Timestamp>,
    /// After how many cycles to give up.
    pub cycles_max: Option<u32>,
    /// What changes what pods ask for.
    pub resource_rules: ResourceRules,
    /// Running work that ends.
    pub finish: Vec<Finish>,
    /// Time that passes between rounds.
    pub pauses: Vec<Pause>,
}

/// Time that passes before a round begins.
#[derive(Clone, Copy, Debug)]
pub struct Pause {
    /// The round.
    pub round: u32,
    /// How long.
    pub seconds: u32,
}

/// Settings, and where they stand.
#[derive(Clone, Debug)]
pub struct Located {
    /// The settings.
    pub settings: Settings,
    file: String,
    line: u64,
}

impl Located {
    /// Where the document begins, as `file:line`.
    pub fn at(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

/// A Workload that ends.
#[derive(Clone, Debug)]
pub struct Finish {
    /// Its namespace and name, as `namespace/name`.
    pub workload: String,
    /// When.
    pub when: When,
}

/// When a Workload ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// At the start of this round.
    Round(u32),
    /// After this cycle.
    Cycle(u32),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Spec {
    now: Option<Spanned<String>>,
    cycles: Option<Spanned<u32>>,
    config: Option<Spanned<Config>>,
    finish: Vec<Spanned<FinishEntry>>,
    pauses: Vec<Spanned<PauseEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PauseEntry {
    round: u32,
    seconds: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FinishEntry {
    round: Option<u32>,
    cycle: Option<u32>,
    workload: String,
}

/// The part of the configuration file that matters for a replay.
#[derive(Deserialize, Serialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Config {
    #[serde(skip_serializing_if = "Option::is_none")]
    fair_sharing: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<Resources>,
    feature_gates: BTreeMap<String, bool>,
}

#[derive(Deserialize, Serialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Resources {
    exclude_resource_prefixes: Vec<String>,
    transformations: Vec<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_check_strategy: Option<String>,
}

/// A Replay document that begins at a time, under a configuration.
pub fn document(name: &str, now: Timestamp, config: &Configuration) -> Value {
    let resources = json!({"excludeResourcePrefixes": config.exclude_resource_prefixes});
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": {"now": to_rfc3339(now), "config": {"resources": resources}},
    })
}

/// Reads a Replay document that begins after `lines_before` lines of its file.
pub fn read(file: &str, text: &str, lines_before: u64) -> Result<Located, Failure> {
    let place = Place { file, lines_before };
    let options = serde_saphyr::options! { with_snippet: false };
    let document: Spanned<Document> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let said = error.without_snippet().to_string();
            let message =
                said.lines().next().and_then(|line| line.split(" at line ").next()).unwrap_or_default();
            place.refuse(error.location().map_or(1, |location| location.line()), "Replay", message)
        })?;
    let line = document.referenced.line().max(1);
    let Document { api_version, metadata, spec, .. } = document.value;
    if api_version != API_VERSION {
        return Err(place.refuse(line, "apiVersion", &format!("must be {API_VERSION}")));
    }
    let settings = Settings {
        name: metadata.name,
        now: spec.now.map(|now| place.time(&now)).transpose()?,
        cycles_max: spec.cycles.map(|cycles| place.cycles(&cycles)).transpose()?,
        resource_rules: spec.config.map(|config| place.config(config)).transpose()?.unwrap_or_default(),
        finish: spec.finish.iter().map(|entry| place.finish(entry)).collect::<Result<_, _>>()?,
        pauses: spec.pauses.iter().map(|entry| place.pause(entry)).collect::<Result<_, _>>()?,
    };
    Ok(Located { settings, file: file.to_owned(), line: line + lines_before })
}

/// Where a document is, for messages.
struct Place<'p> {
    file: &'p str,
    lines_before: u64,
}

impl Place<'_> {
    fn refuse(&self, line: u64, path: &str, message: &str) -> Failure {
        Failure::bad_input(self.message(line, path, message))
            .try_this("docs/replay.md lists the fields of a Replay document")
    }

    fn message(&self, line: u64, path: &str, message: &str) -> String {
        format!("{}:{}: {path}: {message}", self.file, line + self.lines_before)
    }

    fn time(&self, text: &Spanned<String>) -> Result<Timestamp, Failure> {
        from_rfc3339(&text.value).ok_or_else(|| {
            let message = format!("{:?} is not a time such as 2026-01-01T12:00:00Z", text.value);
            self.refuse(text.referenced.line(), "spec.now", &message)
        })
    }

    fn cycles(&self, cycles: &Spanned<u32>) -> Result<u32, Failure> {
        match cycles.value {
            0 => Err(self.refuse(cycles.referenced.line(), "spec.cycles", "must be at least 1")),
            number => Ok(number),
        }
    }

    fn finish(&self, entry: &Spanned<FinishEntry>) -> Result<Finish, Failure> {
        let refuse = |message: &str| Err(self.refuse(entry.referenced.line(), "spec.finish", message));
        let when = match (entry.value.round, entry.value.cycle) {
            (Some(1..=ROUNDS_MAX), None) => When::Round(entry.value.round.unwrap_or(1)),
            (Some(_), None) => return refuse(&format!("round must be from 1 to {ROUNDS_MAX}")),
            (None, Some(cycle)) => When::Cycle(cycle),
            _ => return refuse("an entry has either a round or a cycle"),
        };
        Ok(Finish { workload: entry.value.workload.clone(), when })
    }

    fn pause(&self, entry: &Spanned<PauseEntry>) -> Result<Pause, Failure> {
        let PauseEntry { round, seconds } = entry.value;
        if !(1..=ROUNDS_MAX).contains(&round) {
            let message = format!("round must be from 1 to {ROUNDS_MAX}");
            return Err(self.refuse(entry.referenced.line(), "spec.pauses", &message));
        }
        Ok(Pause { round, seconds })
    }

    /// What of the configuration matters. Its fields are known by now, so whatever is still refused is not
    /// supported.
    fn config(&self, config: Spanned<Config>) -> Result<ResourceRules, Failure> {
        let line = config.referenced.line();
        let mut config = config.value;
        config.feature_gates.retain(|gate, value| {
            !PROTOCOL_GATES.iter().any(|(known, fixed)| known == gate && fixed == value)
        });
        let mut file = json!(config);
        file["apiVersion"] = json!(format!("{}/v1beta2", config::GROUP));
        file["kind"] = json!("Configuration");
        file["waitForPodsReady"] = json!({"enable": false});
        match config::load(self.file, &file.to_string()) {
            Ok(configuration) => Ok(configuration.resource_rules()),
            Err(error) => {
                let path = format!("spec.config.{}", error.path);
                Err(Failure::unsupported(self.message(line, &path, &error.message)))
            }
        }
    }
}
