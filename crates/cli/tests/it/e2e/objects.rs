//! Reading objects, and writing the ones that scenarios need most.

use anyhow::{Context, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

/// The label that names a Job's LocalQueue.
pub const QUEUE_NAME: &str = "kueue.x-k8s.io/queue-name";
/// The label that names a Job's WorkloadPriorityClass.
pub const PRIORITY_CLASS: &str = "kueue.x-k8s.io/priority-class";
/// The label by which the Job controller marks the pods of a Job.
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// The annotation that tells a fake node when a pod ends by itself.
const RUN_FOR: &str = "fake.gangway.dev/run-for";
const TERMINATE_AFTER: &str = "fake.gangway.dev/terminate-after";

/// A condition as the scenarios compare it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl Condition {
    pub fn is(&self, status: &str, reason: &str) -> bool {
        self.status == status && self.reason == reason
    }
}

/// The condition of this type, empty if the object has none.
pub fn condition(object: &Value, kind: &str) -> Condition {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    found.map(read_condition).unwrap_or_default()
}

/// When the condition of this type became what it is, in seconds.
pub fn changed_at(object: &Value, kind: &str) -> Result<i64> {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|condition| condition["type"] == kind);
    let found = found.with_context(|| format!("there is no condition {kind}: {object}"))?;
    seconds(&found["lastTransitionTime"])
}

/// A time of an object in seconds.
pub fn seconds(time: &Value) -> Result<i64> {
    let read: Time = serde_json::from_value(time.clone()).with_context(|| format!("{time} is no time"))?;
    Ok(read.0.as_second())
}

pub fn read_condition(condition: &Value) -> Condition {
    let text = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    Condition { status: text("status"), reason: text("reason"), message: text("message") }
}

pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

pub fn is_suspended(job: &Value) -> bool {
    job["spec"]["suspend"] == true
}

/// Whether `object` names `owner` as its controller.
pub fn is_controlled_by(object: &Value, owner: &Value) -> bool {
    let references = object["metadata"]["ownerReferences"].as_array();
    references.into_iter().flatten().any(|reference| reference["uid"] == owner["metadata"]["uid"])
}

/// The flavor that the first pod set got for `resource`.
pub fn assigned_flavor<'a>(workload: &'a Value, resource: &str) -> &'a str {
    workload["status"]["admission"]["podSetAssignments"][0]["flavors"][resource].as_str().unwrap_or_default()
}

/// Whether an event is about the object of this kind and name.
pub fn is_about(event: &Value, kind: &str, name: &str) -> bool {
    event["involvedObject"]["kind"] == kind && event["involvedObject"]["name"] == name
}

/// A Job of a queue. Its pods run until a scenario ends them.
pub struct Job {
    name: String,
    queue: Option<String>,
    priority_class: Option<String>,
    requests: Value,
    pods: u32,
    suspend: bool,
    lingers: Option<&'static str>,
    completions: Option<u32>,
    retries: u32,
    retries_per_index: Option<u32>,
    annotations: Value,
}

impl Job {
    /// A Job of one pod with one CPU in the queue `main`.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            queue: Some("main".to_owned()),
            priority_class: None,
            requests: json!({ "cpu": "1" }),
            pods: 1,
            suspend: true,
            lingers: None,
            completions: None,
            retries: 0,
            retries_per_index: None,
            annotations: json!({}),
        }
    }

    pub fn queue(mut self, queue: &str) -> Self {
        self.queue = Some(queue.to_owned());
        self
    }

    /// It names no queue.
    pub fn without_queue(mut self) -> Self {
        self.queue = None;
        self
    }

    pub fn priority_class(mut self, class: &str) -> Self {
        self.priority_class = Some(class.to_owned());
        self
    }

    pub fn cpu(mut self, cpu: &str) -> Self {
        self.requests["cpu"] = json!(cpu);
        self
    }

    pub fn request(mut self, resource: &str, amount: &str) -> Self {
        self.requests[resource] = json!(amount);
        self
    }

    /// So many pods, all at once.
    pub fn pods(mut self, pods: u32) -> Self {
        self.pods = pods;
        self
    }

    /// It is complete when so many pods have succeeded.
    pub fn completions(mut self, completions: u32) -> Self {
        self.completions = Some(completions);
        self
    }

    /// So many pods may fail and are replaced.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Each pod has an index; so many pods of each may fail, and then the index has failed.
    pub fn retries_per_index(mut self, retries: u32) -> Self {
        self.retries_per_index = Some(retries);
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations[key] = json!(value);
        self
    }

    /// Its pods take two seconds to go when they are deleted.
    pub fn lingering(mut self) -> Self {
        self.lingers = Some("2s");
        self
    }

    /// Its pods stay when they are deleted, until the scenario ends them.
    pub fn stuck(mut self) -> Self {
        self.lingers = Some("1h");
        self
    }

    /// As a user writes it who does not know about queues: not suspended.
    pub fn unsuspended(mut self) -> Self {
        self.suspend = false;
        self
    }

    pub fn object(&self) -> Value {
        let mut labels = json!({});
        if let Some(queue) = &self.queue {
            labels[QUEUE_NAME] = json!(queue);
        }
        if let Some(class) = &self.priority_class {
            labels[PRIORITY_CLASS] = json!(class);
        }
        let container = json!({
            "name": "main", "image": "host", "command": ["sleep", "infinity"],
            "resources": { "requests": self.requests, "limits": self.extended_resources() },
        });
        let grace_seconds = if self.lingers.is_some() { 30 } else { 1 };
        let annotations = json!({ RUN_FOR: "forever", TERMINATE_AFTER: self.lingers.unwrap_or("0s") });
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": self.name, "labels": labels, "annotations": self.annotations },
            "spec": {
                "suspend": self.suspend, "parallelism": self.pods,
                "completions": self.completions.unwrap_or(self.pods), "backoffLimit": self.retries,
                "template": { "metadata": { "annotations": annotations }, "spec": {
                    "schedulerName": "gangway", "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": grace_seconds,
                    "containers": [container],
                } },
            },
        });
        if let Some(retries) = self.retries_per_index {
            // No limit for the whole: that is what a Job gets that has one for each index.
            job["spec"]["backoffLimit"] = json!(i32::MAX);
            job["spec"]["backoffLimitPerIndex"] = json!(retries);
            job["spec"]["completionMode"] = json!("Indexed");
        }
        job
    }

    /// Resources outside the core have to be limited to what they request.
    fn extended_resources(&self) -> Value {
        let mut limits = self.requests.clone();
        if let Some(limits) = limits.as_object_mut() {
            limits.retain(|resource, _| resource.contains('/'));
        }
        limits
    }
}
