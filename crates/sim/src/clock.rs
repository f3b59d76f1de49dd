//! Virtual time: it passes when nobody has anything left to do.

use std::sync::atomic::{AtomicI64, Ordering};

use gangway_model::{Clock, Timestamp};
use tokio::time::Instant;

/// When every simulation begins.
const START: Timestamp = Timestamp::from_seconds(1_767_225_600);

/// A clock that moves with tokio's paused time, and that somebody may set wrong.
#[derive(Debug)]
pub struct VirtualClock {
    began: Instant,
    wrong_by_nanos: AtomicI64,
}

impl VirtualClock {
    /// A clock that is right. All clocks of one simulation begin at the same moment.
    pub fn since(began: Instant) -> Self {
        Self { began, wrong_by_nanos: AtomicI64::new(0) }
    }

    /// Sets the clock this many seconds ahead of time, or behind it.
    pub fn set_wrong_by(&self, seconds: i64) {
        self.wrong_by_nanos.store(seconds.saturating_mul(1_000_000_000), Ordering::Relaxed);
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.began.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let wrong_by = self.wrong_by_nanos.load(Ordering::Relaxed);
        Timestamp::from_nanos(START.as_nanos().saturating_add(passed).saturating_add(wrong_by))
    }
}
