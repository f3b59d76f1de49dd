//! Lanes: Workloads of a queue that are evaluated together.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_model::reasons::PendingReason;

use super::{Head, Places, QueueKey};
use crate::ids::{CellAmounts, CellId, WorkloadId};
use crate::shapes::ShapeId;

/// Who is evaluated together: equal shapes. But, where room is kept, a preemptor for itself, and those who left for
/// another apart from those who did not: whom they may preempt differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LaneKey {
    Shape(ShapeId),
    LeftFor(ShapeId, WorkloadId),
    Preemptor(WorkloadId),
}

/// What was found when the first of a lane was last evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) reason: PendingReason,
    /// Nobody who leaves can help: only other definitions.
    pub(crate) lasts: bool,
    /// As long as the queue lacks this, nobody of the lane fits.
    pub(crate) lacks: Option<(CellId, i64)>,
    /// What others may not borrow as long as the first of the lane waits for it.
    pub(crate) claim: Option<Box<CellAmounts>>,
    /// Who is older and may preempt more is not tried for it either.
    pub(crate) at_any_age: bool,
    /// When: how often the queue had been woken.
    pub(crate) epoch: u64,
}

impl Parked {
    pub(crate) fn new(reason: PendingReason) -> Self {
        Self { reason, lasts: false, lacks: None, claim: None, at_any_age: false, epoch: 0 }
    }
}

/// Workloads of one shape.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: LaneKey,
    /// The place of the first.
    pub(super) first: QueueKey,
    /// Those behind it, in order.
    pub(super) rest: VecDeque<WorkloadId>,
    pub(super) parked: Option<Parked>,
    /// Why none of them fitted when that was last found: what its members have reported.
    pub(super) reported: Option<PendingReason>,
    /// Why its members wait when they do, and of which definition of the queue.
    pub(super) waits_for: Option<(u64, PendingReason)>,
    /// What was last told of it.
    pub(super) told: Option<Told>,
}

/// What is told of a lane: the same to everybody in it.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) reason: PendingReason,
    pub(super) message: Arc<str>,
    /// As of which bookings; none if nobody knows.
    pub(super) bookings: Option<u64>,
}

impl Lane {
    pub(super) fn new(key: LaneKey, first: QueueKey) -> Self {
        let rest = VecDeque::new();
        Self { key, first, rest, parked: None, reported: None, waits_for: None, told: None }
    }

    pub(super) fn members(&self) -> impl Iterator<Item = WorkloadId> {
        std::iter::once(self.first.id).chain(self.rest.iter().copied())
    }

    pub(super) fn len(&self) -> usize {
        1 + self.rest.len()
    }

    /// Its first, if this is its number.
    pub(super) fn head(&self, lane: usize) -> Head {
        Head { id: self.first.id, at: self.first.at, lane }
    }

    pub(super) fn is_parked(&self, epoch: u64) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.epoch == epoch)
    }

    /// Whether its first keeps others from borrowing.
    pub(super) fn claims(&self) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.claim.is_some())
    }

    /// How many of its members go before `key`.
    pub(super) fn count_before(&self, key: &QueueKey, places: &impl Places) -> usize {
        if *key <= self.first { 0 } else { 1 + places.position(&self.rest, key) }
    }
}

/// Lanes in the order of their firsts. Newcomers are usually the last and who leaves is usually the first, so a row
/// is moved less than a tree is balanced.
#[derive(Debug, Default)]
pub(super) struct Order(pub(super) VecDeque<Ranked>);

/// A lane with what decides its place unless two are equal in it: most places are found without a look at the lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    rank: u64,
    at: Timestamp,
    pub(super) lane: u32,
}

impl Order {
    /// Where the lane whose first is `key` stands or would stand.
    pub(super) fn position(&self, lanes: &[Option<Lane>], key: &QueueKey) -> usize {
        let goes_before = |ranked: &Ranked| match (ranked.rank, ranked.at).cmp(&(key.rank, key.at)) {
            Ordering::Equal => lanes[ranked.lane as usize].as_ref().is_some_and(|lane| lane.first < *key),
            different => different == Ordering::Less,
        };
        match (self.0.front(), self.0.back()) {
            (Some(first), _) if !goes_before(first) => 0,
            (_, Some(last)) if goes_before(last) => self.0.len(),
            _ => self.0.partition_point(goes_before),
        }
    }

    pub(super) fn at(&self, position: usize) -> Option<usize> {
        self.0.get(position).map(|ranked| ranked.lane as usize)
    }

    pub(super) fn first(&self) -> Option<usize> {
        self.at(0)
    }

    /// Puts a lane where its first belongs. Says where that is.
    pub(super) fn insert(&mut self, lanes: &[Option<Lane>], lane: usize) -> usize {
        let Some(first) = lanes[lane].as_ref().map(|lane| &lane.first) else { return self.0.len() };
        let position = self.position(lanes, first);
        self.0.insert(position, Ranked { rank: first.rank, at: first.at, lane: lane as u32 });
        position
    }

    /// Takes a lane out that still has the first by which it was put in. Says where it was.
    pub(super) fn remove(&mut self, lanes: &[Option<Lane>], lane: usize) -> Option<usize> {
        let position = self.position(lanes, &lanes[lane].as_ref()?.first);
        (self.at(position) == Some(lane)).then(|| {
            self.0.remove(position);
            position
        })
    }
}
