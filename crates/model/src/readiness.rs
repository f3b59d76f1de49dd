//! All-or-nothing start: when pods have to be ready, and what happens to a Workload whose pods are not.

use crate::time::Timestamp;
use crate::uid::Uid;

/// From which time on a Workload that was sent back for not being ready has its place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RequeuingTimestamp {
    /// From its eviction: behind those who came before that.
    #[default]
    Eviction,
    /// From its creation: where it was.
    Creation,
}

impl RequeuingTimestamp {
    /// As the configuration spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eviction => "Eviction",
            Self::Creation => "Creation",
        }
    }

    /// Reads a spelling of the configuration.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Eviction, Self::Creation].into_iter().find(|known| known.as_str() == text)
    }
}

/// `waitForPodsReady` of the configuration, switched on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitForPodsReady {
    /// From the admission until all pods are ready for the first time.
    pub timeout_seconds: i64,
    /// From the loss of a pod until all are ready again; none if that may take for ever.
    pub recovery_timeout_seconds: Option<i64>,
    /// Whether nobody is admitted while somebody else starts.
    pub block_admission: bool,
    /// Where a Workload that was sent back queues.
    pub timestamp: RequeuingTimestamp,
    /// After so many retries it is deactivated; none if never.
    pub backoff_limit_count: Option<u32>,
    /// How long it is not tried after the first time.
    pub backoff_base_seconds: u32,
    /// And at most, however often it happens; 0 if there is no limit.
    pub backoff_max_seconds: u32,
    /// Who was ready for so long without a break begins to count anew; 0 if nobody does.
    pub reset_after_ready_seconds: u32,
}

impl Default for WaitForPodsReady {
    fn default() -> Self {
        Self {
            timeout_seconds: 300,
            recovery_timeout_seconds: None,
            block_admission: true,
            timestamp: RequeuingTimestamp::Eviction,
            backoff_limit_count: None,
            backoff_base_seconds: 60,
            backoff_max_seconds: 3600,
            reset_after_ready_seconds: 3600,
        }
    }
}

/// At most so many ten-thousandths are added to a backoff, so that who was sent back together does not come back together.
const JITTER: u64 = 500;

impl WaitForPodsReady {
    /// Whether a Workload that was sent back `count` times may be sent back once more.
    pub fn may_retry(&self, count: u32) -> bool {
        self.backoff_limit_count.is_none_or(|limit| count < limit)
    }

    /// How many seconds a Workload is not tried after it was sent back for the `count`th time.
    pub fn backoff_seconds(&self, uid: &Uid, count: u32) -> i64 {
        let doublings = count.saturating_sub(1);
        let factor = 1_u64.checked_shl(doublings).filter(|_| doublings < 64).unwrap_or(u64::MAX);
        let grown = u64::from(self.backoff_base_seconds).saturating_mul(factor);
        let most = match self.backoff_max_seconds {
            0 => LONGEST_BACKOFF_SECONDS,
            most => u64::from(most),
        };
        let seconds = grown.min(most);
        let share = spread(uid, count) % (JITTER + 1);
        let jitter = (seconds.saturating_mul(share) + 5_000) / 10_000;
        i64::try_from(seconds.saturating_add(jitter)).unwrap_or(i64::MAX)
    }

    /// Whether a Workload that was ready from one time to another begins to count anew.
    pub fn is_reset(&self, from: Timestamp, to: Timestamp) -> bool {
        let after = i64::from(self.reset_after_ready_seconds);
        after > 0 && from.plus_seconds(after) <= to
    }
}

/// A hundred years: without a limit of its own a backoff still ends in a time that can be written.
const LONGEST_BACKOFF_SECONDS: u64 = 100 * 365 * 24 * 3600;

/// A number that depends on a Workload and on how often it was sent back, the same everywhere and for ever (FNV-1a).
fn spread(uid: &Uid, count: u32) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let text = uid.to_string();
    let bytes = text.bytes().chain(count.to_be_bytes());
    bytes.fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// Timeouts that a queue or a Job sets for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Timeouts {
    /// From the admission until all pods are ready for the first time.
    pub start_seconds: Option<i64>,
    /// From the loss of a pod until all are ready again; 0 if that may take for ever.
    pub recovery_seconds: Option<i64>,
}

/// The timeouts that hold for a Workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EffectiveTimeouts {
    /// From the admission until all pods are ready for the first time.
    pub start_seconds: i64,
    /// From the loss of a pod until all are ready again; none if that may take for ever.
    pub recovery_seconds: Option<i64>,
}

