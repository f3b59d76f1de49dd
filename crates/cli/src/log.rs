//! What is logged, and how: to standard error, as text or as a line of JSON each, at levels that can be changed meanwhile.
//!
//! A level alone, such as `debug`, is meant for Gangway's own parts. What libraries below them log may hold what nobody should
//! see, such as the headers of requests; it has to be asked for by name.

use std::fmt;
use std::io::IsTerminal;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

use crate::exit::Failure;

/// What is logged unless somebody asks for more. The client library logs every refusal of the API server, which we say
/// ourselves, in words for people.
const USUAL: &str = "warn,kube_client=off";

/// How a program that stays logs.
#[derive(Clone, Debug, Default, Args)]
pub struct LogArgs {
    /// How log lines look.
    #[arg(long, value_enum, default_value_t, help_heading = "Logs")]
    log_format: LogFormat,
    /// What is logged: error, warn, info, debug, trace, or directives such as warn,gangway_controller=debug.
    #[arg(long, value_name = "LEVEL", help_heading = "Logs")]
    log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

static IS_JSON: AtomicBool = AtomicBool::new(false);
static LEVELS: OnceLock<reload::Handle<EnvFilter, Registry>> = OnceLock::new();

/// Logs from now on, as the environment variable `GANGWAY_LOG` says.
pub fn begin() {
    let asked = std::env::var("GANGWAY_LOG").unwrap_or_default();
    let filter = filter(&asked).unwrap_or_else(|_| EnvFilter::new(USUAL));
    let (filter, handle) = reload::Layer::new(filter);
    let ansi = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
    tracing_subscriber::registry().with(filter).with(lines.event_format(Lines::default())).init();
    // Nobody begins twice.
    let _ = LEVELS.set(handle);
}

impl LogArgs {
    /// Logs from now on as the flags say.
    pub fn apply(&self) -> Result<(), Failure> {
        IS_JSON.store(self.log_format == LogFormat::Json, Ordering::Relaxed);
        let Some(level) = &self.log_level else { return Ok(()) };
        set(level).map_err(|message| Failure::bad_input(format!("--log-level: {message}")))
    }
}

/// What a level or directives come to.
fn filter(text: &str) -> Result<EnvFilter, String> {
    let directives = match (text.trim(), text.trim().parse::<LevelFilter>()) {
        ("", _) => USUAL.to_owned(),
        (_, Ok(level)) => format!("{USUAL},gangway={level}"),
        (directives, Err(_)) if directives.contains('=') => directives.to_owned(),
        (other, Err(_)) => {
            let levels =
                "error, warn, info, debug, trace or directives such as warn,gangway_controller=debug";
            return Err(format!("{other:?} is not one of {levels}"));
        }
    };
    EnvFilter::try_new(&directives).map_err(|error| format!("{text:?}: {error}"))
}

/// Changes what is logged.
pub fn set(text: &str) -> Result<(), String> {
    let filter = filter(text)?;
    let Some(levels) = LEVELS.get() else { return Ok(()) };
    levels.reload(filter).map_err(|error| error.to_string())
}

/// Says something that everybody should know who started a program, whatever is logged.
pub fn say(program: &str, text: &str) {
    if IS_JSON.load(Ordering::Relaxed) {
        eprintln!("{}", json!({"time": now(), "level": "info", "target": program, "message": text}));
    } else {
        eprintln!("gangway {program}: {text}");
    }
}

fn now() -> String {
    let mut text = String::new();
    // A time that cannot be told is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Lines as they are asked for.
#[derive(Default)]
struct Lines(Format<Full>);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if !IS_JSON.load(Ordering::Relaxed) {
            return self.0.format_event(context, writer, event);
        }
        writeln!(writer, "{}", Value::Object(json_of(event)))
    }
}

fn json_of(event: &Event<'_>) -> Map<String, Value> {
    let metadata = event.metadata();
    let mut fields = Fields(Map::new());
    fields.0.insert("time".to_owned(), now().into());
    fields.0.insert("level".to_owned(), metadata.level().as_str().to_lowercase().into());
    fields.0.insert("target".to_owned(), metadata.target().into());
    event.record(&mut fields);
    fields.0
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_alone_is_meant_for_our_own_parts() {
        let of = |text: &str| filter(text).map(|filter| filter.to_string());
        assert!(
            of("debug")
                .is_ok_and(|filter| filter.contains("gangway=debug") && filter.contains("kube_client=off"))
        );
        assert!(of("").is_ok_and(|filter| !filter.contains("gangway")));
        assert_eq!(of("warn,hyper=info").map(|filter| filter.contains("hyper=info")), Ok(true));
        assert!(of("loud").is_err_and(|message| message.contains("is not one of")));
        assert!(of("gangway=loud").is_err());
    }

    #[test]
    fn the_time_is_told_in_full() {
        assert!(now().ends_with('Z') && now().contains('T'), "{}", now());
    }
}
