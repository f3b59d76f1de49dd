//! The settings of the pod scheduler: which plugins run, in which order, and what they were told.
//!
//! Everything here is resolved: defaults are filled in, names are checked, and nothing refers to a file any more.

use std::time::Duration;

use crate::constraints::{NodeSelectorTerm, PreferredTerm, SpreadConstraint};
use crate::names::ResourceName;
use crate::selector::LabelSelector;

/// The name under which our pod scheduler is asked for.
pub const SCHEDULER_NAME: &str = "gangway";

/// The settings of one scheduler, with all of its profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerSettings {
    /// The profiles, at least one, each with a name of its own.
    pub profiles: Vec<ProfileSettings>,
    /// How long a pod waits after it failed for the first time; doubled each time.
    pub initial_backoff: Duration,
    /// And at most.
    pub max_backoff: Duration,
    /// Whether pods whose backoff is not over are tried when there is nobody else to try.
    pub pop_from_backoff: bool,
    /// A pod that nothing woke for so long is tried all the same.
    pub max_in_unschedulable: Duration,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            profiles: vec![ProfileSettings::default()],
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            pop_from_backoff: true,
            max_in_unschedulable: Duration::from_secs(300),
        }
    }
}

impl SchedulerSettings {
    /// The profile that pods with this scheduler name ask for.
    pub fn profile(&self, scheduler_name: &str) -> Option<&ProfileSettings> {
        self.profiles.iter().find(|profile| profile.scheduler_name == scheduler_name)
    }
}

/// The settings for pods with one scheduler name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileSettings {
    /// The scheduler name that pods ask for.
    pub scheduler_name: String,
    /// Of how many nodes in a hundred enough is known once they fit, 1 to 100; none depends on the size of the cluster.
    pub percentage_of_nodes_to_score: Option<u8>,
    /// Plugins that keep pods out of the queue, in order.
    pub pre_enqueue: Vec<String>,
    /// Plugins that rule out nodes, in order.
    pub filter: Vec<String>,
    /// Plugins that make room when no node is left, in order.
    pub post_filter: Vec<String>,
    /// Plugins that rank nodes, with their weights, in order.
    pub score: Vec<(String, i64)>,
    /// What NodeResourcesFit was told.
    pub fit: FitSettings,
    /// What NodeResourcesBalancedAllocation was told.
    pub balanced: BalancedSettings,
    /// What PodTopologySpread was told.
    pub spread: SpreadSettings,
    /// What NodeAffinity was told.
    pub affinity: AffinitySettings,
    /// What DefaultPreemption was told.
    pub preemption: PreemptionSettings,
}

impl Default for ProfileSettings {
    fn default() -> Self {
        Self::named(SCHEDULER_NAME)
    }
}

impl ProfileSettings {
    /// The default profile under some name.
    pub fn named(scheduler_name: &str) -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let weighted = |(name, weight): &(&str, i64)| ((*name).to_owned(), *weight);
        Self {
            scheduler_name: scheduler_name.to_owned(),
            percentage_of_nodes_to_score: None,
            pre_enqueue: names(&["SchedulingGates", "DefaultPreemption"]),
            filter: names(&[
                "NodeName",
                "NodeUnschedulable",
                "TaintToleration",
                "NodeAffinity",
                "NodePorts",
                "NodeResourcesFit",
                "PodTopologySpread",
            ]),
            post_filter: names(&["DefaultPreemption"]),
            score: [
                ("TaintToleration", 3),
                ("NodeAffinity", 2),
                ("NodeResourcesFit", 1),
                ("PodTopologySpread", 2),
                ("NodeResourcesBalancedAllocation", 1),
            ]
            .iter()
            .map(weighted)
            .collect(),
            fit: FitSettings::default(),
            balanced: BalancedSettings::default(),
            spread: SpreadSettings::default(),
            affinity: AffinitySettings::default(),
            preemption: PreemptionSettings::default(),
        }
    }
}

impl ProfileSettings {
    /// How pods are spread that do not say so themselves, as far as a plugin looks at it: those constraints that rule nodes out where
    /// PodTopologySpread does that, and those that rank them where it does that.
    pub fn default_spread(&self) -> impl Iterator<Item = &SpreadConstraint> {
        const PLUGIN: &str = "PodTopologySpread";
        let filters = self.filter.iter().any(|name| name == PLUGIN);
        let scores = self.score.iter().any(|(name, _)| name == PLUGIN);
        let listed = self.spread.default_constraints.iter();
        listed.filter(move |constraint| if constraint.is_hard { filters } else { scores })
    }

    /// The same profile for places where nothing tells which pods belong together: none are spread that do not say so.
    #[must_use]
    pub fn without_default_spread(self) -> Self {
        let spread = SpreadSettings { default_constraints: Vec::new(), is_system: false };
        Self { spread, ..self }
    }
}

