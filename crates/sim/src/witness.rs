//! Sees every change that the API commits, before anybody acts on it, and judges it.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gangway_admission::Durable;
use gangway_apiserver::{ApiServer, Committed};
use gangway_controller::workloads::Onlooker;
use gangway_model::readiness::WaitForPodsReady;
use gangway_model::{Clock, Timestamp};
use tokio::sync::Notify;

use crate::checker::Question;
use crate::faults::{Asked, Chance, EventFate, Fate, Faults};
use crate::invariants::{self, Violation};
use crate::view::View;

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The API server.
    ByTheServer,
    /// Nobody: whoever asked is dead.
    ByNobody,
}

/// The controllers' names, in requests and as candidates.
pub const CONTROLLERS: [&str; 2] = ["gangway-controller", "gangway-controller-2"];
/// The Lease by which one of them is elected.
pub const LEASE: &str = "gangway-controller";

/// Is told everything that happens, line by line.
pub type Listener = Box<dyn FnMut(&str) + Send>;

/// What is known of a simulation that runs.
pub struct Witness {
    api: ApiServer,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Rung when a controller has to die, one each.
    pub crash: [Notify; CONTROLLERS.len()],
    /// Rung when a controller has to stand still, one each.
    pub freeze: [Notify; CONTROLLERS.len()],
    /// Rung when a check is asked.
    pub asked: Notify,
}

struct State {
    chance: Chance,
    view: View,
    seen_version: u64,
    steps: u64,
    last_write_at: Timestamp,
    hash: DefaultHasher,
    listener: Option<Listener>,
    violation: Option<Violation>,
    controller_writes: u64,
    crash_at: Option<u64>,
    frozen_until: Timestamp,
    cut_off: Option<(&'static str, Timestamp)>,
    known: Known,
    /// Who has listed what since it started.
    listed: BTreeSet<(&'static str, String)>,
}

/// What the controller knows, if somebody asked.
#[derive(Default)]
enum Known {
    /// Nobody asked.
    #[default]
    NotAsked,
    /// It has not said yet.
    Asked,
    /// This is known, and this is wrong with it.
    Said(Box<Durable>, Option<String>),
}

impl std::fmt::Debug for Witness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Witness").finish_non_exhaustive()
    }
}

impl Witness {
    /// A witness of what happens to `api` from now on.
    pub fn begin(
        api: ApiServer,
        clock: Arc<dyn Clock>,
        chance: Chance,
        listener: Option<Listener>,
    ) -> Arc<Self> {
        let state = State {
            chance,
            view: View::default(),
            seen_version: 0,
            steps: 0,
            last_write_at: clock.now(),
            hash: DefaultHasher::new(),
            listener,
            violation: None,
            controller_writes: 0,
            crash_at: None,
            frozen_until: clock.now(),
            cut_off: None,
            known: Known::NotAsked,
            listed: BTreeSet::new(),
        };
        Arc::new(Self {
            api,
            clock,
            state: Mutex::new(state),
            crash: Default::default(),
            freeze: Default::default(),
            asked: Notify::new(),
        })
    }

