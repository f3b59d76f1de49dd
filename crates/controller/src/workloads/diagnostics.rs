//! What informs and may be late: queue status and Events, coalesced and bounded.

use std::collections::{BTreeMap, VecDeque};

use gangway_admission::{DecisionId, QueueRef};
use gangway_model::Timestamp;

use super::events::Note;

/// A waiting reason is written only if it still holds after this long: most waits are shorter.
const REPORT_DELAY_MILLIS: i64 = 200;
/// A queue's status is written this long after a change, together with whatever changes meanwhile…
const STATUS_DELAY_MILLIS: i64 = 100;
/// …and not sooner than this after the last time.
const STATUS_INTERVAL_MILLIS: i64 = 3000;
/// Events that wait to be sent; the oldest is dropped for a new one beyond that.
const MOST_NOTES: usize = 4096;

/// Diagnostics that wait for their time or for room in their lane.
#[derive(Default)]
pub(super) struct Diagnostics {
    reports: VecDeque<(Timestamp, DecisionId)>,
    statuses: BTreeMap<QueueRef, Timestamp>,
    written: BTreeMap<QueueRef, Timestamp>,
    notes: VecDeque<(Timestamp, Note)>,
}

impl Diagnostics {
    pub(super) fn report(&mut self, id: DecisionId, now: Timestamp) {
        self.reports.push_back((now.plus_millis(REPORT_DELAY_MILLIS), id));
    }

    pub(super) fn queue_changed(&mut self, queue: QueueRef, now: Timestamp) {
        let last = self.written.get(&queue).map(|last| last.plus_millis(STATUS_INTERVAL_MILLIS));
        let due = now.plus_millis(STATUS_DELAY_MILLIS).max(last.unwrap_or(Timestamp::EPOCH));
        self.statuses.entry(queue).or_insert(due);
    }

    /// Takes a note; says whether an older one had to go for it.
    pub(super) fn note(&mut self, note: Note, now: Timestamp) -> bool {
        let full = self.notes.len() >= MOST_NOTES;
        if full {
            self.notes.pop_front();
        }
        self.notes.push_back((now, note));
        full
    }

    pub(super) fn next_report(&mut self, now: Timestamp) -> Option<DecisionId> {
        self.reports.front().filter(|(due, _)| *due <= now)?;
        self.reports.pop_front().map(|(_, id)| id)
    }

    /// A queue whose status is due and that `may` be written now.
    pub(super) fn next_status(
        &mut self,
        now: Timestamp,
        may: impl Fn(&QueueRef) -> bool,
    ) -> Option<QueueRef> {
        let (queue, _) = self.statuses.iter().find(|(queue, due)| **due <= now && may(queue))?;
        let queue = queue.clone();
        self.statuses.remove(&queue);
        Some(queue)
    }

    pub(super) fn status_written(&mut self, queue: QueueRef, now: Timestamp) {
        self.written.insert(queue, now);
    }

    pub(super) fn queue_gone(&mut self, queue: &QueueRef) {
        self.written.remove(queue);
        self.statuses.remove(queue);
    }

    pub(super) fn next_note(&mut self) -> Option<(Timestamp, Note)> {
        self.notes.pop_front()
    }

    /// When something that waits for its time is due.
    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let report = self.reports.front().map(|(due, _)| *due);
        let status = self.statuses.values().min().copied();
        report.into_iter().chain(status).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::EPOCH.plus_millis(millis)
    }

    #[test]
    fn a_queues_changes_are_written_together_and_not_too_often() {
        let queue = QueueRef::Cluster("cq".into());
        let mut diagnostics = Diagnostics::default();
        diagnostics.queue_changed(queue.clone(), at(0));
        diagnostics.queue_changed(queue.clone(), at(50));
        assert_eq!(diagnostics.next_status(at(50), |_| true), None);
        assert_eq!(diagnostics.next_status(at(100), |_| true), Some(queue.clone()));
        diagnostics.status_written(queue.clone(), at(100));
        diagnostics.queue_changed(queue.clone(), at(200));
        assert_eq!(diagnostics.next_status(at(3099), |_| true), None);
        assert_eq!(diagnostics.next_status(at(3100), |_| true), Some(queue));
        assert_eq!(diagnostics.next_deadline(), None);
    }
}
