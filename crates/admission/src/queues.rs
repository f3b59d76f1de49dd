//! The Workloads that wait in a ClusterQueue, in order, by shape.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::reasons::PendingReason;
use gangway_model::{Timestamp, Uid};
use rustc_hash::FxHashMap;

use crate::flavors::Need;
use crate::ids::{CellAmounts, WorkloadId};
use crate::shapes::ShapeId;

/// A place in a queue. The lower rank goes first, then the earlier timestamp, then the uid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    pub(crate) rank: u64,
    pub(crate) at: Timestamp,
    pub(crate) uid: Uid,
    pub(crate) id: WorkloadId,
}

impl QueueKey {
    /// The rank of a priority. A preemptor goes before its equals, or with `before_all` before everybody.
    pub(crate) fn rank(priority: i32, is_preemptor: bool, before_all: bool) -> u64 {
        // i32::MAX comes to 0, i32::MIN to u32::MAX.
        let by_priority = u64::from(!(priority as u32 ^ 0x8000_0000));
        let behind_preemptors = u64::from(!is_preemptor);
        if before_all { behind_preemptors << 32 | by_priority } else { by_priority << 1 | behind_preemptors }
    }
}

/// Who is evaluated together: equal shapes, but a preemptor for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum LaneKey {
    Shape(ShapeId),
    Preemptor(WorkloadId),
}

/// What was found when the first of a lane was last evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) reason: PendingReason,
    /// Nobody who leaves can help: only other definitions.
    pub(crate) lasts: bool,
    /// What others may not borrow as long as the first of the lane waits for it.
    pub(crate) claim: Option<CellAmounts>,
    /// When: how often the queue had been woken.
    pub(crate) epoch: u64,
}

impl Parked {
    pub(crate) fn new(reason: PendingReason) -> Self {
        Self { reason, lasts: false, claim: None, epoch: 0 }
    }
}

/// Workloads of one shape.
#[derive(Debug)]
struct Lane {
    key: LaneKey,
    members: BTreeSet<QueueKey>,
    parked: Option<Parked>,
    /// Why none of them fitted when that was last found: what its members have reported.
    reported: Option<PendingReason>,
    /// What its members need, and of which definition of the queue.
    need: Option<(u64, Arc<Need>)>,
}

/// The Workloads that wait in one ClusterQueue.
#[derive(Debug, Default)]
pub(crate) struct PendingQueue {
    strict: bool,
    /// It stands in the list of queues that may have somebody to evaluate.
    pub(crate) is_listed: bool,
    lanes: Vec<Option<Lane>>,
    free: Vec<usize>,
    by_key: FxHashMap<LaneKey, usize>,
    /// The first of each lane.
    heads: BTreeMap<QueueKey, usize>,
    /// The first of each lane that keeps others from borrowing.
    claims: BTreeMap<QueueKey, usize>,
    /// Lanes whose first goes before this one are parked.
    cursor: Option<QueueKey>,
    /// How often it was woken: lanes that were parked before count as not parked.
    epoch: u64,
    /// StrictFIFO only: the first does not fit, and so nobody is tried.
    blocked: Option<(QueueKey, u64)>,
    /// Who chose victims last, where room is not kept.
    pub(crate) last_preemptor: Option<WorkloadId>,
    /// StrictFIFO only: who held up the others last.
    last_blocked: Option<WorkloadId>,
}

/// The Workload to evaluate next.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) key: QueueKey,
    pub(crate) lane: usize,
}

impl PendingQueue {
    pub(crate) fn set_strict(&mut self, strict: bool) {
        if self.strict != strict {
            self.strict = strict;
            self.wake();
        }
    }

    pub(crate) fn is_strict(&self) -> bool {
        self.strict
    }

    pub(crate) fn insert(&mut self, key: QueueKey, lane: LaneKey) {
        if self.blocked.as_ref().is_some_and(|(first, _)| key < *first) {
            self.blocked = None;
        }
        let index = self.lane_index(lane);
        let Some(lane) = &mut self.lanes[index] else { return };
        let first = lane.members.first().cloned();
        if first.as_ref().is_none_or(|first| key < *first) {
            if let Some(first) = &first {
                self.heads.remove(first);
                if self.claims.remove(first).is_some() {
                    self.claims.insert(key.clone(), index);
                }
                // What was found of the first was found of its age, too: an older one may preempt more.
                if let Some(parked) = lane.parked.as_mut().filter(|parked| !parked.lasts) {
                    parked.epoch = NEVER;
                }
            }
            self.heads.insert(key.clone(), index);
            if self.cursor.as_ref().is_some_and(|cursor| key < *cursor) {
                self.cursor = Some(key.clone());
            }
        }
        lane.members.insert(key);
    }

