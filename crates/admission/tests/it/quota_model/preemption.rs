//! Whom a workload may preempt, and the search for victims.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use gangway_model::queues::{BorrowWithinCohort, ClusterQueue, ReclaimWithinCohort, WithinClusterQueue};
use gangway_model::{ClusterQueueName, Timestamp, Uid};

use super::tree::{Amounts, Cell, Holder, Node, Snapshot};

/// A workload to be evicted, and why it may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub uid: Uid,
    pub reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Its queue borrows what the preemptor is entitled to.
    Hierarchical,
    /// It may be taken even if the preemptor then borrows.
    WhileBorrowing,
    /// It may be taken only if the preemptor then does not borrow.
    WithoutBorrowing,
    SameQueue,
}

impl Class {
    fn reason(self) -> &'static str {
        match self {
            Self::Hierarchical | Self::WithoutBorrowing => "InCohortReclamation",
            Self::WhileBorrowing => "InCohortReclaimWhileBorrowing",
            Self::SameQueue => "InClusterQueue",
        }
    }
}

#[derive(Clone, Debug)]
struct Candidate {
    uid: Uid,
    class: Class,
}

/// Victims, and whether somebody who had been removed was spared again.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub victims: Vec<Victim>,
    pub spared: bool,
    /// Whether the preemptor may borrow once they are gone.
    pub may_borrow: bool,
}

/// What a preemption was based on, so that it can be checked afterwards.
#[derive(Clone, Debug)]
pub struct Proof {
    pub preemptor: Uid,
    /// Its time in the order of its queue.
    pub queued_at: Timestamp,
    pub queue: ClusterQueueName,
    /// What the preemptor saw.
    pub view: Snapshot,
    pub needs: Amounts,
    pub contested: BTreeSet<Cell>,
    /// Whether it may borrow once the victims are gone.
    pub may_borrow: bool,
    /// In the order in which they were taken.
    pub victims: Vec<Uid>,
}

/// A workload that looks for victims.
pub struct Preemptor<'a> {
    pub queue: &'a ClusterQueue,
    pub priority: i32,
    /// Its time in the order of its queue.
    pub queued_at: Timestamp,
    /// Those it may never take.
    pub untouchable: BTreeSet<Uid>,
    /// Whether victims are checked again after fill-back.
    pub check_again: bool,
}

