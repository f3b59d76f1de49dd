//! Bad input: refused where it is written, or said where it can be seen.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::e2e::kinds::{EVENT, LOCAL_QUEUE, POD};
use crate::e2e::objects::{Job, QUEUE_NAME, is_about};
use crate::e2e::scene::Scene;

/// A ClusterQueue with one flavor, of whose spec one line is put in.
fn cluster_queue(name: &str, quota: &str, more: &str) -> String {
    format!(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: SCENE-{name}}}\nspec:\n  \
         namespaceSelector: {{}}\n  resourceGroups:\n  - coveredResources: [cpu]\n    flavors:\n    \
         - {{name: SCENE, resources: [{{name: cpu, {quota}}}]}}\n  {more}\n"
    )
}

pub async fn bad_objects_are_refused(scene: &Scene) -> Result<()> {
    let refused = [
        ("negative", cluster_queue("negative", "nominalQuota: -1", "")),
        ("malformed", cluster_queue("malformed", "nominalQuota: three", "")),
        ("missing", cluster_queue("missing", "borrowingLimit: 1", "")),
        ("strategy", cluster_queue("strategy", "nominalQuota: 1", "queueingStrategy: Random")),
        ("policy", cluster_queue("policy", "nominalQuota: 1", "stopPolicy: Pause")),
        ("limit", cluster_queue("limit", "nominalQuota: 1, borrowingLimit: 1", "")),
    ];
    for (what, yaml) in refused {
        let message = scene.refusal(&yaml).await?;
        ensure!(message.contains(&scene.own(what)), "the refusal of {what} names the object: {message}");
    }
    scene.create(&cluster_queue("good", "nominalQuota: 1", "queueingStrategy: StrictFIFO")).await
}

pub async fn backing_queue_is_immutable(scene: &Scene) -> Result<()> {
    scene.local_queue_of("main", "SCENE-one").await?;
    let change = json!({ "spec": { "clusterQueue": scene.own("two") } });
    ensure!(scene.patch(LOCAL_QUEUE, "main", change).await.is_err(), "the ClusterQueue was changed");
    let queue = scene.get(LOCAL_QUEUE, "main").await?;
    ensure!(queue["spec"]["clusterQueue"] == scene.own("one"), "{queue}");
    Ok(())
}

pub async fn unsupported_kind_is_said(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "lonely", "labels": { QUEUE_NAME: "main" } },
        "spec": {
            "schedulerName": "gangway", "restartPolicy": "Never",
            "containers": [{ "name": "main", "image": "host", "command": ["true"] }],
        },
    });
    // A namespace takes pods only once its service account is there, which the pods of a Job wait for.
    scene.submit_and_start(Job::new("first")).await?;
    scene.running_pods("first").await?;
    scene.create_object(pod).await?;
    let found = scene.until(EVENT, "a Warning about Pod lonely", |events| {
        let mut warnings = events.values().filter(|event| event["type"] == "Warning");
        warnings.find(|event| is_about(event, POD.kind, "lonely")).cloned()
    });
    let event = found.await?;
    let message = event["message"].as_str().unwrap_or_default();
    ensure!(message.contains("Pod") && message.contains("not supported"), "it says what is wrong: {message}");
    Ok(())
}
