//! What is left of a cluster when nothing more can be taken away without the difference going too.

use anyhow::Result;
use serde_json::Value;

use super::generate::Cluster;
use super::judge;
use super::reference::Reference;

/// The smallest cluster found on which the pod with that index is judged differently, in words.
pub async fn shrunk(reference: &mut Reference, cluster: &Cluster, index: usize) -> Result<String> {
    let mut small = Cluster { asking: vec![cluster.asking[index].clone()], ..cluster.clone() };
    let Some(mut difference) = check(reference, &small).await? else {
        return Ok("It does not show when the pod asks alone.".to_owned());
    };
    loop {
        let mut is_smaller = false;
        for candidate in smaller(&small) {
            // One that the API refuses is no cluster.
            if let Ok(Some(found)) = check(reference, &candidate).await {
                (small, difference, is_smaller) = (candidate, found, true);
                break;
            }
        }
        if !is_smaller {
            return Ok(show(&small, &difference));
        }
    }
}

async fn check(reference: &mut Reference, cluster: &Cluster) -> Result<Option<String>> {
    let state = reference.build(cluster).await?;
    let asked = reference.ask(&cluster.asking[0]).await;
    let difference = match &asked {
        Ok((pod, verdict)) => {
            reference.withdraw(pod).await?;
            judge::difference(&state, pod, verdict)
        }
        Err(_) => None,
    };
    reference.clear(&state).await?;
    asked.map(|_| difference)
}

/// The cluster with one thing less, the largest things first.
fn smaller(cluster: &Cluster) -> Vec<Cluster> {
    let mut all = Vec::new();
    for (index, node) in cluster.nodes.iter().enumerate() {
        let mut less = cluster.clone();
        less.nodes.remove(index);
        less.bound.retain(|bound| bound.pod["spec"]["nodeName"] != node["metadata"]["name"]);
        all.push(less);
    }
    for index in 0..cluster.bound.len() {
        let mut less = cluster.clone();
        less.bound.remove(index);
        all.push(less);
    }
    for list in ["topologySpreadConstraints", "tolerations", "initContainers", "containers"] {
        let count = cluster.asking[0]["spec"][list].as_array().map_or(0, Vec::len);
        for index in (0..count).filter(|_| count > 1) {
            let mut less = cluster.clone();
            less.asking[0]["spec"][list].as_array_mut().map(|list| list.remove(index));
            all.push(less);
        }
    }
    let fields = [
        "affinity",
        "nodeSelector",
        "tolerations",
        "initContainers",
        "overhead",
        "resources",
        "topologySpreadConstraints",
    ];
    for field in fields {
        let mut less = cluster.clone();
        if let Some(Value::Object(spec)) = less.asking[0].get_mut("spec")
            && spec.remove(field).is_some()
        {
            all.push(less);
        }
    }
    all
}

fn show(cluster: &Cluster, difference: &str) -> String {
    let mut text = format!("Smaller: {difference}\n");
    let bound = cluster
        .bound
        .iter()
        .map(|bound| format!("{} {} deleting: {}", bound.pod, bound.status, bound.deleting));
    for object in cluster.nodes.iter().chain(&cluster.asking).map(Value::to_string).chain(bound) {
        text.push_str(&format!("- {object}\n"));
    }
    text
}
