//! How long to wait before pods that failed are replaced.

use gangway_model::Timestamp;

use super::view::PodView;

const FIRST_DELAY_SECONDS: i64 = 10;
const LONGEST_DELAY_SECONDS: i64 = 600;

/// Failures since the last success. Kept in memory: after a restart the first replacement is not delayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct FailureRecord {
    failures: u32,
    last_failure: Option<Timestamp>,
}

impl FailureRecord {
    /// The record after these pods finished.
    pub(super) fn after(mut self, succeeded: &[&PodView], failed: &[&PodView]) -> Self {
        let last_success = succeeded.iter().map(|pod| pod.finished).max();
        if last_success.is_some() {
            self = Self::default();
        }
        for pod in failed.iter().filter(|pod| last_success.is_none_or(|success| pod.finished > success)) {
            self.failures = self.failures.saturating_add(1);
            self.last_failure = self.last_failure.max(Some(pod.finished));
        }
        self
    }

    /// When the next pod may be created, if there is reason to wait at all.
    pub(super) fn next_start(&self) -> Option<Timestamp> {
        let delay = delay_seconds(self.failures)?;
        self.last_failure.map(|failure| failure.plus_seconds(delay))
    }
}

/// How long to wait after so many failures, if there were any.
pub(super) fn delay_seconds(failures: u32) -> Option<i64> {
    let doublings = failures.checked_sub(1)?.min(6);
    Some((FIRST_DELAY_SECONDS << doublings).min(LONGEST_DELAY_SECONDS))
}
