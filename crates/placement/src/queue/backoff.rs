//! How long a penalty is, and who is first to be spared the rest of it.

use std::collections::BTreeSet;
use std::time::Duration;

use gangway_model::Timestamp;

use super::Settings;
use super::entry::{Entry, Position};
use crate::ids::PodId;

/// `time` moved by `duration`; saturates.
pub(super) fn later(time: Timestamp, duration: Duration) -> Timestamp {
    let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanos(time.as_nanos().saturating_add(nanos))
}

impl Settings {
    /// The penalty after so many failures: doubled with each, up to the longest.
    #[must_use]
    pub fn backoff(&self, failures: u32) -> Duration {
        if failures == 0 || self.max_backoff.is_zero() {
            return Duration::ZERO;
        }
        let doubled =
            1_u32.checked_shl(failures - 1).and_then(|times| self.initial_backoff.checked_mul(times));
        // What does not fit in the number is longer than the longest, unless it is nothing at all.
        let unlimited = if self.initial_backoff.is_zero() { Some(Duration::ZERO) } else { doubled };
        unlimited.map_or(self.max_backoff, |penalty| penalty.min(self.max_backoff))
    }

    /// When the pod's penalty is over, if it has one. Errors in a row are counted apart from rejections: after five
    /// rejections the first error costs as much as if it had been the first failure.
    pub(super) fn backoff_until(&self, entry: &Entry) -> Option<Timestamp> {
        let failures = if entry.errors > 0 { entry.errors } else { entry.rejections };
        let penalty = self.backoff(failures);
        (!penalty.is_zero()).then(|| later(entry.queued_at, penalty))
    }
}

/// The pods that serve a penalty.
#[derive(Debug)]
pub(super) struct Backoffs {
    /// Whether penalties for rejections may be cut short.
    early: bool,
    /// After a rejection, by the second in which the penalty ends and then in the order of the queue, so that those with
    /// priority go first among penalties that end at nearly the same time. Empty if none is cut short.
    by_window: BTreeSet<(i64, Position)>,
    /// The same pods by when exactly the penalty ends.
    rejected: BTreeSet<(Timestamp, PodId)>,
    /// After an error.
    failed: BTreeSet<(Timestamp, PodId)>,
}

impl Backoffs {
    pub(super) fn new(early: bool) -> Self {
        Self { early, by_window: BTreeSet::new(), rejected: BTreeSet::new(), failed: BTreeSet::new() }
    }

    pub(super) fn insert(&mut self, until: Timestamp, error: bool, position: Position) {
        if error {
            self.failed.insert((until, position.pod));
        } else {
            self.rejected.insert((until, position.pod));
            if self.early {
                self.by_window.insert((until.as_seconds(), position));
            }
        }
    }

    pub(super) fn remove(&mut self, until: Timestamp, error: bool, position: Position) -> bool {
        if error {
            return self.failed.remove(&(until, position.pod));
        }
        let is_removed = self.rejected.remove(&(until, position.pod));
        is_removed && (!self.early || self.by_window.remove(&(until.as_seconds(), position)))
    }

    /// Whose penalty is cut short next, if any may be.
    pub(super) fn first_early(&self) -> Option<PodId> {
        self.by_window.first().map(|(_, position)| position.pod)
    }

    /// A pod whose penalty is over.
    pub(super) fn first_over(&self, now: Timestamp) -> Option<PodId> {
        let is_over = |first: &&(Timestamp, PodId)| first.0 <= now;
        let rejected = self.rejected.first().filter(is_over);
        rejected.or_else(|| self.failed.first().filter(is_over)).map(|(_, pod)| *pod)
    }

    pub(super) fn next_expiry(&self) -> Option<Timestamp> {
        [&self.rejected, &self.failed]
            .into_iter()
            .filter_map(|heap| heap.first())
            .map(|(until, _)| *until)
            .min()
    }

    pub(super) fn len(&self) -> usize {
        self.rejected.len() + self.failed.len()
    }

    /// Whether the pod is filed under exactly this.
    pub(super) fn contains(&self, until: Timestamp, error: bool, position: &Position) -> bool {
        let key = (until, position.pod);
        if error {
            return self.failed.contains(&key);
        }
        let window = (until.as_seconds(), position.clone());
        self.rejected.contains(&key) && self.by_window.contains(&window) == self.early
    }

    /// Whether the indexes hold the same number of pods.
    pub(super) fn is_even(&self) -> bool {
        self.by_window.len() == if self.early { self.rejected.len() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn penalties_double_up_to_the_longest() {
        let settings = Settings::default();
        let seconds: Vec<_> = (0..8).map(|failures| settings.backoff(failures).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 10, 10, 10]);
        for failures in [31, 32, 33, 64, 65, u32::MAX] {
            assert_eq!(settings.backoff(failures).as_secs(), 10, "{failures}");
        }
    }

    #[test]
    fn no_longest_penalty_means_no_penalty() {
        let settings = Settings { max_backoff: Duration::ZERO, ..Settings::default() };
        assert!((0..70).all(|failures| settings.backoff(failures).is_zero()));
        let settings = Settings { initial_backoff: Duration::ZERO, ..Settings::default() };
        assert!((0..70).all(|failures| settings.backoff(failures).is_zero()));
    }

    #[test]
    fn a_penalty_beyond_all_time_saturates() {
        assert_eq!(later(Timestamp::from_seconds(5), Duration::MAX).as_nanos(), i64::MAX);
    }
}
