//! How a flavor is chosen: for each podSet and resource group the first flavor that is good enough, or the
//! best of all.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use gangway_model::constraints::untolerated;
use gangway_model::queues::{Flavor, Fungibility, FungibilityPolicy, FungibilityPreference};
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Assignment, PodSet};
use gangway_model::{FlavorName, PODS_RESOURCE, Requests, ResourceName};
use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::ids::{CellAmounts, CellId, NodeId, QueueId, add_amount, amount_of};
use crate::ledger::{FlavorView, GroupView, Ledger, QueueView};
use crate::preemption::{Asker, Request, search};
use crate::tree::{Tree, Weighed};

/// What a podSet needs of a resource group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupNeed {
    group: usize,
    /// Resources by their place in the group, and how much all pods together want.
    wants: SmallVec<[(u16, i64); 4]>,
    /// The same as cells of each flavor; none if taints, node selector or affinity keep the pods from using it, or it was
    /// given up.
    by_flavor: Box<[Option<Wanted>]>,
    /// A flavor that would suit was given up.
    has_given_up: bool,
}

/// How much is wanted of which cells, in the order of their resources in the group.
type Wanted = SmallVec<[(CellId, i64); 2]>;

/// What a podSet needs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodSetNeed {
    groups: SmallVec<[GroupNeed; 1]>,
    /// A resource that it wants and no group covers.
    uncovered: Option<ResourceName>,
}

/// What Workloads of one shape need of one queue, worked out once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pod_sets: SmallVec<[PodSetNeed; 1]>,
    /// What a search comes to that finds room without borrowing wherever it begins; none if it finds nothing.
    first_choice: Option<FirstChoice>,
}

/// The first flavor that suits, for every podSet and group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FirstChoice {
    picks: SmallVec<[Pick; 2]>,
    usage: CellAmounts,
}

/// What a podSet wants in all; pods are counted where the queue gives quota for them.
fn wanted(view: &QueueView, pod_set: &PodSet) -> Requests {
    let mut wanted = pod_set.requests.times(i64::from(pod_set.count));
    if view.group_of(PODS_RESOURCE).is_some() {
        wanted.set(PODS_RESOURCE.into(), i64::from(pod_set.count));
    }
    wanted
}

impl Need {
    /// What is wanted of the only flavor that suits; none if there is a choice.
    pub(crate) fn of_only_flavor(&self) -> Option<&[(CellId, i64)]> {
        let [PodSetNeed { groups, uncovered: None }] = &self.pod_sets[..] else { return None };
        let [GroupNeed { by_flavor, .. }] = &groups[..] else { return None };
        let mut suiting = by_flavor.iter().flatten();
        suiting.next().filter(|_| suiting.next().is_none()).map(|wanted| &wanted[..])
    }

    /// What podSets need of a queue, without the flavors that are excluded. `as_reference` takes their resources in the
    /// order in which the reference does: of two groups that both fail it tells the first.
    pub(crate) fn of(
        view: &QueueView,
        flavors: &BTreeMap<FlavorName, Flavor>,
        pod_sets: &[PodSet],
        excluded: &[FlavorName],
        as_reference: bool,
    ) -> Self {
        let choice = Choice { flavors, excluded };
        let of = |pod_set| PodSetNeed::of(view, choice, pod_set, as_reference);
        let pod_sets: SmallVec<[PodSetNeed; 1]> = pod_sets.iter().map(of).collect();
        let first_choice = FirstChoice::of(&pod_sets);
        Self { pod_sets, first_choice }
    }
}

impl Need {
    /// Whether every flavor of some group was given up that the queue could ever give this much of.
    pub(crate) fn has_given_up_all(&self, ledger: &Ledger, queue: QueueId) -> bool {
        let Some(node) = ledger.node(queue) else { return false };
        let is_left =
            |wanted: &Wanted| wanted.iter().all(|(cell, value)| !exceeds(&ledger.tree, node, *cell, *value));
        let mut groups: Vec<&GroupNeed> = self.pod_sets.iter().flat_map(|pod_set| &pod_set.groups).collect();
        groups.sort_by_key(|need| need.group);
        groups.chunk_by(|one, other| one.group == other.group).any(|needs| {
            let has_given_up = |need: &&GroupNeed| need.has_given_up;
            let has_some = |need: &&GroupNeed| need.by_flavor.iter().flatten().any(is_left);
            if !needs.iter().all(has_some) {
                return needs.iter().any(|need| has_given_up(need) && !has_some(need));
            }
            // Each podSet could have something, but perhaps not all of them together.
            needs.len() > 1
                && needs.iter().any(has_given_up)
                && !can_all_be_held(ledger, node, needs, &CellAmounts::new(), &mut COMBINATIONS.clone())
        })
    }
}

