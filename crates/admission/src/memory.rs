//! The part of the engine's state that may be lost. Each field says what a restart costs.

use std::collections::{BTreeMap, BTreeSet};

use gangway_model::workload::{Admission, State};
use gangway_model::{ClusterQueueName, ObjectName, Timestamp, Uid};
use rustc_hash::FxHashMap;

use crate::decision::DecisionId;
use crate::queues::{PendingQueue, QueueKey};
use crate::quota::{Counted, Tally};
use crate::shapes::{ShapeId, Shapes};

/// What the engine remembers besides the objects.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Whether every watch has delivered its first list. Restart: nothing is decided until it has.
    pub(crate) synced: bool,
    /// The next decision's id. Restart: ids begin again; nobody remembers old ones.
    pub(crate) next_decision: u64,
    /// What is known of each Workload. Restart: rebuilt, but for the writes under way (see [`Track`]).
    pub(crate) tracks: FxHashMap<Uid, Track>,
    /// Whose decision is under way. Restart: see [`Track`].
    pub(crate) under_way: BTreeMap<DecisionId, Uid>,
    /// Who waits where. Restart: rebuilt; every shape is evaluated once more.
    pub(crate) queues: BTreeMap<ClusterQueueName, PendingQueue>,
    /// Queues that may have a head. Restart: rebuilt.
    pub(crate) ready: BTreeSet<ClusterQueueName>,
    /// Equal requests. Restart: rebuilt.
    pub(crate) shapes: Shapes,
    /// Counts and usage per ClusterQueue. Restart: rebuilt.
    pub(crate) cluster_tallies: BTreeMap<ClusterQueueName, Tally>,
    /// Counts and usage per LocalQueue. Restart: rebuilt.
    pub(crate) local_tallies: BTreeMap<ObjectName, Tally>,
    /// Quota of Workloads that were deleted while their Job had pods, by Job: it counts until the pods are
    /// gone. Restart: what is left of their grace period is not waited for.
    pub(crate) left_behind: BTreeMap<Uid, Vec<CountedAs>>,
    /// The Workloads that name a LocalQueue. Restart: rebuilt.
    pub(crate) by_local_queue: BTreeMap<ObjectName, BTreeSet<Uid>>,
    /// The Workloads that a Job owns. Restart: rebuilt.
    pub(crate) by_owner: FxHashMap<Uid, BTreeSet<Uid>>,
    /// Workloads for which something may be due. Restart: all are looked at once.
    pub(crate) touched: BTreeSet<Uid>,
    /// Workloads whose waiting reason may have changed. Restart: all are looked at once.
    pub(crate) unreported: BTreeSet<Uid>,
    /// When something becomes due by itself. Restart: rebuilt from stored times.
    pub(crate) deadlines: BTreeSet<(Timestamp, Uid)>,
    /// Queues whose status may have changed. Restart: all are looked at once.
    pub(crate) changed_queues: BTreeSet<QueueRef>,
    /// How many Workloads were evaluated against quota. Restart: counts from 0.
    pub(crate) evaluations: u64,
    /// How many cycles were run. Restart: counts from 0.
    pub(crate) cycles: u64,
}

/// A queue whose status may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueRef {
    /// A ClusterQueue.
    Cluster(ClusterQueueName),
    /// A LocalQueue.
    Local(ObjectName),
}

/// What is known of a Workload besides its record.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// Where it waits.
    pub(crate) place: Option<Place>,
    /// What it counts as.
    pub(crate) counted: Option<CountedAs>,
    /// The decision that is being written. Restart: whether it landed is seen in the first list.
    pub(crate) decision: Option<UnderWay>,
    /// The report that is being written. Restart: written again if it is not there.
    pub(crate) report: Option<UnderWay>,
    /// A write met a conflict at this version: nothing is decided before a newer one is seen. Restart: the list is newer.
    pub(crate) stale: Option<u64>,
    /// The API refused the last decision. Restart: it is tried once more at once.
    pub(crate) refused: Option<Refused>,
    /// The API refused the last report. Restart: it is tried once more at once.
    pub(crate) report_refused: Option<Refused>,
    /// Why its Job can never start. Restart: told again when the start is tried again.
    pub(crate) unstartable: Option<String>,
    /// When something becomes due by itself.
    pub(crate) deadline: Option<Timestamp>,
}

impl Track {
    /// Whether something may be decided now: no other decision is under way, its object is not known to
    /// have changed, and the API has not just refused.
    pub(crate) fn may_decide(&self) -> bool {
        self.decision.is_none() && self.stale.is_none() && self.waits_after_refusal().is_none()
    }

    /// Whether something could be decided if the change of its object were known.
    pub(crate) fn is_only_stale(&self) -> bool {
        self.decision.is_none() && self.stale.is_some() && self.waits_after_refusal().is_none()
    }

    /// The refusal after which it waits before it is tried again.
    pub(crate) fn waits_after_refusal(&self) -> Option<&Refused> {
        self.refused.as_ref().filter(|refused| refused.retry_at.is_some())
    }

    /// Whether a report may be written now.
    pub(crate) fn may_report(&self) -> bool {
        let waits = self.report_refused.as_ref().is_some_and(|refused| refused.retry_at.is_some());
        self.report.is_none() && self.stale.is_none() && !waits
    }
}

/// Where a Workload waits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) queue: ClusterQueueName,
    pub(crate) key: QueueKey,
    pub(crate) shape: ShapeId,
}

/// What a Workload counts as, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedAs {
    pub(crate) local: ObjectName,
    pub(crate) cluster: Option<ClusterQueueName>,
    pub(crate) counted: Counted,
    pub(crate) admission: Option<Admission>,
}

/// A write that was decided and has not ended.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) id: DecisionId,
    /// The state that it writes.
    pub(crate) state: State,
    /// The version that it was sent on top of; none until it is sent.
    pub(crate) sent_on: Option<u64>,
    /// Nobody knows how it ended.
    pub(crate) unknown: bool,
}

/// The API refused a write.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) message: String,
    /// How often in a row.
    pub(crate) attempts: u32,
    /// Not to be tried before this time; none once it has passed.
    pub(crate) retry_at: Option<Timestamp>,
}

impl Refused {
    /// One more refusal after `before` others: a second at first, then twice as long each time, to five
    /// minutes at most.
    pub(crate) fn again(message: String, before: u32, now: Timestamp) -> Self {
        let seconds = if before < 9 { (1 << before).min(300) } else { 300 };
        Self { message, attempts: before.saturating_add(1), retry_at: Some(now.plus_seconds(seconds)) }
    }
}
