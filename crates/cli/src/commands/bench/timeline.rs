//! When what was seen of each Job.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

use crate::exit::Failure;

/// The moments of one Job, as a watcher saw them.
#[derive(Clone, Debug, Default)]
pub struct Moments {
    pub created: Option<Instant>,
    pub unsuspended: Option<Instant>,
    pub first_pod: Option<Instant>,
    /// A pod ran for the first time.
    pub running: Option<Instant>,
    pub finished: Option<Instant>,
}

/// The moments of all Jobs of a namespace.
#[derive(Debug, Default)]
pub struct Timeline {
    jobs: BTreeMap<String, Moments>,
}

enum Seen {
    Job(Box<Job>),
    Pod(Box<Pod>),
}

impl Timeline {
    /// The creation of the Job was asked for at this moment.
    pub fn created(&mut self, name: &str, at: Instant) {
        self.jobs.entry(name.to_owned()).or_default().created = Some(at);
    }

    /// The moments of all Jobs.
    pub fn moments(&self) -> impl Iterator<Item = &Moments> {
        self.jobs.values()
    }

    /// From one moment to a later one, for each Job that has both.
    pub fn spans(
        &self,
        from: impl Fn(&Moments) -> Option<Instant>,
        to: impl Fn(&Moments) -> Option<Instant>,
    ) -> Vec<i64> {
        let spans =
            self.moments().filter_map(|moments| Some(nanos(to(moments)?.duration_since(from(moments)?))));
        spans.collect()
    }

    /// From each Job's end to the next moment at which another one was unsuspended, for Jobs that run one at a time.
    pub fn turnovers(&self) -> Vec<i64> {
        let mut starts: Vec<Instant> = self.moments().filter_map(|moments| moments.unsuspended).collect();
        starts.sort_unstable();
        let ends = self.moments().filter_map(|moments| moments.finished);
        let next = |end: Instant| {
            starts.iter().find(|start| **start >= end).map(|start| nanos(start.duration_since(end)))
        };
        ends.filter_map(next).collect()
    }

    /// Watches on a thread of its own, so that what is measured does not delay the watcher, until the goal is reached or
    /// nothing was seen for `patience`.
    pub async fn watched(
        client: Client,
        namespace: String,
        patience: Duration,
        goal: Goal,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::bad_input(format!("cannot start the watcher: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (send, ended) = tokio::sync::oneshot::channel();
        let watcher = std::thread::Builder::new().name("watcher".to_owned());
        watcher
            .spawn(move || {
                // Nobody listens any more if the benchmark was given up.
                let _ = send.send(runtime.block_on(Self::watch(client, &namespace, patience, &goal)));
            })
            .map_err(failed)?;
        ended.await.unwrap_or_else(|_| Err(Failure::broken("the watcher of the benchmark ended by itself")))
    }

    async fn watch(
        client: Client,
        namespace: &str,
        patience: Duration,
        goal: &Goal,
    ) -> Result<Self, Failure> {
        let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let config = watcher::Config::default();
        let jobs = watcher(jobs, config.clone()).default_backoff().applied_objects();
        let pods = watcher(pods, config).default_backoff().applied_objects();
        let jobs = jobs.filter_map(|job| async { Some(Seen::Job(Box::new(job.ok()?))) });
        let pods = pods.filter_map(|pod| async { Some(Seen::Pod(Box::new(pod.ok()?))) });
        let mut seen = pin!(stream::select(jobs, pods));
        let mut timeline = Self::default();
        let mut there = BTreeSet::new();
        while there.len() < goal.count {
            let name = match tokio::time::timeout(patience, seen.next()).await {
                Ok(Some(Seen::Job(job))) => Some(timeline.see_job(&job)),
                Ok(Some(Seen::Pod(pod))) => timeline.see_pod(&pod),
                Ok(None) | Err(_) => return Err(timeline.stalled(patience)),
            };
            there.extend(name.filter(|name| goal.is_reached_by(name, &timeline)));
        }
        Ok(timeline)
    }

    fn stalled(&self, patience: Duration) -> Failure {
        let finished = self.moments().filter(|moments| moments.finished.is_some()).count();
        Failure::bad_input(format!(
            "the Jobs of the benchmark made no progress for {patience:?}: {finished} of {} have finished",
            self.jobs.len(),
        ))
    }

    /// The name of the Job.
    fn see_job(&mut self, job: &Job) -> String {
        let now = Instant::now();
        let name = job.name_any();
        let moments = self.jobs.entry(name.clone()).or_default();
        if job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true)) {
            moments.unsuspended.get_or_insert(now);
        }
        let conditions = job.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ended = |kind: &str| matches!(kind, "Complete" | "Failed");
        if conditions.into_iter().any(|condition| ended(&condition.type_) && condition.status == "True") {
            moments.finished.get_or_insert(now);
        }
        name
    }

    /// The name of the Job that it belongs to.
    fn see_pod(&mut self, pod: &Pod) -> Option<String> {
        let owner = pod.owner_references().iter().find(|owner| owner.kind == "Job")?;
        let now = Instant::now();
        let moments = self.jobs.entry(owner.name.clone()).or_default();
        moments.first_pod.get_or_insert(now);
        if pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running")) {
            moments.running.get_or_insert(now);
        }
        Some(owner.name.clone())
    }
}

/// How many Jobs have to come how far.
pub struct Goal {
    /// What their names begin with.
    pub title: &'static str,
    pub count: usize,
    pub until: fn(&Moments) -> Option<Instant>,
}

impl Goal {
    fn is_reached_by(&self, name: &str, seen: &Timeline) -> bool {
        let is_meant = name.strip_prefix(self.title).is_some_and(|rest| rest.starts_with('-'));
        is_meant && seen.jobs.get(name).is_some_and(|moments| (self.until)(moments).is_some())
    }
}

/// Nanoseconds, as figures take them.
pub fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
