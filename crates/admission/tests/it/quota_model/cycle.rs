//! One pass: a head per queue is evaluated against the same state, then they are processed in order.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gangway_model::{Amount, ClusterQueueName, Timestamp, Uid};

use super::flavors::{Assignment, Mode, Scan};
use super::preemption::{Found, Preemptor, Proof};
use super::tree::{Amounts, Booking, Holder, Node, Snapshot};
use super::waiting::{Place, ScanMemory, Told};
use super::{Decided, Hold, Model};

/// A head and what its evaluation gave.
struct Entry {
    uid: Uid,
    queue: ClusterQueueName,
    assignment: Assignment,
    found: Found,
    /// What it saw.
    view: Snapshot,
    /// Preemptors of less priority in its own queue whose room it takes.
    beats: BTreeSet<Uid>,
}

impl Entry {
    fn succeeds(&self) -> bool {
        self.assignment.mode == Mode::Fit || !self.found.victims.is_empty()
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Admitted,
    VictimsChosen,
    /// It lost to an entry before it.
    Skipped {
        /// They wanted the same victims.
        overlaps: bool,
    },
    /// It would start, but somebody else does.
    Blocked,
    /// No fit, or nobody to preempt.
    Failed,
}

/// The state of a pass while its entries are processed.
struct PassState {
    snapshot: Snapshot,
    victims: BTreeMap<Uid, Uid>,
    decided: Vec<Decided>,
    admitted: i64,
}

impl Model {
    /// One pass; at its end the victims are gone.
    pub(super) fn cycle(&mut self, heads: Vec<(ClusterQueueName, Uid)>, now: Timestamp) -> Vec<Decided> {
        let mut decided = Vec::new();
        let heads = self.begin_again(heads, &mut decided);
        let mut entries = self.nominate(heads);
        entries.sort_by_cached_key(|entry| {
            let workload = &self.workloads[&entry.uid];
            let queued_at = self.queued_at(&entry.uid);
            (entry.assignment.borrow, Reverse(workload.priority), queued_at, entry.uid.clone())
        });
        let mut pass =
            PassState { snapshot: self.snapshot(), victims: BTreeMap::new(), decided, admitted: 0 };
        for entry in entries {
            let outcome = self.process(&entry, &mut pass, now);
            self.requeue(&entry, outcome, &mut pass);
            self.follow_claims();
        }
        let was_blocked = self.is_blocked();
        self.release_victims(pass.victims);
        for root in std::mem::take(&mut self.given_up) {
            self.wake(&root, None);
        }
        pass.decided.extend(self.end_pass(was_blocked));
        pass.decided
    }

    /// The head of each queue that is awake.
    pub(super) fn heads(&self) -> Vec<(ClusterQueueName, Uid)> {
        let awake = self.cluster_queues.keys().filter(|queue| self.layout.is_awake(queue));
        awake.filter_map(|queue| Some((queue.clone(), self.head(queue)?))).collect()
    }

    /// Evaluates all heads against the state before the pass. Heads of foreign namespaces are set aside.
    fn nominate(&mut self, heads: Vec<(ClusterQueueName, Uid)>) -> Vec<Entry> {
        let snapshot = self.snapshot();
        let mut entries = Vec::new();
        for (queue, uid) in heads {
            if !self.namespace_is_selected(&uid, &queue) {
                self.move_to(&uid, Place::Inadmissible);
                continue;
            }
            let mut entry = self.evaluate(&snapshot, &queue, &uid, BTreeSet::new());
            let weaker = self.holds_beaten_by(&uid, &queue);
            if !entry.succeeds() && !weaker.is_empty() {
                let again = self.evaluate(&snapshot, &queue, &uid, weaker);
                // Who takes over what was won back for its queue may not borrow with it.
                if again.succeeds() && again.assignment.borrow == 0 {
                    entry = again;
                }
            }
            entries.push(entry);
        }
        entries
    }

    /// Preemptors of the same queue with a hold and less priority, or behind it in a strict queue.
    fn holds_beaten_by(&self, uid: &Uid, queue: &ClusterQueueName) -> BTreeSet<Uid> {
        let priority = self.workloads[uid].priority;
        let holds = self.holds.keys().filter(|other| self.waiters[*other].queue.as_ref() == Some(queue));
        let is_strict = self.is_strict(queue);
        let is_weaker = |other: &Uid| is_strict && other != uid || self.workloads[other].priority < priority;
        holds.filter(|other| is_weaker(other)).cloned().collect()
    }

