//! Workload admission: watches in, decisions out.
//!
//! | question | file |
//! |---|---|
//! | what does the engine learn, and when does it decide? | `shell.rs`, `watches.rs`, `news.rs`, `objects.rs` |
//! | what happens before it leads, and when its turn comes? | `succession.rs` |
//! | what is a Job's Workload, and what does the Job need next? | `jobs/` |
//! | when is the quota of a deleted Job free? | `pods_left.rs` |
//! | how is a write sent, and what if that fails? | `requests.rs`, `lanes.rs` |
//! | what do queues say of themselves, and which Events are there? | `diagnostics.rs`, `events.rs`, `landed.rs`, `settings.rs` |
//! | how many requests was that? | `counts.rs`; what happened to Workloads, in numbers: `metrics.rs`; how things stand: `gauges.rs` |
//! | what would the engine say of a cluster as it is now? | `snapshot.rs` |
//!
//! Everything here is one future: dropping it stops it, with whatever was in flight. Starting again costs one
//! list per kind; a write that was in flight is then seen as it ended.

mod counts;
mod diagnostics;
mod doctor;
mod events;
mod finalizers;
mod gauges;
mod jobs;
mod landed;
mod lanes;
mod metrics;
mod news;
mod objects;
mod pods_left;
mod requests;
mod settings;
mod shell;
mod snapshot;
mod succession;
mod unsupported;
mod watches;

use std::sync::Arc;

use gangway_admission::Engine;
use gangway_api::config::Configuration;
use gangway_model::Clock;
use gangway_model::planted::Planted;
use kube::Client;
use kube::runtime::watcher;

use crate::election::Term;
use crate::index::Forbidden;
use crate::pace::Pace;

pub use crate::pace::Lane;
pub use counts::{Counts, RequestCounts};
pub use snapshot::{Explained, Snapshot};

/// What the workload controller needs to know.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The configuration file.
    pub config: Configuration,
    /// Where requests are counted.
    pub counts: Arc<RequestCounts>,
    /// A mistake that it is to make.
    pub planted: Planted,
    /// How requests are sent.
    pub pace: Arc<Pace>,
    /// When it leads; until then it only listens.
    pub term: Term,
    /// Is shown the engine whenever nothing is under way.
    pub onlooker: Option<Onlooker>,
}

/// Somebody who is shown the engine.
#[derive(Clone)]
pub struct Onlooker(pub Arc<dyn Fn(&Engine) + Send + Sync>);

impl std::fmt::Debug for Onlooker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Onlooker")
    }
}

/// Why the workload controller cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first list was refused for lack of rights.
    #[error("{what} is not allowed")]
    Forbidden {
        /// What was tried.
        what: &'static str,
        /// What the API server said.
        source: Box<watcher::Error>,
    },
    /// A list that a snapshot needs failed.
    #[error("cannot list {what}")]
    List {
        /// What was listed.
        what: &'static str,
        /// What went wrong.
        source: Box<kube::Error>,
    },
    /// A watch ended, which watches never do.
    #[error("a watch ended by itself")]
    WatchEnded,
}

impl From<Forbidden> for Error {
    fn from(Forbidden { what, source }: Forbidden) -> Self {
        Self::Forbidden { what, source }
    }
}

/// Admits workloads until the future is dropped.
///
/// # Errors
///
/// Only if something may not be listed at all; any other trouble is waited out.
pub async fn run(client: Client, clock: Arc<dyn Clock>, options: Options) -> Result<(), Error> {
    let counts = Arc::clone(&options.counts);
    let _running = counts.pulse().begin();
    Box::pin(shell::Shell::new(client, clock, options).run()).await
}