    /// What holds for the whole of a simulation.
    pub fn expect(&self, readiness: Option<WaitForPodsReady>, clock_error_seconds: i64) {
        let view = &mut self.state().view;
        (view.readiness, view.clock_error_seconds) = (readiness, clock_error_seconds);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of a request.
    pub fn fate_of(&self, asked: &Asked) -> Fate {
        self.state().chance.of_request(asked)
    }

    /// What becomes of an event of a watch.
    pub fn fate_of_event(&self) -> EventFate {
        self.state().chance.of_event()
    }

    /// An old list for somebody who asks for one. The first list of everything is never old: an API server answers it from
    /// its store.
    pub fn old_list(&self, who: &'static str, asked: &Asked) -> Option<Bytes> {
        let mut state = self.state();
        let is_first = state.listed.insert((who, asked.path.clone()));
        state.chance.old_list(asked).filter(|_| !is_first)
    }

    /// Somebody starts and knows nothing: it lists everything for the first time.
    pub fn begins_anew(&self, who: &'static str) {
        self.state().listed.retain(|(other, _)| *other != who);
    }

    /// Keeps a list until it is old.
    pub fn keep_list(&self, asked: Asked, list: Bytes) {
        self.state().chance.keep_list(asked, list);
    }

    /// From now on these things go wrong.
    pub fn set_faults(&self, faults: Faults) {
        self.state().chance.faults = faults;
    }

    /// The controller dies with its nth write from now on.
    pub fn crash_after(&self, writes: u64) {
        let mut state = self.state();
        state.crash_at = Some(state.controller_writes + writes.max(1));
    }

    /// The controller that leads, as the API has it; the first if there is no election.
    fn leader(&self) -> usize {
        let leader = self.with_view(|view| view.leader.clone());
        CONTROLLERS.iter().position(|name| Some(*name) == leader.as_deref()).unwrap_or(0)
    }

    /// The controller that leads stands still for a while.
    pub fn freeze_leader(&self, seconds: u64) {
        let leader = self.leader();
        self.state().frozen_until = self.clock.now().plus_seconds(seconds.cast_signed());
        self.freeze[leader].notify_one();
    }

    /// How long a controller that was told to stand still has to do so.
    pub fn frozen_for(&self) -> Duration {
        let nanos = self.state().frozen_until.nanos_since(self.clock.now());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// No request of the controller that leads arrives for a while.
    pub fn cut_leader_off(&self, seconds: u64) {
        let leader = CONTROLLERS[self.leader()];
        self.state().cut_off = Some((leader, self.clock.now().plus_seconds(seconds.cast_signed())));
    }

    /// Whether no request of somebody arrives.
    pub fn is_cut_off(&self, who: &str) -> bool {
        let now = self.clock.now();
        self.state().cut_off.is_some_and(|(name, until)| name == who && now < until)
    }

    /// Looks at the controller's engine when it was asked what it knows.
    pub fn onlooker(self: &Arc<Self>) -> Onlooker {
        let witness = Arc::downgrade(self);
        Onlooker(Arc::new(move |engine| {
            let Some(witness) = witness.upgrade() else { return };
            let mut state = witness.state();
            if !matches!(state.known, Known::NotAsked) {
                let wrong = engine.check().err().map(|violation| format!("{violation:?}"));
                state.known = Known::Said(Box::new(engine.durable().clone()), wrong);
            }
        }))
    }

    /// From now on the controller says what it knows, when it has done something.
    pub fn ask_what_is_known(&self) {
        self.state().known = Known::Asked;
    }

    /// How what the controller knows differs from what it should.
    pub fn misremembered(&self, expected: &Durable) -> Option<String> {
        match std::mem::take(&mut self.state().known) {
            Known::Said(_, Some(wrong)) => Some(wrong),
            Known::Said(known, None) => known.difference(expected),
            Known::Asked | Known::NotAsked => Some("no controller says what it knows".to_owned()),
        }
    }

    /// Notes something that changed nothing.
    pub fn note(&self, who: &str, asked: &Asked, code: u16, what: &str) {
        let now = self.clock.now();
        self.state().tell(now, &format!("{who} {} {} {code} {what}", asked.method, asked.place()));
    }

    /// Notes what a person did.
    pub fn tell(&self, what: &str) {
        let now = self.clock.now();
        self.state().tell(now, what);
    }

    /// A request was carried out: every change that it made is a step, and is judged.
    pub fn answered(&self, who: &str, asked: &Asked, code: u16, told: &str) -> Answered {
        if !asked.is_write() {
            return Answered::ByTheServer;
        }
        let now = self.clock.now();
        let mut state = self.state();
        for change in self.api.changes_after(state.seen_version) {
            state.seen_version = change.version;
            state.take(who, &change, now);
        }
        if !state.view.questions.is_empty() {
            self.asked.notify_one();
        }
        if code >= 400 || !told.is_empty() {
            state.tell(now, &format!("{who} {} {} {code} {told}", asked.method, asked.place()));
        }
        let controller = CONTROLLERS.iter().position(|name| *name == who && !asked.is_about_leases());
        if let Some(controller) = controller.filter(|_| code < 300)
            && state.counts_down_to_a_crash()
        {
            state.tell(now, "the controller dies");
            self.crash[controller].notify_one();
            return Answered::ByNobody;
        }
        Answered::ByTheServer
    }

    /// The checks that were asked since somebody last wanted to know.
    pub fn questions(&self) -> Vec<Question> {
        std::mem::take(&mut self.state().view.questions)
    }

    /// What is there now, and what has been.
    pub fn with_view<T>(&self, look: impl FnOnce(&View) -> T) -> T {
        look(&self.state().view)
    }

    /// The first sentence that did not hold.
    pub fn violation(&self) -> Option<Violation> {
        self.state().violation.clone()
    }

    /// A sentence did not hold.
    pub fn accuse(&self, violation: Violation) {
        self.state().violation.get_or_insert(violation);
    }

    /// How many changes were judged.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// When something was last written.
    pub fn last_write_at(&self) -> Timestamp {
        self.state().last_write_at
    }

    /// The same for the same story, in every process.
    pub fn hash(&self) -> u64 {
        self.state().hash.finish()
    }
}

impl State {
    fn take(&mut self, who: &str, change: &Committed, now: Timestamp) {
        // Leases are renewed for ever.
        if change.plural == "leases" {
            if let Some(line) = self.view.take_lease(change) {
                self.tell(now, &line);
            }
            return;
        }
        self.steps += 1;
        self.last_write_at = now;
        let mut step = self.view.take(change, now);
        who.clone_into(&mut step.by);
        self.hash.write(&change.object);
        let line = format!("{who} {}", step.summary);
        self.tell(now, &line);
        if self.violation.is_none() {
            self.violation = invariants::check_step(&self.view, &step, now);
        }
    }

    fn tell(&mut self, now: Timestamp, line: &str) {
        self.hash.write_i64(now.as_nanos());
        self.hash.write(line.as_bytes());
        if let Some(listener) = &mut self.listener {
            let millis = now.as_nanos() / 1_000_000 % 100_000_000;
            listener(&format!("{:>6}.{:03} {line}", millis / 1000, millis % 1000));
        }
    }

    fn counts_down_to_a_crash(&mut self) -> bool {
        self.controller_writes += 1;
        self.crash_at.take_if(|at| *at <= self.controller_writes).is_some()
    }
}
