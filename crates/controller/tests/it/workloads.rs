//! Workloads through the API: nothing is lost and nothing is admitted twice, whatever happens on the way.
//!
//! Time is paused: waits cost nothing, and what never happens is noticed after two minutes of virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use gangway_api::kueue::Workload;
use gangway_apiserver::ApiServer;
use gangway_controller::workloads::{Counts, Explained, Snapshot};
use http::{Method, Request};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, PodSpec, PodTemplateSpec};
use kube::api::{ListParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::connection::{Connection, Fault};
use crate::world::{Seen, World, condition, create, until};

fn is_write(request: &Request<Body>) -> bool {
    *request.method() != Method::GET && !request.uri().path().contains("/events")
}

/// What happens to Jobs on their way through a quota of one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plot {
    /// Nothing: they run one after the other.
    Plain,
    /// While one runs, the ClusterQueue is drained, and resumed when all stand still.
    Drain,
    /// The same before Kubernetes 1.36, where a Job that was started keeps its template until its start is forgotten.
    OlderDrain,
    /// While one runs, another that waits is changed to ask for half as much.
    Change,
}

impl Plot {
    fn jobs(self) -> usize {
        match self {
            Self::Plain => 3,
            Self::Drain | Self::OlderDrain | Self::Change => 2,
        }
    }

    /// How many Jobs run a second time.
    fn second_runs(self) -> usize {
        usize::from(matches!(self, Self::Drain | Self::OlderDrain))
    }

    async fn world(self) -> World {
        if self == Self::OlderDrain { World::before_1_36().await } else { World::new().await }
    }

    async fn play(self, world: &World, submitted: &[Job]) {
        match self {
            Self::Plain => {}
            Self::Drain | Self::OlderDrain => drain(world, submitted).await,
            Self::Change => change(world, submitted).await,
        }
        world.let_pods_finish();
        world.complete(self.jobs()).await;
    }
}

fn template(job: &Job) -> Option<&PodTemplateSpec> {
    job.spec.as_ref().map(|spec| &spec.template)
}

fn is_suspended(job: &Job) -> bool {
    job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// The pods that a Job asks for, without the labels that tell one Job's from another's.
fn pod_spec(job: &Job) -> Option<&PodSpec> {
    job.spec.as_ref()?.template.spec.as_ref()
}

async fn drain(world: &World, submitted: &[Job]) {
    world.a_pod_runs().await;
    let before = world.jobs().list(&ListParams::default()).await.expect("a list").items;
    let is_injected = |job: &&Job| !submitted.iter().any(|old| pod_spec(old) == pod_spec(job));
    assert_eq!(before.iter().filter(is_injected).count(), 1, "the Job that runs has its flavor's labels");
    world.set_stop_policy("HoldAndDrain").await;
    let holds = |workload: &Workload| condition(workload, "QuotaReserved").is_some();
    let is_as_submitted = |jobs: &BTreeMap<String, Job>| {
        submitted.iter().all(|old| {
            let job = jobs.get(&old.name_any());
            job.is_some_and(|job| is_suspended(job) && template(job) == template(old))
        })
    };
    until("every Job is as it was", world.jobs(), is_as_submitted).await;
    until("no pod is left", world.pods(), BTreeMap::is_empty).await;
    until("nothing holds quota", world.workloads(), |all| !all.values().any(holds)).await;
    world.set_stop_policy("None").await;
}

async fn change(world: &World, submitted: &[Job]) {
    world.a_pod_runs().await;
    until("every Job has a Workload", world.workloads(), |all| all.len() == submitted.len()).await;
    let jobs = world.jobs().list(&ListParams::default()).await.expect("a list").items;
    let waiting = jobs.iter().find(|job| is_suspended(job)).expect("one waits").name_any();
    let path = "/spec/template/spec/containers/0/resources/requests/cpu";
    let patch = serde_json::from_value(json!([{"op": "replace", "path": path, "value": "500m"}]));
    let patch = Patch::Json::<()>(patch.expect("a patch"));
    world.jobs().patch(&waiting, &PatchParams::default(), &patch).await.expect("a changed Job");
    let asks_for_half = |workload: &Workload| {
        let spec = serde_json::to_value(&workload.spec).expect("a spec");
        let requests = &spec["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"];
        requests["cpu"] == "500m"
    };
    let one = |all: &BTreeMap<String, Workload>| all.values().filter(|w| asks_for_half(w)).count() == 1;
    until("a Workload follows its Job", world.workloads(), one).await;
}

/// Jobs through a quota of one, with a controller that ends at the fault and is started again.
fn story(
    plot: Plot,
    fault_of: impl Fn(usize) -> Fault + Send + Sync + 'static,
) -> LocalBoxFuture<'static, (Counts, usize)> {
    tell(plot, fault_of).boxed_local()
}

