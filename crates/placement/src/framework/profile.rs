//! Which plugins run for a pod?

use gangway_model::constraints::SpreadConstraint;
use gangway_model::scheduling::ProfileSettings;

use super::{Happening, Plugin, PluginId, PluginSet};
use crate::cluster::Columns;
use crate::plugins;

/// The plugins for pods with one scheduler name, in order.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(crate) settings: ProfileSettings,
    pub(crate) pre_enqueue: PluginSet,
    pub(crate) filters: Vec<Box<dyn Plugin>>,
    pub(crate) scorers: Vec<Scorer>,
    pub(crate) preempts: bool,
    /// How pods are spread that do not say so themselves, as far as anybody looks at it.
    pub(crate) default_spread: Vec<SpreadConstraint>,
}

/// A plugin that ranks nodes.
#[derive(Debug)]
pub(crate) struct Scorer {
    pub(crate) plugin: Box<dyn Plugin>,
    pub(crate) weight: i64,
}

impl Profile {
    /// Names of plugins that do not exist are left out: whoever reads the configuration refuses them.
    pub(crate) fn new(settings: ProfileSettings, columns: &mut Columns) -> Self {
        let mut plugin =
            |name: &String| PluginId::from_name(name).and_then(|id| plugins::make(id, &settings, columns));
        let filters = settings.filter.iter().filter_map(&mut plugin).collect();
        let scorers = settings
            .score
            .iter()
            .filter_map(|(name, weight)| Some(Scorer { plugin: plugin(name)?, weight: *weight }))
            .collect();
        let pre_enqueue = settings.pre_enqueue.iter().filter_map(|name| PluginId::from_name(name)).collect();
        let preempts = settings.post_filter.iter().any(|name| name == PluginId::DefaultPreemption.as_str());
        let default_spread = settings.default_spread().cloned().collect();
        Self { pre_enqueue, filters, scorers, preempts, default_spread, settings }
    }

    /// The plugins that asked to be told of this.
    pub(crate) fn told(&self, happening: &Happening) -> PluginSet {
        let told = |plugin: &&dyn Plugin| {
            plugin.registrations().iter().any(|registered| registered.includes(happening.event))
        };
        self.filters.iter().map(|plugin| &**plugin).filter(told).map(Plugin::id).collect()
    }

    pub(crate) fn filter_of(&self, id: PluginId) -> Option<&dyn Plugin> {
        self.filters.iter().find(|plugin| plugin.id() == id).map(|plugin| &**plugin)
    }
}
