//! What of a configuration file is supported, and the configuration that it gives.

use gangway_model::selector::Labels;

use super::file::{File, Version};
use super::{Configuration, DEFAULT_NAMESPACE, LeaderElection, NAMESPACE_NAME_LABEL, readiness, serving};
use crate::names::BATCH_JOB_FRAMEWORK;
use crate::records::label_selector;
use crate::strict::{Finding, closest, item_path};

/// The frameworks of the reference; all but the first come with later work.
const FRAMEWORKS: &[&str] = &[
    BATCH_JOB_FRAMEWORK,
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/jaxjob",
    "trainer.kubeflow.org/trainjob",
    "ray.io/rayjob",
    "ray.io/raycluster",
    "ray.io/rayservice",
    "jobset.x-k8s.io/jobset",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
];

/// Feature gates of the reference that say something about Gangway, and the value that is the case.
const GATES: &[(&str, bool)] = &[
    ("DisableWaitForPodsReady", true),
    ("FlavorFungibility", true),
    ("AdmissionGatedBy", true),
    ("UnadmittedWorkloadsObservability", true),
    ("AssignQueueLabelsForPods", true),
    ("ManagedJobsNamespaceSelectorAlwaysRespected", true),
    ("QuotaCheckStrategy", true),
    ("UnadmittedWorkloadsExplicitStatus", false),
    ("PartialAdmission", false),
    ("TopologyAwareScheduling", false),
    ("MultiKueue", false),
    ("AdmissionFairSharing", false),
    ("ConcurrentAdmission", false),
    ("PriorityBoost", false),
    ("ElasticJobsViaWorkloadSlices", false),
    ("WorkloadPriorityClassDefaulting", false),
    ("VisibilityOnDemand", false),
    ("LocalQueueMetrics", true),
    ("MetricsForCohorts", true),
    ("MetricForWorkloadCreationLatency", true),
    ("CustomMetricLabels", false),
    ("ReclaimablePods", false),
    ("FailureRecoveryPolicy", false),
    ("ShortWorkloadNames", false),
    ("SparkApplicationIntegration", false),
    ("KueueDRAIntegration", false),
];

/// Collects what cannot be done.
#[derive(Default)]
pub(crate) struct Refusals(pub(crate) Vec<Finding>);

impl Refusals {
    pub(crate) fn refuse(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(Finding { path: path.into(), message: message.into() });
    }

    /// Refuses a setting that is there at all.
    pub(crate) fn present<T>(&mut self, path: &str, setting: Option<&T>) {
        if setting.is_some() {
            self.refuse(path, "is not supported yet; leave it out");
        }
    }

    /// Refuses a list that is not empty.
    pub(crate) fn list<T>(&mut self, path: &str, setting: Option<&Vec<T>>) {
        if setting.is_some_and(|list| !list.is_empty()) {
            self.refuse(path, "is not supported yet; leave it out");
        }
    }

    /// Refuses a switch that is not as it has to be.
    pub(crate) fn switch(&mut self, path: &str, setting: Option<bool>, supported: bool) {
        if setting.is_some_and(|setting| setting != supported) {
            self.refuse(path, format!("is not supported yet; only {supported} is"));
        }
    }

    /// Refuses an address other than those that mean that nothing listens.
    fn address(&mut self, path: &str, setting: Option<&String>) {
        if setting.is_some_and(|address| !matches!(address.as_str(), "" | "0")) {
            self.refuse(path, "is not supported yet; only \"0\" (off) is");
        }
    }
}

