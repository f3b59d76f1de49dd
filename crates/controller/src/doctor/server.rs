//! The API server: its version and its clock.

use gangway_api::time::from_http_date;
use gangway_model::{Clock, Timestamp};
use http::{Request, header};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kube::client::Body;

use super::finding::{Area, Finding};

/// The oldest Kubernetes for whose API this is made.
pub const OLDEST_MINOR: u32 = 33;

/// What a version of the API server says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Server {
    /// As it names itself.
    pub version: String,
    /// The second number; none if it cannot be read.
    pub minor: Option<u32>,
    /// Whether it is the API of one machine.
    pub is_embedded: bool,
}

impl Server {
    pub(super) fn new(info: &Info) -> Self {
        let minor: String = info.minor.chars().take_while(char::is_ascii_digit).collect();
        Self {
            version: info.git_version.clone(),
            minor: minor.parse().ok().filter(|_| info.major == "1"),
            is_embedded: info.git_version.ends_with("+gangway"),
        }
    }

    /// Whether this is older than we can serve.
    pub(super) fn version(&self) -> Finding {
        let ours = env!("CARGO_PKG_VERSION");
        if self.is_embedded {
            return Finding::ok(Area::Versions, format!("Gangway {ours} with its own API, {}", self.version));
        }
        let it = format!("Kubernetes {}", self.version);
        match self.minor {
            Some(minor) if minor >= OLDEST_MINOR => {
                Finding::ok(Area::Versions, format!("{it}, Gangway {ours}"))
            }
            Some(_) => Finding::problem(
                Area::Versions,
                it,
                format!("is too old: the controller needs 1.{OLDEST_MINOR} or later and refuses to start"),
                "gangway run FILE",
            )
            .because("Its Jobs do not say which pods are terminating. The line works on one machine without a cluster."),
            None => Finding::warning(
                Area::Versions,
                it,
                "has a version that cannot be read",
                "kubectl version",
            )
            .because(format!("Gangway {ours} needs Kubernetes 1.{OLDEST_MINOR} or later.")),
        }
    }
}

/// Clocks may differ by so much without a word: answers take a moment, and dates are whole seconds.
const SKEW_SECONDS_MAX: i64 = 2;
/// So much is more than any timeout should bear.
const BAD_SKEW_SECONDS: i64 = 60;

const MEND_CLOCK: &str = "sudo timedatectl set-ntp true";

/// Compares the clock of the API server with that of this machine.
pub(super) async fn clock(client: &Client, clock: &dyn Clock) -> Finding {
    let Ok(request) = Request::get("/version").body(Body::empty()) else {
        return Finding::skipped(Area::Clocks, "the API server could not be asked for its time");
    };
    let sent = clock.now();
    let answer = client.send(request).await;
    let received = clock.now();
    let date = answer.as_ref().ok().and_then(|answer| answer.headers().get(header::DATE)?.to_str().ok());
    match date.and_then(from_http_date) {
        Some(date) => judge_skew(skew_seconds(sent, received, date)),
        None => Finding::skipped(Area::Clocks, "the API server does not say what time it is"),
    }
}

/// How many seconds a date of the API server is ahead of this machine's clock, beyond what the answer took.
fn skew_seconds(sent: Timestamp, received: Timestamp, date: Timestamp) -> i64 {
    let whole = |nanos: i64| nanos / 1_000_000_000;
    let ahead = whole(date.nanos_since(received));
    // The date is that of the second in which it was.
    let behind = whole(sent.nanos_since(date.plus_seconds(1)));
    if ahead > 0 { ahead } else { -behind.max(0) }
}

fn judge_skew(seconds: i64) -> Finding {
    let size = seconds.saturating_abs();
    if size <= SKEW_SECONDS_MAX {
        return Finding::ok(Area::Clocks, "this machine and the API server agree on the time");
    }
    let what = match seconds > 0 {
        true => format!("the API server's clock is {size} s ahead of this machine's"),
        false => format!("the API server's clock is {size} s behind this machine's"),
    };
    let level = if size >= BAD_SKEW_SECONDS { Finding::problem } else { Finding::warning };
    level(Area::Clocks, "", what, MEND_CLOCK).because(
        "Timeouts and backoffs compare times in objects with the clock of the controller's machine. \
         Run the line on the machine whose clock is wrong.",
    )
}

/// The clock of whoever renewed a Lease, by what the API server noted about that.
pub(super) fn judge_leader_clock(holder: &str, seconds_ahead: i64) -> Option<Finding> {
    let size = seconds_ahead.saturating_abs();
    if size <= SKEW_SECONDS_MAX {
        return None;
    }
    let side = if seconds_ahead > 0 { "ahead of" } else { "behind" };
    let what = format!("its clock is {size} s {side} the API server's");
    let level = if size >= BAD_SKEW_SECONDS { Finding::problem } else { Finding::warning };
    let why = "Timeouts and backoffs end by that clock. The election does not suffer: nobody compares the times in a Lease.";
    Some(level(Area::Clocks, holder, what, MEND_CLOCK).because(why))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn server(major: &str, minor: &str, git_version: &str) -> Server {
        let (major, minor, git_version) = (major.to_owned(), minor.to_owned(), git_version.to_owned());
        Server::new(&Info { major, minor, git_version, ..Info::default() })
    }

    #[test]
    fn versions_that_are_too_old_are_a_problem() {
        let table = [
            (server("1", "32", "v1.32.9"), Level::Problem),
            (server("1", "33", "v1.33.0"), Level::Ok),
            (server("1", "37+", "v1.37.1-eks-1"), Level::Ok),
            (server("1", "37", "v1.37.0+gangway"), Level::Ok),
            (server("2", "1", "v2.1.0"), Level::Warning),
        ];
        for (server, level) in table {
            let finding = server.version();
            assert_eq!(finding.level, level, "{server:?}");
            assert_eq!(finding.fix.is_some(), level > Level::Skipped, "{server:?}");
        }
        assert!(server("1", "37", "v1.37.0+gangway").is_embedded);
    }

    #[test]
    fn clocks_agree_within_what_an_answer_takes() {
        let at = |seconds: i64, millis: i64| Timestamp::from_seconds(seconds).plus_millis(millis);
        let table = [
            ("the same second", at(100, 300), at(100, 400), 100, 0),
            ("noted just before a second ended", at(101, 0), at(101, 100), 100, 0),
            ("a slow answer", at(100, 0), at(109, 0), 105, 0),
            ("ahead", at(100, 0), at(100, 100), 105, 4),
            ("behind", at(100, 900), at(101, 0), 90, -9),
        ];
        for (name, sent, received, date, expected) in table {
            assert_eq!(skew_seconds(sent, received, Timestamp::from_seconds(date)), expected, "{name}");
        }
    }

    #[test]
    fn the_more_clocks_differ_the_worse() {
        let table = [(0, Level::Ok), (-2, Level::Ok), (3, Level::Warning), (-59, Level::Warning)];
        for (seconds, level) in table.into_iter().chain([(60, Level::Problem), (i64::MIN, Level::Problem)]) {
            assert_eq!(judge_skew(seconds).level, level, "{seconds}");
            let leader = judge_leader_clock("a", seconds).map_or(Level::Ok, |finding| finding.level);
            assert_eq!(leader, level, "{seconds}");
        }
        assert!(judge_skew(9).what.ends_with("9 s ahead of this machine's"));
        assert!(judge_skew(-9).what.ends_with("9 s behind this machine's"));
    }
}
