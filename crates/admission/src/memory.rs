//! The part of the engine's state that may be lost. Each field says what a restart costs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use gangway_model::reasons::PreemptionReason;
use gangway_model::workload::{Admission, State};
use gangway_model::{ClusterQueueName, ObjectName, Timestamp, Uid};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::chunks::Chunks;
use crate::decision::DecisionId;
use crate::durable::Standing;
use crate::flavors::Progress;
use crate::ids::{CellAmounts, Interner, LocalQueueId, QueueId, WorkloadId};
use crate::ledger::{HolderKey, Kept, Ledger};
use crate::on_the_way::OnTheWay;
use crate::queues::{LaneKey, PendingQueue};
use crate::shapes::{ShapeId, Shapes};
use crate::tally::{Counted, Tally};

/// What the engine remembers besides the objects.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Whether every watch has delivered its first list. Restart: nothing is decided until it has.
    pub(crate) synced: bool,
    /// When they had; only a planted mistake asks. Restart: another start.
    pub(crate) synced_at: Option<Timestamp>,
    /// The last time that was told. Restart: told again.
    pub(crate) time: Timestamp,
    /// Who may run and whose pods were not all ready since, where that keeps others from starting. Restart: rebuilt.
    pub(crate) starting: BTreeSet<WorkloadId>,
    /// Who has quota and may not run yet, the same. Restart: rebuilt.
    pub(crate) reserving: BTreeSet<WorkloadId>,
    /// The next decision's id. Restart: ids begin again; nobody remembers old ones.
    pub(crate) next_decision: u64,
    /// What is known of each Workload. Restart: rebuilt, but for the writes under way (see [`Track`]).
    pub(crate) tracks: Chunks<Track>,
    /// Whose decision is under way. Restart: see [`Track`].
    pub(crate) under_way: OnTheWay,
    /// Quota trees, holders of quota, and room that is kept. Restart: rebuilt; what is kept for preemptors is
    /// worked out again from the victims that name them.
    pub(crate) ledger: Ledger,
    /// Who waits where. Restart: rebuilt; every shape is evaluated once more.
    pub(crate) queues: Vec<PendingQueue>,
    /// Queues that may have somebody to evaluate. Restart: rebuilt.
    pub(crate) ready: Vec<QueueId>,
    /// Queues whose definitions changed since the quota trees were built. Restart: all are new.
    pub(crate) redefined: BTreeSet<QueueId>,
    /// Queues that stopped keeping others from borrowing, whose trees are yet to be woken. Restart: all are awake.
    pub(crate) unclaimed: BTreeSet<QueueId>,
    /// Queues in which room that was kept came free, whose trees are yet to be woken. Restart: all are awake.
    pub(crate) freed: BTreeSet<QueueId>,
    /// Equal requests. Restart: rebuilt.
    pub(crate) shapes: Shapes,
    /// Counts and usage per ClusterQueue. Restart: rebuilt.
    pub(crate) cluster_tallies: Vec<Tally>,
    /// LocalQueues by number. Restart: rebuilt.
    pub(crate) local_names: Interner<ObjectName>,
    /// What is known of each LocalQueue. Restart: rebuilt.
    pub(crate) locals: Vec<Local>,
    /// Grows with every change of a definition. Restart: begins again.
    pub(crate) definitions: u64,
    /// Quota of Workloads that were deleted while their Job had pods, by Job: it counts until the pods are
    /// gone. Restart: what is left of their grace period is not waited for.
    pub(crate) left_behind: BTreeMap<Uid, Vec<CountedAs>>,
    /// The Workloads that a Job owns. Restart: rebuilt.
    pub(crate) by_owner: FxHashMap<Uid, SmallVec<[WorkloadId; 2]>>,
    /// The Workloads that left for a preemptor, by its uid. Restart: rebuilt.
    pub(crate) victims: FxHashMap<Uid, BTreeSet<WorkloadId>>,
    /// Workloads that were chosen to leave and have yet to be told. Restart: chosen again.
    pub(crate) condemned: BTreeSet<WorkloadId>,
    /// Workloads for which something is due. Restart: all are looked at once.
    pub(crate) touched: VecDeque<WorkloadId>,
    /// Workloads whose waiting reason may have changed. Restart: all are looked at once.
    pub(crate) unreported: VecDeque<WorkloadId>,
    /// When something becomes due by itself. Restart: rebuilt from stored times.
    pub(crate) deadlines: BTreeSet<(Timestamp, WorkloadId)>,
    /// Queues whose status may have changed, each once. Restart: all are looked at once.
    pub(crate) changed_queues: Vec<ChangedQueue>,
    /// Whether each ClusterQueue is among them.
    pub(crate) is_changed: Vec<bool>,
    /// How many admissions were decided. Restart: begins again; within a second, order is by uid then.
    pub(crate) admissions: u64,
    /// How much was done. Restart: counted anew.
    pub(crate) work: Work,
}

