//! Code that sees each object before it is created: what a cluster has admission policies for.

use serde_json::Value;

use crate::registry::Registry;
use crate::requests::parse_stored;
use crate::store::{Key, Store};

/// The creation or change that is asked for.
#[derive(Debug, Clone, Copy)]
pub struct ObjectRequest<'a> {
    /// API group, empty for core.
    pub group: &'a str,
    /// Version of the group.
    pub version: &'a str,
    /// Plural name of the resource.
    pub plural: &'a str,
    /// Kind of the object.
    pub kind: &'a str,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

/// Why an object may not be created or changed. Becomes `403 Forbidden` with this message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// One sentence for the user.
    pub message: String,
}

/// Objects as they are stored right now.
pub trait ReadView {
    /// One object, in the version it is stored as; `namespace` is empty for cluster-scoped kinds.
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Whether there is such an object.
    fn exists(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool;

    /// All objects of a kind, in one namespace or everywhere.
    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value>;
}

/// Changes or refuses objects on their way in.
pub trait Interceptor: Send + Sync {
    /// Called for every object that is to be created, after it was read and its unknown fields were handled, before
    /// defaults are filled in and before validation.
    fn before_create(
        &self,
        view: &dyn ReadView,
        request: &ObjectRequest<'_>,
        object: &mut Value,
    ) -> Result<(), Rejection>;

    /// Called for every object that is to be changed other than by its subresources, after it was validated.
    fn before_update(
        &self,
        _view: &dyn ReadView,
        _request: &ObjectRequest<'_>,
        _old: &Value,
        _new: &Value,
    ) -> Result<(), Rejection> {
        Ok(())
    }
}

/// The view interceptors get.
pub(crate) struct StoreView<'a> {
    pub(crate) store: &'a Store,
    pub(crate) registry: &'a Registry,
}

impl ReadView for StoreView<'_> {
    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let resource = self.registry.find(group, plural)?;
        let stored = self.store.get(resource.table, &Key::new(namespace, name))?;
        parse_stored(&stored, resource.versions.first()?).ok()
    }

    fn exists(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        let resource = self.registry.find(group, plural);
        resource.is_some_and(|resource| self.store.get(resource.table, &Key::new(namespace, name)).is_some())
    }

    fn list(&self, group: &str, plural: &str, namespace: Option<&str>) -> Vec<Value> {
        let Some(resource) = self.registry.find(group, plural) else { return Vec::new() };
        let Some(version) = resource.versions.first() else { return Vec::new() };
        let objects = self.store.all(resource.table, namespace);
        objects.iter().filter_map(|(_, stored)| parse_stored(stored, version).ok()).collect()
    }
}
