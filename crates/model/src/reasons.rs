//! The reason vocabulary: closed enums whose tokens stand in conditions, Events, metrics, the CLI and
//! `docs/reasons.md` alike.

use std::fmt;

/// What the documentation says about a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonDoc {
    /// The token as it stands in a condition.
    pub token: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What ends it; empty where it is a fact about the past.
    pub ends_when: &'static str,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $type:ident { $($token:ident: $meaning:literal, $ends:literal;)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type {
            $(#[doc = $meaning] $token,)*
        }

        impl $type {
            /// All of them, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$token),*];

            /// The token as it stands in a condition.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$token => stringify!($token),)* }
            }

            /// Reads a token; none if it is not of this vocabulary.
            pub fn parse(token: &str) -> Option<Self> {
                match token { $(stringify!($token) => Some(Self::$token),)* _ => None }
            }

            /// What the documentation says about it.
            pub const fn doc(self) -> ReasonDoc {
                match self {
                    $(Self::$token => ReasonDoc {
                        token: stringify!($token), meaning: $meaning, ends_when: $ends,
                    },)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}

reasons! {
    /// Why a Workload has no quota: the reason of `QuotaReserved=False`. Every wait has one.
    PendingReason {
        NoMatchingFlavor: "No flavor of the queue suits the pods: node selector, affinity or taints exclude every one.",
            "The queue's flavors or their labels and taints change, or the Job does.";
        ExceedsMaxQuota: "The request is larger than the queue could ever give.",
            "The quota is raised or the Job asks for less; until then it is not tried again.";
        WaitingForQuota: "Suitable quota exists but is in use, or another Workload goes first.",
            "A Workload of the queue finishes or leaves, or the quota is raised.";
        WaitingForPreemptedWorkloads: "Room is being made: Workloads chosen to leave still hold it.",
            "The preempted Workloads' pods are gone.";
        Misconfigured: "The queue does not exist or goes away, the namespace is not selected, or the pods' requests are invalid.",
            "The object that the message names is created or mended.";
        Suspended: "The LocalQueue or ClusterQueue is stopped or not active.",
            "The queue is resumed or becomes active.";
        WaitingForPodsReady: "Another Workload is starting and admission is sequential.",
            "That Workload's pods are ready or it is evicted.";
        PendingEvaluation: "In the queue and not evaluated yet, or it has just lost its reservation.",
            "The next evaluation, at once.";
        AdmissionGated: "An admission gate is closed: somebody asked to wait for their approval.",
            "The annotation that names the gates is emptied.";
        OnHold: "The integration gave the quota back on purpose.",
            "The integration asks for it again.";
        Deactivated: "The Workload is not active (`spec.active: false`).",
            "`spec.active` is set to true.";
    }

    /// Why a Workload with quota has to leave: the reason of `Evicted=True`.
    EvictionReason {
        Preempted: "Its quota is reclaimed or needed by a higher priority.", "";
        NodeFailures: "Its nodes failed and no replacement was found.", "";
        PodsReadyTimeout: "Its pods did not become ready in time.", "";
        AdmissionCheck: "An admission check asked to try again later.", "";
        ClusterQueueStopped: "The ClusterQueue is drained (`stopPolicy: HoldAndDrain`).", "";
        LocalQueueStopped: "The LocalQueue is drained (`stopPolicy: HoldAndDrain`).", "";
        Deactivated: "A user set `spec.active: false`.", "";
        DeactivatedDueToRequeuingLimitExceeded: "Its pods did not become ready in time, too often.", "";
        DeactivatedDueToMaximumExecutionTimeExceeded: "It ran longer than it may.", "";
        DeactivatedDueToAdmissionCheck: "An admission check rejected it.", "";
        DeactivatedDueToFlavorFallbackExhausted: "Its machines did not come in any flavor.", "";
        FlavorFallback: "Its machines did not come in time; another flavor is tried.", "";
    }

    /// By which right a Workload was preempted: the reason of `Preempted=True`.
    PreemptionReason {
        InClusterQueue: "A Workload of the same ClusterQueue with a higher priority, or of the same and older, needs its quota.", "";
        InCohortReclamation: "It used quota that another ClusterQueue of the cohort had lent and takes back.", "";
        InCohortReclaimWhileBorrowing: "A Workload of another ClusterQueue with a higher priority borrows the quota that it had borrowed.", "";
        InCohortFairSharing: "Its ClusterQueue used more than its fair share of what is borrowed.", "";
    }

    /// Why a Workload may or may not be queued again after an eviction: the reason of `Requeued`.
    RequeueReason {
        Preempted: "It was preempted and is back at its place in the queue.", "";
        NodeFailures: "Its nodes failed and it is back in the queue.", "";
        PodsReadyTimeout: "It waits out its backoff.", "The backoff is over.";
        AdmissionCheck: "An admission check asked to wait.", "The delay that the check asked for is over.";
        ClusterQueueStopped: "The ClusterQueue is stopped.", "The ClusterQueue is resumed.";
        LocalQueueStopped: "The LocalQueue is stopped.", "The LocalQueue is resumed.";
        Deactivated: "A user deactivated it.", "`spec.active` is set to true.";
        DeactivatedDueToRequeuingLimitExceeded: "Gangway deactivated it: not ready in time, too often.", "`spec.active` is set to true.";
        DeactivatedDueToMaximumExecutionTimeExceeded: "Gangway deactivated it: it ran longer than it may.", "`spec.active` is set to true.";
        DeactivatedDueToAdmissionCheck: "Gangway deactivated it: an admission check rejected it.", "`spec.active` is set to true.";
        DeactivatedDueToFlavorFallbackExhausted: "Gangway deactivated it: no flavor had machines.", "`spec.active` is set to true.";
        FlavorFallback: "Another flavor is tried.", "";
        BackoffFinished: "Its backoff is over.", "";
        ClusterQueueRestarted: "The ClusterQueue was resumed.", "";
        LocalQueueRestarted: "The LocalQueue was resumed.", "";
        Reactivated: "It was activated again.", "";
    }

    /// Whether the pods of an admitted Workload are ready: the reason of `PodsReady`.
    ReadinessReason {
        WaitForStart: "Not all pods were ready at once since the Workload was admitted.", "All pods are ready, or the start timeout is over.";
        Started: "All pods are ready.", "A pod stops being ready.";
        WaitForRecovery: "All pods were ready, and one is not any more.", "All pods are ready again, or the recovery timeout is over.";
        Recovered: "All pods are ready again.", "A pod stops being ready.";
    }

    /// What makes a Workload give up a flavor: `trigger` in `status.flavorAssignmentHistory`, and the cause of an eviction.
    FallbackTrigger {
        TimeoutForPodsReadyExceeded: "Not all pods were ready before the flavor's time was over, admission checks included.", "";
        AdmissionCheckRejected: "An admission check rejected the flavor.", "";
    }

    /// What an admission check says of a Workload: `state` in `status.admissionChecks`.
    CheckState {
        Pending: "It has not answered yet.", "The check answers, or the time of a flavor is over.";
        Ready: "It agrees.", "";
        Retry: "The Workload gives its quota back and is tried again later.", "";
        Rejected: "It does not agree: the Workload is deactivated, or falls back to another flavor.", "";
    }

    /// How a Workload ended: the reason of `Finished=True`.
    FinishReason {
        Succeeded: "The Job completed.", "";
        Failed: "The Job failed.", "";
        OutOfSync: "The Workload no longer describes the Job that it was made for.", "";
        OwnerNotFound: "The Job that owned the Workload is gone.", "";
        FailedToStart: "The Job cannot be started: what the flavor injects contradicts its template.", "";
        WorkloadSliceReplaced: "A newer slice of the same Job took its place.", "";
    }

    /// Whether a ClusterQueue admits: the reason of its `Active` condition.
    ClusterQueueReason {
        Ready: "It admits Workloads.", "";
        Terminating: "It is being deleted and waits for its Workloads to end.", "Its last Workload ends.";
        Stopped: "Its stop policy is Hold or HoldAndDrain.", "`stopPolicy` is None.";
        FlavorNotFound: "It names a ResourceFlavor that does not exist.", "The ResourceFlavor is created.";
        NotSupported: "It asks for something that would change who is admitted, and that Gangway does not do yet; the message names the field and what to do.", "The setting is removed.";
        CohortCycle: "Its cohort is its own ancestor.", "One of the cohorts gets another parent.";
        AdmissionCheckNotFound: "It names an AdmissionCheck that does not exist.", "The AdmissionCheck is created.";
        AdmissionCheckInactive: "It names an AdmissionCheck that no controller answers.", "The check becomes active or is removed from the queue.";
        Unknown: "Its definition cannot be used; the message says why.", "The definition is mended.";
    }

    /// Whether a LocalQueue passes Workloads on: the reason of its `Active` condition.
    LocalQueueReason {
        Ready: "It passes Workloads to its ClusterQueue.", "";
        Stopped: "Its stop policy is Hold or HoldAndDrain.", "`stopPolicy` is None.";
        ClusterQueueDoesNotExist: "Its ClusterQueue does not exist.", "The ClusterQueue is created.";
        ClusterQueueIsInactive: "Its ClusterQueue does not admit.", "The ClusterQueue becomes active.";
    }

    /// The reasons of Events that are not the reason of a condition.
    EventReason {
        QuotaReserved: "On a Workload: quota is set aside, and its admission checks are asked.", "";
        Admitted: "On a Workload: it may start.", "";
        AdmissionGated: "On a Workload: it is not queued before those whom the message names have approved.", "The annotation that names the gates is emptied.";
        AdmissionGateCleared: "On a Workload: the last of those who had to approve has done so.", "";
        AdmissionCheckRejected: "On a Workload: an admission check rejected it; the message says which, and what comes of it.", "";
        PreemptedWorkload: "On a Workload: another one has to leave for it; the message says which, and by which right.", "";
        EvictionOverdue: "On a Workload and its Job: the Workload was told to leave long ago, and pods of it are left; the message says how many.", "The pods are gone; the quota counts until then.";
        Started: "On a Job: it was unsuspended on the flavor that the message names.", "";
        Suspended: "On a Job: it ran without admission and was suspended.", "";
        Stopped: "On a Job: it was suspended because its Workload lost its quota.", "";
        UpdatedWorkload: "On a Job: its Workload was changed to follow it.", "";
        DeletedWorkload: "On a Job: a Workload that no longer describes it was deleted.", "";
        WorkloadPriorityClassNotFound: "On a Job: the WorkloadPriorityClass that it names does not exist.", "The class is created.";
        WriteRefused: "On a Job: the API server refuses what the Job needs; the message says why.", "The API server accepts it.";
        UnsupportedKind: "On an object with a queue name whose kind is not supported yet.", "";
        UnsupportedSetting: "On a queue, flavor or Workload: a setting that it asks for has no effect yet.", "";
        UnsupportedJob: "On a Job with a queue name that asks for something not supported yet.", "";
    }
}

impl EvictionReason {
    /// Whether somebody has to set `spec.active` before the Workload may be queued again.
    pub const fn is_deactivation(self) -> bool {
        matches!(
            self,
            Self::Deactivated
                | Self::DeactivatedDueToRequeuingLimitExceeded
                | Self::DeactivatedDueToMaximumExecutionTimeExceeded
                | Self::DeactivatedDueToAdmissionCheck
                | Self::DeactivatedDueToFlavorFallbackExhausted
        )
    }

    /// The reason under which it is counted: all deactivations are counted as one.
    pub const fn base(self) -> Self {
        if self.is_deactivation() { Self::Deactivated } else { self }
    }

    /// What is behind the reason under which it is counted, or empty. Who was not ready in time is counted by what its
    /// pods waited for, who falls back by what made it give up its flavor.
    pub fn underlying_cause(
        self,
        waited_for: Option<ReadinessReason>,
        gave_up: Option<FallbackTrigger>,
    ) -> &'static str {
        match self {
            Self::PodsReadyTimeout => {
                waited_for.filter(|reason| !reason.is_ready()).map_or("", ReadinessReason::as_str)
            }
            Self::FlavorFallback => gave_up.map_or("", FallbackTrigger::as_str),
            other => other.as_str().strip_prefix("DeactivatedDueTo").unwrap_or_default(),
        }
    }

    /// Whether it is Gangway that sets `spec.active` to false, and not a user.
    pub fn deactivates(self) -> bool {
        self.is_deactivation() && self != Self::Deactivated
    }

    /// Whether the Workload may be queued again at once when it has left.
    pub const fn requeues_at_once(self) -> bool {
        matches!(self, Self::Preempted | Self::NodeFailures | Self::FlavorFallback)
    }

    /// The reason of the `Requeued` condition that is written when the Workload has left.
    pub const fn requeue_reason(self) -> RequeueReason {
        match self {
            Self::Preempted => RequeueReason::Preempted,
            Self::NodeFailures => RequeueReason::NodeFailures,
            Self::PodsReadyTimeout => RequeueReason::PodsReadyTimeout,
            Self::AdmissionCheck => RequeueReason::AdmissionCheck,
            Self::ClusterQueueStopped => RequeueReason::ClusterQueueStopped,
            Self::LocalQueueStopped => RequeueReason::LocalQueueStopped,
            Self::Deactivated => RequeueReason::Deactivated,
            Self::DeactivatedDueToRequeuingLimitExceeded => {
                RequeueReason::DeactivatedDueToRequeuingLimitExceeded
            }
            Self::DeactivatedDueToMaximumExecutionTimeExceeded => {
                RequeueReason::DeactivatedDueToMaximumExecutionTimeExceeded
            }
            Self::DeactivatedDueToAdmissionCheck => RequeueReason::DeactivatedDueToAdmissionCheck,
            Self::DeactivatedDueToFlavorFallbackExhausted => {
                RequeueReason::DeactivatedDueToFlavorFallbackExhausted
            }
            Self::FlavorFallback => RequeueReason::FlavorFallback,
        }
    }
}