/// So many ways to give podSets flavors are tried. Where there are more, somebody may wait for what will never be.
const COMBINATIONS: u32 = 4096;

/// Whether a queue could ever give all of these a flavor, besides what it gives already.
fn can_all_be_held(
    ledger: &Ledger,
    node: NodeId,
    needs: &[&GroupNeed],
    given: &CellAmounts,
    left: &mut u32,
) -> bool {
    let Some((first, others)) = needs.split_first() else { return true };
    first.by_flavor.iter().flatten().any(|wanted| {
        let Some(fewer) = left.checked_sub(1) else { return true };
        *left = fewer;
        let mut with = given.clone();
        wanted.iter().for_each(|(cell, value)| add_amount(&mut with, *cell, *value));
        let is_too_much =
            |(cell, _): &(CellId, i64)| exceeds(&ledger.tree, node, *cell, amount_of(&with, *cell));
        !wanted.iter().any(is_too_much) && can_all_be_held(ledger, node, others, &with, left)
    })
}

/// The flavors among which podSets choose.
#[derive(Clone, Copy)]
struct Choice<'c> {
    flavors: &'c BTreeMap<FlavorName, Flavor>,
    /// Given up, in order.
    excluded: &'c [FlavorName],
}

impl FirstChoice {
    fn of(pod_sets: &[PodSetNeed]) -> Option<Self> {
        let mut choice = Self { picks: SmallVec::new(), usage: CellAmounts::new() };
        for pod_set in pod_sets {
            if pod_set.uncovered.is_some() {
                return None;
            }
            for group in &pod_set.groups {
                let mut suiting = (0..).zip(&group.by_flavor);
                let (flavor, wanted) = suiting.find_map(|(at, wanted)| Some((at, wanted.as_ref()?)))?;
                choice.picks.push(Pick { flavor, next: group.next_after(flavor) });
                wanted.iter().for_each(|(cell, value)| add_amount(&mut choice.usage, *cell, *value));
            }
        }
        Some(choice)
    }

    /// Whether there is room for all of it without borrowing.
    fn fits(&self, ledger: &Ledger, node: NodeId) -> bool {
        self.usage.iter().all(|(cell, amount)| {
            let weighed = ledger.tree.weigh(node, *cell, *amount);
            i128::from(*amount) <= weighed.available && weighed.level.height == 0 && *amount != i64::MAX
        })
    }
}

impl GroupNeed {
    /// Where the next search begins after one that came to this flavor; 0 if that was the last.
    fn next_after(&self, flavor: u16) -> u16 {
        if usize::from(flavor) + 1 >= self.by_flavor.len() { 0 } else { flavor + 1 }
    }
}

impl PodSetNeed {
    fn of(view: &QueueView, choice: Choice<'_>, pod_set: &PodSet, as_reference: bool) -> Self {
        let Choice { flavors, excluded } = choice;
        let wanted = wanted(view, pod_set);
        let mut need = Self { groups: SmallVec::new(), uncovered: None };
        let mut in_order: Vec<(&ResourceName, i64)> = wanted.iter().collect();
        if as_reference {
            in_order.sort_by_key(|(resource, _)| fnv(resource.as_str()));
        }
        for (resource, value) in in_order {
            let Some(index) = view.group_of(resource.as_str()) else {
                if value != 0 && need.uncovered.is_none() {
                    need.uncovered = Some(resource.clone());
                }
                continue;
            };
            if need.groups.iter().any(|known| known.group == index) {
                continue;
            }
            let group = &view.groups[index];
            let in_group = group.resources.iter().enumerate();
            let wants = in_group.filter(|(_, resource)| wanted.contains(resource.as_str()));
            let wants: SmallVec<[(u16, i64); 4]> =
                wants.map(|(at, resource)| (at as u16, wanted.get(resource.as_str()))).collect();
            let mut has_given_up = false;
            let of_flavor = |flavor: &FlavorView| {
                let cells = wants.iter().map(|(at, value)| (flavor.cells[usize::from(*at)], *value));
                let suits = suits(flavors, flavor, pod_set);
                let is_given_up = excluded.binary_search(&flavor.name).is_ok();
                has_given_up |= suits && is_given_up;
                (suits && !is_given_up).then(|| cells.collect())
            };
            let by_flavor = group.flavors.iter().map(of_flavor).collect();
            need.groups.push(GroupNeed { group: index, wants, by_flavor, has_given_up });
        }
        need
    }
}

