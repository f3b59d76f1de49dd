//! Everything that can happen in the world of the properties, and how it is drawn.

use gangway_admission::{Event, JobEnd, JobFacts, ReadyPods};
use gangway_model::checks::{AdmissionCheck, RequiredCheck};
use gangway_model::fallback::{FailurePolicy, FallbackRule, FallbackStrategy};
use gangway_model::queues::{ClusterQueue, Flavor, QueueingStrategy, StopPolicy};
use gangway_model::readiness::{RequeuingTimestamp, WaitForPodsReady};
use gangway_model::reasons::{CheckState, EvictionReason, FallbackTrigger, RequeueReason};
use gangway_model::selector::{LabelSelector, Operator, Requirement};
use gangway_model::workload::{
    Eviction, Impediments, Pending, PodSet, RequeueState, Requeued, State, Workload,
};
use gangway_model::{Amount, ObjectName, Uid};
use proptest::prelude::*;

use crate::build;
use crate::world::{Fate, World};

/// One thing that happens. Numbers pick an object, modulo how many there are.
#[derive(Clone, Debug)]
pub enum Operation {
    Create { queue: usize, shape: usize, priority: i32, owned: bool },
    Delete(usize),
    MarkDeleted(usize),
    SetActive(usize, bool),
    SetPriority(usize, i32),
    SetGate(usize, bool),
    Reshape(usize, usize),
    Backoff(usize, i64),
    DropReservation(usize),
    JobsFollow,
    Pods(usize, bool),
    Readiness(usize),
    Answer(usize, CheckState),
    Fallback(usize, usize),
    Checks(usize, usize),
    CheckIsThere(bool),
    EndJob(usize, bool),
    DeleteJob(usize),
    SetQuota { queue: usize, cell: usize, amount: i64 },
    StopCluster(usize, StopPolicy),
    StopLocal(usize, StopPolicy),
    SetStrict(usize, bool),
    SetFlavor(usize, usize),
    RemoveFlavor(usize),
    RemoveCluster(usize),
    RemoveLocal(usize),
    Repair,
    SetLabel(usize, bool),
    Pass(i64),
    Deliver(usize, usize),
    DeliverAll,
    Relist,
    TellLate(usize),
    Decide(usize),
    Execute(usize, Fate),
    ExecuteAll,
    AskAgain,
    Crash,
    Settle,
}

const CLUSTER_QUEUES: [&str; 2] = ["cq-a", "cq-b"];
const FLAVORS: [&str; 3] = ["cheap", "fast", "disk"];
const CHECK: &str = "budget";
const NAMESPACES: [&str; 2] = ["red", "blue"];
const LOCAL_QUEUES: [(&str, &str, &str); 4] =
    [("red", "one", "cq-a"), ("red", "two", "cq-b"), ("blue", "one", "cq-a"), ("blue", "two", "cq-b")];

/// A world with two queues, three flavors, two namespaces.
pub fn furnished() -> World {
    let mut world = World::new();
    repair(&mut world);
    world.deliver_all();
    world
}

fn flavor(index: usize, variant: usize) -> Flavor {
    let name = FLAVORS[index % FLAVORS.len()];
    match variant % 4 {
        0 => build::labelled(name, "kind", name),
        1 => build::tainted(name, "spot"),
        2 => Flavor { tolerations: vec![build::tolerates("spot")], ..build::tainted(name, "spot") },
        _ => build::flavor(name),
    }
}

fn cluster_queue(name: &str) -> ClusterQueue {
    let cpu_and_memory = build::group(&["cpu", "memory"], &[("cheap", &[4, 8]), ("fast", &[6, 6])]);
    let pods = build::group(&["pods"], &[("disk", &[12])]);
    let requirement = Requirement { key: "team".into(), operator: Operator::Exists, values: vec![] };
    ClusterQueue {
        namespace_selector: Some(LabelSelector { requirements: vec![requirement] }),
        strategy: if name == "cq-a" {
            QueueingStrategy::StrictFifo
        } else {
            QueueingStrategy::BestEffortFifo
        },
        ..build::cluster_queue(name, vec![cpu_and_memory, pods])
    }
}

