//! The configuration file: `Configuration` of `config.kueue.x-k8s.io`, v1beta1 or v1beta2, read strictly.
//!
//! A setting that asks for what Gangway does anyway is accepted; one that asks for something else is refused by
//! name. Nothing is ignored.

mod election;
pub(crate) mod file;
mod readiness;
mod serving;
mod support;

use std::fmt;

use gangway_model::readiness::WaitForPodsReady;
use gangway_model::selector::{LabelSelector, Operator, Requirement};
use serde_json::{Value, json};

use crate::names::BATCH_JOB_FRAMEWORK;
use crate::records::ResourceRules;
use crate::strict::{Finding, deserialize};
use crate::yaml::{Document, documents};
pub use election::LeaderElection;
use file::File;
pub use serving::Serving;
pub(crate) use support::Refusals;

/// The group of the configuration file.
pub const GROUP: &str = "config.kueue.x-k8s.io";
/// The namespace in which the controller lives where nothing else is said.
pub const DEFAULT_NAMESPACE: &str = "kueue-system";
const NAMESPACE_NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The configuration with which the controller runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// The namespace in which the controller lives.
    pub namespace: String,
    /// The namespaces whose jobs are managed.
    pub managed_jobs_namespace_selector: LabelSelector,
    /// Whether Jobs there that name no queue are managed too: they wait until they name one.
    pub manage_jobs_without_queue_name: bool,
    /// How many requests per second the controller may send in the long run.
    pub requests_per_second: f64,
    /// How many it may send at once.
    pub request_burst: u32,
    /// The kinds of jobs that are managed.
    pub frameworks: Vec<String>,
    /// Resources whose names begin so do not count against quota.
    pub exclude_resource_prefixes: Vec<String>,
    /// After how many seconds a Workload that was told to leave and has not left is reported.
    pub eviction_report_seconds: u32,
    /// How one of several controllers is chosen; none if there is only one.
    pub leader_election: Option<LeaderElection>,
    /// When the pods of admitted Workloads have to be ready; none if nobody asks.
    pub wait_for_pods_ready: Option<WaitForPodsReady>,
    /// What is served over HTTP, and where.
    pub serving: Serving,
    /// Whether there are metrics of quota and its use, by flavor and resource.
    pub cluster_queue_metrics: bool,
    /// The LocalQueues that have metrics of their own.
    pub local_queue_metrics: Option<LabelSelector>,
}

impl Default for Configuration {
    fn default() -> Self {
        Self::in_namespace(DEFAULT_NAMESPACE)
    }
}

impl Configuration {
    /// What holds without a file, for a controller that lives in `namespace`.
    pub fn in_namespace(namespace: &str) -> Self {
        let own = Requirement {
            key: NAMESPACE_NAME_LABEL.to_owned(),
            operator: Operator::NotIn,
            values: vec!["kube-system".to_owned(), namespace.to_owned()],
        };
        Self {
            namespace: namespace.to_owned(),
            managed_jobs_namespace_selector: LabelSelector { requirements: vec![own] },
            manage_jobs_without_queue_name: false,
            requests_per_second: 300.0,
            request_burst: 500,
            frameworks: vec![BATCH_JOB_FRAMEWORK.to_owned()],
            exclude_resource_prefixes: Vec::new(),
            eviction_report_seconds: 600,
            leader_election: None,
            wait_for_pods_ready: None,
            serving: Serving::default(),
            cluster_queue_metrics: false,
            local_queue_metrics: Some(LabelSelector { requirements: Vec::new() }),
        }
    }

    /// What may go wrong with settings that can be used: which, and what.
    pub fn warnings(&self) -> Vec<(String, String)> {
        self.wait_for_pods_ready.as_ref().map(readiness::warnings).unwrap_or_default()
    }

    /// How this configuration changes what pods ask for.
    pub fn resource_rules(&self) -> ResourceRules {
        ResourceRules { exclude_prefixes: self.exclude_resource_prefixes.clone() }
    }

    fn show_metrics(&self) -> Value {
        let selector = self.local_queue_metrics.as_ref().map(|selector| selector.requirements.as_slice());
        let expressions: Vec<Value> = selector.unwrap_or_default().iter().map(requirement_json).collect();
        json!({
            "bindAddress": serving::show(self.serving.metrics),
            "enableClusterQueueResources": self.cluster_queue_metrics,
            "localQueueMetrics": {
                "enable": self.local_queue_metrics.is_some(),
                "localQueueSelector": {"matchExpressions": expressions},
            },
        })
    }

