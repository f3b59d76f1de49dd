//! The quotas of the files, as lines to watch.

use std::collections::BTreeMap;

use gangway_api::kueue::{ClusterQueue, ResourceFlavor};
use gangway_model::{Amount, Quantity};
use kube::ResourceExt;

use super::quota_watch::QuotaLine;

/// A line for each resource in each flavor of each ClusterQueue; flavors with equal labels share theirs.
pub fn quota_lines(queues: &[ClusterQueue], flavors: &[ResourceFlavor]) -> Vec<QuotaLine> {
    let labels: BTreeMap<String, &BTreeMap<String, String>> =
        flavors.iter().map(|flavor| (flavor.name_any(), &flavor.spec.node_labels)).collect();
    let mut lines: Vec<QuotaLine> = Vec::new();
    for queue in queues {
        let may_borrow = queue.spec.cohort_name.is_some() || queue.spec.cohort.is_some();
        for flavor in queue.spec.resource_groups.iter().flat_map(|group| &group.flavors) {
            let labels = labels.get(&flavor.name).map(|labels| (*labels).clone()).unwrap_or_default();
            for resource in &flavor.resources {
                // Files with malformed quantities were refused before.
                let Ok(quantity) = Quantity::parse(&resource.nominal_quota.0) else { continue };
                let line = QuotaLine {
                    cluster_queue: queue.name_any(),
                    flavors: vec![flavor.name.clone()],
                    labels: labels.clone(),
                    resource: resource.name.clone(),
                    quota: Amount::of_quota(quantity, &resource.name),
                    may_borrow,
                    used: 0,
                    peak: 0,
                };
                add(&mut lines, line);
            }
        }
    }
    lines
}

fn add(lines: &mut Vec<QuotaLine>, line: QuotaLine) {
    let same = lines.iter_mut().find(|known| {
        known.cluster_queue == line.cluster_queue
            && known.resource == line.resource
            && known.labels == line.labels
    });
    match same {
        Some(known) => {
            known.quota = known.quota.plus(line.quota);
            known.flavors.extend(line.flavors);
        }
        None => lines.push(line),
    }
}
