//! Where Gangway deliberately differs from the reference, as one value.

/// The choices in which Gangway differs from the reference. Everything else is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Room that was freed for a preemptor is kept for it until it starts or gives up, and a victim never
    /// preempts its preemptor. Otherwise it competes again, and preemption may go on for ever.
    pub hold: bool,
    /// A waiting Workload that fits its queue's own quota keeps others from borrowing that room as long as it
    /// waits. Otherwise only in the cycle in which it is tried.
    pub standing_reserve: bool,
    /// Nothing is admitted on room that a victim still uses. Otherwise it may be, in the cycle that chose the
    /// victim.
    pub victims_room_waits: bool,
    /// A preemptor that fails is an ordinary Workload again. Otherwise it stays first in its queue.
    pub preemptor_mark_ends: bool,
    /// What looks like a defect of the reference and is good for nobody is done all the same:
    ///
    /// - A search for flavors goes on for ever where two podSets take turns, and a flavor counts as one with
    ///   room although a resource lacks room, if another has to be borrowed; both hold up a queue.
    /// - A search goes on behind a flavor in which another queue has just given room back, and begins again when
    ///   the Workload is told something else than before, or when somebody of its own queue is admitted.
    /// - Where somebody has failed, nobody that asks for the same is tried, be it older or a preemptor's equal.
    /// - A LocalQueue on hold hides that its ClusterQueue is drained, and wakes nobody when its Workloads end or leave.
    /// - In a replay, what a Workload that is not active is told in the second round, that its ClusterQueue is not active
    ///   either, wakes the tree.
    pub defects: bool,
}

impl Rules {
    /// Gangway's own choices.
    pub const fn gangway() -> Self {
        Self {
            hold: true,
            standing_reserve: true,
            victims_room_waits: true,
            preemptor_mark_ends: true,
            defects: false,
        }
    }

    /// What the reference does, so that decisions can be compared one by one.
    pub const fn reference() -> Self {
        Self {
            hold: false,
            standing_reserve: false,
            victims_room_waits: false,
            preemptor_mark_ends: false,
            defects: true,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::gangway()
    }
}
