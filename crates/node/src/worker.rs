//! One pod of this machine, from its first start to its last write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use gangway_model::Clock;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{Client, ResourceExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::time::{Instant, sleep_until, timeout};

use crate::environment::Sources;
use crate::options::NodeOptions;
use crate::prepare::{self, NotStartable, References};
use crate::probe::ProbeKind;
use crate::prober::{self, ProbedContainer};
use crate::process::{Process, ProcessEvent};
use crate::refusal;
use crate::shim::{Order, ProcessSpec};
use crate::state::{ContainerState, Moment, PodRun, Verdict};
use crate::step::{Step, next_step};
use crate::writes;
use crate::{registration, status};

/// What all pods of the node share.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub clock: Arc<dyn Clock>,
    pub options: Arc<NodeOptions>,
}

/// Whatever can happen to a pod.
pub enum Input {
    /// The object has changed.
    Pod(Box<Pod>),
    /// The object does not exist any more.
    Gone,
    /// The agent ends.
    Shutdown,
    Prepared {
        container: usize,
        attempt: u32,
        result: Result<Sources, NotStartable>,
    },
    Process {
        container: usize,
        attempt: u32,
        event: ProcessEvent,
    },
    Probed {
        container: usize,
        attempt: u32,
        kind: ProbeKind,
        success: bool,
    },
}

/// How soon a container that lacks a ConfigMap or Secret is tried again.
const PREPARE_RETRY: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL for a pod whose object was removed without waiting for us.
const FORCED_GRACE: Duration = Duration::from_secs(1);
const DEFAULT_GRACE_SECONDS: i64 = 30;
const FIRST_WRITE_RETRY: Duration = Duration::from_millis(250);
const LONGEST_WRITE_RETRY: Duration = Duration::from_secs(10);
/// The API server may end together with the agent; the last writes do not wait for it longer than this.
const LAST_WRITE_LIMIT: Duration = Duration::from_secs(1);

/// Runs the pod until everything about it has been said. `run` is where it begins.
pub async fn run_pod(
    context: Context,
    pod: Pod,
    run: PodRun,
    inputs: UnboundedReceiver<Input>,
    sender: UnboundedSender<Input>,
) {
    let mut worker = Worker {
        context,
        run,
        processes: HashMap::new(),
        written: None,
        gone: false,
        shutdown: false,
        done: false,
        write: None,
        write_failures: 0,
        write_not_before: None,
        sender,
        pod,
    };
    worker.on_deletion();
    worker.work(inputs).await;
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("the API server did not answer before the agent had to end")]
    TooLate,
}

enum Written {
    Status(Box<PodStatus>, Option<Box<Pod>>),
    Removed,
}

struct Worker {
    context: Context,
    /// The object as last seen or written.
    pod: Pod,
    run: PodRun,
    processes: HashMap<usize, (Process, ProcessSpec)>,
    /// The essence of the status that the API server has from us.
    written: Option<PodStatus>,
    gone: bool,
    shutdown: bool,
    done: bool,
    /// At most one write is outstanding.
    write: Option<BoxFuture<'static, Result<Written, WriteError>>>,
    write_failures: u32,
    write_not_before: Option<Instant>,
    sender: UnboundedSender<Input>,
}

impl Worker {
    async fn work(&mut self, mut inputs: UnboundedReceiver<Input>) {
        while !self.done {
            // What has happened already is taken together, so that it costs one write.
            while let Ok(input) = inputs.try_recv() {
                self.on_input(input);
            }
            let wake = self.advance();
            if self.done {
                return;
            }
            let wake = [wake, self.write_not_before].into_iter().flatten().min();
            tokio::select! {
                biased;
                Some(input) = inputs.recv() => self.on_input(input),
                result = wait_for(&mut self.write) => self.on_written(result),
                () = until(wake) => {}
            }
        }
    }

    fn now(&self) -> Moment {
        Moment { instant: Instant::now(), time: self.context.clock.now() }
    }

