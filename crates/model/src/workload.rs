//! A Workload: what a Job asks for, and the one state it is in.

use std::sync::Arc;

use crate::checks::CheckAnswers;
use crate::constraints::Constraints;
use crate::fallback::FlavorHistory;
use crate::names::{ClusterQueueName, FlavorName, ObjectName, PodSetName, ResourceName};
use crate::readiness::Timeouts;
use crate::reasons::{
    EvictionReason, FallbackTrigger, FinishReason, PendingReason, PreemptionReason, ReadinessReason,
    RequeueReason,
};
use crate::requests::Requests;
use crate::time::Timestamp;
use crate::uid::Uid;

/// A group of equal pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSet {
    /// Its name.
    pub name: PodSetName,
    /// How many pods.
    pub count: i32,
    /// What one pod asks for.
    pub requests: Requests,
    /// Where its pods may run.
    pub constraints: Arc<Constraints>,
}

/// A Workload as the engine sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its identity.
    pub uid: Uid,
    /// Namespace and name.
    pub name: ObjectName,
    /// The version of the object that this was read from.
    pub version: u64,
    /// The generation of the object, for conditions.
    pub generation: i64,
    /// When it was created.
    pub created: Timestamp,
    /// The LocalQueue, in its own namespace.
    pub queue: Arc<str>,
    /// Higher goes first.
    pub priority: i32,
    /// Whether it may be queued and run at all.
    pub active: bool,
    /// What it asks for.
    pub pod_sets: Arc<[PodSet]>,
    /// What of it keeps it from being queued; hardly any has something of it.
    pub impediments: Option<Box<Impediments>>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The Job that owns it; without one nobody has pods to stop.
    pub owner: Option<Uid>,
    /// Timeouts that its Job sets for itself; hardly any does.
    pub timeouts: Option<Box<Timeouts>>,
    /// Where it is in its life.
    pub state: State,
}

/// What of a Workload keeps it from being queued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Impediments {
    /// Why its specification cannot be used, if so.
    pub invalid: Option<String>,
    /// Admission gates that are still closed.
    pub gates: Vec<String>,
    /// The kind of the object that owns it, where that is none that is started and stopped here.
    pub foreign_owner: Option<String>,
}

impl Impediments {
    /// These, if there are any.
    pub fn new(
        invalid: Option<String>,
        gates: Vec<String>,
        foreign_owner: Option<String>,
    ) -> Option<Box<Self>> {
        let impediments = Self { invalid, gates, foreign_owner };
        (impediments != Self::default()).then(|| Box::new(impediments))
    }
}

impl Workload {
    /// The kind of the object that owns it, where that is none that is started and stopped here: then nobody can make it leave.
    #[inline]
    pub fn foreign_owner(&self) -> Option<&str> {
        self.impediments.as_ref()?.foreign_owner.as_deref()
    }

    /// Whether the other record differs at most in version, generation and state.
    pub fn asks_the_same_as(&self, other: &Self) -> bool {
        let Self { version, generation, state, .. } = self;
        *self == Self { version: *version, generation: *generation, state: state.clone(), ..other.clone() }
    }
}

/// The one state that a Workload is in. Its conditions are a function of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Without quota.
    Pending(Pending),
    /// Quota is set aside; it may start once it is admitted.
    Holding(Reservation),
    /// Told to leave; its quota counts until its pods are gone.
    Evicting(Reservation, Box<Eviction>),
    /// Ended. It holds nothing, whatever it held before.
    Finished(Box<Finish>, Box<State>),
}

impl State {
    /// The state of a Workload that nobody has looked at yet.
    pub fn new() -> Self {
        Self::Pending(Pending::default())
    }

    /// The reservation that counts against quota, if there is one.
    #[inline]
    pub fn reservation(&self) -> Option<&Reservation> {
        match self {
            Self::Holding(reservation) | Self::Evicting(reservation, _) => Some(reservation),
            Self::Pending(_) | Self::Finished(..) => None,
        }
    }

    /// The Workload for which this one was last preempted, as long as that matters: it has to leave, waits
    /// to come back, or has come back since.
    #[inline]
    pub fn preemptor(&self) -> Option<&Uid> {
        match self {
            Self::Pending(pending) => pending.evicted.as_ref()?.preemption.as_ref()?.preemptor.as_ref(),
            Self::Evicting(_, eviction) => eviction.preemption.as_ref()?.preemptor.as_ref(),
            Self::Holding(reservation) => reservation.past_eviction.as_ref()?.preemptor.as_ref(),
            Self::Finished(_, before) => before.preemptor(),
        }
    }

    /// The same once it has left: then it is not late any more.
    pub fn having_left(self) -> Self {
        match self {
            Self::Evicting(reservation, eviction) => {
                Self::Evicting(reservation, Box::new(Eviction { overdue: None, ..*eviction }))
            }
            other => other,
        }
    }