    fn lane_index(&mut self, key: LaneKey) -> usize {
        if let Some(index) = self.by_key.get(&key) {
            return *index;
        }
        let lane = Lane { key, members: BTreeSet::new(), parked: None, reported: None, need: None };
        let index = match self.free.pop() {
            Some(index) => {
                self.lanes[index] = Some(lane);
                index
            }
            None => {
                self.lanes.push(Some(lane));
                self.lanes.len() - 1
            }
        };
        self.by_key.insert(key, index);
        index
    }

    pub(crate) fn remove(&mut self, key: &QueueKey, lane: LaneKey) {
        if self.blocked.as_ref().is_some_and(|(first, _)| key == first) {
            self.blocked = None;
        }
        let Some(index) = self.by_key.get(&lane).copied() else { return };
        let Some(lane) = &mut self.lanes[index] else { return };
        lane.members.remove(key);
        let had_claim = self.claims.remove(key).is_some();
        let was_first = self.heads.remove(key).is_some();
        let Some(next) = lane.members.first().cloned() else {
            self.by_key.remove(&lane.key);
            self.lanes[index] = None;
            self.free.push(index);
            return;
        };
        if had_claim {
            self.claims.insert(next.clone(), index);
        }
        if was_first {
            self.heads.insert(next, index);
        }
    }

    /// The Workload to evaluate next, if any may be.
    pub(crate) fn head(&mut self) -> Option<Head> {
        if self.strict {
            let (key, lane) = self.heads.first_key_value()?;
            let is_blocked = self.blocked.as_ref().is_some_and(|(_, epoch)| *epoch == self.epoch);
            return (!is_blocked).then(|| Head { key: key.clone(), lane: *lane });
        }
        let from = self.cursor.take();
        let rest = match &from {
            Some(from) => self.heads.range(from..),
            None => self.heads.range(..),
        };
        for (key, lane) in rest {
            let is_parked = self.lanes[*lane].as_ref().is_some_and(|lane| lane.is_parked(self.epoch));
            if !is_parked {
                self.cursor = Some(key.clone());
                return Some(Head { key: key.clone(), lane: *lane });
            }
        }
        self.cursor = self.heads.last_key_value().map(|(key, _)| key.clone());
        None
    }

    /// A member as the head of its lane; none if it is not the first there.
    pub(crate) fn head_of(&self, lane: LaneKey, key: QueueKey) -> Option<Head> {
        let lane = *self.by_key.get(&lane)?;
        (self.heads.get(&key) == Some(&lane)).then_some(Head { key, lane })
    }

    /// The first of a strict queue that is held up by it.
    pub(crate) fn blocked_head(&self) -> Option<Head> {
        self.blocked.as_ref().filter(|(_, epoch)| *epoch == self.epoch)?;
        self.heads.first_key_value().map(|(key, lane)| Head { key: key.clone(), lane: *lane })
    }

    /// What a lane's members need, if that was worked out for this definition of the queue.
    pub(crate) fn need(&self, lane: usize, definition: u64) -> Option<Arc<Need>> {
        let (known, need) = self.lanes.get(lane)?.as_ref()?.need.as_ref()?;
        (*known == definition).then(|| need.clone())
    }

    pub(crate) fn set_need(&mut self, lane: usize, definition: u64, need: Arc<Need>) {
        if let Some(Some(lane)) = self.lanes.get_mut(lane) {
            lane.need = Some((definition, need));
        }
    }

    /// What was found of a lane before, if that can only change with the definitions.
    pub(crate) fn lasting(&self, lane: usize) -> Option<&Parked> {
        self.lanes.get(lane)?.as_ref()?.parked.as_ref().filter(|parked| parked.lasts)
    }

    /// A head does not fit. In a strict queue that holds up everybody, otherwise its shape.
    ///
    /// Says whose waiting reason may have changed by this. Who came since is not among them: a newcomer
    /// has yet to report anyway.
    pub(crate) fn set_aside(&mut self, head: &Head, parked: Parked) -> Vec<WorkloadId> {
        let epoch = self.epoch;
        let Some(Some(lane)) = self.lanes.get_mut(head.lane) else { return Vec::new() };
        if parked.claim.is_some() {
            self.claims.insert(head.key.clone(), head.lane);
        } else if !self.claims.is_empty() {
            self.claims.remove(&head.key);
        }
        let is_known = lane.reported.replace(parked.reason) == Some(parked.reason);
        lane.parked = Some(Parked { epoch, ..parked });
        if self.strict {
            let first = head.key.id;
            let before = self.last_blocked.replace(first).filter(|before| *before != first);
            self.blocked = Some((head.key.clone(), epoch));
            return before.into_iter().chain([first]).collect();
        }
        if is_known {
            return Vec::new();
        }
        lane.members.iter().map(|key| key.id).collect()
    }

