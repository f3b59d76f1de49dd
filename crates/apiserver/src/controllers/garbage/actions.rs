//! Carries out what the graph says, through the API.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::graph::{Node, Propagation, Uid};
use super::resources::Resources;

/// Whether an owner exists.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Present(Uid),
    Absent(Uid),
    /// Its kind is not served, so nothing can be said.
    Undecidable(Uid),
}

/// Deletes an object, unless it has changed since it was seen.
pub(super) async fn delete(
    client: &Client,
    uid: &str,
    node: &Node,
    propagation: Propagation,
) -> Result<(), kube::Error> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: node.version.clone() };
    let options = match propagation {
        Propagation::Background => DeleteParams::background(),
        Propagation::Foreground => DeleteParams::foreground(),
        Propagation::Orphan => DeleteParams::orphan(),
    };
    let api = node.resource.api_in(client, node.namespace.as_deref());
    settled(api.delete(&node.name, &options.preconditions(preconditions)).await)
}

/// Takes owners out of an object's references.
pub(super) async fn drop_owners(
    client: &Client,
    uid: &str,
    node: &Node,
    dropped: &[Uid],
) -> Result<(), kube::Error> {
    let kept: Vec<&OwnerReference> =
        node.owners.iter().filter(|owner| !dropped.contains(&owner.uid)).collect();
    patch(client, uid, node, json!({"ownerReferences": kept})).await
}

/// Takes a finalizer off an object.
pub(super) async fn remove_finalizer(
    client: &Client,
    uid: &str,
    node: &Node,
    finalizer: &str,
) -> Result<(), kube::Error> {
    let kept: Vec<&String> = node.finalizers.iter().filter(|name| *name != finalizer).collect();
    patch(client, uid, node, json!({"finalizers": kept})).await
}

async fn patch(client: &Client, uid: &str, node: &Node, mut metadata: Value) -> Result<(), kube::Error> {
    metadata["uid"] = json!(uid);
    metadata["resourceVersion"] = json!(node.version);
    let api = node.resource.api_in(client, node.namespace.as_deref());
    let body = Patch::Merge(json!({"metadata": metadata}));
    settled(api.patch(&node.name, &PatchParams::default(), &body).await)
}

/// An object that is gone or has changed will be looked at again when the watch shows it.
fn settled<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        other => other.map(drop),
    }
}

/// Asks the API for owners of an object.
pub(super) async fn find_owners(
    client: &Client,
    resources: &Resources,
    namespace: Option<&str>,
    owners: Vec<OwnerReference>,
) -> Result<Vec<Found>, kube::Error> {
    let mut found = Vec::with_capacity(owners.len());
    for owner in owners {
        let Some(resource) = resources.by_reference(&owner.api_version, &owner.kind) else {
            found.push(Found::Undecidable(owner.uid));
            continue;
        };
        let current = resource.api_in(client, namespace).get_opt(&owner.name).await?;
        let same = current.is_some_and(|object| object.uid().as_deref() == Some(&*owner.uid));
        found.push(if same { Found::Present(owner.uid) } else { Found::Absent(owner.uid) });
    }
    Ok(found)
}
