//! Steps that most scenarios take: set up a queue, submit a Job, wait for what has to become of it.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::kinds::{CLUSTER_QUEUE, EVENT, JOB, Kind, LOCAL_QUEUE, POD, WORKLOAD};
use super::objects::{JOB_NAME, Job, condition, is_about, is_controlled_by, is_suspended, name, uid};
use super::scene::{Objects, Scene};

impl Scene {
    /// One flavor `SCENE-standard`, a ClusterQueue `SCENE` with so many CPUs of it, and a LocalQueue `main`.
    pub async fn queue(&self, cpu: &str) -> Result<()> {
        self.flavor("SCENE-standard").await?;
        self.cluster_queue(&[("SCENE-standard", cpu)], "").await?;
        self.local_queue("main").await
    }

    /// A flavor without labels.
    pub async fn flavor(&self, name: &str) -> Result<()> {
        self.create(&format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {{name: {name}}}\n"
        ))
        .await
    }

    /// The ClusterQueue `SCENE` for every namespace, with CPUs of each flavor; `more` is added to its spec.
    pub async fn cluster_queue(&self, flavors: &[(&str, &str)], more: &str) -> Result<()> {
        self.cluster_queue_named("SCENE", flavors, &format!("namespaceSelector: {{}}\n  {more}")).await
    }

    /// A ClusterQueue with CPUs of each flavor; `more` is added to its spec.
    pub async fn cluster_queue_named(&self, name: &str, flavors: &[(&str, &str)], more: &str) -> Result<()> {
        let flavors: Vec<String> = flavors
            .iter()
            .map(|(flavor, cpu)| {
                format!("{{name: {flavor}, resources: [{{name: cpu, nominalQuota: {cpu}}}]}}")
            })
            .collect();
        self.create(&format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:\n  \
             resourceGroups:\n  - coveredResources: [cpu]\n    flavors: [{}]\n  {more}\n",
            flavors.join(", ")
        ))
        .await
    }

    /// A LocalQueue of the ClusterQueue `SCENE`.
    pub async fn local_queue(&self, name: &str) -> Result<()> {
        self.local_queue_of(name, "SCENE").await
    }

    pub async fn local_queue_of(&self, name: &str, cluster_queue: &str) -> Result<()> {
        self.create(&format!(
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {{name: {name}}}\n\
             spec: {{clusterQueue: {cluster_queue}}}\n"
        ))
        .await
    }

    /// Sets the one CPU quota of the ClusterQueue `SCENE`.
    pub async fn set_quota(&self, flavor: &str, cpu: &str) -> Result<()> {
        self.set_quota_of(CLUSTER_QUEUE, self.name(), flavor, cpu).await
    }

    /// Sets the one CPU quota of a ClusterQueue or Cohort.
    pub async fn set_quota_of(&self, kind: Kind, name: &str, flavor: &str, cpu: &str) -> Result<()> {
        let flavor = flavor.replace("SCENE", self.name());
        let groups = json!([{ "coveredResources": ["cpu"], "flavors": [
            { "name": flavor, "resources": [{ "name": "cpu", "nominalQuota": cpu }] },
        ] }]);
        let change = json!({ "spec": { "resourceGroups": groups } });
        self.patch(kind, name, change).await.map(|_| ())
    }

    pub async fn stop_cluster_queue(&self, policy: &str) -> Result<()> {
        self.stop_cluster_queue_named(self.name(), policy).await
    }

    pub async fn stop_cluster_queue_named(&self, name: &str, policy: &str) -> Result<()> {
        let change = json!({ "spec": { "stopPolicy": policy } });
        self.patch(CLUSTER_QUEUE, name, change).await.map(|_| ())
    }

    pub async fn stop_local_queue(&self, queue: &str, policy: &str) -> Result<()> {
        let change = json!({ "spec": { "stopPolicy": policy } });
        self.patch(LOCAL_QUEUE, queue, change).await.map(|_| ())
    }

    pub async fn submit(&self, job: Job) -> Result<Value> {
        self.create_object(job.object()).await
    }

    /// Submits a Job and waits until it has started.
    pub async fn submit_and_start(&self, job: Job) -> Result<Value> {
        let submitted = self.submit(job).await?;
        self.started(name(&submitted)).await
    }

    /// Waits until an object is as `test` wants it.
    pub async fn object(
        &self,
        kind: Kind,
        name: &str,
        what: &str,
        test: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let what = format!("{} {name} {what}", kind.kind);
        self.until(kind, &what, |objects| objects.get(name).filter(|object| test(object)).cloned()).await
    }

    /// Waits until a condition of an object has this status and reason.
    pub async fn has_condition(
        &self,
        kind: Kind,
        name: &str,
        (condition_type, status, reason): (&str, &str, &str),
    ) -> Result<Value> {
        let what = format!("has {condition_type}={status}/{reason}");
        self.object(kind, name, &what, |object| condition(object, condition_type).is(status, reason)).await
    }

    /// Waits until a Job is no longer suspended.
    pub async fn started(&self, job: &str) -> Result<Value> {
        self.object(JOB, job, "is started", |job| !is_suspended(job)).await
    }

    /// Waits until a Job is suspended and none of its pods is left.
    pub async fn stopped(&self, job: &str) -> Result<Value> {
        let stopped = self.object(JOB, job, "is suspended", is_suspended).await?;
        self.until(POD, &format!("no pod of Job {job} is left"), |pods| {
            pods_of(pods, job).is_empty().then_some(())
        })
        .await?;
        Ok(stopped)
    }

    /// Ends the pods of a stuck Job that was told to leave, and waits until it has left.
    pub async fn end_stuck_pods(&self, job: &str) -> Result<()> {
        let has_left = |workload: &Value| workload["status"]["admission"].is_null();
        tokio::select! {
            left = self.workload_that(job, "has left", has_left) => left.map(|_| ()),
            error = self.end_pods_as_they_come(job) => error,
        }
    }

    async fn end_pods_as_they_come(&self, job: &str) -> Result<()> {
        // One that is deleted already without grace only waits for its finalizers.
        let is_going = |pod: &&Value| pod["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
        loop {
            let what = format!("a pod of Job {job} is told to go");
            let going = self.until(POD, &what, |pods| {
                let going = pods_of(pods, job).into_iter().filter(is_going);
                let going: Vec<String> = going.map(|pod| name(pod).to_owned()).collect();
                (!going.is_empty()).then_some(going)
            });
            for pod in going.await? {
                self.delete_at_once(POD, &pod).await?;
            }
        }
    }

    /// The Workload of a Job as it is now, or as soon as there is one.
    pub async fn workload(&self, job: &str) -> Result<Value> {
        let owner = self.get(JOB, job).await?;
        self.until(WORKLOAD, &format!("the Workload of Job {job} exists"), |workloads| {
            workloads.values().find(|workload| is_controlled_by(workload, &owner)).cloned()
        })
        .await
    }

    /// The Workload of a Job, as soon as it is as `test` wants it.
    pub async fn workload_that(&self, job: &str, what: &str, test: impl Fn(&Value) -> bool) -> Result<Value> {
        let owner = self.get(JOB, job).await?;
        let what = format!("the Workload of Job {job} {what}");
        self.until_workload(job, &what, |workload| is_controlled_by(workload, &owner), test).await
    }

    /// The Workload of a Job, as soon as a condition of it has this status and reason.
    pub async fn workload_has(
        &self,
        job: &str,
        (condition_type, status, reason): (&str, &str, &str),
    ) -> Result<Value> {
        let what = format!("has {condition_type}={status}/{reason}");
        self.workload_that(job, &what, |workload| condition(workload, condition_type).is(status, reason))
            .await
    }

    /// Waits until a Job has no quota for this reason, and makes sure that it does not run.
    pub async fn waits(&self, job: &str, reason: &str) -> Result<Value> {
        let workload = self.workload_has(job, ("QuotaReserved", "False", reason)).await?;
        self.not_started(job).await?;
        ensure!(workload["status"]["admission"].is_null(), "a Workload without quota has an admission");
        Ok(workload)
    }

    /// A Job is suspended at this moment.
    pub async fn not_started(&self, job: &str) -> Result<()> {
        let object = self.get(JOB, job).await?;
        ensure!(is_suspended(&object), "Job {job} has been started");
        Ok(())
    }

    /// Ends the pods of a started Job well, and waits until the Job is complete.
    pub async fn succeed(&self, job: &str) -> Result<()> {
        self.end_pods(job, "Succeeded").await?;
        self.object(JOB, job, "is complete", |job| condition(job, "Complete").status == "True")
            .await
            .map(|_| ())
    }

    /// Ends the pods of a started Job badly, and waits until the Job has failed.
    pub async fn fail(&self, job: &str) -> Result<()> {
        self.end_pods(job, "Failed").await?;
        self.object(JOB, job, "has failed", |job| condition(job, "Failed").status == "True").await.map(|_| ())
    }

    /// Waits until all pods of a Job run, and gives their names.
    pub async fn running_pods(&self, job: &str) -> Result<Vec<String>> {
        let object = self.get(JOB, job).await?;
        let number = |field: &str| object["spec"][field].as_u64();
        let parallelism = number("parallelism").unwrap_or(1);
        let wanted = number("completions").map_or(parallelism, |completions| completions.min(parallelism));
        self.until(POD, &format!("{wanted} pods of Job {job} run"), |pods| {
            let running: Vec<_> = pods_of(pods, job)
                .into_iter()
                .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null())
                .filter(|pod| is_controlled_by(pod, &object) && pod["status"]["phase"] == "Running")
                .map(|pod| name(pod).to_owned())
                .collect();
            (running.len() as u64 == wanted).then_some(running)
        })
        .await
    }

    /// A pod fails. It says that it ended long ago, so that the Job controller replaces it without delay.
    pub async fn fail_pod(&self, pod: &str) -> Result<()> {
        let end = json!({ "exitCode": 1, "finishedAt": "2000-01-01T00:00:00Z" });
        let container = json!({
            "name": "main", "image": "host", "imageID": "", "ready": false, "restartCount": 0,
            "state": { "terminated": end },
        });
        self.patch_status(POD, pod, json!({ "phase": "Failed", "containerStatuses": [container] })).await
    }

    /// A pod runs and is not ready any more.
    pub async fn unready_pod(&self, pod: &str) -> Result<()> {
        self.patch_status(POD, pod, json!({ "conditions": [{ "type": "Ready", "status": "False" }] })).await
    }

    async fn end_pods(&self, job: &str, phase: &str) -> Result<()> {
        for pod in self.running_pods(job).await? {
            self.patch_status(POD, &pod, json!({ "phase": phase })).await?;
        }
        Ok(())
    }

    /// Returns when everything that the controllers saw before has been decided: a Job that is
    /// submitted now, in a queue where it has room, has been started.
    pub async fn later(&self) -> Result<()> {
        if self.get(LOCAL_QUEUE, "later").await.is_err() {
            self.flavor("SCENE-later").await?;
            self.cluster_queue_named("SCENE-later", &[("SCENE-later", "100")], "namespaceSelector: {}")
                .await?;
            self.local_queue_of("later", "SCENE-later").await?;
        }
        let count = self.list(JOB).await?.len();
        self.submit_and_start(Job::new(&format!("later-{count}")).queue("later")).await.map(|_| ())
    }

    /// Waits for an event with this reason about the object.
    pub async fn event(&self, kind: Kind, object: &str, reason: &str) -> Result<()> {
        self.until(EVENT, &format!("an event {reason} on {} {object}", kind.kind), |events| {
            let mut about = events.values().filter(|event| is_about(event, kind.kind, object));
            about.find(|event| event["reason"] == reason).map(|_| ())
        })
        .await
    }

    /// Waits until an object is gone, or another one has its name.
    pub async fn gone(&self, kind: Kind, object: &Value) -> Result<()> {
        let what = format!("{} {} is gone", kind.kind, name(object));
        self.until(kind, &what, |objects| {
            let same = objects.get(name(object)).is_some_and(|found| uid(found) == uid(object));
            (!same).then_some(())
        })
        .await
    }
}

/// The pods of a Job.
pub fn pods_of<'a>(pods: &'a Objects, job: &str) -> Vec<&'a Value> {
    pods.values().filter(|pod| pod["metadata"]["labels"][JOB_NAME] == job).collect()
}
