//! The pods of an installation and what belongs to them.

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapVolumeSource, Container, ContainerPort, HTTPGetAction, PodAffinityTerm,
    PodAntiAffinity, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements,
    SeccompProfile, SecurityContext, Service, ServicePort, ServiceSpec, Volume, VolumeMount,
    WeightedPodAffinityTerm,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;

use super::{COMPONENT_LABEL, CONFIGURATION_KEY, Object, Settings, Stage, labels, metadata};
use crate::names::SCHEDULER_NAME;

/// The name of everything that is of the controller.
pub const CONTROLLER: &str = "gangway-controller";
/// The name of everything that is of the pod scheduler.
pub const SCHEDULER: &str = "gangway-scheduler";

const METRICS: &str = "metrics";
const HEALTH: &str = "health";
const CONFIGURATION: &str = "configuration";
const CONFIGURATION_DIRECTORY: &str = "/etc/gangway";
const SCHEDULER_PORT: i32 = 8443;
/// Nobody, as images without accounts call it.
const USER: i64 = 65532;

/// The parts that are installed.
pub(super) fn installed(settings: &Settings) -> Vec<&'static str> {
    if settings.scheduler { vec![CONTROLLER, SCHEDULER] } else { vec![CONTROLLER] }
}

/// One of several schedulers is chosen in the namespace of the installation.
pub(super) fn scheduler_configuration(settings: &Settings) -> String {
    format!(
        "# The configuration of the pod scheduler. `gangway config show --scheduler` prints every setting.\n\
         apiVersion: kubescheduler.config.k8s.io/v1\n\
         kind: KubeSchedulerConfiguration\n\
         leaderElection: {{leaderElect: true, resourceNamespace: {}, resourceName: {SCHEDULER}}}\n\
         profiles: [{{schedulerName: {SCHEDULER_NAME}}}]\n",
        settings.namespace
    )
}

/// The objects of a part that runs.
pub(super) fn objects(settings: &Settings, part: &'static str) -> Vec<Object> {
    let mut objects = vec![
        Object::new(Stage::Parts, &deployment(settings, part)),
        Object::new(Stage::Parts, &disruption_budget(settings, part)),
    ];
    if metrics_port(settings, part).is_none() {
        return objects;
    }
    objects.push(Object::new(Stage::Parts, &service(settings, part)));
    if settings.service_monitor {
        objects.push(Object::new(Stage::Parts, &service_monitor(settings, part)));
    }
    objects
}

fn metrics_port(settings: &Settings, part: &str) -> Option<i32> {
    if part == SCHEDULER {
        return Some(SCHEDULER_PORT);
    }
    settings.configuration.serving.metrics.map(|address| i32::from(address.port()))
}

/// The controller has a port for its health alone.
fn health_port(settings: &Settings, part: &str) -> Option<i32> {
    if part == SCHEDULER {
        return None;
    }
    settings.configuration.serving.health.map(|address| i32::from(address.port()))
}

fn selector(part: &str) -> LabelSelector {
    let labels = [("app.kubernetes.io/name", "gangway"), (COMPONENT_LABEL, part)];
    let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    LabelSelector { match_labels: Some(labels.collect()), match_expressions: None }
}

fn deployment(settings: &Settings, part: &'static str) -> Deployment {
    let elected = part == SCHEDULER || settings.configuration.leader_election.is_some();
    // Where nobody is chosen, two may not even meet while one replaces the other.
    let strategy = if elected { "RollingUpdate" } else { "Recreate" };
    Deployment {
        metadata: metadata(settings, part, part),
        spec: DeploymentSpec {
            replicas: Some(settings.replicas),
            selector: selector(part),
            strategy: Some(DeploymentStrategy { type_: Some(strategy.to_owned()), rolling_update: None }),
            template: template(settings, part),
            ..DeploymentSpec::default()
        },
        status: None,
    }
}

fn template(settings: &Settings, part: &'static str) -> PodTemplateSpec {
    let text = if part == CONTROLLER {
        settings.configuration_text.clone()
    } else {
        scheduler_configuration(settings)
    };
    let digest = ("gangway.dev/configuration-digest".to_owned(), digest(&text));
    let metadata = ObjectMeta {
        labels: Some(labels(part)),
        annotations: Some([digest].into()),
        ..ObjectMeta::default()
    };
    let volume = Volume {
        name: CONFIGURATION.to_owned(),
        config_map: Some(ConfigMapVolumeSource { name: part.to_owned(), ..ConfigMapVolumeSource::default() }),
        ..Volume::default()
    };
    let spec = PodSpec {
        service_account_name: Some(part.to_owned()),
        containers: vec![container(settings, part)],
        volumes: Some(vec![volume]),
        affinity: Some(apart(part)),
        security_context: Some(PodSecurityContext {
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            run_as_group: Some(USER),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                localhost_profile: None,
            }),
            ..PodSecurityContext::default()
        }),
        termination_grace_period_seconds: Some(10),
        ..PodSpec::default()
    };
    PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
}

/// Changes with the text, so that another configuration file makes other pods.
fn digest(text: &str) -> String {
    // FNV-1a: the same everywhere and always, which is all that is asked for.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Pods of one part are on different nodes where there are some.
fn apart(part: &str) -> Affinity {
    let term = PodAffinityTerm {
        label_selector: Some(selector(part)),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    let term = WeightedPodAffinityTerm { weight: 100, pod_affinity_term: term };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(vec![term]),
            ..PodAntiAffinity::default()
        }),
        ..Affinity::default()
    }
}

