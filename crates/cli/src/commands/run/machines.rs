//! Which nodes this machine plays under `run`.
//!
//! Flavors describe machines by labels, and one machine cannot carry contradicting labels. So this machine
//! plays one node for each distinct set of flavor labels. Each node offers as much as all quotas together:
//! what has quota finds room, and the quota alone decides what runs at once. Resources that no quota covers are
//! offered as the machine has them.
//!
//! A flavor may say instead which nodes of it are to be pretended, or that it is out of stock: then what has quota may
//! find no room.

use std::collections::BTreeMap;

use gangway_api::kueue::ResourceFlavor;
use gangway_model::PODS_RESOURCE;
use gangway_model::quantity::to_quantity_text;
use gangway_node::fake::FakeNode;
use kube::ResourceExt;

use super::quota_watch::QuotaLine;
use crate::embedded::Machine;

const NAME: &str = "this-machine";
/// On a ResourceFlavor in a file: the nodes of it that are pretended, as `gangway node --fake` takes them, or 0.
const FAKE_NODES_ANNOTATION: &str = "fake.gangway.dev/nodes";
/// Where no quota counts pods, the number of pods is no reason to wait.
const PODS_MAX: &str = "1000000";
/// What is offered of a resource with unlimited quota; leaves room for sums.
const AMOUNT_MAX: i64 = 1 << 50;

/// The nodes that the flavors want to be pretended; a sentence about the first that cannot be read.
pub fn fake_nodes(flavors: &[ResourceFlavor]) -> Result<Vec<FakeNode>, String> {
    let mut nodes = Vec::new();
    for flavor in flavors {
        let Some(description) = flavor.annotations().get(FAKE_NODES_ANNOTATION) else { continue };
        if description.trim() == "0" {
            continue;
        }
        let name = flavor.name_any();
        let parsed = FakeNode::parse(&format!("name={name},{description}"));
        let wrong =
            |error| format!("ResourceFlavor {name}: metadata.annotations[{FAKE_NODES_ANNOTATION}]: {error}");
        for mut node in parsed.map_err(wrong)? {
            node.labels.extend(flavor.spec.node_labels.clone());
            nodes.push(node);
        }
    }
    Ok(nodes)
}

fn is_pretended(flavor: &ResourceFlavor) -> bool {
    flavor.annotations().contains_key(FAKE_NODES_ANNOTATION)
}

/// The nodes for these flavors; one without labels if there are no flavors.
pub fn machines(flavors: &[ResourceFlavor], quotas: &[QuotaLine]) -> Vec<Machine> {
    let mut names: BTreeMap<&BTreeMap<String, String>, String> = BTreeMap::new();
    for flavor in flavors.iter().filter(|flavor| !is_pretended(flavor)) {
        names.entry(&flavor.spec.node_labels).or_insert_with(|| flavor.name_any());
    }
    if names.is_empty() && !flavors.is_empty() {
        return Vec::new();
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
    // The quota of a queue in a cohort is part of the cohort's line.
    for line in quotas.iter().filter(|line| line.cohort.is_none()) {
        let sum = sums.entry(&line.resource).or_default();
        *sum = sum.saturating_add(line.quota.value()).min(AMOUNT_MAX);
    }
    let mut capacity: BTreeMap<String, String> =
        sums.into_iter().map(|(name, sum)| (name.to_owned(), to_quantity_text(name, sum))).collect();
    capacity.entry(PODS_RESOURCE.to_owned()).or_insert_with(|| PODS_MAX.to_owned());
    capacity
}

#[cfg(test)]
mod tests {
    use gangway_model::Amount;

    use super::super::quota_watch::Owner;
    use super::*;

    fn flavor(name: &str, tier: &str) -> ResourceFlavor {
        let mut flavor = ResourceFlavor::new(name, Default::default());
        flavor.spec.node_labels.insert("tier".to_owned(), tier.to_owned());
        flavor
    }

    fn line(cpus: i64) -> QuotaLine {
        QuotaLine {
            owner: Owner::ClusterQueue("team".into()),
            cohort: None,
            flavors: Vec::new(),
            labels: BTreeMap::new(),
            resource: "cpu".into(),
            quota: Amount::new(cpus.saturating_mul(1000)),
            most: Amount::UNLIMITED,
            used: 0,
            peak: 0,
        }
    }

    #[test]
    fn each_set_of_labels_is_a_node_that_offers_all_quotas_together() {
        let flavors = [flavor("a", "x"), flavor("b", "y"), flavor("c", "x")];
        let machines = machines(&flavors, &[line(2), line(3)]);
        let seen: Vec<_> = machines.iter().map(|m| (m.name.as_str(), m.labels["tier"].as_str())).collect();
        assert_eq!(seen, [("this-machine-a", "x"), ("this-machine-b", "y")]);
        assert!(machines.iter().all(|machine| machine.capacity["cpu"] == "5"));
    }

    #[test]
    fn a_flavor_may_pretend_its_nodes_or_have_none() {
        let pretended = |name: &str, nodes: &str| {
            let mut flavor = flavor(name, name);
            flavor.annotations_mut().insert(FAKE_NODES_ANNOTATION.to_owned(), nodes.to_owned());
            flavor
        };
        let flavors = [pretended("spot", "0"), pretended("on-demand", "count=2,cpu=4")];
        let nodes = fake_nodes(&flavors).unwrap();
        let seen: Vec<_> = nodes.iter().map(|n| (n.name.as_str(), n.labels["tier"].as_str())).collect();
        assert_eq!(seen, [("on-demand-0", "on-demand"), ("on-demand-1", "on-demand")]);
        assert!(machines(&flavors, &[line(2)]).is_empty(), "this machine plays none of them");
        let wrong = fake_nodes(&[pretended("spot", "many")]).unwrap_err();
        assert!(
            wrong.starts_with("ResourceFlavor spot: metadata.annotations[fake.gangway.dev/nodes]: "),
            "{wrong}"
        );
    }

    #[test]
    fn no_flavors_are_one_node_and_no_quota_overflows() {
        let machines = machines(&[], &[line(i64::MAX), line(i64::MAX)]);
        assert_eq!((machines.len(), machines[0].name.as_str()), (1, "this-machine"));
        assert!(gangway_model::Quantity::parse(&machines[0].capacity["cpu"]).is_ok());
    }
}
