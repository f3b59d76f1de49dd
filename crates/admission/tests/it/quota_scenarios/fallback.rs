//! Scenarios in which flavors are given up and admission checks have to agree: the rules of the queues, what the checks say
//! of whom in which round, and what was tried before.

use gangway_model::checks::{CheckAnswer, CheckAnswers, RequiredCheck};
use gangway_model::fallback::{FailurePolicy, FallbackRule, FallbackStrategy, FlavorAttempt, FlavorHistory};
use gangway_model::queues::{ClusterQueue, FlavorQuotas, ResourceGroup};
use gangway_model::reasons::{CheckState, FallbackTrigger};
use gangway_model::workload::{Reservation, State, Workload};
use gangway_model::{AdmissionCheckName, FlavorName, Uid};

use super::generate::Scenario;
use super::random::Random;
use super::readiness;
use crate::build;
use crate::quota_model::Edit;

/// In so many of a hundred scenarios flavors are given up.
const SHARE: i64 = 45;

/// In a round, a check says something of a workload, if it was asked.
#[derive(Clone, Debug)]
pub struct Said {
    pub round: u32,
    pub uid: Uid,
    pub check: AdmissionCheckName,
    pub state: CheckState,
    pub after_seconds: Option<i64>,
}

/// Lets flavors be given up in some scenarios. The numbers are drawn for this alone, so that all else stays as it is.
pub fn add(scenario: &mut Scenario, seed: u64) {
    let mut random = Random::new(seed ^ 0xfa11_bacc);
    if !random.percent(SHARE) {
        return;
    }
    if scenario.readiness.is_none() {
        readiness::let_time_pass(scenario, &mut random, false);
    }
    if scenario.setup.flavors.len() == 1 && random.percent(50) {
        add_flavor(scenario, &mut random);
    }
    let has_checks = random.percent(65);
    for queue in &mut scenario.setup.cluster_queues {
        if random.percent(85) {
            queue.fallback = Some(strategy(&mut random, queue));
        }
        if has_checks && random.percent(70) {
            queue.admission_checks = checks(&mut random, queue);
        }
    }
    let Scenario { workloads, setup, readiness, said, .. } = scenario;
    let Some(readiness) = readiness else { return };
    let rounds = readiness.pauses.len() as u32;
    for (_, workload) in workloads {
        let queue = setup.cluster_queues.iter().find(|queue| queue.name.as_str() == &*workload.queue);
        let Some(queue) = queue else { continue };
        if random.percent(35) {
            // Its machines do not come, or late.
            readiness.pods.retain(|(_, uid, _)| *uid != workload.uid);
            let late = (u32::try_from(random.between(2, 9)).unwrap_or(2), workload.uid.clone(), true);
            readiness.pods.extend(Some(late).filter(|(round, ..)| *round <= rounds));
        }
        said.extend(answers(&mut random, queue, workload, rounds));
        if let State::Holding(reservation) = &mut workload.state {
            begin_with(&mut random, queue, reservation);
        }
    }
    add_edits(scenario, &mut random, rounds);
}

/// An administrator thinks again. What is drawn for that comes last, so that all else stays as it is.
fn add_edits(scenario: &mut Scenario, random: &mut Random, rounds: u32) {
    for round in 1..=rounds {
        if !random.percent(25) {
            continue;
        }
        let queue = random.one_of(&scenario.setup.cluster_queues);
        let fallback = random.percent(75).then(|| strategy(random, &queue));
        let checks = if random.percent(50) { checks(random, &queue) } else { Vec::new() };
        let kept = random.one_of(&[0, 1, 2]);
        let edit = Edit {
            queue: queue.name.clone(),
            fallback: if kept == 1 { queue.fallback.clone() } else { fallback },
            checks: if kept == 2 { queue.admission_checks.clone() } else { checks },
        };
        scenario.edits.push((round, edit));
    }
}

/// A second flavor to fall back to, of which there is less.
fn add_flavor(scenario: &mut Scenario, random: &mut Random) {
    scenario.setup.flavors.push(build::flavor("f1"));
    let setup = &mut scenario.setup;
    let of_queues = setup.cluster_queues.iter_mut().flat_map(|queue| &mut queue.resource_groups);
    let of_cohorts = setup.cohorts.iter_mut().flat_map(|cohort| &mut cohort.resource_groups);
    for ResourceGroup { resources, flavors } in of_queues.chain(of_cohorts) {
        let quotas = resources.iter().map(|_| build::quota(random.one_of(&[0, 1, 2, 3, 5]))).collect();
        flavors.push(FlavorQuotas { flavor: "f1".into(), quotas });
    }
}

