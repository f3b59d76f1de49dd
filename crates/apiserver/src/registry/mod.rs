//! Which kinds there are: the built-in ones, and those that CRDs add while the server runs.

pub(crate) mod builtin;
mod custom;
mod events;
mod field;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use serde_json::{Map, Value};

use crate::decode::TypedCheck;
use crate::schema::Schema;
use crate::store::{Store, TableId, WirePrefix};

pub(crate) use custom::resource_of_crd;
pub(crate) use field::SelectableField;

/// One kind of object and how it is served.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Served versions, the preferred one first.
    pub(crate) versions: Vec<Version>,
    pub(crate) table: TableId,
    /// Beyond `metadata.name` and `metadata.namespace`.
    pub(crate) selectable: Vec<SelectableField>,
    pub(crate) tracks_generation: bool,
    /// For a kind that is another face of a stored one: from its fields to the stored ones.
    pub(crate) to_stored: Option<fn(&mut Map<String, Value>)>,
    pub(crate) subresources: &'static [Subresource],
}

/// One served version of a kind.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) prefix: WirePrefix,
    pub(crate) has_status: bool,
    pub(crate) rules: Rules,
}

/// Where the shape of an object is checked.
#[derive(Debug)]
pub(crate) enum Rules {
    Typed(TypedCheck),
    Schema(Arc<Schema>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    Binding,
    Log,
}

impl Subresource {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Binding => "binding",
            Self::Log => "log",
        }
    }
}

impl Resource {
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// `jobs.batch`, `pods`.
    pub(crate) fn qualified_plural(&self) -> String {
        qualified(&self.plural, &self.group)
    }

    /// `Job.batch`, `Pod`.
    pub(crate) fn qualified_kind(&self) -> String {
        qualified(&self.kind, &self.group)
    }

    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// A group and what it serves.
type Group = FxHashMap<String, Arc<Resource>>;

/// The kinds that are served right now.
#[derive(Debug)]
pub(crate) struct Registry {
    groups: RwLock<BTreeMap<String, Group>>,
    pub(crate) namespaces: TableId,
}

impl Registry {
    /// The built-in kinds, each with a table in the store.
    pub(crate) fn builtin(store: &Store) -> Self {
        let namespaces = store.create_table();
        let registry = Self { groups: RwLock::default(), namespaces };
        for resource in builtin::resources(store, namespaces) {
            registry.put(Arc::new(resource));
        }
        registry
    }

    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.groups.read().get(group)?.get(plural).cloned()
    }

    pub(crate) fn put(&self, resource: Arc<Resource>) {
        let mut groups = self.groups.write();
        groups.entry(resource.group.clone()).or_default().insert(resource.plural.clone(), resource);
    }

    pub(crate) fn remove(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let mut groups = self.groups.write();
        let resources = groups.get_mut(group)?;
        let removed = resources.remove(plural);
        if resources.is_empty() {
            groups.remove(group);
        }
        removed
    }

    /// Every kind, by group and plural name.
    pub(crate) fn all(&self) -> Vec<Arc<Resource>> {
        let groups = self.groups.read();
        let mut all: Vec<_> = groups.values().flat_map(|group| group.values().cloned()).collect();
        all.sort_by(|one, other| (&one.group, &one.plural).cmp(&(&other.group, &other.plural)));
        all
    }
}
