//! Is the queue sound? Every invariant, slowly, for tests and diagnosis.

use std::collections::BTreeMap;

use super::Queue;
use super::entry::{Entry, Spot};
use crate::framework::PluginId;
use crate::ids::PodId;

/// An invariant of the queue that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// A pod is not filed where it says it is, or not under what it says.
    #[error("pod {0:?} is not filed where it says it is")]
    Misplaced(PodId),
    /// There are pods in an index that do not say so.
    #[error("{0} holds pods that are elsewhere")]
    Stray(&'static str),
    /// An index and another one of the same pods differ.
    #[error("the indexes of {0} differ")]
    Uneven(&'static str),
    /// Waiting pods are counted for a plugin that did not reject them, or the other way round.
    #[error("pods are counted for plugins that have nothing to do with them")]
    Blame,
    /// A pod is to give a turn up that it does not have.
    #[error("pod {0:?} owes a turn that it cannot take")]
    Turn(PodId),
}

impl Queue {
    /// Checks every invariant.
    ///
    /// # Errors
    ///
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_places()?;
        self.check_sizes()?;
        self.check_blame()
    }

    fn check_places(&self) -> Result<(), Violation> {
        for (pod, entry) in self.entries.iter() {
            if !self.is_filed(pod, entry) {
                return Err(Violation::Misplaced(pod));
            }
            if entry.owes_turn && !matches!(entry.spot, Spot::Active | Spot::InFlight) {
                return Err(Violation::Turn(pod));
            }
        }
        Ok(())
    }

    fn is_filed(&self, pod: PodId, entry: &Entry) -> bool {
        let position = entry.position(pod);
        match entry.spot {
            Spot::Nowhere => false,
            Spot::Active => self.active.contains(&position),
            Spot::Backoff { until, error } => {
                self.backoffs.contains(until, error, &position)
                    && Some(until) == self.settings.backoff_until(entry)
            }
            Spot::Parked { flush_at } => self.parked.has_parked(entry.group(), &position, flush_at),
            Spot::Gated { plugin, flush_at } => {
                self.parked.has_gated(plugin, pod, flush_at) && entry.blamed.contains(plugin)
            }
            Spot::InFlight => self.in_flight.has(entry.attempt, pod) && entry.blamed.is_empty(),
            Spot::Decided => !self.in_flight.has(entry.attempt, pod) && entry.blamed.is_empty(),
        }
    }

    /// Every pod is filed; if there are as many filed as there are pods, there is no other.
    fn check_sizes(&self) -> Result<(), Violation> {
        let count =
            |is_there: fn(&Spot) -> bool| self.entries.iter().filter(|(_, e)| is_there(&e.spot)).count();
        let sizes = [
            ("active", self.active.len(), count(|spot| matches!(spot, Spot::Active))),
            ("backoff", self.backoffs.len(), count(|spot| matches!(spot, Spot::Backoff { .. }))),
            (
                "unschedulable",
                self.parked.unschedulable_len(),
                count(|spot| matches!(spot, Spot::Parked { .. })),
            ),
            ("gated", self.parked.gated_len(), count(|spot| matches!(spot, Spot::Gated { .. }))),
        ];
        if let Some((name, ..)) = sizes.into_iter().find(|(_, filed, said)| filed != said) {
            return Err(Violation::Stray(name));
        }
        let evens = [
            ("backoff", self.backoffs.is_even()),
            ("unschedulable", self.parked.is_even()),
            ("in flight", self.in_flight.is_even()),
        ];
        evens.into_iter().find(|(_, even)| !even).map_or(Ok(()), |(name, _)| Err(Violation::Uneven(name)))
    }

    fn check_blame(&self) -> Result<(), Violation> {
        let mut blamed: BTreeMap<PluginId, usize> = BTreeMap::new();
        for plugin in self.entries.iter().flat_map(|(_, entry)| entry.blamed.iter()) {
            *blamed.entry(plugin).or_default() += 1;
        }
        if blamed == self.tally.counts().unschedulable_by_plugin { Ok(()) } else { Err(Violation::Blame) }
    }
}
