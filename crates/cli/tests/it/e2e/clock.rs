//! A clock that a scenario sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use gangway_cli::clock::SystemClock;
use gangway_model::{Clock, Timestamp};

/// The clock of this machine, set forward or back by some seconds.
#[derive(Debug, Default)]
pub struct SetClock(AtomicI64);

impl SetClock {
    /// A clock that is so many seconds ahead.
    pub fn ahead(seconds: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(seconds)))
    }

    /// Moves the hands, back if `seconds` are negative.
    pub fn step(&self, seconds: i64) {
        self.0.fetch_add(seconds, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_seconds(self.0.load(Ordering::SeqCst))
    }
}