impl WaitForPodsReady {
    /// What holds for a Workload: the most specific, but a Job may only shorten what its queue allows.
    pub fn timeouts(&self, queue: Timeouts, job: Timeouts) -> EffectiveTimeouts {
        let limited = |seconds: Option<i64>| seconds.filter(|seconds| *seconds > 0);
        let start = limited(queue.start_seconds).unwrap_or(self.timeout_seconds);
        let recovery = match queue.recovery_seconds {
            Some(seconds) => limited(Some(seconds)),
            None => self.recovery_timeout_seconds,
        };
        let own = limited(job.recovery_seconds);
        EffectiveTimeouts {
            start_seconds: limited(job.start_seconds).map_or(start, |own| own.min(start)),
            recovery_seconds: own.map_or(recovery, |own| Some(recovery.map_or(own, |most| own.min(most)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> WaitForPodsReady {
        WaitForPodsReady::default()
    }

    fn without_jitter(settings: &WaitForPodsReady, count: u32) -> i64 {
        // Among many Workloads some have next to no jitter, and none has less.
        let uids = (0..2000).map(|n| Uid::from(format!("w-{n}").as_str()));
        uids.map(|uid| settings.backoff_seconds(&uid, count)).min().unwrap()
    }

    #[test]
    fn backoff_doubles_up_to_its_limit() {
        let series: Vec<i64> = (1..=10).map(|count| without_jitter(&settings(), count)).collect();
        assert_eq!(series, [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600]);
        assert_eq!(series.iter().sum::<i64>(), 18_180);
    }

    #[test]
    fn the_limit_holds_for_the_first_step_too() {
        let low = WaitForPodsReady { backoff_base_seconds: 100, backoff_max_seconds: 50, ..settings() };
        assert_eq!([1, 2, 3].map(|count| without_jitter(&low, count)), [50, 50, 50]);
        let none = WaitForPodsReady { backoff_max_seconds: 0, ..settings() };
        assert_eq!(without_jitter(&none, 11), 61_440);
        assert_eq!(without_jitter(&none, u32::MAX), 100 * 365 * 24 * 3600);
        let at_once = WaitForPodsReady { backoff_base_seconds: 0, ..settings() };
        assert_eq!([1, 9].map(|count| at_once.backoff_seconds(&"w".into(), count)), [0, 0]);
    }

    #[test]
    fn jitter_adds_at_most_a_twentieth_and_is_always_the_same() {
        let uids: Vec<Uid> = (0..2000).map(|n| Uid::from(format!("w-{n}").as_str())).collect();
        let waits: Vec<i64> = uids.iter().map(|uid| settings().backoff_seconds(uid, 7)).collect();
        assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&3600), Some(&3780)));
        // As documented: FNV-1a over the uid and the count in four bytes, big end first, modulo 501.
        assert_eq!(settings().backoff_seconds(&"w-1".into(), 7), waits[1]);
        assert_eq!(spread(&"".into(), 0), 0x4d25_767f_9dce_13f5);
    }

    #[test]
    fn a_limit_of_n_allows_n_retries() {
        for limit in 0..3 {
            let limited = WaitForPodsReady { backoff_limit_count: Some(limit), ..settings() };
            let retries = (0..10).take_while(|count| limited.may_retry(*count)).count();
            assert_eq!(retries, limit as usize);
        }
        assert!(settings().may_retry(u32::MAX));
    }

    #[test]
    fn a_job_only_shortens_what_its_queue_allows() {
        let general = WaitForPodsReady { recovery_timeout_seconds: Some(200), ..settings() };
        let of = |start, recovery| Timeouts { start_seconds: start, recovery_seconds: recovery };
        let none = Timeouts::default();
        let table = [
            (none, none, (300, Some(200))),
            (of(Some(600), None), none, (600, Some(200))),
            (of(Some(600), Some(0)), none, (600, None)),
            (none, of(Some(10), Some(20)), (10, Some(20))),
            (none, of(Some(1000), Some(1000)), (300, Some(200))),
            (of(Some(20), Some(0)), of(Some(30), Some(40)), (20, Some(40))),
            (none, of(None, Some(0)), (300, Some(200))),
        ];
        for (queue, job, expected) in table {
            let EffectiveTimeouts { start_seconds, recovery_seconds } = general.timeouts(queue, job);
            assert_eq!((start_seconds, recovery_seconds), expected, "{queue:?} {job:?}");
        }
    }
}
