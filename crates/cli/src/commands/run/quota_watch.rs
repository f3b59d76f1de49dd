//! Was the quota ever exceeded? Computed from pods and the files alone; what the engine believes plays no part.

use std::collections::{BTreeMap, HashMap};

use gangway_model::{Amount, PODS_RESOURCE, Requests};

/// Whose quota a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// That of one queue.
    ClusterQueue(String),
    /// That of a tree of cohorts and of all queues in it, by its root.
    Cohort(String),
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ClusterQueue(name) => f.write_str(name),
            Self::Cohort(name) => write!(f, "cohort {name}"),
        }
    }
}

/// The quota of one resource in one flavor. Flavors with equal labels cannot be told apart by looking at
/// pods and share a line.
#[derive(Clone, Debug)]
pub struct QuotaLine {
    pub owner: Owner,
    /// The root of the cohorts that a ClusterQueue is in: its quota is part of that line too.
    pub cohort: Option<String>,
    pub flavors: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub resource: String,
    pub quota: Amount,
    /// The most that may be in use: the quota and what may be borrowed.
    pub most: Amount,
    pub used: i64,
    pub peak: i64,
}

impl QuotaLine {
    /// Whether more was in use than the quota allows, at any moment.
    pub fn was_exceeded(&self) -> bool {
        !self.most.is_unlimited() && self.peak > self.most.value()
    }

    /// What of this amount is borrowed from other queues of the cohorts.
    pub fn borrowed(&self, amount: i64) -> i64 {
        match self.owner {
            Owner::ClusterQueue(_) if !self.quota.is_unlimited() && self.cohort.is_some() => {
                amount.saturating_sub(self.quota.value()).max(0)
            }
            _ => 0,
        }
    }

    /// Whether this is the line of the cohorts that another line, of a queue, is a part of.
    fn is_above(&self, other: &Self) -> bool {
        matches!(&self.owner, Owner::Cohort(root) if other.cohort.as_ref() == Some(root))
            && self.resource == other.resource
            && self.labels == other.labels
    }
}

/// A pod that takes room on a node.
#[derive(Clone, Debug)]
pub struct PodOnNode {
    pub cluster_queue: String,
    pub node_selector: BTreeMap<String, String>,
    pub requests: Requests,
}

/// Watches use against quota.
#[derive(Debug, Default)]
pub struct QuotaWatch {
    lines: Vec<QuotaLine>,
    /// What each pod on a node adds to which line, by UID.
    pods: HashMap<String, Vec<(usize, i64)>>,
}

impl QuotaWatch {
    /// Nothing is in use yet.
    pub fn new(lines: Vec<QuotaLine>) -> Self {
        Self { lines, pods: HashMap::new() }
    }

    /// The lines, in the order of the files.
    pub fn lines(&self) -> &[QuotaLine] {
        &self.lines
    }

    /// A pod is bound and has not ended.
    pub fn takes(&mut self, uid: &str, pod: &PodOnNode) {
        if self.pods.contains_key(uid) {
            return;
        }
        let shares = self.shares(pod);
        for (line, amount) in &shares {
            let line = &mut self.lines[*line];
            line.used = line.used.saturating_add(*amount);
            line.peak = line.peak.max(line.used);
        }
        self.pods.insert(uid.to_owned(), shares);
    }

    /// A pod has ended or is gone.
    pub fn leaves(&mut self, uid: &str) {
        for (line, amount) in self.pods.remove(uid).unwrap_or_default() {
            let line = &mut self.lines[line];
            line.used = line.used.saturating_sub(amount);
        }
    }

    /// Each resource counts in the flavor with the most labels that the pod's node selector has, for its
    /// queue and for the cohorts above that.
    fn shares(&self, pod: &PodOnNode) -> Vec<(usize, i64)> {
        let mut best: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, line) in self.lines.iter().enumerate() {
            let chosen = |(key, value): (&String, &String)| pod.node_selector.get(key) == Some(value);
            let is_of_queue = matches!(&line.owner, Owner::ClusterQueue(name) if *name == pod.cluster_queue);
            if !is_of_queue || !line.labels.iter().all(chosen) {
                continue;
            }
            let better = best
                .get(line.resource.as_str())
                .is_none_or(|known| self.lines[*known].labels.len() < line.labels.len());
            if better {
                best.insert(&line.resource, index);
            }
        }
        let amount = |resource: &str| match resource {
            PODS_RESOURCE => 1,
            _ => pod.requests.get(resource),
        };
        let above = |line: usize| self.lines.iter().position(|above| above.is_above(&self.lines[line]));
        let counted =
            |(resource, line)| [Some(line), above(line)].map(|line| Some((line?, amount(resource))));
        best.into_iter().flat_map(counted).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use gangway_model::ResourceName;

    use super::*;

    fn line(flavor: &str, labels: &[(&str, &str)], resource: &str, quota: i64) -> QuotaLine {
        QuotaLine {
            owner: Owner::ClusterQueue("research".into()),
            cohort: None,
            flavors: vec![flavor.into()],
            labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            resource: resource.into(),
            quota: Amount::new(quota),
            most: Amount::new(quota),
            used: 0,
            peak: 0,
        }
    }

    fn pod(tier: &str, milli: i64) -> PodOnNode {
        PodOnNode {
            cluster_queue: "research".into(),
            node_selector: [("tier".to_owned(), tier.to_owned())].into(),
            requests: [(ResourceName::from("cpu"), milli)].into_iter().collect(),
        }
    }

    #[test]
    fn use_is_counted_in_the_flavor_of_the_selector_and_the_peak_stays() {
        let spot = line("spot", &[("tier", "spot")], "cpu", 1000);
        let mut watch = QuotaWatch::new(vec![line("any", &[], "cpu", 5000), spot]);
        watch.takes("1", &pod("spot", 800));
        watch.takes("1", &pod("spot", 800));
        watch.takes("2", &pod("other", 300));
        watch.leaves("1");
        watch.leaves("1");
        watch.takes("3", &pod("spot", 500));
        let seen: Vec<_> = watch.lines().iter().map(|line| (line.used, line.peak)).collect();
        assert_eq!(seen, [(300, 300), (500, 800)]);
        assert!(!watch.lines().iter().any(QuotaLine::was_exceeded));
        watch.takes("4", &pod("spot", 501));
        assert!(watch.lines()[1].was_exceeded());
    }

    #[test]
    fn a_queue_may_borrow_but_its_cohorts_together_have_only_their_quota() {
        let borrower = QuotaLine {
            cohort: Some("all".into()),
            most: Amount::UNLIMITED,
            ..line("any", &[], "cpu", 1000)
        };
        let together = QuotaLine { owner: Owner::Cohort("all".into()), ..line("any", &[], "cpu", 3000) };
        let mut watch = QuotaWatch::new(vec![borrower, together]);
        watch.takes("1", &pod("spot", 3000));
        assert!(!watch.lines().iter().any(QuotaLine::was_exceeded), "it borrows");
        let borrowed: Vec<i64> = watch.lines().iter().map(|line| line.borrowed(line.used)).collect();
        assert_eq!(borrowed, [2000, 0]);
        watch.takes("2", &pod("spot", 1));
        let exceeded: Vec<bool> = watch.lines().iter().map(QuotaLine::was_exceeded).collect();
        assert_eq!(exceeded, [false, true]);
        watch.leaves("1");
        assert_eq!(watch.lines()[1].used, 1);
    }
}
