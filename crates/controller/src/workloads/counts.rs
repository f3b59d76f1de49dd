//! Every request is counted, and so is every fate of a write.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::metrics::{Metric, Registry};
use crate::pace::Lane;
use crate::pulse::Pulse;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts what the controller asked of the API.
        #[derive(Debug, Default)]
        pub struct RequestCounts {
            $($name: AtomicU64,)*
            metrics: Registry,
            /// What the loop does.
            pulse: Pulse,
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
            Lane::Decisions | Lane::Reads => self.decisions(),
            Lane::Diagnostics => self.diagnostics(),
        }
    }

    /// All that is counted, for machines.
    pub fn metrics(&self) -> &Registry {
        &self.metrics
    }

    /// What the loop does.
    pub fn pulse(&self) -> &Pulse {
        &self.pulse
    }

    /// Takes over into the metrics what is counted here.
    pub fn publish(&self) {
        let counts = self.snapshot();
        let set = |metric, labels: &[&str], value: u64| self.metrics.set(metric, labels, value as f64);
        for (fate, count) in [
            ("applied", counts.applied),
            ("conflict", counts.conflicts),
            ("rejected", counts.rejected),
            ("retried", counts.retried),
            ("superseded", counts.superseded),
            ("dropped", counts.dropped),
        ] {
            set(Metric::Writes, &[fate], count);
        }
        set(Metric::LaneRequests, &["decisions"], counts.decisions);
        set(Metric::LaneRequests, &["diagnostics"], counts.diagnostics);
        set(Metric::Repairs, &[], counts.repairs);
        set(Metric::Overdue, &[], counts.overdue_evictions);
        set(Metric::Build, &[env!("CARGO_PKG_VERSION")], 1);
    }
}
