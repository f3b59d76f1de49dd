//! What news does: pods that come, change and go, events, and time.

use gangway_model::{Timestamp, Uid};

use super::entry::{Entry, Spot};
use super::moves::{Cause, Strategy};
use super::parked::GroupKey;
use super::{Arrival, Judge, Queue, labels};
use crate::framework::{Actions, Change, ClusterEvent, Happening, Help, PluginId, PluginSet, Resource};
use crate::ids::PodId;

impl Queue {
    /// A pod came. One that is known already is updated.
    pub fn add(&mut self, arrival: Arrival, now: Timestamp, judge: &impl Judge) {
        if self.entries.get(arrival.pod).is_some() {
            return self.update(arrival, &[], now, judge);
        }
        let pod = arrival.pod;
        self.entries.insert(pod, Entry::new(arrival, now));
        self.activate_asking(pod, Cause { label: labels::POD_ADDED, now, judge });
    }

    /// A pod changed; `events` say how, seen by the pod itself. One that waits is tried if that may help it. One that is
    /// to be tried keeps its place, unless a PreEnqueue plugin refuses it now: nothing that is refused is popped.
    pub fn update(&mut self, arrival: Arrival, events: &[Happening], now: Timestamp, judge: &impl Judge) {
        let pod = arrival.pod;
        let Some(entry) = self.entries.get(pod) else { return self.add(arrival, now, judge) };
        if entry.uid != arrival.uid {
            // Somebody else under the same short name.
            self.delete(pod, now, judge);
            return self.add(arrival, now, judge);
        }
        if entry.shape != arrival.shape {
            self.give_turn_up(pod, now, judge);
        }
        let spot = self.detach(pod);
        if let Some(entry) = self.entries.get_mut(pod) {
            entry.replace(arrival);
        }
        self.reattach(pod, spot);
        match spot {
            Spot::Active => self.ask_again(pod, events, now, judge),
            Spot::Backoff { .. } if self.settings.pop_from_backoff => self.ask_again(pod, events, now, judge),
            Spot::InFlight | Spot::Parked { .. } | Spot::Gated { .. } => {
                for event in events {
                    self.tell(pod, event, told(event, judge), now, judge);
                }
            }
            Spot::Backoff { .. } | Spot::Decided | Spot::Nowhere => {}
        }
    }

    /// A pod is gone, or has a node. An attempt that is under way for it still has to be ended.
    pub fn delete(&mut self, pod: PodId, now: Timestamp, judge: &impl Judge) {
        self.detach(pod);
        let Some(entry) = self.entries.get(pod) else { return };
        let (owes_turn, shape) = (entry.owes_turn, entry.shape);
        self.tally.blame(entry.blamed, PluginSet::EMPTY);
        self.entries.remove(pod);
        if owes_turn {
            self.pass_turn_on(shape, now, judge);
        }
    }

    /// Something happened that may help pods that wait, or that are being tried.
    pub fn happened(&mut self, event: &Happening, now: Timestamp, judge: &impl Judge) {
        let told = told(event, judge);
        if told.is_empty() {
            return;
        }
        if let Some(target) = target(event) {
            let found = self.entries.iter().find(|(_, entry)| entry.uid == *target).map(|(pod, _)| pod);
            return found.map_or((), |pod| self.tell(pod, event, told, now, judge));
        }
        let cause = Cause { label: event.label, now, judge };
        for pod in self.parked.gated_by(told) {
            self.tally.visits += 1;
            self.requeue(pod, Strategy::AfterBackoff, cause);
        }
        for group in self.parked.groups_of(told) {
            let help = self.help(event, told, group, judge);
            self.help_group(group, help, event, cause);
        }
        self.in_flight.keep(event, told, None);
    }

    /// A plugin wants these pods to be tried now, penalty or not.
    pub fn activate(&mut self, pods: &[PodId], now: Timestamp, judge: &impl Judge) {
        let cause = Cause { label: labels::ACTIVATED, now, judge };
        for pod in pods.iter().copied() {
            let Some(entry) = self.entries.get(pod) else { continue };
            match entry.spot {
                Spot::Parked { .. } | Spot::Gated { .. } => self.activate_asking(pod, cause),
                Spot::Backoff { .. } => self.leave_backoff(pod, cause),
                Spot::InFlight => {
                    let event = ClusterEvent { resource: Resource::Wildcard, action: Actions::ALL };
                    let change = Change::Anything(Some(entry.uid.clone()));
                    let event = Happening { event, label: labels::ACTIVATED, change };
                    self.in_flight.keep(&event, everybody(), Some(entry.attempt));
                }
                Spot::Active | Spot::Decided | Spot::Nowhere => {}
            }
        }
    }

    /// Ends the penalties that are over, and tries those that have waited for an event too long.
    pub fn advance(&mut self, now: Timestamp, judge: &impl Judge) {
        let cause = Cause { label: labels::BACKOFF_OVER, now, judge };
        while let Some(pod) = self.backoffs.first_over(now) {
            self.leave_backoff(pod, cause);
        }
        let cause = Cause { label: labels::FLUSHED, now, judge };
        for pod in self.parked.overdue(now) {
            self.tally.visits += 1;
            if let Some(entry) = self.entries.get_mut(pod) {
                entry.was_flushed = true;
                entry.flushed_at = Some(now);
            }
            self.requeue(pod, Strategy::AfterBackoff, cause);
        }
    }

