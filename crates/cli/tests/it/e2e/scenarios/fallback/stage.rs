//! On which stage a play about fallback is given: with one resource group or two, and with a controller that stays or one that
//! ends in the middle and begins again.

use std::ops::Deref;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use gangway_model::Clock;
use serde_json::{Value, json};

use super::super::commands::says;
use super::super::preemption;
use super::super::readiness::{flavor_with_nodes, node_serves};
use super::queue::Queue;
use crate::e2e::clock::SetClock;
use crate::e2e::kinds::{CLUSTER_QUEUE, WORKLOAD};
use crate::e2e::objects::{Job, assigned_flavor, name};
use crate::e2e::scene::Scene;

/// How a play is given.
#[derive(Clone, Copy, Debug, Default)]
pub struct Variant {
    /// Jobs need memory too, of a resource group whose machines are there: what happens to the flavors of the other group must
    /// not touch it.
    pub two_groups: bool,
    /// The controller ends and begins again where the play says so.
    pub restarted: bool,
}

impl Variant {
    pub const PLAIN: Self = Self { two_groups: false, restarted: false };
    pub const TWO_GROUPS: Self = Self { two_groups: true, restarted: false };
    pub const RESTARTED: Self = Self { two_groups: false, restarted: true };
    pub const BOTH: Self = Self { two_groups: true, restarted: true };
}

/// A scene for one variant of a play. Names of flavors are given without that of the scene.
pub struct Stage<'s> {
    scene: &'s Scene,
    pub variant: Variant,
    clock: Option<Arc<SetClock>>,
}

impl Deref for Stage<'_> {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        self.scene
    }
}

impl<'s> Stage<'s> {
    /// What a flavor is tried for may be over before the play looks: everything is recorded.
    pub async fn open(scene: &'s Scene, variant: Variant) -> Result<Self> {
        scene.record_workloads().await?;
        Ok(Self { scene, variant, clock: None })
    }

    /// Has the controller begin by a clock that the play sets.
    pub fn by_clock(mut self) -> Result<Self> {
        let clock = SetClock::ahead(0);
        self.controller().restart_by(clock.clone())?;
        self.clock = Some(clock);
        Ok(self)
    }

    fn clock(&self) -> Result<&SetClock> {
        self.clock.as_deref().context("the play has no clock of its own")
    }

    /// Sets the clock forward, and has the controller look at it.
    pub async fn clock_steps(&self, seconds: i64) -> Result<()> {
        self.clock()?.step(seconds);
        let now = self.clock()?.now().as_seconds().to_string();
        let touched = json!({ "metadata": { "annotations": { "example.com/looked-at": now } } });
        self.patch(CLUSTER_QUEUE, self.name(), touched).await.map(|_| ())
    }

    /// Sets the clock forward to a time, and has the controller look at it.
    pub async fn clock_steps_to(&self, seconds: i64) -> Result<()> {
        self.clock_steps(seconds - self.clock()?.now().as_seconds()).await
    }

    /// The middle of the play: here the controller ends and begins again, in the variant that is about that.
    pub fn interrupt(&self) -> Result<()> {
        match &self.clock {
            _ if !self.variant.restarted => Ok(()),
            Some(clock) => self.controller().restart_by(clock.clone()),
            None => self.controller().restart(),
        }
    }

    /// Makes flavors: those whose machines are there, and those that are out of stock until [`Stage::machines_come`].
    pub async fn flavors(&self, there: &[&str], out_of_stock: &[&str]) -> Result<()> {
        let of_memory: &[&str] = if self.variant.two_groups { &["memory", "more-memory"] } else { &[] };
        for flavor in there.iter().chain(of_memory) {
            self.flavor(&format!("SCENE-{flavor}")).await?;
        }
        for flavor in out_of_stock {
            flavor_with_nodes(self, flavor).await?;
        }
        Ok(())
    }

    /// The machines of a flavor are there from now on, or there are no more of them.
    pub async fn machines_come(&self, flavor: &str, come: bool) -> Result<()> {
        node_serves(self, "late-2", flavor, come).await
    }

    /// The ClusterQueue `SCENE`, and the LocalQueue `main`.
    pub async fn queue(&self, queue: &Queue) -> Result<()> {
        self.cluster_queue_of(self.name(), queue).await?;
        self.local_queue("main").await
    }

    /// The ClusterQueue `SCENE-NAME`, and the LocalQueue of that name.
    pub async fn queue_named(&self, name: &str, queue: &Queue) -> Result<()> {
        self.cluster_queue_of(&self.own(name), queue).await?;
        self.local_queue_of(name, &self.own(name)).await
    }

    async fn cluster_queue_of(&self, name: &str, queue: &Queue) -> Result<()> {
        let spec = queue.spec(self);
        let kueue = "kueue.x-k8s.io/v1beta2";
        let object =
            json!({"apiVersion": kueue, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec});
        self.create_object(object).await.map(|_| ())
    }

    /// An administrator changes the ClusterQueue `SCENE`.
    pub async fn queue_becomes(&self, queue: &Queue) -> Result<()> {
        self.replace_spec(CLUSTER_QUEUE, self.name(), &queue.spec(self)).await
    }

