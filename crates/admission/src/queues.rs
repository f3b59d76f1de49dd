//! The Workloads that wait in a ClusterQueue, in order, by shape.

mod lanes;
mod places;

use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_model::reasons::PendingReason;
use rustc_hash::FxHashMap;

use self::lanes::{Lane, Order, Ranked, Told};
pub(crate) use self::lanes::{LaneKey, Parked};
pub(crate) use self::places::{Places, QueueKey};
use crate::ids::{CellAmounts, CellId, WorkloadId};

/// The Workloads that wait in one ClusterQueue.
#[derive(Debug, Default)]
pub(crate) struct PendingQueue {
    strict: bool,
    /// It stands in the list of queues that may have somebody to evaluate.
    pub(crate) is_listed: bool,
    lanes: Vec<Option<Lane>>,
    free: Vec<u32>,
    /// Where each lane is. One of which all have gone keeps its place for a while: others of the shape are likely to come.
    by_key: FxHashMap<LaneKey, u32>,
    /// How many places are kept for lanes in which nobody is.
    deserted: usize,
    /// All lanes.
    heads: Order,
    /// The lanes whose first keeps others from borrowing.
    claims: Order,
    /// As many lanes at the head are parked.
    cursor: usize,
    /// What was last found of the room for anybody here.
    known_room: Option<Room>,
    /// How often it was woken: lanes that were parked before count as not parked.
    epoch: u64,
    /// StrictFIFO only: the first does not fit, and so nobody is tried.
    blocked: Option<(QueueKey, u64)>,
    /// Who chose victims last, where room is not kept.
    pub(crate) last_preemptor: Option<WorkloadId>,
    /// StrictFIFO only: who held up the others last.
    last_blocked: Option<WorkloadId>,
}

/// What anybody in a queue could have of a cell at most, as of some bookings.
#[derive(Clone, Copy, Debug)]
struct Room {
    bookings: u64,
    cell: CellId,
    amount: i128,
}

