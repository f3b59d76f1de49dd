//! How a run is told: a live table, a line for each transition, or lines of JSON.

use std::io::{self, IsTerminal, Write};

use gangway_model::Timestamp;
use serde_json::json;

use super::frame::{frame, tone, why};
use super::picture::{JobPicture, Picture};
use super::quota_watch::QuotaWatch;
use super::screen::{Screen, terminal_size};
use crate::render::palette::Palette;
use crate::render::{printable, width};

/// How the run is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A table that is drawn again and again.
    Live,
    /// A line for each transition.
    Lines,
    /// A JSON object for each transition.
    Json,
}

impl Style {
    /// A live table on a terminal, plain lines elsewhere.
    pub fn for_people() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if io::stdout().is_terminal() && !dumb { Self::Live } else { Self::Lines }
    }
}

/// Tells the run as it goes.
pub struct Report {
    style: Style,
    palette: Palette,
    began: Timestamp,
    screen: Screen,
    /// The widest Job and queue, for aligned lines.
    job_columns: usize,
    queue_columns: usize,
}

impl Report {
    /// A report of Jobs that will be applied at `began`.
    pub fn new(style: Style, palette: Palette, picture: &Picture, began: Timestamp) -> Self {
        let widest = |text: fn(&JobPicture) -> String| {
            picture.jobs().iter().map(|job| width(&text(job))).max().unwrap_or(0)
        };
        Self {
            style,
            palette,
            began,
            screen: Screen::default(),
            job_columns: widest(|job| format!("{}/{}", job.key.namespace, job.key.name)),
            queue_columns: widest(|job| job.queue.clone()),
        }
    }

    /// A Job's state or reason changed.
    pub fn transition(&mut self, job: &JobPicture, now: Timestamp) -> io::Result<()> {
        match self.style {
            Style::Live => Ok(()),
            Style::Lines => say(&self.line(job, now)),
            Style::Json => say(&self.json(job, now)),
        }
    }

    /// Time has passed; draws the live table.
    pub fn draw(&mut self, picture: &Picture, quota: &QuotaWatch, now: Timestamp) -> io::Result<()> {
        if self.style != Style::Live {
            return Ok(());
        }
        self.screen.draw(&frame(picture, quota, now, terminal_size(), self.palette))
    }

    /// The run is over; the live table makes room for what follows.
    pub fn finish(mut self) -> io::Result<()> {
        // The summary says all that the table said.
        if self.style == Style::Live { self.screen.clear() } else { Ok(()) }
    }

    fn line(&self, job: &JobPicture, now: Timestamp) -> String {
        let elapsed = now.nanos_since(self.began) as f64 / 1e9;
        let name = format!("{}/{}", job.key.namespace, job.key.name);
        let state = self.palette.paint(tone(job.state), &format!("{:<9}", job.state.as_str()));
        let flavors = if job.admitted.is_some() { job.flavors.join(",") } else { String::new() };
        let told = [flavors, printable(&why(job))].into_iter().filter(|text| !text.is_empty());
        let told: Vec<String> = told.collect();
        let (job_columns, queue_columns) = (self.job_columns, self.queue_columns);
        let line = format!(
            "{elapsed:>7.3}s  {name:<job_columns$}  {:<queue_columns$}  {state}  {}",
            job.queue,
            told.join("  ")
        );
        line.trim_end().to_owned()
    }

    fn json(&self, job: &JobPicture, now: Timestamp) -> String {
        json!({
            "event": "transition",
            "elapsedSeconds": now.nanos_since(self.began) as f64 / 1e9,
            "namespace": job.key.namespace,
            "job": job.key.name,
            "queue": job.queue,
            "state": job.state.as_str(),
            "flavors": if job.admitted.is_some() { job.flavors.clone() } else { Vec::new() },
            "reason": job.why.reason,
            "message": job.why.message,
        })
        .to_string()
    }
}

/// Writes a line to standard output.
pub fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")
}

#[cfg(test)]
mod tests {
    use super::super::picture::{JobKey, WorkloadNews};
    use super::*;

    #[test]
    fn lines_are_aligned_and_json_has_the_same_facts() {
        let mut picture = Picture::default();
        for name in ["a", "longer"] {
            let key = JobKey { namespace: "team".into(), name: name.into() };
            picture.add(key.clone(), "main".into(), Timestamp::EPOCH);
            let news =
                WorkloadNews { admitted: true, flavors: vec!["spot".into()], ..WorkloadNews::default() };
            picture.workload_news(&key, news, Timestamp::from_seconds(1));
        }
        let report = Report::new(Style::Lines, Palette::None, &picture, Timestamp::EPOCH);
        let now = Timestamp::from_nanos(1_250_000_000);
        let lines: Vec<_> = picture.jobs().iter().map(|job| report.line(job, now)).collect();
        assert_eq!(lines[0], "  1.250s  team/a       main  Starting   spot");
        assert_eq!(lines[1], "  1.250s  team/longer  main  Starting   spot");
        let value: serde_json::Value = serde_json::from_str(&report.json(&picture.jobs()[1], now)).unwrap();
        assert_eq!((&value["state"], &value["flavors"][0]), (&json!("Starting"), &json!("spot")));
    }
}