    /// Takes every step that is due and writes what is worth it; when to come back.
    fn advance(&mut self) -> Option<Instant> {
        loop {
            let now = self.now();
            match next_step(&self.run, now.instant) {
                Step::Start(container) => self.start(container),
                Step::Terminate(container) => self.signal(container, Order::Terminate),
                Step::Kill(container) => self.signal(container, Order::Kill),
                Step::Probe(container, kind) => self.ask(container, kind, now.instant),
                Step::Fail(verdict) => {
                    self.run.verdict = Some(verdict);
                    self.run.stop(now.instant, self.spec_grace());
                }
                Step::StopSidecars => self.run.stop(now.instant, self.spec_grace()),
                Step::Finish => {
                    self.finish();
                    return None;
                }
                Step::Wait(until) => {
                    self.report();
                    return until;
                }
            }
        }
    }

    fn spec_grace(&self) -> Duration {
        let stated = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        Duration::from_secs(stated.unwrap_or(DEFAULT_GRACE_SECONDS).max(0).unsigned_abs())
    }

    fn on_input(&mut self, input: Input) {
        let now = self.now();
        match input {
            Input::Pod(pod) => {
                self.pod = *pod;
                self.on_deletion();
            }
            Input::Gone => {
                self.gone = true;
                self.run.stop(now.instant, FORCED_GRACE.min(self.spec_grace()));
            }
            Input::Shutdown => self.on_shutdown(now),
            Input::Prepared { container, attempt, result } if self.is_current(container, attempt) => {
                self.on_prepared(container, result);
            }
            Input::Process { container, attempt, event } if self.is_current(container, attempt) => {
                self.on_process(container, event, now);
            }
            Input::Probed { container, attempt, kind, success } if self.is_current(container, attempt) => {
                self.on_probed(container, kind, success, now.instant);
            }
            Input::Prepared { .. } | Input::Process { .. } | Input::Probed { .. } => {}
        }
    }

    /// News of an earlier start of the container is of no interest.
    fn is_current(&self, container: usize, attempt: u32) -> bool {
        self.run.containers.get(container).is_some_and(|container| container.restarts == attempt)
    }

