//! Labels, annotations, finalizers and well-known names: the contract with manifests and other tools.

/// The LocalQueue to use: on a job, a pod template, a pod.
pub const QUEUE_NAME_LABEL: &str = "kueue.x-k8s.io/queue-name";
/// The WorkloadPriorityClass of a job.
pub const PRIORITY_CLASS_LABEL: &str = "kueue.x-k8s.io/priority-class";
/// How long a job may be admitted, in seconds.
pub const MAX_EXEC_TIME_LABEL: &str = "kueue.x-k8s.io/max-exec-time-seconds";
/// Use an existing Workload; a label or an annotation.
pub const PREBUILT_WORKLOAD: &str = "kueue.x-k8s.io/prebuilt-workload-name";
/// On a Workload: the UID of the job that owns it.
pub const JOB_UID_LABEL: &str = "kueue.x-k8s.io/job-uid";
/// On objects that are managed here, with the value `true`; also the finalizer of managed pods.
pub const MANAGED_LABEL: &str = "kueue.x-k8s.io/managed";
/// On a started pod template: the name of its pod set.
pub const POD_SET_LABEL: &str = "kueue.x-k8s.io/podset";
/// On a started pod template: the ClusterQueue whose quota it uses.
pub const CLUSTER_QUEUE_LABEL: &str = "kueue.x-k8s.io/cluster-queue-name";
/// On a started pod template: the LocalQueue that it came through.
pub const LOCAL_QUEUE_LABEL: &str = "kueue.x-k8s.io/local-queue-name";

/// On a started pod template: the name of its Workload.
pub const WORKLOAD_ANNOTATION: &str = "kueue.x-k8s.io/workload";
/// On a batch Job: the fewest pods with which it can run.
pub const JOB_MIN_PARALLELISM_ANNOTATION: &str = "kueue.x-k8s.io/job-min-parallelism";
/// On a batch Job: `true` keeps completions equal to parallelism.
pub const JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION: &str =
    "kueue.x-k8s.io/job-completions-equal-parallelism";
/// On a batch Job: `true` marks a suspend that is under way.
pub const STOPPING_ANNOTATION: &str = "kueue.x-k8s.io/stopping";
/// On a job and its Workload: gates that keep it from being admitted, separated by commas.
pub const ADMISSION_GATED_BY_ANNOTATION: &str = "kueue.x-k8s.io/admission-gated-by";
/// On a Workload: a number that is added to its priority.
pub const PRIORITY_BOOST_ANNOTATION: &str = "kueue.x-k8s.io/priority-boost";
/// On a job: `true` lets its size change while it runs.
pub const ELASTIC_JOB_ANNOTATION: &str = "kueue.x-k8s.io/elastic-job";
/// On a pod: the group of pods that it starts with.
pub const POD_GROUP_NAME_LABEL: &str = "kueue.x-k8s.io/pod-group-name";

/// Keeps objects that are in use from vanishing.
pub const RESOURCE_IN_USE_FINALIZER: &str = "kueue.x-k8s.io/resource-in-use";
/// Holds plain pods back until they are admitted.
pub const ADMISSION_SCHEDULING_GATE: &str = "kueue.x-k8s.io/admission";

/// On a job: how long its pods may take to be ready at first.
pub const PODS_READY_TIMEOUT_ANNOTATION: &str = "gangway.dev/pods-ready-timeout";
/// On a job: how long its pods may take to be ready again.
pub const PODS_READY_RECOVERY_TIMEOUT_ANNOTATION: &str = "gangway.dev/pods-ready-recovery-timeout";
/// On the pod template of a started Job: what it was before anything was injected, so that a stop can restore it.
pub const ORIGINAL_TEMPLATE_ANNOTATION: &str = "gangway.dev/original-template";

/// The controller of AdmissionChecks that people answer by hand.
pub const MANUAL_CHECK_CONTROLLER: &str = "gangway.dev/manual";
/// The controllers of AdmissionChecks that are part of the reference itself.
pub const REFERENCE_CHECK_CONTROLLERS: [&str; 2] =
    ["kueue.x-k8s.io/multikueue", "kueue.x-k8s.io/provisioning-request"];
/// In a rule of fallback: every flavor that has no rule of its own.
pub const ANY_FLAVOR: &str = "*";

/// The LocalQueue, or WorkloadPriorityClass, that is used where none is named.
pub const DEFAULT_NAME: &str = "default";
/// The pod set of a job that has only one.
pub const MAIN_POD_SET: &str = "main";
pub use gangway_model::scheduling::SCHEDULER_NAME;
/// The field manager of what the controllers write.
pub const FIELD_MANAGER: &str = "gangway";

/// The integration that is supported, as the configuration file names it.
pub const BATCH_JOB_FRAMEWORK: &str = "batch/job";
