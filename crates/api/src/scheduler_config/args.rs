//! What plugins are told: `pluginConfig` of a profile.

use gangway_model::constraints::SpreadConstraint;
use gangway_model::scheduling::{
    AffinitySettings, BalancedSettings, FitSettings, PreemptionSettings, ProfileSettings, ScoringStrategy,
    ShapePoint, SpreadSettings,
};
use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::file::PluginConfig;
use super::{GROUP_VERSION, affinity, plugins};
use crate::config::Refusals;
use crate::pods::spread_constraint;
use crate::strict::{Finding, deserialize_at, item_path};

/// Takes over what plugins are told, or says what is wrong with it; the list stands at `path`.
pub(super) fn read(
    configs: &[PluginConfig],
    path: &str,
    profile: &mut ProfileSettings,
    refusals: &mut Refusals,
) {
    for (index, config) in configs.iter().enumerate() {
        let path = item_path(path, index);
        let name = config.name.as_str();
        if !plugins::is_supported(name) {
            refusals.refuse(format!("{path}.name"), plugins::refusal(name));
        } else if configs[..index].iter().any(|before| before.name == name) {
            refusals.refuse(format!("{path}.name"), format!("{name:?} is listed twice"));
        } else if let Some(args) = config.args.as_ref().filter(|args| !args.is_null()) {
            let mut reader = Reader { name, path: format!("{path}.args"), refusals };
            reader.read(args, profile);
        }
    }
}

