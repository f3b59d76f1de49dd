//! The node agent: registers this machine and gives each pod bound to it a worker.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use gangway_model::Clock;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::state::{Moment, PodRun, Verdict};
use crate::worker::{Context, Input, run_pod};
use crate::{NodeError, NodeOptions, prepare, refusal, registration, status};

/// What is allowed beyond the grace for the last writes when the agent ends.
const LAST_WRITES: Duration = Duration::from_secs(3);
/// The API server may be ending too; the Node's last write does not wait for it longer than this.
const NOT_READY_LIMIT: Duration = Duration::from_millis(500);

/// Registers this machine as a Node and runs the pods that are bound to it, until `shutdown` ends.
///
/// Before it returns, every process that it started has ended. If it is dropped instead, or the whole program dies, the
/// shims end them. Pods that an earlier agent left running are failed as `NodeRestarted`: their processes died with it.
/// Log files stay when their pod goes; whoever owns the state directory removes them.
pub async fn run_node(
    client: Client,
    clock: Arc<dyn Clock>,
    options: NodeOptions,
    shutdown: impl Future<Output = ()>,
) -> Result<(), NodeError> {
    for directory in [options.log_directory(), options.state_directory.join("pods")] {
        make_private_directory(&directory)?;
    }
    let mut shutdown = pin!(shutdown);
    let node =
        registration::node_object(&options.name, &options.labels, &[], &options.full_capacity(), clock.now());
    tokio::select! {
        registered = Box::pin(registration::register(&client, &node)) => registered?,
        () = &mut shutdown => return Ok(()),
    }
    let name = options.name.clone();
    let selector = watcher::Config::default().fields(&format!("spec.nodeName={name}"));
    let pods = watcher(Api::<Pod>::all(client.clone()), selector).default_backoff().boxed();
    let names = vec![name.clone()];
    let mut leases =
        Box::pin(registration::keep_leases(client.clone(), clock.clone(), move || names.clone()));
    let context = Context { client: client.clone(), clock: clock.clone(), options: Arc::new(options) };
    let mut agent =
        Agent { context, pods: HashMap::new(), tasks: JoinSet::new(), listed: HashSet::new(), said: false };
    tokio::select! {
        () = agent.serve(pods) => {}
        () = &mut leases => {}
        () = &mut shutdown => {}
    }
    let not_ready = timeout(NOT_READY_LIMIT, registration::mark_not_ready(&client, &name, clock.now()));
    let (_, ()) = tokio::join!(not_ready, agent.stop());
    Ok(())
}

/// Volumes can hold secrets, and logs what the user would not show to others.
fn make_private_directory(directory: &Path) -> Result<(), NodeError> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(|source| NodeError::StateDirectory { directory: directory.display().to_string(), source })
}

struct Agent {
    context: Context,
    /// The way to each worker, by the pod's uid.
    pods: HashMap<String, UnboundedSender<Input>>,
    tasks: JoinSet<String>,
    /// The uids that the list under way has shown so far.
    listed: HashSet<String>,
    /// Whether the watch's present trouble was told.
    said: bool,
}

/// What is to be done about a pod that has no worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disposition {
    /// It has ended, or somebody else sees to it.
    LeaveAlone,
    Run,
    /// It ran under an agent that is no more.
    Lost,
    /// It has ended and is deleted, and only our word is missing.
    Remove,
}

fn disposition(pod: &Pod, has_directory: bool) -> Disposition {
    let deleted = pod.metadata.deletion_timestamp.is_some();
    if status::is_finished(pod) {
        // With a grace of 0 the API server waits for finalizers, not for us.
        let waits_for_us = pod.metadata.deletion_grace_period_seconds.is_some_and(|grace| grace > 0);
        return if deleted && waits_for_us { Disposition::Remove } else { Disposition::LeaveAlone };
    }
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let started = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
    if phase == Some("Running") || started || has_directory { Disposition::Lost } else { Disposition::Run }
}