/// The configuration that a file gives, or all that is not supported in it.
pub fn effective(file: &File, version: Version) -> Result<Configuration, Vec<Finding>> {
    let mut refusals = Refusals::default();
    let namespace = file.namespace.as_deref().filter(|name| !name.is_empty()).unwrap_or(DEFAULT_NAMESPACE);
    let mut configuration = Configuration::in_namespace(namespace);
    namespaces(file, &mut configuration, &mut refusals);
    client_connection(file, &mut configuration, &mut refusals);
    integrations(file, &mut refusals);
    resources(file, &mut configuration, &mut refusals);
    configuration.wait_for_pods_ready = readiness::read(file, version, &mut refusals.0);
    evictions(file, &mut configuration, &mut refusals);
    leader_election(file, &mut configuration, &mut refusals);
    metrics(file, &mut configuration, &mut refusals);
    servers(file, &mut configuration, &mut refusals);
    features(file, version, &mut refusals);
    if refusals.0.is_empty() { Ok(configuration) } else { Err(refusals.0) }
}

fn namespaces(file: &File, configuration: &mut Configuration, refusals: &mut Refusals) {
    const PATH: &str = "managedJobsNamespaceSelector";
    configuration.manage_jobs_without_queue_name = file.manage_jobs_without_queue_name.unwrap_or(false);
    let Some(selector) = &file.managed_jobs_namespace_selector else { return };
    match label_selector(selector) {
        Ok(selector) => {
            for reserved in ["kube-system", configuration.namespace.as_str()] {
                let labels = Labels::from([(NAMESPACE_NAME_LABEL.to_owned(), reserved.to_owned())]);
                if selector.matches(&labels) {
                    refusals.refuse(PATH, format!("must not select the namespace {reserved}"));
                }
            }
            configuration.managed_jobs_namespace_selector = selector;
        }
        Err(message) => refusals.refuse(PATH, message),
    }
}

fn client_connection(file: &File, configuration: &mut Configuration, refusals: &mut Refusals) {
    let Some(client) = &file.client_connection else { return };
    if let Some(qps) = client.qps {
        if qps.is_nan() || qps <= 0.0 {
            refusals.refuse("clientConnection.qps", "must be more than 0");
        }
        configuration.requests_per_second = qps;
    }
    if let Some(burst) = client.burst {
        match u32::try_from(burst).ok().filter(|burst| *burst > 0) {
            Some(burst) => configuration.request_burst = burst,
            None => refusals.refuse("clientConnection.burst", "must be more than 0"),
        }
    }
}

fn integrations(file: &File, refusals: &mut Refusals) {
    let Some(integrations) = &file.integrations else { return };
    let frameworks = integrations.frameworks.as_deref().unwrap_or_default();
    for (index, framework) in frameworks.iter().enumerate() {
        let path = item_path("integrations.frameworks", index);
        if frameworks[..index].contains(framework) {
            refusals.refuse(path, format!("{framework:?} is listed twice"));
        } else if !FRAMEWORKS.contains(&framework.as_str()) {
            let guess = closest(framework, FRAMEWORKS).map(|known| format!("; did you mean {known:?}?"));
            let guess = guess.unwrap_or_else(|| format!("; only {BATCH_JOB_FRAMEWORK} is supported"));
            refusals.refuse(path, format!("unknown framework {framework:?}{guess}"));
        } else if framework != BATCH_JOB_FRAMEWORK {
            refusals
                .refuse(path, format!("{framework:?} is not supported yet; only {BATCH_JOB_FRAMEWORK} is"));
        }
    }
    refusals.list("integrations.externalFrameworks", integrations.external_frameworks.as_ref());
    refusals.list("integrations.labelKeysToCopy", integrations.label_keys_to_copy.as_ref());
    refusals.present("integrations.podOptions", integrations.pod_options.as_ref());
}

fn resources(file: &File, configuration: &mut Configuration, refusals: &mut Refusals) {
    let Some(resources) = &file.resources else { return };
    if resources.quota_check_strategy.as_deref().is_some_and(|strategy| strategy != "BlockUndeclared") {
        refusals.refuse("resources.quotaCheckStrategy", "is not supported yet; only \"BlockUndeclared\" is");
    }
    refusals.list("resources.transformations", resources.transformations.as_ref());
    refusals.list("resources.deviceClassMappings", resources.device_class_mappings.as_ref());
    configuration.exclude_resource_prefixes = resources.exclude_resource_prefixes.clone().unwrap_or_default();
}

