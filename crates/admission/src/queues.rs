//! The Workloads that wait in a ClusterQueue, in order, by shape.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::reasons::PendingReason;
use gangway_model::{Timestamp, Uid};

use crate::flavors::NoFit;
use crate::shapes::ShapeId;

/// A place in a queue: higher priority first, then the earlier timestamp, then the uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    pub(crate) priority: Reverse<i32>,
    pub(crate) at: Timestamp,
    pub(crate) uid: Uid,
}

/// Workloads of one shape.
#[derive(Debug, Default)]
struct Lane {
    members: BTreeSet<QueueKey>,
    /// Why none of them fits, since the first of them was evaluated.
    parked: Option<Arc<NoFit>>,
    /// Why none of them fitted when that was last found: what its members have reported.
    reported: Option<PendingReason>,
}

/// The Workloads that wait in one ClusterQueue.
#[derive(Debug, Default)]
pub(crate) struct PendingQueue {
    strict: bool,
    lanes: BTreeMap<ShapeId, Lane>,
    /// The first of each lane that is not parked.
    heads: BTreeMap<QueueKey, ShapeId>,
    /// StrictFIFO only: the first does not fit, and so nobody is tried.
    blocked: Option<(QueueKey, Arc<NoFit>)>,
    /// StrictFIFO only: who held up the others last.
    last_blocked: Option<Uid>,
}