/// The hash of Fowler, Noll and Vo (1a, 64 bits), by which the reference orders resources.
fn fnv(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn suits(flavors: &BTreeMap<FlavorName, Flavor>, view: &FlavorView, pod_set: &PodSet) -> bool {
    flavors.get(&view.name).is_some_and(|flavor| {
        let constraints = &pod_set.constraints;
        let tolerations = constraints.tolerations.iter().chain(&flavor.tolerations);
        untolerated(&flavor.node_taints, tolerations).is_none()
            && constraints.accept_flavor(&flavor.node_labels)
    })
}

/// How well something fits, worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Not at all.
    NoFit,
    /// Preemption might help, but there is nobody to preempt.
    NoCandidates,
    /// By preempting in its own queue.
    Preempt,
    /// By taking back from other queues.
    Reclaim,
    /// At once.
    Fit,
}

/// How well a flavor serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grade {
    pub(crate) mode: Mode,
    /// How high up it borrows.
    pub(crate) level: u32,
}

impl Grade {
    const BEST: Self = Self { mode: Mode::Fit, level: 0 };
    const WORST: Self = Self { mode: Mode::NoFit, level: u32::MAX };

    /// Whether this is better than another, by what the queue prefers.
    fn beats(self, other: Self, preference: FungibilityPreference) -> bool {
        if self.mode == Mode::NoFit || other.mode == Mode::NoFit {
            return self.mode != Mode::NoFit;
        }
        let viable = (self.mode > Mode::NoCandidates, other.mode > Mode::NoCandidates);
        if viable.0 != viable.1 {
            return viable.0;
        }
        match preference {
            FungibilityPreference::BorrowingOverPreemption => {
                (self.mode, other.level) > (other.mode, self.level)
            }
            FungibilityPreference::PreemptionOverBorrowing => {
                (other.level, self.mode) > (self.level, other.mode)
            }
        }
    }

    /// Whether the search goes on although this flavor was found.
    fn goes_on(self, fungibility: Fungibility) -> bool {
        let next = FungibilityPolicy::TryNextFlavor;
        match self.mode {
            Mode::NoFit | Mode::NoCandidates => true,
            Mode::Preempt | Mode::Reclaim if fungibility.when_can_preempt == next => true,
            _ => self.level > 0 && fungibility.when_can_borrow == next,
        }
    }
}

/// The flavor chosen for a podSet and a resource group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub(crate) flavor: u16,
    /// Where the next search begins; 0 if this one came to the end of the list.
    pub(crate) next: u16,
}

/// What a search came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) grade: Grade,
    /// One per podSet and group, in order; fewer if a podSet found nothing.
    pub(crate) picks: SmallVec<[Pick; 2]>,
    pub(crate) usage: CellAmounts,
    /// The cells in which it does not fit without preemption.
    pub(crate) needing: SmallVec<[CellId; 2]>,
    /// Why a podSet found nothing.
    pub(crate) failure: Option<Failure>,
    /// Differs if what lacks differs: flavors, resources or amounts.
    pub(crate) lacking: u64,
}

/// Why a podSet found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) reason: PendingReason,
    /// Whoever leaves, it will not fit: only other definitions help.
    pub(crate) lasts: bool,
}

/// How far a search for flavors has come, one entry per podSet and group.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Where it goes on.
    pub(crate) next: SmallVec<[u16; 4]>,
    /// The farthest that it has come to.
    farthest: SmallVec<[u16; 4]>,
}

impl Progress {
    /// Notes what a search picked. Says whether flavors are left that the next one would try; with `ends`, only
    /// such as were not tried yet.
    pub(crate) fn goes_on(&mut self, picks: &[Pick], ends: bool) -> bool {
        self.next = picks.iter().map(|pick| pick.next).collect();
        self.farthest.resize(self.farthest.len().max(picks.len()), 0);
        let mut goes_on = false;
        for (next, farthest) in self.next.iter().zip(&mut self.farthest) {
            // One podSet may have come to its end and begin again while another goes on, and so for ever.
            goes_on |= *next > if ends { *farthest } else { 0 };
            *farthest = (*farthest).max(*next);
        }
        goes_on
    }
}

