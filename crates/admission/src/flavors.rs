//! How a flavor is chosen: for each podSet and resource group the first flavor that suits and has room.

use std::collections::BTreeMap;

use gangway_model::constraints::{Taint, untolerated};
use gangway_model::quantity::Shown;
use gangway_model::queues::{ClusterQueue, Flavor, FlavorQuotas, ResourceGroup};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Admission, Assignment, PodSet, Workload};
use gangway_model::{Amount, FlavorName, PODS_RESOURCE, PodSetName, Requests, ResourceName};

use crate::quota::Usage;

/// A Workload that does not fit, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFit {
    /// The reason.
    pub reason: PendingReason,
    /// The reason with its numbers.
    pub message: String,
    /// Every flavor that was considered.
    pub trace: Vec<FlavorTrace>,
}

impl NoFit {
    /// Its object has changed, and the change was not seen yet: nobody knows whether it fits.
    pub(crate) fn changed() -> Self {
        let message = "The Workload has just changed".to_owned();
        Self { reason: PendingReason::PendingEvaluation, message, trace: Vec::new() }
    }
}

/// A flavor that was considered for a podSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlavorTrace {
    /// The podSet.
    pub pod_set: PodSetName,
    /// The flavor.
    pub flavor: FlavorName,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of considering a flavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It suits and has room.
    Fits,
    /// The pods do not tolerate a taint of its nodes.
    Taint(Taint),
    /// Node selector or affinity of the pods exclude its nodes.
    Affinity,
    /// More is asked for than the queue could ever give.
    Exceeds(Shortage),
    /// Too much of it is in use.
    Busy(Shortage),
}

/// The numbers of a resource that is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The resource.
    pub resource: ResourceName,
    /// How much is needed.
    pub need: i64,
    /// How much is free.
    pub free: i64,
    /// How much there is in all.
    pub quota: Amount,
}

impl Verdict {
    /// The reason that it makes a Workload wait for, worst last.
    fn reason(&self) -> Option<PendingReason> {
        match self {
            Self::Fits => None,
            Self::Busy(_) => Some(PendingReason::WaitingForQuota),
            Self::Exceeds(_) => Some(PendingReason::ExceedsMaxQuota),
            Self::Taint(_) | Self::Affinity => Some(PendingReason::NoMatchingFlavor),
        }
    }
}

impl std::fmt::Display for FlavorTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flavor = &self.flavor;
        match &self.verdict {
            Verdict::Fits => write!(f, "flavor {flavor} has room"),
            Verdict::Taint(taint) => {
                write!(
                    f,
                    "flavor {flavor} has the taint {}={}, which the pods do not tolerate",
                    taint.key, taint.value
                )
            }
            Verdict::Affinity => {
                write!(f, "flavor {flavor} does not match the pods' node selector or affinity")
            }
            Verdict::Exceeds(short) => write!(
                f,
                "{} in flavor {flavor}: {} needed, the quota is {}",
                short.resource,
                shown(&short.resource, Amount::new(short.need)),
                shown(&short.resource, short.quota),
            ),
            Verdict::Busy(short) => write!(
                f,
                "{} in flavor {flavor}: {} needed, {} free of {}",
                short.resource,
                shown(&short.resource, Amount::new(short.need)),
                shown(&short.resource, Amount::new(short.free)),
                shown(&short.resource, short.quota),
            ),
        }
    }
}

fn shown(resource: &ResourceName, amount: Amount) -> String {
    Shown { resource, amount }.to_string()
}

/// How bad a reason is: the Workload waits for the least bad flavor of its worst resource group.
fn severity(reason: PendingReason) -> u8 {
    match reason {
        PendingReason::NoMatchingFlavor => 2,
        PendingReason::ExceedsMaxQuota => 1,
        _ => 0,
    }
}

/// The flavors that make a Workload wait for this reason, in a sentence.
fn told(trace: &[FlavorTrace], reason: PendingReason) -> String {
    let told = trace.iter().filter(|trace| trace.verdict.reason() == Some(reason)).take(4);
    told.map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// What a flavor search looks at.
pub(crate) struct Search<'e> {
    pub(crate) queue: &'e ClusterQueue,
    pub(crate) flavors: &'e BTreeMap<FlavorName, Flavor>,
    pub(crate) usage: &'e Usage,
}

/// What a flavor search has found so far.
#[derive(Default)]
struct Found {
    /// What earlier podSets of the same Workload take.
    taken: Usage,
    trace: Vec<FlavorTrace>,
    worst: Option<(PendingReason, String)>,
}

impl Found {
    fn fails(&mut self, reason: PendingReason, message: String) {
        if self.worst.as_ref().is_none_or(|(worst, _)| severity(reason) > severity(*worst)) {
            self.worst = Some((reason, message));
        }
    }
}

