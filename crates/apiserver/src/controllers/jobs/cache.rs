//! What the controller knows: Jobs and their Pods, kept current by watches and by the answers to its own
//! writes. An answer counts at once, so a pod just created is never created again because the watch lags.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use rustc_hash::{FxHashMap, FxHashSet};

use super::backoff::FailureRecord;
use super::view::{PodView, is_finished, is_managed_elsewhere};

pub(super) type Uid = String;

/// A Job that is not finished.
#[derive(Debug)]
pub(super) struct TrackedJob {
    pub job: Arc<Job>,
    pub failures: FailureRecord,
    /// A sync is under way; a second one would act on the same facts twice.
    pub syncing: bool,
    /// Something changed since the last plan was made.
    pub dirty: bool,
    /// Failed syncs in a row.
    pub attempts: u32,
    listing: u64,
}

/// A pod, with the version it was last seen in.
#[derive(Debug)]
struct CachedPod {
    view: PodView,
    version: u64,
    listing: u64,
    /// Known from the answer to its creation only; the watch has not shown it yet.
    unconfirmed: bool,
}

/// A pod that belongs to a Job, by the Job's uid.
#[derive(Debug, Clone)]
pub(super) struct OwnedPod {
    pub owner: Uid,
    pub owner_name: String,
    pub view: PodView,
}

#[derive(Debug, Default)]
pub(super) struct Cache {
    jobs: FxHashMap<Uid, TrackedJob>,
    finished: FxHashSet<Uid>,
    pods: FxHashMap<Uid, FxHashMap<Uid, CachedPod>>,
    owners: FxHashMap<Uid, Uid>,
    /// Pods that an answer said are gone, until the watch says so too.
    gone: FxHashSet<Uid>,
    /// The newest pod version the watch has shown: answers up to it are old news.
    watched_version: u64,
    job_listing: u64,
    pod_listing: u64,
}

/// What a pod that a watch showed means.
#[derive(Debug)]
pub(super) enum PodNews {
    /// A pod of a Job, new or changed.
    Owned(OwnedPod),
    /// No Job owns it (any more), but it still waits to be counted by one.
    Orphan(PodView),
    None,
}

/// What became of a Job that was applied.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// It needs a plan.
    Changed,
    /// It has just been found finished.
    Finished,
    Ignored,
}

impl Cache {
    pub(super) fn begin_job_listing(&mut self) {
        self.job_listing += 1;
    }

    pub(super) fn begin_pod_listing(&mut self) {
        self.pod_listing += 1;
    }

    /// Forgets Jobs that the listing did not show; returns their uids.
    pub(super) fn end_job_listing(&mut self) -> Vec<Uid> {
        let current = self.job_listing;
        let vanished = self.jobs.iter().filter(|(_, job)| job.listing < current);
        let vanished: Vec<Uid> = vanished.map(|(uid, _)| uid.clone()).collect();
        for uid in &vanished {
            self.jobs.remove(uid);
        }
        vanished
    }

    /// Forgets pods that the listing did not show. Returns the Jobs that lost pods, and the pods created
    /// while the listing ran, of which it cannot be told whether they still exist.
    pub(super) fn end_pod_listing(&mut self) -> (Vec<Uid>, Vec<PodView>) {
        let current = self.pod_listing;
        let all = || self.pods.values().flatten();
        let vanished: Vec<Uid> =
            all().filter(|(_, pod)| pod.listing < current).map(|(uid, _)| uid.clone()).collect();
        let doubtful = all().filter(|(_, pod)| pod.listing == current && pod.unconfirmed);
        let doubtful = doubtful.map(|(_, pod)| pod.view.clone()).collect();
        self.gone.clear();
        (vanished.iter().filter_map(|uid| self.forget(uid)).collect(), doubtful)
    }

    /// Takes in a Job that a watch showed.
    pub(super) fn apply_job(&mut self, job: Job) -> Applied {
        let Some(uid) = job.uid() else { return Applied::Ignored };
        if is_finished(&job) {
            let news = self.jobs.remove(&uid).is_some() | self.finished.insert(uid);
            return if news { Applied::Finished } else { Applied::Ignored };
        }
        // No Job runs again after its end: this is news from before it, which came late.
        if is_managed_elsewhere(&job) || self.finished.contains(&uid) {
            return Applied::Ignored;
        }
        let listing = self.job_listing;
        match self.jobs.get_mut(&uid) {
            Some(known) => {
                known.listing = listing;
                if version(&job) <= version(&*known.job) {
                    return Applied::Ignored;
                }
                known.job = Arc::new(job);
                known.dirty = true;
            }
            None => {
                let failures = FailureRecord::default();
                let job = Arc::new(job);
                let tracked = TrackedJob { job, failures, syncing: false, dirty: true, attempts: 0, listing };
                self.jobs.insert(uid, tracked);
            }
        }
        Applied::Changed
    }

    /// Takes in a Job from the answer to a write, unless the Job has gone in the meantime.
    pub(super) fn apply_job_answer(&mut self, job: Job) -> Applied {
        let known = job.uid().is_some_and(|uid| self.jobs.contains_key(&uid));
        if known { self.apply_job(job) } else { Applied::Ignored }
    }

    pub(super) fn remove_job(&mut self, uid: &str) {
        self.jobs.remove(uid);
        self.finished.remove(uid);
    }

