//! Everything that `gangway install` puts on a cluster, as pure functions of a few settings.
//!
//! | question | file |
//! |---|---|
//! | which rights, and what for? | `rights.rs` |
//! | which pods, and what belongs to them? | `parts.rs` |
//! | what happens to Jobs on their way in? | [`crate::policies`] |

mod parts;
mod rights;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::{self, ConfigError, Configuration};
use crate::{CustomResourceDefinition, crds, policies};
pub use parts::{CONTROLLER, SCHEDULER};
pub use rights::{RIGHTS, Right, UNSUPPORTED, Which, page as rights_page};

/// The namespace into which Gangway is installed where nothing else is said. It is not that of Kueue, so that neither
/// system's objects are in the way of the other's.
pub const DEFAULT_NAMESPACE: &str = "gangway-system";
/// The image where nothing else is said: what `podman build -t` of the Containerfile is told to call it.
pub const DEFAULT_IMAGE: &str = concat!("gangway:", env!("CARGO_PKG_VERSION"));
/// The label by which our objects are known, and its value.
pub const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "gangway");
/// The label that says of which part an object is.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// The label that says which version wrote an object.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// The key of the configuration file in its ConfigMap.
pub const CONFIGURATION_KEY: &str = "gangway.yaml";

/// What an installation may be told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of all that has one.
    pub namespace: String,
    /// The image of the pods.
    pub image: String,
    /// How many controllers there are, one of which works.
    pub replicas: i32,
    /// The configuration file, as it is written into the ConfigMap.
    pub configuration_text: String,
    /// The same as it takes effect.
    pub configuration: Configuration,
    /// The minor version of Kubernetes.
    pub kubernetes_minor: u32,
    /// Whether the pod scheduler comes too.
    pub scheduler: bool,
    /// Whether a ServiceMonitor of the Prometheus operator comes too.
    pub service_monitor: bool,
}

impl Settings {
    /// What holds in a namespace where nothing else is said.
    ///
    /// # Errors
    ///
    /// If no namespace can have that name.
    pub fn new(namespace: &str) -> Result<Self, ConfigError> {
        let text = default_configuration(namespace);
        let configuration = config::load(CONFIGURATION_KEY, &text)?;
        Ok(Self::with_configuration(text, configuration))
    }

    /// The same with a configuration file, in the namespace that it names.
    pub fn with_configuration(configuration_text: String, configuration: Configuration) -> Self {
        Self {
            namespace: configuration.namespace.clone(),
            image: DEFAULT_IMAGE.to_owned(),
            replicas: 2,
            configuration_text,
            configuration,
            kubernetes_minor: policies::FIRST_MINOR,
            scheduler: false,
            service_monitor: false,
        }
    }

    /// Why these settings do not go together, and what to try.
    pub fn contradiction(&self) -> Option<(String, String)> {
        if self.replicas > 1 && self.configuration.leader_election.is_none() {
            let message = format!(
                "{} controllers would all decide: the configuration chooses none of them",
                self.replicas
            );
            let advice = "leaderElection: {leaderElect: true} in the configuration file, or --replicas 1";
            return Some((message, advice.to_owned()));
        }
        if self.configuration.serving.health.is_none() {
            let message =
                "the configuration serves no health, which the probes of the pods ask for".to_owned();
            let advice = "health: {healthProbeBindAddress: \":8081\"} in the configuration file";
            return Some((message, advice.to_owned()));
        }
        None
    }
}

/// The configuration file of an installation that was given none.
fn default_configuration(namespace: &str) -> String {
    format!(
        "# The configuration of the controller. `gangway config show` prints every setting with its default.\n\
         apiVersion: config.kueue.x-k8s.io/v1beta2\n\
         kind: Configuration\n\
         namespace: {namespace}\n\
         waitForPodsReady: {{enable: false}}\n\
         leaderElection: {{leaderElect: true}}\n\
         metrics: {{bindAddress: \":8443\"}}\n\
         health: {{healthProbeBindAddress: \":8081\"}}\n"
    )
}