impl Search<'_> {
    /// The admission of a Workload, or why it does not fit.
    pub(crate) fn assign(&self, workload: &Workload) -> Result<Admission, NoFit> {
        let (found, pod_sets) = self.consider(workload);
        match found.worst {
            None => Ok(Admission { cluster_queue: self.queue.name.clone(), pod_sets }),
            Some((reason, message)) => {
                let (reason, message) =
                    self.lasting_reason(workload, &found.trace).unwrap_or((reason, message));
                Err(NoFit { reason, message, trace: found.trace })
            }
        }
    }

    /// Why a Workload of several podSets does not fit, whoever else is there: the reason that an empty
    /// queue gives, or that others are in the way. Where one podSet finds its flavor taken and moves to
    /// the next, another may find too little left there; that passes.
    fn lasting_reason(&self, workload: &Workload, trace: &[FlavorTrace]) -> Option<(PendingReason, String)> {
        if workload.pod_sets.len() < 2 {
            return None;
        }
        let alone = Search { usage: &Usage::NOTHING, queue: self.queue, flavors: self.flavors };
        let waiting = PendingReason::WaitingForQuota;
        Some(alone.consider(workload).0.worst.unwrap_or_else(|| (waiting, told(trace, waiting))))
    }

    /// Every flavor that is considered for a Workload, fitting or not.
    pub(crate) fn trace(&self, workload: &Workload) -> Vec<FlavorTrace> {
        self.consider(workload).0.trace
    }

    fn consider(&self, workload: &Workload) -> (Found, Vec<Assignment>) {
        let mut found = Found::default();
        let pod_sets =
            workload.pod_sets.iter().map(|pod_set| self.assign_pod_set(pod_set, &mut found)).collect();
        (found, pod_sets)
    }

    fn assign_pod_set(&self, pod_set: &PodSet, found: &mut Found) -> Assignment {
        let mut wanted = pod_set.requests.times(i64::from(pod_set.count));
        if self.group_of(PODS_RESOURCE).is_some() {
            wanted.set(PODS_RESOURCE.into(), i64::from(pod_set.count));
        }
        let mut flavors: BTreeMap<ResourceName, FlavorName> = BTreeMap::new();
        let mut usage = Requests::new();
        let mut searched: Vec<&ResourceGroup> = Vec::new();
        for (resource, value) in wanted.iter() {
            if searched.iter().any(|group| group.resources.contains(resource)) {
                continue;
            }
            let Some(group) = self.group_of(resource.as_str()) else {
                if value != 0 {
                    let message =
                        format!("no resource group of ClusterQueue {} covers {resource}", self.queue.name);
                    found.fails(PendingReason::NoMatchingFlavor, message);
                }
                continue;
            };
            searched.push(group);
            let Some(quotas) = self.search(group, pod_set, &wanted, found) else { continue };
            for resource in group.resources.iter().filter(|r| wanted.contains(r.as_str())) {
                let value = wanted.get(resource.as_str());
                found.taken.add(&quotas.flavor, resource, value);
                flavors.insert(resource.clone(), quotas.flavor.clone());
                usage.set(resource.clone(), value);
            }
        }
        Assignment {
            name: pod_set.name.clone(),
            flavors: flavors.into_iter().collect(),
            usage,
            count: pod_set.count,
        }
    }

    fn group_of(&self, resource: &str) -> Option<&ResourceGroup> {
        self.queue.resource_groups.iter().find(|group| group.resources.iter().any(|r| r.as_str() == resource))
    }

    /// The first flavor of a group that suits and has room for all that a podSet wants of the group.
    fn search<'g>(
        &self,
        group: &'g ResourceGroup,
        pod_set: &PodSet,
        wanted: &Requests,
        found: &mut Found,
    ) -> Option<&'g FlavorQuotas> {
        let mut best: Option<PendingReason> = None;
        let first = found.trace.len();
        for quotas in &group.flavors {
            let verdict = self.judge(group, quotas, pod_set, wanted, &found.taken);
            let reason = verdict.reason();
            let flavor = quotas.flavor.clone();
            found.trace.push(FlavorTrace { pod_set: pod_set.name.clone(), flavor, verdict });
            match reason {
                None => return Some(quotas),
                Some(reason) if best.is_none_or(|best| severity(reason) < severity(best)) => {
                    best = Some(reason)
                }
                Some(_) => {}
            }
        }
        let reason = best.unwrap_or(PendingReason::NoMatchingFlavor);
        let message = told(&found.trace[first..], reason);
        found.fails(reason, message);
        None
    }

    fn judge(
        &self,
        group: &ResourceGroup,
        quotas: &FlavorQuotas,
        pod_set: &PodSet,
        wanted: &Requests,
        taken: &Usage,
    ) -> Verdict {
        let Some(flavor) = self.flavors.get(&quotas.flavor) else { return Verdict::Affinity };
        let constraints = &pod_set.constraints;
        let tolerations = constraints.tolerations.iter().chain(&flavor.tolerations);
        if let Some(taint) = untolerated(&flavor.node_taints, tolerations) {
            return Verdict::Taint(taint.clone());
        }
        if !constraints.accept_flavor(&flavor.node_labels) {
            return Verdict::Affinity;
        }
        let mut busy = None;
        for (resource, quota) in group.resources.iter().zip(&quotas.quotas) {
            if !wanted.contains(resource.as_str()) {
                continue;
            }
            let already = taken.get(&flavor.name, resource);
            let need = wanted.get(resource.as_str()).saturating_add(already);
            let free = quota.nominal.minus(Amount::new(self.usage.get(&flavor.name, resource)));
            let short = || Shortage {
                resource: resource.clone(),
                need,
                free: free.value().max(0),
                quota: quota.nominal,
            };
            // A sum that saturated is more than anybody has, even where there is no limit.
            if need > quota.nominal.value() || need == i64::MAX {
                return Verdict::Exceeds(short());
            }
            if need > free.value() && busy.is_none() {
                busy = Some(short());
            }
        }
        busy.map_or(Verdict::Fits, Verdict::Busy)
    }
}