    /// The check `SCENE-budget`, which people answer.
    pub async fn check(&self) -> Result<()> {
        self.create(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: SCENE-budget}\n\
             spec: {controllerName: gangway.dev/manual}\n",
        )
        .await
    }

    /// Somebody answers the check.
    pub async fn say(&self, verb: &str, job: &str, more: &str) -> Result<()> {
        let (check, namespace) = (self.own("budget"), self.scene.name());
        says(self, &format!("check {verb} job/{job} {check} -n {namespace} {more}")).await.map(|_| ())
    }

    pub async fn submit(&self, job: Job) -> Result<Value> {
        let job = if self.variant.two_groups { job.request("memory", "1Mi") } else { job };
        self.scene.submit(job).await
    }

    /// The Workload `by-hand` that belongs to no Job, with these pod sets of one pod each.
    pub fn workload_of(&self, pod_sets: &[&str]) -> Value {
        let mut requests = json!({ "cpu": "1" });
        if self.variant.two_groups {
            requests["memory"] = json!("1Mi");
        }
        let container = json!({ "name": "main", "image": "host", "resources": { "requests": requests } });
        let spec = json!({ "restartPolicy": "Never", "containers": [container] });
        let pod_set = |name: &&str| json!({ "name": name, "count": 1, "template": { "spec": spec } });
        let pod_sets: Vec<Value> = pod_sets.iter().map(pod_set).collect();
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": { "name": "by-hand" },
            "spec": { "queueName": "main", "podSets": pod_sets },
        })
    }

    /// Returns when so many seconds have passed since it was called: another Job, whose machines do not come either, was given
    /// no more.
    pub async fn time_passes(&self, seconds: u32) -> Result<()> {
        flavor_with_nodes(self, "herald").await?;
        let strategy =
            format!("{{fallbackStrategy: {{rules: [{{name: SCENE-herald, timeout: {seconds}s}}]}}}}");
        let more = format!("namespaceSelector: {{}}\n  flavorFungibility: {strategy}");
        self.cluster_queue_named("SCENE-herald", &[("SCENE-herald", "1")], &more).await?;
        self.local_queue_of("herald", "SCENE-herald").await?;
        self.scene.submit(Job::new("herald").queue("herald")).await?;
        self.workload_has("herald", ("Evicted", "True", "FlavorFallback")).await.map(|_| ())
    }

    /// Waits until the Job has this flavor, and in the other group the one that it always has.
    pub async fn has_flavor(&self, job: &str, flavor: &str) -> Result<Value> {
        self.has_flavors(job, flavor, "memory").await
    }

    /// Waits until the Job has these flavors.
    pub async fn has_flavors(&self, job: &str, of_cpu: &str, of_memory: &str) -> Result<Value> {
        let (of_cpu, of_memory) = (self.own(of_cpu), self.own(of_memory));
        let has = |workload: &Value| {
            let has_memory = assigned_flavor(workload, "memory") == of_memory;
            assigned_flavor(workload, "cpu") == of_cpu && (has_memory || !self.variant.two_groups)
        };
        self.workload_that(job, &format!("has flavor {of_cpu}"), has).await
    }

    /// Waits until the pods of a Job are ready on this flavor. What was tried before is forgotten then.
    pub async fn starts_on(&self, job: &str, flavor: &str) -> Result<Value> {
        self.has_flavor(job, flavor).await?;
        let ready = self.workload_has(job, ("PodsReady", "True", "Started")).await?;
        ensure!(assigned_flavor(&ready, "cpu") == self.own(flavor), "{ready}");
        ensure!(ready["status"]["flavorAssignmentHistory"].as_array().is_none_or(Vec::is_empty), "{ready}");
        Ok(ready)
    }

    pub async fn finishes(&self, job: &str) -> Result<()> {
        preemption::finishes(self, job).await
    }

    /// Waits for an event about a Workload. A controller that is killed may not have told it.
    pub async fn is_told(&self, workload: &Value, reason: &str) -> Result<()> {
        if self.variant.restarted {
            return Ok(());
        }
        self.event(WORKLOAD, name(workload), reason).await
    }

    /// What is written down of a flavor.
    pub fn tried(&self, workload: &Value, flavor: &str) -> Value {
        let history = workload["status"]["flavorAssignmentHistory"].as_array();
        let mut entries = history.into_iter().flatten();
        entries.find(|entry| entry["resourceFlavor"] == self.own(flavor)).cloned().unwrap_or_default()
    }

    /// How much of a flavor's time is used up.
    pub fn used(&self, workload: &Value, flavor: &str) -> i64 {
        self.tried(workload, flavor)["accumulatedSeconds"].as_i64().unwrap_or(0)
    }

    /// The flavors that are given up, in the order in which they were first tried.
    pub fn given_up(&self, workload: &Value) -> Vec<String> {
        let history = workload["status"]["flavorAssignmentHistory"].as_array();
        let given_up = history.into_iter().flatten().filter(|entry| entry["exhausted"] == true);
        let prefix = self.own("");
        let names = given_up.filter_map(|entry| entry["resourceFlavor"].as_str()?.strip_prefix(&prefix));
        names.map(str::to_owned).collect()
    }
}

/// What is counted when a flavor took too long so many times.
pub fn timeouts(count: u32) -> Value {
    json!({"reason": "FlavorFallback", "underlyingCause": "TimeoutForPodsReadyExceeded", "count": count})
}

pub fn evictions(workload: &Value) -> &Value {
    &workload["status"]["schedulingStats"]["evictions"]
}