/// Reads what one plugin is told.
struct Reader<'r> {
    name: &'r str,
    path: String,
    refusals: &'r mut Refusals,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct FitArgs {
    ignored_resources: Option<Vec<String>>,
    ignored_resource_groups: Option<Vec<String>>,
    scoring_strategy: Option<StrategyArgs>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StrategyArgs {
    #[serde(rename = "type")]
    kind: String,
    resources: Option<Vec<ResourceSpec>>,
    requested_to_capacity_ratio: Option<RatioArgs>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResourceSpec {
    name: String,
    weight: Option<i64>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct RatioArgs {
    shape: Option<Vec<PointArgs>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PointArgs {
    utilization: i64,
    score: i64,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct BalancedArgs {
    resources: Option<Vec<ResourceSpec>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SpreadArgs {
    default_constraints: Option<Vec<core::TopologySpreadConstraint>>,
    defaulting_type: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AffinityArgs {
    added_affinity: Option<core::NodeAffinity>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct PreemptionArgs {
    min_candidate_nodes_percentage: Option<i64>,
    min_candidate_nodes_absolute: Option<i64>,
}

impl Reader<'_> {
    fn refuse(&mut self, field: &str, message: impl Into<String>) {
        let path = if field.starts_with('[') || field.is_empty() {
            format!("{}{field}", self.path)
        } else {
            format!("{}.{field}", self.path)
        };
        self.refusals.refuse(path, message);
    }

    fn read(&mut self, args: &Value, profile: &mut ProfileSettings) {
        match self.name {
            "NodeResourcesFit" => {
                profile.fit = self.typed(args).map(|args| self.fit(args)).unwrap_or_default();
            }
            "NodeResourcesBalancedAllocation" => {
                profile.balanced = self.typed(args).map(|args| self.balanced(args)).unwrap_or_default();
            }
            "PodTopologySpread" => {
                profile.spread = self.typed(args).map(|args| self.spread(args)).unwrap_or_default();
            }
            "NodeAffinity" => {
                profile.affinity = self.typed(args).map(|args| self.affinity(args)).unwrap_or_default();
            }
            "DefaultPreemption" => {
                profile.preemption = self.typed(args).map(|args| self.preemption(args)).unwrap_or_default();
            }
            name => self.refuse("", format!("{name} takes no args; leave them out")),
        }
    }

    /// The args as what they have to be, of which they may say the kind.
    fn typed<T: DeserializeOwned>(&mut self, args: &Value) -> Option<T> {
        for (field, expected) in
            [("apiVersion", GROUP_VERSION.to_owned()), ("kind", format!("{}Args", self.name))]
        {
            if args.get(field).is_some_and(|value| value.as_str() != Some(expected.as_str())) {
                self.refuse(field, format!("must be {expected}"));
            }
        }
        match deserialize_at(args, &self.path, &["apiVersion", "kind"]) {
            Ok(read) => Some(read),
            Err(findings) => {
                self.refusals.0.extend::<Vec<Finding>>(findings);
                None
            }
        }
    }

    fn fit(&mut self, args: FitArgs) -> FitSettings {
        let ignored = args.ignored_resources.unwrap_or_default();
        for (index, resource) in ignored.iter().enumerate().filter(|(_, resource)| resource.is_empty()) {
            self.refuse(&item_path("ignoredResources", index), format!("{resource:?} is not a resource"));
        }
        let ignored_groups = args.ignored_resource_groups.unwrap_or_default();
        for (index, group) in ignored_groups.iter().enumerate() {
            if group.is_empty() || group.contains('/') {
                let message =
                    format!("{group:?} is not a group: that is the part of a resource before its slash");
                self.refuse(&item_path("ignoredResourceGroups", index), message);
            }
        }
        let ignored_resources = ignored.into_iter().map(Into::into).collect();
        let Some(strategy) = args.scoring_strategy else {
            return FitSettings { ignored_resources, ignored_groups, ..FitSettings::default() };
        };
        let listed = self.resources("scoringStrategy.resources", strategy.resources.as_deref(), 100);
        let resources = listed.into_iter().map(|(name, weight)| (name.into(), weight)).collect::<Vec<_>>();
        let resources = if resources.is_empty() { FitSettings::default().resources } else { resources };
        FitSettings { ignored_resources, ignored_groups, strategy: self.strategy(strategy), resources }
    }

    fn strategy(&mut self, strategy: StrategyArgs) -> ScoringStrategy {
        const RATIO: &str = "scoringStrategy.requestedToCapacityRatio";
        let ratio = strategy.requested_to_capacity_ratio;
        if ratio.is_some() && strategy.kind != "RequestedToCapacityRatio" {
            self.refuse(RATIO, "belongs to the type RequestedToCapacityRatio alone");
        }
        match strategy.kind.as_str() {
            "LeastAllocated" => ScoringStrategy::LeastAllocated,
            "MostAllocated" => ScoringStrategy::MostAllocated,
            "RequestedToCapacityRatio" => {
                let shape = ratio.and_then(|ratio| ratio.shape).unwrap_or_default();
                ScoringStrategy::RequestedToCapacityRatio(self.shape(&format!("{RATIO}.shape"), &shape))
            }
            other => {
                let allowed = "LeastAllocated, MostAllocated, RequestedToCapacityRatio";
                self.refuse("scoringStrategy.type", format!("{other:?} is not one of {allowed}"));
                ScoringStrategy::LeastAllocated
            }
        }
    }

    fn shape(&mut self, field: &str, shape: &[PointArgs]) -> Vec<ShapePoint> {
        if shape.is_empty() {
            self.refuse(field, "must have at least one point, such as {utilization: 0, score: 0}");
        }
        for (index, point) in shape.iter().enumerate() {
            let at = |name: &str| format!("{}.{name}", item_path(field, index));
            if !(0..=100).contains(&point.utilization) {
                self.refuse(&at("utilization"), "must be 0 to 100");
            } else if index > 0 && shape[index - 1].utilization >= point.utilization {
                self.refuse(&at("utilization"), "must be more than that of the point before");
            }
            if !(0..=10).contains(&point.score) {
                self.refuse(&at("score"), "must be 0 to 10");
            }
        }
        let point = |point: &PointArgs| ShapePoint { utilization: point.utilization, score: point.score };
        shape.iter().map(point).collect()
    }

    /// Resources with weights of 1 to `most`; none given, and 0, is 1.
    fn resources(&mut self, field: &str, specs: Option<&[ResourceSpec]>, most: i64) -> Vec<(String, i64)> {
        let specs = specs.unwrap_or_default();
        for (index, spec) in specs.iter().enumerate() {
            let path = item_path(field, index);
            if spec.name.is_empty() {
                self.refuse(&format!("{path}.name"), "must name a resource");
            } else if specs[..index].iter().any(|before| before.name == spec.name) {
                self.refuse(&format!("{path}.name"), format!("{:?} is listed twice", spec.name));
            }
            if spec.weight.is_some_and(|weight| !(0..=most).contains(&weight)) {
                let allowed = if most == 1 { "1".to_owned() } else { format!("1 to {most}") };
                self.refuse(&format!("{path}.weight"), format!("must be {allowed}"));
            }
        }
        let weight = |spec: &ResourceSpec| spec.weight.filter(|weight| *weight != 0).unwrap_or(1);
        specs.iter().map(|spec| (spec.name.clone(), weight(spec))).collect()
    }

    fn balanced(&mut self, args: BalancedArgs) -> BalancedSettings {
        let listed = self.resources("resources", args.resources.as_deref(), 1);
        if listed.is_empty() {
            return BalancedSettings::default();
        }
        BalancedSettings { resources: listed.into_iter().map(|(name, _)| name.into()).collect() }
    }

    fn spread(&mut self, args: SpreadArgs) -> SpreadSettings {
        const FIELD: &str = "defaultConstraints";
        let constraints = args.default_constraints.unwrap_or_default();
        match args.defaulting_type.as_deref() {
            None | Some("" | "System") if constraints.is_empty() => return SpreadSettings::default(),
            None | Some("" | "System") => {
                self.refuse(FIELD, "need defaultingType: List; with System they have to be empty");
            }
            Some("List") => {}
            Some(other) => {
                self.refuse("defaultingType", format!("{other:?} is not one of System, List"));
            }
        }
        let mut read: Vec<SpreadConstraint> = Vec::new();
        for (index, constraint) in constraints.iter().enumerate() {
            let path = item_path(FIELD, index);
            let selects = [
                ("labelSelector", constraint.label_selector.is_some()),
                ("matchLabelKeys", constraint.match_label_keys.is_some()),
            ];
            for (field, _) in selects.into_iter().filter(|(_, is_set)| *is_set) {
                let message = "must be left out; which pods count follows from the owner of each pod";
                self.refuse(&format!("{path}.{field}"), message);
            }
            match spread_constraint(constraint, &path) {
                Ok(constraint) => {
                    let is_same = |other: &SpreadConstraint| {
                        other.topology_key == constraint.topology_key && other.is_hard == constraint.is_hard
                    };
                    if read.iter().any(is_same) {
                        self.refuse(&path, "has the topologyKey and whenUnsatisfiable of one before it");
                    }
                    read.push(constraint);
                }
                Err(error) => self.refuse(&error.path, error.problem),
            }
        }
        SpreadSettings { default_constraints: read, is_system: false }
    }

    fn affinity(&mut self, args: AffinityArgs) -> AffinitySettings {
        let Some(added) = args.added_affinity else { return AffinitySettings::default() };
        affinity::read(&added, "addedAffinity").unwrap_or_else(|problems| {
            for problem in problems {
                self.refuse(&problem.path, problem.message);
            }
            AffinitySettings::default()
        })
    }

    fn preemption(&mut self, args: PreemptionArgs) -> PreemptionSettings {
        let default = PreemptionSettings::default();
        let count = |count: Option<i64>, default, most: u32| match count {
            Some(count) => u32::try_from(count).ok().filter(|count| *count <= most),
            None => Some(default),
        };
        let percentage =
            count(args.min_candidate_nodes_percentage, default.min_candidate_nodes_percentage, 100);
        let absolute = count(
            args.min_candidate_nodes_absolute,
            default.min_candidate_nodes_absolute,
            i32::MAX.unsigned_abs(),
        );
        if percentage.is_none() {
            self.refuse("minCandidateNodesPercentage", "must be 0 to 100");
        }
        if absolute.is_none() {
            self.refuse("minCandidateNodesAbsolute", format!("must be 0 to {}", i32::MAX));
        }
        if (percentage, absolute) == (Some(0), Some(0)) {
            self.refuse("minCandidateNodesPercentage", "must not be 0 while minCandidateNodesAbsolute is");
        }
        PreemptionSettings {
            min_candidate_nodes_percentage: percentage.unwrap_or_default(),
            min_candidate_nodes_absolute: absolute.unwrap_or_default(),
        }
    }
}
