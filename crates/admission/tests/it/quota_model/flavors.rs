//! Which flavors a workload gets, and how well they suit.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gangway_model::constraints::untolerated;
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, Flavor, FungibilityPolicy, FungibilityPreference, ResourceGroup,
};
use gangway_model::workload::{PodSet, Workload};
use gangway_model::{Amount, ClusterQueueName, FlavorName, PODS_RESOURCE, Requests, ResourceName};

use super::preemption::Preemptor;
use super::tree::{Amounts, Cell, Node, Snapshot};

/// How quota for one cell could be had, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    NoFit,
    /// Preemption could help, but there is nobody to preempt.
    NoCandidates,
    /// By preempting in the own queue too.
    Preempt,
    /// By preempting in other queues only.
    Reclaim,
    Fit,
}

/// A mode and how far up the tree one has to borrow for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grade {
    mode: Mode,
    borrow: usize,
}

impl Grade {
    fn better_than(self, other: Self, preference: FungibilityPreference) -> bool {
        let class = |mode| match mode {
            Mode::NoFit => 0,
            Mode::NoCandidates => 1,
            Mode::Preempt | Mode::Reclaim | Mode::Fit => 2,
        };
        if class(self.mode) != class(other.mode) || self.mode == Mode::NoFit {
            return class(self.mode) > class(other.mode);
        }
        match preference {
            FungibilityPreference::BorrowingOverPreemption => {
                (self.mode, other.borrow) > (other.mode, self.borrow)
            }
            FungibilityPreference::PreemptionOverBorrowing => {
                (other.borrow, self.mode) > (self.borrow, other.mode)
            }
        }
    }
}

/// Per podSet and resource: the last flavor tried, none if that was the last of the list.
pub type ScanPositions = Vec<BTreeMap<ResourceName, Option<usize>>>;

/// The flavors that a workload would get.
#[derive(Clone, Debug)]
pub struct Assignment {
    pub mode: Mode,
    pub borrow: usize,
    /// Per podSet.
    pub flavors: Vec<Vec<(ResourceName, FlavorName)>>,
    pub usage: Amounts,
    /// The cells that do not fit as they are.
    pub contested: BTreeSet<Cell>,
    pub positions: ScanPositions,
    pub complaints: Vec<Complaint>,
}

/// What is told of a flavor that was tried: the podSet, and what lacks of which resource. Nothing lacks of a flavor
/// that does not suit.
pub type Complaint = (usize, FlavorName, Vec<(ResourceName, Lack)>);

/// What lacks of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// This much more would have to be free.
    Free(Amount),
    /// Nobody could ever have this much.
    Quota(Amount),
}

impl Assignment {
    /// The flavors that it takes something of.
    pub fn flavors_used(&self) -> impl Iterator<Item = &FlavorName> + Clone {
        self.flavors.iter().flatten().map(|(_, flavor)| flavor)
    }

    /// Flavors that were chosen before, if all of it fits now.
    pub fn again(
        snapshot: &Snapshot,
        queue: &ClusterQueueName,
        usage: &Amounts,
        flavors: &[Vec<(ResourceName, FlavorName)>],
    ) -> Option<Self> {
        let levels = usage.iter().map(|(cell, need)| snapshot.borrow_level(queue, cell, *need).0);
        snapshot.fits(queue, usage).then(|| Self {
            mode: Mode::Fit,
            borrow: levels.max().unwrap_or(0),
            flavors: flavors.to_vec(),
            usage: usage.clone(),
            contested: BTreeSet::new(),
            positions: Vec::new(),
            complaints: Vec::new(),
        })
    }
}

/// What a podSet's pods ask for together, in a queue.
fn requests_in(queue: &ClusterQueue, pod_set: &PodSet) -> Requests {
    let count = i64::from(pod_set.count);
    let mut requests = pod_set.requests.times(count);
    requests.remove(PODS_RESOURCE);
    if queue.resource_groups.iter().any(|g| g.resources.iter().any(|r| r.as_str() == PODS_RESOURCE)) {
        requests.set(PODS_RESOURCE.into(), count);
    }
    requests
}

/// A resource group and what is asked of it.
type Wanted<'q> = (&'q ResourceGroup, Vec<(ResourceName, Amount)>);

/// What a podSet asks of each resource group that it asks something of; none if no group has it.
pub(super) fn wanted_of<'q>(queue: &'q ClusterQueue, pod_set: &PodSet) -> Option<Vec<Wanted<'q>>> {
    let requests = requests_in(queue, pod_set);
    let covers = |group: &ResourceGroup, resource: &ResourceName| group.resources.contains(resource);
    let covered = |resource| queue.resource_groups.iter().any(|group| covers(group, resource));
    if requests.iter().any(|(resource, value)| value != 0 && !covered(resource)) {
        return None;
    }
    let wanted = |group| {
        let here = requests.iter().filter(|(resource, _)| covers(group, resource));
        (group, here.map(|(resource, value)| (resource.clone(), Amount::new(value))).collect::<Vec<_>>())
    };
    Some(queue.resource_groups.iter().map(wanted).filter(|(_, wanted)| !wanted.is_empty()).collect())
}

