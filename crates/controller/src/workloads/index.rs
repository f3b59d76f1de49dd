//! The objects of one kind, as the watch and our own writes show them.

use std::sync::Arc;

use gangway_model::Uid;
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Error;
use crate::trouble::Trouble;

/// What happened to an object.
pub(super) enum Change<K> {
    Applied(Arc<K>),
    Gone(Arc<K>),
}

/// The objects of one kind, by uid.
pub(super) struct Index<K> {
    objects: FxHashMap<Uid, Arc<K>>,
    /// The object that has a namespace and name now.
    names: FxHashMap<(String, String), Uid>,
    /// What the list that is being read has shown so far.
    listed: FxHashSet<Uid>,
    /// Whether a list was read to its end.
    complete: bool,
    trouble: Trouble,
}

impl<K: Resource> Index<K> {
    pub(super) fn new(what: &'static str) -> Self {
        Self {
            objects: FxHashMap::default(),
            names: FxHashMap::default(),
            listed: FxHashSet::default(),
            complete: false,
            trouble: Trouble::with(what),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn get(&self, uid: &Uid) -> Option<&Arc<K>> {
        self.objects.get(uid)
    }

    /// The object of a name; the namespace is empty for objects that have none.
    pub(super) fn named(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.objects.get(self.names.get(&(namespace.to_owned(), name.to_owned()))?)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }

    /// What one item of the watch means.
    ///
    /// Errors are waited out, except that a first list which is forbidden is final: nothing that we
    /// do will change it, and whoever started us should know.
    pub(super) fn take(
        &mut self,
        item: Result<watcher::Event<K>, watcher::Error>,
    ) -> Result<Vec<Change<K>>, Error> {
        match item {
            Ok(event) => {
                self.trouble.worked();
                Ok(self.observe(event))
            }
            Err(error) if !self.complete && is_forbidden(&error) => {
                Err(Error::Forbidden { what: self.trouble.what(), source: Box::new(error) })
            }
            Err(error) => {
                self.trouble.failed(&error);
                Ok(Vec::new())
            }
        }
    }

    fn observe(&mut self, event: watcher::Event<K>) -> Vec<Change<K>> {
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                self.listed.insert(uid_of(&object));
                self.apply(object).into_iter().collect()
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let mut gone: Vec<Uid> =
                    self.objects.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
                gone.sort();
                self.complete = true;
                gone.iter().filter_map(|uid| self.remove(uid)).collect()
            }
            watcher::Event::Apply(object) => self.apply(object).into_iter().collect(),
            watcher::Event::Delete(object) => self.remove(&uid_of(&object)).into_iter().collect(),
        }
    }

    /// Takes an object in, unless a newer version of it is known.
    pub(super) fn apply(&mut self, object: K) -> Option<Change<K>> {
        let uid = uid_of(&object);
        if self.objects.get(&uid).is_some_and(|known| version_of(known.as_ref()) > version_of(&object)) {
            return None;
        }
        let object = Arc::new(object);
        self.names.insert(name_of(object.as_ref()), uid.clone());
        self.objects.insert(uid, Arc::clone(&object));
        Some(Change::Applied(object))
    }

    /// Forgets an object.
    pub(super) fn remove(&mut self, uid: &Uid) -> Option<Change<K>> {
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

/// The identity of an object.
pub(super) fn uid_of<K: Resource>(object: &K) -> Uid {
    object.meta().uid.as_deref().unwrap_or_default().into()
}

/// The version of an object; API servers number them upwards.
pub(super) fn version_of<K: Resource>(object: &K) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    matches!(status.code, 401 | 403)
}
