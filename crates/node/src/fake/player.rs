//! Plays the fake nodes: one watch, one task, one timer for all of their pods.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt, TryStreamExt};
use gangway_model::{Clock, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::DeleteParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::{Instant, sleep_until};

use super::behaviour::{Behaviour, Stage};
use super::nodes::FakeNode;
use crate::probe::ProbeRun;
use crate::shim::ExitRecord;
use crate::state::{Moment, PodRun, Role, Verdict};
use crate::{NodeError, registration, status, writes};

/// Registrations under way at the same time.
const REGISTRATIONS: usize = 32;
const WRITE_RETRY: Duration = Duration::from_secs(1);
/// 128 + SIGTERM: what a pod that was deleted ends with.
const EXIT_TERMINATED: i32 = 143;

/// Registers `nodes` and plays the pods that are bound to them, until `shutdown` ends. See the module for what pods do.
///
/// Nothing is cleaned up at the end: the Nodes stay as they are, like machines whose agents have died.
pub async fn run_fake_nodes(
    client: Client,
    clock: Arc<dyn Clock>,
    nodes: Vec<FakeNode>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    let mut shutdown = pin!(shutdown);
    let objects: Vec<Node> = nodes
        .iter()
        .map(|node| {
            registration::node_object(&node.name, &node.labels, &node.taints, &node.capacity, clock.now())
        })
        .collect();
    let registrar = client.clone();
    let registered = futures::stream::iter(objects)
        .map(move |object| {
            let client = registrar.clone();
            async move { registration::register(&client, &object).await }
        })
        .buffer_unordered(REGISTRATIONS)
        .try_collect::<()>();
    tokio::select! {
        biased;
        result = Box::pin(registered) => result?,
        () = &mut shutdown => return Ok(()),
    }
    let present = Arc::new(Mutex::new(nodes.iter().map(|node| node.name.clone()).collect::<FxHashSet<_>>()));
    let for_leases = Arc::clone(&present);
    let leases = Box::pin(registration::keep_leases(client.clone(), clock.clone(), move || {
        for_leases.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }));
    let mut player = Player::new(client, clock, &nodes, present);
    tokio::select! {
        biased;
        () = player.play() => {}
        () = leases => {}
        () = &mut shutdown => {}
    }
    Ok(())
}

struct FakePod {
    pod: Pod,
    behaviour: Result<Behaviour, String>,
    started: Moment,
    deleted: Option<Instant>,
    /// What the API server knows.
    written: Stage,
    writing: bool,
}

/// What the one timer can be for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    Pod(String),
    Vanish(String),
}

/// The end of a write: the pod's uid, the stage that was written, and the pod, if it still exists.
type Written = (String, Stage, Result<Option<Pod>, kube::Error>);

struct Player {
    client: Client,
    clock: Arc<dyn Clock>,
    /// The nodes that have not vanished.
    present: Arc<Mutex<FxHashSet<String>>>,
    pods: FxHashMap<String, FakePod>,
    alarms: BinaryHeap<Reverse<(Instant, Alarm)>>,
    writes: FuturesUnordered<BoxFuture<'static, Written>>,
    listed: FxHashSet<String>,
    said: bool,
}

impl Player {
    fn new(
        client: Client,
        clock: Arc<dyn Clock>,
        nodes: &[FakeNode],
        present: Arc<Mutex<FxHashSet<String>>>,
    ) -> Self {
        let now = Instant::now();
        let alarms = nodes
            .iter()
            .filter_map(|node| Some((now.checked_add(node.vanish_after?)?, node.name.clone())))
            .map(|(at, name)| Reverse((at, Alarm::Vanish(name))))
            .collect();
        let (pods, listed) = (FxHashMap::default(), FxHashSet::default());
        Self { client, clock, present, pods, alarms, writes: FuturesUnordered::new(), listed, said: false }
    }

