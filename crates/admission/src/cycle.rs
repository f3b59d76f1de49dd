//! A cycle: one head of each queue is evaluated against the same state, then they are taken in order and
//! admitted, given victims, or set aside.

use std::cmp::Reverse;
use std::sync::Arc;

use gangway_model::Timestamp;
use gangway_model::planted::Bug;
use gangway_model::queues::ReclaimWithinCohort;
use gangway_model::reasons::PendingReason;
use gangway_model::workload::{Admission, State, Workload};

use crate::checks;
use crate::decision::{Action, Decision};
use crate::engine::Engine;
use crate::fallback;
use crate::flavors::{self, Found, Mode, Need, Progress};
use crate::ids::{CellAmounts, CellId, QueueId, WorkloadId};
use crate::ledger::Ledger;
use crate::lifecycle;
use crate::memory::{Grant, Memory, Scan, Told};
use crate::preemption::{Asker, Request, Victim, search};
use crate::queues::{Head, Parked, Turn};
use crate::shapes::Given;

/// A head that was evaluated.
#[derive(Debug)]
struct Entry {
    queue: QueueId,
    head: Head,
    priority: i32,
    need: Arc<Need>,
    evaluation: Evaluation,
    /// It takes room that is kept for preemptors of lower priority in its own queue.
    beats: Vec<WorkloadId>,
}

#[derive(Debug)]
struct Evaluation {
    found: Found,
    victims: Vec<Victim>,
    spared: usize,
}

impl Evaluation {
    /// Whether it can be admitted or knows whom to preempt.
    fn is_viable(&self) -> bool {
        self.found.grade.mode == Mode::Fit || !self.victims.is_empty()
    }
}

impl Entry {
    /// Who borrows less goes first, then the higher priority, then who has waited longer; then by uid.
    fn order(&self) -> (u32, Reverse<i32>, Timestamp) {
        (self.evaluation.found.grade.level, Reverse(self.priority), self.head.at)
    }
}

/// When the first of a strict queue is tried again although nothing has changed for it. Where reserves stand, never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blocked {
    /// When somebody else of its tree is tried.
    WithOthers,
    /// In every cycle.
    Always,
}

/// What was set aside so far in a cycle, besides what the ledger books for good.
#[derive(Default)]
struct Pass {
    victims: Vec<Victim>,
    /// Booked until the end of the cycle.
    booked: Vec<(QueueId, CellAmounts)>,
}

impl Engine {
    /// Takes one head of each queue and admits it, gives it victims or sets it aside. Says whether there was
    /// any.
    ///
    /// Every head that is taken leaves its queue's front or has its search go on, so cycles come to an end.
    pub(crate) fn run_cycle(
        &mut self,
        blocked: Blocked,
        now: Timestamp,
        budget: usize,
        decisions: &mut Vec<Decision>,
    ) -> bool {
        let Some(mut heads) = self.take_heads(blocked) else { return false };
        self.memory.work.cycles += 1;
        // Who leaves keeps nothing from anybody: all others are judged without it.
        heads.retain(|(queue, head)| !self.begins_again(*queue, head, now, budget, decisions));
        let mut entries: Vec<Entry> = Vec::with_capacity(heads.len());
        for (queue, head) in heads {
            self.nominate(queue, head, &mut entries);
        }
        // Entries are large, their order is not.
        let mut order: Vec<_> = entries.iter().map(Entry::order).zip(0..).collect();
        let uid =
            |index: usize| self.durable.workloads.get(entries[index].head.id).map(|workload| &workload.uid);
        order.sort_unstable_by(|(a, first), (b, second)| {
            a.cmp(b).then_with(|| uid(*first).cmp(&uid(*second)))
        });
        let mut pass = Pass::default();
        for (_, index) in order {
            if decisions.len() >= budget {
                break;
            }
            self.process(&mut entries[index], &mut pass, now, budget, decisions);
        }
        for (queue, amounts) in pass.booked {
            self.memory.ledger.book_for_now(queue, &amounts, -1);
        }
        self.wake_freed_trees();
        true
    }