/// How much work the engine did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Cycles run.
    pub cycles: u64,
    /// Workloads evaluated against quota.
    pub evaluations: u64,
    /// Turns of those who fail as before, which were not evaluated.
    pub passed_by: u64,
    /// Preemptors for which victims were chosen.
    pub preemptions: u64,
    /// Workloads that were removed on the way to a set of victims and spared in the end.
    pub spared: u64,
}

/// A queue whose status may have changed, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ChangedQueue {
    Cluster(QueueId),
    Local(LocalQueueId),
}

/// A queue whose status may have changed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueRef {
    /// A ClusterQueue.
    Cluster(ClusterQueueName),
    /// A LocalQueue.
    Local(ObjectName),
}

/// What is known of a LocalQueue, whether it exists or not.
#[derive(Debug, Default)]
pub(crate) struct Local {
    /// The Workloads that name it, in any order.
    pub(crate) members: Vec<WorkloadId>,
    pub(crate) tally: Tally,
    /// It is among the queues whose status may have changed.
    pub(crate) is_changed: bool,
    /// The queue behind it and what keeps Workloads out of it, as of some definitions.
    pub(crate) outlook: Option<(u64, Outlook)>,
}

/// Where a LocalQueue leads.
#[derive(Clone, Debug)]
pub(crate) struct Outlook {
    /// The ClusterQueue behind it.
    pub(crate) queue: Option<QueueId>,
    /// Whether it exists and is not stopped; none if it does not exist.
    pub(crate) is_open: Option<bool>,
    /// What keeps its Workloads out, whatever they ask for.
    pub(crate) standing: Option<Arc<Standing>>,
}

/// What is known of a Workload besides its record.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// The LocalQueue that it names.
    pub(crate) local: LocalQueueId,
    /// What it asks for.
    pub(crate) shape: ShapeId,
    /// Where it stands among those that name the same LocalQueue.
    pub(crate) member: u32,
    /// Where it waits.
    pub(crate) place: Option<Place>,
    /// The number of its lane there.
    pub(crate) lane: u32,
    /// What it counts as.
    pub(crate) counted: Option<CountedAs>,
    /// The decision that is being written. Restart: whether it landed is seen in the first list.
    pub(crate) decision: Option<Box<UnderWay>>,
    /// Which admission it was, of those that this engine decided; 0 if it was there before.
    pub(crate) sequence: u64,
    /// What most Workloads have nothing of at most times.
    pub(crate) rare: Seldom,
    /// It chose victims and waits for them. Restart: worked out again.
    pub(crate) is_preemptor: bool,
    /// It stands in the list of Workloads for which something is due.
    pub(crate) is_touched: bool,
    /// It stands in the list of Workloads whose waiting reason may have changed.
    pub(crate) is_unreported: bool,
}