    /// The own hold does not count, nor do those in `beats`.
    fn evaluate(
        &self,
        snapshot: &Snapshot,
        queue: &ClusterQueueName,
        uid: &Uid,
        beats: BTreeSet<Uid>,
    ) -> Entry {
        let view = self.seen_by(snapshot, queue, uid, &beats);
        let (workload, cluster_queue) = (&self.workloads[uid], &self.cluster_queues[queue]);
        let preemptor = Preemptor {
            queue: cluster_queue,
            priority: workload.priority,
            queued_at: self.queued_at(uid),
            untouchable: if self.rules.hold { self.preemptors_of(uid) } else { BTreeSet::new() },
            check_again: self.rules.hold,
        };
        let memory = self.waiters[uid].memory.as_ref();
        let memory = memory.filter(|memory| memory.generation == self.queues[queue].generation);
        let scan = Scan {
            queue: cluster_queue,
            known: &self.flavors,
            given_up: self.given_up(uid),
            snapshot: &view,
            preemptor: &preemptor,
            positions: memory.map(|memory| &memory.positions),
            every_resource_counts: self.rules.searches_end,
            complaints: RefCell::default(),
        };
        let as_held = self.holds.get(uid);
        let as_held = as_held.and_then(|hold| Assignment::again(&view, queue, &hold.usage, &hold.flavors));
        let assignment = as_held.unwrap_or_else(|| scan.assign(workload));
        let found = match assignment.mode {
            Mode::NoFit | Mode::Fit => Found::default(),
            _ => preemptor.search(&view, &assignment.usage, &assignment.contested),
        };
        Entry { uid: uid.clone(), queue: queue.clone(), assignment, found, view, beats }
    }

    /// The workload for which this one was evicted, who took over from that one, those for which these were, and
    /// so on.
    fn preemptors_of(&self, uid: &Uid) -> BTreeSet<Uid> {
        let mut chain: BTreeSet<Uid> = BTreeSet::new();
        let mut open: Vec<&Uid> = self.evicted_for.get(uid).into_iter().collect();
        while let Some(next) = open.pop() {
            if next != uid && chain.insert(next.clone()) {
                open.extend(self.evicted_for.get(next));
                open.extend(self.beaten_by.get(next));
            }
        }
        chain
    }

    fn process(&mut self, entry: &Entry, pass: &mut PassState, now: Timestamp) -> Outcome {
        let view = self.seen_by(&pass.snapshot, &entry.queue, &entry.uid, &entry.beats);
        if !entry.succeeds() {
            let reserve = self.reserve_in_pass(&view, &entry.queue, &entry.uid, &entry.assignment);
            let booked = reserve.map(|reserve| (Booking::ThisPass, entry.queue.clone(), reserve));
            pass.snapshot.booked.extend(booked);
            return Outcome::Failed;
        }
        let fits_now = entry.assignment.mode == Mode::Fit;
        if entry.found.victims.iter().any(|victim| pass.victims.contains_key(&victim.uid)) {
            return Outcome::Skipped { overlaps: true };
        }
        let gone = entry.found.victims.iter().map(|victim| &victim.uid).chain(pass.victims.keys());
        let has_won = fits_now && self.holds.contains_key(&entry.uid) && has_won_room(&view, entry, pass);
        let room = if fits_now && self.rules.victims_room_waits { view } else { view.without(gone) };
        if !has_won && !room.fits(&entry.queue, &entry.assignment.usage) {
            return Outcome::Skipped { overlaps: false };
        }
        // Quota may be set aside while somebody else starts.
        let starts_now = self.required_checks(&entry.queue, entry.assignment.flavors_used()).is_empty();
        if fits_now && starts_now && self.is_blocked() {
            self.counts.blocked += 1;
            return Outcome::Blocked;
        }
        self.counts.taken_over += usize::from(!entry.beats.is_empty());
        for beaten in &entry.beats {
            self.give_up(beaten, pass);
            self.beaten_by.insert(beaten.clone(), entry.uid.clone());
        }
        pass.snapshot.booked.retain(|(kind, ..)| *kind != Booking::Hold(entry.uid.clone()));
        if fits_now {
            self.admit(entry, pass, now);
            Outcome::Admitted
        } else {
            self.preempt(entry, pass);
            Outcome::VictimsChosen
        }
    }

