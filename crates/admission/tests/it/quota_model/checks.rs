//! Admission checks: what else than quota has to agree before a workload with quota may start.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gangway_model::reasons::CheckState;
use gangway_model::workload::Reservation;
use gangway_model::{AdmissionCheckName, ClusterQueueName, FlavorName, Timestamp, Uid};

use super::Model;

/// What a check says of a workload with quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub state: CheckState,
    pub at: Timestamp,
    /// How long to wait after a retry.
    pub after_seconds: Option<i64>,
}

impl Model {
    /// The checks that have to agree when a queue gives flavors.
    pub(super) fn required_checks<'f>(
        &self,
        queue: &ClusterQueueName,
        flavors: impl Iterator<Item = &'f FlavorName> + Clone,
    ) -> Vec<AdmissionCheckName> {
        let demanded = self.cluster_queues[queue].admission_checks.iter();
        let concerns = |on: &[FlavorName], flavor: &FlavorName| on.is_empty() || on.contains(flavor);
        let required = demanded.filter(|check| flavors.clone().any(|f| concerns(&check.on_flavors, f)));
        required.map(|check| check.name.clone()).collect()
    }

    /// A workload has got quota: its checks are asked, and if there are none it starts.
    pub(super) fn ask_checks(&mut self, uid: &Uid) {
        let (queue, flavors) = (self.holders[uid].queue.clone(), self.assigned(uid));
        let pending = Answer { state: CheckState::Pending, at: self.now, after_seconds: None };
        let asked: BTreeMap<_, _> =
            self.required_checks(&queue, flavors.iter()).into_iter().map(|check| (check, pending)).collect();
        if asked.is_empty() {
            self.begin_start(uid);
        } else {
            self.counts.reserved += 1;
            self.not_admitted.insert(uid.clone());
        }
        self.asked.insert(uid.clone(), asked);
    }

    /// Others are demanded now of a workload that waits for its checks: what was said by those that stay counts.
    pub(super) fn ask_other_checks(&mut self, uid: &Uid) {
        let (queue, flavors) = (self.holders[uid].queue.clone(), self.assigned(uid));
        let known = self.asked.remove(uid).unwrap_or_default();
        let pending = Answer { state: CheckState::Pending, at: self.now, after_seconds: None };
        let demanded = self.required_checks(&queue, flavors.iter()).into_iter();
        let asked = demanded.map(|check| {
            let answer = known.get(&check).copied().unwrap_or(pending);
            (check, answer)
        });
        self.asked.insert(uid.clone(), asked.collect());
    }

    /// What the checks of a workload that has quota from the beginning have said.
    pub(super) fn note_checks(&mut self, uid: &Uid, reservation: &Reservation) {
        let answers = reservation.checks.iter().flat_map(|checks| &checks.0);
        let answers = answers.map(|answer| {
            let after_seconds = answer.requeue_after_seconds;
            (answer.name.clone(), Answer { state: answer.state, at: answer.at, after_seconds })
        });
        self.asked.insert(uid.clone(), answers.collect());
        if reservation.admitted_at.is_none() {
            self.not_admitted.insert(uid.clone());
        }
    }

    /// A check says something of a workload. Ignored unless it was asked.
    pub fn answer(&mut self, uid: &Uid, check: &AdmissionCheckName, answer: Answer) {
        if let Some(known) = self.asked.get_mut(uid).and_then(|asked| asked.get_mut(check)) {
            *known = answer;
        }
    }

    pub(super) fn forget_checks(&mut self, uid: &Uid) {
        self.asked.remove(uid);
        self.not_admitted.remove(uid);
    }

    /// A check does not agree: the workload leaves, for another flavor, for ever, or for a while.
    pub(super) fn refused(&mut self, uid: &Uid) -> Option<&'static str> {
        let mut asked = self.asked.get(uid).cloned().unwrap_or_default();
        let flavors = self.assigned(uid);
        let demanded = self.required_checks(&self.holders[uid].queue, flavors.iter());
        asked.retain(|check, _| demanded.contains(check));
        let that_say = |state| asked.iter().filter(move |(_, answer)| answer.state == state);
        if that_say(CheckState::Rejected).next().is_some() {
            let rejected: Vec<_> = that_say(CheckState::Rejected).map(|(check, _)| check.clone()).collect();
            let flavors = self.concerned(uid, &rejected);
            return Some(self.give_up_rejected(uid, flavors).unwrap_or_else(|| {
                self.deactivate(uid);
                self.counts.deactivated_by_check += 1;
                "DeactivatedDueToAdmissionCheck"
            }));
        }
        that_say(CheckState::Retry).next()?;
        let until = |answer: &Answer| Some(answer.at.plus_seconds(answer.after_seconds?));
        let until = that_say(CheckState::Retry).filter_map(|(_, answer)| until(answer)).max();
        self.attempts.entry(uid.clone()).or_default().requeue_at = until.filter(|at| *at > self.now);
        self.queue_from_now(uid, true);
        self.counts.retried_by_check += 1;
        Some("AdmissionCheck")
    }

    /// The flavors of a workload that are the business of one of these checks.
    fn concerned(&self, uid: &Uid, checks: &[AdmissionCheckName]) -> Vec<FlavorName> {
        let queue = &self.holders[uid].queue;
        let is_concerned = |flavor: &FlavorName| {
            let asked = self.required_checks(queue, std::iter::once(flavor));
            asked.iter().any(|check| checks.contains(check))
        };
        self.assigned(uid).into_iter().filter(is_concerned).collect()
    }

    /// Those start whose checks all agree; one after the other where only one may at a time.
    pub(super) fn let_start(&mut self) {
        while let Some(uid) = self.next_to_start() {
            self.not_admitted.remove(&uid);
            self.begin_start(&uid);
            let was_blocked = self.is_blocked();
            self.follow_pods(&uid);
            self.note_end_of_block(was_blocked);
            self.counts.let_start += 1;
        }
    }

    /// The higher priority goes first, then who has had its quota for longer.
    fn next_to_start(&self) -> Option<Uid> {
        let agrees = |uid: &&Uid| self.asked[*uid].values().all(|answer| answer.state == CheckState::Ready);
        let order = |uid: &&Uid| {
            let since = self.waits_since.get(*uid).copied();
            (Reverse(self.workloads[*uid].priority), since, (*uid).clone())
        };
        if self.is_blocked() {
            return None;
        }
        self.not_admitted.iter().filter(agrees).min_by_key(order).cloned()
    }
}