/// What most Workloads have nothing of at most times.
#[derive(Debug, Default)]
pub(crate) struct Rare {
    /// The report that is being written. Restart: written again if it is not there.
    pub(crate) report: Option<Box<UnderWay>>,
    /// A write met a conflict at this version: nothing is decided before a newer one is seen. Restart: the list is newer.
    pub(crate) stale: Option<Stale>,
    /// The API refused the last decision. Restart: it is tried once more at once.
    pub(crate) refused: Option<Box<Refused>>,
    /// The API refused the last report. Restart: it is tried once more at once.
    pub(crate) report_refused: Option<Box<Refused>>,
    /// Why its Job can never start. Restart: told again when the start is tried again.
    pub(crate) unstartable: Option<Box<str>>,
    /// Whose preemption it was chosen for and has yet to be told of. Restart: chosen again.
    pub(crate) condemned: Option<Box<Sentence>>,
    /// Where the search for flavors goes on. Restart: it begins with the first.
    pub(crate) scan: Option<Box<Scan>>,
    /// The room that it had won as a preemptor before its admission was decided: its own again if that does not
    /// land. Restart: worked out again.
    pub(crate) won: Option<Box<Kept>>,
    /// When the last of those left who had to leave for it. They may be gone since, or have got quota again. Restart: as far
    /// as they still say so.
    pub(crate) victims_left_at: Option<Timestamp>,
    /// What the reference would have told last; with its defects only. Restart: told again.
    pub(crate) told: Option<Told>,
    /// Who took over the room that it had won. Restart: who left for it may preempt that one again.
    pub(crate) beaten_by: Option<Box<Uid>>,
    /// It tried flavors for something else than what it asks for by this time, or in another queue. Restart: they count
    /// on.
    pub(crate) history_is_old: bool,
    /// When something becomes due by itself. Restart: worked out again.
    pub(crate) deadline: Option<Timestamp>,
}

impl Rare {
    /// The last refusal of a decision, or of a report.
    pub(crate) fn refused_mut(&mut self, of_decision: bool) -> &mut Option<Box<Refused>> {
        if of_decision { &mut self.refused } else { &mut self.report_refused }
    }
}

static NOTHING: Rare = Rare {
    report: None,
    stale: None,
    refused: None,
    report_refused: None,
    unstartable: None,
    condemned: None,
    scan: None,
    won: None,
    victims_left_at: None,
    told: None,
    beaten_by: None,
    history_is_old: false,
    deadline: None,
};

/// What takes a word only while there is nothing of it.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Option<Box<Rare>>);

impl Deref for Seldom {
    type Target = Rare;

    fn deref(&self) -> &Rare {
        self.0.as_deref().unwrap_or(&NOTHING)
    }
}

impl DerefMut for Seldom {
    fn deref_mut(&mut self) -> &mut Rare {
        self.0.get_or_insert_default()
    }
}

impl Seldom {
    /// Whether there is something of it; if not, asking for it to be changed takes memory for nothing.
    pub(crate) fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// What there is of it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut Rare> {
        self.0.as_deref_mut()
    }

    /// What was refused may be tried again once its time has come.
    pub(crate) fn end_refusals(&mut self, now: Timestamp) {
        let Some(rare) = &mut self.0 else { return };
        for refused in [&mut rare.refused, &mut rare.report_refused].into_iter().flatten() {
            refused.retry_at = refused.retry_at.filter(|at| *at > now);
        }
    }

    /// The time at which something was to become due.
    pub(crate) fn take_deadline(&mut self) -> Option<Timestamp> {
        self.0.as_mut()?.deadline.take()
    }

    /// The search for flavors that was to go on.
    pub(crate) fn take_scan(&mut self) -> Option<Box<Scan>> {
        self.0.as_mut()?.scan.take()
    }

    /// The search for flavors begins with the first again.
    pub(crate) fn forget_scan(&mut self) {
        self.take_scan();
    }

    /// Gives its memory back if there is nothing of it any more.
    pub(crate) fn shrink(&mut self) {
        let is_nothing = |rare: &mut Box<Rare>| {
            matches!(
                **rare,
                Rare {
                    report: None,
                    stale: None,
                    refused: None,
                    report_refused: None,
                    unstartable: None,
                    condemned: None,
                    scan: None,
                    won: None,
                    victims_left_at: None,
                    told: None,
                    beaten_by: None,
                    history_is_old: false,
                    deadline: None,
                }
            )
        };
        self.0.take_if(is_nothing);
    }
}

