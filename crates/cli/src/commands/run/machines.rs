//! Which nodes this machine plays under `run`.
//!
//! Flavors describe machines by labels, and one machine cannot carry contradicting labels. So this machine
//! plays one node for each distinct set of flavor labels. Each node offers as much as all quotas together:
//! what has quota finds room, and the quota alone decides what runs at once. Resources that no quota covers are
//! offered as the machine has them.

use std::collections::BTreeMap;

use gangway_api::kueue::ResourceFlavor;
use gangway_model::PODS_RESOURCE;
use gangway_model::quantity::to_quantity_text;
use kube::ResourceExt;

use super::quota_watch::QuotaLine;
use crate::embedded::Machine;

const NAME: &str = "this-machine";
/// Where no quota counts pods, the number of pods is no reason to wait.
const PODS_MAX: &str = "1000000";
/// What is offered of a resource with unlimited quota; leaves room for sums.
const AMOUNT_MAX: i64 = 1 << 50;

/// The nodes for these flavors; one without labels if there are no flavors.
pub fn machines(flavors: &[ResourceFlavor], quotas: &[QuotaLine]) -> Vec<Machine> {
    let mut names: BTreeMap<&BTreeMap<String, String>, String> = BTreeMap::new();
    for flavor in flavors {
        names.entry(&flavor.spec.node_labels).or_insert_with(|| flavor.name_any());
    }
    let capacity = capacity(quotas);
    let machine =
        |name: String, labels: BTreeMap<String, String>| Machine { name, labels, capacity: capacity.clone() };
    match names.len() {
        0 => vec![machine(NAME.to_owned(), BTreeMap::new())],
        1 => names.into_keys().map(|labels| machine(NAME.to_owned(), labels.clone())).collect(),
        _ => {
            let each = names.into_iter();
            each.map(|(labels, flavor)| machine(format!("{NAME}-{flavor}"), labels.clone())).collect()
        }
    }
}

fn capacity(quotas: &[QuotaLine]) -> BTreeMap<String, String> {
    let mut sums: BTreeMap<&str, i64> = BTreeMap::new();
    for line in quotas {
        let sum = sums.entry(&line.resource).or_default();
        *sum = sum.saturating_add(line.quota.value()).min(AMOUNT_MAX);
    }
    let mut capacity: BTreeMap<String, String> =
        sums.into_iter().map(|(name, sum)| (name.to_owned(), to_quantity_text(name, sum))).collect();
    capacity.entry(PODS_RESOURCE.to_owned()).or_insert_with(|| PODS_MAX.to_owned());
    capacity
}
