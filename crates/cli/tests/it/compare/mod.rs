//! Beside kube-scheduler: the same pods on the same clusters.
//!
//! Clusters are drawn by chance and written to an API server on which kube-scheduler runs, in a process of its own. Then one pod
//! after the other asks for a node. Where kube-scheduler finds none, Gangway has to find none and to say the same of every
//! node; where it finds some, Gangway has to choose one of those that kube-scheduler likes best.
//!
//! The API server is there when `KUBEBUILDER_ASSETS` names its programs; `.ci/run` sets it. `GANGWAY_COMPARE_SEED` draws the same
//! clusters again, `GANGWAY_COMPARE_CLUSTERS` more or fewer of them.

mod dice;
mod families;
mod generate;
mod judge;
mod log;
mod ours;
mod pods;
mod reference;
mod shrink;

use std::time::Instant;

use anyhow::{Result, anyhow};
use gangway_cli::clock::SystemClock;
use gangway_model::Clock;

use generate::Cluster;
use judge::Counts;
use reference::{ControlPlane, Reference, Verdict};

/// Clusters that are drawn if nobody says how many.
const CLUSTERS: u64 = 300;
/// And at most, where some plugin had little to decide.
const MOST_CLUSTERS: u64 = 900;
/// After so many differences nothing new is learnt.
const MOST_DIFFERENCES: usize = 5;
/// A plugin that decides less often than this was not compared.
const LEAST_DECISIVE: usize = 10;
/// Of a hundred pods at least so many have to be infeasible.
const LEAST_INFEASIBLE_PERCENT: usize = 30;

/// What has to have been decisive.
const PLUGINS: [&str; 12] = [
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "TaintToleration (score)",
    "NodeAffinity (score)",
    "NodeResourcesFit (score)",
    "PodTopologySpread (score)",
    judge::BY_DEFAULT,
    "NodeResourcesBalancedAllocation (score)",
];

#[test]
fn with_kube_scheduler() {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        println!("compare: skipped: KUBEBUILDER_ASSETS is not set");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let by_time = || u64::try_from(SystemClock.now().as_seconds()).unwrap_or(1);
    let seed = number("GANGWAY_COMPARE_SEED").unwrap_or_else(by_time);
    let clusters = number("GANGWAY_COMPARE_CLUSTERS");
    println!("compare: seed {seed}");
    let control_plane = ControlPlane::start().expect("the control plane starts");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (counts, differences) = runtime.block_on(compare(&control_plane, seed, clusters)).expect("it runs");
    println!("compare: {}", show(&counts));
    assert_eq!(differences, 0, "GANGWAY_COMPARE_SEED={seed} shows them again");
    if clusters.is_none() {
        assert_eq!(lacking(&counts), Vec::<String>::new(), "enough was at stake");
    }
}

/// Compares that many clusters, or as many as it takes; gives how many differences there were.
async fn compare(control_plane: &ControlPlane, seed: u64, clusters: Option<u64>) -> Result<(Counts, usize)> {
    let began = Instant::now();
    let mut reference = control_plane.open().await?;
    let (mut counts, mut differences) = (Counts::default(), 0);
    for number in 0..clusters.unwrap_or(MOST_CLUSTERS) {
        if clusters.is_none() && number >= CLUSTERS && lacking(&counts).is_empty() {
            break;
        }
        let cluster = generate::cluster(seed, number);
        if let Some((index, difference)) = compare_cluster(&mut reference, &cluster, &mut counts).await? {
            println!("DIFFERENCE in cluster {number}, pod {index}: {difference}");
            println!("{}", shrink::shrunk(&mut reference, &cluster, index).await?);
            differences += 1;
            if differences == MOST_DIFFERENCES {
                break;
            }
        }
    }
    println!("compare: {:.0} s", began.elapsed().as_secs_f64());
    Ok((counts, differences))
}

/// The first pod of the cluster on which both do not agree, and how.
async fn compare_cluster(
    reference: &mut Reference,
    cluster: &Cluster,
    counts: &mut Counts,
) -> Result<Option<(usize, String)>> {
    let state = reference.build(cluster).await?;
    counts.clusters += 1;
    let mut found = None;
    for (index, pod) in cluster.asking.iter().enumerate() {
        let (pod, verdict) = reference.ask(pod).await?;
        found = judge::difference(&state, &pod, &verdict).map(|difference| (index, difference));
        if found.is_none() {
            counts.count(&state, &pod, &verdict).map_err(|problem| anyhow!(problem))?;
        }
        reference.withdraw(&pod).await?;
        // Whoever was removed is not there for the next one.
        if found.is_some() || matches!(verdict, Verdict::Waits { preemption: Some(_), .. }) {
            break;
        }
    }
    reference.clear(&state).await?;
    Ok(found)
}

fn show(counts: &Counts) -> String {
    let Counts { clusters, pods, infeasible, preemptions, decisive } = counts;
    let decisive: Vec<String> = decisive.iter().map(|(plugin, count)| format!("{plugin} {count}")).collect();
    let decisive = decisive.join(", ");
    format!(
        "{clusters} clusters, {pods} pods, {infeasible} infeasible, decisive: {decisive}, preemption {preemptions}"
    )
}

/// What was at stake too rarely: a comparison in which little is proves little.
fn lacking(counts: &Counts) -> Vec<String> {
    let mut lacking = Vec::new();
    let share = counts.infeasible * 100 / counts.pods.max(1);
    if share < LEAST_INFEASIBLE_PERCENT {
        lacking.push(format!("only {share} % of the pods were infeasible"));
    }
    let decided = PLUGINS.map(|plugin| (plugin, counts.decisive.get(plugin).copied().unwrap_or(0)));
    for (plugin, count) in decided.into_iter().chain([("preemption", counts.preemptions)]) {
        if count < LEAST_DECISIVE {
            lacking.push(format!("{plugin} was decisive only {count} times"));
        }
    }
    lacking
}