    pub(super) fn job_mut(&mut self, uid: &str) -> Option<&mut TrackedJob> {
        self.jobs.get_mut(uid)
    }

    pub(super) fn job(&self, uid: &str) -> Option<&TrackedJob> {
        self.jobs.get(uid)
    }

    pub(super) fn job_uids(&self) -> Vec<Uid> {
        self.jobs.keys().cloned().collect()
    }

    pub(super) fn is_finished(&self, uid: &str) -> bool {
        self.finished.contains(uid)
    }

    pub(super) fn pods_of(&self, owner: &str) -> Vec<&PodView> {
        let mut pods: Vec<&PodView> =
            self.pods.get(owner).into_iter().flat_map(|pods| pods.values().map(|pod| &pod.view)).collect();
        // Plans are a function of the pods, not of where a hash put them.
        pods.sort_by(|left, right| (left.created, &left.name).cmp(&(right.created, &right.name)));
        pods
    }

    /// Uids that own pods but are no Job that this controller runs.
    pub(super) fn owners_without_job(&self) -> Vec<Uid> {
        self.pods.keys().filter(|owner| !self.jobs.contains_key(*owner)).cloned().collect()
    }

    /// Takes in a pod that a watch showed. A pod that left its Job is no pod of it any more.
    pub(super) fn apply_pod(&mut self, pod: &Pod) -> PodNews {
        let version = version(pod);
        self.watched_version = self.watched_version.max(version);
        let Some(owned) = owned(pod) else {
            self.forget(pod.metadata.uid.as_deref().unwrap_or_default());
            let view = PodView::of(pod);
            return if view.is_tracked() { PodNews::Orphan(view) } else { PodNews::None };
        };
        if self.gone.contains(&owned.view.uid) {
            return PodNews::None;
        }
        self.insert(owned, version, false).map_or(PodNews::None, PodNews::Owned)
    }

    /// Takes in the pod from the answer to its creation, unless the watch is already past it.
    pub(super) fn apply_created(&mut self, pod: &Pod) {
        let version = version(pod);
        if version > self.watched_version
            && let Some(owned) = owned(pod)
        {
            self.insert(owned, version, true);
        }
    }

    /// Takes in the pod from the answer to a change, if it is still known.
    pub(super) fn apply_pod_answer(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        match owned(pod) {
            Some(owned) if self.owners.contains_key(uid) => {
                self.insert(owned, version(pod), false);
            }
            Some(_) => {}
            None => {
                self.forget(uid);
            }
        }
    }

    fn insert(&mut self, owned: OwnedPod, version: u64, unconfirmed: bool) -> Option<OwnedPod> {
        let listing = self.pod_listing;
        let pods = self.pods.entry(owned.owner.clone()).or_default();
        self.owners.insert(owned.view.uid.clone(), owned.owner.clone());
        let cached = CachedPod { view: owned.view.clone(), version, listing, unconfirmed };
        match pods.get_mut(&owned.view.uid) {
            Some(known) => {
                known.listing = listing;
                known.unconfirmed &= unconfirmed;
                if version < known.version || known.view == cached.view {
                    return None;
                }
                *known = cached;
            }
            None => {
                pods.insert(owned.view.uid.clone(), cached);
            }
        }
        Some(owned)
    }

    /// Forgets a pod that the watch says is gone; returns its owner.
    pub(super) fn remove_pod(&mut self, pod: &Pod) -> Option<Uid> {
        self.watched_version = self.watched_version.max(version(pod));
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.gone.remove(uid);
        self.forget(uid)
    }

    /// Forgets a pod that an answer says is gone; returns its owner.
    pub(super) fn remove_pod_by_answer(&mut self, uid: &str) -> Option<Uid> {
        let owner = self.forget(uid)?;
        self.gone.insert(uid.to_owned());
        Some(owner)
    }

    fn forget(&mut self, uid: &str) -> Option<Uid> {
        let owner = self.owners.remove(uid)?;
        if let Some(pods) = self.pods.get_mut(&owner) {
            pods.remove(uid);
            if pods.is_empty() {
                self.pods.remove(&owner);
            }
        }
        Some(owner)
    }
}

/// The pod's controller, if that is a Job.
fn owned(pod: &Pod) -> Option<OwnedPod> {
    let owner =
        pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let by_job = owner.kind == "Job" && owner.api_version.starts_with("batch/");
    by_job.then(|| OwnedPod {
        owner: owner.uid.clone(),
        owner_name: owner.name.clone(),
        view: PodView::of(pod),
    })
}

/// Versions of one kind of object are numbers that grow.
pub(super) fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(version: &str, end: &str) -> Job {
        let conditions = json!([{"type": "Complete", "status": end}]);
        serde_json::from_value(json!({"metadata": {"name": "j", "uid": "u", "resourceVersion": version},
            "status": {"conditions": conditions}}))
        .unwrap()
    }

    #[test]
    fn a_job_that_has_ended_does_not_run_again_because_old_news_come_late() {
        let mut cache = Cache::default();
        assert_eq!(cache.apply_job(job("1", "False")), Applied::Changed);
        assert_eq!(cache.apply_job_answer(job("3", "True")), Applied::Finished);
        assert_eq!(cache.apply_job(job("2", "False")), Applied::Ignored);
        assert!(cache.job("u").is_none());
    }
}
