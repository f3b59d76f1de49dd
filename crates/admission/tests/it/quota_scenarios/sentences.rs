//! What must hold of every scenario under Gangway's rules, said as sentences about the decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gangway_model::queues::{ClusterQueue, QueueingStrategy, ReclaimWithinCohort, WithinClusterQueue};
use gangway_model::workload::{Admission, Assignment, Reservation, State, Workload};
use gangway_model::{FlavorName, ResourceName, Uid};

use super::drive::{Holders, Played};
use super::generate::Scenario;
use super::readiness::Readiness;
use crate::build;
use crate::quota_model::{Decided, Holder, Model, Node, Proof, Rules, Snapshot, Standing};

/// Checks every sentence; the error is the first that does not hold.
pub fn check(scenario: &Scenario, played: &Played, proofs: &[Proof]) -> Result<(), String> {
    let workloads = scenario.workloads.iter().map(|(_, workload)| (workload.uid.clone(), workload)).collect();
    let model = Model::new(Rules::gangway(), scenario.setup.clone());
    let mut watch = Watch { scenario, workloads, model, left_for: BTreeMap::new(), owed: BTreeSet::new() };
    for (number, round) in played.rounds.iter().enumerate() {
        watch.begin(number as u32);
        round.evicted.iter().for_each(|evicted| watch.left(&evicted.uid));
        watch.follow(&round.cycles).map_err(|problem| format!("round {number}: {problem}"))?;
        has_given_up(&played.holders[number], &round.standing)
            .map_err(|problem| format!("round {number}: {problem}"))?;
    }
    proofs.iter().try_for_each(|proof| check_victims(scenario, &watch.workloads, proof))
}

/// Follows the decisions with nothing but a list of holders.
struct Watch<'s> {
    scenario: &'s Scenario,
    workloads: BTreeMap<Uid, &'s Workload>,
    /// Only asked whether more is used than there is.
    model: Model,
    left_for: BTreeMap<Uid, Uid>,
    /// Preemptors whose victims had to leave and who have not been admitted yet.
    owed: BTreeSet<Uid>,
}

impl Watch<'_> {
    fn begin(&mut self, round: u32) {
        for (_, uid) in self.scenario.finishes.iter().filter(|(at, _)| *at == round) {
            self.model.finish(uid);
        }
        let holding = |workload: &Workload| matches!(workload.state, State::Holding(_));
        for (_, workload) in self.scenario.workloads.iter().filter(|(at, w)| *at == round && holding(w)) {
            self.model.add(workload.clone());
        }
    }

    fn follow(&mut self, cycles: &[Vec<Decided>]) -> Result<(), String> {
        let mut pairs = BTreeSet::new();
        for cycle in cycles {
            let mut gone = Vec::new();
            for decided in cycle {
                match decided {
                    Decided::Admitted { uid, flavors, .. } => self.admitted(uid, flavors)?,
                    Decided::RetriesAll { .. } => {}
                    Decided::Left(evicted) => {
                        self.left(&evicted.uid);
                        pairs.retain(|(before, _)| *before != evicted.uid);
                    }
                    Decided::Preempted { preemptor, victims } => {
                        self.took_over(preemptor);
                        self.owed.insert(preemptor.clone());
                        for (victim, _) in victims {
                            self.may_take(preemptor, victim)?;
                            if !pairs.insert((preemptor.clone(), victim.clone())) {
                                return Err(format!("{victim} had to leave for {preemptor} twice"));
                            }
                            // Who had to leave itself since then may need the room once more.
                            pairs.retain(|(before, _)| before != victim);
                            self.left_for.insert(victim.clone(), preemptor.clone());
                            gone.push(victim);
                        }
                    }
                }
            }
            gone.into_iter().for_each(|victim| self.model.finish(victim));
        }
        let mut owed = self.owed.iter().filter(|owed| !self.is_in_strict_queue(owed));
        match owed.find(|_| !self.is_sequential()) {
            Some(owed) => Err(format!("somebody had to leave for {owed}, which was not admitted then")),
            None => Ok(()),
        }
    }

    /// A workload had to leave, and for nobody.
    fn left(&mut self, uid: &Uid) {
        self.model.finish(uid);
        self.left_for.remove(uid);
    }

    /// Nothing is admitted beyond quota, nor on room that a victim of the same cycle still has.
    fn admitted(&mut self, uid: &Uid, flavors: &[Vec<(ResourceName, FlavorName)>]) -> Result<(), String> {
        let Some(workload) = self.workloads.get(uid) else { return Err(format!("{uid} is unknown")) };
        self.model.add(holding(workload, flavors));
        self.took_over(uid);
        self.owed.remove(uid);
        match self.model.oversubscribed_by(uid) {
            Some((node, cell)) => Err(format!("{node:?} has less than nothing of {cell:?} after {uid}")),
            None => Ok(()),
        }
    }

    /// There somebody who goes before it may have come back, and hold up everybody.
    fn is_in_strict_queue(&self, uid: &Uid) -> bool {
        let strict = |queue: &&ClusterQueue| queue.strategy == QueueingStrategy::StrictFifo;
        let mut queues = self.scenario.setup.cluster_queues.iter().filter(strict);
        queues.any(|queue| queue.name.as_str() == &*self.workloads[uid].queue)
    }

    /// Where one starts at a time, others may have to start first.
    fn is_sequential(&self) -> bool {
        self.scenario.readiness.as_ref().is_some_and(Readiness::is_sequential)
    }

    /// A higher priority of the same queue may take what was freed for a preemptor.
    fn took_over(&mut self, uid: &Uid) {
        let winner = self.workloads[uid];
        self.owed.retain(|owed| {
            let owed = self.workloads[owed];
            owed.queue != winner.queue || owed.priority >= winner.priority
        });
    }

    /// Nobody preempts the one for whom it left, directly or through others.
    fn may_take(&self, preemptor: &Uid, victim: &Uid) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        let mut last = preemptor;
        while let Some(next) = self.left_for.get(last).filter(|next| seen.insert((*next).clone())) {
            if next == victim {
                return Err(format!("{preemptor} left for {victim}, and now {victim} leaves for it"));
            }
            last = next;
        }
        Ok(())
    }
}

