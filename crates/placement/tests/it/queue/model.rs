//! A queue that is slow and obvious: a list of pods, and everything else is found by looking at all of them.
//! It shares no code with the real one.

use std::collections::BTreeMap;

use gangway_model::{Timestamp, Uid};
use gangway_placement::framework::{Change, Happening, Help, PluginId, PluginSet, Resource};
use gangway_placement::ids::{PodId, ShapeId};
use gangway_placement::queue::{Arrival, Counts, Judge, Place, QueueName, Settings, Standing};

use super::judge::Table;
use super::run::Played;

#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    Active,
    Backoff,
    Parked,
    Gated(PluginId),
    Flying,
    Decided,
}

#[derive(Clone, Debug)]
struct Pod {
    arrival: Arrival,
    at: At,
    queued_at: Timestamp,
    first_active_at: Option<Timestamp>,
    flushed_at: Option<Timestamp>,
    was_flushed: bool,
    tries: Vec<usize>,
    rejections: u32,
    errors: u32,
    unschedulable: PluginSet,
    pending: PluginSet,
    blamed: PluginSet,
    stands_in: bool,
}

#[derive(Debug)]
struct Try {
    under_way: bool,
    /// How long the log was when it began.
    log_len: usize,
}

#[derive(Debug)]
struct Logged {
    event: Happening,
    only: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Model {
    settings: Settings,
    pods: Vec<Pod>,
    tries: Vec<Try>,
    /// Everything that ever happened while somebody was in flight.
    log: Vec<Logged>,
    appeared: bool,
    counts: Counts,
    judge: Table,
    now: Timestamp,
}

/// What the model gives out: the pod, its number of attempts, whether early, whether flushed, since when, who rejected it.
pub(super) type Given = (PodId, u32, bool, bool, Timestamp, PluginSet);

impl Model {
    pub(super) fn new(settings: Settings, judge: Table) -> Self {
        Self {
            settings,
            pods: Vec::new(),
            tries: Vec::new(),
            log: Vec::new(),
            appeared: false,
            counts: Counts::default(),
            judge,
            now: Timestamp::EPOCH,
        }
    }

    pub(super) fn play(&mut self, played: &Played, now: Timestamp, judge: &Table) -> Option<Given> {
        self.now = now;
        self.judge.closed.clone_from(&judge.closed);
        if matches!(played, Played::Popped(_)) {
            self.watching(Self::advance);
            return self.pop();
        }
        self.watching(|model| match played.clone() {
            Played::Added(arrival) => model.update(arrival, &[]),
            Played::Updated(arrival, events) => model.update(arrival, &events),
            Played::Deleted(pod) => model.delete(pod),
            Played::Done(number) => model.done(number),
            Played::Rejected(number, unschedulable, pending) => model.end(number, unschedulable, pending),
            Played::Failed(number) => model.end(number, PluginSet::EMPTY, PluginSet::EMPTY),
            Played::Happened(event) => model.happened(&event),
            Played::Activated(pods) => pods.into_iter().for_each(|pod| model.activate(pod)),
            Played::Advanced => model.advance(),
            Played::Popped(_) | Played::Else => {}
        });
        None
    }

    /// Notes whether somebody can be popped that could not be before.
    fn watching(&mut self, act: impl FnOnce(&mut Self)) {
        let poppable = |model: &Self| -> Vec<Uid> {
            let all = model.pods.iter().filter(|pod| model.is_poppable_pod(pod));
            all.map(|pod| pod.arrival.uid.clone()).collect()
        };
        let before = poppable(self);
        act(self);
        self.appeared |= poppable(self).iter().any(|uid| !before.contains(uid));
    }

    fn is_poppable_pod(&self, pod: &Pod) -> bool {
        pod.at == At::Active || self.settings.pop_from_backoff && pod.at == At::Backoff && pod.errors == 0
    }

    fn find(&self, id: PodId) -> Option<usize> {
        self.pods.iter().position(|pod| pod.arrival.pod == id)
    }