    /// Those whose turn it is; none if it is nobody's. Who fails as before has had its turn with that. If all did, the
    /// next turns follow at once, unless every cycle is to be seen.
    fn take_heads(&mut self, blocked: Blocked) -> Option<Vec<(QueueId, Head)>> {
        let mut heads = Vec::new();
        let mut any_passed_by = true;
        let Memory { ready, queues, ledger, work, .. } = &mut self.memory;
        while any_passed_by && heads.is_empty() {
            any_passed_by = false;
            ready.retain(|queue| {
                let pending = &mut queues[queue.index()];
                match pending.take_turn(ledger.tree.bookings(), |cell| room_at_most(ledger, *queue, cell)) {
                    Turn::Of(head) => heads.push((*queue, head)),
                    Turn::PassedBy => {
                        work.passed_by += 1;
                        any_passed_by = true;
                    }
                    Turn::OfNobody => pending.is_listed = false,
                }
                pending.is_listed
            });
            if blocked == Blocked::Always {
                break;
            }
        }
        match blocked {
            _ if self.rules.standing_reserve => {}
            Blocked::WithOthers if heads.is_empty() => {}
            Blocked::WithOthers => self.add_blocked_heads(&mut heads),
            Blocked::Always => {
                let queues = (0..self.memory.queues.len()).map(QueueId::from);
                heads.extend(queues.filter_map(|queue| self.blocked_head(queue)));
            }
        }
        (any_passed_by || !heads.is_empty()).then_some(heads)
    }

    /// A strict queue's first is tried in every cycle of its tree: what it reserves counts for that cycle only.
    fn add_blocked_heads(&self, heads: &mut Vec<(QueueId, Head)>) {
        let mut queues: Vec<QueueId> =
            heads.iter().flat_map(|(queue, _)| self.memory.ledger.queues_of_tree(*queue)).collect();
        queues.sort_unstable();
        queues.dedup();
        heads.extend(queues.into_iter().filter_map(|queue| self.blocked_head(queue)));
    }

    fn blocked_head(&self, queue: QueueId) -> Option<(QueueId, Head)> {
        let is_active = self.memory.ledger.view(queue).is_some_and(|view| view.active);
        let head = self.memory.queues.get(queue.index())?.blocked_head().filter(|_| is_active)?;
        Some((queue, head))
    }

    /// Whether a head has given up every flavor that it could have. Then that is written down, and it is not evaluated.
    fn begins_again(
        &mut self,
        queue: QueueId,
        head: &Head,
        now: Timestamp,
        budget: usize,
        decisions: &mut Vec<Decision>,
    ) -> bool {
        if self.durable.queues_that_fall_back == 0 {
            return false;
        }
        let extras = self.memory.ledger.view(queue).and_then(|view| view.extras.clone());
        let Some(strategy) = extras.as_ref().and_then(|queue| queue.fallback.as_ref()) else { return false };
        let has_tried = |workload: &Workload| workload.state.history().is_some();
        let Some(workload) = self.durable.workloads.get(head.id).filter(|w| has_tried(w)).cloned() else {
            return false;
        };
        let is_stale = self.track(head.id).is_some_and(|track| track.rare.stale.is_some());
        let Some(need) = self.need(queue, head).filter(|_| !is_stale) else { return false };
        let State::Pending(pending) = &workload.state else { return false };
        let has_given_up_one = pending.history.iter().any(|history| history.exhausted().next().is_some());
        let is_mistaken = has_given_up_one && self.planted.is(Bug::UntriedFlavorGivenUp);
        if !need.has_given_up_all(&self.memory.ledger, queue) && !is_mistaken {
            return false;
        }
        if decisions.len() < budget {
            let at = now.whole_second();
            let readiness = self.readiness.as_ref();
            let (action, state) = fallback::all_given_up(pending, &workload, strategy, readiness, at);
            decisions.push(self.book(head.id, action, state));
        }
        true
    }

