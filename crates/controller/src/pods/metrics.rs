//! Metrics of the pod scheduler, under the reference's names.

use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_placement::framework::PluginId;
use gangway_placement::{ExtensionPoint, Scheduler};
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

/// A request that is sent off the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Binding,
    Condition,
}

impl Call {
    fn as_str(self) -> &'static str {
        match self {
            Self::Binding => "pod_binding",
            Self::Condition => "pod_status_patch",
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

    /// News was taken in, which took so long.
    pub(super) fn handled(&self, event: &'static str, seconds: f64) {
        self.registry.observe(Metric::EventHandling, &[event], seconds);
    }

    /// A request was answered after so long, retries included.
    pub(super) fn called(&self, call: Call, worked: bool, seconds: f64) {
        let labels = [call.as_str(), if worked { "success" } else { "error" }];
        self.registry.count(Metric::AsyncCalls, &labels);
        self.registry.observe(Metric::AsyncDuration, &labels, seconds);
    }

    /// The same for a binding, which is what the plugin does that binds.
    pub(super) fn bind_called(&self, profile: &str, worked: bool, seconds: f64) {
        self.called(Call::Binding, worked, seconds);
        let (point, status) = (ExtensionPoint::Bind.as_str(), if worked { "Success" } else { "Error" });
        self.registry.observe(Metric::ExtensionPoints, &[point, status, profile], seconds);
        let plugin = PluginId::DefaultBinder.as_str();
        self.registry.observe(Metric::PluginDuration, &[plugin, point, status], seconds);
    }

    /// So many requests are under way.
    pub(super) fn pending(&self, call: Call, requests: usize) {
        self.registry.set(Metric::PendingCalls, &[call.as_str()], requests as f64);
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
            set(Metric::QueuedEntities, &[queue, "pod"], pods);
        }
        for ((queue, event), pods) in counts.incoming {
            registry.set(Metric::IncomingPods, &[queue.as_str(), event], pods as f64);
            registry.set(Metric::IncomingEntities, &[queue.as_str(), event, "pod"], pods as f64);
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
        for asked in scheduler.evaluations() {
            let labels = [asked.plugin.as_str(), asked.point.as_str(), asked.profile];
            registry.set(Metric::PluginEvaluations, &labels, asked.attempts as f64);
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
        metrics.handled("NodeAdd", 0.25);
        metrics.bind_called("gangway", true, 0.125);
        metrics.called(Call::Condition, false, 0.5);
        metrics.pending(Call::Binding, 2);
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
            "scheduler_queued_entities{queue=\"backoff\",type=\"pod\"} 0",
            "scheduler_event_handling_duration_seconds_bucket{event=\"NodeAdd\",le=\"0.2048\"} 0",
            "scheduler_event_handling_duration_seconds_sum{event=\"NodeAdd\"} 0.25",
            "scheduler_framework_extension_point_duration_seconds_sum{extension_point=\"Bind\",status=\"Success\",profile=\"gangway\"} 0.125",
            "scheduler_plugin_execution_duration_seconds_count{plugin=\"DefaultBinder\",extension_point=\"Bind\",status=\"Success\"} 1",
            "scheduler_async_api_call_execution_total{call_type=\"pod_binding\",result=\"success\"} 1",
            "scheduler_async_api_call_execution_duration_seconds_sum{call_type=\"pod_status_patch\",result=\"error\"} 0.5",
            "scheduler_pending_async_api_calls{call_type=\"pod_binding\"} 2",
            "scheduler_cache_size{type=\"nodes\"} 0",
            "scheduler_pod_scheduled_after_flush_total 0",
            "gangway_scheduler_writes_total{fate=\"bindings_sent\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
