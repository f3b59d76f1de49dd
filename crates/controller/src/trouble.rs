//! Trouble with the API is said when it begins and when it ends, not at every attempt in between.

use std::fmt::Display;
use std::time::Duration;

/// Whether one kind of request is failing at the moment.
#[derive(Debug)]
pub(crate) struct Trouble {
    what: &'static str,
    said: bool,
}

impl Trouble {
    pub(crate) fn with(what: &'static str) -> Self {
        Self { what, said: false }
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }

    pub(crate) fn failed(&mut self, error: &dyn Display) {
        if !self.said {
            tracing::warn!(error = %error, "{} fails; trying again until it works", self.what);
            self.said = true;
        }
    }

    pub(crate) fn worked(&mut self) {
        if self.said {
            tracing::info!("{} works again", self.what);
            self.said = false;
        }
    }
}

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The wait before attempt number `attempts + 1`: 100 ms, doubled each time, at most 10 s.
pub(crate) fn wait_after(attempts: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << attempts.min(16)).min(LONGEST_WAIT)
}

/// The same waits for a stream of events.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    attempts: u32,
}

impl Iterator for Waits {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = wait_after(self.attempts);
        self.attempts = self.attempts.saturating_add(1);
        Some(wait)
    }
}

impl kube::runtime::utils::Backoff for Waits {
    fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let waits: Vec<_> = Waits::default().take(9).map(|wait| wait.as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]);
        assert_eq!(wait_after(u32::MAX), LONGEST_WAIT);
    }
}
