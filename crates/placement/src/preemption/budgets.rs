//! Whom do disruption budgets protect?

use super::Question;
use crate::ids::PodId;
use crate::records::{DisruptionBudget, PodRecord};

impl Question<'_> {
    /// Those whose removal would break a budget, and the others, each in the order in which they were given: budgets are used up in
    /// that order.
    pub(super) fn by_protection(&self, pods: &[PodId]) -> (Vec<PodId>, Vec<PodId>) {
        let mut budgets: Vec<(&DisruptionBudget, i32)> =
            self.budgets.values().map(|budget| (budget, budget.allowed)).collect();
        let is_protected = |id: &PodId| {
            let Some(pod) = self.cluster.pods.get(*id) else { return false };
            let mut breaks = false;
            for (budget, left) in &mut budgets {
                if concerns(budget, &pod.record) {
                    *left = left.saturating_sub(1);
                    breaks |= *left < 0;
                }
            }
            breaks
        };
        pods.iter().copied().partition(is_protected)
    }
}

/// Whether a pod's removal counts against a budget. One that is counted as gone already does not.
fn concerns(budget: &DisruptionBudget, pod: &PodRecord) -> bool {
    budget.name.namespace == pod.name.namespace
        && !pod.labels.is_empty()
        && !budget.selector.requirements.is_empty()
        && pod.labels.match_selector(&budget.selector)
        && !budget.disrupted.iter().any(|name| **name == *pod.name.name)
}
