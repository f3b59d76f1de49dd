//! Rounds and cycles: gives the engine what happens, and writes down what it decides.

use std::collections::{BTreeMap, BTreeSet};

use gangway_admission::{Action, Decision, Engine, Event, Outcome as Written, Rules, Situation};
use gangway_model::queues::{ClusterQueue, FlavorUsage, QueueingStrategy, StopPolicy};
use gangway_model::reasons::{ClusterQueueReason, FinishReason, PendingReason};
use gangway_model::workload::{Admission, Finish, State, Workload};
use gangway_model::{ClusterQueueName, Timestamp, Uid};

use super::answer::{
    Admitted, Answer, Cycle, End, Evicted, Outcome, Preempted, WorkloadEnd, WorkloadState, pod_sets,
};
use super::scenario::{Arrival, Scenario};
use super::settings::When;

/// So many cycles that decide and change nothing mean rest, if one queue's first is tried again in each.
const IDLE_CYCLES_MAX: u32 = 8;

/// Replays a scenario under these rules.
pub fn replay(scenario: &Scenario, rules: Rules) -> Answer {
    let mut driver = Driver::new(scenario, rules);
    driver.run();
    driver.answer()
}

struct Driver<'s> {
    scenario: &'s Scenario,
    roots: BTreeMap<ClusterQueueName, String>,
    rules: Rules,
    engine: Engine,
    /// The UIDs of the Workloads that have arrived, by name.
    arrived: BTreeMap<String, Uid>,
    cycles_run: u32,
    round: u32,
    /// How much time passed between rounds.
    passed_seconds: i64,
    outcome: Outcome,
    cycles: Vec<Cycle>,
}

impl<'s> Driver<'s> {
    fn new(scenario: &'s Scenario, rules: Rules) -> Self {
        let mut engine = Engine::with_rules(rules);
        let definitions = scenario
            .namespaces
            .values()
            .cloned()
            .map(Event::Namespace)
            .chain(scenario.flavors.iter().cloned().map(Event::Flavor))
            .chain(scenario.cohorts.iter().cloned().map(Event::Cohort))
            .chain(scenario.admission_checks.iter().cloned().map(Event::AdmissionCheck))
            .chain(scenario.cluster_queues.iter().cloned().map(|queue| Event::ClusterQueue(Box::new(queue))))
            .chain(scenario.local_queues.iter().cloned().map(Event::LocalQueue));
        for event in definitions {
            engine.apply(event, scenario.now);
        }
        Self {
            scenario,
            roots: scenario.roots(),
            rules,
            engine,
            arrived: BTreeMap::new(),
            cycles_run: 0,
            round: 0,
            passed_seconds: 0,
            outcome: Outcome::Quiescent,
            cycles: Vec::new(),
        }
    }

    fn run(&mut self) {
        for round in 0..=self.scenario.last_round() {
            self.round = round;
            self.start_round();
            self.run_cycles();
            if self.outcome == Outcome::CycleLimit {
                return;
            }
        }
    }

    /// The time of a cycle.
    fn time_of(&self, cycle: u32) -> Timestamp {
        self.scenario.now.plus_seconds(self.passed_seconds + i64::from(cycle))
    }

    /// What happens from outside, and what follows from it whatever the quota.
    fn start_round(&mut self) {
        let pauses = self.scenario.settings.pauses.iter().filter(|pause| pause.round == self.round);
        self.passed_seconds += pauses.map(|pause| i64::from(pause.seconds)).sum::<i64>();
        let now = self.time_of(self.cycles_run);
        let finished = self.finish(When::Round(self.round), now);
        for arrival in self.scenario.arrivals.iter().filter(|arrival| arrival.round == self.round) {
            self.arrived.insert(arrival.workload.name.to_string(), arrival.workload.uid.clone());
            self.engine.apply(Event::Workload(Box::new(arrival.workload.clone())), now);
        }
        if self.round == 0 {
            self.engine.apply(Event::Synced, now);
        }
        let mut entry = self.settle(now);
        entry.evicted.sort_by(|a, b| a.workload.cmp(&b.workload));
        self.keep(Cycle { finished, ..entry });
        if self.rules.standing_reserve {
            self.engine.reconsider();
        }
        if self.rules.defects && self.round == 1 {
            self.tell_the_inactive();
        }
    }

