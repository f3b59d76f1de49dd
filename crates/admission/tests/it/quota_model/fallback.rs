//! Which flavors a workload has given up, how much time each has left, and what becomes of somebody who gave up all.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use gangway_model::checks::RequiredCheck;
use gangway_model::fallback::{FailurePolicy, FallbackRule, FallbackStrategy};
use gangway_model::queues::ResourceGroup;
use gangway_model::reasons::FallbackTrigger;
use gangway_model::workload::{PodSet, State};
use gangway_model::{Amount, ClusterQueueName, FlavorName, ResourceName, Timestamp, Uid};

use super::flavors::{suits, wanted_of};
use super::readiness::backoff_seconds;
use super::tree::Node;
use super::waiting::Waiter;
use super::{Decided, Evicted, Model};

/// How long a workload waits before it tries all flavors again, where nothing else is configured: at first and at most.
const BACKOFF_SECONDS: (u32, u32) = (60, 3600);

/// What a workload has tried since it was last ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// How many seconds of each flavor's time earlier assignments used up.
    pub used: BTreeMap<FlavorName, i64>,
    pub given_up: BTreeSet<FlavorName>,
    /// How often all were given up.
    pub rounds: u32,
}

/// What an administrator says anew of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub queue: ClusterQueueName,
    pub fallback: Option<FallbackStrategy>,
    pub checks: Vec<RequiredCheck>,
}

/// What a podSet may choose of a resource group.
struct Choice {
    wanted: Vec<(ResourceName, Amount)>,
    left: Vec<FlavorName>,
    /// It has given up something that would suit.
    has_lost: bool,
}

/// The rule for a flavor: one that names it goes before one for all.
fn rule<'s>(
    strategy: &'s FallbackStrategy,
    flavor: &FlavorName,
    trigger: FallbackTrigger,
) -> Option<&'s FallbackRule> {
    let mut for_all = None;
    for rule in strategy.rules.iter().filter(|rule| rule.trigger == trigger) {
        match &rule.flavor {
            Some(name) if name == flavor => return Some(rule),
            Some(_) => {}
            None => for_all = Some(rule),
        }
    }
    for_all
}

impl Model {
    pub(super) fn strategy_of(&self, queue: &ClusterQueueName) -> Option<&FallbackStrategy> {
        self.cluster_queues.get(queue)?.fallback.as_ref()
    }

    /// The strategy of the queue whose quota a workload has.
    pub(super) fn strategy_of_holder(&self, uid: &Uid) -> Option<&FallbackStrategy> {
        self.strategy_of(&self.holders.get(uid)?.queue)
    }

    /// What a workload has tried so far.
    pub fn tried_by(&self, uid: &Uid) -> Tried {
        self.tried.get(uid).cloned().unwrap_or_default()
    }

    /// The flavors that a workload does not try any more: none where its queue gives up none.
    pub(super) fn given_up(&self, uid: &Uid) -> BTreeSet<FlavorName> {
        let local = self.local_queue(&self.workloads[uid]);
        match local.and_then(|local| self.strategy_of(&local.cluster_queue)) {
            Some(_) => self.tried_by(uid).given_up,
            None => BTreeSet::new(),
        }
    }

    /// The flavors that a workload with quota has.
    pub(super) fn assigned(&self, uid: &Uid) -> BTreeSet<FlavorName> {
        self.flavors_of(uid).iter().flatten().map(|(_, flavor)| flavor.clone()).collect()
    }

    /// What a workload that appears has tried already.
    pub(super) fn note_tried(&mut self, uid: &Uid, state: &State) {
        let Some(history) = state.history() else { return };
        let mut tried = Tried::default();
        for attempt in &history.0 {
            tried.used.insert(attempt.flavor.clone(), attempt.accumulated_seconds);
            tried.given_up.extend(attempt.exhausted.map(|_| attempt.flavor.clone()));
            tried.rounds = tried.rounds.max(attempt.rounds);
        }
        self.tried.insert(uid.clone(), tried);
    }

