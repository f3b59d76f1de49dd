//! What happened while a pod was tried.
//!
//! An attempt judges the cluster as it was when it began. What happens before it ends may be just what the pod then
//! waits for, so it is kept until every attempt that began before it has ended.

use std::collections::{BTreeMap, VecDeque};

use super::{Attempt, labels};
use crate::framework::{Happening, PluginSet};
use crate::ids::PodId;

/// An event that happened while somebody was tried.
#[derive(Debug)]
pub(super) struct Kept {
    number: u64,
    /// The attempt whose pod alone this concerns, if it does not concern everybody.
    only: Option<u64>,
    pub(super) told: PluginSet,
    pub(super) event: Happening,
}

/// Attempts under way and what happened since the oldest of them began. Attempts and events are numbered from one
/// counter: an event is later than an attempt if its number is higher.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    last: u64,
    attempts: BTreeMap<u64, PodId>,
    events: VecDeque<Kept>,
    by_label: BTreeMap<&'static str, usize>,
}

impl InFlight {
    pub(super) fn begin(&mut self, pod: PodId) -> Attempt {
        self.last += 1;
        self.attempts.insert(self.last, pod);
        Attempt { pod, number: self.last }
    }

    pub(super) fn is_under_way(&self, attempt: Attempt) -> bool {
        self.attempts.contains_key(&attempt.number)
    }

    /// Keeps an event for all attempts that are under way, or for one of them.
    pub(super) fn keep(&mut self, event: &Happening, told: PluginSet, only: Option<u64>) {
        if self.attempts.is_empty() {
            return;
        }
        self.last += 1;
        *self.by_label.entry(event.label).or_default() += 1;
        self.events.push_back(Kept { number: self.last, only, told, event: event.clone() });
    }

    /// What happened since the attempt began and may concern its pod.
    pub(super) fn since(&self, attempt: Attempt) -> impl Iterator<Item = &Kept> {
        let first = self.events.partition_point(|kept| kept.number < attempt.number);
        let concerns = move |kept: &&Kept| kept.only.is_none_or(|only| only == attempt.number);
        self.events.range(first..).filter(concerns)
    }

    /// Ends an attempt and forgets what only it could still ask for. Harmless if it has ended.
    pub(super) fn end(&mut self, attempt: Attempt) {
        self.attempts.remove(&attempt.number);
        let oldest = self.attempts.first_key_value().map_or(u64::MAX, |(number, _)| *number);
        while let Some(kept) = self.events.pop_front_if(|kept| kept.number < oldest) {
            if let Some(count) = self.by_label.get_mut(kept.event.label) {
                *count -= 1;
            }
        }
        if self.attempts.is_empty() {
            self.by_label.clear();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.attempts.len()
    }

    /// How many events are kept, and how many attempts are under way, by label.
    pub(super) fn labels(&self) -> BTreeMap<&'static str, usize> {
        let events = self.by_label.iter().map(|(label, count)| (*label, *count));
        events.chain([(labels::IN_FLIGHT, self.attempts.len())]).filter(|(_, count)| *count > 0).collect()
    }

    /// Whether the attempt is under way for this pod.
    pub(super) fn has(&self, number: u64, pod: PodId) -> bool {
        self.attempts.get(&number) == Some(&pod)
    }

    /// Whether nothing is kept that nobody can ask for, and everything kept is counted.
    pub(super) fn is_even(&self) -> bool {
        let mut by_label: BTreeMap<&'static str, usize> = BTreeMap::new();
        for kept in &self.events {
            *by_label.entry(kept.event.label).or_default() += 1;
        }
        let counted =
            self.by_label.iter().filter(|(_, count)| **count > 0).map(|(label, count)| (*label, *count));
        let is_asked_for = match (self.events.front(), self.attempts.first_key_value()) {
            (Some(kept), Some((oldest, _))) => kept.number > *oldest,
            (Some(_), None) => false,
            (None, _) => true,
        };
        is_asked_for && counted.eq(by_label)
    }
}
