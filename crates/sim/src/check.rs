//! One scenario from its beginning to the end, and what fails made small.

use std::time::Duration;

use gangway_admission::Action;
use gangway_model::Clock;
use gangway_model::workload::State;

use crate::faults::Faults;
use crate::invariants::{Rest, Violation, check_rest, check_step};
use crate::scenario::{Deed, FLAVORS, Scenario};
use crate::view::Step;
use crate::witness::Listener;
use crate::world::World;

/// After this long without a write everything is at rest: nothing waits longer for a time, but for who tries all flavors again.
const QUIET: Duration = Duration::from_secs(20 * 60);
/// After this long it should have come to rest.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);
/// A round of waiting for rest.
const LOOK: Duration = Duration::from_secs(60);
/// More than it takes to ask a new controller.
const ASKING_SECONDS: i64 = 120;

/// What came of a scenario.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first sentence that did not hold.
    pub violation: Option<Violation>,
    /// How many changes were judged.
    pub steps: u64,
    /// The same whenever the same scenario is played.
    pub hash: u64,
    /// How many Workloads ended, and how many were told to leave.
    pub finished: usize,
    /// See above.
    pub evictions: usize,
    /// How often a flavor was given up, and how often a check said something.
    pub given_up: usize,
    /// See above.
    pub answers: usize,
}

/// Plays a scenario in a runtime of its own, whose clock is paused. A listener is told everything that happens.
///
/// # Panics
///
/// If no runtime can be made.
pub fn check(scenario: &Scenario, listener: Option<Listener>) -> Outcome {
    // What goes wrong is ordered, and no news.
    let _silent = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::new());
    // The waits of watches that failed are drawn from this generator.
    fastrand::seed(scenario.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => runtime.block_on(play(scenario, listener)),
        Err(error) => panic!("no runtime for a simulation: {error}"),
    }
}

async fn play(scenario: &Scenario, listener: Option<Listener>) -> Outcome {
    let mut world = World::start(scenario, listener).await;
    let began = tokio::time::Instant::now();
    for act in &scenario.acts {
        tokio::time::sleep_until(began + act.at).await;
        if world.witness.violation().is_some() {
            break;
        }
        world.perform(&act.what).await;
    }
    if world.witness.violation().is_none() {
        settle(&mut world, scenario).await;
    }
    let (steps, hash, violation) = (world.witness.steps(), world.witness.hash(), world.witness.violation());
    world.witness.with_view(|view| Outcome {
        violation,
        steps,
        hash,
        finished: view.finished,
        evictions: view.evictions,
        given_up: view.given_up,
        answers: view.answers,
    })
}

/// The faults stop, and liveness is demanded.
async fn settle(world: &mut World, scenario: &Scenario) {
    world.witness.set_faults(Faults::default());
    world.perform(&Deed::StepClock(0)).await;
    if scenario.scarcity.as_ref().is_some_and(|scarcity| !scarcity.lasts) {
        world.end_scarcity(scenario).await;
    }
    let began = tokio::time::Instant::now();
    let mut restless = None;
    while idle_for(world) < QUIET || wakes_meanwhile(world) {
        if began.elapsed() > PATIENCE {
            restless = Some(format!("something is still written after {} hours", PATIENCE.as_secs() / 3600));
            break;
        }
        tokio::time::sleep(LOOK).await;
        if world.witness.violation().is_some() {
            return;
        }
    }
    let (forgotten, misremembered) = ask_a_new_controller(world).await;
    let now = world.clock.now();
    let violation = world.witness.with_view(|view| {
        let rest = Rest {
            now,
            restless,
            forgotten,
            misremembered,
            all_end: scenario.readiness.is_none()
                && scenario.scarcity.is_none()
                && !scenario.acts.iter().any(|act| act.what.redefines()),
            occasions: scenario.occasions(),
        };
        check_step(view, &Step::default(), now).or_else(|| check_rest(view, &rest))
    });
    if let Some(violation) = violation {
        world.witness.accuse(violation);
    }
}

/// Who would be admitted by a controller that started now, and what it knows that the one that runs does not.
async fn ask_a_new_controller(world: &mut World) -> (Vec<String>, Option<String>) {
    world.witness.ask_what_is_known();
    // Nothing that matters, but enough for a controller to wake up.
    world.perform(&Deed::TouchFlavor(FLAVORS[0])).await;
    tokio::time::sleep(LOOK).await;
    let snapshot = match world.snapshot().await {
        Ok(snapshot) => snapshot,
        Err(error) => return (vec![format!("(nobody can read the objects: {error})")], None),
    };
    let admits = snapshot.decisions().iter().filter(|decision| matches!(decision.action, Action::Admit(_)));
    let forgotten = admits.map(|decision| decision.name.to_string()).collect();
    (forgotten, world.witness.misremembered(snapshot.durable()))
}

/// Whether a backoff ends while a new controller is asked: what is on its way then is not at rest.
fn wakes_meanwhile(world: &World) -> bool {
    let now = world.clock.now();
    let answered = now.plus_seconds(ASKING_SECONDS);
    world.witness.with_view(|view| {
        let mut backoffs = view.workloads.values().filter_map(|seen| match &seen.record.state {
            State::Pending(pending) => pending.requeue_state.as_ref()?.requeue_at,
            _ => None,
        });
        backoffs.any(|until| now <= until && until <= answered)
    })
}

fn idle_for(world: &World) -> Duration {
    let nanos = world.clock.now().nanos_since(world.witness.last_write_at());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// Leaves out what is not needed to break the same sentence.
pub fn shrink(scenario: &Scenario, violation: &Violation) -> Scenario {
    let fails =
        |candidate: &Scenario| check(candidate, None).violation.is_some_and(|found| found.id == violation.id);
    let mut small = scenario.clone();
    let calm = Scenario { faults: Faults::default(), ..small.clone() };
    if fails(&calm) {
        small = calm;
    }
    let mut chunk = small.acts.len().div_ceil(2).max(1);
    loop {
        let before = small.acts.len();
        let mut start = 0;
        while start < small.acts.len() {
            let mut candidate = small.clone();
            candidate.acts.drain(start..(start + chunk).min(candidate.acts.len()));
            if fails(&candidate) {
                small = candidate;
            } else {
                start += chunk;
            }
        }
        if chunk == 1 && small.acts.len() == before {
            return small;
        }
        chunk = (chunk / 2).max(1);
    }
}
