//! The measured runs. Only what is said to be measured is: records are made before.

use std::sync::Arc;

use gangway_model::{Requests, ResourceName};
use gangway_placement::framework::{Happening, Help, PluginId, PluginSet};
use gangway_placement::ids::{PodId, ShapeId};
use gangway_placement::queue::{Arrival, Judge, Queue, Settings};
use gangway_placement::{Demands, Event, PodRecord, Scheduler, Work};

use super::super::stopwatch::{Stopwatch, resident_bytes};
use super::Size;
use super::world::{START, demands, node, pod, scheduler, uid};

/// Decisions that are taken at a time, as many as a shell has in flight.
const AT_ONCE: usize = 256;

/// What came of runs.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// One entry per run.
    pub nanos: Vec<i64>,
    pub cpu_nanos: Vec<i64>,
    /// Pods placed.
    pub count: u64,
    pub work: Work,
}

/// Places all pods, again and again in new clusters.
pub fn place(size: Size, is_spread: bool) -> Measured {
    let mut measured = Measured::default();
    while measured.nanos.iter().sum::<i64>() < size.at_least.as_nanos() as i64 || measured.nanos.is_empty() {
        let mut scheduler = scheduler(size.nodes);
        for record in pods(size, |shape| demands(shape, is_spread)) {
            scheduler.apply(Event::PodApplied(record), START);
        }
        let began = Stopwatch::start();
        while scheduler.has_work() {
            measured.count += scheduler.next(START, AT_ONCE).len() as u64;
        }
        let took = began.stop();
        measured.nanos.push(took.wall);
        measured.cpu_nanos.push(took.cpu);
        measured.work.nodes_visited += scheduler.work().nodes_visited;
        measured.work.nodes_judged += scheduler.work().nodes_judged;
    }
    measured
}

fn pods(size: Size, demands: impl Fn(usize) -> Arc<Demands>) -> Vec<PodRecord> {
    let templates: Vec<Arc<Demands>> = (0..size.shapes).map(demands).collect();
    (0..size.pods)
        .map(|index| pod(index, index % size.shapes, Arc::clone(&templates[index % size.shapes])))
        .collect()
}

/// Whoever is asked says that everything helps everybody.
struct Everybody;

impl Judge for Everybody {
    fn refuses(&self, _: PodId, _: Option<PluginId>) -> Option<PluginId> {
        None
    }

    fn told(&self, _: &Happening) -> PluginSet {
        PluginSet::EMPTY.with(PluginId::NodeResourcesFit)
    }

    fn helps(&self, _: &Happening, _: ShapeId, _: PluginSet, _: PluginSet) -> Help {
        Help::AfterBackoff { at_most: usize::MAX }
    }
}

/// Pops pods that back off. Each is rejected again, and something happens meanwhile, so that it backs off again.
pub fn pop_from_backoff(size: Size) -> Vec<i64> {
    let mut queue = Queue::new(Settings::default());
    let rejector = PluginSet::EMPTY.with(PluginId::NodeResourcesFit);
    for index in 0..size.pods {
        let pod = PodId(index as u32);
        let shape = ShapeId((index % size.shapes) as u32);
        let arrival =
            Arrival { pod, uid: uid(index), shape, priority: (index % 7) as i32, created_at: START };
        queue.add(arrival, START, &Everybody);
    }
    // Everybody is tried once, while something happens that may help: then all back off.
    let mut attempts = Vec::new();
    while let Some(popped) = queue.pop(START, &Everybody) {
        attempts.push(popped.attempt);
    }
    queue.happened(&freed_room(), START, &Everybody);
    for (index, attempt) in attempts.into_iter().enumerate() {
        let now = START.plus_millis((index % 900) as i64);
        queue.rejected(attempt, rejector, PluginSet::EMPTY, now, &Everybody);
    }
    let now = START.plus_millis(950);
    let mut nanos = Vec::new();
    for _ in 0..size.pods.min(100_000) {
        let began = Stopwatch::start();
        let popped = queue.pop(now, &Everybody);
        nanos.push(began.stop().wall);
        let Some(popped) = popped else { break };
        queue.happened(&freed_room(), now, &Everybody);
        queue.rejected(popped.attempt, rejector, PluginSet::EMPTY, now, &Everybody);
    }
    nanos
}

