//! Timestamps of the model and of the API.

use gangway_model::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

/// A time as objects store it: whole seconds.
pub fn to_api(time: Timestamp) -> Time {
    Time(to_jiff(time.whole_second()))
}

/// A time with its fraction, for leases and events.
pub fn to_api_micro(time: Timestamp) -> MicroTime {
    MicroTime(to_jiff(time))
}

/// The time that an object stores.
pub fn from_api(time: &Time) -> Timestamp {
    from_jiff(time.0)
}

/// The time in the text of RFC 3339, in whole seconds and UTC.
pub fn to_rfc3339(time: Timestamp) -> String {
    to_jiff(time.whole_second()).to_string()
}

/// Reads a text of RFC 3339.
pub fn from_rfc3339(text: &str) -> Option<Timestamp> {
    text.parse().ok().map(from_jiff)
}

/// Reads the time in the header of an HTTP answer, `Tue, 14 Nov 2023 22:13:20 GMT`.
pub fn from_http_date(text: &str) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::parse(text).ok()?;
    Some(from_jiff(zoned.timestamp()))
}

/// The whole seconds of a length of time as the reference writes it, `1m30s`; a part of a second counts as a whole one.
pub fn seconds_of(text: &str) -> Result<i64, String> {
    let parsed: Option<jiff::SignedDuration> = text.parse().ok().filter(|_| !text.trim().is_empty());
    let Some(length) = parsed.filter(|length| !length.is_negative()) else {
        return Err(format!("{text:?} is not a length of time such as \"90s\" or \"1h30m\""));
    };
    Ok(length.as_secs().saturating_add(i64::from(length.subsec_nanos() > 0)))
}

/// Times that neither side can hold become the earliest or latest one that it can.
fn to_jiff(time: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(time.as_nanos())).unwrap_or(if time < Timestamp::EPOCH {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    })
}

fn from_jiff(time: jiff::Timestamp) -> Timestamp {
    let nanos = time.as_nanosecond();
    Timestamp::from_nanos(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_back_in_whole_seconds() {
        let time = Timestamp::from_seconds(1_700_000_000).plus_millis(250);
        assert_eq!(from_api(&to_api(time)), time.whole_second());
        assert_eq!(to_rfc3339(time), "2023-11-14T22:13:20Z");
        assert_eq!(from_rfc3339("2023-11-14T22:13:20Z"), Some(time.whole_second()));
        assert_eq!(from_rfc3339("2023-11-14T23:13:20.25+01:00"), Some(time));
        assert_eq!(from_rfc3339("yesterday"), None);
    }

    #[test]
    fn the_date_of_an_answer_is_read() {
        let at = Timestamp::from_seconds(1_700_000_000);
        assert_eq!(from_http_date("Tue, 14 Nov 2023 22:13:20 GMT"), Some(at));
        assert_eq!(from_http_date("2023-11-14T22:13:20Z"), None);
    }

    #[test]
    fn lengths_of_time_are_read_as_whole_seconds() {
        let table = [("90s", 90), ("1h30m", 5400), ("0s", 0), ("1500ms", 2), ("1.5h", 5400)];
        for (text, seconds) in table {
            assert_eq!(seconds_of(text), Ok(seconds), "{text}");
        }
        for text in ["", "soon", "-5m", "5"] {
            assert!(
                seconds_of(text).is_err_and(|message| message.contains("is not a length of time")),
                "{text}"
            );
        }
    }

    #[test]
    fn the_ends_of_time_do_not_wrap() {
        for time in [Timestamp::from_nanos(i64::MAX), Timestamp::from_nanos(i64::MIN)] {
            assert_eq!(from_api(&to_api(time)), time.whole_second());
        }
        assert_eq!(from_rfc3339("9000-01-01T00:00:00Z"), Some(Timestamp::from_nanos(i64::MAX)));
    }
}
