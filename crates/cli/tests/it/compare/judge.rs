//! Do both schedulers agree?

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;

use super::generate::NAMESPACES;
use super::ours::{self, Decided, FILTERS};
use super::reference::{Preemption, State, Verdict};

/// Pods that do not say how they want to be spread, where that decides.
pub const BY_DEFAULT: &str = "spreading by default";

/// Scores of nodes by plugin.
type Scores = BTreeMap<String, BTreeMap<String, i64>>;

/// What was compared.
#[derive(Debug, Default)]
pub struct Counts {
    pub clusters: usize,
    pub pods: usize,
    pub infeasible: usize,
    pub preemptions: usize,
    /// How often the outcome would have been another one without the plugin.
    pub decisive: BTreeMap<String, usize>,
}

impl Counts {
    fn add(&mut self, plugin: &str) {
        *self.decisive.entry(plugin.to_owned()).or_default() += 1;
    }

    /// Counts a pod on which both agree.
    pub fn count(&mut self, state: &State, pod: &Pod, verdict: &Verdict) -> Result<(), String> {
        self.pods += 1;
        let none = Scores::new();
        let feasible = match verdict {
            Verdict::Bound { scores, .. } => scores,
            Verdict::Waits { preemption, .. } => {
                self.infeasible += 1;
                self.preemptions += usize::from(preemption.is_some());
                &none
            }
        };
        // A plugin that rules out nodes decides where the pod would have got a node that it rules out.
        for plugin in FILTERS {
            if let Decided::Bind(node) = ours::decide(state, pod, Some(plugin))?
                && !feasible.contains_key(&node)
            {
                self.add(plugin);
            }
        }
        // One that ranks them decides where another node would have been best.
        let best = highest(feasible, None);
        let plugins: BTreeSet<&String> = feasible.values().flat_map(BTreeMap::keys).collect();
        for plugin in plugins {
            if highest(feasible, Some(plugin.as_str())).is_disjoint(&best) {
                self.add(&format!("{plugin} (score)"));
                let spec = pod.spec.as_ref();
                let says_how = spec.is_some_and(|spec| spec.topology_spread_constraints.is_some());
                if plugin == "PodTopologySpread" && !says_how {
                    self.add(BY_DEFAULT);
                }
            }
        }
        Ok(())
    }
}

/// The nodes with the highest total.
fn highest<'a>(scores: &'a Scores, left_out: Option<&str>) -> BTreeSet<&'a str> {
    let total = |of_node: &BTreeMap<String, i64>| -> i64 {
        of_node.iter().filter(|(plugin, _)| Some(plugin.as_str()) != left_out).map(|(_, score)| score).sum()
    };
    let most = scores.values().map(total).max();
    scores.iter().filter(|(_, of_node)| Some(total(of_node)) == most).map(|(node, _)| node.as_str()).collect()
}

/// Nothing if both agree, or else how they do not.
pub fn difference(state: &State, pod: &Pod, verdict: &Verdict) -> Option<String> {
    let decided = match ours::decide(state, pod, None) {
        Ok(decided) => decided,
        Err(problem) => return Some(problem),
    };
    match (verdict, &decided) {
        (Verdict::Bound { node, scores }, Decided::Bind(ours)) => {
            let best = highest(scores, None);
            let agree = best.contains(ours.as_str()) && best.contains(node.as_str());
            (!agree).then(|| format!("kube-scheduler chose {node}, Gangway {ours}; scores {scores:#?}"))
        }
        (Verdict::Waits { message, preemption: None }, Decided::Wait(said)) => other_words(message, said),
        (Verdict::Waits { message, preemption: Some(theirs) }, Decided::Preempt(ours, said)) => {
            other_words(message, said).or_else(|| preemption_difference(state, pod, theirs, ours))
        }
        _ => Some(format!("kube-scheduler decided {verdict:#?}\nGangway decided {decided:#?}")),
    }
}

/// Whether something else is said of the nodes.
fn other_words(theirs: &str, ours: &str) -> Option<String> {
    let of_nodes = |text: &str| text.split(" preemption: ").next().unwrap_or_default().to_owned();
    // For a pod that names its nodes kube-scheduler looks at no other, and says of them only that.
    let named_only = theirs.contains("node(s) didn't satisfy plugin(s)");
    let agree = named_only || of_nodes(theirs) == of_nodes(ours);
    (!agree).then(|| format!("kube-scheduler says\n  {theirs}\nGangway says\n  {ours}"))
}

/// On the same node the same pods have to go; another node has to be as good.
fn preemption_difference(state: &State, pod: &Pod, theirs: &Preemption, ours: &Preemption) -> Option<String> {
    let agree = match theirs.node == ours.node {
        true => theirs.victims == ours.victims,
        false => cost(state, pod, theirs) == cost(state, pod, ours),
    };
    (!agree).then(|| {
        let costs = [theirs, ours].map(|preemption| cost(state, pod, preemption));
        format!("kube-scheduler removes {theirs:?}\nGangway removes {ours:?}\nat the costs {costs:?}")
    })
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

fn started(pod: &Pod) -> String {
    let time = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    serde_json::to_string(&time).unwrap_or_default()
}

fn name(pod: &Pod) -> String {
    let meta = &pod.metadata;
    format!("{}/{}", meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
}

/// By what nodes are ranked: less is better.
fn cost(state: &State, pod: &Pod, chosen: &Preemption) -> (usize, i32, i64, usize, Reverse<String>) {
    let victims: Vec<&Pod> = state.bound.iter().filter(|pod| chosen.victims.contains(&name(pod))).collect();
    let broken = violating(state, pod, &chosen.node);
    let broken = victims.iter().filter(|victim| broken.contains(&name(victim))).count();
    let most = victims.iter().map(|victim| priority(victim)).max().unwrap_or(i32::MIN);
    let sum = victims.iter().map(|victim| i64::from(priority(victim)) + (1 << 31)).sum();
    let important = victims.iter().filter(|victim| priority(victim) == most);
    let earliest = important.map(|victim| started(victim)).min().unwrap_or_default();
    (broken, most, sum, victims.len(), Reverse(earliest))
}

/// Whether there are disruption budgets where the pod is.
fn is_protected(pod: &Pod) -> bool {
    pod.metadata.namespace.as_deref() != Some(NAMESPACES[2])
}

/// Pods of the node, less important than the one that asks, whose removal would break a disruption budget.
fn violating(state: &State, pod: &Pod, node: &str) -> BTreeSet<String> {
    let is_on_node =
        |other: &&Pod| other.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    let mut lower: Vec<&Pod> =
        state.bound.iter().filter(is_on_node).filter(|other| priority(other) < priority(pod)).collect();
    lower.sort_by_key(|other| (Reverse(priority(other)), started(other)));
    let mut left: BTreeMap<&str, i32> = BTreeMap::new();
    for budget in &state.budgets {
        let allowed = budget.status.as_ref().and_then(|status| status.disruptions_allowed).unwrap_or(0);
        left.insert(budget.metadata.name.as_deref().unwrap_or_default(), allowed);
    }
    let mut violating = BTreeSet::new();
    for other in lower.iter().filter(|other| is_protected(other)) {
        let label = other.metadata.labels.as_ref().and_then(|labels| labels.get("budget"));
        let Some(left) = label.and_then(|label| left.get_mut(label.as_str())) else { continue };
        *left -= 1;
        if *left < 0 {
            violating.insert(name(other));
        }
    }
    violating
}
