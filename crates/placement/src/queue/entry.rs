//! A pod in the queue: where it is, and what it has been through.

use std::cmp::Reverse;

use gangway_model::{Timestamp, Uid};

use super::parked::GroupKey;
use super::{Arrival, Attempt};
use crate::framework::{PluginId, PluginSet};
use crate::ids::{PodId, ShapeId};

/// Where a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is tried as soon as those before it have been.
    Active,
    /// It serves a penalty.
    Backoff {
        /// When the penalty is over.
        until: Timestamp,
        /// Whether it is one for an error; such a penalty is never cut short.
        error: bool,
    },
    /// It waits for an event that may help it.
    Unschedulable {
        /// Who rejected it.
        unschedulable: PluginSet,
        /// Who keeps it waiting, and lets it go at once when the time has come.
        pending: PluginSet,
        /// When it is tried without any event.
        flush_at: Timestamp,
    },
    /// A PreEnqueue plugin refuses it.
    Gated {
        /// Which one.
        plugin: PluginId,
        /// When the plugin is asked again without any event.
        flush_at: Timestamp,
    },
    /// It is being tried.
    InFlight,
    /// An attempt found a node for it. It comes back only if something fails after all.
    Decided,
}

/// Where a pod is, and what it has been through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where it is.
    pub place: Place,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it was rejected; never forgotten, since penalties grow with it.
    pub rejections: u32,
    /// How many errors in a row ended its attempts.
    pub errors: u32,
    /// Since when it stands where the order of the queue sees it: when it came or its last attempt ended.
    pub queued_at: Timestamp,
    /// When it could be tried for the first time, if it ever could.
    pub first_active_at: Option<Timestamp>,
    /// Whether only the flush woke it.
    pub was_flushed: bool,
}

/// Where a pod is, as the indexes need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// On its way from one place to the next; never seen between two calls.
    Nowhere,
    Active,
    Backoff {
        until: Timestamp,
        error: bool,
    },
    Parked {
        flush_at: Timestamp,
    },
    Gated {
        plugin: PluginId,
        flush_at: Timestamp,
    },
    InFlight,
    Decided,
}

/// The order among pods that may be tried: priority, then time, then identity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    rank: Reverse<i32>,
    queued_at: Timestamp,
    created_at: Timestamp,
    pub(super) uid: Uid,
    pub(super) pod: PodId,
}

impl Position {
    pub(super) fn priority(&self) -> i32 {
        self.rank.0
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) uid: Uid,
    pub(super) shape: ShapeId,
    pub(super) priority: i32,
    pub(super) created_at: Timestamp,
    pub(super) queued_at: Timestamp,
    pub(super) first_active_at: Option<Timestamp>,
    /// When the flush last came by.
    pub(super) flushed_at: Option<Timestamp>,
    /// The number of its last attempt; 0 before the first.
    pub(super) attempt: u64,
    pub(super) attempts: u32,
    pub(super) rejections: u32,
    pub(super) errors: u32,
    pub(super) unschedulable: PluginSet,
    pub(super) pending: PluginSet,
    /// The plugins in whose gauge this pod is counted.
    pub(super) blamed: PluginSet,
    pub(super) was_flushed: bool,
    /// An event that could help only some woke this one and left others of its shape behind. If it goes without
    /// having been judged, the next one is owed the turn.
    pub(super) owes_turn: bool,
    pub(super) spot: Spot,
}

impl Entry {
    pub(super) fn new(arrival: Arrival, now: Timestamp) -> Self {
        Self {
            uid: arrival.uid,
            shape: arrival.shape,
            priority: arrival.priority,
            created_at: arrival.created_at,
            queued_at: now,
            first_active_at: None,
            flushed_at: None,
            attempt: 0,
            attempts: 0,
            rejections: 0,
            errors: 0,
            unschedulable: PluginSet::EMPTY,
            pending: PluginSet::EMPTY,
            blamed: PluginSet::EMPTY,
            was_flushed: false,
            owes_turn: false,
            spot: Spot::Nowhere,
        }
    }

    /// Takes over what may change in a pod. Only while the pod is in no index: its position changes.
    pub(super) fn replace(&mut self, arrival: Arrival) {
        self.shape = arrival.shape;
        self.priority = arrival.priority;
        self.created_at = arrival.created_at;
    }

    pub(super) fn position(&self, pod: PodId) -> Position {
        Position {
            rank: Reverse(self.priority),
            queued_at: self.queued_at,
            created_at: self.created_at,
            uid: self.uid.clone(),
            pod,
        }
    }

    pub(super) fn group(&self) -> GroupKey {
        GroupKey { shape: self.shape, unschedulable: self.unschedulable, pending: self.pending }
    }

    pub(super) fn rejectors(&self) -> PluginSet {
        self.unschedulable.union(self.pending)
    }

    pub(super) fn gated_by(&self) -> Option<PluginId> {
        match self.spot {
            Spot::Gated { plugin, .. } => Some(plugin),
            _ => None,
        }
    }

    pub(super) fn standing(&self) -> Option<Standing> {
        let place = match self.spot {
            Spot::Nowhere => return None,
            Spot::Active => Place::Active,
            Spot::Backoff { until, error } => Place::Backoff { until, error },
            Spot::Parked { flush_at } => {
                Place::Unschedulable { unschedulable: self.unschedulable, pending: self.pending, flush_at }
            }
            Spot::Gated { plugin, flush_at } => Place::Gated { plugin, flush_at },
            Spot::InFlight => Place::InFlight,
            Spot::Decided => Place::Decided,
        };
        Some(Standing {
            place,
            attempts: self.attempts,
            rejections: self.rejections,
            errors: self.errors,
            queued_at: self.queued_at,
            first_active_at: self.first_active_at,
            was_flushed: self.was_flushed,
        })
    }
}

/// The pods by their short names. Pods that are not in the queue leave only a word behind.
#[derive(Debug, Default)]
pub(super) struct Entries(Vec<Option<Box<Entry>>>);

impl Entries {
    pub(super) fn get(&self, pod: PodId) -> Option<&Entry> {
        self.0.get(pod.index())?.as_deref()
    }

    pub(super) fn get_mut(&mut self, pod: PodId) -> Option<&mut Entry> {
        self.0.get_mut(pod.index())?.as_deref_mut()
    }

    /// The pod of this attempt, unless it was deleted or has been tried again since.
    pub(super) fn tried_mut(&mut self, attempt: Attempt) -> Option<&mut Entry> {
        self.get_mut(attempt.pod).filter(|entry| {
            entry.attempt == attempt.number && matches!(entry.spot, Spot::InFlight | Spot::Decided)
        })
    }

    pub(super) fn insert(&mut self, pod: PodId, entry: Entry) {
        if self.0.len() <= pod.index() {
            self.0.resize_with(pod.index() + 1, || None);
        }
        self.0[pod.index()] = Some(Box::new(entry));
    }

    pub(super) fn remove(&mut self, pod: PodId) {
        if let Some(slot) = self.0.get_mut(pod.index()) {
            *slot = None;
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PodId, &Entry)> {
        (0..).map(PodId).zip(&self.0).filter_map(|(pod, slot)| Some((pod, slot.as_deref()?)))
    }
}