    /// What was kept for a preemptor is free again; who could use it is tried in the next pass.
    fn give_up(&mut self, uid: &Uid, pass: &mut PassState) {
        if self.holds.remove(uid).is_some() {
            pass.snapshot.booked.retain(|(kind, ..)| *kind != Booking::Hold(uid.clone()));
            let queue = self.waiters.get(uid).and_then(|waiter| waiter.queue.as_ref());
            self.given_up.extend(queue.map(|queue| self.layout.root(queue)));
        }
    }

    fn admit(&mut self, entry: &Entry, pass: &mut PassState, now: Timestamp) {
        let workload = &self.workloads[&entry.uid];
        let holder = Rc::new(Holder {
            queue: entry.queue.clone(),
            priority: workload.priority,
            created: workload.created,
            reserved_at: now.plus_millis(pass.admitted),
            usage: entry.assignment.usage.clone(),
        });
        pass.admitted += 1;
        pass.snapshot.holders.insert(entry.uid.clone(), holder.clone());
        self.holders.insert(entry.uid.clone(), holder);
        self.assignments.insert(entry.uid.clone(), entry.assignment.flavors.clone());
        self.waiters.remove(&entry.uid);
        self.take_quota(&entry.uid);
        self.counts.borrowed += usize::from(self.is_borrowing(&entry.queue, &entry.assignment.usage));
        self.counts.borrowed_across_levels += usize::from(entry.assignment.borrow > 1);
        pass.decided.push(Decided::Admitted {
            uid: entry.uid.clone(),
            queue: entry.queue.clone(),
            flavors: entry.assignment.flavors.clone(),
            may_start: !self.not_admitted.contains(&entry.uid),
        });
    }

    fn is_borrowing(&self, queue: &ClusterQueueName, used: &Amounts) -> bool {
        let (now, node) = (self.snapshot_of_holders(), Node::Queue(queue.clone()));
        let mut used = used.iter().filter(|(_, amount)| **amount > Amount::ZERO);
        used.any(|(cell, _)| now.usage(&node, cell) > self.layout.quota(&node, cell).nominal)
    }

    fn preempt(&mut self, entry: &Entry, pass: &mut PassState) {
        let usage = entry.assignment.usage.clone();
        pass.snapshot.booked.push((Booking::Hold(entry.uid.clone()), entry.queue.clone(), usage));
        self.counts.spared += usize::from(entry.found.spared);
        let mut victims = Vec::new();
        for victim in &entry.found.victims {
            match victim.reason {
                "InClusterQueue" => self.counts.preempted_in_queue += 1,
                _ => self.counts.reclaimed += 1,
            }
            pass.victims.insert(victim.uid.clone(), entry.uid.clone());
            victims.push((victim.uid.clone(), victim.reason.to_owned()));
        }
        self.proofs.push(Proof {
            preemptor: entry.uid.clone(),
            queued_at: self.queued_at(&entry.uid),
            queue: entry.queue.clone(),
            view: entry.view.clone(),
            needs: entry.assignment.usage.clone(),
            contested: entry.assignment.contested.clone(),
            may_borrow: entry.found.may_borrow,
            victims: victims.iter().map(|(uid, _)| uid.clone()).collect(),
        });
        victims.sort();
        pass.decided.push(Decided::Preempted { preemptor: entry.uid.clone(), victims });
    }

    /// Puts an entry where it waits for its next turn, and keeps or ends its hold and mark.
    fn requeue(&mut self, entry: &Entry, outcome: Outcome, pass: &mut PassState) {
        let Some(state) = self.queues.get_mut(&entry.queue) else { return };
        let generation = state.generation;
        match outcome {
            Outcome::Admitted => {
                self.holds.remove(&entry.uid);
                state.sticky.take_if(|sticky| *sticky == entry.uid);
                // A defect of the reference: it books the admission twice, with a release in between.
                state.generation += u64::from(!self.rules.searches_end);
                return;
            }
            Outcome::VictimsChosen if self.rules.hold => {
                let Assignment { usage, flavors, .. } = entry.assignment.clone();
                self.holds.insert(entry.uid.clone(), Hold { usage, flavors, victims_left_at: None });
            }
            Outcome::VictimsChosen => state.sticky = Some(entry.uid.clone()),
            Outcome::Skipped { overlaps } => drop(self.tell(&entry.uid, Told::Passed { overlaps })),
            Outcome::Blocked => return self.wait_for_starts(entry),
            Outcome::Failed => return self.requeue_failed(entry, generation, pass),
        }
        if let Some(waiter) = self.waiters.get_mut(&entry.uid) {
            waiter.memory = None;
            // A preemptor is told whom it waits for, which nobody else is told.
            waiter.told.take_if(|_| matches!(outcome, Outcome::VictimsChosen));
        }
    }

