//! Every invariant, checked slowly, for tests and doctors.

use std::collections::BTreeMap;

use gangway_model::workload::State;
use gangway_model::{ClusterQueueName, ObjectName};

use crate::engine::Engine;
use crate::quota::Tally;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

impl Engine {
    /// Checks every invariant.
    pub fn check(&self) -> Result<(), Violation> {
        self.check_tallies()?;
        self.check_places()?;
        self.check_indexes()?;
        for (name, queue) in &self.memory.queues {
            queue.check().map_err(|problem| Violation(format!("ClusterQueue {name}: {problem}")))?;
        }
        Ok(())
    }

    /// Incremental usage equals usage recomputed from the records and the writes under way.
    fn check_tallies(&self) -> Result<(), Violation> {
        let mut clusters: BTreeMap<ClusterQueueName, Tally> = BTreeMap::new();
        let mut locals: BTreeMap<ObjectName, Tally> = BTreeMap::new();
        let counted = self.memory.tracks.values().filter_map(|track| track.counted.as_ref());
        for counted in counted.chain(self.memory.left_behind.values().flatten()) {
            let local = locals.entry(counted.local.clone()).or_default();
            local.count(counted.counted, counted.admission.as_ref(), 1);
            if let Some(cluster) = &counted.cluster {
                let tally = clusters.entry(cluster.clone()).or_default();
                tally.count(counted.counted, counted.admission.as_ref(), 1);
            }
        }
        let kept = |tallies: &BTreeMap<_, Tally>| -> BTreeMap<_, Tally> {
            tallies
                .iter()
                .filter(|(_, tally)| !tally.is_empty())
                .map(|(k, v): (&ClusterQueueName, _)| (k.clone(), v.clone()))
                .collect()
        };
        if kept(&clusters) != kept(&self.memory.cluster_tallies) {
            return Err(Violation("usage of ClusterQueues differs from usage recomputed".into()));
        }
        for (name, tally) in &self.memory.local_tallies {
            if *tally != locals.get(name).cloned().unwrap_or_default() {
                return Err(Violation(format!("counts of LocalQueue {name} differ from counts recomputed")));
            }
        }
        Ok(())
    }

    /// Every Workload is in exactly one place: queued, holding quota, ended, or waiting for a named reason.
    fn check_places(&self) -> Result<(), Violation> {
        let queued: usize = self.memory.queues.values().map(|queue| queue.members().count()).sum();
        let placed = self.memory.tracks.values().filter(|track| track.place.is_some()).count();
        if queued != placed {
            return Err(Violation(format!("{queued} Workloads are queued but {placed} know their place")));
        }
        for (uid, workload) in &self.durable.workloads {
            let Some(track) = self.memory.tracks.get(uid) else {
                return Err(Violation(format!("{} is not tracked", workload.name)));
            };
            let is_pending = matches!(workload.state, State::Pending(_)) && track.decision.is_none();
            if track.place.is_some() && !is_pending {
                return Err(Violation(format!("{} is queued and has quota", workload.name)));
            }
            let accounted = track.place.is_some()
                || !is_pending
                || workload.deleting
                || track.stale.is_some()
                || track.waits_after_refusal().is_some()
                || self.memory.touched.contains(uid)
                || self.durable.standing(workload).is_some()
                || track.deadline.is_some();
            let kept_out = matches!(&workload.state, State::Pending(p) if p.requeued.as_ref().is_some_and(|r| !r.eligible));
            if !accounted && !kept_out {
                return Err(Violation(format!("{} waits for nothing", workload.name)));
            }
        }
        if self.memory.tracks.len() != self.durable.workloads.len() {
            return Err(Violation("a Workload is tracked that does not exist".into()));
        }
        if self.memory.shapes.len() > placed {
            return Err(Violation("a shape is kept that nobody has".into()));
        }
        Ok(())
    }

    /// What is found by name, by Job, by decision and by time is what the records and tracks say.
    fn check_indexes(&self) -> Result<(), Violation> {
        let (durable, memory) = (&self.durable, &self.memory);
        let named: usize = memory.by_local_queue.values().map(|members| members.len()).sum();
        let owned: usize = memory.by_owner.values().map(|members| members.len()).sum();
        let with_owner = durable.workloads.values().filter(|workload| workload.owner.is_some()).count();
        if named != durable.workloads.len() || owned != with_owner {
            return Err(Violation("Workloads by LocalQueue or by Job differ from the Workloads".into()));
        }
        let mut writes = 0;
        let mut deadlines = 0;
        for (uid, track) in &memory.tracks {
            for write in [&track.decision, &track.report].into_iter().flatten() {
                writes += 1;
                if memory.under_way.get(&write.id) != Some(uid) {
                    return Err(Violation(format!("decision {} of {uid} is not known", write.id.0)));
                }
            }
            if let Some(at) = track.deadline {
                deadlines += 1;
                if !memory.deadlines.contains(&(at, uid.clone())) {
                    return Err(Violation(format!("the deadline of {uid} is not known")));
                }
            }
        }
        if writes != memory.under_way.len() || deadlines != memory.deadlines.len() {
            return Err(Violation("a decision or a deadline is kept that no Workload has".into()));
        }
        Ok(())
    }
}
