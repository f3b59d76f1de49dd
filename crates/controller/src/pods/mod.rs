//! The pod scheduler: watches in, bindings out.
//!
//! | question | file |
//! |---|---|
//! | in which order does all of it happen? | `shell.rs` |
//! | what does the scheduler learn of pods, nodes, disruption budgets and what keeps pods together? | `watches.rs`, `records.rs` |
//! | how is a binding written, and what if that fails? | `bindings.rs` |
//! | how are pods removed that have to go for another? | `preemptions.rs` |
//! | how does a pod learn why it waits? | `diagnostics.rs` |
//! | why would it wait if a scheduler looked at it now? | `explanation.rs` |
//! | when is it tried next? | `next_try.rs` |
//! | what is told to people? | `events.rs`; to machines: `metrics.rs` |
//! | how many requests was that? | `counts.rs` |
//!
//! Everything here is one future: dropping it stops it, with whatever was in flight. Starting again costs a few
//! lists; a binding that was in flight is then seen as it ended.

mod bindings;
mod counts;
mod diagnostics;
mod events;
mod explanation;
mod metrics;
mod next_try;
mod preemptions;
mod records;
mod shell;
mod watches;

use std::sync::Arc;

use gangway_model::Clock;
use gangway_model::scheduling::{ProfileSettings, SchedulerSettings};
use kube::Client;
use kube::runtime::watcher;

pub use counts::{BindCounts, BindCountsSnapshot};
pub use explanation::{Condition, ExplainedPod, Turn, explain_pod};
pub use metrics::Metrics;
pub use next_try::{Attempts, Backoff, NextTry};
pub use records::{FamilyObject, budget_record, family_record, node_record, pod_record};

use crate::index::Forbidden;

/// What distinguishes one pod scheduler from another.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whose pods are placed, and how.
    pub settings: SchedulerSettings,
    /// Varies how ties between equally good nodes are broken.
    pub seed: u64,
    /// Where requests are counted.
    pub counts: Arc<BindCounts>,
}

impl Options {
    /// The default settings for pods that ask for one of these schedulers.
    pub fn named(scheduler_names: &[&str]) -> Self {
        let profiles = scheduler_names.iter().map(|name| ProfileSettings::named(name)).collect();
        let settings = SchedulerSettings { profiles, ..SchedulerSettings::default() };
        Self { settings, ..Self::default() }
    }

    /// The same where the API has nothing that tells which pods belong together: then nobody looks for it.
    #[must_use]
    pub fn without_families(mut self) -> Self {
        let profiles = self.settings.profiles.into_iter();
        self.settings.profiles = profiles.map(ProfileSettings::without_default_spread).collect();
        self
    }
}

/// Why the pod scheduler cannot go on.
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
    /// A watch ended, which watches never do.
    #[error("the watch of pods and nodes ended by itself")]
    WatchEnded,
}

impl From<Forbidden> for Error {
    fn from(Forbidden { what, source }: Forbidden) -> Self {
        Self::Forbidden { what, source }
    }
}

/// Places pods until the future is dropped.
///
/// # Errors
///
/// Only if pods or nodes may not be listed at all; any other trouble is waited out.
pub async fn run(client: Client, clock: Arc<dyn Clock>, options: Options) -> Result<(), Error> {
    let counts = Arc::clone(&options.counts);
    let _running = counts.pulse().begin();
    shell::Shell::new(client, clock, options).run().await
}
