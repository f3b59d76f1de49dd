//! The Workloads that wait in a ClusterQueue, in order, by shape.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use gangway_model::reasons::PendingReason;
use gangway_model::{Timestamp, Uid};
use rustc_hash::FxHashMap;

use crate::ids::{CellAmounts, CellId, WorkloadId};
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

/// The places of those who wait. A queue keeps numbers only.
pub(crate) trait Places {
    /// Rank, timestamp and uid of somebody who waits.
    fn place(&self, id: WorkloadId) -> (u64, Timestamp, &Uid);

    /// The same as a key.
    fn key(&self, id: WorkloadId) -> QueueKey {
        let (rank, at, uid) = self.place(id);
        QueueKey { rank, at, uid: uid.clone(), id }
    }

    /// Where the members go that stand before `key`. Whether `key` is a member itself does not matter.
    fn position(&self, members: &VecDeque<WorkloadId>, key: &QueueKey) -> usize {
        let goes_before = |member: &WorkloadId| {
            *member != key.id && self.place(*member).cmp(&(key.rank, key.at, &key.uid)) == Ordering::Less
        };
        if members.front() == Some(&key.id) {
            return 0;
        }
        match members.back() {
            // Who comes last is usually the newest.
            Some(last) if goes_before(last) => members.len(),
            _ => members.partition_point(goes_before),
        }
    }
}

/// Who is evaluated together: equal shapes. But a preemptor for itself, and those who left for another apart
/// from those who did not: whom they may preempt differs.
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
    /// When: how often the queue had been woken.
    pub(crate) epoch: u64,
}

impl Parked {
    pub(crate) fn new(reason: PendingReason) -> Self {
        Self { reason, lasts: false, lacks: None, claim: None, epoch: 0 }
    }
}

/// Workloads of one shape.
#[derive(Debug)]
struct Lane {
    key: LaneKey,
    /// In order.
    members: VecDeque<WorkloadId>,
    /// The place of the first.
    first: Option<QueueKey>,
    parked: Option<Parked>,
    /// Why none of them fitted when that was last found: what its members have reported.
    reported: Option<PendingReason>,
    /// Why its members wait when they do, and of which definition of the queue.
    waits_for: Option<(u64, PendingReason)>,
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

/// Whose turn it is in a queue.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Nobody's: all are set aside, or nobody waits.
    OfNobody,
    /// That of somebody who does not fit, as before.
    PassedBy,
    /// That of this one.
    Of(Head),
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

