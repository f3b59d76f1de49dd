//! The measured runs. Only what is said to be measured is: records are made before, outcomes told after.

use std::time::Duration;

use gangway_admission::{Decision, Engine, Event, Work};
use gangway_model::queues::{PreemptionPolicy, ReclaimWithinCohort, WithinClusterQueue};
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::workload::Workload;
use gangway_model::{Timestamp, Uid};

use super::super::stopwatch::{Span, Stopwatch, resident_bytes};
use super::world::{Queues, START, Shape, land, pending, running, uid};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub queues: usize,
    pub per_cohort: usize,
    pub workloads: usize,
    pub shapes: usize,
    /// Runs are repeated until this much time was measured.
    pub at_least: Duration,
}

/// What came of runs.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// One entry per measured occurrence, in nanoseconds.
    pub nanos: Vec<i64>,
    /// The same in time of the processor, which others that run at the same time do not lengthen.
    pub cpu_nanos: Vec<i64>,
    /// Decisions made in them, without reports.
    pub decisions: u64,
    pub work: Work,
}

impl Measured {
    /// The time measured in all.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.iter().sum::<i64>().max(0) as u64)
    }

    fn add(&mut self, took: Span, decisions: &[Decision], before: Work, after: Work) {
        self.nanos.push(took.wall);
        self.cpu_nanos.push(took.cpu);
        self.decisions += decisions.iter().filter(|decision| !decision.action.is_diagnostic()).count() as u64;
        self.work.cycles += after.cycles - before.cycles;
        self.work.evaluations += after.evaluations - before.evaluations;
        self.work.preemptions += after.preemptions - before.preemptions;
        self.work.spared += after.spared - before.spared;
    }
}

/// Where the pending Workload of a number belongs and what it asks for.
fn waiting(size: Size, number: usize) -> (usize, Shape) {
    (number % size.queues, Shape::numbered(number / size.queues % size.shapes))
}

fn all_pending(size: Size) -> Vec<Workload> {
    another_pending(size, 0)
}

/// As many again as there were before, `times` times.
fn another_pending(size: Size, times: usize) -> Vec<Workload> {
    let make = |number| {
        let (queue, shape) = waiting(size, number);
        pending(number + times * size.workloads, queue, shape, 0)
    };
    (0..size.workloads).map(make).collect()
}

/// Queues in which everything fits.
fn ample(size: Size) -> Queues {
    let mut cpus = vec![0; size.queues];
    for number in 0..size.workloads {
        let (queue, shape) = waiting(size, number);
        cpus[queue] += shape.total();
    }
    Queues {
        count: size.queues,
        per_cohort: size.per_cohort,
        flavors: 1,
        preemption: PreemptionPolicy::default(),
        cpus,
    }
}

/// Everything fits: from the first event to the last decision. In an engine that has just been made, and in the same one
/// when all of them have ended and as many others come.
pub fn fit(size: Size) -> (Measured, Measured) {
    let (mut first, mut later) = (Measured::default(), Measured::default());
    while first.total() + later.total() < size.at_least {
        let mut engine = ample(size).engine();
        engine.apply(Event::Synced, START);
        engine.decide(START, usize::MAX);
        fit_once(&mut engine, size, 0, &mut first);
        for times in 1..=LATER {
            fit_once(&mut engine, size, times, &mut later);
        }
    }
    (first, later)
}

/// How often as many others come.
const LATER: usize = 5;

fn fit_once(engine: &mut Engine, size: Size, times: usize, measured: &mut Measured) {
    let pending = another_pending(size, times);
    let uids: Vec<Uid> = pending.iter().map(|workload| workload.uid.clone()).collect();
    let events: Vec<Event> =
        pending.into_iter().map(|workload| Event::Workload(Box::new(workload))).collect();
    let before = engine.work();
    let began = Stopwatch::start();
    for event in events {
        engine.apply(event, START);
    }
    let decisions = engine.decide(START, usize::MAX);
    measured.add(began.stop(), &decisions, before, engine.work());
    land(engine, &decisions, START);
    for uid in uids {
        engine.apply(Event::WorkloadGone(uid), START);
    }
    let decisions = engine.decide(START, usize::MAX);
    land(engine, &decisions, START);
    engine.take_changed_queues();
}

/// Running Workloads per queue where nothing fits.
pub const RUNNING_PER_QUEUE: usize = 20;

