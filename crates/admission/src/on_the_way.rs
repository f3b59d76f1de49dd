//! Whose decisions are under way.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::decision::DecisionId;
use crate::ids::WorkloadId;

/// Whose decisions are under way. They are numbered one after the other and most end soon, so a row of the latest ones is
/// short; those that do not end are kept apart.
#[derive(Debug, Default)]
pub(crate) struct OnTheWay {
    /// The number of the first of the row.
    first: u64,
    row: VecDeque<Option<WorkloadId>>,
    in_row: usize,
    stragglers: FxHashMap<DecisionId, WorkloadId>,
}

/// So few decisions of a row that long are stragglers.
const LONG: usize = 1024;
const FEW: usize = 16;

impl OnTheWay {
    /// Notes a decision with the number after the last.
    pub(crate) fn insert(&mut self, decision: DecisionId, id: WorkloadId) {
        if self.row.len() >= LONG && self.in_row <= self.row.len() / FEW {
            let rest = std::mem::take(&mut self.row);
            let numbered = (self.first..).map(DecisionId).zip(rest);
            self.stragglers.extend(numbered.filter_map(|(decision, id)| Some((decision, id?))));
            self.in_row = 0;
        }
        if self.row.is_empty() {
            self.first = decision.0;
        }
        self.row.push_back(Some(id));
        self.in_row += 1;
    }

    fn position(&self, decision: DecisionId) -> Option<usize> {
        usize::try_from(decision.0.checked_sub(self.first)?).ok()
    }

    pub(crate) fn get(&self, decision: DecisionId) -> Option<WorkloadId> {
        let in_row = self.position(decision).and_then(|position| self.row.get(position).copied().flatten());
        in_row.or_else(|| self.stragglers.get(&decision).copied())
    }

    pub(crate) fn remove(&mut self, decision: DecisionId) {
        let place = self.position(decision).and_then(|position| self.row.get_mut(position));
        match place.and_then(Option::take) {
            Some(_) => self.in_row -= 1,
            None => drop(self.stragglers.remove(&decision)),
        }
        while self.row.front() == Some(&None) {
            self.row.pop_front();
            self.first += 1;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.in_row + self.stragglers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_end_takes_little_room_and_is_found() {
        let mut on_the_way = OnTheWay::default();
        let id = |number: u64| WorkloadId(number as u32 * 2);
        let never_ends = |number: u64| number.is_multiple_of(100);
        for number in 0..10_000 {
            on_the_way.insert(DecisionId(number), id(number));
            if !never_ends(number) {
                on_the_way.remove(DecisionId(number));
            }
        }
        assert_eq!(on_the_way.len(), 100);
        assert!(on_the_way.row.len() <= LONG, "the row of the latest is {} long", on_the_way.row.len());
        for number in 0..10_000 {
            let expected = never_ends(number).then(|| id(number));
            assert_eq!(on_the_way.get(DecisionId(number)), expected);
            on_the_way.remove(DecisionId(number));
        }
        assert_eq!(on_the_way.len(), 0);
        assert_eq!(on_the_way.get(DecisionId(10_000)), None);
    }
}
