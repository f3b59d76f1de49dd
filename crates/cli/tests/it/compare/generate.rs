//! Small clusters and pods for them, drawn by chance, as a client would write them.

use serde_json::{Map, Value, json};

use super::dice::Dice;
use super::{families, pods};

/// The label whose values are zones.
pub const ZONE: &str = "topology.kubernetes.io/zone";
/// The label of which each node has its own value.
pub const HOSTNAME: &str = "kubernetes.io/hostname";
/// A resource that only some nodes have.
pub const GPU: &str = "example.com/gpu";
/// Where pods are. Those of a cluster are in one of the first two; some are in the third, and count for nobody's spreading but their own.
/// In the second there is what tells which pods belong together.
pub const NAMESPACES: [&str; 3] = ["default", SERVED, "other"];
/// Where Services and sets of replicas are.
pub const SERVED: &str = "served";

/// The disruption budgets of every cluster, and how many pods each lets go; a label says to which a pod belongs.
pub const BUDGETS: [(&str, i32); 2] = [("none-may-go", 0), ("one-may-go", 1)];

/// A state of a cluster, and pods that ask for a node in it one after the other.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Nodes.
    pub nodes: Vec<Value>,
    /// Pods on them.
    pub bound: Vec<Bound>,
    /// Pods that ask.
    pub asking: Vec<Value>,
}

/// A pod on a node, and what is written after it was created.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The pod.
    pub pod: Value,
    /// Its status.
    pub status: Value,
    /// Whether its deletion has begun.
    pub deleting: bool,
}

/// The cluster with that number.
pub fn cluster(seed: u64, number: u64) -> Cluster {
    let mut dice = Dice::new(seed, number);
    let names: Vec<String> = (0..dice.between(2, 12)).map(|index| format!("c{number}-n{index}")).collect();
    let nodes = names.iter().map(|name| node(&mut dice, name)).collect();
    let home = dice.pick(&[NAMESPACES[0], SERVED]);
    let fullness = dice.between(1, 7);
    let mut bound = Vec::new();
    for node in &names {
        // Nobody can have a port that somebody else has: kube-scheduler does not count how often one is taken.
        let mut free_ports = vec![9090, 8080];
        for _ in 0..dice.between(0, fullness) {
            let name = format!("c{number}-b{}", bound.len());
            let port = if dice.percent(45) { free_ports.pop() } else { None };
            bound.push(bound_pod(&mut dice, &name, (node, home), bound.len(), port));
        }
    }
    let somebody_leaves = bound.iter().any(|bound: &Bound| bound.deleting);
    let mut asking = Vec::new();
    for index in 0..4 {
        let mut pod = pods::asking(&mut dice, &format!("c{number}-p{index}"), &names);
        pod["metadata"]["namespace"] = home.into();
        if home == SERVED {
            families::add_owner(&mut dice, &mut pod);
        }
        if pods::is_miscounted(&pod, somebody_leaves) {
            pod["spec"]["preemptionPolicy"] = json!("Never");
        }
        asking.push(pod);
    }
    Cluster { nodes, bound, asking }
}

fn node(dice: &mut Dice, name: &str) -> Value {
    let mut labels = Map::new();
    let mut label = |present: bool, key: &str, value: &str| {
        if present {
            labels.insert(key.to_owned(), json!(value));
        }
    };
    label(dice.percent(95), HOSTNAME, name);
    label(dice.percent(85), ZONE, dice.pick(&["a", "b", "c", "d"]));
    label(dice.percent(65), "disk", dice.pick(&["ssd", "hdd"]));
    label(dice.percent(50), "cores", dice.pick(&["4", "8", "16", "many"]));
    let mut spec = Map::new();
    if dice.percent(30) {
        let taints: Vec<Value> =
            ["dedicated", "spot"].into_iter().take(dice.between(1, 2)).map(|key| taint(dice, key)).collect();
        spec.insert("taints".into(), taints.into());
    }
    if dice.percent(12) {
        spec.insert("unschedulable".into(), true.into());
    }
    let mut offered = json!({
        "cpu": dice.pick(&["1", "2", "3920m", "4", "8"]),
        "memory": dice.pick(&["1Gi", "2Gi", "4000Mi", "8Gi", "16Gi"]),
        "ephemeral-storage": "100Gi",
        "pods": dice.pick(&["2", "3", "5", "10", "110", "110"]),
    });
    if dice.percent(40) {
        offered[GPU] = json!(dice.pick(&["1", "2", "4"]));
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": offered, "capacity": offered},
    })
}

fn taint(dice: &mut Dice, key: &str) -> Value {
    let effect = dice.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule", "PreferNoSchedule"]);
    json!({"key": key, "value": dice.pick(&["batch", "web"]), "effect": effect})
}

fn bound_pod(
    dice: &mut Dice,
    name: &str,
    (node, home): (&str, &str),
    index: usize,
    port: Option<i32>,
) -> Bound {
    let namespace = if dice.percent(88) { home } else { NAMESPACES[2] };
    let mut spec = pods::resources(dice);
    spec["nodeName"] = json!(node);
    spec["schedulerName"] = json!("nobody");
    spec["priority"] = json!(dice.pick(&[-10, 0, 0, 0, 5, 10, 100]));
    if let Some(port) = port {
        pods::add_port(dice, &mut spec, port);
    }
    let mut labels = pods::labels(dice);
    if dice.percent(25) {
        labels["budget"] = json!(dice.pick(&BUDGETS).0);
    }
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec,
    });
    // Everybody began at another time: who is removed among equals then depends on nothing else.
    let (minute, second) = (dice.below(60), index % 60);
    let phase = if dice.percent(4) { "Succeeded" } else { "Running" };
    let status = json!({"phase": phase, "startTime": format!("2026-01-01T00:{minute:02}:{second:02}Z")});
    Bound { pod, status, deleting: phase == "Running" && dice.percent(8) }
}
