//! Metrics of the pod scheduler, under the reference's names.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use gangway_model::Timestamp;
use gangway_placement::Scheduler;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::counts::{BindCounts, BindCountsSnapshot};
use crate::endpoints::Page;

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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfAttempt {
    result: &'static str,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Attempts {
    attempts: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfQueue {
    queue: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMove {
    queue: &'static str,
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPlugin {
    plugin: &'static str,
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEvent {
    event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfType {
    r#type: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFate {
    fate: &'static str,
}

type Count = Counter<u64, AtomicU64>;
type Level<L> = Family<L, Gauge<i64, AtomicI64>>;
type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// From a millisecond, doubled 14 times.
fn attempt_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 15))
}

fn sli_seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.01, 2.0, 20))
}

/// What happened to pods since the scheduler started, and where they are.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    attempts: Family<OfAttempt, Count>,
    attempt_duration: Seconds<OfAttempt>,
    algorithm_duration: Histogram,
    sli_duration: Seconds<Attempts>,
    attempts_until_scheduled: Histogram,
    pending: Level<OfQueue>,
    incoming: Family<OfMove, Count>,
    unschedulable: Level<OfPlugin>,
    in_flight_events: Level<OfEvent>,
    preemption_attempts: Count,
    victims: Histogram,
    cache_size: Level<OfType>,
    after_flush: Count,
    writes: Family<OfFate, Count>,
    /// Whether the first lists are still being read.
    is_starting: AtomicBool,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            attempts: Family::default(),
            attempt_duration: Family::new_with_constructor(attempt_seconds),
            algorithm_duration: attempt_seconds(),
            sli_duration: Family::new_with_constructor(sli_seconds),
            attempts_until_scheduled: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Family::default(),
            incoming: Family::default(),
            unschedulable: Family::default(),
            in_flight_events: Family::default(),
            preemption_attempts: Counter::default(),
            victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            cache_size: Family::default(),
            after_flush: Counter::default(),
            writes: Family::default(),
            is_starting: AtomicBool::new(false),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let help = "What became of writes to the API";
        self.registry.register("gangway_scheduler_writes", help, self.writes.clone());
        let all = self.registry.sub_registry_with_prefix("scheduler");
        let help = "Attempts to find a node for a pod, by how they ended";
        all.register("schedule_attempts", help, self.attempts.clone());
        let help = "Seconds of an attempt, with its binding";
        all.register("scheduling_attempt_duration_seconds", help, self.attempt_duration.clone());
        let help = "Seconds in which a node was looked for";
        all.register("scheduling_algorithm_duration_seconds", help, self.algorithm_duration.clone());
        let help = "Seconds from when a pod could be tried for the first time until it was bound";
        all.register("pod_scheduling_sli_duration_seconds", help, self.sli_duration.clone());
        let help = "Attempts that it took to bind a pod";
        all.register("pod_scheduling_attempts", help, self.attempts_until_scheduled.clone());
        let help = "Pods that wait, by part of the queue";
        all.register("pending_pods", help, self.pending.clone());
        let help = "Pods that came into a part of the queue, by what moved them";
        all.register("queue_incoming_pods", help, self.incoming.clone());
        let help = "Pods that wait, by the plugin that rejects them";
        all.register("unschedulable_pods", help, self.unschedulable.clone());
        let help = "What is kept for attempts that are under way";
        all.register("inflight_events", help, self.in_flight_events.clone());
        let help = "Attempts to make room for a pod";
        all.register("preemption_attempts", help, self.preemption_attempts.clone());
        let help = "Pods that had to go for one";
        all.register("preemption_victims", help, self.victims.clone());
        let help = "What the scheduler knows of";
        all.register("cache_size", help, self.cache_size.clone());
        let help = "Pods that found a node after only time had passed: a plugin missed an event";
        all.register("pod_scheduled_after_flush", help, self.after_flush.clone());
    }

    /// All of them as text, in the form of OpenMetrics.
    fn text(&self, writes: BindCountsSnapshot) -> String {
        for (fate, count) in writes.named() {
            set(&self.writes.get_or_create(&OfFate { fate }), count);
        }
        let mut all = String::new();
        match text::encode(&mut all, &self.registry) {
            Ok(()) => all,
            Err(_) => unreachable!("a String takes any text"),
        }
    }

    pub(super) fn starting(&self, is_starting: bool) {
        self.is_starting.store(is_starting, Ordering::Relaxed);
    }

    /// A node was looked for, which took so long.
    pub(super) fn looked(&self, seconds: f64) {
        self.algorithm_duration.observe(seconds);
    }

    /// An attempt ended without a binding that landed.
    pub(super) fn failed(&self, end: AttemptEnd, profile: &str, seconds: f64) {
        let labels = OfAttempt { result: end.as_str(), profile: profile.to_owned() };
        self.attempts.get_or_create(&labels).inc();
        self.attempt_duration.get_or_create(&labels).observe(seconds);
    }

    /// A pod has its node.
    pub(super) fn bound(&self, effort: &Effort, now: Timestamp) {
        self.failed(AttemptEnd::Scheduled, &effort.profile, effort.began.elapsed().as_secs_f64());
        let attempts = match effort.attempts {
            many if many >= MANY_ATTEMPTS => format!("{MANY_ATTEMPTS}+"),
            few => few.to_string(),
        };
        let waited = now.nanos_since(effort.first_active_at).max(0) as f64 / 1e9;
        self.sli_duration.get_or_create(&Attempts { attempts }).observe(waited);
        self.attempts_until_scheduled.observe(f64::from(effort.attempts));
    }

    /// Pods have to go for another.
    pub(super) fn preempting(&self, victims: usize) {
        self.victims.observe(victims as f64);
    }

    /// Takes over what the scheduler counts by itself.
    pub(super) fn observe(&self, scheduler: &Scheduler) {
        let counts = scheduler.queue().counts();
        let level = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let parts = [
            ("active", counts.active),
            ("backoff", counts.backoff),
            ("unschedulable", counts.unschedulable),
            ("gated", counts.gated),
        ];
        for (queue, pods) in parts {
            self.pending.get_or_create(&OfQueue { queue }).set(level(pods));
        }
        for ((queue, event), pods) in counts.incoming {
            set(&self.incoming.get_or_create(&OfMove { queue: queue.as_str(), event }), pods);
        }
        self.in_flight_events.clear();
        for (event, kept) in counts.in_flight_events {
            self.in_flight_events.get_or_create(&OfEvent { event }).set(level(kept));
        }
        let census = scheduler.census();
        self.unschedulable.clear();
        for ((plugin, profile), pods) in census.unschedulable {
            let labels = OfPlugin { plugin: plugin.as_str(), profile: profile.to_owned() };
            self.unschedulable.get_or_create(&labels).set(level(pods));
        }
        let known = [("nodes", census.nodes), ("pods", census.pods), ("assumed_pods", census.assumed_pods)];
        for (r#type, known) in known {
            self.cache_size.get_or_create(&OfType { r#type }).set(level(known));
        }
        set(&self.after_flush, counts.rescued_by_flush);
        set(&self.preemption_attempts, scheduler.work().preemptions);
    }
}

/// Takes over what somebody else counts.
fn set(counter: &Count, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

impl Page for BindCounts {
    fn metrics_text(&self) -> String {
        self.metrics().text(self.snapshot())
    }

    fn is_ready(&self) -> bool {
        !self.metrics().is_starting.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
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
        let text = counts.metrics_text();
        for line in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"gangway\"} 1",
            "scheduler_schedule_attempts_total{result=\"unschedulable\",profile=\"gangway\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_sum{result=\"unschedulable\",profile=\"gangway\"} 0.5",
            "scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=\"2\"} 3.0",
            "scheduler_pod_scheduling_attempts_sum 2.0",
            "scheduler_preemption_victims_sum 3.0",
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
