//! Who asked for what, how often.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// What requests are counted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    /// The `User-Agent` header, empty if there is none.
    pub user_agent: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: &'static str,
    /// `jobs.batch`, `pods/binding`; empty for requests that are not about a resource.
    pub resource: String,
}

/// Counts by verb and resource.
type OfOneAgent = BTreeMap<&'static str, BTreeMap<String, u64>>;

#[derive(Debug, Default)]
pub(crate) struct Counts(Mutex<BTreeMap<String, OfOneAgent>>);

impl Counts {
    pub(crate) fn add(&self, user_agent: &str, verb: &'static str, resource: String) {
        let mut counts = self.0.lock();
        if !counts.contains_key(user_agent) {
            counts.insert(user_agent.to_owned(), BTreeMap::new());
        }
        let Some(verbs) = counts.get_mut(user_agent) else { return };
        *verbs.entry(verb).or_default().entry(resource).or_default() += 1;
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<RequestKey, u64> {
        let counts = self.0.lock();
        let mut all = BTreeMap::new();
        for (user_agent, verbs) in counts.iter() {
            for (verb, resources) in verbs {
                for (resource, count) in resources {
                    let (user_agent, resource) = (user_agent.clone(), resource.clone());
                    all.insert(RequestKey { user_agent, verb, resource }, *count);
                }
            }
        }
        all
    }
}
