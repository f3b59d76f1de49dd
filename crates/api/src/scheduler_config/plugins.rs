//! Which plugins run at which point, in which order and with which weight.

use gangway_model::scheduling::ProfileSettings;

use super::file::{Plugin, PluginSet, Plugins};
use crate::config::Refusals;
use crate::strict::{closest, item_path};

/// A point of a pod's way at which plugins run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Point {
    PreEnqueue,
    QueueSort,
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Permit,
    PreBind,
    Bind,
    PostBind,
}

impl Point {
    const ALL: [Self; 12] = [
        Self::PreEnqueue,
        Self::QueueSort,
        Self::PreFilter,
        Self::Filter,
        Self::PostFilter,
        Self::PreScore,
        Self::Score,
        Self::Reserve,
        Self::Permit,
        Self::PreBind,
        Self::Bind,
        Self::PostBind,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::PreEnqueue => "preEnqueue",
            Self::QueueSort => "queueSort",
            Self::PreFilter => "preFilter",
            Self::Filter => "filter",
            Self::PostFilter => "postFilter",
            Self::PreScore => "preScore",
            Self::Score => "score",
            Self::Reserve => "reserve",
            Self::Permit => "permit",
            Self::PreBind => "preBind",
            Self::Bind => "bind",
            Self::PostBind => "postBind",
        }
    }

    fn set(self, plugins: &Plugins) -> Option<&PluginSet> {
        let set = match self {
            Self::PreEnqueue => &plugins.pre_enqueue,
            Self::QueueSort => &plugins.queue_sort,
            Self::PreFilter => &plugins.pre_filter,
            Self::Filter => &plugins.filter,
            Self::PostFilter => &plugins.post_filter,
            Self::PreScore => &plugins.pre_score,
            Self::Score => &plugins.score,
            Self::Reserve => &plugins.reserve,
            Self::Permit => &plugins.permit,
            Self::PreBind => &plugins.pre_bind,
            Self::Bind => &plugins.bind,
            Self::PostBind => &plugins.post_bind,
        };
        set.as_ref()
    }
}

/// A plugin that there is: its name, where it runs, and its weight where nothing else is said.
type Known = (&'static str, &'static [Point], i64);

/// The plugins that are supported, in the order in which they run.
const SUPPORTED: &[Known] = {
    use Point::*;
    &[
        ("SchedulingGates", &[PreEnqueue], 0),
        ("PrioritySort", &[QueueSort], 0),
        ("NodeName", &[PreFilter, Filter], 0),
        ("NodeUnschedulable", &[Filter], 0),
        ("TaintToleration", &[Filter, PreScore, Score], 3),
        ("NodeAffinity", &[PreFilter, Filter, PreScore, Score], 2),
        ("NodePorts", &[PreFilter, Filter], 0),
        ("NodeResourcesFit", &[PreFilter, Filter, PreScore, Score], 1),
        ("PodTopologySpread", &[PreFilter, Filter, PreScore, Score], 2),
        ("DefaultPreemption", &[PreEnqueue, PostFilter], 0),
        ("NodeResourcesBalancedAllocation", &[PreScore, Score], 1),
        ("DefaultBinder", &[Bind], 0),
    ]
};

/// Plugins of the reference that come with later work, or never.
const UNSUPPORTED: &[&str] = &[
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "InterPodAffinity",
    "DynamicResources",
    "ImageLocality",
    "NodeDeclaredFeatures",
    "DeferredPodScheduling",
    "GangScheduling",
    "TopologyPlacementGenerator",
    "PodGroupPodsCount",
];

const ALL: &str = "*";

pub(super) fn is_supported(name: &str) -> bool {
    SUPPORTED.iter().any(|(known, ..)| *known == name)
}

/// Why a plugin that is not supported cannot be used.
pub(super) fn refusal(name: &str) -> String {
    if UNSUPPORTED.contains(&name) {
        return format!("the plugin {name:?} is not supported yet; leave it out");
    }
    let known: Vec<&str> = SUPPORTED.iter().map(|(known, ..)| *known).collect();
    match closest(name, &known) {
        Some(known) => format!("unknown plugin {name:?}; did you mean {known:?}?"),
        None => format!("unknown plugin {name:?}; there are {}", known.join(", ")),
    }
}

