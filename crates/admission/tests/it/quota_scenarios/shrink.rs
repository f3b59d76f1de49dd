//! Makes a scenario smaller as long as it still shows what it showed.

use gangway_model::checks::RequiredCheck;
use gangway_model::queues::{Fungibility, PreemptionPolicy, QueueingStrategy};
use gangway_model::readiness::{RequeuingTimestamp, Timeouts, WaitForPodsReady};
use gangway_model::workload::{PodSet, Reservation, State};

use super::generate::Scenario;
use super::readiness::{Pause, Readiness};

/// The smallest scenario found for which `shows` still holds.
pub fn shrink(scenario: &Scenario, shows: impl Fn(&Scenario) -> bool) -> Scenario {
    let mut smallest = scenario.clone();
    loop {
        let smaller = smaller(&smallest).into_iter().find(|next| next.begins_within_quota() && shows(next));
        match smaller {
            Some(next) => smallest = next,
            None => return smallest,
        }
    }
}

/// Every scenario that is one step smaller.
fn smaller(scenario: &Scenario) -> Vec<Scenario> {
    let mut all = Vec::new();
    let mut step = |change: &dyn Fn(&mut Scenario)| {
        let mut next = scenario.clone();
        change(&mut next);
        if format!("{next:?}") != format!("{scenario:?}") {
            all.push(next);
        }
    };
    for index in 0..scenario.setup.cluster_queues.len() {
        step(&|next| {
            let queue = next.setup.cluster_queues.remove(index).name;
            next.workloads.retain(|(_, workload)| *workload.queue != *queue.as_str());
            next.setup.local_queues.retain(|local| local.cluster_queue != queue);
        });
    }
    for index in 0..scenario.workloads.len() {
        step(&|next| drop(next.workloads.remove(index)));
    }
    for index in 0..scenario.finishes.len() {
        step(&|next| drop(next.finishes.remove(index)));
    }
    for index in 0..scenario.setup.cohorts.len() {
        step(&|next| next.setup.cohorts[index].resource_groups.clear());
        step(&|next| drop(next.setup.cohorts.remove(index)));
    }
    for index in 0..scenario.workloads.len() {
        step(&|next| next.workloads[index].0 = 0);
        step(&|next| next.workloads[index].1.priority = 0);
        if matches!(scenario.workloads[index].1.state, State::Holding(_)) {
            continue;
        }
        step(&|next| with_pod_sets(next, index, |sets| sets.iter_mut().for_each(|set| set.count = 1)));
        step(&|next| with_pod_sets(next, index, |sets| sets.truncate(1)));
    }
    simpler_queues(scenario, &mut step);
    simpler_readiness(scenario, &mut step);
    simpler_fallback(scenario, &mut step);
    all
}

fn with_pod_sets(scenario: &mut Scenario, index: usize, change: impl Fn(&mut Vec<PodSet>)) {
    let workload = &mut scenario.workloads[index].1;
    let mut pod_sets = workload.pod_sets.to_vec();
    change(&mut pod_sets);
    workload.pod_sets = pod_sets.into();
}

/// Something that makes a scenario smaller.
type Change<'c> = &'c dyn Fn(&mut Scenario);

