//! Every flavor that is considered for a Workload, and why not: the numbers behind a reason.

use gangway_model::constraints::{Taint, untolerated};
use gangway_model::quantity::Shown;
use gangway_model::queues::Flavor;
use gangway_model::reasons::{FallbackTrigger, PendingReason};
use gangway_model::workload::{PodSet, Workload};
use gangway_model::{
    Amount, ClusterQueueName, FlavorName, PODS_RESOURCE, PodSetName, Requests, ResourceName,
};

use crate::engine::Engine;
use crate::flavors::severity;
use crate::ids::{CellAmounts, CellId, QueueId, add_amount, amount_of};
use crate::ledger::{FlavorView, GroupView, QueueView};
use crate::tree::{Tree, narrow};

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
    /// It was given up: its machines did not come.
    GivenUp(FallbackTrigger),
    /// More is asked for than the queue could ever get.
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
    /// How much the queue could use now, borrowing included.
    pub free: i64,
    /// How much the queue has of its own.
    pub quota: Amount,
    /// How much it could ever borrow on top.
    pub borrowable: Amount,
    /// Who uses how much, the most first: queues of the tree.
    pub used_by: Vec<(ClusterQueueName, i64)>,
    /// How much is kept for other waiting Workloads, with what their victims still use.
    pub kept: i64,
}

impl Verdict {
    /// The reason that it makes a Workload wait for, worst last.
    fn reason(&self) -> Option<PendingReason> {
        match self {
            Self::Fits => None,
            Self::Busy(_) => Some(PendingReason::WaitingForQuota),
            Self::Exceeds(_) => Some(PendingReason::ExceedsMaxQuota),
            Self::Taint(_) | Self::Affinity | Self::GivenUp(_) => Some(PendingReason::NoMatchingFlavor),
        }
    }
}

impl std::fmt::Display for FlavorTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let flavor = &self.flavor;
        match &self.verdict {
            Verdict::Fits => write!(f, "flavor {flavor} has room"),
            Verdict::Taint(Taint { key, value, .. }) => {
                write!(f, "flavor {flavor} has the taint {key}={value}, which the pods do not tolerate")
            }
            Verdict::Affinity => {
                write!(f, "flavor {flavor} does not match the pods' node selector or affinity")
            }
            Verdict::GivenUp(FallbackTrigger::AdmissionCheckRejected) => {
                write!(f, "flavor {flavor} was given up: an admission check rejected it")
            }
            Verdict::GivenUp(_) => {
                write!(f, "flavor {flavor} was given up: its machines did not come in time")
            }
            Verdict::Exceeds(short) => write!(
                f,
                "{} in flavor {flavor}: {} needed, {}",
                short.resource,
                shown(&short.resource, Amount::new(short.need)),
                short.most(),
            ),
            Verdict::Busy(short) => write!(
                f,
                "{} in flavor {flavor}: {} needed, {} free of {}",
                short.resource,
                shown(&short.resource, Amount::new(short.need)),
                shown(&short.resource, Amount::new(short.free)),
                shown(&short.resource, short.quota.plus(short.borrowable)),
            ),
        }
    }
}

impl Shortage {
    /// The most that the queue could ever have, in words.
    fn most(&self) -> String {
        let quota = shown(&self.resource, self.quota);
        if self.borrowable == Amount::ZERO {
            return format!("the quota is {quota}");
        }
        format!("the quota is {quota} and {} can be borrowed", shown(&self.resource, self.borrowable))
    }
}

fn shown(resource: &ResourceName, amount: Amount) -> String {
    Shown { resource, amount }.to_string()
}

/// What a walk over the flavors of a queue found.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    pub(crate) flavors: Vec<FlavorTrace>,
    /// The worst that a podSet found, in words.
    pub(crate) failure: Option<(PendingReason, String)>,
}

/// The flavors that make a Workload wait for this reason, in a sentence.
pub(crate) fn told(walk: &Walk, reason: PendingReason) -> String {
    let told: Vec<String> = walk
        .flavors
        .iter()
        .filter(|trace| trace.verdict.reason() == Some(reason))
        .take(4)
        .map(ToString::to_string)
        .collect();
    match (&walk.failure, told.is_empty()) {
        (Some((failed, message)), _) if *failed == reason => message.clone(),
        (_, false) => told.join("; "),
        (_, true) => "Others go first".to_owned(),
    }
}

impl Walk {
    fn fails(&mut self, reason: PendingReason, message: String) {
        if self.failure.as_ref().is_none_or(|(worst, _)| severity(reason) > severity(*worst)) {
            self.failure = Some((reason, message));
        }
    }
}

impl Engine {
    /// Every flavor that is considered for a Workload, fitting or not, in a tree as it is.
    pub(crate) fn trace(&self, tree: &Tree, queue: QueueId, workload: &Workload) -> Walk {
        let mut walk = Walk::default();
        let Some(view) = self.memory.ledger.view(queue) else { return walk };
        let mut taken = CellAmounts::new();
        for pod_set in workload.pod_sets.iter() {
            let mut wanted = pod_set.requests.times(i64::from(pod_set.count));
            if view.group_of(PODS_RESOURCE).is_some() {
                wanted.set(PODS_RESOURCE.into(), i64::from(pod_set.count));
            }
            let before = taken.clone();
            let mut seen = Vec::new();
            for (resource, value) in wanted.iter() {
                match view.group_of(resource.as_str()) {
                    Some(group) if seen.contains(&group) => {}
                    Some(group) => {
                        seen.push(group);
                        let group = &view.groups[group];
                        let looked = Looked { tree, view, group, wanted: &wanted, workload };
                        self.trace_group(&looked, pod_set, &before, &mut taken, &mut walk);
                    }
                    None if value != 0 => {
                        let queue = self.memory.ledger.queue_names.name(queue.index());
                        let message = format!("no resource group of ClusterQueue {queue} covers {resource}");
                        walk.fails(PendingReason::NoMatchingFlavor, message);
                    }
                    None => {}
                }
            }
        }
        walk
    }