async fn tell(plot: Plot, fault_of: impl Fn(usize) -> Fault + Send + Sync + 'static) -> (Counts, usize) {
    let world = plot.world().await;
    let mut submitted = Vec::new();
    for name in names(plot.jobs()) {
        submitted.push(world.submit(&name).await);
    }
    let mut seen = Seen::default();
    let first = Connection::new(&world.server, is_write, fault_of);
    let life = async {
        tokio::select! {
            () = world.controller(first.client()) => {}
            () = first.cut.notified() => {}
        }
        world.controller(world.server.client()).await;
    };
    let end = async {
        plot.play(&world, &submitted).await;
        world.finished(plot.jobs()).await;
    };
    tokio::select! {
        () = world.cluster() => panic!("the cluster ended"),
        () = seen.watch(world.server.client()) => panic!("the watch ended"),
        () = life => panic!("the controller ended"),
        () = end => {}
    }
    check(plot, &world, &seen).await;
    (world.counts(), first.counted())
}

/// How often a Workload was evicted.
fn evictions(workload: &Workload) -> i32 {
    let stats = workload.status.as_ref().and_then(|status| status.scheduling_stats.as_ref());
    stats.into_iter().flat_map(|stats| &stats.evictions).map(|entry| entry.count).sum()
}

async fn check(plot: Plot, world: &World, seen: &Seen) {
    let runs = plot.jobs() + plot.second_runs();
    assert_eq!(seen.pods.len(), runs, "every Job ran as often as it should: {:?}", seen.pods);
    assert!(seen.most_running <= 1, "the quota was exceeded by pods");
    assert!(seen.most_holding <= 1, "the quota was exceeded by reservations");
    assert_eq!(seen.reservations.len(), plot.jobs(), "{:?}", seen.reservations);
    let admissions: usize = seen.reservations.values().sum();
    assert_eq!(admissions, runs, "admitted too often: {:?}", seen.reservations);
    let workloads = world.workloads().list(&ListParams::default()).await.expect("a list");
    assert_eq!(workloads.items.len(), plot.jobs());
    let evictions: i32 = workloads.iter().map(evictions).sum();
    assert_eq!(evictions, plot.second_runs() as i32, "each eviction is counted once and for all");
    let pods = world.pods().list(&ListParams::default()).await.expect("a list").items;
    let half = pods.iter().filter(|pod| {
        let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let requests = container.and_then(|c| c.resources.as_ref()?.requests.as_ref());
        requests.is_some_and(|requests| requests.get("cpu").is_some_and(|cpu| cpu.0 == "500m"))
    });
    assert_eq!(half.count(), usize::from(plot == Plot::Change), "a changed Job runs as it was changed");
}

fn names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|i| format!("j{i}"))
}

#[tokio::test(start_paused = true)]
async fn a_jobs_life_takes_four_decisions() {
    let (counts, _) = story(Plot::Plain, |_| Fault::None).await;
    let jobs = Plot::Plain.jobs() as u64;
    assert_eq!(counts.decisions, 4 * jobs, "{counts:?}");
    assert!(counts.diagnostics <= 3 * jobs + 2, "{counts:?}");
    assert_eq!(
        (counts.conflicts, counts.rejected, counts.retried, counts.repairs),
        (0, 0, 0, 0),
        "{counts:?}"
    );
}