    /// Who keeps others from borrowing, and what: the first in order.
    pub(crate) fn claim(&self) -> Option<(WorkloadId, &CellAmounts)> {
        let (key, lane) = self.claims.first_key_value()?;
        let parked = self.lanes[*lane].as_ref()?.parked.as_ref()?;
        Some((key.id, parked.claim.as_ref()?))
    }

    /// Lets everybody be tried again.
    pub(crate) fn wake(&mut self) {
        self.epoch += 1;
        self.cursor = None;
    }

    /// The definitions have changed: also what lasted is tried again.
    pub(crate) fn wake_all(&mut self) {
        self.wake();
        for lane in self.lanes.iter_mut().flatten() {
            if let Some(parked) = &mut lane.parked {
                parked.lasts = false;
            }
        }
    }

    /// Why a member waits, if it is known: its shape does not fit, or a strict queue is held up.
    pub(crate) fn waiting_for(&self, key: &QueueKey, lane: LaneKey) -> Option<WaitingFor<'_>> {
        if self.strict {
            let (first, epoch) = self.blocked.as_ref()?;
            if *epoch != self.epoch {
                return None;
            }
            if first != key {
                return Some(WaitingFor::First(first));
            }
        }
        let lane = self.lanes[*self.by_key.get(&lane)?].as_ref()?;
        lane.parked.as_ref().filter(|parked| parked.epoch == self.epoch).map(WaitingFor::Fit)
    }

    /// Everybody who waits, in no particular order.
    pub(crate) fn members(&self) -> impl Iterator<Item = &QueueKey> {
        self.lanes.iter().flatten().flat_map(|lane| &lane.members)
    }

    /// How many would be tried before `key`.
    pub(crate) fn ahead_of(&self, key: &QueueKey) -> usize {
        self.lanes.iter().flatten().map(|lane| lane.members.range(..key.clone()).count()).sum()
    }

    /// Checks that heads, claims and lanes agree.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut lanes = 0;
        for (index, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            lanes += 1;
            let first = lane.members.first();
            if first.and_then(|first| self.heads.get(first)) != Some(&index) {
                return Err(format!("{:?} has no head", lane.key));
            }
            if self.by_key.get(&lane.key) != Some(&index) {
                return Err(format!("{:?} is not found by its key", lane.key));
            }
            let has_claim = lane.parked.as_ref().is_some_and(|parked| parked.claim.is_some());
            if has_claim != first.is_some_and(|first| self.claims.contains_key(first)) {
                return Err(format!("{:?} has a claim that is not noted, or none that is", lane.key));
            }
            let passed = |cursor: &QueueKey| first.is_some_and(|first| first < cursor);
            if !self.strict && self.cursor.as_ref().is_some_and(passed) && !lane.is_parked(self.epoch) {
                return Err(format!("{:?} was passed by and is not parked", lane.key));
            }
        }
        if self.heads.len() == lanes { Ok(()) } else { Err("heads that lead no lane".into()) }
    }
}

/// No queue is woken this often.
const NEVER: u64 = u64::MAX;

impl Lane {
    fn is_parked(&self, epoch: u64) -> bool {
        self.parked.as_ref().is_some_and(|parked| parked.epoch == epoch)
    }
}