    /// Evaluates a head. If nothing can come of it, it is set aside at once.
    fn nominate(&mut self, queue: QueueId, head: Head, entries: &mut Vec<Entry>) {
        let id = head.id;
        if self.track(id).is_some_and(|track| track.rare.stale.is_some()) {
            // Its object has changed, and the change was not seen yet: nobody knows whether it fits.
            self.set_aside(queue, &head, Parked::new(PendingReason::PendingEvaluation));
            return;
        }
        let Some(need) = self.need(queue, &head) else { return };
        let Some(priority) = self.durable.workloads.get(id).map(|workload| workload.priority) else { return };
        self.memory.work.evaluations += 1;
        let (evaluation, beats) = self.evaluate(queue, &head, priority, &need);
        self.memory.work.spared += evaluation.spared as u64;
        let entry = Entry { queue, head, priority, need, evaluation, beats };
        if entry.evaluation.found.grade.mode == Mode::NoFit {
            self.nothing_fits(&entry);
        } else {
            entries.push(entry);
        }
    }

    /// A cell of which a head that fails lacks room, if that alone decides: it has one flavor to choose, can preempt
    /// nobody, and sets nothing aside that would not stand anyway.
    fn lacks(&self, entry: &Entry, claims: bool) -> Option<(CellId, i64)> {
        let ledger = &self.memory.ledger;
        let view = ledger.view(entry.queue)?;
        let found = &entry.evaluation.found;
        let sets_aside =
            found.grade.mode != Mode::NoFit && !claims && ledger.tree.parent(view.node).is_some();
        let decides = !sets_aside && !view.may_preempt() && !self.rules.defects;
        let wanted = entry.need.of_only_flavor().filter(|_| decides)?;
        wanted
            .iter()
            .copied()
            .find(|(cell, value)| i128::from(*value) > room_at_most(ledger, entry.queue, *cell))
    }

    /// What a Workload needs of its queue, worked out once for its shape and all queues that offer the same.
    pub(crate) fn need(&mut self, queue: QueueId, head: &Head) -> Option<Arc<Need>> {
        let view = self.memory.ledger.view(queue)?;
        let shape = self.track(head.id)?.shape;
        if let Some(need) = self.memory.shapes.need(shape, view.offer) {
            return Some(need);
        }
        let workload = self.durable.workloads.get(head.id)?;
        let (flavors, excluded) = (&self.durable.flavors, self.memory.shapes.excluded(shape));
        let need = Arc::new(Need::of(view, flavors, &workload.pod_sets, excluded, self.rules.defects));
        let offer = view.offer;
        self.memory.shapes.set_need(shape, offer, need.clone());
        Some(need)
    }

    /// Why the members of a lane wait when they do, worked out once per definition of their queue.
    fn waits_for(&mut self, entry: &Entry) -> PendingReason {
        let definition = self.memory.ledger.account(entry.queue).definition;
        let lane = entry.head.lane;
        if let Some(reason) = self.memory.queues[entry.queue.index()].waits_for(lane, definition) {
            return reason;
        }
        let reason = self.waits_for_alone(entry.queue, &entry.need);
        self.memory.queues[entry.queue.index()].set_waits_for(lane, definition, reason);
        reason
    }

    /// Why a Workload would wait if nobody else were there: that does not pass. Otherwise it waits for others.
    ///
    /// What a podSet finds depends on what the others before it found, and that on who is there at the moment.
    /// So that the reason does not change with every start and end, it is found in the empty queue.
    fn waits_for_alone(&mut self, queue: QueueId, need: &Need) -> PendingReason {
        let asker = Asker {
            queue,
            priority: i32::MIN,
            queued_at: Timestamp::EPOCH,
            barred: &[],
            every_resource_counts: true,
        };
        let ledger = &mut self.memory.ledger;
        let mut progress = Progress::default();
        let mut reason = None;
        std::mem::swap(&mut ledger.tree, &mut ledger.unused);
        loop {
            let found = flavors::choose(ledger, asker, need, &progress.next);
            let Some(failure) = found.failure else {
                reason = None;
                break;
            };
            reason.get_or_insert(failure.reason);
            if !progress.goes_on(&found.picks, true) {
                break;
            }
        }
        std::mem::swap(&mut ledger.tree, &mut ledger.unused);
        reason.unwrap_or(PendingReason::WaitingForQuota)
    }