    async fn play(&mut self) {
        let pods = watcher(Api::<Pod>::all(self.client.clone()), watcher::Config::default())
            .default_backoff()
            .boxed();
        let mut pods = pin!(pods);
        loop {
            let alarm = self.alarms.peek().map(|Reverse((at, _))| *at);
            tokio::select! {
                biased;
                event = pods.next() => match event {
                    Some(Ok(event)) => self.on_event(event),
                    Some(Err(error)) => {
                        if !std::mem::replace(&mut self.said, true) {
                            tracing::warn!(%error, "pods cannot be watched; trying again");
                        }
                    }
                    None => return std::future::pending().await,
                },
                Some(written) = self.writes.next() => self.on_written(written),
                () = sleep_until(alarm.unwrap_or_else(Instant::now)), if alarm.is_some() => self.on_alarm(),
            }
        }
    }

    fn on_event(&mut self, event: watcher::Event<Pod>) {
        self.said = false;
        match event {
            watcher::Event::Init => self.listed.clear(),
            watcher::Event::InitApply(pod) => {
                self.listed.extend(pod.metadata.uid.clone());
                self.on_pod(pod);
            }
            watcher::Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                self.pods.retain(|uid, _| listed.contains(uid));
            }
            watcher::Event::Apply(pod) => self.on_pod(pod),
            watcher::Event::Delete(pod) => {
                self.pods.remove(pod.metadata.uid.as_deref().unwrap_or_default());
            }
        }
    }

    fn on_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        if !node.is_some_and(|node| self.is_present(node)) {
            return;
        }
        let now = Instant::now();
        let deleted = pod.metadata.deletion_timestamp.is_some();
        if !self.pods.contains_key(&uid) {
            // With a grace of 0 the API server waits for finalizers, not for us.
            let waits_for_us = deleted && pod.metadata.deletion_grace_period_seconds != Some(0);
            if status::is_finished(&pod) && !waits_for_us {
                return;
            }
            let fake = self.adopt(pod, now);
            self.pods.insert(uid.clone(), fake);
        } else if let Some(fake) = self.pods.get_mut(&uid) {
            fake.pod = pod;
        }
        if let Some(fake) = self.pods.get_mut(&uid).filter(|_| deleted) {
            fake.deleted.get_or_insert(now);
        }
        self.advance(uid);
    }

    /// A pod seen for the first time; one that an earlier player started goes on where it was.
    fn adopt(&self, pod: Pod, now: Instant) -> FakePod {
        let time = self.clock.now();
        let status = pod.status.as_ref();
        let start_time = status.and_then(|status| status.start_time.as_ref());
        let age = start_time.map_or(0, |start| time.as_seconds().saturating_sub(start.0.as_second()).max(0));
        let instant = now.checked_sub(Duration::from_secs(age.unsigned_abs())).unwrap_or(now);
        let written = match status.and_then(|status| status.phase.as_deref()) {
            Some("Succeeded" | "Failed") => Stage::Ended,
            Some("Running") => Stage::Running,
            _ => Stage::Bound,
        };
        let started = Moment { instant, time: time.plus_seconds(age.saturating_neg()) };
        FakePod { behaviour: Behaviour::of(&pod), pod, started, deleted: None, written, writing: false }
    }

    fn is_present(&self, node: &str) -> bool {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    fn on_alarm(&mut self) {
        let now = Instant::now();
        while let Some(Reverse((_, alarm))) = self.alarms.pop_if_due(now) {
            match alarm {
                Alarm::Pod(uid) => self.advance(uid),
                Alarm::Vanish(node) => self.vanish(node),
            }
        }
    }

    /// Brings one pod to where it should be by now.
    fn advance(&mut self, uid: String) {
        let now = Instant::now();
        let Some(fake) = self.pods.get_mut(&uid).filter(|fake| !fake.writing) else { return };
        let (stage, next) = match &fake.behaviour {
            Ok(behaviour) => behaviour.stage(fake.started.instant, fake.deleted, fake.written, now),
            Err(_) if fake.deleted.is_some() => (Stage::Removed, None),
            Err(_) => (Stage::Ended, None),
        };
        if let Some(at) = next {
            self.alarms.push(Reverse((at, Alarm::Pod(uid.clone()))));
        }
        if stage > fake.written {
            fake.writing = true;
            let time = self.clock.now();
            let run = fake.run_at(stage, Moment { instant: now, time });
            let (client, pod) = (self.client.clone(), fake.pod.clone());
            let finished = fake.written == Stage::Ended;
            self.writes.push(
                async move { (uid, stage, write(client, pod, stage, finished, (run, time)).await) }.boxed(),
            );
        }
    }

    fn on_written(&mut self, (uid, stage, result): Written) {
        let Some(fake) = self.pods.get_mut(&uid) else { return };
        fake.writing = false;
        match result {
            Ok(None) => {
                self.pods.remove(&uid);
                return;
            }
            Ok(Some(pod)) => {
                fake.written = stage;
                if pod.metadata.deletion_timestamp.is_some() {
                    fake.deleted.get_or_insert_with(Instant::now);
                }
                fake.pod = pod;
            }
            Err(error) if registration::is_temporary(&error) => {
                tracing::debug!(%error, "the status of a fake pod cannot be written; trying again");
                self.alarms.push(Reverse((Instant::now() + WRITE_RETRY, Alarm::Pod(uid))));
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "the API server refuses the status of a fake pod");
                self.pods.remove(&uid);
                return;
            }
        }
        self.advance(uid);
    }

    fn vanish(&mut self, node: String) {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
        self.pods
            .retain(|_, fake| fake.pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) != Some(&node));
        let api: Api<Node> = Api::all(self.client.clone());
        tokio::spawn(async move {
            if let Err(error) = api.delete(&node, &DeleteParams::default()).await {
                tracing::warn!(node, %error, "a vanished node cannot be deleted");
            }
        });
    }
}