    fn expiry(&self, pod: &Pod) -> Timestamp {
        let failures = if pod.errors > 0 { pod.errors } else { pod.rejections };
        let mut penalty = 0;
        for failure in 0..failures {
            penalty =
                if failure == 0 { self.settings.initial_backoff.as_nanos() as i64 } else { penalty * 2 };
            penalty = penalty.min(self.settings.max_backoff.as_nanos() as i64);
        }
        Timestamp::from_nanos(pod.queued_at.as_nanos() + penalty)
    }

    fn flush_at(&self, pod: &Pod) -> Timestamp {
        let since = pod.flushed_at.unwrap_or(pod.queued_at).max(pod.queued_at);
        since.plus_seconds(self.settings.max_in_unschedulable.as_secs() as i64)
    }

    /// The index of the first pod that satisfies this, in the order of the queue.
    fn first(&self, wanted: impl Fn(&Pod) -> bool) -> Option<usize> {
        let key = |index: &usize| {
            let pod = &self.pods[*index];
            (-i64::from(pod.arrival.priority), pod.queued_at, pod.arrival.created_at, pod.arrival.uid.clone())
        };
        (0..self.pods.len()).filter(|index| wanted(&self.pods[*index])).min_by_key(key)
    }

    fn pop(&mut self) -> Option<Given> {
        let mut early = false;
        let mut index = self.first(|pod| pod.at == At::Active);
        if index.is_none() && self.settings.pop_from_backoff {
            early = true;
            let is_poppable = |pod: &Pod| pod.at == At::Backoff && pod.errors == 0;
            let windows =
                self.pods.iter().filter(|pod| is_poppable(pod)).map(|pod| self.expiry(pod).as_seconds());
            let window = windows.min()?;
            index = self.first(|pod| is_poppable(pod) && self.expiry(pod).as_seconds() == window);
        }
        let index = index?;
        if early {
            self.came("PopFromBackoffQ", QueueName::Active);
        }
        self.tries.push(Try { under_way: true, log_len: self.log.len() });
        let (now, number) = (self.now, self.tries.len() - 1);
        let pod = &mut self.pods[index];
        pod.tries.push(number);
        pod.at = At::Flying;
        pod.blamed = PluginSet::EMPTY;
        let since = *pod.first_active_at.get_or_insert(now);
        let rejectors = pod.unschedulable.union(pod.pending);
        Some((pod.arrival.pod, pod.tries.len() as u32, early, pod.was_flushed, since, rejectors))
    }

    fn came(&mut self, label: &'static str, queue: QueueName) {
        *self.counts.incoming.entry((queue, label)).or_default() += 1;
    }

    fn refused(&mut self, index: usize, label: &'static str) -> bool {
        let pod = &self.pods[index];
        let before = if let At::Gated(plugin) = pod.at { Some(plugin) } else { None };
        let Some(plugin) = self.judge.refuses(pod.arrival.pod, before) else { return false };
        if !matches!(pod.at, At::Parked | At::Gated(_)) {
            self.came(label, QueueName::Unschedulable);
        }
        let pod = &mut self.pods[index];
        pod.at = At::Gated(plugin);
        pod.blamed = pod.blamed.with(plugin);
        pod.was_flushed = false;
        true
    }

    fn make_active(&mut self, index: usize, label: &'static str) {
        let now = self.now;
        self.pods[index].at = At::Active;
        self.pods[index].first_active_at.get_or_insert(now);
        self.came(label, QueueName::Active);
    }

    fn try_active(&mut self, index: usize, label: &'static str) {
        if !self.refused(index, label) {
            self.make_active(index, label);
        }
    }

    fn try_again(&mut self, index: usize, label: &'static str) {
        let pod = &self.pods[index];
        if self.expiry(pod) == pod.queued_at || self.now >= self.expiry(pod) {
            self.try_active(index, label);
        } else if !self.settings.pop_from_backoff || !self.refused(index, label) {
            self.pods[index].at = At::Backoff;
            self.came(label, QueueName::Backoff);
        }
    }

    fn leave_backoff(&mut self, index: usize, label: &'static str) {
        if self.settings.pop_from_backoff {
            self.make_active(index, label)
        } else {
            self.try_active(index, label)
        }
    }

    fn pass_on(&mut self, shape: ShapeId) {
        while let Some(index) = self.first(|pod| pod.at == At::Parked && pod.arrival.shape == shape) {
            self.counts.visits += 1;
            self.try_again(index, "TurnPassedOn");
            if self.pods[index].at == At::Active {
                self.pods[index].stands_in = true;
                return;
            }
        }
    }

