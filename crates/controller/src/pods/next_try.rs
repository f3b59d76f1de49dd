//! When is a pod tried next? The queue is in the memory of the scheduler that runs; what objects tell of the attempts sets bounds.

use std::time::Duration;

use gangway_api::time::from_api;
use gangway_model::Timestamp;
use gangway_placement::State;
use gangway_placement::queue::Settings;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::explanation::{Turn, refusal};

/// The flush is not sooner than this, whatever the settings say.
const SHORTEST_FLUSH: Duration = Duration::from_secs(1);

/// What objects tell of the attempts for a pod. One that ended like the one before it is told by none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// Since when its condition says that it has no node.
    pub refused_since: Option<Timestamp>,
    /// When its condition or an Event told of an attempt last; the attempt was up to a few seconds before.
    pub last_told: Option<Timestamp>,
    /// How many were told.
    pub told: u32,
    /// Whether something went wrong the last time, rather than that it fitted nowhere.
    pub went_wrong: bool,
}

impl Attempts {
    /// Reads them from a pod and its Events.
    pub fn of<'a>(pod: &Pod, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let refusal = refusal(pod);
        let refused_since = refusal.and_then(|told| told.last_transition_time.as_ref()).map(from_api);
        let is_failure = |event: &&Event| event.reason.as_deref() == Some("FailedScheduling");
        let failures = events.into_iter().filter(is_failure).map(|event| (count(event), last_seen(event)));
        let (events, last_event) = failures.fold((0_u32, None), |(counted, last), (count, seen)| {
            (counted.saturating_add(count), last.max(seen))
        });
        Self {
            refused_since,
            last_told: refused_since.max(last_event),
            told: events.max(u32::from(refusal.is_some())),
            went_wrong: refusal.is_some_and(|told| told.reason.as_deref() == Some("SchedulerError")),
        }
    }
}

/// How often an Event happened: at least once.
fn count(event: &Event) -> u32 {
    let in_series = event.series.as_ref().and_then(|series| series.count);
    let count = in_series.max(event.count).unwrap_or(1);
    u32::try_from(count).unwrap_or(1).max(1)
}

fn last_seen(event: &Event) -> Option<Timestamp> {
    let in_series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref());
    let fine = in_series.max(event.event_time.as_ref()).map(|time| from_api(&Time(time.0)));
    fine.max(event.last_timestamp.as_ref().map(from_api))
}

/// When a pod is tried next, as far as that can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextTry {
    /// It is not: it has a node, has ended, or is being removed.
    Never,
    /// Not before the pod itself changes: it has scheduling gates, or demands that cannot be judged.
    OnceChanged,
    /// As soon as its turn comes: nothing tells that it was tried.
    AtItsTurn,
    /// When its backoff is over: nothing that it waits for is missing.
    AfterBackoff(Backoff),
    /// When something happens that helps it and its backoff is over, or when it has waited for that too long.
    WhenHelped {
        /// What it waits in any case.
        backoff: Backoff,
        /// When it is tried although nothing helped, if it was not tried since the attempt that was told last.
        if_not_tried_since: Timestamp,
        /// When it is tried although nothing helped, whenever its last attempt was.
        at_the_latest: Timestamp,
    },
}

/// The backoff that a pod has since its last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// It is no shorter than this, since so many attempts were told.
    pub at_least: Duration,
    /// It is no longer than this.
    pub at_most: Duration,
    /// It is over by then, whenever the last attempt was.
    pub over_by: Timestamp,
    /// Whether it ends early while no other pod waits for its turn.
    pub is_cut_short: bool,
}

/// When a pod is tried next that would be judged like this now.
pub fn next_try(
    state: &State,
    turn: &Turn,
    attempts: &Attempts,
    settings: &Settings,
    now: Timestamp,
) -> NextTry {
    match state {
        State::Bound(_) | State::Unknown => return NextTry::Never,
        State::Gated(_) | State::Unsupported(_) => return NextTry::OnceChanged,
        _ => {}
    }
    let Some(last_told) = attempts.last_told else { return NextTry::AtItsTurn };
    let backoff = backoff(attempts, settings, now);
    if attempts.went_wrong || matches!(turn, Turn::Placed(_) | Turn::Preempts { .. }) {
        return NextTry::AfterBackoff(backoff);
    }
    let flush = nanos(settings.max_in_unschedulable.max(SHORTEST_FLUSH));
    let flushes = now.nanos_since(last_told).max(0) / flush + 1;
    NextTry::WhenHelped {
        backoff,
        if_not_tried_since: later(last_told, flushes.saturating_mul(flush)),
        at_the_latest: later(now, flush),
    }
}