/// Settles which plugins run, or says what is wrong with `plugins`, which stand at `path`.
pub(super) fn resolve(plugins: &Plugins, path: &str, profile: &mut ProfileSettings, refusals: &mut Refusals) {
    let before = refusals.0.len();
    check(plugins, path, refusals);
    if refusals.0.len() > before {
        return;
    }
    let everywhere = everywhere(plugins.multi_point.as_ref());
    let at = |point: Point| expand(point, point.set(plugins), &everywhere);
    let names = |point| at(point).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    if names(Point::QueueSort).is_empty() {
        refusals.refuse(format!("{path}.queueSort"), "no plugin is left; PrioritySort has to be enabled");
    }
    if names(Point::Bind).is_empty() {
        refusals.refuse(format!("{path}.bind"), "no plugin is left; DefaultBinder has to be enabled");
    }
    (profile.pre_enqueue, profile.filter) = (names(Point::PreEnqueue), names(Point::Filter));
    (profile.post_filter, profile.score) = (names(Point::PostFilter), at(Point::Score));
    // The first half of a plugin's work is part of the second here: it cannot be taken away from it.
    for (first, second) in [(Point::PreFilter, Point::Filter), (Point::PreScore, Point::Score)] {
        let prepared = names(first);
        for name in names(second).iter().filter(|name| runs_at(name, first) && !prepared.contains(name)) {
            let (first, second) = (first.as_str(), second.as_str());
            let message = format!("{name} is needed here while it runs at {second}; disable it there too");
            refusals.refuse(format!("{path}.{first}"), message);
        }
    }
}