/// The administrator sets everything up as it was in the beginning, but for quota that exists.
fn repair(world: &mut World) {
    for index in 0..FLAVORS.len() {
        world.administer(Event::Flavor(flavor(index, 0)));
    }
    for namespace in NAMESPACES {
        world.administer(Event::Namespace(build::namespace(namespace, &[("team", "yes")])));
    }
    for name in CLUSTER_QUEUES {
        let known = world.store.cluster_queues.get(name).cloned().unwrap_or_else(|| cluster_queue(name));
        let working = ClusterQueue { stop_policy: StopPolicy::None, ..known };
        world.administer(Event::ClusterQueue(Box::new(working)));
    }
    world.administer(Event::AdmissionCheck(AdmissionCheck { name: CHECK.into(), active: true }));
    for (namespace, name, target) in LOCAL_QUEUES {
        world.administer(Event::LocalQueue(build::local_queue(namespace, name, target)));
    }
}

/// What Workloads ask for: sizes that fill the quota quickly, several podSets, picky ones, impossible ones.
fn pod_sets(shape: usize) -> Vec<PodSet> {
    let main = |count, amounts: &[(&str, i64)]| build::pod_set("main", count, amounts);
    let wants_fast = build::prefers_one_of(&[Requirement::equals("kind", "fast")]);
    match shape {
        0 | 1 | 10 | 11 => vec![main(1, &[("cpu", 1)])],
        2 | 12 => vec![main(2, &[("cpu", 1), ("memory", 1)])],
        3 => vec![main(1, &[("cpu", 4), ("memory", 2)])],
        4 => vec![main(1, &[("cpu", 1)]), build::pod_set("rest", 3, &[("cpu", 1), ("memory", 1)])],
        5 | 13 => vec![build::constrained(main(1, &[("cpu", 2)]), wants_fast)],
        6 => vec![build::constrained(main(1, &[("cpu", 3)]), build::tolerating("spot"))],
        7 => vec![main(1, &[("cpu", 50)])],
        8 => vec![main(1, &[("gpu", 0), ("memory", 3)]), build::pod_set("big", 1, &[("cpu", 5)])],
        _ => {
            vec![build::constrained(main(1, &[("cpu", 1)]), build::selects("kind", "none"))]
        }
    }
}

impl Operation {
    pub fn perform(&self, world: &mut World) {
        match self {
            Self::JobsFollow => world.jobs_follow(),
            Self::Pass(millis) => world.now = world.now.plus_millis(*millis),
            Self::Deliver(admin, work) => world.deliver(*admin, *work),
            Self::DeliverAll => world.deliver_all(),
            Self::Relist => world.relist(),
            Self::TellLate(pick) => world.tell_late(*pick),
            Self::Decide(budget) => drop(world.decide(*budget)),
            Self::Execute(pick, fate) => world.execute(*pick, *fate),
            Self::ExecuteAll => {
                while !world.in_flight.is_empty() {
                    world.execute(0, Fate::LandsWatchFirst);
                }
            }
            Self::AskAgain => world.ask_again(),
            Self::Crash => world.crash(),
            Self::Settle => {
                world.settle();
                crate::invariants::check_fixed_point(world);
            }
            _ => self.perform_on_work(world),
        }
    }

    /// What users do.
    fn perform_on_work(&self, world: &mut World) {
        match *self {
            Self::Create { queue, shape, priority, owned } => create(world, queue, shape, priority, owned),
            Self::Delete(pick) => {
                if let Some(workload) = pick_workload(world, pick) {
                    world.delete(&workload.uid);
                }
            }
            Self::MarkDeleted(pick) => change(world, pick, |w| w.deleting = true),
            Self::SetActive(pick, active) => change(world, pick, |w| w.active = active),
            Self::SetPriority(pick, priority) => change(world, pick, |w| w.priority = priority),
            Self::SetGate(pick, closed) => {
                change(world, pick, |w| {
                    w.impediments =
                        if closed { Impediments::new(None, vec!["budget".into()], None) } else { None }
                });
            }
            Self::Reshape(pick, shape) => change(world, pick, |w| {
                if matches!(w.state, State::Pending(_)) {
                    w.pod_sets = pod_sets(shape).into();
                }
            }),
            Self::Backoff(pick, seconds) => back_off(world, pick, seconds),
            Self::DropReservation(pick) => change(world, pick, |w| w.state = State::new()),
            Self::Pods(pick, ready) => set_pods(world, pick, ready),
            Self::Readiness(variant) => world.set_readiness(readiness(variant)),
            Self::Answer(pick, state) => answer(world, pick, state),
            Self::EndJob(pick, succeeded) => end_job(world, pick, succeeded),
            Self::DeleteJob(pick) => {
                if let Some(uid) = pick_of(world.store.jobs.keys(), pick).cloned() {
                    world.delete_job(&uid);
                }
            }
            _ => self.perform_on_queues(world),
        }
    }