/// The Workload to evaluate next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) id: WorkloadId,
    /// Its place in the order of its queue.
    pub(crate) at: Timestamp,
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

    /// Takes somebody in. Says in which lane that is, for [`Self::remove`].
    pub(crate) fn insert(&mut self, key: QueueKey, lane: LaneKey, places: &impl Places) -> u32 {
        if self.blocked.as_ref().is_some_and(|(first, _)| key < *first) {
            self.blocked = None;
        }
        let number = self.place_of_lane(lane);
        let index = number as usize;
        let Some(lane) = &mut self.lanes[index] else {
            self.lanes[index] = Some(Lane::new(lane, key));
            self.deserted -= 1;
            self.line_up(index);
            return number;
        };
        if lane.first < key {
            lane.rest.insert(places.position(&lane.rest, &key), key.id);
            return number;
        }
        // What was found of the first was found of its age, too: an older one may preempt more.
        if let Some(parked) = lane.parked.as_mut().filter(|parked| !parked.lasts && !parked.at_any_age) {
            parked.epoch = NEVER;
        }
        lane.rest.push_front(lane.first.id);
        self.give_first(index, key);
        number
    }

    /// The place of a lane; if it has none, one where nobody is yet.
    fn place_of_lane(&mut self, lane: LaneKey) -> u32 {
        let Self { lanes, free, by_key, deserted, .. } = self;
        *by_key.entry(lane).or_insert_with(|| {
            *deserted += 1;
            free.pop().unwrap_or_else(|| {
                lanes.push(None);
                lanes.len() as u32 - 1
            })
        })
    }

    /// Everybody has gone from a lane.
    fn desert_lane(&mut self, index: usize) {
        let Some(lane) = self.lanes[index].take() else { return };
        if !matches!(lane.key, LaneKey::Shape(_)) {
            self.by_key.remove(&lane.key);
            self.free.push(index as u32);
            return;
        }
        self.deserted += 1;
        if self.deserted > MOST_DESERTED && self.deserted > self.by_key.len() / 2 {
            let Self { lanes, free, by_key, deserted, .. } = self;
            by_key.retain(|_, number| {
                let is_used = lanes[*number as usize].is_some();
                if !is_used {
                    free.push(*number);
                }
                is_used
            });
            *deserted = 0;
        }
    }

    /// The lane of a key, if anybody is in it.
    fn lane(&self, lane: LaneKey) -> Option<(usize, &Lane)> {
        let index = *self.by_key.get(&lane)? as usize;
        Some((index, self.lanes[index].as_ref()?))
    }

    fn lane_mut(&mut self, lane: LaneKey) -> Option<&mut Lane> {
        let index = *self.by_key.get(&lane)? as usize;
        self.lanes[index].as_mut()
    }

    /// Puts a lane among the heads.
    fn line_up(&mut self, index: usize) {
        let position = self.heads.insert(&self.lanes, index);
        self.cursor = self.cursor.min(position);
    }

    /// Takes a lane out of the heads and the claims.
    fn step_out(&mut self, index: usize) {
        let position = self.heads.remove(&self.lanes, index);
        if position.is_some_and(|position| position < self.cursor) {
            self.cursor -= 1;
        }
        if self.lanes[index].as_ref().is_some_and(Lane::claims) {
            self.claims.remove(&self.lanes, index);
        }
    }

    /// Another goes first in a lane.
    fn give_first(&mut self, index: usize, first: QueueKey) {
        self.step_out(index);
        let Some(lane) = &mut self.lanes[index] else { return };
        lane.first = first;
        if lane.claims() {
            self.claims.insert(&self.lanes, index);
        }
        self.line_up(index);
    }

    /// Takes somebody out whose place is still known.
    pub(crate) fn remove(&mut self, id: WorkloadId, lane: u32, places: &impl Places) {
        if self.blocked.as_ref().is_some_and(|(first, _)| first.id == id) {
            self.blocked = None;
        }
        let index = lane as usize;
        let Some(lane) = &mut self.lanes[index] else { return };
        if lane.first.id != id {
            let position = places.position(&lane.rest, &places.key(id));
            if lane.rest.get(position) == Some(&id) {
                lane.rest.remove(position);
            }
            return;
        }
        match lane.rest.pop_front() {
            Some(next) => self.give_first(index, places.key(next)),
            None => {
                self.step_out(index);
                self.desert_lane(index);
            }
        }
    }

    /// Takes a turn: it is that of the Workload to evaluate next. One that fails as before has had its turn with that.
    /// `room` says what anybody here could have of a cell at most; it is the same as long as `bookings` is.
    pub(crate) fn take_turn(&mut self, bookings: u64, room: impl Fn(CellId) -> i128) -> Turn {
        let Some(index) = self.next_lane() else { return Turn::OfNobody };
        let Some(lane) = &mut self.lanes[index] else { return Turn::OfNobody };
        let known = &mut self.known_room;
        let mut lacks = |(cell, amount): (CellId, i64)| {
            if !known.is_some_and(|known| (known.bookings, known.cell) == (bookings, cell)) {
                *known = Some(Room { bookings, cell, amount: room(cell) });
            }
            known.is_some_and(|known| i128::from(amount) > known.amount)
        };
        // Who holds up a strict queue again, after somebody else did, has that to report.
        let is_news = self.strict && self.last_blocked != Some(lane.first.id);
        match &mut lane.parked {
            Some(parked) if !is_news && (parked.lasts || parked.lacks.is_some_and(&mut lacks)) => {
                parked.epoch = self.epoch;
                if self.strict {
                    self.blocked = Some((lane.first.clone(), self.epoch));
                }
                Turn::PassedBy
            }
            _ => Turn::Of(lane.head(index)),
        }
    }

    /// The Workload to evaluate next, if any may be.
    pub(crate) fn head(&mut self) -> Option<Head> {
        let lane = self.next_lane()?;
        self.head_of_lane(lane)
    }

    fn head_of_lane(&self, lane: usize) -> Option<Head> {
        Some(self.lanes[lane].as_ref()?.head(lane))
    }

    /// The lane whose first is to be evaluated next, if any may be.
    fn next_lane(&mut self) -> Option<usize> {
        if self.strict {
            let is_blocked = self.blocked.as_ref().is_some_and(|(_, epoch)| *epoch == self.epoch);
            return self.heads.first().filter(|_| !is_blocked);
        }
        while let Some(index) = self.heads.at(self.cursor) {
            if !self.lanes[index].as_ref().is_some_and(|lane| lane.is_parked(self.epoch)) {
                return Some(index);
            }
            self.cursor += 1;
        }
        None
    }

    /// A member as the head of its lane; none if it is not the first there.
    pub(crate) fn head_of(&self, lane: LaneKey, id: WorkloadId) -> Option<Head> {
        let (index, lane) = self.lane(lane)?;
        Some(lane.head(index)).filter(|head| head.id == id)
    }

    /// The first of a strict queue that is held up by it.
    pub(crate) fn blocked_head(&self) -> Option<Head> {
        self.blocked.as_ref().filter(|(_, epoch)| *epoch == self.epoch)?;
        self.head_of_lane(self.heads.first()?)
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

    /// What was found of a head, if it is set aside.
    pub(crate) fn parked(&self, head: &Head) -> Option<&Parked> {
        let parked = self.lanes.get(head.lane)?.as_ref()?.parked.as_ref();
        parked.filter(|parked| parked.epoch == self.epoch)
    }

    /// A head does not fit. In a strict queue that holds up everybody, otherwise its shape.
    ///
    /// Says whose waiting reason may have changed by this. Who came since is not among them: a newcomer
    /// has yet to report anyway.
    pub(crate) fn set_aside(&mut self, head: &Head, parked: Parked) -> Vec<WorkloadId> {
        let epoch = self.epoch;
        let Some(Some(lane)) = self.lanes.get_mut(head.lane) else { return Vec::new() };
        let (claimed, claims) = (lane.claims(), parked.claim.is_some());
        let is_known = lane.reported.replace(parked.reason) == Some(parked.reason);
        lane.parked = Some(Parked { epoch, ..parked });
        match (claimed, claims) {
            (false, true) => drop(self.claims.insert(&self.lanes, head.lane)),
            (true, false) => drop(self.claims.remove(&self.lanes, head.lane)),
            _ => {}
        }
        if self.strict {
            let first = head.id;
            let before = self.last_blocked.replace(first).filter(|before| *before != first);
            self.blocked = self.lanes[head.lane].as_ref().map(|lane| (lane.first.clone(), epoch));
            return before.into_iter().chain([first]).collect();
        }
        match &self.lanes[head.lane] {
            Some(lane) if !is_known => lane.members().collect(),
            _ => Vec::new(),
        }
    }

    /// Who keeps others from borrowing, and what: the first in order.
    pub(crate) fn claim(&self) -> Option<(WorkloadId, &CellAmounts)> {
        let index = self.claims.first()?;
        // Behind the first of a strict queue nobody can start.
        if self.strict && self.heads.first() != Some(index) {
            return None;
        }
        let lane = self.lanes[index].as_ref()?;
        Some((lane.first.id, lane.parked.as_ref()?.claim.as_deref()?))
    }

    /// What is told of a lane as of some bookings, if that is known.
    pub(crate) fn told(&self, lane: LaneKey, reason: PendingReason, bookings: u64) -> Option<Arc<str>> {
        let told = self.lane(lane)?.1.told.as_ref()?;
        (told.reason == reason && told.bookings == Some(bookings)).then(|| told.message.clone())
    }

    /// Notes what is told of a lane. Whoever is told the same shares the text.
    pub(crate) fn share_told(
        &mut self,
        lane: LaneKey,
        reason: PendingReason,
        message: Arc<str>,
        bookings: Option<u64>,
    ) -> Arc<str> {
        let Some(lane) = self.lane_mut(lane) else { return message };
        let same = lane.told.take().map(|told| told.message).filter(|told| *told == message);
        let message = same.unwrap_or(message);
        lane.told = Some(Told { reason, message: message.clone(), bookings });
        message
    }

    /// Lets everybody be tried again.
    pub(crate) fn wake(&mut self) {
        self.epoch += 1;
        self.cursor = 0;
    }

    /// Lets the members of one lane be tried again.
    pub(crate) fn wake_lane(&mut self, lane: LaneKey) {
        if let Some(parked) = self.lane_mut(lane).and_then(|lane| lane.parked.as_mut()) {
            parked.epoch = NEVER;
        }
        (self.cursor, self.blocked) = (0, None);
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
        let (_, lane) = self.lane(lane)?;
        lane.parked.as_ref().filter(|parked| parked.epoch == self.epoch).map(WaitingFor::Fit)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().flatten().map(Lane::len).sum()
    }

    /// How many would be tried before `key`.
    pub(crate) fn ahead_of(&self, key: &QueueKey, places: &impl Places) -> usize {
        self.lanes.iter().flatten().map(|lane| lane.count_before(key, places)).sum()
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
            .flat_map(|lane| lane.members().take(lane.count_before(key, places).min(most)));
        let mut keys: Vec<QueueKey> = before.map(|id| places.key(id)).collect();
        keys.sort_unstable();
        keys.into_iter().take(most).map(|key| key.id).collect()
    }

    /// Checks that heads, claims and lanes agree, and that members are in order.
    pub(crate) fn check(&self, places: &impl Places) -> Result<(), String> {
        let (mut lanes, mut claims) = (0, 0);
        for (index, lane) in self.lanes.iter().enumerate() {
            let Some(lane) = lane else { continue };
            (lanes, claims) = (lanes + 1, claims + usize::from(lane.claims()));
            let keys: Vec<QueueKey> = lane.members().map(|id| places.key(id)).collect();
            if !keys.is_sorted() || keys.first() != Some(&lane.first) {
                return Err(format!("{:?} is not in order", lane.key));
            }
            if self.by_key.get(&lane.key) != Some(&(index as u32)) {
                return Err(format!("{:?} is not found by its key", lane.key));
            }
        }
        if lanes + self.deserted != self.by_key.len()
            || lanes + self.deserted + self.free.len() != self.lanes.len()
        {
            return Err("places of lanes are lost".into());
        }
        for (order, count) in [(&self.heads, lanes), (&self.claims, claims)] {
            let listed: Vec<&Lane> =
                order.0.iter().filter_map(|ranked| self.lanes[ranked.lane as usize].as_ref()).collect();
            if listed.len() != count || order.0.len() != count || !listed.is_sorted_by_key(|lane| &lane.first)
            {
                return Err("heads or claims are not those of the lanes, in order".into());
            }
        }
        let claims = |ranked: &Ranked| self.lanes[ranked.lane as usize].as_ref().is_some_and(Lane::claims);
        if !self.claims.0.iter().all(claims) {
            return Err("a claim is noted of a lane that has none".into());
        }
        let mut passed = self
            .heads
            .0
            .iter()
            .take(self.cursor)
            .filter_map(|ranked| self.lanes[ranked.lane as usize].as_ref());
        match passed.find(|lane| !self.strict && !lane.is_parked(self.epoch)) {
            Some(lane) => Err(format!("{:?} was passed by and is not parked", lane.key)),
            None => Ok(()),
        }
    }
}

