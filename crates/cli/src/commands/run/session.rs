//! One run from the first news to the summary.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use gangway_api::config::Configuration;
use gangway_controller::workloads::{Explained, RequestCounts, Snapshot};
use gangway_model::{Clock, Timestamp};
use kube::Client;
use tokio::time::{Instant, MissedTickBehavior};

use super::apply::AppliedJob;
use super::follow::{self, News, PodRoom};
use super::output::{self, JOBS_WITH_LAST_LINE_MAX, JobOutput};
use super::picture::{JobKey, Picture};
use super::plan::Plan;
use super::quota_watch::{PodOnNode, QuotaWatch};
use super::report::{Report, Style, say};
use super::screen::terminal_size;
use super::summary::Summary;
use crate::exit::Exit;
use crate::render::palette::Palette;

/// How often the live table is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// How long nothing may happen before a run in which everything waits for help is over.
const STUCK_AFTER: Duration = Duration::from_secs(2);

/// How a run is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    style: Style,
    logs: bool,
    /// Somebody else may change things, so that nothing is stuck for good.
    served: bool,
    began: Timestamp,
}

/// Why the following ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    AllEnded,
    /// What is left can never start.
    Stuck,
}

/// A run that is followed.
pub struct Session {
    client: Client,
    clock: Arc<dyn Clock>,
    config: Configuration,
    settings: Settings,
    palette: Palette,
    picture: Picture,
    quota: QuotaWatch,
    /// The ClusterQueue of each Job.
    cluster_queues: BTreeMap<JobKey, String>,
    report: Option<Report>,
}

impl Session {
    /// How a run is told.
    pub fn settings(style: Style, logs: bool, served: bool, began: Timestamp) -> Settings {
        Settings { style, logs, served, began }
    }

    /// A run of Jobs that were applied just now.
    pub fn new(
        client: Client,
        clock: Arc<dyn Clock>,
        config: Configuration,
        plan: &Plan,
        jobs: Vec<AppliedJob>,
        settings: Settings,
    ) -> Self {
        let mut picture = Picture::default();
        let mut cluster_queues = BTreeMap::new();
        for job in jobs {
            let local_queue = (job.key.namespace.clone(), job.queue.clone());
            if let Some(cluster_queue) = plan.cluster_queues.get(&local_queue) {
                cluster_queues.insert(job.key.clone(), cluster_queue.clone());
            }
            picture.add(job.key, job.queue, clock.now());
        }
        let palette = if settings.style == Style::Json { Palette::None } else { Palette::of_stdout() };
        let report = Report::new(settings.style, palette, &picture, settings.began);
        let quota = QuotaWatch::new(plan.quotas.clone());
        Self {
            client,
            clock,
            config,
            settings,
            palette,
            picture,
            quota,
            cluster_queues,
            report: Some(report),
        }
    }

    /// Follows until every Job has ended, or what is left can never start.
    pub async fn follow(&mut self) -> io::Result<End> {
        let mut news = follow::news(&self.client);
        let mut frames = tokio::time::interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_change = Instant::now();
        while !self.picture.all_ended() {
            tokio::select! {
                biased;
                Some(item) = news.next() => {
                    if self.take(item)? {
                        last_change = Instant::now();
                    }
                }
                _ = frames.tick() => {
                    self.draw()?;
                    let quiet = last_change.elapsed() >= STUCK_AFTER;
                    if quiet && !self.settings.served && self.picture.is_stuck() {
                        return Ok(End::Stuck);
                    }
                }
            }
        }
        Ok(End::AllEnded)
    }

    /// Takes in what the API said. Whether something changed.
    fn take(&mut self, news: News) -> io::Result<bool> {
        let now = self.clock.now();
        let changed = match news {
            News::Job(key, news) => self.picture.job_news(&key, news, now),
            News::Workload(key, news) => self.picture.workload_news(&key, news, now),
            News::Pod(key, news, room) => {
                count(&mut self.quota, self.cluster_queues.get(&key), &room);
                self.picture.pod_news(&key, &room.uid, news, now)
            }
            News::Warning(key, why) => self.picture.warning(&key, why, now),
        };
        let Some(job) = changed else { return Ok(false) };
        if let Some(report) = &mut self.report {
            report.transition(job, now)?;
        }
        Ok(true)
    }

    fn draw(&mut self) -> io::Result<()> {
        match &mut self.report {
            Some(report) => report.draw(&self.picture, &self.quota, self.clock.now()),
            None => Ok(()),
        }
    }

    /// Says how the run went.
    pub async fn summarize(&mut self, counts: &RequestCounts, end: End) -> io::Result<Exit> {
        let ended = self.clock.now();
        if let Some(report) = self.report.take() {
            report.finish()?;
        }
        let mut outputs = Vec::with_capacity(self.picture.jobs().len());
        for job in self.picture.jobs() {
            let wanted = self.settings.logs || self.picture.jobs().len() <= JOBS_WITH_LAST_LINE_MAX;
            let output = match wanted {
                true => output::of_job(&self.client, job, self.settings.logs).await,
                false => JobOutput::default(),
            };
            outputs.push(output);
        }
        if end == End::Stuck {
            self.advise(&mut outputs).await;
        }
        let summary = Summary {
            picture: &self.picture,
            quota: &self.quota,
            requests: counts.snapshot(),
            outputs: &outputs,
            began: self.settings.began,
            ended,
        };
        match self.settings.style {
            Style::Json => say(&summary.json().to_string())?,
            style => {
                let columns = (style == Style::Live).then(|| terminal_size().columns);
                if style == Style::Lines {
                    say("")?;
                }
                for line in summary.lines(self.palette, columns) {
                    say(&line)?;
                }
            }
        }
        Ok(summary.exit())
    }

    /// Adds what would help the Jobs that never started.
    async fn advise(&self, outputs: &mut [JobOutput]) {
        let snapshot = Snapshot::read(self.client.clone(), self.clock.clone(), &self.config).await;
        let Ok(snapshot) = snapshot else { return };
        for (job, output) in self.picture.jobs().iter().zip(outputs) {
            if let Explained::Workload(explanation) = snapshot.explain_job(&job.key.namespace, &job.key.name)
            {
                let verdicts = explanation.flavors.iter().map(ToString::to_string);
                output.advice.extend(verdicts.filter(|verdict| !job.why.message.contains(verdict)));
                output.advice.extend(explanation.advice);
            }
        }
    }

    /// Says what to try after the example.
    pub fn hint(&self) -> io::Result<()> {
        if self.settings.style == Style::Json {
            return Ok(());
        }
        for line in [
            "",
            "Next: raise a nominalQuota in the file and run it again, or see Jobs that can",
            "never start explained: gangway run examples/impossible.yaml. `--logs` prints",
            "all output, `-o json` is for programs, docs/cluster.md is about clusters.",
        ] {
            say(line)?;
        }
        Ok(())
    }
}

fn count(quota: &mut QuotaWatch, cluster_queue: Option<&String>, room: &PodRoom) {
    match (&room.takes, cluster_queue) {
        (Some(pod), Some(cluster_queue)) => {
            quota.takes(&room.uid, &PodOnNode { cluster_queue: cluster_queue.clone(), ..pod.clone() });
        }
        _ => quota.leaves(&room.uid),
    }
}
