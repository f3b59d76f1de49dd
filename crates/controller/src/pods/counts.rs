//! How many requests did the scheduler make, and how did they end?

use std::sync::atomic::{AtomicU64, Ordering};

use super::metrics::Metrics;
use crate::metrics::Metric;
use crate::pulse::Pulse;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts what the scheduler asks of the API, by fate. Watches are not counted.
        #[derive(Debug, Default)]
        pub struct BindCounts {
            $($name: AtomicU64,)*
            metrics: Metrics,
            pulse: Pulse,
        }

        /// The counts at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct BindCountsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl BindCountsSnapshot {
            /// Every count with its name.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        impl BindCounts {
            /// The counts as they are now.
            pub fn snapshot(&self) -> BindCountsSnapshot {
                BindCountsSnapshot { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            $(pub(super) fn $name(&self) {
                self.$name.fetch_add(1, Ordering::Relaxed);
            })*
        }
    };
}

counts! {
    /// Bindings that were sent.
    bindings_sent,
    /// Bindings that were sent again because the server was in trouble.
    bindings_retried,
    /// Bindings that were written.
    bindings_landed,
    /// Bindings of pods that had changed meanwhile.
    bindings_conflicted,
    /// Bindings that were refused.
    bindings_rejected,
    /// Bindings whose end was not seen.
    bindings_unknown,
    /// Pods that were read to learn how a binding ended, or before they were removed.
    pods_read,
    /// Pods that were told that they have to go for another.
    victims_marked,
    /// Pods whose deletion was sent.
    victims_deleted,
    /// Removals that were tried again.
    victims_retried,
    /// Pods that could not be removed.
    victims_kept,
    /// Preemptions that were needless before they began.
    preemptions_superseded,
    /// Conditions that were sent.
    conditions_sent,
    /// Conditions that were written.
    conditions_applied,
    /// Conditions that were sent again because the pod had changed.
    conditions_retried,
    /// Conditions that a newer one or a binding made needless before they were sent.
    conditions_superseded,
    /// Conditions that were given up.
    conditions_dropped,
    /// Events that were sent.
    events_sent,
    /// Events that were written.
    events_applied,
    /// Events that were given up, or that others pushed out.
    events_dropped,
}

impl BindCounts {
    /// What is told to whoever reads metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// What the loop does.
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Takes over into the metrics what is counted here.
    pub fn publish(&self) {
        let registry = self.metrics.registry();
        for (fate, count) in self.snapshot().named() {
            registry.set(Metric::SchedulerWrites, &[fate], count as f64);
        }
        registry.set(Metric::Build, &[env!("CARGO_PKG_VERSION")], 1.0);
    }
}

impl BindCountsSnapshot {
    /// Requests that carry decisions, and the reads that they needed.
    pub fn decision_requests(&self) -> u64 {
        self.bindings_sent + self.pods_read + self.victims_marked + self.victims_deleted
    }

    /// Requests that only inform.
    pub fn diagnostic_requests(&self) -> u64 {
        self.conditions_sent + self.events_sent
    }
}