    /// Evaluates with what is kept for the Workload itself and for its queue taken off; then, if nothing comes
    /// of it, also with what is kept for preemptors behind it in its queue, by priority or strictly.
    fn evaluate(
        &mut self,
        queue: QueueId,
        head: &Head,
        priority: i32,
        need: &Need,
    ) -> (Evaluation, Vec<WorkloadId>) {
        let id = head.id;
        let mut evaluation = self.evaluate_without(queue, head, priority, need, &[id]);
        if !self.rules.hold {
            return (evaluation, Vec::new());
        }
        // Whoever chose victims waits for them. If it chose others before they left, two preemptors could take each
        // other's for ever.
        let has_chosen = self.memory.tracks[id.index()].is_preemptor && self.waits_for_victims(id);
        if has_chosen {
            evaluation.victims.clear();
        }
        if evaluation.is_viable() {
            return (evaluation, Vec::new());
        }
        let holds = &self.memory.ledger.account(queue).holds;
        let is_strict = self.memory.queues[queue.index()].is_strict();
        // Everybody else is behind the first of a strict queue.
        let is_lower = |other: &WorkloadId| {
            let other_priority = self.durable.workloads.get(*other).map(|other| other.priority);
            is_strict && *other != id || other_priority.is_some_and(|other| other < priority)
        };
        let lower: Vec<WorkloadId> = holds.iter().map(|kept| kept.id).filter(is_lower).collect();
        if lower.is_empty() {
            return (evaluation, Vec::new());
        }
        let lifted: Vec<WorkloadId> = lower.iter().copied().chain([id]).collect();
        let second = self.evaluate_without(queue, head, priority, need, &lifted);
        // What was won back belongs to the queue. Who would borrow with it could lose it again, and so for ever.
        let is_viable = if has_chosen { second.found.grade.mode == Mode::Fit } else { second.is_viable() };
        let takes_over = is_viable && second.found.grade.level == 0;
        if takes_over { (second, lower) } else { (evaluation, Vec::new()) }
    }

    fn evaluate_without(
        &mut self,
        queue: QueueId,
        head: &Head,
        priority: i32,
        need: &Need,
        lifted: &[WorkloadId],
    ) -> Evaluation {
        let barred = self.barred(head.id);
        let asker = Asker {
            queue,
            priority,
            queued_at: head.at,
            barred: &barred,
            every_resource_counts: !self.rules.defects,
        };
        let generation = self.memory.ledger.account(queue).generation;
        let scan = self.memory.tracks[head.id.index()].rare.scan.as_ref();
        let scan = scan.filter(|scan| scan.generation == generation);
        let from = scan.map(|scan| scan.progress.next.clone()).unwrap_or_default();
        let has_hold = self.memory.ledger.hold(queue, head.id).is_some();
        let taken_off = self.memory.ledger.lift(queue, |id| lifted.contains(&id), has_hold);
        let on_hold = if has_hold { self.flavors_of_hold(queue, head.id, lifted) } else { None };
        let ledger = &mut self.memory.ledger;
        let found = on_hold.unwrap_or_else(|| flavors::choose(ledger, asker, need, &from));
        let searched = match found.grade.mode {
            Mode::Fit | Mode::NoFit => search::Found::default(),
            _ => search::search(ledger, asker, Request { amounts: &found.usage, needing: &found.needing }),
        };
        ledger.put_back(&taken_off);
        Evaluation { found, victims: searched.victims, spared: searched.spared }
    }

    /// What a Workload would get if its victims were gone, and who these are; none if it would not fit.
    pub(crate) fn room_for(&mut self, queue: QueueId, head: &Head) -> Option<(Found, Vec<Victim>)> {
        let need = self.need(queue, head)?;
        let priority = self.durable.workloads.get(head.id)?.priority;
        let evaluation = self.evaluate_without(queue, head, priority, &need, &[head.id]);
        evaluation.is_viable().then_some((evaluation.found, evaluation.victims))
    }

