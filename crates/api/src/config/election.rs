//! How one of several controllers is chosen.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::file;

/// The Lease by which a controller is chosen where nothing else is said.
const DEFAULT_NAME: &str = "gangway-controller";

/// The Lease by which one of several is chosen, and how long things take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaderElection {
    /// The Lease's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Nobody takes the Lease over before it stayed unchanged for so long.
    pub lease_duration: Duration,
    /// The leader stops when it could not renew for so long; less than the Lease lasts.
    pub renew_deadline: Duration,
    /// How often the leader renews and a candidate looks; less than the renew deadline.
    pub retry_period: Duration,
}

impl LeaderElection {
    /// What holds where nothing else is said.
    pub fn in_namespace(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: DEFAULT_NAME.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    /// What a file says, and where it says nothing the default; else the field that is wrong, and why.
    pub(crate) fn read(file: &file::LeaderElection, default: Self) -> Result<Self, (&'static str, String)> {
        let text = |setting: &Option<String>, default: &str| {
            setting.as_deref().filter(|text| !text.is_empty()).unwrap_or(default).to_owned()
        };
        if file.resource_lock.as_deref().is_some_and(|lock| !lock.is_empty() && lock != "leases") {
            return Err(("resourceLock", "only \"leases\" is supported".to_owned()));
        }
        let read = Self {
            namespace: text(&file.resource_namespace, &default.namespace),
            name: text(&file.resource_name, &default.name),
            lease_duration: duration("leaseDuration", file.lease_duration.as_ref(), default.lease_duration)?,
            renew_deadline: duration("renewDeadline", file.renew_deadline.as_ref(), default.renew_deadline)?,
            retry_period: duration("retryPeriod", file.retry_period.as_ref(), default.retry_period)?,
        };
        if read.renew_deadline >= read.lease_duration {
            return Err(("renewDeadline", "must be less than leaseDuration".to_owned()));
        }
        if read.retry_period >= read.renew_deadline {
            return Err(("retryPeriod", "must be less than renewDeadline".to_owned()));
        }
        Ok(read)
    }

    /// As a file would say it.
    pub(crate) fn show(setting: Option<&Self>) -> Value {
        let Some(setting) = setting else { return json!({"leaderElect": false}) };
        let millis = |duration: Duration| format!("{}ms", duration.as_millis());
        json!({
            "leaderElect": true,
            "resourceNamespace": setting.namespace,
            "resourceName": setting.name,
            "leaseDuration": millis(setting.lease_duration),
            "renewDeadline": millis(setting.renew_deadline),
            "retryPeriod": millis(setting.retry_period),
        })
    }
}

fn duration(
    field: &'static str,
    setting: Option<&String>,
    default: Duration,
) -> Result<Duration, (&'static str, String)> {
    let Some(text) = setting else { return Ok(default) };
    let parsed: Option<SignedDuration> = text.parse().ok();
    let positive = parsed.and_then(|duration| Duration::try_from(duration).ok()).filter(|d| !d.is_zero());
    positive.ok_or_else(|| (field, format!("{text:?} is not a time such as \"15s\" or \"1m30s\"")))
}