impl Preemptor<'_> {
    /// Victims whose removal makes room for `needs`, of which `contested` cells do not fit as they are.
    pub fn search(&self, snapshot: &Snapshot, needs: &Amounts, contested: &BTreeSet<Cell>) -> Found {
        let candidates = self.candidates(snapshot, needs, contested);
        for allow_borrowing in self.attempts(snapshot, &candidates, contested) {
            let search = Search { preemptor: self, needs, contested, allow_borrowing };
            if let Some(found) = search.run(snapshot, &candidates) {
                return found;
            }
        }
        Found::default()
    }

    fn node(&self) -> Node {
        Node::Queue(self.queue.name.clone())
    }

    /// All candidates in the order in which they are tried.
    fn candidates(&self, snapshot: &Snapshot, needs: &Amounts, contested: &BTreeSet<Cell>) -> Vec<Candidate> {
        let others = self.candidates_elsewhere(snapshot, needs, contested);
        let own = self.holders_in(snapshot, &self.node(), contested);
        let own = own.into_iter().filter(|uid| self.may_take_own(&snapshot.holders[uid]));
        let own: Vec<Candidate> = own.map(|uid| Candidate { uid, class: Class::SameQueue }).collect();
        let (hierarchical, by_priority) = others.into_iter().partition(|c| c.class == Class::Hierarchical);
        let in_order = |mut list: Vec<Candidate>| {
            list.sort_by_key(|c| {
                let holder = &snapshot.holders[&c.uid];
                (holder.priority, Reverse(holder.reserved_at), c.uid.clone())
            });
            list
        };
        [hierarchical, by_priority, own].map(in_order).concat()
    }

    fn may_take_own(&self, holder: &Holder) -> bool {
        match self.queue.preemption.within_cluster_queue {
            WithinClusterQueue::Never => false,
            WithinClusterQueue::LowerPriority => self.priority > holder.priority,
            WithinClusterQueue::LowerOrNewerEqualPriority => {
                self.priority > holder.priority
                    || self.priority == holder.priority && self.queued_at < holder.created
            }
        }
    }

    fn may_reclaim(&self, holder: &Holder) -> bool {
        match self.queue.preemption.reclaim_within_cohort {
            ReclaimWithinCohort::Never => false,
            ReclaimWithinCohort::LowerPriority => self.priority > holder.priority,
            ReclaimWithinCohort::Any => true,
        }
    }

    fn may_borrow(&self) -> bool {
        self.queue.preemption.borrow_within_cohort != BorrowWithinCohort::Never
    }

    /// Goes up from the queue and collects at each cohort from the parts that borrow.
    fn candidates_elsewhere(
        &self,
        snapshot: &Snapshot,
        needs: &Amounts,
        contested: &BTreeSet<Cell>,
    ) -> Vec<Candidate> {
        let path = snapshot.layout.path_up(&self.node());
        let (mut entitled, mut remaining) = snapshot.fits_own_quota(&path[0], needs);
        let mut found = Vec::new();
        for (below, cohort) in path.iter().zip(&path[1..]) {
            for child in snapshot.layout.awake_children(cohort).filter(|child| *child != below) {
                for uid in self.borrowers_in(snapshot, child, contested) {
                    let holder = &snapshot.holders[&uid];
                    if self.may_reclaim(holder) {
                        let class =
                            if entitled { Class::Hierarchical } else { self.class_by_priority(holder) };
                        found.push(Candidate { uid, class });
                    }
                }
            }
            let (fits, left) = snapshot.fits_own_quota(cohort, &remaining);
            entitled |= fits;
            remaining = left;
        }
        found
    }

    fn class_by_priority(&self, holder: &Holder) -> Class {
        let BorrowWithinCohort::LowerPriority { max_priority } = self.queue.preemption.borrow_within_cohort
        else {
            return Class::WithoutBorrowing;
        };
        let lower = holder.priority < self.priority && max_priority.is_none_or(|max| holder.priority <= max);
        if lower { Class::WhileBorrowing } else { Class::WithoutBorrowing }
    }

    /// Holders below a node, without the parts that live on their own quota.
    fn borrowers_in(&self, snapshot: &Snapshot, node: &Node, contested: &BTreeSet<Cell>) -> Vec<Uid> {
        if snapshot.within_quota(node, contested) {
            return Vec::new();
        }
        match node {
            Node::Queue(_) => self.holders_in(snapshot, node, contested),
            Node::Cohort(_) => {
                let children = snapshot.layout.awake_children(node);
                children.flat_map(|child| self.borrowers_in(snapshot, child, contested)).collect()
            }
        }
    }

    /// Holders of a queue that use something contested.
    fn holders_in(&self, snapshot: &Snapshot, queue: &Node, contested: &BTreeSet<Cell>) -> Vec<Uid> {
        let uses = |holder: &Holder| {
            contested.iter().any(|cell| holder.usage.get(cell).is_some_and(|a| a.value() > 0))
        };
        let holders = snapshot.holders.iter();
        holders
            .filter(|(_, holder)| Node::Queue(holder.queue.clone()) == *queue && uses(holder))
            .map(|(uid, _)| uid.clone())
            .filter(|uid| !self.untouchable.contains(uid))
            .collect()
    }

    /// Whether borrowing is allowed, per attempt.
    fn attempts(
        &self,
        snapshot: &Snapshot,
        candidates: &[Candidate],
        contested: &BTreeSet<Cell>,
    ) -> Vec<bool> {
        let elsewhere = candidates.iter().any(|c| c.class != Class::SameQueue);
        let hierarchical = candidates.iter().any(|c| c.class == Class::Hierarchical);
        let node = self.node();
        let below_quota = contested
            .iter()
            .all(|cell| snapshot.usage(&node, cell) < snapshot.layout.quota(&node, cell).nominal);
        if !elsewhere || (!self.may_borrow() && !below_quota) {
            vec![true]
        } else if !self.may_borrow() && !hierarchical {
            vec![false, true]
        } else {
            vec![true, false]
        }
    }
}