/// Nobody has a flavor that it gave up.
fn has_given_up(holders: &Holders, standing: &BTreeMap<Uid, Standing>) -> Result<(), String> {
    for (uid, flavors) in holders {
        let given_up = standing.get(uid).map(|standing| &standing.tried.given_up);
        let mut flavors = flavors.iter().flatten().map(|(_, flavor)| flavor);
        if let Some(flavor) = flavors.find(|flavor| given_up.is_some_and(|all| all.contains(*flavor))) {
            return Err(format!("{uid} has {flavor}, which it gave up"));
        }
    }
    Ok(())
}

/// A workload as it is once it has been admitted on these flavors.
fn holding(workload: &Workload, flavors: &[Vec<(ResourceName, FlavorName)>]) -> Workload {
    let pod_sets = workload.pod_sets.iter().zip(flavors).map(|(set, flavors)| Assignment {
        name: set.name.clone(),
        flavors: flavors.clone(),
        usage: set.requests.times(i64::from(set.count)),
        count: set.count,
        reclaimed: 0,
    });
    let cluster_queue = (&*workload.queue).into();
    let reservation = Reservation {
        admission: Arc::new(Admission { cluster_queue, pod_sets: pod_sets.collect() }),
        reserved_at: build::at(0),
        admitted_at: Some(build::at(0)),
        past_eviction: None,
        requeued: None,
        requeue_state: None,
        pods_ready: None,
        checks: None,
        history: None,
    };
    Workload { state: State::Holding(reservation), ..workload.clone() }
}

/// The preemptor fits without its victims, with any one of them it does not, and each may be taken.
fn check_victims(
    scenario: &Scenario,
    workloads: &BTreeMap<Uid, &Workload>,
    proof: &Proof,
) -> Result<(), String> {
    let Proof { preemptor, victims, view, .. } = proof;
    if !fits(proof, &view.without(victims)) {
        return Err(format!("{preemptor} does not fit without {victims:?}"));
    }
    for spared in victims {
        if fits(proof, &view.without(victims.iter().filter(|victim| *victim != spared))) {
            return Err(format!("{preemptor} would fit even if {spared} stayed"));
        }
    }
    let queue = scenario.setup.cluster_queues.iter().find(|queue| queue.name == proof.queue);
    let (Some(queue), Some(asker)) = (queue, workloads.get(preemptor)) else {
        return Err(format!("{preemptor} is unknown"));
    };
    let mut rest = view.clone();
    for victim in victims {
        // Each at its turn, when those before it are gone.
        if !is_legal(queue, asker, proof, &rest, &rest.holders[victim]) {
            return Err(format!("{preemptor} may not take {victim}"));
        }
        rest.holders.remove(victim);
    }
    Ok(())
}

fn fits(proof: &Proof, room: &Snapshot) -> bool {
    let node = Node::Queue(proof.queue.clone());
    let borrows = || proof.needs.iter().any(|(cell, need)| room.borrows_with(&node, cell, *need));
    room.fits(&proof.queue, &proof.needs) && (proof.may_borrow || !borrows())
}

fn is_legal(queue: &ClusterQueue, asker: &Workload, proof: &Proof, rest: &Snapshot, victim: &Holder) -> bool {
    let lower = victim.priority < asker.priority;
    if victim.queue == queue.name {
        let newer = victim.priority == asker.priority && proof.queued_at < victim.created;
        return match queue.preemption.within_cluster_queue {
            WithinClusterQueue::Never => false,
            WithinClusterQueue::LowerPriority => lower,
            WithinClusterQueue::LowerOrNewerEqualPriority => lower || newer,
        };
    }
    let by_policy = match queue.preemption.reclaim_within_cohort {
        ReclaimWithinCohort::Never => false,
        ReclaimWithinCohort::LowerPriority => lower,
        ReclaimWithinCohort::Any => true,
    };
    by_policy && !rest.within_quota(&Node::Queue(victim.queue.clone()), &proof.contested)
}
