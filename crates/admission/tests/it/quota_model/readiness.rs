//! Whose pods are ready, who has to leave because they are not, and when it is tried again. Everything is worked out
//! from the settings and a few times per workload.

use std::rc::Rc;

use gangway_model::readiness::{RequeuingTimestamp, Timeouts, WaitForPodsReady};
use gangway_model::workload::Reservation;
use gangway_model::{ClusterQueueName, Timestamp, Uid};

use super::fallback::Tried;
use super::waiting::Waiter;
use super::{Decided, Evicted, Model};

/// For how long room is kept for a preemptor after its last victim left.
const HOLD_SECONDS: i64 = 15 * 60;

/// Since when the pods of a workload with quota are as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pods {
    /// They were not all ready since its admission.
    Starting(Timestamp),
    /// All are ready.
    Ready(Timestamp),
    /// All were ready, and not all are any more.
    Lost(Timestamp),
}

/// What is known of a workload's attempts to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Attempts {
    /// How often it was sent back.
    pub count: u32,
    /// It is not tried before.
    pub requeue_at: Option<Timestamp>,
    /// When it was sent back, until it gets quota again.
    sent_back_at: Option<Timestamp>,
    /// From when on it has its place in the queue, if not from its creation.
    pub queued_from: Option<Timestamp>,
    /// Gangway itself deactivated it.
    pub is_deactivated: bool,
}

/// How a workload that has not ended stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// How often it was sent back.
    pub count: u32,
    /// It is not tried before.
    pub requeue_at: Option<Timestamp>,
    pub active: bool,
    /// It has quota and may start.
    pub is_admitted: bool,
    pub tried: Tried,
}

impl Model {
    /// From now on pods have to be ready in time.
    pub fn wait_for_pods_ready(&mut self, settings: WaitForPodsReady) {
        self.readiness = Some(settings);
    }

    /// From now on all pods of a workload are ready when it runs, or are not.
    pub fn set_ready(&mut self, uid: &Uid, ready: bool) {
        if ready {
            self.ready.insert(uid.clone());
        } else {
            self.ready.remove(uid);
        }
    }

    /// Somebody activates or deactivates a workload. Whom Gangway deactivated begins anew when it is activated.
    pub fn set_active(&mut self, uid: &Uid, active: bool) {
        let Some(workload) = self.workloads.get_mut(uid).filter(|known| known.active != active) else {
            return;
        };
        Rc::make_mut(workload).active = active;
        let attempts = self.attempts.entry(uid.clone()).or_default();
        if active && attempts.is_deactivated {
            *attempts = Attempts::default();
            self.tried.remove(uid);
            self.counts.reactivated += 1;
        }
        if self.waiters.contains_key(uid) {
            self.end_hold(uid);
            self.enqueue(uid);
            self.follow_claims();
        }
    }

    /// How a workload stands that has not ended.
    pub fn standing_of(&self, uid: &Uid) -> Option<Standing> {
        let has_quota = self.holders.contains_key(uid);
        if !has_quota && !self.waiters.contains_key(uid) {
            return None;
        }
        let Attempts { count, requeue_at, .. } = self.attempts_of(uid);
        let mut tried = self.tried_by(uid);
        tried.used.retain(|_, seconds| *seconds > 0);
        Some(Standing {
            count,
            requeue_at: requeue_at.filter(|at| *at > self.now),
            active: self.workloads[uid].active,
            is_admitted: has_quota && !self.not_admitted.contains(uid),
            tried,
        })
    }

    /// How often a workload was sent back, and until when it is not tried.
    pub(super) fn sent_back(&self, uid: &Uid) -> (u32, Option<Timestamp>) {
        let Attempts { count, requeue_at, .. } = self.attempts_of(uid);
        (count, requeue_at)
    }

    fn attempts_of(&self, uid: &Uid) -> Attempts {
        self.attempts.get(uid).copied().unwrap_or_default()
    }

    /// Whether it is too early to try a workload again.
    pub(super) fn backs_off(&self, uid: &Uid) -> bool {
        self.attempts_of(uid).requeue_at.is_some_and(|at| at > self.now)
    }

    /// The time by which a workload that waits is ordered.
    pub(super) fn queued_at(&self, uid: &Uid) -> Timestamp {
        self.attempts_of(uid).queued_from.unwrap_or(self.workloads[uid].created)
    }

    /// A workload is sent back and has its place in the queue from now on, always or where the settings say so.
    pub(super) fn queue_from_now(&mut self, uid: &Uid, always: bool) {
        let settings = self.readiness.as_ref();
        let says_so = settings.is_some_and(|settings| settings.timestamp == RequeuingTimestamp::Eviction);
        let queued_from = (always || says_so).then_some(self.now);
        self.attempts.entry(uid.clone()).or_default().queued_from = queued_from;
    }

