//! The quotas of the files, as lines to watch.

use std::collections::BTreeMap;

use gangway_api::kueue::{ClusterQueue, Cohort, ResourceFlavor, ResourceGroup, ResourceQuota};
use gangway_model::{Amount, Quantity};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use kube::ResourceExt;

use super::quota_watch::{Owner, QuotaLine};

/// A line for each resource in each flavor of each ClusterQueue, and of each tree of cohorts; flavors with
/// equal labels share theirs.
pub fn quota_lines(
    queues: &[ClusterQueue],
    cohorts: &[Cohort],
    flavors: &[ResourceFlavor],
) -> Vec<QuotaLine> {
    let labels: BTreeMap<String, &BTreeMap<String, String>> =
        flavors.iter().map(|flavor| (flavor.name_any(), &flavor.spec.node_labels)).collect();
    let mut lines: Vec<QuotaLine> = Vec::new();
    for queue in queues {
        let parent = queue.spec.cohort_name.as_deref().or(queue.spec.cohort.as_deref());
        let root = parent.filter(|name| !name.is_empty()).map(|name| root_of(name, cohorts));
        let owner = Owner::ClusterQueue(queue.name_any());
        for line in lines_of(&owner, root.as_deref(), &queue.spec.resource_groups, &labels) {
            add(&mut lines, line);
        }
    }
    let members: Vec<QuotaLine> = lines.iter().filter_map(above).collect();
    let own = cohorts.iter().flat_map(|cohort| {
        let owner = Owner::Cohort(root_of(&cohort.name_any(), cohorts));
        lines_of(&owner, None, &cohort.spec.resource_groups, &labels)
    });
    for line in members.into_iter().chain(own.collect::<Vec<_>>()) {
        add(&mut lines, line);
    }
    lines
}

/// The highest cohort above this one, or itself. Parents that go round in a circle end somewhere.
fn root_of(name: &str, cohorts: &[Cohort]) -> String {
    let mut root = name;
    for _ in cohorts {
        let found = cohorts.iter().find(|cohort| cohort.metadata.name.as_deref() == Some(root));
        match found.and_then(|cohort| cohort.spec.parent_name.as_deref()).filter(|name| !name.is_empty()) {
            Some(parent) => root = parent,
            None => break,
        }
    }
    root.to_owned()
}

fn lines_of(
    owner: &Owner,
    cohort: Option<&str>,
    groups: &[ResourceGroup],
    labels: &BTreeMap<String, &BTreeMap<String, String>>,
) -> Vec<QuotaLine> {
    let mut lines = Vec::new();
    for flavor in groups.iter().flat_map(|group| &group.flavors) {
        for resource in &flavor.resources {
            // Files with malformed quantities were refused before.
            let Some(quota) = amount(&resource.nominal_quota, resource) else { continue };
            let limit = resource
                .borrowing_limit
                .as_ref()
                .map_or(Some(Amount::UNLIMITED), |limit| amount(limit, resource));
            lines.push(QuotaLine {
                owner: owner.clone(),
                cohort: cohort.map(str::to_owned),
                flavors: vec![flavor.name.clone()],
                labels: labels.get(&flavor.name).map(|labels| (*labels).clone()).unwrap_or_default(),
                resource: resource.name.clone(),
                quota,
                most: quota.plus(limit.filter(|_| cohort.is_some()).unwrap_or(Amount::ZERO)),
                used: 0,
                peak: 0,
            });
        }
    }
    lines
}

fn amount(quantity: &ApiQuantity, resource: &ResourceQuota) -> Option<Amount> {
    let quantity = Quantity::parse(&quantity.0).ok()?;
    Some(Amount::of_quota(quantity, &resource.name))
}

/// What a queue's line adds to that of its cohorts.
fn above(line: &QuotaLine) -> Option<QuotaLine> {
    let owner = Owner::Cohort(line.cohort.clone()?);
    Some(QuotaLine { owner, cohort: None, most: line.quota, ..line.clone() })
}

fn add(lines: &mut Vec<QuotaLine>, line: QuotaLine) {
    let same = lines.iter_mut().find(|known| {
        known.owner == line.owner && known.resource == line.resource && known.labels == line.labels
    });
    match same {
        Some(known) => {
            known.quota = known.quota.plus(line.quota);
            known.most = known.most.plus(line.most);
            let new = line.flavors.into_iter().filter(|flavor| !known.flavors.contains(flavor));
            let new: Vec<String> = new.collect();
            known.flavors.extend(new);
        }
        None => lines.push(line),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn groups(quota: serde_json::Value) -> serde_json::Value {
        json!([{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [quota]}]}])
    }

    fn queue(name: &str, cohort: &str, quota: serde_json::Value) -> ClusterQueue {
        let spec = json!({"cohortName": cohort, "resourceGroups": groups(quota)});
        ClusterQueue::new(name, serde_json::from_value(spec).unwrap())
    }

    fn cohort(name: &str, parent: &str, quota: serde_json::Value) -> Cohort {
        let spec = json!({"parentName": parent, "resourceGroups": groups(quota)});
        Cohort::new(name, serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn queues_of_a_tree_share_a_line_with_its_cohorts() {
        let queues = [
            queue("a", "left", json!({"name": "cpu", "nominalQuota": 1})),
            queue("b", "root", json!({"name": "cpu", "nominalQuota": 2, "borrowingLimit": 1})),
            queue("alone", "", json!({"name": "cpu", "nominalQuota": 3})),
        ];
        let cohorts = [cohort("left", "root", json!({"name": "cpu", "nominalQuota": 5}))];
        let lines = quota_lines(&queues, &cohorts, &[]);
        let seen: Vec<_> = lines.iter().map(|line| (line.owner.to_string(), line.quota, line.most)).collect();
        let amount = |cpus: i64| Amount::new(cpus * 1000);
        let expected = [
            ("a".to_owned(), amount(1), Amount::UNLIMITED),
            ("b".to_owned(), amount(2), amount(3)),
            ("alone".to_owned(), amount(3), amount(3)),
            ("cohort root".to_owned(), amount(8), amount(8)),
        ];
        assert_eq!(seen, expected);
        assert_eq!(lines[3].flavors, ["spot"]);
    }

    #[test]
    fn parents_in_a_circle_end_somewhere() {
        let quota = json!({"name": "cpu", "nominalQuota": 1});
        let cohorts = [cohort("a", "b", quota.clone()), cohort("b", "a", quota)];
        assert_eq!(root_of("a", &cohorts), "a");
    }
}
