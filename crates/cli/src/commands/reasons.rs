//! `gangway reasons`: writes docs/reasons.md from the vocabulary in the code.

use gangway_model::reasons::{
    CheckState, ClusterQueueReason, EventReason, EvictionReason, FallbackTrigger, FinishReason,
    LocalQueueReason, PendingReason, PreemptionReason, ReadinessReason, ReasonDoc, RequeueReason,
};

use crate::commands::print;
use crate::exit::{Exit, Outcome};

/// Prints the page.
pub fn run() -> Outcome {
    print(&page())?;
    Ok(Exit::Success)
}

/// The whole of docs/reasons.md.
pub fn page() -> String {
    let mut page = String::from(
        "# Reasons\n\n\
         Every wait has a name, and something that ends it. The same token stands in conditions, Events, `gangway get`,\n\
         `gangway explain` and the output of `gangway run`.\n\n\
         This page is written by `gangway reasons > docs/reasons.md`; a test holds it equal to the code.\n",
    );
    let pending: Vec<ReasonDoc> = PendingReason::ALL.iter().map(|reason| reason.doc()).collect();
    let evicted: Vec<ReasonDoc> = EvictionReason::ALL.iter().map(|reason| reason.doc()).collect();
    let preempted: Vec<ReasonDoc> = PreemptionReason::ALL.iter().map(|reason| reason.doc()).collect();
    let requeued: Vec<ReasonDoc> = RequeueReason::ALL.iter().map(|reason| reason.doc()).collect();
    let ready: Vec<ReasonDoc> = ReadinessReason::ALL.iter().map(|reason| reason.doc()).collect();
    let given_up: Vec<ReasonDoc> = FallbackTrigger::ALL.iter().map(|reason| reason.doc()).collect();
    let checks: Vec<ReasonDoc> = CheckState::ALL.iter().map(|reason| reason.doc()).collect();
    let finished: Vec<ReasonDoc> = FinishReason::ALL.iter().map(|reason| reason.doc()).collect();
    let cluster_queue: Vec<ReasonDoc> = ClusterQueueReason::ALL.iter().map(|reason| reason.doc()).collect();
    let local_queue: Vec<ReasonDoc> = LocalQueueReason::ALL.iter().map(|reason| reason.doc()).collect();
    let events: Vec<ReasonDoc> = EventReason::ALL.iter().map(|reason| reason.doc()).collect();
    for (title, condition, reasons) in [
        ("Why a Workload waits", "`QuotaReserved=False` of a Workload", pending),
        (
            "Why a Workload has to leave",
            "`Evicted=True` of a Workload, and after `EvictedDueTo` that of an Event",
            evicted,
        ),
        ("By which right a Workload is preempted", "`Preempted=True` of a Workload", preempted),
        ("After an eviction", "`Requeued` of a Workload", requeued),
        ("Whether pods are ready", "`PodsReady` of a Workload", ready),
        (
            "Why a flavor was given up",
            "`trigger` in `status.flavorAssignmentHistory` of a Workload",
            given_up,
        ),
        ("What an admission check says", "`state` in `status.admissionChecks` of a Workload", checks),
        ("How a Workload ended", "`Finished=True` of a Workload", finished),
        ("Whether a ClusterQueue admits", "`Active` of a ClusterQueue", cluster_queue),
        ("Whether a LocalQueue passes Workloads on", "`Active` of a LocalQueue", local_queue),
        ("Events", "Events that are not the reason of a condition", events),
    ] {
        section(&mut page, title, condition, &reasons);
    }
    page
}

fn section(page: &mut String, title: &str, where_it_stands: &str, reasons: &[ReasonDoc]) {
    page.push_str(&format!("\n## {title}\n\n{where_it_stands}.\n\n"));
    let with_ends = reasons.iter().any(|reason| !reason.ends_when.is_empty());
    page.push_str(if with_ends {
        "| reason | meaning | ends when |\n|---|---|---|\n"
    } else {
        "| reason | meaning |\n|---|---|\n"
    });
    for reason in reasons {
        page.push_str(&format!("| `{}` | {} |", reason.token, reason.meaning));
        if with_ends {
            page.push_str(&format!(" {} |", reason.ends_when));
        }
        page.push('\n');
    }
}