    /// Whether it may run: admitted and not told to leave.
    #[inline]
    pub fn may_run(&self) -> bool {
        matches!(self, Self::Holding(reservation) if reservation.admitted_at.is_some())
    }

    /// How often it was sent back for not being ready, and until when it is not tried.
    pub fn requeue_state(&self) -> Option<&RequeueState> {
        match self {
            Self::Pending(pending) => pending.requeue_state.as_deref(),
            Self::Holding(reservation) | Self::Evicting(reservation, _) => {
                reservation.requeue_state.as_deref()
            }
            Self::Finished(_, before) => before.requeue_state(),
        }
    }

    /// What its admission checks say, or said last.
    pub fn checks(&self) -> Option<&CheckAnswers> {
        match self {
            Self::Pending(pending) => pending.checks.as_deref(),
            Self::Holding(reservation) | Self::Evicting(reservation, _) => reservation.checks.as_deref(),
            Self::Finished(_, before) => before.checks(),
        }
    }

    /// The flavors that it tried since it was last ready.
    #[inline]
    pub fn history(&self) -> Option<&FlavorHistory> {
        match self {
            Self::Pending(pending) => pending.history.as_deref(),
            Self::Holding(reservation) | Self::Evicting(reservation, _) => reservation.history.as_deref(),
            Self::Finished(_, before) => before.history(),
        }
    }

    /// Whether it has ended.
    #[inline]
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Finished(..))
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Without quota.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Why it waits; none until it was evaluated for the first time.
    pub waiting: Option<Waiting>,
    /// The eviction by which it lost its quota, if it ever had some.
    pub evicted: Option<Box<Eviction>>,
    /// Whether it may be queued again after an eviction.
    pub requeued: Option<Requeued>,
    /// How often it was sent back, and until when it is not tried.
    pub requeue_state: Option<Box<RequeueState>>,
    /// What its admission checks said last.
    pub checks: Option<Box<CheckAnswers>>,
    /// The flavors that it tried since it was last ready, where its queue asks for that.
    pub history: Option<Box<FlavorHistory>>,
}

/// How often a Workload was sent back for not being ready, and until when it is not tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequeueState {
    /// How often.
    pub count: u32,
    /// Not to be tried before this time.
    pub requeue_at: Option<Timestamp>,
}

impl RequeueState {
    /// This, if it says anything.
    pub fn noted(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

/// Whether the pods of an admitted Workload are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodsReady {
    /// Whether, and what they wait for.
    pub reason: ReadinessReason,
    /// Since when they are ready, or are not.
    pub at: Timestamp,
    /// How long they may not be, as it was when that was written down; none if for ever.
    pub allowed_seconds: Option<i64>,
}

impl PodsReady {
    /// Until when they have to be ready, as it was when that was written down.
    pub fn until(&self) -> Option<Timestamp> {
        self.allowed_seconds.filter(|_| !self.reason.is_ready()).map(|seconds| self.at.plus_seconds(seconds))
    }
}

/// Why a Workload waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The reason.
    pub reason: PendingReason,
    /// The reason with its numbers.
    pub message: Arc<str>,
    /// Since when it has had no quota.
    pub since: Timestamp,
}

/// An eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Why.
    pub reason: EvictionReason,
    /// The reason in a sentence.
    pub message: String,
    /// When it was told to leave.
    pub at: Timestamp,
    /// For whom, if it was preempted.
    pub preemption: Option<Preemption>,
    /// That it should have left long ago, while it has not and that was said.
    pub overdue: Option<Box<Overdue>>,
}

/// That a Workload which was told to leave should have left long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overdue {
    /// The same in a sentence.
    pub message: String,
    /// When it was said.
    pub at: Timestamp,
}

/// For whom a Workload was preempted, and by which right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preemption {
    /// The Workload that needs the room; none if nobody wrote it down.
    pub preemptor: Option<Uid>,
    /// By which right.
    pub reason: PreemptionReason,
}

/// Whether a Workload may be queued again after an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requeued {
    /// Whether it may.
    pub eligible: bool,
    /// Why, or why not.
    pub reason: RequeueReason,
    /// Since when.
    pub at: Timestamp,
}

/// An eviction that is over: the Workload got quota again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastEviction {
    /// What was said of it.
    pub message: String,
    /// When it got quota again.
    pub over_at: Timestamp,
    /// The Workload that needed the room, if it was preempted.
    pub preemptor: Option<Uid>,
}

