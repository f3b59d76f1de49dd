//! What the tests share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use gangway_apiserver::ApiServer;
use gangway_model::{Clock, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::api::PostParams;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

/// Longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// This binary, which is also a shim.
pub fn own_program() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Looks until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    let (_keep, never) = channel::<()>();
    while !condition() {
        assert!(begin.elapsed() < PATIENCE, "never: {what}");
        let _ = never.recv_timeout(Duration::from_millis(2));
    }
}

/// The processes whose environment holds `variable=value`; those that have ended but are not reaped do not count.
pub fn processes_with(variable: &str, value: &str) -> Vec<u32> {
    let wanted = format!("{variable}={value}").into_bytes();
    let environment_holds = |pid: u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == wanted))
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| environment_holds(*pid))
        .collect()
}

/// Time that goes with the timers of the runtime, so that a paused runtime has a paused clock.
pub struct RuntimeClock(tokio::time::Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.0.elapsed().as_nanos()).unwrap();
        Timestamp::from_nanos(Timestamp::from_seconds(1_800_000_000).as_nanos() + elapsed)
    }
}

/// An API server with a node on it.
pub struct World {
    pub client: Client,
    pub clock: Arc<RuntimeClock>,
    pub directory: TempDir,
    pub server: ApiServer,
}

impl World {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Arc::new(RuntimeClock(tokio::time::Instant::now()));
        let server =
            ApiServer::builder().clock(clock.clone()).log_directory(directory.path().join("logs")).build();
        Self { client: server.client(), clock, directory, server }
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates a pod that is bound already; `pod` holds what differs from the plainest one.
    pub async fn create(&self, name: &str, node: &str, mut pod: Value) -> Pod {
        let spec = json!({"nodeName": node, "restartPolicy": "Never", "terminationGracePeriodSeconds": 30});
        merge(&mut pod, &json!({"metadata": {"name": name}, "spec": spec}));
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// A pod with one container that runs a shell script.
    pub async fn create_script(&self, name: &str, script: &str) -> Pod {
        let container = json!({"name": "main", "image": "host", "command": ["sh", "-c", script]});
        self.create(name, "here", json!({"spec": {"containers": [container]}})).await
    }

    /// Waits until the pod is as `condition` wants it.
    pub async fn wait(&self, name: &str, what: &str, condition: impl Fn(&Pod) -> bool) -> Pod {
        let reached = await_condition(self.pods(), name, |pod: Option<&Pod>| pod.is_some_and(&condition));
        match timeout(PATIENCE, reached).await {
            Ok(pod) => pod.unwrap().unwrap(),
            Err(_) => panic!("never: {what}; {:?}", self.pods().get(name).await.map(|pod| pod.status)),
        }
    }

    pub async fn wait_for_phase(&self, name: &str, phase: &str) -> Pod {
        self.wait(name, phase, |pod| {
            pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some(phase))
        })
        .await
    }

    pub async fn wait_until_gone(&self, name: &str) {
        let gone = await_condition(self.pods(), name, |pod: Option<&Pod>| pod.is_none());
        assert!(timeout(PATIENCE, gone).await.is_ok(), "never gone: {name}");
    }

    pub fn log(&self, pod: &Pod) -> String {
        let uid = pod.metadata.uid.as_deref().unwrap();
        let name = pod.metadata.name.as_deref().unwrap();
        let file = self.directory.path().join(format!("logs/default_{name}_{uid}/main.log"));
        std::fs::read_to_string(file).unwrap_or_default()
    }
}

fn merge(into: &mut Value, defaults: &Value) {
    if let (Some(into), Some(defaults)) = (into.as_object_mut(), defaults.as_object()) {
        for (key, value) in defaults {
            merge(into.entry(key.clone()).or_insert_with(|| value.clone()), value);
        }
    }
}

/// The one condition of the pod that has this type.
pub fn condition(pod: &Pod, kind: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|condition| condition.type_ == kind)?.status.clone())
}

/// How the first container ended.
pub fn terminated(pod: &Pod) -> ContainerStateTerminated {
    let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap();
    statuses[0].state.clone().unwrap().terminated.unwrap()
}

/// Callers may spawn it.
pub fn sendable<F: Future + Send>(future: F) -> F {
    future
}
