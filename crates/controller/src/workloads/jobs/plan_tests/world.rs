//! A Job, its Workloads and what the plan looks up; steps land in it as they would in an API.

use std::collections::BTreeMap;
use std::sync::Arc;

use gangway_api::kueue::{ResourceFlavorSpec, Workload};
use gangway_api::names;
use gangway_model::reasons::{EvictionReason, FinishReason, PendingReason};
use gangway_model::workload::{
    Admission, Assignment, Eviction, Finish, Pending, Reservation, State, Waiting,
};
use gangway_model::{Requests, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use serde_json::{Value, json};

use super::super::plan::{Owned, Step, Surroundings, plan};
use super::super::priority::Classes;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);

/// A queued Job as an API server hands it out.
pub(super) fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "train", "namespace": "team", "uid": "job-uid", "resourceVersion": "5", "generation": 1,
            "labels": {names::QUEUE_NAME_LABEL: "lq"},
        },
        "spec": {
            "parallelism": 3, "completions": 2, "suspend": true,
            "template": {
                "metadata": {
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {
                        "app": "train",
                        "batch.kubernetes.io/controller-uid": "job-uid", "controller-uid": "job-uid",
                        "batch.kubernetes.io/job-name": "train", "job-name": "train",
                    },
                    "annotations": {"note": "mine"},
                },
                "spec": {
                    "containers": [{
                        "name": "c", "image": "host", "command": ["train"],
                        "env": [{"name": "SEED", "value": "1"}],
                        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
                    }],
                    "nodeSelector": {"disk": "ssd"},
                    "restartPolicy": "Never",
                    "tolerations": [{"key": "slow", "operator": "Exists"}],
                },
            },
        },
    })
}

pub(super) fn merged(mut document: Value, change: Value) -> Value {
    json_patch::merge(&mut document, &change);
    document
}

pub(super) fn pending() -> State {
    let message = "insufficient quota".to_owned();
    let waiting = Waiting { reason: PendingReason::WaitingForQuota, message: message.into(), since: NOW };
    State::Pending(Pending { waiting: Some(waiting), ..Pending::default() })
}

fn reservation(admitted: bool) -> Reservation {
    let assignment = Assignment {
        name: "main".into(),
        flavors: vec![("cpu".into(), "fast".into()), ("memory".into(), "fast".into())],
        usage: Requests::default(),
        count: 2,
        reclaimed: 0,
    };
    Reservation {
        admission: Arc::new(Admission { cluster_queue: "cq".into(), pod_sets: [assignment].into() }),
        reserved_at: NOW,
        admitted_at: admitted.then_some(NOW),
        past_eviction: None,
        requeued: None,
        requeue_state: None,
        pods_ready: None,
        checks: None,
        history: None,
    }
}

pub(super) fn admitted() -> State {
    State::Holding(reservation(true))
}

/// Admitted with the cpu on one flavor and the memory on another.
pub(super) fn admitted_on(cpu: &str, memory: &str) -> State {
    let mut reservation = reservation(true);
    let admission = Arc::make_mut(&mut reservation.admission);
    Arc::make_mut(&mut admission.pod_sets)[0].flavors =
        vec![("cpu".into(), cpu.into()), ("memory".into(), memory.into())];
    State::Holding(reservation)
}

pub(super) fn reserved() -> State {
    State::Holding(reservation(false))
}

pub(super) fn evicting() -> State {
    let eviction = Eviction {
        reason: EvictionReason::Preempted,
        message: "preempted".into(),
        at: NOW,
        preemption: None,
        overdue: None,
    };
    State::Evicting(reservation(true), Box::new(eviction))
}

pub(super) fn finished() -> State {
    finished_as(FinishReason::FailedToStart)
}

pub(super) fn finished_as(reason: FinishReason) -> State {
    let finish = Finish { reason, message: "no".into(), at: NOW };
    State::Finished(Box::new(finish), Box::new(pending()))
}

pub(super) struct World {
    pub(super) job: Value,
    pub(super) workloads: Vec<(Value, State)>,
    pub(super) classes: Classes,
    pub(super) flavors: BTreeMap<String, ResourceFlavorSpec>,
    pub(super) manages_unnamed: bool,
}

impl World {
    /// A Job that nobody has looked at.
    pub(super) fn new(job: Value) -> Self {
        let pod_class: PriorityClass =
            serde_json::from_value(json!({"metadata": {"name": "pods"}, "value": 7})).unwrap();
        let classes = Classes {
            workload: [("high".to_owned(), 100), ("low".to_owned(), 1)].into(),
            pod: [("pods".to_owned(), (&pod_class).into())].into(),
        };
        let fast = json!({
            "nodeLabels": {"machine": "fast"},
            "tolerations": [{"key": "slow", "operator": "Exists"}, {"key": "fast", "operator": "Exists"}],
        });
        let flavors = [("fast".to_owned(), serde_json::from_value(fast).unwrap())].into();
        Self { job, workloads: Vec::new(), classes, flavors, manages_unnamed: false }
    }

    /// A queued Job with its Workload.
    pub(super) fn queued() -> Self {
        Self::queued_with(json!({}))
    }