/// The next alarm, if its time has come.
trait PopIfDue {
    fn pop_if_due(&mut self, now: Instant) -> Option<Reverse<(Instant, Alarm)>>;
}

impl PopIfDue for BinaryHeap<Reverse<(Instant, Alarm)>> {
    fn pop_if_due(&mut self, now: Instant) -> Option<Reverse<(Instant, Alarm)>> {
        self.peek().is_some_and(|Reverse((at, _))| *at <= now).then(|| self.pop()).flatten()
    }
}

/// Writes a stage; the pod as it is then, or `None` if it does not exist any more.
async fn write(
    client: Client,
    pod: Pod,
    stage: Stage,
    finished: bool,
    (run, time): (PodRun, Timestamp),
) -> Result<Option<Pod>, kube::Error> {
    let pod = if finished {
        pod
    } else {
        match writes::write_status(&client, pod, |pod| status::render(pod, &run, time)).await? {
            Some(pod) => pod,
            None => return Ok(None),
        }
    };
    if stage != Stage::Removed {
        return Ok(Some(pod));
    }
    writes::remove(&client, &pod).await.map(|()| None)
}

impl FakePod {
    /// The pod as an agent would know it at `stage`.
    fn run_at(&self, stage: Stage, now: Moment) -> PodRun {
        let mut run = PodRun::new(&self.pod, self.started);
        let exit_code = match &self.behaviour {
            Err(message) => {
                run.verdict =
                    Some(Verdict { reason: "InvalidAnnotation".to_owned(), message: message.clone() });
                run.stopping = true;
                return run;
            }
            Ok(behaviour) if stage == Stage::Ended => behaviour.exit_code,
            Ok(_) => EXIT_TERMINATED,
        };
        run.stopping = stage >= Stage::Ended;
        for container in &mut run.containers {
            container.on_preparing();
            let init = container.role == Role::Init;
            container.on_started(self.started);
            container.probes = vec![ProbeRun::answered(stage >= Stage::Ready)];
            if init || stage >= Stage::Ended {
                container.on_exit(ExitRecord::exited(if init { 0 } else { exit_code }), now);
            }
        }
        run
    }
}