    /// Somebody fits and may not start yet. A preemptor is set aside alone: its room is its own.
    fn wait_for_starts(&mut self, entry: &Entry) {
        if self.holds.contains_key(&entry.uid) {
            self.move_to(&entry.uid, Place::Inadmissible);
        } else {
            self.set_aside(&entry.uid, &entry.queue, None);
        }
    }

    /// A preemptor is tried again as an ordinary workload; who has flavors left goes on with these.
    fn requeue_failed(&mut self, entry: &Entry, generation: u64, pass: &mut PassState) {
        let mut memory = self.scan_on(entry, generation);
        let goes_on = memory.is_some();
        // A defect of the reference: what is told anew replaces the queue's entry, and its memory is lost.
        if self.tell(&entry.uid, Told::Complaints(entry.assignment.complaints.clone()))
            && !self.rules.searches_end
        {
            memory = None;
        }
        if let Some(waiter) = self.waiters.get_mut(&entry.uid) {
            waiter.memory = memory;
        }
        if self.rules.sticky_mark_ends && self.holds.contains_key(&entry.uid) {
            self.give_up(&entry.uid, pass);
        } else if !goes_on {
            let claim = self.qualification(&entry.queue, &entry.uid);
            self.set_aside(&entry.uid, &entry.queue, claim);
            self.give_up_behind(entry, pass);
        }
    }

    /// Tells a workload why it waits. Says whether that is news.
    fn tell(&mut self, uid: &Uid, told: Told) -> bool {
        let Some(waiter) = self.waiters.get_mut(uid) else { return false };
        waiter.told.replace(told.clone()) != Some(told)
    }

    /// The first of a strict queue is set aside: preemptors behind it cannot start either.
    fn give_up_behind(&mut self, entry: &Entry, pass: &mut PassState) {
        if !self.is_strict(&entry.queue) {
            return;
        }
        let is_behind = |uid: &&Uid| self.waiters[*uid].queue.as_ref() == Some(&entry.queue);
        let behind: Vec<Uid> = self.holds.keys().filter(is_behind).cloned().collect();
        for uid in behind {
            self.give_up(&uid, pass);
        }
    }

    /// Where the scan goes on in the next pass; none if it is over.
    fn scan_on(&self, entry: &Entry, generation: u64) -> Option<ScanMemory> {
        let before =
            self.waiters[&entry.uid].memory.as_ref().filter(|memory| memory.generation == generation);
        let mut farthest = before.map(|memory| memory.farthest.clone()).unwrap_or_default();
        let positions = entry.assignment.positions.clone();
        let mut goes_on = false;
        for (index, resources) in positions.iter().enumerate() {
            for (resource, position) in resources {
                let Some(next) = position.map(|position| position + 1) else { continue };
                let farthest = farthest.entry((index, resource.clone())).or_default();
                goes_on |= !self.rules.searches_end || next > *farthest;
                *farthest = next.max(*farthest);
            }
        }
        goes_on.then_some(ScanMemory { generation, positions, farthest })
    }

    /// Victims lose their quota and queue again; what was set aside in their tree is reconsidered.
    fn release_victims(&mut self, victims: BTreeMap<Uid, Uid>) {
        for (victim, preemptor) in victims {
            self.counts.preempted_mid_budget += usize::from(self.is_mid_budget(&victim));
            if let Some(holder) = self.release(&victim) {
                self.wake_for(&victim, &holder.queue);
                if let Some(hold) = self.holds.get_mut(&preemptor) {
                    hold.victims_left_at = Some(self.now);
                }
                self.evicted_for.insert(victim.clone(), preemptor);
                self.enqueue(&victim);
            }
        }
    }
}

/// Whether what was won before this pass is there: what was won since is booked on top of it, together with what the
/// victims still use, and does not count; but what these use is not free.
fn has_won_room(view: &Snapshot, entry: &Entry, pass: &PassState) -> bool {
    let mut free = view.clone();
    free.booked.retain(|(kind, ..)| !matches!(kind, Booking::Hold(_)));
    let is_its_own = view.without(pass.victims.keys());
    [free, is_its_own].iter().all(|room| room.fits(&entry.queue, &entry.assignment.usage))
}