    /// What administrators do.
    fn perform_on_queues(&self, world: &mut World) {
        match *self {
            Self::SetQuota { queue, cell, amount } => change_cluster(world, queue, |q| {
                let group = &mut q.resource_groups[0];
                let (flavors, resources) = (group.flavors.len(), group.resources.len());
                let quotas = &mut group.flavors[cell % flavors].quotas;
                quotas[(cell / flavors) % resources].nominal = Amount::new(amount);
            }),
            Self::StopCluster(queue, policy) => change_cluster(world, queue, |q| q.stop_policy = policy),
            Self::Fallback(queue, variant) => {
                change_cluster(world, queue, |q| q.fallback = fallback(variant))
            }
            Self::Checks(queue, variant) => {
                change_cluster(world, queue, |q| q.admission_checks = checks(variant))
            }
            Self::CheckIsThere(active) => {
                world.administer(Event::AdmissionCheck(AdmissionCheck { name: CHECK.into(), active }));
            }
            Self::SetStrict(queue, strict) => change_cluster(world, queue, |q| {
                q.strategy =
                    if strict { QueueingStrategy::StrictFifo } else { QueueingStrategy::BestEffortFifo };
            }),
            Self::StopLocal(pick, policy) => {
                if let Some(mut queue) = pick_of(world.store.local_queues.values(), pick).cloned() {
                    queue.stop_policy = policy;
                    world.administer(Event::LocalQueue(queue));
                }
            }
            Self::SetFlavor(index, variant) => world.administer(Event::Flavor(flavor(index, variant))),
            Self::RemoveFlavor(index) => {
                world.administer(Event::FlavorGone(FLAVORS[index % FLAVORS.len()].into()));
            }
            Self::RemoveCluster(pick) => {
                if let Some(name) = pick_of(world.store.cluster_queues.keys(), pick).cloned() {
                    world.administer(Event::ClusterQueueGone(name));
                }
            }
            Self::RemoveLocal(pick) => {
                if let Some(name) = pick_of(world.store.local_queues.keys(), pick).cloned() {
                    world.administer(Event::LocalQueueGone(name));
                }
            }
            Self::Repair => repair(world),
            Self::SetLabel(pick, selected) => {
                let name = NAMESPACES[pick % NAMESPACES.len()];
                let labels: &[(&str, &str)] = if selected { &[("team", "yes")] } else { &[] };
                world.administer(Event::Namespace(build::namespace(name, labels)));
            }
            _ => unreachable!("handled by the functions before"),
        }
    }
}

fn pick_of<T>(mut items: impl ExactSizeIterator<Item = T>, pick: usize) -> Option<T> {
    let count = items.len();
    if count == 0 { None } else { items.nth(pick % count) }
}

fn pick_workload(world: &World, pick: usize) -> Option<Workload> {
    pick_of(world.store.workloads.values(), pick).cloned()
}

/// Somebody changes a live Workload.
fn change(world: &mut World, pick: usize, edit: impl Fn(&mut Workload)) {
    let Some(mut workload) = pick_workload(world, pick) else { return };
    if !workload.state.is_finished() {
        edit(&mut workload);
        workload.generation += 1;
        world.put(workload);
    }
}

fn change_cluster(world: &mut World, pick: usize, edit: impl Fn(&mut ClusterQueue)) {
    if let Some(mut queue) = pick_of(world.store.cluster_queues.values(), pick).cloned() {
        edit(&mut queue);
        world.administer(Event::ClusterQueue(Box::new(queue)));
    }
}

fn create(world: &mut World, queue: usize, shape: usize, priority: i32, owned: bool) {
    if world.store.workloads.len() >= 24 {
        return;
    }
    let (namespace, queue, _) = LOCAL_QUEUES[queue % LOCAL_QUEUES.len()];
    // Names that do not sort by age, so that order is seen to come from times.
    let name = format!("w{}-{}", (world.step * 7919) % 97, world.step);
    let owner = owned.then(|| Uid::from(format!("job-{name}")));
    if let Some(owner) = &owner {
        world.set_job(owner.clone(), JobFacts { stopped: true, ..JobFacts::default() });
    }
    world.put(Workload {
        name: ObjectName::new(namespace, &name),
        queue: queue.into(),
        created: world.now.whole_second(),
        priority,
        owner,
        ..build::workload(&name, pod_sets(shape))
    });
}

