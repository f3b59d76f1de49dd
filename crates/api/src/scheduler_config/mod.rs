//! The pod scheduler's configuration file: `KubeSchedulerConfiguration` of `kubescheduler.config.k8s.io/v1`, read strictly.
//!
//! What is supported takes effect, what is not is refused by name, and what is accepted without having an effect is
//! told. A file stands for the reference's scheduler: one profile without a name is `default-scheduler`, and a Lease
//! decides who schedules. Without a file there is one profile named `gangway`, and no Lease.

mod affinity;
mod args;
mod file;
mod gates;
mod plugins;
mod show;
mod support;

use std::path::PathBuf;
use std::time::Duration;

use gangway_model::scheduling::{ProfileSettings, SchedulerSettings};
use serde_json::Value;

use crate::config::{ConfigError, LeaderElection, load_document};
use crate::strict::{Finding, deserialize};
use crate::yaml::{Document, documents};
pub use gates::FeatureGates;

/// The kind of the file.
pub const KIND: &str = "KubeSchedulerConfiguration";
/// The group and version of the file, and of what plugins are told in it.
pub const GROUP_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The scheduler name of pods that name none, and of a file's only profile if it has no name.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

/// The configuration with which the pod scheduler runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulerConfiguration {
    /// What decisions follow.
    pub settings: SchedulerSettings,
    /// How many requests per second the scheduler may send in the long run, and as many Events again.
    pub requests_per_second: f64,
    /// How many it may send at once.
    pub request_burst: u32,
    /// The kubeconfig with which it connects; none if the command line or the machine says.
    pub kubeconfig: Option<PathBuf>,
    /// How one of several schedulers is chosen; none if there is only one.
    pub leader_election: Option<LeaderElection>,
    /// How many threads the file asks for; decisions are made by one.
    pub parallelism: Option<u32>,
}

impl Default for SchedulerConfiguration {
    fn default() -> Self {
        Self {
            settings: SchedulerSettings::default(),
            requests_per_second: 1000.0,
            request_burst: 1000,
            kubeconfig: None,
            leader_election: None,
            parallelism: None,
        }
    }
}

impl SchedulerConfiguration {
    /// What a file says that says nothing.
    fn of_a_file() -> Self {
        let profiles = vec![ProfileSettings::named(DEFAULT_SCHEDULER_NAME)];
        Self {
            settings: SchedulerSettings { profiles, ..SchedulerSettings::default() },
            requests_per_second: 50.0,
            request_burst: 100,
            leader_election: Some(default_election()),
            ..Self::default()
        }
    }

    /// What has no effect, or may not have the one that was meant: which setting, and why.
    pub fn warnings(&self) -> Vec<(String, String)> {
        let mut warnings = Vec::new();
        let mut warn = |setting: &str, message: &str| warnings.push((setting.to_owned(), message.to_owned()));
        if self.parallelism.is_some() {
            warn("parallelism", "has no effect: one thread decides, and the decisions are the same");
        }
        let is_default_lease = |election: &LeaderElection| {
            let default = default_election();
            (&election.namespace, &election.name) == (&default.namespace, &default.name)
        };
        let replaces = self.settings.profile(DEFAULT_SCHEDULER_NAME).is_some();
        if !replaces && self.leader_election.as_ref().is_some_and(is_default_lease) {
            warn(
                "leaderElection.resourceName",
                "is the Lease of kube-scheduler: beside one this scheduler never begins; name another Lease, \
                 or set leaderElect to false",
            );
        }
        warnings
    }

    /// The effective configuration as a file that would give it, defaults spelt out; warnings stand in it as comments.
    pub fn show(&self) -> String {
        let warnings = self.warnings().into_iter();
        let comments: String =
            warnings.map(|(setting, warning)| format!("# {setting}: {warning}\n")).collect();
        let file = show::file(self);
        // Plain JSON always has a YAML form; the fallback is that form too, since JSON is YAML.
        comments + &serde_saphyr::to_string(&file).unwrap_or_else(|_| file.to_string())
    }
}

/// Where a file says nothing about it, the Lease is that of the reference.
fn default_election() -> LeaderElection {
    LeaderElection {
        namespace: "kube-system".to_owned(),
        name: "kube-scheduler".to_owned(),
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
    }
}

/// Whether a text says of itself that it configures a pod scheduler.
pub fn recognizes(text: &str) -> bool {
    let documents = documents(text).unwrap_or_default();
    let says = |document: &Document| document.value.get("kind").and_then(Value::as_str) == Some(KIND);
    documents.first().is_some_and(says)
}

/// The configuration that a file gives; `file` is its name for messages.
pub fn load(file: &str, text: &str) -> Result<SchedulerConfiguration, ConfigError> {
    load_document(file, text, read)
}

fn read(document: &Document) -> Result<SchedulerConfiguration, Vec<Finding>> {
    for (field, expected) in [("kind", KIND), ("apiVersion", GROUP_VERSION)] {
        if document.value.get(field).and_then(Value::as_str) != Some(expected) {
            return Err(vec![Finding { path: field.to_owned(), message: format!("must be {expected}") }]);
        }
    }
    support::effective(&deserialize(&document.value)?)
}