/// The controller is dropped before, and in another life right after, its nth write reaches the API.
async fn cut_off_at_every_write(plot: Plot) {
    let (_, writes) = story(plot, |_| Fault::None).await;
    assert!(writes >= 4 * plot.jobs(), "{writes} writes");
    for nth in 0..writes {
        for fault in [Fault::CutOff, Fault::CutOffAfter] {
            println!("write {nth}: {fault:?}"); // shown only if it fails
            story(plot, move |n| if n >= nth { fault } else { Fault::None }).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_dropped_at_any_write_loses_nothing_and_admits_nothing_twice() {
    cut_off_at_every_write(Plot::Plain).await;
}

#[tokio::test(start_paused = true)]
async fn a_drained_queue_stands_still_and_goes_on_whenever_the_controller_is_dropped() {
    cut_off_at_every_write(Plot::Drain).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_keeps_its_start_time_is_restored_whenever_the_controller_is_dropped() {
    cut_off_at_every_write(Plot::OlderDrain).await;
    let (counts, _) = story(Plot::OlderDrain, |_| Fault::None).await;
    assert_eq!((counts.conflicts, counts.rejected), (0, 0), "no write is tried in vain: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_changed_job_runs_as_changed_whenever_the_controller_is_dropped() {
    cut_off_at_every_write(Plot::Change).await;
}

#[tokio::test(start_paused = true)]
async fn lost_requests_and_lost_answers_are_found_out() {
    for plot in [Plot::Plain, Plot::Drain, Plot::OlderDrain, Plot::Change] {
        let (counts, _) = story(plot, |n| match n % 5 {
            1 => Fault::Lost,
            3 => Fault::AnswerLost,
            _ => Fault::None,
        })
        .await;
        assert!(counts.retried > 0, "{plot:?}: {counts:?}");
    }
}

fn is_discovery(request: &Request<Body>) -> bool {
    matches!(request.uri().path(), "/api" | "/apis")
}

#[tokio::test(start_paused = true)]
async fn a_pod_with_a_queue_name_is_told_even_if_the_api_does_not_answer_at_first() {
    let world = World::new().await;
    let pod = json!({
        "metadata": {"name": "alone", "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"containers": [{"name": "main", "image": "host"}]},
    });
    create(&world.pods(), pod).await;
    let slow =
        Connection::new(&world.server, is_discovery, |n| if n < 3 { Fault::Lost } else { Fault::None });
    let events: Api<Event> = Api::default_namespaced(world.server.client());
    let is_told = |events: &BTreeMap<String, Event>| {
        events.values().any(|event| {
            event.reason.as_deref() == Some("UnsupportedKind")
                && event.involved_object.name.as_deref() == Some("alone")
        })
    };
    tokio::select! {
        () = world.controller(slow.client()) => {}
        () = until("the pod is told", events, is_told) => {}
    }
    assert!(slow.counted() > 3, "it was asked again");
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_approval_is_told_so_and_when_it_is_over() {
    let world = World::new().await;
    let key = "kueue.x-k8s.io/admission-gated-by";
    let container = json!({"name": "main", "image": "host", "resources": {"requests": {"cpu": "1"}}});
    let job = json!({
        "metadata": {"name": "gated", "labels": {"kueue.x-k8s.io/queue-name": "lq"},
            "annotations": {key: "a.io/budget,b.io/owner"}},
        "spec": {"suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    });
    create(&world.jobs(), job).await;
    let told = |reason: &'static str, count: usize| {
        let events: Api<Event> = Api::default_namespaced(world.server.client());
        let is_it = move |event: &&Event| event.reason.as_deref() == Some(reason);
        until(reason, events, move |events| events.values().filter(is_it).count() == count)
    };
    let gates = async |gates: Option<&str>| {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: gates}}}));
        world.jobs().patch("gated", &PatchParams::default(), &patch).await.expect("a changed Job");
    };
    let script = async {
        told("AdmissionGated", 1).await;
        gates(Some("b.io/owner")).await;
        let is_followed = |workloads: &BTreeMap<String, Workload>| {
            workloads
                .values()
                .any(|workload| workload.annotations().get(key).is_some_and(|left| left == "b.io/owner"))
        };
        until("one has approved", world.workloads(), is_followed).await;
        gates(None).await;
        told("Started", 1).await;
        told("AdmissionGated", 1).await;
        told("AdmissionGateCleared", 1).await;
    };
    tokio::select! {
        () = world.controller(world.server.client()) => {}
        () = script => {}
    }
}

fn is_workload_status(request: &Request<Body>) -> bool {
    let path = request.uri().path();
    *request.method() == Method::PATCH && path.contains("/workloads/") && path.ends_with("/status")
}

/// The status of a Workload never gets through; how often it is tried in five minutes, and in which lane.
async fn tries_in_vain(stop_policy: &str) -> (usize, Counts) {
    let world = World::new().await;
    world.set_stop_policy(stop_policy).await;
    world.submit("j0").await;
    let broken = Connection::new(&world.server, is_workload_status, |_| Fault::Lost);
    let five_minutes = tokio::time::sleep(Duration::from_secs(300));
    tokio::select! {
        () = world.controller(broken.client()) => {}
        () = five_minutes => {}
    }
    (broken.counted(), world.counts())
}

#[tokio::test(start_paused = true)]
async fn what_never_gets_through_is_tried_less_and_less_often_in_its_lane() {
    let (tries, counts) = tries_in_vain("None").await;
    assert!((30..=45).contains(&tries), "{tries} tries of an admission");
    assert_eq!(counts.decisions, tries as u64 + 1, "the Workload was created: {counts:?}");
    let (tries, counts) = tries_in_vain("Hold").await;
    assert!((30..=45).contains(&tries), "{tries} tries of a report");
    assert_eq!(counts.decisions, 1, "a report is no decision: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_controller_asks_for_nothing() {
    let world = World::new().await;
    for name in names(3) {
        world.submit(&name).await;
    }
    let requests = |server: &ApiServer| {
        let counts = server.request_counts();
        counts.iter().filter(|(key, _)| key.user_agent == "controller").map(|(_, n)| n).sum::<u64>()
    };
    let idle = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = requests(&world.server);
        assert!(before > 0);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(requests(&world.server), before);
    };
    tokio::select! {
        () = world.controller(world.server.client_named("controller")) => {}
        () = idle => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_says_what_keeps_a_job_from_having_a_workload() {
    let world = World::new().await;
    world.submit("j").await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "none-such"}}}));
    world.jobs().patch("j", &PatchParams::default(), &label).await.expect("a label");
    let config = gangway_api::config::Configuration::default();
    let snapshot = Snapshot::read(world.server.client(), Arc::clone(&world.clock), &config).await;
    match snapshot.expect("a snapshot").explain_job("default", "j") {
        Explained::Refused { reason, message } => {
            assert_eq!(reason.as_str(), "WorkloadPriorityClassNotFound");
            assert!(message.contains("none-such"), "{message}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_explains_a_job_without_writing() {
    let world = World::new().await;
    for name in names(3) {
        world.submit(&name).await;
    }
    let waits = |workload: &Workload| {
        let conditions =
            workload.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        conditions.iter().any(|c| c.type_ == "QuotaReserved" && c.reason == "WaitingForQuota")
    };
    let two_wait = |all: &BTreeMap<String, Workload>| all.values().filter(|w| waits(w)).count() == 2;
    tokio::select! {
        () = world.controller(world.server.client()) => {}
        () = until("two Jobs wait", world.workloads(), two_wait) => {}
    }
    let config = gangway_api::config::Configuration::default();
    let client = world.server.client_named("snapshot");
    let snapshot = Snapshot::read(client, Arc::clone(&world.clock), &config).await.expect("a snapshot");
    let mut situations: Vec<&str> = Vec::new();
    for name in names(3) {
        let Explained::Workload(explanation) = snapshot.explain_job("default", &name) else {
            panic!("{name}")
        };
        situations.push(explanation.situation.as_str());
        if explanation.situation.as_str() == "WaitingForQuota" {
            assert!(explanation.message.contains("1 needed, 0 free of 1"), "{}", explanation.message);
        }
    }
    situations.sort_unstable();
    assert_eq!(situations, ["Admitted", "WaitingForQuota", "WaitingForQuota"]);
    assert!(matches!(snapshot.explain_job("default", "none"), Explained::NoSuchJob));
    let writes = world.server.request_counts();
    let of_snapshot = writes.keys().filter(|key| key.user_agent == "snapshot");
    assert!(of_snapshot.into_iter().all(|key| key.verb == "list" || key.verb == "get"));
}
