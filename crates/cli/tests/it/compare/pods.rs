//! Pods drawn by chance: what they ask for, and which nodes they accept.

use serde_json::{Map, Value, json};

use super::dice::Dice;
use super::generate::{GPU, HOSTNAME, ZONE};

/// A pod that asks for a node: mostly ordinary, with up to three demands.
pub fn asking(dice: &mut Dice, name: &str, nodes: &[String]) -> Value {
    let mut spec = resources(dice);
    for _ in 0..dice.between(0, 3) {
        match dice.below(9) {
            0 => add_node_selector(dice, &mut spec),
            1 => add_required_affinity(dice, &mut spec, nodes),
            2 => add_preferred_affinity(dice, &mut spec, nodes),
            3 => add_tolerations(dice, &mut spec),
            4 | 5 => {
                let number = dice.pick(&[8080, 8080, 9090]);
                add_port(dice, &mut spec, number);
            }
            _ => add_spreading(dice, &mut spec),
        }
    }
    spec["schedulerName"] = json!("default-scheduler");
    spec["priority"] = json!(dice.pick(&[-10, -10, 0, 0, 0, 1, 7, 7, 1000]));
    if dice.percent(10) {
        spec["preemptionPolicy"] = json!("Never");
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": labels(dice)},
        "spec": spec,
    })
}

/// Whether kube-scheduler miscounts when it tries whom to remove for this pod. It takes away pods from a domain that it never
/// counted there: those on their way out, and, where the selector is empty, all. We do not follow it in that.
pub fn is_miscounted(pod: &Value, somebody_leaves: bool) -> bool {
    let constraints = pod["spec"]["topologySpreadConstraints"].as_array();
    constraints.into_iter().flatten().any(|constraint| {
        constraint["whenUnsatisfiable"] == "DoNotSchedule"
            && (somebody_leaves || constraint["labelSelector"] == json!({}))
    })
}

/// Labels by which pods are spread.
pub fn labels(dice: &mut Dice) -> Value {
    let mut labels = Map::new();
    if dice.percent(80) {
        labels.insert("app".into(), dice.pick(&["a", "a", "b"]).into());
    }
    if dice.percent(50) {
        labels.insert("tier".into(), dice.pick(&["x", "y"]).into());
    }
    labels.into()
}

/// Containers with what they ask for, which may be nothing.
pub fn resources(dice: &mut Dice) -> Value {
    let containers: Vec<Value> =
        (0..dice.between(1, 2)).map(|index| container(dice, &format!("c{index}"))).collect();
    let mut spec = json!({"containers": containers, "terminationGracePeriodSeconds": 3600});
    if dice.percent(20) {
        let mut init: Vec<Value> =
            (0..dice.between(1, 2)).map(|index| container(dice, &format!("i{index}"))).collect();
        if dice.percent(50) {
            init[0]["restartPolicy"] = json!("Always");
        }
        spec["initContainers"] = init.into();
    }
    if dice.percent(10) {
        spec["overhead"] = json!({"cpu": "250m", "memory": "64Mi"});
    }
    if dice.percent(6) {
        spec["resources"] = json!({"requests": {"cpu": "6", "memory": "13Gi"}});
    }
    spec
}

fn container(dice: &mut Dice, name: &str) -> Value {
    let mut asked = Map::new();
    if dice.percent(70) {
        asked.insert(
            "cpu".into(),
            dice.pick(&["0", "100m", "250m", "333m", "500m", "1", "1500m", "2"]).into(),
        );
    }
    if dice.percent(60) {
        asked.insert("memory".into(), dice.pick(&["100M", "128Mi", "512Mi", "1Gi", "2Gi", "3Gi"]).into());
    }
    if dice.percent(10) {
        asked.insert("ephemeral-storage".into(), dice.pick(&["1Gi", "60Gi"]).into());
    }
    let mut resources = json!({"requests": asked});
    if dice.percent(10) {
        // Where there is a limit only, it is what is asked for.
        resources = json!({"limits": asked});
    }
    if dice.percent(12) {
        let count = dice.pick(&["1", "2"]);
        resources["limits"][GPU] = json!(count);
        resources["requests"][GPU] = json!(count);
    }
    json!({"name": name, "image": "none", "resources": resources})
}

/// A port of the host, for a container or one that starts before it.
pub fn add_port(dice: &mut Dice, spec: &mut Value, number: i32) {
    let mut port = json!({"containerPort": 80, "hostPort": number});
    if dice.percent(25) {
        port["hostIP"] = json!(dice.pick(&["0.0.0.0", "10.0.0.1", "10.0.0.2"]));
    }
    if dice.percent(20) {
        port["protocol"] = json!("UDP");
    }
    let list = if dice.percent(15) && spec.get("initContainers").is_some() {
        "initContainers"
    } else {
        "containers"
    };
    spec[list][0]["ports"] = json!([port]);
}

fn add_node_selector(dice: &mut Dice, spec: &mut Value) {
    let (key, value) =
        dice.pick(&[("disk", "ssd"), ("disk", "hdd"), (ZONE, "a"), (ZONE, "b"), ("disk", "tape")]);
    spec["nodeSelector"] = json!({key: value});
}