/// What NodeResourcesFit was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FitSettings {
    /// Resources that are not compared with what a node has.
    pub ignored_resources: Vec<ResourceName>,
    /// The same for all resources of these groups, the part of a name before its slash.
    pub ignored_groups: Vec<String>,
    /// Which nodes are better.
    pub strategy: ScoringStrategy,
    /// The resources by which they are, with their weights.
    pub resources: Vec<(ResourceName, i64)>,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            ignored_resources: Vec::new(),
            ignored_groups: Vec::new(),
            strategy: ScoringStrategy::LeastAllocated,
            resources: vec![("cpu".into(), 1), ("memory".into(), 1)],
        }
    }
}

impl FitSettings {
    /// Whether this resource is not compared with what a node has.
    pub fn ignores(&self, resource: &str) -> bool {
        let group = resource.split_once('/').map(|(group, _)| group);
        self.ignored_resources.iter().any(|ignored| ignored.as_str() == resource)
            || group.is_some_and(|group| self.ignored_groups.iter().any(|ignored| ignored == group))
    }
}

/// Which nodes NodeResourcesFit ranks higher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScoringStrategy {
    /// Those of which little is in use.
    LeastAllocated,
    /// Those of which much is in use.
    MostAllocated,
    /// As a line through these points says, at least one, by rising utilization.
    RequestedToCapacityRatio(Vec<ShapePoint>),
}

/// A point of the line from use to score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapePoint {
    /// How much is in use, 0 to 100.
    pub utilization: i64,
    /// What that is worth, 0 to 10.
    pub score: i64,
}

/// What NodeResourcesBalancedAllocation was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalancedSettings {
    /// The resources that should be used to the same degree.
    pub resources: Vec<ResourceName>,
}

impl Default for BalancedSettings {
    fn default() -> Self {
        Self { resources: vec!["cpu".into(), "memory".into()] }
    }
}

/// What PodTopologySpread was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpreadSettings {
    /// For pods that have no constraint of their own. Their selectors are empty: a pod's owner or Service gives them.
    pub default_constraints: Vec<SpreadConstraint>,
    /// Whether they are those of the system: then nodes that lack one of the keys are ranked by the others.
    pub is_system: bool,
}

impl Default for SpreadSettings {
    fn default() -> Self {
        let soft = |topology_key: &str, max_skew| SpreadConstraint {
            max_skew,
            topology_key: topology_key.to_owned(),
            is_hard: false,
            selector: LabelSelector::default(),
            match_label_keys: Vec::new(),
            min_domains: None,
            node_affinity_honored: true,
            node_taints_honored: false,
        };
        Self {
            default_constraints: vec![
                soft("kubernetes.io/hostname", 3),
                soft("topology.kubernetes.io/zone", 5),
            ],
            is_system: true,
        }
    }
}

/// What NodeAffinity was told: affinity that every pod of the profile has besides its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffinitySettings {
    /// One of these terms must match too; none if nothing is demanded.
    pub added_required: Option<Vec<NodeSelectorTerm>>,
    /// Terms that count towards the score too.
    pub added_preferred: Vec<PreferredTerm>,
}

/// What DefaultPreemption was told: how many nodes it looks at before it chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptionSettings {
    /// At least so many in a hundred of those that could do.
    pub min_candidate_nodes_percentage: u32,
    /// And at least so many.
    pub min_candidate_nodes_absolute: u32,
}

impl Default for PreemptionSettings {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_there_is_one_profile_named_gangway() {
        let settings = SchedulerSettings::default();
        assert_eq!(settings.profile("gangway"), Some(&ProfileSettings::default()));
        assert_eq!(settings.profile("default-scheduler"), None);
    }

    #[test]
    fn defaults_that_no_plugin_looks_at_spread_nobody() {
        let profile = ProfileSettings::default();
        let keys = |profile: &ProfileSettings| profile.default_spread().count();
        assert_eq!(keys(&profile), 2);
        let ranks_nothing = ProfileSettings { score: Vec::new(), ..profile.clone() };
        assert_eq!(keys(&ranks_nothing), 0, "both are soft");
        assert_eq!(keys(&profile.without_default_spread()), 0);
        let mut hard = SpreadSettings::default();
        hard.default_constraints[0].is_hard = true;
        assert_eq!(keys(&ProfileSettings { spread: hard, ..ranks_nothing }), 1);
    }

    #[test]
    fn resources_are_ignored_by_name_or_group() {
        let fit = FitSettings {
            ignored_resources: vec!["example.com/a".into()],
            ignored_groups: vec!["other.com".to_owned()],
            ..FitSettings::default()
        };
        let table = [
            ("cpu", false),
            ("example.com/a", true),
            ("example.com/b", false),
            ("other.com/b", true),
            ("other.com", false),
        ];
        for (resource, expected) in table {
            assert_eq!(fit.ignores(resource), expected, "{resource}");
        }
    }
}
