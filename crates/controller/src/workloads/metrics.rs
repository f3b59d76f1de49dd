//! What happened to Workloads, counted under the reference's names: once for their ClusterQueue and, where that is wanted,
//! once for their LocalQueue.

use gangway_model::Timestamp;
use gangway_model::reasons::{EvictionReason, PreemptionReason, RequeueReason};

use crate::metrics::{Metric, Registry};

/// Whose Workload it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Whose<'a> {
    pub(crate) cluster_queue: &'a str,
    pub(crate) priority_class: &'a str,
    /// Name and namespace of its LocalQueue, if that is counted for.
    pub(crate) local_queue: Option<(&'a str, &'a str)>,
}

/// A metric of ClusterQueues with the one of LocalQueues.
type Pair = (Metric, Metric);

impl Whose<'_> {
    fn count(self, registry: &Registry, (cluster, local): Pair) {
        registry.count(cluster, &[self.cluster_queue, self.priority_class]);
        if let Some((name, namespace)) = self.local_queue {
            registry.count(local, &[name, namespace, self.priority_class]);
        }
    }

    fn observe(
        self,
        registry: &Registry,
        (cluster, local): Pair,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) {
        let Some((from, to)) = from.zip(to) else { return };
        let seconds = seconds(from, to);
        registry.observe(cluster, &[self.cluster_queue, self.priority_class], seconds);
        if let Some((name, namespace)) = self.local_queue {
            registry.observe(local, &[name, namespace, self.priority_class], seconds);
        }
    }
}

/// When things happened to a Workload, as far as they did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) queued: Option<Timestamp>,
    pub(crate) reserved: Option<Timestamp>,
    pub(crate) admitted: Option<Timestamp>,
    pub(crate) ready: Option<Timestamp>,
}

/// Quota was reserved for a Workload.
pub(crate) fn reserved(registry: &Registry, whose: Whose<'_>, times: Times) {
    whose.count(registry, (Metric::QuotaReservedWorkloads, Metric::LocalQuotaReserved));
    let pair = (Metric::QuotaReservedWait, Metric::LocalQuotaReservedWait);
    whose.observe(registry, pair, times.queued, times.reserved);
}

/// A Workload was admitted.
pub(crate) fn admitted(registry: &Registry, whose: Whose<'_>, times: Times) {
    whose.count(registry, (Metric::AdmittedWorkloads, Metric::LocalAdmitted));
    let pair = (Metric::AdmissionWait, Metric::LocalAdmissionWait);
    whose.observe(registry, pair, times.queued, times.admitted);
    let pair = (Metric::AdmissionChecksWait, Metric::LocalChecksWait);
    whose.observe(registry, pair, times.reserved, times.admitted);
}

/// All pods of a Workload were ready for the first time since it was queued and admitted.
pub(crate) fn started(registry: &Registry, whose: Whose<'_>, times: Times) {
    whose.observe(registry, (Metric::ReadyWait, Metric::LocalReadyWait), times.queued, times.ready);
    let pair = (Metric::AdmittedUntilReady, Metric::LocalAdmittedUntilReady);
    whose.observe(registry, pair, times.admitted, times.ready);
}

/// A Workload ended, after it had run before for so many seconds.
pub(crate) fn finished(
    registry: &Registry,
    whose: Whose<'_>,
    (admitted, ended): (Option<Timestamp>, Option<Timestamp>),
    past_seconds: i64,
) {
    whose.count(registry, (Metric::FinishedWorkloads, Metric::LocalFinished));
    let began = admitted.map(|at| at.plus_seconds(-past_seconds));
    whose.observe(registry, (Metric::ExecutionTime, Metric::LocalExecutionTime), began, ended);
}

