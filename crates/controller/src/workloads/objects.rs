//! The objects of one kind, as the watch and our own writes show them.

use std::sync::Arc;

use gangway_model::Uid;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use rustc_hash::FxHashMap;

use super::Error;
use crate::index::{Index, Seen, uid_of};

/// What happened to an object.
pub(super) enum Change<K> {
    Applied(Arc<K>),
    Gone(Arc<K>),
}

/// The objects of one kind, by uid.
pub(super) struct Objects<K> {
    index: Index<Uid>,
    objects: FxHashMap<Uid, Arc<K>>,
    /// The object that has a namespace and name now.
    names: FxHashMap<(String, String), Uid>,
}

impl<K: Resource> Objects<K> {
    pub(super) fn new(what: &'static str) -> Self {
        Self { index: Index::new(what), objects: FxHashMap::default(), names: FxHashMap::default() }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.index.is_complete()
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<&Arc<K>> {
        self.objects.get(uid)
    }

    /// The object of a name; the namespace is empty for objects that have none.
    pub(super) fn named(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.objects.get(self.names.get(&(namespace.to_owned(), name.to_owned()))?)
    }

    /// All of them, as if each were new.
    pub(super) fn all(&self) -> Vec<Change<K>> {
        self.objects.values().cloned().map(Change::Applied).collect()
    }

    /// Whether an object is known as it was at this version or later, be it that it is gone since.
    pub(super) fn knows(&self, uid: &Uid, version: u64) -> bool {
        self.index.was_removed(uid)
            || self.objects.get(uid).is_some_and(|known| version_of(known.as_ref()) >= version)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// What one item of the watch changes; an error only if the first list is forbidden.
    pub(super) fn take(
        &mut self,
        item: Result<watcher::Event<K>, watcher::Error>,
    ) -> Result<Vec<Change<K>>, Error> {
        let seen = self.index.take(item, uid_of)?;
        let changes = seen.into_iter().filter_map(|seen| match seen {
            Seen::Applied(object) => self.apply(object),
            Seen::Gone(uid) => self.remove(&uid),
        });
        Ok(changes.collect())
    }

    /// Takes in an object as a write of ours left it, unless the watch knows better.
    pub(super) fn take_answer(&mut self, object: K) -> Option<Change<K>> {
        if self.index.answered(&uid_of(&object)) { self.apply(object) } else { None }
    }

    /// Takes an object in, unless a newer version of it is known.
    fn apply(&mut self, object: K) -> Option<Change<K>> {
        let uid = uid_of(&object);
        if self.objects.get(&uid).is_some_and(|known| version_of(known.as_ref()) > version_of(&object)) {
            return None;
        }
        let object = Arc::new(object);
        self.names.insert(name_of(object.as_ref()), uid.clone());
        self.objects.insert(uid, Arc::clone(&object));
        Some(Change::Applied(object))
    }

    fn remove(&mut self, uid: &Uid) -> Option<Change<K>> {
        let object = self.objects.remove(uid)?;
        let name = name_of(object.as_ref());
        if self.names.get(&name) == Some(uid) {
            self.names.remove(&name);
        }
        Some(Change::Gone(object))
    }
}

fn name_of<K: Resource>(object: &K) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The version of an object; API servers number them upwards.
pub(super) fn version_of<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use watcher::Event as Watch;

    use super::*;

    fn object(uid: &str, version: u64) -> Namespace {
        let mut object = Namespace::default();
        object.metadata.name = Some("name".to_owned());
        object.metadata.uid = Some(uid.to_owned());
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    #[test]
    fn a_late_answer_brings_nothing_back() {
        let mut objects = Objects::new("watching namespaces");
        assert_eq!(objects.take(Ok(Watch::Apply(object("a", 1)))).unwrap().len(), 1);
        assert_eq!(objects.take(Ok(Watch::Delete(object("a", 3)))).unwrap().len(), 1);
        assert!(objects.take_answer(object("a", 2)).is_none());
        assert!(objects.get(&"a".into()).is_none() && objects.named("", "name").is_none());
        assert!(objects.take_answer(object("b", 4)).is_some(), "the name was taken again");
    }

    #[test]
    fn what_was_created_while_a_list_was_read_stays() {
        let mut objects = Objects::new("watching namespaces");
        objects.take(Ok(Watch::Init)).unwrap();
        assert!(objects.take_answer(object("a", 2)).is_some());
        assert!(objects.take(Ok(Watch::InitDone)).unwrap().is_empty());
        assert!(objects.get(&"a".into()).is_some());
    }

    #[test]
    fn the_newest_version_counts() {
        let mut objects = Objects::new("watching namespaces");
        objects.take(Ok(Watch::Apply(object("a", 2)))).unwrap();
        assert!(objects.take_answer(object("a", 1)).is_none());
        assert!(objects.take_answer(object("a", 3)).is_some());
        assert!(objects.take(Ok(Watch::Apply(object("a", 2)))).unwrap().is_empty());
    }
}