/// Steps of an installation, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The namespace.
    Namespace,
    /// Our kinds. The next step has to wait until they are established.
    Definitions,
    /// Accounts and what they may do.
    Rights,
    /// Configuration files.
    Configuration,
    /// Admission policies.
    Policies,
    /// What runs.
    Parts,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Namespace, Self::Definitions, Self::Rights, Self::Configuration, Self::Policies, Self::Parts];

    /// The file of the kustomize base.
    fn file(self) -> &'static str {
        match self {
            Self::Namespace => "namespace.yaml",
            Self::Definitions => "definitions.yaml",
            Self::Rights => "rights.yaml",
            Self::Configuration => "configuration.yaml",
            Self::Policies => "policies.yaml",
            Self::Parts => "parts.yaml",
        }
    }
}

/// An object and when it is applied.
#[derive(Clone, Debug)]
pub struct Object {
    /// The step.
    pub stage: Stage,
    /// The object.
    pub value: Value,
}

impl Object {
    fn new(stage: Stage, object: &impl Serialize) -> Self {
        // Objects of Kubernetes have text keys only, so they have a JSON form.
        Self { stage, value: serde_json::to_value(object).unwrap_or_default() }
    }

    /// A field of the object's type, such as `kind`.
    pub fn text(&self, field: &str) -> &str {
        self.value[field].as_str().unwrap_or_default()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.value["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Its namespace, if it has one.
    pub fn namespace(&self) -> Option<&str> {
        self.value["metadata"]["namespace"].as_str()
    }
}

/// Labels of our objects.
pub fn labels(component: &str) -> BTreeMap<String, String> {
    let labels = [
        ("app.kubernetes.io/name", "gangway"),
        ("app.kubernetes.io/part-of", "gangway"),
        (VERSION_LABEL, env!("CARGO_PKG_VERSION")),
        (COMPONENT_LABEL, component),
        MANAGED_BY,
    ];
    labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn metadata(settings: &Settings, name: &str, component: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(settings.namespace.clone()),
        labels: Some(labels(component)),
        ..ObjectMeta::default()
    }
}

fn cluster_wide(name: &str, component: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), labels: Some(labels(component)), ..ObjectMeta::default() }
}

/// Our kinds, marked as ours.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let mut all = crds();
    for crd in &mut all {
        crd.metadata.labels.get_or_insert_default().extend(labels("definitions"));
    }
    all
}

/// Everything, in the order in which it is applied.
pub fn objects(settings: &Settings) -> Vec<Object> {
    let mut all = vec![Object::new(Stage::Namespace, &namespace(settings))];
    all.extend(definitions().iter().map(|crd| Object::new(Stage::Definitions, crd)));
    for part in parts::installed(settings) {
        let account =
            ServiceAccount { metadata: metadata(settings, part, part), ..ServiceAccount::default() };
        all.push(Object::new(Stage::Rights, &account));
        all.extend(rights::objects(settings, part));
        all.push(Object::new(Stage::Configuration, &configuration(settings, part)));
    }
    if settings.kubernetes_minor >= policies::FIRST_MINOR {
        let policies = policies::objects(&settings.configuration).into_iter();
        all.extend(policies.map(|value| Object { stage: Stage::Policies, value }));
    }
    for part in parts::installed(settings) {
        all.extend(parts::objects(settings, part));
    }
    all.sort_by_key(|object| object.stage);
    all
}

/// Nothing in it needs more than the least that pods may have.
fn namespace(settings: &Settings) -> Namespace {
    let mut metadata = cluster_wide(&settings.namespace, "namespace");
    let standard = ("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned());
    metadata.labels.get_or_insert_default().extend([standard]);
    Namespace { metadata, ..Namespace::default() }
}

fn configuration(settings: &Settings, part: &str) -> ConfigMap {
    let text = if part == CONTROLLER {
        settings.configuration_text.clone()
    } else {
        parts::scheduler_configuration(settings)
    };
    ConfigMap {
        metadata: metadata(settings, part, part),
        data: Some([(CONFIGURATION_KEY.to_owned(), text)].into()),
        ..ConfigMap::default()
    }
}

/// All objects as one YAML file.
///
/// # Errors
///
/// Never for what [`objects`] returns; a value that has no YAML form.
pub fn yaml<'o>(objects: impl IntoIterator<Item = &'o Object>) -> Result<String, serde_saphyr::ser::Error> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(&object.value)?);
    }
    Ok(text)
}