    /// A workload had quota from the beginning: it has been starting since then.
    pub(super) fn note_start(&mut self, uid: &Uid, reservation: &Reservation) {
        self.waits_since.insert(uid.clone(), reservation.reserved_at);
        if let Some(admitted_at) = reservation.admitted_at.filter(|_| self.asks_for_pods(uid)) {
            self.pods.insert(uid.clone(), Pods::Starting(admitted_at));
        }
        let count = reservation.requeue_state.as_ref().map_or(0, |state| state.count);
        self.attempts.insert(uid.clone(), Attempts { count, ..Attempts::default() });
        self.note_checks(uid, reservation);
    }

    /// A workload has got quota. It starts now, or when its checks agree.
    pub(super) fn take_quota(&mut self, uid: &Uid) {
        let attempts = self.attempts.entry(uid.clone()).or_default();
        (attempts.requeue_at, attempts.sent_back_at, attempts.queued_from) = (None, None, None);
        self.run_time(uid);
        self.ask_checks(uid);
    }

    /// A workload with quota starts now.
    pub(super) fn begin_start(&mut self, uid: &Uid) {
        if self.asks_for_pods(uid) {
            self.pods.insert(uid.clone(), Pods::Starting(self.now));
        }
    }

    /// From now on it may matter when the pods of those are ready who run on a queue's quota already.
    pub(super) fn begin_to_ask_for_pods(&mut self, queue: &ClusterQueueName) {
        for (uid, holder) in self.holders.clone() {
            let runs = holder.queue == *queue && !self.not_admitted.contains(&uid);
            if runs && self.asks_for_pods(&uid) && !self.pods.contains_key(&uid) {
                self.pods.insert(uid, Pods::Starting(self.now));
            }
        }
    }

    /// Whether it matters when the pods of a workload with quota are ready.
    fn asks_for_pods(&self, uid: &Uid) -> bool {
        self.readiness.is_some() || self.strategy_of_holder(uid).is_some()
    }

    /// Whether somebody starts, and nobody else may until it has.
    pub(super) fn is_blocked(&self) -> bool {
        let starts = |pods: &Pods| matches!(pods, Pods::Starting(_));
        self.readiness.as_ref().is_some_and(|settings| settings.block_admission)
            && self.pods.values().any(starts)
    }

    /// The pods of those who start now are ready, if they are. Who got a flavor of which no time was left leaves at once.
    pub(super) fn end_pass(&mut self, was_blocked: bool) -> Vec<Decided> {
        let mut left = Vec::new();
        for (uid, holder) in self.holders.clone() {
            self.follow_pods(&uid);
            if let Some(reason) = self.give_up_in_time(&uid) {
                left.push(Decided::Left(self.evict(uid, &holder.queue, reason)));
            }
        }
        self.note_end_of_block(was_blocked);
        self.let_start();
        left
    }

    /// When nobody starts any more everybody is tried again.
    pub(super) fn note_end_of_block(&mut self, was_blocked: bool) {
        if was_blocked && !self.is_blocked() {
            self.reconsider_all();
        }
    }

    /// Takes notice of whether the pods of a workload are ready.
    pub(super) fn follow_pods(&mut self, uid: &Uid) {
        let Some(pods) = self.pods.get(uid).copied().filter(|_| self.asks_for_pods(uid)) else { return };
        let now = match (pods, self.ready.contains(uid)) {
            (Pods::Starting(_) | Pods::Lost(_), true) => {
                self.forget_tried(uid);
                Pods::Ready(self.now)
            }
            // Who only had to start in time may lose pods.
            (Pods::Ready(_), false) if self.readiness.is_some() => {
                self.counts.lost_pods += 1;
                self.end_readiness(uid);
                Pods::Lost(self.now)
            }
            _ => return,
        };
        self.pods.insert(uid.clone(), now);
    }

    /// All pods of a workload were ready and are no more, for whatever reason. After a long time it counts anew.
    pub(super) fn end_readiness(&mut self, uid: &Uid) {
        let reset = self.readiness.as_ref().map_or(0, |settings| settings.reset_after_ready_seconds);
        let Some(Pods::Ready(since)) = self.pods.get(uid) else { return };
        if reset > 0
            && self.now >= since.plus_seconds(i64::from(reset))
            && let Some(attempts) = self.attempts.get_mut(uid)
        {
            self.counts.counted_anew += usize::from(attempts.count > 0);
            attempts.count = 0;
        }
    }

    /// Until when the pods of a workload have to be ready; none if they are or may take for ever.
    fn deadline(&self, uid: &Uid) -> Option<Timestamp> {
        let settings = self.readiness.as_ref()?;
        let of_queue = self.cluster_queues.get(&self.holders.get(uid)?.queue)?.timeouts;
        let of_job = self.workloads[uid].timeouts.as_deref().copied().unwrap_or(Timeouts::default());
        match self.pods.get(uid)? {
            Pods::Ready(_) => None,
            Pods::Starting(_) if self.has_all_times(uid) => None,
            Pods::Starting(since) => {
                let allowed = of_queue.start_seconds.unwrap_or(settings.timeout_seconds);
                // A Job may only shorten what its queue allows.
                let allowed = allowed.min(of_job.start_seconds.unwrap_or(i64::MAX));
                Some(since.plus_seconds(allowed))
            }
            Pods::Lost(since) => {
                let allowed = match of_queue.recovery_seconds {
                    Some(0) => None,
                    Some(seconds) => Some(seconds),
                    None => settings.recovery_timeout_seconds,
                };
                let allowed = [allowed, of_job.recovery_seconds].into_iter().flatten().min();
                Some(since.plus_seconds(allowed?))
            }
        }
    }