    /// A workload has got quota: from now on the time of its flavors runs.
    pub(super) fn run_time(&mut self, uid: &Uid) {
        self.waits_since.insert(uid.clone(), self.now);
        if self.strategy_of_holder(uid).is_some() {
            self.tried.entry(uid.clone()).or_default();
        } else {
            self.tried.remove(uid);
        }
    }

    /// An administrator changes which flavors a queue gives up and which checks it demands. Whoever waits for checks is asked
    /// those that are demanded now, and everybody who waits for quota is tried again.
    pub fn redefine(&mut self, edit: &Edit) {
        let Some(queue) = self.cluster_queues.get_mut(&edit.queue) else { return };
        (queue.fallback, queue.admission_checks) = (edit.fallback.clone(), edit.checks.clone());
        self.counts.redefined += 1;
        for uid in self.not_admitted.clone() {
            if self.holders.get(&uid).is_some_and(|holder| holder.queue == edit.queue) {
                self.ask_other_checks(&uid);
            }
        }
        self.begin_to_ask_for_pods(&edit.queue);
        let waiting = self.waiting_in(&edit.queue);
        for uid in waiting {
            let before = self.lane(&uid);
            self.note_shape(&uid);
            if before != self.lane(&uid)
                && let Some(waiter) = self.waiters.get_mut(&uid)
            {
                waiter.memory = None;
            }
        }
        self.wake(&self.layout.root(&edit.queue), None);
    }

    /// Whether room is kept for somebody in the tree of a queue. What becomes of that when a definition changes is not modelled.
    pub fn keeps_room_near(&self, queue: &ClusterQueueName) -> bool {
        let root = self.layout.root(queue);
        let waits_in = |uid: &Uid| self.waiters.get(uid).and_then(|waiter| waiter.queue.as_ref());
        self.holds.keys().any(|uid| waits_in(uid).is_none_or(|queue| self.layout.root(queue) == root))
    }

    /// A workload loses its quota: what it waited for its start is used up, and what has no time left is given up.
    pub(super) fn stop_time(&mut self, uid: &Uid) {
        let Some(since) = self.waits_since.remove(uid) else { return };
        if self.strategy_of_holder(uid).is_none() && !self.tried.contains_key(uid) {
            return;
        }
        let seconds = self.now.as_seconds() - since.as_seconds();
        for flavor in self.assigned(uid) {
            let timeout = self.timeout(uid, &flavor).unwrap_or(i64::MAX);
            let tried = self.tried.entry(uid.clone()).or_default();
            let used = tried.used.entry(flavor.clone()).or_default();
            *used += seconds;
            if *used >= timeout {
                tried.given_up.insert(flavor);
            }
        }
    }

    /// Machines came: what was tried before is of no interest any more.
    pub(super) fn forget_tried(&mut self, uid: &Uid) {
        self.tried.remove(uid);
        self.waits_since.remove(uid);
    }

    /// How long a workload may have a flavor until all its pods are ready; none if for ever.
    fn timeout(&self, uid: &Uid, flavor: &FlavorName) -> Option<i64> {
        let strategy = self.strategy_of_holder(uid)?;
        rule(strategy, flavor, FallbackTrigger::TimeoutForPodsReadyExceeded)?.timeout_seconds
    }

    /// Whether every flavor that a workload has got has a time of its own.
    pub(super) fn has_all_times(&self, uid: &Uid) -> bool {
        self.assigned(uid).iter().all(|flavor| self.timeout(uid, flavor).is_some())
    }

    /// When the time of a flavor is over, if the pods of its workload are not all ready before.
    fn expiry(&self, uid: &Uid, flavor: &FlavorName) -> Option<Timestamp> {
        let since = self.waits_since.get(uid)?;
        let used = self.tried_by(uid).used.get(flavor).copied().unwrap_or(0);
        Some(since.plus_seconds((self.timeout(uid, flavor)? - used).max(0)))
    }