    fn on_deletion(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            self.run.stop(Instant::now(), Duration::from_secs(grace.max(0).unsigned_abs()));
        }
    }

    fn on_shutdown(&mut self, now: Moment) {
        self.shutdown = true;
        let deleted = self.pod.metadata.deletion_timestamp.is_some();
        let ending = self.run.stopping && !self.run.containers.iter().any(|container| container.alive());
        if !deleted && !ending {
            self.run.verdict.get_or_insert_with(|| Verdict {
                reason: "NodeShutdown".to_owned(),
                message: "The node agent was ended, and with it the processes of the pod.".to_owned(),
            });
        }
        self.run.stop(now.instant, self.context.options.shutdown_grace.min(self.spec_grace()));
    }

    fn start(&mut self, container: usize) {
        let run = &mut self.run.containers[container];
        run.on_preparing();
        let attempt = run.restarts;
        let no_spec = Default::default();
        let spec = self.pod.spec.as_ref().unwrap_or(&no_spec);
        let references = refusal::all_containers(spec)
            .nth(container)
            .map(|container| References::of(spec, container))
            .unwrap_or_default();
        if references.is_empty() {
            return self.on_prepared(container, Ok(Sources::default()));
        }
        let (sender, client) = (self.sender.clone(), self.context.client.clone());
        let namespace = self.pod.metadata.namespace.clone().unwrap_or_default();
        tokio::spawn(async move {
            let result = references.fetch(&client, &namespace).await;
            let _ = sender.send(Input::Prepared { container, attempt, result });
        });
    }

    fn on_prepared(&mut self, container: usize, result: Result<Sources, NotStartable>) {
        let attempt = self.run.containers[container].restarts;
        let preparing = matches!(self.run.containers[container].state, ContainerState::Preparing);
        if self.run.stopping || !preparing {
            return;
        }
        let result = result.and_then(|sources| self.spawn(container, attempt, &sources));
        match result {
            Ok(process) => {
                self.run.containers[container].state = ContainerState::Starting;
                self.processes.insert(container, process);
            }
            Err(NotStartable { reason, message }) => {
                let retry_at = Instant::now() + PREPARE_RETRY;
                self.run.containers[container].on_not_startable(reason, message, retry_at);
            }
        }
    }

    fn spawn(
        &self,
        container: usize,
        attempt: u32,
        sources: &Sources,
    ) -> Result<(Process, ProcessSpec), NotStartable> {
        let error = |message| NotStartable { reason: "CreateContainerError", message };
        let spec = self.pod.spec.as_ref().and_then(|spec| refusal::all_containers(spec).nth(container));
        let spec =
            spec.ok_or_else(|| error("The container is not in the pod's spec any more.".to_owned()))?;
        let process = prepare::process_spec(&self.pod, spec, attempt, sources, &self.context.options)?;
        let sender = self.sender.clone();
        let on_event = move |event| {
            let _ = sender.send(Input::Process { container, attempt, event });
        };
        let shim = &self.context.options.shim_program;
        let handle = Process::spawn(shim, &self.label(container), &process, on_event)
            .map_err(|source| error(format!("The shim {shim:?} cannot be started: {source}.")))?;
        Ok((handle, process))
    }

    fn label(&self, container: usize) -> String {
        let namespace = self.pod.metadata.namespace.as_deref().unwrap_or_default();
        format!("{namespace}/{}/{}", self.pod.name_any(), self.run.containers[container].name)
    }

    fn signal(&mut self, container: usize, order: Order) {
        if let Some((process, _)) = self.processes.get(&container) {
            process.order(order);
        }
        if let Some(stop) = &mut self.run.containers[container].stop {
            stop.terminated = true;
            stop.killed |= order == Order::Kill;
        }
    }

    fn on_process(&mut self, container: usize, event: ProcessEvent, now: Moment) {
        match event {
            ProcessEvent::Started => self.run.containers[container].on_started(now),
            ProcessEvent::Exited(record) => {
                self.processes.remove(&container);
                self.run.containers[container].on_exit(record, now);
            }
        }
    }

    fn ask(&mut self, container: usize, kind: ProbeKind, now: Instant) {
        let label = format!("{} {kind:?} probe", self.label(container));
        let run = &mut self.run.containers[container];
        let attempt = run.restarts;
        let Some(probe) = run.probes.iter_mut().find(|probe| probe.plan.kind == kind) else { return };
        probe.on_asked(now);
        let Some((_, spec)) = self.processes.get(&container) else { return };
        let (action, limit) = (probe.plan.action.clone(), probe.plan.timeout);
        let shim_program = self.context.options.shim_program.clone();
        let probed = ProbedContainer { shim_program, label, spec: spec.clone() };
        let sender = self.sender.clone();
        tokio::spawn(async move {
            // A worker that has ended wants no answer; the probe's process goes with this task.
            let success = tokio::select! {
                success = prober::ask(&action, limit, &probed) => success,
                () = sender.closed() => return,
            };
            let _ = sender.send(Input::Probed { container, attempt, kind, success });
        });
    }

    fn on_probed(&mut self, container: usize, kind: ProbeKind, success: bool, now: Instant) {
        let grace = self.spec_grace();
        let run = &mut self.run.containers[container];
        let Some(probe) = run.probes.iter_mut().find(|probe| probe.plan.kind == kind) else { return };
        if probe.on_answer(success) && run.alive() {
            run.stop(now, grace);
        }
    }

    /// Writes the status if it says something new. While a container is about to start, the few milliseconds until then
    /// are waited for: a pod that starts costs one write.
    fn report(&mut self) {
        let starting =
            |state: &ContainerState| matches!(state, ContainerState::Preparing | ContainerState::Starting);
        if !self.run.containers.iter().any(|container| starting(&container.state)) {
            self.write_status_if_new();
        }
    }

    /// Whether the API server knows everything.
    fn write_status_if_new(&mut self) -> bool {
        let now = self.context.clock.now();
        let essence = status::essence(status::render(&self.pod, &self.run, now));
        if self.gone || self.written.as_ref() == Some(&essence) {
            return self.write.is_none();
        }
        if !self.may_write() {
            return false;
        }
        let (client, pod, run) = (self.context.client.clone(), self.pod.clone(), self.run.clone());
        self.write = Some(
            async move {
                let written =
                    writes::write_status(&client, pod, |pod| status::render(pod, &run, now)).await?;
                Ok(Written::Status(Box::new(essence), written.map(Box::new)))
            }
            .boxed(),
        );
        self.limit_last_write();
        false
    }

    fn may_write(&mut self) -> bool {
        if self.write.is_some() || self.write_not_before.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        self.write_not_before = None;
        true
    }

    fn limit_last_write(&mut self) {
        if self.shutdown
            && let Some(write) = self.write.take()
        {
            let limited =
                async move { timeout(LAST_WRITE_LIMIT, write).await.unwrap_or(Err(WriteError::TooLate)) };
            self.write = Some(limited.boxed());
        }
    }

    /// Nothing runs any more: the last status, then the removal if somebody waits for it.
    fn finish(&mut self) {
        if !self.write_status_if_new() {
            return;
        }
        let directory = self.context.options.pod_directory(&prepare::directory_name(&self.pod));
        if let Err(error) = std::fs::remove_dir_all(&directory)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(?directory, %error, "the directory of a pod cannot be removed");
        }
        if self.gone || self.pod.metadata.deletion_timestamp.is_none() {
            self.done = true;
            return;
        }
        if self.may_write() {
            let (client, pod) = (self.context.client.clone(), self.pod.clone());
            self.write = Some(
                async move { Ok(writes::remove(&client, &pod).await.map(|()| Written::Removed)?) }.boxed(),
            );
            self.limit_last_write();
        }
    }

    fn on_written(&mut self, result: Result<Written, WriteError>) {
        match result {
            Ok(Written::Status(essence, Some(pod))) => {
                self.written = Some(*essence);
                self.pod = *pod;
                self.on_deletion();
                self.write_failures = 0;
            }
            Ok(Written::Status(_, None)) => self.on_input(Input::Gone),
            Ok(Written::Removed) => self.done = true,
            Err(error) => self.on_write_failed(&error),
        }
    }

    fn on_write_failed(&mut self, error: &WriteError) {
        if self.write_failures == 0 {
            tracing::warn!(pod = self.label_of_pod(), %error, "the pod's status cannot be written");
        }
        // With the agent's end nothing is left to wait for, and a write that the API server refuses for what it says
        // will be refused again: both end once nothing runs.
        let refused = matches!(error, WriteError::Api(error) if !registration::is_temporary(error));
        let give_up = self.shutdown || refused;
        self.gone |= give_up && !self.run.containers.iter().any(|container| container.alive());
        let doubled = FIRST_WRITE_RETRY.saturating_mul(1 << self.write_failures.min(16));
        self.write_failures = self.write_failures.saturating_add(1);
        self.write_not_before = Some(Instant::now() + doubled.min(LONGEST_WRITE_RETRY));
    }

    fn label_of_pod(&self) -> String {
        format!("{}/{}", self.pod.metadata.namespace.as_deref().unwrap_or_default(), self.pod.name_any())
    }
}

/// The end of the write under way, if there is one.
async fn wait_for(
    write: &mut Option<BoxFuture<'static, Result<Written, WriteError>>>,
) -> Result<Written, WriteError> {
    match write {
        Some(future) => {
            let result = future.await;
            *write = None;
            result
        }
        None => std::future::pending().await,
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
