//! Objects that hold others, namespaces first: they end when what they hold has ended.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::json;

use super::create::own_metadata;
use super::definitions;
use super::delete::{Deleted, Options, delete_object};
use super::write::body_of;
use crate::registry::Resource;
use crate::service::Inner;
use crate::store::{Expect, Key, Write};

/// They exist from the start and cannot be deleted.
pub(super) const PROTECTED_NAMESPACES: [&str; 2] = ["default", "kube-system"];

/// Makes the namespaces that every cluster has.
pub(crate) fn create_initial_namespaces(server: &Inner) {
    let Some(resource) = server.registry.find("", "namespaces") else { return };
    for name in PROTECTED_NAMESPACES {
        let mut metadata = own_metadata(server, name);
        metadata.insert("labels".into(), json!({"kubernetes.io/metadata.name": name}));
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": metadata,
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        let Ok(body) = body_of(&resource, &namespace) else { continue };
        let commit =
            server.store.commit(resource.table, Key::new("", name), Expect::Absent, Write::Put(body), None);
        // Nothing else knows this store yet, so the commit neither waits nor loses a race.
        let committed = commit.now_or_never();
        debug_assert!(matches!(committed, Some(Ok(_))), "a new store takes the first namespaces");
    }
}

/// Deletes everything in a namespace, then the namespace if nothing is left.
pub(super) async fn empty_namespace(server: &Arc<Inner>, namespace: &str) {
    let options = Options::default();
    for resource in server.registry.all().into_iter().filter(|resource| resource.namespaced) {
        for (key, _) in server.store.all(resource.table, Some(namespace)) {
            // Gone already is as good; what waits for a finalizer is seen again when it goes.
            let deleted = delete_object(server, &resource, &key, &options).await;
            if matches!(deleted, Ok(Deleted::Gone(_))) {
                definitions::finish_if_empty(server, &resource).await;
            }
        }
    }
    finish_namespace(server, namespace).await;
}

/// What the end of one object may end in turn.
pub(super) async fn after_removal(server: &Arc<Inner>, resource: &Arc<Resource>, key: &Key) {
    if resource.namespaced {
        finish_namespace(server, &key.namespace).await;
    }
    definitions::finish_if_empty(server, resource).await;
}

/// Removes a namespace that is terminating and holds nothing any more.
pub(super) async fn finish_namespace(server: &Inner, namespace: &str) {
    let table = server.registry.namespaces;
    let key = Key::new("", namespace);
    while let Some(current) = server.store.get(table, &key) {
        let held = !current.header.finalizers.is_empty() || current.header.deletion.is_none();
        if held || holds_objects(server, namespace) {
            return;
        }
        let expect = Expect::Version(current.version);
        let committed = server.store.commit(table, key.clone(), expect, Write::Delete, None).await;
        if committed.is_ok() {
            return;
        }
    }
}

fn holds_objects(server: &Inner, namespace: &str) -> bool {
    let namespaced = server.registry.all().into_iter().filter(|resource| resource.namespaced);
    namespaced.into_iter().any(|resource| server.store.count(resource.table, Some(namespace)) > 0)
}