fn container(settings: &Settings, part: &'static str) -> Container {
    let file = format!("{CONFIGURATION_DIRECTORY}/{CONFIGURATION_KEY}");
    let command = part.strip_prefix("gangway-").unwrap_or(part);
    let mut args = vec![command.to_owned(), "--config".to_owned(), file];
    if part == SCHEDULER {
        args.extend(["--metrics-bind-address".to_owned(), format!("0.0.0.0:{SCHEDULER_PORT}")]);
    }
    let health = if health_port(settings, part).is_some() { HEALTH } else { METRICS };
    let port = |name: &str, number: i32| ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let metrics = metrics_port(settings, part).map(|number| port(METRICS, number));
    let health_port = health_port(settings, part).map(|number| port(HEALTH, number));
    Container {
        name: command.to_owned(),
        image: Some(settings.image.clone()),
        command: Some(vec!["/gangway".to_owned()]),
        args: Some(args),
        ports: Some(metrics.into_iter().chain(health_port).collect()),
        // One that stands still is replaced after a minute; one that starts is ready once it knows everything.
        liveness_probe: Some(probe("/healthz", health, 20)),
        readiness_probe: Some(probe("/readyz", health, 5)),
        resources: Some(ResourceRequirements {
            requests: Some(
                [("cpu", "100m"), ("memory", "128Mi")]
                    .map(|(name, amount)| (name.to_owned(), Quantity(amount.to_owned())))
                    .into(),
            ),
            ..ResourceRequirements::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: CONFIGURATION.to_owned(),
            mount_path: CONFIGURATION_DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

fn probe(path: &str, port: &str, period_seconds: i32) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String(port.to_owned()),
            ..HTTPGetAction::default()
        }),
        period_seconds: Some(period_seconds),
        failure_threshold: Some(3),
        ..Probe::default()
    }
}

/// At most one goes at a time, so that a drained node does not take all.
fn disruption_budget(settings: &Settings, part: &str) -> PodDisruptionBudget {
    PodDisruptionBudget {
        metadata: metadata(settings, part, part),
        spec: Some(PodDisruptionBudgetSpec {
            max_unavailable: Some(IntOrString::Int(1)),
            selector: Some(selector(part)),
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_owned()),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}

fn service(settings: &Settings, part: &str) -> Service {
    let port = metrics_port(settings, part).unwrap_or(SCHEDULER_PORT);
    Service {
        metadata: metadata(settings, &format!("{part}-metrics"), part),
        spec: Some(ServiceSpec {
            selector: selector(part).match_labels,
            ports: Some(vec![ServicePort {
                name: Some(METRICS.to_owned()),
                port,
                target_port: Some(IntOrString::String(METRICS.to_owned())),
                protocol: Some("TCP".to_owned()),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

fn service_monitor(settings: &Settings, part: &str) -> serde_json::Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": metadata(settings, part, part),
        "spec": {
            "selector": selector(part),
            "endpoints": [{"port": METRICS, "path": "/metrics", "scheme": "http"}],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::DEFAULT_NAMESPACE;

    fn deployed(settings: &Settings, part: &'static str) -> serde_json::Value {
        objects(settings, part)[0].value.clone()
    }

    #[test]
    fn another_configuration_makes_other_pods() {
        let mut settings = Settings::new(DEFAULT_NAMESPACE).unwrap();
        let before = deployed(&settings, CONTROLLER);
        assert_eq!(before, deployed(&settings, CONTROLLER));
        settings.configuration_text.push_str("# more\n");
        assert_ne!(before["spec"]["template"], deployed(&settings, CONTROLLER)["spec"]["template"]);
        assert_eq!(digest(""), "cbf29ce484222325");
        assert_eq!(digest("a"), "af63dc4c8601ec8c");
    }

    #[test]
    fn ports_are_those_of_the_configuration() {
        let mut settings = Settings::new(DEFAULT_NAMESPACE).unwrap();
        let ports = |settings: &Settings| {
            let container = &deployed(settings, CONTROLLER)["spec"]["template"]["spec"]["containers"][0];
            let ports = container["ports"].as_array().unwrap().iter();
            ports
                .map(|port| (port["name"].to_string(), port["containerPort"].as_i64().unwrap()))
                .collect::<Vec<_>>()
        };
        assert_eq!(ports(&settings), [("\"metrics\"".to_owned(), 8443), ("\"health\"".to_owned(), 8081)]);
        settings.configuration.serving.metrics = None;
        assert_eq!(ports(&settings), [("\"health\"".to_owned(), 8081)]);
        assert_eq!(objects(&settings, CONTROLLER).len(), 2, "nothing is served, so there is no Service");
    }

    #[test]
    fn the_scheduler_reads_its_configuration() {
        let settings = Settings::new("here").unwrap();
        let text = scheduler_configuration(&settings);
        let read = crate::scheduler_config::load("scheduler.yaml", &text).unwrap();
        let names: Vec<&str> = read.settings.profiles.iter().map(|p| p.scheduler_name.as_str()).collect();
        assert_eq!(names, [SCHEDULER_NAME]);
        let election = read.leader_election.unwrap();
        assert_eq!((election.namespace.as_str(), election.name.as_str()), ("here", SCHEDULER));
    }

    #[test]
    fn nothing_runs_as_root_or_writes_to_its_image() {
        let settings = Settings { scheduler: true, ..Settings::new(DEFAULT_NAMESPACE).unwrap() };
        for part in installed(&settings) {
            let pod = &deployed(&settings, part)["spec"]["template"]["spec"];
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            let container = &pod["containers"][0]["securityContext"];
            assert_eq!(container["readOnlyRootFilesystem"], true);
            assert_eq!(container["allowPrivilegeEscalation"], false);
        }
    }
}
