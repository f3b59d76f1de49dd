//! The plugins, one file each.

mod balanced_allocation;
mod node_affinity;
mod node_name;
mod node_ports;
mod node_unschedulable;
mod resources_fit;
mod taint_toleration;
mod topology_spread;

use gangway_model::constraints::Taint;
use gangway_model::scheduling::ProfileSettings;

pub(crate) use node_affinity::accepts as accepts_node;
pub(crate) use resources_fit::{room_for, shortages};
pub(crate) use taint_toleration::tolerates_hard_taints as tolerates_taints;

use crate::cluster::{Columns, Node};
use crate::framework::{Change, Happening, Objection, Plugin, PluginId};
use crate::records::NodeRecord;

/// The best score that a plugin gives.
pub(crate) const MAX_SCORE: i64 = 100;

/// The plugin of this name, as it was configured; none if it rules out no node and ranks none.
pub(crate) fn make(
    id: PluginId,
    settings: &ProfileSettings,
    columns: &mut Columns,
) -> Option<Box<dyn Plugin>> {
    Some(match id {
        PluginId::NodeName => Box::new(node_name::NodeName),
        PluginId::NodeUnschedulable => Box::new(node_unschedulable::NodeUnschedulable),
        PluginId::TaintToleration => Box::new(taint_toleration::TaintToleration),
        PluginId::NodeAffinity => Box::new(node_affinity::NodeAffinity::new(&settings.affinity)),
        PluginId::NodePorts => Box::new(node_ports::NodePorts),
        PluginId::NodeResourcesFit => Box::new(resources_fit::ResourcesFit::new(&settings.fit, columns)),
        PluginId::PodTopologySpread => Box::new(topology_spread::TopologySpread),
        PluginId::NodeResourcesBalancedAllocation => {
            Box::new(balanced_allocation::BalancedAllocation::new(&settings.balanced, columns))
        }
        _ => return None,
    })
}

/// Rules out those nodes that are not ruled out yet and that `accepts` does not accept.
fn object(
    nodes: &[&Node],
    verdicts: &mut [Option<Objection>],
    objection: Objection,
    accepts: impl Fn(&Node) -> bool,
) {
    for (node, verdict) in nodes.iter().zip(verdicts) {
        if verdict.is_none() && !accepts(node) {
            *verdict = Some(objection);
        }
    }
}

/// Shares of the highest score; the other way round if a low score is good.
fn normalize_by_highest(scores: &mut [i64], is_reversed: bool) {
    let highest = scores.iter().copied().max().unwrap_or(0);
    if highest == 0 {
        return scores.fill(if is_reversed { MAX_SCORE } else { 0 });
    }
    for score in scores {
        let share = MAX_SCORE * *score / highest;
        *score = if is_reversed { MAX_SCORE - share } else { share };
    }
}

/// A node that came or changed, and what it was before.
fn node_change(happening: &Happening) -> Option<(Option<&NodeRecord>, &NodeRecord)> {
    match &happening.change {
        Change::Node { old, new: Some(new), .. } => Some((old.as_deref(), new)),
        _ => None,
    }
}

/// A cordoned node counts as tainted, so that what tolerates that taint (agents of the node) still fits.
fn cordon() -> [Taint; 1] {
    let effect = gangway_model::constraints::TaintEffect::NoSchedule;
    [Taint { key: "node.kubernetes.io/unschedulable".to_owned(), value: String::new(), effect }]
}
