//! Who comes first.

use anyhow::{Result, ensure};

use crate::e2e::objects::Job;
use crate::e2e::scene::Scene;

/// Priority classes above and below the priority of a Job without a class.
pub(super) const CLASSES: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: SCENE-high}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: SCENE-low}
value: -5
";

pub async fn higher_priority_starts_first(scene: &Scene) -> Result<()> {
    scene.create(CLASSES).await?;
    scene.queue("1").await?;
    scene.submit_and_start(Job::new("first")).await?;
    scene.submit(Job::new("low").priority_class(&scene.own("low"))).await?;
    let low = scene.waits("low", "WaitingForQuota").await?;
    ensure!(low["spec"]["priority"] == -5, "{low}");
    scene.submit(Job::new("high").priority_class(&scene.own("high"))).await?;
    let high = scene.waits("high", "WaitingForQuota").await?;
    ensure!(high["spec"]["priority"] == 1000, "{high}");
    ensure!(high["spec"]["priorityClassRef"]["name"] == scene.own("high"), "{high}");

    scene.succeed("first").await?;
    scene.started("high").await?;
    scene.not_started("low").await?;
    scene.succeed("high").await?;
    scene.started("low").await.map(|_| ())
}

/// One CPU of two is taken; a Job that needs two is followed by one that would fit. Times of objects
/// are whole seconds, so that it takes a priority to say for sure which one is first.
async fn big_before_small(scene: &Scene, strategy: &str) -> Result<()> {
    scene.create(CLASSES).await?;
    scene.flavor("SCENE-standard").await?;
    scene.cluster_queue(&[("SCENE-standard", "2")], &format!("queueingStrategy: {strategy}")).await?;
    scene.local_queue("main").await?;
    scene.submit_and_start(Job::new("first")).await?;
    scene.submit(Job::new("big").cpu("2").priority_class(&scene.own("high"))).await?;
    scene.waits("big", "WaitingForQuota").await?;
    scene.submit(Job::new("small")).await.map(|_| ())
}

pub async fn strict_fifo_blocks(scene: &Scene) -> Result<()> {
    big_before_small(scene, "StrictFIFO").await?;
    scene.workload("small").await?;
    scene.later().await?;
    scene.not_started("small").await?;
    scene.succeed("first").await?;
    scene.started("big").await?;
    scene.not_started("small").await?;
    scene.succeed("big").await?;
    scene.started("small").await.map(|_| ())
}

pub async fn best_effort_passes(scene: &Scene) -> Result<()> {
    big_before_small(scene, "BestEffortFIFO").await?;
    scene.started("small").await?;
    scene.waits("big", "WaitingForQuota").await?;
    scene.succeed("first").await?;
    scene.succeed("small").await?;
    scene.started("big").await.map(|_| ())
}