/// Quota that is set aside for a Workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Which quota.
    pub admission: Arc<Admission>,
    /// Since when.
    pub reserved_at: Timestamp,
    /// Since when it may run; none while something else has to happen first.
    pub admitted_at: Option<Timestamp>,
    /// The last eviction before it, if there was one.
    pub past_eviction: Option<Box<PastEviction>>,
    /// The last word on queueing again, if there was one.
    pub requeued: Option<Requeued>,
    /// How often it was sent back before, and until when it is not tried if it has to leave now.
    pub requeue_state: Option<Box<RequeueState>>,
    /// Whether its pods are ready; none if that is not written down.
    pub pods_ready: Option<Box<PodsReady>>,
    /// What its admission checks say.
    pub checks: Option<Box<CheckAnswers>>,
    /// The flavors that it tried since it was last ready, where its queue asks for that.
    pub history: Option<Box<FlavorHistory>>,
}

impl Reservation {
    /// What made the Workload give up a flavor that it has now; none if it has given up none of them. Where a check rejected
    /// one, the time of another may have been over as well.
    pub fn gave_up(&self) -> Option<FallbackTrigger> {
        let history = self.history.as_deref()?;
        let flavors = self.admission.flavors().into_iter();
        FallbackTrigger::leading(flavors.filter_map(|flavor| history.find(flavor)?.exhausted))
    }

    /// Whether its pods were not all ready at once since the quota was set aside.
    #[inline]
    pub fn waits_for_start(&self) -> bool {
        let waits = |ready: &PodsReady| ready.reason == ReadinessReason::WaitForStart;
        self.pods_ready.as_deref().is_none_or(waits)
    }

    /// Whether it may run and its pods were not all ready at once since.
    #[inline]
    pub fn is_starting(&self) -> bool {
        self.admitted_at.is_some() && self.waits_for_start()
    }
}

/// Which quota a Workload uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The queue whose quota it is.
    pub cluster_queue: ClusterQueueName,
    /// Per podSet, in the order of the specification.
    pub pod_sets: Arc<[Assignment]>,
}

/// The quota that a podSet uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The podSet.
    pub name: PodSetName,
    /// The flavor of each resource, by resource name.
    pub flavors: Vec<(ResourceName, FlavorName)>,
    /// What all its pods together were given.
    pub usage: Requests,
    /// How many pods are admitted.
    pub count: i32,
    /// How many of them are not needed any more; what they were given is not used.
    pub reclaimed: i32,
}

impl Assignment {
    /// What the pods that are still needed use of a resource.
    pub fn used(&self, resource: &str) -> i64 {
        let given = self.usage.get(resource);
        if self.reclaimed <= 0 || self.count <= 0 {
            return given;
        }
        let (all, needed) = (i128::from(self.count), i128::from(self.count - self.reclaimed.min(self.count)));
        // Rounded up where the pods were not given the same.
        let used = (i128::from(given) * needed + all - 1).div_euclid(all);
        i64::try_from(used).unwrap_or(given)
    }
}

impl Admission {
    /// The distinct flavors, in order of appearance.
    pub fn flavors(&self) -> Vec<&FlavorName> {
        let mut distinct: Vec<&FlavorName> = Vec::new();
        for (_, flavor) in self.pod_sets.iter().flat_map(|p| &p.flavors) {
            if !distinct.contains(&flavor) {
                distinct.push(flavor);
            }
        }
        distinct
    }

    /// Flavor, resource and amount of everything it uses.
    pub fn usage(&self) -> impl Iterator<Item = (&FlavorName, &ResourceName, i64)> {
        self.pod_sets.iter().flat_map(|assignment| {
            assignment
                .flavors
                .iter()
                .map(|(resource, flavor)| (flavor, resource, assignment.used(resource.as_str())))
        })
    }
}

/// How a Workload ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    /// How.
    pub reason: FinishReason,
    /// What the Job said.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignment(given: i64, count: i32, reclaimed: i32) -> Assignment {
        let usage = [("cpu".into(), given)].into_iter().collect();
        let flavors = vec![("cpu".into(), "spot".into())];
        Assignment { name: "main".into(), flavors, usage, count, reclaimed }
    }

    #[test]
    fn pods_that_are_not_needed_any_more_use_nothing() {
        let table = [
            (assignment(4000, 4, 0), 4000),
            (assignment(4000, 4, 2), 2000),
            (assignment(4000, 4, 4), 0),
            (assignment(4000, 4, 9), 0),
            // Not the same for all: rounded up.
            (assignment(1000, 3, 1), 667),
            (assignment(i64::MAX, 2, 1), i64::MAX / 2 + 1),
            (assignment(1000, 0, 1), 1000),
            (assignment(1000, 4, -1), 1000),
        ];
        for (assignment, used) in table {
            let admission = Admission { cluster_queue: "cq".into(), pod_sets: [assignment.clone()].into() };
            let uses: Vec<i64> = admission.usage().map(|(_, _, amount)| amount).collect();
            assert_eq!(uses, [used], "{assignment:?}");
        }
    }
}
