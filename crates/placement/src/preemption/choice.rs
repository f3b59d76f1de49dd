//! Which node is chosen? Where the least is lost.

use std::cmp::Reverse;

use gangway_model::Timestamp;

use super::Candidate;
use crate::cluster::Cluster;
use crate::ids::PodId;

/// Fewest broken budgets; then the least important most important victim, the least important victims together, the fewest, and those
/// that have run for the shortest time.
pub(super) fn best(cluster: &Cluster, candidates: Vec<Candidate>) -> Option<Candidate> {
    // The first of equals: `min_by_key` keeps it.
    candidates.into_iter().min_by_key(|candidate| cost(cluster, candidate))
}

fn cost(cluster: &Cluster, candidate: &Candidate) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
    let record = |id: &PodId| cluster.pods.get(*id).map(|pod| &pod.record);
    let priorities: Vec<i32> = candidate.victims.iter().filter_map(record).map(|pod| pod.priority).collect();
    let highest = priorities.iter().copied().max().unwrap_or(i32::MIN);
    // Each victim counts, also one of negative priority.
    let sum = priorities.iter().map(|priority| i64::from(*priority) + (1 << 31)).sum();
    let most_important = candidate.victims.iter().filter_map(record).filter(|pod| pod.priority == highest);
    let earliest = most_important.map(|pod| pod.started_at.unwrap_or(Timestamp::from_nanos(i64::MAX))).min();
    let earliest = earliest.unwrap_or(Timestamp::EPOCH);
    (candidate.violations, highest, sum, candidate.victims.len(), Reverse(earliest))
}