    /// The same, of a Job with a change.
    pub(super) fn queued_with(change: Value) -> Self {
        let mut world = Self::new(merged(job(), change));
        let step = world.step();
        assert!(matches!(step, Step::CreateWorkload(_)), "{step:?}");
        world.land(step);
        assert_eq!(world.step(), Step::Nothing);
        world
    }

    /// A Job that was admitted and started, and whose pods run.
    pub(super) fn running() -> Self {
        let mut world = Self::queued();
        world.workload_is(admitted());
        let step = world.step();
        assert!(matches!(step, Step::Start { .. }), "{step:?}");
        world.land(step);
        world.pods_run();
        assert_eq!(world.step(), Step::Nothing);
        world
    }

    pub(super) fn step(&self) -> Step {
        let job: Job = serde_json::from_value(self.job.clone()).unwrap();
        let objects: Vec<(Workload, &State)> = self
            .workloads
            .iter()
            .map(|(object, state)| (serde_json::from_value(object.clone()).unwrap(), state))
            .collect();
        let owned: Vec<Owned<'_>> = objects.iter().map(|(object, state)| Owned { object, state }).collect();
        let flavor = |name: &str| self.flavors.get(name);
        let manages_unnamed = self.manages_unnamed;
        plan(&job, &owned, &Surroundings { classes: &self.classes, flavor: &flavor, manages_unnamed })
    }

    /// What the API makes of a step.
    pub(super) fn land(&mut self, step: Step) {
        match step {
            Step::Nothing | Step::Warn { .. } => {}
            Step::CreateWorkload(workload) => {
                let identity = json!({"metadata": {"uid": "workload-uid", "resourceVersion": "6"}});
                self.workloads.push((merged(json!(workload), identity), pending()));
            }
            Step::UpdateWorkload { name, patch } => {
                let found = self.workloads.iter_mut().find(|(object, _)| object["metadata"]["name"] == name);
                let object = &mut found.expect("the Workload to update").0;
                for key in ["resourceVersion", "uid"] {
                    assert_eq!(patch["metadata"][key], object["metadata"][key], "the precondition {key}");
                }
                json_patch::merge(object, &patch);
                object["metadata"]["resourceVersion"] = json!("7");
            }
            Step::DeleteWorkload { name, uid } => {
                let before = self.workloads.len();
                self.workloads.retain(|(o, _)| o["metadata"]["name"] != name || o["metadata"]["uid"] != uid);
                assert_eq!(self.workloads.len(), before - 1);
            }
            Step::Start { patch, .. } | Step::Restore { patch } => {
                let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
                json_patch::patch(&mut self.job, &patch).unwrap();
                self.job_was_changed();
            }
            Step::ForgetStart { patch } => {
                for key in ["resourceVersion", "uid"] {
                    assert_eq!(patch["metadata"][key], self.job["metadata"][key], "the precondition {key}");
                }
                json_patch::merge(&mut self.job, &patch);
            }
            Step::Suspend { .. } => self.change_job(json!({"spec": {"suspend": true}})),
            Step::Unstartable { .. } => self.workload_is(finished()),
        }
    }

    /// Takes a step that must be of a kind, and gives it back.
    pub(super) fn take(&mut self, is_expected: impl Fn(&Step) -> bool) -> Step {
        let step = self.step();
        assert!(is_expected(&step), "{step:#?}");
        self.land(step.clone());
        step
    }

    pub(super) fn change_job(&mut self, change: Value) {
        json_patch::merge(&mut self.job, &change);
        self.job_was_changed();
    }

    fn job_was_changed(&mut self) {
        let generation = self.job["metadata"]["generation"].as_i64().unwrap();
        self.job["metadata"]["generation"] = json!(generation + 1);
    }

    pub(super) fn workload_is(&mut self, state: State) {
        let holds = state.reservation().is_some();
        let (object, current) = self.workloads.last_mut().expect("a Workload");
        let admission = json!({"clusterQueue": "cq", "podSetAssignments": []});
        object["status"] = if holds { json!({"admission": admission}) } else { json!({}) };
        *current = state;
    }

    pub(super) fn workload(&self) -> &Value {
        &self.workloads.last().expect("a Workload").0
    }

    pub(super) fn template(&self) -> &Value {
        &self.job["spec"]["template"]
    }

    /// The Job controller reports pods that run.
    pub(super) fn pods_run(&mut self) {
        let suspended = json!([{"type": "Suspended", "status": "False"}]);
        let status = json!({"active": 2, "startTime": "2026-01-01T00:00:00Z", "conditions": suspended});
        self.job["status"] = status;
    }

    /// The Job controller saw the suspension; the pods are on their way out.
    pub(super) fn pods_end(&mut self) {
        let suspended = json!([{"type": "Suspended", "status": "True"}]);
        self.job["status"] = json!({"active": 0, "terminating": 2, "conditions": suspended});
    }

    pub(super) fn pods_are_gone(&mut self) {
        self.pods_end();
        self.job["status"]["terminating"] = json!(0);
    }
}
