//! Which Jobs have pods. Pods outlive a deleted Job by their grace period, and use quota that long.

use gangway_admission::Event;
use gangway_model::Uid;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use rustc_hash::FxHashMap;

use crate::index::{Forbidden, Index, Seen};

/// The metadata of the pods that a start has marked, counted by the Job that owns them.
pub(super) struct PodsLeft {
    index: Index<Uid>,
    owners: FxHashMap<Uid, Uid>,
    counts: FxHashMap<Uid, usize>,
}

impl PodsLeft {
    pub(super) fn new() -> Self {
        Self {
            index: Index::new("watching pods"),
            owners: FxHashMap::default(),
            counts: FxHashMap::default(),
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.index.is_complete()
    }

    /// The Jobs that have pods.
    pub(super) fn owners(&self) -> Vec<Event> {
        self.counts.keys().map(|owner| Event::Pods(owner.clone(), true)).collect()
    }

    /// What one item of the watch means for the Jobs that own pods.
    pub(super) fn take(
        &mut self,
        item: Result<watcher::Event<PartialObjectMeta<Pod>>, watcher::Error>,
    ) -> Result<Vec<Event>, Forbidden> {
        let seen = self.index.take(item, pod_uid)?;
        Ok(seen.into_iter().filter_map(|seen| self.count(seen)).collect())
    }

    fn count(&mut self, seen: Seen<PartialObjectMeta<Pod>, Uid>) -> Option<Event> {
        match seen {
            Seen::Applied(pod) => {
                let uid = pod_uid(&pod);
                let owners = pod.metadata.owner_references.unwrap_or_default();
                let owner: Uid = owners.into_iter().find(|owner| owner.controller == Some(true))?.uid.into();
                if self.owners.insert(uid, owner.clone()).is_some() {
                    return None;
                }
                let count = self.counts.entry(owner.clone()).or_insert(0);
                *count += 1;
                (*count == 1).then_some(Event::Pods(owner, true))
            }
            Seen::Gone(uid) => {
                let owner = self.owners.remove(&uid)?;
                let count = self.counts.get_mut(&owner)?;
                *count -= 1;
                if *count > 0 {
                    return None;
                }
                self.counts.remove(&owner);
                Some(Event::Pods(owner, false))
            }
        }
    }
}

fn pod_uid(pod: &PartialObjectMeta<Pod>) -> Uid {
    pod.metadata.uid.as_deref().unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, owner: &str) -> PartialObjectMeta<Pod> {
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner, "controller": true});
        serde_json::from_value(json!({"metadata": {"name": uid, "uid": uid, "ownerReferences": [owner]}}))
            .unwrap()
    }

    fn said(events: Vec<Event>) -> Vec<(String, bool)> {
        let pods = events.into_iter().map(|event| match event {
            Event::Pods(owner, exist) => (owner.to_string(), exist),
            other => panic!("{other:?}"),
        });
        pods.collect()
    }

    #[test]
    fn the_first_and_the_last_pod_of_a_job_are_news() {
        let mut pods = PodsLeft::new();
        let mut take = |event| said(pods.take(Ok(event)).unwrap_or_default());
        assert_eq!(take(watcher::Event::Apply(pod("p1", "job"))), [("job".to_owned(), true)]);
        assert_eq!(take(watcher::Event::Apply(pod("p1", "job"))), [], "a change is no new pod");
        assert_eq!(take(watcher::Event::Apply(pod("p2", "job"))), []);
        assert_eq!(take(watcher::Event::Delete(pod("p1", "job"))), []);
        assert_eq!(take(watcher::Event::Delete(pod("p2", "job"))), [("job".to_owned(), false)]);
        assert_eq!(take(watcher::Event::Delete(pod("p2", "job"))), []);
    }

    #[test]
    fn pods_that_a_new_list_does_not_show_are_gone() {
        let mut pods = PodsLeft::new();
        let mut take = |event| said(pods.take(Ok(event)).unwrap_or_default());
        take(watcher::Event::Apply(pod("p1", "job")));
        take(watcher::Event::Init);
        assert_eq!(take(watcher::Event::InitDone), [("job".to_owned(), false)]);
    }
}
