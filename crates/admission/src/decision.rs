//! What the engine wants done.

use std::fmt;
use std::sync::Arc;

use gangway_model::reasons::{EvictionReason, FinishReason, PendingReason, ReadinessReason, RequeueReason};
use gangway_model::workload::{Admission, Preemption, State};
use gangway_model::{ObjectName, Uid};

/// Tells decisions apart, in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecisionId(pub u64);

/// One thing to do to one Workload. The executor has no choice: it writes [`PendingWrite::state`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a decision that is not carried out leaves its booking assumed for ever"]
pub struct Decision {
    /// Its id, by which the outcome is reported.
    pub id: DecisionId,
    /// The Workload.
    pub uid: Uid,
    /// The Workload's name.
    pub name: ObjectName,
    /// What to do.
    pub action: Action,
}

/// What to do to a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Set quota aside and let it start.
    Admit(Arc<Admission>),
    /// Set quota aside; its admission checks have to agree before it may start.
    Reserve(Arc<Admission>),
    /// Let it start on the quota that was set aside.
    LetStart(Arc<Admission>),
    /// Ask other admission checks than before, or none.
    AskChecks,
    /// It has given up every flavor: try all of them again after a while.
    RetryAllFlavors,
    /// It asks for something else than before: forget which flavors it tried.
    ForgetHistory,
    /// Tell it to leave, and for whom if it is preempted.
    Evict(EvictionReason, Option<Preemption>),
    /// Write down whether the pods of somebody who may run are ready; none if nobody asks any more.
    PodsReady(Option<ReadinessReason>),
    /// Set `spec.active` to false: it was told to leave and may not be queued again by itself.
    Deactivate,
    /// Say that it should have left long ago.
    ReportOverdue,
    /// Its pods are gone: take its quota back.
    Release(EvictionReason),
    /// Let it be queued again.
    Requeue(RequeueReason),
    /// Record that it has ended.
    Finish(FinishReason),
    /// Say why it waits. May be dropped when there is more important work.
    ReportWaiting(PendingReason),
}

impl Action {
    /// Whether it only informs, and may be late or dropped.
    pub fn is_diagnostic(&self) -> bool {
        matches!(self, Self::ReportWaiting(_))
    }
}

/// What a decision comes to at the moment at which it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWrite {
    /// The version of the object that it is based on: the write's precondition.
    pub version: u64,
    /// The generation of the object, for conditions.
    pub generation: i64,
    /// The state to write.
    pub state: State,
    /// Nothing of the state is written, but `spec.active` is set to false.
    pub deactivates: bool,
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} {} ", self.id.0, self.name)?;
        match &self.action {
            Action::Admit(admission) | Action::Reserve(admission) | Action::LetStart(admission) => {
                let flavors: Vec<&str> = admission.flavors().iter().map(|flavor| flavor.as_str()).collect();
                let verb = match self.action {
                    Action::Reserve(_) => "reserve",
                    Action::LetStart(_) => "let start",
                    _ => "admit",
                };
                write!(f, "{verb} in {} on {}", admission.cluster_queue, flavors.join(", "))
            }
            Action::AskChecks => write!(f, "ask other checks"),
            Action::RetryAllFlavors => write!(f, "retry all flavors"),
            Action::ForgetHistory => write!(f, "forget what was tried"),
            Action::Evict(_, Some(preemption)) => {
                let preemptor = preemption.preemptor.as_ref().map_or("somebody".into(), Uid::to_string);
                write!(f, "evict: {} for {preemptor}", preemption.reason)
            }
            Action::Evict(reason, None) => write!(f, "evict: {reason}"),
            Action::PodsReady(Some(reason)) => write!(f, "pods: {reason}"),
            Action::PodsReady(None) => write!(f, "pods: nobody asks"),
            Action::Deactivate => write!(f, "deactivate"),
            Action::ReportOverdue => write!(f, "should have left"),
            Action::Release(reason) => write!(f, "release after {reason}"),
            Action::Requeue(reason) => write!(f, "requeue: {reason}"),
            Action::Finish(reason) => write!(f, "finish: {reason}"),
            Action::ReportWaiting(reason) => write!(f, "waits: {reason}"),
        }
    }
}
