//! The two writes that a node makes for a pod: its status, and its removal.

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::json;

/// How often a status is rendered anew because somebody else wrote at the same time.
const CONFLICT_ROUNDS: usize = 8;

/// The API of the pod's namespace.
pub fn pod_api(client: &Client, pod: &Pod) -> Api<Pod> {
    Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or("default"))
}

/// Writes the status that `render` gives for the pod. The pod as it is then, or `None` if it does not exist any more.
///
/// Lists are replaced as a whole, so the write carries the version that it was rendered from: conditions of others are
/// never lost.
pub async fn write_status(
    client: &Client,
    mut pod: Pod,
    render: impl Fn(&Pod) -> PodStatus,
) -> Result<Option<Pod>, kube::Error> {
    let api = pod_api(client, &pod);
    let name = pod.name_any();
    let mut rounds = CONFLICT_ROUNDS;
    loop {
        let patch = json!({
            "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
            "status": render(&pod),
        });
        match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(written) => return Ok(Some(written)),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 && rounds > 0 => rounds -= 1,
            Err(error) => return Err(error),
        }
        match api.get_opt(&name).await? {
            Some(current) if current.metadata.uid == pod.metadata.uid => pod = current,
            _ => return Ok(None),
        }
    }
}

/// Removes a pod whose processes have ended. Nothing happens to another pod of the same name.
pub async fn remove(client: &Client, pod: &Pod) -> Result<(), kube::Error> {
    let preconditions = Preconditions { uid: pod.metadata.uid.clone(), ..Preconditions::default() };
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    match pod_api(client, pod).delete(&pod.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}