fn evictions(file: &File, configuration: &mut Configuration, refusals: &mut Refusals) {
    let Some(seconds) = file.eviction_report_seconds else { return };
    match u32::try_from(seconds).ok().filter(|seconds| *seconds > 0) {
        Some(seconds) => configuration.eviction_report_seconds = seconds,
        None => refusals.refuse("evictionReportSeconds", "must be more than 0"),
    }
}

/// Off unless it is asked for: a controller that is started by hand is usually alone.
fn leader_election(file: &File, configuration: &mut Configuration, refusals: &mut Refusals) {
    let Some(election) = file.leader_election.as_ref().filter(|e| e.leader_elect.unwrap_or(true)) else {
        return;
    };
    match LeaderElection::read(election, LeaderElection::in_namespace(&configuration.namespace)) {
        Ok(election) => configuration.leader_election = Some(election),
        Err((field, message)) => refusals.refuse(format!("leaderElection.{field}"), message),
    }
}

fn metrics(file: &File, configuration: &mut Configuration, refusals: &mut Refusals) {
    let gates = file.feature_gates.as_ref();
    if gates.and_then(|gates| gates.get("LocalQueueMetrics")) == Some(&false) {
        configuration.local_queue_metrics = None;
    }
    let Some(metrics) = &file.metrics else { return };
    configuration.serving.metrics =
        serving::listening("metrics.bindAddress", metrics.bind_address.as_ref(), refusals);
    configuration.cluster_queue_metrics = metrics.enable_cluster_queue_resources.unwrap_or(false);
    if let Some(local) = &metrics.local_queue_metrics {
        match local.local_queue_selector.as_ref().map(label_selector) {
            _ if local.enable == Some(false) => configuration.local_queue_metrics = None,
            Some(Ok(selector)) if configuration.local_queue_metrics.is_some() => {
                configuration.local_queue_metrics = Some(selector);
            }
            Some(Err(message)) => refusals.refuse("metrics.localQueueMetrics.localQueueSelector", message),
            _ => {}
        }
    }
    refusals.list("metrics.customLabels", metrics.custom_labels.as_ref());
}

fn servers(file: &File, configuration: &mut Configuration, refusals: &mut Refusals) {
    if let Some(health) = &file.health {
        configuration.serving.read_health(health, refusals);
    }
    refusals.address("pprofBindAddress", file.pprof_bind_address.as_ref());
    if let Some(certificates) = &file.internal_cert_management {
        refusals.switch("internalCertManagement.enable", Some(certificates.enable.unwrap_or(true)), false);
    }
    refusals.present("webhook", file.webhook.as_ref());
    refusals.present("tls", file.tls.as_ref());
    refusals.present("controller", file.controller.as_ref());
    refusals.present("visibilityServer", file.visibility_server.as_ref());
    refusals.present("queueVisibility", file.queue_visibility.as_ref());
}

fn features(file: &File, version: Version, refusals: &mut Refusals) {
    if let Some(sharing) = &file.fair_sharing {
        match (version, sharing.enable) {
            (_, Some(enable)) => refusals.switch("fairSharing.enable", Some(enable), false),
            (Version::V1Beta2, None) => refusals.present("fairSharing", Some(sharing)),
            (Version::V1Beta1, None) => {}
        }
    }
    refusals.present("admissionFairSharing", file.admission_fair_sharing.as_ref());
    refusals.present("objectRetentionPolicies", file.object_retention_policies.as_ref());
    refusals.present("multiKueue", file.multi_kueue.as_ref());
    for (gate, value) in file.feature_gates.iter().flatten() {
        let path = format!("featureGates.{gate}");
        match GATES.iter().find(|(known, _)| known == gate) {
            // Read where readiness and metrics are.
            Some(("DisableWaitForPodsReady" | "LocalQueueMetrics", _)) => {}
            Some((_, supported)) => refusals.switch(&path, Some(*value), *supported),
            None => refusals.refuse(path, "unknown feature gate, or one that is not supported yet"),
        }
    }
}
