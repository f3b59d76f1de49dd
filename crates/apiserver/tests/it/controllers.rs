//! The embedded Job controller and garbage collection, against the API they run on.
//!
//! Time is paused: it moves only when nothing is left to do, so a wait for what never comes fails at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use gangway_apiserver::{ApiServer, controllers};
use gangway_model::{Clock, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{ConfigMap, Event as ApiEvent, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// A clock that follows the runtime's.
struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        let elapsed = i64::try_from(self.0.elapsed().as_millis()).unwrap();
        Timestamp::from_seconds(1_767_225_600).plus_millis(elapsed)
    }
}

/// An API with both controllers.
struct World {
    client: Client,
    clock: Arc<dyn Clock>,
    jobs: Api<Job>,
    pods: Api<Pod>,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl World {
    fn without_controllers() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock(Instant::now()));
        let client = ApiServer::builder().clock(clock.clone()).build().client();
        let (jobs, pods) = (Api::default_namespaced(client.clone()), Api::default_namespaced(client.clone()));
        Self { client, clock, jobs, pods, tasks: Vec::new() }
    }

    fn with_jobs() -> Self {
        let mut world = Self::without_controllers();
        let run = controllers::jobs::run(world.client.clone(), world.clock.clone());
        world.tasks.push(tokio::spawn(run));
        world
    }

    fn with_jobs_and_garbage() -> Self {
        let mut world = Self::with_jobs();
        world.tasks.push(tokio::spawn(controllers::garbage::run(world.client.clone())));
        world
    }

    async fn create_job(&self, name: &str, spec: Value) -> Job {
        let mut whole = json!({"template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox:1"}],
        }}});
        json_patch::merge(&mut whole, &spec);
        let job = json!({"metadata": {"name": name}, "spec": whole});
        self.jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap()
    }

    async fn job_until(&self, name: &str, reached: impl Fn(&JobStatus) -> bool) -> JobStatus {
        let seen = until(self.jobs.clone(), |jobs: &BTreeMap<String, Job>| {
            jobs.get(name).and_then(|job| job.status.as_ref()).is_some_and(&reached)
        });
        seen.await.remove(name).unwrap().status.unwrap()
    }

    async fn pods_until(&self, reached: impl Fn(&BTreeMap<String, Pod>) -> bool) -> Vec<Pod> {
        until(self.pods.clone(), reached).await.into_values().collect()
    }

    /// What the kubelet would do.
    async fn set_phase(&self, pod: &Pod, phase: &str) {
        let ready = if phase == "Running" { "True" } else { "False" };
        let status = json!({"status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": ready}],
        }});
        let params = PatchParams::default();
        self.pods.patch_status(&pod.name_any(), &params, &Patch::Merge(status)).await.unwrap();
    }

    async fn suspend(&self, name: &str, suspend: bool) {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        self.jobs.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.tasks.iter().for_each(|task| task.abort());
    }
}

