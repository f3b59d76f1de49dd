//! What is there, in numbers, and what is known of one pod: for metrics and for what is told to people.

use std::collections::BTreeMap;
use std::sync::Arc;

use gangway_model::Uid;

use crate::cluster::Stage;
use crate::framework::PluginId;
use crate::queue::Standing;
use crate::{DecisionId, Scheduler};

/// What the scheduler knows of, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census<'a> {
    /// Nodes.
    pub nodes: usize,
    /// Pods that have a node, be it only in our books.
    pub pods: usize,
    /// Those of them that are not seen as bound yet.
    pub assumed_pods: usize,
    /// Pods that wait, by the plugin that rejects them and the scheduler that they ask for.
    pub unschedulable: BTreeMap<(PluginId, &'a str), usize>,
}

impl Scheduler {
    /// Counts everything; takes as long as there are pods.
    pub fn census(&self) -> Census<'_> {
        let mut census = Census { nodes: self.cluster.present().count(), ..Census::default() };
        for (id, pod) in self.cluster.pods.iter() {
            census.pods += usize::from(pod.node.is_some());
            census.assumed_pods += usize::from(matches!(pod.stage, Stage::Assumed(_)));
            for plugin in self.queue.blamed(id).iter() {
                *census.unschedulable.entry((plugin, &*pod.record.scheduler_name)).or_default() += 1;
            }
        }
        census
    }

    /// Where a pod without a node is in the queue, and what it has been through.
    pub fn standing(&self, uid: &Uid) -> Option<Standing> {
        self.queue.standing(self.cluster.pods.find(uid)?)
    }

    /// The scheduler that a pod asks for.
    pub fn scheduler_name(&self, uid: &Uid) -> Option<Arc<str>> {
        let pod = self.cluster.pods.get(self.cluster.pods.find(uid)?)?;
        Some(Arc::clone(&pod.record.scheduler_name))
    }

    /// The scheduler for which a pod was tried last.
    pub fn last_tried(&self) -> Option<&str> {
        self.last_tried.and_then(|profile| self.profiles.get(profile)).map(|p| &*p.settings.scheduler_name)
    }

    /// Whether the outcome of a decision is still waited for. Where it is not, what was not sent need not be.
    pub fn is_under_way(&self, decision: DecisionId) -> bool {
        self.in_flight.contains_key(&decision)
    }
}
