//! The pod scheduler: watches in, bindings out.
//!
//! | question | file |
//! |---|---|
//! | what does the scheduler learn of pods and nodes? | `watches.rs`, `records.rs` |
//! | how is a binding written, and what if that fails? | `bindings.rs` |
//! | how does a pod learn why it waits? | `diagnostics.rs` |
//! | how many requests was that? | `counts.rs` |
//!
//! Everything here is one future: dropping it stops it, with whatever was in flight. Starting again costs two
//! lists; a binding that was in flight is then seen as it ended.

mod bindings;
mod counts;
mod diagnostics;
mod records;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use gangway_model::{Clock, NodeName, Timestamp, Uid};
use gangway_placement::{Decision, Event, Scheduler};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::runtime::watcher;

pub use counts::{BindCounts, BindCountsSnapshot};
pub use records::{node_record, pod_record};

use bindings::{Bindings, Report};
use diagnostics::Diagnostics;
use watches::Item;

use crate::index::{Forbidden, Index};

/// What distinguishes one pod scheduler from another.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `schedulerName`s of the pods to place.
    pub scheduler_names: Vec<String>,
    /// Varies how ties between equally good nodes are broken.
    pub seed: u64,
    /// Where requests are counted.
    pub counts: Arc<BindCounts>,
}

impl Default for Options {
    fn default() -> Self {
        Self { scheduler_names: vec!["gangway".to_owned()], seed: 0, counts: Arc::default() }
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
    Shell::new(client, clock, options).run().await
}

struct Shell {
    clock: Arc<dyn Clock>,
    scheduler: Scheduler,
    watches: BoxStream<'static, Vec<Item>>,
    pods: Index<Uid>,
    nodes: Index<NodeName>,
    synced: bool,
    scheduler_names: Vec<String>,
    bindings: Bindings,
    diagnostics: Diagnostics,
}

impl Shell {
    fn new(client: Client, clock: Arc<dyn Clock>, options: Options) -> Self {
        let Options { scheduler_names, seed, counts } = options;
        let core_options = gangway_placement::Options { scheduler_names: scheduler_names.clone(), seed };
        Self {
            scheduler: Scheduler::new(core_options),
            watches: watches::watch(&client),
            pods: Index::new("watching pods"),
            nodes: Index::new("watching nodes"),
            synced: false,
            scheduler_names,
            bindings: Bindings::new(client.clone(), Arc::clone(&counts)),
            diagnostics: Diagnostics::new(client, Arc::clone(&clock), counts),
            clock,
        }
    }

    async fn run(mut self) -> Result<(), Error> {
        loop {
            self.decide();
            let deadline = self.scheduler.next_deadline();
            tokio::select! {
                biased;
                Some(report) = self.bindings.next(), if !self.bindings.is_empty() => self.take_report(report),
                items = self.watches.next() => self.take_items(items.ok_or(Error::WatchEnded)?)?,
                () = sleep_until(self.clock.as_ref(), deadline) => {}
                () = self.diagnostics.step() => {}
            }
        }
    }

    /// Sends off whatever may be done now.
    fn decide(&mut self) {
        loop {
            let decisions = self.scheduler.next(self.clock.now(), self.bindings.free_slots());
            if decisions.is_empty() {
                return;
            }
            for decision in decisions {
                match decision {
                    Decision::Bind { id, pod, node } => {
                        self.diagnostics.supersede(&pod.uid);
                        self.bindings.send(id, pod, node);
                    }
                    Decision::Unschedulable { pod, reason } => self.diagnostics.tell(pod, reason.to_string()),
                }
            }
        }
    }

    fn take_items(&mut self, items: Vec<Item>) -> Result<(), Error> {
        for item in items {
            let events = match item {
                Item::Pod(item) => {
                    if let Ok(event) = item.as_ref() {
                        self.note_status(event);
                    }
                    watches::events(&mut self.pods, *item)?
                }
                Item::Node(item) => watches::events(&mut self.nodes, *item)?,
            };
            for event in events {
                self.apply(event);
            }
        }
        if !self.synced && self.pods.is_complete() && self.nodes.is_complete() {
            self.synced = true;
            self.apply(Event::Synced);
        }
        Ok(())
    }

    /// Conditions are no business of the scheduler, but whoever writes one must know the others.
    fn note_status(&mut self, event: &watcher::Event<Pod>) {
        match event {
            watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => {
                let asked = pod.spec.as_ref().map(records::scheduler_name);
                if self.scheduler_names.iter().any(|ours| asked == Some(ours)) {
                    self.diagnostics.observe(pod);
                }
            }
            watcher::Event::Delete(pod) => {
                if let Some(uid) = pod.metadata.uid.as_deref() {
                    self.diagnostics.forget(&uid.into());
                }
            }
            watcher::Event::Init | watcher::Event::InitDone => {}
        }
    }

    fn take_report(&mut self, report: Report) {
        if let Some(pod) = &report.observed {
            let record = pod_record(pod);
            if self.pods.answered(&record.uid) {
                self.apply(Event::PodApplied(record));
            }
        }
        self.apply(Event::Outcome(report.id, report.outcome));
    }

    /// Whether something appeared needs no answer here: the loop asks after every piece of news.
    fn apply(&mut self, event: Event) {
        if let Event::PodDeleted(uid) = &event {
            self.diagnostics.forget(uid);
        }
        self.scheduler.apply(event, self.clock.now());
    }
}

async fn sleep_until(clock: &dyn Clock, deadline: Option<Timestamp>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    let nanos = u64::try_from(deadline.nanos_since(clock.now())).unwrap_or(0);
    // At least a millisecond, the resolution of timers, so that a clock that lags behind cannot make us spin.
    tokio::time::sleep(Duration::from_nanos(nanos).max(Duration::from_millis(1))).await;
}