    /// Walks over a group. The first flavor with room counts as taken, or else the first that is only busy.
    fn trace_group(
        &self,
        looked: &Looked<'_>,
        pod_set: &PodSet,
        before: &CellAmounts,
        taken: &mut CellAmounts,
        walk: &mut Walk,
    ) {
        let first = walk.flavors.len();
        let mut best: Option<(u8, &FlavorView, Option<PendingReason>)> = None;
        for flavor in &looked.group.flavors {
            let verdict = self.verdict(looked, flavor, pod_set, before);
            let reason = verdict.reason();
            let rank = reason.map_or(0, |reason| 1 + severity(reason));
            walk.flavors.push(FlavorTrace {
                pod_set: pod_set.name.clone(),
                flavor: flavor.name.clone(),
                verdict,
            });
            if best.as_ref().is_none_or(|(least, ..)| rank < *least) {
                best = Some((rank, flavor, reason));
            }
        }
        let reason = best.as_ref().map_or(Some(PendingReason::NoMatchingFlavor), |(.., reason)| *reason);
        if let Some(reason) = reason {
            let seen = Walk { flavors: walk.flavors[first..].to_vec(), failure: None };
            walk.fails(reason, told(&seen, reason));
        }
        if let Some((.., flavor, _)) = best {
            for (cell, resource) in flavor.cells.iter().zip(&looked.group.resources) {
                if looked.wanted.contains(resource.as_str()) {
                    add_amount(taken, *cell, looked.wanted.get(resource.as_str()));
                }
            }
        }
    }

    fn verdict(
        &self,
        looked: &Looked<'_>,
        flavor: &FlavorView,
        pod_set: &PodSet,
        before: &CellAmounts,
    ) -> Verdict {
        let Some(definition) = self.durable.flavors.get(&flavor.name) else { return Verdict::Affinity };
        if let Some(mismatch) = mismatch(definition, pod_set) {
            return mismatch;
        }
        let tried = looked.workload.state.history().filter(|_| gives_up_flavors(looked.view));
        if let Some(trigger) = tried.and_then(|history| history.find(&flavor.name)?.exhausted) {
            return Verdict::GivenUp(trigger);
        }
        let mut busy = None;
        for (cell, resource) in flavor.cells.iter().zip(&looked.group.resources) {
            if !looked.wanted.contains(resource.as_str()) {
                continue;
            }
            let need = amount_of(before, *cell).saturating_add(looked.wanted.get(resource.as_str()));
            let wide = i128::from(need);
            let node = looked.view.node;
            if wide > looked.tree.potential(node, *cell) || need == i64::MAX {
                return Verdict::Exceeds(self.shortage(looked, *cell, resource, need));
            }
            if wide > looked.tree.available(node, *cell) && busy.is_none() {
                busy = Some(self.shortage(looked, *cell, resource, need));
            }
        }
        busy.map_or(Verdict::Fits, Verdict::Busy)
    }

    fn shortage(&self, looked: &Looked<'_>, cell: CellId, resource: &ResourceName, need: i64) -> Shortage {
        let (tree, node) = (looked.tree, looked.view.node);
        let nominal = tree.nominal(node, cell);
        let ledger = &self.memory.ledger;
        let (mut used_by, mut kept) = (Vec::new(), 0);
        for queue in ledger.queue_of(node).map(|queue| ledger.queues_of_tree(queue)).unwrap_or_default() {
            let Some(node) = ledger.node(queue) else { continue };
            let used = ledger.tree.usage(node, cell) - i128::from(ledger.kept_in(queue, cell));
            kept += tree.usage(node, cell) - used;
            if used > 0 {
                used_by.push((ledger.queue_names.name(queue.index()).clone(), narrow(used).value()));
            }
        }
        used_by.sort_by(|a: &(ClusterQueueName, i64), b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        Shortage {
            resource: resource.clone(),
            need,
            free: narrow(tree.available(node, cell)).value(),
            quota: narrow(nominal),
            borrowable: narrow((tree.potential(node, cell) - nominal).max(0)),
            used_by,
            kept: narrow(kept).value(),
        }
    }
}

fn gives_up_flavors(view: &QueueView) -> bool {
    view.extras.as_ref().is_some_and(|queue| queue.fallback.is_some())
}

/// What a walk over a group looks at.
struct Looked<'e> {
    tree: &'e Tree,
    view: &'e QueueView,
    group: &'e GroupView,
    wanted: &'e Requests,
    workload: &'e Workload,
}

/// Why pods cannot use a flavor at all, if so.
fn mismatch(flavor: &Flavor, pod_set: &PodSet) -> Option<Verdict> {
    let constraints = &pod_set.constraints;
    let tolerations = constraints.tolerations.iter().chain(&flavor.tolerations);
    if let Some(taint) = untolerated(&flavor.node_taints, tolerations) {
        return Some(Verdict::Taint(taint.clone()));
    }
    (!constraints.accept_flavor(&flavor.node_labels)).then_some(Verdict::Affinity)
}