    /// Whatever the reference writes to a Workload that is not active wakes its tree. Those of the beginning are told in the
    /// second round that their ClusterQueue is not active; it does not know the queue of those who come later.
    fn tell_the_inactive(&mut self) {
        let scenario = self.scenario;
        let is_told = |arrival: &&Arrival| arrival.round == 0 && !arrival.workload.active;
        for Arrival { workload, .. } in scenario.arrivals.iter().filter(is_told) {
            let local = scenario.local_queues.iter().find(|local| {
                local.name.namespace == workload.name.namespace && local.name.name == workload.queue
            });
            let Some(local) = local.filter(|local| local.stop_policy == StopPolicy::None) else { continue };
            let status = self.engine.cluster_queue_status(&local.cluster_queue);
            if status.is_some_and(|(reason, ..)| reason != ClusterQueueReason::Ready) {
                self.engine.reconsider_tree(&local.cluster_queue);
            }
        }
    }

    /// Ends what is to end now and holds quota. Returns who it was.
    fn finish(&mut self, when: When, now: Timestamp) -> Vec<String> {
        let mut finished = Vec::new();
        let ends = self.scenario.settings.finish.iter().filter(|finish| finish.when == when);
        for name in ends.map(|finish| &finish.workload) {
            let uid = self.arrived.get(name);
            let Some(workload) = uid.and_then(|uid| self.engine.workload(uid)).cloned() else { continue };
            if workload.state.reservation().is_none() {
                continue;
            }
            let finish =
                Finish { reason: FinishReason::Succeeded, message: "The replay says so".to_owned(), at: now };
            let state = State::Finished(Box::new(finish), Box::new(workload.state.clone()));
            let version = workload.version + 1;
            self.engine.apply(Event::Workload(Box::new(Workload { state, version, ..workload })), now);
            finished.push(name.clone());
        }
        finished
    }

    /// Runs cycles until nothing more would be decided, or there were too many.
    fn run_cycles(&mut self) {
        let mut idle = 0;
        let mut aside_before = None;
        while idle < IDLE_CYCLES_MAX {
            let now = self.time_of(self.cycles_run.saturating_add(1));
            let Some(decisions) = self.decide(now) else { return };
            if self.cycles_run == self.scenario.cycles_max {
                self.outcome = Outcome::CycleLimit;
                return;
            }
            self.cycles_run += 1;
            let mut entry = self.entry(&decisions);
            self.carry_out(&decisions, now);
            entry.add(self.settle(now));
            let finished = self.finish(When::Cycle(self.cycles_run), now);
            let is_idle = entry.is_empty() && finished.is_empty();
            self.keep(Cycle { finished, ..entry });
            // Under Gangway's own rules every cycle moves somebody, so there it need not be looked at.
            let aside = (is_idle && !self.rules.standing_reserve).then(|| self.set_aside());
            idle = if aside.is_some() && aside == aside_before { idle + 1 } else { 0 };
            aside_before = aside;
        }
    }

    /// What one cycle decides; none if nobody is left to try.
    fn decide(&mut self, now: Timestamp) -> Option<Vec<Decision>> {
        self.engine.decide_one_cycle(now)
    }

