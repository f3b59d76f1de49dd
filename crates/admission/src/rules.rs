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
    /// A search for flavors that comes back to where it was is over, and a flavor has room only if it has room
    /// for every resource. Otherwise such a Workload is tried for ever and holds up its queue.
    pub searches_end: bool,
}

impl Rules {
    /// Gangway's own choices.
    pub const fn gangway() -> Self {
        Self {
            hold: true,
            standing_reserve: true,
            victims_room_waits: true,
            preemptor_mark_ends: true,
            searches_end: true,
        }
    }

    /// What the reference does, so that decisions can be compared one by one.
    pub const fn reference() -> Self {
        Self {
            hold: false,
            standing_reserve: false,
            victims_room_waits: false,
            preemptor_mark_ends: false,
            searches_end: false,
        }
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self::gangway()
    }
}