fn add_required_affinity(dice: &mut Dice, spec: &mut Value, nodes: &[String]) {
    let terms: Vec<Value> = (0..dice.between(1, 2)).map(|_| term(dice, nodes)).collect();
    let required = json!({"nodeSelectorTerms": terms});
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = required;
}

fn add_preferred_affinity(dice: &mut Dice, spec: &mut Value, nodes: &[String]) {
    let count = dice.between(1, 3);
    let preferred = (0..count)
        .map(|_| json!({"weight": dice.between(1, 100), "preference": term(dice, nodes)}))
        .collect();
    spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
        Value::Array(preferred);
}

fn term(dice: &mut Dice, nodes: &[String]) -> Value {
    let mut term = Map::new();
    if dice.percent(85) {
        let requirements: Vec<Value> = (0..dice.between(1, 2)).map(|_| requirement(dice)).collect();
        term.insert("matchExpressions".into(), requirements.into());
    }
    if dice.percent(25) || term.is_empty() {
        let operator = dice.pick(&["In", "NotIn"]);
        let name = &nodes[dice.below(nodes.len())];
        let field = json!({"key": "metadata.name", "operator": operator, "values": [name]});
        term.insert("matchFields".into(), json!([field]));
    }
    term.into()
}

fn requirement(dice: &mut Dice) -> Value {
    let (key, values) =
        dice.pick(&[("disk", ["ssd", "hdd"]), (ZONE, ["a", "b"]), (ZONE, ["c", "d"]), ("cores", ["4", "8"])]);
    let values = &values[..dice.between(1, 2)];
    match dice.below(6) {
        0 | 1 => json!({"key": key, "operator": "In", "values": values}),
        2 => json!({"key": key, "operator": "NotIn", "values": values}),
        3 => json!({"key": key, "operator": dice.pick(&["Exists", "DoesNotExist"])}),
        _ => json!({"key": "cores", "operator": dice.pick(&["Gt", "Lt"]), "values": ["8"]}),
    }
}

fn add_tolerations(dice: &mut Dice, spec: &mut Value) {
    let count = dice.between(1, 2);
    let tolerations = (0..count).map(|_| toleration(dice)).collect();
    spec["tolerations"] = Value::Array(tolerations);
}

fn toleration(dice: &mut Dice) -> Value {
    let mut toleration = Map::new();
    let mut set = |key: &str, value: &str| toleration.insert(key.to_owned(), value.into());
    match dice.below(6) {
        0 => {
            set("operator", "Exists");
        }
        1 => {
            set("key", "node.kubernetes.io/unschedulable");
            set("operator", "Exists");
        }
        2 => {
            set("key", dice.pick(&["dedicated", "spot"]));
            set("operator", "Exists");
        }
        _ => {
            set("key", dice.pick(&["dedicated", "spot"]));
            set("value", dice.pick(&["batch", "web"]));
        }
    }
    if dice.percent(50) {
        set("effect", dice.pick(&["NoSchedule", "NoExecute", "PreferNoSchedule"]));
    }
    toleration.into()
}

/// One or two spread constraints; two of a pod may not have both key and kind in common.
fn add_spreading(dice: &mut Dice, spec: &mut Value) {
    let mut keys = vec![ZONE, HOSTNAME, "disk"];
    let count = dice.pick(&[1, 1, 1, 2]);
    let constraints = (0..count).map(|_| {
        let key = keys.remove(dice.below(keys.len()));
        spread_constraint(dice, key)
    });
    spec["topologySpreadConstraints"] = constraints.collect::<Vec<_>>().into();
}

fn spread_constraint(dice: &mut Dice, key: &str) -> Value {
    let is_hard = dice.percent(50);
    let mut constraint = json!({
        "topologyKey": key,
        "maxSkew": dice.pick(&[1, 1, 1, 2, 5]),
        "whenUnsatisfiable": if is_hard { "DoNotSchedule" } else { "ScheduleAnyway" },
    });
    let app = dice.pick(&["a", "a", "b"]);
    let kind = dice.below(10);
    let selector = match kind {
        0 => None,
        1 => Some(json!({})),
        2 => Some(json!({"matchExpressions": [{"key": "app", "operator": "Exists"}]})),
        3 => Some(json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["x"]}]})),
        _ => Some(json!({"matchLabels": {"app": app}})),
    };
    if let Some(selector) = selector {
        constraint["labelSelector"] = selector;
        // The API refuses a key that the selector has too.
        if kind != 3 && dice.percent(20) {
            constraint["matchLabelKeys"] = json!(["tier"]);
        }
    }
    if is_hard && dice.percent(25) {
        constraint["minDomains"] = json!(dice.between(1, 5));
    }
    if dice.percent(25) {
        constraint["nodeAffinityPolicy"] = json!(dice.pick(&["Honor", "Ignore"]));
    }
    if dice.percent(30) {
        constraint["nodeTaintsPolicy"] = json!(dice.pick(&["Honor", "Ignore"]));
    }
    constraint
}