/// A Workload was told to leave.
pub(crate) fn evicted(
    registry: &Registry,
    whose: Whose<'_>,
    reason: EvictionReason,
    cause: &'static str,
    is_first: bool,
) {
    let Whose { cluster_queue, priority_class, local_queue } = whose;
    let reason = reason.base().as_str();
    let labels = [cluster_queue, reason, cause, priority_class];
    registry.count(Metric::EvictedWorkloads, &labels);
    if is_first {
        registry.count(Metric::EvictedWorkloadsOnce, &labels);
    }
    if let Some((name, namespace)) = local_queue {
        registry.count(Metric::LocalEvicted, &[name, namespace, reason, cause, priority_class]);
    }
}

/// A Workload whose pods were ready was told to leave.
pub(crate) fn evicted_when_ready(
    registry: &Registry,
    cluster_queue: &str,
    (reason, cause): (EvictionReason, &'static str),
    (ready, evicted): (Timestamp, Timestamp),
) {
    let labels = [cluster_queue, reason.base().as_str(), cause];
    registry.observe(Metric::ReadyToEvicted, &labels, seconds(ready, evicted));
}

/// A Workload was told to leave for one of a ClusterQueue, whose name is empty if it is gone.
pub(crate) fn preempted(registry: &Registry, preempting_cluster_queue: &str, reason: PreemptionReason) {
    registry.count(Metric::PreemptedWorkloads, &[preempting_cluster_queue, reason.as_str()]);
}

/// A Workload that was told to leave has left.
pub(crate) fn released(
    registry: &Registry,
    cluster_queue: &str,
    reason: EvictionReason,
    (told, left): (Timestamp, Timestamp),
) {
    registry.observe(Metric::EvictionLatency, &[cluster_queue, reason.base().as_str()], seconds(told, left));
}

/// A Workload may be queued again.
pub(crate) fn requeued(registry: &Registry, cluster_queue: &str, reason: RequeueReason) {
    registry.count(Metric::Requeued, &[cluster_queue, reason.as_str()]);
}

pub(crate) fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.nanos_since(from).max(0) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_of_the_reference() {
        let registry = Registry::default();
        let whose = Whose { cluster_queue: "cq", priority_class: "high", local_queue: Some(("lq", "ns")) };
        let at = |seconds| Some(Timestamp::from_seconds(seconds));
        let times = Times { queued: at(0), reserved: at(2), admitted: at(3), ready: at(10) };
        reserved(&registry, whose, times);
        admitted(&registry, whose, times);
        started(&registry, whose, times);
        for is_first in [true, false] {
            let reason = EvictionReason::DeactivatedDueToRequeuingLimitExceeded;
            evicted(&registry, whose, reason, "RequeuingLimitExceeded", is_first);
        }
        finished(&registry, whose, (at(3), at(60)), 40);
        let text = registry.text();
        let role = "replica_role=\"standalone\"";
        let labels = format!("cluster_queue=\"cq\",priority_class=\"high\",{role}");
        let local = format!("name=\"lq\",namespace=\"ns\",priority_class=\"high\",{role}");
        let evicted = format!(
            "cluster_queue=\"cq\",reason=\"Deactivated\",underlying_cause=\"RequeuingLimitExceeded\",priority_class=\"high\",{role}"
        );
        for line in [
            format!("kueue_quota_reserved_wait_time_seconds_sum{{{labels}}} 2"),
            format!("kueue_admission_wait_time_seconds_sum{{{labels}}} 3"),
            format!("kueue_admission_checks_wait_time_seconds_sum{{{labels}}} 1"),
            format!("kueue_ready_wait_time_seconds_sum{{{labels}}} 10"),
            format!("kueue_admitted_until_ready_wait_time_seconds_sum{{{labels}}} 7"),
            format!("kueue_evicted_workloads_total{{{evicted}}} 2"),
            format!("kueue_evicted_workloads_once_total{{{evicted}}} 1"),
            format!("kueue_execution_time_seconds_sum{{{labels}}} 97"),
            format!("kueue_local_queue_admitted_workloads_total{{{local}}} 1"),
            format!("kueue_local_queue_ready_wait_time_seconds_sum{{{local}}} 10"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
