//! From a container's spec to the process that the shim is to run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec, Secret};
use kube::{Api, Client, ResourceExt};

use crate::environment::{self, INHERITED, Sources, Variables};
use crate::options::NodeOptions;
use crate::shim::ProcessSpec;
use crate::volumes;

/// Why a container cannot be started now, in words of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStartable {
    pub reason: &'static str,
    pub message: String,
}

/// `<namespace>_<pod>_<uid>`: the name of the pod's directories.
pub fn directory_name(pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    format!("{namespace}_{}_{}", pod.name_any(), pod.metadata.uid.as_deref().unwrap_or_default())
}

/// The names of the objects that a container needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    config_maps: BTreeSet<String>,
    secrets: BTreeSet<String>,
}

impl References {
    /// Those of the variables and mounted volumes of `container`.
    pub fn of(spec: &PodSpec, container: &Container) -> Self {
        let mut references = Self::default();
        for from in container.env_from.iter().flatten() {
            references.config_maps.extend(from.config_map_ref.iter().map(|reference| reference.name.clone()));
            references.secrets.extend(from.secret_ref.iter().map(|reference| reference.name.clone()));
        }
        for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
            references.config_maps.extend(source.config_map_key_ref.iter().map(|key| key.name.clone()));
            references.secrets.extend(source.secret_key_ref.iter().map(|key| key.name.clone()));
        }
        let mounted: BTreeSet<&str> =
            container.volume_mounts.iter().flatten().map(|mount| mount.name.as_str()).collect();
        for volume in spec.volumes.iter().flatten().filter(|volume| mounted.contains(volume.name.as_str())) {
            references.config_maps.extend(volume.config_map.iter().map(|map| map.name.clone()));
            references.secrets.extend(volume.secret.iter().filter_map(|secret| secret.secret_name.clone()));
        }
        references
    }

    pub fn is_empty(&self) -> bool {
        self.config_maps.is_empty() && self.secrets.is_empty()
    }

    /// Reads the objects; one that does not exist is left out.
    pub async fn fetch(&self, client: &Client, namespace: &str) -> Result<Sources, NotStartable> {
        let failed = |error: kube::Error| NotStartable {
            reason: "CreateContainerConfigError",
            message: format!("The container's ConfigMaps and Secrets cannot be read: {error}."),
        };
        let mut sources = Sources::default();
        let config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        for name in &self.config_maps {
            let found = config_maps.get_opt(name).await.map_err(failed)?;
            sources.config_maps.extend(found.map(|map| (name.clone(), map)));
        }
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        for name in &self.secrets {
            let found = secrets.get_opt(name).await.map_err(failed)?;
            sources.secrets.extend(found.map(|secret| (name.clone(), secret)));
        }
        Ok(sources)
    }
}

/// Makes the container's directories and says what the shim is to run. `attempt` counts the starts of the container.
pub fn process_spec(
    pod: &Pod,
    container: &Container,
    attempt: u32,
    sources: &Sources,
    options: &Arc<NodeOptions>,
) -> Result<ProcessSpec, NotStartable> {
    let config_error = |message| NotStartable { reason: "CreateContainerConfigError", message };
    let name = directory_name(pod);
    let pod_directory = absolute(&options.pod_directory(&name));
    let own = pod_directory.join("containers").join(&container.name);
    let logs = absolute(&options.log_directory()).join(&name);
    for directory in [&own, &logs] {
        std::fs::create_dir_all(directory)
            .map_err(|error| config_error(format!("The directory {directory:?} cannot be made: {error}.")))?;
    }
    let given = environment::variables(pod, container, sources).map_err(config_error)?;
    let no_spec = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let volumes = volumes::provide(spec, container, sources, &pod_directory, &own)
        .map_err(|error| config_error(error.to_string()))?;
    let mut expandable = volumes;
    expandable.extend(given);
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    Ok(ProcessSpec {
        command: words.map(|word| environment::expand(word, &expandable)).collect(),
        working_directory: working_directory(container, options, own),
        log_file: Some(logs.join(format!("{}.log", container.name))),
        exit_file: Some(pod_directory.join(format!("{}.{attempt}.exit", container.name))),
        env: inherited(expandable),
    })
}

fn working_directory(container: &Container, options: &NodeOptions, own: PathBuf) -> PathBuf {
    let stated = container.working_dir.as_ref().filter(|directory| !directory.is_empty()).map(PathBuf::from);
    stated.or_else(|| options.working_directory.as_deref().map(absolute)).unwrap_or(own)
}

fn inherited(mut variables: Variables) -> Variables {
    for name in INHERITED {
        if let Ok(value) = std::env::var(name) {
            variables.entry(name.to_owned()).or_insert(value);
        }
    }
    variables
}

/// The shim's command starts in another directory, so paths must not depend on ours.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