impl PendingQueue {
    pub(crate) fn set_strict(&mut self, strict: bool) {
        if self.strict != strict {
            self.strict = strict;
            self.wake(|_| true);
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    pub(crate) fn insert(&mut self, key: QueueKey, shape: ShapeId) {
        if self.blocked.as_ref().is_some_and(|(first, _)| key < *first) {
            self.blocked = None;
        }
        let lane = self.lanes.entry(shape).or_default();
        let first = lane.members.first().cloned();
        let becomes_first = first.as_ref().is_none_or(|first| key < *first);
        if becomes_first && lane.parked.is_none() {
            if let Some(first) = first {
                self.heads.remove(&first);
            }
            self.heads.insert(key.clone(), shape);
        }
        lane.members.insert(key);
    }

    pub(crate) fn remove(&mut self, key: &QueueKey, shape: ShapeId) {
        if self.blocked.as_ref().is_some_and(|(first, _)| key == first) {
            self.blocked = None;
        }
        let Some(lane) = self.lanes.get_mut(&shape) else { return };
        lane.members.remove(key);
        if self.heads.remove(key).is_some()
            && let Some(next) = lane.members.first()
        {
            self.heads.insert(next.clone(), shape);
        }
        if lane.members.is_empty() {
            self.lanes.remove(&shape);
        }
    }

    /// The Workload to evaluate next, if any may be.
    pub(crate) fn head(&self) -> Option<(&QueueKey, ShapeId)> {
        if self.blocked.is_some() {
            return None;
        }
        self.heads.first_key_value().map(|(key, shape)| (key, *shape))
    }

    /// The head does not fit. In a strict queue that holds up everybody, otherwise its shape.
    ///
    /// Says whose waiting reason may have changed by this. Who came since is not among them: a newcomer
    /// has yet to report anyway.
    pub(crate) fn set_aside(&mut self, no_fit: NoFit) -> Vec<Uid> {
        let Some((key, shape)) = self.heads.first_key_value().map(|(k, s)| (k.clone(), *s)) else {
            return Vec::new();
        };
        let no_fit = Arc::new(no_fit);
        if self.strict {
            let first = key.uid.clone();
            let before = self.last_blocked.replace(first.clone()).filter(|before| *before != first);
            self.blocked = Some((key, no_fit));
            return before.into_iter().chain([first]).collect();
        }
        self.heads.remove(&key);
        let Some(lane) = self.lanes.get_mut(&shape) else { return Vec::new() };
        let is_known = lane.reported.replace(no_fit.reason) == Some(no_fit.reason);
        lane.parked = Some(no_fit);
        if is_known {
            return Vec::new();
        }
        lane.members.iter().map(|key| key.uid.clone()).collect()
    }

    /// Lets the shapes whose reason is one that `helps` be tried again.
    pub(crate) fn wake(&mut self, helps: impl Fn(PendingReason) -> bool) {
        if self.blocked.as_ref().is_some_and(|(_, no_fit)| helps(no_fit.reason)) {
            self.blocked = None;
        }
        for (shape, lane) in &mut self.lanes {
            if lane.parked.as_ref().is_some_and(|no_fit| helps(no_fit.reason)) {
                lane.parked = None;
                if let Some(first) = lane.members.first() {
                    self.heads.insert(first.clone(), *shape);
                }
            }
        }
    }

    /// Why a member waits, if it is known: its shape does not fit, or a strict queue is held up.
    pub(crate) fn waiting_for(&self, key: &QueueKey, shape: ShapeId) -> Option<WaitingFor<'_>> {
        if let Some((first, no_fit)) = &self.blocked {
            return Some(if first == key { WaitingFor::Fit(no_fit) } else { WaitingFor::First(first) });
        }
        self.lanes.get(&shape)?.parked.as_ref().map(WaitingFor::Fit)
    }

    /// Everybody who waits, in no particular order.
    pub(crate) fn members(&self) -> impl Iterator<Item = &QueueKey> {
        self.lanes.values().flat_map(|lane| &lane.members)
    }

    /// How many would be tried before `key`.
    pub(crate) fn ahead_of(&self, key: &QueueKey) -> usize {
        self.lanes.values().map(|lane| lane.members.range(..key.clone()).count()).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Checks that heads and lanes agree.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (shape, lane) in &self.lanes {
            let Some(first) = lane.members.first() else {
                return Err(format!("{shape:?} has no members but stays"));
            };
            if self.heads.contains_key(first) == lane.parked.is_some() {
                return Err(format!("the first of {shape:?} is a head and parked, or neither"));
            }
        }
        let active = self.lanes.values().filter(|lane| lane.parked.is_none()).count();
        if self.heads.len() == active { Ok(()) } else { Err("heads that lead no lane".into()) }
    }
}

/// Why a queued Workload waits.
pub(crate) enum WaitingFor<'q> {
    /// It was evaluated and does not fit.
    Fit(&'q Arc<NoFit>),
    /// This one goes first, strictly.
    First(&'q QueueKey),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::Shapes;

    fn key(priority: i32, second: i64, uid: &str) -> QueueKey {
        QueueKey { priority: Reverse(priority), at: Timestamp::from_seconds(second), uid: uid.into() }
    }

    fn shapes<const N: usize>() -> [ShapeId; N] {
        let mut shapes = Shapes::default();
        std::array::from_fn(|i| shapes.acquire(&crate::testing::workload(&format!("w{i}"), i as i64 + 1)))
    }

    fn no_fit() -> NoFit {
        NoFit { reason: PendingReason::WaitingForQuota, message: String::new(), trace: Vec::new() }
    }

    fn head(queue: &PendingQueue) -> Option<&str> {
        queue.head().map(|(key, _)| key.uid.as_str())
    }

    #[test]
    fn priority_then_time_then_uid() {
        let [s] = shapes();
        let mut queue = PendingQueue::default();
        for k in [key(0, 1, "b"), key(0, 1, "a"), key(1, 9, "c"), key(0, 0, "d")] {
            queue.insert(k, s);
        }
        let mut order = Vec::new();
        while let Some((first, shape)) = queue.head().map(|(k, s)| (k.clone(), s)) {
            order.push(first.uid.to_string());
            queue.remove(&first, shape);
        }
        assert_eq!(order, ["c", "d", "a", "b"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_parked_shape_lets_others_pass_and_takes_newcomers_in() {
        let [large, small] = shapes();
        let mut queue = PendingQueue::default();
        queue.insert(key(0, 1, "large"), large);
        queue.insert(key(0, 2, "small"), small);
        assert_eq!(queue.set_aside(no_fit()), ["large".into()]);
        assert_eq!(head(&queue), Some("small"));
        queue.insert(key(9, 0, "large too"), large);
        assert_eq!(head(&queue), Some("small"), "its shape is known not to fit");
        queue.wake(|_| true);
        assert_eq!(head(&queue), Some("large too"));
        queue.check().unwrap();
    }

    #[test]
    fn a_strict_queue_waits_for_its_first() {
        let [large, small] = shapes();
        let mut queue = PendingQueue::default();
        queue.set_strict(true);
        queue.insert(key(0, 1, "large"), large);
        queue.insert(key(0, 2, "small"), small);
        queue.set_aside(no_fit());
        assert_eq!(head(&queue), None);
        queue.insert(key(1, 3, "urgent"), small);
        assert_eq!(head(&queue), Some("urgent"), "a new first is tried");
        queue.set_aside(no_fit());
        queue.remove(&key(1, 3, "urgent"), small);
        assert_eq!(head(&queue), Some("large"), "the next first is tried");
    }

    #[test]
    fn only_what_could_help_wakes() {
        let [large] = shapes();
        let mut queue = PendingQueue::default();
        queue.insert(key(0, 1, "large"), large);
        queue.set_aside(NoFit { reason: PendingReason::ExceedsMaxQuota, ..no_fit() });
        queue.wake(|reason| reason == PendingReason::WaitingForQuota);
        assert_eq!(head(&queue), None);
    }
}