fn freed_room() -> Happening {
    use gangway_placement::framework::{Actions, Change, ClusterEvent, Resource};
    let event = ClusterEvent { resource: Resource::AssignedPod, action: Actions::DELETE };
    Happening { event, label: event.label(), change: Change::pod(None, None, None) }
}

/// One kind of event among many pods that fit nowhere.
pub struct EventRun {
    pub name: &'static str,
    pub what: &'static str,
    pub nanos: Vec<i64>,
    /// Groups of equal pods that a plugin was asked about.
    pub hints: u64,
    /// Pods that were taken in hand.
    pub visits: u64,
}

/// So many that nobody waits for five minutes, after which everybody is tried in any case.
const EVENTS: usize = 25;
/// The longest penalty is over when the next event comes.
const BETWEEN_EVENTS_SECONDS: i64 = 11;

/// A cluster that is full, and pods that ask for more than is free.
fn full(size: Size) -> Scheduler {
    let mut scheduler = scheduler(size.nodes);
    let whole = |cpu: i64| {
        let requests: Requests = [(ResourceName::from("cpu"), cpu)].into_iter().collect();
        Arc::new(Demands { requests, ..Demands::clone(&demands(0, false)) })
    };
    for index in 0..size.nodes {
        let mut filler = pod(10_000_000 + index, 0, whole(32_000));
        filler.node = Some(node(index).name);
        scheduler.apply(Event::PodApplied(filler), START);
    }
    for record in pods(size, |shape| whole(1_000 + shape as i64)) {
        scheduler.apply(Event::PodApplied(record), START);
    }
    while scheduler.has_work() {
        let _ = scheduler.next(START, AT_ONCE);
    }
    scheduler
}

/// What happens while everybody waits: room for some, and what is no news for anybody.
pub fn events(size: Size) -> Vec<EventRun> {
    let run = |name, what, event: &dyn Fn(usize) -> Event| {
        let mut scheduler = full(size);
        let mut measured = EventRun { name, what, nanos: Vec::new(), hints: 0, visits: 0 };
        let mut now = START;
        for index in 0..EVENTS.min(size.nodes) {
            now = now.plus_seconds(BETWEEN_EVENTS_SECONDS);
            let before = scheduler.queue().counts();
            let event = event(index);
            let began = Stopwatch::start();
            scheduler.apply(event, now);
            measured.nanos.push(began.stop().wall);
            let after = scheduler.queue().counts();
            measured.hints += after.hints - before.hints;
            measured.visits += after.visits - before.visits;
            while scheduler.has_work() {
                let _ = scheduler.next(now, AT_ONCE);
            }
        }
        measured
    };
    let labelled = |index: usize| {
        let mut changed = node(index);
        changed.labels.insert("example.com/rack".to_owned(), "7".to_owned());
        Event::NodeApplied(changed)
    };
    let gone = |index: usize| Event::PodDeleted(uid(10_000_000 + index));
    vec![
        run("a node's labels change", "that helps nobody", &labelled),
        run("a pod ends", "its node has room for up to 32 of them", &gone),
    ]
}

/// Bytes of this process per pod that waits.
pub fn bytes_per_pod(size: Size) -> f64 {
    let mut scheduler = full(Size { pods: size.shapes, nodes: size.nodes.min(100), ..size });
    let records = (0..size.pods).map(|index| {
        let shape = index % size.shapes;
        let requests: Requests = [(ResourceName::from("cpu"), 1_000 + shape as i64)].into_iter().collect();
        let demands = Demands { requests, ..Demands::clone(&demands(0, false)) };
        pod(size.shapes + index, shape, Arc::new(demands))
    });
    let before = resident_bytes();
    for record in records {
        scheduler.apply(Event::PodApplied(record), START);
        while scheduler.has_work() {
            let _ = scheduler.next(START, AT_ONCE);
        }
    }
    let after = resident_bytes();
    drop(scheduler);
    (after - before) / size.pods as f64
}
