//! When is a pod tried next, and on what does that rest?

use std::time::Duration;

use gangway_api::time::to_rfc3339;
use gangway_controller::pods::{Attempts, Backoff, ExplainedPod, NextTry};
use serde_json::{Value, json};

/// The answer for people; nothing if it is not tried any more.
pub fn lines(explained: &ExplainedPod) -> Vec<String> {
    let ExplainedPod { attempts, next_try, explanation, .. } = explained;
    match next_try {
        NextTry::Never => Vec::new(),
        NextTry::OnceChanged => vec!["Tried next: not before the pod itself changes".to_owned()],
        NextTry::AtItsTurn => {
            vec!["Tried next: as soon as its turn comes; nothing tells that it was tried before".to_owned()]
        }
        NextTry::AfterBackoff(backoff) => vec![
            format!("Tried next: {}; by {} in any case", after(backoff), to_rfc3339(backoff.over_by)),
            rests_on(attempts),
        ],
        NextTry::WhenHelped { backoff, if_not_tried_since, at_the_latest } => {
            let helped = match explanation.wakers.is_empty() {
                true => "when something happens that helps it",
                false => "when one of these happens and helps it",
            };
            vec![
                format!("Tried next: {helped}, {}", after(backoff)),
                format!(
                    "Otherwise: about {} if it was not tried since it was told, and by {} in any case",
                    to_rfc3339(*if_not_tried_since),
                    to_rfc3339(*at_the_latest)
                ),
                rests_on(attempts),
            ]
        }
    }
}

fn after(backoff: &Backoff) -> String {
    let Backoff { at_least, at_most, is_cut_short, .. } = backoff;
    let wait = match (at_least.is_zero() && at_most.is_zero(), at_least == at_most) {
        (true, _) => return "at once".to_owned(),
        (false, true) => format!("not less than {} after its last attempt", seconds(*at_most)),
        (false, false) => {
            format!(
                "not less than {} to {} after its last attempt, by how many there were",
                seconds(*at_least),
                seconds(*at_most)
            )
        }
    };
    if *is_cut_short { format!("{wait}, or earlier if no other pod waits for its turn") } else { wait }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// What is known of the attempts: objects alone, since the queue is in the memory of the scheduler.
fn rests_on(attempts: &Attempts) -> String {
    let time = |time: Option<_>| time.map_or_else(|| "an unknown time".to_owned(), to_rfc3339);
    format!(
        "That rests on its condition and Events (told since {}, last {}, attempts told: {}), not on the scheduler's queue",
        time(attempts.refused_since),
        time(attempts.last_told),
        attempts.told
    )
}

/// The answer for programs.
pub fn as_json(explained: &ExplainedPod) -> Value {
    let ExplainedPod { attempts, next_try, .. } = explained;
    let backoff = |backoff: &Backoff| {
        json!({
            "atLeastSeconds": backoff.at_least.as_secs_f64(),
            "atMostSeconds": backoff.at_most.as_secs_f64(),
            "overBy": to_rfc3339(backoff.over_by),
            "earlierWhenIdle": backoff.is_cut_short,
        })
    };
    let mut answer = match next_try {
        NextTry::Never => return Value::Null,
        NextTry::OnceChanged => json!({"when": "OnceChanged"}),
        NextTry::AtItsTurn => json!({"when": "AtItsTurn"}),
        NextTry::AfterBackoff(wait) => json!({"when": "AfterBackoff", "backoff": backoff(wait)}),
        NextTry::WhenHelped { backoff: wait, if_not_tried_since, at_the_latest } => json!({
            "when": "WhenHelped",
            "backoff": backoff(wait),
            "otherwiseIfNotTriedSince": to_rfc3339(*if_not_tried_since),
            "otherwiseAtTheLatest": to_rfc3339(*at_the_latest),
        }),
    };
    answer["restsOn"] = json!({
        "refusedSince": attempts.refused_since.map(to_rfc3339),
        "lastTold": attempts.last_told.map(to_rfc3339),
        "attemptsTold": attempts.told,
    });
    answer
}

#[cfg(test)]
mod tests {
    use gangway_controller::pods::Turn;
    use gangway_model::Timestamp;
    use gangway_placement::{Explanation, State};

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    fn explained(next_try: NextTry) -> ExplainedPod {
        ExplainedPod {
            explanation: Explanation {
                pod: None,
                state: State::Active,
                attempts: 0,
                diagnosis: None,
                wakers: Vec::new(),
                shortages: Vec::new(),
                nominated_node: None,
            },
            scheduler_name: "gangway".to_owned(),
            has_profile: true,
            turn: Turn::Waits,
            condition: None,
            attempts: Attempts {
                refused_since: Some(at(0)),
                last_told: Some(at(60)),
                told: 3,
                went_wrong: false,
            },
            next_try,
        }
    }

    fn backoff(at_least: u64, at_most: u64, is_cut_short: bool) -> Backoff {
        let seconds = Duration::from_secs;
        Backoff {
            at_least: seconds(at_least),
            at_most: seconds(at_most),
            over_by: at(100 + i64::try_from(at_most).unwrap()),
            is_cut_short,
        }
    }

    #[test]
    fn people_are_told_when_and_on_what_it_rests() {
        let rests = "That rests on its condition and Events (told since 1970-01-01T00:00:00Z, last \
                     1970-01-01T00:01:00Z, attempts told: 3), not on the scheduler's queue";
        let helped = NextTry::WhenHelped {
            backoff: backoff(4, 10, true),
            if_not_tried_since: at(360),
            at_the_latest: at(400),
        };
        let table: Vec<(NextTry, Vec<&str>)> = vec![
            (NextTry::Never, vec![]),
            (NextTry::OnceChanged, vec!["Tried next: not before the pod itself changes"]),
            (
                NextTry::AtItsTurn,
                vec!["Tried next: as soon as its turn comes; nothing tells that it was tried before"],
            ),
            (
                NextTry::AfterBackoff(backoff(10, 10, false)),
                vec![
                    "Tried next: not less than 10 s after its last attempt; by 1970-01-01T00:01:50Z in any case",
                    rests,
                ],
            ),
            (
                NextTry::AfterBackoff(backoff(0, 0, true)),
                vec!["Tried next: at once; by 1970-01-01T00:01:40Z in any case", rests],
            ),
            (
                helped,
                vec![
                    "Tried next: when something happens that helps it, not less than 4 s to 10 s after its last \
                     attempt, by how many there were, or earlier if no other pod waits for its turn",
                    "Otherwise: about 1970-01-01T00:06:00Z if it was not tried since it was told, and by \
                     1970-01-01T00:06:40Z in any case",
                    rests,
                ],
            ),
        ];
        for (next_try, expected) in table {
            assert_eq!(lines(&explained(next_try)), expected);
        }
        let answer = as_json(&explained(helped));
        assert_eq!(answer["when"], "WhenHelped");
        assert_eq!(answer["backoff"]["atLeastSeconds"], 4.0);
        assert_eq!(answer["otherwiseAtTheLatest"], "1970-01-01T00:06:40Z");
        assert_eq!(answer["restsOn"]["attemptsTold"], 3);
        assert_eq!(as_json(&explained(NextTry::Never)), Value::Null);
    }
}
