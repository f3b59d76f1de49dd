//! Who has to go, so that a pod of higher priority can run?
//!
//! | question | file |
//! |---|---|
//! | may the pod remove others, and on which nodes is that tried? | here |
//! | who has to leave one node, and who may stay after all? | `dry_run.rs` |
//! | whom do disruption budgets protect? | `budgets.rs` |
//! | which node is chosen? | `choice.rs` |

mod budgets;
mod choice;
mod dry_run;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};

use gangway_model::ObjectName;
use rustc_hash::FxHasher;

use crate::cluster::Cluster;
use crate::cycle::Work;
use crate::framework::{Asked, Objection, Prepared, Profile};
use crate::ids::{NodeIndex, PodId};
use crate::records::DisruptionBudget;

pub(crate) use dry_run::Candidate;

/// What came of trying to make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Preemption {
    /// These pods have to leave this node.
    Found { node: NodeIndex, victims: Vec<PodId> },
    /// The pod may not remove anybody now.
    NotEligible(&'static str),
    /// Removing pods would not help; how many nodes for which reason.
    NoCandidate { nodes: usize, unhelpful: usize, without_victims: usize },
}

impl fmt::Display for Preemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found { victims, .. } => {
                write!(f, "found a potential placement for pod, preempting {} victims", victims.len())
            }
            Self::NotEligible(why) => f.write_str(why),
            Self::NoCandidate { nodes, unhelpful, without_victims } => {
                write!(f, "0/{nodes} nodes are available")?;
                let mut counted: Vec<String> = [
                    (unhelpful, "Preemption is not helpful for scheduling"),
                    (without_victims, "No preemption victims found for incoming pod"),
                ]
                .into_iter()
                .filter(|(count, _)| **count > 0)
                .map(|(count, reason)| format!("{count} {reason}"))
                .collect();
                counted.sort();
                write!(f, "{}{}.", if counted.is_empty() { "" } else { ": " }, counted.join(", "))
            }
        }
    }
}

/// A pod that fits nowhere, and all that is needed to make room for it.
pub(crate) struct Question<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) profile: &'a Profile,
    pub(crate) budgets: &'a BTreeMap<ObjectName, DisruptionBudget>,
    pub(crate) asked: Asked<'a>,
    pub(crate) pod: PodId,
    /// Every node with what speaks against it.
    pub(crate) rejected: &'a [(NodeIndex, Objection)],
    pub(crate) seed: u64,
}

impl Question<'_> {
    /// Looks for a node on which removing pods of lower priority makes room.
    pub(crate) fn answer(&self, work: &mut Work) -> Preemption {
        if let Some(why) = self.ineligibility() {
            return Preemption::NotEligible(why);
        }
        let resolvable = self.rejected.iter().filter(|(_, objection)| !objection.is_unresolvable());
        let potential: Vec<NodeIndex> = resolvable.map(|(node, _)| *node).collect();
        let candidates = self.candidates(&potential, work);
        match choice::best(self.cluster, candidates) {
            Some(Candidate { node, victims, .. }) => Preemption::Found { node, victims },
            None => Preemption::NoCandidate {
                nodes: self.rejected.len(),
                unhelpful: self.rejected.len() - potential.len(),
                without_victims: potential.len(),
            },
        }
    }

    fn ineligibility(&self) -> Option<&'static str> {
        if self.asked.shape.never_preempts {
            return Some("not eligible due to preemptionPolicy=Never.");
        }
        let nominated = self.cluster.pods.get(self.pod)?.nominated?;
        let objection =
            self.rejected.iter().find(|(node, _)| *node == nominated).map(|(_, objection)| objection);
        if objection.is_some_and(|objection| objection.is_unresolvable()) {
            return None;
        }
        let is_leaving = |other: &PodId| {
            let pod = self.cluster.pods.get(*other);
            pod.is_some_and(|pod| pod.record.preempted && pod.record.priority < self.asked.shape.priority)
        };
        let waits = self.cluster.node(nominated)?.pods.iter().any(is_leaving);
        waits.then_some("not eligible due to a terminating pod on the nominated node.")
    }

    /// Tries nodes until there are enough to choose from, one of them without breaking a budget.
    fn candidates(&self, potential: &[NodeIndex], work: &mut Work) -> Vec<Candidate> {
        let settings = &self.profile.settings.preemption;
        let share = potential.len() * settings.min_candidate_nodes_percentage as usize / 100;
        let wanted = share.max(settings.min_candidate_nodes_absolute as usize).min(potential.len());
        let prepared = self.prepare();
        let begin = self.first_of(potential.len());
        let (mut found, mut spotless) = (Vec::new(), 0);
        for node in potential[begin..].iter().chain(&potential[..begin]) {
            work.dry_runs += 1;
            let Some(candidate) = self.dry_run(*node, &prepared) else { continue };
            spotless += usize::from(candidate.violations == 0);
            found.push(candidate);
            if spotless > 0 && found.len() >= wanted {
                break;
            }
        }
        found
    }

    fn prepare(&self) -> Vec<Box<dyn Prepared>> {
        self.profile.filters.iter().filter_map(|plugin| plugin.prepare(self.asked)).collect()
    }

    /// Where to begin: not always with the same nodes.
    fn first_of(&self, count: usize) -> usize {
        let mut hasher = FxHasher::default();
        self.cluster.pods.get(self.pod).map(|pod| &pod.record.uid).hash(&mut hasher);
        self.seed.hash(&mut hasher);
        usize::try_from(hasher.finish() >> 32).unwrap_or(0) % count.max(1)
    }
}