impl Agent {
    /// Follows the pods of the node, for ever.
    async fn serve(&mut self, pods: impl Stream<Item = Result<watcher::Event<Pod>, watcher::Error>>) {
        let mut pods = pin!(pods);
        loop {
            tokio::select! {
                event = pods.next() => match event {
                    Some(Ok(event)) => self.on_event(event),
                    Some(Err(error)) => self.on_watch_error(&error),
                    None => return std::future::pending().await,
                },
                Some(ended) = self.tasks.join_next() => {
                    if let Ok(uid) = ended {
                        self.pods.remove(&uid);
                    }
                }
            }
        }
    }

    fn on_watch_error(&mut self, error: &watcher::Error) {
        if !std::mem::replace(&mut self.said, true) {
            tracing::warn!(%error, "the pods of the node cannot be watched; trying again");
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
                for (_, worker) in self.pods.iter().filter(|(uid, _)| !listed.contains(*uid)) {
                    let _ = worker.send(Input::Gone);
                }
            }
            watcher::Event::Apply(pod) => self.on_pod(pod),
            watcher::Event::Delete(pod) => {
                if let Some(worker) = pod.metadata.uid.as_ref().and_then(|uid| self.pods.get(uid)) {
                    let _ = worker.send(Input::Gone);
                }
            }
        }
    }

    fn on_pod(&mut self, pod: Pod) {
        let Some(uid) = pod.metadata.uid.clone() else { return };
        let known = self.pods.get(&uid).filter(|worker| !worker.is_closed());
        if let Some(worker) = known {
            let _ = worker.send(Input::Pod(Box::new(pod)));
            return;
        }
        let now = Moment { instant: Instant::now(), time: self.context.clock.now() };
        let options = &self.context.options;
        let directory = options.pod_directory(&prepare::directory_name(&pod));
        let run = match disposition(&pod, directory.exists()) {
            Disposition::LeaveAlone => return,
            Disposition::Run => match refusal::refuse(&pod, options.any_image) {
                Some(verdict) => PodRun::failed(&pod, now, verdict),
                None => PodRun::new(&pod, now),
            },
            Disposition::Lost => PodRun::failed(&pod, now, lost()),
            Disposition::Remove => {
                let client = self.context.client.clone();
                tokio::spawn(async move {
                    if let Err(error) = crate::writes::remove(&client, &pod).await {
                        tracing::warn!(%error, "a finished pod cannot be removed");
                    }
                });
                return;
            }
        };
        let (sender, inputs) = unbounded_channel();
        self.pods.insert(uid.clone(), sender.clone());
        let work = run_pod(self.context.clone(), pod, run, inputs, sender);
        self.tasks.spawn(async move {
            work.await;
            uid
        });
    }

    /// Ends every pod, quickly, and waits until nothing of them is left.
    async fn stop(&mut self) {
        for worker in self.pods.values() {
            let _ = worker.send(Input::Shutdown);
        }
        let limit = self.context.options.shutdown_grace + LAST_WRITES;
        let _ = timeout(limit, async { while self.tasks.join_next().await.is_some() {} }).await;
    }
}

fn lost() -> Verdict {
    Verdict {
        reason: "NodeRestarted".to_owned(),
        message: "The node agent that ran this pod has ended, and the pod's processes with it.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pods_without_a_worker() {
        let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30});
        let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0});
        let none = json!({});
        let started = json!({"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"});
        let cases: [(&Value, Value, bool, Disposition); 9] = [
            (&none, json!({}), false, Disposition::Run),
            (&none, json!({"phase": "Pending"}), false, Disposition::Run),
            (&none, json!({"phase": "Pending"}), true, Disposition::Lost),
            (&none, started, false, Disposition::Lost),
            (&none, json!({"phase": "Running"}), false, Disposition::Lost),
            (&deleted, json!({"phase": "Running"}), false, Disposition::Lost),
            (&none, json!({"phase": "Failed"}), false, Disposition::LeaveAlone),
            (&deleted, json!({"phase": "Succeeded"}), false, Disposition::Remove),
            (&gone, json!({"phase": "Succeeded"}), false, Disposition::LeaveAlone),
        ];
        for (metadata, status, has_directory, expected) in cases {
            let pod = serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap();
            assert_eq!(disposition(&pod, has_directory), expected, "{pod:?}");
        }
    }
}