impl ReadinessReason {
    /// Whether it means that all pods are ready.
    pub const fn is_ready(self) -> bool {
        matches!(self, Self::Started | Self::Recovered)
    }
}

impl RequeueReason {
    /// Whether Gangway had deactivated it, and not a user.
    pub fn is_deactivation_by_gangway(self) -> bool {
        self.is_deactivation() && self != Self::Deactivated
    }

    /// Whether somebody has to set `spec.active` before it ends.
    pub fn is_deactivation(self) -> bool {
        self.as_str().starts_with("Deactivated")
    }
}

impl FallbackTrigger {
    /// Of several for which flavors are given up at once, the one that leads: where a check rejects a flavor, the time of others
    /// may happen to be over.
    pub fn leading(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|one, other| if one == Self::AdmissionCheckRejected { one } else { other })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back() {
        for reason in PendingReason::ALL {
            assert_eq!(PendingReason::parse(reason.as_str()), Some(*reason));
            assert!(!reason.doc().ends_when.is_empty(), "{reason}: every wait has a waker");
        }
        assert_eq!(PendingReason::parse("Nonsense"), None);
    }

    #[test]
    fn a_check_that_rejects_leads_before_a_time_that_is_over() {
        use FallbackTrigger::{AdmissionCheckRejected, TimeoutForPodsReadyExceeded};
        let leading = |all: &[FallbackTrigger]| FallbackTrigger::leading(all.iter().copied());
        assert_eq!(leading(&[]), None);
        assert_eq!(leading(&[TimeoutForPodsReadyExceeded]), Some(TimeoutForPodsReadyExceeded));
        for mixed in [
            [TimeoutForPodsReadyExceeded, AdmissionCheckRejected],
            [AdmissionCheckRejected, TimeoutForPodsReadyExceeded],
        ] {
            assert_eq!(leading(&mixed), Some(AdmissionCheckRejected));
        }
    }

    #[test]
    fn an_eviction_requeues_under_its_own_name() {
        for reason in EvictionReason::ALL {
            assert_eq!(reason.requeue_reason().as_str(), reason.as_str());
        }
    }

    #[test]
    fn an_eviction_is_counted_under_its_base_and_cause() {
        use EvictionReason::{Deactivated, DeactivatedDueToAdmissionCheck, Preempted};
        let counted = [Preempted, Deactivated, DeactivatedDueToAdmissionCheck]
            .map(|reason| (reason.base(), reason.underlying_cause(None, None)));
        assert_eq!(counted, [(Preempted, ""), (Deactivated, ""), (Deactivated, "AdmissionCheck")]);
        let cause = |waited| EvictionReason::PodsReadyTimeout.underlying_cause(waited, None);
        assert_eq!(cause(Some(ReadinessReason::WaitForRecovery)), "WaitForRecovery");
        assert_eq!((cause(Some(ReadinessReason::Started)), cause(None)), ("", ""));
    }
}
