//! Ten sentences that hold for every history.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use gangway_model::Timestamp;
use gangway_placement::framework::{Change, Happening, Help, Resource};
use gangway_placement::ids::PodId;
use gangway_placement::queue::{Arrival, Judge, Place, Popped, Standing};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::judge::{Table, anything};
use super::run::{Played, Run, Step, settings, steps, tables};

type Checked = Result<(), TestCaseError>;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 128,
        max_shrink_iters: 1_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn is_waiting(place: Place) -> bool {
    matches!(place, Place::Unschedulable { .. } | Place::Gated { .. })
}

fn count(run: &Run, is_there: fn(Place) -> bool) -> usize {
    run.standings().values().filter(|standing| is_there(standing.place)).count()
}

/// What the order of the queue says about pods that may be popped now: a lower key goes first.
fn order(
    run: &Run,
    pod: PodId,
    standing: &Standing,
) -> Option<(bool, i64, Reverse<i32>, Timestamp, Arrival)> {
    let arrival = run.known[pod.0 as usize].clone()?;
    let (is_late, window) = match standing.place {
        Place::Active => (false, 0),
        Place::Backoff { until, .. } if run.settings.pop_from_backoff && standing.errors == 0 => {
            (true, until.as_seconds())
        }
        _ => return None,
    };
    Some((is_late, window, Reverse(arrival.priority), standing.queued_at, arrival))
}

fn first_by_order(run: &Run) -> Option<PodId> {
    let standings = run.standings();
    let keys = standings.iter().filter_map(|(pod, standing)| Some((*pod, order(run, *pod, standing)?)));
    let by = |(_, a): &(PodId, _), (_, b): &(PodId, _)| {
        let key = |(late, window, rank, queued, arrival): &(bool, i64, Reverse<i32>, Timestamp, Arrival)| {
            (*late, *window, *rank, *queued, arrival.created_at, arrival.uid.clone())
        };
        key(a).cmp(&key(b))
    };
    keys.min_by(by).map(|(pod, _)| pod)
}

/// What is to be remembered about events while pods are in flight.
#[derive(Default)]
struct Seen {
    /// By attempt, what happened since it began.
    since: BTreeMap<usize, Vec<Happening>>,
}

impl Seen {
    /// Notes the step, and tells which attempt was answered with a rejection, and after which events.
    fn note(&mut self, played: &Played, run: &Run) -> Option<(PodId, Vec<Happening>)> {
        match played {
            Played::Popped(Some(_)) => {
                self.since.insert(run.attempts.len() - 1, Vec::new());
                None
            }
            Played::Happened(event) => {
                self.since.values_mut().for_each(|events| events.push(event.clone()));
                None
            }
            Played::Done(attempt) | Played::Failed(attempt) => {
                self.since.remove(attempt);
                None
            }
            Played::Rejected(attempt, ..) => {
                let pod = run.attempts[*attempt].pod();
                self.since.remove(attempt).map(|events| (pod, events))
            }
            Played::Deleted(pod) => {
                // Its attempt is nobody's any more.
                self.since.retain(|attempt, _| run.attempts[*attempt].pod() != *pod);
                None
            }
            _ => None,
        }
    }
}

fn may_help(event: &Happening, table: &Table, arrival: &Arrival, place: Place) -> bool {
    let Place::Unschedulable { unschedulable, pending, .. } = place else { return false };
    let about = match &event.change {
        Change::Pod { old: Some(old), .. } => Some(&old.uid),
        Change::Anything(uid) => uid.as_ref(),
        _ => None,
    };
    match event.event.resource {
        Resource::Wildcard => about.is_none_or(|uid| *uid == arrival.uid),
        Resource::AssignedPod if about == Some(&arrival.uid) => false,
        Resource::AssignedPod if is_above(event, arrival.priority) => false,
        _ => {
            let help = table.helps(event, arrival.shape, unschedulable, pending);
            !matches!(help, Help::No | Help::AfterBackoff { at_most: 0 })
        }
    }
}

