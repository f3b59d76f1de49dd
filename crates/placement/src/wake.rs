//! Whom may something that happened help, and who may enter the queue at all?

use crate::cluster::{Cluster, Node};
use crate::framework::{
    Actions, Change, ClusterEvent, Happening, Help, PluginId, PluginSet, Profile, Resource,
};
use crate::ids::{NodeIndex, PodId, ShapeId};
use crate::judged;
use crate::plugins;
use crate::queue::Judge;
use crate::shapes::Shape;

/// What the queue asks about its pods, answered from the cluster.
pub(crate) struct Judging<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) profiles: &'a [Profile],
}

impl Judge for Judging<'_> {
    fn refuses(&self, pod: PodId, gated_by: Option<PluginId>) -> Option<PluginId> {
        let asked_first = gated_by.filter(|plugin| self.does_refuse(pod, *plugin));
        let gates = [PluginId::Unsupported, PluginId::SchedulingGates];
        asked_first.or_else(|| gates.into_iter().find(|plugin| self.does_refuse(pod, *plugin)))
    }

    fn told(&self, happening: &Happening) -> PluginSet {
        let told = self.profiles.iter().map(|profile| profile.told(happening));
        let told = told.fold(PluginSet::EMPTY, PluginSet::union);
        let ClusterEvent { resource, action } = happening.event;
        match resource {
            Resource::Node if action == Actions::ADD => told.with(PluginId::NoNode),
            Resource::TargetPod if action == Actions::UPDATE_POD_GATES_ELIMINATED => {
                told.with(PluginId::SchedulingGates).with(PluginId::Unsupported)
            }
            Resource::TargetPod => told.with(PluginId::Unsupported),
            _ => told,
        }
    }

    fn helps(&self, happening: &Happening, id: ShapeId, rejectors: PluginSet, _pending: PluginSet) -> Help {
        let Some(shape) = self.cluster.shapes.get(id) else { return Help::No };
        let Some(profile) = self.profiles.get(shape.profile) else { return Help::No };
        if rejectors.contains(PluginId::NoNode) {
            return Help::AfterBackoff { at_most: usize::MAX };
        }
        let told = profile.told(happening).intersection(rejectors);
        let may_help = told.iter().any(|plugin| {
            let plugin = profile.filter_of(plugin);
            plugin.is_some_and(|plugin| plugin.may_help(shape, happening, self.cluster))
        });
        if !may_help {
            return Help::No;
        }
        self.help_on_its_node(profile, shape, happening, rejectors)
    }
}

impl Judging<'_> {
    fn does_refuse(&self, id: PodId, plugin: PluginId) -> bool {
        let Some(pod) = self.cluster.pods.get(id) else { return false };
        let profile = self.cluster.shape_of(id).and_then(|shape| self.profiles.get(shape.profile));
        let is_asked = profile.is_some_and(|profile| profile.pre_enqueue.contains(plugin));
        match plugin {
            PluginId::Unsupported => !pod.record.unsupported.is_empty(),
            PluginId::SchedulingGates => is_asked && !pod.record.gates.is_empty(),
            _ => false,
        }
    }

    /// Whether what happened on one node makes room there. Elsewhere it cannot help, unless pods are spread.
    ///
    /// Whoever is not woken is woken later by one of those who rejected it. So a plugin that stands in the way now but did not before has
    /// to get to know the pod, and where more fit than are woken, those who are left must know that room may run out.
    fn help_on_its_node(
        &self,
        profile: &Profile,
        shape: &Shape,
        happening: &Happening,
        rejectors: PluginSet,
    ) -> Help {
        let all = Help::AfterBackoff { at_most: usize::MAX };
        let Some(index) = concerned_node(happening).filter(|_| !shape.must_be_spread()) else { return all };
        let Some(node) = self.cluster.node(index).filter(|node| node.is_present) else { return Help::No };
        // While room is made for anybody, equal pods are not equal: one may have the room that is kept from the others, and has to
        // give it up if it cannot use it.
        if self.cluster.has_nominations() {
            return all;
        }
        let emptied = self.without_lower(profile, shape, node);
        let node = emptied.as_ref().unwrap_or(node);
        match judged::verdicts(profile, shape, &[node])[..] {
            [Some(objection)] if rejectors.contains(objection.plugin()) => Help::No,
            [None] if rejectors.contains(PluginId::NodeResourcesFit) && shape.ports.is_empty() => {
                let places = usize::try_from(plugins::room_for(shape, node)).unwrap_or(usize::MAX);
                Help::AfterBackoff { at_most: places.max(1) }
            }
            _ => all,
        }
    }

    /// A node without those whom a pod of this shape may remove; none if there are none.
    fn without_lower(&self, profile: &Profile, shape: &Shape, node: &Node) -> Option<Node> {
        if !profile.preempts || shape.never_preempts {
            return None;
        }
        let mut emptied: Option<Node> = None;
        for other in node.pods.iter().filter_map(|id| self.cluster.shape_of(*id)) {
            if other.priority < shape.priority {
                emptied.get_or_insert_with(|| node.clone()).usage.subtract(other);
            }
        }
        emptied
    }
}

/// The one node on which something happened.
fn concerned_node(happening: &Happening) -> Option<NodeIndex> {
    match (&happening.change, happening.event.resource) {
        (Change::Node { index, new: Some(_), .. }, _) => Some(*index),
        (Change::Pod { node, .. }, Resource::AssignedPod) => *node,
        _ => None,
    }
}