/// How bad a reason is: a Workload waits for the least bad flavor of its worst resource group.
pub(crate) fn severity(reason: PendingReason) -> u8 {
    match reason {
        PendingReason::NoMatchingFlavor => 2,
        PendingReason::ExceedsMaxQuota => 1,
        _ => 0,
    }
}

/// What comes of flavors that were chosen before and have room: how high up it borrows.
pub(crate) fn choose_again(
    ledger: &Ledger,
    queue: QueueId,
    picks: &[u16],
    usage: &CellAmounts,
) -> Option<Found> {
    let node = ledger.node(queue)?;
    let levels =
        usage.iter().map(|(cell, amount)| ledger.tree.level(node, *cell, i128::from(*amount)).height);
    let level = levels.max().unwrap_or(0);
    Some(Found {
        grade: Grade { mode: Mode::Fit, level },
        picks: picks.iter().map(|flavor| Pick { flavor: *flavor, next: 0 }).collect(),
        usage: usage.clone(),
        needing: SmallVec::new(),
        failure: None,
        lacking: 0,
    })
}

/// What a Workload needs of the first flavors, in order, on which it is no more than its queue has of its own, whoever
/// uses that at the moment; none if there are none.
pub(crate) fn within_nominal(ledger: &Ledger, queue: QueueId, need: &Need) -> Option<CellAmounts> {
    let node = ledger.node(queue)?;
    let mut usage = CellAmounts::new();
    for pod_set in &need.pod_sets {
        if pod_set.uncovered.is_some() {
            return None;
        }
        for group in &pod_set.groups {
            let has_room = |wanted: &&Wanted| {
                wanted.iter().all(|(cell, value)| {
                    let amount = amount_of(&usage, *cell).saturating_add(*value);
                    !exceeds(&ledger.tree, node, *cell, amount)
                        && i128::from(amount) <= ledger.tree.nominal(node, *cell)
                })
            };
            let wanted = group.by_flavor.iter().flatten().find(has_room)?;
            wanted.iter().for_each(|(cell, value)| add_amount(&mut usage, *cell, *value));
        }
    }
    Some(usage)
}

/// What the asker's queue lays down for a search.
#[derive(Clone, Copy)]
struct Terms {
    node: NodeId,
    fungibility: Fungibility,
    /// Whether it may preempt while it borrows.
    may_borrow: bool,
}

/// Chooses flavors for a Workload. `from` says where the search of each podSet and group begins.
pub(crate) fn choose(ledger: &mut Ledger, asker: Asker<'_>, need: &Need, from: &[u16]) -> Found {
    let mut found = Found {
        grade: Grade { mode: Mode::Fit, level: 0 },
        picks: SmallVec::new(),
        usage: CellAmounts::new(),
        needing: SmallVec::new(),
        failure: None,
        lacking: 0,
    };
    let terms = ledger.view(asker.queue).map(|view| Terms {
        node: view.node,
        fungibility: view.fungibility,
        may_borrow: view.may_preempt_while_borrowing(),
    });
    if let (Some(terms), Some(first)) = (terms, &need.first_choice)
        && from.iter().all(|start| *start == 0)
        && first.fits(ledger, terms.node)
    {
        (found.picks, found.usage) = (first.picks.clone(), first.usage.clone());
        return found;
    }
    for (index, pod_set) in need.pod_sets.iter().enumerate() {
        let chosen = match terms {
            Some(terms) => choose_for_pod_set(ledger, asker, terms, pod_set, from, &mut found),
            None => Err(Failure { reason: PendingReason::Misconfigured, lasts: true }),
        };
        if let Err(mut failure) = chosen {
            // What a later podSet finds depends on what the earlier ones found: that may change.
            failure.lasts &= index == 0;
            found.failure = Some(failure);
            found.grade = Grade::WORST;
            return found;
        }
    }
    found
}

