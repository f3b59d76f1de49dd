//! The effective configuration as a file.

use gangway_model::constraints::{NodeSelectorTerm, SpreadConstraint};
use gangway_model::scheduling::{
    AffinitySettings, FitSettings, ProfileSettings, ScoringStrategy, SpreadSettings,
};
use serde_json::{Map, Value, json};

use super::{GROUP_VERSION, KIND, SchedulerConfiguration, plugins};
use crate::config::{LeaderElection, requirement_json};

pub(super) fn file(configuration: &SchedulerConfiguration) -> Value {
    let settings = &configuration.settings;
    let mut client = json!({"qps": configuration.requests_per_second, "burst": configuration.request_burst});
    if let Some(kubeconfig) = &configuration.kubeconfig {
        client["kubeconfig"] = json!(kubeconfig.to_string_lossy());
    }
    let mut file = json!({
        "apiVersion": GROUP_VERSION,
        "kind": KIND,
        "podInitialBackoffSeconds": settings.initial_backoff.as_secs(),
        "podMaxBackoffSeconds": settings.max_backoff.as_secs(),
        "clientConnection": client,
        "leaderElection": LeaderElection::show(configuration.leader_election.as_ref()),
        "profiles": settings.profiles.iter().map(profile).collect::<Vec<_>>(),
    });
    if let Some(parallelism) = configuration.parallelism {
        file["parallelism"] = json!(parallelism);
    }
    file
}

fn profile(profile: &ProfileSettings) -> Value {
    json!({
        "schedulerName": profile.scheduler_name,
        "percentageOfNodesToScore": profile.percentage_of_nodes_to_score.unwrap_or(0),
        "plugins": plugin_lists(profile),
        "pluginConfig": [
            args("NodeResourcesFit", fit(&profile.fit)),
            args("NodeResourcesBalancedAllocation", json!({
                "resources": profile.balanced.resources.iter()
                    .map(|resource| json!({"name": resource.as_str(), "weight": 1}))
                    .collect::<Vec<_>>(),
            })),
            args("PodTopologySpread", spread(&profile.spread)),
            args("NodeAffinity", affinity(&profile.affinity)),
            args("DefaultPreemption", json!({
                "minCandidateNodesPercentage": profile.preemption.min_candidate_nodes_percentage,
                "minCandidateNodesAbsolute": profile.preemption.min_candidate_nodes_absolute,
            })),
        ],
    })
}

fn args(name: &str, args: Value) -> Value {
    json!({"name": name, "args": args})
}

/// Every point by itself: what runs where can be read without knowing any default.
fn plugin_lists(profile: &ProfileSettings) -> Value {
    let mut lists = Map::new();
    lists.insert("multiPoint".to_owned(), json!({"disabled": [{"name": "*"}]}));
    for (point, names) in plugins::shown(profile) {
        let enabled: Vec<Value> = names
            .into_iter()
            .map(|(name, weight)| match weight {
                Some(weight) => json!({"name": name, "weight": weight}),
                None => json!({"name": name}),
            })
            .collect();
        lists.insert(point.to_owned(), json!({"enabled": enabled}));
    }
    Value::Object(lists)
}

fn fit(fit: &FitSettings) -> Value {
    let resources: Vec<Value> = fit
        .resources
        .iter()
        .map(|(resource, weight)| json!({"name": resource.as_str(), "weight": weight}))
        .collect();
    let mut strategy = json!({"resources": resources});
    strategy["type"] = match &fit.strategy {
        ScoringStrategy::LeastAllocated => json!("LeastAllocated"),
        ScoringStrategy::MostAllocated => json!("MostAllocated"),
        ScoringStrategy::RequestedToCapacityRatio(shape) => {
            let points = shape
                .iter()
                .map(|point| json!({"utilization": point.utilization, "score": point.score}))
                .collect::<Vec<_>>();
            strategy["requestedToCapacityRatio"] = json!({"shape": points});
            json!("RequestedToCapacityRatio")
        }
    };
    json!({
        "ignoredResources": fit.ignored_resources.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
        "ignoredResourceGroups": fit.ignored_groups,
        "scoringStrategy": strategy,
    })
}

fn spread(spread: &SpreadSettings) -> Value {
    if spread.is_system {
        return json!({"defaultingType": "System"});
    }
    let constraints: Vec<Value> = spread.default_constraints.iter().map(constraint).collect();
    json!({"defaultingType": "List", "defaultConstraints": constraints})
}

fn constraint(constraint: &SpreadConstraint) -> Value {
    let policy = |is_honored| if is_honored { "Honor" } else { "Ignore" };
    let mut shown = json!({
        "maxSkew": constraint.max_skew,
        "topologyKey": constraint.topology_key,
        "whenUnsatisfiable": if constraint.is_hard { "DoNotSchedule" } else { "ScheduleAnyway" },
        "nodeAffinityPolicy": policy(constraint.node_affinity_honored),
        "nodeTaintsPolicy": policy(constraint.node_taints_honored),
    });
    if let Some(domains) = constraint.min_domains {
        shown["minDomains"] = json!(domains);
    }
    shown
}

fn affinity(affinity: &AffinitySettings) -> Value {
    let mut added = Map::new();
    if let Some(terms) = &affinity.added_required {
        let terms: Vec<Value> = terms.iter().map(term).collect();
        let required = json!({"nodeSelectorTerms": terms});
        added.insert("requiredDuringSchedulingIgnoredDuringExecution".to_owned(), required);
    }
    if !affinity.added_preferred.is_empty() {
        let terms: Vec<Value> = affinity
            .added_preferred
            .iter()
            .map(|preferred| json!({"weight": preferred.weight, "preference": term(&preferred.term)}))
            .collect();
        added.insert("preferredDuringSchedulingIgnoredDuringExecution".to_owned(), json!(terms));
    }
    if added.is_empty() { json!({}) } else { json!({"addedAffinity": added}) }
}

fn term(term: &NodeSelectorTerm) -> Value {
    let mut shown = Map::new();
    for (field, list) in [("matchExpressions", &term.labels), ("matchFields", &term.fields)] {
        if !list.is_empty() {
            shown.insert(field.to_owned(), list.iter().map(requirement_json).collect());
        }
    }
    Value::Object(shown)
}
