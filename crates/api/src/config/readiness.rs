//! `waitForPodsReady`: what a file says, with the defaults of its version, and what is dangerous about it.

use gangway_model::readiness::{RequeuingTimestamp, WaitForPodsReady};
use serde_json::{Value, json};

use super::file::{self, Version};
use crate::strict::Finding;
use crate::time::seconds_of;

const PATH: &str = "waitForPodsReady";

/// What a file of a version says; none if it is switched off.
pub(super) fn read(
    file: &file::File,
    version: Version,
    findings: &mut Vec<Finding>,
) -> Option<WaitForPodsReady> {
    let gates = file.feature_gates.as_ref();
    if gates.and_then(|gates| gates.get("DisableWaitForPodsReady")) == Some(&true) {
        return None;
    }
    let nothing = file::WaitForPodsReady::default();
    let setting = file.wait_for_pods_ready.as_ref().unwrap_or(&nothing);
    if !setting.enable.unwrap_or(version == Version::V1Beta2) {
        return None;
    }
    let mut reader = Reader(findings);
    let default = match version {
        Version::V1Beta1 => WaitForPodsReady::default(),
        Version::V1Beta2 => {
            WaitForPodsReady { timeout_seconds: 1800, block_admission: false, ..WaitForPodsReady::default() }
        }
    };
    let timeout = reader.seconds("timeout", setting.timeout.as_ref()).filter(|seconds| *seconds > 0);
    let timeout_seconds = timeout.unwrap_or(default.timeout_seconds);
    let recovery = reader.seconds("recoveryTimeout", setting.recovery_timeout.as_ref());
    let by_default = (version == Version::V1Beta2).then_some(timeout_seconds);
    let nothing = file::RequeuingStrategy::default();
    let strategy = setting.requeuing_strategy.as_ref().unwrap_or(&nothing);
    let most = reader.count("backoffMaxSeconds", strategy.backoff_max_seconds);
    let backoff_max_seconds = most.unwrap_or(default.backoff_max_seconds);
    let reset = reader.count("resetAfterReadySeconds", strategy.reset_after_ready_seconds);
    let base = reader.count("backoffBaseSeconds", strategy.backoff_base_seconds);
    Some(WaitForPodsReady {
        timeout_seconds,
        recovery_timeout_seconds: recovery.map_or(by_default, |seconds| Some(seconds).filter(|s| *s > 0)),
        block_admission: setting.block_admission.unwrap_or(default.block_admission),
        timestamp: reader.timestamp(strategy.timestamp.as_deref()),
        backoff_limit_count: reader.count("backoffLimitCount", strategy.backoff_limit_count),
        backoff_base_seconds: base.unwrap_or(default.backoff_base_seconds),
        backoff_max_seconds,
        reset_after_ready_seconds: reset.unwrap_or(backoff_max_seconds),
    })
}

struct Reader<'f>(&'f mut Vec<Finding>);

impl Reader<'_> {
    fn refuse(&mut self, field: &str, message: String) {
        self.0.push(Finding { path: format!("{PATH}.{field}"), message });
    }

    fn seconds(&mut self, field: &str, text: Option<&String>) -> Option<i64> {
        match seconds_of(text?) {
            Ok(seconds) => Some(seconds),
            Err(message) => {
                self.refuse(field, message);
                None
            }
        }
    }

    fn count(&mut self, field: &str, count: Option<i64>) -> Option<u32> {
        let read = u32::try_from(count?).ok().filter(|count| i32::try_from(*count).is_ok());
        if read.is_none() {
            self.refuse(&format!("requeuingStrategy.{field}"), format!("must be 0 to {}", i32::MAX));
        }
        read
    }

    fn timestamp(&mut self, text: Option<&str>) -> RequeuingTimestamp {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return RequeuingTimestamp::default() };
        RequeuingTimestamp::parse(text).unwrap_or_else(|| {
            let message = format!("{text:?} is not one of Eviction, Creation");
            self.refuse("requeuingStrategy.timestamp", message);
            RequeuingTimestamp::default()
        })
    }
}

/// As a file of v1beta2 would say it.
pub(super) fn show(setting: Option<&WaitForPodsReady>) -> Value {
    let Some(setting) = setting else { return json!({"enable": false}) };
    let mut strategy = json!({
        "timestamp": setting.timestamp.as_str(),
        "backoffBaseSeconds": setting.backoff_base_seconds,
        "backoffMaxSeconds": setting.backoff_max_seconds,
        "resetAfterReadySeconds": setting.reset_after_ready_seconds,
    });
    if let Some(limit) = setting.backoff_limit_count {
        strategy["backoffLimitCount"] = json!(limit);
    }
    json!({
        "enable": true,
        "timeout": format!("{}s", setting.timeout_seconds),
        "blockAdmission": setting.block_admission,
        "recoveryTimeout": format!("{}s", setting.recovery_timeout_seconds.unwrap_or(0)),
        "requeuingStrategy": strategy,
    })
}

/// A whole cluster that waits so long for one Workload is hardly meant.
const LONG_BLOCK_SECONDS: i64 = 900;

/// What may go wrong with a setting that can be used: which, and what.
pub(super) fn warnings(setting: &WaitForPodsReady) -> Vec<(String, String)> {
    let endless = setting.backoff_limit_count.is_none();
    let returns_first = setting.timestamp == RequeuingTimestamp::Creation;
    let mut warnings = Vec::new();
    let mut warn = |is_so: bool, field: &str, message: &str| {
        if is_so {
            warnings.push((format!("{PATH}.{field}"), message.to_owned()));
        }
    };
    warn(
        endless,
        "requeuingStrategy.backoffLimitCount",
        "is not set: a Workload that can never be ready, for example with a broken image, comes back for ever",
    );
    warn(
        returns_first,
        "requeuingStrategy.timestamp",
        "Creation lets a Workload that was not ready return to the front; in a StrictFIFO queue nobody passes it once its \
         backoff is over: use BestEffortFIFO there",
    );
    warn(
        endless && setting.backoff_base_seconds == 0,
        "requeuingStrategy.backoffBaseSeconds",
        "0 without a limit lets a Workload that can never be ready hold its quota nearly all the time",
    );
    warn(
        setting.backoff_max_seconds > 0 && setting.backoff_base_seconds > setting.backoff_max_seconds,
        "requeuingStrategy.backoffBaseSeconds",
        "is more than backoffMaxSeconds: every backoff lasts backoffMaxSeconds",
    );
    warn(
        setting.recovery_timeout_seconds.is_none(),
        "recoveryTimeout",
        "is not set: a Workload that lost a pod for good keeps its quota until its Job ends; set it, or backoffLimit and \
         activeDeadlineSeconds on the Jobs",
    );
    warn(
        setting.block_admission && setting.timeout_seconds > LONG_BLOCK_SECONDS,
        "blockAdmission",
        "lets one Workload that cannot start hold up the whole cluster for all of its timeout, which is long",
    );
    warnings
}
