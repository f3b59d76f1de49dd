//! Random scenarios: cohort trees, queues with all policies, and workloads that come and go in rounds.

use std::sync::Arc;

use gangway_model::constraints::Constraints;
use gangway_model::planted::Planted;
use gangway_model::queues::{
    BorrowWithinCohort, ClusterQueue, Cohort, FlavorQuotas, Fungibility, FungibilityPolicy,
    FungibilityPreference, PreemptionPolicy, QueueingStrategy, Quota, ReclaimWithinCohort, ResourceGroup,
    StopPolicy, WithinClusterQueue,
};
use gangway_model::workload::{Admission, Assignment, PodSet, Reservation, State, Workload};
use gangway_model::{Amount, CohortName, FlavorName, Requests, Uid};

use super::fallback::{self, Said};
use super::random::Random;
use super::readiness::{self, Readiness};
use crate::build;
use crate::quota_model::{Edit, Model, Rules, Setup};

/// Rounds are 0 to this at most.
const LAST_ROUND: i64 = 3;

/// A setup, who comes when, and who ends when.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub setup: Setup,
    /// The round in which it arrives, and the workload. Who holds quota is there from the start.
    pub workloads: Vec<(u32, Workload)>,
    pub finishes: Vec<(u32, Uid)>,
    /// Pods have to be ready in time; none if nobody asks.
    pub readiness: Option<Readiness>,
    /// What admission checks say.
    pub said: Vec<Said>,
    /// What an administrator changes of rules and checks, and in which round.
    pub edits: Vec<(u32, Edit)>,
    /// A mistake that the engine is to make.
    pub planted: Planted,
}

impl Scenario {
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let crowded = random.percent(60);
        let flavors = if crowded { 1 } else { random.one_of(&[1, 1, 2, 3]) };
        let gpus = if crowded { 0 } else { random.one_of(&[0, 0, 0, 1, 2]) };
        let ended = Random::new(!seed);
        let mut making = Making { random, ended, scenario: Self::default(), flavors, gpus, crowded };
        making.make_flavors();
        let roots = if crowded { 1 } else { making.random.one_of(&[1, 1, 1, 2, 3]) };
        for root in 0..roots {
            making.make_tree(root);
        }
        making.make_workloads();
        readiness::add(&mut making.scenario, seed);
        fallback::add(&mut making.scenario, seed);
        making.scenario
    }

    /// The same where nobody asks whether pods are ready, nor a check whether they may run.
    pub fn without_readiness(&self) -> Self {
        let mut scenario = Self { readiness: None, said: vec![], edits: vec![], ..self.clone() };
        for queue in &mut scenario.setup.cluster_queues {
            (queue.fallback, queue.admission_checks) = (None, Vec::new());
        }
        for (_, workload) in &mut scenario.workloads {
            if let State::Holding(reservation) = &mut workload.state {
                reservation.admitted_at = Some(reservation.reserved_at);
                (reservation.requeue_state, reservation.checks, reservation.history) = (None, None, None);
            }
        }
        scenario
    }

    /// The last round in which something happens.
    pub fn last_round(&self) -> u32 {
        let arrivals = self.workloads.iter().map(|(round, _)| *round);
        let pauses = self.readiness.as_ref().map(|readiness| readiness.pauses.len() as u32);
        arrivals.chain(self.finishes.iter().map(|(round, _)| *round)).chain(pauses).max().unwrap_or(0)
    }

    /// Whose pods are ready from this round on, and whose are not any more.
    pub fn pods_in(&self, round: u32) -> impl Iterator<Item = (&Uid, bool)> {
        let all = self.readiness.iter().flat_map(|readiness| &readiness.pods);
        all.filter(move |(at, ..)| *at == round).map(|(_, uid, ready)| (uid, *ready))
    }

    /// What checks say in a round.
    pub fn said_in(&self, round: u32) -> impl Iterator<Item = &Said> {
        self.said.iter().filter(move |said| said.round == round)
    }

    /// What an administrator changes in a round.
    pub fn edits_in(&self, round: u32) -> impl Iterator<Item = &Edit> {
        self.edits.iter().filter(move |(at, _)| *at == round).map(|(_, edit)| edit)
    }

    /// Whom somebody activates or deactivates in a round.
    pub fn activations_in(&self, round: u32) -> impl Iterator<Item = (&Uid, bool)> {
        let all = self.readiness.iter().flat_map(|readiness| &readiness.activations);
        all.filter(move |(at, ..)| *at == round).map(|(_, uid, active)| (uid, *active))
    }

    /// Those who are there in the beginning with quota, in order, fit the quotas.
    pub fn begins_within_quota(&self) -> bool {
        let mut model = Model::new(Rules::gangway(), self.setup.clone());
        self.workloads.iter().all(|(_, workload)| {
            let State::Holding(reservation) = &workload.state else { return true };
            let queue = &reservation.admission.cluster_queue;
            model.add(workload.clone());
            self.setup.cluster_queues.iter().any(|known| known.name == *queue)
                && model.oversubscribed_by(&workload.uid).is_none()
        })
    }
}