/// Places are kept for so many lanes in which nobody is, whoever else waits.
const MOST_DESERTED: usize = 64;

/// No queue is woken this often.
const NEVER: u64 = u64::MAX;

/// Why a queued Workload waits.
pub(crate) enum WaitingFor<'q> {
    /// It was evaluated and does not fit.
    Fit(&'q Parked),
    /// This one goes first, strictly.
    First(&'q QueueKey),
}

#[cfg(test)]
mod tests {
    use gangway_model::Uid;

    use super::*;
    use crate::shapes::Shapes;

    /// A queue with the places of those who wait in it.
    #[derive(Default)]
    struct Line {
        queue: PendingQueue,
        keys: Vec<(QueueKey, u32)>,
    }

    impl Places for Vec<(QueueKey, u32)> {
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
            self.keys.push((key.clone(), 0));
            self.keys[id.index()].1 = self.queue.insert(key, lane, &self.keys);
            id
        }

        fn remove(&mut self, id: WorkloadId) {
            let (_, lane) = self.keys[id.index()];
            self.queue.remove(id, lane, &self.keys);
        }

        fn head(&mut self) -> Option<String> {
            self.queue.check(&self.keys).unwrap();
            self.queue.head().map(|head| self.uid(head))
        }

        fn uid(&self, head: Head) -> String {
            self.keys[head.id.index()].0.uid.to_string()
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
            shapes.acquire(workload.priority, &workload.pod_sets, &[]).0
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
            order.push(line.uid(first));
            line.remove(first.id);
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
        assert_eq!(line.queue.blocked_head().map(|head| line.uid(head)).as_deref(), Some("large"));
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
        let turn = line.queue.take_turn(0, |_| 0);
        assert!(matches!(turn, Turn::PassedBy), "it takes its turn");
        assert_eq!(line.head(), None);
        line.queue.wake_all();
        let turn = line.queue.take_turn(0, |_| 0);
        assert!(matches!(turn, Turn::Of(_)), "other definitions may help");
    }

    #[test]
    fn who_holds_up_a_strict_queue_again_is_looked_at_again() {
        let [large, small] = lanes();
        let mut line = Line::default();
        line.queue.set_strict(true);
        let first = line.insert(0, 1, "large", large);
        line.set_aside(Parked { lasts: true, ..Parked::new(PendingReason::ExceedsMaxQuota) });
        let urgent = line.insert(1, 2, "urgent", small);
        line.set_aside(busy());
        line.remove(urgent);
        let turn = line.queue.take_turn(0, |_| 0);
        assert!(matches!(turn, Turn::Of(head) if head.id == first), "it said last that another goes first");
        assert_eq!(line.set_aside(busy()), [urgent, first]);
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
