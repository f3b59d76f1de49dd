//! Makes a scenario smaller as long as it still shows what it showed.

use gangway_model::queues::{Fungibility, PreemptionPolicy, QueueingStrategy};
use gangway_model::workload::{PodSet, State};

use super::generate::Scenario;

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