    /// Whom a Workload may not preempt: it had to leave for them, directly or through others, or for somebody whose
    /// room they took over.
    fn barred(&self, id: WorkloadId) -> Vec<WorkloadId> {
        let mut barred = Vec::new();
        if !self.rules.hold {
            return barred;
        }
        if self.durable.workloads.get(id).is_none_or(|workload| workload.state.preemptor().is_none()) {
            return barred;
        }
        let mut open = vec![id];
        while let Some(current) = open.pop() {
            let left_for =
                self.durable.workloads.get(current).and_then(|workload| workload.state.preemptor());
            let beaten_by = self.track(current).and_then(|track| track.rare.beaten_by.as_deref());
            for uid in left_for.into_iter().chain(beaten_by.filter(|_| current != id)) {
                match self.durable.workloads.id(uid) {
                    Some(next) if next != id && !barred.contains(&next) => {
                        barred.push(next);
                        open.push(next);
                    }
                    _ => {}
                }
            }
        }
        barred
    }

    fn process(
        &mut self,
        entry: &mut Entry,
        pass: &mut Pass,
        now: Timestamp,
        budget: usize,
        decisions: &mut Vec<Decision>,
    ) {
        if !entry.evaluation.is_viable() {
            self.reserve_for_this_cycle(entry, pass);
            self.nothing_fits(entry);
            return;
        }
        let own = &entry.evaluation.victims;
        let overlaps = own.iter().any(|victim| pass.victims.iter().any(|taken| taken.id == victim.id));
        if overlaps || !self.still_fits(entry, pass) {
            // Somebody before it in this cycle took the room. It is tried again in the next.
            let rare = &mut self.memory.tracks[entry.head.id.index()].rare;
            rare.forget_scan();
            if self.rules.defects {
                rare.told = Some(Told::Passed { overlaps });
            }
            return;
        }
        if own.is_empty() && self.is_blocked() && !self.has_checks(entry) {
            self.set_aside(entry.queue, &entry.head, Parked::new(PendingReason::WaitingForPodsReady));
            return;
        }
        for beaten in &entry.beats {
            self.give_up(*beaten);
            let beaten_by = self.durable.workloads.get(entry.head.id).map(|workload| workload.uid.clone());
            self.memory.tracks[beaten.index()].rare.beaten_by = beaten_by.map(Box::new);
        }
        if own.is_empty() {
            self.admit(entry, now, decisions);
        } else {
            pass.victims.extend(own.iter().cloned());
            let Evaluation { found, victims, .. } = &mut entry.evaluation;
            let (found, victims) = (found.clone(), std::mem::take(victims));
            if !self.rules.hold {
                self.memory.ledger.book_for_now(entry.queue, &found.usage, 1);
                pass.booked.push((entry.queue, found.usage.clone()));
            }
            let preemptor = (entry.queue, entry.head.id);
            self.make_room(preemptor, found, &victims, (now, budget), decisions);
            if self.rules.defects {
                // It is told whom it waits for: whatever it is told next is something else.
                self.memory.tracks[entry.head.id.index()].rare.told = None;
            }
        }
    }

    /// Whether what was chosen fits after what was decided before in this cycle.
    fn still_fits(&mut self, entry: &Entry, pass: &Pass) -> bool {
        let own = &entry.evaluation.victims;
        let ledger = &mut self.memory.ledger;
        let id = entry.head.id;
        let has_hold = ledger.hold(entry.queue, id).is_some();
        let lifted = ledger.lift(entry.queue, |other| other == id || entry.beats.contains(&other), has_hold);
        let waits_for_victims = own.is_empty() && self.rules.victims_room_waits;
        let gone: Vec<&Victim> =
            if waits_for_victims { Vec::new() } else { pass.victims.iter().chain(own).collect() };
        book_all(ledger, &gone, -1);
        let mut fits = ledger.has_room(entry.queue, &entry.evaluation.found.usage);
        book_all(ledger, &gone, 1);
        if !fits && has_hold && own.is_empty() {
            let lifted: Vec<WorkloadId> = entry.beats.iter().copied().chain([id]).collect();
            fits = self.has_won_room(entry.queue, &lifted, &entry.evaluation.found.usage);
        }
        self.memory.ledger.put_back(&lifted);
        fits
    }

    /// Whether admission checks have to agree to what was found: quota may be set aside for it while somebody else starts.
    fn has_checks(&mut self, entry: &Entry) -> bool {
        let view = self.memory.ledger.view(entry.queue);
        let Some(extras) = view.and_then(|view| view.extras.clone()) else { return false };
        let Some((admission, _)) = self.admission_of(entry) else { return false };
        checks::required(&extras.admission_checks, &admission).next().is_some()
    }

