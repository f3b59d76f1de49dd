//! Who has to leave so that another fits.
//!
//! [`candidates`] says who may be preempted and in which order; [`search`] removes them one by one until
//! the preemptor fits and spares whom it can.

pub(crate) mod candidates;
pub(crate) mod fronts;
pub(crate) mod search;

use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_model::reasons::PreemptionReason;

use crate::ids::{CellAmounts, CellId, QueueId, WorkloadId};

/// A Workload that asks for quota.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) queue: QueueId,
    pub(crate) priority: i32,
    /// Its place in the order of its queue.
    pub(crate) queued_at: Timestamp,
    /// Whom it may not preempt: it left for them, directly or through others.
    pub(crate) barred: &'a [WorkloadId],
    /// A flavor has room only if it has room for every resource.
    pub(crate) every_resource_counts: bool,
}

/// What it asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) amounts: &'a [(CellId, i64)],
    /// The cells in which it does not fit without preemption.
    pub(crate) needing: &'a [CellId],
}

/// A Workload that has to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Victim {
    pub(crate) id: WorkloadId,
    pub(crate) queue: QueueId,
    pub(crate) reason: PreemptionReason,
    /// What it uses.
    pub(crate) usage: Arc<CellAmounts>,
}

impl Victim {
    /// Whether the other is the same Workload.
    pub(crate) fn usage_is_of(&self, other: &Self) -> bool {
        self.queue == other.queue && self.id == other.id && Arc::ptr_eq(&self.usage, &other.usage)
    }
}