    fn add(&mut self, arrival: Arrival) {
        self.pods.push(Pod {
            arrival,
            at: At::Flying,
            queued_at: self.now,
            first_active_at: None,
            flushed_at: None,
            was_flushed: false,
            tries: Vec::new(),
            rejections: 0,
            errors: 0,
            unschedulable: PluginSet::EMPTY,
            pending: PluginSet::EMPTY,
            blamed: PluginSet::EMPTY,
            stands_in: false,
        });
        self.try_active(self.pods.len() - 1, "UnscheduledPodAdd");
    }

    fn update(&mut self, arrival: Arrival, events: &[Happening]) {
        let Some(index) = self.find(arrival.pod) else { return self.add(arrival) };
        let old_shape = self.pods[index].arrival.shape;
        if old_shape != arrival.shape && std::mem::take(&mut self.pods[index].stands_in) {
            self.pass_on(old_shape);
        }
        self.pods[index].arrival = arrival;
        let is_asked = match self.pods[index].at {
            At::Active => true,
            At::Backoff => self.settings.pop_from_backoff,
            At::Parked | At::Gated(_) | At::Flying => {
                events.iter().for_each(|event| self.tell(index, event));
                false
            }
            At::Decided => false,
        };
        let label = events.first().map_or("TargetPodUpdate", |event| event.label);
        if is_asked && self.refused(index, label) && std::mem::take(&mut self.pods[index].stands_in) {
            self.pass_on(self.pods[index].arrival.shape);
        }
    }

    fn tell(&mut self, index: usize, event: &Happening) {
        let wildcard = event.event.resource == Resource::Wildcard;
        let told = self.judge.told(event);
        match self.pods[index].at {
            At::Flying if wildcard || !told.is_empty() => {
                let only = self.pods[index].tries.last().copied();
                self.log.push(Logged { event: event.clone(), only });
            }
            At::Gated(plugin) if wildcard || told.contains(plugin) => {
                self.counts.visits += 1;
                self.try_again(index, event.label);
            }
            At::Parked => {
                let pod = self.pods[index].clone();
                let help = self.ask(event, pod.arrival.shape, pod.unschedulable, pod.pending);
                self.take_help(index, help, event.label);
            }
            _ => {}
        }
    }

    /// Moves the pod if that is some help; tells whether it became active.
    fn take_help(&mut self, index: usize, help: Help, label: &'static str) -> bool {
        match help {
            Help::No | Help::AfterBackoff { at_most: 0 } => return false,
            Help::AfterBackoff { .. } => self.try_again(index, label),
            Help::Immediately => self.try_active(index, label),
        }
        self.counts.visits += 1;
        self.pods[index].at == At::Active
    }

    fn ask(
        &mut self,
        event: &Happening,
        shape: ShapeId,
        unschedulable: PluginSet,
        pending: PluginSet,
    ) -> Help {
        if event.event.resource == Resource::Wildcard {
            return Help::AfterBackoff { at_most: usize::MAX };
        }
        if self.judge.told(event).intersection(unschedulable.union(pending)).is_empty() {
            return Help::No;
        }
        self.counts.hints += 1;
        self.judge.helps(event, shape, unschedulable, pending)
    }

    fn delete(&mut self, id: PodId) {
        let Some(index) = self.find(id) else { return };
        let pod = self.pods.remove(index);
        if pod.stands_in {
            self.pass_on(pod.arrival.shape);
        }
    }

    fn done(&mut self, number: usize) {
        self.tries[number].under_way = false;
        let pod = self.pods.iter_mut().find(|pod| pod.at == At::Flying && pod.tries.last() == Some(&number));
        if let Some(pod) = pod {
            pod.at = At::Decided;
            pod.stands_in = false;
            self.counts.rescued_by_flush += u64::from(pod.was_flushed);
        }
    }