struct Making {
    random: Random,
    /// Of whose pods some have ended.
    ended: Random,
    scenario: Scenario,
    flavors: i64,
    gpus: i64,
    /// Nearly everything is taken by workloads of little priority and different size, and others with more
    /// of both come: there is somebody to preempt, and often to spare.
    crowded: bool,
}

impl Making {
    fn make_flavors(&mut self) {
        for index in 0..self.flavors {
            let name = format!("f{index}");
            let flavor = match self.random.between(1, 100) {
                1..=20 => build::tainted(&name, "spot"),
                21..=40 => build::labelled(&name, "kind", &name),
                _ => build::flavor(&name),
            };
            self.scenario.setup.flavors.push(flavor);
        }
        let gpus = (0..self.gpus).map(|index| build::flavor(&format!("g{index}")));
        self.scenario.setup.flavors.extend(gpus);
        self.scenario.setup.namespaces.push(build::namespace("ns", &[]));
    }

    /// A root with queues below it: a lone queue, or a cohort up to three levels deep.
    fn make_tree(&mut self, root: i64) {
        let depth = self.random.one_of(&[0, 1, 1, 2, 2, 3]);
        if depth == 0 {
            return self.make_queue(format!("q{root}"), None);
        }
        let mut cohorts: Vec<(CohortName, i64)> = vec![(format!("c{root}").as_str().into(), 1)];
        self.make_cohort(&cohorts[0].0.clone(), None);
        for index in 1..depth + self.random.between(0, 1) * (depth - 1) {
            let parents: Vec<_> = cohorts.iter().filter(|(_, level)| *level < depth).cloned().collect();
            let (parent, level) = self.random.one_of(&parents);
            let name: CohortName = format!("c{root}-{index}").as_str().into();
            self.make_cohort(&name, Some(parent));
            cohorts.push((name, level + 1));
        }
        let queues = self.random.one_of(if self.crowded { &[2, 2, 3] } else { &[2, 2, 3, 3, 4] });
        for index in 0..queues {
            let (cohort, _) = match cohorts.get(index) {
                Some(cohort) if self.random.percent(60) => cohort.clone(),
                _ => self.random.one_of(&cohorts),
            };
            self.make_queue(format!("q{root}-{index}"), Some(cohort));
        }
    }

    fn make_cohort(&mut self, name: &CohortName, parent: Option<CohortName>) {
        let resource_groups = if self.random.percent(35) { self.groups(parent.is_some(), 4) } else { vec![] };
        // A cohort that only queues name need not exist as an object.
        if parent.is_some() || !resource_groups.is_empty() || self.random.percent(50) {
            self.scenario.setup.cohorts.push(Cohort { name: name.clone(), parent, resource_groups });
        }
    }

    fn make_queue(&mut self, name: String, cohort: Option<CohortName>) {
        let resource_groups = self.groups(cohort.is_some(), if self.crowded { 7 } else { 8 });
        let mut queue = build::cluster_queue(&name, resource_groups);
        let mut local = build::local_queue("ns", &name, &name);
        queue.cohort = cohort;
        if self.random.percent(20) {
            queue.strategy = QueueingStrategy::StrictFifo;
        }
        queue.preemption = self.preemption();
        queue.fungibility = self.fungibility();
        match self.random.between(1, 100) {
            1 => queue.stop_policy = StopPolicy::Hold,
            2 | 3 => queue.stop_policy = StopPolicy::HoldAndDrain,
            4 => local.stop_policy = StopPolicy::Hold,
            5 => local.stop_policy = StopPolicy::HoldAndDrain,
            _ => {}
        }
        self.scenario.setup.cluster_queues.push(queue);
        self.scenario.setup.local_queues.push(local);
    }