fn backoff(attempts: &Attempts, settings: &Settings, now: Timestamp) -> Backoff {
    // Errors in a row are counted apart, and nothing tells how many they were.
    let failures = if attempts.went_wrong { 1 } else { attempts.told.max(1) };
    let at_most = settings.backoff(u32::MAX);
    Backoff {
        at_least: settings.backoff(failures),
        at_most,
        over_by: later(now, nanos(at_most)),
        is_cut_short: settings.pop_from_backoff && !attempts.went_wrong,
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

fn later(time: Timestamp, nanos: i64) -> Timestamp {
    Timestamp::from_nanos(time.as_nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use gangway_placement::framework::PluginSet;
    use serde_json::{Value, json};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn refused(reason: &str) -> Pod {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": reason, "lastTransitionTime": "1970-01-01T00:01:40Z",
        });
        serde_json::from_value(json!({"status": {"conditions": [condition]}})).unwrap()
    }

    fn event(fields: &Value) -> Event {
        let mut event = json!({"metadata": {}, "involvedObject": {}, "reason": "FailedScheduling"});
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn attempts_are_told_by_the_condition_and_by_events() {
        let pod = refused("Unschedulable");
        let table = [
            (json!([]), 1, 100),
            (json!([{"eventTime": "1970-01-01T00:01:50.000000Z"}]), 1, 110),
            (
                json!([{"eventTime": "1970-01-01T00:01:50.000000Z"}, {"eventTime": "1970-01-01T00:02:00.000000Z"}]),
                2,
                120,
            ),
            (json!([{"count": 7, "lastTimestamp": "1970-01-01T00:02:30Z"}]), 7, 150),
            (
                json!([{"eventTime": "1970-01-01T00:01:50.000000Z",
                        "series": {"count": 3, "lastObservedTime": "1970-01-01T00:03:20.000000Z"}}]),
                3,
                200,
            ),
            (json!([{"reason": "Scheduled", "eventTime": "1970-01-01T00:05:00.000000Z"}]), 1, 100),
        ];
        for (events, told, last_told) in table {
            let events: Vec<Event> = events.as_array().unwrap().iter().map(event).collect();
            let attempts = Attempts::of(&pod, &events);
            let expected = Attempts {
                refused_since: Some(at(100)),
                last_told: Some(at(last_told)),
                told,
                went_wrong: false,
            };
            assert_eq!(attempts, expected, "{events:?}");
        }
        assert_eq!(Attempts::of(&Pod::default(), []), Attempts::default());
        assert!(Attempts::of(&refused("SchedulerError"), []).went_wrong);
    }

    fn attempts(told: u32, last_told: i64) -> Attempts {
        let last_told = Some(at(last_told));
        Attempts { refused_since: last_told, last_told, told, went_wrong: false }
    }

    fn backoff_of(at_least: u64, is_cut_short: bool) -> Backoff {
        let (at_least, at_most) = (Duration::from_secs(at_least), Duration::from_secs(10));
        Backoff { at_least, at_most, over_by: at(1010), is_cut_short }
    }

    fn when_helped(at_least: u64, if_not_tried_since: i64) -> NextTry {
        NextTry::WhenHelped {
            backoff: backoff_of(at_least, true),
            if_not_tried_since: at(if_not_tried_since),
            at_the_latest: at(1300),
        }
    }

    #[test]
    fn the_next_try_follows_from_the_verdict_and_from_what_was_told() {
        let waits = || State::Unschedulable { rejectors: PluginSet::EMPTY, tried_again_at: at(0) };
        let placed = Turn::Placed("n".into());
        let preempts = Turn::Preempts { node: "n".into(), victims: Vec::new() };
        let wrong = Attempts { went_wrong: true, ..attempts(4, 990) };
        let after = |at_least, is_cut_short| NextTry::AfterBackoff(backoff_of(at_least, is_cut_short));
        let table = [
            ("bound", State::Bound("n".into()), Turn::None, attempts(1, 990), NextTry::Never),
            ("ended", State::Unknown, Turn::None, attempts(1, 990), NextTry::Never),
            ("gated", State::Gated(Vec::new()), Turn::None, attempts(1, 990), NextTry::OnceChanged),
            (
                "unsupported",
                State::Unsupported(Vec::new()),
                Turn::None,
                attempts(1, 990),
                NextTry::OnceChanged,
            ),
            ("new", waits(), Turn::Waits, Attempts::default(), NextTry::AtItsTurn),
            ("once", waits(), Turn::Waits, attempts(1, 990), when_helped(1, 1290)),
            ("three times", waits(), Turn::Waits, attempts(3, 990), when_helped(4, 1290)),
            ("often", waits(), Turn::Waits, attempts(40, 990), when_helped(10, 1290)),
            ("flushed twice since", waits(), Turn::Waits, attempts(1, 350), when_helped(1, 1250)),
            ("flushed this moment", waits(), Turn::Waits, attempts(1, 700), when_helped(1, 1300)),
            ("told by a clock ahead", waits(), Turn::Waits, attempts(1, 1005), when_helped(1, 1305)),
            ("fits", State::Assumed("n".into()), placed, attempts(2, 990), after(2, true)),
            ("preempts", State::Preempting("n".into()), preempts, attempts(2, 990), after(2, true)),
            ("went wrong", waits(), Turn::Waits, wrong, after(1, false)),
        ];
        for (name, state, turn, attempts, expected) in table {
            let found = next_try(&state, &turn, &attempts, &Settings::default(), at(1000));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn settings_say_how_long_waits_are() {
        let seconds = Duration::from_secs;
        let settings = Settings {
            pop_from_backoff: false,
            initial_backoff: seconds(3),
            max_backoff: seconds(5),
            max_in_unschedulable: seconds(60),
        };
        let waits = State::Unschedulable { rejectors: PluginSet::EMPTY, tried_again_at: at(0) };
        let found = next_try(&waits, &Turn::Waits, &attempts(1, 990), &settings, at(1000));
        let backoff =
            Backoff { at_least: seconds(3), at_most: seconds(5), over_by: at(1005), is_cut_short: false };
        let expected = NextTry::WhenHelped { backoff, if_not_tried_since: at(1050), at_the_latest: at(1060) };
        assert_eq!(found, expected);
        let without = Settings { max_backoff: Duration::ZERO, ..settings };
        let found = next_try(&waits, &Turn::Placed("n".into()), &attempts(1, 990), &without, at(1000));
        let NextTry::AfterBackoff(backoff) = found else { panic!("{found:?}") };
        assert_eq!((backoff.at_least, backoff.at_most), (Duration::ZERO, Duration::ZERO));
    }
}
