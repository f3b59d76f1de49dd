//! Every metric, once.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It has measurements by size.
    Histogram(Buckets),
}

impl Kind {
    /// As the text form has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// The steps of a histogram, as the references have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// A second, then 2.5 s, doubled twelve times.
    Waits,
    /// The same, doubled fourteen times.
    LongWaits,
    /// 10 ms, doubled ten times.
    Creation,
    /// What client libraries have where nothing else is said.
    Client,
    /// A millisecond, doubled fourteen times.
    Attempts,
    /// 10 ms, doubled nineteen times.
    Sli,
    /// One, doubled four times.
    Few,
    /// One, doubled six times.
    Victims,
    /// A tenth of a millisecond, doubled eleven times.
    Moments,
    /// A hundredth of a millisecond, nineteen times half as much again.
    Plugins,
}

impl Buckets {
    /// Their upper bounds.
    pub fn bounds(self) -> Vec<f64> {
        let doubled = |first: f64, count: u32| (0..count).map(move |power| first * f64::from(1_u32 << power));
        let waits = |count| std::iter::once(1.0).chain(doubled(2.5, count)).collect();
        match self {
            Self::Waits => waits(13),
            Self::LongWaits => waits(15),
            Self::Creation => doubled(0.01, 11).collect(),
            Self::Client => vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0],
            Self::Attempts => doubled(0.001, 15).collect(),
            Self::Sli => doubled(0.01, 20).collect(),
            Self::Few => doubled(1.0, 5).collect(),
            Self::Victims => doubled(1.0, 7).collect(),
            Self::Moments => doubled(0.0001, 12).collect(),
            Self::Plugins => (0..20).map(|power| 0.00001 * 1.5_f64.powi(power)).collect(),
        }
    }
}

/// Whose name it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The reference's: dashboards made for it go on working.
    Reference,
    /// Gangway's own.
    Ours,
}

/// Which program tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `gangway controller`.
    Admission,
    /// `gangway scheduler`.
    Scheduler,
    /// Both.
    Both,
}

/// What there is to say of a metric.
#[derive(Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// The names of its labels, in order.
    pub labels: &'static [&'static str],
    /// Whose name it is.
    pub origin: Origin,
    /// Who tells it.
    pub program: Program,
    /// What it counts.
    pub help: &'static str,
}

macro_rules! metrics {
    ($($metric:ident = $name:literal, $kind:expr, [$($label:literal),*], $origin:ident, $program:ident, $help:literal;)*) => {
        /// A metric.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Metric {
            $(#[doc = $help] $metric,)*
        }

        impl Metric {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$metric),*];

            /// What there is to say of it.
            pub fn about(self) -> &'static About {
                match self {
                    $(Self::$metric => &About {
                        name: $name,
                        kind: $kind,
                        labels: &[$($label),*],
                        origin: Origin::$origin,
                        program: Program::$program,
                        help: $help,
                    },)*
                }
            }

            /// Whether its series say what the replica is to the others, as all of the reference for admission do.
            pub fn has_role(self) -> bool {
                let About { origin, program, .. } = self.about();
                (*origin, *program) == (Origin::Reference, Program::Admission)
            }
        }
    };
}

use Kind::{Counter, Gauge, Histogram};