    /// What a Workload gets by what was found, and what that takes of which cell.
    #[inline]
    fn admission_of(&mut self, entry: &Entry) -> Option<(Arc<Admission>, Arc<CellAmounts>)> {
        let id = entry.head.id;
        let (workload, view) = (self.durable.workloads.get(id)?, self.memory.ledger.view(entry.queue)?);
        let found = &entry.evaluation.found;
        let (shape, offer) = (self.memory.tracks[id.index()].shape, view.offer);
        let given = self.memory.shapes.given(shape, offer, &found.picks).cloned();
        let Given { pod_sets, usage, .. } = given.unwrap_or_else(|| {
            let pod_sets = flavors::assignments(view, &workload.pod_sets, &entry.need, &found.picks);
            let usage = Arc::new(found.usage.clone());
            let given = Given { picks: found.picks.clone(), pod_sets, usage };
            self.memory.shapes.set_given(shape, offer, given.clone());
            given
        });
        let cluster_queue = self.memory.ledger.queue_names.name(entry.queue.index()).clone();
        Some((Arc::new(Admission { cluster_queue, pod_sets }), usage))
    }

    fn admit(&mut self, entry: &Entry, now: Timestamp, decisions: &mut Vec<Decision>) {
        let id = entry.head.id;
        let Some((admission, usage)) = self.admission_of(entry) else { return };
        let Some(workload) = self.durable.workloads.get(id) else { return };
        let extras = self.memory.ledger.view(entry.queue).and_then(|view| view.extras.as_deref());
        let state =
            lifecycle::reserved(&self.durable, self.policy(), workload, admission.clone(), extras, now);
        let action = if state.may_run() { Action::Admit(admission) } else { Action::Reserve(admission) };
        self.memory.admissions += 1;
        let won = self.memory.ledger.end_hold(entry.queue, id);
        if won.as_ref().is_some_and(|won| won.leaves_some_of(&usage)) {
            self.memory.freed.insert(entry.queue);
        }
        let track = &mut self.memory.tracks[id.index()];
        track.sequence = self.memory.admissions;
        if let Some(rare) = track.rare.get_mut() {
            (rare.scan, rare.told) = (None, None);
        }
        if won.is_some() {
            track.rare.won = won.map(Box::new);
        }
        if self.rules.defects {
            self.memory.ledger.account_mut(entry.queue).generation += 1;
        }
        let grant = Some(Grant { queue: entry.queue, usage });
        decisions.push(self.book_grant(id, action, state, grant));
    }

    /// Sets room aside for a Workload that cannot preempt anybody, so that who comes after it in this cycle
    /// does not take it. Where it could take it back, nothing is set aside.
    fn reserve_for_this_cycle(&mut self, entry: &Entry, pass: &mut Pass) {
        let stands = self.claim_of(entry.queue, &entry.need).is_some();
        let ledger = &mut self.memory.ledger;
        let Some(view) = ledger.view(entry.queue) else { return };
        if stands || view.preemption.reclaim_within_cohort == ReclaimWithinCohort::Any {
            return;
        }
        let found = &entry.evaluation.found;
        let (node, borrows) = (view.node, found.grade.level > 0);
        let mut amounts = CellAmounts::new();
        for (cell, amount) in &found.usage {
            let own = ledger.tree.nominal(node, *cell) - ledger.tree.usage(node, *cell);
            let most = match (borrows, ledger.tree.borrowing_limit(node, *cell)) {
                (false, _) => own.max(0),
                (true, None) => i128::from(*amount),
                (true, Some(limit)) => own + limit,
            };
            let amount = most.min(i128::from(*amount));
            amounts.push((*cell, i64::try_from(amount).unwrap_or(0)));
        }
        ledger.book_for_now(entry.queue, &amounts, 1);
        pass.booked.push((entry.queue, amounts));
    }