    /// Where penalties may be cut short the PreEnqueue plugins were asked when this one began.
    fn leave_backoff(&mut self, pod: PodId, cause: Cause<'_, impl Judge>) {
        if self.settings.pop_from_backoff {
            self.activate_unasked(pod, cause);
        } else {
            self.activate_asking(pod, cause);
        }
    }

    /// Asks the PreEnqueue plugins about a pod that changed where it could be popped.
    fn ask_again(&mut self, pod: PodId, events: &[Happening], now: Timestamp, judge: &impl Judge) {
        if let Some(plugin) = self.refusal(pod, judge) {
            let label = events.first().map_or(labels::POD_UPDATED, |event| event.label);
            self.gate(pod, plugin, Cause { label, now, judge });
            self.give_turn_up(pod, now, judge);
        }
    }

    /// Tells one pod of an event.
    fn tell(&mut self, pod: PodId, event: &Happening, told: PluginSet, now: Timestamp, judge: &impl Judge) {
        let Some(entry) = self.entries.get(pod) else { return };
        let cause = Cause { label: event.label, now, judge };
        match entry.spot {
            Spot::InFlight if !told.is_empty() => self.in_flight.keep(event, told, Some(entry.attempt)),
            Spot::Gated { plugin, .. } if told.contains(plugin) => {
                self.tally.visits += 1;
                self.requeue(pod, Strategy::AfterBackoff, cause);
            }
            Spot::Parked { .. } => {
                let group = entry.group();
                let strategy = match self.help(event, told, group, judge) {
                    Help::No | Help::AfterBackoff { at_most: 0 } => return,
                    Help::AfterBackoff { .. } => Strategy::AfterBackoff,
                    Help::Immediately => Strategy::Immediately,
                };
                self.tally.visits += 1;
                self.requeue(pod, strategy, cause);
            }
            _ => {}
        }
    }

    /// Whether the event may help the pods of a group.
    fn help(&mut self, event: &Happening, told: PluginSet, group: GroupKey, judge: &impl Judge) -> Help {
        if is_wildcard(event) {
            return Help::AfterBackoff { at_most: usize::MAX };
        }
        if told.intersection(group.rejectors()).is_empty() {
            return Help::No;
        }
        self.tally.hints += 1;
        judge.helps(event, group.shape, group.unschedulable, group.pending)
    }

    /// Moves the pods of a group that the event may help, in their order. Those that still have a penalty to serve do not
    /// count against the limit: they may come too late for what the event offers.
    fn help_group(&mut self, group: GroupKey, help: Help, event: &Happening, cause: Cause<'_, impl Judge>) {
        let (strategy, at_most) = match help {
            Help::No => return,
            Help::AfterBackoff { at_most } => (Strategy::AfterBackoff, at_most),
            Help::Immediately => (Strategy::Immediately, usize::MAX),
        };
        let (mut left, mut last) = (at_most, None);
        while left > 0
            && let Some(position) = self.parked.next_in(group, last.take()).cloned()
        {
            let pod = position.pod;
            if concerns(event, &position.uid, position.priority()) {
                self.tally.visits += 1;
                self.requeue(pod, strategy, cause);
                left -= usize::from(at_most < usize::MAX && self.takes_turn(pod));
            }
            last = Some(position);
        }
    }
}

/// Whether the event can mean this pod. One about a pod itself is for that one alone; one about another pod is for
/// all others: that a pod lost its node must not wake this very pod. Room that was only kept for somebody was there for
/// those of higher priority all the time.
pub(super) fn concerns(event: &Happening, uid: &Uid, priority: i32) -> bool {
    match event.event.resource {
        Resource::AssignedPod | Resource::UnscheduledPod => {
            let highest = event.change.highest_priority();
            subject(event) != Some(uid) && highest.is_none_or(|highest| priority <= highest)
        }
        Resource::TargetPod | Resource::Wildcard | Resource::Node => {
            target(event).is_none_or(|target| target == uid)
        }
    }
}

/// The one pod that the event is for, if it is not for everybody.
fn target(event: &Happening) -> Option<&Uid> {
    match event.event.resource {
        Resource::TargetPod | Resource::Wildcard => subject(event),
        Resource::Node | Resource::AssignedPod | Resource::UnscheduledPod => None,
    }
}

/// The pod that something happened to.
fn subject(event: &Happening) -> Option<&Uid> {
    match &event.change {
        Change::Pod { old, new, .. } => new.as_ref().or(old.as_ref()).map(|pod| &pod.uid),
        Change::Anything(uid) => uid.as_ref(),
        Change::Node { .. } => None,
    }
}

fn is_wildcard(event: &Happening) -> bool {
    event.event.resource == Resource::Wildcard
}

fn everybody() -> PluginSet {
    PluginId::ALL.iter().copied().collect()
}

/// Who is told of the event; of a wildcard, everybody.
fn told(event: &Happening, judge: &impl Judge) -> PluginSet {
    if is_wildcard(event) { everybody() } else { judge.told(event) }
}
