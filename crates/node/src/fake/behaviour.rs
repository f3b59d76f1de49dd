//! What a fake pod does and when. Pure.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::time::Instant;

/// How a pod was told to behave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// `None` is never.
    pub ready_after: Option<Duration>,
    /// `None` is for ever.
    pub run_for: Option<Duration>,
    pub exit_code: i32,
    pub terminate_after: Duration,
}

/// How far a fake pod has come. Later stages are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Bound, and nothing has been said about it.
    Bound,
    Running,
    Ready,
    Ended,
    /// Ended because it was deleted, and removed.
    Removed,
}

const READY_AFTER: &str = "fake.gangway.dev/ready-after";
const RUN_FOR: &str = "fake.gangway.dev/run-for";
const FAIL: &str = "fake.gangway.dev/fail";
const TERMINATE_AFTER: &str = "fake.gangway.dev/terminate-after";

impl Behaviour {
    /// Reads the pod's annotations; a sentence about the first that cannot be read.
    pub fn of(pod: &Pod) -> Result<Self, String> {
        let value =
            |key: &str| pod.metadata.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let time = |key: &str, text: &str| {
            parse_duration(text)
                .ok_or_else(|| format!("Annotation {key}: {text:?} is not a time such as 2s or 500ms."))
        };
        let ready_after = match value(READY_AFTER) {
            None => Some(Duration::ZERO),
            Some("never") => None,
            Some(text) => Some(time(READY_AFTER, text)?),
        };
        let restart = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
        let run_for = match value(RUN_FOR) {
            None if matches!(restart, Some("Never" | "OnFailure")) => Some(Duration::from_secs(1)),
            None | Some("forever") => None,
            Some(text) => Some(time(RUN_FOR, text)?),
        };
        let exit_code = match value(FAIL) {
            None | Some("false") => 0,
            Some("true") => 1,
            Some(text) => text
                .parse::<u8>()
                .map(i32::from)
                .map_err(|_| format!("Annotation {FAIL}: {text:?} is neither true nor an exit code."))?,
        };
        let terminate_after =
            value(TERMINATE_AFTER).map(|text| time(TERMINATE_AFTER, text)).transpose()?.unwrap_or_default();
        Ok(Self { ready_after, run_for, exit_code, terminate_after })
    }

    /// The stage that a pod is in at `now`, and when that changes.
    pub fn stage(
        &self,
        started: Instant,
        deleted: Option<Instant>,
        written: Stage,
        now: Instant,
    ) -> (Stage, Option<Instant>) {
        if let Some(deleted) = deleted {
            let end = if written == Stage::Ended {
                Some(deleted)
            } else {
                deleted.checked_add(self.terminate_after)
            };
            return match end {
                Some(end) if end <= now => (Stage::Removed, None),
                end => (written, end),
            };
        }
        let Some(ready) = self.ready_after.and_then(|after| started.checked_add(after)) else {
            return (Stage::Running, None);
        };
        if now < ready {
            return (Stage::Running, Some(ready));
        }
        match self.run_for.and_then(|run_for| ready.checked_add(run_for)) {
            Some(end) if end <= now => (Stage::Ended, None),
            end => (Stage::Ready, end),
        }
    }
}

/// A time with its unit: `ms`, `s`, `m` or `h`, whole numbers only; `0` needs none.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let amount: u64 = text[..digits].parse().ok()?;
    match &text[digits..] {
        "ms" => Some(Duration::from_millis(amount)),
        "s" => Some(Duration::from_secs(amount)),
        "m" => amount.checked_mul(60).map(Duration::from_secs),
        "h" => amount.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn behaviour(annotations: Value, restart: &str) -> Result<Behaviour, String> {
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [], "restartPolicy": restart}});
        Behaviour::of(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn durations() {
        let cases = [
            ("2s", Some(2000)),
            ("500ms", Some(500)),
            ("1m", Some(60_000)),
            ("0", Some(0)),
            ("h", None),
            ("2", None),
            ("-1s", None),
            ("", None),
            ("1.5s", None),
            ("99999999999999999999s", None),
        ];
        for (text, millis) in cases {
            assert_eq!(parse_duration(text), millis.map(Duration::from_millis), "{text}");
        }
        assert_eq!(parse_duration("18446744073709551615h"), None);
    }

    #[test]
    fn defaults_depend_on_the_restart_policy() {
        let job = behaviour(json!({}), "Never").unwrap();
        assert_eq!((job.ready_after, job.run_for), (Some(Duration::ZERO), Some(Duration::from_secs(1))));
        assert_eq!(behaviour(json!({}), "Always").unwrap().run_for, None);
        for (key, bad) in
            [(READY_AFTER, "soon"), (RUN_FOR, "long"), (FAIL, "maybe"), (TERMINATE_AFTER, "never")]
        {
            assert!(behaviour(json!({key: bad}), "Never").unwrap_err().contains(key));
        }
    }

    #[test]
    fn stages_follow_the_times() {
        let told =
            behaviour(json!({READY_AFTER: "2s", RUN_FOR: "3s", TERMINATE_AFTER: "5s"}), "Never").unwrap();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let stage = |now, deleted: Option<u64>, written| told.stage(start, deleted.map(at), written, at(now));
        assert_eq!(stage(0, None, Stage::Bound), (Stage::Running, Some(at(2))));
        assert_eq!(stage(2, None, Stage::Running), (Stage::Ready, Some(at(5))));
        assert_eq!(stage(5, None, Stage::Ready), (Stage::Ended, None));
        assert_eq!(stage(4, Some(3), Stage::Ready), (Stage::Ready, Some(at(8))));
        assert_eq!(stage(8, Some(3), Stage::Ready), (Stage::Removed, None));
        assert_eq!(stage(6, Some(6), Stage::Ended), (Stage::Removed, None));
        let never = behaviour(json!({READY_AFTER: "never"}), "Never").unwrap();
        assert_eq!(never.stage(start, None, Stage::Running, at(9)), (Stage::Running, None));
    }
}