/// An engine in which every queue is full, with whom runs there.
fn full_engine(size: Size) -> (Engine, Vec<Workload>) {
    let of_queue =
        |queue: usize| (0..RUNNING_PER_QUEUE).map(move |k| Shape::numbered((queue + k) % size.shapes));
    let cpus = (0..size.queues).map(|queue| of_queue(queue).map(Shape::total).sum()).collect();
    let queues = Queues { cpus, ..ample(size) };
    let mut engine = queues.engine();
    let mut all = Vec::new();
    for queue in 0..size.queues {
        for (k, shape) in of_queue(queue).enumerate() {
            let number = size.workloads + queue * RUNNING_PER_QUEUE + k;
            all.push(running(number, queue, shape, 0, 0));
        }
    }
    for workload in &all {
        engine.apply(Event::Workload(Box::new(workload.clone())), START);
    }
    (engine, all)
}

/// Nothing fits, one Workload ends: from that event to the last decision that follows from it.
pub fn full(size: Size) -> Measured {
    let mut measured = Measured::default();
    while measured.total() < size.at_least {
        let (mut engine, holders) = full_engine(size);
        for workload in all_pending(size) {
            engine.apply(Event::Workload(Box::new(workload)), START);
        }
        engine.apply(Event::Synced, START);
        let reports = engine.decide(START, usize::MAX);
        land(&mut engine, &reports, START);
        engine.take_changed_queues();
        for (index, ended) in holders.iter().enumerate() {
            let now = START.plus_seconds(index as i64 + 1);
            let before = engine.work();
            let began = Stopwatch::start();
            engine.apply(Event::WorkloadGone(ended.uid.clone()), now);
            let decisions = engine.decide(now, usize::MAX);
            measured.add(began.stop(), &decisions, before, engine.work());
            land(&mut engine, &decisions, now);
            engine.take_changed_queues();
        }
    }
    measured
}

/// Everybody who runs is out of time in the same second: from that second to the last decision.
pub fn deadlines(size: Size) -> Measured {
    let settings = WaitForPodsReady { block_admission: false, ..WaitForPodsReady::default() };
    let mut measured = Measured::default();
    while measured.total() < size.at_least {
        let (mut engine, _) = full_engine(size);
        engine.wait_for_pods_ready(Some(settings.clone()));
        engine.apply(Event::Synced, START);
        let decisions = engine.decide(START, usize::MAX);
        land(&mut engine, &decisions, START);
        let now = START.plus_seconds(settings.timeout_seconds);
        let before = engine.work();
        let began = Stopwatch::start();
        let decisions = engine.decide(now, usize::MAX);
        measured.add(began.stop(), &decisions, before, engine.work());
    }
    measured
}

/// What preempting is measured on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// One victim is enough.
    One,
    /// Nobody may be preempted.
    Nobody,
    /// Some may be, but not enough.
    TooFew,
}

/// Flavors where preemption is measured.
pub const FLAVORS: usize = 4;

/// The cpus of a queue in each flavor where preemption is measured.
const CPUS: i64 = 360;

fn is_urgent(victims: Victims, queue: usize) -> bool {
    match victims {
        Victims::One => false,
        Victims::Nobody => true,
        Victims::TooFew => queue > 0,
    }
}

/// Full queues, half of which borrow what the other half does not use.
fn borrowed_engine(queues: usize, running_per_queue: usize, victims: Victims) -> Engine {
    let preemption = PreemptionPolicy {
        within_cluster_queue: WithinClusterQueue::LowerPriority,
        reclaim_within_cohort: ReclaimWithinCohort::LowerPriority,
        ..PreemptionPolicy::default()
    };
    let setup =
        Queues { count: queues, per_cohort: queues, flavors: FLAVORS, preemption, cpus: vec![CPUS; queues] };
    let mut engine = setup.engine();
    let per_flavor = running_per_queue / FLAVORS;
    for queue in 0..queues {
        let all = match (queue, victims) {
            // Whoever may go borrows a little, somebody else the more.
            (0, Victims::TooFew) => CPUS + CPUS / 6,
            (2, Victims::TooFew) => CPUS + CPUS / 2 + CPUS / 3,
            (queue, _) if queue % 2 == 0 => CPUS + CPUS / 2,
            _ => CPUS / 2,
        };
        for k in 0..running_per_queue {
            let shape = Shape { pods: 1, cpus: all / per_flavor as i64 };
            let priority = if is_urgent(victims, queue) { 200 } else { 0 };
            let number = queue * running_per_queue + k;
            engine.apply(
                Event::Workload(Box::new(running(number, queue, shape, priority, k % FLAVORS))),
                START,
            );
        }
    }
    engine.apply(Event::Synced, START);
    let decisions = engine.decide(START, usize::MAX);
    land(&mut engine, &decisions, START);
    engine
}