    pub(crate) fn insert(&mut self, key: QueueKey, lane: LaneKey, places: &impl Places) {
        if self.blocked.as_ref().is_some_and(|(first, _)| key < *first) {
            self.blocked = None;
        }
        let index = self.lane_index(lane);
        let Some(lane) = &mut self.lanes[index] else { return };
        let position = places.position(&lane.members, &key);
        lane.members.insert(position, key.id);
        if position == 0 {
            if let Some(first) = &lane.first {
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
            lane.first = Some(key);
        }
    }

    fn lane_index(&mut self, key: LaneKey) -> usize {
        if let Some(index) = self.by_key.get(&key) {
            return *index;
        }
        let (members, first) = (VecDeque::new(), None);
        let lane = Lane { key, members, first, parked: None, reported: None, waits_for: None };
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

    pub(crate) fn remove(&mut self, key: &QueueKey, lane: LaneKey, places: &impl Places) {
        if self.blocked.as_ref().is_some_and(|(first, _)| key == first) {
            self.blocked = None;
        }
        let Some(index) = self.by_key.get(&lane).copied() else { return };
        let Some(lane) = &mut self.lanes[index] else { return };
        let position = places.position(&lane.members, key);
        if lane.members.get(position) != Some(&key.id) {
            return;
        }
        lane.members.remove(position);
        if position > 0 {
            return;
        }
        let had_claim = self.claims.remove(key).is_some();
        self.heads.remove(key);
        let Some(next) = lane.members.front().map(|first| places.key(*first)) else {
            self.by_key.remove(&lane.key);
            self.lanes[index] = None;
            self.free.push(index);
            return;
        };
        if had_claim {
            self.claims.insert(next.clone(), index);
        }
        lane.first = Some(next.clone());
        self.heads.insert(next, index);
    }

    /// Takes a turn: it is that of the Workload to evaluate next. One that `still_fails` as before has had its turn
    /// with that.
    pub(crate) fn take_turn(&mut self, still_fails: impl Fn(&Parked) -> bool) -> Turn {
        let Some(head) = self.head() else { return Turn::OfNobody };
        match self.last_parked(head.lane) {
            Some(parked) if still_fails(parked) => {
                self.set_aside_again(&head);
                Turn::PassedBy
            }
            _ => Turn::Of(head),
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

    /// Why a lane's members wait when they do, if that was worked out for this definition of the queue.
    pub(crate) fn waits_for(&self, lane: usize, definition: u64) -> Option<PendingReason> {
        let (known, reason) = self.lanes.get(lane)?.as_ref()?.waits_for?;
        (known == definition).then_some(reason)
    }

    pub(crate) fn set_waits_for(&mut self, lane: usize, definition: u64, reason: PendingReason) {
        if let Some(Some(lane)) = self.lanes.get_mut(lane) {
            lane.waits_for = Some((definition, reason));
        }
    }

    /// What was found of a lane before.
    pub(crate) fn last_parked(&self, lane: usize) -> Option<&Parked> {
        self.lanes.get(lane)?.as_ref()?.parked.as_ref()
    }

    /// A head does not fit, just as before.
    pub(crate) fn set_aside_again(&mut self, head: &Head) {
        let epoch = self.epoch;
        if let Some(Some(Lane { parked: Some(parked), .. })) = self.lanes.get_mut(head.lane) {
            parked.epoch = epoch;
        }
        if self.strict {
            self.blocked = Some((head.key.clone(), epoch));
        }
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
        lane.members.iter().copied().collect()
    }

    /// Who keeps others from borrowing, and what: the first in order.
    pub(crate) fn claim(&self) -> Option<(WorkloadId, &CellAmounts)> {
        let (key, lane) = self.claims.first_key_value()?;
        // Behind the first of a strict queue nobody can start.
        if self.strict && self.heads.first_key_value().is_some_and(|(first, _)| first != key) {
            return None;
        }
        let parked = self.lanes[*lane].as_ref()?.parked.as_ref()?;
        Some((key.id, parked.claim.as_deref()?))
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
                (parked.lasts, parked.lacks) = (false, None);
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

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().flatten().map(|lane| lane.members.len()).sum()
    }

    /// How many would be tried before `key`.
    pub(crate) fn ahead_of(&self, key: &QueueKey, places: &impl Places) -> usize {
        self.lanes.iter().flatten().map(|lane| places.position(&lane.members, key)).sum()
    }

    /// The first few who would be tried before `key`, in order.
    pub(crate) fn first_ahead_of(
        &self,
        key: &QueueKey,
        most: usize,
        places: &impl Places,
    ) -> Vec<WorkloadId> {
        let before = self
            .lanes
            .iter()
            .flatten()
            .flat_map(|lane| lane.members.range(..places.position(&lane.members, key)).take(most));
        let mut keys: Vec<QueueKey> = before.map(|id| places.key(*id)).collect();
        keys.sort_unstable();
        keys.into_iter().take(most).map(|key| key.id).collect()
    }

    /// Checks that heads, claims and lanes agree, and that members are in order.
    pub(crate) fn check(&self, places: &impl Places) -> Result<(), String> {
        let mut lanes = 0;
        for (index, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            lanes += 1;
            let keys: Vec<QueueKey> = lane.members.iter().map(|id| places.key(*id)).collect();
            if !keys.is_sorted() || lane.first.as_ref() != keys.first() {
                return Err(format!("{:?} is not in order", lane.key));
            }
            let first = lane.first.as_ref();
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

    /// A queue with the places of those who wait in it.
    #[derive(Default)]
    struct Line {
        queue: PendingQueue,
        keys: Vec<(QueueKey, LaneKey)>,
    }

    impl Places for Vec<(QueueKey, LaneKey)> {
        fn place(&self, id: WorkloadId) -> (u64, Timestamp, &Uid) {
            let (key, _) = &self[id.index()];
            (key.rank, key.at, &key.uid)
        }
    }

    impl Line {
        fn insert(&mut self, priority: i32, second: i64, uid: &str, lane: LaneKey) -> WorkloadId {
            let id = WorkloadId::from(self.keys.len());
            let rank = QueueKey::rank(priority, false, false);
            let key = QueueKey { rank, at: Timestamp::from_seconds(second), uid: uid.into(), id };
            self.keys.push((key.clone(), lane));
            self.queue.insert(key, lane, &self.keys);
            id
        }

        fn remove(&mut self, id: WorkloadId) {
            let (key, lane) = self.keys[id.index()].clone();
            self.queue.remove(&key, lane, &self.keys);
        }

        fn head(&mut self) -> Option<String> {
            self.queue.check(&self.keys).unwrap();
            self.queue.head().map(|head| head.key.uid.to_string())
        }

        fn set_aside(&mut self, parked: Parked) -> Vec<WorkloadId> {
            let head = self.queue.head().expect("somebody waits");
            self.queue.set_aside(&head, parked)
        }
    }

    fn lanes<const N: usize>() -> [LaneKey; N] {
        let mut shapes = Shapes::default();
        let mut shape = |i| {
            let workload = crate::testing::workload(&format!("w{i}"), i as i64 + 1);
            shapes.acquire(workload.priority, &workload.pod_sets).0
        };
        std::array::from_fn(|i| LaneKey::Shape(shape(i)))
    }

    fn busy() -> Parked {
        Parked::new(PendingReason::WaitingForQuota)
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
        let mut line = Line::default();
        for (priority, second, uid) in [(0, 1, "b"), (0, 1, "a"), (1, 9, "c"), (0, 0, "d"), (0, 2, "e")] {
            line.insert(priority, second, uid, lane);
        }
        line.remove(WorkloadId(4));
        let mut order = Vec::new();
        while let Some(first) = line.queue.head() {
            order.push(first.key.uid.to_string());
            line.remove(first.key.id);
        }
        assert_eq!(order, ["c", "d", "a", "b"]);
        assert_eq!(line.queue.len(), 0);
    }

    #[test]
    fn those_ahead_are_counted_and_named() {
        let [large, small] = lanes();
        let mut line = Line::default();
        for (second, uid, lane) in [(3, "c", large), (1, "a", small), (2, "b", large)] {
            line.insert(0, second, uid, lane);
        }
        let last = line.insert(0, 4, "d", small);
        let key = line.keys[last.index()].0.clone();
        assert_eq!(line.queue.ahead_of(&key, &line.keys), 3);
        assert_eq!(line.queue.first_ahead_of(&key, 2, &line.keys), [WorkloadId(1), WorkloadId(2)]);
    }

    #[test]
    fn a_parked_shape_lets_others_pass_and_takes_newcomers_in() {
        let [large, small] = lanes();
        let mut line = Line::default();
        let first = line.insert(0, 1, "large", large);
        line.insert(0, 2, "small", small);
        assert_eq!(line.set_aside(busy()), [first]);
        assert_eq!(line.head().as_deref(), Some("small"));
        line.insert(0, 3, "large too", large);
        assert_eq!(line.head().as_deref(), Some("small"), "its shape is known not to fit");
        line.insert(0, 0, "older", large);
        assert_eq!(line.head().as_deref(), Some("older"), "an older one may preempt more");
        line.queue.wake();
        assert_eq!(line.head().as_deref(), Some("older"));
    }

    #[test]
    fn a_strict_queue_waits_for_its_first() {
        let [large, small] = lanes();
        let mut line = Line::default();
        line.queue.set_strict(true);
        line.insert(0, 1, "large", large);
        line.insert(0, 2, "small", small);
        line.set_aside(busy());
        assert_eq!(line.head(), None);
        assert_eq!(line.queue.blocked_head().map(|head| head.key.uid.to_string()).as_deref(), Some("large"));
        let urgent = line.insert(1, 3, "urgent", small);
        assert_eq!(line.head().as_deref(), Some("urgent"), "a new first is tried");
        line.set_aside(busy());
        line.remove(urgent);
        assert_eq!(line.head().as_deref(), Some("large"), "the next first is tried");
    }

    #[test]
    fn what_lasts_is_passed_by_without_another_look() {
        let [large] = lanes();
        let mut line = Line::default();
        line.insert(0, 1, "large", large);
        let exceeds = Parked { lasts: true, ..Parked::new(PendingReason::ExceedsMaxQuota) };
        line.set_aside(exceeds);
        line.queue.wake();
        let again = line.queue.head().expect("it takes its turn");
        assert!(line.queue.last_parked(again.lane).is_some_and(|parked| parked.lasts));
        line.queue.set_aside_again(&again);
        assert_eq!(line.head(), None);
        line.queue.wake_all();
        assert!(
            line.queue.last_parked(again.lane).is_some_and(|parked| !parked.lasts),
            "other definitions may help"
        );
    }

    #[test]
    fn the_first_claim_in_order_counts_and_outlives_a_wake() {
        let [large, small] = lanes();
        let mut line = Line::default();
        let first = line.insert(0, 1, "large", large);
        let second = line.insert(0, 2, "small", small);
        let claim = |amount| Some(Box::new([(CellId(0), amount)].into_iter().collect()));
        for amount in [1, 2] {
            line.set_aside(Parked { claim: claim(amount), ..busy() });
        }
        line.queue.wake();
        assert_eq!(line.queue.claim().map(|(id, _)| id), Some(first));
        line.remove(first);
        assert_eq!(line.queue.claim().map(|(id, _)| id), Some(second));
        line.set_aside(busy());
        assert_eq!(line.queue.claim(), None);
    }
}