    fn end(&mut self, number: usize, unschedulable: PluginSet, pending: PluginSet) {
        let was_under_way = std::mem::take(&mut self.tries[number].under_way);
        let is_it =
            |pod: &Pod| matches!(pod.at, At::Flying | At::Decided) && pod.tries.last() == Some(&number);
        let Some(index) = self.pods.iter().position(is_it) else { return };
        let is_error = unschedulable.is_empty() && pending.is_empty();
        let now = self.now;
        let pod = &mut self.pods[index];
        (pod.unschedulable, pod.pending, pod.blamed) = (unschedulable, pending, unschedulable.union(pending));
        (pod.queued_at, pod.was_flushed, pod.flushed_at) = (now, false, None);
        let stood_in = std::mem::take(&mut pod.stands_in);
        let label = "ScheduleAttemptFailure";
        if is_error {
            pod.errors += 1;
            let shape = pod.arrival.shape;
            self.try_again(index, label);
            if stood_in {
                self.pass_on(shape);
            }
            return;
        }
        pod.rejections += 1;
        pod.errors = 0;
        match if was_under_way { self.best_since(number, index) } else { Some(false) } {
            Some(true) => self.try_active(index, label),
            Some(false) => self.try_again(index, label),
            None => {
                self.pods[index].at = At::Parked;
                self.came(label, QueueName::Unschedulable);
            }
        }
    }

    /// Whether something since the beginning of the try helps, and whether at once.
    fn best_since(&mut self, number: usize, index: usize) -> Option<bool> {
        let pod = self.pods[index].clone();
        let mut best = None;
        for entry in self.tries[number].log_len..self.log.len() {
            let logged = &self.log[entry];
            if logged.only.is_some_and(|only| only != number) || !is_for(&logged.event, &pod.arrival) {
                continue;
            }
            let event = logged.event.clone();
            match self.ask(&event, pod.arrival.shape, pod.unschedulable, pod.pending) {
                Help::Immediately => return Some(true),
                Help::No | Help::AfterBackoff { at_most: 0 } => {}
                Help::AfterBackoff { .. } => best = Some(false),
            }
            if best.is_some() && pod.pending.is_empty() {
                break;
            }
        }
        best
    }

    fn happened(&mut self, event: &Happening) {
        let wildcard = event.event.resource == Resource::Wildcard;
        let told = self.judge.told(event);
        if let (true, Change::Anything(Some(uid))) = (wildcard, &event.change) {
            if let Some(index) = self.pods.iter().position(|pod| pod.arrival.uid == *uid) {
                self.tell(index, event);
            }
            return;
        }
        if !wildcard && told.is_empty() {
            return;
        }
        let parked: Vec<usize> = (0..self.pods.len()).filter(|i| self.pods[*i].at == At::Parked).collect();
        for index in 0..self.pods.len() {
            if let At::Gated(plugin) = self.pods[index].at
                && (wildcard || told.contains(plugin))
            {
                self.counts.visits += 1;
                self.try_again(index, event.label);
            }
        }
        let kind = |pod: &Pod| (pod.arrival.shape, pod.unschedulable, pod.pending);
        let mut kinds: Vec<_> = parked.iter().map(|index| kind(&self.pods[*index])).collect();
        kinds.sort();
        kinds.dedup();
        for (shape, unschedulable, pending) in kinds {
            let help = self.ask(event, shape, unschedulable, pending);
            let mut left = if let Help::AfterBackoff { at_most } = help { at_most } else { usize::MAX };
            while left > 0 && help != Help::No {
                let is_next = |pod: &Pod| {
                    let is_like = kind(pod) == (shape, unschedulable, pending);
                    pod.at == At::Parked && is_like && is_for(event, &pod.arrival)
                };
                let Some(index) = self.first(is_next) else { break };
                if self.take_help(index, help, event.label) && left < usize::MAX {
                    self.pods[index].stands_in = true;
                    left -= 1;
                }
            }
        }
        if self.tries.iter().any(|one| one.under_way) {
            self.log.push(Logged { event: event.clone(), only: None });
        }
    }

    fn activate(&mut self, id: PodId) {
        let Some(index) = self.find(id) else { return };
        match self.pods[index].at {
            At::Parked | At::Gated(_) => self.try_active(index, "ForceActivate"),
            At::Backoff => self.leave_backoff(index, "ForceActivate"),
            At::Flying => {
                let uid = self.pods[index].arrival.uid.clone();
                let event = Happening { label: "ForceActivate", ..super::judge::anything(Some(uid)) };
                self.tell(index, &event);
            }
            At::Active | At::Decided => {}
        }
    }

