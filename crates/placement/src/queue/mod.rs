//! Who is tried next, who waits for a penalty to end, who waits for something to happen.
//!
//! A pod that is known to the queue is in one place:
//!
//! ```text
//!   add ──▶ active ──pop──▶ in flight ──done──▶ decided ──delete──▶ (gone)
//!              ▲               │    └──────failed, also after done──┐
//!   backoff ───┘            rejected                                ▼
//!   over       ◀── backoff ◀───┤ something happened meanwhile    backoff (errors)
//!                     ▲        ▼ nothing did
//!                     └─── unschedulable ── an event that may help, or the flush after five minutes
//! ```
//!
//! Before it becomes active, and before a backoff that may be cut short, the PreEnqueue plugins are asked;
//! one that refuses makes the pod *gated* until an event that this plugin wants to be told of.
//!
//! When nothing is active the queue gives out pods that still back off, unless they do so after an error
//! (KEP-5142): a penalty keeps a pod from being in others' way, and then there are no others. After an error
//! it also spares whoever failed.
//!
//! Nothing here reads a clock. What ends by itself ends at [`Queue::next_deadline`], exactly.
//!
//! | question | file |
//! |---|---|
//! | how long is a penalty, and who is first to be spared it? | `backoff.rs` |
//! | who waits for an event, and whom can one help? | `parked.rs` |
//! | what happened while a pod was tried? | `in_flight.rs` |
//! | how does a pod get from one place to another? | `moves.rs` |
//! | what does news do? | `news.rs` |
//! | what does the end of an attempt do? | `attempts.rs` |
//! | what is counted? | `counts.rs` |
//! | is the state sound? | `check.rs` |

mod attempts;
mod backoff;
mod check;
mod counts;
mod entry;
mod in_flight;
mod moves;
mod news;
mod parked;

use std::collections::BTreeSet;
use std::time::Duration;

use gangway_model::scheduling::SchedulerSettings;
use gangway_model::{Timestamp, Uid};

use crate::framework::{Happening, Help, PluginId, PluginSet};
use crate::ids::{PodId, ShapeId};

pub use check::Violation;
pub use counts::{Counts, QueueName};
pub use entry::{Place, Standing};

use backoff::Backoffs;
use counts::Tally;
use entry::{Entries, Position};
use in_flight::InFlight;
use parked::Parked;

/// Labels under which moves are counted that no event of the cluster caused.
pub mod labels {
    /// A pod came.
    pub const POD_ADDED: &str = "UnscheduledPodAdd";
    /// A pod changed, in no way that has a name.
    pub const POD_UPDATED: &str = "TargetPodUpdate";
    /// An attempt ended without a node.
    pub const ATTEMPT_FAILED: &str = "ScheduleAttemptFailure";
    /// A penalty is over.
    pub const BACKOFF_OVER: &str = "BackoffComplete";
    /// A penalty was cut short because nothing was active.
    pub const POPPED_EARLY: &str = "PopFromBackoffQ";
    /// A plugin asked for it.
    pub const ACTIVATED: &str = "ForceActivate";
    /// It waited too long for an event.
    pub const FLUSHED: &str = "UnschedulableTimeout";
    /// A pod that was woken in place of others went without having been tried.
    pub const TURN_PASSED_ON: &str = "TurnPassedOn";
    /// Under this label pods are counted that are in flight.
    pub const IN_FLIGHT: &str = "PodPopped";
}

/// What distinguishes one queue from another.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Gate `SchedulerPopFromBackoffQ`: whether pods that back off are given out when nothing is active.
    pub pop_from_backoff: bool,
    /// The penalty for the first failure; it doubles with each further one.
    pub initial_backoff: Duration,
    /// The longest penalty; zero turns penalties off.
    pub max_backoff: Duration,
    /// How long a pod waits for an event before it is tried without one; less than a second counts as one.
    pub max_in_unschedulable: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pop_from_backoff: true,
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            max_in_unschedulable: Duration::from_secs(300),
        }
    }
}

/// What the queue knows of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its short name. Free for another pod as soon as this one was deleted, even while an attempt is under way.
    pub pod: PodId,
    /// Its identity: the last word where pods are equal otherwise.
    pub uid: Uid,
    /// What makes it equal to others; events are judged once for all of a shape.
    pub shape: ShapeId,
    /// Higher goes first.
    pub priority: i32,
    /// Older goes first among those that were queued at the same time.
    pub created_at: Timestamp,
}