/// A Workload that waits asks for what others borrow: from that event to the decision whom to preempt.
pub fn preempt(queues: usize, running_per_queue: usize, victims: Victims, at_least: Duration) -> Measured {
    let mut engine = borrowed_engine(queues, running_per_queue, victims);
    let mut measured = Measured::default();
    let mut number = queues * running_per_queue;
    let mut now = START;
    while measured.total() < at_least && measured.nanos.len() < 1_000_000 {
        number += 1;
        now = now.plus_seconds(1);
        let cpus = if victims == Victims::TooFew { CPUS / 2 } else { 1 };
        let asker = pending(number, 1 + number % (queues / 2) * 2, Shape { pods: 1, cpus }, 100);
        let event = Event::Workload(Box::new(asker));
        let before = engine.work();
        let began = Stopwatch::start();
        engine.apply(event, now);
        let decisions = engine.decide(now, usize::MAX);
        measured.add(began.stop(), &decisions, before, engine.work());
        end_again(&mut engine, decisions, number, now);
    }
    measured
}

/// Carries out what was decided until the asker has started, ends it, and lets its victims come back.
fn end_again(engine: &mut Engine, decisions: Vec<Decision>, asker: usize, now: Timestamp) {
    carry_out(engine, decisions, now);
    engine.apply(Event::WorkloadGone(uid(asker)), now);
    let decisions = engine.decide(now, usize::MAX);
    carry_out(engine, decisions, now);
}

fn carry_out(engine: &mut Engine, mut decisions: Vec<Decision>, now: Timestamp) {
    while !decisions.is_empty() {
        land(engine, &decisions, now);
        decisions = engine.decide(now, usize::MAX);
    }
    engine.take_changed_queues();
}

/// A restart: every record is told anew, then the first word is possible.
pub fn rebuild(records: usize, at_least: Duration) -> Measured {
    let size = Size {
        queues: 100,
        per_cohort: 10,
        workloads: records - 100 * RUNNING_PER_QUEUE,
        shapes: 50,
        at_least,
    };
    let mut measured = Measured::default();
    while measured.total() < at_least {
        let (_, holders) = full_engine(size);
        let of_queue =
            |queue: usize| (0..RUNNING_PER_QUEUE).map(move |k| Shape::numbered((queue + k) % 50).total());
        let cpus = (0..size.queues).map(|queue| of_queue(queue).sum()).collect();
        let queues = Queues { cpus, ..ample(size) };
        let events: Vec<Event> = holders
            .into_iter()
            .chain(all_pending(size))
            .map(|workload| Event::Workload(Box::new(workload)))
            .collect();
        let began = Stopwatch::start();
        let mut engine = queues.engine();
        for event in events {
            engine.apply(event, START);
        }
        engine.apply(Event::Synced, START);
        measured.add(began.stop(), &[], Work::default(), engine.work());
    }
    measured
}

/// How many Workloads arrive before the engine decides, where memory is measured.
const AT_ONCE: usize = 1_000;

/// Bytes of this process per pending Workload of a known shape that was evaluated and says why it waits. Measured before
/// anything else is.
pub fn bytes_per_pending(size: Size) -> f64 {
    let (mut engine, _) = full_engine(size);
    engine.apply(Event::Synced, START);
    let known = size.queues * size.shapes;
    let take_in = |engine: &mut Engine, numbers: std::ops::Range<usize>| {
        let last = numbers.end;
        for number in numbers {
            let (queue, shape) = waiting(size, number);
            engine.apply(Event::Workload(Box::new(pending(number, queue, shape, 0))), START);
            if (number + 1).is_multiple_of(AT_ONCE) || number + 1 == last {
                let reports = engine.decide(START, usize::MAX);
                land(engine, &reports, START);
            }
        }
        engine.decide(START, usize::MAX);
        engine.take_changed_queues();
    };
    let first = known.min(size.workloads / 2);
    take_in(&mut engine, 0..first);
    let before = resident_bytes();
    take_in(&mut engine, first..size.workloads);
    let after = resident_bytes();
    drop(engine);
    (after - before) / (size.workloads - first) as f64
}
