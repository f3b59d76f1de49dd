//! Numbers for machines: what is counted, and as which text it is told.
//!
//! Every metric stands once in `list.rs`, with its type, its labels and a sentence; the pages about them are made from that.
//! Counting something that was counted before takes no memory: series are found by the labels as they are.

mod list;

use std::fmt::Write as _;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

pub use list::{About, Buckets, Kind, Metric, Origin, Program};

/// The content type of [`Registry::text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a replica is to the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplicaRole {
    /// There are no others.
    #[default]
    Standalone,
    /// It acts.
    Leader,
    /// It waits for its turn.
    Follower,
}

impl ReplicaRole {
    /// As the label has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Leader => "leader",
            Self::Follower => "follower",
        }
    }

    fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Leader,
            2 => Self::Follower,
            _ => Self::Standalone,
        }
    }
}

/// The numbers of one program.
#[derive(Debug)]
pub struct Registry {
    families: Vec<Mutex<Family>>,
    role: AtomicU8,
}

impl Default for Registry {
    fn default() -> Self {
        let families = Metric::ALL.iter().map(|metric| Mutex::new(Family::of(*metric))).collect();
        Self { families, role: AtomicU8::new(ReplicaRole::Standalone as u8) }
    }
}

impl Registry {
    fn family(&self, metric: Metric) -> MutexGuard<'_, Family> {
        self.families[metric as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this replica is from now on. What was counted for another role is forgotten.
    pub fn set_role(&self, role: ReplicaRole) {
        if self.role.swap(role as u8, Ordering::Relaxed) != role as u8 {
            Metric::ALL.iter().filter(|metric| metric.has_role()).for_each(|metric| self.clear(*metric));
        }
    }

    /// What this replica is.
    pub fn role(&self) -> ReplicaRole {
        ReplicaRole::from_number(self.role.load(Ordering::Relaxed))
    }

    /// Counts.
    pub fn add(&self, metric: Metric, labels: &[&str], count: f64) {
        self.family(metric).series(labels).number += count;
    }

    /// Counts one.
    pub fn count(&self, metric: Metric, labels: &[&str]) {
        self.add(metric, labels, 1.0);
    }

    /// Sets what is as it is, or takes over what somebody else counts.
    pub fn set(&self, metric: Metric, labels: &[&str], value: f64) {
        self.family(metric).series(labels).number = value;
    }

    /// Takes a measurement into a histogram.
    pub fn observe(&self, metric: Metric, labels: &[&str], value: f64) {
        let mut family = self.family(metric);
        let bucket = family.bounds.iter().position(|bound| value <= *bound);
        let series = family.series(labels);
        series.number += value;
        series.count += 1;
        if let Some(bucket) = bucket {
            series.buckets[bucket] += 1;
        }
    }

    /// Forgets every series of a metric.
    pub fn clear(&self, metric: Metric) {
        self.family(metric).series.clear();
    }

    /// Forgets the series of an object that is gone: those with these labels.
    pub fn forget(&self, gone: &[(&str, &str)]) {
        for metric in Metric::ALL {
            let labels = metric.about().labels;
            let positions: Option<Vec<usize>> =
                gone.iter().map(|(name, _)| labels.iter().position(|label| label == name)).collect();
            let Some(positions) = positions else { continue };
            let is_gone = |series: &Series| {
                positions.iter().zip(gone).all(|(position, (_, value))| *series.labels[*position] == **value)
            };
            self.family(*metric).series.retain(|series| !is_gone(series));
        }
    }

    /// All of them, in the text form of Prometheus, as far as there is something to tell.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let role = self.role();
        for metric in Metric::ALL {
            self.family(*metric).write(*metric, metric.has_role().then_some(role), &mut text);
        }
        text
    }
}

/// A metric with all its series.
#[derive(Debug)]
struct Family {
    bounds: Vec<f64>,
    labels: usize,
    series: HashTable<Series>,
}

/// A number with its labels; for a histogram, the sum of what was measured.
#[derive(Debug)]
struct Series {
    hash: u64,
    labels: Box<[Box<str>]>,
    number: f64,
    count: u64,
    buckets: Box<[u64]>,
}

fn hash(labels: &[&str]) -> u64 {
    FxBuildHasher.hash_one(labels)
}

impl Family {
    fn of(metric: Metric) -> Self {
        let About { kind, labels, .. } = metric.about();
        let bounds = if let Kind::Histogram(buckets) = kind { buckets.bounds() } else { Vec::new() };
        Self { bounds, labels: labels.len(), series: HashTable::new() }
    }

    fn series(&mut self, labels: &[&str]) -> &mut Series {
        debug_assert_eq!(labels.len(), self.labels, "{labels:?}");
        let hash = hash(labels);
        let is_same = |series: &Series| {
            series.hash == hash && series.labels.iter().map(|label| &**label).eq(labels.iter().copied())
        };
        let buckets = self.bounds.len();
        self.series
            .entry(hash, is_same, |series| series.hash)
            .or_insert_with(|| Series {
                hash,
                labels: labels.iter().map(|label| (*label).into()).collect(),
                number: 0.0,
                count: 0,
                buckets: vec![0; buckets].into(),
            })
            .into_mut()
    }

