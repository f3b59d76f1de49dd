//! Volumes: directories below the pod's own, links to them, and the variables that name them.

use std::fs;
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, KeyToPath, PodSpec, Volume};

use crate::environment::{Sources, Variables};
use crate::refusal::is_token_volume;

/// The variable that holds the directory of a volume.
pub fn variable(volume: &str) -> String {
    let name: String = volume
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
        .collect();
    format!("GANGWAY_VOLUME_{name}")
}

/// Why a volume is not there.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("Volume {volume}: {what} does not exist.")]
    Missing { volume: String, what: String },
    #[error("Volume {volume} cannot be written: {source}.")]
    Io { volume: String, source: io::Error },
}

/// Makes the volumes that `container` mounts and links them into `own`; the variables that name them.
pub fn provide(
    spec: &PodSpec,
    container: &Container,
    sources: &Sources,
    pod_directory: &Path,
    own: &Path,
) -> Result<Variables, VolumeError> {
    let mut variables = Variables::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name);
        let Some(volume) = volume.filter(|volume| !is_token_volume(volume)) else { continue };
        let directory = pod_directory.join("volumes").join(&volume.name);
        fill(volume, sources, &directory)?;
        let target = mount.sub_path.as_ref().map_or(directory.clone(), |path| directory.join(path));
        let failed = |source| VolumeError::Io { volume: volume.name.clone(), source };
        if volume.empty_dir.is_some() {
            fs::create_dir_all(&target).map_err(failed)?;
        }
        link(&target, &own.join(mount.mount_path.trim_start_matches("./"))).map_err(failed)?;
        variables.insert(variable(&volume.name), target.to_string_lossy().into_owned());
    }
    Ok(variables)
}

/// A link that is there already is from an earlier run of the container.
fn link(target: &Path, at: &Path) -> io::Result<()> {
    if let Some(parent) = at.parent() {
        fs::create_dir_all(parent)?;
    }
    match symlink(target, at) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn fill(volume: &Volume, sources: &Sources, directory: &Path) -> Result<(), VolumeError> {
    let failed = |source| VolumeError::Io { volume: volume.name.clone(), source };
    fs::create_dir_all(directory).map_err(failed)?;
    let (values, what, items, optional) = if let Some(map) = &volume.config_map {
        (sources.config_values(&map.name), format!("ConfigMap {}", map.name), &map.items, map.optional)
    } else if let Some(secret) = &volume.secret {
        let name = secret.secret_name.as_deref().unwrap_or_default();
        (sources.secret_values(name), format!("Secret {name}"), &secret.items, secret.optional)
    } else {
        return Ok(());
    };
    let missing = |what: String| VolumeError::Missing { volume: volume.name.clone(), what };
    let optional = optional == Some(true);
    let Some(values) = values else { return if optional { Ok(()) } else { Err(missing(what)) } };
    let files: Vec<(PathBuf, &[u8])> = match items {
        None => values.iter().map(|(key, value)| (PathBuf::from(key), value.as_slice())).collect(),
        Some(items) => {
            let mut files = Vec::new();
            for KeyToPath { key, path, .. } in items {
                match values.get(key) {
                    Some(value) => files.push((safe(path), value.as_slice())),
                    None if optional => {}
                    None => return Err(missing(format!("key {key} of {what}"))),
                }
            }
            files
        }
    };
    files.into_iter().try_for_each(|(path, value)| write(&directory.join(path), value)).map_err(failed)
}

/// The path without anything that leads out of the volume. The API refuses such paths; this does not trust it.
fn safe(path: &str) -> PathBuf {
    path.split('/').filter(|part| !part.is_empty() && *part != "..").collect()
}

fn write(path: &Path, value: &[u8]) -> io::Result<()> {
    use std::io::Write;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn volumes_are_directories_with_links_and_variables() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("own");
        let spec: PodSpec = serde_json::from_value(json!({
            "containers": [{"name": "c", "volumeMounts": [
                {"name": "scratch-1", "mountPath": "tmp/scratch"},
                {"name": "settings", "mountPath": "etc"}]}],
            "volumes": [
                {"name": "scratch-1", "emptyDir": {}},
                {"name": "settings", "configMap": {"name": "m", "items": [{"key": "k", "path": "../a/b"}]}}]}))
        .unwrap();
        let map = serde_json::from_value(json!({"data": {"k": "v"}})).unwrap();
        let sources = Sources { config_maps: [("m".to_owned(), map)].into(), ..Sources::default() };
        for _ in 0..2 {
            let variables = provide(&spec, &spec.containers[0], &sources, directory.path(), &own).unwrap();
            assert_eq!(fs::read_to_string(own.join("etc/a/b")).unwrap(), "v");
            assert!(Path::new(&variables["GANGWAY_VOLUME_SCRATCH_1"]).is_dir());
        }
        let problem =
            provide(&spec, &spec.containers[0], &Sources::default(), directory.path(), &own).unwrap_err();
        assert_eq!(problem.to_string(), "Volume settings: ConfigMap m does not exist.");
    }
}