/// What a readiness timeout leaves behind.
fn back_off(world: &mut World, pick: usize, seconds: i64) {
    let now = world.now.whole_second();
    change(world, pick, |w| {
        let State::Pending(pending) = &w.state else { return };
        let message = "not ready in time".to_owned();
        let evicted = Some(Eviction {
            reason: EvictionReason::PodsReadyTimeout,
            message,
            at: now,
            preemption: None,
            overdue: None,
        });
        let requeued = Some(Requeued { eligible: false, reason: RequeueReason::PodsReadyTimeout, at: now });
        let requeue_at = Some(now.plus_seconds(seconds));
        w.state = State::Pending(Pending {
            waiting: pending.waiting.clone(),
            evicted: evicted.map(Box::new),
            requeued,
            requeue_state: Some(Box::new(RequeueState { count: 1, requeue_at })),
            ..Pending::default()
        });
    });
}

/// The pods of a running Job are ready, or one is not any more.
fn set_pods(world: &mut World, pick: usize, ready: bool) {
    let running = world.store.jobs.iter().filter(|(_, job)| !job.stopped && job.end.is_none());
    let running: Vec<Uid> = running.map(|(uid, _)| uid.clone()).collect();
    if let Some(uid) = pick_of(running.iter(), pick) {
        let pods = Some(ReadyPods { ready: if ready { 2 } else { 1 }, wanted: 2 });
        world.set_job(uid.clone(), JobFacts { pods, ..JobFacts::default() });
    }
}

/// Configurations: off, on, one at a time, back to the old place.
fn readiness(variant: usize) -> Option<WaitForPodsReady> {
    let settings = WaitForPodsReady {
        timeout_seconds: 8,
        recovery_timeout_seconds: Some(5),
        block_admission: false,
        timestamp: RequeuingTimestamp::Eviction,
        backoff_limit_count: Some(2),
        backoff_base_seconds: 3,
        backoff_max_seconds: 5,
        reset_after_ready_seconds: 6,
    };
    match variant {
        0 => None,
        1 => Some(settings),
        2 => Some(WaitForPodsReady { block_admission: true, ..settings }),
        _ => {
            let timestamp = RequeuingTimestamp::Creation;
            Some(WaitForPodsReady { timestamp, recovery_timeout_seconds: None, ..settings })
        }
    }
}

/// Rules by which flavors are given up: none, some, all.
fn fallback(variant: usize) -> Option<FallbackStrategy> {
    let rule = |flavor: Option<&str>, timeout_seconds| FallbackRule {
        flavor: flavor.map(Into::into),
        trigger: FallbackTrigger::TimeoutForPodsReadyExceeded,
        timeout_seconds,
    };
    let rejected = FallbackRule { trigger: FallbackTrigger::AdmissionCheckRejected, ..rule(None, None) };
    let (failure_policy, rules) = match variant {
        0 => return None,
        1 => (FailurePolicy::RetryAllFlavors, vec![rule(Some("cheap"), Some(6))]),
        2 => (FailurePolicy::RetryAllFlavors, vec![rule(None, Some(7)), rule(Some("disk"), None), rejected]),
        _ => (FailurePolicy::DeactivateWorkload, vec![rule(None, Some(5)), rejected]),
    };
    Some(FallbackStrategy { failure_policy, rules })
}

/// Checks that a queue demands: none, for all flavors, for one.
fn checks(variant: usize) -> Vec<RequiredCheck> {
    match variant {
        0 => Vec::new(),
        1 => vec![RequiredCheck { name: CHECK.into(), on_flavors: Vec::new() }],
        _ => vec![RequiredCheck { name: CHECK.into(), on_flavors: vec!["cheap".into()] }],
    }
}

/// The check says something of a Workload that it is asked about.
fn answer(world: &mut World, pick: usize, state: CheckState) {
    let now = world.now.whole_second();
    change(world, pick, |workload| {
        let State::Holding(reservation) = &mut workload.state else { return };
        for said in reservation.checks.iter_mut().flat_map(|checks| &mut checks.0) {
            (said.state, said.at) = (state, now);
            said.requeue_after_seconds = (state == CheckState::Retry).then_some(4);
        }
    });
}

fn end_job(world: &mut World, pick: usize, succeeded: bool) {
    let running = world.store.jobs.iter().filter(|(_, job)| !job.stopped && job.end.is_none());
    let running: Vec<Uid> = running.map(|(uid, _)| uid.clone()).collect();
    if let Some(uid) = pick_of(running.iter(), pick) {
        let end = Some(JobEnd { succeeded, message: "ended".into() });
        world.set_job(uid.clone(), JobFacts { stopped: true, end, ..JobFacts::default() });
    }
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Lands),
        4 => Just(Fate::LandsWatchFirst),
        1 => Just(Fate::Overtaken),
        1 => Just(Fate::Refused),
        1 => Just(Fate::UnknownLanded),
        1 => Just(Fate::UnknownLost),
    ]
}

