//! The live table: what stands on the screen at one moment, as lines.

use gangway_model::Timestamp;
use gangway_model::quantity::to_quantity_text;

use super::picture::{JobPicture, Picture, State};
use super::quota_watch::{QuotaLine, QuotaWatch};
use crate::render::bar::bar;
use crate::render::palette::{Palette, Tone};
use crate::render::span::span;
use crate::render::table::{Cell, Table};
use crate::render::{printable, wrap};

/// Lines that the table takes besides its rows: headings, the line of counts, blank lines.
const LINES_AROUND: usize = 6;
/// Jobs that are shown however small the terminal is.
const ROWS_MIN: usize = 3;

/// From this width on, the table itself has room for the sentence of each reason.
const COLUMNS_FOR_SENTENCES: usize = 150;
/// Queues of which a narrow screen shows why their first Job waits.
const QUEUES_WITH_SENTENCE_MAX: usize = 3;

/// The size of a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub columns: usize,
    pub rows: usize,
}

/// The lines of the live table; no more than fit.
pub fn frame(
    picture: &Picture,
    quota: &QuotaWatch,
    now: Timestamp,
    size: Size,
    palette: Palette,
) -> Vec<String> {
    let bars = quota_table(quota.lines(), size).lines(palette, Some(size.columns));
    let wide = size.columns >= COLUMNS_FOR_SENTENCES;
    let sentences = if wide { Vec::new() } else { sentences(picture.jobs(), size.columns) };
    let room = size.rows.saturating_sub(bars.len() + sentences.len() + LINES_AROUND).max(ROWS_MIN);
    let (shown, hidden) = choose(picture.jobs(), room);
    let mut lines = job_table(&shown, now, wide).lines(palette, Some(size.columns));
    if hidden > 0 {
        lines.push(palette.paint(Tone::Dim, &format!("… and {hidden} more")));
    }
    lines.extend(sentences);
    lines.push(String::new());
    lines.extend(bars);
    lines.push(String::new());
    lines.push(counts(picture));
    lines
}

/// The Jobs that fit, in their order. Those that move are worth more than those that wait, and those more
/// than those that ended; of the ended ones the last.
fn choose(jobs: &[JobPicture], room: usize) -> (Vec<&JobPicture>, usize) {
    if jobs.len() <= room {
        return (jobs.iter().collect(), 0);
    }
    let mut places: Vec<usize> = (0..jobs.len()).collect();
    places.sort_by_key(|place| match jobs[*place].state {
        State::Starting | State::Running | State::Stopping => (0, *place as i64),
        State::Queued | State::Waiting => (1, *place as i64),
        State::Succeeded | State::Failed => (2, -(*place as i64)),
    });
    // One line says how many are left out.
    places.truncate(room.saturating_sub(1));
    places.sort_unstable();
    (places.iter().map(|place| &jobs[*place]).collect(), jobs.len() - places.len())
}

/// Why the first Job that waits in each queue does: the numbers, which no narrow table has room for.
fn sentences(jobs: &[JobPicture], columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut queues: Vec<(&str, &str)> = Vec::new();
    for job in jobs.iter().filter(|job| !job.state.is_end() && !job.why.message.is_empty()) {
        let queue = (job.key.namespace.as_str(), job.queue.as_str());
        if queues.contains(&queue) || queues.len() == QUEUES_WITH_SENTENCE_MAX {
            continue;
        }
        queues.push(queue);
        lines.push(String::new());
        let text = format!("{}/{}: {}", job.key.namespace, job.key.name, printable(&why(job)));
        lines.extend(wrap(&text, columns));
    }
    lines
}

fn job_table(jobs: &[&JobPicture], now: Timestamp, with_sentences: bool) -> Table {
    let mut table = Table::new(&["JOB", "QUEUE", "STATE", "FLAVOR", ">WAIT", ">RUN", "WHY"]);
    for job in jobs {
        table.row([
            Cell::from(format!("{}/{}", job.key.namespace, job.key.name)),
            Cell::from(job.queue.as_str()),
            Cell::new(tone(job.state), job.state.as_str()),
            Cell::from(job.flavors_text()),
            Cell::from(span(job.wait_nanos(now))),
            Cell::from(job.run_nanos(now).map_or_else(|| "-".to_owned(), span)),
            Cell::new(Tone::Dim, if with_sentences { why(job) } else { job.why.reason.clone() }),
        ]);
    }
    table
}

