//! Whether a loop still turns, and a way to have it tell its numbers: whoever asks waits for an answer of the loop itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

/// The pulse of a loop.
#[derive(Debug)]
pub struct Pulse {
    asked: AtomicU64,
    ask: Notify,
    answered: watch::Sender<u64>,
    runs: AtomicBool,
    is_ready: AtomicBool,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            asked: AtomicU64::new(0),
            ask: Notify::new(),
            answered: watch::Sender::new(0),
            runs: AtomicBool::new(false),
            is_ready: AtomicBool::new(true),
        }
    }
}

/// A loop that runs, until this is dropped.
#[derive(Debug)]
pub(crate) struct Running<'p>(&'p Pulse);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.runs.store(false, Ordering::Relaxed);
        self.0.answered.send_replace(u64::MAX);
    }
}

impl Pulse {
    /// Has the loop tell its numbers. False if it did not within this time; a loop that does not run has nothing to tell.
    pub async fn beats(&self, patience: Duration) -> bool {
        if !self.runs.load(Ordering::Relaxed) {
            return true;
        }
        let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
        let mut answered = self.answered.subscribe();
        self.ask.notify_one();
        let answer = answered.wait_for(|answered| *answered >= number);
        matches!(tokio::time::timeout(patience, answer).await, Ok(Ok(_)))
    }

    /// Whether the loop does its work, or waits for its turn.
    pub fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Relaxed)
    }

    pub(crate) fn set_ready(&self, is_ready: bool) {
        self.is_ready.store(is_ready, Ordering::Relaxed);
    }

    /// A loop begins.
    pub(crate) fn begin(&self) -> Running<'_> {
        self.answered.send_replace(self.asked.load(Ordering::Relaxed));
        self.runs.store(true, Ordering::Relaxed);
        Running(self)
    }

    /// Waits until somebody asks the loop.
    pub(crate) async fn asked(&self) {
        self.ask.notified().await;
    }

    /// The loop has told its numbers.
    pub(crate) fn answer(&self) {
        self.answered.send_replace(self.asked.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_is_stuck_is_seen() {
        let pulse = Pulse::default();
        assert!(pulse.beats(Duration::from_secs(5)).await, "nothing runs, nothing is stuck");
        let running = pulse.begin();
        assert!(!pulse.beats(Duration::from_secs(5)).await);
        let turning = async {
            loop {
                pulse.asked().await;
                pulse.answer();
            }
        };
        tokio::select! {
            () = turning => {}
            beats = pulse.beats(Duration::from_secs(5)) => assert!(beats),
        }
        drop(running);
        assert!(pulse.beats(Duration::from_secs(5)).await);
    }
}
