//! The kinds that are served, found by discovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube::api::{Api, DynamicObject, PartialObjectMeta};
use kube::core::ApiResource;
use kube::discovery::{Discovery, Scope, verbs};
use rustc_hash::FxHashMap;

/// Kinds that own nothing and are owned by nothing that matters, in numbers.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// Any object, without what its kind adds to it.
pub(super) type Metadata = PartialObjectMeta<DynamicObject>;

/// One kind of object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Resource {
    pub api: ApiResource,
    pub namespaced: bool,
}

/// A kind whatever its version: group and plural.
pub(super) type ResourceKey = (String, String);

impl Resource {
    pub(super) fn key(&self) -> ResourceKey {
        (self.api.group.clone(), self.api.plural.clone())
    }

    /// An API for objects of this kind in a namespace, or without one if they have none.
    pub(super) fn api_in(&self, client: &Client, namespace: Option<&str>) -> Api<Metadata> {
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.api),
            None => Api::all_with(client.clone(), &self.api),
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests(plural: &str, kind: &str) -> Self {
        let api = ApiResource {
            group: String::new(),
            version: "v1".to_owned(),
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        Self { api, namespaced: true }
    }
}

/// All kinds that can be watched and deleted.
#[derive(Debug, Clone, Default)]
pub(super) struct Resources {
    /// In order, so that they are watched in the same order every time.
    by_key: BTreeMap<ResourceKey, Arc<Resource>>,
    by_kind: FxHashMap<(String, String), Arc<Resource>>,
}

impl Resources {
    pub(super) async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let discovery = Discovery::new(client.clone()).run().await?;
        let mut found = Self::default();
        for (api, capabilities) in discovery.groups().flat_map(|group| group.recommended_resources()) {
            let needed = [verbs::LIST, verbs::WATCH, verbs::DELETE];
            let ignored = IGNORED.contains(&(api.group.as_str(), api.plural.as_str()));
            if ignored || !needed.iter().all(|verb| capabilities.supports_operation(verb)) {
                continue;
            }
            let resource = Arc::new(Resource { namespaced: capabilities.scope == Scope::Namespaced, api });
            let kind = (resource.api.group.clone(), resource.api.kind.clone());
            found.by_kind.insert(kind, resource.clone());
            found.by_key.insert(resource.key(), resource);
        }
        Ok(found)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ResourceKey, &Arc<Resource>)> {
        self.by_key.iter()
    }

    pub(super) fn contains(&self, key: &ResourceKey) -> bool {
        self.by_key.contains_key(key)
    }

    /// The kind that an owner reference names, in whatever version.
    pub(super) fn by_reference(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.by_kind.get(&(group.to_owned(), kind.to_owned()))
    }
}
