//! Passes until the model is at rest.

use gangway_model::Timestamp;

use super::{Decided, Model};

/// The time of a replay: one second per pass, unless it stands still while a round lasts.
#[derive(Clone, Copy, Debug)]
pub struct ReplayClock {
    pub start: Timestamp,
    /// Passes so far.
    pub passes: u32,
    /// No more passes than this.
    pub limit: u32,
    /// The second at which all passes of a round happen. They still have an order.
    pub stands_at: Option<Timestamp>,
}

impl ReplayClock {
    fn now(&self) -> Timestamp {
        match self.stands_at {
            Some(second) => second.plus_millis(20 * i64::from(self.passes)),
            None => self.start.plus_seconds(i64::from(self.passes)),
        }
    }
}

/// What happened until the model came to rest, or was stopped.
#[derive(Clone, Debug)]
pub struct Settled {
    /// What each pass decided.
    pub passes: Vec<Vec<Decided>>,
    pub at_rest: bool,
}

/// The reference may try somebody for ever. After this many passes in a row without a decision it is at rest.
pub const IDLE_PASSES: u32 = 12;

impl Model {
    /// Passes until nothing happens any more, or until the clock's limit.
    pub fn settle(&mut self, clock: &mut ReplayClock) -> Settled {
        let mut settled = Settled { passes: Vec::new(), at_rest: true };
        let mut idle = 0;
        while idle < IDLE_PASSES {
            let mut heads = self.heads();
            if heads.is_empty() && self.wake_unclaimed() {
                heads = self.heads();
            }
            if heads.is_empty() {
                break;
            }
            if clock.passes >= clock.limit {
                settled.at_rest = false;
                break;
            }
            clock.passes += 1;
            let decided = self.cycle(heads, clock.now());
            idle = if decided.is_empty() { idle + 1 } else { 0 };
            settled.passes.push(decided);
        }
        settled
    }

    /// After the passes, the trees are reconsidered in which a reserve has ended. Says whether there were any.
    fn wake_unclaimed(&mut self) -> bool {
        let roots = std::mem::take(&mut self.unclaimed);
        for root in &roots {
            self.wake(root, None);
        }
        !roots.is_empty()
    }
}
