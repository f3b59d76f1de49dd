//! Metrics of Workloads, under the reference's names.

use std::sync::atomic::AtomicU64;

use gangway_model::Timestamp;
use gangway_model::reasons::{EvictionReason, PreemptionReason, RequeueReason};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whose Workload it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Whose {
    pub(crate) cluster_queue: String,
    pub(crate) priority_class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEviction {
    cluster_queue: String,
    reason: &'static str,
    underlying_cause: &'static str,
    priority_class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReadiness {
    cluster_queue: String,
    reason: &'static str,
    underlying_cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    cluster_queue: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPreemption {
    preempting_cluster_queue: String,
    reason: &'static str,
}

type Count<L> = Family<L, Counter<u64, AtomicU64>>;
type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// How long Workloads wait is measured in these steps, as the reference does: a second, then 2.5 s, doubled twelve times.
fn waits() -> Histogram {
    let doubled = (0..13).map(|power| 2.5 * f64::from(1_u32 << power));
    Histogram::new(std::iter::once(1.0).chain(doubled))
}

/// What happened to Workloads since the controller started.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    ready_wait: Seconds<Whose>,
    admitted_until_ready: Seconds<Whose>,
    ready_to_evicted: Seconds<OfReadiness>,
    eviction_latency: Seconds<OfQueue>,
    evicted: Count<OfEviction>,
    evicted_once: Count<OfEviction>,
    preempted: Count<OfPreemption>,
    requeued: Count<OfQueue>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            ready_wait: Family::new_with_constructor(waits),
            admitted_until_ready: Family::new_with_constructor(waits),
            ready_to_evicted: Family::new_with_constructor(waits),
            eviction_latency: Family::new_with_constructor(waits),
            evicted: Family::default(),
            evicted_once: Family::default(),
            preempted: Family::default(),
            requeued: Family::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let ours = &mut self.registry;
        let help = "Workloads that may be queued again after an eviction, by why";
        ours.register("gangway_requeued_workloads", help, self.requeued.clone());
        let reference = ours.sub_registry_with_prefix("kueue");
        let help = "Seconds from being queued to the first time that all pods were ready";
        reference.register("ready_wait_time_seconds", help, self.ready_wait.clone());
        let help = "Seconds from the admission to the first time that all pods were ready";
        reference.register("admitted_until_ready_wait_time_seconds", help, self.admitted_until_ready.clone());
        let help = "Seconds from when all pods were ready to the eviction";
        reference.register("pods_ready_to_evicted_time_seconds", help, self.ready_to_evicted.clone());
        let help = "Seconds from an eviction to when the quota was given back";
        reference.register("workload_eviction_latency_seconds", help, self.eviction_latency.clone());
        let help = "Workloads that were told to leave";
        reference.register("evicted_workloads", help, self.evicted.clone());
        let help = "Workloads that were told to leave for the first time for this reason and cause";
        reference.register("evicted_workloads_once", help, self.evicted_once.clone());
        let help = "Workloads that were told to leave for another, by the queue of that other";
        reference.register("preempted_workloads", help, self.preempted.clone());
    }

    /// All of them as text, in the form of OpenMetrics.
    pub fn text(&self) -> String {
        let mut all = String::new();
        match text::encode(&mut all, &self.registry) {
            Ok(()) => all,
            Err(_) => unreachable!("a String takes any text"),
        }
    }

    /// All pods of a Workload were ready for the first time since it was queued and admitted.
    pub(crate) fn started(&self, whose: &Whose, queued: Timestamp, admitted: Timestamp, ready: Timestamp) {
        self.ready_wait.get_or_create(whose).observe(seconds(queued, ready));
        self.admitted_until_ready.get_or_create(whose).observe(seconds(admitted, ready));
    }

    /// A Workload was told to leave.
    pub(crate) fn evicted(&self, whose: Whose, reason: EvictionReason, cause: &'static str, is_first: bool) {
        let Whose { cluster_queue, priority_class } = whose;
        let reason = reason.base().as_str();
        let labels = OfEviction { cluster_queue, reason, underlying_cause: cause, priority_class };
        self.evicted.get_or_create(&labels).inc();
        if is_first {
            self.evicted_once.get_or_create(&labels).inc();
        }
    }

    /// A Workload whose pods were ready was told to leave.
    pub(crate) fn evicted_when_ready(
        &self,
        cluster_queue: String,
        (reason, underlying_cause): (EvictionReason, &'static str),
        (ready, evicted): (Timestamp, Timestamp),
    ) {
        let labels = OfReadiness { cluster_queue, reason: reason.base().as_str(), underlying_cause };
        self.ready_to_evicted.get_or_create(&labels).observe(seconds(ready, evicted));
    }

    /// A Workload was told to leave for one of a ClusterQueue, whose name is empty if it is gone.
    pub(crate) fn preempted(&self, preempting_cluster_queue: String, reason: PreemptionReason) {
        let labels = OfPreemption { preempting_cluster_queue, reason: reason.as_str() };
        self.preempted.get_or_create(&labels).inc();
    }

    /// A Workload that was told to leave has left.
    pub(crate) fn released(
        &self,
        cluster_queue: String,
        reason: EvictionReason,
        from: Timestamp,
        to: Timestamp,
    ) {
        let labels = OfQueue { cluster_queue, reason: reason.base().as_str() };
        self.eviction_latency.get_or_create(&labels).observe(seconds(from, to));
    }

    /// A Workload may be queued again.
    pub(crate) fn requeued(&self, cluster_queue: String, reason: RequeueReason) {
        let labels = OfQueue { cluster_queue, reason: reason.as_str() };
        self.requeued.get_or_create(&labels).inc();
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.nanos_since(from).max(0) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_are_those_of_the_reference() {
        let metrics = Metrics::default();
        let whose = Whose { cluster_queue: "cq".to_owned(), priority_class: "high".to_owned() };
        let at = Timestamp::from_seconds;
        metrics.started(&whose, at(0), at(3), at(10));
        for is_first in [true, false] {
            let reason = EvictionReason::DeactivatedDueToRequeuingLimitExceeded;
            metrics.evicted(whose.clone(), reason, "RequeuingLimitExceeded", is_first);
        }
        let text = metrics.text();
        let labels = "cluster_queue=\"cq\",priority_class=\"high\"";
        let evicted = "cluster_queue=\"cq\",reason=\"Deactivated\",underlying_cause=\"RequeuingLimitExceeded\",priority_class=\"high\"";
        for line in [
            format!("kueue_ready_wait_time_seconds_sum{{{labels}}} 10.0"),
            format!("kueue_admitted_until_ready_wait_time_seconds_sum{{{labels}}} 7.0"),
            format!("kueue_ready_wait_time_seconds_bucket{{le=\"5.0\",{labels}}} 0"),
            format!("kueue_ready_wait_time_seconds_bucket{{le=\"10240.0\",{labels}}} 1"),
            format!("kueue_evicted_workloads_total{{{evicted}}} 2"),
            format!("kueue_evicted_workloads_once_total{{{evicted}}} 1"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