    fn preemption(&mut self) -> PreemptionPolicy {
        use WithinClusterQueue::{LowerOrNewerEqualPriority, LowerPriority, Never};
        let willing = self.crowded && self.random.percent(90);
        let lower = BorrowWithinCohort::LowerPriority { max_priority: None };
        let lowest = BorrowWithinCohort::LowerPriority { max_priority: Some(1) };
        PreemptionPolicy {
            within_cluster_queue: match willing {
                true => self.random.one_of(&[LowerPriority, LowerOrNewerEqualPriority]),
                false => self.random.one_of(&[Never, LowerPriority, LowerOrNewerEqualPriority]),
            },
            reclaim_within_cohort: match willing {
                true => self.random.one_of(&[ReclaimWithinCohort::LowerPriority, ReclaimWithinCohort::Any]),
                false => self.random.one_of(&[
                    ReclaimWithinCohort::Never,
                    ReclaimWithinCohort::LowerPriority,
                    ReclaimWithinCohort::Any,
                ]),
            },
            borrow_within_cohort: self.random.one_of(&[BorrowWithinCohort::Never, lower, lowest]),
        }
    }

    fn fungibility(&mut self) -> Fungibility {
        let policies = [FungibilityPolicy::MayStopSearch, FungibilityPolicy::TryNextFlavor];
        let preferences =
            [FungibilityPreference::BorrowingOverPreemption, FungibilityPreference::PreemptionOverBorrowing];
        Fungibility {
            when_can_borrow: self.random.one_of(&policies),
            when_can_preempt: self.random.one_of(&policies),
            preference: self.random.one_of(&preferences),
        }
    }

    fn groups(&mut self, has_parent: bool, most: i64) -> Vec<ResourceGroup> {
        let resources = self.random.one_of(&[vec!["cpu"], vec!["cpu"], vec!["cpu", "memory"]]);
        let mut groups = vec![self.group(&resources, "f", self.flavors, (has_parent, most))];
        if self.gpus > 0 && self.random.percent(80) {
            groups.push(self.group(&["gpu"], "g", self.gpus, (has_parent, most)));
        }
        groups
    }

    fn group(
        &mut self,
        resources: &[&str],
        prefix: &str,
        count: i64,
        (has_parent, most): (bool, i64),
    ) -> ResourceGroup {
        let flavors = (0..count).map(|index| FlavorQuotas {
            flavor: format!("{prefix}{index}").as_str().into(),
            quotas: resources.iter().map(|_| self.quota(has_parent, most)).collect(),
        });
        let flavors = flavors.collect();
        ResourceGroup { resources: resources.iter().map(|name| (*name).into()).collect(), flavors }
    }

    fn quota(&mut self, has_parent: bool, most: i64) -> Quota {
        let nominal = self.random.between(if self.crowded { most / 3 } else { 0 }, most);
        let borrowing = has_parent && self.random.percent(25);
        let lending = has_parent && self.random.percent(25);
        Quota {
            nominal: Amount::new(nominal),
            borrowing_limit: borrowing.then(|| Amount::new(self.random.between(0, 4))),
            lending_limit: lending.then(|| Amount::new(self.random.between(0, nominal))),
        }
    }

    fn make_workloads(&mut self) {
        let count = if self.crowded { self.random.between(6, 9) } else { self.random.between(3, 9) };
        let last_round = self.random.one_of(&[0, 0, 1, 1, 2, LAST_ROUND]);
        let mut seconds: Vec<i64> = (0..count).collect();
        self.random.shuffle(&mut seconds);
        let mut model = Model::new(Rules::gangway(), self.scenario.setup.clone());
        for (index, second) in seconds.into_iter().enumerate() {
            let wants_quota = self.random.percent(if self.crowded { 80 } else { 45 });
            let mut workload = self.workload(index, second, wants_quota);
            if !wants_quota && self.random.percent(40) {
                self.make_twin(&mut workload);
            }
            if wants_quota && self.hold_quota(&mut workload, &mut model, second) {
                self.scenario.workloads.push((0, workload));
                continue;
            }
            let round = if self.random.percent(50) { 0 } else { self.random.between(0, last_round) };
            let round = u32::try_from(round).unwrap_or(0);
            self.scenario.workloads.push((round, workload));
        }
        for _ in 0..self.random.between(0, 3).min(last_round) {
            let round = u32::try_from(self.random.between(1, last_round)).unwrap_or(1);
            let index = usize::try_from(self.random.between(0, count - 1)).unwrap_or(0);
            let uid = self.scenario.workloads[index].1.uid.clone();
            self.scenario.finishes.push((round, uid));
        }
    }