/// What the queue asks about its pods. The answers may change only between two calls of the queue.
pub trait Judge {
    /// The PreEnqueue plugin that refuses the pod, if any; the one that did so before is asked first.
    fn refuses(&self, pod: PodId, gated_by: Option<PluginId>) -> Option<PluginId>;

    /// The plugins that registered for such an event, those with PreEnqueue included. Where there is none the event
    /// is forgotten at once. Not asked about wildcards: those concern everybody.
    fn told(&self, event: &Happening) -> PluginSet;

    /// Whether the event may help pods of this shape that were rejected by `unschedulable` and kept waiting by
    /// `pending`. Only asked if one of these is told; not asked about wildcards. Of an event with
    /// the resource `TargetPod` the pod itself is the one that is asked about.
    fn helps(&self, event: &Happening, shape: ShapeId, unschedulable: PluginSet, pending: PluginSet) -> Help;
}

/// One try to find a node. Tells a pod's attempt from one of whoever has its short name later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    pod: PodId,
    number: u64,
}

impl Attempt {
    /// The pod that is tried.
    pub fn pod(self) -> PodId {
        self.pod
    }
}

/// A pod that is to be tried now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Popped {
    /// To be answered with exactly one of [`Queue::done`], [`Queue::rejected`], [`Queue::failed`]; after `done`
    /// a failure may still follow.
    pub attempt: Attempt,
    /// The pod.
    pub pod: PodId,
    /// What it asks for, at this moment.
    pub shape: ShapeId,
    /// How often it was tried, with this time.
    pub attempts: u32,
    /// Whether its penalty was cut short.
    pub from_backoff: bool,
    /// Whether only the flush woke it. If it now finds a node, some plugin missed an event.
    pub was_flushed: bool,
    /// When it could be tried for the first time; time behind a gate does not count.
    pub first_active_at: Timestamp,
    /// Who stood in its way the last time.
    pub rejected_by: PluginSet,
}

/// The pods that wait for a node.
#[derive(Debug)]
pub struct Queue {
    settings: Settings,
    entries: Entries,
    active: BTreeSet<Position>,
    backoffs: Backoffs,
    parked: Parked,
    in_flight: InFlight,
    tally: Tally,
    appeared: bool,
}

impl Queue {
    /// A queue without pods.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            entries: Entries::default(),
            active: BTreeSet::new(),
            backoffs: Backoffs::new(settings.pop_from_backoff),
            parked: Parked::default(),
            in_flight: InFlight::default(),
            tally: Tally::default(),
            appeared: false,
        }
    }

    /// When to call [`Queue::advance`] again if nothing else happens before.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        [self.backoffs.next_expiry(), self.parked.next_flush()].into_iter().flatten().min()
    }

    /// Whether a pod became poppable since this was asked last. One that backs off after an error
    /// does so when its penalty is over, not before.
    pub fn take_appeared(&mut self) -> bool {
        std::mem::take(&mut self.appeared)
    }

    /// Whether [`Queue::pop`] has a pod to give without time passing.
    pub fn is_poppable(&self) -> bool {
        !self.active.is_empty() || self.backoffs.first_early().is_some()
    }

    /// Where the pod is, if it is known.
    pub fn place(&self, pod: PodId) -> Option<Place> {
        self.standing(pod).map(|standing| standing.place)
    }

    /// Where the pod is and what it has been through, if it is known.
    pub fn standing(&self, pod: PodId) -> Option<Standing> {
        self.entries.get(pod).and_then(entry::Entry::standing)
    }

    /// The plugins in whose gauge a pod is counted.
    pub(crate) fn blamed(&self, pod: PodId) -> PluginSet {
        self.entries.get(pod).map_or(PluginSet::EMPTY, |entry| entry.blamed)
    }

    /// What is where, and what was counted.
    pub fn counts(&self) -> Counts {
        Counts {
            active: self.active.len(),
            backoff: self.backoffs.len(),
            unschedulable: self.parked.unschedulable_len(),
            gated: self.parked.gated_len(),
            in_flight: self.in_flight.len(),
            in_flight_events: self.in_flight.labels(),
            ..self.tally.counts()
        }
    }
}

impl From<&SchedulerSettings> for Settings {
    fn from(settings: &SchedulerSettings) -> Self {
        Self {
            pop_from_backoff: settings.pop_from_backoff,
            initial_backoff: settings.initial_backoff,
            max_backoff: settings.max_backoff,
            max_in_unschedulable: settings.max_in_unschedulable,
        }
    }
}
