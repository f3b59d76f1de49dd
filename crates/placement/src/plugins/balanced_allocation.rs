//! A node of which the CPU is gone and the memory is not is of little use: take what keeps both even.

use gangway_model::scheduling::BalancedSettings;

use crate::cluster::{Column, Columns, Node};
use crate::framework::{Plugin, PluginId};
use crate::shapes::Shape;

#[derive(Debug)]
pub(crate) struct BalancedAllocation {
    resources: Vec<Column>,
}

impl BalancedAllocation {
    pub(crate) fn new(settings: &BalancedSettings, columns: &mut Columns) -> Self {
        Self { resources: settings.resources.iter().map(|name| columns.column(name)).collect() }
    }

    /// How even the use of a node is, 0 to 100, now and with the pod on it.
    fn evenness(&self, shape: &Shape, node: &Node) -> (i64, i64) {
        let mut now = Shares::default();
        let mut then = Shares::default();
        for column in &self.resources {
            let offered = node.allocatable(*column);
            let need = shape.need(*column);
            // What only some pods ask for counts for them alone.
            if offered <= 0 || need == 0 && !matches!(*column, Column::CPU | Column::MEMORY) {
                continue;
            }
            let taken = node.usage.taken(*column);
            now.add(taken, offered);
            then.add(taken + i128::from(need), offered);
        }
        (now.evenness(), then.evenness())
    }
}

/// More resources than anybody balances; what is beyond does not count.
const MOST_RESOURCES: usize = 16;

/// Which parts of a node's resources are in use.
#[derive(Default)]
struct Shares {
    count: usize,
    parts: [f64; MOST_RESOURCES],
}

impl Shares {
    fn add(&mut self, taken: i128, offered: i64) {
        if let Some(part) = self.parts.get_mut(self.count) {
            // Amounts beyond 2^53 are rounded, as they are in the reference.
            *part = (taken as f64 / offered as f64).min(1.0);
            self.count += 1;
        }
    }

    /// 100 where all parts are the same.
    fn evenness(&self) -> i64 {
        let parts = &self.parts[..self.count];
        let deviation = match parts {
            [one, other] => ((one - other) / 2.0).abs(),
            [] | [_] => 0.0,
            _ => {
                let count = self.count as f64;
                let mean = parts.iter().sum::<f64>() / count;
                (parts.iter().map(|part| (part - mean) * (part - mean)).sum::<f64>() / count).sqrt()
            }
        };
        ((1.0 - deviation) * 100.0) as i64
    }
}

impl Plugin for BalancedAllocation {
    fn id(&self) -> PluginId {
        PluginId::NodeResourcesBalancedAllocation
    }

    /// Who asks for nothing would pile up where the balance is best.
    fn has_opinion(&self, shape: &Shape) -> bool {
        self.resources.iter().any(|column| shape.need(*column) > 0)
    }

    fn score(&self, shape: &Shape, nodes: &[&Node], scores: &mut [i64]) {
        for (node, score) in nodes.iter().zip(scores) {
            let (now, then) = self.evenness(shape, node);
            *score = 50 + (50 + then - now) / 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evenness_is_one_minus_the_deviation() {
        let table: [(&[(i128, i64)], i64); 5] = [
            (&[], 100),
            (&[(5, 10)], 100),
            (&[(5, 10), (1, 10)], 80),
            (&[(20, 10), (5, 10)], 75),
            (&[(0, 10), (5, 10), (10, 10)], 59),
        ];
        for (uses, expected) in table {
            let mut shares = Shares::default();
            uses.iter().for_each(|(taken, offered)| shares.add(*taken, *offered));
            assert_eq!(shares.evenness(), expected, "{uses:?}");
        }
    }
}