/// Whether the event is about a node that was only kept for somebody who matters less.
fn is_above(event: &Happening, priority: i32) -> bool {
    let Change::Pod { old: Some(old), nominated: true, .. } = &event.change else { return false };
    priority > old.priority
}

/// Plays a history and looks after every step.
fn always(run: &mut Run, steps: &[Step], mut holds: impl FnMut(&Run, &Played) -> Checked) -> Checked {
    for step in steps {
        let played = run.play(step);
        holds(run, &played)?;
    }
    Ok(())
}

/// Plays a history, up to date before every pop, and looks at every pod that is given out.
fn at_every_pop(
    run: &mut Run,
    steps: &[Step],
    mut holds: impl FnMut(Option<PodId>, &BTreeMap<PodId, Standing>, &Popped) -> Checked,
) -> Checked {
    for step in steps {
        let is_pop = matches!(step, Step::Pop);
        if is_pop {
            run.play(&Step::Advance);
        }
        let (expected, before) = (first_by_order(run), run.standings());
        match run.play(step) {
            Played::Popped(Some(popped)) => holds(expected, &before, &popped)?,
            Played::Popped(None) => prop_assert_eq!(expected, None),
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_pod_that_was_added_and_not_deleted_is_in_one_place(
        settings in settings(), table in tables(), steps in steps(),
    ) {
        let mut run = Run::new(settings, table);
        always(&mut run, &steps, |run, _| {
            prop_assert_eq!(run.standings().len(), run.alive().count());
            prop_assert_eq!(run.queue.check(), Ok(()));
            Ok(())
        })?;
    }

    #[test]
    fn the_first_active_pod_is_popped_and_only_without_one_the_first_that_backs_off(
        settings in settings(), table in tables(), steps in steps(),
    ) {
        at_every_pop(&mut Run::new(settings, table), &steps, |expected, before, popped| {
            prop_assert_eq!(expected, Some(popped.pod));
            prop_assert_eq!(popped.from_backoff, before[&popped.pod].place != Place::Active);
            Ok(())
        })?;
    }

    #[test]
    fn a_penalty_for_an_error_is_never_cut_short(settings in settings(), table in tables(), steps in steps()) {
        at_every_pop(&mut Run::new(settings, table), &steps, |_, before, popped| {
            // By its history, not by what the queue says of the penalty.
            let Standing { place, errors, .. } = before[&popped.pod];
            prop_assert!(errors == 0 || place == Place::Active, "{:?}", place);
            Ok(())
        })?;
    }

    #[test]
    fn no_event_that_helps_is_lost_on_a_pod_in_flight(settings in settings(), table in tables(), steps in steps()) {
        let mut seen = Seen::default();
        always(&mut Run::new(settings, table), &steps, |run, played| {
            if let Some((pod, events)) = seen.note(played, run)
                && let Some(standing) = run.queue.standing(pod)
                && let Some(arrival) = &run.known[pod.0 as usize]
            {
                let helped = events.iter().find(|event| may_help(event, &run.table, arrival, standing.place));
                prop_assert!(helped.is_none(), "{:?} waits in spite of {:?}", pod, helped);
            }
            Ok(())
        })?;
    }

    #[test]
    fn nobody_waits_for_an_event_longer_than_the_flush_allows(
        settings in settings(), table in tables(), steps in steps(),
    ) {
        let longest = settings.max_in_unschedulable.as_nanos() as i64;
        always(&mut Run::new(settings, table), &steps, |run, played| {
            if matches!(played, Played::Advanced | Played::Popped(_)) {
                for standing in run.standings().values() {
                    let is_parked = matches!(standing.place, Place::Unschedulable { .. });
                    prop_assert!(!is_parked || run.now.nanos_since(standing.queued_at) < longest);
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn nothing_is_kept_when_nothing_is_in_flight(settings in settings(), table in tables(), steps in steps()) {
        let mut run = Run::new(settings, table);
        always(&mut run, &steps, |run, _| {
            let counts = run.queue.counts();
            prop_assert!(counts.in_flight > 0 || counts.in_flight_events.is_empty());
            Ok(())
        })?;
        for attempt in run.attempts.clone() {
            run.queue.done(attempt);
        }
        prop_assert!(run.queue.counts().in_flight_events.is_empty());
    }

    #[test]
    fn what_is_counted_is_what_is_there(settings in settings(), table in tables(), steps in steps()) {
        always(&mut Run::new(settings, table), &steps, |run, _| {
            let counts = run.queue.counts();
            prop_assert_eq!(counts.active, count(run, |place| place == Place::Active));
            prop_assert_eq!(counts.backoff, count(run, |place| matches!(place, Place::Backoff { .. })));
            prop_assert_eq!(counts.unschedulable, count(run, |place| matches!(place, Place::Unschedulable { .. })));
            prop_assert_eq!(counts.gated, count(run, |place| matches!(place, Place::Gated { .. })));
            Ok(())
        })?;
    }

    #[test]
    fn in_the_end_every_pod_is_popped_once(settings in settings(), table in tables(), steps in steps()) {
        let mut run = Run::new(settings, table);
        always(&mut run, &steps, |_, _| Ok(()))?;
        let is_out = |place| matches!(place, Place::InFlight | Place::Decided);
        let standings = run.standings();
        let expected = standings.iter().filter(|(_, standing)| !is_out(standing.place)).map(|(pod, _)| *pod);
        let expected: BTreeSet<_> = expected.collect();
        run.table.closed.clear();
        run.queue.happened(&anything(None), run.now, &run.table);
        run.now = run.now.plus_seconds(1_000);
        let mut popped = Vec::new();
        while let Some(next) = run.queue.pop(run.now, &run.table) {
            popped.push(next.pod);
        }
        prop_assert_eq!(popped.len(), expected.len());
        prop_assert_eq!(popped.into_iter().collect::<BTreeSet<_>>(), expected);
    }

    #[test]
    fn whoever_is_popped_was_let_in_since_it_last_waited(settings in settings(), table in tables(), steps in steps()) {
        let mut run = Run::new(settings, table);
        for step in &steps {
            for pod in (0..super::run::PODS).map(PodId) {
                let place = run.queue.place(pod);
                if place.is_none_or(|place| is_waiting(place) || matches!(place, Place::InFlight | Place::Decided)) {
                    run.table.let_in.borrow_mut().remove(&pod);
                }
            }
            if let Played::Popped(Some(popped)) = run.play(step) {
                prop_assert!(run.table.let_in.borrow().contains(&popped.pod), "{:?}", popped);
            }
        }
    }

    #[test]
    fn penalties_are_as_long_as_the_failures_say_and_end_exactly(
        settings in settings(), table in tables(), steps in steps(),
    ) {
        let mut run = Run::new(settings, table);
        for step in &steps {
            run.play(step);
            for standing in run.standings().values() {
                if let Place::Backoff { until, .. } = standing.place {
                    let failures = if standing.errors > 0 { standing.errors } else { standing.rejections };
                    let seconds = (1_i64 << (failures - 1)).min(settings.max_backoff.as_secs() as i64);
                    prop_assert_eq!(until, standing.queued_at.plus_seconds(seconds));
                }
            }
        }
        run.play(&Step::Advance);
        if let Some(deadline) = run.queue.next_deadline() {
            let (before, counts) = (run.standings(), run.queue.counts());
            run.now = Timestamp::from_nanos(deadline.as_nanos() - 1).max(run.now);
            run.play(&Step::Advance);
            prop_assert_eq!((run.standings(), run.queue.counts()), (before.clone(), counts));
            run.now = deadline;
            run.play(&Step::Advance);
            prop_assert_ne!(run.standings(), before);
            prop_assert!(run.queue.next_deadline().is_none_or(|next| next > deadline));
        }
    }
}
