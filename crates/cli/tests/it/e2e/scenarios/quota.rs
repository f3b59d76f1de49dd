//! Quota: who has room, on which flavor, and what is said to those who have none.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::e2e::kinds::{FLAVOR, JOB, POD, WORKLOAD};
use crate::e2e::objects::{Job, assigned_flavor, condition, name};
use crate::e2e::scene::Scene;

pub async fn wait_for_quota_then_start(scene: &Scene) -> Result<()> {
    scene.queue("7").await?;
    scene.submit_and_start(Job::new("a").cpu("4")).await?;
    scene.submit(Job::new("b").cpu("5")).await?;
    let waiting = scene.waits("b", "WaitingForQuota").await?;

    let message = condition(&waiting, "QuotaReserved").message;
    for part in ["cpu", "5", "3", &scene.own("standard")] {
        ensure!(message.contains(part), "the message says {part} (needs 5, has 3 left): {message}");
    }
    scene.succeed("a").await?;
    scene.started("b").await?;
    let started = scene.workload_has("b", ("QuotaReserved", "True", "QuotaReserved")).await?;
    ensure!(name(&started) == name(&waiting), "it is the same Workload");
    Ok(())
}

pub async fn several_pods_are_admitted_together(scene: &Scene) -> Result<()> {
    scene.queue("3").await?;
    scene.submit_and_start(Job::new("a").pods(2)).await?;
    let workload = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0];
    ensure!(assignment["count"] == 2, "{assignment}");
    ensure!(assignment["resourceUsage"]["cpu"] == "2", "{assignment}");

    scene.submit(Job::new("b").pods(2)).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.succeed("a").await?;
    scene.started("b").await?;
    ensure!(scene.running_pods("b").await?.len() == 2, "both pods run");
    Ok(())
}

/// The pods of a Job run on this node.
async fn runs_on(scene: &Scene, job: &str, node: &str) -> Result<()> {
    for pod in scene.running_pods(job).await? {
        let pod = scene.get(POD, &pod).await?;
        ensure!(pod["spec"]["nodeName"] == node, "pod {} runs on {}", name(&pod), pod["spec"]["nodeName"]);
    }
    Ok(())
}

const TWO_FLAVORS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: SCENE-first}
spec:
  nodeLabels: {SCENE: first}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: SCENE-second}
spec:
  nodeLabels: {SCENE: second}
  nodeTaints: [{key: SCENE, value: spot, effect: NoSchedule}]
  tolerations: [{key: SCENE, operator: Equal, value: spot, effect: NoSchedule}]
";

pub async fn second_flavor(scene: &Scene) -> Result<()> {
    scene.create(TWO_FLAVORS).await?;
    scene.cluster_queue(&[("SCENE-first", "1"), ("SCENE-second", "1")], "").await?;
    scene.local_queue("main").await?;

    let first = scene.submit_and_start(Job::new("a")).await?;
    let workload = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(assigned_flavor(&workload, "cpu") == scene.own("first"), "{workload}");
    let pod = &first["spec"]["template"]["spec"];
    ensure!(pod["nodeSelector"] == json!({ scene.name(): "first" }), "{pod}");

    let second = scene.submit_and_start(Job::new("b")).await?;
    let workload = scene.workload_has("b", ("Admitted", "True", "Admitted")).await?;
    ensure!(assigned_flavor(&workload, "cpu") == scene.own("second"), "{workload}");
    let pod = &second["spec"]["template"]["spec"];
    ensure!(pod["nodeSelector"] == json!({ scene.name(): "second" }), "{pod}");
    let toleration = &pod["tolerations"][0];
    ensure!(toleration["key"] == scene.name() && toleration["value"] == "spot", "{pod}");
    runs_on(scene, "a", "first-0").await?;
    runs_on(scene, "b", "second-0").await?;

    scene.submit(Job::new("c")).await?;
    scene.waits("c", "WaitingForQuota").await?;
    scene.delete(JOB, "b").await?;
    scene.started("c").await?;
    let workload = scene.workload_has("c", ("Admitted", "True", "Admitted")).await?;
    ensure!(assigned_flavor(&workload, "cpu") == scene.own("second"), "{workload}");
    Ok(())
}