fn any_policy() -> impl Strategy<Value = StopPolicy> {
    prop_oneof![2 => Just(StopPolicy::None), 1 => Just(StopPolicy::Hold), 2 => Just(StopPolicy::HoldAndDrain)]
}

fn any_answer() -> impl Strategy<Value = CheckState> {
    prop_oneof![
        4 => Just(CheckState::Ready),
        1 => Just(CheckState::Pending),
        1 => Just(CheckState::Retry),
        1 => Just(CheckState::Rejected),
    ]
}

fn by_users() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let pick = || 0..24_usize;
    prop_oneof![
        12 => (0..4_usize, 0..14_usize, 0..3_i32, prop::bool::weighted(0.8))
            .prop_map(|(queue, shape, priority, owned)| Create { queue, shape, priority, owned }),
        3 => pick().prop_map(Delete),
        1 => pick().prop_map(MarkDeleted),
        3 => (pick(), any::<bool>()).prop_map(|(w, active)| SetActive(w, active)),
        2 => (pick(), 0..3_i32).prop_map(|(w, priority)| SetPriority(w, priority)),
        1 => (pick(), prop::bool::weighted(0.3)).prop_map(|(w, closed)| SetGate(w, closed)),
        1 => (pick(), 0..10_usize).prop_map(|(w, shape)| Reshape(w, shape)),
        1 => (pick(), 0..60_i64).prop_map(|(w, seconds)| Backoff(w, seconds)),
        1 => pick().prop_map(DropReservation),
        6 => Just(JobsFollow),
        6 => (pick(), prop::bool::weighted(0.6)).prop_map(|(job, ready)| Pods(job, ready)),
        1 => (0..4_usize).prop_map(Readiness),
        4 => (pick(), any_answer()).prop_map(|(w, state)| Answer(w, state)),
        6 => (pick(), any::<bool>()).prop_map(|(job, succeeded)| EndJob(job, succeeded)),
        1 => pick().prop_map(DeleteJob),
    ]
}

fn by_administrators() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let pick = || 0..4_usize;
    prop_oneof![
        6 => (pick(), pick(), 0..16_i64).prop_map(|(queue, cell, amount)| SetQuota { queue, cell, amount }),
        2 => (pick(), any_policy()).prop_map(|(queue, policy)| StopCluster(queue, policy)),
        2 => (pick(), any_policy()).prop_map(|(queue, policy)| StopLocal(queue, policy)),
        1 => (pick(), any::<bool>()).prop_map(|(queue, strict)| SetStrict(queue, strict)),
        4 => (pick(), 0..4_usize).prop_map(|(queue, variant)| Fallback(queue, variant)),
        2 => (pick(), 0..3_usize).prop_map(|(queue, variant)| Checks(queue, variant)),
        1 => prop::bool::weighted(0.7).prop_map(CheckIsThere),
        2 => (pick(), pick()).prop_map(|(index, variant)| SetFlavor(index, variant)),
        1 => pick().prop_map(RemoveFlavor),
        1 => prop_oneof![pick().prop_map(RemoveCluster), pick().prop_map(RemoveLocal)],
        6 => Just(Repair),
        1 => (pick(), prop::bool::weighted(0.7)).prop_map(|(namespace, is_on)| SetLabel(namespace, is_on)),
    ]
}

fn by_the_system() -> impl Strategy<Value = Operation> {
    use Operation::*;
    prop_oneof![
        3 => (0..5_000_i64).prop_map(Pass),
        6 => (0..3_usize, 0..6_usize).prop_map(|(admin, work)| Deliver(admin, work)),
        6 => Just(DeliverAll),
        1 => Just(Relist),
        2 => (0..200_usize).prop_map(TellLate),
        12 => prop_oneof![Just(1_usize), 2..5_usize, Just(100)].prop_map(Decide),
        14 => (0..3_usize, any_fate()).prop_map(|(pick, fate)| Execute(pick, fate)),
        4 => Just(ExecuteAll),
        1 => Just(AskAgain),
        1 => Just(Crash),
        1 => Just(Settle),
    ]
}

/// A random trace.
pub fn traces(longest: usize) -> impl Strategy<Value = Vec<Operation>> {
    let operation = prop_oneof![6 => by_users(), 2 => by_administrators(), 9 => by_the_system()];
    prop::collection::vec(operation, longest / 2..longest)
}
