//! The flavors of a Workload that falls back, and its admission checks, in a line each.

use gangway_admission::Rung;
use gangway_model::checks::CheckAnswer;
use gangway_model::reasons::CheckState;
use serde_json::{Value, json};

/// `reservation ✗ 10m · spot ⧗ 4m of 15m · on-demand`: given up, tried now, not yet tried.
pub fn ladder(rungs: &[Rung]) -> String {
    rungs.iter().map(rung).collect::<Vec<_>>().join(" · ")
}

fn rung(rung: &Rung) -> String {
    let Rung { flavor, given_up, is_running, used_seconds, timeout_seconds } = rung;
    let of = timeout_seconds.map(|timeout| format!(" of {}", length(timeout))).unwrap_or_default();
    match (given_up, is_running) {
        (Some(_), _) => format!("{flavor} ✗ {}", length(*used_seconds)),
        (None, true) => format!("{flavor} ⧗ {}{of}", length(*used_seconds)),
        (None, false) if *used_seconds > 0 => format!("{flavor} {}{of}", length(*used_seconds)),
        (None, false) => flavor.to_string(),
    }
}

/// The same for programs.
pub fn ladder_json(rungs: &[Rung]) -> Value {
    let one = |rung: &Rung| {
        json!({
            "flavor": rung.flavor.as_str(),
            "givenUp": rung.given_up.map(|trigger| trigger.as_str()),
            "running": rung.is_running,
            "usedSeconds": rung.used_seconds,
            "timeoutSeconds": rung.timeout_seconds,
        })
    };
    rungs.iter().map(one).collect()
}

/// `check Pending, other Ready (approved by hand)`.
pub fn checks(answers: &[CheckAnswer]) -> String {
    let one = |answer: &CheckAnswer| {
        let retries = answer.retry_count.filter(|_| answer.state == CheckState::Pending);
        let said = match (answer.message.as_str(), retries) {
            ("", None) => String::new(),
            ("", Some(count)) => format!(" (retries: {count})"),
            (message, _) => format!(" ({message})"),
        };
        format!("{} {}{said}", answer.name, answer.state)
    };
    answers.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The same for programs.
pub fn checks_json(answers: &[CheckAnswer]) -> Value {
    let one = |answer: &CheckAnswer| {
        json!({
            "name": answer.name.as_str(),
            "state": answer.state.as_str(),
            "message": answer.message,
            "retries": answer.retry_count,
        })
    };
    answers.iter().map(one).collect()
}

/// Seconds as somebody would write them: `45s`, `10m`, `1m30s`, `2h`.
fn length(seconds: i64) -> String {
    let parts = [(seconds / 3600, "h"), (seconds % 3600 / 60, "m"), (seconds % 60, "s")];
    let text: String = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use gangway_model::Timestamp;
    use gangway_model::reasons::FallbackTrigger;

    use super::*;

    #[test]
    fn a_ladder_tells_what_was_given_up_what_is_tried_and_what_is_left() {
        let rung = |flavor: &str, used_seconds, timeout_seconds| Rung {
            flavor: flavor.into(),
            given_up: None,
            is_running: false,
            used_seconds,
            timeout_seconds,
        };
        let trigger = Some(FallbackTrigger::TimeoutForPodsReadyExceeded);
        let rungs = [
            Rung { given_up: trigger, ..rung("reservation", 600, Some(600)) },
            Rung { is_running: true, ..rung("spot", 240, Some(900)) },
            rung("preempted", 90, Some(5400)),
            rung("on-demand", 0, None),
        ];
        assert_eq!(
            ladder(&rungs),
            "reservation ✗ 10m · spot ⧗ 4m of 15m · preempted 1m30s of 1h30m · on-demand"
        );
        assert_eq!(ladder_json(&rungs)[0]["givenUp"], "TimeoutForPodsReadyExceeded");
    }

    #[test]
    fn checks_tell_what_they_say() {
        let answer = CheckAnswer::pending("budget".into(), Timestamp::EPOCH);
        let retried = CheckAnswer { retry_count: Some(2), ..answer.clone() };
        let agreed = CheckAnswer { state: CheckState::Ready, message: "fine".to_owned(), ..answer };
        assert_eq!(checks(&[retried, agreed]), "budget Pending (retries: 2), budget Ready (fine)");
    }
}
