//! What is said when a run is over.

use gangway_controller::workloads::Counts;
use gangway_model::Timestamp;
use gangway_model::quantity::to_quantity_text;
use serde_json::{Value, json};

use super::frame::{of_quota, tone, why};
use super::output::JobOutput;
use super::picture::{JobPicture, Picture, State};
use super::quota_watch::{Owner, QuotaLine, QuotaWatch};
use crate::exit::Exit;
use crate::render::palette::{Palette, Tone};
use crate::render::printable;
use crate::render::span::span;
use crate::render::table::{Cell, Table};

/// Everything that the summary speaks of.
pub struct Summary<'a> {
    pub picture: &'a Picture,
    pub quota: &'a QuotaWatch,
    pub requests: Counts,
    /// What each Job wrote, in the order of the picture.
    pub outputs: &'a [JobOutput],
    pub began: Timestamp,
    pub ended: Timestamp,
}

impl Summary<'_> {
    /// How the run ends.
    pub fn exit(&self) -> Exit {
        let any = |state: State| self.picture.jobs().iter().any(|job| job.state == state);
        match () {
            () if self.quota.lines().iter().any(QuotaLine::was_exceeded) => Exit::Broken,
            () if !self.picture.all_ended() => Exit::NeverStarts,
            () if any(State::Failed) => Exit::JobFailed,
            () => Exit::Success,
        }
    }

    /// For people.
    pub fn lines(&self, palette: Palette, columns: Option<usize>) -> Vec<String> {
        let mut lines = self.job_table(columns).lines(palette, columns);
        for (job, output) in self.picture.jobs().iter().zip(self.outputs) {
            lines.extend(self.story(job, output, palette));
        }
        lines.push(String::new());
        lines.extend(self.quota_table().lines(palette, columns));
        lines.push(String::new());
        lines.extend(self.totals());
        lines
    }

    fn job_table(&self, columns: Option<usize>) -> Table {
        // What a Job said last is worth a column only where there is room for it.
        let with_output = columns.is_none_or(|columns| columns >= 70);
        let mut headings = vec!["JOB", "QUEUE", "RESULT", "FLAVOR", ">WAIT", ">RUN"];
        if with_output {
            headings.push("LAST LINE OF OUTPUT");
        }
        let mut table = Table::new(&headings);
        for (job, output) in self.picture.jobs().iter().zip(self.outputs) {
            let result = if job.state.is_end() { job.state.as_str() } else { "not started" };
            let mut row = vec![
                Cell::from(format!("{}/{}", job.key.namespace, job.key.name)),
                Cell::from(job.queue.as_str()),
                Cell::new(if job.state.is_end() { tone(job.state) } else { Tone::Bad }, result),
                Cell::from(job.flavors_text()),
                Cell::from(span(job.wait_nanos(self.ended))),
                Cell::from(job.run_nanos(self.ended).map_or_else(|| "-".to_owned(), span)),
            ];
            if with_output {
                row.push(Cell::new(Tone::Dim, output.last_line()));
            }
            table.row(row);
        }
        table
    }

    /// Why a Job failed or never started, and what it wrote where that was asked for or helps.
    fn story(&self, job: &JobPicture, output: &JobOutput, palette: Palette) -> Vec<String> {
        let name = format!("{}/{}", job.key.namespace, job.key.name);
        let mut lines = Vec::new();
        match job.state {
            // What went wrong in a pod says more than that it did so too often.
            State::Failed if !output.cause.is_empty() => {
                lines.push(
                    palette.paint(Tone::Bad, &format!("Job {name} failed: {}", printable(&output.cause))),
                );
                lines.push(format!("  {}", printable(&why(job))));
            }
            State::Failed => {
                lines.push(palette.paint(Tone::Bad, &format!("Job {name} failed: {}", why(job))))
            }
            State::Succeeded => {}
            _ => {
                let reason =
                    if job.why.reason.is_empty() { "nothing was heard of it".to_owned() } else { why(job) };
                lines.push(palette.paint(Tone::Bad, &format!("Job {name} never started: {reason}")));
                lines.extend(output.advice.iter().map(|advice| format!("  {advice}")));
            }
        }
        if !output.shown.is_empty() {
            if lines.is_empty() {
                lines.push(palette.paint(Tone::Strong, &format!("Output of Job {name}")));
            }
            lines.extend(output.shown.iter().map(|line| format!("  | {}", printable(line))));
        }
        if !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }

    fn quota_table(&self) -> Table {
        let mut table = Table::new(&["CLUSTER QUEUE", "FLAVOR", "RESOURCE", ">PEAK USE", "VERDICT"]);
        for line in self.quota.lines() {
            let (tone, verdict) = match (line.was_exceeded(), line.borrowed(line.peak)) {
                (true, _) => (Tone::Bad, "EXCEEDED, which is a bug in Gangway".to_owned()),
                (false, 0) => (Tone::Good, "never exceeded".to_owned()),
                (false, borrowed) => {
                    let borrowed = to_quantity_text(&line.resource, borrowed);
                    (Tone::Good, format!("never exceeded, borrowed up to {borrowed}"))
                }
            };
            table.row([
                Cell::from(line.owner.to_string()),
                Cell::from(line.flavors.join("+")),
                Cell::from(line.resource.as_str()),
                Cell::from(of_quota(line, line.peak)),
                Cell::new(tone, verdict),
            ]);
        }
        table
    }

    fn totals(&self) -> Vec<String> {
        let jobs = self.picture.jobs();
        let count = |state: State| jobs.iter().filter(|job| job.state == state).count();
        let (succeeded, failed) = (count(State::Succeeded), count(State::Failed));
        let mut first = format!("{} in {}: {succeeded} succeeded", plural(jobs.len()), span(self.elapsed()));
        if failed > 0 {
            first.push_str(&format!(", {failed} failed"));
        }
        if succeeded + failed < jobs.len() {
            first.push_str(&format!(", {} never started", jobs.len() - succeeded - failed));
        }
        let evicted = jobs.iter().filter(|job| job.evictions > 0).count();
        if evicted > 0 {
            first.push_str(&format!("; {evicted} had to leave and wait again"));
        }
        if let Some(admission) = self.picture.first_admission() {
            first.push_str(&format!("; first admission after {}", span(admission.nanos_since(self.began))));
        }
        let per_job = |requests: u64| requests as f64 / jobs.len().max(1) as f64;
        vec![
            first,
            format!(
                "API requests per Job: {:.1} for decisions, {:.1} for diagnostics",
                per_job(self.requests.decisions),
                per_job(self.requests.diagnostics)
            ),
        ]
    }

    fn elapsed(&self) -> i64 {
        self.ended.nanos_since(self.began)
    }

    /// For programs, in one object.
    pub fn json(&self) -> Value {
        let seconds = |nanos: i64| nanos as f64 / 1e9;
        let jobs: Vec<Value> = self
            .picture
            .jobs()
            .iter()
            .zip(self.outputs)
            .map(|(job, output)| {
                json!({
                    "namespace": job.key.namespace,
                    "job": job.key.name,
                    "queue": job.queue,
                    "state": job.state.as_str(),
                    "flavors": if job.admitted.is_some() { job.flavors.clone() } else { Vec::new() },
                    "waitSeconds": seconds(job.wait_nanos(self.ended)),
                    "runSeconds": job.run_nanos(self.ended).map(seconds),
                    "evictions": job.evictions,
                    "reason": job.why.reason,
                    "message": job.why.message,
                    "cause": output.cause,
                    "advice": output.advice,
                    "lastLine": output.last_line(),
                })
            })
            .collect();
        let quotas: Vec<Value> = self
            .quota
            .lines()
            .iter()
            .map(|line| {
                let amount = |amount: i64| to_quantity_text(&line.resource, amount);
                let (cluster_queue, cohort) = match &line.owner {
                    Owner::ClusterQueue(name) => (Some(name), line.cohort.as_ref()),
                    Owner::Cohort(name) => (None, Some(name)),
                };
                json!({
                    "clusterQueue": cluster_queue,
                    "cohort": cohort,
                    "flavors": line.flavors,
                    "resource": line.resource,
                    "quota": (!line.quota.is_unlimited()).then(|| amount(line.quota.value())),
                    "peak": amount(line.peak),
                    "peakBorrowed": amount(line.borrowed(line.peak)),
                    "exceeded": line.was_exceeded(),
                })
            })
            .collect();
        json!({
            "event": "summary",
            "exitCode": self.exit().code(),
            "elapsedSeconds": seconds(self.elapsed()),
            "firstAdmissionSeconds": self.picture.first_admission().map(|at| seconds(at.nanos_since(self.began))),
            "jobs": jobs,
            "quotas": quotas,
            "requests": {"decisions": self.requests.decisions, "diagnostics": self.requests.diagnostics},
        })
    }
}

fn plural(jobs: usize) -> String {
    if jobs == 1 { "1 Job".to_owned() } else { format!("{jobs} Jobs") }
}
