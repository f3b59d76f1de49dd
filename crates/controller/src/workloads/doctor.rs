//! Whether the engine contradicts itself. It is asked now and then, when nothing is under way and something was decided since,
//! and so seldom that it takes no more than a thousandth of the time.

use std::time::Duration;

use tokio::time::Instant;

use super::shell::Shell;
use crate::metrics::Metric;

/// The shortest time between two examinations.
const INTERVAL: Duration = Duration::from_secs(600);
/// How much longer than an examination the time between two is.
const SHARE: u32 = 1000;

/// When the engine is examined next.
pub(super) struct Doctor {
    next: Instant,
    /// Whether something was decided since the last time.
    pub(super) is_stale: bool,
}

impl Default for Doctor {
    fn default() -> Self {
        Self { next: Instant::now() + INTERVAL, is_stale: false }
    }
}

impl Doctor {
    /// Waits until it is time.
    pub(super) async fn is_due(&self) {
        if !self.is_stale {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep_until(self.next).await;
    }

    fn examined(&mut self, took: Duration) {
        self.is_stale = false;
        self.next = Instant::now() + took.saturating_mul(SHARE).max(INTERVAL);
    }
}

impl Shell {
    /// Checks every invariant of the engine; what does not hold is counted and said.
    pub(super) fn examine(&mut self) {
        let began = Instant::now();
        let registry = self.counts.metrics();
        registry.count(Metric::Checks, &[]);
        let found = self.engine.check();
        registry.add(Metric::Violations, &[], f64::from(u8::from(found.is_err())));
        if let Err(violation) = found {
            tracing::error!(%violation, "the engine contradicts itself: please report this");
        }
        let took = began.elapsed();
        registry.set(Metric::CheckSeconds, &[], took.as_secs_f64());
        self.doctor.examined(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_decisions_and_a_thousand_times_as_long_as_it_took() {
        let mut doctor = Doctor::default();
        let due = |doctor: &Doctor| futures::FutureExt::now_or_never(doctor.is_due()).is_some();
        tokio::time::advance(INTERVAL).await;
        assert!(!due(&doctor), "nothing was decided");
        doctor.is_stale = true;
        assert!(due(&doctor));
        doctor.examined(Duration::from_secs(1));
        doctor.is_stale = true;
        tokio::time::advance(INTERVAL).await;
        assert!(!due(&doctor), "it takes long");
        tokio::time::advance(Duration::from_secs(400)).await;
        assert!(due(&doctor));
    }
}
