//! What a pod may not ask of this machine. Pure: the spec in, a reason and a message that says what to try out.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};
use nix::unistd::{getgid, getuid};

use crate::probe::{self, ProbePlan};
use crate::state::Verdict;

/// The image that stands for this machine.
pub const HOST_IMAGE: &str = "host";

/// Where clusters mount the API token of a pod's service account; such mounts are left out rather than refused, because
/// every pod of a cluster has one.
const SERVICE_ACCOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why the pod cannot run here, if so.
pub fn refuse(pod: &Pod, any_image: bool) -> Option<Verdict> {
    let spec = pod.spec.as_ref()?;
    all_containers(spec)
        .find_map(|container| refuse_container(spec, container, any_image))
        .or_else(|| refuse_pod(spec))
        .map(|(reason, message)| Verdict { reason: reason.to_owned(), message })
}

/// The containers in the order of [`crate::state::PodRun::containers`].
pub fn all_containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

/// The names of volumes that are left out: those that hold the API token.
pub fn is_token_volume(volume: &Volume) -> bool {
    volume.projected.is_some() && volume.name.starts_with("kube-api-access-")
}

type Refusal = (&'static str, String);

fn refuse_container(spec: &PodSpec, container: &Container, any_image: bool) -> Option<Refusal> {
    let name = &container.name;
    let image = container.image.as_deref().unwrap_or_default();
    if image != HOST_IMAGE && !any_image {
        let message = format!(
            "Container {name} has image {image:?}, but only `image: host` runs as a process of this machine. Set \
             `image: host` and a command that this machine has, or start the node with --any-image to ignore images."
        );
        return Some(("ImageNotHost", message));
    }
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        let message = format!(
            "Container {name} has no command. A process of this machine has no image to take one from: set `command`."
        );
        return Some(("CommandMissing", message));
    }
    let unsupported = |what: &str| Some(("Unsupported", format!("Container {name}: {what}")));
    for (kind, probe) in probe::specs(container) {
        if let Err(problem) = ProbePlan::new(kind, probe, container) {
            return unsupported(&format!("its {kind:?} probe cannot be asked on this machine: {problem}."));
        }
    }
    if container.lifecycle.is_some() {
        return unsupported(
            "lifecycle hooks are not run on this machine; do the work in the command itself.",
        );
    }
    if container.restart_policy_rules.as_ref().is_some_and(|rules| !rules.is_empty()) {
        return unsupported("restartPolicyRules are not supported on this machine; use restartPolicy.");
    }
    if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
        return unsupported("volumeDevices are not supported on this machine.");
    }
    if let Some(security) = &container.security_context {
        let asked = (security.run_as_user, security.run_as_group, security.run_as_non_root);
        if let Some(problem) = refuse_user(asked) {
            return unsupported(&problem);
        }
    }
    refuse_mounts(spec, container)
}

fn refuse_mounts(spec: &PodSpec, container: &Container) -> Option<Refusal> {
    let name = &container.name;
    for mount in container.volume_mounts.iter().flatten() {
        if mount.mount_path == SERVICE_ACCOUNT_PATH {
            continue;
        }
        let relative = mount.mount_path.trim_start_matches("./");
        let inside = |path: &str| !path.starts_with('/') && !path.split('/').any(|part| part == "..");
        if !inside(relative) || relative.is_empty() {
            let variable = crate::volumes::variable(&mount.name);
            let message = format!(
                "Container {name} mounts volume {} at {:?}, but nothing is mounted in the file system of this machine. Use a \
                 relative mountPath (a link where the container starts), and ${variable} for the directory itself.",
                mount.name, mount.mount_path
            );
            return Some(("MountPathNotRelative", message));
        }
        if mount.sub_path_expr.is_some() || !mount.sub_path.as_deref().is_none_or(inside) {
            let message = format!("Container {name}: the subPath of volume {} is not supported.", mount.name);
            return Some(("Unsupported", message));
        }
        if !spec.volumes.iter().flatten().any(|volume| volume.name == mount.name) {
            let message =
                format!("Container {name} mounts volume {}, which the pod does not have.", mount.name);
            return Some(("Unsupported", message));
        }
    }
    None
}

