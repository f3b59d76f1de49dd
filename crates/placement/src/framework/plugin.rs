//! The names of plugins, and sets of them.

use std::fmt;

macro_rules! plugins {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// A plugin. Those after `DefaultPreemption` stand for what no plugin of the reference names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum PluginId {
            $($(#[$doc])* $variant,)*
        }

        impl PluginId {
            /// Every plugin, in the order in which they run.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name under which it is configured, reported and counted.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

plugins! {
    /// Keeps pods with scheduling gates out of the queue.
    SchedulingGates = "SchedulingGates",
    /// Orders the queue.
    PrioritySort = "PrioritySort",
    /// A pod that names its node.
    NodeName = "NodeName",
    /// Cordoned nodes.
    NodeUnschedulable = "NodeUnschedulable",
    /// Taints and tolerations.
    TaintToleration = "TaintToleration",
    /// Node selectors and node affinity.
    NodeAffinity = "NodeAffinity",
    /// Ports of the host.
    NodePorts = "NodePorts",
    /// Room for what a pod asks for.
    NodeResourcesFit = "NodeResourcesFit",
    /// Pods spread over zones, nodes, or whatever a label names.
    PodTopologySpread = "PodTopologySpread",
    /// Even use of a node's resources.
    NodeResourcesBalancedAllocation = "NodeResourcesBalancedAllocation",
    /// Room made by removing pods of lower priority.
    DefaultPreemption = "DefaultPreemption",
    /// Writes the binding.
    DefaultBinder = "DefaultBinder",
    /// There is no node at all.
    NoNode = "NoNode",
    /// The pod needs what this scheduler cannot judge.
    Unsupported = "Unsupported",
}

impl PluginId {
    /// The plugin of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|plugin| plugin.as_str() == name)
    }
}

impl fmt::Display for PluginId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Some of the plugins.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginSet(u32);

impl PluginSet {
    /// None of them.
    pub const EMPTY: Self = Self(0);

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one is among them.
    pub fn contains(self, plugin: PluginId) -> bool {
        self.0 & 1 << plugin as u32 != 0
    }

    /// With one more.
    #[must_use]
    pub fn with(self, plugin: PluginId) -> Self {
        Self(self.0 | 1 << plugin as u32)
    }

    /// Those of both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are in both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = PluginId> {
        PluginId::ALL.iter().copied().filter(move |plugin| self.contains(*plugin))
    }
}

impl FromIterator<PluginId> for PluginSet {
    fn from_iter<T: IntoIterator<Item = PluginId>>(plugins: T) -> Self {
        plugins.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Debug for PluginSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
