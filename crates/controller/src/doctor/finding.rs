//! One thing that was looked at, what came of it, and what mends it.

use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Not looked at, since there is nothing to look at here.
    Skipped,
    /// It works, and somebody should know.
    Warning,
    /// Something does not work.
    Problem,
}

impl Level {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Versions of the API server and of Gangway.
    Versions,
    /// Clocks.
    Clocks,
    /// The CustomResourceDefinitions.
    Definitions,
    /// What our accounts may do.
    Rights,
    /// Admission policies.
    Policies,
    /// Who leads, and whether another system is at work.
    Election,
    /// The configuration file.
    Configuration,
    /// Flavors and the nodes that they describe.
    Flavors,
    /// ClusterQueues and LocalQueues.
    Queues,
    /// Admission checks.
    Checks,
    /// Workloads.
    Workloads,
}

impl Area {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Versions => "versions",
            Self::Clocks => "clocks",
            Self::Definitions => "definitions",
            Self::Rights => "rights",
            Self::Policies => "policies",
            Self::Election => "election",
            Self::Configuration => "configuration",
            Self::Flavors => "flavors",
            Self::Queues => "queues",
            Self::Checks => "checks",
            Self::Workloads => "workloads",
        }
    }
}

/// One thing that was looked at, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at.
    pub area: Area,
    /// The object or setting; may be empty.
    pub place: String,
    /// What was found.
    pub what: String,
    /// Why that matters, and what there is to know; may be empty.
    pub why: String,
    /// A line for a shell that mends it; only warnings and problems have one.
    pub fix: Option<String>,
}

impl Finding {
    fn new(level: Level, area: Area, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { level, area, place: place.into(), what: what.into(), why: String::new(), fix: None }
    }

    pub(super) fn ok(area: Area, what: impl Into<String>) -> Self {
        Self::new(Level::Ok, area, "", what)
    }

    pub(super) fn skipped(area: Area, what: impl Into<String>) -> Self {
        Self::new(Level::Skipped, area, "", what)
    }

    pub(super) fn warning(
        area: Area,
        place: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { fix: Some(fix.into()), ..Self::new(Level::Warning, area, place, what) }
    }

    pub(super) fn problem(
        area: Area,
        place: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { fix: Some(fix.into()), ..Self::new(Level::Problem, area, place, what) }
    }

    pub(super) fn because(self, why: impl Into<String>) -> Self {
        Self { why: why.into(), ..self }
    }
}

/// `1 Workload`, `2 Workloads`.
pub(super) fn counted(count: usize, one: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {one}s"),
    }
}

/// The first few of many names.
pub(super) fn first_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    match names.len() {
        count if count > SHOWN => format!("{}, … ({count} in all)", names[..SHOWN].join(", ")),
        _ => names.join(", "),
    }
}