fn flavors_of(queue: &ClusterQueue) -> Vec<FlavorName> {
    let groups = queue.resource_groups.iter();
    groups.flat_map(|group| &group.flavors).map(|quotas| quotas.flavor.clone()).collect()
}

fn strategy(random: &mut Random, queue: &ClusterQueue) -> FallbackStrategy {
    use FallbackTrigger::{AdmissionCheckRejected, TimeoutForPodsReadyExceeded};
    let named: Vec<Option<FlavorName>> = flavors_of(queue).into_iter().map(Some).collect();
    let mut rules = Vec::new();
    for flavor in [vec![None], named].concat() {
        if random.percent(60) {
            let timeout_seconds =
                random.one_of(&[None, Some(40), Some(100), Some(100), Some(250), Some(600)]);
            let timeout_seconds = timeout_seconds.filter(|_| flavor.is_some() || random.percent(90));
            let trigger = TimeoutForPodsReadyExceeded;
            rules.push(FallbackRule { flavor: flavor.clone(), trigger, timeout_seconds });
        }
        if random.percent(if flavor.is_none() { 60 } else { 30 }) {
            rules.push(FallbackRule { flavor, trigger: AdmissionCheckRejected, timeout_seconds: None });
        }
    }
    random.shuffle(&mut rules);
    let failure_policy = random.one_of(&[FailurePolicy::RetryAllFlavors, FailurePolicy::DeactivateWorkload]);
    FallbackStrategy { failure_policy, rules }
}

/// One check for all flavors, one for some, or both.
fn checks(random: &mut Random, queue: &ClusterQueue) -> Vec<RequiredCheck> {
    let mut checks = Vec::new();
    if random.percent(60) {
        checks.push(RequiredCheck { name: "all".into(), on_flavors: Vec::new() });
    }
    if checks.is_empty() || random.percent(40) {
        let mut on_flavors = flavors_of(queue);
        on_flavors.retain(|_| random.percent(60));
        checks.push(RequiredCheck { name: "some".into(), on_flavors });
    }
    checks
}

/// What the checks of its queue say of a workload.
fn answers(random: &mut Random, queue: &ClusterQueue, workload: &Workload, rounds: u32) -> Vec<Said> {
    use CheckState::{Pending, Ready, Rejected, Retry};
    let mut said = Vec::new();
    for check in &queue.admission_checks {
        for round in 1..=rounds {
            if !random.percent(45) {
                continue;
            }
            let state =
                random.one_of(&[Ready, Ready, Ready, Ready, Rejected, Rejected, Rejected, Retry, Pending]);
            let after_seconds = random.one_of(&[None, Some(0), Some(30), Some(100), Some(400)]);
            let (uid, check) = (workload.uid.clone(), check.name.clone());
            said.push(Said { round, uid, check, state, after_seconds });
        }
    }
    said
}

/// Who has quota in the beginning may wait for its checks, and may have tried other flavors before.
fn begin_with(random: &mut Random, queue: &ClusterQueue, reservation: &mut Reservation) {
    // Not long ago, so that its time is not over at once.
    reservation.reserved_at = reservation.reserved_at.plus_seconds(170);
    reservation.admitted_at = Some(reservation.reserved_at);
    let assigned: Vec<FlavorName> = reservation.admission.flavors().into_iter().cloned().collect();
    if random.percent(40) {
        let is_asked = |check: &&RequiredCheck| assigned.iter().any(|flavor| check.concerns(flavor));
        let asked = queue.admission_checks.iter().filter(is_asked);
        let pending = asked.map(|check| CheckAnswer::pending(check.name.clone(), reservation.reserved_at));
        reservation.checks = CheckAnswers(pending.collect()).noted();
        reservation.admitted_at = reservation.admitted_at.filter(|_| reservation.checks.is_none());
    }
    if queue.fallback.is_none() || random.percent(60) {
        return;
    }
    let rounds = random.one_of(&[0, 0, 1]);
    let attempt = |flavor: FlavorName, accumulated_seconds, exhausted| FlavorAttempt {
        flavor,
        assigned_at: None,
        accumulated_seconds,
        exhausted,
        rounds,
    };
    let mut history = FlavorHistory::default();
    for flavor in flavors_of(queue) {
        let trigger = FallbackTrigger::TimeoutForPodsReadyExceeded;
        if assigned.contains(&flavor) {
            history.0.push(attempt(flavor, random.one_of(&[0, 10, 40]), None));
        } else if random.percent(40) {
            history.0.push(attempt(flavor, 100, Some(trigger)));
        }
    }
    reservation.history = history.noted();
}