    /// The effective configuration as a file that would give it, defaults spelt out.
    pub fn show(&self) -> String {
        let expressions: Vec<Value> =
            self.managed_jobs_namespace_selector.requirements.iter().map(requirement_json).collect();
        let file = json!({
            "apiVersion": format!("{GROUP}/v1beta2"),
            "kind": "Configuration",
            "namespace": self.namespace,
            "manageJobsWithoutQueueName": self.manage_jobs_without_queue_name,
            "managedJobsNamespaceSelector": {"matchExpressions": expressions},
            "clientConnection": {"qps": self.requests_per_second, "burst": self.request_burst},
            "integrations": {"frameworks": self.frameworks},
            "resources": {
                "quotaCheckStrategy": "BlockUndeclared",
                "excludeResourcePrefixes": self.exclude_resource_prefixes,
            },
            "waitForPodsReady": readiness::show(self.wait_for_pods_ready.as_ref()),
            "evictionReportSeconds": self.eviction_report_seconds,
            "metrics": self.show_metrics(),
            "health": self.serving.show_health(),
            "leaderElection": LeaderElection::show(self.leader_election.as_ref()),
        });
        // Plain JSON always has a YAML form; the fallback is that form too, since JSON is YAML.
        serde_saphyr::to_string(&file).unwrap_or_else(|_| file.to_string())
    }
}

pub(crate) fn requirement_json(requirement: &Requirement) -> Value {
    let operator = match requirement.operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::GreaterThan => "Gt",
        Operator::LessThan => "Lt",
    };
    let mut json = json!({"key": requirement.key, "operator": operator});
    if !requirement.values.is_empty() {
        json["values"] = json!(requirement.values);
    }
    json
}

/// What is wrong with a configuration file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// The line, counted from 1; 0 if it is not known.
    pub line: u64,
    /// The setting, such as `integrations.frameworks[1]`; empty for the file as a whole.
    pub path: String,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl std::error::Error for ConfigError {}

/// The configuration that a file gives; `file` is its name for messages.
pub fn load(file: &str, text: &str) -> Result<Configuration, ConfigError> {
    load_document(file, text, read)
}

/// What the one document of a file gives, or the first that is wrong with it.
pub(crate) fn load_document<T>(
    file: &str,
    text: &str,
    read: impl FnOnce(&Document) -> Result<T, Vec<Finding>>,
) -> Result<T, ConfigError> {
    let error =
        |line, path: String, message: String| ConfigError { file: file.to_owned(), line, path, message };
    let documents = documents(text).map_err(|e| error(e.line, String::new(), e.message))?;
    let [document] = documents.as_slice() else {
        let message = format!("one document was expected here, and there are {}", documents.len());
        return Err(error(documents.get(1).map_or(1, |second| second.line), String::new(), message));
    };
    read(document).map_err(|findings| {
        let line_of = |finding: &Finding| document.line_of(&finding.path);
        match findings.into_iter().min_by_key(line_of) {
            Some(first) => error(line_of(&first), first.path, first.message),
            None => error(0, String::new(), "cannot be read".to_owned()),
        }
    })
}

