//! Metrics of the pod scheduler, under the reference's names.

use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_placement::Scheduler;
use tokio::time::Instant;

use crate::metrics::{Metric, Registry};

/// From so many attempts on they are not told apart.
const MANY_ATTEMPTS: u32 = 15;

/// What it took to find a node for a pod.
#[derive(Clone, Debug)]
pub(super) struct Effort {
    /// When this attempt began.
    pub(super) began: Instant,
    /// How often the pod was tried, with this time.
    pub(super) attempts: u32,
    /// When it could be tried for the first time.
    pub(super) first_active_at: Timestamp,
    /// The scheduler that it asked for.
    pub(super) profile: Arc<str>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Scheduled,
    Unschedulable,
    Error,
}

impl AttemptEnd {
    fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

/// What happened to pods since the scheduler started, and where they are.
#[derive(Debug, Default)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    /// All of them, for machines.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A node was looked for, which took so long.
    pub(super) fn looked(&self, seconds: f64) {
        self.registry.observe(Metric::AlgorithmDuration, &[], seconds);
    }

    /// An attempt ended without a binding that landed.
    pub(super) fn failed(&self, end: AttemptEnd, profile: &str, seconds: f64) {
        let labels = [end.as_str(), profile];
        self.registry.count(Metric::ScheduleAttempts, &labels);
        self.registry.observe(Metric::ScheduleAttemptDuration, &labels, seconds);
    }

    /// A pod has its node.
    pub(super) fn bound(&self, effort: &Effort, now: Timestamp) {
        self.failed(AttemptEnd::Scheduled, &effort.profile, effort.began.elapsed().as_secs_f64());
        let attempts = match effort.attempts {
            many if many >= MANY_ATTEMPTS => format!("{MANY_ATTEMPTS}+"),
            few => few.to_string(),
        };
        let waited = now.nanos_since(effort.first_active_at).max(0) as f64 / 1e9;
        self.registry.observe(Metric::SliDuration, &[&attempts], waited);
        self.registry.observe(Metric::PodAttempts, &[], f64::from(effort.attempts));
    }

    /// Pods have to go for another.
    pub(super) fn preempting(&self, victims: usize) {
        self.registry.observe(Metric::PreemptionVictims, &[], victims as f64);
    }

    /// Takes over what the scheduler counts by itself.
    pub(super) fn observe(&self, scheduler: &Scheduler) {
        let counts = scheduler.queue().counts();
        let registry = &self.registry;
        let set = |metric, labels: &[&str], value: usize| registry.set(metric, labels, value as f64);
        let parts = [
            ("active", counts.active),
            ("backoff", counts.backoff),
            ("unschedulable", counts.unschedulable),
            ("gated", counts.gated),
        ];
        for (queue, pods) in parts {
            set(Metric::PendingPods, &[queue], pods);
        }
        for ((queue, event), pods) in counts.incoming {
            registry.set(Metric::IncomingPods, &[queue.as_str(), event], pods as f64);
        }
        registry.clear(Metric::InFlightEvents);
        for (event, kept) in counts.in_flight_events {
            set(Metric::InFlightEvents, &[event], kept);
        }
        let census = scheduler.census();
        registry.clear(Metric::UnschedulablePods);
        for ((plugin, profile), pods) in census.unschedulable {
            set(Metric::UnschedulablePods, &[plugin.as_str(), profile], pods);
        }
        let known = [("nodes", census.nodes), ("pods", census.pods), ("assumed_pods", census.assumed_pods)];
        for (kind, known) in known {
            set(Metric::CacheSize, &[kind], known);
        }
        registry.set(Metric::AfterFlush, &[], counts.rescued_by_flush as f64);
        registry.set(Metric::PreemptionAttempts, &[], scheduler.work().preemptions as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::super::counts::BindCounts;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_and_labels_are_those_of_the_reference() {
        let counts = BindCounts::default();
        let metrics = counts.metrics();
        let at = Timestamp::from_seconds;
        let (began, profile) = (Instant::now(), "gangway".into());
        let effort = Effort { began, attempts: 2, first_active_at: at(1), profile };
        metrics.bound(&effort, at(4));
        metrics.failed(AttemptEnd::Unschedulable, "gangway", 0.5);
        metrics.preempting(3);
        metrics.observe(&Scheduler::new(gangway_placement::Options::default()));
        counts.bindings_sent();
        counts.publish();
        let text = metrics.registry().text();
        for line in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"gangway\"} 1",
            "scheduler_schedule_attempts_total{result=\"unschedulable\",profile=\"gangway\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_sum{result=\"unschedulable\",profile=\"gangway\"} 0.5",
            "scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"} 3",
            "scheduler_pod_scheduling_attempts_sum 2",
            "scheduler_preemption_victims_sum 3",
            "scheduler_preemption_attempts_total 0",
            "scheduler_pending_pods{queue=\"gated\"} 0",
            "scheduler_cache_size{type=\"nodes\"} 0",
            "scheduler_pod_scheduled_after_flush_total 0",
            "gangway_scheduler_writes_total{fate=\"bindings_sent\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