/// A point's name, and the plugins that run there, with their weights where they have some.
type Shown = (&'static str, Vec<(String, Option<i64>)>);

/// The lists of a profile by the points where they run, those of the second half standing for those of the first.
pub(super) fn shown(profile: &ProfileSettings) -> Vec<Shown> {
    let plain = |names: &[String]| names.iter().map(|name| (name.clone(), None)).collect::<Vec<_>>();
    let at = |first, names: Vec<(String, Option<i64>)>| -> Vec<_> {
        names.into_iter().filter(|(name, _)| runs_at(name, first)).map(|(name, _)| (name, None)).collect()
    };
    let score: Vec<_> = profile.score.iter().map(|(name, weight)| (name.clone(), Some(*weight))).collect();
    vec![
        ("preEnqueue", plain(&profile.pre_enqueue)),
        ("queueSort", plain(&["PrioritySort".to_owned()])),
        ("preFilter", at(Point::PreFilter, plain(&profile.filter))),
        ("filter", plain(&profile.filter)),
        ("postFilter", plain(&profile.post_filter)),
        ("preScore", at(Point::PreScore, score.clone())),
        ("score", score),
        ("bind", plain(&["DefaultBinder".to_owned()])),
    ]
}

fn runs_at(name: &str, point: Point) -> bool {
    SUPPORTED.iter().any(|(known, points, _)| *known == name && points.contains(&point))
}

fn enabled(set: Option<&PluginSet>) -> &[Plugin] {
    set.and_then(|set| set.enabled.as_deref()).unwrap_or_default()
}

fn disables(set: Option<&PluginSet>, name: &str) -> bool {
    set.and_then(|set| set.disabled.as_ref())
        .is_some_and(|list| list.iter().any(|plugin| plugin.name == name))
}

/// A weight that is not given, and 0, mean 1.
fn weight(plugin: &Plugin) -> i64 {
    plugin.weight.filter(|weight| *weight != 0).unwrap_or(1)
}

/// The plugins that run at every point where they can: a default that is listed again keeps its place and
/// takes the new weight, others come after them.
fn everywhere(set: Option<&PluginSet>) -> Vec<(&str, i64)> {
    let listed = enabled(set);
    let keeps = |name: &str| !disables(set, ALL) && !disables(set, name);
    let defaults = SUPPORTED.iter().filter(|(name, ..)| keeps(name)).map(|(name, _, default)| {
        let again = listed.iter().find(|plugin| plugin.name == *name);
        (*name, again.map_or(*default, weight))
    });
    let is_default = |name: &str| is_supported(name) && keeps(name);
    let others = listed.iter().filter(|plugin| !is_default(&plugin.name));
    defaults.chain(others.map(|plugin| (plugin.name.as_str(), weight(plugin)))).collect()
}

/// The plugins of one point: first those that are listed here and run everywhere anyway, then the others that run
/// everywhere, then the others that are listed here.
fn expand(point: Point, set: Option<&PluginSet>, everywhere: &[(&str, i64)]) -> Vec<(String, i64)> {
    let inherits = |name: &str| runs_at(name, point) && !disables(set, ALL) && !disables(set, name);
    let inherited: Vec<_> = everywhere.iter().filter(|(name, _)| inherits(name)).collect();
    let listed = enabled(set);
    let (again, new): (Vec<&Plugin>, Vec<&Plugin>) =
        listed.iter().partition(|plugin| inherited.iter().any(|(name, _)| *name == plugin.name));
    let own = |plugin: &Plugin| (plugin.name.clone(), weight(plugin));
    let is_listed = |name: &str| listed.iter().any(|plugin| plugin.name == name);
    let rest = inherited.iter().filter(|(name, _)| !is_listed(name));
    let rest = rest.map(|(name, weight)| ((*name).to_owned(), *weight));
    again.into_iter().map(own).chain(rest).chain(new.into_iter().map(own)).collect()
}

fn check(plugins: &Plugins, path: &str, refusals: &mut Refusals) {
    check_set(None, plugins.multi_point.as_ref(), &format!("{path}.multiPoint"), refusals);
    for point in Point::ALL {
        check_set(Some(point), point.set(plugins), &format!("{path}.{}", point.as_str()), refusals);
    }
    refusals.present(&format!("{path}.placementGenerate"), plugins.placement_generate.as_ref());
    refusals.present(&format!("{path}.placementScore"), plugins.placement_score.as_ref());
    refusals.present(&format!("{path}.podGroupPostFilter"), plugins.pod_group_post_filter.as_ref());
}

fn check_set(point: Option<Point>, set: Option<&PluginSet>, path: &str, refusals: &mut Refusals) {
    let listed = enabled(set);
    for (index, plugin) in listed.iter().enumerate() {
        let path = item_path(&format!("{path}.enabled"), index);
        let known = SUPPORTED.iter().find(|(name, ..)| *name == plugin.name);
        let wrong_point = known.zip(point).filter(|((_, points, _), point)| !points.contains(point));
        if let Some(((name, points, _), point)) = wrong_point {
            let points: Vec<&str> = points.iter().map(|point| point.as_str()).collect();
            let (point, points) = (point.as_str(), points.join(", "));
            refusals.refuse(path, format!("{name} does not run at {point}; it runs at {points}"));
        } else if known.is_none() {
            refusals.refuse(path, refusal(&plugin.name));
        } else if listed[..index].iter().any(|before| before.name == plugin.name) {
            refusals.refuse(path, format!("{:?} is listed twice", plugin.name));
        } else if plugin.weight.is_some_and(|weight| !(0..=i64::from(i32::MAX)).contains(&weight)) {
            refusals.refuse(format!("{path}.weight"), "must not be negative, nor more than 2147483647");
        } else if plugin.weight.is_some_and(|weight| weight != 0) && !weighs(&plugin.name, point) {
            refusals.refuse(format!("{path}.weight"), "has no effect, since nothing is scored; leave it out");
        }
    }
    // Who disables what is not here gets what was asked for; but a slip of the pen would leave something running.
    let disabled = set.and_then(|set| set.disabled.as_deref()).unwrap_or_default();
    for (index, plugin) in disabled.iter().enumerate() {
        let is_known = plugin.name == ALL || is_supported(&plugin.name);
        let message = refusal(&plugin.name);
        if !is_known && message.contains("did you mean") {
            refusals.refuse(item_path(&format!("{path}.disabled"), index), message);
        }
    }
}

/// Whether a weight means something where a plugin is listed.
fn weighs(name: &str, point: Option<Point>) -> bool {
    runs_at(name, Point::Score) && point.is_none_or(|point| point == Point::Score)
}