    /// A head cannot be admitted. If its search has flavors left it goes on in the next cycle; otherwise it is
    /// set aside.
    fn nothing_fits(&mut self, entry: &Entry) {
        let found = &entry.evaluation.found;
        let id = entry.head.id;
        let generation = self.memory.ledger.account(entry.queue).generation;
        let more = self.search_goes_on(id, generation, found);
        if self.rules.preemptor_mark_ends && self.memory.tracks[id.index()].is_preemptor {
            if self.waits_for_victims(id) {
                let parked = Parked::new(PendingReason::WaitingForPreemptedWorkloads);
                self.set_aside(entry.queue, &entry.head, parked);
            } else {
                self.give_up(id);
            }
            return;
        }
        if more {
            return;
        }
        let failure = found.failure;
        let lasts = failure.is_some_and(|failure| failure.lasts);
        let claim = self.claim_of(entry.queue, &entry.need).map(Box::new);
        let lacks = self.lacks(entry, claim.is_some());
        let at_any_age = self.rules.defects;
        let parked = Parked { lasts, claim, lacks, at_any_age, ..Parked::new(self.waits_for(entry)) };
        self.set_aside(entry.queue, &entry.head, parked);
        self.give_up_behind(entry.queue, id);
    }

    /// The first of a strict queue is set aside: preemptors behind it cannot start either, so nothing is kept for them.
    fn give_up_behind(&mut self, queue: QueueId, first: WorkloadId) {
        let holds = &self.memory.ledger.account(queue).holds;
        if holds.is_empty() || !self.memory.queues[queue.index()].is_strict() {
            return;
        }
        let behind: Vec<WorkloadId> = holds.iter().map(|kept| kept.id).filter(|id| *id != first).collect();
        for id in behind {
            self.give_up(id);
        }
    }

    /// Whether Workloads of a queue may keep others from borrowing: it lends, and cannot take back at once.
    pub(crate) fn may_claim(&self, queue: QueueId) -> bool {
        self.rules.standing_reserve
            && self.memory.ledger.view(queue).is_some_and(|view| {
                view.preemption.reclaim_within_cohort != ReclaimWithinCohort::Any
                    && self.memory.ledger.tree.parent(view.node).is_some()
            })
    }

    /// What a Workload keeps others from borrowing when it cannot be admitted. It does not depend on who uses what at
    /// the moment: nobody is tried again because somebody else was admitted.
    pub(crate) fn claim_of(&self, queue: QueueId, need: &Need) -> Option<CellAmounts> {
        let ledger = &self.memory.ledger;
        if self.may_claim(queue) { flavors::within_nominal(ledger, queue, need) } else { None }
    }

    /// Notes where the search for flavors goes on in the next cycle, if it does.
    fn search_goes_on(&mut self, id: WorkloadId, generation: u64, found: &Found) -> bool {
        let rare = &mut self.memory.tracks[id.index()].rare;
        let mut progress = match rare.take_scan() {
            Some(scan) if scan.generation == generation => scan.progress,
            _ => Progress::default(),
        };
        let goes_on = progress.goes_on(&found.picks, !self.rules.defects);
        let tells_again = self.rules.defects
            && rare.told.replace(Told::Lacks(found.lacking)) != Some(Told::Lacks(found.lacking));
        if goes_on && !tells_again {
            rare.scan = Some(Box::new(Scan { generation, progress }));
        }
        goes_on
    }

    pub(crate) fn set_aside(&mut self, queue: QueueId, head: &Head, parked: Parked) {
        let changed = self.memory.queues[queue.index()].set_aside(head, parked);
        for id in changed {
            self.note_unreported(id);
        }
        self.follow_claim(queue);
    }
}

fn book_all(ledger: &mut Ledger, victims: &[&Victim], sign: i64) {
    // A victim of two is gone once.
    for (index, victim) in victims.iter().enumerate() {
        if let Some(node) = ledger.node(victim.queue)
            && !victims[..index].iter().any(|before| before.usage_is_of(victim))
        {
            ledger.tree.add_all(node, &victim.usage, sign);
        }
    }
}

/// What a Workload of a queue could have of a cell at most. Its queue's own reserve does not count against it.
fn room_at_most(ledger: &Ledger, queue: QueueId, cell: CellId) -> i128 {
    let Some(node) = ledger.node(queue) else { return 0 };
    ledger.tree.room(node, cell) + i128::from(ledger.reserved(queue, cell))
}
