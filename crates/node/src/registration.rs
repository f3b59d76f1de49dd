//! Node objects, and the leases that show that a node is there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gangway_model::{Clock, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{
    Namespace, Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::sleep;

use crate::NodeError;
use crate::status::api_time;

const LEASE_NAMESPACE: &str = "kube-node-lease";
const LEASE_SECONDS: i32 = 40;
const RENEW_PERIOD: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_millis(250);
const LONGEST_RETRY: Duration = Duration::from_secs(10);

/// The Node object of a machine, or of none.
pub fn node_object(
    name: &str,
    labels: &BTreeMap<String, String>,
    taints: &[Taint],
    capacity: &BTreeMap<String, String>,
    now: Timestamp,
) -> Node {
    let mut labels = labels.clone();
    for (key, value) in [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", std::env::consts::OS),
        ("kubernetes.io/arch", architecture()),
    ] {
        labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    }
    let capacity: BTreeMap<String, Quantity> =
        capacity.iter().map(|(resource, amount)| (resource.clone(), Quantity(amount.clone()))).collect();
    Node {
        metadata: ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec { taints: (!taints.is_empty()).then(|| taints.to_vec()), ..NodeSpec::default() }),
        status: Some(NodeStatus {
            allocatable: Some(capacity.clone()),
            capacity: Some(capacity),
            conditions: Some(vec![ready_condition(true, "NodeReady", "The node runs pods.", now)]),
            addresses: Some(vec![
                NodeAddress { type_: "Hostname".to_owned(), address: name.to_owned() },
                NodeAddress { type_: "InternalIP".to_owned(), address: "127.0.0.1".to_owned() },
            ]),
            node_info: Some(NodeSystemInfo {
                architecture: architecture().to_owned(),
                operating_system: std::env::consts::OS.to_owned(),
                container_runtime_version: concat!("gangway://", env!("CARGO_PKG_VERSION")).to_owned(),
                kubelet_version: concat!("v", env!("CARGO_PKG_VERSION"), "-gangway").to_owned(),
                kernel_version: kernel_version(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

/// The name that Kubernetes has for the processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn kernel_version() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

fn ready_condition(ready: bool, reason: &str, message: &str, now: Timestamp) -> NodeCondition {
    NodeCondition {
        type_: "Ready".to_owned(),
        status: if ready { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(api_time(now)),
        last_transition_time: Some(api_time(now)),
    }
}

/// Creates the Node, or makes an existing one of that name ours. Retries until the API server answers.
pub async fn register(client: &Client, node: &Node) -> Result<(), NodeError> {
    let mut pause = FIRST_RETRY;
    loop {
        match try_register(client, node).await {
            Ok(()) => return Ok(()),
            Err(error @ kube::Error::Api(_)) if !is_temporary(&error) => {
                return Err(NodeError::Registration { name: node.name_any(), source: Box::new(error) });
            }
            Err(error) => {
                if pause == FIRST_RETRY {
                    tracing::warn!(node = node.name_any(), %error, "the Node cannot be registered yet");
                }
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_RETRY);
            }
        }
    }
}

/// Whether the same request may succeed later.
pub fn is_temporary(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

async fn try_register(client: &Client, node: &Node) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    let name = node.name_any();
    match api.create(&PostParams::default(), node).await {
        Ok(created) if is_ready(&created) => return Ok(()),
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone());
            let mut patch = json!({"metadata": {"labels": node.metadata.labels}});
            if let Some(taints) = taints {
                patch["spec"] = json!({"taints": taints});
            }
            api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        }
        Err(error) => return Err(error),
    }
    let patch = json!({"status": node.status});
    api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Says that the node takes no more pods because its agent ends.
pub async fn mark_not_ready(client: &Client, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let api: Api<Node> = Api::all(client.clone());
    let condition = ready_condition(false, "NodeShutdown", "The agent of the node has ended.", now);
    let patch = json!({"status": {"conditions": [condition]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(drop)
}

/// Renews the leases of the nodes that `names` gives, for ever, where the cluster keeps such leases. Where it does not,
/// as in the embedded API, one request finds that out and no other is made.
pub async fn keep_leases(client: Client, clock: Arc<dyn Clock>, names: impl Fn() -> Vec<String>) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    loop {
        match namespaces.get_opt(LEASE_NAMESPACE).await {
            Ok(Some(_)) => break,
            Ok(None) => return std::future::pending().await,
            Err(error) if is_temporary(&error) => sleep(RENEW_PERIOD).await,
            Err(_) => return std::future::pending().await,
        }
    }
    let leases: Api<Lease> = Api::namespaced(client, LEASE_NAMESPACE);
    let mut said = false;
    loop {
        let names = names();
        // Spread over the period, so that a thousand fake nodes do not all write at once.
        let share = RENEW_PERIOD / u32::try_from(names.len()).unwrap_or(u32::MAX).max(1);
        for name in &names {
            let renewed = renew(&leases, name, clock.now()).await;
            if let (Err(error), false) = (&renewed, said) {
                tracing::warn!(node = name, %error, "the lease of the node cannot be renewed");
            }
            said = renewed.is_err();
            sleep(share).await;
        }
        if names.is_empty() {
            sleep(RENEW_PERIOD).await;
        }
    }
}

async fn renew(leases: &Api<Lease>, name: &str, now: Timestamp) -> Result<(), kube::Error> {
    let instant =
        jiff::Timestamp::from_nanosecond(now.as_nanos().into()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let spec = LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(LEASE_SECONDS),
        renew_time: Some(MicroTime(instant)),
        ..LeaseSpec::default()
    };
    let patched = leases.patch(name, &PatchParams::default(), &Patch::Merge(&json!({"spec": spec}))).await;
    match patched {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.map(drop)
        }
        other => other.map(drop),
    }
}