const HEAD: &str = "# Written from the code, and held equal to it by a test; see docs/install.md.\n";

/// The files of `deploy/`: one with everything, and a kustomize base.
///
/// # Errors
///
/// As [`yaml`].
pub fn files(settings: &Settings) -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    let objects = objects(settings);
    let mut files = vec![("install.yaml".to_owned(), format!("{HEAD}{}", yaml(&objects)?))];
    for stage in Stage::ALL {
        let of_stage = objects.iter().filter(|object| object.stage == stage);
        files.push((format!("base/{}", stage.file()), format!("{HEAD}{}", yaml(of_stage)?)));
    }
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": Stage::ALL.map(Stage::file),
    });
    let kustomization = serde_saphyr::to_string(&kustomization)?;
    files.push(("base/kustomization.yaml".to_owned(), format!("{HEAD}{kustomization}")));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(DEFAULT_NAMESPACE).unwrap()
    }

    fn kinds(settings: &Settings) -> Vec<String> {
        objects(settings).iter().map(|object| format!("{} {}", object.text("kind"), object.name())).collect()
    }

    #[test]
    fn what_is_needed_comes_first() {
        let all = objects(&settings());
        assert!(all.is_sorted_by_key(|object| object.stage));
        let position = |kind: &str| all.iter().position(|object| object.text("kind") == kind).unwrap();
        assert_eq!(position("Namespace"), 0);
        assert!(position("CustomResourceDefinition") < position("MutatingAdmissionPolicy"));
        assert!(position("ServiceAccount") < position("Deployment"));
        assert!(position("ConfigMap") < position("Deployment"));
    }

    #[test]
    fn every_object_is_marked_and_stands_where_it_belongs() {
        let everything = Settings { scheduler: true, service_monitor: true, ..settings() };
        for object in objects(&everything) {
            let labels = &object.value["metadata"]["labels"];
            assert_eq!(labels[MANAGED_BY.0], MANAGED_BY.1, "{}", object.name());
            assert!(object.namespace().is_none_or(|namespace| namespace == DEFAULT_NAMESPACE));
            assert!(!object.text("apiVersion").is_empty() && !object.name().is_empty());
        }
    }

    #[test]
    fn an_older_kubernetes_gets_no_policies() {
        let older = Settings { kubernetes_minor: policies::FIRST_MINOR - 1, ..settings() };
        let has_policies = |settings: &Settings| kinds(settings).iter().any(|kind| kind.contains("Policy"));
        assert!(has_policies(&settings()) && !has_policies(&older));
    }

    #[test]
    fn parts_that_nobody_asked_for_stay_away() {
        let has = |settings: &Settings, name: &str| kinds(settings).contains(&name.to_owned());
        assert!(!has(&settings(), "Deployment gangway-scheduler"));
        assert!(!has(&settings(), "ServiceMonitor gangway-controller"));
        let everything = Settings { scheduler: true, service_monitor: true, ..settings() };
        assert!(has(&everything, "Deployment gangway-scheduler"));
        assert!(has(&everything, "ServiceMonitor gangway-controller"));
    }

    #[test]
    fn several_controllers_need_an_election() {
        let mut settings = settings();
        assert_eq!(settings.contradiction(), None);
        settings.configuration.leader_election = None;
        assert!(settings.contradiction().is_some_and(|(message, _)| message.contains("2 controllers")));
        settings.replicas = 1;
        assert_eq!(settings.contradiction(), None);
    }

    #[test]
    fn the_files_of_the_base_have_what_the_one_file_has() {
        let files = files(&settings()).unwrap();
        let documents = |text: &str| text.matches("\n---\n").count();
        let (_, whole) = &files[0];
        let base: usize = files[1..].iter().map(|(_, text)| documents(text)).sum();
        assert_eq!(documents(whole), base);
        assert_eq!(base, objects(&settings()).len());
    }
}
