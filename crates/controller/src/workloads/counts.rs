//! Every request is counted, and so is every fate of a write, and every eviction that landed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gangway_model::ClusterQueueName;
use gangway_model::reasons::{EvictionReason, PreemptionReason, ReadinessReason};

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
            evictions: Mutex<EvictionCounts>,
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
    /// The evictions that landed so far.
    pub fn evictions(&self) -> EvictionCounts {
        self.eviction_counts().clone()
    }

    /// Counts an eviction from a ClusterQueue that has landed.
    pub(crate) fn evicted(
        &self,
        from: ClusterQueueName,
        reason: EvictionReason,
        waited_for: Option<ReadinessReason>,
    ) {
        let key = (from, reason.base(), reason.underlying_cause(waited_for));
        *self.eviction_counts().evicted.entry(key).or_default() += 1;
    }

    /// Counts an eviction for a Workload of another or the same ClusterQueue that has landed.
    pub(crate) fn preempted(&self, preempting: ClusterQueueName, reason: PreemptionReason) {
        *self.eviction_counts().preempted.entry((preempting, reason)).or_default() += 1;
    }

    /// Counts are whole at any time, also if somebody who held them panicked.
    fn eviction_counts(&self) -> MutexGuard<'_, EvictionCounts> {
        self.evictions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many Workloads were told to leave since the controller started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// `evicted_workloads_total`: by the ClusterQueue whose quota it was, the reason, and what is behind the reason.
    pub evicted: BTreeMap<(ClusterQueueName, EvictionReason, &'static str), u64>,
    /// `preempted_workloads_total`: by the ClusterQueue of the preemptor, empty if it is gone, and the right.
    pub preempted: BTreeMap<(ClusterQueueName, PreemptionReason), u64>,
}
