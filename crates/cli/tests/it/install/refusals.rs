//! Where another system is at work nothing is installed, unless it is taken over.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::stage::{CLUSTER_QUEUE, CRD, DEPLOYMENT, LEASE, NAMESPACE, Stage, WEBHOOKS};
use gangway_cli::clock::SystemClock;
use gangway_model::Clock;

const KUEUE: &str = "kueue-system";
const KUEUE_LEASE: &str = "c1f6bfd2.kueue.x-k8s.io";

pub async fn play(stage: &Stage) -> Result<()> {
    stage.create_namespace(KUEUE).await?;
    live_lease(stage).await?;
    stale_lease(stage).await?;
    webhooks(stage).await?;
    definitions(stage).await?;
    taken_over(stage).await?;
    stage.gangway(&["uninstall"]).await?.succeeds()?;
    Ok(())
}

async fn is_refused(stage: &Stage, arguments: &[&str], because: &str) -> Result<()> {
    let said = stage.gangway(arguments).await?.fails_with(2)?;
    ensure!(said.contains(because) && said.contains("\ntry: "), "{said}");
    ensure!(
        stage.get(DEPLOYMENT, "gangway-system", "gangway-controller").await?.is_none(),
        "nothing is there"
    );
    ensure!(stage.get(NAMESPACE, "", "gangway-system").await?.is_none(), "nothing at all");
    Ok(())
}

/// So many seconds ago, as an API writes it.
fn ago(seconds: i64) -> Result<Value> {
    let then = SystemClock.now().plus_seconds(-seconds);
    Ok(serde_json::to_value(gangway_api::time::to_api_micro(then))?)
}

async fn live_lease(stage: &Stage) -> Result<()> {
    let spec = json!({"holderIdentity": "kueue-controller-manager-0", "leaseDurationSeconds": 3, "renewTime": ago(0)?});
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": KUEUE_LEASE}, "spec": spec});
    stage.create(LEASE, KUEUE, lease).await?;
    let holds = "kueue-controller-manager-0 holds the Lease kueue-system/c1f6bfd2.kueue.x-k8s.io";
    is_refused(stage, &["install"], holds).await?;
    // Who takes over watches whether it is still renewed.
    let renewing = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            let renewed = json!({"spec": {"renewTime": ago(0)?}});
            stage.merge(LEASE, KUEUE, KUEUE_LEASE, &renewed).await?;
        }
    };
    tokio::select! {
        refused = is_refused(stage, &["install", "--take-over"], holds) => refused,
        ended = renewing => ended,
    }
}

async fn stale_lease(stage: &Stage) -> Result<()> {
    stage.merge(LEASE, KUEUE, KUEUE_LEASE, &json!({"spec": {"renewTime": ago(600)?}})).await?;
    let said = stage.gangway(&["install", "--dry-run"]).await?.succeeds()?;
    ensure!(said.contains("would be installed"), "{said}");
    Ok(())
}

async fn webhooks(stage: &Stage) -> Result<()> {
    let rule = json!({"apiGroups": ["kueue.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["workloads"]});
    let webhook = json!({"name": "vworkload.kb.io", "rules": [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/validate"}});
    let object = json!({"apiVersion": WEBHOOKS.0, "kind": WEBHOOKS.1, "metadata": {"name": "kueue-validating"}, "webhooks": [webhook]});
    stage.create(WEBHOOKS, "", object).await?;
    is_refused(stage, &["install"], "webhooks of another system act on this API: kueue-validating").await
}

/// A definition as another system has it, with a webhook that converts and nobody who answers it.
async fn definitions(stage: &Stage) -> Result<()> {
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}})
    };
    let conversion = json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/convert"}}});
    let names = json!({"plural": "clusterqueues", "singular": "clusterqueue", "kind": "ClusterQueue", "listKind": "ClusterQueueList"});
    let definition = json!({"apiVersion": CRD.0, "kind": CRD.1,
        "metadata": {"name": "clusterqueues.kueue.x-k8s.io", "labels": {"app.kubernetes.io/name": "kueue"}},
        "spec": {"group": "kueue.x-k8s.io", "scope": "Cluster", "names": names, "conversion": conversion,
            "versions": [version("v1beta1", false), version("v1beta2", true)]}});
    stage.create(CRD, "", definition).await?;
    let queue = json!({"apiVersion": CLUSTER_QUEUE.0, "kind": CLUSTER_QUEUE.1, "metadata": {"name": "theirs"},
        "spec": {"cohortName": "all", "namespaceSelector": {}}});
    stage
        .until("the other system's kind takes objects", async || {
            match stage.create(CLUSTER_QUEUE, "", queue.clone()).await {
                Ok(_) => Ok(true),
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409 | 429) => {
                    Ok(status.code == 409)
                }
                Err(error) => Err(error.into()),
            }
        })
        .await?;
    is_refused(stage, &["install"], "webhooks of another system").await?;
    Ok(())
}

async fn taken_over(stage: &Stage) -> Result<()> {
    let said = stage.gangway(&["install", "--take-over"]).await?.succeeds()?;
    for done in [
        "ValidatingWebhookConfiguration kueue-validating: deleted",
        "CustomResourceDefinition clusterqueues.kueue.x-k8s.io is taken over",
        "CustomResourceDefinition clusterqueues.kueue.x-k8s.io: changed",
        "is installed",
    ] {
        ensure!(said.contains(done), "{done}: {said}");
    }
    let definition = stage.get(CRD, "", "clusterqueues.kueue.x-k8s.io").await?.unwrap_or_default();
    ensure!(definition["spec"]["conversion"] == json!({"strategy": "None"}), "{definition}");
    ensure!(definition["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "gangway", "{definition}");
    let queue = stage.get(CLUSTER_QUEUE, "", "theirs").await?.unwrap_or_default();
    ensure!(queue["spec"]["cohortName"] == "all", "users' objects stay: {queue}");
    let said = stage.gangway(&["install"]).await?.succeeds()?;
    ensure!(!said.contains("taken over") && !said.contains(": changed"), "it is ours now: {said}");
    Ok(())
}