    fn advance(&mut self) {
        for index in 0..self.pods.len() {
            if self.pods[index].at == At::Backoff && self.expiry(&self.pods[index]) <= self.now {
                self.leave_backoff(index, "BackoffComplete");
            }
        }
        for index in 0..self.pods.len() {
            let pod = &self.pods[index];
            if matches!(pod.at, At::Parked | At::Gated(_)) && self.flush_at(pod) <= self.now {
                self.counts.visits += 1;
                self.pods[index].was_flushed = true;
                self.pods[index].flushed_at = Some(self.now);
                self.try_again(index, "UnschedulableTimeout");
            }
        }
    }

    pub(super) fn take_appeared(&mut self) -> bool {
        std::mem::take(&mut self.appeared)
    }

    pub(super) fn is_poppable(&self) -> bool {
        self.pods.iter().any(|pod| self.is_poppable_pod(pod))
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        let of = |pod: &Pod| match pod.at {
            At::Backoff => Some(self.expiry(pod)),
            At::Parked | At::Gated(_) => Some(self.flush_at(pod)),
            At::Active | At::Flying | At::Decided => None,
        };
        self.pods.iter().filter_map(of).min()
    }

    pub(super) fn standing(&self, id: PodId) -> Option<Standing> {
        let pod = &self.pods[self.find(id)?];
        let place = match pod.at {
            At::Active => Place::Active,
            At::Backoff => Place::Backoff { until: self.expiry(pod), error: pod.errors > 0 },
            At::Parked => Place::Unschedulable {
                unschedulable: pod.unschedulable,
                pending: pod.pending,
                flush_at: self.flush_at(pod),
            },
            At::Gated(plugin) => Place::Gated { plugin, flush_at: self.flush_at(pod) },
            At::Flying => Place::InFlight,
            At::Decided => Place::Decided,
        };
        Some(Standing {
            place,
            attempts: pod.tries.len() as u32,
            rejections: pod.rejections,
            errors: pod.errors,
            queued_at: pod.queued_at,
            first_active_at: pod.first_active_at,
            was_flushed: pod.was_flushed,
        })
    }

    pub(super) fn counts(&self) -> Counts {
        let count = |is_there: fn(At) -> bool| self.pods.iter().filter(|pod| is_there(pod.at)).count();
        let flying = self.tries.iter().filter(|one| one.under_way).count();
        let oldest = self.tries.iter().find(|one| one.under_way).map_or(self.log.len(), |one| one.log_len);
        let mut events: BTreeMap<&'static str, usize> = BTreeMap::new();
        for logged in &self.log[oldest..] {
            *events.entry(logged.event.label).or_default() += 1;
        }
        if flying > 0 {
            events.insert("PodPopped", flying);
        }
        let mut blamed: BTreeMap<PluginId, usize> = BTreeMap::new();
        for plugin in self.pods.iter().flat_map(|pod| pod.blamed.iter()) {
            *blamed.entry(plugin).or_default() += 1;
        }
        Counts {
            active: count(|at| at == At::Active),
            backoff: count(|at| at == At::Backoff),
            unschedulable: count(|at| at == At::Parked),
            gated: count(|at| matches!(at, At::Gated(_))),
            in_flight: flying,
            in_flight_events: events,
            unschedulable_by_plugin: blamed,
            ..self.counts.clone()
        }
    }
}

fn is_for(event: &Happening, pod: &Arrival) -> bool {
    // What was kept for somebody was kept from those who matter no more.
    if let Change::Pod { old: Some(before), nominated: true, .. } = &event.change
        && pod.priority > before.priority
    {
        return false;
    }
    let uid = &pod.uid;
    let about = match &event.change {
        Change::Pod { old, new, .. } => [new, old].into_iter().flatten().next().map(|pod| pod.uid.clone()),
        Change::Anything(uid) => uid.clone(),
        Change::Node { .. } => None,
    };
    let is_self = about.as_ref().is_none_or(|about| about == uid);
    match event.event.resource {
        Resource::AssignedPod => about.as_ref() != Some(uid),
        _ => is_self,
    }
}
