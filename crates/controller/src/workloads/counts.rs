//! Every request is counted, and so is every fate of a write.

use std::sync::atomic::{AtomicU64, Ordering};

use super::metrics::Metrics;

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// It changes what runs. Never dropped.
    Decisions,
    /// It informs. Coalesced, and dropped when there is too much of it.
    Diagnostics,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts what the controller asked of the API.
        #[derive(Debug, Default)]
        pub struct RequestCounts {
            $($name: AtomicU64,)*
            metrics: Metrics,
        }

        /// The counts at one moment.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl RequestCounts {
            /// The counts now.
            pub fn snapshot(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }

            $(pub(crate) fn $name(&self) {
                self.$name.fetch_add(1, Ordering::Relaxed);
            })*
        }
    };
}

counters! {
    /// Requests in the decision lane.
    decisions,
    /// Requests in the diagnostics lane.
    diagnostics,
    /// Writes that landed.
    applied,
    /// Writes that met a newer object; nothing was written.
    conflicts,
    /// Writes that the API refused.
    rejected,
    /// Writes whose end nobody knows and that are tried again.
    retried,
    /// Writes that became pointless before they were sent.
    superseded,
    /// Diagnostics that were dropped because there were too many.
    dropped,
    /// Workloads whose conditions contradicted each other.
    repairs,
    /// Workloads that were told to leave and had not left in time.
    overdue_evictions,
}

impl RequestCounts {
    pub(crate) fn sent(&self, lane: Lane) {
        match lane {
            Lane::Decisions => self.decisions(),
            Lane::Diagnostics => self.diagnostics(),
        }
    }

    /// What happened to Workloads.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