fn refuse_pod(spec: &PodSpec) -> Option<Refusal> {
    for volume in spec.volumes.iter().flatten() {
        let known = volume.empty_dir.is_some() || volume.config_map.is_some() || volume.secret.is_some();
        if !known && !is_token_volume(volume) {
            let message = format!(
                "Volume {} is of a kind that this machine does not provide; emptyDir, configMap and secret are. The machine's \
                 own files can be read where they are.",
                volume.name
            );
            return Some(("VolumeNotSupported", message));
        }
    }
    if spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        return Some(("Unsupported", "resourceClaims are not supported on this machine.".to_owned()));
    }
    let security = spec.security_context.as_ref()?;
    let asked = (security.run_as_user, security.run_as_group, security.run_as_non_root);
    refuse_user(asked).map(|problem| ("Unsupported", problem))
}

/// Processes run as the user of the agent; another one that was asked for is not ignored.
fn refuse_user((user, group, non_root): (Option<i64>, Option<i64>, Option<bool>)) -> Option<String> {
    let (own_user, own_group) = (i64::from(getuid().as_raw()), i64::from(getgid().as_raw()));
    if user.is_some_and(|user| user != own_user) {
        return Some(format!(
            "runAsUser differs from the node's own user {own_user}, as which all its processes run."
        ));
    }
    if group.is_some_and(|group| group != own_group) {
        return Some(format!(
            "runAsGroup differs from the node's own group {own_group}, as which all its processes run."
        ));
    }
    (non_root == Some(true) && own_user == 0)
        .then(|| "runAsNonRoot is set, but the node runs as root; start it as another user.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn reason(spec: Value, any_image: bool) -> Option<String> {
        let pod = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap();
        refuse(&pod, any_image).map(|verdict| verdict.reason)
    }

    fn with(container: Value, volumes: Value) -> Value {
        let mut base = json!({"name": "c", "image": "host", "command": ["true"]});
        base.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        json!({"containers": [base], "volumes": volumes})
    }

    #[test]
    fn refusals() {
        let mount = |path: &str| json!({"volumeMounts": [{"name": "v", "mountPath": path}]});
        let empty = json!([{"name": "v", "emptyDir": {}}]);
        let cases = [
            (with(json!({}), json!([])), None),
            (with(json!({"image": "busybox"}), json!([])), Some("ImageNotHost")),
            (with(json!({"command": []}), json!([])), Some("CommandMissing")),
            (with(json!({"lifecycle": {}}), json!([])), Some("Unsupported")),
            (with(json!({"livenessProbe": {"grpc": {"port": 1}}}), json!([])), Some("Unsupported")),
            (
                with(json!({"securityContext": {"runAsUser": 4_000_000_000_i64}}), json!([])),
                Some("Unsupported"),
            ),
            (with(mount("data"), empty.clone()), None),
            (with(mount("/data"), empty.clone()), Some("MountPathNotRelative")),
            (with(mount("a/../../b"), empty), Some("MountPathNotRelative")),
            (with(mount("data"), json!([])), Some("Unsupported")),
            (
                with(json!({}), json!([{"name": "v", "hostPath": {"path": "/etc"}}])),
                Some("VolumeNotSupported"),
            ),
            (
                with(mount(SERVICE_ACCOUNT_PATH), json!([{"name": "kube-api-access-x", "projected": {}}])),
                None,
            ),
        ];
        for (spec, expected) in cases {
            assert_eq!(reason(spec.clone(), false).as_deref(), expected, "{spec}");
        }
        assert_eq!(reason(with(json!({"image": "busybox"}), json!([])), true), None);
    }
}
