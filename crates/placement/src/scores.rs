//! Which of the nodes that fit is best? The emptiest, as the reference scheduler has it by default.
//!
//! Each score is 0 to 100 per node and has a weight; the highest sum wins. Spreading
//! (*LeastAllocated*) rather than packing is the reference's default, so pods land where users of the
//! reference expect them. Equal sums are decided by a hash of pod, node and seed: even, but repeatable.

use gangway_model::constraints::TaintEffect;
use gangway_model::{NodeName, Uid};

use crate::nodes::Node;
use crate::shapes::{Column, Shape};

type Score = fn(&Shape, &[&Node]) -> Vec<i64>;

/// With the weights of the reference scheduler.
const SCORES: [(Score, i64); 2] = [(avoided_taints, 3), (least_allocated, 1)];

const BEST: i64 = 100;

/// The best of `nodes` for this pod; `None` only if there are none.
pub(crate) fn best<'n>(shape: &Shape, nodes: &[&'n Node], uid: &Uid, seed: u64) -> Option<&'n Node> {
    let mut totals = vec![0_i64; nodes.len()];
    for (score, weight) in SCORES {
        for (total, score) in totals.iter_mut().zip(score(shape, nodes)) {
            *total += weight * score;
        }
    }
    let of_pod = uid.with_str(|uid| hash_on(FIRST_HASH ^ seed, uid.bytes().chain([0xff])));
    let ranked = nodes.iter().zip(totals);
    ranked.max_by_key(|(node, total)| (*total, tie_break(of_pod, &node.record.name))).map(|(node, _)| *node)
}

/// Fewer untolerated PreferNoSchedule taints are better: 100 for the fewest possible (none), 0 for the
/// most that any of these nodes has.
fn avoided_taints(shape: &Shape, nodes: &[&Node]) -> Vec<i64> {
    let tolerations = &shape.constraints.tolerations;
    let soft = |node: &&Node| {
        let taints = node.record.taints.iter().filter(|t| t.effect == TaintEffect::PreferNoSchedule);
        taints.filter(|taint| !tolerations.iter().any(|t| t.tolerates(taint))).count() as i64
    };
    let counts: Vec<i64> = nodes.iter().map(soft).collect();
    let most = counts.iter().copied().max().unwrap_or(0);
    let scored = |count: i64| if most == 0 { BEST } else { BEST - BEST * count / most };
    counts.into_iter().map(scored).collect()
}

/// The mean of the shares of CPU and memory that would be left free.
fn least_allocated(shape: &Shape, nodes: &[&Node]) -> Vec<i64> {
    let scored = |node: &&Node| {
        let usage = node.usage();
        let cpu = usage.scored_cpu_millis + i128::from(shape.scored_cpu_millis());
        let memory = usage.scored_memory_bytes + i128::from(shape.scored_memory_bytes());
        let shares = [(Column::CPU, cpu), (Column::MEMORY, memory)]
            .into_iter()
            .filter_map(|(column, taken)| free_share(node.allocatable(column), taken));
        let (sum, count) = shares.fold((0, 0), |(sum, count), share| (sum + share, count + 1));
        if count == 0 { 0 } else { sum / count }
    };
    nodes.iter().map(scored).collect()
}

/// How much of `capacity` is free, 0 to 100; `None` where there is none of it.
fn free_share(capacity: i64, taken: i128) -> Option<i64> {
    if capacity <= 0 {
        return None;
    }
    let capacity = i128::from(capacity);
    let free = (capacity - taken).clamp(0, capacity);
    // Between 0 and 100 by the clamp above.
    i64::try_from(free * i128::from(BEST) / capacity).ok()
}