/// Whether taints, node selector and affinity let a podSet's pods use a flavor.
pub(super) fn suits(known: &BTreeMap<FlavorName, Flavor>, pod_set: &PodSet, flavor: &FlavorName) -> bool {
    known.get(flavor).is_some_and(|flavor| {
        let tolerations = pod_set.constraints.tolerations.iter().chain(&flavor.tolerations);
        untolerated(&flavor.node_taints, tolerations).is_none()
            && pod_set.constraints.accept_flavor(&flavor.node_labels)
    })
}

/// A search for flavors.
pub struct Scan<'a> {
    pub queue: &'a ClusterQueue,
    pub known: &'a BTreeMap<FlavorName, Flavor>,
    /// Flavors that are not tried any more.
    pub given_up: BTreeSet<FlavorName>,
    pub snapshot: &'a Snapshot,
    pub preemptor: &'a Preemptor<'a>,
    /// Where the last attempt ended, if that still counts.
    pub positions: Option<&'a ScanPositions>,
    /// Otherwise, as in the reference, only the worst by what the queue prefers: under
    /// PreemptionOverBorrowing a resource that borrows is worse than one that needs preemption, and the flavor
    /// then counts as fitting.
    pub every_resource_counts: bool,
    pub complaints: RefCell<Vec<Complaint>>,
}

/// The best flavor of a resource group for one podSet.
struct Choice {
    flavor: FlavorName,
    grades: Vec<(ResourceName, Amount, Grade)>,
    /// The mode of the resource that is worst by what the queue prefers.
    mode: Mode,
    position: Option<usize>,
}

/// One podSet's search in one resource group.
struct Task<'a> {
    index: usize,
    pod_set: &'a PodSet,
    group: &'a ResourceGroup,
    wanted: Vec<(ResourceName, Amount)>,
    /// What earlier podSets take.
    taken: &'a Amounts,
}