fn choose_for_pod_set(
    ledger: &mut Ledger,
    asker: Asker<'_>,
    terms: Terms,
    need: &PodSetNeed,
    from: &[u16],
    found: &mut Found,
) -> Result<(), Failure> {
    if need.uncovered.is_some() {
        return Err(Failure { reason: PendingReason::NoMatchingFlavor, lasts: true });
    }
    let (first, lacking_before) = (found.picks.len(), found.lacking);
    let mut judgements: SmallVec<[Judged; 1]> = SmallVec::new();
    for group in &need.groups {
        let start = from.get(found.picks.len()).copied().unwrap_or(0);
        let mut lacking = FxHasher::default();
        let chosen = choose_flavor(ledger, asker, terms, group, start, &found.usage, &mut lacking);
        let and_lacking = |others: u64| {
            let mut all = FxHasher::default();
            (others, first, group.group, lacking.finish()).hash(&mut all);
            all.finish()
        };
        match chosen {
            Ok((pick, judged)) => {
                if judged.grade.mode != Mode::Fit {
                    found.lacking = and_lacking(found.lacking);
                }
                found.picks.push(pick);
                judgements.push(judged);
            }
            Err(failure) => {
                // The reference tells of no other group then.
                found.lacking = and_lacking(lacking_before);
                found.picks.truncate(first);
                return Err(failure);
            }
        }
    }
    for ((group, pick), judged) in need.groups.iter().zip(&found.picks[first..]).zip(judgements) {
        for (cell, value) in group.by_flavor[usize::from(pick.flavor)].iter().flatten() {
            add_amount(&mut found.usage, *cell, *value);
        }
        let mode = if asker.every_resource_counts { judged.lowest } else { judged.grade.mode };
        found.grade.mode = found.grade.mode.min(mode);
        found.grade.level = found.grade.level.max(judged.highest);
        found.needing.extend(judged.needing);
    }
    Ok(())
}

/// What lacks of a resource.
#[derive(Hash)]
enum Lack {
    /// This much more has to be free.
    Room(i128),
    /// So much is wanted that it will never fit, whoever leaves.
    TooMuch(i64),
}

/// What a flavor comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Judged {
    /// That of its worst resource, by what the queue prefers.
    grade: Grade,
    /// The worst mode of any resource. It may be worse than that of the grade: a queue that would rather
    /// preempt than borrow calls a resource that it has to borrow worse than one that it has to preempt for.
    lowest: Mode,
    /// How high up any of its resources borrows.
    highest: u32,
    /// The resources that do not fit without preemption.
    needing: SmallVec<[CellId; 2]>,
    reason: PendingReason,
}

fn choose_flavor(
    ledger: &mut Ledger,
    asker: Asker<'_>,
    terms: Terms,
    need: &GroupNeed,
    start: u16,
    before: &CellAmounts,
    lacking: &mut FxHasher,
) -> Result<(Pick, Judged), Failure> {
    let mut best: Option<(u16, Judged)> = None;
    let mut least_bad = PendingReason::NoMatchingFlavor;
    let mut tried = 0;
    let count = need.by_flavor.len() as u16;
    for index in start..count {
        tried = index;
        let Some(wanted) = &need.by_flavor[usize::from(index)] else {
            index.hash(lacking);
            continue;
        };
        let judged = judge_flavor(ledger, asker, terms, wanted, before, lacking);
        if severity(judged.reason) < severity(least_bad) {
            least_bad = judged.reason;
        }
        if !judged.grade.goes_on(terms.fungibility) {
            best = Some((index, judged));
            break;
        }
        let so_far = best.as_ref().map_or(Grade::WORST, |(_, judged)| judged.grade);
        if judged.grade.beats(so_far, terms.fungibility.preference) {
            best = Some((index, judged));
        }
    }
    // From a place other than the start the list was not seen whole.
    let lasts = start == 0 && severity(least_bad) > 0;
    let reason = if start == 0 { least_bad } else { PendingReason::WaitingForQuota };
    let (flavor, judged) = best.ok_or(Failure { reason, lasts })?;
    Ok((Pick { flavor, next: need.next_after(tried) }, judged))
}