#[rustfmt::skip]
metrics! {
    AdmissionAttempts = "kueue_admission_attempts_total", Counter, ["result"], Reference, Admission,
        "Times that Workloads were tried, by whether one of them got quota";
    AdmissionAttemptDuration = "kueue_admission_attempt_duration_seconds", Histogram(Buckets::Client), ["result"], Reference, Admission,
        "Seconds in which Workloads were tried, by whether one of them got quota";
    PendingWorkloads = "kueue_pending_workloads", Gauge, ["cluster_queue", "status"], Reference, Admission,
        "Workloads that wait: active ones are about to be tried, inadmissible ones wait for something to change";
    PendingSchedulingHashes = "kueue_pending_scheduling_hashes", Gauge, ["cluster_queue", "status"], Reference, Admission,
        "Different requests among the Workloads that wait";
    UnadmittedWorkloads = "kueue_unadmitted_workloads", Gauge, ["cluster_queue", "reason", "underlying_cause"], Reference, Admission,
        "Workloads that wait, by why; the cause is always empty";
    QuotaReservedWorkloads = "kueue_quota_reserved_workloads_total", Counter, ["cluster_queue", "priority_class"], Reference, Admission,
        "Workloads for which quota was reserved";
    QuotaReservedWait = "kueue_quota_reserved_wait_time_seconds", Histogram(Buckets::Waits), ["cluster_queue", "priority_class"], Reference, Admission,
        "Seconds from being queued to the reservation of quota";
    AdmittedWorkloads = "kueue_admitted_workloads_total", Counter, ["cluster_queue", "priority_class"], Reference, Admission,
        "Workloads that were admitted";
    AdmissionWait = "kueue_admission_wait_time_seconds", Histogram(Buckets::LongWaits), ["cluster_queue", "priority_class"], Reference, Admission,
        "Seconds from being queued to the admission";
    AdmissionChecksWait = "kueue_admission_checks_wait_time_seconds", Histogram(Buckets::Waits), ["cluster_queue", "priority_class"], Reference, Admission,
        "Seconds from the reservation of quota to the admission";
    ReadyWait = "kueue_ready_wait_time_seconds", Histogram(Buckets::Waits), ["cluster_queue", "priority_class"], Reference, Admission,
        "Seconds from being queued to the first time that all pods were ready";
    AdmittedUntilReady = "kueue_admitted_until_ready_wait_time_seconds", Histogram(Buckets::Waits), ["cluster_queue", "priority_class"], Reference, Admission,
        "Seconds from the admission to the first time that all pods were ready";
    ReadyToEvicted = "kueue_pods_ready_to_evicted_time_seconds", Histogram(Buckets::Waits), ["cluster_queue", "reason", "underlying_cause"], Reference, Admission,
        "Seconds from when all pods were ready to the eviction";
    EvictedWorkloads = "kueue_evicted_workloads_total", Counter, ["cluster_queue", "reason", "underlying_cause", "priority_class"], Reference, Admission,
        "Workloads that were told to leave";
    EvictedWorkloadsOnce = "kueue_evicted_workloads_once_total", Counter, ["cluster_queue", "reason", "underlying_cause", "priority_class"], Reference, Admission,
        "Workloads that were told to leave for the first time for this reason and cause";
    PreemptedWorkloads = "kueue_preempted_workloads_total", Counter, ["preempting_cluster_queue", "reason"], Reference, Admission,
        "Workloads that were told to leave for another, by the queue of that other";
    EvictionLatency = "kueue_workload_eviction_latency_seconds", Histogram(Buckets::Waits), ["cluster_queue", "reason"], Reference, Admission,
        "Seconds from an eviction to when the quota was given back";
    ReservingActive = "kueue_reserving_active_workloads", Gauge, ["cluster_queue"], Reference, Admission,
        "Workloads that have quota";
    AdmittedActive = "kueue_admitted_active_workloads", Gauge, ["cluster_queue"], Reference, Admission,
        "Workloads that are admitted and have not ended";
    FinishedWorkloads = "kueue_finished_workloads_total", Counter, ["cluster_queue", "priority_class"], Reference, Admission,
        "Workloads that ended";
    ExecutionTime = "kueue_execution_time_seconds", Histogram(Buckets::LongWaits), ["cluster_queue", "priority_class"], Reference, Admission,
        "Seconds from the admission to the end, with what was spent in admissions before";
    WorkloadCreation = "kueue_workload_creation_latency_seconds", Histogram(Buckets::Creation), ["job_kind"], Reference, Admission,
        "Seconds from the creation of a Job to that of its Workload";
    ClusterQueueStatus = "kueue_cluster_queue_status", Gauge, ["cluster_queue", "status"], Reference, Admission,
        "Whether a ClusterQueue is pending, active or terminating: one of them is 1";
    ResourceReservation = "kueue_cluster_queue_resource_reservation", Gauge, ["cohort", "cluster_queue", "flavor", "resource"], Reference, Admission,
        "Quota that is reserved; with metrics.enableClusterQueueResources";
    ResourceUsage = "kueue_cluster_queue_resource_usage", Gauge, ["cohort", "cluster_queue", "flavor", "resource"], Reference, Admission,
        "Quota that admitted Workloads use; with metrics.enableClusterQueueResources";
    ResourcePending = "kueue_cluster_queue_resource_pending", Gauge, ["cluster_queue", "resource"], Reference, Admission,
        "What waiting Workloads ask for; with metrics.enableClusterQueueResources";
    NominalQuota = "kueue_cluster_queue_nominal_quota", Gauge, ["cohort", "cluster_queue", "flavor", "resource"], Reference, Admission,
        "Quota that a ClusterQueue has of its own; with metrics.enableClusterQueueResources";
    BorrowingLimit = "kueue_cluster_queue_borrowing_limit", Gauge, ["cohort", "cluster_queue", "flavor", "resource"], Reference, Admission,
        "What a ClusterQueue may borrow, +Inf without a limit; with metrics.enableClusterQueueResources";
    LendingLimit = "kueue_cluster_queue_lending_limit", Gauge, ["cohort", "cluster_queue", "flavor", "resource"], Reference, Admission,
        "What a ClusterQueue lends, +Inf without a limit; with metrics.enableClusterQueueResources";
    ClusterQueueInfo = "kueue_cluster_queue_info", Gauge, ["cluster_queue", "parent_cohort", "root_cohort"], Reference, Admission,
        "Where a ClusterQueue stands among the cohorts; always 1";
    CohortInfo = "kueue_cohort_info", Gauge, ["cohort", "parent_cohort", "root_cohort"], Reference, Admission,
        "Where a cohort stands among the others; always 1";
    CohortQuota = "kueue_cohort_subtree_quota", Gauge, ["cohort", "flavor", "resource"], Reference, Admission,
        "Quota of a cohort and of all that its members lend";
    CohortReservations = "kueue_cohort_subtree_resource_reservations", Gauge, ["cohort", "flavor", "resource"], Reference, Admission,
        "What the members of a cohort use of it";
    CohortAdmitted = "kueue_cohort_subtree_admitted_workloads_total", Counter, ["cohort", "priority_class"], Reference, Admission,
        "Workloads that were admitted in a cohort or below it";
    CohortAdmittedActive = "kueue_cohort_subtree_admitted_active_workloads", Gauge, ["cohort"], Reference, Admission,
        "Workloads in a cohort or below it that are admitted and have not ended";
    LocalPending = "kueue_local_queue_pending_workloads", Gauge, ["name", "namespace", "status"], Reference, Admission,
        "Workloads of a LocalQueue that wait, as kueue_pending_workloads";
    LocalUnadmitted = "kueue_local_queue_unadmitted_workloads", Gauge, ["name", "namespace", "cluster_queue", "reason", "underlying_cause"], Reference, Admission,
        "Workloads of a LocalQueue that wait, by why; the cause is always empty";
    LocalQuotaReserved = "kueue_local_queue_quota_reserved_workloads_total", Counter, ["name", "namespace", "priority_class"], Reference, Admission,
        "Workloads of a LocalQueue for which quota was reserved";
    LocalQuotaReservedWait = "kueue_local_queue_quota_reserved_wait_time_seconds", Histogram(Buckets::Waits), ["name", "namespace", "priority_class"], Reference, Admission,
        "Seconds from being queued to the reservation of quota";
    LocalAdmitted = "kueue_local_queue_admitted_workloads_total", Counter, ["name", "namespace", "priority_class"], Reference, Admission,
        "Workloads of a LocalQueue that were admitted";
    LocalAdmissionWait = "kueue_local_queue_admission_wait_time_seconds", Histogram(Buckets::LongWaits), ["name", "namespace", "priority_class"], Reference, Admission,
        "Seconds from being queued to the admission";
    LocalChecksWait = "kueue_local_queue_admission_checks_wait_time_seconds", Histogram(Buckets::Waits), ["name", "namespace", "priority_class"], Reference, Admission,
        "Seconds from the reservation of quota to the admission";
    LocalReadyWait = "kueue_local_queue_ready_wait_time_seconds", Histogram(Buckets::Waits), ["name", "namespace", "priority_class"], Reference, Admission,
        "Seconds from being queued to the first time that all pods were ready";
    LocalAdmittedUntilReady = "kueue_local_queue_admitted_until_ready_wait_time_seconds", Histogram(Buckets::Waits), ["name", "namespace", "priority_class"], Reference, Admission,
        "Seconds from the admission to the first time that all pods were ready";
    LocalEvicted = "kueue_local_queue_evicted_workloads_total", Counter, ["name", "namespace", "reason", "underlying_cause", "priority_class"], Reference, Admission,
        "Workloads of a LocalQueue that were told to leave";
    LocalFinished = "kueue_local_queue_finished_workloads_total", Counter, ["name", "namespace", "priority_class"], Reference, Admission,
        "Workloads of a LocalQueue that ended";
    LocalExecutionTime = "kueue_local_queue_execution_time_seconds", Histogram(Buckets::LongWaits), ["name", "namespace", "priority_class"], Reference, Admission,
        "Seconds from the admission to the end, with what was spent in admissions before";
    LocalReserving = "kueue_local_queue_reserving_active_workloads", Gauge, ["name", "namespace"], Reference, Admission,
        "Workloads of a LocalQueue that have quota";
    LocalAdmittedActive = "kueue_local_queue_admitted_active_workloads", Gauge, ["name", "namespace"], Reference, Admission,
        "Workloads of a LocalQueue that are admitted and have not ended";
    LocalStatus = "kueue_local_queue_status", Gauge, ["name", "namespace", "active"], Reference, Admission,
        "Whether a LocalQueue is active: True, False or Unknown, one of them is 1";
    LocalReservation = "kueue_local_queue_resource_reservation", Gauge, ["name", "namespace", "flavor", "resource"], Reference, Admission,
        "Quota that is reserved; with metrics.enableClusterQueueResources";
    LocalUsage = "kueue_local_queue_resource_usage", Gauge, ["name", "namespace", "flavor", "resource"], Reference, Admission,
        "Quota that admitted Workloads use; with metrics.enableClusterQueueResources";
    Requeued = "gangway_requeued_workloads_total", Counter, ["cluster_queue", "reason"], Ours, Admission,
        "Workloads that may be queued again after an eviction, by why";
    Writes = "gangway_writes_total", Counter, ["fate"], Ours, Admission,
        "Writes, by what became of them";
    LaneRequests = "gangway_lane_requests_total", Counter, ["lane"], Ours, Admission,
        "Writes that were sent, by whether they carry decisions or only inform";
    Requests = "gangway_client_requests_total", Counter, ["lane", "answer"], Ours, Both,
        "Requests to the API server, by lane and kind of answer: 2xx, 4xx, 409, 429, 5xx or none";
    Throttled = "gangway_client_throttled_seconds_total", Counter, ["lane"], Ours, Both,
        "Seconds that were lost to the own request rate";
    HeldOff = "gangway_client_held_off_seconds_total", Counter, ["lane"], Ours, Both,
        "Seconds that requests waited because the API server had asked for it";
    Repairs = "gangway_repairs_total", Counter, [], Ours, Admission,
        "Workloads whose conditions contradicted each other";
    Overdue = "gangway_overdue_evictions_total", Counter, [], Ours, Admission,
        "Workloads that were told to leave and had not left in time";
    Cycles = "gangway_engine_cycles_total", Counter, [], Ours, Admission,
        "Cycles: in each the first of every queue is judged";
    Evaluations = "gangway_engine_evaluations_total", Counter, [], Ours, Admission,
        "Workloads that were compared with the quota";
    Preemptions = "gangway_engine_preemptions_total", Counter, [], Ours, Admission,
        "Workloads for which others were chosen to leave";
    Spared = "gangway_engine_spared_victims_total", Counter, [], Ours, Admission,
        "Workloads that were considered for leaving and spared in the end";
    PassedBy = "gangway_engine_passed_by_total", Counter, [], Ours, Admission,
        "Turns that were taken without comparing, because nothing had changed that could help";
    Deadlines = "gangway_deadlines", Gauge, [], Ours, Admission,
        "Times that somebody waits for, such as the end of a backoff";
    UnderWay = "gangway_decisions_under_way", Gauge, [], Ours, Admission,
        "Decisions whose write has not ended";
    Known = "gangway_known_workloads", Gauge, [], Ours, Admission,
        "Workloads that the controller knows";
    Violations = "gangway_invariant_violations_total", Counter, [], Ours, Admission,
        "Times that the engine contradicted itself when it was checked: report it";
    Checks = "gangway_invariant_checks_total", Counter, [], Ours, Admission,
        "Times that the engine was checked";
    CheckSeconds = "gangway_invariant_check_seconds", Gauge, [], Ours, Admission,
        "Seconds that the last check took";
    Leads = "gangway_leader", Gauge, [], Ours, Both,
        "Whether this replica acts";
    Build = "gangway_build_info", Gauge, ["version"], Ours, Both,
        "The version that runs; always 1";
    ScheduleAttempts = "scheduler_schedule_attempts_total", Counter, ["result", "profile"], Reference, Scheduler,
        "Attempts to find a node for a pod, by how they ended";
    ScheduleAttemptDuration = "scheduler_scheduling_attempt_duration_seconds", Histogram(Buckets::Attempts), ["result", "profile"], Reference, Scheduler,
        "Seconds of an attempt, with its binding";
    AlgorithmDuration = "scheduler_scheduling_algorithm_duration_seconds", Histogram(Buckets::Attempts), [], Reference, Scheduler,
        "Seconds in which a node was looked for";
    SliDuration = "scheduler_pod_scheduling_sli_duration_seconds", Histogram(Buckets::Sli), ["attempts"], Reference, Scheduler,
        "Seconds from when a pod could be tried for the first time until it was bound";
    PodAttempts = "scheduler_pod_scheduling_attempts", Histogram(Buckets::Few), [], Reference, Scheduler,
        "Attempts that it took to bind a pod";
    PendingPods = "scheduler_pending_pods", Gauge, ["queue"], Reference, Scheduler,
        "Pods that wait, by part of the queue";
    IncomingPods = "scheduler_queue_incoming_pods_total", Counter, ["queue", "event"], Reference, Scheduler,
        "Pods that came into a part of the queue, by what moved them";
    UnschedulablePods = "scheduler_unschedulable_pods", Gauge, ["plugin", "profile"], Reference, Scheduler,
        "Pods that wait, by the plugin that rejects them";
    InFlightEvents = "scheduler_inflight_events", Gauge, ["event"], Reference, Scheduler,
        "What is kept for attempts that are under way";
    PreemptionAttempts = "scheduler_preemption_attempts_total", Counter, [], Reference, Scheduler,
        "Attempts to make room for a pod";
    PreemptionVictims = "scheduler_preemption_victims", Histogram(Buckets::Victims), [], Reference, Scheduler,
        "Pods that had to go for one";
    CacheSize = "scheduler_cache_size", Gauge, ["type"], Reference, Scheduler,
        "What the scheduler knows of";
    AfterFlush = "scheduler_pod_scheduled_after_flush_total", Counter, [], Reference, Scheduler,
        "Pods that found a node after only time had passed: a plugin missed an event";
    QueuedEntities = "scheduler_queued_entities", Gauge, ["queue", "type"], Reference, Scheduler,
        "What waits, by part of the queue; nothing but pods is queued";
    IncomingEntities = "scheduler_queue_incoming_entities_total", Counter, ["queue", "event", "type"], Reference, Scheduler,
        "What came into a part of the queue, by what moved it; nothing but pods is queued";
    EventHandling = "scheduler_event_handling_duration_seconds", Histogram(Buckets::Moments), ["event"], Reference, Scheduler,
        "Seconds in which news of a node or pod was taken in and those were woken whom it helps";
    PluginEvaluations = "scheduler_plugin_evaluation_total", Counter, ["plugin", "extension_point", "profile"], Reference, Scheduler,
        "Attempts in which a plugin was asked, however many nodes it was asked about";
    ExtensionPoints = "scheduler_framework_extension_point_duration_seconds", Histogram(Buckets::Moments), ["extension_point", "status", "profile"], Reference, Scheduler,
        "Seconds of a binding until it was answered; of Bind only, the other points are parts of one computation";
    PluginDuration = "scheduler_plugin_execution_duration_seconds", Histogram(Buckets::Plugins), ["plugin", "extension_point", "status"], Reference, Scheduler,
        "Seconds of a binding until it was answered; of DefaultBinder only, and of every binding";
    AsyncCalls = "scheduler_async_api_call_execution_total", Counter, ["call_type", "result"], Reference, Scheduler,
        "Bindings and conditions that were sent and answered, by whether they were written";
    AsyncDuration = "scheduler_async_api_call_execution_duration_seconds", Histogram(Buckets::Attempts), ["call_type", "result"], Reference, Scheduler,
        "Seconds of a binding or a condition until it was answered";
    PendingCalls = "scheduler_pending_async_api_calls", Gauge, ["call_type"], Reference, Scheduler,
        "Bindings that are not answered, and conditions that are not answered or not sent yet";
    SchedulerWrites = "gangway_scheduler_writes_total", Counter, ["fate"], Ours, Scheduler,
        "What became of requests to the API";
}
