//! Points in time, and the one door through which time comes in.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

/// A point in time, in nanoseconds since 1970-01-01T00:00:00Z.
///
/// Objects store whole seconds (`metav1.Time`), so what is read back from an object compares
/// equal to what was written only after [`Timestamp::whole_second`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

const NANOS_PER_SECOND: i64 = 1_000_000_000;

impl Timestamp {
    /// The beginning of time: 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// From whole seconds since the epoch; saturates.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(NANOS_PER_SECOND))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn as_seconds(self) -> i64 {
        self.0.div_euclid(NANOS_PER_SECOND)
    }

    /// The same time with the fraction of a second cut off, as objects store it.
    pub const fn whole_second(self) -> Self {
        Self::from_seconds(self.as_seconds())
    }

    /// This time moved by `seconds`; saturates.
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(NANOS_PER_SECOND)))
    }

    /// This time moved by `millis` milliseconds; saturates.
    pub const fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis.saturating_mul(1_000_000)))
    }

    /// Nanoseconds from `earlier` to this time, negative if `earlier` is later; saturates.
    pub const fn nanos_since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}.{:09}", self.as_seconds(), self.0.rem_euclid(NANOS_PER_SECOND))
    }
}

/// Where time comes from. Nothing else asks the system for it.
pub trait Clock: Send + Sync {
    /// The time it is.
    fn now(&self) -> Timestamp;
}

/// A clock that stands still until it is set. For tests and simulation.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.as_nanos()))
    }

    /// Moves the hands to `now`.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_round_towards_the_past() {
        assert_eq!(Timestamp::from_nanos(1_999_999_999).whole_second(), Timestamp::from_seconds(1));
        assert_eq!(Timestamp::from_nanos(-1).whole_second(), Timestamp::from_seconds(-1));
    }

    #[test]
    fn far_future_saturates() {
        assert_eq!(Timestamp::from_seconds(i64::MAX).as_nanos(), i64::MAX);
        assert_eq!(Timestamp::from_nanos(i64::MAX).plus_seconds(1).as_nanos(), i64::MAX);
    }
}
