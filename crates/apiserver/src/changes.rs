//! What has changed, for whoever looks at the server from outside its API.

use bytes::Bytes;

pub use crate::store::ChangeKind;

use crate::service::ApiServer;

/// One change that was committed.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The version that the change made.
    pub version: u64,
    /// API group, empty for core.
    pub group: String,
    /// Plural name of the resource.
    pub plural: String,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// What happened to it.
    pub kind: ChangeKind,
    /// The object as JSON, in the preferred version; one that is gone as it was at last.
    pub object: Bytes,
}

impl ApiServer {
    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.0.store.version()
    }

    /// Every change after `version`, of all kinds, in order. Without a watch, so that a checker sees each before anybody
    /// acts on it. Changes that have left the logs are not among them.
    pub fn changes_after(&self, version: u64) -> Vec<Committed> {
        if self.version() == version {
            return Vec::new();
        }
        let resources = self.0.registry.all();
        let changes = self.0.store.all_changes(version);
        let committed = changes.into_iter().filter_map(|(table, change)| {
            let resource = resources.iter().find(|resource| resource.table == table)?;
            Some(Committed {
                version: change.object.version,
                group: resource.group.clone(),
                plural: resource.plural.clone(),
                namespace: change.key.namespace.clone(),
                name: change.key.name.clone(),
                kind: change.kind,
                object: change.object.render(&resource.versions.first()?.prefix),
            })
        });
        committed.collect()
    }
}
