//! Who was preempted for whom, by the names that people know.

use gangway_api::kueue::Workload;
use gangway_model::conditions::ConditionType;
use gangway_model::reasons::PreemptionReason;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;

use super::life::{Life, condition, status};

/// The other side of a preemption.
pub struct Other<'o> {
    pub uid: String,
    /// None if it is gone.
    pub workload: Option<&'o Workload>,
    /// By which right; none where the victim is back, since then its condition tells of that.
    pub reason: Option<PreemptionReason>,
    /// What became of the victim.
    pub standing: &'static str,
}

impl<'o> Life<'o> {
    /// For whom the Workload was preempted last.
    pub fn preemptor(&self) -> Option<Other<'o>> {
        let victim = self.current()?;
        let uid = status(victim)?.preemptor.clone()?;
        let workload = self.all.iter().find(|workload| workload.uid().as_deref() == Some(uid.as_str()));
        Some(Other { uid, workload, reason: right(victim), standing: standing(victim) })
    }

    /// Those who were last preempted for the Workload.
    pub fn victims(&self) -> Vec<Other<'o>> {
        let Some(uid) = self.current().and_then(|workload| workload.uid()) else { return Vec::new() };
        let is_victim = |workload: &&Workload| {
            status(workload).and_then(|status| status.preemptor.as_deref()) == Some(uid.as_str())
        };
        let victims = self.all.iter().filter(is_victim).map(|victim| Other {
            uid: victim.uid().unwrap_or_default(),
            workload: Some(victim),
            reason: right(victim),
            standing: standing(victim),
        });
        victims.collect()
    }

    /// What should be known of the preemptor and is not.
    pub(super) fn preemptor_not_recorded(&self) -> Option<String> {
        let victim = self.current()?;
        condition(victim, ConditionType::Preempted)?;
        match self.preemptor() {
            None => Some("for whom it was preempted".to_owned()),
            Some(other) if other.workload.is_none() => {
                Some(format!("which Job the Workload with uid {} stood for: it is gone", other.uid))
            }
            Some(_) => None,
        }
    }
}

/// By which right a victim was preempted.
fn right(victim: &Workload) -> Option<PreemptionReason> {
    let preempted = condition(victim, ConditionType::Preempted)?;
    PreemptionReason::parse(&preempted.reason)
}

/// What became of a victim.
fn standing(victim: &Workload) -> &'static str {
    let is_true = |kind| condition(victim, kind).is_some_and(|found: &Condition| found.status == "True");
    if is_true(ConditionType::Finished) {
        "has finished"
    } else if !is_true(ConditionType::Evicted) {
        "is back"
    } else if is_true(ConditionType::QuotaReserved) {
        "is leaving"
    } else {
        "has left"
    }
}