/// One attempt of the search.
struct Search<'a> {
    preemptor: &'a Preemptor<'a>,
    needs: &'a Amounts,
    contested: &'a BTreeSet<Cell>,
    allow_borrowing: bool,
}

impl Search<'_> {
    fn run(&self, snapshot: &Snapshot, candidates: &[Candidate]) -> Option<Found> {
        let mut rest = snapshot.clone();
        let mut removed: Vec<&Candidate> = Vec::new();
        for candidate in candidates {
            if !self.may_be_taken(&rest, candidate) {
                continue;
            }
            rest.holders.remove(&candidate.uid);
            removed.push(candidate);
            if self.fits(&rest) {
                let victims = self.fill_back(snapshot, rest, &removed);
                let spared = victims.len() < removed.len();
                return self.still_legal(snapshot, &victims).then(|| Found {
                    victims: victims
                        .iter()
                        .map(|c| Victim { uid: c.uid.clone(), reason: c.class.reason() })
                        .collect(),
                    spared,
                    may_borrow: self.allow_borrowing,
                });
            }
        }
        None
    }

    fn fits(&self, snapshot: &Snapshot) -> bool {
        let queue = &self.preemptor.queue.name;
        let node = self.preemptor.node();
        snapshot.fits(queue, self.needs)
            && (self.allow_borrowing
                || self.needs.iter().all(|(cell, need)| !snapshot.borrows_with(&node, cell, *need)))
    }

    fn may_be_taken(&self, snapshot: &Snapshot, candidate: &Candidate) -> bool {
        match candidate.class {
            Class::SameQueue => true,
            Class::WithoutBorrowing if self.allow_borrowing => false,
            _ => self.borrows_up_to_common_ancestor(snapshot, &candidate.uid),
        }
    }

    /// Whether the holder's queue, and every cohort between it and the preemptor's tree path, borrows.
    fn borrows_up_to_common_ancestor(&self, snapshot: &Snapshot, uid: &Uid) -> bool {
        let Some(holder) = snapshot.holders.get(uid) else { return false };
        let own_path = snapshot.layout.path_up(&self.preemptor.node());
        let path = snapshot.layout.path_up(&Node::Queue(holder.queue.clone()));
        let mut apart = path.iter().take_while(|node| !own_path.contains(node));
        apart.all(|node| !snapshot.within_quota(node, self.contested))
    }

    /// Puts back, last removed first, whoever need not go; the very last is needed by construction.
    fn fill_back<'c>(
        &self,
        all: &Snapshot,
        mut rest: Snapshot,
        removed: &[&'c Candidate],
    ) -> Vec<&'c Candidate> {
        let mut victims = removed.to_vec();
        for candidate in removed.iter().rev().skip(1) {
            rest.holders.insert(candidate.uid.clone(), all.holders[&candidate.uid].clone());
            if self.fits(&rest) {
                victims.retain(|victim| victim.uid != candidate.uid);
            } else {
                rest.holders.remove(&candidate.uid);
            }
        }
        victims
    }

    /// Whether each victim may still be taken at its turn, although somebody before it was spared.
    fn still_legal(&self, snapshot: &Snapshot, victims: &[&Candidate]) -> bool {
        let mut rest = snapshot.clone();
        !self.preemptor.check_again
            || victims.iter().all(|victim| {
                let legal = self.may_be_taken(&rest, victim);
                rest.holders.remove(&victim.uid);
                legal
            })
    }
}
