//! Every invariant, checked slowly, for tests and doctors.

use gangway_model::workload::State;

use crate::engine::Engine;
use crate::ids::{LocalQueueId, QueueId};
use crate::lifecycle;
use crate::memory::CountedAs;
use crate::tally::Tally;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

fn violation<T>(what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation(what.into()))
}

impl Engine {
    /// Checks every invariant.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_tallies()?;
        self.check_ledger()?;
        self.check_places()?;
        self.check_indexes()?;
        self.check_preemptors()?;
        for (index, queue) in self.memory.queues.iter().enumerate() {
            let name = self.memory.ledger.queue_names.name(index);
            queue
                .check(&self.places())
                .map_err(|problem| Violation(format!("ClusterQueue {name}: {problem}")))?;
            if !queue.is_listed && self.memory.ready.contains(&QueueId::from(index)) {
                return violation(format!("ClusterQueue {name} is ready and not listed"));
            }
        }
        Ok(())
    }

    fn all_counted(&self) -> impl Iterator<Item = &CountedAs> {
        let counted = self.memory.tracks.iter().filter_map(|track| track.counted.as_ref());
        counted.chain(self.memory.left_behind.values().flatten())
    }

    /// Incremental counts equal counts recomputed from the records and the writes under way.
    fn check_tallies(&self) -> Result<(), Violation> {
        let mut clusters = vec![Tally::default(); self.memory.cluster_tallies.len()];
        let mut locals = vec![Tally::default(); self.memory.locals.len()];
        for counted in self.all_counted() {
            let usage = counted.holds.as_ref().map(|holds| holds.usage.to_vec()).unwrap_or_default();
            let LocalQueueId(local) = counted.local;
            locals[local as usize].count(counted.counted, &usage, 1);
            if let Some(cluster) = counted.cluster {
                clusters[cluster.index()].count(counted.counted, &usage, 1);
            }
        }
        if clusters != self.memory.cluster_tallies {
            return violation("counts of ClusterQueues differ from counts recomputed");
        }
        if locals.iter().zip(&self.memory.locals).any(|(tally, local)| *tally != local.tally) {
            return violation("counts of LocalQueues differ from counts recomputed");
        }
        Ok(())
    }

    /// What is booked in the quota trees is what holders use and what is kept.
    fn check_ledger(&self) -> Result<(), Violation> {
        let ledger = &self.memory.ledger;
        let holders: usize = ledger.accounts.iter().map(|account| account.holders.len()).sum();
        if self.all_counted().filter(|counted| counted.holds.is_some()).count() != holders {
            return violation("somebody holds quota that is not counted, or the other way round");
        }
        if ledger.is_outdated() {
            return Ok(());
        }
        ledger.check().map_err(Violation)
    }

    /// Every Workload is in exactly one place: queued, holding quota, ended, or waiting for a named reason.
    fn check_places(&self) -> Result<(), Violation> {
        let queued: usize = self.memory.queues.iter().map(|queue| queue.len()).sum();
        let placed = self.memory.tracks.iter().filter(|track| track.place.is_some()).count();
        if queued != placed {
            return violation(format!("{queued} Workloads are queued but {placed} know their place"));
        }
        for (id, workload) in self.durable.workloads.iter() {
            let Some(track) = self.track(id) else {
                return violation(format!("{} is not tracked", workload.name));
            };
            let is_pending = matches!(workload.state, State::Pending(_)) && track.decision.is_none();
            if track.place.is_some() && !is_pending {
                return violation(format!("{} is queued and has quota", workload.name));
            }
            let accounted = track.place.is_some()
                || !is_pending
                || workload.deleting
                || track.rare.stale.is_some()
                || track.waits_after_refusal().is_some()
                || track.is_touched
                || self.durable.standing(workload).is_some()
                || track.rare.deadline.is_some();
            let kept_out =
                matches!(&workload.state, State::Pending(pending) if !lifecycle::is_queued(pending));
            if !accounted && !kept_out {
                return violation(format!("{} waits for nothing", workload.name));
            }
        }
        if self.memory.shapes.users() != self.durable.workloads.len() {
            return violation("a shape is kept that nobody has, or the other way round");
        }
        Ok(())
    }

    /// What is found by name, by Job, by decision and by time is what the records and tracks say.
    fn check_indexes(&self) -> Result<(), Violation> {
        let (durable, memory) = (&self.durable, &self.memory);
        let named: usize = memory.locals.iter().map(|local| local.members.len()).sum();
        let owned: usize = memory.by_owner.values().map(|members| members.len()).sum();
        let with_owner = durable.workloads.iter().filter(|(_, workload)| workload.owner.is_some()).count();
        if named != durable.workloads.len() || owned != with_owner {
            return violation("Workloads by LocalQueue or by Job differ from the Workloads");
        }
        let victims: usize = memory.victims.values().map(|victims| victims.len()).sum();
        let naming = durable.workloads.iter().filter(|(_, workload)| {
            workload.state.preemptor().is_some() && crate::holds::is_victim(&workload.state)
        });
        if naming.count() != victims {
            return violation("victims by preemptor differ from the Workloads that name one");
        }
        let mut writes = 0;
        let mut deadlines = 0;
        for (id, workload) in durable.workloads.iter() {
            let track = &memory.tracks[id.index()];
            for write in [&track.decision, &track.rare.report].into_iter().flatten() {
                writes += 1;
                if memory.under_way.get(write.id) != Some(id) {
                    return violation(format!("decision {} of {} is not known", write.id.0, workload.name));
                }
            }
            if let Some(at) = track.rare.deadline {
                deadlines += 1;
                if !memory.deadlines.contains(&(at, id)) {
                    return violation(format!("the deadline of {} is not known", workload.name));
                }
            }
        }
        if writes != memory.under_way.len() || deadlines != memory.deadlines.len() {
            return violation("a decision or a deadline is kept that no Workload has");
        }
        Ok(())
    }

    /// Room is kept for nobody but those who wait: preemptors, and the first that keeps others from borrowing.
    fn check_preemptors(&self) -> Result<(), Violation> {
        for (index, account) in self.memory.ledger.accounts.iter().enumerate() {
            for kept in account.kept() {
                let track = self.track(kept.id);
                // Who cannot be tried for a moment keeps what it has won.
                let waits = track.is_some_and(|track| match &track.place {
                    Some(place) => place.queue.index() == index,
                    None => !track.may_decide(),
                });
                if !waits {
                    return violation("room is kept for a Workload that does not wait for it");
                }
            }
            let holds_of_others =
                |kept: &&crate::ledger::Kept| self.track(kept.id).is_none_or(|track| !track.is_preemptor);
            if account.holds.iter().any(|kept| holds_of_others(&kept)) {
                return violation("room is kept for somebody who is no preemptor");
            }
        }
        for id in &self.memory.condemned {
            if self.track(*id).is_none_or(|track| track.rare.condemned.is_none()) {
                return violation("somebody counts as chosen to leave and is not");
            }
        }
        Ok(())
    }
}