/// The objects as soon as they are as wanted.
async fn until<K>(api: Api<K>, reached: impl Fn(&BTreeMap<String, K>) -> bool) -> BTreeMap<String, K>
where
    K: kube::Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut objects = BTreeMap::new();
    let mut events = watcher::watcher(api, watcher::Config::default()).boxed();
    let wait = async {
        let mut listed = false;
        loop {
            match events.next().await.unwrap().unwrap() {
                Event::Apply(object) | Event::InitApply(object) => {
                    objects.insert(object.name_any(), object);
                }
                Event::Delete(object) => {
                    objects.remove(&object.name_any());
                }
                Event::Init => {}
                Event::InitDone => listed = true,
            }
            if listed && reached(&objects) {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(3_600), wait).await;
    assert!(waited.is_ok(), "this never came about; instead: {objects:?}");
    objects
}

fn condition(status: &JobStatus, kind: &str) -> Option<(String, String)> {
    let found = status.conditions.iter().flatten().find(|condition| condition.type_ == kind)?;
    Some((found.status.clone(), found.reason.clone().unwrap_or_default()))
}

fn is_true(status: &JobStatus, kind: &str) -> bool {
    condition(status, kind).is_some_and(|(status, _)| status == "True")
}

fn has_pods(count: usize) -> impl Fn(&BTreeMap<String, Pod>) -> bool {
    move |pods| pods.len() == count
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_to_completion() {
    let world = World::with_jobs();
    let job = world.create_job("j", json!({"parallelism": 3, "completions": 3})).await;
    let pods = world.pods_until(has_pods(3)).await;
    for pod in &pods {
        let owner = &pod.owner_references()[0];
        assert_eq!((owner.uid.as_str(), owner.controller), (job.uid().unwrap().as_str(), Some(true)));
        assert_eq!(pod.finalizers(), [TRACKING_FINALIZER]);
        assert_eq!(pod.labels()["batch.kubernetes.io/job-name"], "j");
        assert!(pod.name_any().starts_with("j-"));
        world.set_phase(pod, "Running").await;
    }
    let status = world.job_until("j", |status| status.ready == Some(3)).await;
    assert_eq!((status.active, status.terminating), (Some(3), Some(0)));
    assert!(status.start_time.is_some());

    world.set_phase(&pods[0], "Succeeded").await;
    let status = world.job_until("j", |status| status.succeeded == Some(1)).await;
    assert_eq!((status.active, status.ready), (Some(2), Some(2)));
    for pod in &pods[1..] {
        world.set_phase(pod, "Succeeded").await;
    }
    let status = world.job_until("j", |status| is_true(status, "Complete")).await;
    assert_eq!((status.succeeded, status.active, status.failed), (Some(3), None, None));
    let kinds: Vec<&str> =
        status.conditions.iter().flatten().map(|condition| condition.type_.as_str()).collect();
    assert_eq!(kinds, ["SuccessCriteriaMet", "Complete"]);
    assert_eq!(condition(&status, "Complete").unwrap().1, "CompletionsReached");
    assert_eq!(status.uncounted_terminated_pods, Some(Default::default()));
    assert!(status.completion_time.is_some());
    let pods = world.pods_until(|pods| pods.values().all(|pod| pod.finalizers().is_empty())).await;
    assert_eq!(pods.len(), 3, "finished pods stay");
    let events: Api<ApiEvent> = Api::default_namespaced(world.client.clone());
    until(events, |events| events.values().any(|event| event.reason.as_deref() == Some("Completed"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_beyond_the_limit_fails_the_job() {
    let world = World::with_jobs();
    world.create_job("j", json!({"parallelism": 3, "completions": 3, "backoffLimit": 0})).await;
    let pods = world.pods_until(has_pods(3)).await;
    world.set_phase(&pods[0], "Failed").await;
    let status = world.job_until("j", |status| is_true(status, "Failed")).await;
    assert!(is_true(&status, "FailureTarget"));
    assert_eq!(condition(&status, "Failed").unwrap().1, "BackoffLimitExceeded");
    assert_eq!((status.failed, status.active, status.terminating), (Some(3), None, Some(0)));
    assert_eq!(status.completion_time, None);
    let pods = world.pods_until(|pods| pods.len() == 1).await;
    assert!(pods[0].finalizers().is_empty(), "the failed pod stays to be looked at");
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_is_replaced_after_a_while() {
    let world = World::with_jobs();
    world.create_job("j", json!({"backoffLimit": 2})).await;
    let first = world.pods_until(has_pods(1)).await;
    let started = world.clock.now();
    world.set_phase(&first[0], "Failed").await;
    let pods = world.pods_until(has_pods(2)).await;
    let waited = world.clock.now().as_seconds() - started.as_seconds();
    assert!((9..=11).contains(&waited), "{waited} s");
    let second = pods.iter().find(|pod| pod.uid() != first[0].uid()).unwrap();
    world.set_phase(second, "Succeeded").await;
    let status = world.job_until("j", |status| is_true(status, "Complete")).await;
    assert_eq!((status.succeeded, status.failed), (Some(1), Some(1)));
}

#[tokio::test(start_paused = true)]
async fn suspending_deletes_pods_and_resuming_creates_them() {
    let world = World::with_jobs();
    world.create_job("j", json!({"parallelism": 2, "completions": 2, "suspend": true})).await;
    let status = world.job_until("j", |status| is_true(status, "Suspended")).await;
    assert_eq!((status.start_time, status.active, status.ready), (None, None, Some(0)));

    world.suspend("j", false).await;
    let before: HashSet<_> = world.pods_until(has_pods(2)).await.iter().map(Pod::uid).collect();
    let resumed = ("False".to_owned(), "JobResumed".to_owned());
    let status =
        world.job_until("j", |status| condition(status, "Suspended").as_ref() == Some(&resumed)).await;
    assert_eq!((status.active, status.start_time.is_some()), (Some(2), true));

    world.suspend("j", true).await;
    world.pods_until(has_pods(0)).await;
    let status =
        world.job_until("j", |status| is_true(status, "Suspended") && status.terminating == Some(0)).await;
    assert_eq!((status.active, status.failed, status.start_time.is_none()), (None, None, true));
    assert_eq!(condition(&status, "Suspended").unwrap().1, "JobSuspended");

    world.suspend("j", false).await;
    let after: HashSet<_> = world.pods_until(has_pods(2)).await.iter().map(Pod::uid).collect();
    assert!(before.is_disjoint(&after));
}

#[tokio::test(start_paused = true)]
async fn the_template_of_a_suspended_job_may_move_between_runs() {
    let world = World::with_jobs();
    world.create_job("j", json!({})).await;
    world.pods_until(has_pods(1)).await;
    let moved = Patch::Merge(json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "b"}}}}}));
    let refused = world.jobs.patch("j", &PatchParams::default(), &moved).await;
    assert!(refused.is_err(), "a running Job stays where it is");
    world.suspend("j", true).await;
    world.job_until("j", |status| is_true(status, "Suspended") && status.terminating == Some(0)).await;
    world.jobs.patch("j", &PatchParams::default(), &moved).await.unwrap();
    world.suspend("j", false).await;
    let pods = world.pods_until(has_pods(1)).await;
    assert_eq!(pods[0].spec.as_ref().unwrap().node_selector.as_ref().unwrap()["zone"], "b");
}

#[tokio::test(start_paused = true)]
async fn scaling_follows_the_spec() {
    let world = World::with_jobs();
    world.create_job("j", json!({"parallelism": 2, "completions": 5})).await;
    for parallelism in [2, 4, 1, 0, 3] {
        let patch = Patch::Merge(json!({"spec": {"parallelism": parallelism}}));
        world.jobs.patch("j", &PatchParams::default(), &patch).await.unwrap();
        world.pods_until(has_pods(parallelism)).await;
    }
    let status = world.job_until("j", |status| status.active == Some(3)).await;
    assert_eq!(status.failed, None, "scaling down is no failure");
}

#[tokio::test(start_paused = true)]
async fn deadline_and_time_to_live_are_kept() {
    let world = World::with_jobs_and_garbage();
    let spec = json!({"activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 30});
    world.create_job("j", spec).await;
    let status = world.job_until("j", |status| is_true(status, "Failed")).await;
    assert_eq!(condition(&status, "Failed").unwrap().1, "DeadlineExceeded");
    until(world.jobs.clone(), BTreeMap::is_empty).await;
    world.pods_until(has_pods(0)).await;
}

#[tokio::test(start_paused = true)]
async fn indexed_jobs_count_by_index() {
    let world = World::with_jobs();
    world.create_job("j", json!({"completionMode": "Indexed", "parallelism": 2, "completions": 3})).await;
    let pods = world.pods_until(has_pods(2)).await;
    for pod in &pods {
        world.set_phase(pod, "Succeeded").await;
    }
    let pods = world.pods_until(has_pods(3)).await;
    let index = |pod: &Pod| pod.annotations()["batch.kubernetes.io/job-completion-index"].clone();
    let indexes: HashSet<String> = pods.iter().map(index).collect();
    assert_eq!(indexes, HashSet::from(["0", "1", "2"].map(str::to_owned)));
    let last = pods.iter().find(|pod| index(pod) == "2").unwrap();
    assert_eq!(last.spec.as_ref().unwrap().hostname.as_deref(), Some("j-2"));
    world.set_phase(last, "Succeeded").await;
    let status = world.job_until("j", |status| is_true(status, "Complete")).await;
    assert_eq!((status.succeeded, status.completed_indexes.as_deref()), (Some(3), Some("0-2")));
}

#[tokio::test(start_paused = true)]
async fn settings_that_are_not_supported_are_refused_aloud() {
    let world = World::with_jobs();
    let policy = json!({"podFailurePolicy": {"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}},
    ]}});
    world.create_job("j", policy).await;
    let status = world.job_until("j", |status| is_true(status, "Failed")).await;
    assert_eq!(condition(&status, "Failed").unwrap().1, "NotSupported");
    assert!(world.pods.list(&ListParams::default()).await.unwrap().items.is_empty());
}

/// The controller is dropped at some point and another one goes on: every pod is created and counted once.
#[tokio::test(start_paused = true)]
async fn a_restart_at_any_point_creates_no_pod_twice() {
    for polls in 0..40 {
        let mut world = World::without_controllers();
        world.create_job("j", json!({"parallelism": 3, "completions": 3})).await;
        let mut first = Box::pin(controllers::jobs::run(world.client.clone(), world.clock.clone()));
        for _ in 0..polls {
            assert!(first.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
            // What exists runs and succeeds, so that the drop may also fall between count and release.
            for pod in world.pods.list(&ListParams::default()).await.unwrap() {
                world.set_phase(&pod, "Succeeded").await;
            }
        }
        drop(first);
        let second = controllers::jobs::run(world.client.clone(), world.clock.clone());
        world.tasks.push(tokio::spawn(second));
        for pod in world.pods_until(has_pods(3)).await {
            world.set_phase(&pod, "Succeeded").await;
        }
        let status = world.job_until("j", |status| is_true(status, "Complete")).await;
        assert_eq!((status.succeeded, status.failed), (Some(3), None), "after {polls} polls");
        let pods = world.pods_until(|pods| pods.values().all(|pod| pod.finalizers().is_empty())).await;
        assert_eq!(pods.len(), 3, "after {polls} polls");
    }
}

#[tokio::test(start_paused = true)]
async fn many_jobs_at_once() {
    let world = World::with_jobs();
    for number in 0..50 {
        world.create_job(&format!("j{number}"), json!({"parallelism": 2, "completions": 2})).await;
    }
    for pod in world.pods_until(has_pods(100)).await {
        world.set_phase(&pod, "Succeeded").await;
    }
    let complete = |job: &Job| job.status.as_ref().is_some_and(|status| is_true(status, "Complete"));
    until(world.jobs.clone(), |jobs| jobs.values().all(complete)).await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_job_deletes_its_pods() {
    for options in [DeleteParams::background(), DeleteParams::foreground()] {
        let world = World::with_jobs_and_garbage();
        world.create_job("j", json!({"parallelism": 3, "completions": 3})).await;
        let pods = world.pods_until(has_pods(3)).await;
        world.set_phase(&pods[0], "Succeeded").await;
        world.job_until("j", |status| status.succeeded == Some(1)).await;
        world.jobs.delete("j", &options).await.unwrap();
        world.pods_until(has_pods(0)).await;
        until(world.jobs.clone(), BTreeMap::is_empty).await;
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_are_left_behind_without_owner() {
    let world = World::with_jobs_and_garbage();
    world.create_job("j", json!({})).await;
    world.pods_until(has_pods(1)).await;
    world.jobs.delete("j", &DeleteParams::orphan()).await.unwrap();
    until(world.jobs.clone(), BTreeMap::is_empty).await;
    let pods = world.pods_until(|pods| pods.values().all(|pod| pod.finalizers().is_empty())).await;
    assert_eq!((pods.len(), pods[0].owner_references().len()), (1, 0));
}

fn owned_config_map(name: &str, owner: &Value) -> ConfigMap {
    let object = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
    serde_json::from_value(object).unwrap()
}

#[tokio::test(start_paused = true)]
async fn owners_that_never_existed_own_nothing() {
    let world = World::with_jobs_and_garbage();
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    let job = world.create_job("j", json!({"suspend": true})).await;
    let owner = |uid: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid});
    let unserved = json!({"apiVersion": "example.com/v1", "kind": "Unknown", "name": "x", "uid": "u"});
    for (name, owner) in
        [("true", owner(&job.uid().unwrap())), ("false", owner("no-such-uid")), ("unserved", unserved)]
    {
        maps.create(&PostParams::default(), &owned_config_map(name, &owner)).await.unwrap();
    }
    let left = until(maps, |maps| !maps.contains_key("false") && maps.contains_key("unserved")).await;
    assert!(left.contains_key("true"));
}

#[tokio::test(start_paused = true)]
async fn kinds_that_appear_later_own_and_are_owned() {
    let world = World::with_jobs_and_garbage();
    world.create_job("j", json!({})).await;
    world.pods_until(has_pods(1)).await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "listKind": "BoatList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    });
    crate::support::create(&world.client, crate::support::CRDS, &definition).await;
    let kind = ApiResource {
        group: "example.com".to_owned(),
        version: "v1".to_owned(),
        api_version: "example.com/v1".to_owned(),
        kind: "Boat".to_owned(),
        plural: "boats".to_owned(),
    };
    let boats: Api<DynamicObject> = Api::default_namespaced_with(world.client.clone(), &kind);
    let mut boat = DynamicObject::new("b", &kind);
    let job = world.jobs.get("j").await.unwrap();
    boat.metadata.owner_references = Some(vec![kube::Resource::controller_owner_ref(&job, &()).unwrap()]);
    let boat = boats.create(&PostParams::default(), &boat).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(world.client.clone());
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Boat", "name": "b", "uid": boat.uid()});
    maps.create(&PostParams::default(), &owned_config_map("cargo", &owner)).await.unwrap();
    world.jobs.delete("j", &DeleteParams::background()).await.unwrap();
    until(maps, |maps| !maps.contains_key("cargo")).await;
    assert!(boats.get_opt("b").await.unwrap().is_none());
}
