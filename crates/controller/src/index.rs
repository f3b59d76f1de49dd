//! Which objects of a kind exist, as their watch and the answers to our own writes show it.

use std::collections::VecDeque;
use std::hash::Hash;

use gangway_model::Uid;
use kube::Resource;
use kube::runtime::watcher;
use rustc_hash::FxHashSet;

use crate::trouble::Trouble;

/// How many objects that are gone are remembered: more than there are writes under way at any time.
const MOST_REMOVED: usize = 4096;

/// What an item of the watch says of an object.
#[derive(Debug, PartialEq)]
pub(crate) enum Seen<K, Key> {
    Applied(K),
    Gone(Key),
}

/// The first list was refused for lack of rights.
#[derive(Debug)]
pub(crate) struct Forbidden {
    pub(crate) what: &'static str,
    pub(crate) source: Box<watcher::Error>,
}

/// The objects of one kind, by whatever tells them apart.
pub(crate) struct Index<Key> {
    known: FxHashSet<Key>,
    /// What the list that is being read has shown so far; none while no list is under way.
    listed: Option<FxHashSet<Key>>,
    removed: Removed<Key>,
    /// Whether a list was read to its end.
    complete: bool,
    trouble: Trouble,
}

impl<Key: Clone + Ord + Hash> Index<Key> {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            known: FxHashSet::default(),
            listed: None,
            removed: Removed::default(),
            complete: false,
            trouble: Trouble::with(what),
        }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// What one item of the watch means.
    ///
    /// Errors are waited out, except that a first list which is forbidden is final: nothing that we
    /// do will change it, and whoever started us should know.
    pub(crate) fn take<K>(
        &mut self,
        item: Result<watcher::Event<K>, watcher::Error>,
        key_of: impl Fn(&K) -> Key,
    ) -> Result<Vec<Seen<K, Key>>, Forbidden> {
        match item {
            Ok(event) => {
                self.trouble.worked();
                Ok(self.observe(event, key_of))
            }
            Err(error) if !self.complete && is_forbidden(&error) => {
                Err(Forbidden { what: self.trouble.what(), source: Box::new(error) })
            }
            Err(error) => {
                self.trouble.failed(&error);
                Ok(Vec::new())
            }
        }
    }

    fn observe<K>(&mut self, event: watcher::Event<K>, key_of: impl Fn(&K) -> Key) -> Vec<Seen<K, Key>> {
        match event {
            watcher::Event::Init => {
                self.listed = Some(FxHashSet::default());
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let key = key_of(&object);
                self.listed.get_or_insert_default().insert(key.clone());
                self.exists(key);
                vec![Seen::Applied(object)]
            }
            watcher::Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.complete = true;
                let mut gone: Vec<Key> = self.known.difference(&listed).cloned().collect();
                gone.sort();
                for key in &gone {
                    self.is_gone(key);
                }
                gone.into_iter().map(Seen::Gone).collect()
            }
            watcher::Event::Apply(object) => {
                self.exists(key_of(&object));
                vec![Seen::Applied(object)]
            }
            watcher::Event::Delete(object) => {
                let key = key_of(&object);
                self.is_gone(&key);
                vec![Seen::Gone(key)]
            }
        }
    }

    /// Takes in that an answer of the API showed an object. False if the watch said before that it is
    /// gone: then the answer is old, and believing it would keep the object for ever.
    pub(crate) fn answered(&mut self, key: &Key) -> bool {
        if self.removed.contains(key) {
            return false;
        }
        // The list that is being read may be older than an object which only the answer shows. One that
        // was known before is in the list, unless it is gone.
        if self.known.insert(key.clone())
            && let Some(listed) = &mut self.listed
        {
            listed.insert(key.clone());
        }
        true
    }

    /// Whether the watch said not long ago that an object is gone.
    pub(crate) fn was_removed(&self, key: &Key) -> bool {
        self.removed.contains(key)
    }

    /// The watch is always right: a name that was given up may be taken again.
    fn exists(&mut self, key: Key) {
        self.removed.forget(&key);
        self.known.insert(key);
    }

    fn is_gone(&mut self, key: &Key) {
        self.known.remove(key);
        self.removed.remember(key.clone());
    }
}

/// The last objects that went, oldest first.
struct Removed<Key> {
    keys: FxHashSet<Key>,
    order: VecDeque<Key>,
}

impl<Key> Default for Removed<Key> {
    fn default() -> Self {
        Self { keys: FxHashSet::default(), order: VecDeque::new() }
    }
}