    fn workload(&mut self, index: usize, second: i64, wants_quota: bool) -> Workload {
        let names: &[&str] = if self.random.percent(if self.crowded { 8 } else { 25 }) {
            &["main", "side"]
        } else {
            &["main"]
        };
        let (least, most) = match (self.crowded, wants_quota) {
            (true, true) => (1, 4),
            (true, false) => (3, 6),
            (false, _) => (1, 3),
        };
        let pod_sets = names.iter().map(|name| self.pod_set(name, (least, most))).collect();
        let queue = self.random.one_of(&self.scenario.setup.cluster_queues).name.clone();
        let mut workload = build::workload(&format!("w{index}"), pod_sets);
        workload.queue = Arc::from(queue.as_str());
        workload.created = build::at(1000 + second);
        workload.priority = match (self.crowded, wants_quota) {
            (false, _) => self.random.one_of(&[0, 0, 1, 2, 3]),
            (true, true) => self.random.one_of(&[0, 0, 1]),
            (true, false) => self.random.one_of(&[1, 2, 3]),
        };
        workload.active = !self.random.percent(2);
        workload
    }

    /// Lets a workload ask for the same as another that waits.
    fn make_twin(&mut self, workload: &mut Workload) {
        let waits = |workload: &Workload| !matches!(workload.state, State::Holding(_));
        let others: Vec<&Workload> =
            self.scenario.workloads.iter().map(|(_, other)| other).filter(|other| waits(other)).collect();
        if !others.is_empty() {
            let other = self.random.one_of(&others);
            workload.queue = other.queue.clone();
            workload.priority = other.priority;
            workload.pod_sets = other.pod_sets.clone();
        }
    }

    fn pod_set(&mut self, name: &str, (least, most): (i64, i64)) -> PodSet {
        let mut amounts = vec![("cpu", self.random.between(least, most))];
        if self.random.percent(if self.crowded { 5 } else { 25 }) {
            amounts.push(("memory", self.random.between(1, 3)));
        }
        if self.gpus > 0 && self.random.percent(50) {
            amounts.push(("gpu", self.random.between(1, 2)));
        }
        let count = if self.crowded { 1 } else { self.random.one_of(&[1, 1, 1, 2, 3]) };
        let constraints = match self.random.between(1, 100) {
            1..=50 => build::tolerating("spot"),
            51..=60 => build::selects("kind", "f0"),
            _ => Constraints::default(),
        };
        build::constrained(build::pod_set(name, count, &amounts), constraints)
    }

    /// Lets a workload have quota from the beginning if there is room for it.
    fn hold_quota(&mut self, workload: &mut Workload, model: &mut Model, second: i64) -> bool {
        let queues = &self.scenario.setup.cluster_queues;
        let Some(queue) = queues.iter().find(|queue| queue.name.as_str() == &*workload.queue).cloned() else {
            return false;
        };
        let pod_sets: Option<Vec<_>> = workload.pod_sets.iter().map(|set| self.assign(&queue, set)).collect();
        let Some(pod_sets) = pod_sets else { return false };
        let reservation = Reservation {
            admission: Arc::new(Admission { cluster_queue: queue.name.clone(), pod_sets: pod_sets.into() }),
            reserved_at: build::at(2000 + second),
            admitted_at: Some(build::at(2000 + second)),
            past_eviction: None,
            requeued: None,
            requeue_state: None,
            pods_ready: None,
            checks: None,
            history: None,
        };
        let waiting = std::mem::replace(&mut workload.state, State::Holding(reservation));
        let mut with = model.clone();
        with.add(workload.clone());
        if with.oversubscribed_by(&workload.uid).is_some() {
            workload.state = waiting;
            return false;
        }
        *model = with;
        true
    }

    fn assign(&mut self, queue: &ClusterQueue, pod_set: &PodSet) -> Option<Assignment> {
        // Some began with more pods, which are not needed any more.
        let reclaimed = if self.ended.percent(12) { self.ended.between(1, 3) as i32 } else { 0 };
        let count = pod_set.count + reclaimed;
        let usage: Requests = pod_set.requests.times(i64::from(count));
        let mut flavors = Vec::new();
        let chosen: Vec<FlavorName> =
            queue.resource_groups.iter().map(|group| self.random.one_of(&group.flavors).flavor).collect();
        for (resource, _) in usage.iter() {
            let group = queue.resource_groups.iter().position(|group| group.resources.contains(resource))?;
            flavors.push((resource.clone(), chosen[group].clone()));
        }
        Some(Assignment { name: pod_set.name.clone(), flavors, usage, count, reclaimed })
    }
}
