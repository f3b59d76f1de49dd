//! Failures of an Indexed Job that counts them for each index (`spec.backoffLimitPerIndex`).
//!
//! How often an index has failed is written on its pods. A failed pod keeps its finalizer until its successor is there, which
//! carries the count on.

use gangway_model::Timestamp;
use rustc_hash::FxHashMap;

use super::backoff::delay_seconds;
use super::conditions::Outcome;
use super::indexes::IndexSet;
use super::plan::{counts_as_failed, valid_index};
use super::view::{JobView, PodView};

/// What has become of the indexes that failed.
#[derive(Debug)]
pub(super) struct PerIndex<'a> {
    /// Indexes that are not tried any more.
    pub failed: IndexSet,
    /// The last pod of each index that is tried again and has no new pod yet.
    pub to_replace: FxHashMap<u32, &'a PodView>,
    max_failed: Option<usize>,
}

impl<'a> PerIndex<'a> {
    /// None if the Job does not count for each index.
    pub(super) fn of(job: &JobView, pods: &[&'a PodView], completed: &IndexSet) -> Option<Self> {
        let limit = job.backoff_limit_per_index.filter(|_| job.indexed)?;
        let completions = u32::try_from(job.completions.unwrap_or(0)).unwrap_or(0);
        let known = job.status.failed_indexes.as_deref().unwrap_or_default();
        let mut failed = IndexSet::parse(known, completions);
        let mut last: FxHashMap<u32, &PodView> = FxHashMap::default();
        for pod in pods.iter().copied().filter(|pod| pod.is_tracked()) {
            let Some(index) = valid_index(job, pod).filter(|index| !completed.contains(*index)) else {
                continue;
            };
            if counts_as_failed(job, pod) && i64::from(pod.index_failures) >= i64::from(limit) {
                failed.insert(index);
            }
            let latest = last.entry(index).or_insert(pod);
            if latest.index_failures < pod.index_failures {
                *latest = pod;
            }
        }
        last.retain(|index, pod| counts_as_failed(job, pod) && !failed.contains(*index));
        let max_failed = job.max_failed_indexes.and_then(|most| usize::try_from(most).ok());
        Some(Self { failed, to_replace: last, max_failed })
    }

    /// How the Job ends because of indexes that failed, if it does.
    pub(super) fn outcome(&self, job: &JobView, completed: &IndexSet) -> Option<Outcome> {
        let failed = self.failed.len();
        if self.max_failed.is_some_and(|most| failed > most) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Outcome::failure("MaxFailedIndexesExceeded", message));
        }
        let completions = job.completions.and_then(|completions| usize::try_from(completions).ok());
        let all_ended = completions.is_some_and(|completions| failed + completed.len() >= completions);
        (failed > 0 && all_ended).then(|| Outcome::failure("FailedIndexes", "Job has failed indexes"))
    }

    /// How often an index has failed so far.
    pub(super) fn failures(&self, index: u32) -> u32 {
        self.to_replace.get(&index).map_or(0, |pod| pod.index_failures.saturating_add(1))
    }

    /// When an index may have a new pod, if there is reason to wait at all.
    pub(super) fn next_start(&self, index: u32) -> Option<Timestamp> {
        let pod = self.to_replace.get(&index)?;
        Some(pod.finished.plus_seconds(delay_seconds(self.failures(index))?))
    }

    /// Whether this pod's count has not been passed on yet.
    pub(super) fn is_needed(&self, pod: &PodView) -> bool {
        let needed = pod.index.and_then(|index| self.to_replace.get(&index));
        needed.is_some_and(|needed| needed.uid == pod.uid)
    }
}