fn read(document: &Document) -> Result<Configuration, Vec<Finding>> {
    let text = |field: &str| document.value.get(field).and_then(Value::as_str).unwrap_or("");
    let finding = |path: &str, message: String| vec![Finding { path: path.to_owned(), message }];
    if text("kind") != "Configuration" {
        return Err(finding("kind", "must be Configuration".to_owned()));
    }
    let version = text("apiVersion").strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    let version = match version {
        Some("v1beta1") => file::Version::V1Beta1,
        Some("v1beta2") => file::Version::V1Beta2,
        _ => return Err(finding("apiVersion", format!("must be {GROUP}/v1beta1 or {GROUP}/v1beta2"))),
    };
    let file: File = deserialize(&document.value)?;
    support::effective(&file, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V1: &str = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n";
    const V2: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    const OFF: &str = "waitForPodsReady: {enable: false}\n";

    fn error(text: &str) -> String {
        load("c.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_of_v1beta1_means_the_defaults() {
        assert_eq!(load("c.yaml", V1), Ok(Configuration::default()));
    }

    #[test]
    fn readiness_is_on_in_v1beta2_unless_it_is_switched_off() {
        let gate = "featureGates: {DisableWaitForPodsReady: true}\n";
        for text in [
            format!("{V2}{OFF}"),
            format!("{V2}{gate}"),
            format!("{V1}{gate}waitForPodsReady: {{enable: true}}\n"),
        ] {
            assert_eq!(load("c.yaml", &text), Ok(Configuration::default()), "{text}");
        }
        assert!(readiness(V2, "").is_some());
        assert_eq!(readiness(V1, "waitForPodsReady: {timeout: 1m}\n"), None);
    }

    fn readiness(version: &str, text: &str) -> Option<WaitForPodsReady> {
        load("c.yaml", &format!("{version}{text}")).unwrap().wait_for_pods_ready
    }

    #[test]
    fn each_version_has_its_own_defaults_of_readiness() {
        let of = |version, text: &str| {
            let read = readiness(version, &format!("waitForPodsReady: {{enable: true{text}}}\n")).unwrap();
            (read.timeout_seconds, read.block_admission, read.recovery_timeout_seconds)
        };
        let table = [
            (V1, "", (300, true, None)),
            (V1, ", timeout: 0s", (300, true, None)),
            (V1, ", timeout: 1m, blockAdmission: false, recoveryTimeout: 2m", (60, false, Some(120))),
            (V2, "", (1800, false, Some(1800))),
            (V2, ", timeout: 10m", (600, false, Some(600))),
            (V2, ", timeout: 0s, recoveryTimeout: 0s, blockAdmission: true", (1800, true, None)),
        ];
        for (version, text, expected) in table {
            assert_eq!(of(version, text), expected, "{version}{text}");
        }
    }

    #[test]
    fn zero_means_what_the_reference_says() {
        let text = "waitForPodsReady:\n  enable: true\n  requeuingStrategy:\n    timestamp: Creation\n    \
                    backoffLimitCount: 0\n    backoffBaseSeconds: 0\n    backoffMaxSeconds: 0\n";
        let read = readiness(V1, text).unwrap();
        assert_eq!(
            (read.backoff_limit_count, read.backoff_base_seconds, read.backoff_max_seconds),
            (Some(0), 0, 0)
        );
        assert_eq!(read.timestamp, gangway_model::readiness::RequeuingTimestamp::Creation);
        assert_eq!(read.reset_after_ready_seconds, 0, "as the longest backoff, if nothing else is said");
        let default = readiness(V1, "waitForPodsReady: {enable: true}\n").unwrap();
        assert_eq!(
            (default.backoff_limit_count, default.backoff_base_seconds, default.backoff_max_seconds),
            (None, 60, 3600)
        );
        assert_eq!(default.reset_after_ready_seconds, 3600);
        let shown = load("c.yaml", &format!("{V1}{text}")).unwrap();
        assert_eq!(load("shown", &shown.show()), Ok(shown));
    }

    #[test]
    fn dangerous_settings_of_readiness_are_told() {
        let warned = |text: &str| {
            let file = format!("{V2}waitForPodsReady:\n  enable: true\n{text}");
            let warnings = load("c.yaml", &file).unwrap().warnings();
            warnings.into_iter().map(|(path, _)| path.replace("waitForPodsReady.", "")).collect::<Vec<_>>()
        };
        let strategy = |text: &str| format!("  requeuingStrategy: {{backoffLimitCount: 3, {text}}}\n");
        assert_eq!(warned(""), ["requeuingStrategy.backoffLimitCount"]);
        assert!(warned(&strategy("")).is_empty());
        assert_eq!(warned(&strategy("timestamp: Creation")), ["requeuingStrategy.timestamp"]);
        assert_eq!(
            warned(&strategy("backoffBaseSeconds: 9, backoffMaxSeconds: 5")),
            ["requeuingStrategy.backoffBaseSeconds"]
        );
        assert_eq!(
            warned(&format!("{}  recoveryTimeout: 0s\n  blockAdmission: true\n", strategy(""))),
            ["recoveryTimeout", "blockAdmission"]
        );
        assert_eq!(
            warned("  requeuingStrategy: {backoffBaseSeconds: 0}\n"),
            ["requeuingStrategy.backoffLimitCount", "requeuingStrategy.backoffBaseSeconds"]
        );
        assert!(Configuration::default().warnings().is_empty());
    }

    #[test]
    fn what_is_supported_takes_effect() {
        let text = format!(
            "{V1}namespace: ours\nclientConnection: {{qps: 50, burst: 100}}\nresources:\n  excludeResourcePrefixes: [example.com/]\n\
             integrations: {{frameworks: [batch/job]}}\nevictionReportSeconds: 30\nmanagedJobsNamespaceSelector:\n  matchLabels: {{team: a}}\n"
        );
        let read = load("c.yaml", &text).unwrap();
        assert_eq!(
            (read.namespace.as_str(), read.requests_per_second, read.request_burst),
            ("ours", 50.0, 100)
        );
        assert_eq!(read.exclude_resource_prefixes, vec!["example.com/"]);
        assert_eq!(
            (Configuration::default().eviction_report_seconds, read.eviction_report_seconds),
            (600, 30)
        );
        assert_eq!(read.managed_jobs_namespace_selector.requirements, vec![Requirement::equals("team", "a")]);
        assert_eq!(load("shown", &read.show()), Ok(read));
    }

    #[test]
    fn metrics_and_health_are_served_where_it_is_asked_for() {
        let read =
            |text: &str| load("config.yaml", &format!("{V1}{text}\n")).map_err(|error| error.to_string());
        let metrics = |address: &str| {
            read(&format!("metrics: {{bindAddress: {address:?}}}"))
                .map(|config| config.serving.metrics.map(|at| at.to_string()))
        };
        assert_eq!(metrics("0"), Ok(None));
        assert_eq!(metrics(":8443"), Ok(Some("0.0.0.0:8443".to_owned())));
        assert_eq!(metrics("127.0.0.1:0"), Ok(Some("127.0.0.1:0".to_owned())));
        let wrong =
            r#"config.yaml:3: metrics.bindAddress: "everywhere" is none; write :PORT, IP:PORT or "0" (off)"#;
        assert_eq!(metrics("everywhere"), Err(wrong.to_owned()));
        let config = read("health: {healthProbeBindAddress: ':8081', readinessEndpointName: ready}").unwrap();
        assert_eq!(config.serving.health.map(|at| at.to_string()).as_deref(), Some("0.0.0.0:8081"));
        assert_eq!(
            (config.serving.readiness.as_str(), config.serving.liveness.as_str()),
            ("/ready", "/healthz")
        );
        assert_eq!(load("shown", &config.show()), Ok(config));
        for name in ["metrics", "a/b", "a b", "same"] {
            let names = format!("health: {{readinessEndpointName: {name}, livenessEndpointName: same}}");
            assert!(
                read(&names).is_err_and(|error| error.contains("health.readinessEndpointName: ")),
                "{name}"
            );
        }
    }

    #[test]
    fn which_queues_have_metrics_is_said_as_in_the_reference() {
        let read = |text: &str| load("config.yaml", &format!("{V1}{text}\n")).unwrap();
        assert!(read("").local_queue_metrics.is_some_and(|selector| selector.requirements.is_empty()));
        for off in
            ["metrics: {localQueueMetrics: {enable: false}}", "featureGates: {LocalQueueMetrics: false}"]
        {
            assert_eq!(read(off).local_queue_metrics, None, "{off}");
        }
        let some = "metrics: {enableClusterQueueResources: true, localQueueMetrics: {localQueueSelector: {matchLabels: {team: a}}}}";
        let config = read(some);
        let requirements = config.local_queue_metrics.clone().map(|selector| selector.requirements);
        assert_eq!(requirements, Some(vec![Requirement::equals("team", "a")]));
        assert!(config.cluster_queue_metrics);
        assert_eq!(load("shown", &config.show()), Ok(config));
    }

    #[test]
    fn election_is_off_unless_it_is_asked_for() {
        let election = |text: &str| load("c.yaml", &format!("{V1}{text}")).unwrap().leader_election;
        assert_eq!(election(""), None);
        assert_eq!(election("leaderElection: {leaderElect: false}"), None);
        let default = LeaderElection::in_namespace(DEFAULT_NAMESPACE);
        assert_eq!(election("leaderElection: {leaderElect: true}"), Some(default.clone()));
        let text = "leaderElection: {leaseDuration: 1m30s, resourceName: ours, resourceNamespace: there}";
        let lease_duration = std::time::Duration::from_secs(90);
        let (name, namespace) = ("ours".to_owned(), "there".to_owned());
        assert_eq!(election(text), Some(LeaderElection { lease_duration, name, namespace, ..default }));
        let read = load("c.yaml", &format!("{V1}{text}")).unwrap();
        assert_eq!(load("shown", &read.show()), Ok(read));
    }

    #[test]
    fn what_is_shown_reads_back() {
        let shown = Configuration::default().show();
        assert_eq!(load("shown", &shown), Ok(Configuration::default()), "{shown}");
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let table = [
            (
                "manageJobWithoutQueueName: true",
                "3: manageJobWithoutQueueName: unknown field; did you mean \"manageJobsWithoutQueueName\"?",
            ),
            ("clientConnection:\n  qsp: 1", "4: clientConnection.qsp: unknown field; did you mean \"qps\"?"),
            (
                "clientConnection:\n  qps: many",
                "4: clientConnection.qps: invalid type: string \"many\", expected f64",
            ),
            ("clientConnection:\n  qps: -1", "4: clientConnection.qps: must be more than 0"),
            ("evictionReportSeconds: 0", "3: evictionReportSeconds: must be more than 0"),
            (
                "integrations:\n  frameworks:\n  - batch/job\n  - ray.io/rayjob",
                "6: integrations.frameworks[1]: \"ray.io/rayjob\" is not supported yet; only batch/job is",
            ),
            (
                "integrations:\n  frameworks: [batch/jobs]",
                "4: integrations.frameworks[0]: unknown framework \"batch/jobs\"; did you mean \"batch/job\"?",
            ),
            (
                "integrations:\n  frameworks: [batch/job, batch/job]",
                "4: integrations.frameworks[1]: \"batch/job\" is listed twice",
            ),
            (
                "leaderElection:\n  leaseDuration: soon",
                "4: leaderElection.leaseDuration: \"soon\" is not a time such as \"15s\" or \"1m30s\"",
            ),
            (
                "leaderElection:\n  renewDeadline: 15s",
                "4: leaderElection.renewDeadline: must be less than leaseDuration",
            ),
            (
                "leaderElection:\n  retryPeriod: -2s",
                "4: leaderElection.retryPeriod: \"-2s\" is not a time such as \"15s\" or \"1m30s\"",
            ),
            (
                "leaderElection:\n  resourceLock: endpoints",
                "4: leaderElection.resourceLock: only \"leases\" is supported",
            ),
            ("fairSharing:\n  enable: true", "4: fairSharing.enable: is not supported yet; only false is"),
            ("multiKueue: {}", "3: multiKueue: is not supported yet; leave it out"),
            (
                "featureGates:\n  TopologyAwareScheduling: true",
                "4: featureGates.TopologyAwareScheduling: is not supported yet; only false is",
            ),
            (
                "featureGates:\n  Nonsense: true",
                "4: featureGates.Nonsense: unknown feature gate, or one that is not supported yet",
            ),
            (
                "managedJobsNamespaceSelector: {}",
                "3: managedJobsNamespaceSelector: must not select the namespace kube-system",
            ),
            (
                "resources:\n  quotaCheckStrategy: IgnoreUndeclared",
                "4: resources.quotaCheckStrategy: is not supported yet; only \"BlockUndeclared\" is",
            ),
        ];
        for (setting, expected) in table {
            assert_eq!(error(&format!("{V1}{setting}\n")), format!("c.yaml:{expected}"), "{setting}");
        }
    }

    #[test]
    fn mistakes_of_readiness_are_named_with_their_line() {
        let table = [
            (
                "waitForPodsReady:\n  enable: true\n  timeout: soon",
                "5: waitForPodsReady.timeout: \"soon\" is not a length of time such as \"90s\" or \"1h30m\"",
            ),
            (
                "waitForPodsReady:\n  enable: true\n  recoveryTimeout: -1s",
                "5: waitForPodsReady.recoveryTimeout: \"-1s\" is not a length of time such as \"90s\" or \"1h30m\"",
            ),
            (
                "waitForPodsReady:\n  enable: true\n  requeuingStrategy:\n    timestamp: Eviktion",
                "6: waitForPodsReady.requeuingStrategy.timestamp: \"Eviktion\" is not one of Eviction, Creation",
            ),
            (
                "waitForPodsReady:\n  enable: true\n  requeuingStrategy:\n    backoffLimitCount: -1",
                "6: waitForPodsReady.requeuingStrategy.backoffLimitCount: must be 0 to 2147483647",
            ),
            (
                "waitForPodsReady:\n  enable: true\n  blockAdmision: true",
                "5: waitForPodsReady.blockAdmision: unknown field; did you mean \"blockAdmission\"?",
            ),
        ];
        for (setting, expected) in table {
            assert_eq!(error(&format!("{V1}{setting}\n")), format!("c.yaml:{expected}"), "{setting}");
        }
    }

    #[test]
    fn files_of_another_kind_are_refused() {
        assert_eq!(
            error("apiVersion: v1\nkind: Configuration\n"),
            "c.yaml:1: apiVersion: must be config.kueue.x-k8s.io/v1beta1 or config.kueue.x-k8s.io/v1beta2"
        );
        assert_eq!(error("kind: Pod\n"), "c.yaml:1: kind: must be Configuration");
        assert_eq!(error(""), "c.yaml:1: one document was expected here, and there are 0");
        assert!(error("a: [").starts_with("c.yaml:"), "{}", error("a: ["));
    }
}
