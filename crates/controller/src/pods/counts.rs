//! How many requests did the scheduler make, and how did they end?

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts what the scheduler asks of the API, by fate. Watches are not counted.
        #[derive(Debug, Default)]
        pub struct BindCounts {
            $($name: AtomicU64,)*
        }

        /// The counts at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct BindCountsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
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
    /// Bindings that were written.
    bindings_landed,
    /// Bindings of pods that had changed meanwhile.
    bindings_conflicted,
    /// Bindings that were refused.
    bindings_rejected,
    /// Bindings whose end was not seen.
    bindings_unknown,
    /// Pods that were read to learn how a binding ended.
    pods_read,
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
}

impl BindCountsSnapshot {
    /// Requests that carry decisions, and the reads that they needed.
    pub fn decision_requests(&self) -> u64 {
        self.bindings_sent + self.pods_read
    }

    /// Requests that only inform.
    pub fn diagnostic_requests(&self) -> u64 {
        self.conditions_sent
    }
}