/// Why a queued Workload waits.
pub(crate) enum WaitingFor<'q> {
    /// It was evaluated and does not fit.
    Fit(&'q Parked),
    /// This one goes first, strictly.
    First(&'q QueueKey),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::Shapes;

    fn key(priority: i32, second: i64, uid: &str) -> QueueKey {
        let rank = QueueKey::rank(priority, false, false);
        QueueKey { rank, at: Timestamp::from_seconds(second), uid: uid.into(), id: WorkloadId(second as u32) }
    }

    fn lanes<const N: usize>() -> [LaneKey; N] {
        let mut shapes = Shapes::default();
        let mut shape = |i| shapes.acquire(&crate::testing::workload(&format!("w{i}"), i as i64 + 1));
        std::array::from_fn(|i| LaneKey::Shape(shape(i)))
    }

    fn busy() -> Parked {
        Parked::new(PendingReason::WaitingForQuota)
    }

    fn head(queue: &mut PendingQueue) -> Option<String> {
        queue.check().unwrap();
        queue.head().map(|head| head.key.uid.to_string())
    }

    fn set_aside(queue: &mut PendingQueue, parked: Parked) -> Vec<WorkloadId> {
        let head = queue.head().expect("somebody waits");
        queue.set_aside(&head, parked)
    }

    #[test]
    fn ranks_follow_priority_and_preemptors() {
        let ranks = |before_all| {
            [(1, true), (1, false), (0, true), (0, false), (-1, false)]
                .map(|(priority, marked)| QueueKey::rank(priority, marked, before_all))
        };
        assert!(ranks(false).is_sorted(), "a preemptor goes before its equals only");
        let [urgent, usual, preemptor, ..] = ranks(true);
        assert!(urgent < preemptor && preemptor < usual, "a preemptor goes before everybody");
        assert!(QueueKey::rank(i32::MAX, false, false) < QueueKey::rank(i32::MIN, true, false));
    }

    #[test]
    fn priority_then_time_then_uid() {
        let [lane] = lanes();
        let mut queue = PendingQueue::default();
        for k in [key(0, 1, "b"), key(0, 1, "a"), key(1, 9, "c"), key(0, 0, "d")] {
            queue.insert(k, lane);
        }
        let mut order = Vec::new();
        while let Some(first) = queue.head() {
            order.push(first.key.uid.to_string());
            queue.remove(&first.key, lane);
        }
        assert_eq!(order, ["c", "d", "a", "b"]);
        assert_eq!(queue.members().count(), 0);
    }

    #[test]
    fn a_parked_shape_lets_others_pass_and_takes_newcomers_in() {
        let [large, small] = lanes();
        let mut queue = PendingQueue::default();
        queue.insert(key(0, 1, "large"), large);
        queue.insert(key(0, 2, "small"), small);
        assert_eq!(set_aside(&mut queue, busy()), [WorkloadId(1)]);
        assert_eq!(head(&mut queue).as_deref(), Some("small"));
        queue.insert(key(0, 3, "large too"), large);
        assert_eq!(head(&mut queue).as_deref(), Some("small"), "its shape is known not to fit");
        queue.insert(key(0, 0, "older"), large);
        assert_eq!(head(&mut queue).as_deref(), Some("older"), "an older one may preempt more");
        queue.wake();
        assert_eq!(head(&mut queue).as_deref(), Some("older"));
    }

    #[test]
    fn a_strict_queue_waits_for_its_first() {
        let [large, small] = lanes();
        let mut queue = PendingQueue::default();
        queue.set_strict(true);
        queue.insert(key(0, 1, "large"), large);
        queue.insert(key(0, 2, "small"), small);
        set_aside(&mut queue, busy());
        assert_eq!(head(&mut queue), None);
        queue.insert(key(1, 3, "urgent"), small);
        assert_eq!(head(&mut queue).as_deref(), Some("urgent"), "a new first is tried");
        set_aside(&mut queue, busy());
        queue.remove(&key(1, 3, "urgent"), small);
        assert_eq!(head(&mut queue).as_deref(), Some("large"), "the next first is tried");
    }

    #[test]
    fn what_lasts_is_passed_by_without_another_look() {
        let [large] = lanes();
        let mut queue = PendingQueue::default();
        queue.insert(key(0, 1, "large"), large);
        let exceeds = Parked { lasts: true, ..Parked::new(PendingReason::ExceedsMaxQuota) };
        set_aside(&mut queue, exceeds);
        queue.wake();
        let again = queue.head().expect("it takes its turn");
        assert!(queue.lasting(again.lane).is_some());
        queue.wake_all();
        assert!(queue.lasting(again.lane).is_none(), "other definitions may help");
    }

    #[test]
    fn the_first_claim_in_order_counts_and_outlives_a_wake() {
        let [large, small] = lanes();
        let mut queue = PendingQueue::default();
        queue.insert(key(0, 1, "large"), large);
        queue.insert(key(0, 2, "small"), small);
        let claim = |amount| Some([(crate::ids::CellId(0), amount)].into_iter().collect());
        for amount in [1, 2] {
            set_aside(&mut queue, Parked { claim: claim(amount), ..busy() });
        }
        queue.wake();
        assert_eq!(queue.claim().map(|(id, _)| id), Some(WorkloadId(1)));
        queue.remove(&key(0, 1, "large"), large);
        assert_eq!(queue.claim().map(|(id, _)| id), Some(WorkloadId(2)));
        set_aside(&mut queue, busy());
        assert_eq!(queue.claim(), None);
    }
}