    /// The names of those that were tried and set aside. Nobody is in a strict queue.
    fn set_aside(&self) -> BTreeSet<&'s Uid> {
        let arrivals = self.scenario.arrivals.iter().filter(|arrival| arrival.round <= self.round);
        let waits = |workload: &&Workload| {
            let Some(explanation) = self.engine.explain(&workload.uid) else { return false };
            let untried = Situation::Waiting(PendingReason::PendingEvaluation);
            explanation.situation != untried
                && !explanation.cluster_queue.is_some_and(|name| self.is_strict(&name))
        };
        arrivals.map(|arrival| &arrival.workload).filter(waits).map(|workload| &workload.uid).collect()
    }

    fn is_strict(&self, name: &ClusterQueueName) -> bool {
        let queue = self.engine.durable().cluster_queue(name);
        queue.is_some_and(|queue| queue.strategy == QueueingStrategy::StrictFifo)
    }

    /// Does what is due whatever the quota, until nothing is.
    fn settle(&mut self, now: Timestamp) -> Cycle {
        let mut entry = self.entry(&[]);
        loop {
            let due = self.engine.decide_only_due(now, usize::MAX);
            if due.is_empty() {
                return entry;
            }
            entry.add(self.entry(&due));
            self.carry_out(&due, now);
        }
    }

    /// Every write succeeds and is visible at once.
    fn carry_out(&mut self, decisions: &[Decision], now: Timestamp) {
        for decision in decisions {
            if let Some(write) = self.engine.pending_write(decision.id) {
                let landed = Written::Landed(write.version.saturating_add(1));
                self.engine.apply(Event::Outcome(decision.id, landed), now);
            }
        }
    }

    fn keep(&mut self, entry: Cycle) {
        if !entry.is_empty() {
            self.cycles.push(entry);
        }
    }

    /// The decisions of a cycle, before they are carried out, as the answer lists them.
    fn entry(&self, decisions: &[Decision]) -> Cycle {
        let mut entry = Cycle { cycle: self.cycles_run, round: self.round, ..Cycle::default() };
        let mut order = Order { roots: &self.roots, last: BTreeMap::new(), preemptors: BTreeMap::new() };
        for (sequence, decision) in decisions.iter().enumerate() {
            let workload = decision.name.to_string();
            match &decision.action {
                Action::Admit(admission) | Action::Reserve(admission) => entry.admitted.push(Admitted {
                    workload,
                    cluster_queue: admission.cluster_queue.to_string(),
                    pod_sets: pod_sets(admission),
                    borrowing: self.borrows(admission),
                    order: order.next(&admission.cluster_queue),
                    sequence,
                }),
                Action::Evict(_, Some(preemption)) => {
                    let queue = self.queue_of(&decision.uid);
                    let preemptor = preemption.preemptor.as_ref();
                    entry.preempted.push(Preempted {
                        workload,
                        order: order.of_preemptor(&queue, preemptor),
                        cluster_queue: queue.to_string(),
                        preemptor: preemptor.map(|uid| self.name_of(uid)).unwrap_or_default(),
                        reason: preemption.reason.as_str(),
                        sequence,
                    });
                }
                Action::Evict(reason, None) => {
                    let cluster_queue = self.queue_of(&decision.uid).to_string();
                    entry.evicted.push(Evicted { workload, cluster_queue, reason: reason.as_str() });
                }
                Action::LetStart(_)
                | Action::AskChecks
                | Action::RetryAllFlavors
                | Action::ForgetHistory
                | Action::Release(_)
                | Action::Requeue(_)
                | Action::Finish(_)
                | Action::PodsReady(_)
                | Action::Deactivate
                | Action::ReportOverdue
                | Action::ReportWaiting(_) => {}
            }
        }
        entry
    }

    /// The ClusterQueue whose quota a Workload has.
    fn queue_of(&self, uid: &Uid) -> ClusterQueueName {
        let reservation = self.engine.workload(uid).and_then(|workload| workload.state.reservation());
        reservation.map_or_else(|| "".into(), |reservation| reservation.admission.cluster_queue.clone())
    }

    fn name_of(&self, uid: &Uid) -> String {
        self.engine.workload(uid).map_or_else(|| uid.to_string(), |workload| workload.name.to_string())
    }

    /// Whether a queue is above its own quota in something that is used by this admission, which counts already.
    fn borrows(&self, admission: &Admission) -> bool {
        let Some((_, _, counts)) = self.engine.cluster_queue_status(&admission.cluster_queue) else {
            return false;
        };
        let used: BTreeSet<_> =
            admission.usage().filter(|(.., amount)| *amount > 0).map(|(f, r, _)| (f, r)).collect();
        counts.reservation.iter().any(|usage| {
            usage
                .resources
                .iter()
                .any(|(resource, _, borrowed)| *borrowed > 0 && used.contains(&(&usage.flavor, resource)))
        })
    }

    fn answer(self) -> Answer {
        let workloads = self.arrived.iter().filter_map(|(name, uid)| Some((name.clone(), self.end_of(uid)?)));
        let usage = |queue: &ClusterQueue| {
            let (_, _, counts) = self.engine.cluster_queue_status(&queue.name)?;
            let of_flavor = |usage: FlavorUsage| {
                let resources = usage.resources.into_iter().map(|(r, total, _)| (r.to_string(), total));
                (usage.flavor.to_string(), resources.collect())
            };
            Some((queue.name.to_string(), counts.reservation.into_iter().map(of_flavor).collect()))
        };
        let end = End {
            workloads: workloads.collect(),
            cluster_queues: self.scenario.cluster_queues.iter().filter_map(usage).collect(),
        };
        Answer {
            scenario: self.scenario.settings.name.clone(),
            engine: concat!("gangway ", env!("CARGO_PKG_VERSION")).to_owned(),
            outcome: self.outcome,
            cycles_run: self.cycles_run,
            roots: self.roots.iter().map(|(queue, root)| (queue.to_string(), root.clone())).collect(),
            cycles: self.cycles,
            end,
        }
    }

    fn end_of(&self, uid: &Uid) -> Option<WorkloadEnd> {
        let workload = self.engine.workload(uid)?;
        let held = workload.state.reservation();
        let state = match held {
            _ if workload.state.is_finished() => WorkloadState::Finished,
            _ if !workload.active => WorkloadState::Inactive,
            Some(reservation) if reservation.admitted_at.is_some() => WorkloadState::Admitted,
            Some(_) => WorkloadState::Reserved,
            None => WorkloadState::Pending,
        };
        let held = held.filter(|_| matches!(state, WorkloadState::Admitted | WorkloadState::Reserved));
        let is_explained = state == WorkloadState::Pending && self.rules == Rules::gangway();
        let explanation = self.engine.explain(uid).filter(|_| is_explained);
        Some(WorkloadEnd {
            state,
            cluster_queue: held.map(|reservation| reservation.admission.cluster_queue.to_string()),
            pod_sets: held.map(|reservation| pod_sets(&reservation.admission)).unwrap_or_default(),
            reason: explanation.as_ref().map(|explanation| explanation.situation.as_str()),
            message: explanation.map(|explanation| explanation.message),
        })
    }
}

/// Numbers the decisions of a cycle in each tree.
struct Order<'d> {
    roots: &'d BTreeMap<ClusterQueueName, String>,
    last: BTreeMap<Option<&'d String>, usize>,
    /// The victims of one preemptor are one decision.
    preemptors: BTreeMap<Option<&'d Uid>, usize>,
}

impl<'d> Order<'d> {
    fn next(&mut self, queue: &ClusterQueueName) -> usize {
        let last = self.last.entry(self.roots.get(queue)).or_default();
        *last += 1;
        *last
    }

    fn of_preemptor(&mut self, queue: &ClusterQueueName, preemptor: Option<&'d Uid>) -> usize {
        match self.preemptors.get(&preemptor) {
            Some(number) => *number,
            None => {
                let number = self.next(queue);
                self.preemptors.insert(preemptor, number);
                number
            }
        }
    }
}