/// What the reference tells of a Workload that it does not admit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// What lacks.
    Lacks(u64),
    /// Somebody else went first.
    Passed {
        /// They wanted the same victims.
        overlaps: bool,
    },
}

/// For whom a Workload has to leave, and by which right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) preemptor: WorkloadId,
    pub(crate) reason: PreemptionReason,
}

/// Where a search for flavors goes on, as long as the queue's room does not change.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) generation: u64,
    pub(crate) progress: Progress,
}

impl Track {
    /// Whether something may be decided now: no other decision is under way, its object is not known to
    /// have changed, and the API has not just refused.
    pub(crate) fn may_decide(&self) -> bool {
        self.decision.is_none() && self.rare.stale.is_none() && self.waits_after_refusal().is_none()
    }

    /// Whether something could be decided if the change of its object were known.
    pub(crate) fn is_only_stale(&self) -> bool {
        self.decision.is_none() && self.rare.stale.is_some() && self.waits_after_refusal().is_none()
    }

    /// The refusal after which it waits before it is tried again.
    pub(crate) fn waits_after_refusal(&self) -> Option<&Refused> {
        self.rare.refused.as_deref().filter(|refused| refused.retry_at.is_some())
    }

    /// Whether a report may be written now.
    pub(crate) fn may_report(&self) -> bool {
        let waits = self.rare.report_refused.as_ref().is_some_and(|refused| refused.retry_at.is_some());
        self.rare.report.is_none() && self.rare.stale.is_none() && !waits
    }
}

/// Where a Workload waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) queue: QueueId,
    pub(crate) lane: LaneKey,
    pub(crate) rank: u64,
    pub(crate) at: Timestamp,
}

/// What a Workload counts as, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CountedAs {
    pub(crate) local: LocalQueueId,
    pub(crate) cluster: Option<QueueId>,
    pub(crate) counted: Counted,
    pub(crate) holds: Option<Box<Holds>>,
}

/// The quota that a Workload holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holds {
    pub(crate) admission: Arc<Admission>,
    pub(crate) usage: Arc<CellAmounts>,
    pub(crate) key: HolderKey,
    pub(crate) queued_at: Timestamp,
}

/// A write that was decided and has not ended. There may be as many as there are Workloads, so none of them is larger than it
/// has to be.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) id: DecisionId,
    /// The state that it writes.
    pub(crate) state: State,
    /// The version that it was sent on top of.
    pub(crate) sent_on: SentOn,
    /// What it gives of which cell, if it admits.
    usage: Option<Arc<CellAmounts>>,
    /// And of which queue.
    queue: QueueId,
    /// It leaves the state as it is and sets `spec.active` to false.
    pub(crate) deactivates: bool,
    /// Nobody knows how it ended.
    pub(crate) unknown: bool,
}

impl UnderWay {
    pub(crate) fn new(id: DecisionId, state: State, deactivates: bool, grant: Option<Grant>) -> Self {
        let (queue, usage) =
            grant.map_or((QueueId::default(), None), |grant| (grant.queue, Some(grant.usage)));
        Self { id, state, sent_on: SentOn::NOTHING, usage, queue, deactivates, unknown: false }
    }

    /// The quota that it gives, if it admits.
    pub(crate) fn grant(&self) -> Option<Grant> {
        self.usage.as_ref().map(|usage| Grant { queue: self.queue, usage: usage.clone() })
    }
}

/// The version that a write was sent on top of, or that it was not sent yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentOn(u64);

impl SentOn {
    /// It was not sent.
    pub(crate) const NOTHING: Self = Self(u64::MAX);

    pub(crate) fn version(version: u64) -> Self {
        Self(version)
    }

    /// The version, if it was sent.
    pub(crate) fn get(self) -> Option<u64> {
        (self != Self::NOTHING).then_some(self.0)
    }
}

/// Quota that is given.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) queue: QueueId,
    pub(crate) usage: Arc<CellAmounts>,
}

/// A write met a conflict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stale {
    /// The version that it was sent on top of.
    pub(crate) version: u64,
    /// If no newer one is seen by then, there was none: it is tried again on top of the same.
    pub(crate) until: Timestamp,
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