/// Which of equal nodes a pod gets: the same on every machine and in every version of every crate.
fn tie_break(of_pod: u64, node: &NodeName) -> u64 {
    let hash = hash_on(of_pod, node.as_str().bytes());
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// FNV-1a, from what was hashed before.
fn hash_on(before: u64, bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(before, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

const FIRST_HASH: u64 = 0xcbf2_9ce4_8422_2325;

#[cfg(test)]
mod tests {
    use gangway_model::constraints::{Constraints, Taint};
    use gangway_model::selector::Labels;
    use gangway_model::{Requests, ResourceName};

    use super::*;
    use crate::nodes::Usage;
    use crate::records::NodeRecord;
    use crate::shapes::Columns;

    const GIB: i64 = 1 << 30;

    fn requests(cpu: i64, memory: i64) -> Requests {
        [(ResourceName::from("cpu"), cpu), (ResourceName::from("memory"), memory)].into_iter().collect()
    }

    fn node(columns: &mut Columns, name: &str, used_cpu: i64, soft_taint: bool) -> Node {
        let taint = Taint { key: "busy".into(), value: String::new(), effect: TaintEffect::PreferNoSchedule };
        let record = NodeRecord {
            name: name.into(),
            labels: Labels::new(),
            taints: soft_taint.then_some(taint).into_iter().collect(),
            unschedulable: false,
            allocatable: requests(10_000, 10 * GIB),
        };
        let mut usage = Usage::default();
        usage.add(&Shape::new(columns, &requests(used_cpu, GIB), &Constraints::default()));
        Node::new(columns, record, usage)
    }

    fn best_name(shape: &Shape, nodes: &[&Node], uid: &str, seed: u64) -> String {
        best(shape, nodes, &uid.into(), seed).unwrap().record.name.to_string()
    }

    #[test]
    fn the_emptiest_wins_unless_it_asks_to_be_spared() {
        let mut columns = Columns::default();
        let shape = Shape::new(&mut columns, &requests(1000, GIB), &Constraints::default());
        let full = node(&mut columns, "full", 8000, false);
        let empty = node(&mut columns, "empty", 1000, false);
        let spared = node(&mut columns, "spared", 1, true);
        assert_eq!(best_name(&shape, &[&full, &empty], "u", 0), "empty");
        assert_eq!(best_name(&shape, &[&full, &spared], "u", 0), "full");
        assert!(best(&shape, &[], &"u".into(), 0).is_none());
    }

    #[test]
    fn least_allocated_is_the_mean_free_share() {
        let mut columns = Columns::default();
        let shape = Shape::new(&mut columns, &requests(1000, 2 * GIB), &Constraints::default());
        // CPU: 10 - 3 - 1 of 10 free; memory: 10 - 1 - 2 of 10 free.
        let half = node(&mut columns, "a", 3000, false);
        assert_eq!(least_allocated(&shape, &[&half]), [(60 + 70) / 2]);
    }

    #[test]
    fn a_pod_without_requests_is_not_free_of_charge() {
        let mut columns = Columns::default();
        let shape = Shape::new(&mut columns, &Requests::new(), &Constraints::default());
        assert_eq!(shape.scored_cpu_millis(), 100);
        assert_eq!(shape.scored_memory_bytes(), 200 * 1024 * 1024);
    }

    #[test]
    fn ties_are_spread_by_pod_and_seed_and_repeatable() {
        let mut columns = Columns::default();
        let shape = Shape::new(&mut columns, &requests(1000, GIB), &Constraints::default());
        let (a, b) = (node(&mut columns, "a", 0, false), node(&mut columns, "b", 0, false));
        let chosen_a = |seed: u64| {
            let names = (0..1000).map(|i| best_name(&shape, &[&a, &b], &format!("uid-{i}"), seed));
            names.filter(|name| name == "a").count()
        };
        assert!((400..=600).contains(&chosen_a(0)), "{}", chosen_a(0));
        assert_eq!(chosen_a(7), chosen_a(7));
        assert_eq!(best_name(&shape, &[&a, &b], "x", 1), best_name(&shape, &[&b, &a], "x", 1));
    }
}