    fn write(&self, metric: Metric, role: Option<ReplicaRole>, text: &mut String) {
        if self.series.is_empty() {
            return;
        }
        let About { name, kind, labels, help, .. } = metric.about();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
        let mut all: Vec<&Series> = self.series.iter().collect();
        all.sort_unstable_by(|one, other| one.labels.cmp(&other.labels));
        for series in all {
            let values = series.labels.iter().map(|label| &**label);
            let mut written: String =
                labels.iter().zip(values).fold(String::new(), |mut written, (name, value)| {
                    let _ = write!(written, "{name}=\"{}\",", escaped(value));
                    written
                });
            if let Some(role) = role {
                let _ = write!(written, "replica_role=\"{}\",", role.as_str());
            }
            series.write(name, &written, *kind, &self.bounds, text);
        }
    }
}

impl Series {
    fn write(&self, name: &str, labels: &str, kind: Kind, bounds: &[f64], text: &mut String) {
        let braced = |labels: &str| match labels.trim_end_matches(',') {
            "" => String::new(),
            labels => format!("{{{labels}}}"),
        };
        let Kind::Histogram(_) = kind else {
            let _ = writeln!(text, "{name}{} {}", braced(labels), number(self.number));
            return;
        };
        let mut below = 0;
        for (bound, count) in bounds.iter().zip(&self.buckets) {
            below += count;
            let _ = writeln!(text, "{name}_bucket{{{labels}le=\"{}\"}} {below}", number(*bound));
        }
        let _ = writeln!(text, "{name}_bucket{{{labels}le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum{} {}", braced(labels), number(self.number));
        let _ = writeln!(text, "{name}_count{} {}", braced(labels), self.count);
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY { "+Inf".to_owned() } else { value.to_string() }
}

fn escaped(value: &str) -> std::borrow::Cow<'_, str> {
    if value.contains(['\\', '"', '\n']) {
        value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
    } else {
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_told_with_their_labels_and_the_role() {
        let registry = Registry::default();
        for _ in 0..2 {
            registry.count(Metric::AdmittedWorkloads, &["cq", "high"]);
        }
        registry.count(Metric::AdmittedWorkloads, &["c\"q\\", ""]);
        registry.set(Metric::NominalQuota, &["", "cq", "spot", "cpu"], f64::INFINITY);
        let text = registry.text();
        for line in [
            "# TYPE kueue_admitted_workloads_total counter",
            "kueue_admitted_workloads_total{cluster_queue=\"cq\",priority_class=\"high\",replica_role=\"standalone\"} 2",
            "kueue_admitted_workloads_total{cluster_queue=\"c\\\"q\\\\\",priority_class=\"\",replica_role=\"standalone\"} 1",
            "kueue_cluster_queue_nominal_quota{cohort=\"\",cluster_queue=\"cq\",flavor=\"spot\",resource=\"cpu\",replica_role=\"standalone\"} +Inf",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        registry.forget(&[("cluster_queue", "cq")]);
        assert!(!registry.text().contains("\"cq\""), "{}", registry.text());
        assert!(registry.text().contains("c\\\"q"));
    }

    #[test]
    fn buckets_add_up() {
        let registry = Registry::default();
        for seconds in [0.5, 4.0, 1e9] {
            registry.observe(Metric::ReadyWait, &["cq", "high"], seconds);
        }
        let text = registry.text();
        let labels = "cluster_queue=\"cq\",priority_class=\"high\",replica_role=\"standalone\"";
        for line in [
            format!("kueue_ready_wait_time_seconds_bucket{{{labels},le=\"1\"}} 1"),
            format!("kueue_ready_wait_time_seconds_bucket{{{labels},le=\"2.5\"}} 1"),
            format!("kueue_ready_wait_time_seconds_bucket{{{labels},le=\"5\"}} 2"),
            format!("kueue_ready_wait_time_seconds_bucket{{{labels},le=\"10240\"}} 2"),
            format!("kueue_ready_wait_time_seconds_bucket{{{labels},le=\"+Inf\"}} 3"),
            format!("kueue_ready_wait_time_seconds_sum{{{labels}}} 1000000004.5"),
            format!("kueue_ready_wait_time_seconds_count{{{labels}}} 3"),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn another_role_begins_anew() {
        let registry = Registry::default();
        registry.count(Metric::AdmittedWorkloads, &["cq", "high"]);
        registry.count(Metric::Writes, &["applied"]);
        registry.set_role(ReplicaRole::Leader);
        assert!(!registry.text().contains("admitted"), "it was counted for another role");
        assert!(registry.text().contains("gangway_writes_total{fate=\"applied\"} 1"));
        registry.count(Metric::AdmittedWorkloads, &["cq", "high"]);
        assert!(registry.text().contains("replica_role=\"leader\"} 1"), "{}", registry.text());
    }

    #[test]
    fn every_metric_has_a_name_of_its_own_and_says_what_it_is() {
        let mut names: Vec<&str> = Metric::ALL.iter().map(|metric| metric.about().name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Metric::ALL.len());
        for metric in Metric::ALL {
            let About { name, kind, help, origin, .. } = metric.about();
            assert!(!help.is_empty() && !help.ends_with('.'), "{name}: {help}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert_eq!(name.starts_with("gangway_"), *origin == Origin::Ours, "{name}");
        }
    }
}