fn simpler_readiness(scenario: &Scenario, step: &mut dyn FnMut(Change<'_>)) {
    let Some(readiness) = &scenario.readiness else { return };
    step(&|next| *next = next.without_readiness());
    step(&|next| next.readiness.iter_mut().for_each(|readiness| readiness.settings = None));
    let mut change = |change: &dyn Fn(&mut Readiness)| {
        step(&|next| next.readiness.iter_mut().for_each(change));
    };
    change(&|next| next.pauses.truncate(next.pauses.len().saturating_sub(1)));
    for index in 0..readiness.pods.len() {
        change(&|next| drop(next.pods.remove(index)));
    }
    for index in 0..readiness.activations.len() {
        change(&|next| drop(next.activations.remove(index)));
    }
    for index in 0..readiness.pauses.len() {
        change(&|next| {
            next.pauses.remove(index);
        });
        change(&|next| next.pauses[index] = Pause::Seconds(100));
    }
    let mut set =
        |set: &dyn Fn(&mut WaitForPodsReady)| change(&|next| next.settings.iter_mut().for_each(set));
    set(&|next| next.block_admission = false);
    set(&|next| next.recovery_timeout_seconds = None);
    set(&|next| next.timestamp = RequeuingTimestamp::Creation);
    set(&|next| next.backoff_limit_count = None);
    set(&|next| next.backoff_base_seconds = 0);
    set(&|next| next.reset_after_ready_seconds = 0);
    for index in 0..scenario.workloads.len() {
        step(&|next| next.workloads[index].1.timeouts = None);
        step(&|next| {
            if let State::Holding(held) = &mut next.workloads[index].1.state {
                held.requeue_state = None;
            }
        });
    }
    for index in 0..scenario.setup.cluster_queues.len() {
        step(&|next| next.setup.cluster_queues[index].timeouts = Timeouts::default());
    }
}

fn simpler_fallback(scenario: &Scenario, step: &mut dyn FnMut(Change<'_>)) {
    for index in 0..scenario.edits.len() {
        step(&|next| drop(next.edits.remove(index)));
    }
    for index in 0..scenario.said.len() {
        step(&|next| drop(next.said.remove(index)));
    }
    for (index, queue) in scenario.setup.cluster_queues.iter().enumerate() {
        step(&|next| next.setup.cluster_queues[index].fallback = None);
        for check in 0..queue.admission_checks.len() {
            step(&|next| without_check(next, index, check));
        }
        for rule in 0..queue.fallback.as_ref().map_or(0, |strategy| strategy.rules.len()) {
            step(&|next| {
                let fallback = &mut next.setup.cluster_queues[index].fallback;
                fallback.iter_mut().for_each(|strategy| drop(strategy.rules.remove(rule)));
            });
        }
    }
    for index in 0..scenario.workloads.len() {
        let mut change = |change: &dyn Fn(&mut Reservation)| {
            step(&|next| {
                if let State::Holding(held) = &mut next.workloads[index].1.state {
                    change(held);
                }
            });
        };
        change(&|held| held.history = None);
        change(&|held| (held.admitted_at, held.checks) = (Some(held.reserved_at), None));
    }
}

/// Nobody demands a check any more, and nobody was asked.
fn without_check(scenario: &mut Scenario, queue: usize, check: usize) {
    let queue = &mut scenario.setup.cluster_queues[queue];
    let RequiredCheck { name, .. } = queue.admission_checks.remove(check);
    for (_, workload) in &mut scenario.workloads {
        if let State::Holding(held) = &mut workload.state
            && held.admission.cluster_queue == queue.name
            && let Some(mut checks) = held.checks.take()
        {
            checks.0.retain(|answer| answer.name != name);
            held.checks = checks.noted();
        }
    }
}

fn simpler_queues(scenario: &Scenario, step: &mut dyn FnMut(Change<'_>)) {
    for index in 0..scenario.setup.cluster_queues.len() {
        step(&|next| next.setup.cluster_queues[index].strategy = QueueingStrategy::BestEffortFifo);
        step(&|next| next.setup.cluster_queues[index].preemption = PreemptionPolicy::default());
        step(&|next| next.setup.cluster_queues[index].fungibility = Fungibility::default());
        step(&|next| {
            let groups = &mut next.setup.cluster_queues[index].resource_groups;
            for quota in groups.iter_mut().flat_map(|g| &mut g.flavors).flat_map(|f| &mut f.quotas) {
                (quota.borrowing_limit, quota.lending_limit) = (None, None);
            }
        });
        step(&|next| {
            let groups = &mut next.setup.cluster_queues[index].resource_groups;
            groups.iter_mut().for_each(|group| group.flavors.truncate(1));
        });
    }
}
