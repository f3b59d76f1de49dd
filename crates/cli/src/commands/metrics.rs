//! `gangway metrics`: writes docs/metrics.md from the list of metrics in the code.

use gangway_controller::metrics::{About, Metric, Origin, Program};

use crate::commands::print;
use crate::exit::{Exit, Outcome};

/// Metrics of the reference that are not told, and why.
const ABSENT: [(&str, &str); 11] = [
    ("`kueue_build_info`", "its labels tell of another build system; see `gangway_build_info`"),
    (
        "`kueue_admission_cycle_preemption_skips`, `kueue_preemption_target_recomputations_total`",
        "they count what happens inside a cycle of Kueue; see `gangway_engine_*`",
    ),
    (
        "`kueue_finished_workloads`",
        "nobody counts the Workloads that ended and were not deleted; the counter is there",
    ),
    ("`kueue_local_queue_finished_workloads`", "the same"),
    ("`kueue_replaced_workload_slices_total`", "elastic Jobs are not supported yet"),
    ("`kueue_pod_scheduling_gate_removal_seconds`", "pods that queue for themselves are not supported yet"),
    (
        "`kueue_cluster_queue_weighted_share`, `kueue_cohort_weighted_share`",
        "fair sharing is not supported yet",
    ),
    ("`kueue_local_queue_admission_fair_sharing_usage`", "the same"),
    ("`multikueue_*`", "several clusters are not supported yet"),
    ("labels `custom_*`", "`metrics.customLabels` is not supported yet"),
    ("`scheduler_*` other than those above", "they tell of parts that the pod scheduler here does not have"),
];

/// Prints the page.
pub fn run() -> Outcome {
    print(&page())?;
    Ok(Exit::Success)
}

/// The whole of docs/metrics.md.
pub fn page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Where they are served: [cluster.md](cluster.md#metrics-health-logs). A metric is told once there is something to tell.\n\
         Times of Workloads are differences of what stands in their conditions, in whole seconds.\n\n\
         This page is written by `gangway metrics > docs/metrics.md`; a test holds it equal to the code.\n",
    );
    for (title, sentence, origin, program) in [
        (
            "Admission, under Kueue's names",
            "Every series has the label `replica_role` too: `standalone`, or `leader` and `follower` where several stand for \
             election. Series of LocalQueues are there where `metrics.localQueueMetrics` selects them; by default all.",
            Origin::Reference,
            Program::Admission,
        ),
        ("Admission, ours", "", Origin::Ours, Program::Admission),
        ("Admission and pod scheduling, ours", "", Origin::Ours, Program::Both),
        ("Pod scheduling, under kube-scheduler's names", "", Origin::Reference, Program::Scheduler),
        ("Pod scheduling, ours", "", Origin::Ours, Program::Scheduler),
    ] {
        page.push_str(&format!("\n## {title}\n\n"));
        if !sentence.is_empty() {
            page.push_str(&format!("{sentence}\n\n"));
        }
        page.push_str("| metric | type | labels | what it tells |\n|---|---|---|---|\n");
        let all = Metric::ALL.iter().map(|metric| metric.about());
        for about in all.filter(|about| (about.origin, about.program) == (origin, program)) {
            page.push_str(&row(about));
        }
    }
    page.push_str("\n## Not told\n\n| metric | why |\n|---|---|\n");
    for (name, why) in ABSENT {
        page.push_str(&format!("| {name} | {why} |\n"));
    }
    page
}

fn row(about: &About) -> String {
    let labels: Vec<String> = about.labels.iter().map(|label| format!("`{label}`")).collect();
    format!("| `{}` | {} | {} | {} |\n", about.name, about.kind.as_str(), labels.join(", "), about.help)
}