impl Scan<'_> {
    pub fn assign(&self, workload: &Workload) -> Assignment {
        let mut assignment = Assignment {
            mode: Mode::Fit,
            borrow: 0,
            flavors: Vec::new(),
            usage: Amounts::new(),
            contested: BTreeSet::new(),
            positions: Vec::new(),
            complaints: Vec::new(),
        };
        for (index, pod_set) in workload.pod_sets.iter().enumerate() {
            let Some(choices) = self.choose(index, pod_set, &assignment.usage) else {
                assignment.mode = Mode::NoFit;
                break;
            };
            let mut flavors = Vec::new();
            let mut positions = BTreeMap::new();
            for choice in choices {
                for (resource, request, grade) in choice.grades {
                    let cell = (choice.flavor.clone(), resource.clone());
                    let entry = assignment.usage.entry(cell.clone()).or_default();
                    *entry = entry.plus(request);
                    let mode = if self.every_resource_counts { grade.mode } else { choice.mode };
                    assignment.mode = assignment.mode.min(mode);
                    assignment.borrow = assignment.borrow.max(grade.borrow);
                    if grade.mode != Mode::Fit {
                        assignment.contested.insert(cell);
                    }
                    positions.insert(resource.clone(), choice.position);
                    flavors.push((resource, choice.flavor.clone()));
                }
            }
            flavors.sort();
            assignment.flavors.push(flavors);
            assignment.positions.push(positions);
        }
        assignment.complaints = self.complaints.take();
        assignment
    }

    /// A flavor per resource group that the podSet asks something of; none if it cannot have one.
    fn choose(&self, index: usize, pod_set: &PodSet, taken: &Amounts) -> Option<Vec<Choice>> {
        let wanted = wanted_of(self.queue, pod_set)?.into_iter();
        wanted
            .map(|(group, wanted)| self.best_flavor(&Task { index, pod_set, group, wanted, taken }))
            .collect()
    }

    fn best_flavor(&self, task: &Task<'_>) -> Option<Choice> {
        let preference = self.queue.fungibility.preference;
        let flavors = &task.group.flavors;
        let mut best: Option<(Grade, Choice)> = None;
        let mut complaints = Vec::new();
        let mut last_tried = flavors.len().saturating_sub(1);
        for (position, quotas) in flavors.iter().enumerate().skip(self.first_position(task)) {
            let flavor = &quotas.flavor;
            if !suits(self.known, task.pod_set, flavor) || self.given_up.contains(flavor) {
                complaints.push((task.index, flavor.clone(), Vec::new()));
                continue;
            }
            let wanted = task.wanted.iter();
            let grades: Vec<_> =
                wanted.map(|(r, value)| (r.clone(), *value, self.grade(task, flavor, r, *value))).collect();
            complaints.push((task.index, flavor.clone(), self.lacks(task, flavor, &grades)));
            let worst = grades.iter().map(|(.., grade)| *grade);
            let worst = worst.reduce(|a, b| if a.better_than(b, preference) { b } else { a })?;
            let stop = !self.tries_next(worst);
            if stop || best.as_ref().is_none_or(|(grade, _)| worst.better_than(*grade, preference)) {
                best = Some((
                    worst,
                    Choice { flavor: flavor.clone(), grades, mode: worst.mode, position: None },
                ));
            }
            if stop {
                last_tried = position;
                break;
            }
        }
        if best.as_ref().is_none_or(|(grade, _)| grade.mode == Mode::NoFit) {
            // Nothing is told then of what the podSet found in other groups.
            self.complaints.borrow_mut().retain(|(index, ..)| *index != task.index);
        }
        if best.as_ref().is_none_or(|(grade, _)| grade.mode != Mode::Fit) {
            self.complaints.borrow_mut().extend(complaints);
        }
        let (_, mut choice) = best.filter(|(grade, _)| grade.mode != Mode::NoFit)?;
        choice.position = (last_tried + 1 < flavors.len()).then_some(last_tried);
        Some(choice)
    }

    fn lacks(
        &self,
        task: &Task<'_>,
        flavor: &FlavorName,
        grades: &[(ResourceName, Amount, Grade)],
    ) -> Vec<(ResourceName, Lack)> {
        let node = Node::Queue(self.queue.name.clone());
        let short = grades.iter().filter(|(.., grade)| grade.mode != Mode::Fit);
        let lack = |(resource, value, _): &(ResourceName, Amount, Grade)| {
            let cell = (flavor.clone(), resource.clone());
            let need = task.taken.get(&cell).copied().unwrap_or_default().plus(*value);
            let exceeds = need > self.snapshot.layout.potential(&node, &cell);
            let free = self.snapshot.available(&self.queue.name, &cell);
            (resource.clone(), if exceeds { Lack::Quota(need) } else { Lack::Free(need.minus(free)) })
        };
        short.map(lack).collect()
    }

    fn first_position(&self, task: &Task<'_>) -> usize {
        let last = self.positions.and_then(|all| {
            let (resource, _) = task.wanted.first()?;
            all.get(task.index)?.get(resource).copied().flatten()
        });
        last.map_or(0, |last| last + 1)
    }

    fn tries_next(&self, grade: Grade) -> bool {
        let next = FungibilityPolicy::TryNextFlavor;
        match grade.mode {
            Mode::NoFit | Mode::NoCandidates => true,
            Mode::Preempt | Mode::Reclaim if self.queue.fungibility.when_can_preempt == next => true,
            _ => grade.borrow > 0 && self.queue.fungibility.when_can_borrow == next,
        }
    }

    /// How `value` more of one cell could be had, on top of what earlier podSets take.
    fn grade(&self, task: &Task<'_>, flavor: &FlavorName, resource: &ResourceName, value: Amount) -> Grade {
        let (queue, layout) = (&self.queue.name, &self.snapshot.layout);
        let cell = (flavor.clone(), resource.clone());
        let node = Node::Queue(queue.clone());
        let need = task.taken.get(&cell).copied().unwrap_or_default().plus(value);
        if need > layout.potential(&node, &cell) {
            return Grade { mode: Mode::NoFit, borrow: 0 };
        }
        let (borrow, may_reclaim) = self.snapshot.borrow_level(queue, &cell, need);
        if need <= self.snapshot.available(queue, &cell) {
            return Grade { mode: Mode::Fit, borrow };
        }
        let preempts_to_borrow = self.queue.preemption.borrow_within_cohort != BorrowWithinCohort::Never;
        if layout.quota(&node, &cell).nominal < need && !may_reclaim && !preempts_to_borrow {
            return Grade { mode: Mode::NoFit, borrow };
        }
        self.grade_with_preemption(&cell, need, borrow)
    }

    fn grade_with_preemption(&self, cell: &Cell, need: Amount, borrow: usize) -> Grade {
        let needs = Amounts::from([(cell.clone(), need)]);
        let victims = self.preemptor.search(self.snapshot, &needs, &BTreeSet::from([cell.clone()])).victims;
        if victims.is_empty() {
            return Grade { mode: Mode::NoCandidates, borrow };
        }
        let in_own_queue = victims.iter().any(|v| self.snapshot.holders[&v.uid].queue == self.queue.name);
        let rest = self.snapshot.without(victims.iter().map(|victim| &victim.uid));
        let (borrow, _) = rest.borrow_level(&self.queue.name, cell, need);
        Grade { mode: if in_own_queue { Mode::Preempt } else { Mode::Reclaim }, borrow }
    }
}