/// What a flavor comes to. What lacks of it is added to `lacking`.
fn judge_flavor(
    ledger: &mut Ledger,
    asker: Asker<'_>,
    terms: Terms,
    wanted: &Wanted,
    before: &CellAmounts,
    lacking: &mut FxHasher,
) -> Judged {
    let waits = PendingReason::WaitingForQuota;
    let (grade, lowest) = (Grade::BEST, Mode::Fit);
    let mut worst = Judged { grade, lowest, highest: 0, needing: SmallVec::new(), reason: waits };
    for (cell, value) in wanted {
        let amount = amount_of(before, *cell).saturating_add(*value);
        let weighed = ledger.tree.weigh(terms.node, *cell, amount);
        let (grade, reason) = judge(ledger, asker, terms, *cell, amount, &weighed);
        if worst.grade.beats(grade, terms.fungibility.preference) {
            worst.grade = grade;
        }
        if severity(reason) > severity(worst.reason) {
            worst.reason = reason;
        }
        worst.lowest = worst.lowest.min(grade.mode);
        worst.highest = worst.highest.max(grade.level);
        if grade.mode != Mode::Fit {
            worst.needing.push(*cell);
            let lack = match reason {
                PendingReason::ExceedsMaxQuota => Lack::TooMuch(amount),
                _ => Lack::Room(i128::from(amount) - weighed.available),
            };
            (cell, lack).hash(lacking);
        }
    }
    worst.needing.len().hash(lacking);
    worst
}

/// Whether a queue could have this much of a cell, and how.
fn judge(
    ledger: &mut Ledger,
    asker: Asker<'_>,
    terms: Terms,
    cell: CellId,
    amount: i64,
    weighed: &Weighed,
) -> (Grade, PendingReason) {
    let waits = PendingReason::WaitingForQuota;
    let wide = i128::from(amount);
    let level = weighed.level;
    if wide <= weighed.available && amount != i64::MAX {
        return (Grade { mode: Mode::Fit, level: level.height }, waits);
    }
    if exceeds(&ledger.tree, terms.node, cell, amount) {
        return (Grade::WORST, PendingReason::ExceedsMaxQuota);
    }
    if ledger.tree.nominal(terms.node, cell) >= wide || level.may_reclaim || terms.may_borrow {
        return (simulate(ledger, asker, terms.node, cell, amount), waits);
    }
    (Grade { mode: Mode::NoFit, level: level.height }, waits)
}

/// Whether a queue could never have this much of a cell.
fn exceeds(tree: &Tree, node: NodeId, cell: CellId, amount: i64) -> bool {
    i128::from(amount) > tree.potential(node, cell) || amount == i64::MAX
}

/// What preemption for this cell alone would come to.
fn simulate(ledger: &mut Ledger, asker: Asker<'_>, node: NodeId, cell: CellId, amount: i64) -> Grade {
    let request = Request { amounts: &[(cell, amount)], needing: &[cell] };
    let victims = search::search(ledger, asker, request).victims;
    book_victims(ledger, &victims, -1);
    let level = ledger.tree.level(node, cell, i128::from(amount)).height;
    book_victims(ledger, &victims, 1);
    let mode = match victims.iter().any(|victim| victim.queue == asker.queue) {
        _ if victims.is_empty() => Mode::NoCandidates,
        true => Mode::Preempt,
        false => Mode::Reclaim,
    };
    Grade { mode, level }
}

/// Takes what victims use off the trees, or puts it on again.
pub(crate) fn book_victims(ledger: &mut Ledger, victims: &[crate::preemption::Victim], sign: i64) {
    for victim in victims {
        if let Some(node) = ledger.node(victim.queue) {
            ledger.tree.add_all(node, &victim.usage, sign);
        }
    }
}

/// What podSets are given by the picks of a search.
pub(crate) fn assignments(
    view: &QueueView,
    pod_sets: &[PodSet],
    need: &Need,
    picks: &[Pick],
) -> Arc<[Assignment]> {
    let mut picks = picks.iter();
    let assignment = |(pod_set, need): (&PodSet, &PodSetNeed)| {
        let mut flavors: Vec<(ResourceName, FlavorName)> = Vec::new();
        let mut usage = Requests::new();
        for (need, pick) in need.groups.iter().zip(picks.by_ref()) {
            let group: &GroupView = &view.groups[need.group];
            for (at, value) in &need.wants {
                let resource = &group.resources[usize::from(*at)];
                flavors.push((resource.clone(), group.flavors[usize::from(pick.flavor)].name.clone()));
                usage.set(resource.clone(), *value);
            }
        }
        flavors.sort();
        Assignment { name: pod_set.name.clone(), flavors, usage, count: pod_set.count, reclaimed: 0 }
    };
    pod_sets.iter().zip(&need.pod_sets).map(assignment).collect()
}