impl<Key: Clone + Eq + Hash> Removed<Key> {
    fn contains(&self, key: &Key) -> bool {
        self.keys.contains(key)
    }

    fn remember(&mut self, key: Key) {
        if !self.keys.insert(key.clone()) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > MOST_REMOVED
            && let Some(oldest) = self.order.pop_front()
        {
            self.keys.remove(&oldest);
        }
    }

    fn forget(&mut self, key: &Key) {
        if self.keys.remove(key) {
            self.order.retain(|other| other != key);
        }
    }
}

/// The identity of an object.
pub(crate) fn uid_of<K: Resource>(object: &K) -> Uid {
    object.meta().uid.as_deref().unwrap_or_default().into()
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(kube::Error::Api(status))
    | watcher::Error::WatchStartFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    matches!(status.code, 401 | 403)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use watcher::Event as Watch;

    use super::*;

    fn take(index: &mut Index<u32>, item: Watch<u32>) -> Vec<String> {
        let seen = index.take(Ok(item), |object| *object).unwrap();
        let shown = seen.into_iter().map(|seen| match seen {
            Seen::Applied(object) => format!("+{object}"),
            Seen::Gone(key) => format!("-{key}"),
        });
        shown.collect()
    }

    #[test]
    fn what_vanished_between_two_lists_is_noticed() {
        let mut index = Index::new("watching numbers");
        assert!(take(&mut index, Watch::Init).is_empty());
        assert_eq!(take(&mut index, Watch::InitApply(1)), ["+1"]);
        assert_eq!(take(&mut index, Watch::InitApply(2)), ["+2"]);
        assert!(!index.is_complete());
        assert!(take(&mut index, Watch::InitDone).is_empty());
        assert!(index.is_complete());
        assert_eq!(take(&mut index, Watch::Apply(3)), ["+3"]);
        assert_eq!(take(&mut index, Watch::Delete(2)), ["-2"]);
        take(&mut index, Watch::Init);
        take(&mut index, Watch::InitApply(3));
        assert_eq!(take(&mut index, Watch::InitDone), ["-1"]);
    }

    #[test]
    fn a_list_that_breaks_off_deletes_nothing() {
        let mut index = Index::new("watching numbers");
        take(&mut index, Watch::InitApply(1));
        take(&mut index, Watch::InitDone);
        take(&mut index, Watch::Init);
        take(&mut index, Watch::Init);
        take(&mut index, Watch::InitApply(1));
        assert!(take(&mut index, Watch::InitDone).is_empty());
    }

    #[test]
    fn an_answer_about_an_object_that_is_gone_is_old() {
        let mut index = Index::new("watching numbers");
        take(&mut index, Watch::Apply(1));
        assert!(index.answered(&1));
        take(&mut index, Watch::Delete(1));
        assert!(!index.answered(&1), "the watch said that it is gone");
        take(&mut index, Watch::Apply(1));
        assert!(index.answered(&1), "the watch shows it again");
        take(&mut index, Watch::Init);
        take(&mut index, Watch::InitDone);
        assert!(!index.answered(&1), "the list did not show it");
    }

    #[test]
    fn what_an_answer_brings_while_a_list_is_read_is_not_gone() {
        let mut index = Index::new("watching numbers");
        take(&mut index, Watch::Apply(1));
        take(&mut index, Watch::Init);
        assert!(index.answered(&1) && index.answered(&2));
        assert_eq!(take(&mut index, Watch::InitDone), ["-1"], "the list is newer than what was known");
        take(&mut index, Watch::Init);
        assert_eq!(take(&mut index, Watch::InitDone), ["-2"], "the next list would have shown it");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut index = Index::new("watching numbers");
        let most = u32::try_from(MOST_REMOVED).unwrap();
        for key in 0..=most {
            take(&mut index, Watch::Delete(key));
        }
        assert!(index.answered(&0) && !index.answered(&1) && !index.answered(&most));
    }

    #[test]
    fn only_a_first_list_that_is_forbidden_is_final() {
        let refused = |code| {
            let status = Status { code, ..Status::failure("no", "Forbidden") };
            Err::<Watch<u32>, _>(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))
        };
        let mut index = Index::new("watching numbers");
        assert!(index.take(refused(503), |key| *key).is_ok());
        assert!(index.take(refused(403), |key| *key).is_err());
        take(&mut index, Watch::InitDone);
        assert!(index.take(refused(403), |key| *key).is_ok());
    }
}