/// The reason and its sentence, with the numbers.
pub fn why(job: &JobPicture) -> String {
    match (job.why.reason.as_str(), job.why.message.as_str()) {
        ("", message) => message.to_owned(),
        (reason, "") => reason.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// The colour of a state.
pub fn tone(state: State) -> Tone {
    match state {
        State::Queued => Tone::Dim,
        State::Waiting | State::Stopping => Tone::Warn,
        State::Starting | State::Running => Tone::Strong,
        State::Succeeded => Tone::Good,
        State::Failed => Tone::Bad,
    }
}

fn quota_table(lines: &[QuotaLine], size: Size) -> Table {
    let bar_columns = if size.columns >= 110 { 32 } else { 16 };
    // Where nobody can borrow, nothing is said about it.
    let may_borrow = lines.iter().any(|line| line.cohort.is_some());
    let mut headings = vec!["CLUSTER QUEUE", "FLAVOR", "RESOURCE", "IN USE", ">", ">PEAK"];
    if may_borrow {
        headings.insert(5, ">BORROWED");
    }
    let mut table = Table::new(&headings);
    for line in lines {
        let borrowed = line.borrowed(line.used);
        let tone = match borrowed {
            _ if line.was_exceeded() => Tone::Bad,
            0 => Tone::Good,
            _ => Tone::Warn,
        };
        let mut row = vec![
            Cell::from(line.owner.to_string()),
            Cell::from(line.flavors.join("+")),
            Cell::from(line.resource.as_str()),
            Cell::new(tone, bar(line.used, line.quota.value(), bar_columns)),
            Cell::from(of_quota(line, line.used)),
            Cell::from(to_quantity_text(&line.resource, line.peak)),
        ];
        if may_borrow {
            let text = if borrowed > 0 { to_quantity_text(&line.resource, borrowed) } else { "-".to_owned() };
            row.insert(5, Cell::new(tone, text));
        }
        table.row(row);
    }
    table
}

/// `3/4`, or `3` where there is no limit.
pub fn of_quota(line: &QuotaLine, amount: i64) -> String {
    let amount = to_quantity_text(&line.resource, amount);
    if line.quota.is_unlimited() {
        return amount;
    }
    format!("{amount}/{}", to_quantity_text(&line.resource, line.quota.value()))
}

fn counts(picture: &Picture) -> String {
    let count = |wanted: &[State]| picture.jobs().iter().filter(|job| wanted.contains(&job.state)).count();
    format!(
        "{} Jobs: {} waiting, {} running, {} succeeded, {} failed    Ctrl-C stops everything",
        picture.jobs().len(),
        count(&[State::Queued, State::Waiting, State::Stopping]),
        count(&[State::Starting, State::Running]),
        count(&[State::Succeeded]),
        count(&[State::Failed]),
    )
}

#[cfg(test)]
mod tests {
    use gangway_model::Amount;

    use super::super::picture::{JobKey, Why, WorkloadNews};
    use super::super::quota_watch::Owner;
    use super::*;
    use crate::render::width;

    fn picture(jobs: usize) -> Picture {
        let mut picture = Picture::default();
        for index in 0..jobs {
            let key = JobKey { namespace: "vision".into(), name: format!("train-{index}") };
            picture.add(key.clone(), "main".into(), Timestamp::from_seconds(1));
            let why = Why {
                reason: "WaitingForQuota".into(),
                message: "needs 1 cpu, 2 of 2 are in use in flavor on-demand".into(),
            };
            let news = WorkloadNews { waiting: Some(why), ..WorkloadNews::default() };
            picture.workload_news(&key, news, Timestamp::from_seconds(2));
        }
        picture
    }

    fn quota() -> QuotaWatch {
        QuotaWatch::new(vec![QuotaLine {
            owner: Owner::ClusterQueue("research".into()),
            cohort: None,
            flavors: vec!["on-demand".into()],
            labels: [].into(),
            resource: "cpu".into(),
            quota: Amount::new(2000),
            most: Amount::new(2000),
            used: 500,
            peak: 1000,
        }])
    }

    #[test]
    fn a_frame_fits_its_terminal() {
        for (columns, rows, jobs) in [(80, 24, 4), (80, 24, 400), (120, 40, 12), (20, 5, 9)] {
            let size = Size { columns, rows };
            let lines = frame(&picture(jobs), &quota(), Timestamp::from_seconds(3), size, Palette::None);
            let table_lines = &lines[..lines.len() - 1];
            assert!(table_lines.iter().all(|line| width(line) <= columns), "{columns}: {lines:#?}");
            assert!(lines.len() <= rows.max(20), "{rows}: {lines:#?}");
        }
    }

    #[test]
    fn what_is_borrowed_is_shown_where_there_is_a_cohort() {
        let shown = |quota: QuotaWatch| {
            let size = Size { columns: 80, rows: 24 };
            frame(&picture(0), &quota, Timestamp::from_seconds(3), size, Palette::None).join("\n")
        };
        assert!(!shown(quota()).contains("BORROWED"));
        let line = QuotaLine {
            cohort: Some("all".into()),
            most: Amount::UNLIMITED,
            used: 2500,
            ..quota().lines()[0].clone()
        };
        let text = shown(QuotaWatch::new(vec![line]));
        let row = text.lines().find(|line| line.starts_with("research")).unwrap_or_default();
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(columns[4..], ["2500m/2", "500m", "1"], "{text}");
    }

    #[test]
    fn the_reason_and_its_numbers_are_shown() {
        let shown = |columns: usize| {
            let size = Size { columns, rows: 24 };
            frame(&picture(1), &quota(), Timestamp::from_seconds(3), size, Palette::None)
        };
        let narrow = shown(80);
        assert!(narrow[1].ends_with("WaitingForQuota"), "{narrow:#?}");
        assert_eq!(narrow[3], "vision/train-0: WaitingForQuota: needs 1 cpu, 2 of 2 are in use in flavor");
        let lines = shown(160);
        assert!(
            lines[1].ends_with("WaitingForQuota: needs 1 cpu, 2 of 2 are in use in flavor on-demand"),
            "{lines:#?}"
        );
        assert!(lines[4].contains("████████···") && lines[4].contains("500m/2"), "{lines:#?}");
    }
}