const TWO_GROUPS: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: SCENE-processors}
spec: {nodeLabels: {SCENE/processors: new}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: SCENE-accelerators}
spec: {nodeLabels: {SCENE/accelerators: big}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: SCENE}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: SCENE-processors
      resources: [{name: cpu, nominalQuota: 4}, {name: memory, nominalQuota: 1Gi}]
  - coveredResources: [example.com/gpu]
    flavors:
    - name: SCENE-accelerators
      resources: [{name: example.com/gpu, nominalQuota: 1}]
";

pub async fn two_resource_groups(scene: &Scene) -> Result<()> {
    scene.create(TWO_GROUPS).await?;
    scene.local_queue("main").await?;
    let both = || Job::new("a").request("memory", "512Mi").request("example.com/gpu", "1");
    let job = scene.submit_and_start(both()).await?;
    let selector = &job["spec"]["template"]["spec"]["nodeSelector"];
    let wanted = json!({ scene.name().to_owned() + "/processors": "new", scene.name().to_owned() + "/accelerators": "big" });
    ensure!(*selector == wanted, "the labels of both flavors: {selector}");
    let workload = scene.workload_has("a", ("Admitted", "True", "Admitted")).await?;
    ensure!(assigned_flavor(&workload, "memory") == scene.own("processors"), "{workload}");
    ensure!(assigned_flavor(&workload, "example.com/gpu") == scene.own("accelerators"), "{workload}");

    runs_on(scene, "a", "big-0").await?;

    scene.submit(Job::new("b").request("example.com/gpu", "1")).await?;
    let waiting = scene.waits("b", "WaitingForQuota").await?;
    let message = condition(&waiting, "QuotaReserved").message;
    ensure!(message.contains("example.com/gpu"), "the message says what is short: {message}");
    scene.submit_and_start(Job::new("c")).await.map(|_| ())
}

pub async fn quota_raised(scene: &Scene) -> Result<()> {
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("a")).await?;
    scene.submit(Job::new("b")).await?;
    scene.waits("b", "WaitingForQuota").await?;
    scene.set_quota("SCENE-standard", "2").await?;
    scene.started("b").await?;
    let running = scene.get(JOB, "a").await?;
    ensure!(running["spec"]["suspend"] == false, "the first one goes on");
    Ok(())
}

pub async fn exceeds_max_quota(scene: &Scene) -> Result<()> {
    scene.queue("2").await?;
    scene.submit(Job::new("a").cpu("5")).await?;
    let workload = scene.waits("a", "ExceedsMaxQuota").await?;
    let message = condition(&workload, "QuotaReserved").message;
    ensure!(message.contains("cpu") && message.contains('5') && message.contains('2'), "{message}");

    // It is no obstacle to others, and what they do does not bring it back.
    scene.submit_and_start(Job::new("b").cpu("2")).await?;
    scene.succeed("b").await?;
    scene.later().await?;
    scene.waits("a", "ExceedsMaxQuota").await?;
    scene.set_quota("SCENE-standard", "5").await?;
    scene.started("a").await.map(|_| ())
}

pub async fn untolerated_flavor(scene: &Scene) -> Result<()> {
    let tainted = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: SCENE-tainted}
spec:
  nodeTaints: [{key: SCENE, value: reserved, effect: NoSchedule}]
";
    scene.create(tainted).await?;
    scene.cluster_queue(&[("SCENE-tainted", "1")], "").await?;
    scene.local_queue("main").await?;
    scene.submit(Job::new("a")).await?;
    let workload = scene.waits("a", "NoMatchingFlavor").await?;
    scene.patch(FLAVOR, &scene.own("tainted"), json!({ "spec": { "nodeTaints": [] } })).await?;
    scene.started("a").await?;
    scene
        .has_condition(WORKLOAD, name(&workload), ("QuotaReserved", "True", "QuotaReserved"))
        .await
        .map(|_| ())
}
