//! How often were plugins asked?
//!
//! An attempt counts once for each plugin and point, however many nodes it was about: nodes are judged many at a time. What is known from
//! an equal pod is not asked again, and does not count.

use crate::Scheduler;
use crate::framework::{PluginId, Profile};

/// Where in an attempt a plugin is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExtensionPoint {
    /// It looks at all nodes to be able to rule some out.
    PreFilter,
    /// It rules nodes out.
    Filter,
    /// It makes room when no node is left.
    PostFilter,
    /// It ranks nodes.
    Score,
    /// It gives the pod its node.
    Bind,
}

impl ExtensionPoint {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::PreFilter, Self::Filter, Self::PostFilter, Self::Score, Self::Bind];

    /// As metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::Score => "Score",
            Self::Bind => "Bind",
        }
    }
}

/// The counts of one profile, by plugin and point.
#[derive(Clone, Debug)]
pub(crate) struct Evaluations([[u64; ExtensionPoint::ALL.len()]; PluginId::ALL.len()]);

impl Default for Evaluations {
    fn default() -> Self {
        Self([[0; ExtensionPoint::ALL.len()]; PluginId::ALL.len()])
    }
}

impl Evaluations {
    pub(crate) fn count(&mut self, plugin: PluginId, point: ExtensionPoint) {
        self.0[plugin as usize][point as usize] += 1;
    }

    /// Nodes were judged by every plugin that looks at one at a time.
    pub(crate) fn count_filters(&mut self, profile: &Profile) {
        for plugin in profile.filters.iter().filter(|plugin| !plugin.compares_nodes()) {
            self.count(plugin.id(), ExtensionPoint::Filter);
        }
    }
}

/// How often one plugin was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evaluated<'a> {
    /// Which plugin.
    pub plugin: PluginId,
    /// Where.
    pub point: ExtensionPoint,
    /// For pods of which scheduler name.
    pub profile: &'a str,
    /// In so many attempts.
    pub attempts: u64,
}

impl Scheduler {
    /// In how many attempts each plugin was asked; those that never were are left out.
    pub fn evaluations(&self) -> impl Iterator<Item = Evaluated<'_>> {
        let profiles = self.profiles.iter().zip(&self.evaluations);
        profiles.flat_map(|(profile, evaluations)| {
            let profile = profile.settings.scheduler_name.as_str();
            let cells =
                PluginId::ALL.iter().flat_map(|plugin| ExtensionPoint::ALL.map(|point| (*plugin, point)));
            let evaluated = cells.map(move |(plugin, point)| {
                let attempts = evaluations.0[plugin as usize][point as usize];
                Evaluated { plugin, point, profile, attempts }
            });
            evaluated.filter(|evaluated| evaluated.attempts > 0)
        })
    }
}