    /// Whether pods had to be ready before the time of any flavor is over.
    pub(super) fn is_late_before_flavors(&self, uid: &Uid) -> bool {
        self.deadline(uid).zip(self.first_expiry(uid)).is_some_and(|(pods, flavors)| pods < flavors)
    }

    /// Whose pods were not ready in time has to leave.
    pub(super) fn out_of_time(&mut self, uid: &Uid) -> Option<&'static str> {
        if self.deadline(uid)? > self.now {
            return None;
        }
        let settings = self.readiness.clone()?;
        let attempts = self.attempts.entry(uid.clone()).or_default();
        if settings.backoff_limit_count.is_some_and(|limit| attempts.count >= limit) {
            self.deactivate(uid);
            self.counts.deactivated += 1;
            return Some("DeactivatedDueToRequeuingLimitExceeded");
        }
        attempts.count += 1;
        attempts.sent_back_at = Some(self.now);
        let limits = (settings.backoff_base_seconds, settings.backoff_max_seconds);
        attempts.requeue_at = Some(self.now.plus_seconds(backoff_seconds(limits, uid, attempts.count)));
        self.queue_from_now(uid, false);
        self.counts.timed_out += 1;
        Some("PodsReadyTimeout")
    }

    /// A workload has to leave, and leaves at once. If that is all, it is queued again.
    pub(super) fn evict(&mut self, uid: Uid, queue: &ClusterQueueName, reason: &'static str) -> Evicted {
        self.release(&uid);
        self.wake_after(queue);
        self.evicted_for.remove(&uid);
        self.waiters.insert(uid.clone(), Waiter::outside());
        let (count, requeue_at) = self.sent_back(&uid);
        if matches!(reason, "FlavorFallback" | "AdmissionCheck") {
            self.enqueue(&uid);
        }
        Evicted { uid, reason, count, requeue_at }
    }

    /// Who was sent back and has waited long enough is queued again.
    pub(super) fn come_back(&mut self) {
        for uid in self.waiters.keys().cloned().collect::<Vec<_>>() {
            let is_out = self.waiters[&uid].queue.is_none();
            let Attempts { requeue_at, sent_back_at, .. } = self.attempts_of(&uid);
            if is_out && requeue_at.is_some_and(|at| at <= self.now) {
                self.enqueue(&uid);
                let is_back = self.waiters[&uid].queue.is_some() && requeue_at != sent_back_at;
                self.counts.backed_off += usize::from(is_back);
            }
        }
    }

    /// What is kept for preemptors is free again when their time is over.
    pub(super) fn end_old_holds(&mut self) {
        let is_over = |left_at: Option<Timestamp>| {
            left_at.is_some_and(|left_at| self.now >= left_at.plus_seconds(HOLD_SECONDS))
        };
        let over = self.holds.iter().filter(|(_, hold)| is_over(hold.victims_left_at));
        for uid in over.map(|(uid, _)| uid.clone()).collect::<Vec<_>>() {
            self.end_hold(&uid);
        }
    }

    fn end_hold(&mut self, uid: &Uid) {
        let queue = self.waiters.get(uid).and_then(|waiter| waiter.queue.clone());
        if self.holds.remove(uid).is_some()
            && let Some(queue) = queue
        {
            self.wake(&self.layout.root(&queue), None);
        }
    }

    /// The next time after now at which a deadline or a backoff ends.
    pub fn next_due(&self) -> Option<Timestamp> {
        let deadlines = self.holders.keys().filter_map(|uid| self.deadline(uid));
        let expiries = self.holders.keys().filter_map(|uid| self.first_expiry(uid));
        let backoffs = self.waiters.keys().filter_map(|uid| self.attempts_of(uid).requeue_at);
        deadlines.chain(expiries).chain(backoffs).filter(|at| *at > self.now).min()
    }
}

/// For how long a workload that was sent back for the nth time is not tried: doubled every time, up to the most, and then
/// up to a twentieth more.
pub(super) fn backoff_seconds((base, most): (u32, u32), uid: &Uid, n: u32) -> i64 {
    let mut seconds = u128::from(base);
    for _ in 1..n {
        seconds *= 2;
    }
    if most > 0 {
        seconds = seconds.min(u128::from(most));
    }
    // FNV-1a over the uid and the number in four bytes, big end first.
    let mut hash: u64 = 14_695_981_039_346_656_037;
    for byte in uid.to_string().into_bytes().into_iter().chain(n.to_be_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    let ten_thousandths = u128::from(hash % 501);
    let rounded = (seconds * ten_thousandths + 5_000) / 10_000;
    i64::try_from(seconds + rounded).unwrap_or(i64::MAX)
}