    pub(super) fn first_expiry(&self, uid: &Uid) -> Option<Timestamp> {
        self.assigned(uid).iter().filter_map(|flavor| self.expiry(uid, flavor)).min()
    }

    /// Whether somebody has waited for its start for a while, and not for ever.
    pub(super) fn is_mid_budget(&self, uid: &Uid) -> bool {
        let has_waited = self.waits_since.get(uid).is_some_and(|since| *since < self.now);
        has_waited && self.first_expiry(uid).is_some()
    }

    /// The flavors of which the time is over are given up, if there are any.
    pub(super) fn give_up_in_time(&mut self, uid: &Uid) -> Option<&'static str> {
        let is_over = |flavor: &FlavorName| self.expiry(uid, flavor).is_some_and(|at| at <= self.now);
        let over: Vec<FlavorName> = self.assigned(uid).into_iter().filter(is_over).collect();
        if over.is_empty() {
            return None;
        }
        self.counts.fell_back_by_timeout += 1;
        Some(self.give_up_flavors(uid, over))
    }

    /// Checks rejected these flavors. They are given up if every one of them has a rule for that.
    pub(super) fn give_up_rejected(&mut self, uid: &Uid, flavors: Vec<FlavorName>) -> Option<&'static str> {
        let strategy = self.strategy_of_holder(uid)?;
        let has_rule =
            |flavor: &FlavorName| rule(strategy, flavor, FallbackTrigger::AdmissionCheckRejected).is_some();
        if flavors.is_empty() || !flavors.iter().all(has_rule) {
            return None;
        }
        self.counts.fell_back_by_rejection += 1;
        Some(self.give_up_flavors(uid, flavors))
    }

    fn give_up_flavors(&mut self, uid: &Uid, flavors: Vec<FlavorName>) -> &'static str {
        self.tried.entry(uid.clone()).or_default().given_up.extend(flavors);
        self.queue_from_now(uid, false);
        "FlavorFallback"
    }

    /// Whether a workload has given up something that it asks for, and nothing is left of which it could ever have enough.
    fn has_given_up_all(&self, uid: &Uid, queue: &ClusterQueueName) -> bool {
        let definition = &self.cluster_queues[queue];
        definition.resource_groups.iter().any(|group| {
            let pod_sets = self.workloads[uid].pod_sets.iter();
            let wanted = pod_sets.filter_map(|pod_set| {
                let of_all = wanted_of(definition, pod_set).unwrap_or_default();
                let (_, wanted) = of_all.into_iter().find(|(other, _)| *other == group)?;
                Some((pod_set, wanted))
            });
            let choices: Vec<Choice> =
                wanted.map(|(pod_set, wanted)| self.choice(uid, queue, group, pod_set, wanted)).collect();
            match choices.iter().all(|choice| !choice.left.is_empty()) {
                true => {
                    choices.iter().any(|choice| choice.has_lost) && !self.fit_together(queue, &choices, &[])
                }
                false => choices.iter().any(|choice| choice.has_lost && choice.left.is_empty()),
            }
        })
    }

    /// What a podSet may choose from a group: what suits, was not given up, and could be enough for it alone.
    fn choice(
        &self,
        uid: &Uid,
        queue: &ClusterQueueName,
        group: &ResourceGroup,
        pod_set: &PodSet,
        wanted: Vec<(ResourceName, Amount)>,
    ) -> Choice {
        let given_up = self.given_up(uid);
        let suiting = group.flavors.iter().map(|quotas| quotas.flavor.clone());
        let suiting = suiting.filter(|flavor| suits(&self.flavors, pod_set, flavor));
        let (lost, left): (Vec<_>, Vec<_>) = suiting.partition(|flavor| given_up.contains(flavor));
        let mut choice = Choice { wanted, left: Vec::new(), has_lost: !lost.is_empty() };
        choice.left = left;
        let alone = |flavor: &FlavorName| self.fit_together(queue, &[], &[(flavor.clone(), &choice.wanted)]);
        choice.left = choice.left.iter().filter(|flavor| alone(flavor)).cloned().collect();
        choice
    }

    /// Whether a queue could ever have what was chosen, and something for each of the others besides.
    fn fit_together(
        &self,
        queue: &ClusterQueueName,
        others: &[Choice],
        chosen: &[(FlavorName, &Vec<(ResourceName, Amount)>)],
    ) -> bool {
        if let [first, others @ ..] = others {
            return first.left.iter().any(|flavor| {
                self.fit_together(queue, others, &[chosen, &[(flavor.clone(), &first.wanted)]].concat())
            });
        }
        let mut sums: BTreeMap<(FlavorName, ResourceName), Amount> = BTreeMap::new();
        for (flavor, wanted) in chosen {
            for (resource, value) in wanted.iter() {
                let sum = sums.entry((flavor.clone(), resource.clone())).or_insert(Amount::new(0));
                *sum = sum.plus(*value);
            }
        }
        let node = Node::Queue(queue.clone());
        sums.iter().all(|(cell, sum)| *sum <= self.layout.potential(&node, cell))
    }

    /// The heads that have given up all flavors try all of them again after a while, or not at all. The others remain.
    pub(super) fn begin_again(
        &mut self,
        heads: Vec<(ClusterQueueName, Uid)>,
        decided: &mut Vec<Decided>,
    ) -> Vec<(ClusterQueueName, Uid)> {
        let (over, others): (Vec<_>, Vec<_>) =
            heads.into_iter().partition(|(queue, uid)| self.has_given_up_all(uid, queue));
        for (queue, uid) in over {
            let policy = self.strategy_of(&queue).map(|strategy| strategy.failure_policy);
            decided.push(match policy.unwrap_or_default() {
                FailurePolicy::RetryAllFlavors => self.retry_all(uid),
                FailurePolicy::DeactivateWorkload => self.deactivate_exhausted(uid),
            });
            self.follow_claims();
        }
        decided.sort_by_key(|decided| decided.uid().clone());
        others
    }

    fn retry_all(&mut self, uid: Uid) -> Decided {
        let rounds = self.tried_by(&uid).rounds + 1;
        self.tried.insert(uid.clone(), Tried { rounds, ..Tried::default() });
        let configured = self.readiness.as_ref();
        let (base, most) = configured.map_or(BACKOFF_SECONDS, |settings| {
            (settings.backoff_base_seconds, settings.backoff_max_seconds)
        });
        let until = self.now.plus_seconds(backoff_seconds((base, most), &uid, rounds));
        self.attempts.entry(uid.clone()).or_default().requeue_at = Some(until);
        self.enqueue(&uid);
        self.counts.rounds_retried += 1;
        Decided::RetriesAll { uid }
    }

    fn deactivate_exhausted(&mut self, uid: Uid) -> Decided {
        self.deactivate(&uid);
        self.waiters.insert(uid.clone(), Waiter::outside());
        self.evicted_for.remove(&uid);
        self.counts.deactivated_exhausted += 1;
        let (count, requeue_at) = self.sent_back(&uid);
        let reason = "DeactivatedDueToFlavorFallbackExhausted";
        Decided::Left(Evicted { uid, reason, count, requeue_at })
    }

    /// Gangway itself deactivates a workload.
    pub(super) fn deactivate(&mut self, uid: &Uid) {
        let attempts = self.attempts.entry(uid.clone()).or_default();
        (attempts.is_deactivated, attempts.queued_from) = (true, None);
        if let Some(workload) = self.workloads.get_mut(uid) {
            Rc::make_mut(workload).active = false;
        }
    }
}
