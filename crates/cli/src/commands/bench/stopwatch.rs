//! How long something took, and what it occupies.

use std::time::Instant;

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};

/// A stretch of time, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    pub wall: i64,
    /// The same in time of the processor, which others that run at the same time do not lengthen.
    pub cpu: i64,
}

/// Both clocks at one moment.
pub struct Stopwatch {
    wall: Instant,
    cpu: i64,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { cpu: cpu_nanos(), wall: Instant::now() }
    }

    pub fn stop(&self) -> Span {
        let wall = self.wall.elapsed().as_nanos() as i64;
        Span { wall, cpu: cpu_nanos() - self.cpu }
    }
}

/// The time that this thread has had of a processor.
fn cpu_nanos() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map_or(0, |time| time.num_nanoseconds())
}

/// What the process occupies in memory.
pub fn resident_bytes() -> f64 {
    const PAGE: f64 = 4096.0;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * PAGE
}
