//! Places in a queue, and who goes before whom.

use std::cmp::Ordering;
use std::collections::VecDeque;

use gangway_model::{Timestamp, Uid};

use crate::ids::WorkloadId;

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
